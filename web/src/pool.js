/* Several workers for questions of many jobs, apart from the one that answers keystrokes. */
import { createClient } from './client.js';

/** @typedef {ReturnType<typeof createClient>} Client */

const MOST_WORKERS = 8;

/** @typedef {ReturnType<typeof createPool>} Pool */

/** @param {Parameters<typeof createClient>[0]} options */
export function createPool(options) {
  /** @type {Client[]} */
  let clients = [];
  const size = Math.min(MOST_WORKERS, Math.max(1, globalThis.navigator?.hardwareConcurrency ?? 2));

  /** Ends every worker; what they were at is not answered. */
  function stop() {
    for (const client of clients) client.end();
    clients = [];
  }

  /** Asks all requests in order, as many at once as there are workers; `got` hears each answer as it comes, null where the core stopped.
   * @param {object[]} requests @param {(reply: any, index: number) => void} got @param {AbortSignal} [signal] ends the workers
   * @returns {Promise<boolean>} whether all were answered */
  async function all(requests, got, signal) {
    let next = 0;
    signal?.addEventListener('abort', stop, { once: true });
    async function work(/** @type {Client} */ client) {
      while (next < requests.length && !signal?.aborted) {
        const index = next++;
        const reply = await client.call(requests[index]).catch(() => null);
        if (!signal?.aborted) got(reply, index);
      }
    }
    const wanted = Math.min(size, requests.length);
    while (clients.length < wanted) clients.push(createClient(options));
    await Promise.race([Promise.all(clients.slice(0, wanted).map(work)),
      new Promise((done) => signal?.addEventListener('abort', () => done(null), { once: true }))]);
    signal?.removeEventListener('abort', stop);
    return !signal?.aborted;
  }

  return { all, stop };
}
