// SPDX-License-Identifier: Apache-2.0
/* The page's modules without a browser: words and links, files, formats, tables, what the palette finds. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { deflateSync } from 'node:zlib';
import { test } from './harness.mjs';
import { narrow } from '../../web/src/catalogue.js';
import { cell, csv } from '../../web/src/csv.js';
import { ASKED, cellAt, cellPaths, cellWords, freeOf, SEEN, seenRows, sourceOf } from '../../web/src/events.js';
import { fromFile, isYaml, ofDrop, readText } from '../../web/src/files.js';
import { assignment, find } from '../../web/src/find.js';
import { extent, inUnit, natural, params, percent, sentences, ticks } from '../../web/src/format.js';
import { fullest, timesOf } from '../../web/src/schedule.js';
import { gpusOf, layoutOf, layoutWords, otherLayouts, reads, stagesLeft, tokensOf } from '../../web/src/layout.js';
import { pack, unpack } from '../../web/src/links.js';
import { closest, firstThatRun, nearValues } from '../../web/src/nearest.js';
import { PANELS } from '../../web/src/panels.js';
import { aligned, phases } from '../../web/src/phases.js';
import { bandAt, categoryOf, difference, flameOf, outline, ownFrame, placed } from '../../web/src/stacks.js';
import { readsSize } from '../../web/src/sizes.js';
import { grows, inOrderOfPlay, readValues, usualValues, walkEdge } from '../../web/src/sweep.js';
import { readView, toSel, toSweep } from '../../web/src/viewtext.js';
import { toCommand } from '../../web/src/words.js';
import { toJson } from '../../web/src/yaml.js';

const fromWeb = createRequire(new URL('../../web/package.json', import.meta.url));

/** Small repeatable random numbers. */
let seed = 7;
const random = (/** @type {number} */ below) => {
  seed = (Math.imul(seed, 1103515245) + 12345) >>> 0;
  return Math.floor((seed / 2 ** 32) * below);
};

test('job: a setting is read where it is assumed, or given and not said to have no effect', () => {
  const said = [{ severity: 'warning', code: 'ERR_NO_EFFECT', place: '/settings/seq', message: '' }];
  const job = (/** @type {string} */ origin, /** @type {any[]} */ assumptions, /** @type {any[]} */ diagnostics) =>
    /** @type {any} */ ({ settings: [{ name: 'seq', value: '512', origin }], assumptions, diagnostics });
  assert.ok(reads(job('default', [{ setting: 'seq', value: '512', text: '' }], []), 'seq'));
  assert.ok(!reads(job('default', [], []), 'seq'), 'a default of a model of images');
  assert.ok(reads(job('user', [], []), 'seq'));
  assert.ok(!reads(job('user', [], said), 'seq'));
});

test('job: fields are those of the sizes that the model reads', () => {
  const job = (/** @type {string} */ part, /** @type {string[]} */ read) =>
    /** @type {any} */ ({ model: { parameters: { parts: [{ name: part }] } }, settings: [], diagnostics: [], assumptions: read.map((setting) => ({ setting, value: '', text: '' })) });
  const shown = (/** @type {any} */ of) => ['batch', 'seq', 'lengths', 'images', 'image_size'].filter((name) => readsSize(of, name));
  assert.deepEqual(shown(job('model', ['seq'])), ['batch', 'seq', 'lengths']);
  assert.deepEqual(shown(job('model', [])), ['batch', 'seq', 'lengths'], 'lengths in place of seq');
  assert.deepEqual(shown(job('transformer_blocks', ['image_size'])), ['batch', 'image_size'], 'a denoiser');
  assert.deepEqual(shown(job('vision_tower', ['seq', 'images', 'image_size'])), ['batch', 'seq', 'lengths', 'images', 'image_size']);
});

