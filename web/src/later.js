// SPDX-License-Identifier: Apache-2.0
/* What is drawn once the numbers are: what is in sight at once, the rest when no more is asked for. Each part is a task of its own. */
import { effect } from '@preact/signals';
import { awaited, report } from './state.js';

/** @typedef {import('./types.js').Report} Report */
/** @typedef {{isSeen: () => boolean, draw: (r: Report) => void}} Part */

const SETTLED_MS = 400; /* after the last answer what is out of sight is drawn too: longer than between two keys of somebody who types */
const SHOWN_MS = 16; /* so long a painted frame may take until it is on the screen: two cores do not do more than that at once */
const MOST_MS = 250; /* so long the charts stay as they are while one answer after the other is awaited */

/** @type {Map<Part, Report | null>} what each of them shows */
const parts = new Map();
/* What of them is in sight, looked up once for an answer: each look at what was just drawn would lay out the page. */
let sight = { of: /** @type {Report | null} */ (null), seen: /** @type {Map<Part, boolean>} */ (new Map()) };
let answered = 0;
let drawn = 0;
let turn = 0;
/** @type {ReturnType<typeof setTimeout> | undefined} */
let timer;

/** Whether the element of this id can be seen, in part. @param {string} id */
export function inSight(id) {
  const box = document.getElementById(id)?.getBoundingClientRect();
  return !!box && box.bottom > 0 && box.top < innerHeight;
}

/** @param {Part} part @param {Report | null} shows what it shows already @returns {() => void} takes it out */
export function later(part, shows) {
  parts.set(part, shows);
  if (shows !== report.peek()) afterFrame();
  return () => { parts.delete(part); };
}

/** Whether all show the last answer. */
export const isDrawn = () => [...parts.values()].every((shows) => shows === report.peek());

effect(() => {
  if (!report.value || parts.size === 0) return;
  answered = performance.now();
  afterFrame();
});

/** Goes on when the frame is painted that has what was just changed. */
function afterFrame() {
  const mine = ++turn;
  clearTimeout(timer);
  requestAnimationFrame(() => { if (mine === turn) timer = setTimeout(draw, SHOWN_MS); });
}

/** @param {Part} part @param {Report} latest */
function isSeen(part, latest) {
  if (sight.of !== latest) sight = { of: latest, seen: new Map() };
  const known = sight.seen.get(part) ?? part.isSeen();
  sight.seen.set(part, known);
  return known;
}

function draw() {
  const latest = /** @type {Report} */ (report.peek());
  const left = [...parts.keys()].filter((part) => parts.get(part) !== latest);
  if (left.length === 0) return;
  const now = performance.now();
  const wait = (/** @type {number} */ ms) => { timer = setTimeout(draw, ms); };
  if (awaited.peek() && now - drawn < MOST_MS) return wait(20);
  const seen = left.filter((part) => isSeen(part, latest));
  const next = seen[0] ?? left[0];
  const settles = answered + SETTLED_MS - now;
  if (settles > 0 && !seen.length) return wait(settles);
  drawn = now;
  parts.set(next, latest);
  next.draw(latest);
  wait(0);
}
