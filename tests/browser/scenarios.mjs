// SPDX-License-Identifier: Apache-2.0
/* Named jobs side by side, and one's own prices, in Chromium. */
import assert from 'node:assert/strict';
import { changed, copied, deviceBytes, openContext, ready, test, violations } from './harness.mjs';

/** @param {import('./site.mjs').Site} site */
export default function ({ browser, server, visit, field, fromCore, clipboard, tab, LLAMA, choose }) {
  const add = (/** @type {any} */ page) => page.getByRole('button', { name: 'Add to scenarios' }).click();
  const columns = (/** @type {any} */ page) => page.locator('.scenarios thead th + th');
  const needs = (/** @type {any} */ page) => page.locator('.scenarios tbody tr').first().locator('.bytes');
  const bytesOf = async (/** @type {any} */ cell) => Number((await cell.getAttribute('data-tip')).replaceAll(/[^0-9]/g, ''));

  test('scenarios: named jobs stand side by side, are kept, opened, renamed and removed, and are shared as one link', async () => {
    const { context, page, problems } = await openContext(browser);
    await page.goto(server.url);
    await ready(page);
    await add(page);
    await needs(page).first().waitFor();
    const first = await deviceBytes(page);
    await changed(page, () => field(page, 'batch').fill('4'));
    const second = await deviceBytes(page);
    await page.locator('#scenarios').getByRole('button', { name: 'Add this job' }).click();
    await needs(page).nth(1).waitFor();
    assert.deepEqual([await bytesOf(needs(page).first()), await bytesOf(needs(page).nth(1))], [first, second]);
    assert.match(await page.locator('.scenarios tbody').innerText(), /Micro-batch\s+16\s+4/, 'what differs has a row');
    assert.equal(await columns(page).nth(1).getByText('shown').count(), 1);
    await page.getByLabel('Name of scenario 2').fill('small');
    await page.getByLabel('Name of scenario 2').press('Enter');
    assert.deepEqual(await violations(page, ['#scenarios']), []);
    await page.getByRole('button', { name: 'Copy a link to all' }).click();
    await copied(page, '#scenarios=1.');
    const shared = await clipboard(page);

    await changed(page, () => page.getByRole('link', { name: /^Open / }).click());
    assert.equal(await deviceBytes(page), first);
    await page.reload();
    await ready(page);
    await needs(page).nth(1).waitFor();
    assert.equal(await page.getByLabel('Name of scenario 2').inputValue(), 'small');
    await page.getByRole('button', { name: /^Remove LLaVA/ }).click();
    await page.waitForFunction(() => document.querySelectorAll('.scenarios thead th').length === 2);
    const other = await openContext(browser);
    await other.page.goto(shared);
    await ready(other.page);
    await needs(other.page).nth(1).waitFor();
    assert.equal(await deviceBytes(other.page), first, 'the first one is the job');
    assert.deepEqual(await other.page.evaluate(() => localStorage.getItem('tidemark.scenarios')), null, 'nothing is kept unasked');
    await other.page.getByRole('button', { name: 'Keep these' }).click();
    assert.equal(JSON.parse(await other.page.evaluate(() => localStorage.getItem('tidemark.scenarios'))).length, 2);

    /* One's own are not lost to a link. */
    await page.goto('about:blank');
    await page.goto(shared);
    await ready(page);
    await needs(page).nth(1).waitFor();
    await page.getByRole('button', { name: 'Back to mine' }).click();
    await page.waitForFunction(() => document.querySelectorAll('.scenarios thead th').length === 2);
    assert.deepEqual([...problems, ...other.problems], []);
    await context.close();
    await other.context.close();
  });

  test('scenarios: a model of one’s own goes with its scenario, there are six at most, and a damaged link is said', () => visit(async (page) => {
    await changed(page, () => choose(page, [{ name: 'config.json', mimeType: 'application/json', buffer: Buffer.from(LLAMA) }]));
    const bytes = await deviceBytes(page);
    for (let i = 0; i < 6; i++) {
      await add(page);
      await page.waitForFunction((/** @type {number} */ wanted) => document.querySelectorAll('.scenarios thead th').length === wanted, i + 2);
    }
    await add(page);
    await page.locator('#spoken', { hasText: 'remove one first' }).waitFor({ state: 'attached' });
    await needs(page).nth(5).waitFor();
    assert.equal(await bytesOf(needs(page).nth(5)), bytes);
    await page.evaluate(() => { location.hash = 'scenarios=1.AAAA'; });
    await page.locator('[aria-label="Notices"]', { hasText: 'damaged or was cut' }).waitFor();
    assert.equal(await deviceBytes(page), bytes);
  }));

  test('prices: the largest batch on each GPU, its tokens a step, and one’s own price, which is kept', () => visit(async (page) => {
    await tab(page, 'GPUs that fit');
    await page.getByLabel('Largest batch on each').check();
    const row = page.locator('.whatif tbody tr', { hasText: 'H200 141GB' });
    const cell = (/** @type {string} */ label) => row.locator(`td[data-label="${label}"]`);
    await cell('largest batch').filter({ hasText: /^\d+$/ }).waitFor();
    const largest = Number(await cell('largest batch').innerText());
    const words = ['model=gpt2', 'gpu=h200', 'seq=1024', 'checkpointing=full'];
    assert.equal((await fromCore([...words, `batch=${largest}`])).verdict.fits, true);
    assert.equal((await fromCore([...words, `batch=${largest + 1}`])).verdict.fits, false);
    assert.equal(Number((await cell('tokens a step').innerText()).replaceAll(',', '')), largest * 1024);
    const price = page.getByLabel('Price an hour of one H200 141GB');
    await price.fill('4');
    await page.getByLabel('Price an hour of one H100 80GB SXM5').evaluate((other) => { other.value = '2'; other.dispatchEvent(new Event('change', { bubbles: true })); });
    await page.waitForFunction(() => localStorage.getItem('tidemark.prices') === '{"h100-80":2}');
    assert.equal(await price.inputValue(), '4', 'what is typed stays while the rows are drawn anew');
    await price.press('Enter');
    await cell('tokens a step per price').filter({ hasText: (largest * 256).toLocaleString('en') }).waitFor();
    assert.equal(await page.evaluate(() => localStorage.getItem('tidemark.prices')), '{"h100-80":2,"h200":4}');
    assert.deepEqual(await violations(page, ['#whatif']), []);
    await changed(page, () => row.getByRole('button', { name: 'Apply H200 141GB' }).click());
    assert.equal(await deviceBytes(page), (await fromCore([...words, `batch=${largest}`])).verdict.device_bytes);
  }, { at: '#model=gpt2&gpu=h100-80&batch=1&seq=1024&checkpointing=full&v=1' }));
}