test('sources: no file of the page imports one that imports it back, behind a click neither', async () => {
  const { build } = fromWeb('esbuild');
  const web = new URL('../../web/', import.meta.url).pathname;
  const { metafile } = await build({ entryPoints: ['main.jsx', 'embed.jsx', 'prerender.jsx', 'worker.js', 'sw.js'].map((name) => `src/${name}`), absWorkingDir: web,
    bundle: true, splitting: true, format: 'esm', platform: 'node', outdir: 'none', write: false, metafile: true, packages: 'external', jsx: 'automatic', loader: { '.css': 'text' } });
  /** @type {Map<string, string>} files that have been followed, and those on the way with what follows them */
  const state = new Map();
  /** @param {string} file @param {string[]} way */
  function follow(file, way) {
    assert.notEqual(state.get(file), 'on the way', [...way.slice(way.indexOf(file)), file].join(' imports '));
    if (state.has(file)) return;
    state.set(file, 'on the way');
    for (const { path, external } of metafile.inputs[file].imports) if (!external && path.startsWith('src/')) follow(path, [...way, file]);
    state.set(file, 'followed');
  }
  for (const file of Object.keys(metafile.inputs)) follow(file, []);
  assert.ok(state.size > 60 && state.has('src/ui/HeatMap.jsx'), [...state.keys()].join(' '));
});

test('sources: they pass the type checker; the lock file holds no download address', () => {
  const web = new URL('../../web/', import.meta.url);
  execFileSync(process.execPath, ['node_modules/typescript/bin/tsc', '-p', 'jsconfig.json'], { cwd: web, encoding: 'utf8' });
  assert.doesNotMatch(readFileSync(new URL('package-lock.json', web), 'utf8'), /"resolved"/);
});

test('links: packed and unpacked they are the same; damaged ones, bombs and endless ones are named', async () => {
  const letters = 'abcxyz019-_.,:/ =&%#+\'"<>é漢';
  for (let i = 0; i < 300; i++) {
    const link = `config=${encodeURIComponent(Array.from({ length: random(6000) }, () => [...letters][random([...letters].length)]).join(''))}%7B&v=1`;
    const packed = await pack(link);
    if (packed === null) continue;
    assert.match(packed, /^z=1\.[A-Za-z0-9_-]*$/);
    assert.equal(await unpack(packed), link);
    assert.ok(packed.length <= 8000);
  }
  assert.equal(await pack('model=gpt2&v=1'), 'model=gpt2&v=1');
  assert.equal(await unpack('model=gpt2&v=1'), 'model=gpt2&v=1');
  const packed = /** @type {string} */ (await pack(`model=gpt2&title=${'%7B'.repeat(900)}&v=1`));
  for (const wrong of [packed.slice(0, -6), packed.slice(0, 12), `z=1.!${packed.slice(5)}`, 'z=1.']) await assert.rejects(unpack(wrong), /damaged or was cut/);
  await assert.rejects(unpack('z=9.abc'), /compressed in a way/);
  await assert.rejects(unpack('a'.repeat(65537)), /longer than 64 KiB/);
  const bomb = `z=1.${deflateSync(Buffer.alloc(40 << 20)).toString('base64url')}`;
  assert.ok(bomb.length < 65536);
  await assert.rejects(unpack(bomb), /more than 256 KiB/);
});

