// SPDX-License-Identifier: Apache-2.0
/* With which settings a model starts: with its defaults, or with the least that lets it run on the GPU at hand. */
import { askAsIs } from './asking.js';
import { awaited, request } from './state.js';

/** @typedef {import('./words.js').Words} Words */

const MOST_GPUS = 1024;
const MOST_TENSOR_PARALLEL = 16;

const powers = (/** @type {number} */ most) => Array.from({ length: Math.log2(most) }, (_, i) => 2 ** (i + 1));

/** What is tried, in order. @param {import('./kinds.js').Kind} kind @returns {{words: Words, said: string}[]} */
function triesOf({ name }) {
  if (name === 'generate') return [];
  if (name === 'serve') return powers(MOST_TENSOR_PARALLEL).map((n) => ({ words: [['tensor_parallel_size', String(n)]], said: `starts with tensor parallelism over ${n} GPUs, the fewest that hold it.` }));
  const whole = /** @type {Words[0]} */ (['checkpointing', 'full']);
  return [
    { words: [whole], said: 'starts with full checkpointing, without which it does not fit the GPU.' },
    ...powers(MOST_GPUS).map((n) => ({ words: /** @type {Words} */ ([whole, ['parallel.kind', 'fsdp2'], ['parallel.dp', String(n)], ['parallel.meta_init', 'true']]),
      said: `starts with FSDP2 over ${n} GPUs, the fewest that hold it, with full checkpointing and its weights made on the meta device.` })),
  ];
}

/** Null: it is no longer wanted.
 * @param {import('./kinds.js').Kind} kind @param {import('./state.js').Job} job what holds in any case @param {() => boolean} isWanted
 * @returns {Promise<{words: Words, said: string} | null>} */
export async function startOf(kind, job, isWanted) {
  const none = { words: /** @type {Words} */ ([]), said: '' };
  awaited.value = true;
  for (const one of [none, ...triesOf(kind)]) {
    const { verdict } = await askAsIs({ ...request({ ...job, words: [...job.words, ...one.words] }), call: 'measure' }, 'start').catch(() => null) ?? {};
    if (!isWanted()) return null;
    if (!verdict || verdict.fits === null) return none; /* what is wrong is said where it is asked for */
    if (verdict.fits && verdict.margin_bytes >= 0) return one;
  }
  return none;
}
