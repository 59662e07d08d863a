// SPDX-License-Identifier: Apache-2.0
/* What the page shows as one drawing that stands alone: title, legend, units and link are in it, and it needs no style sheet. */
import { address } from './address.js';
import { NS, played, result, save } from './exports.js';
import { factor, heldFactors } from './factors.js';
import { inUnit, percent } from './format.js';
import { recording } from './recordings.js';
import { command, unit } from './state.js';
import { fill } from './ui/marks.jsx';
import { cardOf, heldBy, verdictOf } from './ui/Verdict.jsx';

const LOOKS = ['fill', 'stroke', 'stroke-width', 'stroke-dasharray', 'opacity', 'font-family', 'font-size', 'font-weight', 'paint-order', 'vector-effect'];
const KEPT = new Set(['x', 'y', 'x1', 'x2', 'y1', 'y2', 'dx', 'dy', 'cx', 'cy', 'r', 'rx', 'd', 'width', 'height', 'viewBox', 'preserveAspectRatio',
  'text-anchor', 'id', 'patternUnits', 'patternTransform']);
/* What is there for who points at the page. */
const OF_THE_POINTER = '.cursor, .brush, .band-read';

const EDGE = 24;
const AXIS = 38; /* what the labels of an axis take, left of their drawing */
const LEGEND = 330;
const ROW = 20;
const MOST_LINK_LINES = 4;

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
    if (child instanceof Element) {
      if (!child.matches(OF_THE_POINTER)) copy.append(resolved(child));
    } else if (child.nodeType === Node.TEXT_NODE && source.localName === 'text') copy.append(child.textContent ?? '');
  }
  return copy;
}

/** Colours of the page as it is now. @param {string[]} names @returns {string[]} */
function colours(names) {
  const probe = document.createElement('i');
  document.body.append(probe);
  const said = names.map((name) => {
    probe.style.color = getComputedStyle(document.documentElement).getPropertyValue(name);
    return getComputedStyle(probe).color;
  });
  probe.remove();
  return said;
}

/** A text in lines of so many letters: between words where that goes. @param {string} text @param {number} letters */
function wrapped(text, letters) {
  const most = Math.max(20, Math.floor(letters));
  return (text.match(new RegExp(`.{1,${most}}(?:\\s+|$)|\\S{${most}}`, 'g')) ?? []).map((line) => line.trim());
}

/** A sheet that grows downwards. @param {string} title @param {string} words below it @param {number} wide @param {boolean} isAlone with its title and origin written on it */
function sheet(title, words, wide, isAlone) {
  const [ink, soft, card] = colours(['--ink', '--ink-2', '--card']);
  const font = getComputedStyle(document.body).fontFamily;
  const svg = /** @type {SVGSVGElement} */ (element('svg', { xmlns: NS, role: 'img' }));
  svg.append(element('title', {}, `${title}. ${words}.`), element('desc', {}, `Made by tidemark ${(played() ?? result()).tidemark}. ${command.value}`));
  const patterns = document.querySelector('.patterns defs');
  if (patterns) svg.append(resolved(patterns));
  const ground = svg.appendChild(element('rect', { x: 0, y: 0, width: wide, fill: card }));
  const page = {
    svg, y: EDGE, soft,
    /** @param {string} said @param {number} x @param {number} y @param {object} [more] */
    text(said, x, y, more = {}) { svg.append(element('text', { x, y, fill: ink, 'font-family': font, 'font-size': 13, ...more }, said)); },
    /** @param {string} said @param {number} [x] */
    heading(said, x = EDGE) { page.text(said, x, page.y - 8, { 'font-size': 14, 'font-weight': 620 }); },
    /** A drawing of the page. @param {SVGSVGElement | null} of @param {number} x @param {number} y @returns {number} its height */
    place(of, x, y) {
      if (!of) return 0;
      const { width, height } = of.getBoundingClientRect();
      const copy = resolved(of);
      for (const [name, value] of Object.entries({ x, y, width, height, overflow: 'visible' })) copy.setAttribute(name, String(value));
      svg.append(copy);
      return height;
    },
    /** @param {string[]} lines at the end */
    end(lines) {
      for (const line of isAlone ? lines : []) {
        page.text(line, EDGE, page.y, { 'font-size': 11.5, fill: soft });
        page.y += 16;
      }
      const high = page.y + 6;
      ground.setAttribute('height', String(high));
      for (const [name, value] of Object.entries({ width: wide, height: high, viewBox: `0 0 ${wide} ${high}` })) svg.setAttribute(name, String(value));
      return svg;
    },
  };
  const room = (/** @type {number} */ size) => (wide - 2 * EDGE) / (0.56 * size);
  for (const [said, size, more] of /** @type {[string, number, object][]} */ (!isAlone ? [] : [[title, 26, { 'font-weight': 680 }], [words, 15, { fill: soft }]])) {
    for (const line of wrapped(said, room(size))) {
      page.y += size;
      page.text(line, EDGE, page.y - 4, { 'font-size': size, ...more });
    }
    page.y += 6;
  }
  page.y += 8;
  return page;
}

