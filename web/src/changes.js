// SPDX-License-Identifier: Apache-2.0
/* Everything that changes the job; and back again. */
import { batch, signal } from '@preact/signals';
import { pushEntry, writeFragment } from './address.js';
import { ask, askAsIs } from './asking.js';
import { EXAMPLE, EXAMPLES } from './example.js';
import { MOST_FILES, isCommand, readText } from './files.js';
import { sentences } from './format.js';
import { kindNamed, KINDS, TUNES, wordsFor, wholeTitle } from './kinds.js';
import { gpusOf, hasStages, layoutOf } from './layout.js';
import { playBaseline, recompute } from './play.js';
import { baseline, baselineReport, describe, files, isExample, job, kind, linked, notices, spoken, start, valueOf, words } from './state.js';
import { wordsOf } from './words.js';

/** @typedef {import('./types.js').Diagnostic} Diagnostic */
/** @typedef {import('./state.js').Job} Job */
/** @typedef {import('./words.js').Words} Words */

/* Words that belong to one model and mean nothing to the next. */
const OF_THE_MODEL = ['freeze', 'train_only', 'image_size'];

/** @param {Words} list */
const withoutModel = (list) => list.filter(([name]) =>
  name !== 'model' && !OF_THE_MODEL.includes(name) && !name.startsWith('overrides.'));

const GROUPS = ['parallel.dp', 'parallel.tp', 'parallel.pp', 'parallel.cp', 'parallel.ep'];

/** Several GPUs share a job by a strategy, and a strategy is of several GPUs: the words that go with one of the two where the other is not set.
 * @param {string} name @param {string | null} value @returns {[string, string | null][] | null} */
function sharing(name, value) {
  const has = (/** @type {string} */ other) => words.value.find(([key]) => key === other)?.[1];
  const isNone = (/** @type {string | null | undefined} */ kind) => !kind || kind === 'none';
  if (name === 'parallel.dp' && Number(value) > 1 && isNone(valueOf('parallel.kind'))) return [['parallel.kind', 'fsdp2']];
  if (name !== 'parallel.kind') return null;
  if (value === null || isNone(value)) return GROUPS.filter(has).map((group) => [group, null]);
  if (value === 'pp') return [['parallel.pp', '4'], ['parallel.dp', null], ...(Number(valueOf('batch')) % 8 ? [/** @type {[string, string]} */ (['batch', '8'])] : [])];
  if (value === 'tp') return [['parallel.tp', '8'], ['parallel.dp', null]];
  const gpus = gpusOf(layoutOf(valueOf));
  if (hasStages((one) => (one === name ? value : valueOf(one)))) return gpus > 1 ? null : [['parallel.dp', '8']];
  return [...GROUPS.slice(1).filter(has).map((group) => /** @type {[string, null]} */ ([group, null])), ['parallel.dp', String(gpus > 1 ? gpus : 8)]];
}

/** Weights that are fine-tuned are so still when nothing of it but the purpose is left. @param {Words} list that comes next @param {string} name what changes @returns {Words} */
const stillTuned = (list, name) => (kind.value.name === 'full' && TUNES.includes(name) && !list.some(([key]) => key === 'purpose' || TUNES.includes(key)) ? [...list, ['purpose', 'finetune']] : list);

/** Sets a word; null or '' takes it out, so that the default holds.
 * @param {string} name @param {string | null} value */
export function setWord(name, value) {
  const more = sharing(name, value);
  if (more?.length) return setWords([[name, value], ...more]);
  const rest = words.value.filter(([key]) => key !== name);
  const at = words.value.findIndex(([key]) => key === name);
  if (value !== null && value !== '') rest.splice(at < 0 ? rest.length : at, 0, [name, value]);
  change(stillTuned(rest, name), files.value, 'replace', name);
}

/** @param {[string, string | null][]} changes */
export function setWords(changes) {
  let list = words.value;
  for (const [name, value] of changes) {
    list = list.filter(([key]) => key !== name);
    if (value) list = [...list, [name, value]];
    list = stillTuned(list, name);
  }
  change(list, files.value, 'replace');
}

const EXAMPLE_GONE = 'The settings of the example are gone; others have their defaults.';

/** Not one of those that the page set by itself. @param {Words[0]} word */
const isOwn = ([key, value]) => key === 'gpu' || !start.value.words.some((word) => word[0] === key && word[1] === value);

