/* A smoke run in Firefox ESR, over WebDriver BiDi; without Firefox it is skipped, and says so. */
import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { openCore } from './core.mjs';
import { test } from './harness.mjs';
import { EXAMPLE } from '../../web/src/example.js';
import { serve } from '../../web/serve.mjs';

const fromWeb = createRequire(new URL('../../web/package.json', import.meta.url));
const recorded = (/** @type {string} */ name) => new URL(`../recordings/${name}`, import.meta.url).pathname;

/** @param {string} folder the built page @returns {Promise<() => Promise<void>>} closes what was opened */
export async function firefoxTests(folder) {
  const executablePath = [process.env.FIREFOX, '/usr/bin/firefox-esr', '/usr/bin/firefox'].find((path) => path && existsSync(path));
  if (!executablePath) {
    console.log('skipped: no Firefox here (Debian: apt-get install firefox-esr), and FIREFOX does not name one');
    return async () => {};
  }
  const puppeteer = fromWeb('puppeteer-core');
  const server = await serve(folder);
  const core = await openCore(folder);
  /** @type {any} */
  let browser = null;

  /** @param {string} at @param {(page: any) => any} use */
  async function visit(at, use) {
    browser ??= await puppeteer.launch({ browser: 'firefox', executablePath, headless: true,
      extraPrefsFirefox: { 'datareporting.policy.dataSubmissionEnabled': false, 'network.captive-portal-service.enabled': false, 'network.connectivity-service.enabled': false } });
    const page = await browser.newPage();
    /** @type {string[]} */
    const problems = [];
    /** @type {string[]} */
    const requests = [];
    page.on('pageerror', (/** @type {Error} */ error) => problems.push(String(error)));
    page.on('request', (/** @type {any} */ request) => requests.push(request.url()));
    try {
      await page.setViewport({ width: 1440, height: 900 });
      await page.goto(at);
      await page.waitForSelector('[data-core="ready"]', { timeout: 30000 });
      await use(page);
      assert.deepEqual(problems, []);
      assert.deepEqual(requests.filter((url) => /^https?:/.test(url) && new URL(url).origin !== new URL(server.url).origin), []);
    } finally {
      await page.close();
    }
  }
  const device = (/** @type {any} */ page) => page.$eval('.big .bytes', (/** @type {any} */ e) => Number(e.getAttribute('data-tip').replaceAll(/[^0-9]/g, '')));
  const textOf = (/** @type {any} */ page, /** @type {string} */ place) => page.$eval(place, (/** @type {any} */ e) => e.innerText);
  const estimate = (/** @type {string[]} */ settings) => core.call({ call: 'estimate', settings }).verdict.device_bytes;

  test('firefox: the example, a changed batch, and the link of it', () => visit(server.url, async (page) => {
    const words = EXAMPLE.map(([name, value]) => `${name}=${value}`);
    assert.equal(await device(page), estimate(words));
    await page.focus('#set-batch');
    await page.keyboard.press('ArrowUp');
    await page.waitForFunction((/** @type {string} */ old) => !location.hash.includes(old), {}, 'batch=16&');
    const hash = await page.evaluate(() => location.hash.slice(1));
    assert.equal(await device(page), core.call({ call: 'estimate', link: hash }).verdict.device_bytes);
  }));

  test('firefox: links, readable, packed, cut, damaged, and with markup', async () => {
    const lines = readFileSync(new URL('../links/v1.jsonl', import.meta.url), 'utf8').trim().split('\n').map((line) => JSON.parse(line));
    for (const { link, device: expected } of lines.filter(({ link: l }) => l.startsWith('z=') || l.includes('llava'))) {
      await visit(`${server.url}#${link}`, async (page) => assert.equal(await device(page), expected, link.slice(0, 80)));
    }
    for (const [hash, says] of /** @type {[string, RegExp][]} */ ([['#model=gpt2&bat', /cut short/], ['#z=1.eNpLzs-2dUpNSy', /damaged or was cut/],
      ['#model=gpt2&title=%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E&v=1', /<img src=x onerror=alert\(1\)> · GPT-2/]])) {
      await visit(server.url + hash, async (page) => {
        assert.match(await textOf(page, '#app'), says);
        assert.equal(await page.$('main img'), null);
      });
    }
  });

  test('firefox: files are chosen, a recording is played', () => visit(server.url, async (page) => {
    const chooser = await page.$('#chooser');
    await chooser.uploadFile(new URL('../cli/files/tiny/config.json', import.meta.url).pathname);
    await page.waitForSelector('.file');
    await page.waitForFunction(() => location.hash.startsWith('#z=1.'));
    await chooser.uploadFile(recorded('snapshot-expand.pickle.gz'));
    await page.waitForSelector('.recording-live');
    assert.equal(await device(page), 358612992);
  }));

  test('firefox: the single file opens from disk', () => visit(`${pathToFileURL(join(folder, 'tidemark.html')).href}#model=gpt2&gpu=t4&batch=4&v=1`, async (page) => {
    assert.equal(await device(page), estimate(['model=gpt2', 'gpu=t4', 'batch=4']));
  }));

  return async () => {
    await browser?.close();
    server.close();
  };
}
