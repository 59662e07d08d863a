// SPDX-License-Identifier: Apache-2.0
/* The built page's own tidemark.wasm, run in Node: what the page relies on in its answers. */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { isNightly, some, test } from './harness.mjs';
import { EXAMPLE } from '../../web/src/example.js';
import { pack, unpack } from '../../web/src/links.js';
import { start } from '../../web/src/tidemark.js';

/** A file of the built page by the beginning of its name. @param {string} folder the built page @param {string} part */
export function part(folder, part) {
  const name = readdirSync(join(folder, 'assets')).find((file) => file.startsWith(`${part}-`));
  if (!name) throw new Error(`no ${part} in ${folder}/assets`);
  return readFileSync(join(folder, 'assets', name));
}

/** @param {string} folder the built page */
export function openCore(folder) {
  const [first, rest] = ['tidemark', 'rest'].map((name) => new WebAssembly.Module(part(folder, name)));
  return start(first, { models: part(folder, 'models'), rest });
}

const sum = (/** @type {number[]} */ list) => list.reduce((a, b) => a + b, 0);

/** All sums of a report, to the byte. @param {any} r */
function checkSums(r) {
  const names = r.factors.map((/** @type {any} */ f) => f.name);
  assert.equal(sum(r.factors.map((/** @type {any} */ f) => f.bytes)), r.peak.allocated, 'factors');
  assert.equal(sum(r.breakdown.map((/** @type {any} */ p) => p.bytes)), r.peak.allocated, 'parts');
  for (const part of r.breakdown) {
    assert.equal(sum(Object.values(part.factors)), part.bytes, `factors of ${part.part}`);
    if (part.layers.length) assert.equal(sum(part.layers.map((/** @type {any} */ l) => l.bytes)), part.bytes, `layers of ${part.part}`);
    for (const layer of part.layers) assert.equal(sum(Object.values(layer.factors)), layer.bytes, layer.name);
  }
  assert.equal(sum(r.outside.map((/** @type {any} */ o) => o.bytes)) + r.peak.allocated, r.verdict.device_bytes, 'outside');
  const { columns, peak_column: peak } = r.timeline;
  assert.ok(columns.length > 10 && columns.length <= 512, `${columns.length} columns`);
  assert.equal(Math.max(...columns.map((/** @type {any} */ c) => c.allocated)), columns[peak].allocated, 'peak column');
  for (const column of columns) {
    assert.equal(column.factors.length, names.length);
    assert.equal(sum(column.factors), column.allocated, `column at ${column.from}`);
  }
}

/** Links of jobs with random settings, the same ones every time. @param {any} core @param {number} count @returns {string[]} */
export function randomLinks(core, count) {
  const { settings } = core.call({ call: 'describe' });
  let seed = 11;
  const random = (/** @type {number} */ below) => {
    seed = (Math.imul(seed, 1103515245) + 12345) >>> 0;
    return Math.floor((seed / 2 ** 32) * below);
  };
  const plain = settings.filter((/** @type {any} */ s) => !['model', 'gpu', 'recipe', 'allocator', 'overrides', 'mode', 'quant', 'capability'].includes(s.name) &&
    !/^(parallel|lora|ia3|prompt|quant)\./.test(s.name) && s.when?.setting !== 'mode' && ['int', 'bool', 'choice', 'text', 'size', 'number'].includes(s.type));
  const value = (/** @type {any} */ s) => ({
    int: () => String(s.least + random(Math.min(s.most - s.least, 5000) + 1)), bool: () => ['true', 'false'][random(2)],
    choice: () => s.choices[random(s.choices.length)], size: () => `${1 + random(900)}x${1 + random(900)}`, number: () => `0.${1 + random(9)}`,
    text: () => Array.from({ length: 1 + random(20) }, () => [...'ab<&=%#+ é漢"{'][random(13)]).join('').trim() || 'a',
  }[/** @type {'int'} */ (s.type)]());
  const links = [];
  while (links.length < count) {
    const made = core.call({ call: 'link',
      settings: ['model=smollm2-135m', ...Array.from({ length: 1 + random(8) }, () => plain[random(plain.length)]).map((s) => `${s.name}=${value(s)}`)] });
    if (made.ok) links.push(made.link); /* else two values contradict each other */
  }
  return links;
}

