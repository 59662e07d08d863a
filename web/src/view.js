// SPDX-License-Identifier: Apache-2.0
/* A link to a view: beside the job, what is open and looked at (viewtext.js says how that is written). */
import { address } from './address.js';
import { isDrawn } from './later.js';
import { describe, details, failure, looking, report, view } from './state.js';
import { PANELS, panelNamed, sectionOf } from './panels.js';
import { readView, toSel, toSweep } from './viewtext.js';

/** @typedef {import('./viewtext.js').Written} Written */

/** What is seen now. @returns {Written} */
export function seen() {
  const open = details.value;
  const { event = -1, window, zoom = '', axes } = looking;
  const { title: _, ...cell } = open ?? { title: '' };
  const panel = open ? 'details' : mostSeen();
  return {
    view: (panel && openIn(panel)) || panel,
    sel: toSel({ ...(event >= 0 && { event }), ...(window && { from: window.from, to: window.to }), zoom, ...cell }),
    sweep: axes ? toSweep(axes) : '',
  };
}

/** The panel that is open inside of a section. @param {string} section */
const openIn = (section) => /** @type {HTMLElement | null} */ (document.querySelector(`#${section} :is(details[open], [aria-selected="true"])[data-panel]`))?.dataset.panel;

/** The section of which most is in sight; '' at the top of the page. */
function mostSeen() {
  if (scrollY < 60) return looking.zoom ? 'layers' : '';
  const head = 60;
  const inSight = PANELS.filter((panel) => !panel.inside).map(({ name: id }) => {
    const box = document.getElementById(id)?.getBoundingClientRect();
    return { id, high: box ? Math.min(box.bottom, innerHeight) - Math.max(box.top, head) : 0 };
  });
  const most = inSight.sort((a, b) => b.high - a.high)[0];
  return most.high > 0 ? most.id : '';
}

/** The link to this view, as short as links are. */
export const viewLink = () => address(seen());

/** Waits for something of the page. @template T @param {() => T} look @returns {Promise<T | null>} */
async function until(look) {
  for (let i = 0; i < 100; i++) {
    const found = look();
    if (found) return found;
    await new Promise((done) => { setTimeout(done, 50); });
  }
  return null;
}

/** Shows what a link says, once its job is drawn. A view that cannot be read changes nothing. @param {Partial<Written>} written */
export async function show(written) {
  const of = report.value;
  if (!await until(isDrawn) || !of || failure.value) return;
  const all = describe.value?.settings ?? [];
  const read = readView(written, of, (name) => name === 'gpu' || all.some((one) => one.name === name));
  view.value = read.view;
  details.value = read.details;
  const panel = panelNamed(read.panel);
  const section = panel && await until(() => document.getElementById(sectionOf(panel)));
  if (!section) return;
  section.scrollIntoView({ block: 'start' });
  if (panel.inside) await openPanel(section.id, panel.name);
  if (Math.abs(section.getBoundingClientRect().top) > 200) section.scrollIntoView({ block: 'start' }); /* what came late moved it */
}

/** Gives the focus to a place in a section once it is there; and opens a tab of it. What comes late takes the section's place. @param {string} section @param {string} stop @param {string} tab */
export async function goInto(section, stop, tab) {
  if (tab) view.value = { ...looking, inside: tab };
  const at = stop && await until(() => /** @type {HTMLElement | null} */ (document.querySelector(`#${section} ${stop}`)));
  if (!at) return;
  document.getElementById(section)?.scrollIntoView({ block: 'start' });
  at.focus({ preventScroll: true });
}

/** Opens a panel inside of a section and waits for what is in it: behind a tab, view.inside has done the first. @param {string} section @param {string} name */
async function openPanel(section, name) {
  const one = await until(() => document.querySelector(`#${section} [data-panel="${name}"]`));
  if (one instanceof HTMLDetailsElement) one.open = true;
  const content = one?.getAttribute('aria-controls');
  await until(() => (content ? document.getElementById(content)?.firstElementChild : one?.children[1]));
}
