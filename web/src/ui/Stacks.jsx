// SPDX-License-Identifier: Apache-2.0
/* A recording by allocation and by stack: bands over its events, what grows from step to step, and a flame graph at any moment. */
import { hierarchy, partition } from 'd3-hierarchy';
import { useEffect, useMemo, useState } from 'preact/hooks';
import { sourceOf } from '../events.js';
import { exact, fixed, natural, percent, tick, ticks } from '../format.js';
import { askRecording, recording } from '../recordings.js';
import { addStyle } from '../sheet.js';
import { bandAt, COLOURS, flameOf, framesOf, groupsOf, outline, ownFrame, placed } from '../stacks.js';
import { Frames, Size } from './frames.jsx';
import { Segmented } from './Header.jsx';
import { useWidth } from './hooks.js';
import style from './stacks.css';
import { useBrush } from './zoom.jsx';

addStyle(style);

const HIGH = 230;
const ACROSS = 1000;

/** An answer about the recording as it is played, asked anew where what is asked changes; null until it is there.
 * @param {string} call @param {object} more @param {unknown} played @param {string} [lane] of those on one, only the newest waits */
export function useAnswer(call, more, played, lane = call) {
  const [answer, setAnswer] = useState(/** @type {any} */ (null));
  const key = JSON.stringify(more);
  useEffect(() => {
    let wanted = true;
    const timer = setTimeout(() => askRecording(call, more, lane).then((reply) => { if (wanted && reply?.ok) setAnswer(reply); }, () => {}), answer ? 120 : 0);
    return () => { wanted = false; clearTimeout(timer); };
  }, [call, key, played]);
  return answer;
}

const BY = [{ value: 'frame', label: 'Frame', title: 'Colour by the program’s own line' }, { value: 'category', label: 'Category', title: 'Colour by what the stack does: forward, backward, optimizer' },
  { value: 'stack', label: 'Stack', title: 'Colour by the whole stack' }];

/** A group's name in short. @param {string} name */
const short = (name) => (name.includes('\n') ? `${sourceOf({ frame: ownFrame(name.split('\n')) })}, of ${name.split('\n').length} frames` : sourceOf({ frame: name }));

/** @typedef {{played: import('../types.js').Recorded, event: number, choose: (event: number) => void, unit: import('../format.js').Unit,
 *   seen: {from: number, to: number}, zoom: (from: number, to: number) => void}} Props  event: the one that is looked at; seen: the part of the run */

