// SPDX-License-Identifier: Apache-2.0
/* What leaves the page for a document: pictures and reports that stand alone, with title, legend, units and link; and the frame as the README has it. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { DESKTOP, openContext, PHONE, test, violations } from './harness.mjs';
import { recorded } from './site.mjs';

const SERVED = ['model=llama-3.1-8b', 'gpu=l40s', 'mode=serve'];
const MISSES = ['model=qwen2.5-7b', 'gpu=rtx-4090'];
const EDGE = 1; /* a point of rounding */

/** @param {import('./site.mjs').Site} site */
export default function ({ browser, server, visit, saved, choose, fromCore, tab }) {
  /** What a file looks like where nothing of the page is: in a context of its own, without scripts and away from every host. @param {Buffer} bytes @param {string} type
   * @param {(page: any) => any} use */
  async function alone(bytes, type, use) {
    const { context, page, requests, problems } = await openContext(browser, { viewport: { width: 1600, height: 1200 } });
    await page.route('http://document.test/', (/** @type {any} */ route) => route.fulfill({ contentType: type, body: bytes }));
    await page.goto('http://document.test/');
    await use(page);
    assert.deepEqual(requests, ['http://document.test/'], 'it asks for nothing');
    assert.deepEqual(problems, []);
    await context.close();
  }

  /** All texts within the sheet, none over another. @param {any} page */
  async function isDrawnWhole(page) {
    const boxes = await page.evaluate(() => [...document.querySelectorAll('svg text')].filter((one) => one.textContent?.trim()).map((one) => {
      const { left, right, top, bottom } = one.getBoundingClientRect();
      return { text: one.textContent ?? '', left, right, top, bottom };
    }));
    const sheet = await page.evaluate(() => document.querySelector('svg')?.getBoundingClientRect().toJSON());
    assert.ok(boxes.length > 20);
    assert.deepEqual(boxes.filter((/** @type {any} */ box) => box.left < sheet.left - EDGE || box.right > sheet.right + EDGE || box.bottom > sheet.bottom + EDGE), [], 'nothing is cut');
    for (const [i, a] of boxes.entries()) {
      for (const b of boxes.slice(i + 1)) {
        const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        assert.ok(across < 2 || down < (a.bottom - a.top) * 0.4, `"${a.text}" over "${b.text}"`);
      }
    }
  }

  for (const [where, viewport] of /** @type {[string, any][]} */ ([['desk', DESKTOP], ['phone', PHONE]])) {
    for (const words of [SERVED, MISSES]) {
      test(`a picture stands alone: ${words.join(' ')}, ${where}`, () => visit(async (page) => {
        const { bytes } = await saved(page, 'picture as SVG');
        const r = await fromCore(words);
        await alone(bytes, 'image/svg+xml', async (drawn) => {
          const said = (await drawn.locator('text').allTextContents()).join('\n');
          for (const part of [r.model.title, r.gpu.title, 'GiB allocated; dashed: reserved', 'On the device', ...(r.serving ? ['KV cache', 'Weights'] : ['Parameters', 'Gradients', 'CUDA context'])]) {
            assert.ok(said.includes(part), `${part} in ${said}`);
          }
          assert.ok(said.replaceAll('\n', '').includes(`${page.url().split('#')[0]}#${words[0]}`), 'the address as it is, in lines');
          assert.equal(await drawn.locator('[class], script, foreignObject').count(), 0, 'no style sheet, no script');
          await isDrawnWhole(drawn);
          const colours = await drawn.evaluate(() => [...document.querySelectorAll('rect[rx="2.5"]')].map((one) => one.getAttribute('fill')));
          assert.ok(colours.length >= 5 && !colours.includes('none') && new Set(colours).size >= colours.length - 1, `a colour for each row, but for what is reserved: ${colours}`);
        });
      }, { at: `#${words.join('&')}&v=1`, viewport }));
    }
  }

  test('a picture as PNG has the shape of the drawing', () => visit(async (page) => {
    const { bytes } = await saved(page, 'picture as PNG');
    assert.equal(bytes.readUInt32BE(16), 1600);
    assert.ok(bytes.readUInt32BE(20) > 600, 'not cut');
  }));

  test('a recording is a picture and a report as well', () => visit(async (page) => {
    await choose(page, recorded('snapshot-plain.pickle.gz'));
    await page.locator('#flame .flame svg text').first().waitFor();
    const { bytes } = await saved(page, 'picture as SVG');
    await alone(bytes, 'image/svg+xml', async (drawn) => {
      const said = (await drawn.locator('text').allTextContents()).join('\n');
      for (const part of ['snapshot-plain.pickle.gz', 'reserved at most', 'MiB allocated; dashed: reserved', 'By allocation, MiB', 'snap.py:11 train', 'the peak', 'tidemark replay']) assert.ok(said.includes(part), `${part} in ${said}`);
    });
    const { bytes: html } = await saved(page, 'report');
    await alone(html, 'text/html', async (read) => {
      assert.match(await read.locator('body').innerText(), /snapshot-plain[^]*smallest device[^]*Live at the peak[^]*snap\.py[^]*tidemark replay/);
    });
  }));

  test('a report is one file: verdict, picture, every table, the command and the link', () => visit(async (page) => {
    await page.keyboard.press('c');
    await page.locator('#set-batch').fill('8');
    await page.locator('#compare .causes').waitFor();
    const { name, bytes } = await saved(page, 'report');
    assert.equal(name, 'tidemark-report.html');
    const link = page.url();
    const r = await fromCore(['model=llava-1.5-7b', 'gpu=h100-80', 'batch=8', 'seq=1024', 'freeze=vision_tower', 'checkpointing=full']);
    await alone(bytes, 'text/html; charset=utf-8', async (read) => {
      const text = await read.locator('body').innerText();
      for (const part of ['LLaVA-1.5 7B', 'Fits H100', 'What uses the memory, GiB', 'Optimizer state', 'Against the baseline', 'Settings, and those of the baseline', 'Largest tensors', 'Assumptions', 'tidemark estimate']) {
        assert.ok(text.includes(part), part);
      }
      assert.equal(await read.locator('tfoot td[title]').last().getAttribute('title'), `${r.verdict.device_bytes.toLocaleString('en')} bytes`);
      assert.equal(await read.locator('footer a').getAttribute('href').then((/** @type {string} */ to) => to.split('#')[0]), link.split('#')[0]);
      assert.match(await read.locator('footer a').getAttribute('href'), /batch=8.*b\.batch=16|b\.batch=16/);
      assert.ok(await read.locator('svg text').count() > 20);
      assert.deepEqual(await violations(read), []);
      await read.setViewportSize(PHONE);
      assert.ok(await read.evaluate(() => document.querySelector('h1').getBoundingClientRect().right <= innerWidth));
    });
  }));

  test('a report of a server has its flags, and of a pipeline each kind of rank', async () => {
    for (const [at, ...said] of [['model=llama-3.1-8b&mode=serve&gpu=l40s', '<pre>vllm serve meta-llama/Llama-3.1-8B</pre>', 'Requests that fit at once'],
      ['model=llama-3.2-1b&gpu=h100-80&parallel.kind=megatron&parallel.pp=2&parallel.stage_layers=6,10', '<h2>Ranks, GiB</h2>', '<td>6</td>', '<td>10</td>']]) {
      await visit(async (page) => {
        const html = (await saved(page, 'report')).bytes.toString();
        for (const one of said) assert.ok(html.includes(one), `${at}: ${one}`);
      }, { at: `#${at}&v=1` });
    }
  });

  test('what is in a report is text, whatever the job says', () => visit(async (page) => {
    const { bytes } = await saved(page, 'report');
    await alone(bytes, 'text/html; charset=utf-8', async (read) => {
      assert.equal(await read.locator('script, img, iframe').count(), 0);
      assert.ok((await read.locator('body').innerText()).includes('<img src=x onerror=alert(1)>'));
    });
  }, { at: `#model=gpt2&gpu=t4&title=${encodeURIComponent('<img src=x onerror=alert(1)>')}&v=1` }));

  test('the frame of the README is whole in its size, and what does not fit too', async () => {
    const [, source, wide, high] = /<iframe src="[^"]*\/(embed\.html[^"]*)"[^>]*?width="(\d+)" height="(\d+)"/s.exec(readFileSync(new URL('../../web/README.md', import.meta.url), 'utf8')) ?? [];
    for (const at of [source, `embed.html#${MISSES.join('&')}&v=1`, `embed.html#${SERVED.join('&')}&v=1`]) {
      const { context, page } = await openContext(browser, { viewport: { width: Number(wide), height: Number(high) } });
      await page.goto(`${server.url}${at}`);
      await page.locator('.big').waitFor();
      assert.equal(await page.locator('.verdict button').count(), 0, 'nothing is changed in a frame');
      if (at === source) await page.locator('.verdict.is-fits').waitFor();
      assert.ok(await page.evaluate(() => document.documentElement.scrollHeight <= innerHeight), `${at} is cut`);
      await context.close();
    }
  });

  const STAGED = ['model=llama-3.1-70b', 'gpu=h100-80', 'parallel.kind=megatron', 'parallel.tp=2', 'parallel.pp=4', 'parallel.dp=8'];

  /** What reaches past the edge of the page, but for what lies in a part that scrolls. @param {any} page */
  const wider = (page) => page.evaluate(() => [...document.querySelectorAll('main *')].filter((one) => {
    const box = one.getBoundingClientRect();
    const around = one.closest('.scroll');
    return box.width > 0 && box.right > innerWidth + 1 && !(around && getComputedStyle(around).overflowX !== 'visible');
  }).map((one) => `${one.localName}.${one.getAttribute('class')}: ${one.textContent?.slice(0, 40)}`).slice(0, 5));

  const labelsKeepApart = async (/** @type {any} */ page) => {
    await page.locator('.plot .peak-text').waitFor();
    const [peak, limit] = await page.evaluate(() => ['.peak-text', '.limit-text'].map((one) => document.querySelector(`.plot ${one}`)?.getBoundingClientRect()));
    assert.ok(peak.right < limit.left || limit.right < peak.left || peak.top > limit.bottom - 2 || peak.bottom < limit.top + 2, `${JSON.stringify(peak)} ${JSON.stringify(limit)}`);
  };

  test('nothing is cut on paper', () => visit(async (page) => {
    await page.locator('.layout-ranks tbody tr').nth(3).waitFor();
    await page.emulateMedia({ media: 'print' });
    assert.deepEqual(await wider(page), []);
  }, { at: `#${STAGED.join('&')}&v=1`, viewport: { width: 794, height: 1123 } }));

  test('on a phone each rank says what it needs without scrolling, and Compare is at hand', () => visit(async (page) => {
    await page.locator('.layout-ranks tbody tr').nth(3).waitFor();
    assert.deepEqual(await wider(page), []);
    const rows = await page.locator('.layout-ranks tbody tr').evaluateAll((/** @type {Element[]} */ list) => list.map((row) => row.children[3].getBoundingClientRect().right <= innerWidth - 12));
    assert.deepEqual(rows, rows.map(() => true));
    assert.deepEqual(await page.locator('.layout-ranks tbody th small:first-of-type').allInnerTexts(), ['18 layers', '22 layers', '22 layers', '18 layers']);
    await labelsKeepApart(page);
    await page.getByRole('button', { name: 'Compare' }).click();
    await page.locator('#compare').waitFor();
    assert.deepEqual(await violations(page, ['.top', '#layout']), []);
    assert.match(await page.locator('.job-words').innerText(), /parameters on rank 16/);
  }, { at: `#${STAGED.join('&')}&parallel.stage_layers=18,22,22,18&v=1`, viewport: PHONE }));

  test('the labels of the peak and of the GPU’s line keep apart, wherever the peak is', () => visit((page) => labelsKeepApart(page), { at: `#${STAGED.join('&')}&v=1` }));

  test('the values of a heat map’s axes are not cut', () => visit(async (page) => {
    await tab(page, 'Heat map');
    await page.locator('.axis-field input').nth(1).waitFor();
    assert.deepEqual(await page.locator('.axis-field input').evaluateAll((/** @type {HTMLInputElement[]} */ list) => list.filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.value)), []);
  }));

  test('the label of a part of the bar is beside the line of the GPU, not under it', () => visit(async (page) => {
    for (const bytes of ['20', '23.5', '30', '45', '60']) {
      await page.evaluate((/** @type {string} */ gib) => { location.hash = `#model=qwen2.5-7b&gpu_gib=${gib}&v=1`; }, bytes);
      await page.locator('.bar-gpu', { hasText: Number(bytes).toFixed(1) }).waitFor();
      const struck = await page.evaluate(() => {
        const line = /** @type {Element} */ (document.querySelector('.bar-limit')).getBoundingClientRect();
        return [...document.querySelectorAll('.bar .on')].filter((one) => { const box = one.getBoundingClientRect(); return box.left < line.right && box.right > line.left; }).map((one) => one.textContent);
      });
      assert.deepEqual(struck, [], bytes);
    }
  }, { at: `#${MISSES.join('&')}&v=1` }));

  test('a GPU for a server is applied as the core found it: cut over so many, with the requests it holds', () => visit(async (page) => {
    await tab(page, 'GPUs that fit');
    const row = page.locator('.whatif tbody tr', { hasText: 'T4 16GB' });
    await row.filter({ hasText: 'on 4' }).waitFor();
    const requests = (await row.locator('[data-label="requests at once"]').innerText()).replaceAll(',', '');
    await row.getByRole('button', { name: 'Apply T4 16GB' }).click();
    await page.waitForFunction(() => location.hash.includes('tensor_parallel_size=4') && location.hash.includes('gpu=t4'));
    await page.locator('.verdict.is-fits').waitFor();
    assert.ok(Number(requests) > 0);
    assert.deepEqual(await page.locator('.whatif-panel [role="tab"], .tabs [role="tab"]').allInnerTexts(), ['GPUs that fit', 'Heat map'], 'no batch and no saving of a server');
  }, { at: `#${SERVED.join('&')}&v=1` }));
}
