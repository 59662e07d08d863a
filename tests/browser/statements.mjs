// SPDX-License-Identifier: Apache-2.0
/* Statements of the page that must be true of any job: each on a case where it is easily wrong. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { changed, test, violations } from './harness.mjs';

/** @param {import('./site.mjs').Site} site */
export default function ({ visit, fromCore, program, saved, field, choose, tab }) {
  test('what is at the peak is of one moment: rows outside add up, and reserved of another event has a row of its own', async () => {
    for (const words of [['model=llama-3.2-1b', 'gpu=h100-80'], ['model=llava-1.5-7b', 'gpu=h100-80', 'batch=16', 'seq=1024', 'checkpointing=full', 'freeze=vision_tower'], ['model=gpt2', 'gpu=t4', 'clip=1']]) {
      const r = await fromCore(words);
      const outside = Object.fromEntries(r.outside.map((/** @type {any} */ { name, bytes }) => [name, bytes]));
      const at = r.timeline.columns[r.timeline.peak_column];
      assert.equal(at.allocated, r.peak.allocated);
      assert.equal(at.peak, r.peak.event, 'the peak of the chart is that of the table');
      assert.equal(r.peak.allocated + outside.fragmentation + (outside.reserved_elsewhen ?? 0), r.peak.reserved);
      assert.ok(outside.fragmentation <= at.reserved - at.allocated, 'no more than was reserved in that column');
    }
  });

  test('gradients of FSDP2 stand in the part of their parameters, over one GPU and over eight', async () => {
    for (const dp of [1, 8]) {
      const r = await fromCore(['model=llama-3.2-1b', 'gpu=h100-80', 'parallel.kind=fsdp2', `parallel.dp=${dp}`]);
      const all = r.factors.find((/** @type {any} */ f) => f.name === 'gradients').bytes;
      const rest = r.breakdown.find((/** @type {any} */ part) => part.part === '')?.factors.gradients ?? 0;
      const parts = r.breakdown.reduce((/** @type {number} */ sum, /** @type {any} */ part) => sum + (part.factors.gradients ?? 0), 0);
      assert.ok(all > 0 && rest === 0 && parts === all, `${dp}: ${rest} of ${all} outside`);
    }
  });

  test('quantised weights without an adapter do not train: the page says so, and makes it QLoRA in one click', () => visit(async (page) => {
    await field(page, 'adapter').selectOption('none');
    await page.locator('.diagnostic.is-error', { hasText: 'the Trainer refuses such a job' }).waitFor();
    await page.getByRole('button', { name: 'Make it QLoRA' }).click();
    await page.locator('.diagnostic.is-error').waitFor({ state: 'detached' });
    assert.equal(await page.getByRole('radio', { name: /^QLoRA/ }).isChecked(), true);
    assert.match(await page.locator('.parts caption').innerText(), /[1-9][\d.]* [MB] trained/);
  }, { at: '#model=llama-3.2-1b&gpu=rtx-4090&quant=nf4&adapter=lora&v=1' }));

  test('where it cannot be told whether a job fits, no table says that it does or does not', () => visit(async (page) => {
    const text = JSON.stringify({ architectures: ['FooForCausalLM'], model_type: 'foo', hidden_size: 2048, num_hidden_layers: 16, num_attention_heads: 16, vocab_size: 32000, intermediate_size: 8192, foo_rank: 4 });
    await choose(page, [{ name: 'config.json', mimeType: 'application/json', buffer: Buffer.from(text) }]);
    await page.locator('.verdict .pill', { hasText: 'Cannot tell' }).waitFor();
    await tab(page, 'GPUs that fit');
    const row = page.locator('.whatif tbody tr', { has: page.getByRole('rowheader', { name: 'RTX 4090 24GB' }) });
    await row.locator('.barely', { hasText: 'cannot tell' }).waitFor();
    assert.equal(await row.locator('.good, .bad').count(), 0);
    await tab(page, 'Heat map');
    await page.locator('.heat td.at, .heat td[tabindex="0"]').first().filter({ hasText: '?' }).waitFor();
    assert.match(await page.locator('.heat td[tabindex="0"]').getAttribute('aria-label') ?? '', /cannot tell/);
  }, { at: '#model=llama-3.2-1b&gpu=rtx-4090&v=1' }));

  test('a badge has the colour of the verdict: green, amber, red, blue', () => visit(async (page) => {
    for (const [words, says, colour] of [['gpu=t4', 'fits', '#17753a'], ['gpu_gib=1.55', 'barely fits', '#9a5b00'], ['gpu_gib=1', 'does not fit', '#b42318'], ['', '', '#1f5fbf']]) {
      const link = `model=gpt2${words && `&${words}`}`;
      await page.evaluate((/** @type {string} */ to) => { location.hash = to; }, `#${link}&v=1`);
      await page.locator('.verdict .pill', { hasText: { fits: 'Fits', 'barely fits': 'Barely fits', 'does not fit': 'Does not fit', '': 'No GPU' }[says] }).waitFor();
      await page.getByRole('button', { name: 'Share' }).click();
      const [download] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: 'Save badge' }).click()]);
      const chunks = [];
      for await (const chunk of await download.createReadStream()) chunks.push(chunk);
      const svg = Buffer.concat(chunks).toString();
      assert.ok(svg.includes(`fill="${colour}"`), `${says}: ${svg}`);
      assert.match(svg, says ? new RegExp(`, ${says}<`) : /GPU memory: [\d.]+ GiB</);
      if (program) {
        let drawn = '';
        try {
          drawn = execFileSync(program, ['badge', ...link.replace('model=', '').split('&')], { encoding: 'utf8', stdio: 'pipe' });
        } catch (error) {
          drawn = /** @type {any} */ (error).stdout;
        }
        assert.equal(svg, drawn, says);
      }
    }
  }, { at: '#model=gpt2&v=1' }));

  test('equal layers are one block that says how many, and open to each', () => visit(async (page) => {
    const many = page.locator('.icicle .layer[aria-label*=" equal layers"]').first();
    await many.waitFor();
    const [, count] = /(\d+) equal layers/.exec(await many.getAttribute('aria-label')) ?? [];
    await many.click();
    await page.getByRole('button', { name: 'Everything' }).waitFor();
    assert.ok(await page.locator('.icicle .layer').count() >= Number(count));
    await page.locator('.icicle .layer').first().click();
    await page.locator('.drawer .drawer-sum').waitFor();
  }));

  test('thirty terms stand in the glossary, in order, and open by keyboard', () => visit(async (page) => {
    await page.locator('main').focus();
    await page.keyboard.press('?');
    await page.locator('.glossary summary').focus();
    await page.keyboard.press('Enter');
    await page.locator('.glossary dd').first().waitFor();
    const terms = await page.locator('.glossary dt').allInnerTexts();
    assert.equal(terms.length, 30);
    assert.deepEqual(terms, [...terms].sort((a, b) => a.localeCompare(b, 'en', { sensitivity: 'base' })));
    assert.deepEqual(await violations(page, ['dialog[open]']), []);
  }));

  test('nothing of a chart is cut or struck through, and no word of a setting is cut', () => visit(async (page) => {
    const [peak, limit] = await page.evaluate(() => ['.peak-text', '.limit'].map((one) => document.querySelector(`.plot ${one}`)?.getBoundingClientRect()));
    assert.ok(peak.top > limit.bottom || peak.bottom < limit.top, `peak ${peak.top} to ${peak.bottom}, the card's line at ${limit.top}`);
    const ticks = await page.evaluate(() => [...document.querySelectorAll('.icicle .layer-name, .bar .axis text')].filter((one) => {
      const box = one.getBoundingClientRect();
      const all = /** @type {Element} */ (one.closest('.icicle, .bar')).getBoundingClientRect();
      return box.left < all.left - 1 || box.right > all.right + 1;
    }).map((one) => one.textContent));
    assert.deepEqual(ticks, []);
    const words = await page.evaluate(() => [...document.querySelectorAll('.label-row code')].filter((one) => {
      const box = one.getBoundingClientRect();
      const row = /** @type {Element} */ (one.parentElement).getBoundingClientRect();
      return box.top < row.bottom && (box.right > row.right + 1 || one.scrollWidth > one.clientWidth + 1);
    }).map((one) => one.textContent));
    assert.deepEqual(words, []);
    await page.keyboard.press('c');
    await page.locator('.since').waitFor();
    assert.equal((await page.locator('.since').innerText()).trim(), 'as the baseline');
    await changed(page, () => field(page, 'batch').fill('8'));
    await page.locator('.since', { hasText: /[+−][\d.]+ GiB/ }).waitFor();
  }, { at: '#model=llama-3.2-1b&gpu_gib=13&v=1' }));
}
