// SPDX-License-Identifier: Apache-2.0
/* The schedule of a pipeline: a row for each of its ranks with the passes it does, and below them how many micro-batches are in flight. */
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { askMany } from '../asking.js';
import { fixed } from '../format.js';
import { fullest, timesOf } from '../schedule.js';
import { failure } from '../state.js';
import { useWidth } from './hooks.js';
import { showTable, Twin } from './Twin.jsx';

/** @typedef {import('../schedule.js').Schedule} Schedule
 * @typedef {import('../schedule.js').Pass} Pass */

const ROW = 42;
const BAR = 20;
const STRIP = 13;
const LEAST = 4; /* pixels of a forward pass */
const WITH_NUMBER = 13;
const MOST_NUMBERS = 3000;

const NAMES = { F: 'Forward', B: 'Backward', I: 'Backward for the input', W: 'Backward for the weights' };

/** The schedule of the present job, once it has come. @param {import('../types.js').Report} r @returns {Schedule | null} */
function useSchedule(r) {
  const [got, setGot] = useState(/** @type {{key: string, schedule: Schedule | null} | null} */ (null));
  const key = JSON.stringify(r.settings.filter(({ name }) => name.startsWith('parallel.') && name !== 'parallel.rank').map(({ name, value }) => [name, value]));
  const isGood = failure.value === null;
  useEffect(() => {
    if (!isGood) return;
    const stop = new AbortController();
    askMany([{ call: 'schedule', words: [] }], (reply) => setGot({ key, schedule: reply?.ok ? reply.schedule : null }), stop.signal);
    return () => stop.abort();
  }, [key, isGood]);
  return got?.key === key ? got.schedule : null;
}

/** A shape of many rectangles. @param {[number, number, number, number][]} boxes */
const boxes = (boxes) => boxes.map(([x, y, w, h]) => `M${x.toFixed(1)} ${y}h${w.toFixed(1)}v${h}h${(-w).toFixed(1)}z`).join('');

/** @param {{r: import('../types.js').Report, worst: number, rankOf: (stage: number) => number}} props worst: the rank of the pipeline that needs the most; rankOf: the job's rank of one of the pipeline's */
export default function ScheduleOf({ r, worst, rankOf }) {
  const schedule = useSchedule(r);
  return schedule && <Picture schedule={schedule} worst={Math.min(worst, schedule.ranks.length - 1)} rankOf={rankOf} />;
}

