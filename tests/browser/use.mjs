// SPDX-License-Identifier: Apache-2.0
/* What people do with the page, in Chromium: palette and keys, undo, details, comparison, timeline, exports. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { changed, copied, deviceBytes, say, test } from './harness.mjs';

/** @param {import('./site.mjs').Site} site */
export default function ({ visit, field, fromCore, exampleWords, tab, bytesIn, clipboard, focusIs, palette, saved, program, toWhatIf }) {
  /* ---- palette and keys ---- */

  test('the palette sets settings and runs actions by name', () => visit(async (page) => {
    await palette(page, 'gpu b200');
    await page.keyboard.press('Enter');
    await page.waitForFunction(() => location.hash.includes('gpu=b200'));
    await palette(page, 'batch 24');
    await changed(page, () => page.keyboard.press('Enter'));
    assert.equal(await field(page, 'batch').inputValue(), '24');
    await palette(page, 'zero 3');
    await changed(page, () => page.keyboard.press('Enter'));
    await page.waitForFunction(() => /parallel\.kind=zero3/.test(location.hash) && /parallel\.dp=8/.test(location.hash));
    await palette(page, 'show mib');
    await page.keyboard.press('Enter');
    await page.locator('.big', { hasText: 'MiB' }).waitFor();
    await page.locator('#gpu').focus();
    await palette(page, 'x');
    await page.keyboard.press('Escape');
    await focusIs(page, '#gpu');
  }));

  test('a job in words is read in the palette and as a model, and what is not understood leaves the job', () => visit(async (page) => {
    await palette(page, 'llama 3 8b qlora on a 4090');
    await page.locator('.palette .at', { hasText: 'Estimate' }).waitFor();
    await changed(page, () => page.keyboard.press('Enter'));
    await page.waitForFunction(() => ['model=llama-3-8b', 'gpu=rtx-4090', 'quant=nf4', 'adapter=lora'].every((word) => location.hash.includes(word)));
    await page.locator('.diagnostic', { hasText: 'is read as llama-3-8b quant=nf4 adapter=lora gpu=4090' }).waitFor();
    await palette(page, 'llama 3 8b on a pink elephant');
    await page.keyboard.press('Enter');
    await page.locator('.diagnostic', { hasText: '“pink elephant”'.replace(/[“”]/g, '"') }).waitFor();
    assert.match(await page.evaluate(() => location.hash), /quant=nf4/);
    await page.locator('#model').fill('bert base on a t4 seq=128');
    await changed(page, () => page.keyboard.press('Enter'));
    await page.waitForFunction(() => /model=bert-base[^&]*&gpu=t4/.test(location.hash) && /seq=128/.test(location.hash));
  }));

  test('a denoiser has a field for the size of its images, and none for tokens', () => visit(async (page) => {
    await page.locator('#model').fill('flux.2-klein-4b');
    await changed(page, () => page.keyboard.press('Enter'));
    await field(page, 'image_size').waitFor();
    assert.equal(await field(page, 'seq').count(), 0);
  }));

  test('a command is read in the palette as the file that holds it', () => visit(async (page) => {
    await palette(page, 'trl dpo --model_name_or_path Qwen/Qwen3-0.6B \\   --per_device_train_batch_size 2');
    await page.locator('.palette .at', { hasText: 'Estimate' }).waitFor();
    await changed(page, () => page.keyboard.press('Enter'));
    await page.locator('.job', { hasText: /Qwen3 0\.6B[^]*dpo/ }).waitFor();
    assert.equal(await page.locator('#model').inputValue(), 'Qwen3 0.6B');
  }));

  test('what is typed while the palette is fetched is not lost, and is no key', () => visit(async (page) => {
    await page.route('**/Palette-*.js', async (/** @type {any} */ route) => {
      await new Promise((done) => setTimeout(done, 400));
      await route.continue();
    });
    await page.keyboard.press('Control+k');
    await page.keyboard.type('sco');
    await focusIs(page, '.palette input');
    assert.equal(await page.locator('.palette input').inputValue(), 'sco');
    assert.equal(await page.locator('#compare, .said').count(), 0);
    await page.keyboard.press('Escape');
    await page.locator('.palette').waitFor({ state: 'detached' });
    await page.keyboard.press('Control+k');
    await focusIs(page, '.palette input');
    assert.equal(await page.locator('.palette input').inputValue(), '');
  }));

  test('what is chosen while the page looks for what a model or a kind of job starts with holds beside it', () => visit(async (page) => {
    const has = (/** @type {string[]} */ wanted) => page.waitForFunction((/** @type {string[]} */ all) => all.every((word) => location.hash.slice(1).split('&').includes(word)), wanted);
    await field(page, 'optimizer').waitFor();
    await page.evaluate(() => {
      /** @type {HTMLInputElement} */ (document.querySelector('[name="preset"][aria-label^="QLoRA"]')).click();
      const optimizer = /** @type {HTMLSelectElement} */ (document.querySelector('#set-optimizer'));
      optimizer.value = 'sgd';
      optimizer.dispatchEvent(new Event('change', { bubbles: true }));
    });
    await has(['model=llama-3.2-1b', 'optimizer=sgd', 'adapter=lora', 'quant=nf4']);
    await page.locator('#model').click();
    await page.locator('#model').fill('qwen2.5-7b');
    await page.locator('#model-list .at', { hasText: 'Qwen2.5' }).waitFor();
    await page.evaluate(() => {
      /** @type {HTMLElement} */ (document.querySelector('#model-list .at')).click();
      /** @type {HTMLInputElement} */ (document.querySelector('[name="job"][aria-label^="Serve"]')).click();
    });
    await has(['model=qwen2.5-7b', 'mode=serve']);
    assert.equal(await page.evaluate(() => location.hash.includes('adapter=')), false);
  }, { at: '#model=llama-3.2-1b&gpu=rtx-4090&adapter=lora&v=1' }));

  test('single letters work outside of fields only, and can be switched off', () => visit(async (page) => {
    await field(page, 'clip').focus();
    await page.keyboard.type('?');
    assert.equal(await page.locator('.keys').count(), 0);
    await field(page, 'clip').fill('');
    await page.locator('main').focus();
    for (const [key, wanted] of [['1', '.opens'], ['2', '.icicle g'], ['3', '.plot'], ['4', '[role="tab"]'], ['/', '#model']]) {
      await page.locator('main').focus();
      if (key === '4') await toWhatIf(page);
      if (key === '4') await page.locator('[role="tab"]').first().waitFor();
      await page.keyboard.press(key);
      await focusIs(page, wanted);
    }
    await page.locator('main').focus();
    await page.keyboard.press('s');
    await page.locator('.said').waitFor();
    assert.match(await clipboard(page), /#model=llava-1\.5-7b/);
    await page.keyboard.press('?');
    await page.getByRole('checkbox', { name: /Single letters/ }).uncheck();
    await page.keyboard.press('Escape');
    await page.locator('.keys').waitFor({ state: 'detached' });
    await page.locator('main').focus();
    await page.keyboard.press('?');
    await page.keyboard.press('Control+k');
    await page.locator('.palette').waitFor();
    assert.equal(await page.locator('.keys').count(), 0);
  }));

  test('undo and redo of settings; typing in one field is one step', () => visit(async (page) => {
    const before = await deviceBytes(page);
    await field(page, 'batch').fill('');
    await field(page, 'batch').pressSequentially('128');
    await page.waitForFunction(() => location.hash.includes('batch=128'));
    const after = await deviceBytes(page);
    await field(page, 'optimizer').selectOption('sgd');
    await page.waitForFunction(() => location.hash.includes('optimizer=sgd'));
    await page.keyboard.press('Control+z');
    await page.waitForFunction(() => !location.hash.includes('optimizer'));
    assert.equal(await deviceBytes(page), after);
    await page.keyboard.press('Control+z');
    await page.waitForFunction(() => location.hash.includes('batch=16'));
    assert.equal(await deviceBytes(page), before);
    await page.keyboard.press('Control+Shift+z');
    await page.waitForFunction(() => location.hash.includes('batch=128'));
    await field(page, 'batch').fill('77');
    await page.keyboard.press('Control+z');
    await page.waitForFunction(() => /** @type {any} */ (document.getElementById('set-batch')).value === '128');
    await page.getByRole('button', { name: 'Undo', exact: true }).click();
    await page.waitForFunction(() => location.hash.includes('batch=16'));
  }));

  /* ---- details and charts ---- */

  test('a number opens the tensors that it is the sum of', () => visit(async (page) => {
    const row = page.locator('.factor-table tbody tr', { hasText: 'Optimizer state' });
    const number = row.locator('.total .opens');
    const wanted = bytesIn(await number.getAttribute('data-tip'));
    await number.focus();
    await page.keyboard.press('Enter');
    await page.locator('.drawer .formula').first().waitFor();
    assert.equal(bytesIn((await page.locator('.drawer-sum small').innerText()).split(',  ')[0].split(' bytes')[0]), wanted);
    for (let more = page.locator('.drawer-body > .button'); await more.count();) await more.click();
    const parts = await page.locator('.drawer-list .item-head .bytes').evaluateAll((/** @type {any[]} */ list) => list.map((one) => one.dataset.tip));
    assert.equal(parts.map(bytesIn).reduce((/** @type {number} */ a, /** @type {number} */ b) => a + b, 0), wanted);
    /* the first formula, worked out */
    const factors = (await page.locator('.drawer .formula').first().locator('.dim b').allInnerTexts()).slice(0, -1).map(bytesIn);
    assert.equal(factors.reduce((/** @type {number} */ a, /** @type {number} */ b) => a * b, 1), bytesIn(parts[0]));
    await page.keyboard.press('Escape');
    await page.locator('.drawer').waitFor({ state: 'detached' });
    await focusIs(page, '.opens');
    await page.locator('.icicle .layer[aria-label^="Language model, "][aria-label*="equal layers"]').first().click(); /* to each of them */
    await page.locator('.icicle .layer[aria-label^="Language model, "]').nth(5).click();
    await page.locator('.drawer .formula').first().waitFor();
    assert.match(await page.locator('.drawer-head').innerText(), /Language model|Vision/);
  }));

  test('against a baseline: changes add up, have a cause, and travel in the link', () => visit(async (page) => {
    const before = await deviceBytes(page);
    await page.locator('main').focus();
    await page.keyboard.press('c');
    await page.locator('#compare').waitFor();
    await changed(page, () => field(page, 'batch').fill('24'));
    await changed(page, () => field(page, 'checkpointing').selectOption('none'));
    const after = await deviceBytes(page);
    await page.waitForFunction(() => document.querySelectorAll('.causes tbody tr').length === 2);
    const change = async (/** @type {string} */ selector) => (await page.locator(selector).evaluateAll((/** @type {any[]} */ list) => list.map((one) =>
      (one.dataset.tip.endsWith('less') ? -1 : 1) * Number(one.dataset.tip.replaceAll(/[^0-9]/g, ''))))).reduce((/** @type {number} */ a, /** @type {number} */ b) => a + b, 0);
    assert.equal(await change('.causes tbody .total .bytes'), after - before);
    assert.equal(await change('.compare-tables > div:first-child tbody .total .bytes'), after - before);
    assert.equal(await change('.since .bytes'), after - before);
    await page.waitForFunction(() => /b\.batch=16/.test(location.hash) && /b\.checkpointing=full/.test(location.hash));
    const address = page.url();
    await visit(async (other) => {
      await other.locator('#compare').waitFor();
      assert.equal(await deviceBytes(other), after);
      assert.equal(await other.locator('.since .bytes').getAttribute('data-tip'), await page.locator('.since .bytes').getAttribute('data-tip'));
      await other.getByRole('button', { name: 'Unpin' }).first().click();
      await other.locator('#compare').waitFor({ state: 'detached' });
      await other.waitForFunction(() => !location.hash.includes('b.batch'));
    }, { at: address });
  }));

  test('the baseline is a line in the timeline, to the same scale, and gone with it', () => visit(async (page) => {
    const r = await fromCore(exampleWords.map((word) => (word.startsWith('checkpointing=') ? 'checkpointing=none' : word)));
    const limit = () => page.locator('.peak-dot').evaluate((/** @type {Element} */ one) => Number(one.getAttribute('cy')));
    const high = await limit();
    await page.locator('.baseline').waitFor({ state: 'attached' });
    assert.equal(await page.locator('.baseline-text').textContent(), `baseline ${(r.peak.allocated / 2 ** 30).toFixed(2)}`);
    /* its highest point is drawn where its bytes are on the axis of the present job */
    const [lowest, dot] = await page.evaluate(() => [Math.min(.../** @type {string} */ (document.querySelector('.baseline')?.getAttribute('d')).split(/[MLHVC]/).map((part) => Number(part.split(',')[1])).filter((y) => !Number.isNaN(y))),
      Number(document.querySelector('.peak-dot')?.getAttribute('cy'))]);
    const now = (await fromCore(exampleWords)).peak.allocated;
    assert.ok(Math.abs((190 - lowest) / (190 - dot) - r.peak.allocated / now) < 0.02, `${lowest} ${dot}`);
    await page.keyboard.press('Escape');
    await page.getByRole('button', { name: 'Unpin' }).first().click();
    await page.locator('.baseline').waitFor({ state: 'detached' });
    assert.ok(await limit() < high, 'the axis is that of one job again');
  }, { at: `#${exampleWords.join('&')}&b.checkpointing=none&v=1` }));

  test('the timeline zooms to events and steps through them', () => visit(async (page) => {
    await page.locator('.plot').focus();
    const readout = page.locator('.timeline-readout b').first();
    assert.equal(await readout.innerText(), 'Peak');
    await page.keyboard.press(']');
    await page.locator('.event-readout').waitFor();
    const at = bytesIn(await readout.innerText());
    const allocated = async () => bytesIn(await page.locator('.timeline-readout .bytes').first().getAttribute('data-tip'));
    const one = await allocated();
    await page.keyboard.press(']');
    await page.waitForFunction((/** @type {number} */ event) => document.querySelector('.timeline-readout b')?.textContent?.replaceAll(/[^0-9]/g, '') === String(event), at + 1);
    const words = await page.locator('.event-readout').innerText();
    const by = bytesIn(await page.locator('.event-readout .bytes').getAttribute('data-tip'));
    assert.equal(await allocated(), one + (words.startsWith('frees') ? -by : by));
    await page.keyboard.press('Enter');
    await page.locator('.drawer .formula').first().waitFor();
    assert.equal(bytesIn((await page.locator('.drawer-sum small').innerText()).split(' bytes')[0]), one + (words.startsWith('frees') ? -by : by));
    await page.keyboard.press('Escape');
    await page.locator('.plot').focus();
    await page.keyboard.press('p');
    await page.waitForFunction(() => document.querySelector('.timeline-readout b')?.textContent === 'Peak');
    const rows = page.locator('.twin', { hasText: /Table of these/ });
    await rows.locator('summary').click();
    await rows.locator('tbody tr').nth(30).waitFor();
    await page.getByRole('button', { name: 'Whole job' }).click();
    await page.locator('.event-readout').waitFor({ state: 'detached' });
    /* a drag over the small picture */
    const box = await page.locator('.minimap').boundingBox();
    await page.mouse.move(box.x + box.width * 0.3, box.y + 10);
    await page.mouse.down();
    await page.mouse.move(box.x + box.width * 0.5, box.y + 10, { steps: 4 });
    await page.mouse.up();
    await page.locator('.timeline-tools .muted', { hasNotText: 'events 0 to' }).waitFor();
    const shown = (await page.locator('.timeline-tools .muted').innerText()).match(/[\d,]+/g).map(bytesIn);
    const events = bytesIn((await page.locator('#timeline-title small').innerText()).split(' ')[0]);
    assert.ok(Math.abs(shown[0] / events - 0.3) < 0.02 && Math.abs(shown[1] / events - 0.5) < 0.02, shown.join(' '));
  }));

  test('bars are in proportion, and the peak’s column is kept', () => visit(async (page) => {
    const r = await fromCore(exampleWords);
    const bars = await page.locator('.bar g[data-tip] > rect').evaluateAll((/** @type {any[]} */ list) => list.map((one) => one.getBoundingClientRect().width));
    const sizes = [...r.factors.map((/** @type {any} */ f) => f.bytes), ...r.outside.map((/** @type {any} */ f) => f.bytes)].filter(Boolean);
    const whole = (await page.locator('.bar svg').boundingBox()).width;
    assert.equal(bars.length, sizes.length);
    const expected = sizes.map((bytes) => (bytes / r.verdict.gpu_bytes) * whole).sort((a, b) => a - b);
    bars.sort((/** @type {number} */ a, /** @type {number} */ b) => a - b).forEach((/** @type {number} */ width, /** @type {number} */ i) => assert.ok(Math.abs(width - expected[i]) < 1, `${width} ${expected[i]}`));
    assert.equal(Math.max(...r.timeline.columns.map((/** @type {any} */ c) => c.allocated)), r.peak.allocated);
    assert.match(await page.locator('.peak-text').textContent(), new RegExp((r.peak.allocated / 2 ** 30).toFixed(2)));
  }));

  /* ---- taken along ---- */

  test('what is exported holds the result, and no formula or script', () => visit(async (page) => {
    const r = await fromCore(exampleWords);
    const json = await saved(page, 'tidemark file');
    assert.equal(json.name, 'tidemark.json');
    const read = JSON.parse(json.bytes.toString());
    assert.equal(read.result.verdict.device_bytes, r.verdict.device_bytes);
    /* the file alone is the same job */
    const again = await fromCore([], [{ name: 'tidemark.json', text: json.bytes.toString() }]);
    assert.equal(again.verdict?.device_bytes, r.verdict.device_bytes, JSON.stringify(again.diagnostics));
    const factors = (await saved(page, 'categories as CSV')).bytes.toString();
    assert.match(factors, new RegExp(`On the device,.*,${r.verdict.device_bytes},`));
    const layers = (await saved(page, 'layers as CSV')).bytes.toString();
    const sum = layers.trim().split('\n').slice(1).reduce((all, line) => all + Number(line.split(',').at(-2)), 0);
    assert.equal(sum, r.peak.allocated);
    assert.match((await saved(page, 'timeline as CSV')).bytes.toString(), new RegExp(`\\n\\d+,${r.peak.allocated},`));
    const svg = (await saved(page, 'SVG')).bytes.toString();
    assert.match(svg, /At the peak, GiB/);
    for (const name of await page.locator('.factor-table tbody tr th').allInnerTexts()) assert.ok(svg.includes(name.trim()), `${name} in the legend`);
    assert.match(svg, /<title>LLaVA.*GiB/);
    assert.match(svg, /<desc>Made by tidemark/);
    assert.doesNotMatch(svg, /<script|onload|class=|href=|style=/);
    const png = (await saved(page, 'PNG')).bytes;
    assert.equal(png.readUInt32BE(16), 1600);
    assert.ok(png.length > 20000);
    await page.getByRole('button', { name: 'Export' }).click();
    await page.getByRole('button', { name: 'Copy as Markdown' }).click();
    await page.locator('.said').waitFor();
    await copied(page, '| Category |');
    const markdown = await clipboard(page);
    assert.match(markdown, /\| Parameters \| \d/);
    assert.match(markdown, /Fits H100/);
    assert.match(markdown, /- `batch|- `attention/);
    assert.match(markdown, new RegExp(`#model=`.replaceAll('.', '\\.')));
  }));

  test('a table, a frame and a badge are copied', () => visit(async (page) => {
    await page.locator('#factors .copy-table').click();
    await copied(page, '\t');
    const rows = (await clipboard(page)).split('\n').map((/** @type {string} */ line) => line.split('\t'));
    assert.ok(rows.every((/** @type {string[]} */ row) => row.length === rows[0].length), JSON.stringify(rows));
    assert.equal(rows.at(-1).at(-2), (await page.locator('.factor-table tfoot .total').innerText()).trim());
    const share = async (/** @type {string} */ name) => {
      await page.getByRole('button', { name: 'Share' }).click();
      await page.getByRole('button', { name }).click();
    };
    await share('Copy embed code');
    await copied(page, '<iframe');
    assert.match(await clipboard(page), /embed\.html#model=llava-1\.5-7b&amp;gpu/);
    const download = page.waitForEvent('download');
    await share('Save badge');
    const chunks = [];
    for await (const chunk of await (await download).createReadStream()) chunks.push(chunk);
    const svg = Buffer.concat(chunks).toString();
    await copied(page, '[![GPU memory');
    if (program) assert.equal(svg, execFileSync(program, ['badge', ...exampleWords], { encoding: 'utf8' }));
  }));

  test('the command gives the number on the screen, and the sweep’s its table', () => visit(async (page) => {
    if (!program) return say('skipped: the native program is not built');
    await page.getByRole('button', { name: 'Share' }).click();
    await page.getByRole('button', { name: 'Copy command' }).click();
    await page.locator('.said').waitFor();
    const command = await clipboard(page);
    const run = (/** @type {string} */ line) => {
      try {
        return execFileSync('bash', ['-c', line.replace(/^tidemark/, /** @type {string} */ (program))], { encoding: 'utf8' });
      } catch (error) {
        return /** @type {any} */ (error).stdout;
      }
    };
    assert.equal(JSON.parse(run(`${command} --json`)).verdict.device_bytes, await deviceBytes(page));
    await toWhatIf(page);
    await page.getByRole('tab', { name: 'Heat map' }).click();
    const values = page.locator('.axis-field input');
    for (const [i, text] of [[0, '8,32'], [1, '512,1024,2048']]) {
      await values.nth(/** @type {number} */ (i)).fill(text);
      await values.nth(/** @type {number} */ (i)).blur();
    }
    await page.locator('.heat-state', { hasText: '6 cells simulated' }).waitFor();
    await page.getByRole('button', { name: 'Copy CSV' }).click();
    await copied(page, 'batch,');
    const table = await clipboard(page);
    await page.getByRole('button', { name: 'Copy command' }).click();
    await copied(page, 'tidemark');
    assert.equal(table, run(`${await clipboard(page)} --csv -`));
  }));
}
