/* The core in two modules: what a first visit runs, and the rest, which the page fetches with models.json where a call comes to it
 * (Lacking in src/tidemark.js). What runs is seen by running it: Binaryen's wasm-split marks the functions that these calls enter. */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { EXAMPLE } from './src/example.js';
import { exportsOf, wrap } from './src/tidemark.js';

const example = EXAMPLE.map((word) => word.join('='));

/* The opening, and what is done to it first: a setting of the form, one at a time, a wrong one among them. */
const FIRST_WORDS = ['batch=4', 'batch=0', 'batch=256', 'seq=2048', 'dtype=fp32', 'dtype=fp16', 'autocast=bf16', 'optimizer=sgd',
  'optimizer=adam', 'optimizer=adamw8bit', 'checkpointing=none', 'grad_accum=4', 'clip=1', 'freeze=', 'freeze=language_model', 'gpu=rtx-4090', 'attention=eager',
  'sdpa_backend=math', 'sdpa_backend=efficient'];
const FIRST_CALLS = [
  { call: 'describe' },
  { call: 'estimate', settings: example },
  { call: 'link', settings: example },
  { call: 'read_link', link: `#${example.join('&')}&v=1` },
  ...FIRST_WORDS.map((word) => ({ call: 'estimate', settings: [...example.filter((old) => old.split('=')[0] !== word.split('=')[0]), word] })),
];

const FLAGS = ['--all-features'];
const PROFILE = 'write_profile';

/** @param {string[]} args */
function wasmSplit(args) {
  try {
    execFileSync('wasm-split', [...FLAGS, ...args]);
  } catch (error) {
    if (/** @type {any} */ (error).code === 'ENOENT') throw new Error('wasm-split is not installed (Debian: apt-get install binaryen)');
    throw error;
  }
}

/** @param {Buffer} whole tidemark.wasm @returns {Promise<{first: Buffer<ArrayBuffer>, rest: Buffer<ArrayBuffer>}>} */
export async function split(whole) {
  const folder = mkdtempSync(join(tmpdir(), 'tidemark-split-'));
  const at = (/** @type {string} */ name) => join(folder, name);
  try {
    writeFileSync(at('whole.wasm'), whole);
    wasmSplit(['--instrument', at('whole.wasm'), '-o', at('watched.wasm'), `--profile-export=${PROFILE}`]);
    const watched = await exportsOf(new WebAssembly.Module(readFileSync(at('watched.wasm'))));
    const core = wrap(watched);
    for (const request of FIRST_CALLS) core.call(request);
    const length = watched[PROFILE](0, 0);
    const profile = watched.tide_wasm_alloc(length) >>> 0;
    watched[PROFILE](profile, length);
    writeFileSync(at('profile'), new Uint8Array(watched.memory.buffer, profile, length));
    wasmSplit(['--split', at('whole.wasm'), `--profile=${at('profile')}`, '-o1', at('first.wasm'), '-o2', at('rest.wasm')]);
    return { first: readFileSync(at('first.wasm')), rest: readFileSync(at('rest.wasm')) };
  } finally {
    rmSync(folder, { recursive: true });
  }
}
