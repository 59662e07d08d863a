// SPDX-License-Identifier: Apache-2.0
/* Memory timeline's events: the factors stacked, reserved above them, phases below. Every column is the maximum of
 * its interval, so no peak is lost. The plot is a slider: arrows step, p goes to the peak. A part of it is drawn from events
 * that the core is asked for; where they are few, each event is a column. */
import { area, curveStepAfter, line, stack } from 'd3-shape';
import { useEffect, useState } from 'preact/hooks';
import { factor, inOrder } from '../factors.js';
import { fixed, inUnit, tick, ticks } from '../format.js';
import { phases } from '../phases.js';
import { ask } from '../asking.js';
import { baselineReport, details, looking, report, unit, view } from '../state.js';
import { useWidth } from './hooks.js';
import { Minimap, useBrush, useWindow, Zoom } from './zoom.jsx';
import { Lazy } from './lazy.jsx';
import { Bytes, FactorValues, fill, Icon, Swatch } from './marks.jsx';
import { showTable, tables, Twin } from './Twin.jsx';
import { cardOf } from './Verdict.jsx';
import { Section } from './Section.jsx';

const LETTER = 7; /* about so wide is one of a label, in pixels */
const LINE = 15;
const HIGH = 190;
const ACROSS = 1000; /* units of the drawing, stretched to the width */

/** @typedef {import('../types.js').Report} Report */

/* Where a phase is too narrow for its name. */
const SHORT = { forward: 'fwd', backward: 'bwd', optimizer: 'opt' };

const FINE = 400; /* up to so many events, each is a column */

