// SPDX-License-Identifier: Apache-2.0
/* Where worker, modules and models come from: files beside the page or, in a single file (SINGLE), texts inside it. */
import { compile } from './tidemark.js';

const FETCH_MS = 30000;

const beside = (/** @type {string} */ path) => new URL(path, document.baseURI).href;

/** A part of the page as a response: from its file or, in a single file, from base64 of gzip.
 * @param {string} name @param {string} path @param {AbortSignal} [signal] */
async function part(name, path, signal) {
  if (SINGLE) {
    const text = document.getElementById(`part-${name}`)?.textContent ?? '';
    const bytes = new Blob([Uint8Array.from(atob(text), (c) => c.charCodeAt(0))]);
    return new Response(bytes.stream().pipeThrough(new DecompressionStream('gzip')));
  }
  const response = await fetch(beside(path), { signal });
  if (!response.ok) throw new Error(`${path.split('/').at(-1)}: the host answered ${response.status}.`);
  return response;
}

/** @type {string | undefined} */
let workerUrl;
const worker = () => workerUrl ??= SINGLE
  ? URL.createObjectURL(new Blob([document.getElementById('part-worker')?.textContent ?? ''], { type: 'text/javascript' }))
  : beside(WORKER_PATH);

/** @type {{createScriptURL(url: string): unknown} | undefined} */
let policy;

/** Trusted Types: the scripts that this page ever starts by address are its own worker and its service worker. @param {string} url */
function trusted(url) {
  policy ??= window.trustedTypes?.createPolicy('tidemark', {
    createScriptURL(wanted) {
      if (wanted !== worker() && wanted !== beside('sw.js')) throw new TypeError(`Not a script of this page: ${wanted}`);
      return wanted;
    },
  });
  return /** @type {any} */ (policy ? policy.createScriptURL(url) : url);
}

/** @type {Promise<import('./tidemark.js').More> | undefined} */
let rest;

async function fetchMore() {
  const signal = AbortSignal.timeout(FETCH_MS);
  const [models, code] = await Promise.all([
    part('models', MODELS_PATH, signal).then((response) => response.arrayBuffer()),
    SINGLE ? undefined : part('rest', REST_PATH, signal).then(compile),
  ]);
  return { models, rest: code };
}

/** What the core needs for other jobs than the example: fetched once it is asked for, or sooner where it will be. */
export const more = () => rest ??= fetchMore().catch((error) => {
  rest = undefined; /* the next one tries again */
  throw error;
});
export const expectMore = () => { more().catch(() => {}); };

/** The core's module; and the one for recordings, when the first is opened. */
export const core = () => part('core', WASM_PATH).then(compile);
export const recordings = () => part('recordings', RECORDINGS_PATH).then(compile);

export const spawn = () => new Worker(trusted(worker()), SINGLE ? {} : { type: 'module' }); /* no modules from a file on disk */
export const serviceWorker = () => navigator.serviceWorker.register(trusted(beside('sw.js')), { updateViaCache: 'none' });