test('links to a view: what is written comes back, field by field, and what is not here is passed over', () => {
  /** @type {any} */
  const r = { timeline: { events: 5000 }, factors: [{ name: 'activations', bytes: 1 }],
    breakdown: [{ part: 'language_model', title: 'Language model', layers: [{ name: 'layers.3' }] }, { part: '', title: 'Outside of the model', layers: [] }] };
  const isSetting = (/** @type {string} */ name) => ['batch', 'seq', 'gpu'].includes(name);
  const read = (/** @type {any} */ written) => readView(written, r, isSetting);
  const sel = toSel({ factor: 'activations', part: 'language_model', layer: 'layers.3', event: 1304, from: 1000, to: 2000, zoom: 'language_model', title: 'x' });
  assert.equal(sel, 'factor:activations,part:language_model,layer:layers.3,event:1304,from:1000,to:2000,zoom:language_model');
  assert.deepEqual(read({ view: 'details', sel }), { panel: '', view: { event: 1304, window: { from: 1000, to: 2000 }, zoom: 'language_model' },
    details: { title: 'Activations, Language model, layers.3', factor: 'activations', part: 'language_model', layer: 'layers.3' } });
  const sweep = toSweep([{ name: 'batch', text: '1, 2,4' }, { name: 'seq', text: '512-8192:512' }, { name: '', text: '' }]);
  assert.equal(sweep, 'batch:1,2,4/seq:512-8192:512');
  assert.deepEqual(read({ view: 'map', sweep }), { panel: 'map', view: { axes: [{ name: 'batch', text: '1,2,4' }, { name: 'seq', text: '512-8192:512' }], inside: 'map' }, details: null });
  assert.deepEqual(read({ view: 'timeline', sel: 'event:99999,part:gone,factor:nothing,from:9,to:3,zoom:gone,%:%,constructor:1' }), { panel: 'timeline', view: {}, details: null });
  assert.deepEqual(read({ view: '__proto__', sel: 'x'.repeat(70000), sweep: 'colour:red/batch:/batch:1,2' }), { panel: '', view: {}, details: null });
  assert.deepEqual(read({ view: 'details', sel: 'outside:context' }).details, { title: 'CUDA context', outside: 'context' });
  assert.deepEqual(read({ view: 'details', sel: 'event:12' }).details, { title: 'Alive at event 12', event: 12 });
});

test('words: the command is safe in a shell', () => {
  assert.equal(toCommand([['model', 'llava-1.5-7b'], ['allocator', "a:'b'; rm *"]], ['my config.json']),
    "tidemark estimate 'my config.json' model=llava-1.5-7b 'allocator=a:'\\''b'\\''; rm *'");
});

test('yaml: as PyYAML reads it', async () => {
  for (const line of readFileSync(new URL('../yaml/cases.jsonl', import.meta.url), 'utf8').trim().split('\n')) {
    const { yaml, json, error } = JSON.parse(line);
    if (error) assert.throws(() => toJson(yaml), yaml);
    else assert.deepEqual(JSON.parse(toJson(yaml)), json, yaml);
  }
});

test('yaml: aliases, depth and keys have limits', async () => {
  const laughs = ['a0: &a0 [x,x,x,x,x,x,x,x,x,x]'];
  for (let i = 1; i < 10; i++) laughs.push(`a${i}: &a${i} [${Array(10).fill(`*a${i - 1}`).join(',')}]`);
  assert.throws(() => toJson(laughs.join('\n')), /expand to more than/);
  assert.throws(() => toJson(`${'['.repeat(100)}${']'.repeat(100)}`), /deeper than/);
  assert.throws(() => toJson(Array.from({ length: 5000 }, (_, i) => `k${i}: 1`).join('\n')), /more than 4096 keys/);
  assert.throws(() => toJson('['.repeat(200000)));
  assert.equal(toJson('__proto__: {a: 1}\n'), '{"__proto__":{"a":1}}');
});

test('yaml: told by its name or its first line, and read as JSON', async () => {
  assert.ok(isYaml('a.yml', '') && isYaml('a', '# x\n---\nnum_processes: 8\n') && !isYaml('a', '{"a": 1}') && !isYaml('a', 'https://x'));
  const { file } = await readText('accelerate.yaml', 'distributed_type: FSDP\nmixed_precision: no\n');
  assert.deepEqual(file, { name: 'accelerate.yaml', text: '{"distributed_type":"FSDP","mixed_precision":false}', kind: 'other' });
  assert.match((await readText('b.yaml', 'a: [1\n')).problem ?? '', /^b\.yaml: line 2/);
});

