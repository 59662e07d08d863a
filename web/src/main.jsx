// SPDX-License-Identifier: Apache-2.0
/* The page starts: worker and core at once, while the static page is still being read; the live page on the first
 * answer. */
import { effect } from '@preact/signals';
import { render } from 'preact';
import { createClient } from './client.js';
import { EXAMPLE } from './example.js';
import { UNITS } from './format.js';
import { onKey } from './keys.js';
import { later } from './later.js';
import { createPool } from './pool.js';
import { workOffline } from './offline.js';
import { core, expectMore, more, recordings, spawn } from './parts.js';
import { useRecordings } from './recordings.js';
import { loadFragment, readFragment } from './address.js';
import { useClient } from './asking.js';
import { FORM, readDescribe } from './catalogue.js';
import { recompute } from './play.js';
import * as state from './state.js';
import { keep, kept } from './storage.js';
import { App } from './ui/App.jsx';
import { CoreLost } from './ui/Notes.jsx';
import { spokenVerdict } from './ui/Verdict.jsx';

const workers = { module: core(), spawn, more };
const client = createClient({
  ...workers,
  timed(ms) {
    performance.clearMarks('tidemark-core');
    performance.mark('tidemark-core', { detail: ms });
  },
});
useRecordings({ module: recordings, spawn });

/* A report is a page with its job inside. */
const inside = document.getElementById('job')?.textContent;
if (inside && !location.hash) history.replaceState(null, '', `#${inside}`);

if (location.hash && !location.hash.includes(EXAMPLE[0].join('='))) expectMore();

/* A link to another job than the example: its static numbers are dimmed until the answer is there. */
const parsed = new Promise((done) => {
  if (document.readyState === 'loading') document.addEventListener('DOMContentLoaded', () => done(null), { once: true });
  else done(null);
}).then(() => {
  if (readFragment() !== '' && state.core.value === 'waiting') document.querySelector('.result')?.classList.add('is-slow');
});

const keptUnit = kept('unit');
if (keptUnit && Object.hasOwn(UNITS, keptUnit)) state.unit.value = /** @type {any} */ (keptUnit);
const keptTheme = kept('theme');
if (keptTheme === 'light' || keptTheme === 'dark') state.theme.value = keptTheme;

state.letterKeys.value = kept('letters') !== 'off';

async function begin() {
  performance.mark('tidemark-begin');
  useClient(client, createPool(workers));
  try {
    state.describe.value = readDescribe(await client.call(FORM));
    await loadFragment();
    await recompute();
  } catch (error) {
    await parsed;
    return lost(String(error instanceof Error ? error.message : error));
  }
  performance.mark('tidemark-answer');
  await parsed;
  const place = /** @type {HTMLElement} */ (document.getElementById('app'));
  if (SINGLE) place.replaceChildren(); /* a report is no static form of the page */
  render(<App />, place);
  performance.mark('tidemark-first-answer');
  keepUp();
  workOffline();
}

/** The static page stays as it is, with what went wrong above its numbers. @param {string} problem */
function lost(problem) {
  const place = document.querySelector('main') ?? document.body;
  const box = document.createElement('div');
  place.classList.remove('is-slow');
  delete document.documentElement.dataset.linked;
  place.prepend(box);
  render(<CoreLost problem={problem} />, box);
}

function keepUp() {
  effect(() => {
    const chosen = state.theme.value;
    if (chosen === 'system') delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = chosen;
    keep('theme', chosen);
  });
  effect(() => keep('unit', state.unit.value));
  effect(() => keep('letters', state.letterKeys.value ? 'on' : 'off'));

  if (!state.scenarios.value.length && (kept('scenarios') ?? '[]') !== '[]') import('./scenarios.js').then(({ showOwn }) => showOwn()).catch(() => {});

  effect(() => {
    const written = state.linkedView.value;
    if (written) import('./view.js').then(({ show }) => show(written)).catch(() => {}); /* the job is what counts */
  });

  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let speaking;
  let silent = true; /* the first answer is not news */
  effect(() => {
    const r = state.report.value;
    const failed = state.failure.value;
    if (!r) return;
    clearTimeout(speaking);
    if (!silent) speaking = setTimeout(() => { state.spoken.value = failed ? '' : spokenVerdict(r); }, 700);
    silent = false;
  });

  later({
    isSeen: () => true,
    draw({ settings, verdict, model }) {
      const title = settings.find(({ name }) => name === 'title')?.value;
      document.title = `${title ? `${title} · ` : ''}${(verdict.device_bytes / 2 ** 30).toFixed(1)} GiB · ${model.title} · tidemark`;
    },
  }, null);

  document.addEventListener('keydown', onKey);
  addEventListener('online', () => {
    if (state.failure.value?.some(({ code }) => code === 'ERR_NOT_LOADED')) recompute();
  });
  addEventListener('hashchange', async () => {
    if (await loadFragment()) recompute();
  });
}

begin();
