// SPDX-License-Identifier: Apache-2.0
/* The page's state. The job is the truth: words and files; the report follows. What changes it is in changes.js, what asks
 * the core in asking.js and play.js, what the address bar holds in address.js. */
import { computed, signal } from '@preact/signals';
import { EXAMPLE } from './example.js';
import { kindOf } from './kinds.js';
import { recording } from './recordings.js';
import { toCommand, toLink, wordsOf } from './words.js';

/** @typedef {import('./types.js').Report} Report */
/** @typedef {import('./types.js').Diagnostic} Diagnostic */
/** @typedef {import('./types.js').Describe} Describe */
/** @typedef {import('./words.js').Words} Words */
/** What the page set and not its reader: words of an example, or with which a model starts.
 * @typedef {{words: Words}} Start
 * @typedef {{words: Words, files: import('./files.js').OpenFile[], start?: Start}} Job */

/* The job. */
export const words = signal(/** @type {Words} */ (EXAMPLE));
export const files = signal(/** @type {import('./files.js').OpenFile[]} */ ([]));
export const start = signal(/** @type {Start} */ ({ words: EXAMPLE }));

/* What the core said. `report` is the last good answer; `failure` belongs to the present job. */
export const describe = signal(/** @type {Describe | null} */ (null));
export const models = signal(/** @type {import('./types.js').Choice[] | null} */ (null)); /* null: not yet wanted */
export const helps = signal(/** @type {Record<string, string>} */ ({})); /* what each setting means; comes with the models */
export const report = signal(/** @type {Report | null} */ (null));
export const failure = signal(/** @type {Diagnostic[] | null} */ (null));
/* The present job has no answer yet. */
export const awaited = signal(false);

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

/* Named jobs side by side (scenarios.js): kept in this browser, unless they are those of a link. */
/** @typedef {{name: string, link: string}} Scenario  link: readable */
export const scenarios = signal(/** @type {Scenario[]} */ ([]));

/* Where one is in the page, for a link to it (view.js): parts of it write here where they are, and go where a link says. */
/** @typedef {{event?: number, window?: {from: number, to: number}, zoom?: string, axes?: {name: string, text: string}[], inside?: string}} View
 *   inside: a panel that another one holds */
export const looking = /** @type {View} */ ({});
export const view = signal(/** @type {View} */ ({}));
/* What a link says of it, once its job has its answer. */
export const linkedView = signal(/** @type {any} */ (null));

export const stale = computed(() => failure.value !== null);
/* The job in words, as the core writes them; and as the address bar has it. */
export const link = computed(() => (failure.value === null && report.value ? report.value.link : toLink(words.value)));
export const fragment = signal('');
export const command = computed(() => (recording.value
  ? toCommand(Object.entries(recording.value.words), [recording.value.name], 'replay')
  : toCommand(wordsOf(link.value), files.value.map((file) => file.name))));

/** What is said of each setting by its name: who reads it hears when that of its own setting changes, and of no other.
 * @template T @param {(name: string) => T} say @returns {(name: string) => T} */
function byName(say) {
  const said = new Map();
  return (name) => {
    if (!said.has(name)) said.set(name, computed(() => say(name)));
    return said.get(name).value;
  };
}

/** The user's word for a setting, if there is one. */
export const wordOf = byName((name) => words.value.find(([key]) => key === name)?.[1]);

/** @param {string} name */
const used = (name) => report.value?.settings.find((setting) => setting.name === name);

/** The value a field shows: the user's word, else what the job came to, else the default. */
export const valueOf = byName((name) => wordOf(name) ?? used(name)?.value ?? String(describe.value?.settings.find((s) => s.name === name)?.default ?? ''));

/* What the job is, of KINDS. */
export const kind = computed(() => kindOf(valueOf));

/** Whether a setting means nothing as the job is: it is read where another one has other values. */
export const isIdle = byName((name) => {
  const when = describe.value?.settings.find((s) => s.name === name)?.when;
  if (when === undefined || wordOf(name) !== undefined) return false;
  const above = describe.value?.settings.find((s) => s.name === when.setting)?.when;
  return !when.choices.includes(valueOf(when.setting)) || (above !== undefined && !above.choices.includes(valueOf(above.setting)));
});

/* The last link says what its job comes to, and it does. */
export const isConfirmed = signal(false);

/* The words as the last link gave them. */
export const linked = signal(/** @type {Words} */ ([]));

/** user, link, default, file or recipe. */
export const originOf = byName((name) => {
  const word = wordOf(name);
  if (word !== undefined) return linked.value.some(([key, value]) => key === name && value === word) ? 'link' : 'user';
  return used(name)?.origin ?? 'default';
});

/** The error at a setting. */
export const errorAt = byName((name) => failure.value?.find(({ severity, place }) =>
  severity === 'error' && (place === `/settings/${name}` || !!place?.startsWith(`/settings/${name}/`))));

/** @param {Job} of */
export const wordsIn = (of) => of.words.map(([name, value]) => `${name}=${value}`);

/** @returns {Job} */
export const job = () => ({ words: words.value, files: files.value, start: start.value });

/** @param {Job} [of] */
export const request = (of = job()) => ({
  call: 'estimate',
  settings: wordsIn(of),
  files: of.files.map(({ name, text }) => ({ name, text })),
});
