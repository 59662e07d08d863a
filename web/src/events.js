// SPDX-License-Identifier: Apache-2.0
/* Events one by one and the allocator after one, as the core answers them ("events", "state"): what rows and cells say, and which
 * rows are seen. A million events stay in the core: it is asked for windows. */
import { fixed } from './format.js';

/** @typedef {{event: number, kind: 'alloc' | 'free' | 'wait' | 'back' | 'oom' | 'empty_cache', requested?: number, stream?: number, bytes?: number,
 *   address?: number, segment?: number, other?: number, allocated?: number, reserved?: number, us?: number, frame?: string, stack?: number,
 *   step?: number, phase?: string, factor?: string, op?: string, module?: string, line?: string, dtype?: string, shape?: {n: number, name?: string}[]}} EventRow
 *   other: the event that frees what this one takes, or took what it frees
 * @typedef {{events: number, passing: number, first: number, rows: EventRow[], stacks?: string[][]}} EventWindow  first: of those that pass
 * @typedef {{at: number, bytes: number, state: 'live' | 'free' | 'waiting' | 'several', blocks?: number, live?: number, waiting?: number,
 *   requested?: number, event?: number, frame?: string, factor?: string, op?: string, module?: string}} Cell  a block, or several that are too small to draw
 * @typedef {{address: number, bytes: number, pool: 'small' | 'large', stream: number, count?: number, is_expandable?: true, blocks: number,
 *   live_blocks: number, live: number, waiting: number, largest_free: number, cells: Cell[]}} Segment  count: of segments that are alike
 * @typedef {{bytes: number, count: number, each: number, address: number, stream: number, requested: number, event?: number, frame?: string,
 *   frames?: string[], factor?: string, op?: string, module?: string, line?: string, dtype?: string, shape?: {n: number, name?: string}[],
 *   rest?: undefined}} Alive
 * @typedef {{events: number, event: number, failed_at?: number, allocated: number, reserved: number, waiting: number, largest_free: number,
 *   segment_count: number, block_count: number, live_count: number, idle: {count: number, bytes: number}, segments: Segment[],
 *   other_segments?: {count: number, bytes: number, live: number}, alive: (Alive | {rest: number})[], blocks?: Cell[]}} State
 * @typedef {{ask: (call: 'events' | 'state', more: object, lane: string) => Promise<any>, events: number, peak: number, key: unknown,
 *   name: (n: number) => import('./format.js').Unit}} Source  key: changes with the answers; name: the unit for sizes of such a run */

/* Rows that are asked for at once, that are seen, and how near the end of what is there more is asked for. */
export const ASKED = 240;
export const SEEN = 12;
const NEAR = 40;

/** The rows around an event, and whether more should be asked for.
 * @param {EventWindow} window @param {number} event @returns {{rows: EventRow[], at: number, wantsMore: boolean}} at: index of the row at or behind the
 *   event; -1: there is none */
export function seenRows({ rows, first, passing }, event) {
  let at = rows.findIndex((row) => row.event >= event);
  if (at < 0) at = rows.length - 1;
  const start = Math.max(0, Math.min(rows.length - SEEN, at - Math.floor(SEEN / 2)));
  const isOutside = rows.length > 0 && (rows[0].event > event ? first > 0 : rows[rows.length - 1].event < event && first + rows.length < passing);
  const wantsMore = isOutside || (at < NEAR && first > 0) || (at > rows.length - NEAR && first + rows.length < passing);
  return { rows: rows.slice(start, start + SEEN), at: rows.length ? at - start : -1, wantsMore };
}

const KINDS = { alloc: 'allocates', free: 'frees', wait: 'frees later', back: 'is back', oom: 'out of memory', empty_cache: 'empties the cache' };
export const KIND_HELP = { wait: 'Freed, but another stream still uses it: it waits for that stream.', back: 'The other stream is done: the block can be used again.',
  empty_cache: 'Unused segments are released to the driver.', oom: 'The request failed.' };

/** @param {EventRow} row */
export const kindOf = ({ kind }) => KINDS[kind] ?? kind;

/** The size that an event is of: its block's, or what was asked for. @param {EventRow} row */
export const sizeOf = ({ bytes, requested }) => bytes ?? requested;

/** @param {number} address */
export const hex = (address) => `0x${address.toString(16)}`;

/** Who asked, in short: a frame without the folders before its last, or the end of the module's name and the operation.
 * @param {{frame?: string, module?: string, op?: string}} of */
export function sourceOf({ frame, module = '', op }) {
  if (frame !== undefined) return frame.replace(/^.*\/(?=[^/]*\/[^/]*:)/, '…/');
  return [module.replace(/^.*\.(?=(?:[^.]+\.){2,3}[^.]+$)/, '…'), op].filter(Boolean).join(' ');
}

/** The same in full. @param {{frame?: string, module?: string, op?: string}} of */
export const wholeSource = ({ frame, module, op }) => frame ?? [module, op].filter(Boolean).join(' ');

/** Free bytes of a segment. @param {{bytes: number, live: number, waiting: number}} segment */
export const freeOf = ({ bytes, live, waiting }) => bytes - live - waiting;

/** The cell at a share of a segment's width. @param {Segment} segment @param {number} share */
export function cellAt({ cells, bytes }, share) {
  const at = cells.findLastIndex((cell) => cell.at <= share * bytes);
  return Math.max(0, Math.min(cells.length - 1, at));
}

/** What a cell is, in words. @param {Cell} cell @param {(bytes: number) => string} size */
export function cellWords({ bytes, state, blocks = 1, live = 0, waiting = 0, event }, size) {
  if (state === 'several') return `${fixed(blocks)} small blocks, ${size(bytes)}: ${size(live)} live${waiting ? `, ${size(waiting)} waiting` : ''}, ${size(bytes - live - waiting)} free`;
  if (state === 'free') return `a gap of ${size(bytes)}`;
  if (state === 'waiting') return `${size(bytes)} waiting for another stream`;
  return `${size(bytes)} live${event === undefined ? ', from before the recording' : `, taken at event ${fixed(event)}`}`;
}

/** Paths of a segment's cells by what fills them, in a drawing 1000 wide; free memory is the ground.
 * @param {Segment} segment @param {number} high @returns {[fill: string, d: string][]} fill: a factor, 'allocated', 'waiting' or 'several' */
export function cellPaths({ cells, bytes }, high) {
  /** @type {Map<string, string>} */
  const paths = new Map();
  const x = (/** @type {number} */ at) => ((1000 * at) / bytes).toFixed(2);
  for (const { at, bytes: wide, state, live = 0, factor } of cells) {
    if (state === 'free') continue;
    const isFull = state === 'several' && live === wide;
    const kind = state === 'live' || isFull ? factor ?? 'allocated' : state;
    paths.set(kind, `${paths.get(kind) ?? ''}M${x(at)} 0H${x(at + wide)}V${high}H${x(at)}z`);
  }
  return [...paths];
}