/** @typedef {ReturnType<typeof sheet>} Sheet
 * @typedef {{name: string, title: string, words: string, share: string, isStrong?: boolean}} LegendRow */

/** The colour of a category, drawn for a moment, as a style sheet decides it. @param {string} name @returns {Element} */
function swatchOf(name) {
  const look = fill(name);
  const made = element('rect', { width: 12, height: 12, rx: 2.5, class: look.class, ...(look.fill ? { fill: look.fill } : {}) });
  const place = /** @type {Element} */ (document.querySelector('.patterns'));
  place.append(made);
  const copy = resolved(made);
  made.remove();
  return copy;
}

/** What each colour is, and how much. @param {Sheet} page @param {LegendRow[]} rows @param {number} x @param {number} y @param {number} wide @returns {number} its height */
function legend(page, rows, x, y, wide) {
  const columns = Math.max(1, Math.floor((wide + 30) / LEGEND));
  const each = Math.ceil(rows.length / columns);
  rows.forEach(({ name, title, words, share, isStrong }, i) => {
    const left = x + Math.floor(i / each) * LEGEND;
    const at = y + (i % each) * ROW;
    const weight = isStrong ? { 'font-weight': 680 } : {};
    if (name) {
      const swatch = page.svg.appendChild(swatchOf(name));
      swatch.setAttribute('x', String(left));
      swatch.setAttribute('y', String(at + 2));
    }
    page.text(title, left + 20, at + 13, weight);
    page.text(words, left + LEGEND - 90, at + 13, { ...weight, 'text-anchor': 'end' });
    page.text(share, left + LEGEND - 40, at + 13, { ...weight, 'text-anchor': 'end' });
  });
  return each * ROW;
}

/** A drawing with the labels of its axis. @param {Sheet} page @param {string} where the section @param {string} plot its drawing in it */
function placeChart(page, where, plot) {
  page.place(document.querySelector(`${where} .timeline-y`), EDGE - 8, page.y);
  page.y += page.place(document.querySelector(`${where} ${plot}`), EDGE + AXIS, page.y);
}

/** @param {string[]} drawings @returns {number} */
const widest = (drawings) => Math.max(...drawings.map((one) => document.querySelector(one)?.getBoundingClientRect().width ?? 0)) + AXIS + 2 * EDGE;

/** Where it comes from: the version, the GPU, and how to come back to it. @param {string[]} words @param {string} link @param {number} wide */
function origin(words, link, wide) {
  const lines = wrapped(link, (wide - 2 * EDGE) / 6.4);
  return [words.filter(Boolean).join(' · '), ...(lines.length > MOST_LINK_LINES ? wrapped(command.value, (wide - 2 * EDGE) / 6.4) : lines)];
}

