/* The page's modules without a browser: words and links, files, the worker's client, the lock-down. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { deflateSync } from 'node:zlib';
import { test } from './harness.mjs';
import { narrow } from '../../web/src/catalogue.js';
import { CoreStopped, createClient } from '../../web/src/client.js';
import { ASKED, cellAt, cellPaths, cellWords, freeOf, SEEN, seenRows, sourceOf } from '../../web/src/events.js';
import { createPool } from '../../web/src/pool.js';
import { fromFile, isYaml, ofDrop, readText } from '../../web/src/files.js';
import { inUnit, natural, params, percent, sentences, ticks } from '../../web/src/format.js';
import { toJson } from '../../web/src/yaml.js';
import { lockdown } from '../../web/src/lockdown.js';
import { PANELS } from '../../web/src/panels.js';
import { aligned, phases } from '../../web/src/phases.js';
import { pack, unpack } from '../../web/src/links.js';
import { start } from '../../web/src/tidemark.js';
import { readView, toSel, toSweep } from '../../web/src/viewtext.js';
import { toCommand } from '../../web/src/words.js';

const fromWeb = createRequire(new URL('../../web/package.json', import.meta.url));

/** Small repeatable random numbers. */
let seed = 7;
const random = (/** @type {number} */ below) => {
  seed = (Math.imul(seed, 1103515245) + 12345) >>> 0;
  return Math.floor((seed / 2 ** 32) * below);
};

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
  await assert.rejects(unpack('z=9.abc'), /packed in a way/);
  await assert.rejects(unpack('a'.repeat(65537)), /longer than 64 KiB/);
  const bomb = `z=1.${deflateSync(Buffer.alloc(40 << 20)).toString('base64url')}`;
  assert.ok(bomb.length < 65536);
  await assert.rejects(unpack(bomb), /more than 256 KiB/);
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

