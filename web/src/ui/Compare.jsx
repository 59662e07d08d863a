// SPDX-License-Identifier: Apache-2.0
/* The present job against the baseline: what each factor and module gained or lost, and which setting made it. */
import { useEffect, useState } from 'preact/hooks';
import { factor, inOrder } from '../factors.js';
import { exact, fixed, inUnit } from '../format.js';
import { askApart } from '../asking.js';
import { unpin } from '../changes.js';
import { baseline, baselineReport, link, report, request, unit } from '../state.js';
import { titleOf } from './Field.jsx';
import { Bytes, Delta, Swatch } from './marks.jsx';
import { Section } from './Section.jsx';
import { addStyle } from '../sheet.js';
import style from './compare.css';

addStyle(style);

/** @typedef {{name: string, title: string, one: number, other: number, swatch?: boolean}} Line */
/** @typedef {{setting: string, one: string, other: string, change?: number}} Cause */

/** @param {{title: string, head: string, lines: Line[], foot: Line}} props */
const Deltas = ({ title, head, lines, foot }) => (
  <div class="scroll" tabIndex={0} role="group" aria-label={title}>
    <table class="numbers">
      <thead><tr><th scope="col">{head}</th><th scope="col">Baseline</th><th scope="col">Now</th><th scope="col">Change, {unit.value}</th></tr></thead>
      <tbody>{lines.filter(({ one, other }) => one || other).map(({ name, title: words, one, other, swatch }) => (
        <tr key={name}><th scope="row">{swatch && <Swatch name={name} />}{words}</th><td><Bytes n={one} /></td><td><Bytes n={other} /></td><td class="total"><Delta n={other - one} /></td></tr>
      ))}</tbody>
      <tfoot><tr class="strong"><th scope="row">{foot.title}</th><td><Bytes n={foot.one} /></td><td><Bytes n={foot.other} /></td><td class="total"><Delta n={foot.other - foot.one} /></td></tr></tfoot>
    </table>
  </div>
);

/** One line for each name of two lists. @param {{name: string, title: string, bytes: number}[]} one @param {{name: string, title: string, bytes: number}[]} other
 * @returns {Line[]} */
function joined(one, other) {
  const lines = new Map(one.map(({ name, title, bytes }) => [name, { name, title, one: bytes, other: 0 }]));
  for (const { name, title, bytes } of other) lines.set(name, { name, title, one: lines.get(name)?.one ?? 0, other: bytes });
  return [...lines.values()];
}

/** What the settings did, each played on top of those before it. */
function Causes() {
  const [causes, setCauses] = useState(/** @type {Cause[] | null} */ (null));
  const of = baseline.value;
  const key = link.value;
  useEffect(() => {
    const stop = new AbortController();
    setCauses(null);
    if (of) {
      askApart('compare', { with: request().settings }, of, stop.signal).then((reply) => { if (!stop.signal.aborted && reply?.ok) setCauses(reply.settings); });
    }
    return () => stop.abort();
  }, [of, key]);
  if (!causes) return null;
  if (causes.length === 0) return <p class="muted compare-none">No setting differs yet. Change one to see its effect.</p>;
  return (
    <table class="numbers causes">
      <thead><tr><th scope="col">Setting</th><th scope="col" class="left">Baseline</th><th scope="col" class="left">Now</th><th scope="col">Change, {unit.value}</th></tr></thead>
      <tbody>{causes.map(({ setting, one, other, change }) => (
        <tr key={setting}><th scope="row">{titleOf(setting)}</th><td class="left"><code>{one || 'default'}</code></td><td class="left"><code>{other || 'default'}</code></td>
          <td class="total">{change === undefined ? <span class="muted" data-tip="Simulated together with the next one">with the next</span> : <Delta n={change} />}</td></tr>
      ))}</tbody>
    </table>
  );
}

/** @param {{panel: import('../panels.js').Panel}} props */
export default function Compare({ panel }) {
  const [one, other] = [baselineReport.value, report.value];
  if (!one || !other) return null;
  const named = (/** @type {{name: string, bytes: number}[]} */ list) => list.map(({ name, bytes }) => ({ name, title: factor(name).title, bytes }));
  const parts = (/** @type {import('../types.js').Report} */ r) => r.breakdown.map(({ part, title, bytes }) => ({ name: part, title, bytes }));
  const order = inOrder([...new Set([...one.factors, ...other.factors].map((f) => f.name))]);
  const factors = joined(named(one.factors), named(other.factors)).sort((a, b) => order.indexOf(a.name) - order.indexOf(b.name))
    .concat(joined(named(one.outside), named(other.outside))).map((line) => ({ ...line, swatch: true }));
  const change = other.verdict.device_bytes - one.verdict.device_bytes;
  return (
    <Section panel={panel} r={other} tools={<button type="button" class="button small" onClick={unpin}>Unpin</button>}
      note={<>{one.model.title}: {inUnit(one.verdict.device_bytes, unit.value)} {unit.value}; now <b data-tip={exact(Math.abs(change))}>{change === 0 ? 'the same' : `${inUnit(Math.abs(change), unit.value)} ${unit.value} ${change < 0 ? 'less' : 'more'}`}</b></>}>
      <Causes />
      <div class="compare-tables">
        <Deltas title="Change by category" head="Category" lines={factors}
          foot={{ name: '', title: 'On the device', one: one.verdict.device_bytes, other: other.verdict.device_bytes }} />
        <Deltas title="Change by module" head="Module" lines={joined(parts(one), parts(other))}
          foot={{ name: '', title: 'Allocated', one: one.peak.allocated, other: other.peak.allocated }} />
      </div>
      <p class="muted compare-peak">Peak then: event {fixed(one.peak.event)}, {one.peak.phase} of step {one.peak.step}. Now: event {fixed(other.peak.event)}, {other.peak.phase} of step {other.peak.step}.</p>
    </Section>
  );
}
