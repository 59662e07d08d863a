// SPDX-License-Identifier: Apache-2.0
/* Recordings, in Chromium: opened, played, and event by event; and the events of a job. */
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { copied, deviceBytes, test, violations } from './harness.mjs';
import { recorded } from './site.mjs';

/** @param {import('./site.mjs').Site} site */
export default function ({ visit, choose, bytesOf, isAtEvent }) {
  test('a snapshot is opened, played on a card, with other options, and closed', () => visit(async (page, { requests }) => {
    const before = await deviceBytes(page);
    const offline = requests.findIndex((url) => url.endsWith('/sw.js')); /* what follows is kept for later */
    assert.ok(!(offline < 0 ? requests : requests.slice(0, offline)).some((url) => url.includes('recordings-')), 'not before it is asked for');
    await choose(page, recorded('snapshot-expand.pickle.gz'));
    await page.getByText('With other options').waitFor();
    assert.equal(await bytesOf(page.locator('.big .bytes')), 358612992);
    assert.match(await page.locator('.recording-live').innerText(), /snap\.py:11 train/);
    await page.locator('.recording-live summary').first().click();
    assert.match(await page.locator('.recording-live .frames').first().innerText(), /linear\.py:134 forward/);
    await page.locator('#recorded-gpu').fill('t4');
    await page.keyboard.press('Enter');
    await page.getByText('Runs on T4 16GB').waitFor();
    await page.getByRole('button', { name: 'Use PyTorch’s defaults' }).click();
    await page.waitForFunction(() => document.querySelector('.big .bytes')?.getAttribute('data-tip')?.includes('354,418,688'));
    await page.locator('#recorded-allocator').fill('max_split_size_mb:1');
    await page.keyboard.press('Enter');
    await page.locator('#recorded-error').waitFor();
    await page.locator('.plot').focus();
    await page.keyboard.press('ArrowLeft');
    await page.getByRole('button', { name: 'Close the recording' }).click();
    await page.locator('.factor-table').waitFor();
    assert.equal(await deviceBytes(page), before);
  }));

  test('bands: keys move over the run and among its allocations, and the timeline zooms them too', () => visit(async (page) => {
    await choose(page, recorded('snapshot-plain.pickle.gz'));
    const bands = page.locator('.bands');
    await bands.waitFor();
    const said = () => bands.getAttribute('aria-valuetext');
    const saysOther = async (/** @type {string} */ key) => {
      const before = await said();
      await page.keyboard.press(key);
      await page.waitForFunction((/** @type {string} */ was) => document.querySelector('.bands')?.getAttribute('aria-valuetext') !== was, before);
    };
    await bands.focus();
    await saysOther('Home');
    await saysOther('End');
    await saysOther('PageUp');
    await saysOther('ArrowUp');
    assert.match(await said(), /from event [\d,]+ to/);
    await page.locator('.band-read').waitFor({ state: 'attached' }); /* a small one is a line */
    const [, from] = /from event ([\d,]+)/.exec(await said()) ?? [];
    await page.keyboard.press('Enter');
    await isAtEvent(page, from);
    const whole = await page.locator('.band').first().getAttribute('d');
    await bands.focus();
    await page.keyboard.press('+');
    await page.waitForFunction((/** @type {string} */ was) => document.querySelector('.band')?.getAttribute('d') !== was, whole);
    await page.locator('.timeline-tools .muted').first().waitFor(); /* the timeline shows the same part */
    await bands.focus();
    await page.keyboard.press('Escape');
    await page.waitForFunction((/** @type {string} */ was) => document.querySelector('.band')?.getAttribute('d') === was, whole);
    assert.deepEqual(await violations(page, ['#bands']), []);
  }));

  test('what can be copied and saved is the recording’s, and keys of the job do nothing', () => visit(async (page) => {
    await choose(page, recorded('snapshot-expand.pickle.gz'));
    await page.getByText('With other options').waitFor();
    const menu = async (/** @type {string} */ name) => {
      await page.getByRole('button', { name }).click();
      const items = await page.locator('.menu-list button').allInnerTexts();
      await page.keyboard.press('Escape');
      return items.map((/** @type {string} */ item) => item.split('\n')[0]);
    };
    assert.deepEqual(await menu('Share'), ['Copy command']);
    assert.deepEqual(await menu('Export'), ['Copy as Markdown', 'Save as tidemark file (JSON)', 'Save timeline as CSV', 'Save what is live at the peak as CSV', 'Save picture as SVG', 'Save picture as PNG', 'Save report (HTML)', 'Print']);
    const saved = async (/** @type {string} */ item) => {
      await page.getByRole('button', { name: 'Export' }).click();
      const [download] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: item }).click()]);
      return readFileSync(await download.path(), 'utf8');
    };
    const answer = JSON.parse(await saved('tidemark file'));
    assert.equal(answer.reserved_peak, 358612992);
    assert.equal((await saved('timeline as CSV')).trim().split('\n').length, answer.timeline.columns.length + 1);
    const live = (await saved('what is live')).trim().split('\n').slice(1);
    assert.equal(live.reduce((all, line) => all + Number(line.split(',')[0]), 0), answer.allocated_peak);
    await page.getByRole('button', { name: 'Export' }).click();
    await page.getByRole('button', { name: 'Copy as Markdown' }).click();
    await copied(page, '| Live at the peak |');
    assert.match(await page.evaluate(() => navigator.clipboard.readText()), /342(\.\d)? MiB reserved at most[^]*snap\.py:11 train[^]*tidemark replay snapshot-expand\.pickle\.gz/);
    const before = await page.evaluate(() => location.hash);
    for (const key of ['c', 's', '4', 'Control+z']) await page.keyboard.press(key);
    await page.keyboard.press('?'); /* of both: what came before it has been done */
    await page.locator('.keys').waitFor();
    await page.keyboard.press('Escape');
    assert.equal(await page.evaluate(() => location.hash), before);
    assert.equal(await page.locator('.compare-button').isVisible(), false);
  }));

  test('of one that ran out of memory, what changes are changes of', () => visit(async (page) => {
    await choose(page, new URL('../oracle/events/events-oom.jsonl.gz', import.meta.url).pathname);
    await page.getByText('where memory never runs out').waitFor();
    const rows = await page.locator('[aria-labelledby="recorded-options"] tbody tr').evaluateAll((/** @type {any[]} */ list) => list.map((row) => [...row.querySelectorAll('td')].slice(0, 2).map((cell) => cell.querySelector('.bytes')?.dataset.tip ?? cell.textContent)));
    const bytes = (/** @type {string} */ text) => Number(text.replaceAll(/[^0-9]/g, ''));
    assert.match(rows[1][1], /−16\.0 MiB/);
    assert.equal(bytes(rows[0][0]) - bytes(rows[1][0]), 16 << 20);
    assert.match(await page.locator('[aria-labelledby="recorded-figures"] tr', { hasText: 'Out of memory' }).first().innerText(), /1\s+1/);
  }));

  test('each kind is known by its content, under any name', () => visit(async (page) => {
    for (const [path, says] of /** @type {[string, RegExp][]} */ ([[recorded('trace-cpu.json.gz'), /an estimate of the run on a GPU/],
      [recorded('trace-cuda.json.gz'), /torch\.profiler trace/], [recorded('snapshot-streams.pickle.gz'), /snapshot/],
      [new URL('../oracle/events/events-oom.jsonl.gz', import.meta.url).pathname, /event/i]])) {
      await choose(page, { name: 'file.bin', mimeType: '', buffer: readFileSync(path) });
      await page.locator('.job-words', { hasText: says }).waitFor();
    }
  }));

  test('cut and damaged ones are played up to the break, and say so', () => visit(async (page) => {
    const whole = readFileSync(recorded('snapshot-plain.pickle.gz'));
    await choose(page, { name: 'cut.pickle.gz', mimeType: '', buffer: whole.subarray(0, 6000) });
    await page.locator('.diagnostic', { hasText: /truncated or damaged/ }).waitFor();
    assert.ok(await bytesOf(page.locator('.big .bytes')) > 0);
  }));

  test('what is none is named, and the job stays', () => visit(async (page) => {
    const before = await deviceBytes(page);
    for (const [buffer, says] of /** @type {[Buffer, RegExp][]} */ ([
      [Buffer.from('\x80\x04cposix\nsystem\n(S"true"\ntR.', 'latin1'), /wants to run code.*nothing was run/], [Buffer.from('\x80\x02}q\x00', 'latin1'), /pickle ends before its STOP/],
      [gzipSync(Buffer.alloc(1 << 20, 'x')), /No recording/], [gzipSync(Buffer.alloc(0)), /[Ee]mpty/], [gzipSync(Buffer.from('[[[[[[')), /./]])) {
      await choose(page, { name: 'odd.bin', mimeType: '', buffer });
      await page.locator('.diagnostic', { hasText: 'odd.bin' }).waitFor();
      assert.match(await page.locator('.diagnostic', { hasText: 'odd.bin' }).innerText(), says);
      assert.equal(await deviceBytes(page), before);
    }
  }));

  test('printed, one is verdict, curve, segments and tables, without controls and without a job’s link', () => visit(async (page) => {
    await choose(page, recorded('snapshot-plain.pickle.gz'));
    await page.locator('#segments-title').waitFor();
    await page.emulateMedia({ media: 'print' });
    for (const part of ['.verdict', '#timeline .plot', '.segments', '.recording-live']) assert.equal(await page.locator(part).first().isVisible(), true, part);
    assert.deepEqual(await page.evaluate(() => [...document.querySelectorAll('button:not(.link), input, select, .print-only, .minimap')].filter((one) => one.getClientRects().length > 0).map((one) => one.outerHTML.slice(0, 120))), []);
  }));

  test('a recording is a kind of job; its memory is bands by allocation, coloured by frame, category or stack', () => visit(async (page) => {
    const [chooser] = await Promise.all([page.waitForEvent('filechooser'), page.getByRole('button', { name: 'Open a recording' }).click()]);
    await chooser.setFiles(recorded('snapshot-plain.pickle.gz'));
    await page.locator('#bands .band').first().waitFor();
    assert.match(await page.locator('.bands-legend').innerText(), /snap\.py:11 train/);
    await page.locator('#bands').getByRole('radio', { name: /^Colour by what/ }).check({ force: true });
    await page.locator('.bands-legend', { hasText: 'Optimizer' }).waitFor();
    await page.locator('#bands').getByRole('radio', { name: /^Colour by the whole/ }).check({ force: true });
    await page.locator('.bands-legend', { hasText: 'snap.py' }).waitFor();
    const plot = page.locator('.bands');
    const box = await plot.boundingBox();
    await plot.hover({ position: { x: box.width / 2, y: box.height - 4 } }); /* the oldest lie at the bottom */
    await page.locator('#bands .readout', { hasText: /from event \d+ to/ }).waitFor();
    await plot.click({ position: { x: box.width / 2, y: box.height - 4 } }); /* to where it was allocated */
    await page.waitForFunction(() => /after event (\d|[1-9]\d)( |$)/.test(document.getElementById('flame-title')?.textContent ?? ''));
  }));

  test('a flame graph at any moment, by size and by blocks, with the keyboard alone', () => visit(async (page) => {
    await choose(page, recorded('snapshot-plain.pickle.gz'));
    await page.locator('#flame-title', { hasText: 'the peak' }).waitFor();
    const whole = await bytesOf(page.locator('#flame .readout .bytes').first());
    assert.equal(whole, await bytesOf(page.locator('.verdict .facts .bytes').first()), 'all that is allocated');
    await page.locator('.flame').focus();
    await page.keyboard.press('ArrowDown');
    await page.locator('#flame .readout', { hasText: /var\.py/ }).waitFor();
    await page.keyboard.press('Enter');
    await page.getByRole('button', { name: 'All stacks' }).waitFor();
    await page.keyboard.press('Escape');
    await page.getByRole('button', { name: 'All stacks' }).waitFor({ state: 'detached' });
    const wide = () => page.locator('#flame-1 rect').getAttribute('width');
    const before = await wide();
    await page.locator('#flame').getByRole('radio', { name: 'Width is the number of blocks' }).check({ force: true });
    await page.waitForFunction((/** @type {string} */ old) => document.querySelector('#flame-1 rect')?.getAttribute('width') !== old || document.querySelectorAll('.flame-box').length > 0, before);
  }));

  test('what grows from step to step is pointed out, and nothing else is', () => visit(async (page) => {
    await choose(page, recorded('snapshot-streams.pickle.gz'));
    await page.getByText('Grows from step to step').waitFor();
    assert.match(await page.locator('#growth').innerText(), /over 40 steps[^]*108 KiB[^]*var\.py:21/);
    assert.equal(await page.locator('#growth tbody tr').count(), 1);
    await choose(page, recorded('snapshot-plain.pickle.gz'));
    await page.locator('.job-name', { hasText: 'snapshot-plain' }).waitFor();
    await page.locator('#flame').waitFor();
    await page.locator('#growth').waitFor({ state: 'detached' });
  }));

  test('two recordings are compared by stack, and one stands beside the job of the page', () => visit(async (page) => {
    await choose(page, recorded('snapshot-plain.pickle.gz'));
    await page.locator('#beside-job').waitFor();
    assert.match(await page.locator('#beside-job').innerText(), /GPT-2[^]*Allocated, at most/);
    await page.setInputFiles('#other-recording', recorded('snapshot-late.pickle.gz'));
    await page.locator('.against tbody tr').first().waitFor();
    assert.match(await page.locator('.against caption').innerText(), /new|grew|gone/);
    const parts = await page.locator('.against tbody tr').evaluateAll((/** @type {Element[]} */ rows) => rows.map((row) => [...row.querySelectorAll('.bytes')].slice(0, 3).map((one) => Number(one.getAttribute('data-tip')?.replaceAll(/[^0-9]/g, '')))));
    for (const [change, here, there] of parts) assert.equal(change, Math.abs(there - here));
    await page.setInputFiles('#other-recording', { name: 'odd.bin', mimeType: '', buffer: Buffer.from('nothing') });
    await page.locator('#against [role="status"]', { hasText: 'odd.bin could not be read' }).waitFor();
  }, { at: '#model=gpt2&gpu=t4&v=1' }));

  /* ---- event by event ---- */

  const field = (/** @type {any} */ page) => page.getByLabel('Number of the event');
  const open = async (/** @type {any} */ page, /** @type {string} */ file) => {
    await choose(page, file);
    await page.locator('#segments-title').waitFor();
  };
  /** What the segments' rows add up to. @param {any} page */
  const reserved = (page) => page.locator('.segments .segment').evaluateAll((/** @type {Element[]} */ rows) => rows.reduce((sum, row) =>
    sum + Number(row.querySelector('.segment-size .bytes')?.getAttribute('data-tip')?.replaceAll(/[^0-9]/g, '')) * Number(row.querySelector('.segment-size b')?.textContent?.slice(1) ?? 1), 0));

  test('events: a recording is stepped through with buttons and keys, from a block to its end, and around a number', () => visit(async (page) => {
    await open(page, recorded('snapshot-plain.pickle.gz'));
    await isAtEvent(page, '442'); /* the peak, as the curve has it */
    assert.equal(await bytesOf(page.locator('.segments-facts .bytes').first()), await bytesOf(page.locator('.verdict .facts .bytes').first()));
    await page.getByRole('button', { name: 'Next event' }).click();
    await isAtEvent(page, '443');
    await page.getByRole('button', { name: 'Event before' }).click();
    await isAtEvent(page, '442');
    await page.locator('.events-list table').focus();
    await page.keyboard.press('Enter'); /* where it is freed */
    await isAtEvent(page, '443');
    for (const [key, at] of [['ArrowDown', '444'], ['ArrowUp', '443'], ['PageDown', '455'], ['Home', '0'], ['End', '953'], ['ArrowDown', '953'], ['p', '442']]) {
      await page.keyboard.press(key);
      await isAtEvent(page, at);
      assert.equal(await page.evaluate(() => document.activeElement?.getAttribute('aria-activedescendant')), `event-${at}`);
    }
    await field(page).fill('443');
    await field(page).press('Enter');
    await isAtEvent(page, '443');
    await page.locator('.events-one .link').click(); /* its other end */
    await isAtEvent(page, '442');
    await page.locator('.plot').first().click({ position: { x: 1, y: 40 } });
    await isAtEvent(page, '0');
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
    await isAtEvent(page, from.toLocaleString('en'));
    assert.equal(await bytesOf(page.locator('#timeline .readout .bytes').first()), await bytesOf(page.locator('.segments-facts .bytes').first()));
    await page.keyboard.press('ArrowLeft');
    await page.waitForFunction((/** @type {number} */ before) => Number(document.querySelector('.timeline-tools .muted')?.textContent?.match(/[\d,]+/)?.[0].replaceAll(',', '')) < before, from);
    await page.getByRole('button', { name: 'Closer' }).click();
    await page.getByRole('button', { name: 'Peak', exact: true }).click();
    await isAtEvent(page, '442');
    await page.locator('#timeline .readout b', { hasText: 'Peak' }).waitFor();
    await page.locator('.minimap').scrollIntoViewIfNeeded();
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
    await isAtEvent(page, '214');
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
    /* The focus follows a key at once: what comes with the next frame must not take it back from where one went meanwhile. */
    const small = page.locator('.pool').last().locator('.segment-plot').first();
    await page.evaluate(() => {
      const late = /** @type {FrameRequestCallback[]} */ ([]);
      Object.assign(globalThis, { late, atFrame: requestAnimationFrame, requestAnimationFrame: (/** @type {FrameRequestCallback} */ call) => late.push(call) });
    });
    await page.keyboard.press('ArrowUp');
    await small.focus();
    await page.evaluate(() => {
      const { late, atFrame } = /** @type {any} */ (globalThis);
      Object.assign(globalThis, { requestAnimationFrame: atFrame });
      for (const call of late) call(performance.now());
    });
    assert.ok(await small.evaluate((/** @type {Element} */ one) => one === document.activeElement), 'the focus stays where it went');
    await page.keyboard.press('End');
    await page.waitForFunction(() => document.activeElement?.getAttribute('aria-valuetext')?.includes('a gap of'));
    await page.keyboard.press('Home');
    await page.locator('.pool').first().locator('.segment-plot').first().focus();
    await page.keyboard.press('Enter'); /* the event that took the block */
    await page.waitForFunction(() => !document.querySelector('.event-title')?.textContent?.startsWith('Event 214 '));
    await page.getByText('Table of segments').click();
    await page.locator('.segments table', { hasText: 'Largest gap' }).locator('tbody tr').nth(1).waitFor();
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
    await isAtEvent(page, peak);
    await page.locator('.plot').first().focus();
    await page.keyboard.press(']');
    await page.waitForFunction((/** @type {string} */ was) => /** @type {HTMLInputElement} */ (document.querySelector('.events-number input')).value !== was, peak);
    await field(page).fill('401');
    await field(page).press('Enter');
    await isAtEvent(page, '401');
    assert.match(await page.locator('.timeline-readout').innerText(), /^Event 401/);
    assert.match(await page.locator('.events-one').innerText(), /Counts as\s+parameters[^]*Shape[^]*×[^]*By/);
    await page.getByLabel('Only events with this text').fill('mlp');
    await page.waitForFunction(() => { const all = [...document.querySelectorAll('.events-list .events-from code')]; return all.length > 0 && all.every((one) => one.textContent?.includes('mlp')); });
    await page.locator('#set-batch').fill('2');
    await page.waitForFunction(() => document.querySelector('.segments')?.getAttribute('aria-busy') === 'false');
  }));

  test.nightly('events: half a million do not hold up the page', async () => {
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
        await page.locator('.events-list table').focus();
        for (let i = 0; i < 60; i++) await page.keyboard.press('ArrowDown');
        await page.keyboard.press('End');
        await isAtEvent(page, '499,800');
        await page.getByLabel('Only events with this text').fill('free');
        await page.locator('.events-tools [role="status"]', { hasText: '249,801 pass' }).waitFor();
        assert.ok(await page.evaluate(() => document.querySelectorAll('.events *').length) < 4000, 'what is drawn does not grow with the recording');
      });
    } finally {
      rmSync(place, { recursive: true });
    }
  });
}
