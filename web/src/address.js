// SPDX-License-Identifier: Apache-2.0
/* The address bar: the job as it stands is in it, and a link that comes into it becomes the job. */
import { batch, signal } from '@preact/signals';
import { ask, askAsIs } from './asking.js';
import { CoreStopped } from './client.js';
import { sentences } from './format.js';
import { pack, SEVERAL, unpack } from './links.js';
import { awaited, baseline, baselineReport, failure, files, fragment, isExample, link, linked, notices, start, words, wordsIn } from './state.js';
import { toLink, toWord, wordsOf } from './words.js';

/** @typedef {import('./types.js').Diagnostic} Diagnostic */

/* What the address holds as far as the page knows: what it wrote or read last. Anything else is a link on its way in. */
let known = '';
/** @type {ReturnType<typeof setTimeout> | undefined} */
let writeTimer;
const WRITE_AFTER_MS = 350; /* with all that changed since: WebKit refuses more than 100 writes in 30 s */

export function writeFragment() {
  if (writeTimer) return;
  const mine = ++writing;
  writeTimer = setTimeout(async () => {
    writeTimer = undefined;
    const of = link.value;
    const job = awaited.value ? null : words.value; /* the link is of the last answer */
    const pinned = baseline.value;
    const full = pinned && failure.value === null ? (await ask('link', { with: wordsIn(pinned) }))?.link ?? of : of;
    const text = await pack(full) ?? toLink(wordsOf(of)); /* the files of a long one stay here */
    if (mine !== writing) return; /* a link was opened meanwhile, or another one is on its way */
    fragment.value = text;
    put(text);
    written = job;
  }, WRITE_AFTER_MS);
}

let writing = 0;
/** @type {import('./words.js').Words | null} */
let written = null; /* the settings that the address is of, if it is of the present ones */

/** @param {string} text of a link */
function put(text) {
  if (keepsAddress.value || text === known || readFragment() !== known) return;
  known = text;
  history.replaceState(null, '', '#' + known);
}

/** What was to be written into the address is not written any more. */
function stopWriting() {
  clearTimeout(writeTimer);
  writeTimer = undefined;
  writing++;
}

/** A new entry of the history, for a job that follows; the entry left behind leads back to the present one, even where its link was still to be written. */
export function pushEntry() {
  if (written !== words.value && files.value.length === 0) { /* the files of a job take a moment to pack */
    stopWriting();
    put(toLink(words.value));
  }
  history.pushState(null, '', location.href);
}

/** The link to pass on: with what the job came to, so that a later version can say what changed; and the baseline.
 * @param {object} [view] what is looked at */
export async function linkOf(view) {
  const reply = await ask('link', { was: true, with: baseline.value ? wordsIn(baseline.value) : undefined, ...view });
  return (reply?.ok && await pack(reply.link)) || fragment.value;
}

/** The address of the page with the job in it, to pass on. @param {object} [view] what is looked at */
export const address = async (view) => `${location.href.split('#')[0]}#${await linkOf(view)}`;

/* In a frame the address is not ours to write. */
export const keepsAddress = signal(false);

export function readFragment() {
  const at = location.href.indexOf('#');
  return at < 0 ? '' : location.href.slice(at + 1);
}

/* Of the last link: what its job came to when it was made; whether it has had no answer yet; and what it shows. */
export const opened = { was: '', isNew: false, view: /** @type {any} */ (null) };

/** Takes the job from the address. False when it names none. */
export async function loadFragment() {
  const text = readFragment();
  const isLink = /=|%3d/i.test(text);
  if (isLink && text === known) return true;
  known = text;
  if (!isLink) return false;
  stopWriting();
  try {
    await take(text.startsWith(SEVERAL) ? await import('./scenarios.js').then(({ openShared }) => openShared(text)) : await unpack(text));
  } catch (error) {
    if (error instanceof CoreStopped) throw error;
    notices.value = [String(error instanceof Error ? error.message : error)];
    return false;
  }
  return true;
}

/** The job of a link becomes the present one. @param {string} readable */
async function take(readable) {
  const read = await askAsIs({ call: 'read_link', link: readable });
  if (!read?.ok) throw new Error('This link cannot be read.');
  batch(() => {
    words.value = written = read.settings.map(toWord);
    files.value = read.files.map((/** @type {any} */ f) => ({ ...f, kind: f.name.startsWith('config') ? 'model' : 'other' }));
    notices.value = read.diagnostics.map((/** @type {Diagnostic} */ d) => Object.values(sentences(d)).join(' ').trim());
    linked.value = words.value;
    start.value = { words: [] };
    isExample.value = false;
    baseline.value = read.baseline ? { words: read.baseline.map(toWord), files: files.value } : null;
    baselineReport.value = null;
  });
  opened.was = read.was;
  opened.view = (read.view || read.sel || read.sweep) && read;
  opened.isNew = true;
}

/** Opens the job of a file that the page saved, or that the program printed with --json. @param {import('./files.js').OpenFile} file
 * @returns {Promise<boolean>} whether there is one */
export async function openSaved({ kind, text }) {
  if (kind !== 'job') return false;
  let link;
  try {
    const { link: saved, result } = JSON.parse(text);
    link = await unpack(saved.slice(saved.indexOf('#') + 1));
    if (result?.link.includes('config=') && !link.includes('config=')) link = result.link; /* it was too long for an address */
  } catch {
    return false; /* no link, or no JSON: the core says what it is */
  }
  pushEntry();
  stopWriting();
  await take(link);
  return true;
}