test('format: sizes, percentages, ticks', () => {
  assert.equal(inUnit(70638370816, 'GiB'), '65.79');
  assert.equal(inUnit(6144, 'GiB'), '<0.01');
  assert.equal(inUnit(0, 'GiB'), '0.00');
  assert.equal(inUnit(70638370816, 'MiB'), '67,366');
  assert.equal(natural(90177536, 'GiB'), '86.0 MiB');
  assert.equal(extent({ low: 2 ** 30, high: 2 ** 31 }, 'GiB'), 'between 1.0 and 2.0 GiB');
  assert.equal(extent({ low: 2 ** 30, high: 2 ** 30 + 2 ** 22 }, 'GiB'), 'give or take 2.0 MiB');
  assert.equal(percent(1, 1000), '<1 %');
  assert.equal(params(7063427072), '7.06 B');
  assert.deepEqual(ticks(80 * 2 ** 30, 'GiB', 6).map((t) => t / 2 ** 30), [0, 16, 32, 48, 64, 80]);
});

test('format: a diagnostic as sentences', () => {
  const say = (/** @type {any} */ d) => Object.values(sentences(d)).join(' ').trim();
  assert.equal(say({ place: '/settings/batch', message: 'is "0"; must be a whole number' }), 'batch is "0"; must be a whole number.');
  assert.equal(say({ place: '/settings/model', message: 'no model is given', remedy: 'write model=NAME' }), 'No model is given. Write model=NAME.');
  assert.equal(say({ place: '/files/0', message: 'config.json: not JSON at line 1', remedy: 'Mend it.' }), 'config.json: not JSON at line 1. Mend it.');
});

test('phases: an event of one job is found in the same part of the same phase of another', () => {
  const one = phases(/** @type {any} */ ({ events: 100, marks: [{ event: 10, step: 0, phase: 'load' }, { event: 40, step: 1, phase: 'forward' }, { event: 80, step: 1, phase: 'backward' }] }));
  assert.deepEqual(one.map(({ from, to }) => [from, to]), [[0, 10], [10, 40], [40, 100]]);
  const other = phases(/** @type {any} */ ({ events: 30, marks: [{ event: 6, step: 0, phase: 'load' }, { event: 16, step: 1, phase: 'forward' }, { event: 20, step: 1, phase: 'backward' }] }));
  assert.deepEqual([0, 5, 10, 25, 40, 70, 100].map(aligned(one, other)), [0, 3, 6, 11, 16, 23, 30]);
  assert.deepEqual([10, 25, 40, 100].map(aligned(one, other.filter(({ phase }) => phase !== 'forward'))), [6, 6, 16, 30], 'a phase that is not there takes no room');
});

test('of a dropped folder what can say something of a job, and no more than there may be', async () => {
  const file = (/** @type {string} */ name) => ({ isFile: true, name, file: (/** @type {any} */ done) => done(new File(['{}'], name)) });
  const folder = (/** @type {string} */ name, /** @type {any[]} */ entries) => ({ isDirectory: true, name, createReader: () => {
    let left = [entries, []];
    return { readEntries: (/** @type {any} */ done) => done(left.shift()) };
  } });
  const drop = (/** @type {any[]} */ entries) => ofDrop(/** @type {any} */ ({ items: entries.map((entry) => ({ webkitGetAsEntry: () => entry })), files: [] }));
  const names = async (/** @type {any[]} */ entries) => (await drop(entries)).map(({ name }) => name);
  assert.deepEqual(await names([folder('model', [file('config.json'), file('README.md'), file('model-00001-of-00002.safetensors'), file('tokenizer.json'),
    folder('scripts', [file('zero2.json'), file('accelerate.yaml'), file('run.sh')])])]), ['config.json', 'zero2.json', 'accelerate.yaml']);
  assert.ok((await names([folder('many', Array.from({ length: 500 }, (_, i) => file(`a${i}.yaml`)))])).length <= 20);
  assert.deepEqual(await names([folder('a', [folder('b', [folder('c', [folder('d', [file('config.json')])])])])]), [], 'not deeper than three');
});

