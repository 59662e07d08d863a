// SPDX-License-Identifier: Apache-2.0
/* What if: changes, the largest that fits, cards and the heat map, in Chromium. */
import assert from 'node:assert/strict';
import { changed, copied, deviceBytes, still, test, violations } from './harness.mjs';

/** Whether the GPU holds all that is wanted, without retries. @param {any} answer */
const isHeld = ({ verdict }) => verdict.fits && verdict.device_bytes <= verdict.gpu_bytes;

/** @param {import('./site.mjs').Site} site */
export default function ({ core, visit, field, fromCore, exampleWords, tab, toWhatIf }) {
  test('changes are played, and one is used', () => visit(async (page) => {
    await tab(page, 'Reduce memory');
    const first = page.locator('.whatif tbody tr').first();
    await first.waitFor();
    const words = (await first.getByRole('button').getAttribute('aria-label')).split(': ')[1].split(' ');
    const before = await deviceBytes(page);
    await changed(page, () => first.getByRole('button').click());
    const after = await deviceBytes(page);
    assert.ok(after < before, `${after} of ${before}`);
    const changedSettings = words.map((/** @type {string} */ word) => word.split('=')[0]);
    const kept = exampleWords.filter((word) => !changedSettings.includes(word.split('=')[0]));
    assert.equal(after, (await fromCore([...kept, ...words])).verdict.device_bytes);
    await page.waitForFunction((/** @type {string} */ used) => !document.querySelector('.whatif')?.textContent?.includes(used),
      (await first.locator('th').innerText()).split('\n')[0]).catch(() => {});
    assert.equal(await page.locator('.whatif tbody tr', { hasText: words.join(' ') }).count(), 0, 'the change that was used is no longer offered');
  }));

  const STAGED = ['model=llama-3.2-1b', 'gpu=h100-80', 'batch=1', 'seq=2048', 'parallel.kind=megatron', 'parallel.tp=2', 'parallel.pp=4'];

  test('ranks: each stage has its own peak, the one that needs the most is shown, and another one can be', () => visit(async (page) => {
    const rows = page.locator('#layout tbody tr');
    await rows.nth(3).waitFor();
    assert.equal(await rows.count(), 4);
    const bytes = await rows.evaluateAll((/** @type {any[]} */ list) => list.map((row) => Number(row.querySelectorAll('.bytes')[1].dataset.tip.replaceAll(/[^0-9]/g, ''))));
    assert.equal(Math.max(...bytes), await deviceBytes(page));
    assert.match(await page.locator('#layout tr.strong').innerText(), /needs the most/);
    for (const [stage, rank] of [[1, 2], [2, 4]]) assert.equal(bytes[stage], (await fromCore([...STAGED, `parallel.rank=${rank}`])).verdict.device_bytes);
    await changed(page, () => page.getByRole('button', { name: 'Show rank 4' }).click());
    assert.equal(await deviceBytes(page), bytes[2]);
    await page.getByText('Rank 4 is shown').waitFor();
    await changed(page, () => page.getByRole('button', { name: 'Show the rank that needs the most' }).click());
    assert.equal(await deviceBytes(page), Math.max(...bytes));
    assert.deepEqual(await violations(page, ['#layout']), []);
  }, { at: `#${STAGED.join('&')}&v=1` }));

  test('the schedule of a pipeline is drawn, from the most micro-batches in flight of the rank that needs the most', () => visit(async (page) => {
    const { schedule } = (await core()).call({ call: 'schedule', settings: STAGED });
    const plot = page.locator('.schedule-plot');
    await plot.waitFor();
    await page.locator('#layout tbody tr').nth(3).waitFor();
    assert.deepEqual(await page.locator('.schedule-flight').allTextContents(), schedule.ranks.map((/** @type {any} */ one) => `${one.in_flight} in flight`));
    assert.match(await plot.getAttribute('aria-valuetext'), /^Rank 0: Forward pass of micro-batch 3, stage 0; 4 in flight after it$/);
    await plot.focus();
    await page.keyboard.press('ArrowRight');
    await page.waitForFunction(() => document.querySelector('.schedule-plot')?.getAttribute('aria-valuetext') === 'Rank 0: Backward pass of micro-batch 0, stage 0; 3 in flight after it');
    await page.keyboard.press('ArrowDown');
    await page.waitForFunction(() => document.querySelector('.schedule-plot')?.getAttribute('aria-valuetext')?.startsWith('Rank 2: '));
    await page.getByText('Table of the schedule').click();
    assert.equal(await page.locator('.schedule-part tbody tr').nth(3).locator('code').innerText(), schedule.ranks[3].passes.join(' '));
    assert.deepEqual(await violations(page, ['#layout']), []);
  }, { at: `#${STAGED.join('&')}&v=1` }));

  test('layouts of as many GPUs are played, each with a link to it, and what cannot be says why', () => visit(async (page) => {
    await tab(page, 'Layouts');
    await page.locator('#whatif table[aria-busy="false"] tbody tr').nth(8).waitFor();
    await page.locator('.whatif td', { hasText: /divide|multiple/ }).first().waitFor();
    const link = page.locator('.whatif tbody a').first();
    const said = await page.locator('.whatif tbody tr', { has: page.locator('a') }).first().locator('.bytes').getAttribute('data-tip');
    assert.deepEqual(await violations(page, ['#whatif']), []);
    const href = await link.getAttribute('href');
    await changed(page, () => link.click());
    assert.equal(await page.locator('.big .bytes').getAttribute('data-tip'), said);
    assert.equal(await deviceBytes(page), (await fromCore(href.slice(1).split('&').filter((/** @type {string} */ word) => word !== 'v=1'))).verdict.device_bytes);
  }, { at: `#${STAGED.join('&')}&parallel.dp=3&v=1` }));

  test('on which cards it runs', () => visit(async (page) => {
    await tab(page, 'GPUs that fit');
    const row = page.locator('.whatif tbody tr', { hasText: 'T4 16GB' });
    await row.waitFor();
    assert.match(await row.innerText(), /does not fit/);
    assert.equal(await row.getByRole('button').count(), 0, 'what does not fit is not offered');
    await changed(page, () => page.getByRole('button', { name: 'Apply H200 141GB' }).click());
    await page.waitForFunction(() => location.hash.includes('gpu=h200'));
  }));

  test('of the cards those that it runs on come first, the smallest first, then the nearest misses', () => visit(async (page) => {
    await toWhatIf(page);
    await page.getByRole('tab', { name: 'GPUs that fit' }).click();
    await page.locator('.whatif tbody tr').first().waitFor();
    const rows = await page.locator('.whatif tbody tr').evaluateAll((/** @type {any[]} */ list) => list.map((row) => ({ runs: !row.querySelector('.bad'), sizes: [...row.querySelectorAll('.bytes')].map((one) => Number(one.dataset.tip.replaceAll(/[^0-9]/g, ''))) })));
    assert.ok(rows.some(({ runs }) => runs) && rows.some(({ runs }) => !runs));
    assert.deepEqual(rows, [...rows].sort((a, b) => Number(b.runs) - Number(a.runs) || (a.runs ? a.sizes[0] - b.sizes[0] : a.sizes[1] - a.sizes[0] - (b.sizes[1] - b.sizes[0]))));
  }));

  test('of the GPUs what fits by retries or with little to spare is marked, and has its verdict over several too', () => visit(async (page) => {
    await tab(page, 'GPUs that fit');
    await page.locator('.whatif tbody tr').first().waitFor();
    const rows = await page.locator('.whatif tbody tr:has(.bytes)').evaluateAll((/** @type {any[]} */ list) => list.map((row) => {
      const [has, needs] = [...row.querySelectorAll('.bytes')].map((one) => Number(one.dataset.tip.replaceAll(/[^0-9]/g, '')));
      return { has, needs, text: row.innerText, isClose: !!row.querySelector('.barely'), isGood: !!row.querySelector('.good') };
    }));
    for (const { has, needs, text, isClose, isGood } of rows) {
      assert.match(text, /fits|does not fit/);
      if (isGood) assert.ok(needs <= has * 0.97, text);
      if (isClose) assert.match(text, /barely fits/);
    }
    assert.ok(rows.some(({ isClose }) => isClose) && rows.some(({ isGood }) => isGood));
  }, { at: `#${exampleWords.join('&').replace(/batch=\d+/, 'batch=44')}&v=1` }));

  test('the largest that fits: one more does not', () => visit(async (page) => {
    await tab(page, 'Largest that fits');
    const row = page.locator('.whatif tbody tr', { hasText: 'Micro-batch' });
    await row.waitFor();
    const [, largest] = /batch=(\d+)/.exec(await row.getByRole('button').getAttribute('aria-label')) ?? [];
    const holds = async (/** @type {number} */ batch) => isHeld(await fromCore([...exampleWords, `batch=${batch}`]));
    assert.equal(await holds(Number(largest)), true);
    assert.equal(await holds(Number(largest) + 1), false);
    await changed(page, () => row.getByRole('button').click());
    assert.equal(await field(page, 'batch').inputValue(), largest);
  }));

  test('the largest LoRA rank that fits', () => visit(async (page) => {
    await toWhatIf(page);
    await page.getByRole('tab', { name: 'Largest that fits' }).click();
    const row = page.locator('.whatif tbody tr', { hasText: 'LoRA rank' });
    await row.waitFor();
    const [, largest] = /adapter\.r=(\d+)/.exec(await row.getByRole('button').getAttribute('aria-label')) ?? [];
    const holds = async (/** @type {number} */ rank) => isHeld(await fromCore(['model=gpt2', 'gpu_gib=4', 'adapter=lora', `adapter.r=${rank}`]));
    assert.deepEqual([await holds(Number(largest)), await holds(Number(largest) + 1)], [true, false]);
  }, { at: `#model=gpt2&gpu_gib=4&adapter=lora&v=1` }));

  test('the heat map is single estimates, cell by cell; its edge is the edge; a cell is applied', () => visit(async (page) => {
    await tab(page, 'Heat map');
    const values = page.locator('.axis-field input');
    await values.nth(0).fill('8,16,24');
    await values.nth(0).blur();
    await values.nth(1).fill('1024-2048:512');
    await values.nth(1).blur();
    await page.locator('.heat-state', { hasText: '9 cells simulated' }).waitFor();
    await page.getByRole('button', { name: 'Copy CSV' }).click();
    await copied(page, 'batch,seq');
    const rows = (await page.evaluate(() => navigator.clipboard.readText())).trim().split('\n');
    assert.equal(rows[0], 'batch,seq,allocated_peak,reserved_peak,device_bytes,margin_bytes,rank,fits,refused');
    assert.equal(rows.length, 10);
    for (const row of rows.slice(1)) {
      const [batch, seq, allocated, reserved, device, margin, , fits] = row.split(',');
      const r = await fromCore([...exampleWords, `batch=${batch}`, `seq=${seq}`]);
      assert.deepEqual([allocated, reserved, device, margin, fits].map(String),
        [r.peak.allocated, r.peak.reserved, r.verdict.device_bytes, r.verdict.margin_bytes, r.verdict.fits ? 'yes' : 'no'].map(String), row);
    }
    const grid = await page.locator('.heat tbody tr').evaluateAll((/** @type {any[]} */ list) => list.map((row) => [...row.querySelectorAll('td')].map((cell) => ({
      fits: /\b(fits|close)\b/.test(cell.className), right: cell.classList.contains('edge-right'), below: cell.classList.contains('edge-below') }))));
    for (let r = 0; r < 3; r++) for (let c = 0; c < 3; c++) {
      if (c < 2) assert.equal(grid[r][c].right, grid[r][c].fits !== grid[r][c + 1].fits, `right of ${r}, ${c}`);
      if (r < 2) assert.equal(grid[r][c].below, grid[r][c].fits !== grid[r + 1][c].fits, `below ${r}, ${c}`);
    }
    await page.getByRole('button', { name: 'Copy command' }).click();
    await copied(page, 'tidemark sweep');
    assert.match(await page.evaluate(() => navigator.clipboard.readText()), /batch=8,16,24 seq=1024,1536,2048$/);
    assert.match(await page.locator('.heat td[tabindex="0"]').getAttribute('aria-label') ?? '', /^[\d.]+ (fits|barely fits|does not fit), the present job$/);
    await page.locator('.heat td[tabindex="0"]').focus();
    await page.keyboard.press('ArrowDown');
    await page.locator('.heat-box .readout b', { hasText: 'batch=24 seq=1024' }).waitFor();
    await page.keyboard.press('ArrowRight');
    await page.locator('.heat-box .readout b', { hasText: 'batch=24 seq=1536' }).waitFor();
    assert.equal(await page.evaluate(() => document.activeElement?.getAttribute('role') ?? document.activeElement?.tagName), 'TD');
    await changed(page, () => page.keyboard.press('Enter'));
    assert.equal(await field(page, 'seq').inputValue(), '1536');
  }));

  test('a heat map is cancelled, and the newest one wins; the page answers meanwhile', () => visit(async (page) => {
    await tab(page, 'Heat map');
    const values = page.locator('.axis-field input');
    await values.nth(0).fill('1-32');
    await values.nth(0).blur();
    await values.nth(1).fill('1024-8960:256');
    await values.nth(1).blur();
    await page.locator('.heat-state', { hasText: 'of 1,024' }).waitFor();
    await page.waitForFunction(() => document.querySelectorAll('.heat td:not(.wait)').length > 4);
    await changed(page, () => field(page, 'batch').fill('2'));
    await page.locator('.heat-state', { hasText: 'of 1,024' }).waitFor();
    await page.getByRole('button', { name: 'Cancel' }).click();
    await page.locator('.heat-state', { hasText: 'cells simulated' }).waitFor();
    const before = await page.locator('.heat td.wait').count();
    await still(page);
    assert.equal(await page.locator('.heat td.wait').count(), before, 'nothing is played after Cancel');
    await values.nth(0).fill('1,2');
    await values.nth(0).blur();
    await values.nth(1).fill('1024,2048');
    await values.nth(1).blur();
    await page.locator('.heat-state', { hasText: '4 cells simulated' }).waitFor();
    assert.equal(await page.locator('.heat td').count(), 4);
  }));
}
