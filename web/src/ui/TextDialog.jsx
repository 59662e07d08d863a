// SPDX-License-Identifier: Apache-2.0
/* A file as text: pasted, or changed where it is open. An error's place is selected in it. */
import { useEffect, useRef, useState } from 'preact/hooks';
import { askAll } from '../asking.js';
import { isDescription } from '../files.js';
import { editing } from '../state.js';
import { takeText } from './Settings.jsx';

/** JSON on one line in lines of its own, where that changes nothing of it. @param {string} text */
function readable(text) {
  if (text.includes('\n')) return text;
  try {
    const value = JSON.parse(text);
    return JSON.stringify(value) === text ? JSON.stringify(value, null, 2) : text;
  } catch {
    return text;
  }
}

/** Where a line and column of a text are, counted from 1. @param {string} text @param {{line: number, column: number}} place */
function offsetOf(text, { line, column }) {
  const lines = text.split('\n');
  return lines.slice(0, line - 1).reduce((sum, one) => sum + one.length + 1, 0) + Math.min(column - 1, lines[line - 1]?.length ?? 0);
}

const SETTLED_MS = 250;
const MOST_FOUND = 8;

/** @typedef {{severity: string, line?: number, column?: number, message: string, remedy?: string}} Found */

/** What the core finds wrong with a description, once it is no longer typed in; null: it is none, or not known yet. @param {string} text */
function useCheck(text) {
  const [found, setFound] = useState(/** @type {Found[] | null} */ (null));
  const isOne = isDescription(text);
  useEffect(() => {
    if (!isOne) return;
    const stop = new AbortController();
    const timer = setTimeout(() => {
      askAll([{ call: 'describe', check: text }], (reply) => { if (!stop.signal.aborted) setFound(reply?.ok ? reply.check.found : reply?.diagnostics ?? null); }, stop.signal);
    }, SETTLED_MS);
    return () => { clearTimeout(timer); stop.abort(); };
  }, [text, isOne]);
  return isOne ? found : null;
}

export default function TextDialog() {
  const of = /** @type {NonNullable<typeof editing.value>} */ (editing.value);
  const dialog = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const area = useRef(/** @type {HTMLTextAreaElement | null} */ (null));
  const [text, setText] = useState(() => (of.place ? of.text : readable(of.text)));
  const [at, setAt] = useState(0);
  useEffect(() => {
    dialog.current?.showModal();
    const box = area.current;
    if (of.place && box) show(of.place);
  }, []);
  const found = useCheck(text);
  /** @param {{line: number, column: number}} place */
  function show(place) {
    const box = /** @type {HTMLTextAreaElement} */ (area.current);
    const start = offsetOf(box.value, place);
    box.focus();
    box.setSelectionRange(start, start + 1);
    box.scrollTop = (place.line - 4) * parseFloat(getComputedStyle(box).lineHeight);
    setAt(start);
  }
  const before = text.slice(0, at).split('\n');
  const look = () => setAt(area.current?.selectionStart ?? 0);
  return (
    <dialog ref={dialog} class={of.isNew ? 'dialog' : 'dialog wide'} aria-labelledby="text-title" onClose={() => { editing.value = null; }}>
      <form method="dialog" onSubmit={() => { if (text.trim() && (of.isNew || text !== of.text)) takeText(of.name, text); }}>
        <h2 id="text-title">{of.isNew ? 'Paste a config.json or a description' : `Edit ${of.name}`}</h2>
        <p id="text-help">{of.isNew ? 'The file next to the weights, one that starts its training, or a description of a model. It is' : 'Changes apply to this job only; your file is not modified. The text is'} read
          in this page and not sent anywhere.</p>
        <textarea ref={area} rows={of.isNew ? 14 : 22} spellcheck={false} wrap="off" aria-labelledby="text-title" aria-describedby="text-help" value={text}
          onInput={(event) => { setText(event.currentTarget.value); look(); }} onKeyUp={look} onClick={look} />
        {found && (
          <div class="found" role="status">
            {found.length === 0 ? <p class="good">The description has no errors.</p> : <p class="bad">{found.length === 1 ? 'One thing is wrong' : `${found.length} things are wrong`} with the description.</p>}
            {found.length > 0 && <ul>{found.slice(0, MOST_FOUND).map(({ line, column = 1, message, remedy }) => (
              <li key={`${line} ${column} ${message}`}>{line !== undefined && <button type="button" class="link" onClick={() => show({ line, column })}>Line {line}, column {column}</button>} {message}{remedy && <span class="muted"> ({remedy})</span>}</li>
            ))}</ul>}
          </div>
        )}
        <div class="dialog-actions">
          <output class="muted">line {before.length}, column {before[before.length - 1].length + 1}</output>
          <button class="button" type="button" onClick={() => dialog.current?.close()}>Cancel</button>
          <button class="button primary" type="submit">Use it</button>
        </div>
      </form>
    </dialog>
  );
}
