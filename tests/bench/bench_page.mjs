/* Speed and size of the built page: node tests/bench/bench_page.mjs FOLDER. One JSON line a figure. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { openContext, ready, startChromium } from '../browser/harness.mjs';
import { serve } from '../../web/serve.mjs';

const LOADS = 9;
const KEYSTROKES = 60;

const folder = process.argv[2];
if (!folder) {
  console.error('usage: node tests/bench/bench_page.mjs FOLDER');
  process.exit(2);
}

/** @param {string} name @param {number} value @param {string} unit */
const print = (name, value, unit) => console.log(JSON.stringify({ name, value: Math.round(value * 10) / 10, unit }));

/** @param {number[]} list @param {number} share */
const at = (list, share) => [...list].sort((a, b) => a - b)[Math.min(list.length - 1, Math.floor(list.length * share))];

let total = 0;
for (const file of ['index.html', ...readdirSync(join(folder, 'assets')).map((name) => `assets/${name}`)]) {
  const bytes = gzipSync(readFileSync(join(folder, file)), { level: 9 }).length;
  total += bytes;
  if (file.endsWith('.wasm')) print('page_wasm_gzip', bytes, 'bytes');
}
print('page_gzip', total, 'bytes');

const server = await serve(folder);
const browser = await startChromium();

/* First answer. The page is left alone while it starts: the test library's own script would be counted too. */
const loads = [];
for (let i = 0; i < LOADS; i++) {
  const { context, page } = await openContext(browser);
  await page.goto(server.url, { waitUntil: 'commit' });
  await new Promise((done) => setTimeout(done, 1500));
  await ready(page);
  loads.push(await page.evaluate(() => {
    const when = (/** @type {string} */ name) => performance.getEntriesByName(name)[0].startTime;
    const navigation = /** @type {PerformanceNavigationTiming} */ (performance.getEntriesByType('navigation')[0]);
    return {
      painted: when('first-contentful-paint'), load: navigation.loadEventEnd, answer: when('tidemark-answer'), live: when('tidemark-first-answer'),
    };
  }));
  await context.close();
}
const median = (/** @type {(load: typeof loads[0]) => number} */ of) => at(loads.map(of), 0.5);
print('page_static_numbers_painted', median((l) => l.painted), 'ms');
print('page_first_answer_after_load', median((l) => Math.max(0, l.answer - l.load)), 'ms');
print('page_live_after_load', median((l) => Math.max(0, l.live - l.load)), 'ms');
print('page_live_after_navigation', median((l) => l.live), 'ms');

/* From a keystroke to the frame with the new number. */
const { page } = await openContext(browser);
await page.goto(server.url);
await ready(page);
await page.waitForTimeout(500);
const strokes = await page.evaluate(async (/** @type {number} */ count) => {
  const input = /** @type {HTMLInputElement} */ (document.getElementById('set-batch'));
  const total = /** @type {Element} */ (document.querySelector('.factor-table .sums .total'));
  const out = [];
  for (let i = 0; i < count; i++) {
    const from = performance.now();
    await new Promise((done) => {
      new MutationObserver((_, observer) => {
        observer.disconnect();
        requestAnimationFrame(() => setTimeout(() => done(null)));
      }).observe(total, { subtree: true, characterData: true, childList: true, attributes: true });
      input.value = String(2 + (i * 7) % 61);
      input.dispatchEvent(new InputEvent('input', { bubbles: true }));
    });
    const [core] = performance.getEntriesByName('tidemark-core');
    out.push({ total: performance.now() - from, core: /** @type {PerformanceMark} */ (core).detail });
    await new Promise((done) => setTimeout(done, 30));
  }
  return out;
}, KEYSTROKES);
print('page_keystroke_to_number', at(strokes.map((s) => s.total), 0.5), 'ms');
print('page_keystroke_to_number_p95', at(strokes.map((s) => s.total), 0.95), 'ms');
print('page_core_in_worker', at(strokes.map((s) => s.core), 0.5), 'ms');
print('page_core_in_worker_p95', at(strokes.map((s) => s.core), 0.95), 'ms');

await browser.close();
server.close();
