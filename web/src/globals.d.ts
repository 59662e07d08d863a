/* Set by the build: addresses of the hashed files, relative to the page. */
declare const WASM_PATH: string;
declare const WORKER_PATH: string;
