/* A link to a view: beside the job, what is open and looked at (viewtext.js says how that is written). */
import './ui/App.jsx'; /* all that is shared stays in one chunk */
import { linkOf } from './address.js';
import { isDrawn } from './later.js';
import { describe, details, failure, looking, report, view } from './state.js';
import { PANELS, readView, toSel, toSweep } from './viewtext.js';

/** @typedef {import('./viewtext.js').Written} Written */

/** What is seen now. @returns {Written} */
export function seen() {
  const open = details.value;
  const { event = -1, window, zoom = '', axes, tab } = looking;
  const { title: _, ...cell } = open ?? { title: '' };
  const panel = open ? 'details' : mostSeen();
  return {
    view: panel === 'whatif' ? tab ?? '' : panel === 'timeline' && document.querySelector('#timeline .events') ? 'events' : panel,
    sel: toSel({ ...(event >= 0 && { event }), ...(window && { from: window.from, to: window.to }), zoom, ...cell }),
    sweep: axes ? toSweep(axes) : '',
  };
}

/** The section of which most is in sight; '' at the top of the page. */
function mostSeen() {
  if (scrollY < 60) return looking.zoom ? 'layers' : '';
  const head = 60;
  const inSight = [...new Set(Object.values(PANELS))].map((id) => {
    const box = document.getElementById(id)?.getBoundingClientRect();
    return { id, high: box ? Math.min(box.bottom, innerHeight) - Math.max(box.top, head) : 0 };
  });
  const most = inSight.sort((a, b) => b.high - a.high)[0];
  return most.high > 0 ? most.id : '';
}

/** The link to this view, as short as links are. */
export const viewLink = () => linkOf(seen());

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
  const section = read.panel && document.getElementById(PANELS[read.panel]);
  if (!section) return;
  if (read.panel === 'events') {
    const panel = await until(() => /** @type {HTMLDetailsElement | null} */ (section.querySelector('details.twin:last-of-type')));
    if (panel) panel.open = true;
  }
  section.scrollIntoView({ block: 'start' });
  /* What comes late moves it. */
  if (PANELS[read.panel] === 'whatif') await until(() => document.getElementById(`tab-${read.panel}`));
  if (read.panel === 'events') await until(() => document.getElementById('segments-title'));
  if (Math.abs(section.getBoundingClientRect().top) > 200) section.scrollIntoView({ block: 'start' });
}
