// SPDX-License-Identifier: Apache-2.0
/* Links, in Chromium: the address holds the job, and a view of it; what is damaged lands on a page that works. */
import assert from 'node:assert/strict';
import { changed, copied, deviceBytes, ready, some, still, test } from './harness.mjs';
import { pack, packSeveral } from '../../web/src/links.js';

/** @param {import('./site.mjs').Site} site */
export default function ({ visit, field, fragmentOf, fromCore, exampleWords, drop, isAtEvent, LLAMA, server, toWhatIf, core }) {
  test('copy the link, open it elsewhere: the same job, the same number', () => visit(async (page) => {
    await changed(page, () => field(page, 'batch').fill('48'));
    await field(page, 'attention').selectOption('eager');
    await page.waitForFunction(() => location.hash.includes('attention=eager'));
    await page.getByRole('button', { name: 'Share' }).click();
    await page.getByRole('button', { name: 'Copy link' }).click();
    await page.getByText('Copied').first().waitFor();
    const link = await page.evaluate(() => navigator.clipboard.readText());
    const number = await deviceBytes(page);
    assert.ok(link.startsWith(`${server.url}#model=llava-1.5-7b`) && link.endsWith('&v=1'), link);
    assert.equal(link.split('#')[1].replace(`&was=${(number / 2 ** 30).toFixed(1)}_0.1.0`, ''), await fragmentOf(page));
    await visit(async (other) => {
      assert.equal(await deviceBytes(other), number);
      assert.equal(await field(other, 'batch').inputValue(), '48');
      assert.equal(await field(other, 'attention').inputValue(), 'eager');
      await other.waitForFunction(() => !location.hash.includes('was='));
      assert.equal(await fragmentOf(other), await fragmentOf(page));
      const said = other.getByText('As it was when the link was made');
      assert.equal(await said.count(), 1, 'the number of the link is confirmed');
      await changed(other, () => field(other, 'batch').fill('4'));
      assert.equal(await said.count(), 0);
    }, { at: link });
  }));

  test('a link of every kind of job says its number before the core is there, and confirms it', async () => {
    const { call } = await core();
    const config = [{ name: 'config.json', text: LLAMA }];
    const of = (/** @type {string[]} */ settings, /** @type {any[]} */ files = []) => call({ call: 'link', settings, files, was: true }).link;
    const jobs = /** @type {[RegExp, () => Promise<string | null>][]} */ ([
      [/^llama-3\.2-1b on rtx-4090: [\d.]+ GiB when the link was made\. Working it out…$/, () => pack(of(['model=llama-3.2-1b', 'gpu=rtx-4090']))],
      [/^llama-3\.1-8b on l40s: [\d.]+ GiB when/, () => pack(of(['model=llama-3.1-8b', 'gpu=l40s', 'mode=serve']))],
      [/^llama-3\.1-8b on h100-80: [\d.]+ GiB per GPU when/, () => pack(of(['model=llama-3.1-8b', 'gpu=h100-80', 'parallel.kind=pp', 'parallel.pp=4', 'batch=8']))],
      [/^config\.json on t4: [\d.]+ GiB when/, () => pack(of(['gpu=t4'], config))],
      [/^the small one: [\d.]+ GiB when/, () => packSeveral([['the small one', of(['model=gpt2', 'gpu=t4'])], ['other', of(['model=gpt2', 'gpu=l4'])]])],
    ]);
    for (const [says, write] of jobs) {
      const link = await write();
      await visit(async (_, { context }) => {
        const page = await context.newPage();
        let letGo = () => {};
        const held = new Promise((done) => { letGo = () => done(null); });
        await page.route(/\.wasm$/, async (/** @type {any} */ route) => { await held; await route.continue(); });
        await page.goto(`${server.url}#${link}`);
        const said = () => page.evaluate(() => getComputedStyle(/** @type {Element} */ (document.querySelector('.result')), '::before').content.replaceAll('"', ''));
        await page.waitForFunction(() => getComputedStyle(/** @type {Element} */ (document.querySelector('.result')), '::before').content.includes('GiB'));
        const text = await said();
        assert.match(text, says);
        assert.equal(await page.locator('.answer').isVisible(), false, 'and not the number of the example');
        letGo();
        await ready(page);
        await page.getByText('As it was when the link was made').waitFor();
        assert.equal(await page.locator('.big').innerText(), /[\d.]+ GiB/.exec(text)?.[0]);
        await page.close();
      });
    }
  });

  test('the command has the link’s words', () => visit(async (page) => {
    await page.getByRole('button', { name: 'Share' }).click();
    await page.getByRole('button', { name: 'Copy command' }).click();
    const text = await page.evaluate(() => navigator.clipboard.readText());
    assert.equal(text, `tidemark estimate ${(await fragmentOf(page)).split('&').slice(0, -1).join(' ')}`);
  }));

  test('a link pasted into the same tab loads; reload keeps it', () => visit(async (page) => {
    await changed(page, () => page.evaluate(() => { location.hash = '#model=llava-1.5-7b&batch=2&v=1'; }));
    assert.equal(await field(page, 'batch').inputValue(), '2');
    const number = await deviceBytes(page);
    await page.reload();
    await ready(page);
    assert.equal(await deviceBytes(page), number);
  }));

  test('damaged links land on a usable page', async () => {
    for (const [hash, says] of some(/** @type {[string, RegExp][]} */ ([
      ['#model=llava-1.5-7b&batch=4', /truncated/], ['#model=llava-1.5-7b&colour=red&v=1', /unknown to this version.*colour/],
      ['#model=llava-1.5-7b&batch=x&v=1', /batch is ignored in the link.*"x"/],
      ['#z=1.eNpLzs-2dUpNSy', /damaged or was cut/], ['#z=7.abc', /compressed in a way/], ['#model=llava-1.5-7b&was=9.9_0.0.1&v=1', /said 9\.9 GiB when it was made with 0\.0\.1/], ['#model=llava-1.5-7b&v=7', /newer version/],
      ['#model=nosuch&v=1', /ERR_/], ['#%E0%A4%A&v=1', /unknown to this version/], [`#model=llava-1.5-7b&batch=4&x=${'y'.repeat(70000)}`, /longer than 64/],
      ['#model=llava-1.5-7b&__proto__=1&constructor=2&v=1', /unknown to this version/],
    ]), 5)) {
      await visit(async (page) => {
        await page.locator('.diagnostic').first().waitFor();
        assert.match(await page.locator('main').innerText(), says, hash);
        await page.locator('#model').focus();
        await page.keyboard.type('llama-2-7b');
        await page.keyboard.press('Enter');
        await page.locator('.job-name', { hasText: /llama.?2.?7b/i }).waitFor();
      }, { at: hash });
    }
  });

  test('a link that is refused keeps its settings and says what to change', () => visit(async (page) => {
    await page.locator('.diagnostic.is-error').waitFor();
    assert.match(await page.locator('main').innerText(), /do not divide into 16 stages[^]*parallel\.account_embedding=true[^]*No answer for these settings/);
    assert.equal(await page.locator('[id="set-parallel.pp"]').inputValue(), '16');
    await page.getByRole('button', { name: 'parallel.pp=14' }).click();
    await page.locator('.job-name', { hasText: 'Llama 3.1 405B' }).waitFor();
  }, { at: '#model=llama-3.1-405b&gpu=h100&parallel.kind=megatron&parallel.tp=8&parallel.pp=16&parallel.dp=8&v=1' }));

  test('a model of one’s own is in the link', () => visit(async (page) => {
    await drop(page, [{ name: 'config.json', text: LLAMA }]);
    await page.waitForFunction(() => location.hash.startsWith('#z=1.'));
    const number = await deviceBytes(page);
    await visit(async (other) => {
      assert.equal(await deviceBytes(other), number);
      await other.getByRole('button', { name: 'Remove config.json' }).waitFor();
    }, { at: page.url() });
  }));

  test('aliases are read and written as the setting’s own name', () => visit(async (page) => {
    assert.equal(await field(page, 'batch').inputValue(), '8');
    await page.waitForFunction(() => /[&#]batch=8/.test(location.hash) && !location.hash.includes('mbs'));
  }, { at: `#model=llava-1.5-7b&mbs=8&v=1` }));

  test('markup in a link is shown as text', () => visit(async (page) => {
    await page.locator('.diagnostic').first().waitFor();
    assert.equal(await page.locator('main img, main script').count(), 0);
  }, { at: `#model=${encodeURIComponent('<img src=x onerror=alert(1)>')}&v=1` }));

  test('a link’s title is shown as text', () => visit(async (page) => {
    assert.match(await page.locator('.job-name').innerText(), /^<b>My run<\/b> · /);
    assert.match(await page.title(), /^<b>My run<\/b> · /);
    assert.equal(await page.locator('.job-name b').count(), 0);
  }, { at: `#model=llava-1.5-7b&title=${encodeURIComponent('<b>My run</b>')}&v=1` }));

  test('typing never writes more history than WebKit allows', () => visit(async (page) => {
    await page.evaluate(() => {
      Object.assign(window, { writes: 0 });
      const write = history.replaceState.bind(history);
      history.replaceState = (...args) => { /** @type {any} */ (window).writes++; write(...args); };
    });
    const from = Date.now();
    for (let i = 0; i < 60; i++) await field(page, 'seq').fill(String(600 + i));
    await page.waitForFunction(() => location.hash.includes('seq=659'));
    const seconds = (Date.now() - from) / 1000;
    const writes = await page.evaluate(() => /** @type {any} */ (window).writes);
    assert.ok(writes <= 1 + seconds * 3.34, `${writes} writes in ${seconds} s`);
  }));

  test('a link that comes while the address is being written is not overwritten', () => visit(async (page) => {
    for (let i = 0; i < 16; i++) {
      await page.evaluate(async ([value, wait, to]) => {
        const input = /** @type {HTMLInputElement} */ (document.getElementById('set-batch'));
        input.value = value;
        input.dispatchEvent(new InputEvent('input', { bubbles: true }));
        await new Promise((done) => setTimeout(done, Number(wait)));
        location.hash = `#model=gpt2&gpu=t4&batch=${to}&v=1`;
        for (const until = performance.now() + 60; performance.now() < until;); /* a busy page: timers and events come together */
      }, [String(2 + i), String(i * 28), String(30 + i)]);
      await page.waitForFunction((/** @type {string} */ value) => /** @type {any} */ (document.getElementById('set-batch')).value === value, String(30 + i));
    }
  }, { at: `#model=gpt2&gpu=t4&v=1` }));

  test('models by name one after the other, Back and Forward through them, a reload in the middle of it', () => visit(async (page) => {
    const names = ['gpt2', 'smollm2-135m', 'qwen3-0.6b'];
    const is = (/** @type {string} */ name) => page.waitForFunction((/** @type {string} */ word) => location.hash.includes(`${word}&`)
      && !document.querySelector('.is-slow') && /** @type {any} */ (document.getElementById('model')).value !== '', `model=${name}`);
    await page.locator('#model').focus();
    for (const name of names) {
      await page.keyboard.type(name);
      await page.keyboard.press('Enter');
      await is(name);
    }
    for (const name of names.slice(0, -1).toReversed()) {
      await page.goBack();
      await is(name);
    }
    await page.reload();
    await ready(page);
    await is(names[0]);
    for (const name of names.slice(1)) {
      await page.goForward();
      await is(name);
    }
  }));

  /* ---- links to a view ---- */

  test('links to a view: a heat map’s axes, a zoomed part, an event and an open drawer come back', () => visit(async (page) => {
    const share = async () => {
      const from = await page.evaluate(() => scrollY);
      const press = (/** @type {string} */ name) => page.getByRole('button', { name }).evaluate((/** @type {HTMLElement} */ one) => one.click()); /* Playwright would scroll */
      await press('Share');
      await page.locator('.menu-list').waitFor();
      assert.equal(await page.evaluate(() => scrollY), from, 'a menu does not move the page');
      await page.evaluate(() => navigator.clipboard.writeText(''));
      await press('Copy a link to this view');
      await copied(page, '&v=1');
      return page.evaluate(() => navigator.clipboard.readText());
    };
    await page.locator('.icicle .part').nth(2).click();
    await page.locator('.plot').first().click({ position: { x: 120, y: 60 } });
    await page.locator('.factor-table tbody tr').nth(2).locator('.total .opens').click();
    await page.locator('.drawer .formula').first().waitFor();
    const link = await share();
    assert.match(link, /&view=details&sel=factor:\w+,event:\d+,zoom:\w+&was=[^&]+&v=1$/);
    const plain = link.replace(/&(view|sel)=[^&]*/g, '');
    await page.locator('.drawer').getByRole('button', { name: /close/i }).first().click();

    await visit(async (other) => {
      await other.locator('.drawer .formula').first().waitFor();
      assert.equal(await other.locator('.drawer h2').innerText(), await page.locator('.factor-table tbody tr').nth(2).locator('th').first().innerText());
      await other.getByRole('button', { name: 'Everything' }).waitFor();
      const event = /event:(\d+)/.exec(link)?.[1];
      await other.waitForFunction((/** @type {string} */ wanted) => /** @type {HTMLElement | null} */ (document.querySelector('.timeline-readout'))?.innerText.replaceAll(',', '').startsWith(`Event ${wanted}`), event);
      await other.waitForFunction((/** @type {string} */ wanted) => location.hash === wanted, plain.slice(plain.indexOf('#')).replace(/&was=[^&]*/, ''));
    }, { at: link.slice(link.indexOf('#')) });

    await toWhatIf(page);
    await page.getByRole('tab', { name: 'Heat map' }).click();
    const values = page.locator('.axis-field input');
    await values.nth(0).fill('1,2');
    await values.nth(0).press('Enter');
    await values.nth(1).fill('512-1024:256');
    await values.nth(1).press('Enter');
    await page.locator('#whatif').evaluate((/** @type {Element} */ one) => one.scrollIntoView());
    const map = await share();
    assert.match(map, /&view=map&sel=[^&]*&sweep=batch:1,2\/seq:512-1024:256&/);
    await visit(async (other) => {
      await other.locator('.heat-state', { hasText: '6 cells simulated' }).waitFor();
      assert.ok(await other.locator('#whatif').evaluate((/** @type {Element} */ one) => one.getBoundingClientRect().top < innerHeight / 2));
    }, { at: map.slice(map.indexOf('#')) });
  }));

  test('links to a view: the events of a job are opened at the one that was looked at', () => visit(async (page) => {
    await isAtEvent(page, '1,304');
    assert.ok(await page.locator('#timeline').evaluate((/** @type {Element} */ one) => Math.abs(one.getBoundingClientRect().top) < 300));
  }, { at: '#model=gpt2&view=events&sel=event:1304&v=1' }));

  test('links to a view: a bad one blocks nothing and says nothing', async () => {
    for (const bad of some(['view=nothing&sel=%25%25&sweep=%2F%2F', 'view=map&sweep=colour:red', `view=timeline&sel=event:${'9'.repeat(300)}`, 'view=details&sel=part:__proto__,layer:x',
      'view=%3Cscript%3E&sel=factor:%3Cb%3E', 'sel=from:9999999999,to:1'], 3)) {
      await visit(async (page) => {
        await page.locator('.job-name', { hasText: 'GPT-2' }).waitFor();
        await still(page);
        assert.equal(await page.locator('.diagnostic').count(), 0, bad);
      }, { at: `#model=gpt2&batch=2&gpu=h100-80&${bad}&v=1` });
    }
  });
}