test('of safetensors the header alone is read; a header that cannot be is named', async () => {
  const header = JSON.stringify({ a: { dtype: 'BF16', shape: [2, 2], data_offsets: [0, 8] } });
  const length = new Uint8Array(new BigUint64Array([BigInt(header.length)]).buffer);
  assert.equal((await fromFile(new File([length, header, new Uint8Array(64)], 'model.safetensors'))).file?.text, header);
  assert.match((await fromFile(new File([length, '{"a'], 'model.safetensors'))).problem ?? '', /cut or damaged/);
});

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
  const of = (/** @type {string} */ title, /** @type {number} */ needs) => ({ ...change(title, true, 'x=1'), lasts: needs <= 97, device_bytes: needs, gpu_bytes: 100 });
  assert.equal(closest([of('lasts', 80), of('lasts too', 97), of('barely', 99), of('by retries', 104)])?.title, 'lasts too');
  assert.equal(closest([of('barely', 99), of('by retries', 104)])?.title, 'barely', 'what does not last is better than what is retried');
  assert.equal(closest([of('by retries', 104)])?.title, 'by retries', 'and that better than nothing');
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
  assert.deepEqual(nearValues(/** @type {any} */ ({ name: 'parallel.pp', type: 'int', default: '1' }), '16', '126 layers do not divide into 16 stages').filter((n) => 126 % Number(n) === 0).slice(0, 2), ['18', '14']);
});

