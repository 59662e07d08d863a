/* Memory over the job's events: the factors stacked, reserved above them, phases below. Every column is the maximum of
 * its interval, so no peak is lost. The plot is a slider: arrows step, p goes to the peak. */
import { scaleLinear } from 'd3-scale';
import { area, curveStepAfter, line, stack } from 'd3-shape';
import { useState } from 'preact/hooks';
import { factor, inOrder } from '../factors.js';
import { fixed, inUnit, tick, ticks } from '../format.js';
import { unit } from '../state.js';
import { useWidth } from './hooks.js';
import { Bytes, fill, Swatch } from './marks.jsx';
import { Twin } from './Twin.jsx';
import { cardOf } from './Verdict.jsx';

const HIGH = 190;
const ACROSS = 1000; /* units of the drawing, stretched to the width */

/** @typedef {import('../types.js').Report} Report */

/* Where a phase is too narrow for its name. */
const SHORT = { forward: 'fwd', backward: 'bwd', optimizer: 'opt' };

/** Phases as intervals of events; a mark is where its phase ends, and what follows the last belongs to it.
 * @param {Report['timeline']} t */
function phases(t) {
  /** @type {{from: number, to: number, step: number, phase: string}[]} */
  const out = [];
  for (const { event, step, phase } of t.marks) {
    const last = out.at(-1);
    if (last && last.step === step && last.phase === phase) last.to = event;
    else if (event > (last?.to ?? 0)) out.push({ from: last?.to ?? 0, to: event, step, phase });
  }
  const last = out.at(-1);
  if (last) last.to = t.events;
  return out;
}

