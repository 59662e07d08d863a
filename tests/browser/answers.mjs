// SPDX-License-Identifier: Apache-2.0
/* Whatever the page asks of its core, in page and workers, is held to the native program: the same question, the same bytes. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';
import { randomLinks } from './core.mjs';
import { isNightly, openContext, ready, say, still, test } from './harness.mjs';

const golden = new URL('../golden/', import.meta.url);

/** In the page: every request that goes to a worker, with its answer. */
function listen() {
  const heard = /** @type {{request: string, reply?: string}[]} */ ([]);
  Object.assign(window, { heard });
  const known = new WeakSet();
  const post = Worker.prototype.postMessage;
  Worker.prototype.postMessage = function (/** @type {any} */ data, /** @type {any[]} */ ...rest) {
    if (!known.has(this)) {
      known.add(this);
      const open = new Map();
      Object.assign(this, { open });
      this.addEventListener('message', ({ data: answer }) => {
        const one = open.get(answer.id);
        if (one && typeof answer.reply === 'string') one.reply = answer.reply;
      });
    }
    if (typeof data?.request === 'string') {
      const one = { request: data.request };
      heard.push(one);
      /** @type {any} */ (this).open.set(data.id, one);
    }
    return post.call(this, data, ...rest);
  };
}

/** In the page: the worker that is asked for estimates. */
function keepWorker() {
  const post = Worker.prototype.postMessage;
  Worker.prototype.postMessage = function (/** @type {any} */ data, /** @type {any[]} */ ...rest) {
    if (typeof data?.request === 'string' && data.request.includes('"call":"estimate"')) Object.assign(window, { kept: this });
    return post.call(this, data, ...rest);
  };
}

