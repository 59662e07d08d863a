/* The ways into the page and out of it, in Chromium: recordings, files, the single file, offline. */
import assert from 'node:assert/strict';
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { pathToFileURL } from 'node:url';
import { gunzipSync, gzipSync } from 'node:zlib';
import { openCore, part } from './core.mjs';
import { copied, deviceBytes, openContext, ready, test, violations, visitor } from './harness.mjs';
import { build } from '../../web/build.mjs';
import { serve } from '../../web/serve.mjs';

const recorded = (/** @type {string} */ name) => new URL(`../recordings/${name}`, import.meta.url).pathname;

/** @param {string} folder the built page @param {any} browser @returns {Promise<() => void>} closes what was opened */
export async function doorTests(folder, browser) {
  const server = await serve(folder);

  const visit = visitor(browser, server.url);
  const choose = (/** @type {any} */ page, /** @type {any} */ files) => page.setInputFiles('#chooser', files);
  const bytesOf = async (/** @type {any} */ place) => Number((await place.getAttribute('data-tip')).replaceAll(/[^0-9]/g, ''));

  /* ---- recordings ---- */

  test('recordings: a snapshot is opened, played on a card, with other options, and closed', () => visit(async (page, { requests }) => {
    const before = await deviceBytes(page);
    const offline = requests.findIndex((url) => url.endsWith('/sw.js')); /* what follows is kept for later */
    assert.ok(!(offline < 0 ? requests : requests.slice(0, offline)).some((url) => url.includes('recordings-')), 'not before it is asked for');
    await choose(page, recorded('snapshot-expand.pickle.gz'));
    await page.getByText('With other options').waitFor();
    assert.equal(await bytesOf(page.locator('.big .bytes')), 358612992);
    assert.match(await page.locator('.recording-live').innerText(), /snap\.py:11 train/);
    await page.locator('.recording-live summary').first().click();
    assert.match(await page.locator('.recording-live .frames').first().innerText(), /linear\.py:134 forward/);
    await page.locator('#recorded-gpu').fill('t4');
    await page.keyboard.press('Enter');
    await page.getByText('Runs on T4 16GB').waitFor();
    await page.getByRole('button', { name: 'Use PyTorch’s defaults' }).click();
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

  test('recordings: what can be copied and saved is the recording’s, and keys of the job do nothing', () => visit(async (page) => {
    await choose(page, recorded('snapshot-expand.pickle.gz'));
    await page.getByText('With other options').waitFor();
    const menu = async (/** @type {string} */ name) => {
      await page.getByRole('button', { name }).click();
      const items = await page.locator('.menu-list button').allInnerTexts();
      await page.keyboard.press('Escape');
      return items.map((/** @type {string} */ item) => item.split('\n')[0]);
    };
    assert.deepEqual(await menu('Share'), ['Copy command']);
    assert.deepEqual(await menu('Export'), ['Copy as Markdown', 'Save as tidemark file (JSON)', 'Save timeline as CSV', 'Save what is live at the peak as CSV', 'Print']);
    const saved = async (/** @type {string} */ item) => {
      await page.getByRole('button', { name: 'Export' }).click();
      const [download] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: item }).click()]);
      return readFileSync(await download.path(), 'utf8');
    };
    const answer = JSON.parse(await saved('tidemark file'));
    assert.equal(answer.reserved_peak, 358612992);
    assert.equal((await saved('timeline as CSV')).trim().split('\n').length, answer.timeline.columns.length + 1);
    const live = (await saved('what is live')).trim().split('\n').slice(1);
    assert.equal(live.reduce((all, line) => all + Number(line.split(',')[0]), 0), answer.allocated_peak);
    await page.getByRole('button', { name: 'Export' }).click();
    await page.getByRole('button', { name: 'Copy as Markdown' }).click();
    await copied(page, '| Live at the peak |');
    assert.match(await page.evaluate(() => navigator.clipboard.readText()), /342(\.\d)? MiB reserved at most[^]*snap\.py:11 train[^]*tidemark replay snapshot-expand\.pickle\.gz/);
    const before = await page.evaluate(() => location.hash);
    for (const key of ['c', 's', '4', 'Control+z']) await page.keyboard.press(key);
    await page.keyboard.press('?'); /* of both: what came before it has been done */
    await page.locator('.keys').waitFor();
    await page.keyboard.press('Escape');
    assert.equal(await page.evaluate(() => location.hash), before);
    assert.equal(await page.locator('.compare-button').isVisible(), false);
  }));

  test('recordings: of one that ran out of memory, what changes are changes of', () => visit(async (page) => {
    await choose(page, new URL('../oracle/events/events-oom.jsonl.gz', import.meta.url).pathname);
    await page.getByText('where memory never runs out').waitFor();
    const rows = await page.locator('[aria-labelledby="recorded-options"] tbody tr').evaluateAll((/** @type {any[]} */ list) => list.map((row) => [...row.querySelectorAll('td')].slice(0, 2).map((cell) => cell.querySelector('.bytes')?.dataset.tip ?? cell.textContent)));
    const bytes = (/** @type {string} */ text) => Number(text.replaceAll(/[^0-9]/g, ''));
    assert.match(rows[1][1], /−16\.0 MiB/);
    assert.equal(bytes(rows[0][0]) - bytes(rows[1][0]), 16 << 20);
    assert.match(await page.locator('[aria-labelledby="recorded-figures"] tr', { hasText: 'Out of memory' }).first().innerText(), /1\s+1/);
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

  /* ---- files ---- */

  const launch = (/** @type {string} */ name) => new URL(`../cli/files/launch/${name}`, import.meta.url).pathname;
  const text = (/** @type {string} */ name, /** @type {string | Buffer} */ content) => ({ name, mimeType: '', buffer: Buffer.from(content) });

  test('files: several at once, a card for each, and Undo', () => visit(async (page) => {
    const before = await deviceBytes(page);
    await choose(page, [launch('arguments.yaml'), launch('zero2.json')]);
    await page.locator('.file-kind', { hasText: 'training arguments' }).waitFor();
    await page.locator('.file-kind', { hasText: 'DeepSpeed' }).waitFor();
    const card = page.locator('.file', { hasText: 'arguments.yaml' });
    await card.locator('summary').click();
    const said = await card.innerText();
    for (const part of [/8 used|\d+ used/, /per_device_train_batch_size: 4\s*→ batch=4/, /use_liger_kernel: true\s*replaces kernels/, /colour: blue/, /learning_rate/]) assert.match(said, part);
    await page.waitForFunction(() => /batch=4/.test(location.hash));
    assert.equal(await page.locator('#set-batch').inputValue(), '4', 'the file holds over what stood in the form');
    await page.getByRole('button', { name: 'Undo' }).first().click();
    await page.locator('.file').first().waitFor({ state: 'detached' });
    await page.waitForFunction((/** @type {number} */ was) => Number(document.querySelector('.big .bytes')?.getAttribute('data-tip')?.replaceAll(/[^0-9]/g, '')) === was, before);
  }));

  test('files: a folder and several files, dropped as a file manager does', () => visit(async (page) => {
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

  test('files: one that asks for another says so; two that disagree are shown', () => visit(async (page) => {
    await choose(page, [launch('arguments.yaml')]);
    await page.locator('.diagnostic', { hasText: 'zero2.json' }).waitFor();
    await choose(page, [launch('zero3-batch.json'), launch('deepspeed.yaml')]);
    await page.locator('.diagnostic', { hasText: /also configures|says/ }).first().waitFor();
  }));

  test('files: each wrong kind is named with the way out, and nothing hangs', () => visit(async (page) => {
    const own = mkdtempSync(join(tmpdir(), 'tidemark-huge-'));
    const huge = join(own, 'big.json');
    writeFileSync(huge, '{"model_type": "llama", "x": "'.padEnd(8192));
    truncateSync(huge, 2 ** 30);
    const before = await deviceBytes(page);
    for (const [name, content, says] of /** @type {[string, string | Buffer, RegExp][]} */ ([
      ['training_args.bin', Buffer.from('PK\x03\x04\x00\x00', 'latin1'), /zip archive.*to_json_string\(\)/], ['a.gguf', Buffer.from('GGUF\x03\0\0\0', 'latin1'), /GGUF/],
      ['m.onnx', Buffer.from('\x08\x07\x12\x07pytorch\x1a', 'latin1'), /ONNX/], ['w.h5', Buffer.from('\x89HDF\r\n\x1a\n', 'latin1'), /HDF5/],
      ['tokenizer.json', '{"added_tokens":[],"model":{}}', /tokenizer/], ['n.ipynb', '{"nbformat":4,"cells":[]}', /notebook/], ['u.json', Buffer.from('\ufeff{"a":1}', 'utf16le'), /UTF-16/],
      ['e.json', ' ', /empty/], ['p.json', '{"dependencies":{}}', /package\.json/], ['x.json', '{"a":1}', /no configuration/], ['page.html', '<!doctype html><p>', /web page/],
      ['big.json', huge, /larger than 32 MB/]])) {
      await choose(page, content === huge ? huge : text(name, content));
      await page.locator('.diagnostic', { hasText: name }).waitFor();
      assert.match(await page.locator('.diagnostic', { hasText: name }).innerText(), says, name);
      assert.equal(await deviceBytes(page), before, name);
    }
    rmSync(own, { recursive: true });
  }));

  test('files: hostile JSON is an error or an answer, and the page stays alive', () => visit(async (page) => {
    const config = '"model_type":"llama","architectures":["LlamaForCausalLM"],"hidden_size":64,"intermediate_size":128,"num_hidden_layers":2,"num_attention_heads":4,"vocab_size":99';
    for (const content of [`{"__proto__":{"hidden_size":1},"constructor":1,${config}}`, `{"hidden_size":1,${config}}`, `{${config},"deep":${'['.repeat(1e5)}${']'.repeat(1e5)}}`,
      `{${config},"vocab_size":1e308}`, `{${config},"rms_norm_eps":NaN,"x":-Infinity}`, `{${config},"name":"\\ud800"}`, `{${config},"hidden_size":9007199254740993}`,
      `{${config},"num_hidden_layers":1000000000}`, `{"model_type":"${'a'.repeat(1e6)}"}`, '{"text_config":{"text_config":{}},"model_type":"llava"}', '{"a":'.repeat(5000)]) {
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

  test('files: of 40 GB of safetensors only the header is read', async () => {
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

  test('files: a link, JSON and YAML are taken where they are pasted', () => visit(async (page) => {
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

  test('axe finds nothing in a recording and in the cards of files, in both themes, at 1440, 390 and 320', async () => {
    for (const scheme of /** @type {const} */ (['light', 'dark'])) {
      await visit(async (page) => {
        await choose(page, recorded('snapshot-expand.pickle.gz'));
        await page.getByText('With other options').waitFor();
        for (const width of [1440, 390, 320]) {
          await page.setViewportSize({ width, height: 900 });
          assert.deepEqual(await violations(page), [], `recording, ${scheme}, ${width}`);
          assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `sideways at ${width}`);
        }
        await page.setViewportSize({ width: 1440, height: 900 });
        await choose(page, [launch('arguments.yaml'), launch('zero2.json')]);
        await page.locator('.file-kind', { hasText: 'DeepSpeed' }).waitFor();
        for (const summary of await page.locator('.file summary').all()) await summary.click();
        assert.deepEqual(await violations(page), [], `files, ${scheme}`);
      }, { scheme });
    }
  });

  test('recordings: printed, one is verdict, curve, segments and tables, without controls and without a job’s link', () => visit(async (page) => {
    await choose(page, recorded('snapshot-plain.pickle.gz'));
    await page.locator('#segments-title').waitFor();
    await page.emulateMedia({ media: 'print' });
    for (const part of ['.verdict', '#timeline .plot', '.segments', '.recording-live']) assert.equal(await page.locator(part).first().isVisible(), true, part);
    assert.deepEqual(await page.evaluate(() => [...document.querySelectorAll('button:not(.link), input, select, .print-only, .minimap')].filter((one) => one.getClientRects().length > 0).map((one) => one.outerHTML.slice(0, 120))), []);
  }));

  /* ---- files that stand alone ---- */

  test('single file: it opens from disk, computes, plays a recording, and asks nobody', async () => {
    const expected = (await openCore(folder)).call({ call: 'estimate', link: 'model=gpt2&gpu=t4&batch=4&v=1' }).verdict.device_bytes;
    for (const scheme of /** @type {const} */ (['light', 'dark'])) {
      const opened = await openContext(browser, { scheme });
      const { page, problems, requests } = opened;
      const at = pathToFileURL(join(folder, 'tidemark.html')).href;
      await page.goto(`${at}#model=gpt2&gpu=t4&batch=4&v=1`);
      await ready(page);
      assert.equal(await deviceBytes(page), expected);
      await page.locator('#set-batch').fill('2');
      await page.waitForFunction(() => location.hash.includes('batch=2'));
      await choose(page, recorded('snapshot-plain.pickle.gz'));
      await page.getByText('With other options').waitFor();
      assert.deepEqual(problems, []);
      assert.deepEqual(requests.filter((url) => !/^(blob|data):/.test(url) && !url.startsWith(at)), []);
      await opened.context.close();
    }
  });

  test('single file: with a job inside it opens on it', async () => {
    const own = mkdtempSync(join(tmpdir(), 'tidemark-report-'));
    const report = join(own, 'report.html');
    writeFileSync(report, readFileSync(join(folder, 'tidemark.html'), 'utf8')
      .replace(/<!--app-->[^]*<!--\/app-->/, '<main class="report"><h1>GPT-2</h1></main>')
      .replace('<!--job-->\n', '<script type="text/plain" id="job">model=gpt2&batch=3&v=1</script>'));
    const { context, page, problems } = await openContext(browser);
    await page.goto(pathToFileURL(report).href);
    await ready(page);
    assert.equal(await page.locator('#set-batch').inputValue(), '3');
    assert.equal(await page.locator('.report').count(), 0);
    assert.deepEqual(problems, []);
    await context.close();
    rmSync(own, { recursive: true });
  });

  test('single file: in a sandbox without an origin it computes, and keeps nothing', async () => {
    const bare = await serve(folder, { headers: false });
    const { context, page, problems } = await openContext(browser);
    await page.route(`${bare.url}host.html`, (/** @type {any} */ route) => route.fulfill({ contentType: 'text/html',
      body: '<!doctype html><iframe sandbox="allow-scripts" width="1300" height="800" src="tidemark.html#model=gpt2&gpu=t4&batch=4&v=1"></iframe>' }));
    await page.goto(`${bare.url}host.html`);
    const frame = page.frameLocator('iframe');
    await frame.locator('[data-core="ready"]').waitFor();
    await frame.locator('.top input[value="dark"]').check();
    await frame.locator('#set-batch').fill('3');
    await frame.locator('.job-words', { hasText: /3 × / }).waitFor();
    assert.deepEqual(problems, []);
    await context.close();
    bare.close();
  });

  test('frame: a job in another page, in a sandbox', async () => {
    const { context, page, problems } = await openContext(browser);
    await page.route(`${server.url}host.html`, (/** @type {any} */ route) => route.fulfill({ contentType: 'text/html',
      body: '<!doctype html><iframe sandbox="allow-scripts allow-popups" width="760" height="230" src="embed.html#model=gpt2&gpu=t4&batch=4&title=Our%20run&v=1"></iframe>' }));
    await page.goto(`${server.url}host.html`);
    const frame = page.frameLocator('iframe');
    await frame.locator('.big').waitFor();
    assert.match(await frame.locator('main').innerText(), /Our run · GPT-2[^]*4\.7\s*GiB[^]*Fits T4/);
    assert.match(await frame.getByRole('link', { name: 'Open in tidemark' }).getAttribute('href'), /^\.\/#model=gpt2/);
    assert.deepEqual(problems, []);
    await context.close();
  });

  test('build: the same sources make the same files, byte for byte', async () => {
    const own = mkdtempSync(join(tmpdir(), 'tidemark-build-'));
    for (const [name, asset = name.split('.')[0]] of [['recordings.wasm'], ['models.json'], ['rest.wasm'], ['first.wasm', 'tidemark']]) {
      writeFileSync(join(own, name), part(folder, asset));
    }
    const core = Buffer.from(/** @type {RegExpExecArray} */ (/id="part-core">([^<]*)</.exec(readFileSync(join(folder, 'embed.html'), 'utf8')))[1], 'base64');
    writeFileSync(join(own, 'tidemark.wasm'), gunzipSync(core));
    await build({ wasm: join(own, 'tidemark.wasm'), out: join(own, 'out') });
    const list = (/** @type {string} */ at) => readdirSync(at, { recursive: true, withFileTypes: true }).filter((file) => file.isFile())
      .map((file) => join(file.parentPath ?? file.path, file.name)).sort();
    const made = list(join(own, 'out'));
    assert.deepEqual(made.map((file) => relative(join(own, 'out'), file)), list(folder).map((file) => relative(folder, file)));
    for (const file of made) assert.ok(readFileSync(file).equals(readFileSync(join(folder, relative(join(own, 'out'), file)))), file);
    for (const name of ['preact', 'd3-shape', '@preact/signals']) assert.match(readFileSync(join(folder, 'licences.txt'), 'utf8'), new RegExp(`^${name} `, 'm'));
    rmSync(own, { recursive: true });
  });

  /* ---- offline ---- */

  /** The built page in a folder of its own that a test may change. @param {(at: string, own: string, context: any, page: any) => any} use */
  async function hosted(use) {
    const own = mkdtempSync(join(tmpdir(), 'tidemark-page-'));
    cpSync(folder, join(own, 'tools/tidemark'), { recursive: true });
    const host = await serve(own, { headers: false, encodings: [] }); /* what a test writes has no compressed form */
    const { context, page } = await openContext(browser);
    try {
      await page.goto(`${host.url}tools/tidemark/`);
      await ready(page);
      await page.evaluate(() => navigator.serviceWorker.ready);
      await use(host.url, join(own, 'tools/tidemark'), context, page);
    } finally {
      await context.close();
      host.close();
      rmSync(own, { recursive: true });
    }
  }
  const again = async (/** @type {any} */ page) => {
    await page.reload();
    await ready(page);
  };

  test('offline: after the first visit the page needs no network', () => hosted(async (at, own, context, page) => {
    await context.setOffline(true);
    await again(page);
    await page.locator('.foot', { hasText: 'offline copy' }).waitFor();
    await page.locator('#set-batch').fill('3');
    await page.waitForFunction(() => location.hash.includes('batch=3'));
    await page.evaluate(() => { location.hash = '#model=qwen3-0.6b&gpu=t4&v=1'; });
    await page.waitForFunction(() => /Qwen3 0\.6B/.test(document.title));
    await choose(page, recorded('snapshot-plain.pickle.gz'));
    await page.getByText('With other options').waitFor();
  }));

  test('offline: a new version waits for the user’s word, and leaves other tabs alone', () => hosted(async (at, own, context, page) => {
    const other = await context.newPage();
    await other.goto(page.url());
    await ready(other);
    await other.evaluate(() => { document.title = 'untouched'; });
    const index = readFileSync(join(own, 'index.html'), 'utf8');
    writeFileSync(join(own, 'index.html'), index.replace('<html lang="en">', '<html lang="en" data-version="next">'));
    writeFileSync(join(own, 'sw.js'), readFileSync(join(own, 'sw.js'), 'utf8').replace(/tidemark \$\{([^}]+)\} /, 'tidemark ${$1} next'));
    await again(page);
    await page.evaluate(() => navigator.serviceWorker.getRegistration().then((r) => r?.update()));
    const button = page.getByRole('button', { name: 'Update' });
    await button.waitFor();
    await Promise.all([page.waitForEvent('load'), button.click()]);
    await ready(page);
    assert.equal(await page.evaluate(() => document.documentElement.dataset.version), 'next');
    assert.equal(await button.count(), 0);
    assert.equal(await other.title(), 'untouched');
    assert.equal((await page.evaluate(() => caches.keys())).length, 1);
  }));

  test('offline: the kill switch takes the service worker back', () => hosted(async (at, own, context, page) => {
    cpSync(join(own, 'sw-off.js'), join(own, 'sw.js'));
    await page.evaluate(() => navigator.serviceWorker.getRegistration().then((r) => r?.update()));
    await page.waitForFunction(async () => (await navigator.serviceWorker.getRegistrations()).length === 0 && (await caches.keys()).length === 0);
    await page.locator('#set-batch').fill('3');
    await page.waitForFunction(() => location.hash.includes('batch=3'));
  }));

  return () => { server.close(); };
}
