// SPDX-License-Identifier: Apache-2.0
/* What the charts draw, as tables: events, steps, layers. */
import { factor, inOrder } from '../factors.js';
import { fixed } from '../format.js';
import { unit } from '../state.js';
import { Bytes, Swatch } from './marks.jsx';

/** @param {{columns: import('../types.js').Column[]}} props */
export const Events = ({ columns }) => (
  <table class="numbers events">
    <thead><tr><th scope="col">Event</th><th scope="col">Change</th><th scope="col">Allocated, {unit.value}</th><th scope="col" class="left">What</th><th scope="col" class="left">By</th></tr></thead>
    <tbody>{columns.map((c) => (
      <tr key={c.from}><th scope="row">{fixed(c.from)}</th><td>{(c.change ?? 0) < 0 ? '−' : '+'}<Bytes n={Math.abs(c.change ?? 0)} style="natural" /></td><td><Bytes n={c.allocated} /></td>
        <td class="left">{c.factor && <><Swatch name={c.factor} />{factor(c.factor).title}</>}</td><td class="left"><code>{c.op}</code> <code class="muted">{c.module}</code></td></tr>
    ))}</tbody>
  </table>
);

const MOST_STEPS = 8;

/** Of a long run the first two steps, the last one, and those with a peak; from 0. @param {import('../types.js').Report} r */
const stepsShown = (r) => {
  const peaks = [r.peak.step, r.batches?.padded?.step, r.batches?.full?.step];
  return r.steps.map((_, i) => i).filter((i) => r.steps.length <= MOST_STEPS || i < 2 || i === r.steps.length - 1 || peaks.includes(i + 1));
};

/** What each phase holds. @param {{r: import('../types.js').Report}} props */
export const Steps = ({ r }) => {
  const shown = stepsShown(r);
  return (<>
    <table class="numbers steps">
      <thead><tr><th scope="col">Allocated, {unit.value}</th>{shown.map((i) => <th key={i} scope="col">Step {i + 1}</th>)}</tr></thead>
      <tbody>
        {r.steps[0]?.seq !== undefined && <tr><th scope="row">Tokens of a row</th>{shown.map((i) => <td key={i}>{fixed(r.steps[i]?.seq ?? 0)}</td>)}</tr>}
        {r.step_columns.map(({ name, title }) => (
          <tr key={name}><th scope="row">{title}</th>{shown.map((i) => <td key={i}>{r.steps[i]?.[name] !== undefined && <Bytes n={r.steps[i]?.[name] ?? 0} />}</td>)}</tr>
        ))}
      </tbody>
    </table>
    {r.batches && <p class="muted batches">{r.batches.sentence}</p>}
  </>);
};

/** @param {{r: import('../types.js').Report}} props */
export function Layers({ r }) {
  const names = inOrder(r.factors.filter((f) => f.bytes).map((f) => f.name));
  return (
    <table class="numbers">
      <thead><tr><th scope="col">Layer</th>{names.map((name) => <th key={name} scope="col">{factor(name).title}</th>)}<th scope="col" class="total">{unit.value}</th></tr></thead>
      {r.breakdown.filter((part) => part.bytes > 0).map((part) => (
        <tbody key={part.part}>
          <Row title={part.title} strong names={names} factors={part.factors} bytes={part.bytes} />
          {part.layers.length > 1 && part.layers.filter((layer) => layer.bytes).map((layer) => (
            <Row key={layer.name} title={layer.name || part.title} names={names} factors={layer.factors} bytes={layer.bytes} />
          ))}
        </tbody>
      ))}
    </table>
  );
}

/** @param {{title: string, strong?: boolean, names: string[], factors: Record<string, number>, bytes: number}} props */
const Row = ({ title, strong, names, factors, bytes }) => (
  <tr class={strong ? 'strong' : 'inner'}>
    <th scope="row">{title}</th>
    {names.map((name) => <td key={name}>{factors[name] ? <Bytes n={factors[name]} /> : <span class="nothing" aria-label="none">–</span>}</td>)}
    <td class="total"><Bytes n={bytes} /></td>
  </tr>
);
