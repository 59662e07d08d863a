// SPDX-License-Identifier: Apache-2.0
/* Whose memory a recording holds: allocations as bands over the events, live blocks as a flame graph, two recordings against each other.
 * The core answers with stacks told once: lists of numbers of names, the frame that asked first. */

/** @typedef {{stacks: number[][], names: string[]}} Told
 * @typedef {{from: number, to?: number, bytes: number, stack: number}} Band  to: the event that frees it
 * @typedef {Told & {events: number, from: number, to: number, columns: {from: number, at: number, allocated: number}[], bands: Band[]}} Bands
 * @typedef {Told & {event: number, allocated: number, live: {bytes: number, count: number, stack: number}[], rest: number}} Live
 * @typedef {Told & {steps: number, samples: number[], grows: {stack: number, bytes: number[]}[]}} Growth
 * @typedef {'frame' | 'category' | 'stack'} By */

/** @param {Told} told @param {number} stack */
export const framesOf = ({ stacks, names }, stack) => stacks[stack].map((name) => names[name]);

const isPython = (/** @type {string} */ frame) => /\.py[:(]/.test(frame);
const isTorch = (/** @type {string} */ frame) => /(^|\/)torch\//.test(frame);

/** The program's own frame: the innermost in Python that is not PyTorch's, else the outermost that has a name.
 * @param {string[]} frames the innermost first */
export const ownFrame = (frames) => frames.find((frame) => isPython(frame) && !isTorch(frame)) ?? frames.findLast((frame) => !frame.includes('??')) ?? 'no frame was recorded';

/* By what stands in the stack; the first that fits. */
const CATEGORIES = /** @type {[string, RegExp][]} */ ([
  ['Optimizer', /torch\/optim\/|optimizer.*\bstep\b|\bclip_grad/],
  ['Backward', /torch\/autograd\/|autograd::|\bbackward\b|[a-z]Backward\d/],
  ['Forward', /nn\/modules\/|nn\/functional|\bforward\b/],
  ['Loading and moving', /from_pretrained|load_state_dict|\b_apply\b|\bconvert\b|safetensors|\bto\b$/],
]);

/** What the memory was asked for, as far as the stack says. @param {string[]} frames */
export const categoryOf = (frames) => (frames.length ? CATEGORIES.find(([, sign]) => frames.some((frame) => sign.test(frame)))?.[0] ?? 'Other' : 'No stack');

/** What an allocation is coloured by. @param {Told} told @param {number} stack @param {By} by */
export function groupOf(told, stack, by) {
  const frames = framesOf(told, stack);
  return by === 'category' ? categoryOf(frames) : by === 'frame' ? ownFrame(frames) : frames.join('\n');
}

export const COLOURS = 7; /* groups with a colour of their own; the last is for all others */

/** The groups of some bands, those that hold most for longest first; with their colours.
 * @param {Bands} bands @param {By} by @returns {{of: string[], groups: {name: string, colour: number}[]}} of: the group of each stack */
export function groupsOf(bands, by) {
  const of = bands.stacks.map((_, stack) => groupOf(bands, stack, by));
  /** @type {Map<string, number>} */
  const weight = new Map();
  for (const { from, to = bands.to, bytes, stack } of bands.bands) {
    const name = of[stack];
    weight.set(name, (weight.get(name) ?? 0) + bytes * Math.max(0, Math.min(to, bands.to) - Math.max(from, bands.from)));
  }
  const groups = [...weight].sort((a, b) => b[1] - a[1]).map(([name], i) => ({ name, colour: Math.min(i, COLOURS - 1) }));
  return { of, groups };
}

/** @typedef {{band: Band, first: number, low: number[]}} Placed  over the columns from `first` on, low: where it begins in each, in bytes */

/** Where each band lies over the columns: the oldest at the bottom, and what is no band on top. @param {Bands} bands @returns {Placed[]} */
export function placed({ columns, bands }) {
  /** @type {Placed[]} */
  const rows = bands.map((band) => ({ band, first: -1, low: [] }));
  columns.forEach(({ at }, column) => {
    let low = 0;
    for (const row of rows) {
      const { from, to = Infinity, bytes } = row.band;
      if (from > at || at >= to) continue;
      if (row.first < 0) row.first = column;
      row.low.push(low);
      low += bytes;
    }
  });
  return rows.filter(({ first }) => first >= 0);
}

/** A band's outline in a drawing `wide` across and of `y`. @param {Placed} row @param {number} columns @param {number} wide @param {(bytes: number) => number} y */
export function outline({ band, first, low }, columns, wide, y) {
  const x = (/** @type {number} */ column) => (wide * column / columns).toFixed(1);
  let up = `M${x(first)} ${y(low[0]).toFixed(1)}`;
  low.forEach((bytes, i) => { if (i > 0 && bytes !== low[i - 1]) up += `H${x(first + i)}V${y(bytes).toFixed(1)}`; });
  /* The upper edge backwards: each stretch from its end to its beginning. */
  const back = [];
  for (let i = low.length - 1; i >= 0; i--) {
    if (i > 0 && low[i] === low[i - 1]) continue;
    back.push(`V${y(low[i] + band.bytes).toFixed(1)}H${x(first + i)}`);
  }
  return `${up}H${x(first + low.length)}${back.join('')}z`;
}

/** The band at a place. @param {Placed[]} rows @param {number} column @param {number} bytes */
export const bandAt = (rows, column, bytes) => rows.find(({ band, first, low }) => {
  const at = low[column - first];
  return at !== undefined && bytes >= at && bytes < at + band.bytes;
})?.band ?? null;

/** @typedef {{name: string, value: number, bytes: number, count: number, children: Map<string, Flame>}} Flame */

/** Live blocks as a tree from the outermost frame to the innermost, as wide as their bytes or as many blocks.
 * @param {Live} live @param {'bytes' | 'count'} by @returns {Flame} */
export function flameOf(live, by) {
  /** @param {string} name @returns {Flame} */
  const node = (name) => ({ name, value: 0, bytes: 0, count: 0, children: new Map() });
  const root = node('All');
  for (const { bytes, count, stack } of live.live) {
    const all = framesOf(live, stack);
    const python = all.filter(isPython);
    const frames = (python.length ? python : all).toReversed();
    let at = root;
    for (const name of [null, ...frames.length ? frames : ['no frame was recorded']]) {
      if (name !== null) {
        if (!at.children.has(name)) at.children.set(name, node(name));
        at = /** @type {Flame} */ (at.children.get(name));
      }
      at.bytes += bytes;
      at.count += count;
      at.value += by === 'bytes' ? bytes : count;
    }
  }
  return root;
}

/** What two recordings hold at their peaks, by stack: what is new in the second, what grew, shrank and is gone; most first.
 * @param {Live} before @param {Live} after */
export function difference(before, after) {
  const sums = (/** @type {Live} */ live) => {
    /** @type {Map<string, {frames: string[], bytes: number, count: number}>} */
    const sum = new Map();
    for (const { bytes, count, stack } of live.live) {
      const frames = framesOf(live, stack);
      const key = frames.join('\n');
      const old = sum.get(key);
      sum.set(key, { frames, bytes: bytes + (old?.bytes ?? 0), count: count + (old?.count ?? 0) });
    }
    return sum;
  };
  const [one, two] = [sums(before), sums(after)];
  /* Stacks of one alone are matched without their line numbers: the program may have been edited in between. */
  const plain = (/** @type {string} */ key) => key.replaceAll(/:\d+/g, '');
  /** @type {Map<string, string[]>} */
  const alone = new Map();
  for (const key of one.keys()) if (!two.has(key)) alone.set(plain(key), [...alone.get(plain(key)) ?? [], key]);
  for (const [key, held] of [...two]) {
    const old = one.has(key) ? undefined : alone.get(plain(key))?.shift();
    if (old === undefined) continue;
    two.delete(key);
    two.set(old, held);
  }
  const rows = [...new Set([...one.keys(), ...two.keys()])].map((key) => {
    const [a, b] = [one.get(key), two.get(key)];
    const change = (b?.bytes ?? 0) - (a?.bytes ?? 0);
    return { frames: (b ?? a)?.frames ?? [], before: a?.bytes ?? 0, after: b?.bytes ?? 0, change, kind: !a ? 'new' : !b ? 'gone' : change > 0 ? 'grew' : change < 0 ? 'shrank' : 'same' };
  });
  return rows.filter(({ kind }) => kind !== 'same').sort((a, b) => Math.abs(b.change) - Math.abs(a.change));
}
