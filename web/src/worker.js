// SPDX-License-Identifier: Apache-2.0
/* The core's worker. First message: the compiled module, and what more there is of it. Then one request a message:
 * {id, request} -> {id, reply, ms}, or {id, lacking} where the core needs more, which begins anew with the module; with the module for
 * recordings also {id, file} -> {id, read} as it goes on, and {id, reply} with {damage}. */
import { read } from './feed.js';
import { lockdown } from './lockdown.js';
import { Lacking, start } from './tidemark.js';

lockdown(globalThis);

/** @type {Promise<import('./tidemark.js').Core> | null} */
let core = null;

onmessage = async ({ data }) => {
  if (data.module) {
    core = start(data.module, data.more);
    core.catch(() => {});
    return;
  }
  try {
    const ready = await /** @type {NonNullable<typeof core>} */ (core);
    if (data.file) {
      const damage = await read(ready, data.file, (bytes) => postMessage({ id: data.id, read: bytes }));
      postMessage({ id: data.id, reply: JSON.stringify({ damage }) });
      return;
    }
    const from = performance.now();
    const reply = ready.callText(data.request);
    postMessage({ id: data.id, reply, ms: performance.now() - from });
  } catch (error) {
    if (error instanceof Lacking) postMessage({ id: data.id, lacking: true });
    else postMessage({ id: data.id, trap: String(error instanceof Error ? error.message : error) });
  }
};
