/* The core's worker. First message: the compiled module. Then one request a message: {id, request} -> {id, reply, ms}; with the
 * module for recordings also {id, open} and {id, bytes} -> {id}. */
import { lockdown } from './lockdown.js';
import { start } from './tidemark.js';

lockdown(globalThis);

/** @type {Promise<import('./tidemark.js').Core> | null} */
let core = null;

onmessage = async ({ data }) => {
  if (data.module) {
    core = start(data.module);
    core.catch(() => {});
    return;
  }
  try {
    const ready = await /** @type {NonNullable<typeof core>} */ (core);
    if (data.open || data.bytes) {
      if (data.open) ready.open();
      else ready.add(new Uint8Array(data.bytes));
      postMessage({ id: data.id });
      return;
    }
    const from = performance.now();
    const reply = ready.callText(data.request);
    postMessage({ id: data.id, reply, ms: performance.now() - from });
  } catch (error) {
    postMessage({ id: data.id, trap: String(error instanceof Error ? error.message : error) });
  }
};