/** What a kind of job sets. @param {import('./kinds.js').Kind} of @returns {Words} */
const setBy = (of) => of.words.flatMap(([name, value]) => (value === null ? [] : [/** @type {Words[0]} */ ([name, value])]));

/** @typedef {{list: Words, opened: Job['files'], of: import('./kinds.js').Kind, title?: string, said?: string[], more?: Words}} Beginning
 *   list: without what the page set by itself; title: of the model; more: words that came with its name */

/* What a model starts with is looked for, one after the other; of models and of kinds the last one chosen holds. */
let lookedFor = Promise.resolve();
const NO_START = { words: /** @type {Words} */ ([]), said: '' };
let lastBegun = 0;
/** @type {{model: object | null, kind: object | null}} */
const begun = { model: null, kind: null };

/** What is still looked for is for another job than the one that comes now. */
const forget = () => { begun.model = begun.kind = null; };

/** @param {import('./kinds.js').Kind} of @param {Job} from @param {() => boolean} isWanted */
const startOf = async (of, from, isWanted) => (await import('./start.js')).startOf(of, from, isWanted);

/** A new model, or another kind of job: where nothing but these is the reader's own, it starts from settings that it fits with, which are named.
 * What is changed while they are looked for holds as well.
 * @param {'model' | 'kind'} what @param {() => Beginning} from of the job as it is by then */
function begin(what, from) {
  const mine = begun[what] = {};
  const number = ++lastBegun;
  const link = linked.value;
  const isChosen = () => begun[what] === mine && linked.value === link;
  const look = async () => {
    while (isChosen()) {
      const { list, opened, of, title = 'The model', said = [], more = [] } = from();
      const base = [...list.filter(([name]) => !more.some(([key]) => key === name)), ...setBy(of).filter(([name]) => ![...list, ...more].some(([key]) => key === name)), ...more];
      const before = words.value;
      const given = new Set(['model', 'gpu', ...of.words.map(([name]) => name), ...more.map(([name]) => name)]);
      const isBare = number === lastBegun && list.every(([name]) => given.has(name));
      const found = isBare ? await startOf(of, { words: base, files: opened }, () => words.value === before && number === lastBegun) : NO_START;
      if (!found || words.value !== before || !isChosen()) continue;
      change([...base, ...found.words], opened, 'push', '', { words: found.words });
      notices.value = [...said, ...(found.said ? [`${title} ${found.said}`] : [])];
      begun[what] = null;
    }
  };
  const done = lookedFor.then(look);
  lookedFor = done.catch(() => {});
  return done;
}

/** A model of the catalogue. What an example set is for the example.
 * @param {string} name @param {import('./types.js').Choice} [choice] as it was found: what its name was taken for, and words that come with that */
export function chooseModel(name, choice) {
  const { taken, title, words: more = [] } = choice ?? {};
  return begin('model', () => {
    const isOther = words.value.find(([key]) => key === 'model')?.[1] !== name;
    const left = withoutModel(words.value).filter((word) => !isOther || isOwn(word));
    return { list: [['model', name], ...left], opened: files.value.filter((f) => f.kind === 'other'), of: kind.value, title, more, said: [
      ...(taken ? [`${taken} is read as ${title}${more.length ? ` with ${more.map((word) => word.join('=')).join(' ')}` : ''}.`] : []),
      ...(isExampleModel() && isOther ? [EXAMPLE_GONE] : []),
    ] };
  });
}

/* The kind that is being gone to. */
export const goesTo = signal(/** @type {import('./kinds.js').Kind | null} */ (null));

/** What the job is, by the name of a kind. An example that nobody touched gives way to that of the other kind.
 * @param {string} name */
export async function chooseKind(name) {
  const of = kindNamed(name);
  if (of === (goesTo.value ?? kind.value)) return;
  if (isExample.value && begun.model === null) {
    change(EXAMPLES[name], [], 'push', '', { words: EXAMPLES[name] });
    isExample.value = true;
    return;
  }
  goesTo.value = of;
  await begin('kind', () => {
    const isModelOfExample = isExampleModel();
    const set = new Map(wordsFor(of, describe.value?.settings ?? []));
    const left = words.value.filter((word) => word[0] === 'model' || (!set.has(word[0]) && (isModelOfExample || isOwn(word))));
    return { list: left, opened: files.value, of, title: wholeTitle(of) };
  });
  if (goesTo.value === of) goesTo.value = null;
}