/** Each large allocation as a band over the events, the oldest at the bottom. @param {Props} props */
function Bands({ played, event, choose, unit, seen, zoom }) {
  const [by, setBy] = useState(/** @type {import('../stacks.js').By} */ ('frame'));
  const [hover, setHover] = useState(/** @type {{of: unknown, column: number, band: import('../stacks.js').Band | null} | null} */ (null)); /* of: the answer */
  const isWhole = seen.to - seen.from >= played.timeline.events;
  const bands = /** @type {import('../stacks.js').Bands | null} */ (useAnswer('recorded_bands', isWhole ? {} : { from: seen.from, to: seen.to }, played));
  const { brush, handlers } = useBrush({ first: bands?.from ?? 0, end: bands?.to ?? 1, zoom, hover: (over) => { if (over === null) setHover(null); }, pick: () => { if (hover?.of === bands) take(hover); } });
  const drawn = useMemo(() => {
    if (!bands) return null;
    const rows = placed(bands);
    const { of, groups } = groupsOf(bands, by);
    const colour = new Map(groups.map((group) => [group.name, group.colour]));
    const top = Math.max(1, ...bands.columns.map(({ allocated }) => allocated)) * 1.04;
    const y = (/** @type {number} */ bytes) => HIGH * (1 - bytes / top);
    const paths = Array.from({ length: COLOURS }, () => '');
    for (const row of rows) paths[colour.get(of[row.band.stack]) ?? 0] += outline(row, bands.columns.length, ACROSS, y);
    const rest = bands.columns.map((column, i) => `${i ? 'H' : 'M0 '}${i ? (ACROSS * i / bands.columns.length).toFixed(1) : y(column.allocated).toFixed(1)}${i ? `V${y(column.allocated).toFixed(1)}` : ''}`).join('');
    return { rows, of, groups, top, y, paths, rest: `${rest}H${ACROSS}V${HIGH}H0z` };
  }, [bands, by]);
  /** The event that begins the band, or that is seen in the column. @param {{column: number, band: import('../stacks.js').Band | null}} at */
  function take({ column: to, band: of }) {
    if (bands) choose(of ? of.from : bands.columns[to].at);
  }
  if (!bands || !drawn) return <section class="card stacks-wait" aria-busy="true"><h2>By allocation</h2></section>;
  const { rows, of, groups, top, y, paths, rest } = drawn;
  const count = bands.columns.length;
  const now = Math.max(0, bands.columns.findLastIndex(({ from }) => from <= event));
  const marks = ticks(top, unit, 5);
  /** @param {PointerEvent} pointer */
  const place = (pointer) => {
    const box = /** @type {HTMLElement} */ (pointer.currentTarget).getBoundingClientRect();
    const column = Math.max(0, Math.min(count - 1, Math.floor(count * (pointer.clientX - box.left) / box.width)));
    return { of: bands, column, band: bandAt(rows, column, top * (1 - (pointer.clientY - box.top) / HIGH)) };
  };
  const { column: readAt, band } = hover?.of === bands ? hover : { column: now, band: null };
  const column = bands.columns[readAt];
  const lives = (/** @type {import('../stacks.js').Band} */ of) => `${natural(of.bytes, unit)} from event ${fixed(of.from)} ${of.to === undefined ? 'to the end' : `to ${fixed(of.to)}`}, ${short(ownFrame(framesOf(bands, of.stack)))}`;
  /** Left and right move over the run, up and down among the bands there. @param {KeyboardEvent} press */
  function key(press) {
    const to = { ArrowRight: readAt + 1, ArrowLeft: readAt - 1, PageDown: readAt + 25, PageUp: readAt - 25, Home: 0, End: count - 1 }[press.key];
    const here = rows.filter(({ first, low }) => readAt >= first && readAt < first + low.length).map((row) => row.band);
    const wide = seen.to - seen.from;
    if (press.ctrlKey || press.metaKey || press.altKey) return;
    if (to !== undefined) setHover({ of: bands, column: Math.max(0, Math.min(count - 1, to)), band: null });
    else if (press.key === 'ArrowUp') setHover({ of: bands, column: readAt, band: here[band ? Math.min(here.length - 1, here.indexOf(band) + 1) : 0] ?? null });
    else if (press.key === 'ArrowDown') setHover({ of: bands, column: readAt, band: here[band ? here.indexOf(band) - 1 : here.length - 1] ?? null });
    else if (press.key === 'Enter') take({ column: readAt, band });
    else if (press.key === '+' || press.key === '=') zoom(column.at - wide / 8, column.at + wide / 8);
    else if (press.key === '-') zoom(column.at - wide * 2, column.at + wide * 2);
    else if (press.key === 'Escape' && !isWhole) zoom(0, played.timeline.events);
    else return;
    press.preventDefault();
  }
  return (
    <section class="card" id="bands" aria-labelledby="bands-title">
      <h2 id="bands-title">By allocation <small>each of the {fixed(rows.length)} that hold most for longest, the oldest at the bottom; grey is all others</small>
        <Segmented legend="Colour" name="bands-by" value={by} choose={setBy} options={BY} /></h2>
      <div class="timeline">
        <svg class="axis timeline-y" width="44" height={HIGH} aria-hidden="true">
          {marks.map((mark) => <text key={mark} x="38" y={y(mark).toFixed(1)} dy={mark === 0 ? '0' : '0.35em'} text-anchor="end">{tick(mark, unit)}</text>)}
        </svg>
        <div class="bands" role="slider" tabIndex={0} aria-label={`Memory by allocation: ${groups.slice(0, COLOURS - 1).map(({ name }) => short(name)).join(', ')}`}
          aria-valuemin={0} aria-valuemax={count - 1} aria-valuenow={readAt} aria-valuetext={band ? lives(band) : `Event ${fixed(column.at)}: ${natural(column.allocated, unit)} allocated`} {...handlers} onKeyDown={key} onBlur={() => setHover(null)}
          onPointerMove={(pointer) => { handlers.onPointerMove(pointer); setHover(place(pointer)); }} onPointerDown={(pointer) => { handlers.onPointerDown(pointer); setHover(place(pointer)); }}>
          <svg width="100%" height={HIGH} aria-hidden="true">
            <svg width="100%" height={HIGH} viewBox={`0 0 ${ACROSS} ${HIGH}`} preserveAspectRatio="none">
              <path class="band-rest" d={rest} />
              {paths.map((d, i) => d && <path key={i} class={`band band-${i}`} d={d} />)}
              {band && <path class="band-read" d={outline(/** @type {import('../stacks.js').Placed} */ (rows.find((row) => row.band === band)), count, ACROSS, y)} />}
            </svg>
            {brush && <rect class="brush" {...brush} y="0" height={HIGH} />}
            <line class="cursor" x1={`${100 * (readAt + 0.5) / count}%`} x2={`${100 * (readAt + 0.5) / count}%`} y1="0" y2={HIGH} />
          </svg>
        </div>
      </div>
      <p class="readout">
        <b>Event {fixed(column.at)}</b> <Size n={column.allocated} unit={unit} /> <span class="muted">allocated</span>
        {band && <>, <Size n={band.bytes} unit={unit} /> <span class="muted">from event {fixed(band.from)} {band.to === undefined ? 'to the end' : `to ${fixed(band.to)}`}</span>{' '}
          <code>{short(ownFrame(framesOf(bands, band.stack)))}</code></>}
      </p>
      <ul class="bands-legend">
        {groups.slice(0, COLOURS - 1).map(({ name, colour }) => <li key={name} data-tip={name}><svg class="swatch" width="12" height="12" aria-hidden="true"><rect class={`band-${colour}`} width="12" height="12" rx="2.5" /></svg><span>{short(name)}</span></li>)}
        {groups.length >= COLOURS && <li><svg class="swatch" width="12" height="12" aria-hidden="true"><rect class={`band-${COLOURS - 1}`} width="12" height="12" rx="2.5" /></svg><span>{groups.length - COLOURS + 1} others</span></li>}
      </ul>
    </section>
  );
}

