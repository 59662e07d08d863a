// SPDX-License-Identifier: Apache-2.0
/* The worked example the page opens on: the second stage of LLaVA-1.5's recipe, language model and projector
 * trained, vision tower frozen. */

/** @type {import('./words.js').Words} */
export const EXAMPLE = [
  ['model', 'llava-1.5-7b'],
  ['gpu', 'h100-80'],
  ['batch', '16'],
  ['seq', '1024'],
  ['freeze', 'vision_tower'],
  ['checkpointing', 'full'],
];
