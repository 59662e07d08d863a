// SPDX-License-Identifier: Apache-2.0
/* Named jobs side by side: what each needs, and the settings that differ. */
import { useEffect, useState } from 'preact/hooks';
import { askAll } from '../asking.js';
import { factor, inOrder } from '../factors.js';
import { fixed } from '../format.js';
import { gpusOf, layoutOf, tokensOf } from '../layout.js';
import { pack } from '../links.js';
import { prices } from '../prices.js';
import { addScenario, addressOfAll, countOwn, isShared, keepShared, linkedFigures, MOST_SCENARIOS, removeScenario, renameScenario, showOwn } from '../scenarios.js';
import { addStyle } from '../sheet.js';
import { link, said, scenarios, spoken, unit } from '../state.js';
import { copy } from './CopyDialog.jsx';
import { titleOf } from './Field.jsx';
import { Bytes, Icon, Swatch } from './marks.jsx';
import { Section } from './Section.jsx';
import { verdictOf } from './Verdict.jsx';
import style from './scenarios.css';

addStyle(style);

/** @typedef {import('../types.js').Report} Report
 * @typedef {{href: string, reply: any}} Played */

/* Settings with a row of their own, or none. */
const APART = ['model', 'gpu', 'title', 'mode'];

/** Each job's answer, asked for once. @param {import('../state.js').Scenario[]} list */
function usePlayed(list) {
  const [played, setPlayed] = useState(/** @type {Map<string, Played>} */ (new Map()));
  const key = list.map((one) => one.link).join('\n');
  useEffect(() => {
    const stop = new AbortController();
    const wanted = [...new Set(list.map((one) => one.link))].filter((one) => !played.has(one));
    askAll(wanted.map((one) => ({ call: 'estimate', link: one })), async (reply, i) => {
      const href = await pack(wanted[i]);
      if (!stop.signal.aborted) setPlayed((before) => new Map([...before, [wanted[i], { href: href ? `#${href}` : '', reply }]]));
    }, stop.signal);
    return () => stop.abort();
  }, [key]);
  return list.map((one) => played.get(one.link) ?? null);
}

/** @param {Report} r */
const used = (r) => (/** @type {string} */ name) => r.settings.find((one) => one.name === name)?.value ?? '';

/** What the device holds at the peak, of a server when it serves: bytes by factor. @param {Report} r @returns {Record<string, number>} */
function held({ serving, factors, outside }) {
  if (!serving) return Object.fromEntries([...factors, ...outside].map(({ name, bytes }) => [name, bytes]));
  const { weights, consumed, transient, graphs, blocks, block_bytes: block, card } = serving;
  return { parameters: weights, buffers: consumed - weights, temporary: transient, workspace: graphs, kv_cache: blocks * block, context: card.context };
}

/** The settings in which they differ. @param {Report[]} all */
function differing(all) {
  const names = new Set(all.flatMap((r) => r.settings.filter(({ origin }) => origin !== 'default').map(({ name }) => name)));
  return [...names].filter((name) => !APART.includes(name) && new Set(all.map((r) => used(r)(name))).size > 1);
}

async function add() {
  spoken.value = said.value = await addScenario();
  setTimeout(() => { said.value = ''; }, 1800);
}

/** What the link says of one, until that is confirmed. @param {string} link */
const linkedText = (link) => (linkedFigures.value[link] ? <span class="muted" data-tip="When the link was made">{linkedFigures.value[link]} GiB…</span> : '…');

