// SPDX-License-Identifier: Apache-2.0
/* Several workers for questions of many jobs, apart from the one that answers keystrokes, for which they give way. */
import { createClient } from './client.js';

/** @typedef {ReturnType<typeof createClient>} Client */

const MOST_WORKERS = 8;
const LAST_MS = 150; /* what is no longer wanted may come to its end by itself: a new worker takes about as long to start */

/** @typedef {ReturnType<typeof createPool>} Pool */

/** @param {Parameters<typeof createClient>[0]} options */
export function createPool(options) {
  /** @type {Client[]} */
  const idle = [];
  /** Requests that wait for one. @type {((client: Client) => void)[]} */
  const waiting = [];
  let started = 0;
  /** @type {Set<Client>} */
  const busy = new Set();
  /** Until it is settled nothing is asked. @type {Promise<void> | null} */
  let held = null;
  let release = () => {};
  let turn = 0; /* how often they were held */
  const size = Math.min(MOST_WORKERS, Math.max(1, globalThis.navigator?.hardwareConcurrency ?? 2));

  /** @returns {Client | Promise<Client>} */
  function worker() {
    if (idle.length || started === size) return idle.pop() ?? new Promise((done) => { waiting.push(done); });
    started++;
    return createClient(options);
  }
  function goBack(/** @type {Client} */ client) {
    const next = waiting.shift();
    if (next) next(client);
    else idle.push(client);
  }

  /** Asks what `take` gives until it gives null, as many at once as there are workers; `got` hears each answer as it comes, null where
   * the core stopped, and how long it took.
   * @template T @param {() => {request: object, about: T} | null} take @param {(reply: any, about: T, ms: number) => void} got
   * @param {AbortSignal} [signal] ends the workers that stay at it @returns {Promise<boolean>} whether all were answered */
  async function each(take, got, signal) {
    /** @type {Set<Client>} */
    const running = new Set();
    const stop = () => setTimeout(() => { for (const client of running) client.end(); }, LAST_MS);
    signal?.addEventListener('abort', stop, { once: true });
    await Promise.all(Array.from({ length: size }, async () => {
      for (let next; !signal?.aborted && (next = take());) {
        for (let isDone = false; !isDone && !signal?.aborted;) {
          await held;
          const client = await worker();
          if (held || signal?.aborted) {
            goBack(client);
            continue;
          }
          const before = turn;
          busy.add(client);
          running.add(client);
          const from = performance.now();
          const reply = await client.call(next.request).catch(() => null);
          busy.delete(client);
          running.delete(client);
          goBack(client);
          isDone = before === turn;
          if (isDone && !signal?.aborted) got(reply, next.about, performance.now() - from);
        }
      }
    }));
    signal?.removeEventListener('abort', stop);
    return !signal?.aborted;
  }

  /** The same for requests that are known, in order.
   * @param {object[]} requests @param {(reply: any, index: number) => void} got @param {AbortSignal} [signal] */
  function all(requests, got, signal) {
    let next = 0;
    return each(() => (next < requests.length ? { request: requests[next], about: next++ } : null), got, signal);
  }

  /** Stops all that is being worked out; it is asked again when they go on. */
  function hold() {
    if (held) return;
    held = new Promise((done) => { release = done; });
    turn++;
    for (const client of busy) client.end();
  }
  function goOn() {
    held = null;
    release();
  }

  return { all, each, hold, goOn };
}
