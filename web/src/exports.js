// SPDX-License-Identifier: Apache-2.0
/* The result as files: tidemark's own, CSV, Markdown. Pictures are picture.js, the report is report.js. */
import { address } from './address.js';
import { csv } from './csv.js';
import { factor, heldFactors, inOrder, totalOf } from './factors.js';
import { exact, inUnit, natural, percent } from './format.js';
import { recording } from './recordings.js';
import { command, report, spoken, unit } from './state.js';
import { CLOSE, placeOf, verdictOf } from './ui/Verdict.jsx';

const GIB = 2 ** 30;
export const NS = 'http://www.w3.org/2000/svg';

/** @returns {import('./types.js').Report} */
export function result() {
  if (!report.value) throw new Error('There is no result yet.');
  return report.value;
}

/** @param {string} name @param {string | Blob | Promise<string>} given */
export async function save(name, given) {
  const content = await given;
  const types = { json: 'application/json', csv: 'text/csv', svg: 'image/svg+xml', html: 'text/html', md: 'text/markdown' };
  const blob = content instanceof Blob ? content
    : new Blob([content], { type: `${types[/** @type {keyof typeof types} */ (name.split('.').at(-1))]};charset=utf-8` });
  const url = URL.createObjectURL(blob);
  const anchor = document.createElement('a');
  anchor.href = url;
  anchor.download = name;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
  spoken.value = `${name} saved`;
}

/** The recording that is shown, played. */
export const played = () => recording.value?.reply ?? null;

/** A tidemark file: dropped on the page, it is this job again; with the result beside it. Of a recording, the core's answer. */
export async function json() {
  if (recording.value) return `${JSON.stringify(played(), null, 1)}\n`;
  const r = result();
  /** @type {Record<string, string>} */
  const settings = Object.create(null);
  for (const { name, value, origin } of r.settings) if (origin !== 'default' && value !== '') settings[name] = value;
  return `${JSON.stringify({ tidemark: 1, version: r.tidemark, link: await address(), settings, result: r }, null, 1)}\n`;
}

export function factorsCsv() {
  const r = result();
  const parts = r.breakdown.filter((part) => part.bytes > 0);
  const row = (/** @type {string} */ title, /** @type {number[]} */ cells, /** @type {number} */ total) => [title, ...cells, total, (total / GIB).toFixed(4)];
  const blanks = parts.map(() => 0);
  return csv([
    ['factor', ...parts.map((part) => part.title), 'bytes', 'GiB'],
    ...inOrder(r.factors.map((f) => f.name)).map((name) => row(factor(name).title, parts.map((part) => part.factors[name] ?? 0),
      r.factors.find((f) => f.name === name)?.bytes ?? 0)),
    row('Allocated', parts.map((part) => part.bytes), r.peak.allocated),
    ...r.outside.map(({ name, bytes }) => row(factor(name).title, blanks, bytes)),
    row(totalOf(r).title, blanks, totalOf(r).bytes),
  ]);
}

export function layersCsv() {
  const r = result();
  const names = inOrder(r.factors.filter((f) => f.bytes).map((f) => f.name));
  return csv([
    ['module', 'layer', ...names, 'bytes', 'GiB'],
    ...r.breakdown.flatMap((part) => part.layers.filter((layer) => layer.bytes).map((layer) => [
      part.title, layer.name, ...names.map((name) => layer.factors[name] ?? 0), layer.bytes, (layer.bytes / GIB).toFixed(4)])),
  ]);
}

export function timelineCsv() {
  const run = played();
  if (run) return csv([['event', 'allocated', 'reserved'], ...run.timeline.columns.map((c) => [c.from, c.allocated, c.reserved])]);
  const r = result();
  const names = r.factors.map((f) => f.name);
  return csv([
    ['event', 'allocated', 'reserved', ...names],
    ...r.timeline.columns.map((c) => [c.peak, c.allocated, c.reserved, ...c.factors]),
  ]);
}

export const liveCsv = () => csv([['bytes', 'count', 'requested', 'frame'],
  ...(played()?.live_at_peak ?? []).map((group) => (group.rest === undefined ? [group.bytes, group.count, group.requested, group.frame] : [group.rest, '', '', 'all others']))]);

