/* The page's state and everything that changes it. The job is the truth: words and files; the report follows. */
import { batch, computed, signal } from '@preact/signals';
import { CoreStopped } from './client.js';
import { EXAMPLE } from './example.js';
import { MOST_FILES } from './files.js';
import { sentences } from './format.js';
import { pack, unpack } from './links.js';
import { recording } from './recordings.js';
import { toCommand, toLink, toWord, wordsOf } from './words.js';

/** @typedef {import('./types.js').Report} Report */
/** @typedef {import('./types.js').Diagnostic} Diagnostic */
/** @typedef {import('./types.js').Describe} Describe */
/** @typedef {import('./words.js').Words} Words */
/** @typedef {{words: Words, files: import('./files.js').OpenFile[]}} Job */

/* The job. */
export const words = signal(/** @type {Words} */ (EXAMPLE));
export const files = signal(/** @type {import('./files.js').OpenFile[]} */ ([]));

/* What the core said. `report` is the last good answer; `failure` belongs to the present job. */
export const describe = signal(/** @type {Describe | null} */ (null));
export const report = signal(/** @type {Report | null} */ (null));
export const failure = signal(/** @type {Diagnostic[] | null} */ (null));

/** waiting: before the first answer. lost: the core cannot run here. */
export const core = signal(/** @type {'waiting' | 'ready' | 'lost'} */ ('waiting'));
export const coreProblem = signal('');
/* Computing for more than 150 ms; for more than a second. */
export const slow = signal(false);
export const verySlow = signal(false);
export const isExample = signal(true);
export const notices = signal(/** @type {string[]} */ ([]));

/* Kept in this browser: how things look, never the job. */
export const unit = signal(/** @type {import('./format.js').Unit} */ ('GiB'));
export const theme = signal(/** @type {'system' | 'light' | 'dark'} */ ('system'));

/* Said by the live region. */
export const spoken = signal('');
/* Shown for a moment. */
export const said = signal('');

export const settingsOpen = signal(false);
export const moreOpen = signal(false);

/* What is open over the page, by name (see ui/Overlays.jsx); and whose bytes the drawer takes apart. */
export const overlay = signal('');
/* What was typed for the palette before it was there. */
export const typedAhead = signal('');
export const details = signal(/** @type {import('./types.js').Details | null} */ (null));

/* The text that is pasted, or of the open file that is changed; and a place in it. */
export const editing = signal(/** @type {{name: string, text: string, isNew?: boolean, place?: {line: number, column: number}} | null} */ (null));

/* Single letters as keys: kept in this browser. */
export const letterKeys = signal(true);

/* The job that the present one is compared with, and its answer. */
export const baseline = signal(/** @type {Job | null} */ (null));
export const baselineReport = signal(/** @type {Report | null} */ (null));

export const stale = computed(() => failure.value !== null);
/* The job in words, as the core writes them; and as the address bar has it. */
export const link = computed(() => (failure.value === null && report.value ? report.value.link : toLink(words.value)));
export const fragment = signal('');
export const command = computed(() => (recording.value
  ? toCommand(Object.entries(recording.value.words), [recording.value.name], 'replay')
  : toCommand(wordsOf(link.value), files.value.map((file) => file.name))));

/** The value a field shows: the user's word, else what the job came to, else the default.
 * @param {string} name */
export function valueOf(name) {
  const word = words.value.find(([key]) => key === name);
  if (word) return word[1];
  const used = report.value?.settings.find((setting) => setting.name === name);
  return used ? used.value : String(describe.value?.settings.find((s) => s.name === name)?.default ?? '');
}

/* The words as the last link gave them. */
const linked = signal(/** @type {Words} */ ([]));

/** user, link, default, file or recipe.
 * @param {string} name */
export function originOf(name) {
  const word = words.value.find(([key]) => key === name);
  if (word) return linked.value.some(([key, value]) => key === name && value === word[1]) ? 'link' : 'user';
  return report.value?.settings.find((setting) => setting.name === name)?.origin ?? 'default';
}

/** @param {string} name @returns {Diagnostic | undefined} the error at this setting */
export const errorAt = (name) => failure.value?.find((d) => d.severity === 'error' && placed(d, name));

/** @param {Diagnostic} diagnostic @param {string} name */
export function placed({ place }, name) {
  return place === `/settings/${name}` || !!place?.startsWith(`/settings/${name}/`);
}

/* ---- changes ---- */

/* Words that belong to one model and mean nothing to the next. */
const OF_THE_MODEL = ['freeze', 'train_only', 'image_size'];

/** @param {Words} list */
const withoutModel = (list) => list.filter(([name]) =>
  name !== 'model' && !OF_THE_MODEL.includes(name) && !name.startsWith('overrides.'));

