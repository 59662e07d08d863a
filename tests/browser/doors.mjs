/* The ways into the page and out of it, in Chromium: recordings, files, the single file, offline. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { gzipSync } from 'node:zlib';
import { deviceBytes, openContext, ready, test } from './harness.mjs';
import { serve } from '../../web/serve.mjs';

const recorded = (/** @type {string} */ name) => new URL(`../recordings/${name}`, import.meta.url).pathname;

/** @param {string} folder the built page @param {any} browser @returns {Promise<() => void>} closes what was opened */
export async function doorTests(folder, browser) {
  const server = await serve(folder);

  /** @param {(page: any, more: Awaited<ReturnType<typeof openContext>>) => any} use
   * @param {Parameters<typeof openContext>[1] & {at?: string}} [options] */
  async function visit(use, { at = server.url, ...options } = {}) {
    const opened = await openContext(browser, options);
    try {
      await opened.page.goto(at);
      await ready(opened.page);
      await use(opened.page, opened);
      assert.deepEqual(opened.problems, []);
      assert.deepEqual(opened.requests.filter((url) => !/^(data|blob):/.test(url) && new URL(url).origin !== new URL(server.url).origin), []);
    } finally {
      await opened.context.close();
    }
  }
  const choose = (/** @type {any} */ page, /** @type {any} */ files) => page.setInputFiles('#chooser', files);
  const bytesOf = async (/** @type {any} */ place) => Number((await place.getAttribute('data-tip')).replaceAll(/[^0-9]/g, ''));

  /* ---- recordings ---- */

  test('recordings: a snapshot is opened, played on a card, with other options, and closed', () => visit(async (page, { requests }) => {
    const before = await deviceBytes(page);
    assert.equal(requests.filter((url) => url.includes('recordings-')).length, 0, 'not before it is asked for');
    await choose(page, recorded('snapshot-expand.pickle.gz'));
    await page.getByText('With other options').waitFor();
    assert.equal(await bytesOf(page.locator('.big .bytes')), 358612992);
    assert.match(await page.locator('.recording-live').innerText(), /snap\.py:11 train/);
    await page.locator('.recording-live summary').first().click();
    assert.match(await page.locator('.frames').first().innerText(), /linear\.py:134 forward/);
    await page.locator('#recorded-gpu').fill('t4');
    await page.keyboard.press('Enter');
    await page.getByText('Runs on T4 16GB').waitFor();
    await page.getByRole('button', { name: 'Play with PyTorch’s defaults' }).click();
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

  test('recordings: each kind is known by its content, under any name', () => visit(async (page) => {
    for (const [path, says] of /** @type {[string, RegExp][]} */ ([[recorded('trace-cpu.json.gz'), /an estimate of the run on a GPU/],
      [recorded('trace-cuda.json.gz'), /torch\.profiler trace/], [recorded('snapshot-streams.pickle.gz'), /snapshot/],
      [new URL('../oracle/events/events-oom.jsonl.gz', import.meta.url).pathname, /event/i]])) {
      await choose(page, { name: 'file.bin', mimeType: '', buffer: readFileSync(path) });
      await page.locator('.job-words', { hasText: says }).waitFor();
    }
  }));

  test('recordings: cut and damaged ones are played up to the break, and say so', () => visit(async (page) => {
    const whole = readFileSync(recorded('snapshot-plain.pickle.gz'));
    await choose(page, { name: 'cut.pickle.gz', mimeType: '', buffer: whole.subarray(0, 6000) });
    await page.locator('.diagnostic', { hasText: /cut short or damaged/ }).waitFor();
    assert.ok(await bytesOf(page.locator('.big .bytes')) > 0);
  }));

  test('recordings: what is none is named, and the job stays', () => visit(async (page) => {
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

  test('a core that traps is survived: a new worker answers the next question', () => visit(async (page) => {
    const [worker] = page.workers();
    await worker.evaluate(() => { globalThis.onmessage = () => { throw new Error('unreachable'); }; });
    await page.locator('#set-batch').fill('7');
    await page.locator('.diagnostic', { hasText: 'stopped unexpectedly' }).waitFor();
    await page.locator('#set-batch').fill('8');
    await page.locator('.diagnostic', { hasText: 'stopped unexpectedly' }).waitFor({ state: 'detached' });
    await page.waitForFunction(() => /batch=8/.test(location.hash));
  }));

  return () => { server.close(); };
}
