/* What people do with the page, in Chromium: palette and keys, undo, details, comparison, timeline, exports, states. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { changed, copied, deviceBytes, PHONE, ready, say, still, test } from './harness.mjs';
import { cell, csv } from '../../web/src/csv.js';
import { closest } from '../../web/src/nearest.js';
import { assignment, find } from '../../web/src/find.js';
import { nearValues } from '../../web/src/nearest.js';
import { grows, inOrderOfPlay, readValues, usualValues, walkEdge } from '../../web/src/sweep.js';

export const program = ['build/gcc/tidemark', 'build/release/tidemark'].map((path) => new URL(`../../${path}`, import.meta.url).pathname).find((path) => existsSync(path));
const bytesOf = (/** @type {string} */ text) => Number(text.replaceAll(/[^0-9]/g, ''));

/* ---- without a browser ---- */

test('csv: formulas become text, numbers stay numbers', () => {
  assert.equal(cell('=1+1'), "'=1+1");
  for (const text of ['+x', '-x', '@x', '\tx', '\rx']) assert.match(cell(text), /^"?'/, text);
  assert.equal(cell(-5), '-5');
  assert.equal(csv([['a', 'b,"c"'], [1, null]]), 'a,"b,""c"""\n1,\n');
});

test('palette: words find their entries, the best first', () => {
  const entries = ['parallel.kind Strategy zero zero2', 'parallel.kind Strategy zero zero3', 'gpu b200 B200 180GB', 'gpu h100-80 H100 80GB', 'optimizer adamw8bit']
    .map((search) => ({ title: search, note: '', search, run: () => {} }));
  assert.equal(find(entries, 'zero 3')[0].title, 'parallel.kind Strategy zero zero3');
  assert.equal(find(entries, 'gpu b200')[0].title, 'gpu b200 B200 180GB');
  assert.equal(find(entries, 'optmzr')[0].title, 'optimizer adamw8bit');
  assert.deepEqual(find([{ ...entries[0], title: 'told', search: 'x', help: 'every micro batch' }, { ...entries[0], title: 'named', search: 'Micro-batch batch mbs' }], 'micro batch')[0].title, 'named');
  assert.deepEqual(find(entries, 'nonsense'), []);
  assert.deepEqual(assignment('batch 32'), { name: 'batch', value: '32' });
  assert.deepEqual(assignment('data parallel = 8'), { name: 'data parallel', value: '8' });
});

test('closest: the least change that fits on the cards that are there, before one with more cards', () => {
  const change = (/** @type {string} */ title, /** @type {boolean} */ fits, /** @type {string[]} */ ...settings) => ({ title, effect: '', fits, settings });
  const list = [change('QLoRA', true, 'quant=nf4'), change('LoRA', true, 'adapter=lora'), change('ZeRO-2', true, 'parallel.kind=zero2', 'parallel.dp=8'), change('fused', false, 'optimizer=adamw_fused')];
  assert.equal(closest(list)?.title, 'LoRA');
  assert.equal(closest(list.slice(2))?.title, 'ZeRO-2');
  assert.equal(closest(list.slice(3)), null);
});

test('sweep: values, their order of play, and what is offered', () => {
  assert.deepEqual(readValues('1,2, 8-10 ,512-1024:256,2'), ['1', '2', '8', '9', '10', '512', '768', '1024']);
  assert.equal(readValues('1-100000').length, 32);
  const setting = /** @type {any} */ ({ name: 'batch', type: 'int', least: 1 });
  assert.ok(usualValues(setting, '12').includes('12') && usualValues(setting, '12').includes('64'));
  for (const [p, r, c] of [[1, 32, 32], [3, 5, 7], [1, 1, 1]]) {
    const order = inOrderOfPlay(p, r, c);
    assert.equal(order.length, p * r * c);
    assert.equal(new Set(order.map(String)).size, p * r * c);
  }
  assert.deepEqual(inOrderOfPlay(1, 32, 32).slice(0, 16).every(([, r, c]) => r % 8 === 0 && c % 8 === 0), true);
  assert.deepEqual(nearValues(/** @type {any} */ ({ name: 'seq', type: 'int', default: '512' }), '100', 'room for 576').includes('576'), true);
  assert.ok(!nearValues(setting, '3').includes('3'));
});

test('sweep: the edge of fitting is found by few plays', async () => {
  const [rows, columns] = [32, 32];
  const truth = (/** @type {number} */ r, /** @type {number} */ c) => (r + 1) * (c + 3) < 200;
  let plays = 0;
  /** @type {number[]} */
  const edges = [];
  await walkEdge(rows, columns, async (r, c) => { plays++; return truth(r, c); }, (r, edge) => { edges[r] = edge; });
  assert.ok(plays <= rows + columns, `${plays} plays`);
  for (let r = 0; r < rows; r++) for (let c = 0; c < columns; c++) assert.equal(c < edges[r], truth(r, c), `${r}, ${c}`);
  assert.equal(grows({ name: 'x', values: ['1', '2', '8'] }), true);
  assert.equal(grows({ name: 'x', values: ['1', '8', '2'] }), false);
  assert.equal(grows({ name: 'x', values: ['none', 'full'] }), false);
});

/* ---- in Chromium ---- */

/** @param {{visit: any, field: any, fromCore: any, exampleWords: string[], server: {url: string}}} site */
export function useTests({ visit, field, fromCore, exampleWords, server }) {
  const clipboard = (/** @type {any} */ page) => page.evaluate(() => navigator.clipboard.readText());
  const focusIs = (/** @type {any} */ page, /** @type {string} */ selector) =>
    page.waitForFunction((/** @type {string} */ wanted) => document.activeElement?.matches(wanted), selector);
  const palette = async (/** @type {any} */ page, /** @type {string} */ text) => {
    await page.keyboard.press('Control+k');
    await focusIs(page, '.palette input');
    await page.keyboard.type(text);
  };
  /** What a click saves. @param {any} page @param {string} item of the Export menu */
  async function saved(page, item) {
    await page.getByRole('button', { name: 'Export' }).click();
    const [download] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: item }).click()]);
    const chunks = [];
    for await (const chunk of await download.createReadStream()) chunks.push(chunk);
    return { name: download.suggestedFilename(), bytes: Buffer.concat(chunks) };
  }

  test('use: the palette sets settings and runs actions by name', () => visit(async (page) => {
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

  test('use: single letters work outside of fields only, and can be switched off', () => visit(async (page) => {
    await field(page, 'clip').focus();
    await page.keyboard.type('?');
    assert.equal(await page.locator('.keys').count(), 0);
    await field(page, 'clip').fill('');
    await page.locator('main').focus();
    for (const [key, wanted] of [['1', '.opens'], ['2', '.icicle g'], ['3', '.plot'], ['4', '[role="tab"]'], ['/', '#model']]) {
      await page.locator('main').focus();
      if (key === '4') await page.locator('#whatif').scrollIntoViewIfNeeded();
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

  test('use: undo and redo of settings; typing in one field is one step', () => visit(async (page) => {
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

  test('use: typing never writes more history than WebKit allows', () => visit(async (page) => {
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

  test('use: a number opens the tensors that it is the sum of', () => visit(async (page) => {
    const row = page.locator('.factor-table tbody tr', { hasText: 'Optimizer state' });
    const number = row.locator('.total .opens');
    const wanted = bytesOf(await number.getAttribute('data-tip'));
    await number.focus();
    await page.keyboard.press('Enter');
    await page.locator('.drawer .formula').first().waitFor();
    assert.equal(bytesOf((await page.locator('.drawer-sum small').innerText()).split(',  ')[0].split(' bytes')[0]), wanted);
    for (let more = page.locator('.drawer-body > .button'); await more.count();) await more.click();
    const parts = await page.locator('.drawer-list .item-head .bytes').evaluateAll((/** @type {any[]} */ list) => list.map((one) => one.dataset.tip));
    assert.equal(parts.map(bytesOf).reduce((/** @type {number} */ a, /** @type {number} */ b) => a + b, 0), wanted);
    /* the first formula, worked out */
    const factors = (await page.locator('.drawer .formula').first().locator('.dim b').allInnerTexts()).slice(0, -1).map(bytesOf);
    assert.equal(factors.reduce((/** @type {number} */ a, /** @type {number} */ b) => a * b, 1), bytesOf(parts[0]));
    await page.keyboard.press('Escape');
    await page.locator('.drawer').waitFor({ state: 'detached' });
    await focusIs(page, '.opens');
    await page.locator('.icicle .layer[aria-label^="Language model, "]').nth(5).click();
    await page.locator('.drawer .formula').first().waitFor();
    assert.match(await page.locator('.drawer-head').innerText(), /Language model|Vision/);
  }));

  test('use: the numbers of the table are one tab stop; arrows move', () => visit(async (page) => {
    assert.equal(await page.locator('.factor-table .opens[tabindex="0"]').count(), 1);
    await page.locator('.factor-table .opens[tabindex="0"]').focus();
    const first = await page.evaluate(() => document.activeElement?.getAttribute('aria-label'));
    await page.keyboard.press('ArrowDown');
    const below = await page.evaluate(() => document.activeElement?.getAttribute('aria-label'));
    assert.match(first, /^Parameters:/);
    assert.match(below, /^Gradients:/);
    await page.keyboard.press('ArrowLeft');
    assert.match(await page.evaluate(() => document.activeElement?.getAttribute('aria-label')), /^Gradients, Output head:/);
    assert.equal(await page.locator('.factor-table .opens[tabindex="0"]').count(), 1);
  }));

  test('use: against a baseline: changes add up, have a cause, and travel in the link', () => visit(async (page) => {
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

  test('use: the timeline zooms to events and steps through them', () => visit(async (page) => {
    await page.locator('.plot').focus();
    const readout = page.locator('.timeline-readout b').first();
    assert.equal(await readout.innerText(), 'Peak');
    await page.keyboard.press(']');
    await page.locator('.event-readout').waitFor();
    const at = bytesOf(await readout.innerText());
    const allocated = async () => bytesOf(await page.locator('.timeline-readout .bytes').first().getAttribute('data-tip'));
    const one = await allocated();
    await page.keyboard.press(']');
    await page.waitForFunction((/** @type {number} */ event) => document.querySelector('.timeline-readout b')?.textContent?.replaceAll(/[^0-9]/g, '') === String(event), at + 1);
    const words = await page.locator('.event-readout').innerText();
    const by = bytesOf(await page.locator('.event-readout .bytes').getAttribute('data-tip'));
    assert.equal(await allocated(), one + (words.startsWith('frees') ? -by : by));
    await page.keyboard.press('Enter');
    await page.locator('.drawer .formula').first().waitFor();
    assert.equal(bytesOf((await page.locator('.drawer-sum small').innerText()).split(' bytes')[0]), one + (words.startsWith('frees') ? -by : by));
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
    await page.getByRole('button', { name: 'Whole job' }).waitFor();
    const shown = (await page.locator('.timeline-tools .muted').innerText()).match(/[\d,]+/g).map(bytesOf);
    const events = bytesOf((await page.locator('#timeline-title small').innerText()).split(' ')[0]);
    assert.ok(Math.abs(shown[0] / events - 0.3) < 0.02 && Math.abs(shown[1] / events - 0.5) < 0.02, shown.join(' '));
  }));

  test('use: bars are in proportion, and the peak’s column is kept', () => visit(async (page) => {
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

  test('use: what is exported holds the result, and no formula or script', () => visit(async (page) => {
    const r = await fromCore(exampleWords);
    const json = await saved(page, 'tidemark file');
    assert.equal(json.name, 'tidemark.json');
    const read = JSON.parse(json.bytes.toString());
    assert.equal(read.result.verdict.device_bytes, r.verdict.device_bytes);
    /* the file alone is the same job */
    const again = await fromCore([], [{ name: 'tidemark.json', text: json.bytes.toString() }]);
    assert.equal(again.verdict?.device_bytes, r.verdict.device_bytes, JSON.stringify(again.diagnostics));
    const factors = (await saved(page, 'factors as CSV')).bytes.toString();
    assert.match(factors, new RegExp(`On the device,.*,${r.verdict.device_bytes},`));
    const layers = (await saved(page, 'layers as CSV')).bytes.toString();
    const sum = layers.trim().split('\n').slice(1).reduce((all, line) => all + Number(line.split(',').at(-2)), 0);
    assert.equal(sum, r.peak.allocated);
    assert.match((await saved(page, 'timeline as CSV')).bytes.toString(), new RegExp(`\\n\\d+,${r.peak.allocated},`));
    const svg = (await saved(page, 'SVG')).bytes.toString();
    assert.match(svg, /<title>LLaVA.*GiB/);
    assert.match(svg, /<desc>Made by tidemark/);
    assert.doesNotMatch(svg, /<script|onload|class=|href=|style=/);
    const png = (await saved(page, 'PNG')).bytes;
    assert.equal(png.readUInt32BE(16), 1600);
    assert.ok(png.length > 20000);
    await page.getByRole('button', { name: 'Export' }).click();
    await page.getByRole('button', { name: 'Copy as Markdown' }).click();
    await page.locator('.said').waitFor();
    await copied(page, '| Factor |');
    const markdown = await clipboard(page);
    assert.match(markdown, /\| Parameters \| \d/);
    assert.match(markdown, /Fits H100/);
    assert.match(markdown, /- `batch|- `attention/);
    assert.match(markdown, new RegExp(`${server.url}#model=`.replaceAll('.', '\\.')));
  }));

  test('use: a saved file, dropped anywhere, is the job again: title, baseline, and a model of one’s own', () => visit(async (page) => {
    await page.setInputFiles('#chooser', new URL('../cli/files/tiny/config.json', import.meta.url).pathname);
    await page.waitForFunction(() => location.hash.startsWith('#z=1.'));
    await page.locator('main').focus();
    await page.keyboard.press('c');
    await changed(page, () => field(page, 'batch').fill('3'));
    await page.locator('#compare .causes').waitFor();
    const number = await deviceBytes(page);
    const { bytes } = await saved(page, 'tidemark file');
    await visit(async (other) => {
      await changed(other, () => other.setInputFiles('#chooser', { name: 'any.json', mimeType: '', buffer: bytes }));
      await other.locator('#compare .causes').waitFor();
      assert.equal(await deviceBytes(other), number);
      assert.match(await other.locator('.job-name').innerText(), /^My run · /);
      await other.waitForFunction((/** @type {string} */ hash) => location.hash === hash, await page.evaluate(() => location.hash));
      /* written by hand, without a link: what stood in the form is not of it */
      await other.setInputFiles('#chooser', { name: 'job.json', mimeType: '', buffer: Buffer.from('{"tidemark":1,"settings":{"model":"gpt2","gpu":"t4","batch":5}}') });
      await other.locator('.job-name', { hasText: 'GPT-2' }).waitFor();
      await other.waitForFunction(() => /model=gpt2&gpu=t4&batch=5&(b\.|v=1)/.test(location.hash));
    });
  }, { at: `${server.url}#model=gpt2&gpu=t4&title=My%20run&v=1` }));

  test('use: models by name one after the other, Back and Forward through them, a reload in the middle of it', () => visit(async (page) => {
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

  test('use: two tabs have a job each; how things look is kept for the next', () => visit(async (page, { context }) => {
    const other = await context.newPage();
    await other.goto(`${server.url}#model=smollm2-135m&gpu=t4&v=1`);
    await ready(other);
    await other.locator('.top input[value="MiB"]').check();
    await other.locator('#set-batch').fill('3');
    await other.waitForFunction(() => location.hash.includes('batch=3'));
    await changed(page, () => field(page, 'batch').fill('4'));
    await page.waitForFunction(() => /model=gpt2&gpu=t4&batch=4&v=1/.test(location.hash));
    assert.match(await page.locator('.big').innerText(), /GiB/);
    await page.reload();
    await ready(page);
    assert.match(await page.locator('.big').innerText(), /MiB/);
    assert.match(page.url(), /model=gpt2&gpu=t4&batch=4/);
    assert.match(other.url(), /model=smollm2-135m&gpu=t4&batch=3/);
  }, { at: `${server.url}#model=gpt2&gpu=t4&v=1` }));

  test('use: at 400 % nothing goes sideways, whatever is open and however long the title', () => visit(async (page) => {
    const narrow = async (/** @type {string} */ state) => assert.deepEqual(await page.evaluate(() => (document.documentElement.scrollWidth <= innerWidth ? [] : [...document.body.querySelectorAll('*')].filter((one) => {
      if (one.getBoundingClientRect().right <= innerWidth) return false;
      /* What an ancestor cuts off or scrolls does not widen the page, unless it is placed outside of it. */
      const isPlaced = getComputedStyle(one).position === 'absolute';
      for (let up = one.parentElement; up && up !== document.body; up = up.parentElement) {
        if (getComputedStyle(up).overflowX !== 'visible') return isPlaced && !up.contains(/** @type {HTMLElement} */ (one).offsetParent);
      }
      return true;
    }).map((one) => `${one.getBoundingClientRect().right}: ${one.outerHTML.slice(0, 200)}`))), [], state);
    await page.locator('#compare .causes').waitFor();
    await narrow('baseline');
    await page.locator('.opens:visible').first().click();
    await page.locator('.drawer .formula').first().waitFor();
    await narrow('details');
    await page.keyboard.press('Escape');
    await page.locator('#whatif').scrollIntoViewIfNeeded();
    for (const name of ['To free memory', 'Largest that fits', 'On which cards']) {
      await page.getByRole('tab', { name }).click();
      await page.locator('.whatif tbody tr').first().waitFor();
      await narrow(name);
    }
    await page.getByRole('tab', { name: 'Heat map' }).click();
    await page.locator('.heat td:not(.wait)').first().waitFor();
    await narrow('heat map');
    for (const summary of await page.locator('.twin > summary').all()) await summary.click();
    await narrow('tables');
    await page.setInputFiles('#chooser', [new URL('../cli/files/launch/arguments.yaml', import.meta.url).pathname, new URL('../cli/files/launch/zero2.json', import.meta.url).pathname]);
    await page.locator('.file-kind', { hasText: 'DeepSpeed' }).waitFor({ state: 'attached' });
    await page.getByRole('button', { name: 'Settings' }).click();
    for (const summary of await page.locator('.file summary').all()) await summary.click();
    await narrow('files');
  }, { viewport: { width: 320, height: 256 }, at: `${server.url}#model=gpt2&gpu=t4&title=${'W'.repeat(80)}&b.batch=4&v=1` }));

  test('use: a table, a frame and a badge are copied', () => visit(async (page) => {
    await page.locator('#factors .copy-table').click();
    await copied(page, '\t');
    const rows = (await clipboard(page)).split('\n').map((/** @type {string} */ line) => line.split('\t'));
    assert.ok(rows.every((/** @type {string[]} */ row) => row.length === rows[0].length), JSON.stringify(rows));
    assert.equal(rows.at(-1).at(-2), (await page.locator('.factor-table tfoot .total').innerText()).trim());
    const share = async (/** @type {string} */ name) => {
      await page.getByRole('button', { name: 'Share' }).click();
      await page.getByRole('button', { name }).click();
    };
    await share('Copy frame');
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

  test('use: the command gives the number on the screen, and the sweep’s its table', () => visit(async (page) => {
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
    await page.locator('#whatif').scrollIntoViewIfNeeded();
    await page.getByRole('tab', { name: 'Heat map' }).click();
    const values = page.locator('.axis-field input');
    for (const [i, text] of [[0, '8,32'], [1, '512,1024,2048']]) {
      await values.nth(/** @type {number} */ (i)).fill(text);
      await values.nth(/** @type {number} */ (i)).blur();
    }
    await page.locator('.heat-state', { hasText: '6 cells played' }).waitFor({ timeout: 30000 });
    await page.getByRole('button', { name: 'Copy CSV' }).click();
    await copied(page, 'batch,');
    const table = await clipboard(page);
    await page.getByRole('button', { name: 'Copy command' }).click();
    await copied(page, 'tidemark');
    assert.equal(table, run(`${await clipboard(page)} --csv -`));
  }));

  test('use: the baseline is a line in the timeline, to the same scale, and gone with it', () => visit(async (page) => {
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
  }, { at: `${server.url}#${exampleWords.join('&')}&b.checkpointing=none&v=1` }));

  test('use: a job that runs only because cached memory is given back says so', () => visit(async (page) => {
    const r = await fromCore(exampleWords.map((word) => (word.startsWith('batch=') ? 'batch=44' : word)));
    assert.ok(r.verdict.fits && r.verdict.margin_bytes < 0 && r.verdict.retries > 0);
    const said = await page.locator('.verdict-head').innerText();
    assert.match(said, /wanted on the device at the peak/);
    assert.match(said, new RegExp(`Just fits[^]*${(-r.verdict.margin_bytes / 2 ** 30).toFixed(1)} GiB of it are cached blocks, which the allocator gives back in ${r.verdict.retries} retries`));
  }, { at: `${server.url}#${exampleWords.join('&').replace(/batch=\d+/, 'batch=44')}&v=1` }));

  test('use: over several GPUs the number is that of each', () => visit(async (page) => {
    assert.match(await page.locator('.verdict-head').innerText(), /on each of 8 GPUs at the peak[^]*besides, not counted: about .* for NCCL/);
  }, { at: `${server.url}#model=gpt2&gpu=t4&parallel.kind=zero2&parallel.dp=8&v=1` }));

  test('use: of the cards those that it runs on come first, the smallest first', () => visit(async (page) => {
    await page.locator('#whatif').scrollIntoViewIfNeeded();
    await page.getByRole('tab', { name: 'On which cards' }).click();
    await page.locator('.whatif tbody tr').first().waitFor({ timeout: 30000 });
    const rows = await page.locator('.whatif tbody tr').evaluateAll((/** @type {any[]} */ list) => list.map((row) => ({ runs: !row.querySelector('.bad'), has: Number(row.querySelector('.bytes').dataset.tip.replaceAll(/[^0-9]/g, '')) })));
    assert.ok(rows.some(({ runs }) => runs) && rows.some(({ runs }) => !runs));
    assert.deepEqual(rows, [...rows].sort((a, b) => Number(b.runs) - Number(a.runs) || a.has - b.has));
  }));

  test('use: the largest LoRA rank that fits', () => visit(async (page) => {
    await page.locator('#whatif').scrollIntoViewIfNeeded();
    await page.getByRole('tab', { name: 'Largest that fits' }).click();
    const row = page.locator('.whatif tbody tr', { hasText: 'LoRA rank' });
    await row.waitFor({ timeout: 30000 });
    const [, largest] = /adapter\.r=(\d+)/.exec(await row.getByRole('button').getAttribute('aria-label')) ?? [];
    const fits = async (/** @type {number} */ rank) => (await fromCore(['model=gpt2', 'gpu_gib=4', 'adapter=lora', `adapter.r=${rank}`])).verdict.fits;
    assert.deepEqual([await fits(Number(largest)), await fits(Number(largest) + 1)], [true, false]);
  }, { at: `${server.url}#model=gpt2&gpu_gib=4&adapter=lora&v=1` }));

  test('use: what is typed while the palette is fetched is not lost, and is no key', () => visit(async (page) => {
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
    await page.keyboard.press('Control+k');
    assert.equal(await page.locator('.palette input').inputValue(), '');
  }));

  test('use: a measured peak is compared', () => visit(async (page) => {
    const r = await fromCore(exampleWords);
    await page.locator('.twin > summary', { hasText: 'How exact is this' }).click();
    const input = page.locator('.measured input');
    await input.fill(String(r.peak.reserved));
    await page.locator('#measured-result', { hasText: 'the same, to the byte' }).waitFor();
    await input.fill('60 GiB');
    assert.match(await page.locator('#measured-result').innerText(), /% more than measured.*Nearest term/s);
    await page.getByRole('button', { name: 'Copy a report' }).click();
    await copied(page, `measured 60 GiB, predicted ${r.peak.reserved} bytes`);
    assert.match(await clipboard(page), /^tidemark \d[^]*tidemark estimate model=/);
    await input.fill('much');
    assert.match(await page.locator('#measured-result').innerText(), /Write a size/);
  }));

  test('use: a value that cannot be is answered with near ones that run', () => visit(async (page) => {
    await field(page, 'seq').fill('100');
    const offer = page.locator('.nearest .button').first();
    await offer.waitFor({ timeout: 30000 });
    await offer.click();
    await page.locator('.stale-note').waitFor({ state: 'detached' });
    assert.ok(Number(await field(page, 'seq').inputValue()) >= 576);
  }));

  test('use: a job that does not fit names the closest change that does', () => visit(async (page) => {
    await field(page, 'checkpointing').selectOption('none');
    await field(page, 'batch').fill('32');
    const apply = page.locator('.closest .button');
    await apply.waitFor({ timeout: 30000 });
    await apply.click();
    await page.locator('.verdict.is-fits, .verdict.is-close').waitFor();
  }));

  test('use: where no single change is enough, the batch that fits is named', () => visit(async (page) => {
    const apply = page.locator('.closest .button');
    await apply.waitFor({ timeout: 30000 });
    const [, batch] = /batch=(\d+)/.exec(await apply.getAttribute('aria-label')) ?? [];
    const fits = async (/** @type {number} */ value) => (await fromCore(['model=gpt2', 'gpu=t4', `batch=${value}`])).verdict.fits;
    assert.deepEqual([await fits(Number(batch)), await fits(Number(batch) + 1)], [true, false]);
    await apply.click();
    await page.locator('.verdict.is-fits, .verdict.is-close').waitFor();
  }, { at: `${server.url}#model=gpt2&gpu=t4&batch=64&v=1` }));

  test('use: a link that comes while the address is being written is not overwritten', () => visit(async (page) => {
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
  }, { at: `${server.url}#model=gpt2&gpu=t4&v=1` }));

  test('use: a long calculation can be cancelled, and the page goes on', () => visit(async (page) => {
    await page.evaluate(() => { location.hash = '#model=qwen2.5-vl-7b&gpu=h100-80&batch=1024&seq=1024&v=1'; });
    await page.locator('.computing .button').click({ timeout: 30000 });
    await page.locator('.diagnostic', { hasText: 'Cancelled' }).waitFor();
    await changed(page, () => page.evaluate(() => { location.hash = '#model=llama-2-7b&gpu=h100-80&v=1'; }));
    assert.equal(await page.locator('.diagnostic.is-warning', { hasText: 'Cancelled' }).count(), 0);
  }));

  test('use: fields say where their value is from', () => visit(async (page) => {
    assert.equal(await page.locator('[data-setting="batch"]').getAttribute('data-origin'), 'link');
    assert.match(await page.locator('[data-setting="batch"] .source').innerText(), /from link/);
    await changed(page, () => field(page, 'batch').fill('9'));
    assert.equal(await page.locator('[data-setting="batch"]').getAttribute('data-origin'), 'user');
    await changed(page, () => page.getByRole('button', { name: 'Micro-batch: back to the default' }).click());
    assert.equal(await page.locator('[data-setting="batch"]').getAttribute('data-origin'), 'default');
  }, { at: `${server.url}#model=llama-2-7b&gpu=h100-80&batch=8&v=1` }));

  test('use: printed, it is verdict, tables, assumptions and link, without controls', () => visit(async (page) => {
    await page.emulateMedia({ media: 'print' });
    for (const part of ['.verdict', '.factor-table', '.tensors', '.assumptions', '.print-only']) assert.equal(await page.locator(part).first().isVisible(), true, part);
    for (const control of ['.side', '.top-actions', '#whatif', '.timeline-tools']) assert.equal(await page.locator(control).first().isVisible(), false, control);
    assert.match(await page.locator('.print-only').innerText(), /#model=llava-1\.5-7b/);
  }));

  test('use: text of twice its size cuts nothing off, and nothing goes sideways', async () => {
    for (const width of [1440, 1024, 390]) {
      await visit(async (page) => {
        await page.evaluate(() => {
          const sizes = [...document.body.querySelectorAll('*')].filter((one) => one instanceof HTMLElement)
            .map((one) => /** @type {[HTMLElement, number]} */ ([one, parseFloat(getComputedStyle(one).fontSize)]));
          for (const [one, size] of sizes) one.style.setProperty('font-size', `${2 * size}px`, 'important');
        });
        await still(page);
        assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `sideways at ${width}`);
        const cut = await page.evaluate(() => [...document.querySelectorAll('.button, .pill, .job-name, .job-words, .big, .facts dd, label, .numbers td, h2')]
          .filter((one) => one.clientWidth > 1 && getComputedStyle(one).overflow !== 'visible' && one.scrollWidth > one.clientWidth + 1).map((one) => one.textContent));
        assert.deepEqual(cut, [], `${width}`);
        const [total, share] = await page.evaluate(() => ['.total', '.share'].map((cell) => document.querySelector(`.factor-table tbody ${cell}`)?.getBoundingClientRect()));
        assert.ok(total.right <= share.left + 1, 'the columns that stay do not cover each other');
        const [header, side] = await page.evaluate(() => ['.top', '.columns'].map((one) => document.querySelector(one)?.getBoundingClientRect()));
        assert.ok(header.bottom <= side.top + 1, 'the header covers nothing');
      }, { viewport: { width, height: 900 } });
    }
  });

  test('use: larger text and spacing cut nothing off', () => visit(async (page) => {
    await page.evaluate(() => {
      const sheet = new CSSStyleSheet();
      sheet.replaceSync('* { line-height: 1.5 !important; letter-spacing: 0.12em !important; word-spacing: 0.16em !important; } p { margin-bottom: 2em !important; }');
      document.adoptedStyleSheets = [sheet];
    });
    assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), 640);
    const cut = await page.evaluate(() => [...document.querySelectorAll('.button, .pill, .job-name, .field-error, .big')]
      .filter((one) => one.clientWidth > 0 && (one.scrollWidth > one.clientWidth + 1 || one.scrollHeight > one.clientHeight + 2)).map((one) => one.textContent));
    assert.deepEqual(cut, []);
  }, { viewport: { width: 640, height: 450 } }));

  test('use: a whole session by keyboard', () => visit(async (page) => {
    await page.keyboard.press('/');
    await page.keyboard.type('llama-2-7b');
    await changed(page, () => page.keyboard.press('Enter'));
    await palette(page, 'micro batch');
    await page.keyboard.press('Enter');
    await focusIs(page, '#set-batch');
    await changed(page, () => page.keyboard.press('ArrowUp'));
    await page.keyboard.press('Escape');
    await page.locator('main').focus();
    await page.keyboard.press('2');
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('Enter');
    await page.locator('.drawer .formula').first().waitFor();
    await page.keyboard.press('Escape');
    await page.keyboard.press('3');
    await page.keyboard.press('ArrowRight');
    await page.locator('#whatif').scrollIntoViewIfNeeded();
    await page.locator('[role="tab"]').first().waitFor();
    await page.keyboard.press('4');
    await page.locator('.whatif .button').first().waitFor({ timeout: 30000 });
    for (let i = 0; i < 3 && !(await page.evaluate(() => document.activeElement?.matches('.whatif .button'))); i++) await page.keyboard.press('Tab');
    await focusIs(page, '.whatif .button');
    const covered = await page.evaluate(() => {
      const at = /** @type {Element} */ (document.activeElement);
      const box = at.getBoundingClientRect();
      const top = document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2);
      return !at.contains(top) && getComputedStyle(at).outlineStyle !== 'none';
    });
    assert.equal(covered, false);
    await changed(page, () => page.keyboard.press('Enter'));
    await page.locator('main').focus();
    await page.keyboard.press('s');
    await page.locator('.said').waitFor();
    assert.match(await clipboard(page), /#model=llama-2-7b/);
  }));

  test('use: what a screen reader is told of the result', () => visit(async (page) => {
    const said = await page.locator('main').ariaSnapshot();
    for (const line of [/heading "By factor and module/, /rowheader "Parameters"/, /columnheader "Total"/, /img ".*gibibytes used of .* on H100/, /slider "Memory over the job"/,
      /group "\d+ parts\. Arrows move/, /heading "Assumptions/]) assert.match(said, line);
  }));

  test('use: on a phone the verdict stays in sight, in the settings too', () => visit(async (page) => {
    await page.evaluate(() => scrollTo(0, 900));
    assert.equal(await page.locator('.sticky-verdict').evaluate((/** @type {Element} */ one) => one.getBoundingClientRect().top < 120), true);
    await page.getByRole('button', { name: 'Settings' }).click();
    assert.match(await page.locator('.sheet-verdict').innerText(), /GiB\s+Fits/);
    await page.getByRole('button', { name: 'Done' }).click();
    await ready(page);
  }, { viewport: PHONE }));
}
