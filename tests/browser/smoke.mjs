// SPDX-License-Identifier: Apache-2.0
/* What has to hold in every engine, in those besides Chromium; where one cannot be had its tests are skipped, and that is said. */
import assert from 'node:assert/strict';
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { deflateSync } from 'node:zlib';
import { randomLinks } from './core.mjs';
import { firefox } from './firefox.mjs';
import { isNightly, skipped, test } from './harness.mjs';
import { recorded } from './site.mjs';
import { webkit } from './webkit.mjs';
import { EXAMPLE } from '../../web/src/example.js';
import { pack } from '../../web/src/links.js';
import { serve } from '../../web/serve.mjs';

/** A page of an engine. run: a function in the page, its arguments and answer as JSON; type: text, by keys; press: as `Control+k`;
 * requests: null where the engine does not tell.
 * @typedef {{problems: string[], requests: string[] | null, go: (url: string) => Promise<any>, back: () => Promise<any>,
 *   run: (act: Function, ...args: any[]) => Promise<any>, type: (text: string) => Promise<any>, press: (key: string) => Promise<any>,
 *   choose: (path: string) => Promise<any>, close: () => Promise<any>}} Page
 * @typedef {{name: string, open: () => Promise<Page>, close: () => any}} Engine */

const WAIT_MS = 120000;
const TYPING_MS = 32000; /* WebKit refuses more than 100 writes of the address in 30 s */

/** Waits until a function in the page says something true. @param {Page} page @param {Function} act @param {any[]} args @returns {Promise<any>} */
async function until(page, act, ...args) {
  for (const end = Date.now() + WAIT_MS;;) {
    const is = await page.run(act, ...args);
    if (is) return is;
    if (Date.now() > end) throw new Error(`waited in vain for ${act} ${JSON.stringify(args)}; the page says ${await page.run(() => `${location.hash} ${document.body.innerText.slice(0, 1500)}`)}`);
    await new Promise((done) => setTimeout(done, 40));
  }
}
const seen = (/** @type {Page} */ page, /** @type {string} */ selector, /** @type {string} */ text = '') => until(page, (/** @type {string} */ s, /** @type {string} */ t) =>
  [...document.querySelectorAll(s)].some((one) => /** @type {HTMLElement} */ (one).innerText?.includes(t) && one.getClientRects().length > 0), selector, text);
const gone = (/** @type {Page} */ page, /** @type {string} */ selector) => until(page, (/** @type {string} */ s) => document.querySelector(s) === null, selector);
const focus = (/** @type {Page} */ page, /** @type {string} */ selector) => page.run((/** @type {string} */ s) => /** @type {HTMLElement} */ (document.querySelector(s)).focus(), selector);
const focusIs = (/** @type {Page} */ page, /** @type {string} */ selector) => until(page, (/** @type {string} */ s) => document.activeElement?.matches(s), selector);
const device = (/** @type {Page} */ page) => page.run(() => Number(document.querySelector('.big .bytes')?.getAttribute('data-tip')?.replaceAll(/[^0-9]/g, '')));
const addressHas = (/** @type {Page} */ page, /** @type {string} */ text) => until(page, (/** @type {string} */ t) => location.hash.includes(t), text);

