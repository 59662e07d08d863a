// SPDX-License-Identifier: Apache-2.0
/* A large recording in the built page: node tests/bench/bench_page_recording.mjs FOLDER [MEGABYTES]. One JSON line a figure.
 *
 * A snapshot of that size (500) is written to a temporary file and opened: training steps of 400 tensors from stacks of twelve frames, as
 * bench_recording.c makes them. */
import { closeSync, mkdtempSync, openSync, rmSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { openContext, ready, startChromium } from '../browser/harness.mjs';
import { serve } from '../../web/serve.mjs';

const [folder, megabytes = '500'] = process.argv.slice(2);
if (!folder) {
  console.error('usage: node tests/bench/bench_page_recording.mjs FOLDER [MEGABYTES]');
  process.exit(2);
}

const TENSORS = 400;
const FRAMES = 12;
const KEYS = ['action', 'addr', 'size', 'stream', 'time_us', 'frames', 'alloc', 'free_requested', 'free_completed', 'name', 'filename', 'line'];
const FIRST_FRAME = 112; /* places of the memo before it */

/** A snapshot's pickle. @param {string} path @param {number} most bytes, nearly */
function writeSnapshot(path, most) {
  const file = openSync(path, 'w');
  const buffer = Buffer.alloc(1 << 20);
  let [length, all] = [0, 0];
  const flush = () => {
    all += writeSync(file, buffer, 0, length);
    length = 0;
  };
  const put = (/** @type {number[]} */ ...bytes) => {
    if (length + bytes.length > buffer.length) flush();
    for (const byte of bytes) buffer[length++] = byte;
  };
  const text = (/** @type {string} */ one) => put(0x8c, one.length, ...Buffer.from(one), 0x94);
  const get = (/** @type {string | number} */ one) => put(0x68, typeof one === 'string' ? KEYS.indexOf(one) : one);
  const number = (/** @type {number} */ one) => {
    const bytes = Buffer.alloc(8);
    bytes.writeBigUInt64LE(BigInt(one));
    put(0x8a, 8, ...bytes);
  };
  const entry = (/** @type {string} */ action, /** @type {number} */ tensor, /** @type {number} */ time) => {
    put(0x7d, 0x94, 0x28);
    get('action'), get(action);
    get('addr'), number(0x7f0000000000 + tensor * 2 ** 25);
    get('size'), number(4096 * (1 + tensor % 7 * 300 + tensor));
    get('stream'), put(0x4b, 0);
    get('time_us'), number(time);
    get('frames'), put(0x5d, 0x94);
    if (action === 'alloc') {
      put(0x28);
      for (let frame = 0; frame < FRAMES; frame++) get(FIRST_FRAME + tensor % 8 * FRAMES + frame);
      put(0x65);
    }
    put(0x75);
  };
  put(0x80, 4);
  for (const one of [...KEYS, ...Array(FIRST_FRAME - KEYS.length).fill('filler')]) {
    text(one);
    put(0x30);
  }
  for (let frame = 0; frame < 8 * FRAMES; frame++) {
    put(0x7d, 0x94, 0x28);
    get('name'), get('alloc');
    get('filename'), get('free_requested');
    get('line'), put(0x4b, frame, 0x75, 0x30);
  }
  put(0x7d, 0x28);
  text('device_traces');
  put(0x5d, 0x5d);
  for (let time = 0; all < most;) {
    put(0x28);
    for (let tensor = 0; tensor < TENSORS; tensor++) entry('alloc', tensor, time++);
    for (let tensor = TENSORS; tensor-- > 0;) {
      entry('free_requested', tensor, time);
      entry('free_completed', tensor, time++);
    }
    put(0x65);
  }
  put(0x61, 0x75, 0x2e);
  flush();
  closeSync(file);
}

/** @param {string} name @param {number} value @param {string} unit */
const print = (name, value, unit) => console.log(JSON.stringify({ name, value: Math.round(value), unit }));

const own = mkdtempSync(join(tmpdir(), 'tidemark-bench-'));
const server = await serve(folder);
const browser = await startChromium();
try {
  const path = join(own, 'large.pickle');
  writeSnapshot(path, Number(megabytes) * 1e6);
  const { page } = await openContext(browser);
  await page.goto(server.url);
  await ready(page);
  await page.evaluate(() => {
    Object.assign(window, { held: 0, seen: 0 });
    new PerformanceObserver((list) => { for (const { duration } of list.getEntries()) Object.assign(window, { held: Math.max(/** @type {any} */ (window).held, duration) }); }).observe({ type: 'longtask' });
    new MutationObserver(() => { if (document.querySelector('progress')) /** @type {any} */ (window).seen++; }).observe(document.body, { subtree: true, childList: true, attributes: true });
  });
  const from = Date.now();
  await page.setInputFiles('#chooser', path);
  await page.locator('#recorded-verdict').waitFor({ timeout: 600000, state: 'attached' });
  print('page_recording_shown', Date.now() - from, 'ms');
  await page.locator('.flame').waitFor({ timeout: 600000 });
  print('page_recording_whole', Date.now() - from, 'ms');
  print('page_recording_longest_task', await page.evaluate(() => /** @type {any} */ (window).held), 'ms');
  print('page_recording_bar_moves', await page.evaluate(() => /** @type {any} */ (window).seen), 'times');
} finally {
  await browser.close();
  server.close();
  rmSync(own, { recursive: true });
}