test('near values: those that run are shown as far as all nearer ones are answered', () => {
  const values = ['3', '1', '4', '5', '8', '65536'];
  const runs = /** @type {boolean[]} */ ([]);
  assert.deepEqual(firstThatRun(values, runs, 2), { first: [], isWhole: false });
  runs[2] = runs[3] = true;
  assert.deepEqual(firstThatRun(values, runs, 2), { first: [], isWhole: false }, 'nearer ones may run');
  runs[0] = runs[1] = false;
  assert.deepEqual(firstThatRun(values, runs, 2), { first: ['4', '5'], isWhole: true });
  assert.deepEqual(firstThatRun(values, runs, 3), { first: ['4', '5'], isWhole: false });
  runs[4] = runs[5] = false;
  assert.deepEqual(firstThatRun(values, runs, 3), { first: ['4', '5'], isWhole: true }, 'no more come');
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

test('a picker finds by words, and the base of a name that goes on', () => {
  const choices = ['qwen2.5-7b', 'qwen2.5-7b-coder', 'llama-3.1-8b', 'gpt2'].map((name) => ({ name, title: name, note: '', search: `${name} of some kind` }));
  const names = (/** @type {string} */ typed) => narrow(choices, typed).map(({ name }) => name);
  assert.deepEqual(names('qwen KIND'), ['qwen2.5-7b', 'qwen2.5-7b-coder']);
  assert.deepEqual(narrow(['distilgpt2', 'gpt2-medium', 'gpt2'].map((name) => ({ name, title: name, note: '', search: name })), 'GPT2').map(({ name }) => name), ['gpt2', 'gpt2-medium', 'distilgpt2']);
  assert.deepEqual(names('Qwen/Qwen2.5-7B-Instruct'), ['qwen2.5-7b']);
  assert.deepEqual(names('Qwen/Qwen2.5-7B-Coder-v2'), ['qwen2.5-7b-coder']);
  assert.deepEqual(names('openai/gpt2'), ['gpt2']);
  assert.deepEqual(names('gpt22'), []);
  assert.deepEqual(names('nobody/llama-3.1-80b'), []);
  assert.deepEqual(names(''), choices.map(({ name }) => name));
});

test('a picker takes published names for what they mean, and no other for it', () => {
  const choices = [['mistral-7b', 'mistralai/Mistral-7B-v0.1'], ['mistral-7b-v0.3', 'mistralai/Mistral-7B-v0.3'], ['llama-3-8b', 'meta-llama/Meta-Llama-3-8B'],
    ['llama-3.1-8b', 'meta-llama/Llama-3.1-8B'], ['falcon-7b', 'tiiuae/falcon-7b'], ['qwen2.5-7b', 'Qwen/Qwen2.5-7B']]
    .map(([name, id]) => ({ name, title: name, note: '', search: name, ids: [id] }));
  const first = (/** @type {string} */ typed) => {
    const [choice] = narrow(choices, typed);
    return choice && [choice.name, ...(choice.words ?? []).map((word) => word.join('='))].join(' ');
  };
  for (const [typed, meant] of [
    ['mistralai/Mistral-7B-Instruct-v0.3', 'mistral-7b-v0.3'], ['mistralai/Mistral-7B-Instruct-v0.2', 'mistral-7b'],
    ['meta-llama/Meta-Llama-3-8B', 'llama-3-8b'], ['Meta-Llama-3.1-8B-Instruct', 'llama-3.1-8b'], ['llama3', 'llama-3-8b'], ['llama3.1', 'llama-3.1-8b'], ['Llama 3 8B', 'llama-3-8b'],
    ['Qwen/Qwen2.5-7B-Instruct-AWQ', 'qwen2.5-7b quant=awq'], ['unsloth/Llama-3.1-8B-bnb-4bit', 'llama-3.1-8b quant=nf4'],
    ['Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4', 'qwen2.5-7b quant=gptq'], ['somebody/falcon-4-7b', undefined], ['Qwen/Qwen2.5-Omni-7B', undefined],
  ]) assert.equal(first(/** @type {string} */ (typed)), meant, typed);
  assert.equal(narrow(choices, 'Meta-Llama-3-8B')[0].taken, 'Meta-Llama-3-8B');
});

test('events: the rows around one, when more are asked for, and cells in words and paths', () => {
  const rows = (/** @type {number} */ from, /** @type {number} */ count, by = 1) => Array.from({ length: count }, (_, i) => ({ event: from + i * by, kind: /** @type {'alloc'} */ ('alloc') }));
  const of = (/** @type {any} */ list, /** @type {number} */ first, /** @type {number} */ passing) => ({ events: 1e6, passing, first, rows: list });
  const middle = seenRows(of(rows(1000, ASKED), 1000, 1e6), 1120);
  assert.deepEqual([middle.rows.length, middle.rows[middle.at].event, middle.wantsMore], [SEEN, 1120, false]);
  assert.equal(seenRows(of(rows(1000, ASKED), 1000, 1e6), 1010).wantsMore, true, 'near its beginning');
  assert.equal(seenRows(of(rows(0, ASKED), 0, 1e6), 3).wantsMore, false, 'where nothing is before');
  assert.equal(seenRows(of(rows(1000, ASKED), 1000, 1000 + ASKED), 1000 + ASKED - 1).wantsMore, false, 'at the end of all');
  assert.equal(seenRows(of(rows(1000, ASKED), 1000, 1e6), 500000).wantsMore, true, 'far away');
  const some = seenRows(of(rows(0, 5, 10), 0, 5), 11);
  assert.deepEqual([some.rows.length, some.rows[some.at].event], [5, 20], 'with a filter, the next that passes');
  assert.deepEqual(seenRows(of([], 0, 0), 7), { rows: [], at: -1, wantsMore: false });

  assert.equal(sourceOf({ frame: '/usr/lib/python3/site-packages/torch/nn/linear.py:134 forward' }), '…/nn/linear.py:134 forward');
  assert.equal(sourceOf({ frame: 'train.py:3 step' }), 'train.py:3 step');
  assert.equal(sourceOf({ module: 'model.language_model.layers.31.mlp.gate_proj', op: 'linear' }), '…31.mlp.gate_proj linear');
  assert.equal(sourceOf({ op: 'free' }), 'free');

  /** @type {any} */
  const segment = { bytes: 1000, live: 700, waiting: 100, cells: [{ at: 0, bytes: 500, state: 'live', factor: 'gradients' }, { at: 500, bytes: 100, state: 'waiting' },
    { at: 600, bytes: 200, state: 'several', blocks: 3, live: 200 }, { at: 800, bytes: 200, state: 'free' }] };
  assert.deepEqual([0, 0.49, 0.5, 0.65, 0.99, 2, -1].map((share) => cellAt(segment, share)), [0, 0, 1, 2, 3, 3, 0]);
  assert.deepEqual(cellPaths(segment, 10), [['gradients', 'M0.00 0H500.00V10H0.00z'], ['waiting', 'M500.00 0H600.00V10H500.00z'], ['allocated', 'M600.00 0H800.00V10H600.00z']]);
  assert.equal(freeOf(segment), 200);
  const size = (/** @type {number} */ n) => `${n} B`;
  assert.equal(cellWords(segment.cells[2], size), '3 small blocks, 200 B: 200 B live, 0 B free');
  assert.equal(cellWords({ at: 0, bytes: 5, state: 'live', event: 1234 }, size), '5 B live, taken at event 1,234');
  assert.equal(cellWords({ at: 0, bytes: 5, state: 'live' }, size), '5 B live, from before the recording');
});

test('panels: each has a name of its own, what holds it is there, and letters are taken once', () => {
  const names = PANELS.map(({ name }) => name);
  assert.equal(new Set(names).size, names.length);
  for (const { name, title, help, inside } of PANELS) assert.ok(/^[a-z]+$/.test(name) && title && help && (!inside || names.includes(inside)), name);
  const keys = PANELS.flatMap(({ key = [] }) => key);
  assert.equal(new Set(keys).size, keys.length);
});

test('stacks: bands lie on each other, the oldest lowest, and none is where it does not live', () => {
  const bands = Array.from({ length: 60 }, () => {
    const from = random(100);
    return { from, to: random(4) ? from + 1 + random(60) : undefined, bytes: 1 + random(9), stack: 0 };
  }).sort((a, b) => a.from - b.from);
  const alive = (/** @type {number} */ at) => bands.filter(({ from, to = Infinity }) => from <= at && at < to);
  const columns = Array.from({ length: 100 }, (_, at) => ({ from: at, at, allocated: alive(at).reduce((sum, { bytes }) => sum + bytes, 5) }));
  const rows = placed({ columns, bands, events: 100, from: 0, to: 100, stacks: [[]], names: [] });
  for (const { at, allocated } of columns) {
    const seen = [];
    for (let bytes = 0.5; bytes < allocated; bytes++) seen.push(bandAt(rows, at, bytes));
    assert.deepEqual([...new Set(seen.filter(Boolean))], alive(at));
    assert.equal(seen.filter((one) => one === null).length, 5, 'what is no band lies on top');
  }
  assert.equal(outline({ band: { from: 0, bytes: 2, stack: 0 }, first: 1, low: [0, 0, 3] }, 4, 100, (n) => 10 - n), 'M25.0 10.0H75.0V7.0H100.0V5.0H75.0V8.0H25.0z');
});

test('stacks: own frame and category, the flame graph’s sums, and what differs between two', () => {
  assert.equal(ownFrame(['/x/torch/nn/modules/linear.py:134 forward', 'train.py:11 main', 'train.py:20 <module>']), 'train.py:11 main');
  assert.equal(ownFrame(['??', 'at::empty']), 'at::empty');
  assert.equal(ownFrame([]), 'no frame was recorded');
  assert.deepEqual([['/x/torch/optim/adamw.py:9 step', 'a.py:1 b'], ['/x/torch/autograd/graph.py:1 run', 'a.py:1 b'], ['/x/torch/nn/modules/linear.py:1 forward'], ['a.py:1 main'], []].map(categoryOf),
    ['Optimizer', 'Backward', 'Forward', 'Other', 'No stack']);
  const names = ['a.py:1 f', 'b.py:2 g', 'main.py:3 m'];
  const live = (/** @type {[number, number, number][]} */ list, stacks = [[0, 2], [1, 2], [2]]) => ({ names, stacks, event: 0, allocated: 0, rest: 0, live: list.map(([bytes, count, stack]) => ({ bytes, count, stack })) });
  const root = flameOf(live([[30, 1, 0], [20, 4, 1], [5, 1, 2]]), 'bytes');
  const main = root.children.get('main.py:3 m');
  assert.deepEqual([root.value, main?.value, main?.children.get('a.py:1 f')?.value, main?.children.get('b.py:2 g')?.count], [55, 55, 30, 4]);
  assert.deepEqual(difference(live([[30, 1, 0], [20, 4, 1]]), live([[45, 1, 0], [7, 1, 2]])).map(({ kind, change }) => [kind, change]), [['gone', -20], ['grew', 15], ['new', 7]]);
  const moved = { ...live([[30, 1, 0]]), names: ['a.py:1 f', 'b.py:2 g', 'main.py:9 m'] };
  assert.deepEqual(difference(live([[20, 1, 0]]), moved).map(({ kind, change }) => [kind, change]), [['grew', 10]], 'a line of the program moved');
});

test('schedules: a pass begins when what it needs has come, and 1F1B takes as long as it must', () => {
  const passes = (/** @type {number} */ rank) => ['F0', 'F1', 'F2', 'B0', 'B1', 'B2'].map((one) => `${rank}${one}`);
  const gpipe = timesOf({ name: 'GPipe', stages: 2, microbatches: 3, ranks: [{ in_flight: 3, passes: passes(0) }, { in_flight: 3, passes: passes(1) }] });
  assert.deepEqual(gpipe.ranks[0].map(({ from }) => from), [0, 1, 2, 6, 8, 10]);
  assert.deepEqual(gpipe.ranks[1].map(({ from, to }) => [from, to]), [[1, 2], [2, 3], [3, 4], [4, 6], [6, 8], [8, 10]]);
  assert.equal(gpipe.end, 12, '(3 + 2 - 1) x 3');
  assert.deepEqual(gpipe.ranks[0].map(({ inFlight }) => inFlight), [1, 2, 3, 2, 1, 0]);
  assert.equal(fullest(gpipe.ranks[0]), 2);
  const split = timesOf({ name: 'ZBV', stages: 2, microbatches: 1, ranks: [{ in_flight: 1, passes: ['0F0', '0I0', '0W0'] }, { in_flight: 1, passes: ['1F0', '1I0', '1W0'] }] });
  assert.deepEqual(split.ranks.map((one) => one.map(({ from }) => from)), [[0, 3, 4], [1, 2, 3]]);
  assert.deepEqual(split.ranks[0].map(({ inFlight }) => inFlight), [1, 1, 0], 'until its weights have their gradients');
});

test('layouts: all others are of as many GPUs, and no group is of a strategy that has none', () => {
  const of = (/** @type {Record<string, string>} */ words) => (/** @type {string} */ name) => words[name] ?? '';
  const job = { 'parallel.kind': 'megatron', 'parallel.dp': '2', 'parallel.tp': '2', 'parallel.pp': '4', 'parallel.cp': '2', batch: '3', seq: '10' };
  const layout = layoutOf(of(job));
  assert.equal(layoutWords(layout), '2 data × 2 tensor × 4 pipeline × 2 context');
  const others = otherLayouts(layout);
  assert.equal(others.length, 14, 'tp and pp of 1, 2, 4, 8, 16 with tp x pp up to 16, but for the present one');
  for (const { layout: one, words } of others) {
    assert.equal(gpusOf(one), 32);
    const applied = { ...job, ...Object.fromEntries(words.map(([name, value]) => [name, value ?? ''])) };
    assert.deepEqual(layoutOf(of(applied)), one);
  }
  assert.deepEqual(otherLayouts(layoutOf(of({ 'parallel.kind': 'fsdp2', 'parallel.dp': '8', 'parallel.tp': '4' }))).map(({ layout: one }) => [one.kind, gpusOf(one)]),
    [['ddp', 8], ['zero1', 8], ['zero2', 8], ['zero3', 8]], 'tp is not read by fsdp2');
  assert.deepEqual(stagesLeft(layout, [{ rank: 0, stage: 0, allocated: 1, reserved: 1 }]), [{ stage: 1, rank: 8 }, { stage: 2, rank: 16 }, { stage: 3, rank: 24 }]);
  assert.equal(tokensOf(of(job)), 3 * 10 * 2 * 8, 'micro-batches: twice the stages');
  assert.equal(tokensOf(of({ batch: '8', seq: '10', grad_accum: '2', 'parallel.kind': 'pp', 'parallel.pp': '4', 'parallel.dp': '2' })), 160, 'batch of pp is that of all micro-batches');
  assert.equal(gpusOf(layoutOf(of({}))), 1);
});