/** Whether the model is that of an example. */
export const isExampleModel = () => files.value.length === 0 && start.value.words.some(([name, value]) => name === 'model' && words.value.some((word) => word[0] === name && word[1] === value));

/* The files that the last change brought: they can be taken back at once. */
export const justOpened = signal(/** @type {string[]} */ ([]));

/** Text that does not even begin as JSON: there is nothing in it to mend. @param {string} [text] */
const isProse = (text) => !/^\s*[{["]/.test(text ?? '');

const TAKEN = 'What can be opened: config.json, adapter_config.json, TrainingArguments, a file of DeepSpeed, Accelerate or Axolotl, a script or compose file that starts training or a server, a safetensors or GGUF file, a job that was saved, a memory snapshot or a profiler trace.';

/** Opened files beside those that stay: not of the same name, nor of a kind of which there is one. @param {Job['files']} before @param {Job['files']} taken */
const together = (before, taken) => [...before.filter((old) => !taken.some((f) => f.kind === 'job' || f.name === old.name || (f.kind === old.kind && f.kind !== 'other'))), ...taken]
  .slice(-MOST_FILES);

/** @param {any} reply */
const lacksModel = (reply) => reply?.diagnostics?.some((/** @type {Diagnostic} */ d) => d.code === 'ERR_FIELD_MISSING' && d.place === '/settings/model');

/** Settings that mean nothing in the mode which files bring. @param {string | undefined} mode @returns {string[]} */
function idleIn(mode) {
  const other = mode !== undefined && mode !== valueOf('mode') && KINDS.find(({ words: of }) => of.some(([name, value]) => name === 'mode' && value === mode));
  return other ? wordsFor(other, describe.value?.settings ?? []).filter(([, value]) => value === null).map(([name]) => name) : [];
}

/** Takes files into the job. What the core does not take for one that says something is named instead, and a setting that a file
 * gives is no longer that of the form.
 * @param {import('./files.js').OpenFile[]} opened @returns {Promise<string[]>} what was not taken, and why */
export async function openFiles(opened) {
  const before = job();
  const over = opened.slice(MOST_FILES).map(({ name }) => `${name}: more than ${MOST_FILES} files at once.`);
  let taken = opened.slice(0, MOST_FILES);
  const has = (/** @type {string} */ kind) => taken.some((f) => f.kind === kind);
  const all = () => together(before.files, taken);
  const withModel = () => (has('job') ? [] : words.value); /* a job is whole */
  const isFresh = isExampleModel();
  const isModel = () => taken.every((f) => f.kind === 'model');
  const ofKind = setBy(kind.value).map(([name]) => name);
  const withoutOne = () => withoutModel(withModel()).filter((word) => !isFresh || isOwn(word) || (isModel() && ofKind.includes(word[0])));
  /* The model of the form holds where the files bring none. */
  let left = withoutOne();
  const asked = async () => {
    left = withoutOne();
    const reply = await ask('estimate', {}, { words: left, files: all() }, 'open');
    if (has('model') || has('job') || !lacksModel(reply)) return reply;
    left = withModel();
    return ask('estimate', {}, { words: left, files: all() }, 'open');
  };
  let reply = await asked();
  const wrong = (reply?.ok === false ? reply.diagnostics : []).filter((/** @type {Diagnostic} */ d) =>
    d.severity === 'error' && /^\/files\/\d+$/.test(d.place ?? '') && (['ERR_FILE', 'ERR_MODEL_UNKNOWN'].includes(d.code) || (d.code === 'ERR_JSON_SYNTAX' && isProse(all()[Number(d.place?.split('/')[2])]?.text))));
  const names = wrong.map((/** @type {Diagnostic} */ d) => all()[Number(d.place?.split('/')[2])]?.name);
  const said = wrong.map((/** @type {Diagnostic} */ d, /** @type {number} */ i) => (d.code === 'ERR_JSON_SYNTAX' ? `${names[i]} is neither JSON nor YAML. ${TAKEN}`
    : Object.values(sentences({ ...d, place: '' })).join(' ').trim()));
  if (wrong.length) {
    taken = taken.filter(({ name }) => !names.includes(name));
    if (taken.length) reply = await asked();
  }
  if (has('model') || has('job')) forget();
  if (taken.length) {
    const given = (reply?.files ?? []).filter((/** @type {any} */ card) => taken.some(({ name }) => name === card.name))
      .flatMap((/** @type {any} */ card) => card.used.map((/** @type {any} */ key) => key.setting));
    const idle = idleIn(reply?.settings?.find((/** @type {any} */ one) => one.name === 'mode')?.value);
    const isLeft = left === withModel();
    const keptOf = (/** @type {Words} */ list) => list.filter(([name]) => !given.includes(name) && !idle.includes(name));
    const at = words.value;
    let kept = keptOf(left);
    let found = isFresh && isModel() && reply?.ok ? await startOf(kind.value, { words: kept, files: all() }, () => words.value === at) : NO_START;
    if (!found) [found, kept] = [NO_START, keptOf(isLeft ? withModel() : withoutOne())]; /* something was changed meanwhile, and holds */
    change([...kept, ...found.words], all(), 'push', '', isLeft ? start.value : { words: found.words });
    justOpened.value = taken.map(({ name }) => name);
    if (isFresh && !isLeft) said.push(EXAMPLE_GONE);
    if (found.said) said.push(`${taken[0].name} ${found.said}`);
  }
  return [...said, ...over];
}

/** Whether a typed text may be a question: more than one word. @param {string} text */
export const isQuestion = (text) => /\S\s+\S/.test(text);

/** A command that starts training or a server, typed or pasted where one line is: its lines come without what ends them.
 * @param {string} text */
async function openCommand(text) {
  const { file, problem } = await readText('pasted.sh', text);
  notices.value = file ? await openFiles([file]) : [problem ?? ''];
}

/** The job that a question asks about, as the core reads it: "llama 8b lora on a 4090". What is not understood is said, and the job stays.
 * @param {string} text */
export async function openQuestion(text) {
  const command = text.replace(/\\\s+/g, ' ');
  if (await isCommand(command)) return openCommand(command);
  const reply = await askAsIs({ call: 'link', settings: [text.trim()] }, 'question');
  if (!reply) return;
  if (reply.ok) {
    forget();
    change(wordsOf(reply.link), [], 'push', '', { words: [] });
  }
  notices.value = reply.ok ? (reply.read_as ?? '').split('\n').filter(Boolean)
    : reply.diagnostics.map((/** @type {Diagnostic} */ d) => Object.values(sentences(d)).join(' ').trim());
}

/** @param {string} name */
export function closeFile(name) {
  forget();
  const left = files.value.filter((f) => f.name !== name);
  const hasModel = left.some((f) => f.kind === 'model') || words.value.some(([key]) => key === 'model');
  change(hasModel ? words.value : [EXAMPLE[0], ...words.value], left, 'push');
}

/** Back to the defaults, keeping model, GPU and what the job is. */
export function reset() {
  forget();
  const kept = words.value.filter(([name]) => name === 'model' || name === 'gpu');
  change([...kept, ...setBy(kind.value)], files.value, 'push', '', { words: [] });
}

/** @param {Words} list @param {import('./files.js').OpenFile[]} opened @param {'replace' | 'push'} how
 * @param {string} [field] the one setting that changed: changes of it in a row are undone together @param {Job['start']} [from] */
function change(list, opened, how, field = '', from = start.value) {
  const before = job();
  const now = Date.now();
  if (!field || field !== lastField || now - lastChange > 2000) past.value = [...past.value.slice(-99), before];
  lastField = field;
  lastChange = now;
  future.value = [];
  if (how === 'push') pushEntry();
  settle({ words: list, files: opened, start: from });
  justOpened.value = [];
}

/** @param {Job} to */
function settle(to) {
  batch(() => {
    words.value = to.words;
    files.value = to.files;
    start.value = to.start ?? { words: [] };
    isExample.value = false;
    if (notices.value.length) notices.value = [];
  });
  recompute();
}

/* ---- undo ---- */

export const past = signal(/** @type {Job[]} */ ([]));
export const future = signal(/** @type {Job[]} */ ([]));
let lastField = '';
let lastChange = 0;

/** @param {typeof past} from @param {typeof past} to @param {string} word */
function travel(from, to, word) {
  const target = from.value.at(-1);
  if (!target) return;
  forget();
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
