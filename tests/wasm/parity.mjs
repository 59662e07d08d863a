// SPDX-License-Identifier: Apache-2.0
/* The module against the native program: the same requests, the same bytes.
 *
 *     node tests/wasm/parity.mjs tidemark.wasm tidemark [RESULTS.jsonl...]
 *
 * Beside tidemark.wasm lies what else its build makes. Requests are those of tests/golden, broken ones, and the case of every line of
 * the results given.
 * A failure points to web/wasm and to what the compilers do differently. */
import { spawn, spawnSync } from 'node:child_process';
import { copyFileSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { text } from 'node:stream/consumers';
import { gunzipSync } from 'node:zlib';
import { EXAMPLE } from '../../web/src/example.js';
import { segmentsOf } from '../../web/object.mjs';
import { FIRST_CALLS, split } from '../../web/split.mjs';
import { exportsOf, Lacking, start, wrap } from '../../web/src/tidemark.js';

const [wasm, program, ...results] = process.argv.slice(2);
if (!program) {
  console.error('usage: node tests/wasm/parity.mjs tidemark.wasm tidemark [RESULTS.jsonl...]');
  process.exit(2);
}

let passed = 0;
let failed = 0;

/** @param {string} name @param {boolean} isRight @param {string} [why] */
function check(name, isRight, why = '') {
  if (isRight) passed++;
  else failed++;
  if (!isRight) console.log(`FAIL ${name}${why && `: ${why}`}`);
}

/** @param {string} file @param {string} list what it exports */
function open(file, list) {
  const compiled = new WebAssembly.Module(readFileSync(file));
  const imports = WebAssembly.Module.imports(compiled).map((i) => `${i.module}.${i.name}`);
  check(`${file}: no imports`, imports.length === 0, imports.join(', '));
  const listed = readFileSync(new URL(`../../web/wasm/${list}`, import.meta.url), 'utf8')
    .split('\n').filter((line) => line !== '').map((line) => line.slice(1));
  const exported = WebAssembly.Module.exports(compiled).map((e) => e.name);
  for (const name of listed) check(`exports ${name}`, exported.includes(name));
  for (const name of exported.filter((e) => e.startsWith('tide_'))) {
    check(`lists ${name}`, listed.includes(name), `not in ${list}`);
  }
  return compiled;
}

const module = open(wasm, 'exports.txt');

const models = readFileSync(join(dirname(wasm), 'models.json'));
const core = await start(module, { models });

/** @param {string} name @param {string} request */
function compare(name, request) {
  const answer = core.callText(request);
  check(`${name}, by both modules`, both.callText(request) === answer);
  same(name, answer, spawnSync(program, ['call'], { input: request, maxBuffer: 64 << 20, encoding: 'utf8' }).stdout.replace(/\n$/, ''));
}

/** @param {string} name @param {string} answer of the module @param {string} expected of the program */
function same(name, answer, expected) {
  if (answer === expected) {
    check(name, expected !== '');
    return;
  }
  let at = 0;
  while (at < answer.length && answer[at] === expected[at]) at++;
  check(name, false, `native ...${expected.slice(at, at + 80)} wasm ...${answer.slice(at, at + 80)}`);
}

/* What a command prints with --json is the module's answer to the page's question, byte for byte. */
const job = ['model=smollm2-135m', 'gpu=t4', 'batch=4', 'seq=128'];
const link = `#${job.join('&')}&v=1`;
for (const [line, question] of /** @type {[string[], object][]} */ ([
  [['estimate', ...job], { call: 'estimate', settings: job, options: true }],
  [['estimate', link], { call: 'estimate', link, options: true }],
  [['estimate', link, 'batch=2'], { call: 'estimate', link, settings: ['batch=2'], options: true }],
  [['estimate', 'nonsense=1'], { call: 'estimate', settings: ['nonsense=1'], options: true }],
  [['explain', ...job, '--of', 'mlp'], { call: 'explain', settings: job, of: 'mlp' }],
  [['fit', ...job], { call: 'fit', settings: job }],
  [['fit', ...job, '--knob', 'seq', '--by', 'batch=1,2'], { call: 'fit', settings: job, knob: 'seq', by: 'batch=1,2' }],
  [['cards', ...job], { call: 'cards', settings: job }],
  [['advice', ...job], { call: 'advice', settings: job }],
  [['compare', ...job, '--with', 'batch=2'], { call: 'compare', settings: job, with: [...job, 'batch=2'] }],
  [['describe'], { call: 'describe' }],
  [['link', ...job], { call: 'link', settings: job }],
  [['link', ...job, '--was'], { call: 'link', settings: job, was: true }],
  [['link', 'nonsense=1'], { call: 'link', settings: ['nonsense=1'] }],
  [['sweep', ...job, 'checkpointing=full'], { call: 'measure', settings: [...job, 'checkpointing=full'] }],
])) {
  const printed = spawnSync(program, [...line, '--json'], { maxBuffer: 64 << 20, encoding: 'utf8' }).stdout.replace(/\n$/, '');
  check(`tidemark ${line.join(' ')} --json`, printed !== '' && core.callText(JSON.stringify(question)) === printed, printed.slice(0, 120));
}

/* Without models.json the opening example is answered and every model listed; another model is refused by name. */
{
  const short = await start(module);
  const first = JSON.stringify({ call: 'estimate', settings: EXAMPLE.map((word) => word.join('=')) });
  const listed = JSON.stringify({ call: 'describe', of: 'form' });
  check('the example without models.json', short.callText(first) === core.callText(first));
  check('the form without models.json', short.callText(listed) === core.callText(listed));
  for (const settings of [['model=gpt2'], ['model=llava-1.5-7b', 'adapter=lora'], ['recipe=llava-finetune']]) {
    for (const call of ['estimate', 'advice', 'compare']) {
      let said = '';
      try {
        said = short.callText(JSON.stringify({ call, settings, with: ['model=llava-1.5-7b'] }));
      } catch (error) {
        said = error instanceof Lacking ? 'lacking' : String(error);
      }
      check(`${call} ${settings.join(' ')} without models.json`, said === 'lacking', said.slice(0, 120));
    }
  }
  check('the example after a call without models.json', short.callText(first) === core.callText(first));
  for (const other of [models.subarray(1), Buffer.alloc(0)]) {
    check(`models.json of ${other.length} bytes`, await start(module, { models: other }).then(() => false, (error) => /different versions/.test(error)));
  }
}

/* The page's core is in two modules: both together answer as the whole, and the first alone does, or says that it lacks the other.
 * What it lacks of data is overwritten here, so that nothing that was read from there stays unseen. */
const part = (/** @type {string} */ name) => readFileSync(join(dirname(wasm), name));
const restBytes = part('rest.wasm');
const [first, rest] = [part('first.wasm'), restBytes].map((bytes) => new WebAssembly.Module(bytes));
const both = await start(first, { models, rest });
{
  const again = mkdtempSync(join(tmpdir(), 'tidemark-split-'));
  for (const name of ['linked.wasm', 'linked.wasm.lto.o', 'linked.map']) copyFileSync(join(dirname(wasm), name), join(again, name));
  await split(again);
  for (const name of ['tidemark.wasm', 'first.wasm', 'rest.wasm']) check(`${name} again`, readFileSync(join(again, name)).equals(part(name)));
  rmSync(again, { recursive: true });

  const memory = (/** @type {any} */ { memory: { buffer } }) => Buffer.from(buffer);
  check('data of both modules', memory(await exportsOf(first, rest)).equals(memory(await exportsOf(module))));

  async function alone() {
    const exports = await exportsOf(first);
    for (const { at, bytes } of segmentsOf(restBytes)) new Uint8Array(exports.memory.buffer).fill(0xcc, at, at + bytes.length);
    return wrap(exports);
  }
  let short = await alone();
  const known = new Map(); /* answers of the whole core */
  async function compareParts(/** @type {object} */ asked, isFirst = false) {
    const name = JSON.stringify(asked);
    const answer = known.get(name) ?? core.callText(name);
    known.set(name, answer);
    check(`${name} by both modules`, both.callText(name) === answer);
    let said = 'lacking';
    try {
      said = short.callText(name);
    } catch (error) {
      if (!(error instanceof Lacking)) said = String(error);
      short = await alone();
    }
    check(`${name} by the first module`, (said === 'lacking' && !isFirst) || said === answer, said.slice(0, 120));
  }
  for (const request of FIRST_CALLS) await compareParts(request, true);
  const example = EXAMPLE.map((word) => word.join('='));
  const described = core.call({ call: 'describe' });
  for (const { name, type, choices = [] } of described.settings) {
    const values = type === 'bool' ? ['true', 'false'] : type === 'int' ? ['1', '2', 'many'] : type === 'text' || type === 'list' ? ['x'] : [...choices, '0.5'];
    for (const value of values) {
      const others = example.filter((word) => word.split('=')[0] !== name);
      await compareParts({ call: 'estimate', settings: [...others, `${name}=${value}`] });
    }
  }
  for (const { name } of described.gpus) await compareParts({ call: 'estimate', settings: [...example.filter((word) => !word.startsWith('gpu=')), `gpu=${name}`] });
  for (const [index, model] of described.models.entries()) {
    for (const more of [[], ...(index % 10 ? [] : [['mode=infer'], ['adapter=lora', 'quant=nf4'], ['parallel.kind=zero3', 'parallel.dp=4']])]) {
      await compareParts({ call: 'estimate', settings: [`model=${model.name}`, ...more] });
    }
  }
}

{
  const printed = spawnSync(program, ['sweep', ...job, 'seq=64,128', 'checkpointing=none,full', '--json'], { encoding: 'utf8' }).stdout;
  const asked = [['seq=64', 'checkpointing=none'], ['seq=64', 'checkpointing=full'], ['seq=128', 'checkpointing=none'], ['seq=128', 'checkpointing=full']]
    .map((own) => core.callText(JSON.stringify({ call: 'measure', settings: [...job, ...own] })));
  check('tidemark sweep --json, line by line', printed === `${asked.join('\n')}\n`, printed.slice(0, 200));
}

const golden = new URL('../golden/', import.meta.url).pathname;
for (const file of readdirSync(golden).filter((name) => name.endsWith('.job.json')).sort()) {
  compare(file, readFileSync(join(golden, file), 'utf8'));
}
compare('an empty request', '');
compare('no JSON', '{"call":');
compare('a large file', JSON.stringify({
  call: 'estimate', settings: [], files: [{ name: 'config.json', text: ' '.repeat(4 << 20) }],
}));

/* The program answers all recorded cases in one process, beside the module; the page's two modules answer some of them. */
{
  const cases = results.flatMap((file) => readFileSync(file, 'utf8').split('\n').filter((line) => line !== '').map((line) => JSON.parse(line).case));
  const requests = cases.map((of) => JSON.stringify({ call: 'verify', case: of }));
  const native = spawn(program, ['call', '--lines'], { stdio: ['pipe', 'pipe', 'inherit'] });
  native.stdin.end(`${requests.join('\n')}\n`);
  const printed = text(native.stdout);
  const answers = [];
  for (const [i, request] of requests.entries()) {
    answers.push(core.callText(request));
    if (i % 8 === 0) check(`${cases[i].id}, by both modules`, both.callText(request) === answers[i]);
    await new Promise((done) => setImmediate(done)); /* what the program has printed is read */
  }
  const expected = (await printed).split('\n');
  for (const [i, answer] of answers.entries()) same(cases[i].id, answer, expected[i] ?? '');
}

/* Recordings, in pieces of odd sizes: the module of the page against `tidemark replay --json`. */
const recordings = await start(open(join(dirname(wasm), 'recordings.wasm'), 'exports_recordings.txt'));
const recorded = new URL('../recordings/', import.meta.url).pathname;
const events = new URL('../oracle/events/', import.meta.url).pathname;
for (const file of [recorded, events].flatMap((folder) => readdirSync(folder).filter((name) => name.endsWith('.gz')).map((name) => join(folder, name)))) {
  const bytes = gunzipSync(readFileSync(file));
  recordings.open();
  for (let at = 0, size = 1; at < bytes.length; at += size, size = (size * 7) % 50021 + 1) recordings.add(bytes.subarray(at, at + size));
  for (const words of [[], ['gpu=t4', 'allocator=expandable_segments:True']]) {
    const printed = spawnSync(program, ['replay', file, ...words, '--json'], { maxBuffer: 64 << 20, encoding: 'utf8' }).stdout.replace(/\n$/, '');
    check(`${basename(file)} ${words.join(' ')}`, printed !== '' && recordings.callText(JSON.stringify({ call: 'replay', settings: words })) === printed, printed.slice(0, 120));
  }
}
for (const [bytes, says] of /** @type {[Buffer, string][]} */ ([[Buffer.alloc(0), 'empty'], [Buffer.from('\x80\x04cos\nsystem\n.', 'latin1'), 'nothing was run'],
  [Buffer.alloc(1 << 20, 'x'), 'no recording'], [Buffer.alloc(4 << 20, '['), '']])) {
  recordings.open();
  recordings.add(bytes);
  check(`a recording that is none: ${says}`, recordings.callText('{"call":"replay"}').includes(says));
}

/* Memory that runs out in the middle of a call is an answer, and no trap. */
{
  const { exports } = new WebAssembly.Instance(module);
  const raw = /** @type {any} */ (exports);
  raw._initialize?.();
  const request = new TextEncoder().encode('{"call":"estimate","settings":["model=llava-1.5-7b"]}');
  const at = raw.tide_wasm_alloc(request.length) >>> 0;
  for (let size = 64 << 20; size >= 1 << 16; size >>= 1) {
    while (raw.tide_wasm_alloc(size) !== 0);
  }
  new Uint8Array(raw.memory.buffer, at, request.length).set(request);
  let answer;
  try {
    raw.tide_wasm_call(at, request.length);
    answer = new TextDecoder().decode(new Uint8Array(raw.memory.buffer, raw.tide_wasm_result() >>> 0,
      raw.tide_wasm_result_len() >>> 0));
  } catch (error) {
    answer = String(error);
  }
  check('memory runs out', answer.includes('ERR_NO_MEMORY'), answer.slice(0, 120));
}
console.log(`${passed} passed, ${failed} failed`);
process.exit(failed ? 1 : 0);