/** @param {{r: import('../types.js').Report, panel: import('../panels.js').Panel, inside: import('../panels.js').Panel[]}} props */
export function Timeline({ r, panel, inside }) {
  const [ref, width] = useWidth('.plot', 1000);
  const [chosen, setChosen] = useState(-1); /* an event */
  const [hover, setHover] = useState(-1);
  const { curve: t, from: first, to: end, window: seen, zoom } = useWindow(r.timeline, async (part) => {
    const reply = await ask('timeline', part);
    return reply?.ok && report.value === r ? reply.timeline : null;
  });
  looking.window = seen.to - seen.from < r.timeline.events ? seen : undefined;
  const given = view.value;
  useEffect(() => setChosen(-1), [r]);
  useEffect(() => {
    setChosen(given.event ?? -1);
    if (given.window) zoom(given.window.from, given.window.to);
  }, [given]);
  looking.event = chosen;
  const columns = t.columns;
  const count = columns.length;
  const isWhole = first === 0 && end === t.events;
  const isFine = !isWhole && end - first <= FINE;
  const peak = r.timeline.columns[r.timeline.peak_column];
  const columnOf = (/** @type {number} */ event) => Math.max(0, columns.findLastIndex((c) => c.from <= event));
  const resting = chosen >= 0 ? chosen : peak.peak;
  const at = hover >= 0 && hover < count ? hover : columnOf(Math.min(end - 1, Math.max(first, resting)));
  const column = columns[at];
  const isPeak = column.peak === peak.peak;

  const names = r.factors.map((f) => f.name);
  const present = inOrder(names.filter((_, i) => columns.some((c) => c.factors[i] > 0)));
  const highest = Math.max(...r.timeline.columns.map((c) => Math.max(c.allocated, c.reserved)), baselineReport.value?.peak.allocated ?? 0, 1);
  const { bytes: card } = cardOf(r);
  const limit = card < 1.45 * highest ? card : 0;
  const top = Math.max(highest, limit) * 1.04;

  const x = (/** @type {number} */ event) => ACROSS * (event - first) / (end - first);
  const y = (/** @type {number} */ bytes) => HIGH * (1 - bytes / top);
  /* One row more, so that the last column has its width. */
  const rows = [...columns, { ...columns[count - 1], from: end }];
  const layers = stack().keys(present).value((row, name) => /** @type {any} */ (row).factors[names.indexOf(name)])(/** @type {any} */ (rows));
  const shape = area().curve(curveStepAfter).digits(1).x((_, i) => x(rows[i].from)).y0((d) => y(d[0])).y1((d) => y(d[1]));
  const reserved = line().curve(curveStepAfter).digits(1).x((_, i) => x(rows[i].from)).y((_, i) => y(rows[i].reserved));
  const share = (/** @type {number} */ event) => Math.min(1, Math.max(0, (event - first) / (end - first)));
  const pc = (/** @type {number} */ event) => `${(100 * share(event)).toFixed(3)}%`;
  const isIn = (/** @type {number} */ event) => event >= first && event < end;
  const marks = ticks(top, unit.value, 5);
  const spans = phases(r.timeline);
  const spansSeen = spans.filter((phase) => phase.to > first && phase.from < end);
  const phaseAt = (/** @type {number} */ event) => spans.find((phase) => event < phase.to) ?? spans.at(-1);
  const phaseWords = (/** @type {number} */ event) => {
    const phase = phaseAt(event);
    return phase ? (phase.step ? `step ${phase.step}, ${phase.phase}` : phase.phase) : '';
  };

  const { brush, handlers } = useBrush({ first, end, zoom, hover: (event) => setHover(event === null ? -1 : columnOf(event)), pick: (event) => setChosen(columns[columnOf(event)].peak) });
  /** Closer (less than 1) or farther, around where one is. @param {number} by */
  const scale = (by) => {
    const wide = (seen.to - seen.from) * by;
    const to = column.peak;
    zoom(to - wide / 2, to + wide / 2);
  };
  /** One event on or back: from afar, close enough to see each first. @param {number} by */
  function step(by) {
    const to = Math.min(t.events - 1, Math.max(0, column.peak + by));
    setHover(-1);
    setChosen(to);
    if (!isFine) zoom(to - FINE / 4, to + FINE / 4);
    else if (!isIn(to)) zoom(to - (end - first) / 2, to + (end - first) / 2);
  }
  /** @param {number} to an event that is looked at */
  function choose(to) {
    setHover(-1);
    setChosen(to);
    if (!isIn(to)) zoom(to - (end - first) / 2, to + (end - first) / 2);
  }
  function toPeak() {
    setHover(-1);
    setChosen(peak.peak);
    if (!isIn(peak.peak)) zoom(peak.peak - (end - first) / 2, peak.peak + (end - first) / 2);
  }
  const look = () => { details.value = { title: isPeak ? 'Allocated at the peak' : `Alive at event ${fixed(column.peak)}`, event: column.peak }; };
  /** @param {KeyboardEvent} event */
  function key(event) {
    const big = Math.max(1, Math.round(count / 20));
    const to = {
      ArrowRight: at + (event.shiftKey ? big : 1), ArrowLeft: at - (event.shiftKey ? big : 1), ArrowUp: at + 1, ArrowDown: at - 1,
      PageUp: at + big, PageDown: at - big, Home: 0, End: count - 1,
    }[event.key];
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (to !== undefined) {
      setHover(-1);
      if (to < 0 || to >= count) {
        if (!isWhole) zoom(first + (to < 0 ? -1 : 1) * (end - first) / 2, end + (to < 0 ? -1 : 1) * (end - first) / 2);
      }
      setChosen(columns[Math.min(count - 1, Math.max(0, to))].peak);
    } else if (event.key === 'p') toPeak();
    else if (event.key === '[') step(-1);
    else if (event.key === ']') step(1);
    else if (event.key === '+' || event.key === '=') scale(0.25);
    else if (event.key === '-') scale(4);
    else if (event.key === 't') showTable(event);
    else if (event.key === 'Enter') look();
    else if (event.key === 'Escape' && !isWhole) zoom(0, t.events);
    else if (event.key === 'Escape') setChosen(-1);
    else return;
    event.preventDefault();
  }

  /** @type {import('../events.js').Source} */
  const source = { ask: (call, more, lane) => ask(call, more, undefined, lane), events: t.events, peak: peak.peak, key: r, name: () => unit.value };
  const { oom } = r.verdict;
  const peakX = share(peak.peak);
  /* The GPU's label stands where the error's does not; the peak's below it where they would meet. */
  const limitText = `${inUnit(limit, unit.value, unit.value === 'MiB' ? 0 : 1)} ${unit.value} on the GPU`;
  const limitRight = oom ? share(oom.event) < 0.35 : peakX < 0.3 || (width < 700 && peakX > 0.5);
  const limitAt = y(limit) + (y(limit) > HIGH - 18 ? -5 : 13);
  const peakLabel = `peak ${inUnit(peak.allocated, unit.value)}`;
  const peakEnd = peakX * width + (peakX > 0.5 ? -9 : 9 + peakLabel.length * LETTER);
  const meets = limitRight ? peakEnd > width - 6 - limitText.length * LETTER : peakEnd - peakLabel.length * LETTER < 6 + limitText.length * LETTER;
  const above = Math.max(12, y(peak.allocated) - 7);
  const isStruck = limit > 0 && above > y(limit) - 3 && above < y(limit) + 12;
  const peakAt = limit > 0 && meets && Math.abs((isStruck ? y(limit) + 14 : above) - limitAt) < LINE ? limitAt + LINE : isStruck ? y(limit) + 14 : above;
  return (
    <Section panel={panel} r={r}>
      <div class="timeline">
        <svg class="axis timeline-y" width="44" height={HIGH} aria-hidden="true">
          {marks.map((mark) => <text key={mark} x="38" y={y(mark).toFixed(1)} dy={mark === 0 ? '0' : '0.35em'} text-anchor="end">{tick(mark, unit.value)}</text>)}
        </svg>
        <div ref={ref} class="plot" role="slider" tabIndex={0} aria-label="Memory timeline" aria-valuemin={0} aria-valuemax={count - 1} aria-valuenow={at}
          aria-valuetext={`Event ${fixed(column.peak, 0)}, ${phaseWords(column.peak)}: ${inUnit(column.allocated, unit.value)} ${unit.value} allocated`}
          {...handlers} onKeyDown={key}>
          <svg width="100%" height={HIGH} aria-hidden="true">
            {spansSeen.map((phase) => <rect key={phase.from} class={spans.indexOf(phase) % 2 ? 'phase odd' : 'phase'} x={pc(phase.from)} y="0" width={`${(100 * (share(phase.to) - share(phase.from))).toFixed(3)}%`} height={HIGH} />)}
            {marks.map((mark) => <line key={mark} class="grid" x1="0" x2="100%" y1={y(mark).toFixed(1)} y2={y(mark).toFixed(1)} />)}
            <svg width="100%" height={HIGH} viewBox={`0 0 ${ACROSS} ${HIGH}`} preserveAspectRatio="none">
              {layers.map((layer) => <path key={layer.key} d={shape(/** @type {any} */ (layer)) ?? ''} {...fill(layer.key)} />)}
              <path class="reserved" d={reserved(/** @type {any} */ (rows)) ?? ''} />
            </svg>
            {limit > 0 && <line class="limit" x1="0" x2="100%" y1={y(limit).toFixed(1)} y2={y(limit).toFixed(1)} />}
            {baselineReport.value && <Lazy load={() => import('./BaselineCurve.jsx')} spans={spans} x={x} y={y} across={ACROSS} high={HIGH} width={width}
              first={first} end={end} peak={{ x: peakX, y: y(peak.allocated) }} />}
            {limit > 0 && <text class="limit-text" x={limitRight ? '100%' : '0'} dx={limitRight ? -6 : 6} text-anchor={limitRight ? 'end' : 'start'} y={limitAt.toFixed(1)}>{limitText}</text>}
            {oom && isIn(oom.event) && <line class="oom-edge" x1={pc(oom.event)} x2={pc(oom.event)} y1="0" y2={HIGH} />}
            {oom && isIn(oom.event) && <text class="oom-text" x={pc(oom.event)} dx={share(oom.event) > 0.8 ? -5 : 5} y={HIGH - 8} text-anchor={share(oom.event) > 0.8 ? 'end' : 'start'}>stops here</text>}
            {isIn(peak.peak) && <>
            <line class="peak-line" x1={pc(peak.peak)} x2={pc(peak.peak)} y1={y(peak.allocated).toFixed(1)} y2={HIGH} />
            <circle class="peak-dot" cx={pc(peak.peak)} cy={y(peak.allocated).toFixed(1)} r="4" />
            <text class="peak-text" x={pc(peak.peak)} dx={peakX > 0.5 ? -9 : 9} y={peakAt.toFixed(1)} text-anchor={peakX > 0.5 ? 'end' : 'start'}>{peakLabel}</text>
            </>}
            {brush && <rect class="brush" {...brush} y="0" height={HIGH} />}
            {!isPeak && <line class="cursor" x1={pc(column.peak)} x2={pc(column.peak)} y1="0" y2={HIGH} />}
          </svg>
        </div>
        <svg class="phases" width="100%" height="22" aria-hidden="true">
          {spansSeen.map((phase) => {
            const wide = (share(phase.to) - share(phase.from)) * width;
            const long = phase.step ? `${phase.phase} ${phase.step}` : phase.phase;
            const short = SHORT[/** @type {keyof typeof SHORT} */ (phase.phase)] ?? '';
            const name = [long, phase.phase, short].find((words) => wide > words.length * 6.2 + 6) ?? '';
            return (
              <g key={phase.from}>
                <line class="phase-edge" x1={pc(phase.from)} x2={pc(phase.from)} y1="0" y2="6" />
                {name && <text x={`${(50 * (share(phase.from) + share(phase.to))).toFixed(3)}%`} y="16" text-anchor="middle">{name}</text>}
              </g>
            );
          })}
        </svg>
      </div>
      <Minimap t={r.timeline} top={top} seen={seen} zoom={zoom} />
      <div class="timeline-tools" role="group" aria-label="Steps and zoom">
        <button type="button" class="icon-button" onClick={() => step(-1)} aria-label="One event back" data-tip="One event back  ["><Icon name="left" /></button>
        <button type="button" class="icon-button" onClick={() => step(1)} aria-label="One event on" data-tip="One event on  ]"><Icon name="right" /></button>
        <button type="button" class="button small" onClick={toPeak} data-tip="To the peak  p">Peak</button>
        <Zoom seen={seen} first={first} end={end} events={r.timeline.events} scale={scale} zoom={zoom}>Whole job</Zoom>
        <button type="button" class="button small look" onClick={look}>What is alive here</button>
      </div>
      <p class="readout timeline-readout">
        <b>{isPeak ? 'Peak' : `Event ${fixed(column.peak)}`}</b> <span class="muted">{phaseWords(column.peak)}</span>{' '}
        <Bytes n={column.allocated} named /> <span class="muted">allocated,</span> <Bytes n={column.reserved} named /> <span class="muted">reserved</span>
        <FactorValues names={present} of={(name) => column.factors[names.indexOf(name)]} />
      </p>
      {isFine && <p class="readout event-readout"><Event column={column} /></p>}
      {isFine && <Twin title={`Table of these ${count} events`} tall>{() => <Lazy load={async () => ({ default: (await tables()).Events })} columns={columns} />}</Twin>}
      <Twin title="Table of steps">{() => <Lazy load={async () => ({ default: (await tables()).Steps })} r={r} />}</Twin>
      {inside.map(({ name, title, load }) => (
        <Twin key={name} name={name} title={title} noTable>{() => <Lazy load={load} at={resting} choose={choose} source={source} />}</Twin>))}
    </Section>
  );
}

/** What a single event is. @param {{column: import('../types.js').Column}} props */
const Event = ({ column: { change = 0, factor: name = '', op, module, line } }) => (
  <>
    <b>{change < 0 ? 'frees' : 'allocates'} <Bytes n={Math.abs(change)} style="natural" /></b> {name && <span><Swatch name={name} />{factor(name).title.toLowerCase()}</span>}
    <code>{op}</code>{module && <code class="muted">{module}</code>}{line && <code class="event-line">{line}</code>}
  </>
);
