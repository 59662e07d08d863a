// SPDX-License-Identifier: Apache-2.0
/* The left column: model and its files, GPU, and the settings. */
import { computed } from '@preact/signals';
import { useRef, useState } from 'preact/hooks';
import { openSaved } from '../address.js';
import { fixed, headline, params, sentences } from '../format.js';
import { fromFile, MOST_FILES, readText } from '../files.js';
import { fromHub, isHubId } from '../hub.js';
import { Files } from './Files.jsx';
import { noModels, wantModels } from '../catalogue.js';
import { closeRecording, isRecording, openRecording, recording } from '../recordings.js';
import { chooseKind, chooseModel, goesTo, isExampleModel, isQuestion, justOpened, openFiles, openQuestion, past, reset, setWord, setWords, undo } from '../changes.js';
import { describe, editing, errorAt, files, isIdle, kind, models, moreOpen, notices, report, settingsOpen, unit, valueOf, wordOf } from '../state.js';
import { JOBS, KINDS } from '../kinds.js';
import { readsSize } from '../sizes.js';
import { recompute } from '../play.js';
import { Field } from './Field.jsx';
import { Looks, Segmented } from './Header.jsx';
import { Icon } from './marks.jsx';
import { Picker } from './Picker.jsx';
import { verdictOf } from './Verdict.jsx';

const GROUPS = { batch: 'Data', memory: 'Memory', training: 'Training', precision: 'Precision', attention: 'Attention', advanced: 'Advanced',
  model: 'Recipe', adapter: 'Adapters and quantised weights', serving: 'Serving', parallel: 'Several GPUs' };
/* Shown by fields of their own. */
const APART = ['model', 'gpu', 'freeze', 'overrides', 'mode', 'purpose'];

export async function take(/** @type {Iterable<File>} */ list) {
  const given = [...list];
  for (const file of given) {
    if (!isRecording(new Uint8Array(await file.slice(0, 65536).arrayBuffer()))) continue;
    const wrong = await openRecording(file);
    notices.value = wrong.map((d) => `${file.name}: ${Object.values(sentences({ ...d, place: '' })).join(' ').trim()}`);
    return;
  }
  const read = await Promise.all(given.slice(0, MOST_FILES + 1).map(fromFile));
  if (recording.value) closeRecording();
  await finish(read);
}

/** @param {string} name @param {string} text */
export async function takeText(name, text) {
  finish([await readText(name, text)]);
}

/** @param {{file?: import('../files.js').OpenFile, problem?: string}[]} read */
async function finish(read) {
  const opened = read.flatMap(({ file }) => (file ? [file] : []));
  if (read.length === 1 && opened[0] && await openSaved(opened[0])) return recompute();
  const wrong = opened.length ? await openFiles(opened) : [];
  notices.value = [...read.flatMap(({ problem }) => (problem ? [problem] : [])), ...wrong];
}

/** @param {string} typed the name of a model on the Hugging Face Hub */
async function fetchFromHub(typed) {
  notices.value = [`Fetching config.json of ${typed.trim()} from huggingface.co…`];
  await finish(await fromHub(typed));
  if (justOpened.value.length) notices.value = [`The model is config.json of ${typed.trim()}, from huggingface.co.`, ...notices.value];
}

/** What is offered where no model has the name that is typed. Nothing is sent before it is chosen. @param {string} typed */
function otherThanListed(typed) {
  if (isHubId(typed)) return { title: 'Fetch its config.json from huggingface.co', run: () => fetchFromHub(typed) };
  return isQuestion(typed) ? { title: `Estimate “${typed.trim()}”`, run: () => openQuestion(typed) } : null;
}

/* The model's title by the last answer, where it is of this model: the list need not be there. */
const answeredTitle = computed(() => (report.value?.settings.find(({ name }) => name === 'model')?.value === wordOf('model') ? report.value?.model.title : null));

