// SPDX-License-Identifier: Apache-2.0
/* What the page's tests share: the list of them, Chromium, and pages that record every request. */
import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';

const fromWeb = createRequire(new URL('../../web/package.json', import.meta.url));
const { chromium } = fromWeb('playwright-core');
const axe = readFileSync(fromWeb.resolve('axe-core/axe.min.js'), 'utf8');

/* Whether all is run: every engine, state and picture, long walks and whole corpora. */
export const isNightly = process.argv.includes('--nightly');

/** @typedef {{file: string, name: string, run: () => any}} Test */

/** @type {Test[]} */
export const tests = [];
let file = '';

/** What is added from here on is of this file. @param {string} name */
export const beginFile = (name) => { file = name; };

/** @param {string} name @param {() => any} run */
export function test(name, run) {
  tests.push({ file, name, run });
}

/** A test that takes long, or repeats another one in other colours, sizes or engines. @param {string} name @param {() => any} run */
test.nightly = (name, run) => { if (isNightly) test(name, run); };

/** All of a list at night, else every nth and the last. @template T @param {T[]} list @param {number} nth @returns {T[]} */
export const some = (list, nth) => list.filter((_, i) => isNightly || i % nth === 0 || i === list.length - 1);

/** What cannot be tested here, and why. @type {string[]} */
export const skipped = [];

/** @type {string[]} */
let lines = [];

/** A line below the test's name. @param {string} text */
export const say = (text) => { lines.push(text); };

/** Runs one. @param {Test} one @returns {Promise<{ms: number, error?: string, lines: string[]}>} */
export async function run({ run: act }) {
  lines = [];
  const from = performance.now();
  let error;
  try {
    await act();
  } catch (caught) {
    error = String(/** @type {any} */ (caught)?.stack ?? caught).split('\n').slice(0, 8).join('\n');
  }
  return { ms: performance.now() - from, error, lines };
}

/* ---- Chromium ---- */

const QUIET = ['--disable-background-networking', '--disable-component-update', '--disable-domain-reliability',
  '--disable-sync', '--disable-default-apps', '--no-first-run', '--no-pings', '--metrics-recording-only',
  '--disable-features=OptimizationHints,MediaRouter,Translate,InterestFeedContentSuggestions'];

/* The headless shell is Chromium without its window, and opens a page in half the time. At night and in benchmarks it is the whole browser. */
const SHELL = '/usr/bin/chromium-headless-shell';
const WHOLE = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'];

/** @param {boolean} [isWhole] with its window, where nobody sees it */
export function startChromium(isWhole = true) {
  const executablePath = [process.env.CHROMIUM, ...(isWhole ? [...WHOLE, SHELL] : [SHELL, ...WHOLE])].find((path) => path && existsSync(path));
  if (!executablePath) throw new Error('Chromium is not installed (Debian: apt-get install chromium), and CHROMIUM does not name one.');
  return chromium.launch({ executablePath, args: [...QUIET, ...(process.getuid?.() === 0 ? ['--no-sandbox'] : [])] });
}

export const DESKTOP = { width: 1440, height: 900 };
export const PHONE = { width: 390, height: 844 };
const WAIT_MS = Number(process.env.BROWSER_WAIT_S ?? 120) * 1000; /* for what is waited for: a machine may have other things to do */

/** @typedef {{viewport?: {width: number, height: number}, scheme?: 'light' | 'dark', javaScript?: boolean, scale?: number, serviceWorkers?: 'allow' | 'block'}} Look */

/** A fresh context with one page; every request and every policy violation or script error of it is recorded.
 * @param {any} browser @param {Look} [look] */
export async function openContext(browser, { viewport = DESKTOP, scheme = 'light', javaScript = true, scale = 1, serviceWorkers = 'allow' } = {}) {
  const context = await browser.newContext({
    viewport, colorScheme: scheme, javaScriptEnabled: javaScript, deviceScaleFactor: scale, reducedMotion: 'reduce', serviceWorkers,
    permissions: ['clipboard-read', 'clipboard-write'],
  });
  context.setDefaultTimeout(WAIT_MS);
  /** @type {string[]} */
  const requests = [];
  /** @type {string[]} */
  const problems = [];
  context.on('request', (/** @type {any} */ request) => requests.push(request.url()));
  const page = await context.newPage();
  page.on('pageerror', (/** @type {Error} */ error) => problems.push(String(error)));
  page.on('console', (/** @type {any} */ message) => {
    if (message.type() === 'error') problems.push(message.text());
  });
  return { context, page, requests, problems };
}

/** @typedef {Awaited<ReturnType<typeof openContext>>} Opened */

const MOST_IDLE = 4;

/** Pages that one test after the other uses, each in a tab that has nothing of the last. What must have a context of its own opens one.
 * @param {any} browser */
