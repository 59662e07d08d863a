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

/* Sizes: of what a first visit loads, the core among it, of what other jobs need besides (rest and models), and of all. */
const html = readFileSync(join(folder, 'index.html'), 'utf8');
const sizes = { core: 0, more: 0, first: 0, all: 0 };
for (const file of ['index.html', ...readdirSync(join(folder, 'assets')).map((name) => `assets/${name}`)]) {
  const bytes = gzipSync(readFileSync(join(folder, file)), { level: 9 }).length;
  sizes.all += bytes;
  if (file === 'index.html' || file.includes('/worker') || html.includes(file)) sizes.first += bytes;
  if (/tidemark-.*wasm$/.test(file)) sizes.core = bytes;
  if (/(rest|models)-/.test(file)) sizes.more += bytes;
}
print('page_wasm_gzip', sizes.core, 'bytes');
print('page_other_jobs_gzip', sizes.more, 'bytes');
print('page_first_visit_gzip', sizes.first, 'bytes');
print('page_gzip', sizes.all, 'bytes');

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

/* A heat map of 32 x 32 cells of a 7B job: the edge of fitting, all cells, and how long the page's own thread was held up. */
await page.goto('about:blank');
await page.goto(`${server.url}#model=llama-2-7b&gpu=h100-80&v=1`);
await ready(page);
await page.locator('#whatif').scrollIntoViewIfNeeded();
await page.getByRole('tab', { name: 'Heat map' }).click();
await page.locator('.heat td').first().waitFor();
const values = page.locator('.axis-field input');
await values.nth(0).fill('1-32');
await values.nth(0).blur();
await page.evaluate(() => {
  Object.assign(window, { held: 0 });
  new PerformanceObserver((list) => { for (const entry of list.getEntries()) Object.assign(window, { held: Math.max(/** @type {any} */ (window).held, entry.duration) }); }).observe({ type: 'longtask' });
});
const from = Date.now();
await values.nth(1).fill('256-8192:256');
await values.nth(1).blur();
await page.waitForFunction(() => document.querySelectorAll('.heat td').length === 1024
  && document.querySelectorAll('.heat td:not(.wait), .heat td.would, .heat td.would-not').length === 1024, null, { timeout: 120000, polling: 30 });
print('page_heat_map_edge', Date.now() - from, 'ms');
await page.waitForFunction(() => !document.querySelector('.heat td.wait'), null, { timeout: 120000, polling: 30 });
print('page_heat_map_all_cells', Date.now() - from, 'ms');
print('page_longest_task', await page.evaluate(() => /** @type {any} */ (window).held), 'ms');

await browser.close();
server.close();
