// SPDX-License-Identifier: Apache-2.0
/* The built page, as the tests of every file use it: one server, the core in Node, and what is done in many tests. */
import { existsSync } from 'node:fs';
import { openCore } from './core.mjs';
import { visitor } from './harness.mjs';
import { EXAMPLE } from '../../web/src/example.js';
import { serve } from '../../web/serve.mjs';

/** @typedef {Awaited<ReturnType<typeof openSite>>} Site */

export const recorded = (/** @type {string} */ name) => new URL(`../recordings/${name}`, import.meta.url).pathname;

const LLAMA = JSON.stringify({
  architectures: ['LlamaForCausalLM'], model_type: 'llama', vocab_size: 32000, hidden_size: 2048, intermediate_size: 5632,
  num_hidden_layers: 22, num_attention_heads: 32, num_key_value_heads: 4, max_position_embeddings: 2048,
  rms_norm_eps: 1e-5, hidden_act: 'silu', tie_word_embeddings: false,
}, null, 1);

/** The native program, where it is built. */
const program = ['build/gcc/tidemark', 'build/release/tidemark'].map((path) => new URL(`../../${path}`, import.meta.url).pathname).find((path) => existsSync(path));

/** What stands behind the # of the address, once the page has written it. @param {any} page */
const fragmentOf = (page) => page.waitForFunction(() => location.hash.slice(1)).then((/** @type {any} */ handle) => handle.jsonValue());

/** The field of a setting. @param {any} page @param {string} name */
const field = (page, name) => page.locator(`#set-${name}`);

/** Drops files as the browser would. @param {any} page @param {{name: string, text: string}[]} files */
async function drop(page, files) {
  const data = await page.evaluateHandle((/** @type {any[]} */ list) => {
    const transfer = new DataTransfer();
    for (const { name, text } of list) {
      const bytes = Uint8Array.from(text, (c) => c.charCodeAt(0));
      transfer.items.add(new File([bytes], name));
    }
    return transfer;
  }, files);
  for (const type of ['dragenter', 'dragover', 'drop']) await page.dispatchEvent('body', type, { dataTransfer: data });
}

/** @param {any} page @param {any} files */
const choose = (page, files) => page.setInputFiles('#chooser', files);

/** Scrolls to What if, which comes when it is near. @param {any} page */
export async function toWhatIf(page) {
  await page.locator('#whatif').evaluate((/** @type {Element} */ one) => one.scrollIntoView());
  await page.locator('.whatif').waitFor();
}

/** Opens a tab of What if. @param {any} page @param {string} name */
async function tab(page, name) {
  await toWhatIf(page);
  await page.getByRole('tab', { name }).click();
}

const bytesIn = (/** @type {string} */ text) => Number(text.replaceAll(/[^0-9]/g, ''));

/** The exact bytes behind a size. @param {any} place */
const bytesOf = async (place) => bytesIn(await place.getAttribute('data-tip'));

const clipboard = (/** @type {any} */ page) => page.evaluate(() => navigator.clipboard.readText());

/** @param {any} page @param {string} selector */
const focusIs = (page, selector) => page.waitForFunction((/** @type {string} */ wanted) => document.activeElement?.matches(wanted), selector);

/** @param {any} page @param {string} text */
async function palette(page, text) {
  await page.keyboard.press('Control+k');
  await focusIs(page, '.palette input');
  await page.keyboard.type(text);
}

/** What a click saves. @param {any} page @param {string} item of the Export menu */
async function saved(page, item) {
  await page.getByRole('button', { name: 'Export' }).click();
  const [download] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: item }).click()]);
  const chunks = [];
  for await (const chunk of await download.createReadStream()) chunks.push(chunk);
  return { name: download.suggestedFilename(), bytes: Buffer.concat(chunks) };
}

/** Waits until an event is looked at, and the allocator after it shown. @param {any} page @param {string} event */
const isAtEvent = (page, event) => page.waitForFunction((/** @type {string} */ wanted) =>
  document.querySelector('.event-title')?.textContent?.startsWith(`Event ${wanted} `) && document.getElementById('segments-title')?.textContent === `The allocator after event ${wanted}`
  && document.querySelector('.segments')?.getAttribute('aria-busy') === 'false', event);

/** @param {string} folder the built page @param {any} browser */
export async function openSite(folder, browser) {
  const server = await serve(folder);
  const bare = await serve(folder, { headers: false });
  /** @type {ReturnType<typeof openCore> | undefined} */
  let opened;
  const core = () => opened ??= openCore(folder);

  /** What the core answers in Node. @param {string[]} words @param {any[]} [files] */
  const fromCore = async (words, files = []) => (await core()).call({ call: 'estimate', settings: words, files });

  return {
    folder, browser, server, bare, visit: visitor(browser, server.url), core, fromCore, exampleWords: EXAMPLE.map((word) => word.join('=')), program, LLAMA,
    fragmentOf, field, drop, choose, tab, toWhatIf, bytesIn, bytesOf, clipboard, focusIs, palette, saved, isAtEvent,
    close() {
      server.close();
      bare.close();
    },
  };
}
