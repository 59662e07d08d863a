// SPDX-License-Identifier: Apache-2.0
/* The worked example the page opens on: the second stage of LLaVA-1.5's recipe, language model and projector
 * trained, vision tower frozen. And one of each other kind of job. */

/** @typedef {import('./words.js').Words} Words */

/** @type {Words} */
export const EXAMPLE = [
  ['model', 'llava-1.5-7b'],
  ['gpu', 'h100-80'],
  ['batch', '16'],
  ['seq', '1024'],
  ['freeze', 'vision_tower'],
  ['checkpointing', 'full'],
];

/** By the name of the kind (kinds.js). @type {Record<string, Words>} */
export const EXAMPLES = {
  train: [['model', 'llama-3.1-8b'], ['gpu', 'h100-80'], ['seq', '8192'], ['checkpointing', 'full'], ['parallel.kind', 'fsdp2'], ['parallel.dp', '8']],
  full: EXAMPLE,
  lora: [['model', 'llama-3.1-8b'], ['gpu', 'l40s'], ['batch', '4'], ['seq', '2048'], ['checkpointing', 'full'], ['adapter', 'lora']],
  qlora: [['model', 'qwen2.5-7b'], ['gpu', 'rtx-4090'], ['seq', '2048'], ['checkpointing', 'full'], ['quant', 'nf4'], ['adapter', 'lora']],
  generate: [['model', 'qwen2.5-7b'], ['gpu', 'rtx-4090'], ['mode', 'infer'], ['seq', '2048'], ['decode', '256']],
  serve: [['model', 'llama-3.1-8b'], ['gpu', 'l40s'], ['mode', 'serve']],
};
