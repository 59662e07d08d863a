// SPDX-License-Identifier: Apache-2.0
import { useState } from 'preact/hooks';
import { CopyTable } from './CopyDialog.jsx';

/** The table of a picture, closed at first; its rows are made when it opens.
 * @param {{title: string, name?: string, tall?: boolean, noTable?: boolean, children: () => any}} props name: of the panel that it holds */
export function Twin({ title, name, tall, noTable, children }) {
  const [open, setOpen] = useState(false);
  return (
    <details class="twin" data-panel={name} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{title}</summary>
      {open && (noTable ? children()
        : <><CopyTable /><div class={tall ? 'scroll tall' : 'scroll'} tabIndex={0} role="group" aria-label={title}>{children()}</div></>)}
    </details>
  );
}

/** The tables of the charts, when one of them is opened. */
export const tables = () => import('./Tables.jsx');

/** Opens the table that belongs to a chart. @param {KeyboardEvent} event */
export function showTable(event) {
  const twin = /** @type {HTMLElement} */ (event.currentTarget).closest('section')?.querySelector('details.twin');
  if (!(twin instanceof HTMLDetailsElement)) return;
  twin.open = true;
  twin.querySelector('summary')?.focus();
}
