/* Where worker and modules come from: files beside the page or, in a single file (SINGLE), texts inside it. */
import { compile } from './tidemark.js';

const FETCH_MS = 30000;

const beside = (/** @type {string} */ path) => new URL(path, document.baseURI).href;

/** A part of the single file: base64 of gzip. @param {string} name @returns {Promise<ArrayBuffer>} */
async function inside(name) {
  const text = document.getElementById(`part-${name}`)?.textContent ?? '';
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'))).arrayBuffer();
}

/** @param {string} name @param {string} path */
const moduleOf = (name, path) => (SINGLE ? inside(name).then((bytes) => WebAssembly.compile(bytes)) : compile(beside(path)));

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

async function fetched() {
  const [models, code] = await Promise.all([fetch(beside(MODELS_PATH), { signal: AbortSignal.timeout(FETCH_MS) }), compile(beside(REST_PATH))]);
  if (!models.ok) throw new Error(`models.json: the host answered ${models.status}.`);
  return { models: await models.arrayBuffer(), rest: code };
}

/** What the core needs for other jobs than the example: fetched once it is asked for, or sooner where it will be. */
export const more = () => rest ??= (SINGLE ? inside('models').then((models) => ({ models })) : fetched()).catch((error) => {
  rest = undefined; /* the next one tries again */
  throw error;
});
export const expectMore = () => { more().catch(() => {}); };

/** The core's module; and the one for recordings, when the first is opened. */
export const core = () => moduleOf('core', WASM_PATH);
export const recordings = () => moduleOf('recordings', RECORDINGS_PATH);
export const spawn = () => new Worker(trusted(worker()), SINGLE ? {} : { type: 'module' }); /* no modules from a file on disk */
export const serviceWorker = () => navigator.serviceWorker.register(trusted(beside('sw.js')), { updateViaCache: 'none' });
