/* The page as it is before any script: the example, worked out by the real core when the page is built. */
import { renderToString } from 'preact-render-to-string';
import { EXAMPLE } from './example.js';
import * as state from './state.js';
import { start } from './tidemark.js';
import { App } from './ui/App.jsx';

const STATIC_COLUMNS = 96;

/** Fewer columns for the static drawing, each still the maximum of its interval.
 * @param {import('./types.js').Report['timeline']} timeline */
function coarser(timeline) {
  const every = Math.ceil(timeline.columns.length / STATIC_COLUMNS);
  const columns = [];
  let peakColumn = 0;
  for (let at = 0; at < timeline.columns.length; at += every) {
    const group = timeline.columns.slice(at, at + every);
    const highest = group.reduce((a, b) => (b.allocated > a.allocated ? b : a));
    if (timeline.peak_column >= at && timeline.peak_column < at + every) peakColumn = columns.length;
    columns.push({ ...highest, from: group[0].from, reserved: Math.max(...group.map((c) => c.reserved)) });
  }
  return { ...timeline, columns, peak_column: peakColumn };
}

/** @param {WebAssembly.Module} module @returns {Promise<{html: string, command: string}>} */
export async function prerender(module) {
  const core = await start(module);
  state.words.value = EXAMPLE;
  state.describe.value = state.readDescribe(core.call({ call: 'describe' }));
  const reply = core.call(state.request());
  if (!reply.ok) throw new Error(`The example has no answer: ${JSON.stringify(reply.diagnostics)}`);
  state.report.value = { ...reply, timeline: coarser(reply.timeline) };
  return { html: renderToString(<App still />), command: state.command.value };
}
