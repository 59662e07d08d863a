// SPDX-License-Identifier: Apache-2.0
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

/* From the press of a key to the frame with what it brings: the new number, or the narrowed list. The keys are real ones.
 * @param {string} job words of a link */
async function typist(job) {
  const { page, context } = await openContext(browser);
  await page.addInitScript(() => {
    const frames = /** @type {number[]} */ ([]);
    /** @type {number | null} */
    let pressed = null;
    let shown = '.factor-table .sums .total';
    Object.assign(window, { frames, await_: (/** @type {string} */ selector) => { shown = selector; } });
    addEventListener('keydown', (event) => {
      pressed = event.timeStamp;
      const place = document.querySelector(shown);
      if (!place) return;
      const mine = pressed;
      new MutationObserver((_, observer) => {
        observer.disconnect();
        requestAnimationFrame(() => {
          const { port1, port2 } = new MessageChannel();
          port1.onmessage = () => { frames.push(performance.now() - mine); };
          port2.postMessage(null); /* after the frame */
        });
      }).observe(place, { subtree: true, characterData: true, childList: true, attributes: true });
    }, true);
  });
  await page.goto(`${server.url}#${job}&v=1`);
  await ready(page);
  await page.waitForTimeout(1000);
  return { page, context, core: await coreTimes(page) };
}

const wait = (/** @type {number} */ ms) => new Promise((done) => setTimeout(done, ms));

/** Presses keys as somebody types, each after the answer to the last one.
 * @param {any} page @param {string} field @param {(i: number) => string} key @param {{shown?: string, count?: number, pause?: number}} [how] */
async function typed(page, field, key, { shown = '.factor-table .sums .total', count = KEYSTROKES, pause = 90 } = {}) {
  await page.locator(field).focus();
  await page.evaluate((/** @type {string} */ one) => /** @type {any} */ (window).await_(one), shown);
  const times = [];
  for (let i = 0; i < count; i++) {
    await page.evaluate(() => { /** @type {any} */ (window).frames.length = 0; });
    await page.keyboard.press(key(i));
    await page.waitForFunction(() => /** @type {any} */ (window).frames.length > 0, null, { timeout: 10000, polling: 20 });
    times.push(await page.evaluate(() => /** @type {any} */ (window).frames[0]));
    await wait(pause + 40 * Math.random()); /* at any time of a frame */
  }
  return times;
}

/** @param {string} name @param {number[]} times */
function printTimes(name, times) {
  print(name, at(times, 0.5), 'ms');
  print(`${name}_p95`, at(times, 0.95), 'ms');
  print(`${name}_worst`, Math.max(...times), 'ms');
}

/** How long the core takes for each answer, from now on. @param {any} page @returns {Promise<number[]>} */
async function coreTimes(page) {
  /** @type {number[]} */
  const times = [];
  await page.exposeFunction('timed', (/** @type {number} */ ms) => { times.push(ms); });
  await page.evaluate(() => new PerformanceObserver((list) => {
    for (const { name, detail } of /** @type {any[]} */ (list.getEntries())) if (name === 'tidemark-core') /** @type {any} */ (window).timed(detail);
  }).observe({ type: 'mark' }));
  return times;
}

/* 22, 2, 23, 2, ... */
const inBatch = (/** @type {number} */ i) => (i % 2 ? 'Backspace' : String(2 + i / 2 % 8));

for (const [name, job] of Object.entries({
  llama_70b_8_gpus: 'model=llama-3.1-70b&gpu=h100-80&parallel.kind=fsdp2&parallel.dp=8&batch=2&checkpointing=full',
  deepseek_v3_64_gpus: 'model=deepseek-v3&gpu=h100-80&parallel.kind=zero3&parallel.dp=64&batch=2&checkpointing=full',
})) {
  const { page, context, core } = await typist(job);
  printTimes(`page_keystroke_${name}`, await typed(page, '#set-batch', inBatch, { shown: '.job-words', count: KEYSTROKES / 2 })); /* the peak may be in loading, and the same for every batch */
  print(`page_core_${name}`, at(core, 0.5), 'ms');
  print(`page_core_${name}_p95`, at(core, 0.95), 'ms');
  await context.close();
}

