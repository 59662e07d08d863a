// SPDX-License-Identifier: Apache-2.0
/* A file as text: pasted, or changed where it is open. An error's place is selected in it. */
import { useEffect, useRef, useState } from 'preact/hooks';
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

export default function TextDialog() {
  const of = /** @type {NonNullable<typeof editing.value>} */ (editing.value);
  const dialog = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const area = useRef(/** @type {HTMLTextAreaElement | null} */ (null));
  const [text, setText] = useState(() => (of.place ? of.text : readable(of.text)));
  const [at, setAt] = useState(0);
  useEffect(() => {
    dialog.current?.showModal();
    const box = area.current;
    if (!of.place || !box) return;
    const start = offsetOf(of.text, of.place);
    box.focus();
    box.setSelectionRange(start, start + 1);
    box.scrollTop = (of.place.line - 4) * parseFloat(getComputedStyle(box).lineHeight);
    setAt(start);
  }, []);
  const before = text.slice(0, at).split('\n');
  const look = () => setAt(area.current?.selectionStart ?? 0);
  return (
    <dialog ref={dialog} class={of.isNew ? 'dialog' : 'dialog wide'} aria-labelledby="text-title" onClose={() => { editing.value = null; }}>
      <form method="dialog" onSubmit={() => { if (text.trim() && (of.isNew || text !== of.text)) takeText(of.name, text); }}>
        <h2 id="text-title">{of.isNew ? 'Paste a config.json' : `Edit ${of.name}`}</h2>
        <p id="text-help">{of.isNew ? 'The file that lies beside the weights; or one that starts its training. It is' : 'What is changed here holds for this job; your file stays as it is. The text is'} read
          in this page and not sent anywhere.</p>
        <textarea ref={area} rows={of.isNew ? 14 : 22} spellcheck={false} wrap="off" aria-labelledby="text-title" aria-describedby="text-help" value={text}
          onInput={(event) => { setText(event.currentTarget.value); look(); }} onKeyUp={look} onClick={look} />
        <div class="dialog-actions">
          <output class="muted">line {before.length}, column {before[before.length - 1].length + 1}</output>
          <button class="button" type="button" onClick={() => dialog.current?.close()}>Cancel</button>
          <button class="button primary" type="submit">Use it</button>
        </div>
      </form>
    </dialog>
  );
}
