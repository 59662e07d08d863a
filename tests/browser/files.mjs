// SPDX-License-Identifier: Apache-2.0
/* Files, in Chromium: dropped, chosen, pasted; of every kind, and of none. */
import assert from 'node:assert/strict';
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { changed, deviceBytes, openContext, ready, some, still, test, violations } from './harness.mjs';

const launch = (/** @type {string} */ name) => new URL(`../cli/files/launch/${name}`, import.meta.url).pathname;
const text = (/** @type {string} */ name, /** @type {string | Buffer} */ content) => ({ name, mimeType: '', buffer: Buffer.from(content) });

/** @param {import('./site.mjs').Site} site */
export default function ({ browser, visit, field, fromCore, exampleWords, drop, choose, saved, LLAMA, server }) {
  test('drop a config.json', () => visit(async (page) => {
    await changed(page, () => drop(page, [{ name: 'config.json', text: LLAMA }]));
    assert.match(await page.locator('.files').innerText(), /config\.json/);
    await page.waitForFunction(() => !location.hash.includes('model=llava'));
    const before = await deviceBytes(page);
    const r = await fromCore(['gpu=h100-80'], [{ name: 'config.json', text: LLAMA }]);
    assert.equal(before, r.verdict.device_bytes);
    await changed(page, () => page.getByRole('button', { name: 'Remove config.json' }).click());
  }));

  test('choose and paste a config.json', () => visit(async (page) => {
    await changed(page, () => page.locator('#chooser').setInputFiles({ name: 'my-model.json', mimeType: 'application/json', buffer: Buffer.from(LLAMA) }));
    const chosen = await deviceBytes(page);
    await page.reload();
    await ready(page);
    await page.goto(server.url);
    await ready(page);
    await page.getByRole('button', { name: 'Paste' }).click();
    await page.getByRole('textbox', { name: /paste a config/i }).fill(LLAMA);
    await changed(page, () => page.getByRole('button', { name: 'Use it' }).click());
    assert.equal(await deviceBytes(page), chosen);
  }));

  test('a config.json pasted anywhere is taken', () => visit(async (page) => {
    await changed(page, () => page.evaluate((/** @type {string} */ text) => {
      const clipboardData = new DataTransfer();
      clipboardData.setData('text/plain', text);
      document.body.dispatchEvent(new ClipboardEvent('paste', { clipboardData, bubbles: true }));
    }, LLAMA));
    assert.match(await page.locator('.files').innerText(), /config\.json/);
  }));

  const file = (/** @type {string} */ name) => new URL(`../cli/files/${name}`, import.meta.url).pathname;

  test('what starts a server or training takes the place of the example: its model, its mode and its settings', async () => {
    for (const [path, words] of /** @type {[string, string[]][]} */ ([
      ['launch/docker-run.sh', ['model=llama-3.1-8b', 'mode=serve', 'max_model_len=8192', 'tensor_parallel_size=2']],
      ['launch/docker-compose.yml', ['model=llama-3.1-8b', 'mode=serve', 'max_model_len=8192', 'enforce_eager=true']],
      ['launch/axolotl.yml', ['model=llama-2-7b', 'batch=2', 'seq=4096', 'adapter=lora']],
    ])) {
      await visit(async (page) => {
        await changed(page, () => choose(page, file(path)));
        await page.waitForFunction((/** @type {string[]} */ wanted) => wanted.every((word) => location.hash.slice(1).split('&').includes(word)), words);
        assert.equal(await page.locator('.diagnostic', { hasText: 'has no effect' }).count(), 0, path);
        await page.getByText('The settings of the example are gone').waitFor();
      });
    }
  });

  test('a command that is pasted anywhere is taken', () => visit(async (page) => {
    await changed(page, () => page.evaluate(() => {
      const clipboardData = new DataTransfer();
      clipboardData.setData('text/plain', 'vllm serve Qwen/Qwen2.5-7B-Instruct --max-model-len 4096');
      document.body.dispatchEvent(new ClipboardEvent('paste', { clipboardData, bubbles: true }));
    }));
    await page.waitForFunction(() => /model=qwen2\.5-7b&.*mode=serve&.*max_model_len=4096/.test(location.hash));
  }));

  test('a GGUF file is held: in its link, in a scenario and after a reload', () => visit(async (page) => {
    await changed(page, () => choose(page, file('tiny.gguf')));
    await page.waitForFunction(() => location.hash.startsWith('#z=1.'));
    const bytes = await deviceBytes(page);
    assert.equal(await page.locator('.diagnostic', { hasText: 'has no effect' }).count(), 0);
    await page.getByRole('button', { name: 'Add to scenarios' }).click();
    const needs = page.locator('.scenarios tbody tr').first().locator('.bytes');
    await needs.waitFor();
    assert.equal(Number((await needs.getAttribute('data-tip')).replaceAll(/[^0-9]/g, '')), bytes);
    await page.reload();
    await ready(page);
    assert.equal(await deviceBytes(page), bytes);
    await needs.waitFor();
  }));

  test('what the program prints with --json opens, with a model of one’s own', () => visit(async (page) => {
    const answer = await fromCore(['gpu=t4', 'batch=2'], [{ name: 'config.json', text: LLAMA }]);
    await changed(page, () => choose(page, text('answer.json', JSON.stringify(answer))));
    assert.equal(await deviceBytes(page), answer.verdict.device_bytes);
    await page.getByRole('button', { name: 'Remove config.json' }).waitFor();
    assert.equal(await field(page, 'batch').inputValue(), '2');
    await page.waitForURL(/#z=/); /* its link takes a moment to pack */
    await page.goBack();
    await page.locator('.job-name', { hasText: 'LLaVA' }).waitFor();
  }));

  test('files that are no config are named', () => visit(async (page) => {
    const before = await deviceBytes(page);
    for (const [name, text, says] of /** @type {[string, string, RegExp][]} */ ([
      ['training_args.bin', '\x80\x02}q\x00', /pickle/], ['weights.pt', 'PK\x03\x04....', /zip|checkpoint/],
      ['model.gguf', 'GGUF\x03\x00', /GGUF/], ['tokenizer_config.json', '{"tokenizer_class":"LlamaTokenizer"}', /tokenizer/],
      ['x.ipynb', '{"nbformat": 4, "cells": []}', /notebook/], ['empty.json', '', /empty/], ['wide.json', '\xff\xfe{\x00', /UTF-16/],
    ])) {
      await drop(page, [{ name, text }]);
      await page.locator('.diagnostic', { hasText: name }).waitFor();
      assert.match(await page.locator('.diagnostic', { hasText: name }).innerText(), says);
    }
    assert.equal(await deviceBytes(page), before);
  }));

  test('a text that is neither JSON nor YAML is named with what can be opened, and not kept', () => visit(async (page) => {
    const before = await deviceBytes(page);
    await choose(page, text('notes.txt', 'Dear diary, today the job ran out of memory.'));
    await page.getByText('notes.txt is neither JSON nor YAML').waitFor();
    assert.equal(await page.locator('.file').count(), 0);
    assert.equal(await deviceBytes(page), before);
    assert.equal(await page.locator('.result.is-stale').count(), 0);
  }));

  test('a YAML file becomes settings, read by a chunk that comes with it', () => visit(async (page) => {
    const chunks = () => page.evaluate(() => performance.getEntriesByType('resource').filter(({ name }) => name.includes('/yaml-')).length);
    assert.equal(await chunks(), 0);
    await changed(page, () => drop(page, [{ name: 'accelerate.yaml', text: 'distributed_type: MULTI_GPU\nnum_processes: 4\nmixed_precision: bf16\n' }]));
    assert.equal(await chunks(), 1);
    const r = await fromCore([...exampleWords, 'parallel.kind=ddp', 'parallel.dp=4', 'autocast=bf16']);
    assert.equal(await deviceBytes(page), r.verdict.device_bytes);
    await drop(page, [{ name: 'broken.yaml', text: 'a: [1\n' }]);
    await page.locator('.diagnostic', { hasText: 'broken.yaml: line 2' }).waitFor();
  }));

  test('a broken config.json is an error with a place', () => visit(async (page) => {
    await drop(page, [{ name: 'config.json', text: '{"model_type": "llama", "hidden_size":' }]);
    await page.locator('.diagnostic.is-error').waitFor();
    assert.match(await page.locator('.diagnostic.is-error').first().innerText(), /ERR_/);
    await page.getByRole('button', { name: 'Remove config.json' }).click();
    await page.locator('.diagnostic.is-error').waitFor({ state: 'detached' });
  }));

  test('an error in a file leads to its place, and is mended there', () => visit(async (page) => {
    const text = LLAMA.replace('"vocab_size": 32000,', '"vocab_size": ,');
    await drop(page, [{ name: 'config.json', text }]);
    await page.getByRole('button', { name: 'Show the place' }).click();
    const area = page.getByRole('textbox', { name: 'Edit config.json' });
    await area.waitFor();
    assert.equal(await area.evaluate((/** @type {any} */ box) => box.value.slice(box.selectionStart - 14, box.selectionEnd)), '"vocab_size": ,');
    assert.match(await page.locator('.dialog-actions output').innerText(), /^line 6, column \d+$/);
    await page.keyboard.type('32000,');
    await changed(page, () => page.getByRole('button', { name: 'Use it' }).click());
    await page.locator('.diagnostic.is-error').waitFor({ state: 'detached' });
    assert.equal(await deviceBytes(page), (await fromCore(['gpu=h100-80'], [{ name: 'config.json', text: LLAMA }])).verdict.device_bytes);
    await page.getByRole('button', { name: 'Edit config.json' }).click();
    await area.waitFor();
    await area.fill((await area.inputValue()).replace('"num_hidden_layers": 22', '"num_hidden_layers": 11'));
    await changed(page, () => page.getByRole('button', { name: 'Use it' }).click());
    assert.equal(await page.locator('.file').count(), 1, 'the text took the file’s place');
  }));

  test('a model of the Hub is fetched when that is chosen, and nothing is sent before', async () => {
    const { context, page, requests, problems } = await openContext(browser, { serviceWorkers: 'block' });
    const toHub = () => requests.filter((url) => url.includes('huggingface'));
    /** @type {Record<string, string>[]} */
    const sent = [];
    await context.route('https://huggingface.co/**', async (/** @type {any} */ route) => {
      const request = route.request();
      sent.push({ ...await request.allHeaders(), path: new URL(request.url()).pathname });
      const headers = { 'access-control-allow-origin': '*' };
      if (request.url().includes('/Gated/')) return route.fulfill({ status: 401, headers, body: 'Access to model is restricted' });
      if (request.url().includes('/Broken/')) return route.fulfill({ status: 200, headers, body: '<html>' });
      if (request.url().includes('/Gone/')) return route.abort();
      return route.fulfill({ status: 200, headers, body: LLAMA });
    });
    const offer = page.getByRole('option', { name: 'Fetch its config.json from huggingface.co' });
    const type = async (/** @type {string} */ text) => {
      await page.locator('#model').click();
      await page.keyboard.type(text);
    };
    await page.goto(server.url);
    await ready(page);
    await type('some-lab/Some-Model-9B and "<more>');
    await page.locator('.picker-none').waitFor();
    assert.equal(await offer.count(), 0);
    await page.keyboard.press('Escape');
    await type('some-lab/Some-Model-9B');
    await offer.waitFor();
    await still(page);
    assert.deepEqual(toHub(), [], 'typing sends nothing');
    await changed(page, () => page.keyboard.press('Enter'));
    assert.deepEqual(toHub(), ['https://huggingface.co/some-lab/Some-Model-9B/resolve/main/config.json']);
    assert.ok(!('cookie' in sent[0]) && !('referer' in sent[0]), Object.keys(sent[0]).join(' '));
    assert.equal(await deviceBytes(page), (await fromCore(['gpu=h100-80'], [{ name: 'config.json', text: LLAMA }])).verdict.device_bytes);
    await page.getByText('The model is config.json of some-lab/Some-Model-9B').waitFor();
    await type('some-lab/Llama-3.1-8B-Instruct'); /* of the catalogue by its name, and perhaps another one */
    await page.locator('#model-list .at', { hasText: 'Llama 3.1 8B' }).waitFor();
    await page.keyboard.press('ArrowDown');
    await page.locator('#model-list .at', { hasText: 'Fetch its config.json' }).waitFor();
    assert.equal(await page.locator('#model').getAttribute('aria-activedescendant'), 'model-elsewhere');
    await page.keyboard.press('Enter');
    await page.getByText('The model is config.json of some-lab/Llama-3.1-8B-Instruct').waitFor();
    assert.equal(toHub().at(-1), 'https://huggingface.co/some-lab/Llama-3.1-8B-Instruct/resolve/main/config.json');
    for (const [name, said] of [['Gated', /is gated or does not exist/], ['Broken', /is a web page/], ['Gone', /could not be reached/]]) {
      const before = await page.locator('.big .bytes').getAttribute('data-tip');
      await type(`some-lab/${name}/`.slice(0, -1));
      await offer.click();
      await page.locator('[aria-label="Notices"]', { hasText: said }).waitFor();
      assert.equal(await page.locator('.big .bytes').getAttribute('data-tip'), before, 'the job stays');
    }
    assert.deepEqual(problems.filter((text) => !/Failed to load resource/.test(text)), []);
    await context.close();
  });

  test('a description of one’s own is checked as it is edited, and a fault is shown at its place', () => visit(async (page) => {
    const description = JSON.parse(readFileSync(new URL('../../models/architectures/llama.json', import.meta.url), 'utf8'));
    const text = JSON.stringify(description, null, 1);
    const wrong = text.replace('return ', 'returnn ');
    await page.getByRole('button', { name: 'Paste' }).click();
    const area = page.getByRole('textbox', { name: /paste a config/i });
    await area.fill(wrong);
    const place = page.locator('.found .link').first();
    await page.locator('.found', { hasText: 'nothing more is expected here' }).waitFor();
    assert.deepEqual(await violations(page, ['dialog']), []);
    const [, line] = /** @type {RegExpExecArray} */ (/Line (\d+)/.exec(await place.innerText()));
    await place.click();
    assert.equal(Number(line), wrong.slice(0, wrong.indexOf('returnn ')).split('\n').length);
    assert.equal(Number(line), await area.evaluate((/** @type {HTMLTextAreaElement} */ one) => one.value.slice(0, one.selectionStart).split('\n').length));
    await area.fill(text);
    await page.getByText('The description has no errors.').waitFor();
  }));

  test('several at once, a card for each, and Undo', () => visit(async (page) => {
    const before = await deviceBytes(page);
    await choose(page, [launch('arguments.yaml'), launch('zero2.json')]);
    await page.locator('.file-kind', { hasText: 'training arguments' }).waitFor();
    await page.locator('.file-kind', { hasText: 'DeepSpeed' }).waitFor();
    const card = page.locator('.file', { hasText: 'arguments.yaml' });
    await card.locator('summary').click();
    const said = await card.innerText();
    for (const part of [/8 used|\d+ used/, /per_device_train_batch_size: 4\s*→ batch=4/, /neftune_noise_alpha: 5\s*adds noise/, /colour: blue/, /learning_rate/]) assert.match(said, part);
    await page.waitForFunction(() => /batch=4/.test(location.hash));
    assert.equal(await page.locator('#set-batch').inputValue(), '4', 'the file holds over what stood in the form');
    await page.getByRole('button', { name: 'Undo' }).first().click();
    await page.locator('.file').first().waitFor({ state: 'detached' });
    await page.waitForFunction((/** @type {number} */ was) => Number(document.querySelector('.big .bytes')?.getAttribute('data-tip')?.replaceAll(/[^0-9]/g, '')) === was, before);
  }));

  test('a folder and several files, dropped as a file manager does', () => visit(async (page) => {
    const own = mkdtempSync(join(tmpdir(), 'tidemark-drop-'));
    const model = join(own, 'run/model');
    mkdirSync(model, { recursive: true });
    cpSync(launch('zero2.json'), join(own, 'run/zero2.json'));
    cpSync(new URL('../cli/files/tiny/config.json', import.meta.url).pathname, join(model, 'config.json'));
    writeFileSync(join(model, 'pytorch_model.bin'), 'PK\x03\x04');
    writeFileSync(join(model, 'README.md'), '# A model');
    const session = await page.context().newCDPSession(page);
    const drop = async (/** @type {string[]} */ files) => {
      for (const type of ['dragEnter', 'dragOver', 'drop']) {
        await session.send('Input.dispatchDragEvent', { type, x: 700, y: 400, data: { items: [], files, dragOperationsMask: 1 } });
        if (type === 'dragOver') await page.locator('.drop-over', { hasText: 'not sent anywhere' }).waitFor();
      }
      await page.locator('.drop-over').waitFor({ state: 'detached' });
    };
    await drop([join(own, 'run')]);
    await page.locator('.file', { hasText: 'config.json' }).waitFor();
    await page.locator('.file', { hasText: 'zero2.json' }).locator('.file-kind', { hasText: 'DeepSpeed' }).waitFor();
    assert.deepEqual([await page.locator('.file').count(), await page.locator('.diagnostic.is-error').count()], [2, 0], 'of a folder what says something of a job');
    await drop([join(model, 'config.json'), launch('deepspeed.yaml'), join(model, 'pytorch_model.bin')]);
    await page.locator('.diagnostic', { hasText: 'pytorch_model.bin is a zip archive' }).waitFor();
    await page.locator('.diagnostic', { hasText: /deepspeed\.yaml also configures DeepSpeed[^]*zero2\.json is used/ }).waitFor();
    assert.equal(await page.locator('.file').count(), 3);
    rmSync(own, { recursive: true });
  }));

  test('one that asks for another says so; two that disagree are shown', () => visit(async (page) => {
    await choose(page, [launch('arguments.yaml')]);
    await page.locator('.diagnostic', { hasText: 'zero2.json' }).waitFor();
    await choose(page, [launch('zero3-batch.json'), launch('deepspeed.yaml')]);
    await page.locator('.diagnostic', { hasText: /also configures|says/ }).first().waitFor();
  }));

  test('each wrong kind is named with the way out, and nothing hangs', () => visit(async (page) => {
    const own = mkdtempSync(join(tmpdir(), 'tidemark-huge-'));
    const huge = join(own, 'big.json');
    writeFileSync(huge, '{"model_type": "llama", "x": "'.padEnd(8192));
    truncateSync(huge, 2 ** 30);
    const before = await deviceBytes(page);
    for (const [name, content, says] of /** @type {[string, string | Buffer, RegExp][]} */ ([
      ['training_args.bin', Buffer.from('PK\x03\x04\x00\x00', 'latin1'), /zip archive.*to_json_string\(\)/], ['a.gguf', Buffer.from('GGUF\x03\0\0\0', 'latin1'), /GGUF/],
      ['m.onnx', Buffer.from('\x08\x07\x12\x07pytorch\x1a', 'latin1'), /ONNX/], ['w.h5', Buffer.from('\x89HDF\r\n\x1a\n', 'latin1'), /HDF5/],
      ['tokenizer.json', '{"added_tokens":[],"model":{}}', /tokenizer/], ['n.ipynb', '{"nbformat":4,"cells":[]}', /notebook/], ['u.json', Buffer.from('\ufeff{"a":1}', 'utf16le'), /UTF-16/],
      ['e.json', ' ', /empty/], ['p.json', '{"dependencies":{}}', /package\.json/], ['x.json', '{"a":1}', /neither a model.s configuration/], ['page.html', '<!doctype html><p>', /web page/],
      ['big.json', huge, /larger than 32 MB/]])) {
      await choose(page, content === huge ? huge : text(name, content));
      await page.locator('.diagnostic', { hasText: name }).waitFor();
      assert.match(await page.locator('.diagnostic', { hasText: name }).innerText(), says, name);
      assert.equal(await deviceBytes(page), before, name);
    }
    rmSync(own, { recursive: true });
  }));

  test('hostile JSON is an error or an answer, and the page stays alive', () => visit(async (page) => {
    const config = '"model_type":"llama","architectures":["LlamaForCausalLM"],"hidden_size":64,"intermediate_size":128,"num_hidden_layers":2,"num_attention_heads":4,"vocab_size":99';
    for (const content of some([`{"__proto__":{"hidden_size":1},"constructor":1,${config}}`, `{"hidden_size":1,${config}}`, `{${config},"deep":${'['.repeat(1e5)}${']'.repeat(1e5)}}`,
      `{${config},"vocab_size":1e308}`, `{${config},"rms_norm_eps":NaN,"x":-Infinity}`, `{${config},"name":"\\ud800"}`, `{${config},"hidden_size":9007199254740993}`,
      `{${config},"num_hidden_layers":1000000000}`, `{"model_type":"${'a'.repeat(1e6)}"}`, '{"text_config":{"text_config":{}},"model_type":"llava"}', '{"a":'.repeat(5000)], 5)) {
      await choose(page, text('config.json', content));
      await page.locator('.file, .diagnostic').first().waitFor();
      assert.equal(await page.evaluate(() => /** @type {any} */ ({}).hidden_size), undefined);
      const remove = page.getByRole('button', { name: 'Remove config.json' });
      if (await remove.count()) await remove.click();
      await remove.waitFor({ state: 'detached' });
      await page.locator('#set-batch').fill('5');
      await page.waitForFunction(() => /batch=5/.test(location.hash));
      await page.getByRole('button', { name: 'Reset to defaults' }).click();
      await page.waitForFunction(() => !/batch=5/.test(location.hash));
      assert.equal(await page.locator('.file, .diagnostic.is-error').count(), 0);
    }
  }));

  test('of 40 GB of safetensors only the header is read', async () => {
    const own = mkdtempSync(join(tmpdir(), 'tidemark-weights-'));
    const path = join(own, 'model.safetensors');
    const header = JSON.stringify({ 'wte.weight': { dtype: 'F32', shape: [50257, 768], data_offsets: [0, 50257 * 768 * 4] } });
    writeFileSync(path, Buffer.concat([Buffer.from(new BigUint64Array([BigInt(header.length)]).buffer), Buffer.from(header)]));
    truncateSync(path, 40 * 2 ** 30);
    await visit(async (page) => {
      await choose(page, path);
      await page.locator('.file', { hasText: 'model.safetensors' }).waitFor();
      await page.getByRole('button', { name: 'Remove model.safetensors' }).click();
    });
    rmSync(own, { recursive: true });
  });

  test('a link, JSON and YAML are taken where they are pasted', () => visit(async (page) => {
    const paste = (/** @type {string} */ content) => page.evaluate((/** @type {string} */ pasted) => {
      const clipboardData = new DataTransfer();
      clipboardData.setData('text/plain', pasted);
      document.body.dispatchEvent(new ClipboardEvent('paste', { clipboardData, bubbles: true }));
    }, content);
    await paste('https://example.org/tidemark/#model=gpt2&batch=3&v=1');
    await page.locator('.job-name', { hasText: 'GPT-2' }).waitFor();
    await paste('per_device_train_batch_size: 6\ngradient_checkpointing: true\n');
    await page.locator('.file', { hasText: 'pasted.yaml' }).waitFor();
    await page.waitForFunction(() => /batch=6/.test(location.hash));
  }));

  test('a saved file, dropped anywhere, is the job again: title, baseline, and a model of one’s own', () => visit(async (page) => {
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
  }, { at: `#model=gpt2&gpu=t4&title=My%20run&v=1` }));
}
