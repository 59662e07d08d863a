// SPDX-License-Identifier: Apache-2.0
/* Everything that can be done besides setting a value: one table for the menus, the keys, the palette and the help sheet. */
import { UNITS } from './format.js';
import { closeRecording, recording } from './recordings.js';
import { address } from './address.js';
import { pin, redo, reset, undo, unpin } from './changes.js';
import { PANELS } from './panels.js';
import { baseline, command, details, overlay, report, said, scenarios, spoken, theme, unit } from './state.js';
import { copy } from './ui/CopyDialog.jsx';

/** @typedef {{name: string, title: string, group: 'open' | 'share' | 'export' | 'go' | 'edit' | 'look' | 'help', key?: string,
 *   combination?: string, of?: 'job' | 'recording', isOffered?: () => boolean, run: () => any}} Action
 *   key: a single letter; combination: keys that work everywhere, as they are shown; of: what it is for, both where it is not said */

/** The action that shows a panel and gives it the focus; what is not drawn yet comes with it. @param {import('./panels.js').Panel} panel @returns {Action} */
const toPanel = ({ name, go: title = '', key, stop = '', inside, isRecorded, isOffered }) => ({
  name, title, group: 'go', key, of: isRecorded ? undefined : 'job', isOffered: () => !isOffered || (report.value !== null && isOffered(report.value)),
  run() {
    const section = document.getElementById(inside ?? name);
    section?.scrollIntoView({ block: 'start' });
    const at = inside ? null : /** @type {HTMLElement | null | undefined} */ (stop && section?.querySelector(stop));
    if (at) at.focus({ preventScroll: true });
    else if (section) import('./view.js').then(({ goInto }) => goInto(section.id, inside ? `#tab-${name}` : stop, inside ? name : ''));
  },
});

/** @param {(part: typeof import('./exports.js')) => any} use */
const exporting = (use) => async () => use(await import('./exports.js'));

/** @type {Action[]} */
export const ACTIONS = [
  { name: 'search', title: 'Choose a model', group: 'open', of: 'job', key: '/', run: () => document.getElementById('model')?.focus() },
  { name: 'open', title: 'Open files…', group: 'open', key: 'o', run: () => document.getElementById('chooser')?.click() },
  { name: 'link', title: 'Copy link', group: 'share', of: 'job', key: 's', run: () => copy('Link', address()) },
  { name: 'view-link', title: 'Copy a link to this view', group: 'share', of: 'job',
    run: () => copy('Link to this view', import('./view.js').then(({ viewLink }) => viewLink())) },
  { name: 'markdown-link', title: 'Copy Markdown link', group: 'share', of: 'job', run: exporting((e) => copy('Markdown link', e.markdownLink())) },
  { name: 'command', title: 'Copy command', group: 'share', run: () => copy('Command', command.value) },
  { name: 'scenario', title: 'Add to scenarios', group: 'edit', of: 'job', key: 'a',
    run: () => import('./scenarios.js').then(async ({ addScenario }) => { spoken.value = said.value = await addScenario(); setTimeout(() => { said.value = ''; }, 1800); }) },
  { name: 'scenarios-link', title: 'Copy a link to the scenarios', group: 'share', of: 'job', isOffered: () => scenarios.value.length > 0, run: () => copy('Link to the scenarios', import('./scenarios.js').then(({ addressOfAll }) => addressOfAll())) },
  { name: 'frame', title: 'Copy embed code', group: 'share', of: 'job', run: exporting((e) => copy('Embed code', e.frame())) },
  { name: 'badge', title: 'Save badge, copy its Markdown', group: 'share', of: 'job', run: exporting((e) => { e.save('gpu-memory.svg', e.badge()); return copy('Markdown', e.badgeMarkdown('gpu-memory.svg')); }) },
  { name: 'markdown', title: 'Copy as Markdown', group: 'export', run: exporting((e) => copy('Markdown', e.markdown())) },
  { name: 'json', title: 'Save as tidemark file (JSON)', group: 'export', run: exporting((e) => e.save('tidemark.json', e.json())) },
  { name: 'csv-factors', title: 'Save categories as CSV', group: 'export', of: 'job', run: exporting((e) => e.save('factors.csv', e.factorsCsv())) },
  { name: 'csv-layers', title: 'Save layers as CSV', group: 'export', of: 'job', run: exporting((e) => e.save('layers.csv', e.layersCsv())) },
  { name: 'csv-timeline', title: 'Save timeline as CSV', group: 'export', run: exporting((e) => e.save('timeline.csv', e.timelineCsv())) },
  { name: 'csv-live', title: 'Save what is live at the peak as CSV', group: 'export', of: 'recording', run: exporting((e) => e.save('live.csv', e.liveCsv())) },
  { name: 'svg', title: 'Save picture as SVG', group: 'export', run: async () => (await import('./picture.js')).saveSvg() },
  { name: 'png', title: 'Save picture as PNG', group: 'export', run: async () => (await import('./picture.js')).savePng() },
  { name: 'report', title: 'Save report (HTML)', group: 'export', run: async () => (await import('./report.js')).saveReport() },
  { name: 'print', title: 'Print', group: 'export', run: () => print() },
  { name: 'pin', title: 'Pin as baseline, or clear it', group: 'edit', of: 'job', key: 'c', run: () => togglePin() },
  ...PANELS.filter((panel) => panel.go).map(toPanel),
  { name: 'undo', title: 'Undo', group: 'edit', of: 'job', combination: 'Ctrl Z', run: undo },
  { name: 'redo', title: 'Redo', group: 'edit', of: 'job', combination: 'Ctrl Shift Z', run: redo },
  { name: 'reset', title: 'Reset to defaults', group: 'edit', of: 'job', run: reset },
  { name: 'details', title: 'What the total is made of', group: 'go', of: 'job', run: () => { details.value = { title: 'On the device' }; } },
  ...Object.keys(UNITS).map((name) => /** @type {Action} */ ({
    name: `unit-${name}`, title: `Show sizes in ${name}`, group: 'look', run: () => { unit.value = /** @type {any} */ (name); },
  })),
  ...['system', 'light', 'dark'].map((name) => /** @type {Action} */ ({
    name: `theme-${name}`, title: `Theme: ${name}`, group: 'look', run: () => { theme.value = /** @type {any} */ (name); },
  })),
  { name: 'flame', title: 'Go to the stacks', group: 'go', of: 'recording', key: '2', run: () => /** @type {HTMLElement | null} */ (document.querySelector('.flame'))?.focus() },
  { name: 'close', title: 'Close the recording', group: 'open', of: 'recording', run: closeRecording },
  { name: 'palette', title: 'Find an action or a setting', group: 'help', combination: 'Ctrl K', run: () => { overlay.value = overlay.value === 'palette' ? '' : 'palette'; } },
  { name: 'help', title: 'Keys and help', group: 'help', key: '?', run: () => { overlay.value = 'help'; } },
];

/** What can be done with what is shown. */
export const available = () => ACTIONS.filter(({ of, isOffered }) => (!of || of === (recording.value ? 'recording' : 'job')) && (!isOffered || recording.value || isOffered()));

/** @param {string} name */
export const doAction = (name) => ACTIONS.find((action) => action.name === name)?.run();

export const inGroup = (/** @type {Action['group']} */ group) => available().filter((action) => action.group === group);

export function togglePin() {
  if (!report.value) return;
  const had = baseline.value;
  if (had) unpin();
  else pin();
  spoken.value = had ? 'Baseline cleared.' : 'Pinned as baseline. Changes are now shown against it.';
}