/** Verdict, bar, layers and timeline. @param {string} link @param {boolean} isAlone */
function pictureOfJob(link, isAlone) {
  const r = result();
  const wide = widest(['.bar svg', '.plot > svg']);
  const verdict = verdictOf(r);
  const page = sheet(`${r.model.title}: ${inUnit(r.verdict.device_bytes, unit.value, 1)} ${unit.value}`, `${verdict.text}, ${verdict.detail}`, wide, isAlone);
  const all = { title: 'On the device', bytes: r.verdict.device_bytes };
  const row = (/** @type {string} */ name, /** @type {string} */ title, /** @type {number} */ bytes, isStrong = false) => (
    { name, title, words: inUnit(bytes, unit.value), share: percent(bytes, all.bytes), isStrong });
  const rows = r.serving ? [...heldBy(r.serving).map(({ name, title, bytes }) => row(name, title, bytes)), row('', 'On the device', r.verdict.device_bytes, true)] : [
    ...heldFactors(r).map(({ name, title, bytes }) => row(name, title, bytes)),
    row('', 'Allocated', r.peak.allocated, true),
    ...r.outside.filter(({ bytes }) => bytes).map(({ name, bytes }) => row(name, factor(name).title, bytes)),
    row('', all.title, all.bytes, true),
  ];
  page.y += page.place(document.querySelector('.bar svg'), EDGE, page.y) + 34;
  const icicle = /** @type {SVGSVGElement | null} */ (document.querySelector('.icicle svg'));
  const said = `${r.serving ? 'Held by the server' : 'At the peak'}, ${unit.value}`;
  const right = EDGE + (icicle?.getBoundingClientRect().width ?? 0) + 36;
  page.heading('By module and layer: width is bytes');
  if (right + LEGEND - 40 <= wide - EDGE) {
    page.heading(said, right);
    page.y += Math.max(page.place(icicle, EDGE, page.y), legend(page, rows, right, page.y, wide - EDGE - right)) + 34;
  } else {
    page.y += page.place(icicle, EDGE, page.y) + 34;
    page.heading(said);
    page.y += legend(page, rows, EDGE, page.y, wide - 2 * EDGE) + 34;
  }
  page.heading(`Memory timeline: ${unit.value} allocated; dashed: reserved`);
  placeChart(page, '#timeline', '.plot > svg');
  page.y += page.place(document.querySelector('#timeline svg.phases'), EDGE + AXIS, page.y) + 30;
  return page.end(origin([`tidemark ${r.tidemark}`, cardOf(r).bytes ? cardOf(r).title : ''], link, wide));
}

/** A recorded run: verdict, bar, curve, allocations and stacks. @param {boolean} isAlone */
function pictureOfRecording(isAlone) {
  const run = /** @type {import('./types.js').Recorded} */ (played());
  const text = (/** @type {string} */ where) => document.querySelector(where)?.textContent?.trim() ?? '';
  const wide = widest(['.bar svg', '#timeline .plot > svg', '#flame .flame svg']);
  const [unitSaid] = /[KMGT]i?B/.exec(text('.big-unit')) ?? [unit.value];
  const page = sheet(`${recording.value?.name}: ${text('.big')} reserved at most`, `${text('.verdict .pill')}. ${text('.verdict-words .strong')}`, wide, isAlone);
  page.y += page.place(document.querySelector('.bar svg'), EDGE, page.y) + 34;
  page.heading(`Over the run: ${unitSaid} allocated; dashed: reserved`);
  placeChart(page, '#timeline', '.plot > svg');
  page.y += 40;
  if (document.querySelector('#bands .bands')) {
    page.heading(`By allocation, ${unitSaid}`);
    placeChart(page, '#bands', '.bands > svg');
    let x = EDGE;
    page.y += 10;
    for (const item of document.querySelectorAll('.bands-legend li')) {
      const said = item.textContent ?? '';
      if (x + said.length * 7 + 40 > wide) [x, page.y] = [EDGE, page.y + ROW];
      page.place(item.querySelector('svg'), x, page.y + 2);
      page.text(said, x + 18, page.y + 13, { 'font-size': 12 });
      x += said.length * 7 + 40;
    }
    page.y += ROW + 34;
  }
  const flame = /** @type {SVGSVGElement | null} */ (document.querySelector('#flame .flame svg'));
  if (flame) {
    page.heading([...document.querySelectorAll('#flame-title')].flatMap((one) => [...one.childNodes]).filter((one) => one.nodeType === Node.TEXT_NODE || /** @type {Element} */ (one).matches('small'))
      .map((one) => one.textContent).join(''));
    page.y += page.place(flame, EDGE, page.y) + 24;
  }
  return page.end(origin([`tidemark ${run.tidemark}`, run.recording.format], command.value, wide));
}

/** What is shown, in the colours of the page as it is now. @param {boolean} [isAlone] with title and origin @returns {Promise<SVGSVGElement>} */
const picture = async (isAlone = true) => (recording.value ? pictureOfRecording(isAlone) : pictureOfJob(await address(), isAlone));

/** @param {boolean} [isAlone] */
export const svgText = async (isAlone) => `${new XMLSerializer().serializeToString(await picture(isAlone))}\n`;

export const saveSvg = () => save('tidemark.svg', svgText());

const PNG_WIDTH = 1600;

export async function savePng() {
  const source = await picture();
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
