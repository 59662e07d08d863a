/* Events one by one and the allocator after one, of recordings and of jobs; and links to a view. */
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { copied, openContext, ready, still, test, violations } from './harness.mjs';
import { serve } from '../../web/serve.mjs';

const recorded = (/** @type {string} */ name) => new URL(`../recordings/${name}`, import.meta.url).pathname;

/** @param {string} folder the built page @param {any} browser @returns {Promise<() => void>} closes what was opened */
export async function viewTests(folder, browser) {
  const server = await serve(folder);

  /** @param {(page: any) => any} use @param {Parameters<typeof openContext>[1] & {at?: string}} [options] */
  async function visit(use, { at = '', ...options } = {}) {
    const opened = await openContext(browser, options);
    try {
      await opened.page.goto(server.url + at);
      await ready(opened.page);
      await use(opened.page);
      assert.deepEqual(opened.problems, []);
    } finally {
      await opened.context.close();
    }
  }
  const field = (/** @type {any} */ page) => page.getByLabel('Number of the event');
  const isAt = (/** @type {any} */ page, /** @type {string} */ event) => page.waitForFunction((/** @type {string} */ wanted) =>
    document.querySelector('.event-title')?.textContent?.startsWith(`Event ${wanted} `) && document.getElementById('segments-title')?.textContent === `The allocator after event ${wanted}`
    && document.querySelector('.segments')?.getAttribute('aria-busy') === 'false', event, { timeout: 20000 });
  const bytesOf = async (/** @type {any} */ place) => Number((await place.getAttribute('data-tip')).replaceAll(/[^0-9]/g, ''));
  const open = async (/** @type {any} */ page, /** @type {string} */ file) => {
    await page.setInputFiles('#chooser', file);
    await page.locator('#segments-title').waitFor({ timeout: 60000 });
  };
  /** What the segments' rows add up to. @param {any} page */
  const reserved = (page) => page.locator('.segments .segment').evaluateAll((/** @type {Element[]} */ rows) => rows.reduce((sum, row) =>
    sum + Number(row.querySelector('.segment-size .bytes')?.getAttribute('data-tip')?.replaceAll(/[^0-9]/g, '')) * Number(row.querySelector('.segment-size b')?.textContent?.slice(1) ?? 1), 0));

  test('events: a recording is stepped through with buttons and keys, from a block to its end, and around a number', () => visit(async (page) => {
    await open(page, recorded('snapshot-plain.pickle.gz'));
    await isAt(page, '442'); /* the peak, as the curve has it */
    assert.equal(await bytesOf(page.locator('.segments-facts .bytes').first()), await bytesOf(page.locator('.verdict .facts .bytes').first()));
    await page.getByRole('button', { name: 'Next event' }).click();
    await isAt(page, '443');
    await page.getByRole('button', { name: 'Event before' }).click();
    await isAt(page, '442');
    await page.locator('.events-list table').focus();
    await page.keyboard.press('Enter'); /* where it is freed */
    await isAt(page, '443');
    for (const [key, at] of [['ArrowDown', '444'], ['ArrowUp', '443'], ['PageDown', '455'], ['Home', '0'], ['End', '953'], ['ArrowDown', '953'], ['p', '442']]) {
      await page.keyboard.press(key);
      await isAt(page, at);
      assert.equal(await page.evaluate(() => document.activeElement?.getAttribute('aria-activedescendant')), `event-${at}`);
    }
    await field(page).fill('443');
    await field(page).press('Enter');
    await isAt(page, '443');
    await page.locator('.events-one .link').click(); /* its other end */
    await isAt(page, '442');
    await page.locator('.plot').first().click({ position: { x: 1, y: 40 } });
    await isAt(page, '0');
  }));

  test('events: a part of a recording’s curve is dragged out, walked, moved in the small one, and is the most of its events', () => visit(async (page) => {
    await open(page, recorded('snapshot-plain.pickle.gz'));
    const part = page.locator('.timeline-tools .muted');
    const shown = async () => (await part.innerText()).match(/[\d,]+/g).map((/** @type {string} */ text) => Number(text.replaceAll(',', '')));
    assert.equal(await part.count(), 0, 'at first all is shown');
    const plot = page.locator('#timeline .plot');
    const box = await plot.boundingBox();
    await page.mouse.move(box.x + 0.4 * box.width, box.y + 50);
    await page.mouse.down();
    await page.mouse.move(box.x + 0.6 * box.width, box.y + 50, { steps: 4 });
    await page.locator('.plot .brush').waitFor();
    await page.mouse.up();
    await page.waitForFunction(() => !(document.querySelector('.timeline-tools .muted')?.textContent ?? 'events 0 to 953').startsWith('events 0 to 953'));
    const [from, to] = await shown();
    assert.ok(Math.abs(from - 0.4 * 954) < 8 && Math.abs(to - 0.6 * 954) < 8, `${from} to ${to}`);
    assert.equal(await page.locator('.plot .peak-dot').count(), 1);
    /* Each event is a column: what the curve says of one is what the allocator holds after it. */
    await plot.focus();
    await page.keyboard.press('Home');
    await isAt(page, from.toLocaleString('en'));
    assert.equal(await bytesOf(page.locator('#timeline .readout .bytes').first()), await bytesOf(page.locator('.segments-facts .bytes').first()));
    await page.keyboard.press('ArrowLeft');
    await page.waitForFunction((/** @type {number} */ before) => Number(document.querySelector('.timeline-tools .muted')?.textContent?.match(/[\d,]+/)?.[0].replaceAll(',', '')) < before, from);
    await page.getByRole('button', { name: 'Closer' }).click();
    await page.getByRole('button', { name: 'Peak', exact: true }).click();
    await isAt(page, '442');
    await page.locator('#timeline .readout b', { hasText: 'Peak' }).waitFor();
    const mini = await page.locator('.minimap').boundingBox();
    await page.mouse.click(mini.x + 0.9 * mini.width, mini.y + 10);
    await page.waitForFunction(() => document.querySelectorAll('.plot .peak-dot').length === 0);
    await page.getByRole('button', { name: 'Whole run' }).click();
    await page.locator('.plot .peak-dot').waitFor();
    assert.equal(await part.count(), 0);
  }));

  test('events: a filter passes what has its text, and says when nothing has', () => visit(async (page) => {
    await open(page, recorded('snapshot-plain.pickle.gz'));
    await page.getByLabel('Only events with this text').fill('snap.py:11');
    await page.locator('.events-tools [role="status"]', { hasText: 'pass' }).waitFor();
    await page.waitForFunction(() => [...document.querySelectorAll('.events-list .events-from code')].every((one) => one.textContent === 'snap.py:11 train'));
    const first = await page.locator('.event-title').innerText();
    await page.getByRole('button', { name: 'Next event' }).click();
    await page.waitForFunction((/** @type {string} */ before) => /** @type {HTMLElement | null} */ (document.querySelector('.event-title'))?.innerText !== before, first);
    await page.locator('#alive-title', { hasText: 'snap.py:11' }).waitFor();
    await page.waitForFunction(() => { const all = [...document.querySelectorAll('.segments .alive tbody code')]; return all.length > 0 && all.every((one) => one.textContent?.includes('snap.py') || one.closest('.frames')); });
    await page.getByLabel('Only events with this text').fill('no such text');
    await page.getByText('No event has this text.').waitFor();
    await page.getByText('Nothing with this text is alive here.').waitFor();
    await page.getByLabel('Only events with this text').fill('');
    await page.waitForFunction(() => document.querySelectorAll('.events-list tbody tr').length === 12);
  }));

  test('events: the segments of a recording are what is reserved, their blocks are walked by keys and opened, and there are tables', () => visit(async (page) => {
    await open(page, recorded('snapshot-streams.pickle.gz'));
    await field(page).fill('214');
    await field(page).press('Enter');
    await isAt(page, '214');
    assert.equal(await reserved(page), await bytesOf(page.locator('.segments-facts .bytes').nth(1)));
    assert.match(await page.locator('.segments-facts').innerText(), /Waiting for streams\s+12\.0 MiB/);
    assert.match(await page.locator('.events-one').innerText(), /waits for that stream/);
    const plot = page.locator('.segment-plot[tabindex="0"]').first();
    await plot.focus();
    const words = () => page.evaluate(() => [document.activeElement?.getAttribute('aria-label'), document.activeElement?.getAttribute('aria-valuetext')]);
    assert.match((await words()).join(' '), /^Segment 0x[0-9a-f]+, .*free/);
    const before = await words();
    await page.keyboard.press('ArrowDown');
    await page.waitForFunction((/** @type {any[]} */ [label, text]) => document.activeElement?.getAttribute('aria-label') !== label
      || document.activeElement?.getAttribute('aria-valuetext') !== text, before);
    const small = page.locator('.pool').last().locator('.segment-plot').first();
    await small.focus();
    await page.keyboard.press('End');
    await page.waitForFunction(() => document.activeElement?.getAttribute('aria-valuetext')?.includes('a gap of'));
    await page.keyboard.press('Home');
    await page.locator('.pool').first().locator('.segment-plot').first().focus();
    await page.keyboard.press('Enter'); /* the event that took the block */
    await page.waitForFunction(() => !document.querySelector('.event-title')?.textContent?.startsWith('Event 214 '));
    await page.getByText('Table of segments').click();
    assert.ok(await page.locator('.segments table', { hasText: 'Largest gap' }).locator('tbody tr').count() >= 2);
    await page.getByText(/Table of the blocks in segment/).last().click();
    await page.locator('.pool table tbody tr').first().waitFor();
  }));

  test('events: one that ran out of memory, and one with older blocks', () => visit(async (page) => {
    await open(page, recorded('snapshot-oom.pickle.gz'));
    await page.getByLabel('Only events with this text').fill('oom');
    await page.locator('.events-list').getByText('out of memory').first().waitFor();
    await page.getByRole('button', { name: 'Close the recording' }).click();
    await open(page, recorded('snapshot-late.pickle.gz'));
    await page.locator('.segments .alive').getByText('before').first().waitFor();
  }));

  test('events: of a job, in the timeline and with it', () => visit(async (page) => {
    const panel = page.getByText('Event by event, and the allocator’s blocks');
    await panel.click();
    await page.locator('#segments-title').waitFor();
    const peak = (await field(page).inputValue());
    await isAt(page, peak);
    await page.locator('.plot').first().focus();
    await page.keyboard.press(']');
    await page.waitForFunction((/** @type {string} */ was) => /** @type {HTMLInputElement} */ (document.querySelector('.events-number input')).value !== was, peak);
    await field(page).fill('401');
    await field(page).press('Enter');
    await isAt(page, '401');
    assert.match(await page.locator('.timeline-readout').innerText(), /^Event 401/);
    assert.match(await page.locator('.events-one').innerText(), /Counts as\s+parameters[^]*Shape[^]*×[^]*By/);
    await page.getByLabel('Only events with this text').fill('mlp');
    await page.waitForFunction(() => { const all = [...document.querySelectorAll('.events-list .events-from code')]; return all.length > 0 && all.every((one) => one.textContent?.includes('mlp')); });
    await page.locator('#set-batch').fill('2');
    await page.waitForFunction(() => document.querySelector('.segments')?.getAttribute('aria-busy') === 'false');
  }));

  test('events: half a million do not hold up the page', async () => {
    const place = mkdtempSync(join(tmpdir(), 'tidemark-events-'));
    const lines = ['{"device_bytes":85899345920}'];
    for (let i = 0; i < 250000; i++) { /* 200 blocks are live at a time */
      lines.push(`["a",${4194304 * (i % 200)},${512 * (1 + (i * 7919) % 4000)},0]`);
      if (i >= 199) lines.push(`["f",${4194304 * ((i - 199) % 200)}]`);
    }
    const file = join(place, 'run.jsonl.gz');
    writeFileSync(file, gzipSync(`${lines.join('\n')}\n`));
    try {
      await visit(async (page) => {
        await open(page, file);
        await page.evaluate(() => {
          const of = /** @type {any} */ (window);
          of.longest = 0;
          new PerformanceObserver((list) => { for (const { duration } of list.getEntries()) of.longest = Math.max(of.longest, duration); }).observe({ type: 'longtask' });
        });
        await page.locator('.events-list table').focus();
        for (let i = 0; i < 60; i++) await page.keyboard.press('ArrowDown');
        await page.keyboard.press('End');
        await isAt(page, '499,800');
        await page.getByLabel('Only events with this text').fill('free');
        await page.locator('.events-tools [role="status"]', { hasText: '249,801 pass' }).waitFor({ timeout: 30000 });
        assert.ok(await page.evaluate(() => document.querySelectorAll('.events *').length) < 4000, 'what is drawn does not grow with the recording');
        const longest = await page.evaluate(() => /** @type {any} */ (window).longest);
        assert.ok(longest < 400, `the longest task took ${longest} ms`);
      });
    } finally {
      rmSync(place, { recursive: true });
    }
  });

  test('axe finds nothing in events and segments, in both themes, at 1440, 390 and 320', async () => {
    for (const [scheme, width] of /** @type {['light' | 'dark', number][]} */ ([['light', 1440], ['dark', 1440], ['light', 390], ['dark', 320]])) {
      await visit(async (page) => {
        await page.getByText('Event by event, and the allocator’s blocks').click();
        await page.locator('#segments-title').waitFor();
        await page.getByText('Table of segments').click();
        assert.deepEqual(await violations(page), [], `job, ${scheme}, ${width}`);
        assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `no sideways scrolling at ${width}`);
        await open(page, recorded('snapshot-streams.pickle.gz'));
        assert.deepEqual(await violations(page), [], `recording, ${scheme}, ${width}`);
        assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `no sideways scrolling at ${width}`);
      }, { scheme, viewport: { width, height: 900 } });
    }
  });

  /* ---- links ---- */

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

    await page.locator('#whatif').scrollIntoViewIfNeeded();
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
      await other.locator('.heat-state', { hasText: '6 cells played' }).waitFor({ timeout: 30000 });
      assert.ok(await other.locator('#whatif').evaluate((/** @type {Element} */ one) => one.getBoundingClientRect().top < innerHeight / 2));
    }, { at: map.slice(map.indexOf('#')) });
  }));

  test('links to a view: the events of a job are opened at the one that was looked at', () => visit(async (page) => {
    await isAt(page, '1,304');
    assert.ok(await page.locator('#timeline').evaluate((/** @type {Element} */ one) => Math.abs(one.getBoundingClientRect().top) < 300));
  }, { at: '#model=gpt2&view=events&sel=event:1304&v=1' }));

  test('links to a view: a bad one blocks nothing and says nothing', async () => {
    for (const bad of ['view=nothing&sel=%25%25&sweep=%2F%2F', 'view=map&sweep=colour:red', `view=timeline&sel=event:${'9'.repeat(300)}`, 'view=details&sel=part:__proto__,layer:x',
      'view=%3Cscript%3E&sel=factor:%3Cb%3E', 'sel=from:9999999999,to:1']) {
      await visit(async (page) => {
        await page.locator('.job-name', { hasText: 'GPT-2' }).waitFor();
        await still(page);
        assert.equal(await page.locator('.diagnostic').count(), 0, bad);
      }, { at: `#model=gpt2&batch=2&gpu=h100-80&${bad}&v=1` });
    }
  });

  return server.close;
}