{
  const { page, context, core } = await typist('model=llama-2-7b&gpu=h100-80&batch=2&clip=1');
  printTimes('page_keystroke_to_number', await typed(page, '#set-batch', inBatch));
  print('page_core_in_worker', at(core, 0.5), 'ms');
  print('page_core_in_worker_p95', at(core, 0.95), 'ms');
  await page.locator('#set-batch').fill('2');
  await wait(300);
  printTimes('page_keystroke_in_a_choice', await typed(page, '#set-optimizer', (i) => (i % 2 ? 'ArrowUp' : 'ArrowDown'), { count: KEYSTROKES / 2 }));
  await page.locator('#set-sdpa_backend').scrollIntoViewIfNeeded();
  printTimes('page_keystroke_in_models', await typed(page, '#model', (i) => (i % 2 ? 'Backspace' : 'lqvmg'[i / 2 % 5]), { shown: '#model-list', count: KEYSTROKES / 2 }));
  await page.keyboard.press('Escape');

  /* A key held down, as keyboards repeat: how long a number stands while more are to come, and the last one's. */
  await page.locator('#set-batch').focus();
  await page.evaluate(() => {
    const w = /** @type {any} */ (window);
    w.await_('.factor-table .sums .total');
    w.frames.length = 0;
    w.drawn = [performance.now()];
    new MutationObserver(() => { w.drawn.push(performance.now()); }).observe(/** @type {Element} */ (document.querySelector('.factor-table .sums .total')), { subtree: true, characterData: true, childList: true });
  });
  for (let i = 0; i < 60; i++) {
    await page.keyboard.down('Shift');
    await page.keyboard.down('ArrowUp');
    await wait(33);
  }
  await page.keyboard.up('ArrowUp');
  await page.keyboard.up('Shift');
  await wait(500);
  const held = await page.evaluate(() => {
    const { drawn } = /** @type {any} */ (window);
    return drawn.slice(1).map((/** @type {number} */ one, /** @type {number} */ i) => one - drawn[i]);
  });
  print('page_held_key_numbers', held.length, 'of 60');
  print('page_held_key_longest_wait', Math.max(...held), 'ms');

  /* While a heat map is played: it gives way. */
  await page.locator('#set-batch').fill('2');
  await page.locator('#whatif').scrollIntoViewIfNeeded();
  await page.getByRole('tab', { name: 'Heat map' }).click();
  await page.locator('.heat td').first().waitFor();
  for (const [i, text] of [[0, '1-32'], [1, '256-8192:256']]) {
    await page.locator('.axis-field input').nth(/** @type {number} */ (i)).fill(/** @type {string} */ (text));
    await page.locator('.axis-field input').nth(/** @type {number} */ (i)).blur();
  }
  printTimes('page_keystroke_beside_a_heat_map', await typed(page, '#set-batch', (i) => (i % 2 ? 'ArrowDown' : 'ArrowUp'), { count: KEYSTROKES / 3, pause: 700 }));
  await context.close();
}

/* A heat map of 32 x 32 cells of a 7B job: the edge of fitting, all cells, and how long the page's own thread was held up. */
const { page } = await openContext(browser);
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

/* What the page's own process holds that no other one shares, after the heat map: the page, and a worker a processor. */
const system = await browser.newBrowserCDPSession();
const { processInfo } = await system.send('SystemInfo.getProcessInfo');
const held = processInfo.filter((/** @type {any} */ one) => one.type === 'renderer')
  .map((/** @type {any} */ one) => Number(/Private_Dirty:\s+(\d+)/.exec(readFileSync(`/proc/${one.id}/smaps_rollup`, 'utf8'))?.[1] ?? 0));
print('page_memory', Math.max(...held) / 1024, 'MiB');

await browser.close();
server.close();
