// SPDX-License-Identifier: Apache-2.0
/* Other layouts of the job over as many GPUs, each simulated; and a link to each. */
import { useEffect, useState } from 'preact/hooks';
import { askMany } from '../asking.js';
import { setWords } from '../changes.js';
import { fixed } from '../format.js';
import { layoutOf, layoutWords, otherLayouts, tokensOf } from '../layout.js';
import { shown as report, shownValue as valueOf } from '../shown.js';
import { failure, files, words } from '../state.js';
import { toLink } from '../words.js';
import { Bytes } from './marks.jsx';
import { Fits } from './played.jsx';
import './whatif.js';

/** @typedef {ReturnType<typeof otherLayouts>[0] & {reply?: any}} Row */

/** The words of the job with others. @param {[string, string | null][]} others */
function wordsWith(others) {
  const rest = words.value.filter(([name]) => !others.some((other) => other[0] === name));
  return [...rest, ...others.flatMap(([name, value]) => (value === null ? [] : [/** @type {[string, string]} */ ([name, value])]))];
}

export default function Layouts() {
  const [rows, setRows] = useState(/** @type {Row[]} */ ([]));
  const [isDone, setDone] = useState(false);
  const key = report.value?.link;
  const isGood = failure.value === null;
  useEffect(() => {
    if (!isGood) return;
    const all = /** @type {Row[]} */ (otherLayouts(layoutOf(valueOf)));
    const stop = new AbortController();
    setDone(false);
    setRows(all);
    askMany(all.map(({ words: own }) => ({ words: own.map(([name, value]) => `${name}=${value ?? ''}`) })), (reply, i) => {
      all[i] = { ...all[i], reply: reply ?? { ok: false } };
      setRows([...all]);
    }, stop.signal).then(() => { if (!stop.signal.aborted) setDone(true); });
    return () => stop.abort();
  }, [key, isGood]);
  const now = report.value;
  if (!now) return null;
  const present = layoutOf(valueOf);
  const needs = (/** @type {Row} */ { reply }) => (reply?.ok ? reply.verdict.device_bytes : reply ? Infinity : Number.MAX_SAFE_INTEGER);
  const sorted = [...rows].sort((a, b) => needs(a) - needs(b));
  const refused = (/** @type {any} */ reply) => reply.diagnostics?.find((/** @type {any} */ d) => d.severity === 'error')?.message ?? 'No answer came.';
  const titleOf = (/** @type {import('../layout.js').Layout} */ one) => `${one.kind}: ${layoutWords(one)}`;
  const tokens = (/** @type {[string, string | null][]} */ own) => tokensOf((name) => { const word = own.find((one) => one[0] === name); return word ? word[1] ?? '' : valueOf(name); });
  return (
    <>
      <table class="numbers whatif" aria-busy={!isDone}>
        <thead><tr><th scope="col" class="left">Layout</th><th scope="col">Needs</th><th scope="col">Tokens a step</th><th scope="col" class="left"><span class="hidden">Verdict</span></th><th scope="col"><span class="hidden">Use</span></th></tr></thead>
        <tbody>
          <tr class="strong"><th scope="row" class="left">{titleOf(present)} <small>as it is</small></th><td data-label="needs"><Bytes n={now.verdict.device_bytes} style="natural" /></td><td data-label="tokens a step">{fixed(tokens([]))}</td>
            <td class="left"><Fits of={{ ...now.verdict, fits: now.verdict.fits ?? undefined }} /></td><td /></tr>
          {sorted.map(({ layout, words: own, reply }) => (
            <tr key={titleOf(layout)}>
              <th scope="row" class="left">{files.value.length === 0 && reply?.ok ? <a href={`#${toLink(wordsWith(own))}`}>{titleOf(layout)}</a> : titleOf(layout)}</th>
              {!reply ? <td colSpan={4} class="left muted">…</td> : !reply.ok ? <td colSpan={4} class="left muted">{refused(reply)}</td> : <>
                <td data-label="needs"><Bytes n={reply.verdict.device_bytes} style="natural" /></td>
                <td data-label="tokens a step">{fixed(tokens(own))}</td>
                <td class="left"><Fits of={{ ...reply.verdict, fits: reply.verdict.fits ?? undefined }} /></td>
                <td>{reply.verdict.fits !== false && <button type="button" class="button small" aria-label={`Apply ${titleOf(layout)}`} onClick={() => setWords(own)}>Apply</button>}</td>
              </>}
            </tr>
          ))}
        </tbody>
      </table>
      <p class="sub">Each row is the rank that needs the most. Micro-batch and sequence stay as they are, so the tokens of a step differ.</p>
    </>
  );
}
