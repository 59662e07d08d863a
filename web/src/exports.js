// SPDX-License-Identifier: Apache-2.0
/* The result as files: tidemark's own, CSV, Markdown, pictures. */
import { address } from './address.js';
import { csv } from './csv.js';
import { factor, inOrder, totalOf } from './factors.js';
import { exact, inUnit, natural, percent } from './format.js';
import { recording } from './recordings.js';
import { command, link, report, spoken, unit } from './state.js';
import { cardOf, CLOSE, placeOf, verdictOf } from './ui/Verdict.jsx';

const GIB = 2 ** 30;
const NS = 'http://www.w3.org/2000/svg';

/** @returns {import('./types.js').Report} */
function result() {
  if (!report.value) throw new Error('There is no result yet.');
  return report.value;
}

/** @param {string} name @param {string | Blob | Promise<string>} given */
export async function save(name, given) {
  const content = await given;
  const types = { json: 'application/json', csv: 'text/csv', svg: 'image/svg+xml', md: 'text/markdown' };
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
const played = () => recording.value?.reply ?? null;

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
  const byName = new Map(r.factors.map((f) => [f.name, f.bytes]));
  return [
    `**${plain(r.model.title)}: ${inUnit(r.verdict.device_bytes, u)} ${u} per GPU** at the peak (${placeOf(r.peak)}). ${verdict.text}: ${verdict.detail}.`,
    '', `| Factor | ${u} | % |`, '| :-- | --: | --: |',
    ...inOrder([...byName.keys()]).filter((name) => byName.get(name)).map((name) => line(factor(name).title, byName.get(name) ?? 0)),
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
  return `<iframe src="${of.replaceAll('&', '&amp;')}" sandbox="allow-scripts allow-popups" width="760" height="320" title="GPU memory"></iframe>`;
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

/* ---- pictures ---- */

const LOOKS = ['fill', 'stroke', 'stroke-width', 'stroke-dasharray', 'opacity', 'font-family', 'font-size', 'font-weight', 'paint-order', 'vector-effect'];
const KEPT = new Set(['x', 'y', 'x1', 'x2', 'y1', 'y2', 'dx', 'dy', 'cx', 'cy', 'r', 'rx', 'd', 'width', 'height', 'viewBox', 'preserveAspectRatio',
  'text-anchor', 'id', 'patternUnits', 'patternTransform']);

/** @param {string} name @param {Record<string, string | number>} attributes @param {string} [text] */
function element(name, attributes, text) {
  const made = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
  if (text) made.textContent = text;
  return made;
}

/** A copy that needs no style sheet: how each element looks is written on it, and nothing else is taken over.
 * @param {Element} source @returns {Element} */
function resolved(source) {
  const copy = document.createElementNS(NS, source.localName);
  for (const { name, value } of source.attributes) if (KEPT.has(name)) copy.setAttribute(name, value);
  if (/^(rect|path|line|circle|text|tspan)$/.test(source.localName)) {
    const look = getComputedStyle(source);
    for (const name of LOOKS) {
      const value = look.getPropertyValue(name);
      if (value && value !== 'none' && value !== 'normal') copy.setAttribute(name, value.replace(/url\("?[^"#)]*#([\w-]+)"?\)/, 'url(#$1)'));
      else if (name === 'fill') copy.setAttribute(name, 'none');
    }
  }
  for (const child of source.childNodes) {
    if (child instanceof Element) copy.append(resolved(child));
    else if (child.nodeType === Node.TEXT_NODE && source.localName === 'text') copy.append(child.textContent ?? '');
  }
  return copy;
}

/** Verdict, bar, layers and timeline as one drawing, in the colours of the page as it is now. @returns {SVGSVGElement} */
export function picture() {
  const r = result();
  const color = (/** @type {string} */ name) => getComputedStyle(document.documentElement).getPropertyValue(name);
  const probe = document.createElement('i');
  document.body.append(probe);
  const said = (/** @type {string} */ name) => {
    probe.style.color = color(name);
    return getComputedStyle(probe).color;
  };
  const [ink, soft, card] = [said('--ink'), said('--ink-2'), said('--card')];
  probe.remove();
  const font = getComputedStyle(document.body).fontFamily;
  const drawn = /** @type {SVGSVGElement[]} */ (['.bar svg', '.icicle svg', '.timeline-y', '.plot > svg', 'svg.phases']
    .map((selector) => document.querySelector(selector)));
  const wide = Math.max(...drawn.map((svg) => svg.getBoundingClientRect().width)) + 90;
  const verdict = verdictOf(r);
  const title = `${r.model.title}: ${inUnit(r.verdict.device_bytes, unit.value, 1)} ${unit.value}`;
  const said2 = `${verdict.text}, ${verdict.detail}`;
  const svg = /** @type {SVGSVGElement} */ (element('svg', { xmlns: NS, role: 'img' }));
  svg.append(element('title', {}, `${title}. ${said2}.`), element('desc', {}, `Made by tidemark ${r.tidemark}. ${command.value}`));
  const patterns = document.querySelector('.patterns defs');
  if (patterns) svg.append(resolved(patterns));
  const ground = svg.appendChild(element('rect', { x: 0, y: 0, fill: card }));
  const text = (/** @type {number} */ y, /** @type {string} */ words, /** @type {object} */ more) =>
    svg.append(element('text', { x: 24, y, fill: ink, 'font-family': font, ...more }, words));
  text(46, title, { 'font-size': 26, 'font-weight': 680 });
  text(72, said2, { 'font-size': 15, fill: soft });
  let y = 92;
  const place = (/** @type {SVGSVGElement} */ of, /** @type {number} */ x, /** @type {number} */ at) => {
    const box = of.getBoundingClientRect();
    const copy = resolved(of);
    for (const [name, value] of Object.entries({ x, y: at, width: box.width, height: box.height, overflow: 'visible' })) copy.setAttribute(name, String(value));
    svg.append(copy);
    return box.height;
  };
  const [bar, icicle, axis, plot, phases] = drawn;
  y += place(bar, 24, y) + 34;
  const heading = { 'font-size': 14, 'font-weight': 620 };
  const right = 24 + icicle.getBoundingClientRect().width + 36;
  text(y - 8, 'By module and layer: width is bytes', heading);
  text(y - 8, `At the peak, ${unit.value}`, { ...heading, x: right });
  let row = y;
  for (const line of document.querySelectorAll('.factor-table tbody tr')) {
    const swatch = /** @type {SVGSVGElement | null} */ (line.querySelector('.swatch'));
    if (swatch) place(swatch, right, row + 2);
    text(row + 13, line.querySelector('th')?.textContent ?? '', { 'font-size': 13, x: right + 20 });
    text(row + 13, line.querySelector('.total')?.textContent ?? '', { 'font-size': 13, x: right + 290, 'text-anchor': 'end' });
    row += 20;
  }
  y = Math.max(y + place(icicle, 24, y), row) + 34;
  text(y - 8, `Memory timeline, ${unit.value}`, heading);
  place(axis, 16, y);
  y += place(plot, 62, y);
  y += place(phases, 62, y) + 30;
  text(y, `tidemark ${r.tidemark} · ${cardOf(r).title} · ${link.value}`.slice(0, Math.floor(wide / 6.4)), { 'font-size': 11.5, fill: soft });
  const high = y + 20;
  for (const [name, value] of Object.entries({ width: wide, height: high, viewBox: `0 0 ${wide} ${high}` })) svg.setAttribute(name, String(value));
  ground.setAttribute('width', String(wide));
  ground.setAttribute('height', String(high));
  return svg;
}

const svgText = () => `${new XMLSerializer().serializeToString(picture())}\n`;

export const saveSvg = () => save('tidemark.svg', svgText());

const PNG_WIDTH = 1600;

export async function savePng() {
  const source = picture();
  const [wide, high] = ['width', 'height'].map((name) => Number(source.getAttribute(name)));
  const url = URL.createObjectURL(new Blob([new XMLSerializer().serializeToString(source)], { type: 'image/svg+xml' }));
  try {
    const image = new Image();
    image.src = url;
    await image.decode();
    const canvas = document.createElement('canvas');
    canvas.width = PNG_WIDTH;
    canvas.height = Math.round((PNG_WIDTH * high) / wide);
    const to = /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d'));
    to.drawImage(image, 0, 0, canvas.width, canvas.height);
    const blob = await new Promise((done) => canvas.toBlob(done, 'image/png'));
    save('tidemark.png', /** @type {Blob} */ (blob));
  } finally {
    URL.revokeObjectURL(url);
  }
}