/** Sets a word; null or '' takes it out, so that the default holds.
 * @param {string} name @param {string | null} value */
export function setWord(name, value) {
  const rest = words.value.filter(([key]) => key !== name);
  const at = words.value.findIndex(([key]) => key === name);
  if (value !== null && value !== '') rest.splice(at < 0 ? rest.length : at, 0, [name, value]);
  change(rest, files.value, 'replace', name);
}

/** @param {[string, string | null][]} changes */
export function setWords(changes) {
  let list = words.value;
  for (const [name, value] of changes) {
    list = list.filter(([key]) => key !== name);
    if (value) list = [...list, [name, value]];
  }
  change(list, files.value, 'replace');
}

/** @param {string} name */
export function chooseModel(name) {
  change([['model', name], ...withoutModel(words.value)], files.value.filter((f) => f.kind === 'other'), 'push');
}

/* The files that the last change brought: they can be taken back at once. */
export const justOpened = signal(/** @type {string[]} */ ([]));

/** Takes files into the job. What the core does not take for one that says something is named instead, and a setting that a file
 * gives is no longer that of the form.
 * @param {import('./files.js').OpenFile[]} opened @returns {Promise<string[]>} what was not taken, and why */
export async function openFiles(opened) {
  const before = job();
  const over = opened.slice(MOST_FILES).map(({ name }) => `${name}: more than ${MOST_FILES} files at once.`);
  let taken = opened.slice(0, MOST_FILES);
  const together = () => [...before.files.filter((old) => !taken.some((f) => f.name === old.name || (f.kind === old.kind && f.kind !== 'other'))), ...taken]
    .slice(-MOST_FILES);
  const list = taken.some((f) => f.kind === 'model') ? withoutModel(before.words) : before.words;
  let all = together();
  let reply = await ask('estimate', {}, { words: list, files: all }, 'open');
  const wrong = (reply?.ok === false ? reply.diagnostics : []).filter((/** @type {Diagnostic} */ d) =>
    d.severity === 'error' && /^\/files\/\d+$/.test(d.place ?? '') && ['ERR_FILE', 'ERR_MODEL_UNKNOWN'].includes(d.code));
  const names = wrong.map((/** @type {Diagnostic} */ d) => all[Number(d.place?.split('/')[2])]?.name);
  const said = wrong.map((/** @type {Diagnostic} */ d) => Object.values(sentences({ ...d, place: '' })).join(' ').trim());
  if (wrong.length) {
    taken = taken.filter(({ name }) => !names.includes(name));
    all = together();
    if (taken.length) reply = await ask('estimate', {}, { words: taken.some((f) => f.kind === 'model') ? list : before.words, files: all }, 'open');
  }
  if (taken.length) {
    const given = (reply?.files ?? []).filter((/** @type {any} */ card) => taken.some(({ name }) => name === card.name))
      .flatMap((/** @type {any} */ card) => card.used.map((/** @type {any} */ key) => key.setting));
    const words = taken.some((f) => f.kind === 'model') ? list : before.words;
    change(words.filter(([name]) => !given.includes(name)), all, 'push');
    justOpened.value = taken.map(({ name }) => name);
  }
  return [...said, ...over];
}

/** @param {string} name */
export function closeFile(name) {
  const left = files.value.filter((f) => f.name !== name);
  const hasModel = left.some((f) => f.kind === 'model') || words.value.some(([key]) => key === 'model');
  change(hasModel ? words.value : [EXAMPLE[0], ...words.value], left, 'push');
}

/** Back to the defaults, keeping model and card. */
export function reset() {
  change(words.value.filter(([name]) => name === 'model' || name === 'gpu'), files.value, 'push');
}

/** @param {Words} list @param {import('./files.js').OpenFile[]} opened @param {'replace' | 'push'} how
 * @param {string} [field] the one setting that changed: changes of it in a row are undone together */
function change(list, opened, how, field = '') {
  const before = job();
  const now = Date.now();
  if (!field || field !== lastField || now - lastChange > 2000) past.value = [...past.value.slice(-99), before];
  lastField = field;
  lastChange = now;
  future.value = [];
  settle({ words: list, files: opened });
  justOpened.value = [];
  if (how === 'push') history.pushState(null, '', location.href);
}

/** @param {Job} to */
function settle(to) {
  batch(() => {
    words.value = to.words;
    files.value = to.files;
    isExample.value = false;
    notices.value = [];
  });
  recompute();
}

/** @param {Job} of */
const wordsIn = (of) => of.words.map(([name, value]) => `${name}=${value}`);

/** @returns {Job} */
export const job = () => ({ words: words.value, files: files.value });

/* ---- undo ---- */

