// SPDX-License-Identifier: Apache-2.0
/* The page as it is before any script: the example, worked out by the real core when the page is built. */
import { renderToString } from 'preact-render-to-string';
import { EXAMPLE } from './example.js';
import { FORM, readDescribe } from './catalogue.js';
import * as state from './state.js';
import { start } from './tidemark.js';
import { App } from './ui/App.jsx';

/** @param {WebAssembly.Module} module @returns {Promise<{html: string, command: string}>} */
export async function prerender(module) {
  const core = await start(module);
  state.words.value = EXAMPLE;
  state.describe.value = readDescribe(core.call(FORM));
  const reply = core.call(state.request());
  if (!reply.ok) throw new Error(`The example has no answer: ${JSON.stringify(reply.diagnostics)}`);
  state.report.value = reply;
  const html = renderToString(<App still />).replaceAll(/ data-tip="[^"]*"/g, ''); /* which nothing shows without scripts */
  return { html, command: state.command.value };
}
