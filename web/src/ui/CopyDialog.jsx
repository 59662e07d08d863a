// SPDX-License-Identifier: Apache-2.0
/* The clipboard; and where the browser refuses it: the text, selected. */
import { signal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { tableText } from '../csv.js';
import { said, spoken } from '../state.js';
import { Icon } from './marks.jsx';

const shown = signal(/** @type {{label: string, text: string} | null} */ (null));

/** @param {string} label @param {string | Promise<string>} content */
export async function copy(label, content) {
  const text = await content;
  try {
    await navigator.clipboard.writeText(text);
    spoken.value = said.value = `${label} copied`;
    setTimeout(() => { said.value = ''; }, 1800);
  } catch {
    shown.value = { label, text };
  }
}

/** What was just done, for the eye. */
export const Said = () => said.value && <p class="said" aria-hidden="true">{said.value}</p>;

export function CopyDialog() {
  const dialog = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const area = useRef(/** @type {HTMLTextAreaElement | null} */ (null));
  const content = shown.value;
  useEffect(() => {
    if (!content) return;
    dialog.current?.showModal();
    area.current?.select();
  }, [content]);
  return (
    <dialog ref={dialog} class="dialog" aria-labelledby="copy-title" onClose={() => { shown.value = null; }}>
      {content && (
        <form method="dialog">
          <h2 id="copy-title">{content.label}</h2>
          <textarea ref={area} readOnly rows={4} aria-label={content.label} value={content.text} />
          <div class="dialog-actions"><button class="button primary" type="submit">Close</button></div>
        </form>
      )}
    </dialog>
  );
}

/** Copies the table of its section or of the details it stands in. */
export const CopyTable = () => (
  <button type="button" class="icon-button small copy-table" aria-label="Copy the table" data-tip="Copy the table"
    onClick={(event) => {
      const table = event.currentTarget.closest('details, section')?.querySelector('table');
      if (table) copy('Table', tableText(table));
    }}><Icon name="copy" /></button>
);