export const past = signal(/** @type {Job[]} */ ([]));
export const future = signal(/** @type {Job[]} */ ([]));
let lastField = '';
let lastChange = 0;

/** @param {typeof past} from @param {typeof past} to @param {string} word */
function travel(from, to, word) {
  const target = from.value.at(-1);
  if (!target) return;
  batch(() => {
    from.value = from.value.slice(0, -1);
    to.value = [...to.value, job()];
    lastField = '';
    spoken.value = word;
  });
  settle(target);
}
export const undo = () => travel(past, future, 'Undone.');
export const redo = () => travel(future, past, 'Done again.');

/* ---- the baseline ---- */

/** @param {Job | null} to */
function setBaseline(to) {
  batch(() => {
    baseline.value = to;
    baselineReport.value = null;
  });
  playBaseline();
}

/** Keeps the present job to compare with. */
export function pin() {
  setBaseline(job());
  writeFragment();
}

export function unpin() {
  setBaseline(null);
  writeFragment();
}

export async function playBaseline() {
  const of = baseline.value;
  if (!of) return;
  const reply = await ask('estimate', {}, of, 'baseline');
  if (baseline.value === of && reply?.ok) baselineReport.value = reply;
}

/* ---- the link ---- */

let written = '';
/** @type {ReturnType<typeof setTimeout> | undefined} */
let writeTimer;
let lastWrite = 0;
const WRITE_EVERY_MS = 350; /* WebKit refuses more than 100 writes in 30 s */

function writeFragment() {
  const mine = stopWriting();
  const wait = Math.max(0, lastWrite + WRITE_EVERY_MS - Date.now());
  writeTimer = setTimeout(async () => {
    const of = link.value;
    const pinned = baseline.value;
    const full = pinned && failure.value === null ? (await ask('link', { with: wordsIn(pinned) }))?.link ?? of : of;
    const text = await pack(full) ?? toLink(wordsOf(of)); /* the files of a long one stay here */
    if (mine !== writing) return; /* a link was opened meanwhile, or another one is on its way */
    fragment.value = text;
    if (keepsAddress.value || text === readFragment()) return;
    lastWrite = Date.now();
    written = text;
    history.replaceState(null, '', '#' + written);
  }, wait);
}

let writing = 0;

/** What was to be written into the address is not written any more. @returns {number} the turn of who writes next */
function stopWriting() {
  clearTimeout(writeTimer);
  return ++writing;
}

/** The link to pass on: with what the job came to, so that a later version can say what changed; and the baseline.
 * @param {string} [view] */
export async function shareLink(view = '') {
  const reply = await ask('link', { was: true, with: baseline.value ? wordsIn(baseline.value) : undefined, view });
  return (reply?.ok && await pack(reply.link)) || fragment.value;
}

/* In a frame the address is not ours to write. */
export const keepsAddress = signal(false);

export function readFragment() {
  const at = location.href.indexOf('#');
  return at < 0 ? '' : location.href.slice(at + 1);
}

/* What the last link said besides the job: what it came to then, what the page shows. */
let was = '';
export const view = signal('');

/** Takes the job from the address. False when it names none. */
export async function loadFragment() {
  const text = readFragment();
  if (text === '' || !/=|%3d/i.test(text)) return false;
  if (text === written) return true;
  stopWriting();
  written = text;
  try {
    const read = await client?.call({ call: 'read_link', link: await unpack(text) });
    if (!read?.ok) throw new Error('This link cannot be read.');
    batch(() => {
      words.value = read.settings.map(toWord);
      files.value = read.files.map((/** @type {any} */ f) => ({ ...f, kind: f.name.startsWith('config') ? 'model' : 'other' }));
      notices.value = read.diagnostics.map((/** @type {Diagnostic} */ d) => Object.values(sentences(d)).join(' ').trim());
      linked.value = words.value;
      view.value = read.view;
      was = read.was;
      isExample.value = false;
      setBaseline(read.baseline ? { words: read.baseline.map(toWord), files: files.value } : null);
    });
    fromLink = true;
  } catch (error) {
    if (error instanceof CoreStopped) throw error;
    notices.value = [String(error instanceof Error ? error.message : error)];
    return false;
  }
  return true;
}

/* A bad value in a link falls back to the default and is named, so that a link always lands on an answer. */
let fromLink = false;

/** @param {Diagnostic[]} diagnostics @returns {boolean} whether a word was dropped */
function dropBadWord(diagnostics) {
  const error = diagnostics.find((d) => d.severity === 'error');
  const bad = error && words.value.find(([name]) => name !== 'model' && placed(error, name));
  if (!error || !bad) return false;
  batch(() => {
    words.value = words.value.filter((word) => word !== bad);
    notices.value = [...notices.value, `${bad[0]}=${bad[1].slice(0, 60)} in this link was not taken: ${sentences(error).said}`];
  });
  return true;
}

