// SPDX-License-Identifier: Apache-2.0
/* The page apart from its host: one file from disk, in a frame, offline. */
import assert from 'node:assert/strict';
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { deviceBytes, isNightly, openContext, ready, test } from './harness.mjs';
import { recorded } from './site.mjs';
import { serve } from '../../web/serve.mjs';

/** @param {import('./site.mjs').Site} site */
export default function ({ folder, browser, server, choose, core }) {
  test('single file: it opens from disk, computes, plays a recording, and asks nobody', async () => {
    const expected = (await core()).call({ call: 'estimate', link: 'model=gpt2&gpu=t4&batch=4&v=1' }).verdict.device_bytes;
    for (const scheme of isNightly ? /** @type {const} */ (['light', 'dark']) : ['dark']) {
      const opened = await openContext(browser, { scheme: /** @type {any} */ (scheme) });
      const { page, problems, requests } = opened;
      const at = pathToFileURL(join(folder, 'tidemark.html')).href;
      await page.goto(`${at}#model=gpt2&gpu=t4&batch=4&v=1`);
      await ready(page);
      assert.equal(await deviceBytes(page), expected);
      await page.locator('#set-batch').fill('2');
      await page.waitForFunction(() => location.hash.includes('batch=2'));
      await choose(page, recorded('snapshot-plain.pickle.gz'));
      await page.getByText('With other options').waitFor();
      assert.deepEqual(problems, []);
      assert.deepEqual(requests.filter((url) => !/^(blob|data):/.test(url) && !url.startsWith(at)), []);
      await opened.context.close();
    }
  });

  test('single file: with a job inside it opens on it', async () => {
    const own = mkdtempSync(join(tmpdir(), 'tidemark-report-'));
    const report = join(own, 'report.html');
    writeFileSync(report, readFileSync(join(folder, 'tidemark.html'), 'utf8')
      .replace(/<!--app-->[^]*<!--\/app-->/, '<main class="report"><h1>GPT-2</h1></main>')
      .replace('<!--job-->\n', '<script type="text/plain" id="job">model=gpt2&batch=3&v=1</script>'));
    const { context, page, problems } = await openContext(browser);
    await page.goto(pathToFileURL(report).href);
    await ready(page);
    assert.equal(await page.locator('#set-batch').inputValue(), '3');
    assert.equal(await page.locator('.report').count(), 0);
    assert.deepEqual(problems, []);
    await context.close();
    rmSync(own, { recursive: true });
  });

  test('single file: in a sandbox without an origin it computes, and keeps nothing', async () => {
    const bare = await serve(folder, { headers: false });
    const { context, page, problems } = await openContext(browser);
    await page.route(`${bare.url}host.html`, (/** @type {any} */ route) => route.fulfill({ contentType: 'text/html',
      body: '<!doctype html><iframe sandbox="allow-scripts" width="1300" height="800" src="tidemark.html#model=gpt2&gpu=t4&batch=4&v=1"></iframe>' }));
    await page.goto(`${bare.url}host.html`);
    const frame = page.frameLocator('iframe');
    await frame.locator('[data-core="ready"]').waitFor();
    await frame.getByRole('button', { name: 'Display' }).click();
    await frame.locator('.top input[value="dark"]').check();
    await frame.locator('#set-batch').fill('3');
    await frame.locator('.job-words', { hasText: /3 × / }).waitFor();
    assert.deepEqual(problems, []);
    await context.close();
    bare.close();
  });

  test('frame: a job in another page, in a sandbox', async () => {
    const { context, page, problems } = await openContext(browser);
    await page.route(`${server.url}host.html`, (/** @type {any} */ route) => route.fulfill({ contentType: 'text/html',
      body: '<!doctype html><iframe sandbox="allow-scripts allow-popups" width="760" height="320" src="embed.html#model=gpt2&gpu=t4&batch=4&title=Our%20run&v=1"></iframe>' }));
    await page.goto(`${server.url}host.html`);
    const frame = page.frameLocator('iframe');
    await frame.locator('.big').waitFor();
    assert.match(await frame.locator('main').innerText(), /Our run · GPT-2[^]*4\.7\s*GiB[^]*Fits T4/);
    assert.match(await frame.getByRole('link', { name: 'Open in tidemark' }).getAttribute('href'), /^\.\/#model=gpt2/);
    assert.ok(await frame.locator('html').evaluate((/** @type {Element} */ one) => one.scrollHeight <= 320), 'nothing is cut');
    assert.deepEqual(problems, []);
    await context.close();
  });

  /* ---- offline ---- */

  /** The built page in a folder of its own that a test may change. @param {(at: string, own: string, context: any, page: any) => any} use */
  async function hosted(use) {
    const own = mkdtempSync(join(tmpdir(), 'tidemark-page-'));
    cpSync(folder, join(own, 'tools/tidemark'), { recursive: true });
    const host = await serve(own, { headers: false, encodings: [] }); /* what a test writes has no compressed form */
    const { context, page } = await openContext(browser);
    try {
      await page.goto(`${host.url}tools/tidemark/`);
      await ready(page);
      await page.evaluate(() => navigator.serviceWorker.ready);
      await use(host.url, join(own, 'tools/tidemark'), context, page);
    } finally {
      await context.close();
      host.close();
      rmSync(own, { recursive: true });
    }
  }
  const again = async (/** @type {any} */ page) => {
    await page.reload();
    await ready(page);
  };

  test('offline: after the first visit the page needs no network', () => hosted(async (at, own, context, page) => {
    await context.setOffline(true);
    await again(page);
    await page.locator('.foot', { hasText: 'offline copy' }).waitFor();
    await page.locator('#set-batch').fill('3');
    await page.waitForFunction(() => location.hash.includes('batch=3'));
    await page.evaluate(() => { location.hash = '#model=qwen3-0.6b&gpu=t4&v=1'; });
    await page.waitForFunction(() => /Qwen3 0\.6B/.test(document.title));
    await choose(page, recorded('snapshot-plain.pickle.gz'));
    await page.getByText('With other options').waitFor();
  }));

  test('offline: a new version waits for the user’s word, and leaves other tabs alone', () => hosted(async (at, own, context, page) => {
    const other = await context.newPage();
    await other.goto(page.url());
    await ready(other);
    await other.evaluate(() => { document.title = 'untouched'; });
    const index = readFileSync(join(own, 'index.html'), 'utf8');
    writeFileSync(join(own, 'index.html'), index.replace('<html lang="en">', '<html lang="en" data-version="next">'));
    writeFileSync(join(own, 'sw.js'), readFileSync(join(own, 'sw.js'), 'utf8').replace(/tidemark \$\{([^}]+)\} /, 'tidemark ${$1} next'));
    await again(page);
    await page.evaluate(() => navigator.serviceWorker.getRegistration().then((r) => r?.update()));
    const button = page.getByRole('button', { name: 'Update' });
    await button.waitFor();
    await Promise.all([page.waitForEvent('load'), button.click()]);
    await ready(page);
    assert.equal(await page.evaluate(() => document.documentElement.dataset.version), 'next');
    assert.equal(await button.count(), 0);
    assert.equal(await other.title(), 'untouched');
    assert.equal((await page.evaluate(() => caches.keys())).length, 1);
  }));

  test('offline: the kill switch takes the service worker back', () => hosted(async (at, own, context, page) => {
    cpSync(join(own, 'sw-off.js'), join(own, 'sw.js'));
    await page.evaluate(() => navigator.serviceWorker.getRegistration().then((r) => r?.update()));
    await page.waitForFunction(async () => (await navigator.serviceWorker.getRegistrations()).length === 0 && (await caches.keys()).length === 0);
    await page.locator('#set-batch').fill('3');
    await page.waitForFunction(() => location.hash.includes('batch=3'));
  }));
}