function ModelField() {
  const value = wordOf('model') ?? '';
  const custom = files.value.find((file) => file.kind === 'model');
  const named = custom?.name ?? report.value?.model?.title ?? ''; /* by a file */
  const shown = !value ? named : models.value?.find((choice) => choice.name === value)?.title ?? answeredTitle.value ?? value;
  const error = errorAt('model');
  const chooser = useRef(/** @type {HTMLInputElement | null} */ (null));
  return (
    <fieldset class="group">
      <legend>Model</legend>
      <Picker id="model" label="Model" word="model" choices={models.value ?? []} value={value} shown={shown} opens={wantModels} choose={(name, choice) => chooseModel(name, choice)}
        error={error && Object.values(sentences(error)).join(' ')}
        empty={models.value ? 'No match in the catalogue. Drop its config.json anywhere on the page.' : noModels.value} offer={otherThanListed} />
      <div class="open-row">
        <button type="button" class="button" onClick={() => chooser.current?.click()}><Icon name="file" />Open files</button>
        <button type="button" class="button" onClick={() => { editing.value = { name: 'config.json', text: '', isNew: true }; }}><Icon name="paste" />Paste</button>
        <input ref={chooser} id="chooser" type="file" multiple hidden
          onChange={(event) => {
            if (event.currentTarget.files) take(event.currentTarget.files);
            event.currentTarget.value = '';
          }} />
      </div>
      <Files />
      <Parts />
    </fieldset>
  );
}

const PRESETS = KINDS.filter(({ job: of }) => of === 'tune');

/** What the job is: the first choice, and how much of a model is fine-tuned. */
function KindField() {
  const is = goesTo.value ?? kind.value;
  return (
    <fieldset class="group kind-row">
      <legend>What is the job?</legend>
      <Segmented isSaid legend="What is the job?" name="job" value={is.job} choose={(name) => chooseKind(name === 'tune' ? 'full' : name)}
        options={JOBS.map(({ name, title, help }) => ({ value: name, label: title, title: `${title}: ${help}` }))} />
      {is.job === 'tune' && <Segmented isSaid legend="Fine-tune" name="preset" value={is.name} choose={chooseKind}
        options={PRESETS.map(({ name, title, help }) => ({ value: name, label: title, title: `${title}: ${help}` }))} />}
      <p class="kind-help">{is.help}</p>
      <button type="button" class="button kind-recording" data-tip="A memory snapshot of PyTorch, a profiler trace, or a recording of tidemark" onClick={() => document.getElementById('chooser')?.click()}><Icon name="file" />Open a recording</button>
    </fieldset>
  );
}

/** The parts with their parameters; a tick trains, an empty box freezes. */
function Parts() {
  const model = report.value?.model;
  /* The tick just set, until the answer to it is there. */
  const [asked, setAsked] = useState({ name: '', on: false, before: model });
  if (!model) return null;
  const { parts, total, trainable, rank } = model.parameters;
  const isTrained = (valueOf('mode') || 'train') === 'train';
  const trains = (/** @type {typeof parts[0]} */ part) => (asked.before === model && asked.name === part.name ? asked.on : part.trainable > 0);
  function toggle(/** @type {string} */ name, /** @type {boolean} */ on) {
    setAsked({ name, on, before: model });
    const frozen = parts.filter((part) => (part.name === name ? !on : !trains(part))).map((part) => part.name);
    setWords([['freeze', frozen.join(',') || null], ['train_only', null]]);
  }
  return (
    <table class="parts">
      <caption><span class="hidden">Parts of the model. </span>{params(total)} parameters{rank !== undefined && ` on rank ${rank}`}{isTrained && <>, <b>{params(trainable)} trained</b></>}</caption>
      <tbody>
        {parts.map((part) => (!isTrained ? <tr key={part.name}><th scope="row">{part.title}</th><td data-tip={`${fixed(part.total)} parameters`}>{params(part.total)}</td></tr> : (
          <tr key={part.name}>
            <th scope="row">
              <label><input type="checkbox" checked={trains(part)} onChange={(event) => toggle(part.name, event.currentTarget.checked)} />
                <span>{part.title}<span class="hidden"> trains</span></span></label>
            </th>
            <td data-tip={`${fixed(part.total)} parameters, ${fixed(part.trainable)} trained`}>{params(part.total)}</td>
            <td class="state">{part.trainable === 0 ? 'frozen' : part.trainable < part.total ? 'in part' : 'trains'}</td>
          </tr>
        )))}
      </tbody>
    </table>
  );
}

const NO_CARD = { name: '', title: 'No GPU', note: 'only the need', search: 'no gpu card none' };