test('files: of a dropped folder what can say something of a job, and no more than there may be', async () => {
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

test('files: of safetensors the header alone is read; a header that cannot be is named', async () => {
  const header = JSON.stringify({ a: { dtype: 'BF16', shape: [2, 2], data_offsets: [0, 8] } });
  const length = new Uint8Array(new BigUint64Array([BigInt(header.length)]).buffer);
  assert.equal((await fromFile(new File([length, header, new Uint8Array(64)], 'model.safetensors'))).file?.text, header);
  assert.match((await fromFile(new File([length, '{"a'], 'model.safetensors'))).problem ?? '', /cut or damaged/);
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

test('panels: each has a name of its own, what holds it is there, and letters are taken once', () => {
  const names = PANELS.map(({ name }) => name);
  assert.equal(new Set(names).size, names.length);
  for (const { name, title, help, inside } of PANELS) assert.ok(/^[a-z]+$/.test(name) && title && help && (!inside || names.includes(inside)), name);
  const keys = PANELS.flatMap(({ key = [] }) => key);
  assert.equal(new Set(keys).size, keys.length);
});

test('sources: they pass the type checker; the lock file holds no download address', () => {
  const web = new URL('../../web/', import.meta.url);
  execFileSync(process.execPath, ['node_modules/typescript/bin/tsc', '-p', 'jsconfig.json'], { cwd: web, encoding: 'utf8' });
  assert.doesNotMatch(readFileSync(new URL('package-lock.json', web), 'utf8'), /"resolved"/);
});

/** A worker that answers as told. @param {(text: string) => object | null} answer */
function fakeWorker(answer) {
  const worker = {
    terminated: false, seen: /** @type {string[]} */ ([]), onmessage: /** @type {any} */ (null), onerror: null,
    more: /** @type {any} */ (undefined),
    postMessage(/** @type {any} */ data) {
      if (data.module) {
        worker.more = data.more;
        return;
      }
      worker.seen.push(data.request);
      const reply = answer(data.request);
      if (reply) setTimeout(() => worker.onmessage({ data: { id: data.id, ...reply } }), 5);
    },
    terminate() { worker.terminated = true; },
  };
  return worker;
}

test('client: of waiting requests the newest runs, older ones get null', async () => {
  const worker = fakeWorker((text) => ({ reply: text }));
  const client = createClient({ module: Promise.resolve(/** @type {any} */ ({})), spawn: () => /** @type {any} */ (worker) });
  const replies = await Promise.all([1, 2, 3, 4].map((n) => client.call({ n }, 'estimate')));
  assert.deepEqual(replies, [{ n: 1 }, null, null, { n: 4 }]);
  assert.equal(worker.seen.length, 2);
});

test('client: a trap and a silent worker are survived by a new worker', async () => {
  /** @type {any[]} */
  const workers = [];
  const client = createClient({
    module: Promise.resolve(/** @type {any} */ ({})), limitMs: 40,
    spawn: () => {
      workers.push(fakeWorker((text) => (text.includes('bad') ? { trap: 'unreachable' } : text.includes('silent') ? null : { reply: text })));
      return workers.at(-1);
    },
  });
  await assert.rejects(client.call({ bad: 1 }), CoreStopped);
  assert.deepEqual(await client.call({ good: 1 }), { good: 1 });
  await assert.rejects(client.call({ silent: 1 }), /No answer/);
  assert.deepEqual(await client.call({ good: 2 }), { good: 2 });
  assert.equal(workers.length, 3);
  assert.deepEqual(workers.map((w) => w.terminated), [true, true, false]);
});

test('client: a core that lacks something is given it and asked again; what cannot be had is said, and tried again', async () => {
  /** @type {any[]} */
  const workers = [];
  let fetches = 0;
  const client = createClient({
    module: Promise.resolve(/** @type {any} */ ({})),
    more: () => (++fetches === 1 ? Promise.reject(new Error('no network')) : Promise.resolve({ models: new ArrayBuffer(7) })),
    spawn: () => {
      const worker = fakeWorker((text) => (text.includes('bad') ? { trap: 'unreachable' } : text.includes('other') && !worker.more ? { lacking: true } : { reply: text }));
      workers.push(worker);
      return /** @type {any} */ (worker);
    },
  });
  assert.deepEqual(await client.call({ first: 1 }), { first: 1 });
  assert.equal(fetches, 0);
  const refused = await client.call({ other: 1 });
  assert.deepEqual([refused.ok, refused.diagnostics[0].code], [false, 'ERR_NOT_LOADED']);
  assert.match(refused.diagnostics[0].message, /no network/);
  assert.deepEqual(await client.call({ first: 2 }), { first: 2 });
  assert.deepEqual(await client.call({ other: 2 }), { other: 2 });
  await assert.rejects(client.call({ bad: 1 }), CoreStopped);
  assert.deepEqual(await client.call({ other: 3 }), { other: 3 });
  assert.deepEqual([fetches, workers.length, workers[1].seen.length], [2, 2, 1], 'the next worker has it from the start');
  const ended = createClient({ module: Promise.resolve(/** @type {any} */ ({})), more: () => new Promise(() => {}), spawn: () => /** @type {any} */ (fakeWorker(() => ({ lacking: true }))) });
  const waiting = ended.call({ other: 1 });
  setTimeout(() => ended.end(), 30);
  await assert.rejects(waiting, /Cancelled/);
});

test('client: one that is ended while more is fetched gives it to the next worker', async () => {
  /** @type {(more: any) => void} */
  let arrive = () => {};
  const fetched = new Promise((resolve) => { arrive = resolve; });
  const client = createClient({
    module: Promise.resolve(/** @type {any} */ ({})), more: () => fetched,
    spawn: () => {
      const worker = fakeWorker((text) => (text.includes('other') && !worker.more ? { lacking: true } : { reply: text }));
      return /** @type {any} */ (worker);
    },
  });
  const first = client.call({ other: 1 });
  setTimeout(() => client.end(), 20);
  await assert.rejects(first, /Cancelled/);
  const second = client.call({ other: 2 });
  arrive({ models: new ArrayBuffer(7) });
  assert.deepEqual(await second, { other: 2 });
});

test('client: once the module is there a request is posted at once, after it', async () => {
  /** @type {string[]} */
  const posted = [];
  const module = Promise.resolve(/** @type {any} */ ({}));
  const client = createClient({ module, spawn: () => /** @type {any} */ ({ terminate() {}, postMessage: (/** @type {any} */ data) => posted.push(data.module ? 'module' : data.request) }) });
  await module;
  client.call({ n: 1 }).catch(() => {});
  assert.deepEqual(posted, ['module', '{"n":1}']);
  client.end();
  client.call({ n: 2 }).catch(() => {});
  assert.deepEqual(posted.slice(2), ['module', '{"n":2}']);
  client.end();
});

test('pool: held, it ends what is being worked out, and asks it again when it goes on', async () => {
  /** @type {any[]} */
  const workers = [];
  const pool = createPool({
    module: Promise.resolve(/** @type {any} */ ({})),
    spawn: () => {
      workers.push(fakeWorker((text) => ({ reply: text })));
      return workers.at(-1);
    },
  });
  const requests = Array.from({ length: 9 }, (_, n) => ({ n }));
  /** @type {any[]} */
  const got = [];
  let isHeld = false;
  const done = pool.all(requests, (reply, i) => {
    assert.ok(!isHeld);
    got[i] = reply;
    if (i !== 3) return;
    pool.hold();
    isHeld = true;
    setTimeout(() => { isHeld = false; pool.goOn(); }, 30);
  });
  assert.equal(await done, true);
  assert.deepEqual(got, requests);
  const running = workers.filter(({ terminated }) => terminated);
  assert.ok(running.length >= 1, 'ended');
  pool.hold();
  const stop = new AbortController();
  const never = pool.all(requests, () => assert.fail('asked while held'), stop.signal);
  setTimeout(() => { stop.abort(); pool.goOn(); }, 20);
  assert.equal(await never, false);
});

test('pool: what is no longer wanted comes to its end, and its worker goes on; one that stays at it is ended', async () => {
  /** @type {any[]} */
  const workers = [];
  const pool = createPool({
    module: Promise.resolve(/** @type {any} */ ({})),
    spawn: () => {
      workers.push(fakeWorker((text) => (text.includes('endless') ? null : { reply: text })));
      return workers.at(-1);
    },
  });
  const stop = new AbortController();
  assert.equal(await pool.all(Array.from({ length: 40 }, (_, n) => ({ n })), () => stop.abort(), stop.signal), false);
  const started = workers.length;
  assert.equal(await pool.all(Array.from({ length: 40 }, (_, n) => ({ n })), () => {}), true);
  assert.equal(workers.length, started);
  assert.ok(workers.every(({ terminated }) => !terminated));
  const late = new AbortController();
  const endless = pool.all([{ endless: true }], () => assert.fail('answered'), late.signal);
  setTimeout(() => late.abort(), 10);
  assert.equal(await endless, false);
  assert.equal(workers.filter(({ terminated }) => terminated).length, 1);
  assert.equal(await pool.all([{ n: 1 }, { n: 2 }, { n: 3 }], () => {}), true);
});

test('client: a core that cannot be loaded is said to every caller', async () => {
  const client = createClient({ module: Promise.reject(new Error('blocked')), spawn: () => /** @type {any} */ (fakeWorker(() => null)) });
  await assert.rejects(client.call({}), /blocked/);
  await assert.rejects(client.call({}, 'estimate'), /blocked/);
});

test('loader: a core of another version, and one that asks for more than notices, are refused by name', async () => {
  const empty = new WebAssembly.Module(Uint8Array.of(0, 97, 115, 109, 1, 0, 0, 0));
  await assert.rejects(start(empty), /different versions: memory, tide_wasm_alloc.*Reload the page/);
  /* (import "env" "memory" (memory 1)) */
  const asking = new WebAssembly.Module(Uint8Array.of(0, 97, 115, 109, 1, 0, 0, 0, 2, 15, 1, 3, 101, 110, 118, 6, 109, 101, 109, 111, 114, 121, 2, 0, 1));
  await assert.rejects(start(asking), /asks for env\.memory/);
});

test('lock-down: no way to a network is left, own or inherited', () => {
  class Scope { fetch() {} }
  Object.assign(Scope.prototype, { WebSocket: class {} });
  const scope = Object.assign(new Scope(), { caches: {} });
  lockdown(scope);
  for (const name of ['fetch', 'WebSocket', 'caches']) {
    assert.equal(/** @type {any} */ (scope)[name], undefined);
    assert.throws(() => { 'use strict'; /** @type {any} */ (scope)[name] = 1; }, TypeError);
  }
  assert.equal('fetch' in Scope.prototype, false);
});

test('a picker finds by words, and the base of a name that goes on', () => {
  const choices = ['qwen2.5-7b', 'qwen2.5-7b-coder', 'llama-3.1-8b', 'gpt2'].map((name) => ({ name, search: `${name} of some kind` }));
  const names = (/** @type {string} */ typed) => narrow(choices, typed).map(({ name }) => name);
  assert.deepEqual(names('qwen KIND'), ['qwen2.5-7b', 'qwen2.5-7b-coder']);
  assert.deepEqual(narrow(['distilgpt2', 'gpt2-medium', 'gpt2'].map((name) => ({ name, search: name })), 'GPT2').map(({ name }) => name), ['gpt2', 'gpt2-medium', 'distilgpt2']);
  assert.deepEqual(names('Qwen/Qwen2.5-7B-Instruct'), ['qwen2.5-7b']);
  assert.deepEqual(names('Qwen/Qwen2.5-7B-Coder-v2'), ['qwen2.5-7b-coder']);
  assert.deepEqual(names('openai/gpt2'), ['gpt2']);
  assert.deepEqual(names('gpt22'), []);
  assert.deepEqual(names('nobody/llama-3.1-80b'), []);
  assert.deepEqual(names(''), choices.map(({ name }) => name));
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
