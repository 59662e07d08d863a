// SPDX-License-Identifier: Apache-2.0
/* Loads tidemark.wasm, or recordings.wasm: JSON in, JSON out. The same file runs in the page's worker and in Node. */

/** The one function this module needs of a loaded core.
 * @typedef {{call: (request: object) => any, callText: (request: string) => string, open: () => void, add: (bytes: Uint8Array) => void}} Core
 *   open and add: of recordings.wasm, begin a recording and take its next bytes */

/** The answer needs what the core was not given: models.json, or the rest of the code. */
export class Lacking extends Error {}

const LACKS_MODELS = 3; /* as tide_wasm_call returns it */

const EXPORTS = ['memory', 'tide_wasm_alloc', 'tide_wasm_free', 'tide_wasm_call', 'tide_wasm_result',
  'tide_wasm_result_len'];

/* What a stand-alone file of Emscripten may ask for: notices only. Anything else is refused by name. */
const NOTICES = new Set(['emscripten_notify_memory_growth']);

/* Where a core in two modules (split.mjs) calls what is in the other one. */
const ELSEWHERE = 'placeholder';

/** @param {WebAssembly.Module} module */
function imports(module) {
  /** @type {Record<string, Record<string, Function>>} */
  const given = {};
  for (const { module: from, name, kind } of WebAssembly.Module.imports(module)) {
    if (kind !== 'function') throw new Error(`tidemark.wasm asks for ${from}.${name} (${kind})`);
    given[from] ??= {};
    given[from][name] = NOTICES.has(name) ? () => {} : () => {
      if (from === ELSEWHERE) throw new Lacking('This core has not been given the rest of its code.');
      throw new Error(`tidemark.wasm called ${from}.${name}`);
    };
  }
  return given;
}

/** What a core can do without until it is Lacking: models.json, and of a core in two modules the second.
 * @typedef {{models: ArrayBuffer | Uint8Array, rest?: WebAssembly.Module}} More */

/** Starts one instance of a compiled module. After it was Lacking an instance is of no use any more.
 * @param {WebAssembly.Module} module @param {More} [more]
 * @returns {Promise<Core>} */
export async function start(module, more) {
  const exports = await exportsOf(module, more?.rest);
  const core = wrap(exports);
  if (more) core.give(more.models);
  return core;
}

/** @param {WebAssembly.Module} module @param {WebAssembly.Module} [rest] @returns {Promise<any>} what an instance exports */
export async function exportsOf(module, rest) {
  const { exports } = await WebAssembly.instantiate(module, imports(module));
  if (rest) await WebAssembly.instantiate(rest, { primary: exports }); /* enters its functions in the table of the first */
  const missing = EXPORTS.filter((name) => !(name in exports));
  if (missing.length) {
    throw new Error(`Page and core are from different versions: ${missing.join(', ')} is missing. Reload the page.`);
  }
  /** @type {any} */ (exports)._initialize?.();
  return exports;
}

/** The functions of a core around its exports. @param {any} core @returns {Core & {give: (models: ArrayBuffer | Uint8Array) => void}} */
export function wrap(core) {
  const encoder = new TextEncoder();
  const decoder = new TextDecoder();

  /* Views are taken anew around the call: memory may have grown, which detaches old ones. */
  function callText(/** @type {string} */ request) {
    const bytes = encoder.encode(request);
    const at = core.tide_wasm_alloc(bytes.length) >>> 0;
    if (at === 0) throw new Error(`The core has no room for a request of ${bytes.length} bytes.`);
    try {
      new Uint8Array(core.memory.buffer, at, bytes.length).set(bytes);
      const result = core.tide_wasm_call(at, bytes.length);
      if (result === LACKS_MODELS) throw new Lacking('This core has not been given models.json.');
      const length = core.tide_wasm_result_len() >>> 0;
      if (length === 0) throw new Error('The core ran out of memory.');
      return decoder.decode(new Uint8Array(core.memory.buffer, core.tide_wasm_result() >>> 0, length));
    } finally {
      core.tide_wasm_free(at);
    }
  }

  function open() {
    if (core.tide_wasm_open() !== 0) throw new Error('There is no memory left.');
  }

  function add(/** @type {Uint8Array} */ bytes) {
    const at = core.tide_wasm_alloc(bytes.length) >>> 0;
    if (at === 0) throw new Error('The recording is larger than the memory of this page.');
    try {
      new Uint8Array(core.memory.buffer, at, bytes.length).set(bytes);
      if (core.tide_wasm_add(at, bytes.length) !== 0) throw new Error('The recording is larger than the memory of this page.');
    } finally {
      core.tide_wasm_free(at);
    }
  }

  function give(/** @type {ArrayBuffer | Uint8Array} */ models) {
    const at = core.tide_wasm_alloc(models.byteLength) >>> 0; /* for good */
    if (at === 0) throw new Error('The core has no room for models.json.');
    new Uint8Array(core.memory.buffer, at, models.byteLength).set(new Uint8Array(models));
    if (core.tide_wasm_models(at, models.byteLength) !== 0) throw new Error('Core and models.json are from different versions: reload the page.');
  }

  return { callText, give, open, add, call: (request) => JSON.parse(callText(JSON.stringify(request))) };
}

/** Compiles while it downloads; from the bytes where the host sends another MIME type. @param {Response} response @returns {Promise<WebAssembly.Module>} */
export async function compile(response) {
  if (response.headers.get('Content-Type') === 'application/wasm') return WebAssembly.compileStreaming(response);
  return WebAssembly.compile(await response.arrayBuffer());
}
