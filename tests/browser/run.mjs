// SPDX-License-Identifier: Apache-2.0
/* Tests of the built page: node tests/browser/run.mjs FOLDER [--nightly] [--only PART]... [--list] [--update] [--jobs N].
 *
 * N processes of this program, each with a browser and a server of its own, take the tests one after the other from one list. What
 * failed runs once more, alone: browsers that share few cores can keep each other waiting. Both outcomes are printed. */
import { fork } from 'node:child_process';
import { availableParallelism } from 'node:os';
import { parseArgs } from 'node:util';

const LIMIT_S = 900; /* of one test: what hangs is a failure */
const FILES = ['documents', 'logic', 'workers', 'core', 'built', 'answers', 'people', 'statements', 'safety', 'files', 'links', 'recordings', 'use', 'whatif', 'scenarios', 'tasks', 'page', 'alone', 'pictures', 'smoke'];

const { values, positionals } = parseArgs({
  options: { nightly: { type: 'boolean' }, only: { type: 'string', multiple: true }, list: { type: 'boolean' }, update: { type: 'boolean' }, jobs: { type: 'string' } },
  allowPositionals: true,
});
const [folder] = positionals;
/* A third one works while two wait for a frame or a timer. */
const jobs = values.list ? 1 : Number(values.jobs ?? Math.min(4, availableParallelism() + 1));
if (positionals.length !== 1 || !(jobs >= 1)) {
  console.error('usage: node tests/browser/run.mjs FOLDER [--nightly] [--only PART]... [--list] [--update] [--jobs N]');
  process.exit(2);
}

/* ---- one of the N: runs what it is told to, by number ---- */

async function work() {
  for (const end of /** @type {const} */ (['disconnect', 'SIGTERM'])) process.on(end, () => process.exit(1));
  const tell = /** @type {(message: object) => void} */ (/** @type {any} */ (process).send.bind(process));
  const { beginFile, run, skipped, startChromium, tests } = await import('./harness.mjs');
  const { openSite } = await import('./site.mjs');
  const browser = await startChromium(values.nightly ?? false);
  const site = await openSite(folder, browser);
  /** @type {(() => any)[]} */
  const ends = [site.close, () => browser.close()];
  for (const file of FILES) {
    beginFile(file);
    const { default: add } = await import(`./${file}.mjs`);
    const end = await add?.(site, values.update ?? false);
    if (end) ends.push(end);
  }
  process.on('message', async (/** @type {number | 'end'} */ message) => {
    if (message !== 'end') return tell(await run(tests[message]));
    await Promise.all(ends.map((end) => end()));
    process.exit();
  });
  tell({ names: tests.map(({ file, name }) => `${file}: ${name}`), skipped });
}

/* ---- the one that hands them out ---- */

async function lead() {
  /** @type {number[] | null} */
  let left = null;
  let passed = 0;
  let failed = 0;
  /** @type {string[]} */
  let names = [];
  /** @type {number[]} those that run once more */
  const again = [];
  let isAgain = false;
  const from = Date.now();

  /** @param {number} index @param {{ms: number, error?: string, lines: string[]}} result */
  function print(index, { ms, error, lines }) {
    const name = names[index] ?? 'start';
    const isLast = error === undefined || isAgain || index < 0;
    if (error === undefined) passed++;
    else if (isLast) failed++;
    else again.push(index);
    const seconds = ms > 1000 ? `, ${(ms / 1000).toFixed(1)} s` : '';
    console.log([`${error === undefined ? 'ok    ' : isLast ? 'FAIL  ' : 'again '}${name}${seconds}`, ...(error?.split('\n') ?? []), ...lines].join('\n      '));
  }

  /** Resolves when nothing is left, or the process has ended. */
  const one = () => new Promise((done) => {
    const child = fork(import.meta.filename, process.argv.slice(2));
    let current = -1;
    let isLate = false;
    /** @type {ReturnType<typeof setTimeout>} */
    let limit;
    const next = () => {
      current = left?.shift() ?? -1;
      if (current < 0) return child.send('end');
      limit = setTimeout(() => {
        isLate = true;
        child.kill('SIGTERM');
        limit = setTimeout(() => child.kill('SIGKILL'), 5000);
      }, LIMIT_S * 1000);
      child.send(current);
    };
    child.on('message', (/** @type {any} */ message) => {
      clearTimeout(limit);
      if (message.names) {
        names = message.names;
        if (!left) for (const text of message.skipped) console.log(text);
        left ??= names.map((_, i) => i).filter((i) => !values.only || values.only.some((part) => names[i].includes(part)));
        if (values.list) console.log(left.splice(0).map((i) => names[i]).join('\n'));
      } else {
        print(current, message);
      }
      next();
    });
    child.on('exit', (code, signal) => {
      clearTimeout(limit);
      if (current >= 0) print(current, { ms: 0, error: isLate ? `not done after ${LIMIT_S} s` : `the process ended with ${code ?? signal}`, lines: [] });
      else if (names.length === 0) print(-1, { ms: 0, error: `ended with ${code ?? signal} before any test`, lines: [] });
      done(current >= 0 && left?.length ? one() : null);
    });
  });
  await Promise.all(Array.from({ length: jobs }, one));
  isAgain = true;
  left = [...again, .../** @type {number[]} */ (left ?? [])];
  if (left.length > 0) await one();
  for (const index of left) print(index, { ms: 0, error: 'no process ran it', lines: [] });
  if (values.list) return;
  console.log(`${Math.round((Date.now() - from) / 1000)} s`);
  console.log(`${passed} passed, ${failed} failed`);
  process.exit(failed ? 1 : 0);
}

await (process.send ? work() : lead());
