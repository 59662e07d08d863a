// SPDX-License-Identifier: Apache-2.0
/* How a job lies on several GPUs: its groups of ranks, other layouts of as many GPUs, and the tokens of a step. */

/** @typedef {{kind: string, dp: number, tp: number, pp: number, cp: number, ep: number}} Layout */
/** @typedef {{rank: number, stage: number, allocated: number, reserved: number}} Rank */

/* What a strategy has beside data parallel ranks. */
const HAS = /** @type {Record<string, (keyof Layout)[]>} */ ({ tp: ['tp'], pp: ['pp'], native: ['tp', 'pp', 'cp', 'ep'], megatron: ['tp', 'pp', 'cp', 'ep'] });
const DATA_PARALLEL = ['ddp', 'zero1', 'zero2', 'zero3', 'fsdp2'];
const MOST_TP = 16; /* a tensor parallel group is of one node */
const MOST_LAYOUTS = 40;

/** What the job came to. @param {(name: string) => string} valueOf a setting @returns {Layout} */
export function layoutOf(valueOf) {
  const kind = valueOf('parallel.kind') || 'none';
  const has = (/** @type {keyof Layout} */ name) => kind !== 'none' && (name === 'dp' ? kind !== 'pp' : HAS[kind]?.includes(name));
  const size = (/** @type {keyof Layout} */ name) => (has(name) ? Math.max(1, Number(valueOf(`parallel.${name}`)) || 1) : 1);
  return { kind, dp: size('dp'), tp: size('tp'), pp: size('pp'), cp: size('cp'), ep: size('ep') };
}

/** Whether ranks differ by their stage or group. @param {(name: string) => string} valueOf */
export const hasStages = (valueOf) => layoutOf(valueOf).kind in HAS;

/** @param {Layout} layout */
export const gpusOf = ({ dp, tp, pp, cp }) => dp * tp * pp * cp;

/** "2 data × 4 tensor × 8 pipeline": what is more than one. @param {Layout} layout */
export function layoutWords({ dp, tp, pp, cp, ep }) {
  const groups = /** @type {[number, string][]} */ ([[dp, 'data'], [tp, 'tensor'], [pp, 'pipeline'], [cp, 'context']]).filter(([n]) => n > 1).map(([n, name]) => `${n} ${name}`);
  return `${groups.join(' × ') || 'one GPU'}${ep > 1 ? `, experts over ${ep}` : ''}`;
}

/** The first rank of each stage that was not played. @param {Layout} layout @param {Rank[]} played */
export function stagesLeft({ dp, tp, pp, cp }, played) {
  return Array.from({ length: pp }, (_, stage) => ({ stage, rank: stage * dp * tp * cp })).filter(({ stage }) => !played.some((one) => one.stage === stage));
}

/** @param {number} n */
const divisors = (n) => Array.from({ length: n }, (_, i) => i + 1).filter((d) => n % d === 0);

/** Other layouts of as many GPUs, each as words of the job. @param {Layout} layout @returns {{layout: Layout, words: [string, string | null][]}[]} */
export function otherLayouts(layout) {
  const all = gpusOf(layout);
  const parts = HAS[layout.kind];
  const [anyRank, stages] = /** @type {[string, null][]} */ ([['parallel.rank', null], ['parallel.stage_layers', null]]); /* of one layout alone */
  if (!parts) {
    return DATA_PARALLEL.filter((kind) => kind !== layout.kind).map((kind) => ({
      layout: { ...layout, kind, dp: all }, words: [['parallel.kind', kind], ['parallel.dp', String(all)], anyRank] }));
  }
  const wide = divisors(all / layout.cp);
  const tps = parts.includes('tp') ? wide.filter((n) => n <= MOST_TP) : [1];
  const pps = layout.kind === 'pp' ? [all] : parts.includes('pp') ? wide : [1];
  const sizes = /** @type {const} */ (['tp', 'pp', 'dp']);
  return tps.flatMap((tp) => pps.map((pp) => ({ ...layout, tp, pp, dp: all / layout.cp / tp / pp })))
    .filter((one) => Number.isInteger(one.dp) && sizes.some((name) => one[name] !== layout[name])).slice(0, MOST_LAYOUTS)
    .map((one) => ({ layout: one, words: [...sizes.filter((name) => one[name] !== layout[name]).map((name) => /** @type {[string, string]} */ ([`parallel.${name}`, String(one[name])])),
      ...(one.pp === layout.pp ? [] : [stages]), anyRank] }));
}

/** Whether a setting changes this job: a default that is assumed, or a value that is not said to have no effect.
    @param {Pick<import('./types.js').Report, 'settings' | 'assumptions' | 'diagnostics'>} r @param {string} name */
export const reads = (r, name) => {
  const isAssumed = r.assumptions.some(({ setting }) => setting === name);
  const isGiven = r.settings.some((s) => s.name === name && s.origin !== 'default');
  return isAssumed || (isGiven && !r.diagnostics.some(({ place, code }) => place === `/settings/${name}` && code === 'ERR_NO_EFFECT'));
};

/** The tokens that all GPUs take in one optimizer step; of pp, batch is all of its micro-batches. @param {(name: string) => string} valueOf a setting */
export function tokensOf(valueOf) {
  const number = (/** @type {string} */ name) => Math.max(1, Number(valueOf(name)) || 1);
  const { kind, dp, pp } = layoutOf(valueOf);
  const micro = kind === 'native' || kind === 'megatron' ? Number(valueOf('parallel.microbatches')) || 2 * pp : 1;
  return number('batch') * number('seq') * number('grad_accum') * dp * micro;
}