/** @param {{r: Report}} props */
export function Timeline({ r }) {
  const [ref, width] = useWidth('.plot', 1000);
  const [chosen, setChosen] = useState(-1);
  const [hover, setHover] = useState(-1);
  const { timeline: t } = r;
  const columns = t.columns;
  const count = columns.length;
  const at = hover >= 0 && hover < count ? hover : chosen >= 0 && chosen < count ? chosen : t.peak_column;
  const column = columns[at];

  const names = r.factors.map((f) => f.name);
  const present = inOrder(names.filter((_, i) => columns.some((c) => c.factors[i] > 0)));
  const highest = Math.max(...columns.map((c) => Math.max(c.allocated, c.reserved)), 1);
  const { bytes: card } = cardOf(r);
  const limit = card < 1.45 * highest ? card : 0;
  const top = Math.max(highest, limit) * 1.04;

  const x = scaleLinear([0, t.events], [0, ACROSS]);
  const y = scaleLinear([0, top], [HIGH, 0]);
  /* One row more, so that the last column has its width. */
  const rows = [...columns, { ...columns[count - 1], from: t.events }];
  const layers = stack().keys(present).value((row, name) => /** @type {any} */ (row).factors[names.indexOf(name)])(/** @type {any} */ (rows));
  const shape = area().curve(curveStepAfter).digits(1).x((_, i) => x(rows[i].from)).y0((d) => y(d[0])).y1((d) => y(d[1]));
  const reserved = line().curve(curveStepAfter).digits(1).x((_, i) => x(rows[i].from)).y((_, i) => y(rows[i].reserved));
  const pc = (/** @type {number} */ event) => `${((100 * event) / t.events).toFixed(3)}%`;
  const marks = ticks(top, unit.value, 5);
  const spans = phases(t);
  const phaseAt = (/** @type {number} */ event) => spans.find((phase) => event < phase.to) ?? spans.at(-1);
  const phaseWords = (/** @type {number} */ event) => {
    const phase = phaseAt(event);
    return phase ? (phase.step ? `step ${phase.step}, ${phase.phase}` : phase.phase) : '';
  };

  /** @param {PointerEvent} event */
  function point(event) {
    const box = /** @type {HTMLElement} */ (event.currentTarget).getBoundingClientRect();
    const wanted = ((event.clientX - box.left) / box.width) * t.events;
    const found = columns.findLastIndex((c) => c.from <= wanted);
    if (found >= 0) setHover(found);
  }
  /** @param {KeyboardEvent} event */
  function key(event) {
    const big = Math.max(1, Math.round(count / 20));
    const to = {
      ArrowRight: at + (event.shiftKey ? big : 1), ArrowLeft: at - (event.shiftKey ? big : 1), ArrowUp: at + 1, ArrowDown: at - 1,
      PageUp: at + big, PageDown: at - big, Home: 0, End: count - 1, p: t.peak_column, Escape: t.peak_column,
    }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    setHover(-1);
    setChosen(Math.min(count - 1, Math.max(0, to)));
  }

  const { oom } = r.verdict;
  const oomEarly = !!oom && oom.event < 0.35 * t.events;
  const peak = columns[t.peak_column];
  const peakX = peak.peak / t.events;
  return (
    <section class="card" id="timeline" aria-labelledby="timeline-title">
      <h2 id="timeline-title">Over the job <small>{fixed(t.events, 0)} allocator events, {r.steps.length} optimizer steps</small></h2>
      <div class="timeline">
        <svg class="axis timeline-y" width="44" height={HIGH} aria-hidden="true">
          {marks.map((mark) => <text key={mark} x="38" y={y(mark).toFixed(1)} dy={mark === 0 ? '0' : '0.35em'} text-anchor="end">{tick(mark, unit.value)}</text>)}
        </svg>
        <div ref={ref} class="plot" role="slider" tabIndex={0} aria-label="Memory over the job" aria-valuemin={0} aria-valuemax={count - 1} aria-valuenow={at}
          aria-valuetext={`Event ${fixed(column.peak, 0)}, ${phaseWords(column.peak)}: ${inUnit(column.allocated, unit.value)} ${unit.value} allocated`}
          onPointerMove={point} onPointerLeave={() => setHover(-1)} onPointerDown={point} onKeyDown={key} onBlur={() => setChosen(-1)}>
          <svg width="100%" height={HIGH} aria-hidden="true">
            {spans.map((phase, index) => <rect key={phase.from} class={index % 2 ? 'phase odd' : 'phase'} x={pc(phase.from)} y="0" width={pc(phase.to - phase.from)} height={HIGH} />)}
            {marks.map((mark) => <line key={mark} class="grid" x1="0" x2="100%" y1={y(mark).toFixed(1)} y2={y(mark).toFixed(1)} />)}
            <svg width="100%" height={HIGH} viewBox={`0 0 ${ACROSS} ${HIGH}`} preserveAspectRatio="none">
              {layers.map((layer) => <path key={layer.key} d={shape(/** @type {any} */ (layer)) ?? ''} {...fill(layer.key)} />)}
              <path class="reserved" d={reserved(/** @type {any} */ (rows)) ?? ''} />
            </svg>
            {limit > 0 && <line class="limit" x1="0" x2="100%" y1={y(limit).toFixed(1)} y2={y(limit).toFixed(1)} />}
            {limit > 0 && <text class="limit-text" x={oomEarly ? '100%' : '0'} dx={oomEarly ? -6 : 6} text-anchor={oomEarly ? 'end' : 'start'} y={(y(limit) + (y(limit) > HIGH - 18 ? -5 : 13)).toFixed(1)}>{inUnit(limit, unit.value, unit.value === 'MiB' ? 0 : 1)} {unit.value} on the card</text>}
            {oom && <line class="oom-edge" x1={pc(oom.event)} x2={pc(oom.event)} y1="0" y2={HIGH} />}
            {oom && <text class="oom-text" x={pc(oom.event)} dx={oom.event > 0.8 * t.events ? -5 : 5} y={HIGH - 8} text-anchor={oom.event > 0.8 * t.events ? 'end' : 'start'}>stops here</text>}
            <line class="peak-line" x1={pc(peak.peak)} x2={pc(peak.peak)} y1={y(peak.allocated).toFixed(1)} y2={HIGH} />
            <circle class="peak-dot" cx={pc(peak.peak)} cy={y(peak.allocated).toFixed(1)} r="4" />
            <text class="peak-text" x={pc(peak.peak)} dx={peakX > 0.5 ? -9 : 9} y={Math.max(12, y(peak.allocated) - 7).toFixed(1)} text-anchor={peakX > 0.5 ? 'end' : 'start'}>peak {inUnit(peak.allocated, unit.value)}</text>
            {at !== t.peak_column && <line class="cursor" x1={pc(column.peak)} x2={pc(column.peak)} y1="0" y2={HIGH} />}
          </svg>
        </div>
        <svg class="phases" width="100%" height="22" aria-hidden="true">
          {spans.map((phase) => {
            const wide = ((phase.to - phase.from) / t.events) * width;
            const long = phase.step ? `${phase.phase} ${phase.step}` : phase.phase;
            const short = SHORT[/** @type {keyof typeof SHORT} */ (phase.phase)] ?? '';
            const name = [long, phase.phase, short].find((words) => wide > words.length * 6.2 + 6) ?? '';
            return (
              <g key={phase.from}>
                <line class="phase-edge" x1={pc(phase.from)} x2={pc(phase.from)} y1="0" y2="6" />
                {name && <text x={pc((phase.from + phase.to) / 2)} y="16" text-anchor="middle">{name}</text>}
              </g>
            );
          })}
        </svg>
      </div>
      <p class="readout">
        <b>{at === t.peak_column ? 'Peak' : `Event ${fixed(column.peak, 0)}`}</b> <span class="muted">{phaseWords(column.peak)}</span>{' '}
        <Bytes n={column.allocated} named /> <span class="muted">allocated,</span> <Bytes n={column.reserved} named /> <span class="muted">reserved</span>
        <span class="readout-factors">
          {present.filter((name) => column.factors[names.indexOf(name)] > 0).map((name) => (
            <span key={name} data-tip={factor(name).title}><Swatch name={name} />{inUnit(column.factors[names.indexOf(name)], unit.value)}</span>
          ))}
        </span>
      </p>
      <StepTable r={r} />
    </section>
  );
}

/** @type {[keyof import('../types.js').Step, string][]} */
const ROWS = [['before', 'Before the step'], ['peak_forward', 'Highest in forward'], ['after_forward', 'After forward'],
  ['peak_backward', 'Highest in backward'], ['after_backward', 'After backward'], ['peak_optimizer', 'Highest in the optimizer'],
  ['peak_prefill', 'Highest in the prompt'], ['after_prefill', 'After the prompt'], ['peak_decode', 'Highest in decoding'], ['after_decode', 'After decoding'],
  ['after_step', 'After the step'], ['reserved_peak', 'Highest reserved']];

/** The same as a table: what each phase holds. @param {{r: Report}} props */
function StepTable({ r }) {
  return (
    <Twin title="Table of steps">
      {() => (
        <table class="numbers steps">
          <thead><tr><th scope="col">Allocated, {unit.value}</th>{r.steps.map((_, i) => <th key={i} scope="col">Step {i + 1}</th>)}</tr></thead>
          <tbody>
            {ROWS.filter(([name]) => r.steps[0]?.[name] !== undefined).map(([name, title]) => (
              <tr key={name}><th scope="row">{title}</th>{r.steps.map((step, i) => <td key={i}><Bytes n={step[name] ?? 0} /></td>)}</tr>
            ))}
          </tbody>
        </table>
      )}
    </Twin>
  );
}
