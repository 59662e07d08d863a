// SPDX-License-Identifier: Apache-2.0
/* Nothing leaves the page, nothing gets in: policies, workers, hostile hosts, files and links. */
import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, dirname, join, resolve } from 'node:path';
import { deflateSync } from 'node:zlib';
import { changed, deviceBytes, openContext, ready, some, still, test } from './harness.mjs';
import { serve } from '../../web/serve.mjs';

const corpora = new URL('../fuzz/corpus/', import.meta.url);

/** @param {import('./site.mjs').Site} site */
export default function ({ folder, browser, server, bare, visit, field, fromCore, exampleWords, tab, drop, choose, LLAMA }) {
  /* ---- the page and its host ---- */

  test('no request leaves the page during a whole session', () => visit(async (page, { requests }) => {
    await changed(page, () => field(page, 'batch').fill('2'));
    await changed(page, () => drop(page, [{ name: 'config.json', text: LLAMA }]));
    for (const name of ['Reduce memory', 'Heat map']) await tab(page, name);
    await page.keyboard.press('Control+k');
    await page.locator('.palette').waitFor();
    await page.keyboard.press('Escape');
    await page.locator('.opens').first().click();
    await page.locator('.drawer .formula').first().waitFor();
    await page.getByRole('button', { name: 'Share' }).click();
    await page.getByRole('button', { name: 'Copy link' }).click();
    await page.locator('.said').waitFor();
    const origin = new URL(server.url).origin;
    const foreign = requests.filter((url) => !url.startsWith(`${origin}/`) && !url.startsWith('data:'));
    assert.deepEqual(foreign, []);
    await visit(async (_, first) => {
      const offline = first.requests.findIndex((url) => url.endsWith('/sw.js')); /* what follows is kept for later */
      assert.ok((offline < 0 ? first.requests : first.requests.slice(0, offline)).length <= 8, first.requests.join('\n'));
    });
  }));

  test('what other models need comes when they are asked for; without a network that is said, and the page goes on', async () => {
    const { context, page, requests, problems } = await openContext(browser);
    const fetches = () => requests.filter((url) => /\/(models|rest)-/.test(url)).length;
    try {
      await context.route('**/sw.js', (/** @type {any} */ route) => route.abort()); /* it would keep everything */
      await page.goto(server.url);
      await ready(page);
      await changed(page, () => field(page, 'batch').fill('2'));
      assert.equal(fetches(), 0, 'the example needs nothing more');
      await context.setOffline(true);
      const missing = 'A part of tidemark that this needs could not be loaded';
      await page.locator('#model').click();
      await page.locator('.picker-list', { hasText: missing }).waitFor();
      await page.keyboard.press('Escape');
      const other = '#model=qwen3-0.6b&gpu=h100-80&batch=2&seq=1024&checkpointing=full&v=1';
      await page.evaluate((/** @type {string} */ hash) => { location.hash = hash; }, other);
      await page.locator('.diagnostic', { hasText: missing }).waitFor();
      await changed(page, () => page.evaluate((/** @type {string} */ hash) => { location.hash = hash; }, `#${exampleWords.join('&')}&v=1`));
      await page.evaluate((/** @type {string} */ hash) => { location.hash = hash; }, other);
      await page.locator('.diagnostic', { hasText: missing }).waitFor();
      await changed(page, () => context.setOffline(false));
      assert.equal(await deviceBytes(page), (await fromCore(['model=qwen3-0.6b', 'gpu=h100-80', 'batch=2', 'seq=1024', 'checkpointing=full'])).verdict.device_bytes);
      const before = fetches();
      await changed(page, () => field(page, 'batch').fill('3'));
      assert.equal(fetches(), before, 'once is enough');
      assert.deepEqual(problems.filter((text) => !/ERR_(FAILED|INTERNET_DISCONNECTED)|when fetching the script/.test(text)), []);
    } finally {
      await context.close();
    }
  });

  test('the worker has no way to a network, on a host without headers too', async () => {
    for (const at of [server.url, bare.url]) {
      await visit(async (page) => {
        const [worker] = page.workers();
        assert.deepEqual(await worker.evaluate(() => ['fetch', 'XMLHttpRequest', 'WebSocket', 'EventSource', 'importScripts', 'indexedDB', 'caches', 'Worker']
          .filter((name) => typeof (/** @type {any} */ (globalThis))[name] !== 'undefined')), []);
      }, { at });
    }
  });

  test('eval, foreign workers and foreign requests are refused', () => visit(async (page) => {
    const outcome = await page.evaluate(async () => {
      const tried = [];
      /* Strings: the test's own script must not be refused. */
      for (const attempt of [
        () => setTimeout(/** @type {any} */ ('window.pwned = 1'), 0),
        () => new Worker('assets/other.js'),
        () => fetch('http://127.0.0.1:1/'),
        () => { document.body.innerHTML = '<p>x</p>'; },
      ]) {
        try {
          await attempt();
          tried.push('allowed');
        } catch {
          tried.push('refused');
        }
      }
      await new Promise((done) => setTimeout(done, 50));
      return { tried, pwned: 'pwned' in window };
    });
    assert.equal(outcome.pwned, false);
    assert.deepEqual(outcome.tried.slice(1), ['refused', 'refused', 'refused']);
  }, { expected: /Content Security Policy|TrustedScript|Trusted|violates/ }));

  test('it loads where the host names wasm wrongly', async () => {
    const opened = await openContext(browser);
    await opened.page.route('**/*.wasm', async (/** @type {any} */ route) => {
      const response = await route.fetch();
      await route.fulfill({ response, headers: { 'content-type': 'application/octet-stream' } });
    });
    await opened.page.goto(server.url);
    await ready(opened.page);
    await opened.context.close();
  });

  test('a core that does not load is said, and the example stays', async () => {
    const opened = await openContext(browser);
    await opened.page.route('**/*.wasm', (/** @type {any} */ route) => route.fulfill({ status: 404, body: '' }));
    await opened.page.goto(server.url);
    await opened.page.locator('.diagnostic.is-error').waitFor();
    assert.match(await opened.page.locator('.diagnostic.is-error').innerText(), /could not start/);
    await opened.context.close();
  });

  test('it works from a folder of any host', async () => {
    const parent = await serve(dirname(resolve(folder)));
    try {
      await visit((page) => page.locator('.big').waitFor(), { at: `${parent.url}${basename(resolve(folder))}/` });
    } finally {
      parent.close();
    }
  });

  test('where the host forbids WebAssembly, the page says so and how to allow it', async () => {
    const forbidding = await serve(folder, { policy: (text) => text.replace(" 'wasm-unsafe-eval'", '') });
    const { context, page } = await openContext(browser);
    await page.goto(forbidding.url);
    await page.locator('.diagnostic.is-error').waitFor();
    assert.match(await page.locator('.diagnostic.is-error').innerText(), /could not start[^]*'wasm-unsafe-eval' in its Content-Security-Policy[^]*tidemark command/);
    assert.equal(await page.locator('.factor-table').count(), 1, 'the example stays');
    await page.getByRole('button', { name: 'Reload' }).waitFor();
    await context.close();
    forbidding.close();
  });

  test('a core of another version is refused, with the way out', async () => {
    const { context, page } = await openContext(browser);
    await page.route('**/tidemark-*.wasm', (/** @type {any} */ route) => route.fulfill({ contentType: 'application/wasm', body: Buffer.from([0, 97, 115, 109, 1, 0, 0, 0]) }));
    await page.goto(server.url);
    await page.locator('.diagnostic.is-error').waitFor();
    assert.match(await page.locator('.diagnostic.is-error').innerText(), /different versions[^]*Reload the page/);
    await context.close();
  });

  test('with storage and service workers off the page works', async () => {
    const { context, page, problems } = await openContext(browser);
    await page.addInitScript(() => {
      Object.defineProperty(window, 'localStorage', { get() { throw new DOMException('denied', 'SecurityError'); } });
      Object.defineProperty(navigator, 'serviceWorker', { get() { return { register: () => Promise.reject(new Error('denied')), addEventListener() {} }; } });
    });
    await page.goto(server.url);
    await ready(page);
    await page.locator('#set-batch').fill('3');
    await page.waitForFunction(() => location.hash.includes('batch=3'));
    await page.getByRole('button', { name: 'Display' }).click();
    await page.locator('.top input[value="dark"]').check();
    assert.deepEqual(problems, []);
    await context.close();
  });

  /* ---- hostile files and links ---- */

  let turn = 0;
  /** Whether the page still takes a link and answers what is typed. @param {any} page @param {string} after */
  async function alive(page, after) {
    const dead = () => assert.fail(`the page is dead after ${after}`);
    const close = page.getByRole('button', { name: 'Close the recording' });
    await still(page);
    if (await close.count()) await close.click();
    const takes = async () => {
      const batch = String(2 + (turn++ % 60)); /* another one each time: a link to what is there is none */
      await page.evaluate((/** @type {string} */ value) => { location.hash = `#model=gpt2&gpu=t4&batch=${value}&seq=128&v=1`; }, batch);
      const taken = await page.waitForFunction((/** @type {string} */ value) => /** @type {any} */ (document.getElementById('set-batch'))?.value === value
        && /** @type {any} */ (document.getElementById('set-seq')).value === '128', batch, { timeout: 5000 }).catch(() => null);
      await still(page);
      return taken && await page.locator('#set-batch').inputValue() === batch;
    };
    for (let tries = 0; !await takes(); tries++) if (tries === 20) dead(); /* a file that is still being read may come after a link */
    await page.locator('#set-seq').fill('64');
    await page.waitForFunction(() => location.hash.includes('seq=64')).catch(dead);
    assert.equal(await page.locator('.diagnostic.is-error').count(), 0, after);
  }

  test('every file of the fuzz corpora, under a name that promises something else', () => visit(async (page) => {
    const all = readdirSync(corpora).flatMap((corpus) => readdirSync(new URL(`${corpus}/`, corpora)).map((name) => `${corpus}/${name}`));
    assert.ok(all.length > 40);
    for (const [i, name] of some(all, 14).entries()) {
      const buffer = readFileSync(new URL(name, corpora));
      await choose(page, { name: ['config.json', 'ds_config.json', 'accelerate.yaml', 'snapshot.pickle', 'model.safetensors'][i % 5], mimeType: '', buffer });
      await page.locator('.file, .diagnostic, .recording-close').first().waitFor().catch(() => assert.fail(`nothing is said of ${name}`));
      await alive(page, name);
      assert.equal(await page.locator('.diagnostic', { hasText: 'stopped unexpectedly' }).count(), 0, `${name} made the core trap`);
    }
    assert.equal(await page.evaluate(() => /** @type {any} */ ({}).hidden_size ?? /** @type {any} */ ({}).batch), undefined);
  }, { at: `#model=gpt2&gpu=t4&v=1` }));

  test('words of the fuzz corpora, 64 KB of them, and bombs, as links', () => visit(async (page) => {
    const words = readdirSync(new URL('fuzz_job/', corpora)).filter((name) => name.startsWith('words') || name.startsWith('request'))
      .map((name) => readFileSync(new URL(`fuzz_job/${name}`, corpora), 'latin1').replaceAll(/[\s\0]+/g, '&'));
    const bomb = deflateSync(Buffer.alloc(40 << 20)).toString('base64url');
    const nested = deflateSync(Buffer.from(`config=${encodeURIComponent('{"text_config":'.repeat(4000))}&v=1`)).toString('base64url');
    const all = [...words, ...words.map(encodeURIComponent), `${words[0]}${'&batch=1'.repeat(8000)}`.slice(0, 65535), `model=gpt2&${'a'.repeat(65000)}=1&v=1`, `title=${'%25'.repeat(20000)}&v=1`,
      `model=gpt2&title=${encodeURIComponent('\u202e\u0000<script>')}&v=1`, `z=1.${bomb}`, `z=1.${nested}`, 'z=1.', `z=1.${'A'.repeat(60000)}`,
      '__proto__=1&v=1', 'model=__proto__&v=1', 'model=gpt2&b.__proto__=1&b.constructor=2&v=1', 'model=gpt2&batch=1e999&seq=-0&v=1', `model=gpt2&freeze=${'x,'.repeat(9000)}&v=1`];
    for (const hash of some(all, 8)) {
      await page.evaluate((/** @type {string} */ to) => { location.hash = `#${to}`; }, hash);
      await alive(page, hash.slice(0, 80));
    }
    assert.equal(await page.evaluate(() => 'hidden_size' in {} || 'batch' in {}), false);
  }));

  test('a link that a chat program encoded once more is read', () => visit(async (page) => {
    assert.equal(await page.locator('#set-batch').inputValue(), '7');
  }, { at: `#${encodeURIComponent('model=gpt2&gpu=t4&batch=7&v=1')}` }));

  test.nightly('100 MB of JSON is named at once and never read whole', async () => {
    const own = mkdtempSync(join(tmpdir(), 'tidemark-large-'));
    const large = join(own, 'config.json');
    writeFileSync(large, `{"model_type":"llama","x":"${'y'.repeat(100 * 1000 * 1000)}"}`);
    await visit(async (page) => {
      await page.evaluate(() => {
        Object.assign(window, { read: 0 });
        const slice = Blob.prototype.slice;
        Blob.prototype.slice = function (from = 0, to = this.size, type) {
          const part = slice.call(this, from, to, type);
          /** @type {any} */ (window).read += part.size;
          return part;
        };
        for (const name of /** @type {const} */ (['text', 'arrayBuffer', 'stream'])) {
          const read = /** @type {any} */ (Blob.prototype[name]);
          Blob.prototype[name] = function () {
            /** @type {any} */ (window).read += this.size;
            return read.call(this);
          };
        }
      });
      await choose(page, large);
      await page.locator('.diagnostic', { hasText: 'larger than 32 MB' }).waitFor();
      const read = await page.evaluate(() => /** @type {any} */ (window).read);
      assert.ok(read < 1 << 20, `${read} bytes were read`);
      await alive(page, '100 MB');
    });
    rmSync(own, { recursive: true });
  });

  test.nightly('an index file of 20 MB is read', () => visit(async (page) => {
    const map = Array.from({ length: 180000 }, (_, i) => `"model.layers.${i}.self_attn.q_proj.weight": "model-00001-of-00191.safetensors"`).join(',\n');
    await choose(page, { name: 'model.safetensors.index.json', mimeType: '', buffer: Buffer.from(`{"metadata":{"total_size":1},"weight_map":{${map}}}`) });
    await page.locator('.file, .diagnostic').first().waitFor();
    await alive(page, 'an index file of 20 MB');
  }, { at: `#model=gpt2&gpu=t4&v=1` }));
}