function GpuField() {
  const all = (describe.value?.settings ?? []).filter(({ name }) => kind.value.gpus.includes(name) && (name === 'parallel.dp' || !isIdle(name)));
  const choices = [...describe.value?.gpus ?? [], NO_CARD];
  const value = valueOf('gpu');
  const memory = !value && valueOf('gpu_gib');
  const shown = memory ? `A GPU of ${memory} GiB` : choices.find((choice) => choice.name === value)?.title ?? value;
  const error = errorAt('gpu');
  return (
    <fieldset class="group">
      <legend>Hardware</legend>
      <Picker id="gpu" label="GPU" word="gpu" choices={choices} value={value} shown={shown}
        error={error && Object.values(sentences(error)).join(' ')}
        empty="Not in the list. Give its memory under More settings." choose={(name) => setWord('gpu', name)} />
      {all.length > 0 && <div class="fields">{all.map((setting) => <Field key={setting.name} setting={setting} />)}</div>}
    </fieldset>
  );
}

/** Sizes that the model does not read are left out, unless they are given. @param {string} name */
const isShown = (name) => !report.value || wordOf(name) !== undefined || readsSize(report.value, name);

/** The verdict above the settings of a phone. */
function SheetVerdict() {
  const r = report.value;
  if (!r) return null;
  const { kind, icon, text } = verdictOf(r);
  return <p class={`sheet-verdict is-${kind}`}><b>{headline(r.verdict.device_bytes, unit.value)} {unit.value}</b> <span class="sticky-state"><Icon name={icon} />{text}</span></p>;
}

const UndoButton = () => <button type="button" class="button" onClick={undo} disabled={past.value.length === 0} data-tip="Ctrl Z">Undo</button>;

export function Settings() {
  const all = (describe.value?.settings ?? []).filter((s) => !isIdle(s.name));
  const { groups: shown, gpus, more } = kind.value;
  const main = shown.map(({ title, settings: names }) => ({
    title,
    settings: names.flatMap((name) => all.find((s) => s.name === name && isShown(name)) ?? []),
  }));
  const inMain = new Set([...gpus, ...shown.flatMap(({ settings }) => settings)]);
  const rest = all.filter((s) => !inMain.has(s.name) && !APART.includes(s.name) && (s.name !== 'undescribed' || wordOf(s.name) !== undefined) && (!more || more.includes(s.group)) && (s.choices?.length ?? 2) !== 1);
  const groups = [...new Set(rest.map((s) => s.group))];
  const changed = rest.filter((s) => wordOf(s.name) !== undefined).length;
  return (
    <form class="settings" aria-label="Settings" onSubmit={(event) => event.preventDefault()}>
      <div class="sheet-head">
        <h2>Settings</h2>
        <SheetVerdict />
        <button type="button" class="button primary" onClick={() => { settingsOpen.value = false; }}>Done</button>
      </div>
      {/* The note of the example stays while its model does: it must not vanish under the hands of who types in a field below it. */}
      {isExampleModel() && <p class="example-note"><Icon name="info" /><span>An example. Pick your model or drop your <code>config.json</code> anywhere.</span></p>}
      <KindField />
      <ModelField />
      <GpuField />
      {main.map(({ title, settings }) => settings.length > 0 && (
        <fieldset key={title} class="group">
          <legend>{title}</legend>
          <div class="fields">{settings.map((setting) => <Field key={setting.name} setting={setting} />)}</div>
        </fieldset>
      ))}
      {rest.length > 0 && (
        <details class="more" id="more-settings" open={moreOpen.value} onToggle={(event) => { moreOpen.value = event.currentTarget.open; }}>
          <summary>More settings <span class="count">{changed ? `${changed} of ${rest.length} set` : rest.length}</span></summary>
          {moreOpen.value && groups.map((group) => (
            <fieldset key={group} class="group">
              <legend>{GROUPS[/** @type {keyof typeof GROUPS} */ (group)] ?? group}</legend>
              <div class="fields">{rest.filter((s) => s.group === group).map((setting) => <Field key={setting.name} setting={setting} />)}</div>
            </fieldset>
          ))}
        </details>
      )}
      <fieldset class="group only-sheet"><legend>Display</legend><Looks where="sheet" /></fieldset>
      <div class="reset-row">
        <button type="button" class="button" onClick={reset}>Reset to defaults</button>
        <UndoButton />
      </div>
    </form>
  );
}
