// SPDX-License-Identifier: Apache-2.0
/* The help sheet: every key, panels, the words of the page, and the switch for single letters. */
import { useEffect, useRef } from 'preact/hooks';
import { ACTIONS } from '../actions.js';
import { GLOSSARY } from '../glossary.js';
import { PANELS } from '../panels.js';
import { letterKeys, overlay } from '../state.js';
import { addStyle } from '../sheet.js';
import style from './help.css';

addStyle(style);

const CHARTS = [
  ['↑ ↓', 'in a number: the next sensible value; with Shift one step'],
  ['← → ↑ ↓', 'in a chart or table of bytes: move'],
  ['Home End', 'first, last'],
  ['Enter', 'open: a part of the model, what a number is made of, a cell of the heat map'],
  ['Esc', 'go up, or leave'],
  ['p', 'timeline, events: to the peak'],
  ['[ ]', 'timeline: one event back, on'],
  ['+ −', 'timeline: closer, farther'],
  ['t', 'in a chart: its table'],
];

/** @param {{keys: string}} props */
const Keys = ({ keys }) => <dt>{keys.split(' ').map((key) => <kbd key={key}>{key}</kbd>)}</dt>;

export default function Help() {
  const dialog = useRef(/** @type {HTMLDialogElement | null} */ (null));
  useEffect(() => dialog.current?.showModal(), []);
  return (
    <dialog ref={dialog} class="dialog wide" aria-labelledby="help-title" onClose={() => { overlay.value = ''; }}>
      <form method="dialog">
        <h2 id="help-title" tabIndex={-1} autofocus>Keys and help</h2>
        <p>tidemark simulates a training or inference job by PyTorch’s rules of memory, with shapes in place of numbers. Every figure here can be opened:
          click it to see the tensors it is the sum of. Nothing leaves this page, but for the name of a model whose config.json you choose to fetch from huggingface.co; the address after # holds the whole job.</p>
        <div class="keys">
          <section>
            <h3>Everywhere</h3>
            <dl>{ACTIONS.filter((action) => action.combination).map(({ name, title, combination = '' }) => (
              <div key={name}><Keys keys={combination} /><dd>{title}</dd></div>))}
            {ACTIONS.filter((action) => action.key).map(({ name, title, of, key = '' }) => (
              <div key={name}><Keys keys={key} /><dd>{title}{of === 'recording' && ', of a recording'}</dd></div>))}</dl>
          </section>
          <section>
            <h3>In fields and charts</h3>
            <dl>{CHARTS.map(([keys, what]) => <div key={keys + what}><Keys keys={keys} /><dd>{what}</dd></div>)}</dl>
          </section>
          <section class="panels">
            <h3>On the page</h3>
            <dl>{PANELS.map(({ name, title, help }) => <div key={name}><dt>{title}</dt><dd>{help}</dd></div>)}</dl>
          </section>
        </div>
        <details class="twin glossary">
          <summary>Glossary <span class="count">{GLOSSARY.length} terms</span></summary>
          <dl>{GLOSSARY.map(([term, meaning]) => <div key={term}><dt>{term}</dt><dd>{meaning}</dd></div>)}</dl>
        </details>
        <label class="switch"><input type="checkbox" checked={letterKeys.value} onChange={(event) => { letterKeys.value = event.currentTarget.checked; }} />
          Single letters work as keys where nothing is typed</label>
        <div class="dialog-actions"><button class="button primary" type="submit">Close</button></div>
      </form>
    </dialog>
  );
}
