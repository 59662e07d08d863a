// SPDX-License-Identifier: Apache-2.0
/* Set by the build: addresses of the hashed files, relative to the page. */
declare const WASM_PATH: string;
declare const WORKER_PATH: string;
declare const RECORDINGS_PATH: string;
declare const MODELS_PATH: string;
declare const REST_PATH: string;

/* Whether this is the page in a single file. */
declare const SINGLE: boolean;

/* Of the service worker: its version, and what it keeps. */
declare const SW_VERSION: string;
declare const SW_FILES: string[];

/* Not in every browser yet. */
interface Window {
  trustedTypes?: { createPolicy(name: string, rules: { createScriptURL(url: string): string }): { createScriptURL(url: string): unknown } };
}

/* The style of a chunk, as text (build.mjs). */
declare module '*.css' {
  const text: string;
  export default text;
}
