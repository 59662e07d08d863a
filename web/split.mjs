// SPDX-License-Identifier: Apache-2.0
/* The core in two modules: what a first visit runs, and the rest, which the page fetches with models.json where a call comes to it
 * (Lacking in src/tidemark.js): node split.mjs FOLDER, with what web/wasm/CMakeLists.txt links there.
 *
 * What runs is seen by running it: Binaryen's wasm-split marks the functions that these calls enter. Of data the first module keeps what
 * its functions can name: directly, or through data that it keeps. Everything else stands in the second, which writes it to its place
 * before the core is called. That is known from the relocations, before anything folds addresses; so both are optimized after that. */
import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { functionNames, namesOfData, readMap, segmentsOf, withSegments } from './object.mjs';
import { EXAMPLE } from './src/example.js';
import { exportsOf, wrap } from './src/tidemark.js';

const example = EXAMPLE.map((word) => word.join('='));

/* The opening, and what is done to it first: a setting of the form, one at a time, a wrong one among them. */
const FIRST_WORDS = ['batch=4', 'batch=0', 'batch=256', 'seq=2048', 'dtype=fp32', 'dtype=fp16', 'autocast=bf16', 'optimizer=sgd',
  'optimizer=adam', 'optimizer=adamw8bit', 'checkpointing=none', 'grad_accum=4', 'clip=1', 'freeze=', 'freeze=language_model', 'gpu=rtx-4090', 'attention=eager',
  'sdpa_backend=math', 'sdpa_backend=efficient'];
export const FIRST_CALLS = [
  { call: 'describe', of: 'form' },
  { call: 'estimate', settings: example },
  { call: 'estimate', settings: example, brief: true },
  { call: 'link', settings: example },
  { call: 'read_link', link: `#${example.join('&')}&v=1` },
  ...FIRST_WORDS.map((word) => ({ call: 'estimate', settings: [...example.filter((old) => old.split('=')[0] !== word.split('=')[0]), word] })),
];

const FEATURES = ['--mvp-features', '--enable-bulk-memory', '--enable-exception-handling', '--enable-mutable-globals'];
/* Nothing stands below the data's first address. A large function stays one though it has one caller. */
const OPTIMIZE = ['-Os', '--low-memory-unused', '--one-caller-inline-max-function-size=40', '--strip-debug', '--strip-producers'];
const PROFILE = 'write_profile';
const LEAST_MOVED = 16; /* bytes; a segment of its own takes up to 8 */

/** @param {string} program @param {string[]} args */
function run(program, args) {
  try {
    execFileSync(program, [...FEATURES, ...args]);
  } catch (error) {
    if (/** @type {any} */ (error).code === 'ENOENT') throw new Error(`${program} is not installed (Debian: apt-get install binaryen)`);
    throw error;
  }
}

/** Addresses of what functions of these names cannot come to, in order.
 * @param {string[]} functions @param {Uint8Array<ArrayBuffer>} object @param {string} map @returns {{from: number, to: number}[]} */
function outOfReach(functions, object, map) {
  const { pieces, named, byFunction, byPiece } = namesOfData(object);
  const reached = new Set(named);
  const { places, others } = readMap(map);
  for (const name of functions) {
    const names = byFunction.get(name);
    if (!names && !others.has(name)) throw new Error(`What ${name}() names is not known.`); /* one of another object can only name what is named */
    for (const piece of names ?? []) reached.add(piece);
  }
  for (const piece of reached) for (const further of byPiece[piece]) reached.add(further); /* a set hands out what is added meanwhile */
  const list = pieces.flatMap((name, piece) => (reached.has(piece) || name.startsWith('.bss') ? [] : places.get(name) ?? [])).sort((a, b) => a.from - b.from);
  /** @type {{from: number, to: number}[]} */
  const joined = [];
  for (const { from, to } of list) {
    const last = joined.at(-1);
    if (last?.to === from) last.to = to;
    else joined.push({ from, to });
  }
  return joined.filter(({ from, to }) => to - from >= LEAST_MOVED);
}

/** @param {string} folder with linked.wasm, its object and its map; tidemark.wasm, first.wasm and rest.wasm are written there */
export async function split(folder) {
  const at = (/** @type {string} */ name) => join(folder, name);
  const linked = readFileSync(at('linked.wasm'));
  run('wasm-opt', [...OPTIMIZE, '--post-emscripten', at('linked.wasm'), '-o', at('tidemark.wasm')]);

  run('wasm-split', ['--instrument', at('linked.wasm'), '-o', at('watched.wasm'), `--profile-export=${PROFILE}`]);
  const watched = await exportsOf(new WebAssembly.Module(readFileSync(at('watched.wasm'))));
  const core = wrap(watched);
  for (const request of FIRST_CALLS) core.call(request);
  const length = watched[PROFILE](0, 0);
  const profile = watched.tide_wasm_alloc(length) >>> 0;
  watched[PROFILE](profile, length);
  writeFileSync(at('profile'), new Uint8Array(watched.memory.buffer, profile, length));
  run('wasm-split', ['-g', '--split', at('linked.wasm'), `--profile=${at('profile')}`, '-o1', at('first.wasm'), '-o2', at('rest.wasm')]);

  const first = readFileSync(at('first.wasm'));
  const moved = outOfReach(functionNames(first), readFileSync(at('linked.wasm.lto.o')), readFileSync(at('linked.map'), 'utf8'));
  const data = segmentsOf(linked);
  const between = (/** @type {number} */ from, /** @type {number} */ to) => data.flatMap((segment) => {
    const [low, high] = [Math.max(from, segment.at), Math.min(to, segment.at + segment.bytes.length)];
    return low < high ? [{ at: low, bytes: segment.bytes.subarray(low - segment.at, high - segment.at) }] : [];
  });
  const kept = [...moved, { from: Infinity, to: Infinity }].map(({ from }, i) => ({ from: i ? moved[i - 1].to : 0, to: from }));
  for (const [name, ranges] of /** @type {const} */ ([['first', kept], ['rest', moved]])) {
    writeFileSync(at(`${name}.wasm`), withSegments(readFileSync(at(`${name}.wasm`)), ranges.flatMap(({ from, to }) => between(from, to))));
    run('wasm-opt', [...OPTIMIZE, at(`${name}.wasm`), '-o', at(`${name}.wasm`)]);
  }
}

if (process.argv[1] === import.meta.filename) await split(process.argv[2]);