const ROW = 20;
const LETTER = 6.4;
const LEAST_WIDE = 3; /* pixels; what is narrower is seen when one looks into a frame around it */
const MOST_BOXES = 1200;

/** What lives after an event, from the outermost frame down. Enter or a click looks into a frame, Escape goes back.
 * @param {{played: import('../types.js').Recorded, event: number, unit: import('../format.js').Unit}} props */
function FlameGraph({ played, event, unit }) {
  const live = /** @type {import('../stacks.js').Live | null} */ (useAnswer('recorded_live', { at: event }, played));
  return live && <Flames played={played} live={live} unit={unit} />;
}

/** @param {{played: import('../types.js').Recorded, live: import('../stacks.js').Live, unit: import('../format.js').Unit}} props */
function Flames({ played, live, unit }) {
  const [by, setBy] = useState(/** @type {'bytes' | 'count'} */ ('bytes'));
  const [way, setWay] = useState(/** @type {string[]} */ ([]));
  const [at, setAt] = useState('');
  const [ref, width] = useWidth('.flame', 1100);
  const nodes = useMemo(() => {
    let top = flameOf(live, by);
    for (const name of way) top = top.children.get(name) ?? top;
    const root = hierarchy(top, (node) => [...node.children.values()].sort((a, b) => b.value - a.value)).each((node) => { /** @type {any} */ (node).value = node.data.value; });
    return partition()(/** @type {any} */ (root)).descendants().map((/** @type {any} */ node) => ({ node, path: node.ancestors().reverse().slice(1).map((/** @type {any} */ one) => one.data.name) }));
  }, [live, by, way]);
  const shown = useMemo(() => {
    const wide = nodes.filter(({ node }) => node.depth === 0 || (node.x1 - node.x0) * width >= LEAST_WIDE);
    return wide.length > MOST_BOXES ? wide.sort((a, b) => (b.node.x1 - b.node.x0) - (a.node.x1 - a.node.x0)).slice(0, MOST_BOXES) : wide;
  }, [nodes, width]);
  const high = (Math.max(...shown.map(({ node }) => node.depth)) + 1) * ROW;
  const key = (/** @type {string[]} */ path) => path.join('\n');
  const read = shown.find(({ path }) => key(path) === at) ?? shown[0];
  const move = (/** @type {KeyboardEvent} */ press) => {
    const row = shown.filter(({ node }) => node.depth === read.node.depth);
    const i = row.indexOf(read);
    const to = { ArrowRight: row[i + 1], ArrowLeft: row[i - 1], ArrowDown: shown.find(({ node }) => node.parent === read.node), ArrowUp: shown.find(({ node }) => node === read.node.parent) }[press.key];
    if (press.key === 'Enter') setWay([...way, ...read.path]);
    else if (press.key === 'Escape' && way.length) setWay(way.slice(0, -1));
    else if (/^Arrow/.test(press.key)) { if (to) setAt(key(to.path)); } else return;
    press.preventDefault();
  };
  return (
    <section class="card" id="flame" aria-labelledby="flame-title">
      <h2 id="flame-title">By stack, after event {fixed(live.event)} <small>{live.event === played.peak_event ? 'the peak; ' : ''}the outermost frame first, as wide as what it holds</small>
        {way.length > 0 && <button type="button" class="button small" onClick={() => setWay([])}>All stacks</button>}
        <Segmented legend="Width" name="flame-by" value={by} choose={setBy} options={[{ value: 'bytes', label: 'Size', title: 'Width is bytes' }, { value: 'count', label: 'Blocks', title: 'Width is the number of blocks' }]} /></h2>
      <div ref={ref} class="flame" role="tree" tabIndex={0} aria-label="Flame graph: arrows move, Enter looks into a frame, Escape goes back" aria-activedescendant={`flame-${shown.indexOf(read)}`} onKeyDown={move}>
        <svg width="100%" height={high}>
          {shown.map(({ node, path }, i) => (
            <g key={key(path)} id={`flame-${i}`} role="treeitem" aria-level={node.depth + 1} aria-label={`${node.data.name}: ${natural(node.data.bytes, unit)} in ${fixed(node.data.count)} blocks`} aria-selected={read.path === path}
              onPointerEnter={() => setAt(key(path))} onClick={() => setWay([...way, ...path])}>
              <rect class={`flame-box${read.path === path ? ' is-read' : ''} flame-${node.depth % 3}`} x={`${(100 * node.x0).toFixed(3)}%`} y={node.depth * ROW} width={`${(100 * (node.x1 - node.x0)).toFixed(3)}%`} height={ROW - 1} />
            </g>
          ))}
          {shown.map(({ node, path }) => {
            const name = node.depth === 0 ? `${way.length ? short(way[way.length - 1]) : 'All'}, ${natural(node.data.bytes, unit)}` : short(node.data.name);
            const room = Math.floor(((node.x1 - node.x0) * width - 8) / LETTER);
            return room >= 4 && <text key={key(path)} x={`${(100 * node.x0).toFixed(3)}%`} dx="5" y={node.depth * ROW + ROW / 2} dy="0.32em" aria-hidden="true">{name.length > room ? `${name.slice(0, room - 1)}…` : name}</text>;
          })}
        </svg>
      </div>
      <p class="readout"><b>{read.path.length ? read.node.data.name : 'All'}</b> <Size n={read.node.data.bytes} unit={unit} /> <span class="muted">{percent(read.node.data.bytes, live.allocated)} of what is allocated, in {fixed(read.node.data.count)} blocks</span>
        {live.rest > 0 && <span class="muted">; {natural(live.rest, unit)} of small stacks is not drawn</span>}</p>
    </section>
  );
}