/** @param {{r: Report, panel: import('../panels.js').Panel}} props */
export default function Scenarios({ r, panel }) {
  const list = scenarios.value;
  const played = usePlayed(list);
  const reports = /** @type {(Report | null)[]} */ (played.map((one) => (one?.reply?.ok ? one.reply : null)));
  const all = reports.filter((one) => one !== null);
  const bytes = new Map(all.map((one) => [one, held(one)]));
  const factors = inOrder([...new Set([...bytes.values()].flatMap((one) => Object.keys(one).filter((name) => one[name] > 0)))]);
  const cells = (/** @type {(of: Report) => any} */ cell) => reports.map((one, i) => <td key={i}>{one && cell(one)}</td>);
  const gpus = (/** @type {Report} */ of) => (of.serving ? Number(used(of)('tensor_parallel_size') || 1) * Number(used(of)('data_parallel_size') || 1) : gpusOf(layoutOf(used(of))));
  const priced = (/** @type {Report} */ of) => (of.gpu && prices.value[of.gpu.name] ? fixed(prices.value[of.gpu.name] * gpus(of), 2) : '–');
  return (
    <Section panel={panel} r={r} note={isShared.value ? 'from the link' : 'kept in this browser'}>
      <p class="scenario-actions">
        {list.length < MOST_SCENARIOS && !list.some((one) => one.link === link.value) && <button type="button" class="button small" onClick={add}>Add this job</button>}
        <button type="button" class="button small" onClick={() => copy('Link to the scenarios', addressOfAll())}><Icon name="link" />Copy a link to all</button>
        {isShared.value && <button type="button" class="button small" onClick={keepShared}>{countOwn() ? 'Keep these in place of mine' : 'Keep these'}</button>}
        {isShared.value && countOwn() > 0 && <button type="button" class="button small" onClick={showOwn}>Back to mine</button>}
      </p>
      <div class="scroll" tabIndex={0} role="region" aria-label="Scenarios">
        <table class="numbers scenarios">
          <thead>
            <tr><th scope="col" class="left"><span class="hidden">Of each</span></th>{list.map((one, i) => (
              <th key={one.link} scope="col"><label><span class="hidden">Name of scenario {i + 1}</span><input type="text" size={Math.min(32, one.name.length)} value={one.name} spellcheck={false} autocomplete="off" onChange={(event) => renameScenario(i, event.currentTarget.value)} /></label>
                <span class="scenario-head">{one.link === link.value ? <b>shown</b> : played[i]?.href && <a href={played[i]?.href} aria-label={`Open ${one.name}`}>Open</a>}
                  <button type="button" class="icon-button small" aria-label={`Remove ${one.name}`} data-tip="Remove" onClick={() => removeScenario(i)}><Icon name="cross" /></button></span></th>))}</tr>
          </thead>
          <tbody>
            <tr class="strong"><th scope="row">Needs, {unit.value}</th>{played.map((one, i) => <td key={i}>{reports[i] ? <Bytes n={/** @type {Report} */ (reports[i]).verdict.device_bytes} /> : !one ? linkedText(list[i].link) : one.reply?.diagnostics?.[0]?.message ?? 'no answer'}</td>)}</tr>
            <tr><th scope="row">Verdict</th>{cells((of) => { const { kind, icon, text, detail } = verdictOf(of); return <span class={{ fits: 'good', close: 'barely', not: 'bad', none: '' }[kind]} data-tip={detail}><Icon name={icon} />{text}</span>; })}</tr>
            <tr><th scope="row">Model</th>{cells((of) => of.model.title)}</tr>
            <tr><th scope="row">GPUs</th>{cells((of) => `${fixed(gpus(of))} × ${of.gpu?.title ?? 'no GPU'}`)}</tr>
            <tr><th scope="row">Tokens a step</th>{cells((of) => (of.serving ? '–' : fixed(tokensOf(used(of)))))}</tr>
            <tr><th scope="row">Price an hour</th>{cells(priced)}</tr>
            {differing(all).map((name) => <tr key={name}><th scope="row">{titleOf(name)}</th>{cells((of) => <code>{used(of)(name) || 'default'}</code>)}</tr>)}
            {factors.map((name) => <tr key={`of ${name}`}><th scope="row"><Swatch name={name} />{factor(name).title}</th>{cells((of) => { const n = bytes.get(of)?.[name] ?? 0; return n > 0 ? <Bytes n={n} /> : '–'; })}</tr>)}
          </tbody>
        </table>
      </div>
      {!Object.keys(prices.value).length && <p class="sub">Give the price of a GPU under GPUs that fit.</p>}
    </Section>
  );
}