/** @param {import('./site.mjs').Site} site */
export default function ({ core: opened }) {
  const words = EXAMPLE.map(([name, value]) => `${name}=${value}`);
  const estimate = (/** @type {any} */ core, /** @type {string[]} */ settings, /** @type {any[]} */ files = []) =>
    core.call({ call: 'estimate', settings, files });

  test('the example answers, and every sum is exact', async () => {
    const core = await opened();
    const r = estimate(core, words);
    assert.equal(r.ok, true, JSON.stringify(r.diagnostics));
    checkSums(r);
  });

  test('an answer’s link asks the same question', async () => {
    const core = await opened();
    const r = estimate(core, words);
    const again = estimate(core, r.link.split('&').filter((/** @type {string} */ w) => w !== 'v=1').map(decodeURIComponent));
    assert.equal(again.link, r.link);
    assert.deepEqual(again.peak, r.peak);
  });

  test('every model of the catalogue answers', async () => {
    const core = await opened();
    const failed = [];
    for (const model of some(core.call({ call: 'describe' }).models, 12)) {
      const name = model.name ?? model;
      const r = estimate(core, [`model=${name}`]);
      if (r.ok) checkSums(r);
      else failed.push(`${name}: ${r.diagnostics?.[0]?.message}`);
    }
    assert.deepEqual(failed, []);
  });

  test('wrong jobs are answered with place and remedy', async () => {
    const core = await opened();
    for (const wrong of [['model=nosuch'], ['model=llava-1.5-7b', 'batch=0'], ['model=llava-1.5-7b', 'batch=-3'], ['model=llava-1.5-7b', 'batch=x'],
      ['model=llava-1.5-7b', 'nonsense=1'], []]) {
      const r = estimate(core, wrong);
      assert.equal(r.ok, false, wrong.join(' '));
      const [first] = r.diagnostics;
      assert.ok(first.code && first.message && typeof first.place === 'string', JSON.stringify(first));
    }
    for (const text of ['', '{', '[]', '{"model_type":', 'null', '{"model_type":"nosuch"}', '{"__proto__":{}}', '\u0000']) {
      const r = estimate(core, [], [{ name: 'config.json', text }]);
      assert.equal(r.ok, false, text);
      assert.ok(r.diagnostics.length > 0, text);
    }
  });

  test('settings, link and settings again are the same for random jobs, readable and packed', async () => {
    const core = await opened();
    let packedOnes = 0;
    for (const link of randomLinks(core, isNightly ? 2000 : 200)) {
      const text = /** @type {string} */ (await pack(link));
      packedOnes += Number(text.startsWith('z='));
      const read = core.call({ call: 'read_link', link: await unpack(text) });
      assert.deepEqual(read.diagnostics, [], link);
      assert.equal(core.call({ call: 'link', settings: read.settings }).link, link);
      assert.match(link, /^[A-Za-z0-9\-_.,:/=&%]*&v=1$/);
    }
    assert.ok(packedOnes > 2, `${packedOnes} packed`);
  });

  test('links of every version open to what they came to', async () => {
    const core = await opened();
    for (const line of readFileSync(new URL('../links/v1.jsonl', import.meta.url), 'utf8').trim().split('\n')) {
      const { link, link_written: written, allocated, reserved, device } = JSON.parse(line);
      const r = core.call({ call: 'estimate', link: await unpack(link.slice(link.indexOf('#') + 1)) });
      assert.deepEqual([r.link, r.peak?.allocated, r.peak?.reserved, r.verdict?.device_bytes], [written, allocated, reserved, device], link);
    }
  });
}
