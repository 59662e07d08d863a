// SPDX-License-Identifier: Apache-2.0
/* What people come for, each by the keyboard alone, with at most 12 actions (a key that is pressed, a text that is typed, a file that is chosen) and in at most 40 s of somebody's
 * time. That time is worked out, and so the same on every machine: by the keystroke-level model of Card, Moran and Newell (1980). */
import assert from 'node:assert/strict';
import { copied, deviceBytes, test, violations } from './harness.mjs';
import { recorded } from './site.mjs';

const MOST_ACTIONS = 12;
const MOST_S = 40;
const KEY_S = 0.28; /* of an average typist */
const THOUGHT_S = 1.35; /* before each action */

/** @param {import('./site.mjs').Site} site */
export default function ({ visit, core, fromCore, focusIs, clipboard, LLAMA }) {
  /** @typedef {{press: (key: string) => Promise<void>, type: (text: string) => Promise<void>, choose: (file: any) => Promise<void>,
   *   model: (name: string) => Promise<void>, find: (text: string, first: RegExp) => Promise<void>}} Hands */

  /** @param {string} name @param {string} at @param {(page: any, hands: Hands) => Promise<any>} act */
  const task = (name, at, act) => test(`tasks: ${name}`, () => visit(async (page) => {
    let count = 0;
    let keys = 0;
    const press = async (/** @type {string} */ key) => { count++; keys += key.split('+').length; await page.keyboard.press(key); };
    const type = async (/** @type {string} */ text) => { count++; keys += text.length; await page.keyboard.type(text); };
    const hands = {
      press, type,
      async choose(/** @type {any} */ file) {
        const opened = page.waitForEvent('filechooser');
        count += 2; /* the key, and the file in the dialog, by its name */
        keys += 1 + (typeof file === 'string' ? file.split('/').at(-1) ?? '' : file.name).length;
        for (let chooser = null; !chooser;) { /* only after a gesture, which a synthetic key is late in being */
          await page.keyboard.press('o');
          chooser = await Promise.race([opened, page.waitForTimeout(1000)]);
          await chooser?.setFiles(file);
        }
      },
      async model(/** @type {string} */ wanted) {
        await press('/');
        await focusIs(page, '#model');
        await type(wanted);
        await page.locator('#model-list .at').waitFor();
        await press('Enter');
        await page.waitForFunction((/** @type {string} */ one) => location.hash.includes(`model=${one}`), wanted);
      },
      async find(/** @type {string} */ text, /** @type {RegExp} */ first) {
        await press('Control+k');
        await focusIs(page, '.palette input');
        await type(text);
        await page.locator('.palette .at').filter({ hasText: first }).waitFor();
        await press('Enter');
        await page.locator('.palette').waitFor({ state: 'detached' });
      },
    };
    await act(page, hands);
    const seconds = count * THOUGHT_S + keys * KEY_S;
    assert.ok(count <= MOST_ACTIONS && seconds <= MOST_S, `${count} actions, ${seconds.toFixed(1)} s`);
    assert.deepEqual(await violations(page), []);
  }, { at }));

  /** The words that the address has. @param {any} page @param {string[]} words */
  const has = (page, words) => page.waitForFunction((/** @type {string[]} */ wanted) => wanted.every((word) => location.hash.slice(1).split('&').includes(word)), words);

  task('QLoRA of Qwen2.5-7B on a 4090, and the largest batch', '', async (page, { model, find }) => {
    await model('qwen2.5-7b');
    await find('qlora', /QLoRA/);
    await find('gpu 4090', /RTX 4090/);
    await has(page, ['gpu=rtx-4090', 'adapter=lora', 'quant=nf4']);
    await find('largest that fits', /largest that fits/);
    await focusIs(page, '#tab-fit');
    const row = page.locator('.whatif tbody tr', { has: page.getByRole('rowheader', { name: 'Micro-batch' }) });
    const settings = ['model=qwen2.5-7b', 'gpu=rtx-4090', 'adapter=lora', 'quant=nf4'];
    const { rows: [{ largest }] } = (await core()).call({ call: 'fit', settings, knob: 'batch' });
    await row.locator('td').nth(1).filter({ hasText: new RegExp(`^${largest || 'none'}$`) }).waitFor();
  });

  task('Llama-3.1-8B served on an L40S: requests of 8k', '', async (page, { model, find }) => {
    await model('llama-3.1-8b');
    await find('serve', /Job: Serve/);
    await find('gpu l40s', /L40S/);
    await has(page, ['mode=serve', 'gpu=l40s']);
    const { serving } = await fromCore(['model=llama-3.1-8b', 'mode=serve', 'gpu=l40s']);
    const { fit } = serving.requests.find((/** @type {any} */ one) => one.tokens === 8192);
    await page.locator('.serving-requests tr', { hasText: '8,192' }).filter({ hasText: String(fit) }).waitFor();
  });

  task('70B on 8 and on 64 H100', '', async (page, { model, find }) => {
    await model('llama-3.1-70b');
    for (const gpus of [8, 64]) {
      await find(`data parallel ${gpus}`, new RegExp(`Data parallel to ${gpus}`));
      await has(page, [`parallel.dp=${gpus}`]);
      const { verdict } = await fromCore(['model=llama-3.1-70b', 'gpu=h100-80', 'checkpointing=full', 'parallel.kind=fsdp2', 'parallel.meta_init=true', `parallel.dp=${gpus}`]);
      await page.locator(`.big .bytes[data-tip^="${verdict.device_bytes.toLocaleString('en')} "]`).waitFor();
      assert.match(await page.locator('.verdict').innerText(), new RegExp(`on each of ${gpus} GPUs`));
    }
  });

  task('why a job does not fit, and the change that lasts', '#model=llama-3.2-3b&gpu=rtx-4090&batch=1&seq=2048&v=1', async (page, { press }) => {
    await page.locator('.oom', { hasText: 'Stops in step' }).waitFor();
    await page.locator('.closest .button').waitFor();
    await press('Tab');
    await focusIs(page, '.skip');
    await press('Enter');
    await focusIs(page, '#result');
    for (let i = 0; i < 3 && !(await page.evaluate(() => document.activeElement?.matches('.closest .button'))); i++) await press('Tab');
    await focusIs(page, '.closest .button');
    await press('Enter');
    await page.locator('.verdict.is-fits').waitFor();
    const r = await page.locator('.big .bytes').getAttribute('data-tip');
    assert.ok(Number(r.replaceAll(/[^0-9]/g, '')) <= 0.97 * (await fromCore(['model=llama-3.2-3b', 'gpu=rtx-4090'])).verdict.gpu_bytes, 'with room to spare');
  });

  task('two plans are compared and shared', '#model=llama-3.2-1b&gpu=rtx-4090&batch=4&seq=1024&v=1', async (page, { press, find }) => {
    const before = await deviceBytes(page);
    await press('c');
    await page.locator('#compare').waitFor();
    await find('checkpointing full', /Checkpointing: full/);
    await page.locator('.causes', { hasText: 'Checkpointing' }).waitFor();
    await press('s');
    await copied(page, 'checkpointing=full');
    const link = await clipboard(page);
    await visit(async (other) => {
      await other.locator('.causes', { hasText: 'Checkpointing' }).waitFor();
      const foot = other.locator('#compare tfoot').first().locator('.bytes').first();
      assert.equal(Number((await foot.getAttribute('data-tip')).replaceAll(/[^0-9]/g, '')), before);
    }, { at: link });
  });

  task('what was alive at the peak of a snapshot, by stack', '', async (page, { press, choose }) => {
    await choose(recorded('snapshot-plain.pickle.gz'));
    await page.locator('#flame').waitFor();
    assert.match(await page.locator('#flame-title').innerText(), /the peak/);
    await press('2');
    await focusIs(page, '.flame');
    const [all, ...frames] = [await page.locator('#flame .readout .bytes').getAttribute('data-tip')];
    for (let i = 0; i < 3; i++) {
      const from = await page.locator('.flame').getAttribute('aria-activedescendant');
      await press('ArrowDown');
      await page.waitForFunction((/** @type {string} */ was) => document.querySelector('.flame')?.getAttribute('aria-activedescendant') !== was, from);
      frames.push(await page.locator('#flame .readout b').innerText());
    }
    assert.ok(frames.some((text) => /snap\.py/.test(text)), frames.join(', '));
    assert.equal(all, await page.locator('.recording-facts .bytes, .facts .bytes').first().getAttribute('data-tip'));
  });

  task('an own config.json', '', async (page, { choose }) => {
    await choose({ name: 'config.json', mimeType: 'application/json', buffer: Buffer.from(LLAMA) });
    await page.locator('.file', { hasText: 'config.json' }).waitFor();
    const { verdict } = await fromCore(['gpu=h100-80'], [{ name: 'config.json', text: LLAMA }]);
    await page.locator(`.big .bytes[data-tip^="${verdict.device_bytes.toLocaleString('en')} "]`).waitFor();
  });

  task('a picture for a document', '', async (page, { find }) => {
    const [download] = await Promise.all([page.waitForEvent('download'), find('picture svg', /picture as SVG/)]);
    const pieces = [];
    for await (const piece of await download.createReadStream()) pieces.push(piece);
    const text = Buffer.concat(pieces).toString();
    assert.match(text, /^<svg/);
    for (const part of ['LLaVA', 'GiB', 'Activations', 'llava-1.5-7b']) assert.ok(text.includes(part), part);
  });
}
