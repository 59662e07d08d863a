// SPDX-License-Identifier: Apache-2.0
/* The factors of the report, in the order in which they are stacked. `look` is the fill: one of the six colours, or a
 * pattern in one of them (`pattern` names an element of ui/Patterns.jsx). */

/** @typedef {{name: string, title: string, help: string, pattern?: string}} Factor */

/** @type {Factor[]} */
export const FACTORS = [
  { name: 'parameters', title: 'Parameters', help: 'Weights held on the device.' },
  { name: 'gradients', title: 'Gradients', help: 'One for each parameter that trains.' },
  { name: 'optimizer', title: 'Optimizer state', help: 'Moments of the optimizer.' },
  { name: 'master', title: 'Master weights', help: 'Copies in fp32 that the optimizer updates.', pattern: 'master' },
  { name: 'activations', title: 'Activations', help: 'Tensors that forward saved for backward.' },
  { name: 'temporary', title: 'Temporaries', help: 'Results that live for a few operations.' },
  { name: 'kv_cache', title: 'KV cache', help: 'Keys and values kept by the attention layers.', pattern: 'kv' },
  { name: 'workspace', title: 'Library workspace', help: 'Scratch memory of cuBLAS and kernels.', pattern: 'work' },
  { name: 'communication', title: 'Communication', help: 'Buckets and buffers of collectives.' },
  { name: 'gathered', title: 'Gathered parameters', help: 'Parameters gathered from the shards of all GPUs.', pattern: 'gather' },
  { name: 'inputs', title: 'Inputs', help: 'The batch: token ids, labels, pixels.' },
  { name: 'buffers', title: 'Buffers', help: 'Module buffers such as position ids.', pattern: 'dots' },
];

/** What the device holds besides the allocator's live blocks. @type {Factor[]} */
export const OUTSIDE = [
  { name: 'fragmentation', title: 'Fragmentation', help: 'Reserved by the caching allocator, not in use at the peak.', pattern: 'hatch' },
  { name: 'reserved_elsewhen', title: 'Other reserved', help: 'Reserved memory peaks at another event than allocated memory: the difference to what is reserved at the allocated peak.', pattern: 'hatch' },
  { name: 'context', title: 'CUDA context', help: 'The driver’s own memory for this process.', pattern: 'cross' },
];

const byName = new Map([...FACTORS, ...OUTSIDE].map((factor) => [factor.name, factor]));

/** @param {string} name @returns {Factor} */
export const factor = (name) => byName.get(name) ?? { name, title: name.replaceAll('_', ' '), help: '' };

/** Names that the report has, in stacking order; names unknown here come last.
 * @param {string[]} present */
export function inOrder(present) {
  const rank = (/** @type {string} */ name) => {
    const at = FACTORS.findIndex((f) => f.name === name);
    return at < 0 ? FACTORS.length : at;
  };
  return [...present].sort((a, b) => rank(a) - rank(b));
}

/** The factors that hold something at the peak, in stacking order. @param {import('./types.js').Report} r */
export function heldFactors(r) {
  const bytes = new Map(r.factors.map((f) => [f.name, f.bytes]));
  return inOrder([...bytes.keys()]).map((name) => ({ name, title: factor(name).title, bytes: bytes.get(name) ?? 0 })).filter((held) => held.bytes > 0);
}

/** What factors and what lies outside of the allocator come to: of a job what the device holds, of a server what it holds before its cache is made.
 * @param {import('./types.js').Report} r */
export const totalOf = (r) => (r.serving ? { title: 'Before the KV cache', bytes: r.peak.allocated + r.outside.reduce((sum, { bytes }) => sum + bytes, 0) }
  : { title: 'On the device', bytes: r.verdict.device_bytes });
