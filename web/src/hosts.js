// SPDX-License-Identifier: Apache-2.0
/* The one other host of the page: the Hugging Face Hub, for a model's config.json, when its reader asks for it (hub.js). */
export const HUB = 'https://huggingface.co';