/** Text that Markdown must not read as its own. @param {string} text */
const plain = (text) => text.replace(/[\\|`*_[\]<>]/g, (c) => `\\${c}`);

export async function markdownLink() {
  const r = result();
  return `[tidemark: ${plain(r.model.title)}, ${inUnit(r.verdict.device_bytes, unit.value, 1)} ${unit.value}, ${verdictOf(r).text}](${await address()})`;
}

const MOST_LIVE = 12;

/** A played recording. @param {import('./types.js').Recorded} run */
function playedMarkdown(run) {
  const { fits, gpu_bytes: card = 0, smallest_device_bytes: smallest, oom } = run.verdict;
  const u = unit.value;
  return [
    `**${plain(recording.value?.name ?? '')}: ${natural(run.reserved_peak, u)} reserved at most**, ${natural(run.allocated_peak, u)} allocated.`
      + `${fits === null ? '' : ` ${fits ? 'Runs' : 'Does not run'} on ${natural(card, u)}.`} The smallest device it runs on has ${natural(smallest, u)}.`,
    ...(oom ? ['', `Out of memory at event ${oom.event}: ${natural(oom.tried, u)} wanted, ${natural(oom.free, u)} free. ${plain(oom.frames?.[0] ?? '')}`] : []),
    '', '| Live at the peak | Count | From |', '| --: | --: | :-- |',
    ...run.live_at_peak.slice(0, MOST_LIVE).map((group) => (group.rest === undefined ? `| ${natural(group.bytes, u)} | ${group.count} | ${plain(group.frame || 'no frame')} |`
      : `| ${natural(group.rest, u)} | | all others |`)),
    '', '| PYTORCH_CUDA_ALLOC_CONF | Reserved |', '| :-- | --: |',
    ...run.options.map((option) => `| ${plain(option.allocator || 'the defaults')} | ${natural(option.reserved_peak, u)}${option.fits === false ? ', does not run' : ''} |`),
    '', '```', command.value, '```', '', `tidemark ${run.tidemark}`, '',
  ].join('\n');
}

/** For an issue or a design document. */
export async function markdown() {
  const run = played();
  if (run) return playedMarkdown(run);
  const r = result();
  const verdict = verdictOf(r);
  const u = unit.value;
  const all = totalOf(r);
  const line = (/** @type {string} */ title, /** @type {number} */ bytes) =>
    `| ${plain(title)} | ${inUnit(bytes, u)} | ${percent(bytes, all.bytes)} |`;
  return [
    `**${plain(r.model.title)}: ${inUnit(r.verdict.device_bytes, u)} ${u} per GPU** at the peak (${placeOf(r.peak)}). ${verdict.text}: ${verdict.detail}.`,
    '', `| Category | ${u} | % |`, '| :-- | --: | --: |',
    ...heldFactors(r).map(({ title, bytes }) => line(title, bytes)),
    line('Allocated', r.peak.allocated), ...r.outside.map(({ name, bytes }) => line(factor(name).title, bytes)),
    `| **${all.title}** | **${inUnit(all.bytes, u)}** | ${exact(all.bytes)} |`,
    '', '```', command.value, '```', '', 'Assumptions:', '',
    ...r.assumptions.map(({ setting, value, text }) => `- \`${setting}${value === '' ? '' : `=${value}`}\` ${plain(text)}`),
    '', `tidemark ${r.tidemark} · ${await address()}`, '',
  ].join('\n');
}

/** The job in another page, without storage or requests of its own. */
export async function frame() {
  const at = await address();
  const of = at.replace(/[^/]*#/, 'embed.html#');
  return `<iframe src="${of.replaceAll('&', '&amp;')}" sandbox="allow-scripts allow-popups" width="760" height="360" title="GPU memory"></iframe>`;
}

/* ---- badge: as `tidemark badge` draws it ---- */

const LABEL = 'GPU memory';

/** What it says and in which colour: the verdict's three states, or none.
 * @returns {[said: string, colour: string]} */
function badgeState() {
  const { fits, margin_bytes: margin = 0, gpu_bytes: card = 0 } = result().verdict;
  if (!card) return ['', '#1f5fbf'];
  if (fits === false) return [', does not fit', '#b42318'];
  if (fits === null) return [', cannot tell', '#9a5b00'];
  return margin < CLOSE * card ? [', barely fits', '#9a5b00'] : [', fits', '#17753a'];
}

function badgeText() {
  const { device_bytes: device, gpu_bytes: card = 0 } = result().verdict;
  const need = (device / GIB).toFixed(2).slice(0, -1);
  return card ? `${need} of ${(card / GIB).toFixed(1)} GiB${badgeState()[0]}` : `${need} GiB`;
}

export function badge() {
  const text = badgeText();
  const left = 10 + Math.trunc(6.6 * LABEL.length);
  const right = 10 + Math.trunc(6.3 * text.length);
  const whole = left + right;
  return `<svg xmlns="${NS}" width="${whole}" height="20" role="img" aria-label="${LABEL}: ${text}"><title>${LABEL}: ${text}</title>`
    + `<clipPath id="r"><rect width="${whole}" height="20" rx="4"/></clipPath>`
    + `<g clip-path="url(#r)"><rect width="${left}" height="20" fill="#39424e"/><rect x="${left}" width="${right}" height="20" fill="${badgeState()[1]}"/></g>`
    + '<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11" text-anchor="middle">'
    + `<text x="${Math.trunc(left / 2)}" y="14" textLength="${left - 10}">${LABEL}</text><text x="${left + Math.trunc(right / 2)}" y="14" textLength="${right - 10}">${text}</text></g></svg>\n`;
}

/** The badge in Markdown, with a link to the job. @param {string} file */
export const badgeMarkdown = async (file) => `[![${LABEL}: ${badgeText()}](${file})](${await address()})`;
