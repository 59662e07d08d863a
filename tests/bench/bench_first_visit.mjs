// SPDX-License-Identifier: Apache-2.0
/* How long a first visit takes on a slow network: node tests/bench/bench_first_visit.mjs FOLDER [--loads N]. One JSON line a figure.
 *
 * The network is Lighthouse's "Slow 4G" as Chromium's developer tools emulate it: 562 ms to the first byte of every answer, 1.44 Mbit/s down,
 * 675 kbit/s up. The host compresses with gzip. Aims, on an idle machine: the first number within 1.7 s, the live page within 3.2 s. */
import { parseArgs } from 'node:util';
import { openContext, ready, startChromium } from '../browser/harness.mjs';
import { serve } from '../../web/serve.mjs';

const SLOW_4G = { offline: false, latency: 562.5, downloadThroughput: 1.44e6 / 8, uploadThroughput: 675e3 / 8 }; /* bytes a second */

const { values, positionals: [folder] } = parseArgs({ options: { loads: { type: 'string' } }, allowPositionals: true });
if (!folder) {
  console.error('usage: node tests/bench/bench_first_visit.mjs FOLDER [--loads N]');
  process.exit(2);
}
const loads = Number(values.loads ?? 5);

/** @param {string} name @param {number} value @param {string} unit */
const print = (name, value, unit) => console.log(JSON.stringify({ name, value: Math.round(value), unit }));

/** @param {number[]} list */
const median = (list) => [...list].sort((a, b) => a - b)[Math.floor(list.length / 2)];

/* Chromium fetches the script of a worker past the emulation. */
const latency = (/** @type {string} */ path) => (path.includes('/worker-') ? SLOW_4G.latency : 0);
const server = await serve(folder, { encodings: ['gzip'], latency });
const browser = await startChromium();

/** One visit of somebody who has never been here. @returns {Promise<{number: number, live: number, bytes: number}>} ms after the navigation began */
async function visit() {
  const { context, page } = await openContext(browser);
  const session = await context.newCDPSession(page);
  await session.send('Network.enable');
  await session.send('Network.emulateNetworkConditions', SLOW_4G);
  await page.addInitScript(() => {
    const look = () => {
      if (document.querySelector('.big')) requestAnimationFrame(() => performance.mark('number-painted'));
      else requestAnimationFrame(look);
    };
    look();
  });
  await page.goto(server.url, { waitUntil: 'commit' });
  await ready(page);
  const seen = await page.evaluate(() => {
    const live = performance.getEntriesByName('tidemark-first-answer')[0].startTime;
    const resources = /** @type {PerformanceResourceTiming[]} */ (performance.getEntriesByType('resource')).filter(({ startTime }) => startTime < live);
    const [navigation] = /** @type {PerformanceNavigationTiming[]} */ (performance.getEntriesByType('navigation'));
    return {
      number: performance.getEntriesByName('number-painted')[0].startTime, live,
      bytes: [navigation, ...resources].reduce((sum, { encodedBodySize }) => sum + encodedBodySize, 0),
      all: [navigation, ...resources].map(({ name, startTime, responseStart, responseEnd, encodedBodySize }) => ({ name: name.split('/').at(-1), startTime, responseStart, responseEnd, encodedBodySize })),
    };
  });
  await context.close();
  return seen;
}

const seen = [];
for (let i = 0; i < loads; i++) seen.push(await visit());
if (process.env.ALL) console.table(seen[0].all);
print('page_slow_4g_first_number', median(seen.map(({ number }) => number)), 'ms');
print('page_slow_4g_live', median(seen.map(({ live }) => live)), 'ms');
print('page_slow_4g_bytes', median(seen.map(({ bytes }) => bytes)), 'bytes');

await browser.close();
server.close();
