// SPDX-License-Identifier: Apache-2.0
/* The worker's client and pool, the loader, the lock-down: without a browser. */
import assert from 'node:assert/strict';
import { test } from './harness.mjs';
import { CoreStopped, createClient } from '../../web/src/client.js';
import { lockdown } from '../../web/src/lockdown.js';
import { createPool } from '../../web/src/pool.js';
import { start } from '../../web/src/tidemark.js';

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

test('client: a core that cannot be loaded is said to every caller', async () => {
  const client = createClient({ module: Promise.reject(new Error('blocked')), spawn: () => /** @type {any} */ (fakeWorker(() => null)) });
  await assert.rejects(client.call({}), /blocked/);
  await assert.rejects(client.call({}, 'estimate'), /blocked/);
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
