// SPDX-License-Identifier: Apache-2.0
/* A recording: a worker of its own reads the file, and keeps what is in it; what is asked of it can be asked again. */
import { batch, signal } from '@preact/signals';
import { CoreStopped, createClient } from './client.js';

/** @typedef {import('./types.js').Recorded} Recorded */
/** @typedef {{name: string, file: Blob, state: 'reading' | 'ready' | 'failed', read: number, problem: import('./types.js').Diagnostic[] | null,
 *   reply: Recorded | null, words: {[name: string]: string}, device: number, busy: boolean}} Recording
 *   read: bytes of the file; words: gpu and allocator as chosen; device: -1 the busiest */

export const recording = signal(/** @type {Recording | null} */ (null));

const REPLAY_LIMIT_MS = 600000;

/** @type {ReturnType<typeof createClient> | null} */
let client = null;
/** @type {() => ReturnType<typeof createClient>} */
let make = () => { throw new Error('no worker'); };

/** @param {{module: () => Promise<WebAssembly.Module>, spawn: () => Worker}} options the module is fetched with the first recording */
export function useRecordings({ module, spawn }) {
  make = () => createClient({ module: module(), spawn, limitMs: REPLAY_LIMIT_MS });
}

/** What the first bytes say. @param {Uint8Array} head @returns {boolean} whether it may be a recording */
export function isRecording(head) {
  if (head[0] === 0x1f && head[1] === 0x8b) return true;
  if (head[0] === 0x80 && head[1] >= 2 && head[1] <= 5) return true;
  const text = new TextDecoder().decode(head);
  return text.startsWith('tidemark') || /^\s*\{[^\n]*\}\s*\n\s*\[/.test(text) || /"(traceEvents|schemaVersion|deviceProperties)"\s*:/.test(text);
}

/** @param {Partial<Recording>} part */
function set(part) {
  if (recording.value) recording.value = { ...recording.value, ...part };
}

/** @param {unknown} error @returns {import('./types.js').Diagnostic[]} */
const problemOf = (error) => [{ severity: 'error', code: error instanceof CoreStopped ? 'ERR_STOPPED' : 'ERR_FILE',
  message: `The recording could not be read: ${error instanceof Error ? error.message : error}`,
  remedy: 'A very large one fits the memory of the command line: tidemark replay FILE.' }];

let turn = 0;
let damage = '';

/** Gives the worker the file; read: how much of it has been taken. @param {Blob} file */
const feed = async (file) => (await (client ??= make()).read(file, (read) => set({ read }))).damage;

/** Reads a recording and plays it as it was. Where that fails, what is shown goes back to the job.
 * @param {File} file @returns {Promise<import('./types.js').Diagnostic[]>} what is wrong with it; none: it is open */
export async function openRecording(file) {
  const mine = ++turn;
  if (recording.value?.state === 'reading') endWorker();
  recording.value = { name: file.name || 'pasted', file, state: 'reading', read: 0, problem: null, reply: null, words: {}, device: -1, busy: true };
  try {
    const broken = await feed(file);
    if (mine === turn) damage = broken;
  } catch (error) {
    if (mine !== turn) return [];
    closeRecording();
    return problemOf(error);
  }
  if (mine === turn) await replay();
  const problem = mine === turn && !recording.value?.reply ? recording.value?.problem ?? [] : [];
  if (problem.length) closeRecording();
  return problem;
}

/** A question about the recording, played on what is chosen. Where its worker is gone, the recording is with it: once more.
 * @param {string} call @param {object} [more] @param {string} [lane] of those on one, only the newest waits
 * @returns {Promise<any>} the answer; null: a newer one is on its way, or another recording */
export async function askRecording(call, more, lane = call) {
  const of = recording.value;
  const mine = turn;
  if (!of || !client) return null;
  const { words, device: number } = of;
  const request = {
    call, settings: Object.entries(words).filter(([name, value]) => name === 'allocator' || value !== '').map(([name, value]) => `${name}=${value}`),
    ...(damage && { damage }), ...(number >= 0 && { device: number }), ...more,
  };
  const ask = () => /** @type {NonNullable<typeof client>} */ (client).call(request, lane);
  try {
    return await ask();
  } catch (error) {
    if (!(error instanceof CoreStopped) || mine !== turn) throw error;
    await feed(of.file);
    return ask();
  }
}

/** Plays it again, with another GPU, other options or another of its devices.
 * @param {Recording['words']} [words] @param {number} [device] */
export async function replay(words = {}, device) {
  const of = recording.value;
  if (!of) return;
  const mine = turn;
  batch(() => set({ busy: true, words: { ...of.words, ...words }, device: device ?? of.device }));
  try {
    const reply = await askRecording('replay');
    if (mine !== turn || reply === null) return;
    set({ busy: false, state: reply.ok || recording.value?.reply ? 'ready' : 'failed', problem: reply.ok ? null : reply.diagnostics,
      ...(reply.ok && { reply, read: of.file.size }) });
  } catch (error) {
    if (mine === turn) set({ state: 'failed', busy: false, problem: problemOf(error) });
  }
}

/** What another recording holds at its peak, as it was recorded: read by a worker of its own, which ends with the answer.
 * @param {File} file @returns {Promise<{name: string, reply: Recorded, live: import('./stacks.js').Live}>} */
export async function lookInto(file) {
  const of = make();
  try {
    const { damage: broken } = await of.read(file, () => {});
    const ask = async (/** @type {string} */ call) => {
      const reply = await of.call({ call, settings: [], ...(broken && { damage: broken }) });
      if (!reply?.ok) throw new Error(reply?.diagnostics?.[0]?.message ?? 'No answer came.');
      return reply;
    };
    return { name: file.name, reply: await ask('replay'), live: await ask('recorded_live') };
  } finally {
    of.end();
  }
}

function endWorker() {
  client?.end();
  client = null;
}

/** Back to the job; its memory is given back with the worker. */
export function closeRecording() {
  turn++;
  endWorker();
  recording.value = null;
}
