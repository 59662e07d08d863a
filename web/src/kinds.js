// SPDX-License-Identifier: Apache-2.0
/* What the job is: the first choice of the page. Each kind is a few words of the job, and shows the settings that mean something to it. */

/** @typedef {import('./types.js').Setting} Setting
 * @typedef {{title: string, settings: string[]}} Group  of the settings that are shown at once
 * @typedef {{name: string, job: string, title: string, help: string, words: [string, string | null][], gpus: string[], groups: Group[], more?: string[]}} Kind
 *   job: the first choice, of which it is one; words: what choosing it sets, null takes a word out; gpus: shown beside the GPU; more: groups of
 *   describe under More settings, else all */

/* The first choice. */
export const JOBS = [
  { name: 'train', title: 'Train', help: 'All weights, from the first step on.' },
  { name: 'tune', title: 'Fine-tune', help: 'A trained model, in whole, with LoRA or with QLoRA.' },
  { name: 'serve', title: 'Serve', help: 'vLLM: what is left for the KV cache, and how many requests fit.' },
  { name: 'generate', title: 'Generate', help: 'Transformers’ generate: prefill, then one token after the other.' },
];

/* Words of training that an inference has no use for. */
const UNTRAINED = /** @type {[string, null][]} */ (['purpose', 'adapter', 'freeze', 'train_only', 'checkpointing', 'optimizer', 'grad_accum', 'clip', 'autocast'].map((name) => [name, null]));
const SHARED = ['parallel.dp', 'parallel.kind', 'parallel.tp', 'parallel.pp'];
const DATA = ['batch', 'seq', 'images', 'image_size'];
const KERNELS = { title: 'Kernels', settings: ['attention', 'sdpa_backend'] };
const TRAINING = { title: 'Training', settings: ['dtype', 'autocast', 'optimizer', 'checkpointing', 'grad_accum', 'clip'] };

/* Of all that fine-tuning reads. */
const TUNING = { ...TRAINING, settings: ['trainer', ...TRAINING.settings] };

/** @param {string[]} [adapter] @returns {Group[]} */
const ofTuning = (adapter) => [{ title: 'Data', settings: [...DATA, 'lengths'] }, TUNING, ...(adapter ? [{ title: 'Adapter', settings: adapter }] : []), KERNELS];

/** @type {Kind[]} */
export const KINDS = [
  { name: 'train', job: 'train', title: 'Train', help: JOBS[0].help,
    words: [['mode', null], ['purpose', null], ['adapter', null], ['quant', null], ['freeze', null], ['train_only', null], ['trainer', null], ['lengths', null]], gpus: SHARED,
    groups: [{ title: 'Data', settings: DATA }, TRAINING, KERNELS] },
  { name: 'full', job: 'tune', title: 'Full', help: 'All weights that are not frozen.',
    words: [['mode', null], ['purpose', 'finetune'], ['adapter', null], ['quant', null]], gpus: SHARED, groups: ofTuning() },
  { name: 'lora', job: 'tune', title: 'LoRA', help: 'Small matrices beside frozen weights.',
    words: [['mode', null], ['purpose', null], ['adapter', 'lora'], ['quant', null], ['freeze', null]], gpus: SHARED, groups: ofTuning(['adapter', 'adapter.r']) },
  { name: 'qlora', job: 'tune', title: 'QLoRA', help: 'LoRA over weights in 4 bits.',
    words: [['mode', null], ['purpose', null], ['adapter', 'lora'], ['quant', 'nf4'], ['freeze', null]], gpus: SHARED, groups: ofTuning(['adapter', 'adapter.r', 'quant']) },
  { name: 'generate', job: 'generate', title: 'Generate', help: JOBS[3].help,
    words: [['mode', 'infer'], ...UNTRAINED], gpus: SHARED,
    groups: [{ title: 'Requests', settings: [...DATA, 'decode', 'cache'] }, { title: 'Weights', settings: ['dtype', 'quant'] }, KERNELS] },
  { name: 'serve', job: 'serve', title: 'Serve', help: JOBS[2].help,
    words: [['mode', 'serve'], ...UNTRAINED, ['batch', null], ['seq', null], ['quant', null], ['parallel.kind', null], ['parallel.dp', null], ['attention', null], ['sdpa_backend', null]],
    gpus: ['tensor_parallel_size', 'data_parallel_size'], more: ['serving'],
    groups: [{ title: 'Requests', settings: ['input_len', 'output_len', 'max_model_len', 'max_concurrency'] },
      { title: 'Server', settings: ['gpu_memory_utilization', 'kv_cache_dtype', 'max_num_seqs', 'max_num_batched_tokens', 'dtype', 'enforce_eager'] }] },
];

/** @param {string} name @returns {Kind} */
export const kindNamed = (name) => /** @type {Kind} */ (KINDS.find((kind) => kind.name === name));

/** "Fine-tune: QLoRA". @param {Kind} kind */
export const wholeTitle = ({ job, title }) => (job === 'tune' ? `Fine-tune: ${title}` : title);

/** The words that make a job one: what it sets, without what only another one reads.
 * @param {Kind} kind @param {Setting[]} settings @returns {[string, string | null][]} */
export function wordsFor(kind, settings) {
  const given = new Map(kind.words);
  const named = (/** @type {string} */ name) => settings.find((setting) => setting.name === name);
  /** @type {(setting: Setting | undefined) => boolean} of another one, or of a setting that is, as an engine's own are */
  const isElsewhere = (setting) => !!setting?.when && (given.has(setting.when.setting)
    ? !setting.when.choices.includes(given.get(setting.when.setting) ?? String(named(setting.when.setting)?.default ?? '')) : isElsewhere(named(setting.when.setting)));
  return [...settings.filter(isElsewhere).map(({ name }) => /** @type {[string, null]} */ ([name, null])), ...kind.words];
}

/* What only fine-tuning has. */
export const TUNES = ['freeze', 'train_only', 'trainer', 'lengths'];

/** Which one a job is. All weights are trained or fine-tuned by the same allocations: where it has nothing of the other, its purpose says so.
 * @param {(name: string) => string} valueOf what a setting has come to */
export function kindOf(valueOf) {
  const isSet = (/** @type {string} */ name) => !/^(|none)$/.test(valueOf(name));
  const mode = valueOf('mode');
  return kindNamed(mode === 'infer' ? 'generate' : mode === 'serve' ? 'serve' : isSet('adapter') ? (isSet('quant') ? 'qlora' : 'lora')
    : valueOf('purpose') === 'finetune' || TUNES.some(isSet) ? 'full' : 'train');
}