/** Leaks. @param {{played: import('../types.js').Recorded, unit: import('../format.js').Unit}} props */
function Growth({ played, unit }) {
  const growth = /** @type {import('../stacks.js').Growth | null} */ (useAnswer('recorded_growth', {}, played));
  if (!growth || growth.steps === 0) return null;
  const { steps, grows, samples } = growth;
  if (grows.length === 0) return <section class="card" id="growth" aria-labelledby="growth-title"><h2 id="growth-title">From step to step</h2><p class="sub">No stack holds more from step to step, over {fixed(steps)} steps.</p></section>;
  return (
    <section class="card is-growing" id="growth" aria-labelledby="growth-title">
      <h2 id="growth-title">Grows from step to step <small>over {fixed(steps)} steps; a leak, unless it is meant to</small></h2>
      <div class="scroll" tabIndex={0} role="region" aria-labelledby="growth-title">
        <table class="numbers">
          <thead><tr><th scope="col">Grew by</th><th scope="col">From</th><th scope="col">To</th><th scope="col" class="left">At each step</th><th scope="col" class="left">Stack</th></tr></thead>
          <tbody>{grows.map(({ stack, bytes }) => {
            const frames = framesOf(growth, stack);
            const [first, last] = [bytes[1], bytes[bytes.length - 1]];
            return (
              <tr key={stack}>
                <th scope="row"><Size n={last - first} unit={unit} /></th><td><Size n={first} unit={unit} /></td><td><Size n={last} unit={unit} /></td>
                <td class="left"><svg class="growth-line" width="90" height="18" role="img" aria-label={`${samples.length} steps`}>
                  <polyline points={bytes.slice(1).map((n, i) => `${(88 * i / Math.max(1, bytes.length - 2) + 1).toFixed(1)},${(16 - 14 * (n - first) / Math.max(1, last - first)).toFixed(1)}`).join(' ')} /></svg></td>
                <td class="left"><details class="twin"><summary><code data-tip={exact(last)}>{short(ownFrame(frames))}</code></summary><Frames list={frames} /></details></td>
              </tr>
            );
          })}</tbody>
        </table>
      </div>
    </section>
  );
}

/** @param {Props} props */
export default function Stacks(props) {
  if (!recording.value) return null;
  return <><Growth played={props.played} unit={props.unit} /><Bands {...props} /><FlameGraph played={props.played} event={props.event} unit={props.unit} /></>;
}
