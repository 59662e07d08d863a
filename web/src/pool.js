/* Several workers for questions of many jobs, apart from the one that answers keystrokes. */
import { createClient } from './client.js';

/** @typedef {ReturnType<typeof createClient>} Client */

const MOST_WORKERS = 8;

/** @typedef {ReturnType<typeof createPool>} Pool */

/** @param {Parameters<typeof createClient>[0]} options */
export function createPool(options) {
  /** @type {Client[]} */
  const idle = [];
  const size = Math.min(MOST_WORKERS, Math.max(1, globalThis.navigator?.hardwareConcurrency ?? 2));

  /** Asks all requests in order, as many at once as there are workers; `got` hears each answer as it comes, null where the core stopped.
   * @param {object[]} requests @param {(reply: any, index: number) => void} got @param {AbortSignal} [signal] ends the workers that are at it
   * @returns {Promise<boolean>} whether all were answered */
  async function all(requests, got, signal) {
    if (signal?.aborted) return false;
    const clients = Array.from({ length: Math.min(size, requests.length) }, () => idle.pop() ?? createClient(options));
    const stop = () => { for (const client of clients) client.end(); };
    signal?.addEventListener('abort', stop, { once: true });
    let next = 0;
    await Promise.all(clients.map(async (client) => {
      while (next < requests.length && !signal?.aborted) {
        const index = next++;
        const reply = await client.call(requests[index]).catch(() => null);
        if (!signal?.aborted) got(reply, index);
      }
    }));
    signal?.removeEventListener('abort', stop);
    for (const client of clients) {
      if (idle.length < size) idle.push(client);
      else client.end();
    }
    return !signal?.aborted;
  }

  return { all };
}
