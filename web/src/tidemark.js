/* Loads tidemark.wasm, or recordings.wasm: JSON in, JSON out. The same file runs in the page's worker and in Node. */

/** The one function this module needs of a loaded core.
 * @typedef {{call: (request: object) => any, callText: (request: string) => string, open: () => void, add: (bytes: Uint8Array) => void}} Core
 *   open and add: of recordings.wasm, begin a recording and take its next bytes */

/** The answer needs what the core was not given: models.json. */
export class Lacking extends Error {}

const LACKS_MODELS = 3; /* as tide_wasm_call returns it */

const EXPORTS = ['memory', 'tide_wasm_alloc', 'tide_wasm_free', 'tide_wasm_call', 'tide_wasm_result',
  'tide_wasm_result_len'];

/* What a stand-alone file of Emscripten may ask for: notices only. Anything else is refused by name. */
const NOTICES = new Set(['emscripten_notify_memory_growth']);

/** @param {WebAssembly.Module} module */
function imports(module) {
  /** @type {Record<string, Record<string, Function>>} */
  const given = {};
  for (const { module: from, name, kind } of WebAssembly.Module.imports(module)) {
    if (kind !== 'function') throw new Error(`tidemark.wasm asks for ${from}.${name} (${kind})`);
    given[from] ??= {};
    given[from][name] = NOTICES.has(name) ? () => {} : () => {
      throw new Error(`tidemark.wasm called ${from}.${name}`);
    };
  }
  return given;
}

/** What a core can do without until it is Lacking: models.json.
 * @typedef {ArrayBuffer | Uint8Array} More */

/** Starts one instance of a compiled module.
 * @param {WebAssembly.Module} module @param {More} [more]
 * @returns {Promise<Core>} */
export async function start(module, more) {
  const instance = await WebAssembly.instantiate(module, imports(module));
  const core = /** @type {any} */ (instance.exports);
  const missing = EXPORTS.filter((name) => !(name in core));
  if (missing.length) {
    throw new Error(`Page and core are from different versions: ${missing.join(', ')} is missing. Reload the page.`);
  }
  core._initialize?.();

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

  if (more) {
    const at = core.tide_wasm_alloc(more.byteLength) >>> 0; /* for good */
    if (at === 0) throw new Error('The core has no room for models.json.');
    new Uint8Array(core.memory.buffer, at, more.byteLength).set(new Uint8Array(more));
    if (core.tide_wasm_models(at, more.byteLength) !== 0) throw new Error('Core and models.json are from different versions: reload the page.');
  }

  return { callText, open, add, call: (request) => JSON.parse(callText(JSON.stringify(request))) };
}

/** Compiles while it downloads; from the bytes where the host sends another MIME type.
 * @param {string | URL} url
 * @returns {Promise<WebAssembly.Module>} */
export async function compile(url) {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`tidemark.wasm: the host answered ${response.status}.`);
  const spare = response.clone();
  try {
    return await WebAssembly.compileStreaming(response);
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    return WebAssembly.compile(await spare.arrayBuffer());
  }
}