/** @param {{schedule: Schedule, worst: number, rankOf: (stage: number) => number}} props */
function Picture({ schedule, worst, rankOf }) {
  const { ranks, end } = useMemo(() => timesOf(schedule), [schedule]);
  const [ref, width] = useWidth('.schedule', 900);
  const [at, setAt] = useState(/** @type {{of: Schedule, rank: number, pass: number} | null} */ (null));
  const { rank, pass: index } = at?.of === schedule ? at : { rank: worst, pass: fullest(ranks[worst]) };
  const look = (/** @type {number} */ to, /** @type {number} */ pass) => setAt({ of: schedule, rank: to, pass: Math.max(0, Math.min(ranks[to].length - 1, pass)) });
  const plot = useRef(/** @type {HTMLDivElement | null} */ (null));
  const labels = 76;
  const step = Math.max(LEAST, (width - labels) / end);
  const most = Math.max(...schedule.ranks.map((one) => one.in_flight));
  const chunks = schedule.stages / ranks.length;
  const high = ranks.length * ROW;
  const looked = ranks[rank][index];
  const hasNumbers = step >= WITH_NUMBER && ranks.length * ranks[0].length <= MOST_NUMBERS;
  const kinds = /** @type {Pass['kind'][]} */ (['F', 'B', 'I', 'W']).filter((kind) => ranks[0].some((pass) => pass.kind === kind));
  const shapes = useMemo(() => kinds.flatMap((kind) => [0, 1].map((odd) => ({
    look: `pass is-${kind}${odd ? ' is-odd' : ''}`,
    path: boxes(ranks.flatMap((passes, row) => passes.filter((pass) => pass.kind === kind && Math.floor(pass.stage / ranks.length) % 2 === odd)
      .map((pass) => /** @type {[number, number, number, number]} */ ([pass.from * step, row * ROW, (pass.to - pass.from) * step - (step > 6 ? 1 : 0.4), BAR])))),
  })).filter(({ path }) => path)), [ranks, step]);
  const strips = useMemo(() => ranks.map((passes, row) => {
    const floor = row * ROW + BAR + 2 + STRIP;
    let path = `M0 ${floor}`;
    for (const pass of passes) path += `H${((pass.kind === 'F' ? pass.from : pass.to) * step).toFixed(1)}V${(floor - STRIP * pass.inFlight / most).toFixed(1)}`;
    return `${path}H${(end * step).toFixed(1)}V${floor}z`;
  }).join(''), [ranks, step, most]);
  const words = (/** @type {Pass} */ { kind, stage, microbatch, inFlight }) => `${NAMES[kind]} pass of micro-batch ${microbatch}, stage ${stage}; ${inFlight} in flight after it`;
  /** @param {KeyboardEvent} event */
  function key(event) {
    const near = (/** @type {number} */ to) => { if (ranks[to]) look(to, ranks[to].findLastIndex((pass) => pass.from <= looked.from)); };
    if (event.key === 'ArrowRight') look(rank, index + 1);
    else if (event.key === 'ArrowLeft') look(rank, index - 1);
    else if (event.key === 'ArrowDown') near(rank + 1);
    else if (event.key === 'ArrowUp') near(rank - 1);
    else if (event.key === 'Home') look(rank, 0);
    else if (event.key === 'End') look(rank, ranks[rank].length - 1);
    else if (event.key === 'p') look(worst, fullest(ranks[worst]));
    else if (event.key === 't') showTable(event);
    else return;
    event.preventDefault();
    wasKey.current = true;
  }
  const wasKey = useRef(false);
  useEffect(() => {
    const box = plot.current;
    if (!wasKey.current || !box) return; /* under the pointer nothing moves */
    wasKey.current = false;
    const [from, to] = [looked.from * step, looked.to * step];
    if (from < box.scrollLeft || to > box.scrollLeft + box.clientWidth) box.scrollLeft = from - box.clientWidth / 2;
  });
  /** @param {PointerEvent} event */
  function point(event) {
    const box = /** @type {Element} */ (event.currentTarget).getBoundingClientRect();
    const row = Math.min(ranks.length - 1, Math.max(0, Math.floor((event.clientY - box.top) / ROW)));
    look(row, ranks[row].findLastIndex((pass) => pass.from <= (event.clientX - box.left) / step));
  }
  return (
    <div class="schedule-part">
      <h3>Schedule <small>{schedule.name}, {fixed(schedule.microbatches)} micro-batches; a backward pass is drawn as long as two forward passes</small></h3>
      <div ref={ref} class="schedule">
        <svg class="schedule-names" width={labels} height={high} aria-hidden="true">
          {ranks.map((_, row) => (
            <g key={row} class={row === worst ? 'is-worst' : undefined}>
              <text x="0" y={row * ROW + BAR / 2} dy="0.35em">{chunks > 1 ? `Rank ${rankOf(row)}` : `Stage ${row}`}</text>
              <text class="schedule-flight" x="0" y={row * ROW + BAR + 2 + STRIP} dy="-1">{fixed(schedule.ranks[row].in_flight)} in flight</text>
            </g>
          ))}
        </svg>
        <div ref={plot} class="scroll schedule-plot" role="slider" tabIndex={0} aria-label="Passes of the pipeline’s ranks. Left and right move in time, up and down between ranks." aria-valuemin={0} aria-valuemax={ranks[rank].length - 1} aria-valuenow={index}
          aria-valuetext={`Rank ${rankOf(rank)}: ${words(looked)}`} onKeyDown={key}>
          <svg width={Math.ceil(end * step)} height={high} aria-hidden="true" onPointerMove={point} onPointerDown={point}>
            <path class="schedule-strip" d={strips} />
            {shapes.map(({ look: of, path }) => <path key={of} class={of} d={path} />)}
            {hasNumbers && ranks.map((passes, row) => passes.map(({ microbatch, from, to }) => (
              <text key={`${row} ${from}`} class="pass-number" x={((from + to) / 2 * step).toFixed(1)} y={row * ROW + BAR / 2} dy="0.35em" text-anchor="middle">{microbatch}</text>)))}
            <rect class="pass-at" x={(looked.from * step).toFixed(1)} y={rank * ROW} width={((looked.to - looked.from) * step).toFixed(1)} height={BAR} />
          </svg>
        </div>
      </div>
      <p class="readout">
        <b>Rank {rankOf(rank)}</b> <span class="muted">{words(looked)}</span>
        <span class="readout-factors muted">{kinds.map((kind) => <span key={kind}><svg class="swatch" width="12" height="12" aria-hidden="true"><rect class={`pass is-${kind}`} width="12" height="12" rx="2.5" /></svg>{NAMES[kind]}</span>)}
          <span><svg class="swatch" width="12" height="12" aria-hidden="true"><rect class="schedule-strip" y="3" width="12" height="9" /></svg>micro-batches in flight</span></span>
      </p>
      <Twin title="Table of the schedule">{() => (
        <table class="numbers">
          <thead><tr><th scope="col" class="left">Rank</th><th scope="col">In flight at most</th><th scope="col" class="left">Passes: stage, kind, micro-batch</th></tr></thead>
          <tbody>{schedule.ranks.map(({ in_flight: inFlight, passes }, row) => (
            <tr key={row}><th scope="row" class="left">{rankOf(row)}</th><td>{fixed(inFlight)}</td><td class="left"><code>{passes.join(' ')}</code></td></tr>))}</tbody>
        </table>
      )}</Twin>
    </div>
  );
}
