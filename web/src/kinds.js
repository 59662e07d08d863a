// SPDX-License-Identifier: Apache-2.0
/* What the job is: the first choice of the page. Each kind is a few words of the job, and shows the settings that mean something to it. */

/** @typedef {import('./types.js').Setting} Setting
 * @typedef {{title: string, settings: string[]}} Group  of the settings that are shown at once
 * @typedef {{name: string, title: string, help: string, words: [string, string | null][], gpus: string[], groups: Group[], more?: string[]}} Kind
 *   words: what choosing it sets, null takes a word out; gpus: shown beside the GPU; more: groups of describe under More settings, else all */

/* Words of training that an inference has no use for. */
const UNTRAINED = /** @type {[string, null][]} */ (['adapter', 'freeze', 'train_only', 'checkpointing', 'optimizer', 'grad_accum', 'clip', 'autocast'].map((name) => [name, null]));
const SHARED = ['parallel.dp', 'parallel.kind', 'parallel.tp', 'parallel.pp'];
const DATA = ['batch', 'seq', 'images', 'image_size'];
const SAMPLES = ['batch', 'seq', 'lengths', 'images', 'image_size'];
const KERNELS = { title: 'Kernels', settings: ['attention', 'sdpa_backend'] };
const TRAINING = { title: 'Training', settings: ['dtype', 'autocast', 'optimizer', 'checkpointing', 'grad_accum', 'clip'] };

/** @param {string[]} more @returns {Group[]} */
const ofTraining = (more) => [{ title: 'Data', settings: SAMPLES }, TRAINING, ...(more.length ? [{ title: 'Adapter', settings: more }] : []), KERNELS];

/** @type {Kind[]} */
export const KINDS = [
  { name: 'full', title: 'Train', help: 'All weights that are not frozen, from scratch or fine-tuned.',
    words: [['mode', null], ['adapter', null], ['quant', null]], gpus: SHARED, groups: ofTraining([]) },
  { name: 'lora', title: 'LoRA', help: 'Fine-tune small matrices beside frozen weights.',
    words: [['mode', null], ['adapter', 'lora'], ['quant', null], ['freeze', null]], gpus: SHARED, groups: ofTraining(['adapter', 'adapter.r']) },
  { name: 'qlora', title: 'QLoRA', help: 'LoRA over weights in 4 bits.',
    words: [['mode', null], ['adapter', 'lora'], ['quant', 'nf4'], ['freeze', null]], gpus: SHARED, groups: ofTraining(['adapter', 'adapter.r', 'quant']) },
  { name: 'generate', title: 'Generate', help: 'Transformers’ generate: prefill, then one token after the other.',
    words: [['mode', 'infer'], ...UNTRAINED], gpus: SHARED,
    groups: [{ title: 'Requests', settings: [...DATA, 'decode', 'cache'] }, { title: 'Weights', settings: ['dtype', 'quant'] }, KERNELS] },
  { name: 'serve', title: 'Serve', help: 'vLLM: what is left for the cache, and how many requests fit.',
    words: [['mode', 'serve'], ...UNTRAINED, ['batch', null], ['seq', null], ['quant', null], ['parallel.kind', null], ['parallel.dp', null], ['attention', null], ['sdpa_backend', null]],
    gpus: ['tensor_parallel_size', 'data_parallel_size'], more: ['serving'],
    groups: [{ title: 'Requests', settings: ['input_len', 'output_len', 'max_model_len', 'max_concurrency'] },
      { title: 'Server', settings: ['gpu_memory_utilization', 'kv_cache_dtype', 'max_num_seqs', 'max_num_batched_tokens', 'dtype', 'enforce_eager'] }] },
];

/** The words that make a job one: what it sets, without what only another mode reads.
 * @param {Kind} kind @param {Setting[]} settings @returns {[string, string | null][]} */
export function wordsFor(kind, settings) {
  const mode = kind.words.find(([name]) => name === 'mode')?.[1] ?? 'train';
  /** @type {(setting: Setting | undefined) => boolean} of another mode, or of a setting that is, as an engine's own are */
  const isElsewhere = (setting) => !!setting?.when && (setting.when.setting === 'mode' ? !setting.when.choices.includes(mode)
    : isElsewhere(settings.find(({ name }) => name === setting.when?.setting)));
  return [...settings.filter(isElsewhere).map(({ name }) => /** @type {[string, null]} */ ([name, null])), ...kind.words];
}

/** Which one a job is. @param {(name: string) => string} valueOf what a setting has come to */
export function kindOf(valueOf) {
  const isSet = (/** @type {string} */ name) => !/^(|none)$/.test(valueOf(name));
  const mode = valueOf('mode');
  const name = mode === 'infer' ? 'generate' : mode === 'serve' ? 'serve' : !isSet('adapter') ? 'full' : isSet('quant') ? 'qlora' : 'lora';
  return /** @type {Kind} */ (KINDS.find((kind) => kind.name === name));
}
