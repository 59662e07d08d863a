/* Hostile files and links, a core that is none, a host that forbids it: named errors, and a page that stays alive. */
import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { deflateSync } from 'node:zlib';
import { openContext, ready, still, test } from './harness.mjs';
import { serve } from '../../web/serve.mjs';

const corpora = new URL('../fuzz/corpus/', import.meta.url);

/** @param {{folder: string, browser: any, server: {url: string}, visit: any}} site */
export function hostileTests({ folder, browser, server, visit }) {
  let turn = 0;
  /** Whether the page still takes a link and answers what is typed. @param {any} page @param {string} after */
  async function alive(page, after) {
    const dead = () => assert.fail(`the page is dead after ${after}`);
    const close = page.getByRole('button', { name: 'Close the recording' });
    await still(page);
    if (await close.count()) await close.click();
    const batch = String(2 + (turn++ % 60));
    const takes = async () => {
      await page.evaluate((/** @type {string} */ value) => { location.hash = `#model=gpt2&gpu=t4&batch=${value}&seq=128&v=1`; }, batch);
      return page.waitForFunction((/** @type {string} */ value) => /** @type {any} */ (document.getElementById('set-batch'))?.value === value
        && /** @type {any} */ (document.getElementById('set-seq')).value === '128', batch, { timeout: 15000 });
    };
    await takes().catch(() => takes()).catch(dead); /* a file that is still being read may come after the first link */
    await page.locator('#set-seq').fill('64');
    await page.waitForFunction(() => location.hash.includes('seq=64')).catch(dead);
    assert.equal(await page.locator('.diagnostic.is-error').count(), 0, after);
  }
  const choose = (/** @type {any} */ page, /** @type {any} */ files) => page.setInputFiles('#chooser', files);

  test('hostile: every file of the fuzz corpora, under a name that promises something else', () => visit(async (page) => {
    let dropped = 0;
    for (const corpus of readdirSync(corpora)) {
      for (const name of readdirSync(new URL(`${corpus}/`, corpora))) {
        const buffer = readFileSync(new URL(`${corpus}/${name}`, corpora));
        await choose(page, { name: ['config.json', 'ds_config.json', 'accelerate.yaml', 'snapshot.pickle', 'model.safetensors'][dropped++ % 5], mimeType: '', buffer });
        await page.locator('.file, .diagnostic, .recording-close').first().waitFor({ timeout: 30000 }).catch(() => assert.fail(`nothing is said of ${corpus}/${name}`));
        await alive(page, `${corpus}/${name}`);
        assert.equal(await page.locator('.diagnostic', { hasText: 'stopped unexpectedly' }).count(), 0, `${corpus}/${name} made the core trap`);
      }
    }
    assert.ok(dropped > 40);
    assert.equal(await page.evaluate(() => /** @type {any} */ ({}).hidden_size ?? /** @type {any} */ ({}).batch), undefined);
  }, { at: `${server.url}#model=gpt2&gpu=t4&v=1` }));

  test('hostile: words of the fuzz corpora, 64 KB of them, and bombs, as links', () => visit(async (page) => {
    const words = readdirSync(new URL('fuzz_job/', corpora)).filter((name) => name.startsWith('words') || name.startsWith('request'))
      .map((name) => readFileSync(new URL(`fuzz_job/${name}`, corpora), 'latin1').replaceAll(/[\s\0]+/g, '&'));
    const bomb = deflateSync(Buffer.alloc(40 << 20)).toString('base64url');
    const nested = deflateSync(Buffer.from(`config=${encodeURIComponent('{"text_config":'.repeat(4000))}&v=1`)).toString('base64url');
    for (const hash of [...words, ...words.map(encodeURIComponent), `${words[0]}${'&batch=1'.repeat(8000)}`.slice(0, 65535), `model=gpt2&${'a'.repeat(65000)}=1&v=1`, `title=${'%25'.repeat(20000)}&v=1`,
      `model=gpt2&title=${encodeURIComponent('\u202e\u0000<script>')}&v=1`, `z=1.${bomb}`, `z=1.${nested}`, 'z=1.', `z=1.${'A'.repeat(60000)}`,
      '__proto__=1&v=1', 'model=__proto__&v=1', 'model=gpt2&b.__proto__=1&b.constructor=2&v=1', 'model=gpt2&batch=1e999&seq=-0&v=1', `model=gpt2&freeze=${'x,'.repeat(9000)}&v=1`]) {
      const at = await page.evaluate((/** @type {string} */ to) => { location.hash = `#${to}`; return location.hash; }, hash);
      await page.waitForFunction((/** @type {string} */ was) => location.hash !== was || document.querySelector('.diagnostic'), at, { timeout: 3000 }).catch(() => {}); /* or it was no link */
      await alive(page, hash.slice(0, 80));
    }
    assert.equal(await page.evaluate(() => 'hidden_size' in {} || 'batch' in {}), false);
  }));

  test('hostile: a link that a chat program encoded once more is read', () => visit(async (page) => {
    assert.equal(await page.locator('#set-batch').inputValue(), '7');
  }, { at: `${server.url}#${encodeURIComponent('model=gpt2&gpu=t4&batch=7&v=1')}` }));

  test('hostile: 100 MB of JSON is named at once and never read whole', async () => {
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

  test('hostile: an index file of 20 MB is read', () => visit(async (page) => {
    const map = Array.from({ length: 180000 }, (_, i) => `"model.layers.${i}.self_attn.q_proj.weight": "model-00001-of-00191.safetensors"`).join(',\n');
    await choose(page, { name: 'model.safetensors.index.json', mimeType: '', buffer: Buffer.from(`{"metadata":{"total_size":1},"weight_map":{${map}}}`) });
    await page.locator('.file, .diagnostic').first().waitFor();
    await alive(page, 'an index file of 20 MB');
  }, { at: `${server.url}#model=gpt2&gpu=t4&v=1` }));

  test('hostile: where the host forbids WebAssembly, the page says so and how to allow it', async () => {
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

  test('hostile: a core of another version is refused, with the way out', async () => {
    const { context, page } = await openContext(browser);
    await page.route('**/tidemark-*.wasm', (/** @type {any} */ route) => route.fulfill({ contentType: 'application/wasm', body: Buffer.from([0, 97, 115, 109, 1, 0, 0, 0]) }));
    await page.goto(server.url);
    await page.locator('.diagnostic.is-error').waitFor();
    assert.match(await page.locator('.diagnostic.is-error').innerText(), /different versions[^]*Reload the page/);
    await context.close();
  });

  test('hostile: with storage and service workers off the page works', async () => {
    const { context, page, problems } = await openContext(browser);
    await page.addInitScript(() => {
      Object.defineProperty(window, 'localStorage', { get() { throw new DOMException('denied', 'SecurityError'); } });
      Object.defineProperty(navigator, 'serviceWorker', { get() { return { register: () => Promise.reject(new Error('denied')), addEventListener() {} }; } });
    });
    await page.goto(server.url);
    await ready(page);
    await page.locator('#set-batch').fill('3');
    await page.waitForFunction(() => location.hash.includes('batch=3'));
    await page.locator('.top input[value="dark"]').check();
    assert.deepEqual(problems, []);
    await context.close();
  });
}