/** @param {import('./site.mjs').Site} site @returns {Promise<() => Promise<void>>} closes what was opened */
export default async function ({ folder, server, core: opened }) {
  /** @type {(() => any)[]} */
  const ends = [];
  const core = await opened();
  for (const engine of isNightly ? [firefox(), webkit()] : []) {
    if (typeof engine === 'string') skipped.push(`skipped: ${engine}`);
    else {
      ends.push(engine.close);
      testsOf(engine);
    }
  }

  /** @param {Engine} engine */
  function testsOf(engine) {
    /** @param {string} at @param {(page: Page) => any} use @param {{isLive?: boolean, expected?: RegExp}} [options] isLive: wait for the live page; expected: such problems are */
    async function visit(at, use, { isLive = true, expected } = {}) {
      const page = await engine.open();
      try {
        await page.go(at);
        if (isLive) await until(page, () => document.querySelector('[data-core="ready"]') !== null);
        await page.run(() => {
          Object.assign(window, { problems: [] });
          addEventListener('error', (event) => /** @type {any} */ (window).problems.push(event.message));
          addEventListener('unhandledrejection', (event) => /** @type {any} */ (window).problems.push(String(event.reason)));
        });
        await use(page);
        assert.deepEqual([...page.problems, ...await page.run(() => /** @type {any} */ (window).problems ?? [])].filter((text) => !expected?.test(text)), []);
        assert.deepEqual((page.requests ?? []).filter((url) => /^https?:/.test(url) && new URL(url).origin !== new URL(at).origin), []);
      } finally {
        await page.close();
      }
    }
    const smoke = (/** @type {string} */ name, /** @type {() => any} */ run) => test(`${engine.name}: ${name}`, run);
    const estimate = (/** @type {string} */ link) => core.call({ call: 'estimate', link }).verdict.device_bytes;
    const to = (/** @type {Page} */ page, /** @type {string} */ hash) => page.run((/** @type {string} */ h) => { location.hash = `#${h}`; }, hash);

    smoke('the example, a changed batch, and the link of it', () => visit(server.url, async (page) => {
      assert.equal(await device(page), estimate(`${EXAMPLE.map(([name, value]) => `${name}=${value}`).join('&')}&v=1`));
      await focus(page, '#set-batch');
      await page.press('ArrowUp');
      await until(page, () => location.hash.length > 1 && !location.hash.includes('batch=16&'));
      assert.equal(await device(page), estimate(await page.run(() => location.hash.slice(1))));
    }));

    smoke('the core loads where the host names wasm wrongly; where it forbids it or lacks it that is said, and the example stays', async () => {
      const wrongly = await serve(folder, { types: { '.wasm': 'text/plain' } });
      const forbidden = await serve(folder, { policy: (text) => text.replace(" 'wasm-unsafe-eval'", '') });
      const own = mkdtempSync(join(tmpdir(), 'tidemark-lacking-'));
      cpSync(folder, own, { recursive: true });
      for (const name of readdirSync(join(own, 'assets'))) if (/^tidemark-.*wasm$/.test(name)) rmSync(join(own, 'assets', name));
      const lacking = await serve(own);
      try {
        await visit(wrongly.url, async (page) => assert.equal(await device(page), estimate(await page.run(() => location.hash.slice(1)) || `${EXAMPLE.map((word) => word.join('=')).join('&')}&v=1`)));
        if (engine.name !== 'webkit') { /* which compiles without being allowed to */
          await visit(forbidden.url, (page) => seen(page, '.diagnostic.is-error', "'wasm-unsafe-eval' in its Content-Security-Policy"), { isLive: false, expected: /blocked WebAssembly/ });
        }
        await visit(lacking.url, async (page) => {
          await seen(page, '.diagnostic.is-error', 'could not start');
          assert.ok(await page.run(() => document.querySelector('.factor-table') !== null));
        }, { isLive: false });
      } finally {
        for (const one of [wrongly, forbidden, lacking]) one.close();
        rmSync(own, { recursive: true });
      }
    });

    smoke('2,000 random links, packed and unpacked by the page’s own module; some through the address', async () => {
      const links = randomLinks(core, 2000);
      const packed = await Promise.all(links.map((link) => pack(link)));
      const sources = await serve(new URL('../../web/src', import.meta.url).pathname, { headers: false });
      try {
        await visit(`${sources.url}links.js`, async (page) => {
          for (let i = 0; i < links.length; i += 250) {
            assert.deepEqual(await page.run(async (/** @type {string[]} */ plain, /** @type {string[]} */ small) => {
              const { pack: ours, unpack } = await import(location.href);
              const wrong = [];
              for (const [n, link] of plain.entries()) if (await unpack(await ours(link)) !== link || await unpack(small[n]) !== link) wrong.push(link);
              return wrong;
            }, links.slice(i, i + 250), packed.slice(i, i + 250)), []);
          }
        }, { isLive: false });
      } finally {
        sources.close();
      }
      const some = links.filter((_, i) => i % 100 === 0);
      assert.ok(some.some((link) => link.includes('%7B')));
      await visit(`${server.url}#model=gpt2&v=1`, async (page) => {
        for (const link of some) {
          const expected = /** @type {string} */ (await pack(link));
          await to(page, `${link.replace(/&v=1$/, '')}&title=x&v=1`);
          await until(page, () => document.querySelector('.job-name')?.textContent?.startsWith('x'));
          await to(page, expected);
          await until(page, () => !document.querySelector('.job-name')?.textContent?.startsWith('x'));
          await until(page, () => !document.querySelector('.is-slow'));
        }
      });
    });

    if (engine.name !== 'webkit') smoke('links, of every kind and broken in every way, land on a page that works', async () => {
      const lines = readFileSync(new URL('../links/v1.jsonl', import.meta.url), 'utf8').trim().split('\n').map((line) => JSON.parse(line));
      await visit(`${server.url}#model=smollm2-135m&gpu=t4&batch=1&v=1`, async (page) => {
        for (const { link, device: expected } of lines.filter(({ link: l }) => l.includes('=') || l.includes('%3D'))) {
          await to(page, link.slice(link.indexOf('#') + 1));
          await until(page, (/** @type {number} */ bytes) => Number(document.querySelector('.big .bytes')?.getAttribute('data-tip')?.replaceAll(/[^0-9]/g, '')) === bytes, expected);
        }
        const bomb = deflateSync(Buffer.alloc(40 << 20)).toString('base64url');
        let batch = 2;
        for (const [hash, says] of /** @type {[string, string][]} */ ([['model=gpt2&batch=3&bat', 'truncated'], ['z=1.eNpLzs-2dUpNSy', 'damaged or was cut'], ['z=7.abc', 'compressed in a way'],
          [`z=1.${bomb}`, 'more than 256 KiB'], [`model=gpt2&x=${'y'.repeat(70000)}`, 'longer than 64'], ['model=gpt2&colour=red&v=1', 'colour'],
          ['model=gpt2&batch=x&v=1', 'batch is ignored in the link'], ['model=gpt2&v=7', 'newer version'], ['%E0%A4%A=1&v=1', 'unknown to this version'], ['__proto__=1&constructor=2&model=gpt2&v=1', 'unknown to this version']])) {
          await to(page, hash);
          await seen(page, '.diagnostic', says);
          await to(page, `model=gpt2&gpu=t4&batch=${++batch}&v=1`);
          await until(page, (/** @type {string} */ value) => /** @type {any} */ (document.querySelector('#set-batch'))?.value === value && !document.querySelector('.diagnostic'), String(batch));
        }
        await to(page, encodeURIComponent('model=gpt2&gpu=t4&batch=64&v=1'));
        await until(page, () => /** @type {any} */ (document.querySelector('#set-batch'))?.value === '64');
        await to(page, `model=gpt2&title=${encodeURIComponent('<img src=x onerror=alert(1)>')}&v=1`);
        await seen(page, '.job-name', '<img src=x onerror=alert(1)> · GPT-2');
        assert.equal(await page.run(() => document.querySelectorAll('main img').length), 0);
      });
    });

    smoke('half a minute of typing is no error; Back returns to the model before; a link that is pasted loads', () => visit(`${server.url}#model=gpt2&gpu=t4&seq=64&v=1`, async (page) => {
      await page.run(() => {
        Object.assign(window, { writes: 0 });
        const write = history.replaceState.bind(history);
        history.replaceState = (...args) => { write(...args); /** @type {any} */ (window).writes++; };
      });
      await page.run((/** @type {number} */ ms) => new Promise((done) => {
        const input = /** @type {HTMLInputElement} */ (document.querySelector('#set-batch'));
        const end = performance.now() + ms;
        const type = () => {
          if (performance.now() > end) return done(null);
          input.value = String(2 + Math.floor(performance.now() / 50) % 60); /* a link does not name the default, 1 */
          input.dispatchEvent(new InputEvent('input', { bubbles: true }));
          setTimeout(type, 50);
        };
        type();
      }), TYPING_MS);
      const writes = await page.run(() => /** @type {any} */ (window).writes);
      assert.ok(writes >= 5 && writes <= TYPING_MS / 300, `${writes} writes`);
      await addressHas(page, `batch=${await page.run(() => /** @type {any} */ (document.querySelector('#set-batch')).value)}&`);
      const before = await page.run(() => location.hash);
      await focus(page, '#model');
      await page.type('smollm2-135m');
      await page.press('Enter');
      await addressHas(page, 'model=smollm2-135m');
      await page.back();
      await until(page, (/** @type {string} */ hash) => location.hash === hash && document.querySelector('.job-name')?.textContent?.includes('GPT-2'), before);
      await to(page, 'model=gpt2&gpu=t4&batch=61&v=1');
      await until(page, () => /** @type {any} */ (document.querySelector('#set-batch')).value === '61');
    }));

    smoke('the shipped worker has no way to a network, whatever the host sends; eval in the page is refused', async () => {
      const own = mkdtempSync(join(tmpdir(), 'tidemark-worker-'));
      const [worker] = readdirSync(join(folder, 'assets')).filter((name) => name.startsWith('worker-'));
      const names = ['fetch', 'XMLHttpRequest', 'WebSocket', 'WebTransport', 'EventSource', 'importScripts', 'indexedDB', 'caches', 'Worker', 'BroadcastChannel', 'RTCPeerConnection'];
      const probe = `;postMessage(${JSON.stringify(names)}.filter((name) => typeof globalThis[name] !== 'undefined'));\n`;
      writeFileSync(join(own, 'bare.js'), probe);
      writeFileSync(join(own, 'locked.js'), readFileSync(join(folder, 'assets', worker), 'utf8') + probe);
      writeFileSync(join(own, 'index.html'), '<!doctype html>');
      const bare = await serve(own, { headers: false });
      try {
        await visit(bare.url, async (page) => {
          const left = (/** @type {string} */ name) => page.run((/** @type {string} */ url) => new Promise((done, fail) => {
            const made = new Worker(url, { type: 'module' });
            made.onmessage = ({ data }) => done(data);
            made.onerror = () => fail(new Error('the worker did not start'));
          }), `${bare.url}${name}`);
          assert.ok((await left('bare.js')).includes('fetch'));
          assert.deepEqual(await left('locked.js'), []);
        }, { isLive: false });
      } finally {
        bare.close();
        rmSync(own, { recursive: true });
      }
      await visit(server.url, async (page) => {
        assert.deepEqual(await page.run(async (/** @type {boolean} */ own) => {
          const tried = [];
          for (const attempt of [() => setTimeout(/** @type {any} */ ('window.pwned = 1')), ...(own ? [() => new Function('1')] : []), () => new Worker('assets/other.js'), () => fetch('http://127.0.0.1:1/'), () => { document.body.innerHTML = '<p>x</p>'; }]) {
            try {
              await attempt();
              tried.push('allowed');
            } catch {
              tried.push('refused');
            }
          }
          await new Promise((done) => setTimeout(done, 50));
          return { tried, ran: 'pwned' in window };
        }, engine.name !== 'firefox'), /* whose driver may make functions of strings */
        { tried: Array(engine.name === 'firefox' ? 4 : 5).fill('refused'), ran: false });
      }, { expected: /Content-Security-Policy|Content Security Policy/ });
    });

    smoke('a whole session by keyboard; what has the focus is seen', () => visit(server.url, async (page) => {
      const isSeen = () => until(page, () => {
        const at = /** @type {Element} */ (document.activeElement);
        const box = at.getBoundingClientRect();
        const top = document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2);
        const around = at.closest('svg')?.querySelector('.outline'); /* of a part of a picture */
        return at.contains(top) && (getComputedStyle(at).outlineStyle !== 'none' || (around && parseFloat(getComputedStyle(around).strokeWidth) > 2));
      });
      await page.press('Tab');
      assert.match(await page.run(() => document.activeElement?.textContent), /Skip to the result/);
      await focus(page, 'main');
      await page.press('/');
      await focusIs(page, '#model');
      await page.type('gpt2');
      await page.press('Enter');
      await addressHas(page, 'model=gpt2');
      await page.press('Control+k');
      await focusIs(page, '.palette input');
      await page.type('micro batch');
      await page.press('Enter');
      await focusIs(page, '#set-batch');
      await isSeen();
      const before = await device(page);
      await page.press('ArrowUp');
      await until(page, (/** @type {number} */ old) => Number(document.querySelector('.big .bytes')?.getAttribute('data-tip')?.replaceAll(/[^0-9]/g, '')) !== old, before);
      await focus(page, 'main');
      await page.press('2');
      await focusIs(page, '.icicle [tabindex="0"]');
      await isSeen();
      await page.press('ArrowDown');
      await focusIs(page, '.icicle .layer');
      await page.press('Enter');
      await seen(page, '.drawer .formula');
      await page.press('Escape');
      await gone(page, '.drawer');
      await focusIs(page, '.icicle .layer');
      await page.press('3');
      await focusIs(page, '.plot');
      await isSeen();
      await page.press('Home');
      await until(page, () => document.querySelector('.plot')?.getAttribute('aria-valuenow') === '0');
      await page.press('ArrowRight');
      await until(page, () => document.querySelector('.plot')?.getAttribute('aria-valuenow') === '1');
      await page.press('4');
      await seen(page, '.whatif .button');
      await page.press('4');
      await focusIs(page, '[role="tab"]');
      await isSeen();
      for (let i = 0; i < 6 && !(await page.run(() => document.activeElement?.matches('.whatif tbody .button'))); i++) await page.press('Tab');
      await focusIs(page, '.whatif tbody .button');
      await isSeen();
      const hash = await page.run(() => location.hash);
      await page.press('Enter');
      await until(page, (/** @type {string} */ old) => location.hash !== old, hash);
      await focus(page, 'main');
      await page.press('s');
      await seen(page, '.said, dialog[open]');
    }));

    smoke('files are chosen, a recording is played', () => visit(server.url, async (page) => {
      await page.choose(new URL('../cli/files/tiny/config.json', import.meta.url).pathname);
      await seen(page, '.file', 'config.json');
      await addressHas(page, '#z=1.');
      await page.choose(recorded('snapshot-expand.pickle.gz'));
      await seen(page, '.recording-live');
      assert.equal(await device(page), 358612992);
    }));

    smoke('the single file opens from disk', () => visit(`${pathToFileURL(join(folder, 'tidemark.html')).href}#model=gpt2&gpu=t4&batch=4&v=1`, async (page) => {
      assert.equal(await device(page), estimate('model=gpt2&gpu=t4&batch=4&v=1'));
      await focus(page, '#set-batch');
      await page.press('ArrowUp');
      await addressHas(page, 'batch=8');
      assert.equal(await device(page), estimate('model=gpt2&gpu=t4&batch=8&v=1'));
    }));
  }

  return async () => { for (const end of ends) await end(); };
}
