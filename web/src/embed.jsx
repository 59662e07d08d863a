/* The page in a frame of another one: the verdict and the bar of the job in its address. One file, no storage. */
import { render } from 'preact';
import { createClient } from './client.js';
import { core, more, spawn } from './parts.js';
import { createPool } from './pool.js';
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
        <a href={`./#${state.readFragment()}`} target="_blank" rel="noreferrer">Open in tidemark</a>
      </p>
      {state.failure.value ? <Diagnostics title="Errors" list={state.failure.value} /> : r && <Verdict r={r} />}
      {state.coreProblem.value && <p>{state.coreProblem.value}</p>}
      <Tip />
    </main>
  );
}

async function begin() {
  const workers = { module: core(), spawn, more };
  const client = createClient(workers);
  state.useClient(client, createPool(workers));
  state.keepsAddress.value = true;
  state.describe.value = state.readDescribe(await client.call({ call: 'describe' }));
  await state.loadFragment();
  await state.recompute();
  render(<Embedded />, /** @type {HTMLElement} */ (document.getElementById('app')));
  addEventListener('hashchange', async () => { if (await state.loadFragment()) state.recompute(); });
}

begin();
