/* Where worker and modules come from: files beside the page or, in a single file (SINGLE), texts inside it. */
import { compile } from './tidemark.js';

const FETCH_MS = 30000;

const beside = (/** @type {string} */ path) => new URL(path, document.baseURI).href;

/** A part as it is packed: beside the page, or in a single file its base64. @param {string} name @param {string} path @param {AbortSignal} [signal] */
function packed(name, path, signal) {
  if (!SINGLE) return compile(beside(path), signal);
  const text = document.getElementById(`part-${name}`)?.textContent ?? '';
  return WebAssembly.compile(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)));
}

/** A part, unpacked by a worker: the page goes on. @param {string} name @param {string} path @param {boolean} isModule
 * @param {Worker} worker @param {AbortSignal} [signal] of what is fetched @returns {Promise<any>} */
async function unpacked(name, path, isModule, worker, signal) {
  const one = await packed(name, path, signal);
  return new Promise((done, fail) => {
    worker.addEventListener('message', ({ data }) => (data.trap === undefined ? done(data.unpacked) : fail(new Error(data.trap))), { once: true });
    worker.addEventListener('error', (event) => fail(new Error(event.message || 'The worker could not start.')), { once: true });
    worker.postMessage({ part: one, isModule });
  });
}

/** The same by a worker of its own. @param {string} name @param {string} path @param {boolean} isModule @param {AbortSignal} [signal] */
function part(name, path, isModule, signal) {
  const worker = started();
  return unpacked(name, path, isModule, worker, signal).finally(() => worker.terminate());
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

const started = () => new Worker(trusted(worker()), SINGLE ? {} : { type: 'module' }); /* no modules from a file on disk */

/** It unpacks the core and is the first to run it. @type {Worker | null} */
let first = null;

/** @type {Promise<import('./tidemark.js').More> | undefined} */
let rest;

async function unpackedMore() {
  const signal = AbortSignal.timeout(FETCH_MS);
  const [models, code] = await Promise.all([part('models', MODELS_PATH, false, signal), SINGLE ? undefined : part('rest', REST_PATH, true, signal)]);
  return { models, rest: code };
}

/** What the core needs for other jobs than the example: fetched once it is asked for, or sooner where it will be. */
export const more = () => rest ??= unpackedMore().catch((error) => {
  rest = undefined; /* the next one tries again */
  throw error;
});
export const expectMore = () => { more().catch(() => {}); };

/** The core's module; and the one for recordings, when the first is opened. */
export function core() {
  first = started();
  return unpacked('core', WASM_PATH, true, first);
}
export const recordings = () => part('recordings', RECORDINGS_PATH, true);
export function spawn() {
  const one = first ?? started();
  first = null;
  return one;
}
export const serviceWorker = () => navigator.serviceWorker.register(trusted(beside('sw.js')), { updateViaCache: 'none' });
