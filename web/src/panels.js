// SPDX-License-Identifier: Apache-2.0
/* The panels of an answer, in order: one table for the page, links to a view, keys, the palette and the help sheet. What is not drawn with
 * the page is loaded by its row when it comes near; README.md says how to add one. */
import { fixed } from './format.js';
import { hasStages } from './layout.js';
import { baselineReport, scenarios, unit } from './state.js';

/** @typedef {import('./types.js').Report} Report
 * @typedef {{
 *   name: string, title: string, help: string,
 *   note?: string | ((r: Report) => any),
 *   load?: () => Promise<{default: any}>,
 *   inside?: string,
 *   at?: 'top' | 'half',
 *   isWithAnswer?: boolean, isNear?: boolean,
 *   isOffered?: (r: Report) => boolean, isRecorded?: boolean,
 *   go?: string, key?: string, stop?: string,
 * }} Panel
 *   name: of its section and in links (view=NAME). help: what it shows, a line of the help sheet. note: small, behind the title. load: its module, of
 *   which the default is drawn with {r, panel, inside}; without, App.jsx has it. inside: the panel that holds it. at: above the remarks, or two side
 *   by side. isWithAnswer: drawn with the answer, else once the numbers are. isNear: loaded when it is scrolled to, else when it is offered. isRecorded: a recording has a section of this name
 *   too. go, key, stop: the action that goes there, its letter, and what
 *   gets the focus */

/** @param {Report} r */
const used = (r) => (/** @type {string} */ name) => r.settings.find((one) => one.name === name)?.value ?? '';

/** @type {Panel[]} */
export const PANELS = [
  { name: 'compare', title: 'Against the baseline', help: 'What changed since a job was pinned, and which setting did it.',
    at: 'top', isWithAnswer: true, isOffered: () => baselineReport.value !== null, load: () => import('./ui/Compare.jsx'), go: 'Show the comparison', stop: '.scroll' },
  { name: 'scenarios', title: 'Scenarios', help: 'Up to six named jobs side by side, kept in this browser and shared as one link.',
    at: 'top', isOffered: () => scenarios.value.length > 0, load: () => import('./ui/Scenarios.jsx'), go: 'Go to scenarios', stop: '.scroll' },
  { name: 'serving', title: 'Requests', help: 'How many requests the server holds at once, and the flags that start it.',
    at: 'top', isOffered: (r) => r.serving !== undefined, load: () => import('./ui/Serving.jsx'), go: 'Go to requests' },
  { name: 'layout', title: 'Ranks', help: 'Each kind of rank of a parallel job with its own peak, and the one that needs the most.',
    at: 'top', isOffered: (r) => r.ranks !== undefined || (r.peak.rank !== undefined && hasStages(used(r))), load: () => import('./ui/Layout.jsx'), go: 'Go to ranks' },
  { name: 'factors', title: 'What uses the memory', help: 'The peak by category and module. Rows and columns sum to it, to the byte.', note: (r) => `${unit.value} at the peak${r.serving ? ' before the KV cache is made' : ''}, by category and module`,
    at: 'half', isWithAnswer: true, go: 'Go to what uses the memory', key: '1', stop: '[tabindex="0"]' },
  { name: 'layers', title: 'By module and layer', help: 'Where in the model the bytes are. Widths are bytes.', note: 'width is bytes',
    at: 'half', go: 'Go to layers', key: '2', stop: '.icicle [tabindex="0"]' },
  { name: 'timeline', title: 'Memory timeline', help: 'Memory at every event of the allocator, by category.',
    note: (r) => `${fixed(r.timeline.events, 0)} allocator events${r.timeline.repetitions ? ', what repeats once' : ''}${(used(r)('mode') || 'train') === 'train' ? `, ${r.steps.length} optimizer steps` : ''}`, isRecorded: true, go: 'Go to the timeline', key: '3', stop: '.plot' },
  { name: 'events', title: 'Event by event, and the allocator’s blocks', help: 'Each request and free, and the segments after it.',
    inside: 'timeline', load: () => import('./ui/Events.jsx') },
  { name: 'whatif', title: 'What if', help: 'Other settings, each simulated.', note: 'each row is simulated',
    isNear: true, load: () => import('./ui/WhatIf.jsx'), go: 'Go to what if', key: '4', stop: '[role="tab"][tabindex="0"]' },
  { name: 'advice', title: 'Reduce memory', help: 'Changes by what they save.', inside: 'whatif', isOffered: (r) => !r.serving, go: 'Go to what reduces memory', load: () => import('./ui/Advice.jsx') },
  { name: 'fit', title: 'Largest that fits', help: 'The largest batch, sequence and so on that the GPU holds.', inside: 'whatif', isOffered: (r) => !r.serving, go: 'Go to the largest that fits', load: () => import('./ui/Largest.jsx') },
  { name: 'cards', title: 'GPUs that fit', help: 'The job on every GPU of the list.', inside: 'whatif', go: 'Go to the GPUs that fit', load: () => import('./ui/Cards.jsx') },
  { name: 'layouts', title: 'Layouts', help: 'Other ways to lay the job on as many GPUs.', inside: 'whatif', isOffered: (r) => r.peak.rank !== undefined,
    go: 'Go to layouts', load: () => import('./ui/Layouts.jsx') },
  { name: 'map', title: 'Heat map', help: 'Two or three settings against each other.', inside: 'whatif', go: 'Go to the heat map', load: () => import('./ui/HeatMap.jsx') },
  { name: 'tensors', title: 'Largest tensors', help: 'The largest groups that live at the peak, with where their shapes come from.', note: 'alive at the peak',
    go: 'Go to the largest tensors', stop: '.scroll' },
  { name: 'assumptions', title: 'Assumptions', help: 'Defaults that move the number.', note: 'defaults that move the number', go: 'Go to the assumptions', stop: 'button' },
];

/** @param {string} name */
export const panelNamed = (name) => PANELS.find((panel) => panel.name === name);

/** The section that a panel is in. @param {Panel} panel */
export const sectionOf = ({ name, inside = name }) => inside;

/** Panels inside of another one. @param {Panel} panel */
export const inside = ({ name }) => PANELS.filter((panel) => panel.inside === name);
