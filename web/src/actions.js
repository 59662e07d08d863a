/* Everything that can be done besides setting a value: one table for the menus, the keys, the palette and the help sheet. */
import { UNITS } from './format.js';
import { closeRecording, recording } from './recordings.js';
import { linkOf } from './address.js';
import { pin, redo, reset, undo, unpin } from './changes.js';
import { baseline, command, details, overlay, report, spoken, theme, unit } from './state.js';
import { copy } from './ui/CopyDialog.jsx';

/** @typedef {{name: string, title: string, group: 'open' | 'share' | 'export' | 'compare' | 'go' | 'edit' | 'look' | 'help', key?: string,
 *   combination?: string, icon?: import('./ui/marks.jsx').IconName, of?: 'job' | 'recording', run: () => any}} Action
 *   key: a single letter; combination: keys that work everywhere, as they are shown; of: what it is for, both where it is not said */

/** The address of the page with the job in it, to pass on. */
export const address = async () => `${location.href.split('#')[0]}#${await linkOf()}`;

/** Shows a section and gives it the focus. @param {string} id @param {string} stop its tab stop */
function go(id, stop) {
  const section = document.getElementById(id);
  section?.scrollIntoView({ block: 'start' });
  /** @type {HTMLElement | null | undefined} */ (section?.querySelector(stop))?.focus({ preventScroll: true });
}

/** @param {(part: typeof import('./exports.js')) => any} use */
const exporting = (use) => async () => use(await import('./exports.js'));

/** @type {Action[]} */
export const ACTIONS = [
  { name: 'search', title: 'Choose a model', group: 'open', of: 'job', key: '/', run: () => document.getElementById('model')?.focus() },
  { name: 'open', title: 'Open files…', group: 'open', key: 'o', run: () => document.getElementById('chooser')?.click() },
  { name: 'link', title: 'Copy link', group: 'share', of: 'job', key: 's', icon: 'link', run: () => copy('Link', address()) },
  { name: 'view-link', title: 'Copy a link to this view', group: 'share', of: 'job',
    run: () => copy('Link to this view', import('./view.js').then(async ({ viewLink }) => `${location.href.split('#')[0]}#${await viewLink()}`)) },
  { name: 'markdown-link', title: 'Copy Markdown link', group: 'share', of: 'job', run: exporting((e) => copy('Markdown link', e.markdownLink())) },
  { name: 'command', title: 'Copy command', group: 'share', icon: 'command', run: () => copy('Command', command.value) },
  { name: 'frame', title: 'Copy frame for another page', group: 'share', of: 'job', run: exporting((e) => copy('Frame', e.frame())) },
  { name: 'badge', title: 'Save badge, copy its Markdown', group: 'share', of: 'job', run: exporting((e) => { e.save('gpu-memory.svg', e.badge()); return copy('Markdown', e.badgeMarkdown('gpu-memory.svg')); }) },
  { name: 'markdown', title: 'Copy as Markdown', group: 'export', run: exporting((e) => copy('Markdown', e.markdown())) },
  { name: 'json', title: 'Save as tidemark file (JSON)', group: 'export', run: exporting((e) => e.save('tidemark.json', e.json())) },
  { name: 'csv-factors', title: 'Save factors as CSV', group: 'export', of: 'job', run: exporting((e) => e.save('factors.csv', e.factorsCsv())) },
  { name: 'csv-layers', title: 'Save layers as CSV', group: 'export', of: 'job', run: exporting((e) => e.save('layers.csv', e.layersCsv())) },
  { name: 'csv-timeline', title: 'Save timeline as CSV', group: 'export', run: exporting((e) => e.save('timeline.csv', e.timelineCsv())) },
  { name: 'csv-live', title: 'Save what is live at the peak as CSV', group: 'export', of: 'recording', run: exporting((e) => e.save('live.csv', e.liveCsv())) },
  { name: 'svg', title: 'Save picture as SVG', group: 'export', of: 'job', run: exporting((e) => e.saveSvg()) },
  { name: 'png', title: 'Save picture as PNG', group: 'export', of: 'job', run: exporting((e) => e.savePng()) },
  { name: 'print', title: 'Print', group: 'export', run: () => print() },
  { name: 'pin', title: 'Pin as baseline, or let it go', group: 'compare', of: 'job', key: 'c', icon: 'pin', run: () => togglePin() },
  { name: 'compare', title: 'Show the comparison', group: 'compare', of: 'job', run: () => go('compare', '.scroll') },
  { name: 'factors', title: 'Go to factors', group: 'go', of: 'job', key: '1', run: () => go('factors', '[tabindex="0"]') },
  { name: 'layers', title: 'Go to layers', group: 'go', of: 'job', key: '2', run: () => go('layers', '.icicle [tabindex="0"]') },
  { name: 'timeline', title: 'Go to the timeline', group: 'go', key: '3', run: () => go('timeline', '.plot') },
  { name: 'what-if', title: 'Go to what if', group: 'go', of: 'job', key: '4', run: () => go('whatif', '[role="tab"][tabindex="0"]') },
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
  { name: 'close', title: 'Close the recording', group: 'open', of: 'recording', run: closeRecording },
  { name: 'palette', title: 'Find an action or a setting', group: 'help', combination: 'Ctrl K', icon: 'search', run: () => { overlay.value = 'palette'; } },
  { name: 'help', title: 'Keys and help', group: 'help', key: '?', run: () => { overlay.value = 'help'; } },
];

/** What can be done with what is shown. */
export const available = () => ACTIONS.filter(({ of }) => !of || of === (recording.value ? 'recording' : 'job'));

export const inGroup = (/** @type {Action['group']} */ group) => available().filter((action) => action.group === group);

export function togglePin() {
  if (!report.value) return;
  const had = baseline.value;
  if (had) unpin();
  else pin();
  spoken.value = had ? 'No baseline any more.' : 'Pinned as baseline. Changes are now shown against it.';
}
