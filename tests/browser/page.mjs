// SPDX-License-Identifier: Apache-2.0
/* The answer and the job, in Chromium: what is there before anything runs, what is chosen, what is said of it. */
import assert from 'node:assert/strict';
import { EXAMPLES } from '../../web/src/example.js';
import { changed, copied, deviceBytes, ready, say, test, violations } from './harness.mjs';

/** @param {import('./site.mjs').Site} site */
export default function ({ visit, field, fragmentOf, fromCore, exampleWords, server, clipboard, drop, LLAMA, core }) {
  /* ---- the first answer ---- */

  test('without scripts the example’s numbers and the command can be read', () => visit(async (page) => {
    const text = await page.locator('body').innerText();
    const r = await fromCore(exampleWords);
    assert.match(text, new RegExp(`${(r.verdict.device_bytes / 2 ** 30).toFixed(1)}\\s*GiB`));
    assert.match(text, /tidemark estimate model=llava-1\.5-7b/);
    assert.match(text, /Nothing is sent, unless you choose to fetch a model’s config\.json from huggingface\.co\./);
  }, { javaScript: false }));

  test('it opens on the example with the core’s own number', () => visit(async (page) => {
    const r = await fromCore(exampleWords);
    assert.equal(await deviceBytes(page), r.verdict.device_bytes);
    await page.waitForFunction((/** @type {string} */ link) => location.hash === `#${link}`, r.link);
    const times = await page.evaluate(() => ({
      first: performance.getEntriesByName('tidemark-first-answer')[0].startTime,
      load: /** @type {any} */ (performance.getEntriesByType('navigation')[0]).loadEventEnd,
    }));
    say(`first answer ${Math.round(times.first)} ms after navigation, ${Math.round(times.first - times.load)} ms after load`);
  }));

  test('factors and parts in the table sum to the peak', () => visit(async (page) => {
    const bytes = (/** @type {string} */ text) => Number(text.replaceAll(/[^0-9]/g, ''));
    const rows = await page.locator('.factor-table tbody:first-of-type tr').evaluateAll((/** @type {any[]} */ list) =>
      list.map((row) => row.querySelector('.total .bytes').dataset.tip));
    const total = await page.locator('.factor-table .sums tr:first-child .total .bytes').getAttribute('data-tip');
    assert.equal(rows.map(bytes).reduce((/** @type {number} */ a, /** @type {number} */ b) => a + b, 0), bytes(total));
    assert.ok(rows.length >= 3);
  }));

  for (const job of ['model=sd3-medium&gpu=h100-80', 'model=qwen3-8b&gpu=h100-80&trainer=grpo&parallel.kind=zero3&parallel.dp=8']) {
    test(`no column of the table is cut: ${job}`, () => visit(async (page) => {
      const { inner, outer } = await page.locator('.scroll:has(.factor-table)').evaluate((/** @type {any} */ box) => ({ inner: box.scrollWidth, outer: box.clientWidth }));
      assert.ok(inner <= outer, `${inner} of ${outer} px`);
      assert.equal(/grpo/.test(await page.locator('.job-words').innerText()), /grpo/.test(job));
    }, { at: `#${job}&v=1` }));
  }

  /* ---- the job ---- */

  test('pick a model by keyboard', () => visit(async (page) => {
    await page.locator('#model').focus();
    await page.keyboard.type('llama-2-7b');
    await changed(page, () => page.keyboard.press('Enter')); /* which waits for the list */
    const title = await page.locator('.job-name').innerText();
    assert.match(title, /llama.?2.?7b/i);
    await page.waitForFunction(() => location.hash.startsWith('#model=llama-2-7b'));
    assert.doesNotMatch(await fragmentOf(page), /freeze/);
    const r = await fromCore((await fragmentOf(page)).split('&').filter((/** @type {string} */ w) => w !== 'v=1'));
    assert.equal(await deviceBytes(page), r.verdict.device_bytes);
  }));

  test('a name that is typed whole is the first that is offered', () => visit(async (page) => {
    for (const [picker, name] of [['model', 'gpt2'], ['gpu', 'a100-40']]) {
      await page.locator(`#${picker}`).focus();
      await page.keyboard.type(name);
      await page.keyboard.press('Enter');
      await page.waitForFunction((/** @type {string} */ word) => location.hash.slice(1).split('&').includes(word), `${picker}=${name}`);
    }
  }));

  test('pick a model with the mouse, then Back', () => visit(async (page) => {
    const before = await deviceBytes(page);
    await page.locator('#model').click();
    await changed(page, () => page.getByRole('option').filter({ hasText: /^(Distil)?GPT-?2\b/i }).first().click());
    await page.waitForFunction(() => /model=(distil)?gpt2/.test(location.hash));
    await changed(page, () => page.goBack());
    assert.equal(await deviceBytes(page), before);
    assert.match(await fragmentOf(page), /^model=llava-1\.5-7b&/);
  }));

  test('Back leads to a job whose link was still to be written', () => visit(async (page) => {
    const before = await deviceBytes(page);
    await page.evaluate(() => { /* in one task: no timer runs between */
      const batch = /** @type {HTMLInputElement} */ (document.getElementById('set-batch'));
      batch.value = '8';
      batch.dispatchEvent(new Event('input', { bubbles: true }));
      const reset = [...document.querySelectorAll('button')].find((one) => one.textContent === 'Reset to defaults');
      reset?.click();
    });
    await page.waitForFunction(() => location.hash.startsWith('#model=') && !/batch/.test(location.hash));
    await page.goBack();
    await page.waitForFunction(() => /batch=8\b/.test(location.hash));
    await page.waitForFunction((/** @type {number} */ old) => document.querySelector('.big .bytes')?.getAttribute('data-tip')?.replaceAll(/[^0-9]/g, '') !== String(old), before);
  }));

  test('change the batch by typing, arrows and buttons', () => visit(async (page) => {
    const batch = field(page, 'batch');
    await changed(page, () => batch.fill('64'));
    await page.waitForFunction(() => location.hash.includes('batch=64'));
    const r = await fromCore(exampleWords.map((word) => (word.startsWith('batch=') ? 'batch=64' : word)));
    assert.equal(await deviceBytes(page), r.verdict.device_bytes);
    await changed(page, () => batch.press('ArrowUp'));
    assert.equal(await batch.inputValue(), '128');
    await batch.press('Shift+ArrowDown');
    assert.equal(await batch.inputValue(), '127');
    await page.getByRole('button', { name: 'Micro-batch: halve' }).click();
    assert.equal(await batch.inputValue(), '64');
    await page.waitForFunction(() => location.hash.includes('batch=64'));
  }));

  test('choose another card; the verdict follows', () => visit(async (page) => {
    await page.locator('#gpu').focus();
    await page.keyboard.type('4090');
    await changed(page, () => page.keyboard.press('Enter')).catch(() => {});
    await page.locator('.verdict.is-not').waitFor();
    assert.match(await page.locator('.pill').innerText(), /Does not fit/);
    assert.match(await page.locator('.verdict-words').innerText(), /GiB over/);
  }));

  test('freeze and train parts', () => visit(async (page) => {
    const tower = page.getByRole('checkbox', { name: /vision tower/i });
    assert.equal(await tower.isChecked(), false);
    await changed(page, () => tower.check());
    await page.waitForFunction(() => !location.hash.includes('freeze'));
    await changed(page, () => page.getByRole('checkbox', { name: /language model/i }).uncheck());
    await page.waitForFunction(() => /freeze=language_model/.test(location.hash));
  }));

  test('a wrong value is explained at its field, and the last answer stays', () => visit(async (page) => {
    const before = await deviceBytes(page);
    const batch = field(page, 'batch');
    await batch.fill('0');
    await page.locator('.field-error').waitFor();
    assert.equal(await batch.getAttribute('aria-invalid'), 'true');
    const described = await batch.getAttribute('aria-describedby');
    assert.match(await page.locator(`#${described}`).innerText(), /batch/i);
    assert.match(await page.locator('.stale-note').innerText(), /previous settings/);
    assert.match(await page.locator('.diagnostic.is-error').innerText(), /ERR_/);
    assert.equal(await deviceBytes(page), before);
    await batch.fill('16');
    await page.locator('.field-error').waitFor({ state: 'detached' });
    await page.locator('.stale-note').waitFor({ state: 'detached' });
  }));

  test('an assumption leads to its setting', () => visit(async (page) => {
    const [first] = await page.locator('.assumptions .word').all();
    const name = (await first.innerText()).split('=')[0];
    await first.click();
    await page.waitForFunction((/** @type {string} */ wanted) =>
      document.activeElement?.closest('[data-setting]')?.getAttribute('data-setting') === wanted, name);
    await page.locator('.assumptions .word', { hasText: /^(zero_grad|allocator|load|steps)/ }).first().click();
    await page.waitForFunction(() => /** @type {HTMLDetailsElement} */ (document.getElementById('more-settings')).open
      && document.activeElement?.closest('#more-settings'));
  }));

  test('fields say where their value is from', () => visit(async (page) => {
    assert.equal(await page.locator('[data-setting="batch"]').getAttribute('data-origin'), 'link');
    assert.match(await page.locator('[data-setting="batch"] .source').innerText(), /from link/);
    await changed(page, () => field(page, 'batch').fill('9'));
    assert.equal(await page.locator('[data-setting="batch"]').getAttribute('data-origin'), 'user');
    await changed(page, () => page.getByRole('button', { name: 'Micro-batch: back to the default' }).click());
    assert.equal(await page.locator('[data-setting="batch"]').getAttribute('data-origin'), 'default');
  }, { at: `#model=llama-2-7b&gpu=h100-80&batch=8&v=1` }));

  test('over several GPUs the number is that of each', () => visit(async (page) => {
    assert.match(await page.locator('.verdict-head').innerText(), /on each of 8 GPUs at the peak[^]*plus about .* for NCCL/);
  }, { at: `#model=gpt2&gpu=t4&parallel.kind=zero2&parallel.dp=8&v=1` }));

  test('a job that runs only because cached memory is given back says so', () => visit(async (page) => {
    const words = exampleWords.map((word) => (word.startsWith('batch=') ? 'batch=44' : word));
    const r = await fromCore(words);
    assert.ok(r.verdict.fits && r.verdict.margin_bytes < 0 && r.verdict.retries > 0);
    const said = await page.locator('.verdict-head').innerText();
    assert.match(said, /would be reserved on the device at the peak/);
    assert.match(said, new RegExp(`Barely fits[^]*would reserve ${(-r.verdict.margin_bytes / 2 ** 30).toFixed(1)} GiB more than there is; the allocator frees cached memory in ${r.verdict.retries} retries`));
    const { smallest_device_bytes: smallest } = (await core()).call({ call: 'estimate', settings: words, options: true });
    await page.locator('.verdict-words', { hasText: `It runs on ${(smallest / 2 ** 30).toFixed(1)} GiB or more` }).waitFor();
  }, { at: `#${exampleWords.join('&').replace(/batch=\d+/, 'batch=44')}&v=1` }));

  test('a value that cannot be is answered with near ones that run', () => visit(async (page) => {
    await field(page, 'seq').fill('100');
    const offer = page.locator('.nearest .button').first();
    await offer.waitFor();
    await offer.click();
    await page.locator('.stale-note').waitFor({ state: 'detached' });
    assert.ok(Number(await field(page, 'seq').inputValue()) >= 576);
  }));

  test('a job that does not fit names the closest change that does', () => visit(async (page) => {
    await field(page, 'checkpointing').selectOption('none');
    await field(page, 'batch').fill('32');
    const apply = page.locator('.closest .button');
    await apply.waitFor();
    await apply.click();
    await page.locator('.verdict.is-fits, .verdict.is-close').waitFor();
  }));

  test('where no single change is enough, the batch that fits is named', () => visit(async (page) => {
    const apply = page.locator('.closest .button');
    await apply.waitFor();
    const [, batch] = /batch=(\d+)/.exec(await apply.getAttribute('aria-label')) ?? [];
    const fits = async (/** @type {number} */ value) => (await fromCore(['model=gpt2', 'gpu=t4', `batch=${value}`])).verdict.fits;
    assert.deepEqual([await fits(Number(batch)), await fits(Number(batch) + 1)], [true, false]);
    await apply.click();
    await page.locator('.verdict.is-fits, .verdict.is-close').waitFor();
  }, { at: `#model=gpt2&gpu=t4&batch=256&v=1` }));

  test('a measured peak is compared', () => visit(async (page) => {
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

  test('a long calculation can be cancelled, and the page goes on', () => visit(async (page) => {
    await page.evaluate(() => { location.hash = '#model=qwen2.5-vl-7b&gpu=h100-80&batch=1024&seq=1024&v=1'; });
    await page.locator('.computing .button').click();
    await page.locator('.diagnostic', { hasText: 'Cancelled' }).waitFor();
    await changed(page, () => page.evaluate(() => { location.hash = '#model=llama-2-7b&gpu=h100-80&v=1'; }));
    assert.equal(await page.locator('.diagnostic.is-warning', { hasText: 'Cancelled' }).count(), 0);
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

  test('units and theme are kept, the job is not', () => visit(async (page) => {
    await page.getByRole('button', { name: 'Display' }).click();
    await page.locator('.top input[value="GB"]').check();
    assert.match(await page.locator('.big').innerText(), /GB$/);
    await page.locator('.top input[value="dark"]').check();
    assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), 'dark');
    await page.goto('about:blank');
    await page.goto(server.url);
    await ready(page);
    assert.match(await page.locator('.big').innerText(), /GB$/);
    assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), 'dark');
    assert.deepEqual(await page.evaluate(() => Object.keys(localStorage).sort()), ['tidemark.letters', 'tidemark.theme', 'tidemark.unit']);
  }));

  test('two tabs have a job each; how things look is kept for the next', () => visit(async (page, { context }) => {
    const other = await context.newPage();
    await other.goto(`${server.url}#model=smollm2-135m&gpu=t4&v=1`);
    await ready(other);
    await other.getByRole('button', { name: 'Display' }).click();
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
  }, { at: `#model=gpt2&gpu=t4&v=1` }));

  test('exact bytes on hover, gone with Escape', () => visit(async (page) => {
    await page.locator('.factor-table tbody .bytes').first().hover();
    await page.locator('.tip:not([hidden])').waitFor();
    assert.match(await page.locator('.tip').innerText(), /^[\d,]+ bytes$/);
    await page.keyboard.press('Escape');
    await page.locator('.tip').waitFor({ state: 'hidden' });
  }));

  test('what a setting means comes while its label is pointed at', () => visit(async (page) => {
    await page.locator('label[for="set-batch"]').hover();
    await page.locator('.tip', { hasText: 'Samples per forward pass on one GPU' }).waitFor();
    assert.match(await page.locator('.tip').innerText(), /in proportion\. In samples\. [A-Z][a-z ]+: batch=16$/);
  }));

  /* ---- what the job is ---- */

  const addressIs = (/** @type {any} */ page, /** @type {string} */ words) => page.waitForFunction((/** @type {string} */ wanted) => location.hash === `#${wanted}`, words);
  const kind = (/** @type {any} */ page, /** @type {string} */ name) => page.locator(`.kind-row input[value="${name}"]`).click({ force: true });
  const kindIs = async (/** @type {any} */ page) => (await page.locator('.kind-row input:checked').evaluateAll((/** @type {any[]} */ all) => all.map((one) => one.value))).join(' ');

  test('what the job is sets its words and shows its settings', () => visit(async (page) => {
    assert.equal(await kindIs(page), 'train');
    assert.equal(await page.locator('#set-lengths, #set-trainer, #set-adapter').count(), 0);
    await kind(page, 'tune');
    await field(page, 'trainer').waitFor();
    assert.equal(await kindIs(page), 'tune full');
    await changed(page, () => kind(page, 'qlora'));
    const number = await deviceBytes(page);
    assert.equal(number, (await fromCore(['model=gpt2', 'gpu=t4', 'adapter=lora', 'quant=nf4'])).verdict.device_bytes);
    assert.equal(await field(page, 'quant').inputValue(), 'nf4');
    await changed(page, () => kind(page, 'lora'));
    assert.equal(await deviceBytes(page), (await fromCore(['model=gpt2', 'gpu=t4', 'adapter=lora'])).verdict.device_bytes);
    await changed(page, () => page.locator('[id="set-adapter.r"]').fill('8'));
    await changed(page, () => kind(page, 'generate'));
    assert.equal(await deviceBytes(page), (await fromCore(['model=gpt2', 'gpu=t4', 'mode=infer'])).verdict.device_bytes);
    await addressIs(page, 'model=gpt2&gpu=t4&mode=infer&v=1');
    assert.equal(await page.locator('#set-optimizer, #set-checkpointing').count(), 0);
    assert.doesNotMatch(await page.locator('.job-words').innerText(), /trained|adamw|checkpointing/);
    await field(page, 'decode').waitFor();
    await changed(page, () => kind(page, 'train'));
    assert.equal(await deviceBytes(page), (await fromCore(['model=gpt2', 'gpu=t4'])).verdict.device_bytes);
    await page.locator('.parts input').first().uncheck();
    await page.waitForFunction(() => document.querySelector('.kind-row input[value="full"]:checked')); /* what freezes a part fine-tunes */
  }, { at: '#model=gpt2&gpu=t4&v=1' }));

  test('fine-tuning of all weights is a kind of its own, in its link too, whatever else of it is cleared', () => visit(async (page) => {
    assert.equal(await kindIs(page), 'tune full');
    await changed(page, () => field(page, 'lengths').fill('100,300'));
    await addressIs(page, 'model=gpt2&gpu=t4&lengths=100,300&v=1');
    await changed(page, () => field(page, 'lengths').fill(''));
    await addressIs(page, 'model=gpt2&gpu=t4&purpose=finetune&v=1');
    assert.equal(await kindIs(page), 'tune full');
    assert.equal(await deviceBytes(page), (await fromCore(['model=gpt2', 'gpu=t4'])).verdict.device_bytes);
    await kind(page, 'train');
    await addressIs(page, 'model=gpt2&gpu=t4&v=1');
  }, { at: '#model=gpt2&gpu=t4&lengths=64,128&v=1' }));

  test('each kind of job opens on an example of its own, until something is changed', () => visit(async (page) => {
    assert.equal(await kindIs(page), 'tune full');
    for (const name of ['train', 'tune', 'lora', 'qlora', 'serve', 'generate']) {
      await kind(page, name);
      const words = EXAMPLES[name === 'tune' ? 'full' : name].map((word) => word.join('='));
      await page.waitForFunction((/** @type {string[]} */ wanted) => wanted.every((word) => location.hash.slice(1).split('&').includes(word)), words);
      const { verdict } = await fromCore(words);
      assert.equal(verdict.fits, true, `${name}: ${verdict.sentence}`);
      await page.locator(`.big .bytes[data-tip^="${verdict.device_bytes.toLocaleString('en')} "]`).waitFor();
      assert.equal(await page.locator('.job-name .tag').innerText(), 'example');
      assert.deepEqual(await violations(page), []);
    }
    await kind(page, 'tune');
    await kind(page, 'qlora');
    await page.locator('.job-name', { hasText: 'Qwen2.5' }).waitFor();
    await changed(page, () => field(page, 'batch').fill('2'));
    assert.equal(await page.locator('.job-name .tag').count(), 0);
    await kind(page, 'train');
    await addressIs(page, 'model=qwen2.5-7b&gpu=rtx-4090&batch=2&seq=2048&checkpointing=full&v=1');
  }));

  test('a server: what it holds, requests by length, the command, and back', () => visit(async (page) => {
    await changed(page, () => kind(page, 'serve'));
    const r = await fromCore(['model=llama-3.1-8b', 'gpu=l40s', 'mode=serve']);
    assert.equal(await deviceBytes(page), r.verdict.device_bytes);
    assert.match(await page.locator('.bar svg').getAttribute('aria-label') ?? '', /weights .*KV cache/i);
    const rows = page.locator('.serving-requests tbody tr');
    await rows.first().waitFor();
    assert.deepEqual(await rows.evaluateAll((/** @type {any[]} */ list) => list.map((row) => [...row.children].map((cell) => Number(cell.textContent.replace(',', '').replace('none', '0'))))),
      r.serving.requests.map((/** @type {any} */ { tokens, fit }) => [tokens, fit]));
    assert.equal(await page.locator('.lengths-point').count(), r.serving.requests.filter((/** @type {any} */ { fit }) => fit > 0).length);
    assert.equal(await page.locator('#set-optimizer, #set-checkpointing, #set-batch').count(), 0);
    const bytes = (/** @type {any} */ place) => place.evaluateAll((/** @type {any[]} */ list) => list.map((one) => Number(one.dataset.tip.replaceAll(/[^0-9]/g, ''))));
    const [allocated, ...outside] = await bytes(page.locator('.factor-table .sums .total .bytes'));
    assert.deepEqual(await bytes(page.locator('.factor-table tfoot .bytes')), [outside.reduce((sum, n) => sum + n, allocated)], 'the rows come to the total');
    assert.doesNotMatch(await page.locator('.answer').innerText(), /optimizer steps/);
    await page.locator('.serving-limits', { hasText: `The longest request that fits has ${r.serving.longest.of_one.toLocaleString('en')} tokens` }).waitFor();
    await field(page, 'kv_cache_dtype').selectOption('fp8');
    await page.locator('.serving-command code', { hasText: 'vllm serve meta-llama/Llama-3.1-8B --kv-cache-dtype fp8' }).waitFor();
    await kind(page, 'train');
    await page.locator('#serving').waitFor({ state: 'detached' });
    await page.getByText('Train starts with FSDP2 over').waitFor();
  }, { at: '#model=llama-3.1-8b&gpu=l40s&v=1' }));

  for (const width of [1280, 1024, 390]) {
    test(`no table of a server leaves its column at ${width}`, () => visit(async (page) => {
      await page.locator('.serving table').nth(1).waitFor();
      const past = await page.locator('.serving table').evaluateAll((/** @type {any[]} */ list) =>
        list.map((table) => table.getBoundingClientRect().right - table.parentElement.getBoundingClientRect().right));
      assert.ok(past.length === 2 && past.every((px) => px < 1), `${past} px`);
    }, { at: '#model=qwen3.5-0.8b&mode=serve&gpu=h100-80&v=1', viewport: { width, height: 900 } }));
  }

  test('several GPUs share the job, beside the GPU', () => visit(async (page) => {
    await changed(page, () => field(page, 'parallel\\.dp').fill('8'));
    await page.waitForFunction(() => location.hash.includes('parallel.kind=fsdp2'));
    assert.equal(await deviceBytes(page), (await fromCore(['model=gpt2', 'gpu=t4', 'parallel.kind=fsdp2', 'parallel.dp=8'])).verdict.device_bytes);
    await changed(page, () => field(page, 'parallel\\.kind').selectOption('none'));
    await addressIs(page, 'model=gpt2&gpu=t4&v=1');
    await changed(page, () => field(page, 'parallel\\.kind').selectOption('zero2'));
    await addressIs(page, 'model=gpt2&gpu=t4&parallel.kind=zero2&parallel.dp=8&v=1');
  }, { at: '#model=gpt2&gpu=t4&v=1' }));

  test('a model picked after the example starts from its own defaults, and that is said', () => visit(async (page) => {
    await page.locator('#model').click();
    await page.keyboard.type('Meta-Llama-3.1-8B-Instruct'); /* over what stood there */
    await page.locator('.picker-list li', { hasText: 'Llama 3.1' }).waitFor();
    await page.keyboard.press('Enter');
    await page.waitForFunction(() => location.hash.startsWith('#model=llama-3.1-8b&gpu=h100-80&purpose=finetune&v=1'));
    await page.getByText('Meta-Llama-3.1-8B-Instruct is read as').waitFor();
    await page.getByText('others have their defaults').waitFor();
    assert.equal(await page.locator('.diagnostic', { hasText: 'purpose' }).count(), 0, 'nothing is remarked on what a button set');
    await page.waitForFunction(() => document.querySelector('.job-name')?.textContent?.includes('Llama 3.1'));
    assert.equal(await deviceBytes(page), (await fromCore(['model=llama-3.1-8b', 'gpu=h100-80'])).verdict.device_bytes);
  }));

  test('a model that its defaults do not hold starts with the fewest GPUs that do, and says so; what its reader set stays', () => visit(async (page) => {
    const wordsOf = (/** @type {number} */ n, purpose = ['purpose=finetune']) => ['model=llama-3.1-70b', 'gpu=h100-80', 'checkpointing=full', ...purpose, 'parallel.kind=fsdp2', `parallel.dp=${n}`, 'parallel.meta_init=true'];
    const fits = async (/** @type {number} */ n) => (await fromCore(wordsOf(n))).verdict;
    const pick = async (/** @type {string} */ name) => {
      await page.locator('#model').click();
      await page.keyboard.type(name);
      await page.locator('#model-list .at').waitFor();
      await page.keyboard.press('Enter');
    };
    await pick('llama-3.1-70b');
    const said = await page.locator('.diagnostics', { hasText: 'Llama 3.1 70B starts with FSDP2 over' }).innerText();
    const gpus = Number(/over (\d+) GPUs, the fewest that hold it, with full checkpointing/.exec(said)?.[1]);
    await addressIs(page, `${wordsOf(gpus).join('&')}&v=1`);
    assert.ok((await fits(gpus)).margin_bytes >= 0);
    assert.ok(!((await fits(gpus / 2)).margin_bytes >= 0));
    await page.locator('.verdict.is-fits, .verdict.is-close').waitFor();
    await kind(page, 'qlora');
    await addressIs(page, 'model=llama-3.1-70b&gpu=h100-80&quant=nf4&adapter=lora&v=1'); /* one GPU holds it */
    await kind(page, 'serve');
    await page.getByText('Serve starts with tensor parallelism over').waitFor();
    await page.locator('.verdict.is-fits').waitFor();
    await kind(page, 'train');
    await addressIs(page, `${wordsOf(gpus, []).join('&')}&v=1`);
    await pick('gpt2');
    await addressIs(page, 'model=gpt2&gpu=h100-80&v=1'); /* what the page set for one model goes with it */
    await changed(page, () => field(page, 'batch').fill('2'));
    await pick('llama-3.1-70b');
    await addressIs(page, 'model=llama-3.1-70b&gpu=h100-80&batch=2&v=1');
  }));

  test('a link to a job that has what is not described gives no verdict, and says what is left out', () => visit(async (page) => {
    await page.locator('.verdict.is-close').waitFor();
    assert.match(await page.locator('.verdict-words').innerText(), /Cannot tell[^]*without use_muon, which is not described[^]*By the rules of/);
    await page.locator('#more-settings > summary').click();
    await field(page, 'undescribed').fill('');
    await page.locator('.verdict.is-fits').waitFor();
    assert.equal(await field(page, 'undescribed').count(), 0);
  }, { at: '#model=qwen2.5-0.5b&gpu=l40s&undescribed=use_muon&v=1' }));

  test('without a GPU a peak in loading is said to be one, with what mends it', () => visit(async (page) => {
    assert.match(await page.locator('.verdict-words').innerText(), /No GPU chosen[^]*Loading needs this \(less with parallel\.meta_init=true\); the steps allocate [\d.]+ GiB\./);
  }, { at: '#model=llama-3.1-8b&parallel.kind=fsdp2&parallel.dp=128&v=1' }));

  test('a range that reaches past the GPU is neither a yes nor a no, and is drawn', () => visit(async (page) => {
    const config = JSON.stringify({ ...JSON.parse(LLAMA), architectures: ['SomethingForCausalLM'], model_type: 'something', something_rank: 16 });
    await changed(page, () => drop(page, [{ name: 'config.json', text: config }]));
    const { low, high } = (await fromCore(['gpu=h100-80'], [{ name: 'config.json', text: config }])).peak.range;
    assert.ok(low < high);
    await page.locator('#more-settings > summary').click();
    await field(page, 'gpu_gib').fill(((low + high) / 2 / 2 ** 30).toFixed(1));
    await page.locator('.verdict.is-close').waitFor();
    assert.equal((await page.locator('.verdict-words').innerText()).match(/between/g)?.length, 1, 'the range is said once');
    assert.match(await page.locator('.verdict-words').innerText(), /Cannot tell[^]*between .* and .* GiB[^]*tidemark dry-run[^]*No description covers 'something': by its keys it was played as a decoder[^]*does not read something_rank/);
    assert.equal(await page.locator('.whisker line').count(), 3);
    const [ends, labels] = await page.evaluate(() => ['.whisker line', '.bar .on'].map((one) => [...document.querySelectorAll(one)].map((mark) => mark.getBoundingClientRect())));
    assert.ok(labels.length > 0 && ends.every((end) => labels.every((label) => end.bottom <= label.top || end.right < label.left || end.left > label.right)), 'it strikes no label through');
    await field(page, 'gpu_gib').fill((2 * high / 2 ** 30).toFixed(1));
    await page.locator('.verdict.is-fits').waitFor();
    assert.match(await page.locator('.verdict-words').innerText(), /at least .* GiB to spare/);
  }));

  test('labels are ink, and red is for what grew', () => visit(async (page) => {
    await page.locator('#more-settings > summary').click();
    const colour = (/** @type {string} */ selector) => page.locator(selector).first().evaluate((/** @type {Element} */ one) => getComputedStyle(one).color);
    assert.equal(await colour('#more-settings label'), await colour('.settings .group label'));
  }));
}