/** @param {import('./site.mjs').Site} site */
export default function ({ browser, core, program, server, toWhatIf }) {
  /** @param {string} request @param {string[]} [line] */
  const printed = (request, line = ['call']) => spawnSync(/** @type {string} */ (program), line, { input: request, maxBuffer: 64 << 20, encoding: 'utf8' }).stdout.replace(/\n$/, '');

  test('every golden question, put to the page’s own worker, is what the program answers, byte for byte', async () => {
    if (!program) return say('skipped: the native program is not built');
    const { context, page, problems } = await openContext(browser, { serviceWorkers: 'block' });
    await page.addInitScript(keepWorker);
    await page.goto(`${server.url}#model=gpt2&gpu=t4&v=1`); /* what the first module lacks has come */
    await ready(page);
    let count = 0;
    for (const name of readdirSync(golden).filter((file) => file.endsWith('.job.json'))) {
      const request = readFileSync(new URL(name, golden), 'utf8');
      const reply = await page.evaluate((/** @type {{id: number, request: string}} */ asked) => new Promise((done) => {
        const { kept } = /** @type {any} */ (window);
        const hear = (/** @type {MessageEvent} */ { data }) => {
          if (data.id !== asked.id) return;
          kept.removeEventListener('message', hear);
          done(data.reply ?? JSON.stringify(data));
        };
        kept.addEventListener('message', hear);
        kept.postMessage(asked);
      }), { id: -++count, request });
      assert.ok(reply === printed(request), `${name}: ${reply.slice(0, 200)}`);
    }
    await context.close();
    assert.deepEqual(problems, []);
    assert.ok(count > 20, `${count} questions`);
  });

  test('random jobs are what the program answers, byte for byte', async () => {
    if (!program) return say('skipped: the native program is not built');
    const opened = await core();
    let tooLarge = 0;
    for (const link of randomLinks(opened, isNightly ? 500 : 40)) {
      const request = JSON.stringify({ call: 'measure', link });
      const reply = opened.callText(request);
      if (reply.includes('ERR_NO_MEMORY')) tooLarge++;
      else assert.equal(reply, printed(request), link);
    }
    assert.ok(tooLarge < 10, `${tooLarge} do not fit the module's memory`);
  });

  test('all that the page asks in a session is what the program answers, byte for byte', async () => {
    if (!program) return say('skipped: the native program is not built');
    const { context, page, problems } = await openContext(browser, { serviceWorkers: 'block' });
    await page.addInitScript(listen);
    await page.goto(`${server.url}#model=gpt2&gpu=t4&batch=64&b.checkpointing=full&v=1`);
    await ready(page);
    await page.locator('#compare .causes').waitFor();
    await page.locator('.closest .button').waitFor();
    await page.locator('#set-batch').fill('2');
    await page.locator('.verdict.is-fits').waitFor();
    await page.locator('.factor-table .opens').first().click();
    await page.locator('.drawer .formula').first().waitFor();
    await page.keyboard.press('Escape');
    await page.locator('.plot').focus();
    await page.keyboard.press(']');
    await page.locator('.event-readout').waitFor();
    await toWhatIf(page);
    for (const name of ['Reduce memory', 'Largest that fits', 'GPUs that fit']) {
      await page.getByRole('tab', { name }).click();
      await page.locator('.whatif tbody tr').first().waitFor();
    }
    await page.getByRole('tab', { name: 'Heat map' }).click();
    const values = page.locator('.axis-field input');
    for (const [i, text] of [[0, '1,2'], [1, '128,256']]) {
      await values.nth(/** @type {number} */ (i)).fill(text);
      await values.nth(/** @type {number} */ (i)).blur();
    }
    await page.locator('.heat-state', { hasText: '4 cells simulated' }).waitFor();
    await page.setInputFiles('#chooser', [new URL('../cli/files/tiny/config.json', import.meta.url).pathname, new URL('../cli/files/launch/zero2.json', import.meta.url).pathname]);
    await page.locator('.file-kind', { hasText: 'DeepSpeed' }).waitFor();
    await page.locator('#set-batch').fill('0');
    await page.locator('.field-error').waitFor();
    await page.getByRole('button', { name: 'Share' }).click();
    await page.getByRole('button', { name: 'Copy link' }).click();
    await page.locator('.said').waitFor();
    const recorded = new URL('../recordings/snapshot-plain.pickle.gz', import.meta.url).pathname;
    await page.setInputFiles('#chooser', recorded);
    await page.getByText('With other options').waitFor();
    await page.locator('#segments-title').waitFor();
    await page.getByRole('button', { name: 'Closer' }).click();
    await page.locator('.timeline-tools .muted').waitFor();
    await still(page);
    const heard = /** @type {{request: string, reply?: string}[]} */ (await page.evaluate(() => /** @type {any} */ (window).heard));
    await context.close();
    assert.deepEqual(problems, []);

    const answered = new Map(heard.filter(({ reply }) => reply !== undefined).map(({ request, reply }) => [request, reply]));
    const calls = new Set([...answered.keys()].map((request) => JSON.parse(request).call));
    assert.deepEqual(['advice', 'cards', 'compare', 'describe', 'estimate', 'explain', 'fit', 'link', 'measure', 'read_link', 'recorded_bands', 'recorded_events', 'recorded_growth', 'recorded_live', 'recorded_state', 'recorded_timeline', 'replay', 'timeline'].filter((call) => !calls.has(call)), [], 'asked in this session');
    /* What is asked of a recording has options of its own. */
    const lineOf = (/** @type {any} */ { call, settings, at, count, filter }) => {
      if (!/^(replay|recorded_(events|state))$/.test(call)) return ['call'];
      const options = call === 'replay' ? [] : [call === 'recorded_state' ? '--state' : '--events', '--at', String(at), ...(count ? ['--count', String(count)] : []), '--filter', filter];
      return ['replay', recorded, ...settings, ...options, '--json'];
    };
    for (const [request, reply] of answered) {
      const line = lineOf(JSON.parse(request));
      const asked = JSON.parse(request);
      const said = printed(/^recorded_(timeline|bands|live|growth)$/.test(asked.call) ? JSON.stringify({ ...asked, recording: { base64: gunzipSync(readFileSync(recorded)).toString('base64') } }) : request, line);
      assert.ok(reply === said, `${request.slice(0, 300)}\n${reply?.slice(0, 200)}\n${said.slice(0, 200)}`);
    }
    say(`${answered.size} answers to ${calls.size} kinds of questions`);
  });
}
