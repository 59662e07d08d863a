// SPDX-License-Identifier: Apache-2.0
/* The page in a frame of another one: the verdict and the bar of the job in its address. One file, no storage. */
import { render } from 'preact';
import { createClient } from './client.js';
import { core, more, spawn } from './parts.js';
import { createPool } from './pool.js';
import { keepsAddress, loadFragment, readFragment } from './address.js';
import { useClient } from './asking.js';
import { FORM, readDescribe } from './catalogue.js';
import { recompute } from './play.js';
import * as state from './state.js';
import { Patterns } from './ui/marks.jsx';
import { Diagnostics } from './ui/Notes.jsx';
import { Tip } from './ui/Tip.jsx';
import { Verdict } from './ui/Verdict.jsx';

function Embedded() {
  const r = state.report.value;
  const title = r?.settings.find(({ name }) => name === 'title')?.value;
  return (
    <main class="embed">
      <Patterns />
      <p class="embed-head">
        <b>{title ? `${title} · ` : ''}{r?.model.title ?? 'tidemark'}</b>
        <a href={`./#${readFragment()}`} target="_blank" rel="noreferrer">Open in tidemark</a>
      </p>
      {state.failure.value ? <Diagnostics title="Errors" list={state.failure.value} /> : r && <Verdict r={r} isFramed />}
      {state.coreProblem.value && <p>{state.coreProblem.value}</p>}
      <Tip />
    </main>
  );
}

async function begin() {
  const workers = { module: core(), spawn, more };
  const client = createClient(workers);
  useClient(client, createPool(workers));
  keepsAddress.value = true;
  state.describe.value = readDescribe(await client.call(FORM));
  await loadFragment();
  await recompute();
  render(<Embedded />, /** @type {HTMLElement} */ (document.getElementById('app')));
  addEventListener('hashchange', async () => { if (await loadFragment()) recompute(); });
}

begin();
