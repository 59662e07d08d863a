// SPDX-License-Identifier: Apache-2.0
/* A sweep of one to three settings: values, order of play, what a cell came to, and the table as CSV and as a command. */
import { csv } from './csv.js';
import { toCommand } from './words.js';

export const MOST_VALUES = 32;

/** @typedef {{name: string, values: string[]}} Axis */
/** @typedef {{kind: 'fits' | 'close' | 'open' | 'not' | 'none' | 'refused', bytes: number, card: number, allocated: number, reserved: number,
 *   margin: number | null, rank: number | null, said: string}} Cell */

/** "1,2,4", "1-32", "512-8192:512" as values; each once.
 * @param {string} text @returns {string[]} */
export function readValues(text) {
  const out = new Set(/** @type {string[]} */ ([]));
  for (const piece of text.split(',').map((word) => word.trim()).filter(Boolean)) {
    const range = /^(\d+)-(\d+)(?::(\d+))?$/.exec(piece);
    if (!range) out.add(piece);
    else for (let at = Number(range[1]), step = Number(range[3] || 1); at <= Number(range[2]) && step > 0 && out.size < MOST_VALUES; at += step) out.add(String(at));
  }
  return [...out].slice(0, MOST_VALUES);
}

/** Values worth asking for: choices, or powers of two around the present one.
 * @param {import('./types.js').Setting} setting @param {string} now @returns {string[]} */
export function usualValues({ name, type, choices, least = 1, most = Infinity }, now) {
  if (choices) return choices.map(String).slice(0, MOST_VALUES);
  if (/^bool/.test(type)) return ['false', 'true'];
  const value = Number(now);
  if (!/^int/.test(type) || !(value > 0)) return now === '' ? [] : [now];
  const start = 2 ** Math.max(0, Math.floor(Math.log2(value)) - (name === 'seq' ? 2 : 4));
  return [...new Set([...Array.from({ length: 9 }, (_, i) => start * 2 ** i), value])].filter((n) => n >= Math.max(1, least) && n <= most)
    .sort((a, b) => a - b).map(String);
}

/** Places of a table, coarse ones first: the picture is there early and becomes finer.
 * @param {number} slices @param {number} rows @param {number} columns @returns {[slice: number, row: number, column: number][]} */
export function inOrderOfPlay(slices, rows, columns) {
  /** @type {[number, number, number][]} */
  const out = [];
  for (let stride = 8; stride >= 1; stride /= 2) {
    for (let p = 0; p < slices; p++) for (let r = 0; r < rows; r += stride) for (let c = 0; c < columns; c += stride) {
      const isNew = stride === 8 || r % (2 * stride) !== 0 || c % (2 * stride) !== 0;
      if (isNew) out.push([p, r, c]);
    }
  }
  return out;
}

/** The edge of fitting by as few plays as a table has rows and columns, for settings of which more needs more: from the first row's
 * last column, left where it does not fit and down where it does, and at once from the last row's first column, right and up, until
 * they meet. What it says of the other cells holds until they are played.
 * @param {number} rows @param {number} columns @param {(row: number, column: number, turn: -1 | 1) => Promise<boolean | null>} fits null: it cannot be said; turn:
 *   the way goes on along the columns or against the rows by so much
 * @param {(row: number, edge: number) => void} found columns before `edge` fit, those from it on do not */
export async function walkEdge(rows, columns, fits, found) {
  let above = 0; /* rows whose edge is known */
  let below = rows;
  let isOver = false;
  const down = async () => {
    for (let c = columns - 1; above < below; above++) {
      for (; c >= 0; c--) {
        const row = above;
        const is = await fits(row, c, -1);
        if (is === null) isOver = true;
        if (isOver || row >= below) return;
        if (is) break;
      }
      found(above, c + 1);
    }
  };
  const up = async () => {
    for (let c = 0; above < below; below--) {
      for (; c < columns; c++) {
        const row = below - 1;
        const is = await fits(row, c, 1);
        if (is === null) isOver = true;
        if (isOver || row < above) return;
        if (!is) break;
      }
      found(below - 1, c);
    }
  };
  await Promise.all([down(), up()]);
}

/** Whether values are numbers that grow. @param {Axis} axis */
export const grows = ({ values }) => values.every((value, i) => Number(value) > (i ? Number(values[i - 1]) : -1));

/** @param {any} reply to measure @param {number} close the part of the card that is left where it is tight @returns {Cell} */
export function cellOf(reply, close) {
  if (!reply?.ok) {
    const said = reply?.diagnostics?.find((/** @type {any} */ d) => d.severity === 'error')?.message ?? 'The core stopped.';
    return { kind: 'refused', bytes: 0, card: 0, allocated: 0, reserved: 0, margin: null, rank: null, said };
  }
  const { verdict, peak } = reply;
  const card = verdict.gpu_bytes ?? 0;
  const margin = verdict.margin_bytes ?? null;
  const kind = verdict.fits === null ? (card > 0 ? 'open' : 'none') : !verdict.fits ? 'not' : margin < close * card ? 'close' : 'fits';
  return { kind, bytes: verdict.device_bytes, card, allocated: peak.allocated, reserved: peak.reserved, margin, rank: peak.rank ?? null, said: '' };
}

/** As `tidemark sweep --csv` writes it. @param {Axis[]} axes @param {(at: number[]) => Cell | null} cell */
export function sweepCsv(axes, cell) {
  /** @type {(string | number | null)[][]} */
  const rows = [[...axes.map(({ name }) => name), 'allocated_peak', 'reserved_peak', 'device_bytes', 'margin_bytes', 'rank', 'fits', 'refused']];
  const at = axes.map(() => 0);
  for (;;) {
    const c = cell(at);
    const values = axes.map(({ values: all }, i) => (/^-?\d+(\.\d+)?$/.test(all[at[i]]) ? Number(all[at[i]]) : all[at[i]]));
    if (!c || c.kind === 'refused') rows.push([...values, '', '', '', '', '', '', c?.said ?? '']);
    else rows.push([...values, c.allocated, c.reserved, c.bytes, c.margin, c.rank, c.kind === 'none' || c.kind === 'open' ? '' : c.kind === 'not' ? 'no' : 'yes', '']);
    let i = axes.length - 1;
    for (; i >= 0 && ++at[i] === axes[i].values.length; i--) at[i] = 0;
    if (i < 0) return csv(rows);
  }
}

/** @param {import('./words.js').Words} words @param {string[]} files @param {Axis[]} axes */
export function sweepCommand(words, files, axes) {
  const rest = words.filter(([name]) => !axes.some((axis) => axis.name === name));
  return toCommand([...rest, ...axes.map(({ name, values }) => /** @type {[string, string]} */ ([name, values.join(',')]))], files).replace(' estimate ', ' sweep ');
}
