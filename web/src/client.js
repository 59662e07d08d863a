// SPDX-License-Identifier: Apache-2.0
/* A promise per request to the worker. Of requests on one lane only the newest waits: an older one that has not
 * started is answered with null. A trap or a silent worker is ended and the next request starts a new one. A core that lacks what a
 * request needs is given it, and asked again. */

export class CoreStopped extends Error {}

/** @typedef {{id: number, message: object, goesOn?: (read: number) => void, lane: string, resolve: (reply: any) => void, reject: (why: Error) => void}} Job */

/** @param {unknown} why */
const notLoaded = (why) => ({ ok: false, diagnostics: [{ severity: 'error', code: 'ERR_NOT_LOADED', place: '',
  message: `A part of tidemark that this needs could not be loaded: ${why instanceof Error ? why.message : why}`,
  remedy: 'Check the connection and change a setting. What the page opened with works without.' }] });

/** @param {{module: Promise<WebAssembly.Module>, spawn: () => Worker, more?: () => Promise<import('./tidemark.js').More>, limitMs?: number,
 *   timed?: (ms: number) => void}} options more: what the core can lack; timed: told the core's own time for every request */
export function createClient({ module, spawn, more, limitMs = 20000, timed }) {
  /** @type {Worker | null} */
  let worker = null;
  /** @type {Job[]} */
  let waiting = [];
  /** @type {Job | null} */
  let running = null;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  let lastId = 0;
  /** @type {import('./tidemark.js').More | undefined} */
  let given;
  /** @type {Worker | null} */
  let whole = null; /* the worker that was given it */

  /** @type {WebAssembly.Module | undefined} */
  let compiled;
  module.then((one) => { compiled = one; }, () => {});

  function begin() {
    const fresh = spawn();
    fresh.onmessage = ({ data }) => answered(data);
    fresh.onerror = (event) => stopped(event.message || 'The worker could not start.');
    worker = fresh;
    instruct(fresh).catch(() => {});
    return fresh;
  }

  async function instruct(/** @type {Worker} */ target) {
    target.postMessage({ module: compiled ?? await module, more: given });
    if (given) whole = target;
  }

  /** The running job once more, by a core that lacks nothing; where that cannot be had, a new one for the next job. */
  async function complete(/** @type {Job} */ job, /** @type {Worker} */ target) {
    clearTimeout(timer);
    let why;
    try {
      given = await /** @type {NonNullable<typeof more>} */ (more)();
    } catch (error) {
      why = error;
    }
    if (running !== job) return;
    await instruct(target);
    if (given) return post(job, target);
    running = null;
    job.resolve(notLoaded(why));
    next();
  }

  function answered(/** @type {{id: number, reply?: string, trap?: string, lacking?: boolean, ms?: number, read?: number}} */ { id, reply, trap, lacking, ms, read }) {
    if (!running || running.id !== id) return;
    if (read !== undefined) {
      restart();
      return running.goesOn?.(read);
    }
    if (trap !== undefined) return stopped(trap);
    if (lacking) return whole === worker || !more ? stopped('The core lacks a part.') : complete(running, /** @type {Worker} */ (worker));
    clearTimeout(timer);
    if (ms !== undefined) timed?.(ms);
    const job = running;
    running = null;
    try {
      job.resolve(reply === undefined ? null : JSON.parse(reply));
    } catch {
      job.reject(new CoreStopped('The answer is not JSON.'));
    }
    next();
  }

  function stopped(/** @type {string} */ why) {
    clearTimeout(timer);
    worker?.terminate();
    worker = null;
    const job = running;
    running = null;
    job?.reject(new CoreStopped(why));
    next();
  }

  async function next() {
    if (running || waiting.length === 0) return;
    const job = running = /** @type {Job} */ (waiting.shift());
    const target = worker ?? begin();
    try {
      if (!compiled) await module; /* else at once: the worker begins before the page draws what was typed */
    } catch (error) {
      running = null;
      job.reject(/** @type {Error} */ (error));
      return next();
    }
    if (running === job) post(job, target);
  }

  function post(/** @type {Job} */ job, /** @type {Worker} */ target) {
    target.postMessage({ id: job.id, ...job.message });
    restart();
  }

  function restart() {
    clearTimeout(timer);
    timer = setTimeout(() => stopped(`No answer within ${limitMs / 1000} seconds.`), limitMs);
  }

  /* The worker starts while the module compiles. */
  begin();

  return {
    /** Ends the worker: what it was asked is rejected. The next request starts another one. */
    end() {
      for (const job of waiting) job.reject(new CoreStopped('Cancelled.'));
      waiting = [];
      stopped('Cancelled.');
    },
    /** @param {object} request @param {string} [lane] @returns {Promise<any>} */
    call(request, lane = '') {
      return new Promise((resolve, reject) => {
        if (lane) {
          for (const old of waiting) if (old.lane === lane) old.resolve(null);
          waiting = waiting.filter((old) => old.lane !== lane);
        }
        waiting.push({ id: ++lastId, message: { request: JSON.stringify(request) }, lane, resolve, reject });
        next();
      });
    },
    /** A recording's file. @param {Blob} file @param {(read: number) => void} goesOn told how many bytes have been read @returns {Promise<{damage: string}>} */
    read: (file, goesOn) => new Promise((resolve, reject) => {
      waiting.push({ id: ++lastId, message: { file }, goesOn, lane: '', resolve, reject });
      next();
    }),
  };
}
