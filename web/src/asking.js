// SPDX-License-Identifier: Apache-2.0
/* Questions to the core, about the present job and about others. */
import { job, request } from './state.js';

/** @typedef {import('./state.js').Job} Job */

/** @type {{call: (request: object, lane?: string) => Promise<any>, end: () => void} | null} */
let client = null;
/** For questions of many jobs. @type {import('./pool.js').Pool | null} */
let pool = null;

/** @param {NonNullable<typeof client>} opened @param {NonNullable<typeof pool>} many */
export function useClient(opened, many) {
  client = opened;
  pool = many;
}

/* Whether what was asked last was ended by its reader. */
export const cancelled = { is: false };

/** Ends a calculation that takes too long. */
export function cancel() {
  cancelled.is = true;
  client?.end();
}

/** A question as it is. Of those on one lane only the newest waits.
 * @param {object} asked @param {string} [lane] @returns {Promise<any>} null: a newer one is on its way */
export const askAsIs = (asked, lane) => (client ? client.call(asked, lane) : Promise.resolve(null));

/** Other jobs than the present one, several at once, apart from what answers keystrokes.
 * @param {{call?: string, words: string[], more?: object}[]} asked each with words that hold over the job's
 * @param {(reply: any, index: number) => void} got @param {AbortSignal} [signal] */
export async function askMany(asked, got, signal) {
  const { settings, files: opened } = request();
  const name = (/** @type {string} */ word) => word.slice(0, word.indexOf('='));
  return await pool?.all(asked.map(({ call = 'measure', words: own, more }) => {
    const over = new Set(own.map(name));
    return { call, settings: [...settings.filter((word) => !over.has(name(word))), ...own], files: opened, ...more };
  }), got, signal) ?? false;
}

/** Requests as they are, several at once, apart from what answers keystrokes.
 * @param {object[]} requests @param {(reply: any, index: number) => void} got @param {AbortSignal} [signal] */
export const askAll = async (requests, got, signal) => await pool?.all(requests, got, signal) ?? false;

const TILE_MS = 100; /* so often there is news, and what was cancelled ends */
const MOST_IN_TILE = 64;
const LEAST_AT_END = 8;

/** Cells of a request, where so many took so long. @param {number} count @param {number} ms */
export const tileOf = (count, ms) => Math.max(1, Math.min(MOST_IN_TILE, Math.round(count * TILE_MS / Math.max(ms, 1))));

/** The present job with other words of the same settings, several in one request: what they share is read once.
 * @param {string[][]} asked @param {(reply: any, index: number) => void} got @param {AbortSignal} [signal] @param {number} [size] of the first request */
export async function askCells(asked, got, signal, size = 2) {
  const over = new Set(asked[0]?.map((word) => word.slice(0, word.indexOf('='))));
  const base = request();
  const shared = { ...base, call: 'measure', settings: base.settings.filter((word) => !over.has(word.slice(0, word.indexOf('=')))) };
  let next = 0;
  const take = () => {
    if (next >= asked.length) return null;
    const share = Math.max(LEAST_AT_END, Math.ceil((asked.length - next) / 4)); /* all workers end at about the same time */
    const tile = asked.slice(next, next + Math.min(size, share));
    const from = next;
    next += tile.length;
    return { request: { ...shared, cells: tile }, about: { from, count: tile.length } };
  };
  return await pool?.each(take, (reply, { from, count }, ms) => {
    for (let i = 0; i < count; i++) got(reply?.ok ? reply.cells[i] : reply, from + i);
    size = Math.min(tileOf(count, ms), 2 * count);
  }, signal) ?? false;
}

const GIVES_WAY_MS = 500; /* longer than between two keys of somebody who types: what is stopped costs its worker */
/** @type {ReturnType<typeof setTimeout> | undefined} */
let resting;

/** What is worked out beside the number of the present job stops while this is awaited, and for a moment after it. @param {boolean} is */
export function giveWay(is) {
  clearTimeout(resting);
  if (is) pool?.hold();
  else resting = setTimeout(() => pool?.goOn(), GIVES_WAY_MS);
}

/** A question about a job whose answer takes longer than a keystroke's may.
 * @param {string} call @param {object} more @param {Job} of @param {AbortSignal} signal @returns {Promise<any>} null if no answer came */
export async function askApart(call, more, of, signal) {
  let answer = null;
  await pool?.all([{ ...request(of), ...more, call }], (reply) => { answer = reply; }, signal);
  return answer;
}

/** A question about a job.
 * @param {string} call @param {object} [more] @param {Job} [of] @param {string} [lane]
 * @returns {Promise<any>} the answer, or null if it did not come */
export async function ask(call, more = {}, of = job(), lane = call) {
  try {
    return await client?.call({ ...request(of), ...more, call }, lane) ?? null;
  } catch {
    return null;
  }
}