/* ---- the answer ---- */

/** @type {{call: (request: object, lane?: string) => Promise<any>, end: () => void} | null} */
let client = null;
/** For questions of many jobs. @type {import('./pool.js').Pool | null} */
let pool = null;

/** @param {NonNullable<typeof client>} opened @param {NonNullable<typeof pool>} many */
export function useClient(opened, many) {
  client = opened;
  pool = many;
}

/** Ends a calculation that takes too long. */
export function cancel() {
  isCancelled = true;
  client?.end();
}
let isCancelled = false;

/** Other jobs than the present one, several at once, apart from what answers keystrokes.
 * @param {{call?: string, words: string[], more?: object}[]} asked each with words that hold over the job's
 * @param {(reply: any, index: number) => void} got @param {AbortSignal} [signal] */
export async function askMany(asked, got, signal) {
  const { settings, files: opened } = request();
  const name = (/** @type {string} */ word) => word.slice(0, word.indexOf('='));
  return await pool?.all(asked.map(({ call = 'measure', words: own, more }) => {
    const over = new Set(own.map(name));
    return { call, settings: [...settings.filter((word) => !over.has(name(word))), ...own], files: opened, ...more };
  }), got, signal) ?? false;
}

/** @type {ReturnType<typeof setTimeout> | undefined} */
let slowTimer;

/** @param {Job} [of] */
export const request = (of = job()) => ({
  call: 'estimate',
  settings: wordsIn(of),
  files: of.files.map(({ name, text }) => ({ name, text })),
});

export async function recompute() {
  if (!client) return;
  slowTimer ??= setTimeout(() => {
    slow.value = true;
    slowTimer = setTimeout(() => { verySlow.value = true; }, 850);
  }, 150);
  try {
    const reply = await client.call(fromLink && was ? { ...request(), was } : request(), 'estimate');
    if (reply === null) return; /* a newer job is on its way */
    if (!reply.ok && fromLink && dropBadWord(reply.diagnostics ?? [])) return recompute();
    fromLink = false;
    batch(() => {
      answered();
      core.value = 'ready';
      if (reply.ok) report.value = reply;
      failure.value = reply.ok ? null : reply.diagnostics ?? [];
    });
  } catch (error) {
    batch(() => {
      answered();
      if (isCancelled) {
        isCancelled = false;
        failure.value = [{ severity: 'warning', code: '', message: 'Cancelled.', remedy: 'Change a setting to calculate again.' }];
      } else if (error instanceof CoreStopped) {
        failure.value = [{ severity: 'error', code: 'ERR_STOPPED', message: `The calculation stopped unexpectedly: ${error.message}`,
          remedy: 'Your settings are safe in the address bar. Change one of them, or reload the page.' }];
      } else {
        core.value = 'lost';
        coreProblem.value = String(error instanceof Error ? error.message : error);
      }
    });
  }
  writeFragment();
}

/** Another question about a job; of questions on one lane only the newest waits.
 * @param {string} call @param {object} [more] @param {Job} [of] @param {string} [lane]
 * @returns {Promise<any>} the answer, or null if it did not come */
export async function ask(call, more = {}, of = job(), lane = call) {
  try {
    return await client?.call({ ...request(of), ...more, call }, lane) ?? null;
  } catch {
    return null;
  }
}

function answered() {
  clearTimeout(slowTimer);
  slowTimer = undefined;
  slow.value = verySlow.value = false;
}

/** Makes the answer to describe uniform: catalogue entries may be names or objects.
 * @param {any} reply @returns {Describe} */
export function readDescribe(reply) {
  /** @param {any} entry @param {(entry: any) => string} note */
  const choice = (entry, note) => {
    const name = typeof entry === 'string' ? entry : entry.name;
    const title = (typeof entry === 'object' && entry.title) || name;
    const said = typeof entry === 'object' ? note(entry) : '';
    return { name, title, note: said, search: `${name} ${title} ${said}`.toLowerCase() };
  };
  const total = (/** @type {any} */ m) => (typeof m.parameters === 'object' ? m.parameters?.total : m.parameters);
  return {
    settings: reply.settings,
    models: reply.models.map((/** @type {any} */ m) => choice(m, () => [m.architecture ?? m.model_type, billions(total(m))].filter(Boolean).join(' · '))),
    gpus: reply.gpus.map((/** @type {any} */ g) => choice(g, () => (g.bytes ? `${(g.bytes / 2 ** 30).toFixed(1)} GiB` : ''))),
  };
}

/** @param {number | undefined} count */
const billions = (count) => (!count ? '' : count >= 1e9 ? `${(count / 1e9).toFixed(1)} B` : `${Math.round(count / 1e6)} M`);
