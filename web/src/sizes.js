// SPDX-License-Identifier: Apache-2.0
/* Which sizes of a batch a job reads: those of text, of images, or of both. */
import { reads } from './layout.js';

/** A classifier of images or a denoiser takes no tokens, and a model of text no images. What is no size of a batch is read by all.
    @param {import('./types.js').Report} r @param {string} name of a setting */
export function readsSize(r, name) {
  const hasVision = r.model.parameters.parts.some((part) => /vision|image|visual/i.test(part.name));
  if (name === 'seq' || name === 'lengths') return !reads(r, 'image_size') || reads(r, 'seq') || reads(r, 'images');
  return (name !== 'images' && name !== 'image_size') || hasVision || reads(r, name);
}
