/* What the page's tests share: a list of tests with a closing line, Chromium, and a context that records every request. */
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';

const fromWeb = createRequire(new URL('../../web/package.json', import.meta.url));
const { chromium } = fromWeb('playwright-core');
export const axePath = fromWeb.resolve('axe-core/axe.min.js');

/** @type {{name: string, run: () => any}[]} */
const tests = [];

/** @param {string} name @param {() => any} run */
export function test(name, run) {
  tests.push({ name, run });
}

/** Runs all in order and prints the closing line.
 * @param {string} [only] part of a name @returns {Promise<number>} how many failed */
export async function runAll(only = '') {
  let passed = 0;
  let failed = 0;
  for (const { name, run } of tests.filter((t) => t.name.includes(only))) {
    try {
      await run();
      passed++;
      console.log(`ok    ${name}`);
    } catch (error) {
      failed++;
      console.log(`FAIL  ${name}\n      ${String(error?.stack ?? error).split('\n').slice(0, 6).join('\n      ')}`);
    }
  }
  console.log(`${passed} passed, ${failed} failed`);
  return failed;
}

const QUIET = ['--disable-background-networking', '--disable-component-update', '--disable-domain-reliability',
  '--disable-sync', '--disable-default-apps', '--no-first-run', '--no-pings', '--metrics-recording-only',
  '--disable-features=OptimizationHints,MediaRouter,Translate,InterestFeedContentSuggestions'];

export function startChromium() {
  const executablePath = [process.env.CHROMIUM, '/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome']
    .find((path) => path && existsSync(path));
  if (!executablePath) throw new Error('Chromium is not installed (Debian: apt-get install chromium), and CHROMIUM does not name one.');
  return chromium.launch({ executablePath, args: [...QUIET, ...(process.getuid?.() === 0 ? ['--no-sandbox'] : [])] });
}

export const DESKTOP = { width: 1440, height: 900 };
export const PHONE = { width: 390, height: 844 };

/** A fresh context with one page; every request and every policy violation or script error of it is recorded.
 * @param {any} browser @param {{viewport?: object, scheme?: 'light' | 'dark', javaScript?: boolean, scale?: number}} [options] */
export async function openContext(browser, { viewport = DESKTOP, scheme = 'light', javaScript = true, scale = 1 } = {}) {
  const context = await browser.newContext({
    viewport, colorScheme: scheme, javaScriptEnabled: javaScript, deviceScaleFactor: scale, reducedMotion: 'reduce',
    permissions: ['clipboard-read', 'clipboard-write'],
  });
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

/** Waits for the live page. @param {any} page */
export const ready = (page) => page.waitForSelector('[data-core="ready"]', { timeout: 15000 });

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
    document.querySelector('.big .bytes')?.getAttribute('data-tip') !== old, before, { timeout: 10000 });
}

/** Waits until the clipboard holds a text. @param {any} page @param {string} part of it */
export async function copied(page, part) {
  for (const end = Date.now() + 15000; Date.now() < end; await page.waitForTimeout(50)) {
    if ((await page.evaluate(() => navigator.clipboard.readText())).includes(part)) return;
  }
  throw new Error(`The clipboard never held ${part}`);
}
