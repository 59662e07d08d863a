// SPDX-License-Identifier: Apache-2.0
/* What a link says of a view, as text and back. `view` names a panel, `sel` what is chosen ("event:1304,part:lm"), `sweep` the axes of
 * the heat map ("batch:1,2,4/seq:512-8192:512"). Read field by field: what is not here any more is passed over. */
import { FACTORS, OUTSIDE } from './factors.js';
import { panelNamed } from './panels.js';
import { readValues } from './sweep.js';

/** @typedef {{view: string, sel: string, sweep: string}} Written
 * @typedef {import('./state.js').View} View
 * @typedef {{view: View, panel: string, details: import('./types.js').Details | null}} Read */

const KEYS = /** @type {const} */ (['factor', 'part', 'layer', 'outside', 'event', 'from', 'to', 'zoom']);
const MOST = 500; /* characters of each, as the core reads them */

/** @param {string} text */
const plain = (text) => encodeURIComponent(text).replaceAll('%2F', '/');

/** @param {Record<string, string | number | undefined>} of */
export const toSel = (of) => KEYS.filter((key) => of[key] !== undefined && of[key] !== '' && String(of[key]).length < 200).map((key) => `${key}:${plain(String(of[key]))}`).join(',');

/** @param {{name: string, text: string}[]} axes */
export const toSweep = (axes) => axes.filter(({ name }) => name).map(({ name, text }) => `${name}:${text.replaceAll(/[/\s]/g, '')}`).join('/').slice(0, MOST);

/** What a link's words mean for a report. @param {Partial<Written>} written @param {import('./types.js').Report} r
 * @param {(name: string) => boolean} isSetting @returns {Read} */
export function readView({ view: panel = '', sel = '', sweep = '' }, r, isSetting) {
  /** @type {Record<string, string>} */
  const given = Object.create(null);
  for (const piece of sel.slice(0, MOST).split(',')) {
    const cut = piece.indexOf(':');
    const key = piece.slice(0, cut);
    if (cut < 0 || !KEYS.includes(/** @type {any} */ (key))) continue;
    try {
      given[key] = decodeURIComponent(piece.slice(cut + 1));
    } catch { /* no text */ }
  }
  const number = (/** @type {string | undefined} */ text) => (text !== undefined && /^\d{1,10}$/.test(text) && Number(text) <= r.timeline.events ? Number(text) : undefined);
  const part = r.breakdown.find((one) => one.part === given.part);
  const layer = part?.layers.find(({ name }) => name === given.layer);
  const factor = FACTORS.find(({ name }) => name === given.factor && r.factors.some((one) => one.name === name));
  const outside = OUTSIDE.find(({ name }) => name === given.outside);
  const event = number(given.event);
  const [from, to] = [number(given.from), number(given.to)];
  const axes = sweep.slice(0, MOST).split('/').map((text) => ({ name: text.slice(0, text.indexOf(':')), text: text.slice(text.indexOf(':') + 1) }))
    .filter(({ name, text }) => name && isSetting(name) && readValues(text).length > 0).slice(0, 3);
  const cell = { ...(factor && { factor: factor.name }), ...(part && { part: part.part }), ...(layer && { layer: layer.name }), ...(outside && { outside: outside.name }) };
  const title = outside?.title ?? ([factor?.title, part?.title, layer?.name].filter(Boolean).join(', ') || (event === undefined ? 'On the device' : `Alive at event ${event}`));
  const shown = panelNamed(panel);
  return {
    panel: shown?.name ?? '',
    view: {
      ...(event !== undefined && { event: Math.min(event, r.timeline.events - 1) }), ...(from !== undefined && to !== undefined && from < to && { window: { from, to } }),
      ...(r.breakdown.some((one) => (one.part || one.title) === given.zoom) && { zoom: given.zoom }),
      ...(axes.length > 1 && { axes }), ...(shown?.inside && { inside: panel }),
    },
    details: panel === 'details' ? { title, ...cell, ...(!outside && !factor && !part && event !== undefined && { event }) } : null,
  };
}
