// SPDX-License-Identifier: Apache-2.0
/* Tables as CSV. */

/** A cell: text that a spreadsheet would take for a formula is made text by an apostrophe; numbers stay numbers.
 * @param {string | number | null | undefined} value */
export function cell(value) {
  if (value === null || value === undefined) return '';
  if (typeof value === 'number') return String(value);
  const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** @param {(string | number | null | undefined)[][]} rows */
export const csv = (rows) => rows.map((row) => `${row.map(cell).join(',')}\n`).join('');

/** A table of the page as text for a spreadsheet: tabs between cells. @param {HTMLTableElement} table */
export const tableText = (table) => [...table.rows].map((row) => [...row.cells].flatMap((one) => {
  const text = (one.innerText || one.textContent || '').replace(/\s+/g, ' ').trim().replace('−', '-');
  return [/^[=@]|^[+-](?![\d.])/.test(text) ? `'${text}` : text, ...Array(one.colSpan - 1).fill('')];
}).join('\t')).join('\n');
