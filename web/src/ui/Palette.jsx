// SPDX-License-Identifier: Apache-2.0
/* The command palette: every action and every setting by name, and jobs in words. */
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { available } from '../actions.js';
import { assignment, find } from '../find.js';
import { KINDS, wholeTitle } from '../kinds.js';
import { recording } from '../recordings.js';
import { chooseKind, chooseModel, isQuestion, openQuestion, setWord } from '../changes.js';
import { wantModels } from '../catalogue.js';
import { describe, helps, isIdle, kind, models, overlay, typedAhead, valueOf } from '../state.js';
import { titleOf } from './Field.jsx';
import { show } from './Notes.jsx';
import { addStyle } from '../sheet.js';
import style from './palette.css';

addStyle(style);

/** @typedef {import('../find.js').Entry} Entry */

/** @param {import('../types.js').Setting} setting @returns {Entry[]} */
function entriesOf(setting) {
  const { name, aliases = [], choices, type } = setting;
  const search = `${name} ${titleOf(name)} ${aliases.join(' ')}`;
  const values = choices?.map(String) ?? (/^bool/.test(type) ? ['true', 'false'] : []);
  return [
    ...(isIdle(name) ? [] : [{ title: titleOf(name), note: `${name}=${valueOf(name)}`, search, help: helps.value[name], run: () => show(name) }]),
    ...values.map((value) => ({
      title: `${titleOf(name)}: ${value}`, note: `${name}=${value}`, search: `${search} ${value}`,
      run: () => setWord(name, value),
    })),
  ];
}

/** @returns {Entry[]} */
function allEntries() {
  const { settings = [], gpus = [] } = (!recording.value && describe.value) || {};
  return [
    ...available().filter(({ name }) => name !== 'palette').map((action) => ({
      title: action.title, note: action.combination ?? action.key ?? '', search: `${action.title} ${action.name}`, run: action.run,
    })),
    ...(recording.value ? [] : KINDS.map((one) => ({ title: `Job: ${wholeTitle(one)}`, note: one.help, search: `job ${wholeTitle(one)}`, run: () => chooseKind(one.name) }))),
    ...settings.filter(({ name }) => !/^(model|gpu|overrides|purpose)$/.test(name)).flatMap(entriesOf),
    ...gpus.map((gpu) => ({ title: `GPU: ${gpu.title}`, note: gpu.note, search: `gpu ${gpu.search}`, run: () => setWord('gpu', gpu.name) })),
    ...(recording.value ? [] : models.value ?? []).map((model) => ({ title: `Model: ${model.title}`, note: model.note, search: `model ${model.search}`, run: () => chooseModel(model.name, model) })),
  ];
}

/** "batch 32" as an entry: the setting that is typed in, with its value. @param {string} text @returns {Entry[]} */
function assigned(text) {
  const typed = assignment(text);
  const isShown = (/** @type {string} */ name) => !isIdle(name) || kind.value.gpus.includes(name);
  const setting = typed && describe.value?.settings.find(({ name, aliases = [], choices, type }) => !choices && !/^bool/.test(type) && !/^(model|gpu)$/.test(name) && isShown(name)
    && [name, titleOf(name).toLowerCase(), ...aliases].includes(typed.name));
  if (!typed || !setting) return [];
  return [{ title: `Set ${titleOf(setting.name)} to ${typed.value}`, note: `${setting.name}=${typed.value}`, search: '',
    run: () => setWord(setting.name, typed.value) }];
}

/** What is typed as a question, behind all that is found. @param {string} text @returns {Entry[]} */
const asked = (text) => (isQuestion(text) && !recording.value ? [{ title: `Estimate “${text.trim()}”`, note: 'a job in words', search: '', run: () => openQuestion(text) }] : []);

export default function Palette() {
  const dialog = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const list = useRef(/** @type {HTMLUListElement | null} */ (null));
  const [text, setText] = useState(typedAhead.peek());
  const [at, setAt] = useState(0);
  const entries = useMemo(allEntries, [models.value]);
  const found = [...assigned(text), ...find(entries, text), ...asked(text)];
  useEffect(() => {
    typedAhead.value = '';
    dialog.current?.showModal();
    if (!recording.peek()) wantModels();
    return () => dialog.current?.close();
  }, []);
  useEffect(() => { list.current?.children[at]?.scrollIntoView({ block: 'nearest' }); }, [at, text]);

  /** @param {Entry | undefined} entry */
  function take(entry) {
    if (!entry) return;
    dialog.current?.close();
    setTimeout(entry.run); /* when the dialog has given the focus back */
  }
  /** @param {KeyboardEvent} event */
  function key(event) {
    const by = { ArrowDown: 1, ArrowUp: -1, PageDown: 8, PageUp: -8 }[event.key];
    if (by) setAt(Math.max(0, Math.min(found.length - 1, at + by)));
    else if (event.key === 'Enter') take(found[at]);
    else return;
    event.preventDefault();
  }
  return (
    <dialog ref={dialog} class="dialog palette" aria-label="Find an action or a setting" onClose={() => { overlay.value = ''; }}
      onClick={(event) => { if (event.target === dialog.current) dialog.current?.close(); }}>
      <input type="text" role="combobox" aria-label="Action or setting" autocomplete="off" spellcheck={false} aria-expanded="true" aria-controls="palette-list"
        aria-autocomplete="list" aria-activedescendant={found[at] ? `palette-${at}` : undefined} placeholder="zero 3, batch 32, export, llama 8b lora on a 4090…"
        value={text} onInput={(event) => { setText(event.currentTarget.value); setAt(0); }} onKeyDown={key} />
      <ul id="palette-list" ref={list} role="listbox" aria-label="Found" class="palette-list">
        {found.map((entry, i) => (
          <li key={entry.title + entry.note} id={`palette-${i}`} role="option" aria-selected={i === at} class={i === at ? 'at' : undefined}
            onMouseMove={() => { if (at !== i) setAt(i); }} onClick={() => take(entry)}>
            <span>{entry.title}</span><code>{entry.note}</code>
          </li>
        ))}
        {found.length === 0 && <li class="picker-none" role="option" aria-selected="false" aria-disabled="true">No match.</li>}
      </ul>
    </dialog>
  );
}
