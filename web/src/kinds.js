/* What the job is: the first choice of the page. Each kind is a few words of the job, and shows the settings that mean something to it. */

/** @typedef {import('./types.js').Setting} Setting
 * @typedef {{title: string, settings: string[]}} Group  of the settings that are shown at once
 * @typedef {{name: string, title: string, help: string, words: [string, string | null][], groups: Group[]}} Kind
 *   words: what choosing it sets, null takes a word out */

const DATA = ['batch', 'seq', 'images', 'image_size'];
const KERNELS = { title: 'Kernels', settings: ['attention', 'sdpa_backend'] };
const TRAINING = { title: 'Training', settings: ['dtype', 'autocast', 'optimizer', 'checkpointing', 'grad_accum', 'clip'] };

/** @param {string[]} more @returns {Group[]} */
const ofTraining = (more) => [{ title: 'Data', settings: DATA }, TRAINING, ...(more.length ? [{ title: 'Adapter', settings: more }] : []), KERNELS];

/** @type {Kind[]} */
export const KINDS = [
  { name: 'full', title: 'Train', help: 'All weights that are not frozen, from scratch or fine-tuned.',
    words: [['mode', null], ['adapter', null], ['quant', null]], groups: ofTraining([]) },
  { name: 'lora', title: 'LoRA', help: 'Fine-tune small matrices beside frozen weights.',
    words: [['mode', null], ['adapter', 'lora'], ['quant', null], ['freeze', null]], groups: ofTraining(['adapter', 'adapter.r']) },
  { name: 'qlora', title: 'QLoRA', help: 'LoRA over weights in 4 bits.',
    words: [['mode', null], ['adapter', 'lora'], ['quant', 'nf4'], ['freeze', null]], groups: ofTraining(['adapter', 'adapter.r', 'quant']) },
  { name: 'generate', title: 'Generate', help: 'Transformers’ generate: prefill, then one token after the other.',
    words: [['mode', 'infer'], ['adapter', null], ['freeze', null], ['checkpointing', null], ['optimizer', null], ['grad_accum', null], ['clip', null], ['autocast', null]],
    groups: [{ title: 'Requests', settings: [...DATA, 'decode', 'cache'] }, { title: 'Weights', settings: ['dtype', 'quant'] }, KERNELS] },
];

/** Which one a job is. @param {(name: string) => string} valueOf what a setting has come to */
export function kindOf(valueOf) {
  const isSet = (/** @type {string} */ name) => !/^(|none)$/.test(valueOf(name));
  const name = valueOf('mode') === 'infer' ? 'generate' : !isSet('adapter') ? 'full' : isSet('quant') ? 'qlora' : 'lora';
  return /** @type {Kind} */ (KINDS.find((kind) => kind.name === name));
}