function tabs(browser) {
  /** Those that wait, the last used last. @type {{key: string, opened: Opened}[]} */
  let idle = [];

  /** @param {Look} look @returns {Promise<Opened>} */
  async function take(look) {
    const key = JSON.stringify(look);
    const at = idle.findLastIndex((one) => one.key === key);
    if (at < 0) return openContext(browser, { ...look, serviceWorkers: 'block' });
    return idle.splice(at, 1)[0].opened;
  }

  /** @param {Opened} opened @param {Look} look */
  async function giveBack(opened, look) {
    const { context, page, requests, problems } = opened;
    const { viewport = DESKTOP, scheme = 'light' } = look;
    for (const other of context.pages()) if (other !== page) await other.close();
    await page.unrouteAll();
    await context.unrouteAll();
    if (look.javaScript !== false) {
      await page.evaluate(() => {
        localStorage.clear();
        return navigator.clipboard.writeText('').catch(() => {}); /* without the focus */
      });
    }
    await page.goto('about:blank');
    await page.setViewportSize(viewport);
    await page.emulateMedia({ media: null, forcedColors: null, contrast: null, colorScheme: scheme, reducedMotion: 'reduce' });
    requests.length = problems.length = 0;
    idle.push({ key: JSON.stringify(look), opened });
    if (idle.length > MOST_IDLE) await idle.shift()?.opened.context.close();
  }
  return { take, giveBack };
}

/** Opens the page and uses it; script errors, policy violations and requests to elsewhere fail the test.
 * @typedef {(use: (page: any, more: Opened) => any, options?: Look & {at?: string, expected?: RegExp}) => Promise<void>} Visit at: where it
 *   is, or the end of the address; expected: such problems are
 * @param {any} browser @param {string} url of the page @returns {Visit} */
export function visitor(browser, url) {
  const { take, giveBack } = tabs(browser);
  return async (use, { at = '', expected, ...look } = {}) => {
    const address = new URL(at, url).href;
    const opened = await take(look);
    const { page, problems, requests } = opened;
    try {
      await page.goto(address);
      if (look.javaScript !== false) await ready(page);
      await use(page, opened);
      assert.deepEqual(problems.filter((text) => !expected?.test(text)), []);
      assert.deepEqual(requests.filter((one) => !/^(data|blob|about):/.test(one) && new URL(one).origin !== new URL(address).origin), []);
    } catch (error) {
      const seen = new URL(`../../build/browser/${new Date().toISOString().replaceAll(':', '')}.png`, import.meta.url).pathname;
      const isSeen = await page.screenshot({ path: seen, timeout: 5000 }).then(() => true, () => false);
      say(`at ${page.url().slice(0, 200)}${isSeen ? `, seen in build/browser/${seen.split('/').at(-1)}` : ''}${problems.length ? `, said: ${problems.join(' | ').slice(0, 500)}` : ''}`);
      await opened.context.close().catch(() => {});
      throw error;
    }
    await giveBack(opened, look);
  };
}

/* ---- waiting ---- */

/** Waits for the live page. @param {any} page */
export const ready = (page) => page.waitForSelector('[data-core="ready"]');

/** Waits until nothing is awaited (what is late is dimmed), nothing moves, and the document has been as it is for a moment. @param {any} page */
export const still = (page) => page.evaluate(() => new Promise((/** @type {(is?: unknown) => void} */ done) => {
  const QUIET_MS = 150;
  let changed = performance.now();
  const observer = new MutationObserver(() => { changed = performance.now(); });
  observer.observe(document, { subtree: true, childList: true, characterData: true, attributes: true });
  const look = () => {
    const isBusy = document.querySelector('.is-slow, [aria-busy="true"]') || document.getAnimations().some((one) => one.playState === 'running');
    if (isBusy) changed = performance.now();
    if (performance.now() - changed < QUIET_MS) return requestAnimationFrame(look);
    observer.disconnect();
    done();
  };
  look();
}));

export const WCAG = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa'];

/** What axe finds in the page, or in some places of it, once it is still: a line for each rule. @param {any} page @param {string[]} [include] @param {string[]} [rules] @returns {Promise<string[]>} */
export async function violations(page, include = [], rules = WCAG) {
  await still(page);
  if (!await page.evaluate(() => 'axe' in globalThis)) {
    const session = await page.context().newCDPSession(page); /* as the developer tools would: outside the page's policy */
    await session.send('Runtime.evaluate', { expression: axe });
    await session.detach();
  }
  const { violations: found } = await page.evaluate((/** @type {string[][]} */ [places, runOnly]) => /** @type {any} */ (globalThis).axe.run(
    places.length ? { include: places } : document, { runOnly, resultTypes: ['violations'] }), [include, rules]);
  return found.map((/** @type {any} */ v) => `${v.id}: ${v.nodes.length} × ${v.nodes[0].html.slice(0, 140)} ${v.nodes[0].failureSummary?.split('\n')[1] ?? ''}`);
}

/** The number in the verdict, in bytes. @param {any} page */
export async function deviceBytes(page) {
  const text = await page.locator('.big .bytes').getAttribute('data-tip');
  return Number(text.replaceAll(/[^0-9]/g, ''));
}

/** Does something and waits until the verdict differs. @param {any} page @param {() => any} act */
export async function changed(page, act) {
  const before = await page.locator('.big .bytes').getAttribute('data-tip');
  await act();
  await page.waitForFunction((/** @type {string} */ old) =>
    document.querySelector('.big .bytes')?.getAttribute('data-tip') !== old, before);
}

/** Waits until the clipboard holds a text. @param {any} page @param {string} part of it */
export async function copied(page, part) {
  /* waitForFunction takes a promise for true. */
  for (const end = Date.now() + WAIT_MS; Date.now() < end; await page.waitForTimeout(50)) {
    if ((await page.evaluate(() => navigator.clipboard.readText())).includes(part)) return;
  }
  throw new Error(`The clipboard never held ${part}`);
}
