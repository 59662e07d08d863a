// SPDX-License-Identifier: Apache-2.0
/* The allocator after an event: each segment as wide as its bytes, with its blocks and the gaps between them; and what is alive. */
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import { cellAt, cellPaths, cellWords, freeOf, hex, sourceOf } from '../events.js';
import { exact, fixed, natural, percent } from '../format.js';
import { factor, inOrder } from '../factors.js';
import { Frames, Size } from './frames.jsx';
import { fill, Swatch } from './marks.jsx';
import { showTable, Twin } from './Twin.jsx';

/** @typedef {import('../events.js').State} State */
/** @typedef {import('../events.js').Segment} Segment */
/** @typedef {import('../events.js').Cell} Cell */
/** @typedef {import('../events.js').Alive} Alive */
/** @typedef {import('../events.js').Source} Source */

const SETTLED_MS = 150;
const HIGH = 14;
const SHORT = 16; /* rows at first */

/** The state after an event; the last one until the next is there. @param {Source} source @param {number} at @param {string} filter */
function useAllocator(source, at, filter) {
  const [state, setState] = useState(/** @type {State | null} */ (null));
  const [problem, setProblem] = useState('');
  const [asked, setAsked] = useState(/** @type {unknown[]} */ ([]));
  useEffect(() => {
    let isWanted = true;
    const timer = setTimeout(async () => {
      try {
        const reply = await source.ask('state', { at, filter }, 'state');
        if (!isWanted || !reply) return;
        setProblem(reply.ok ? '' : reply.diagnostics?.[0]?.message ?? 'No answer came.');
        if (reply.ok) setState(reply);
        setAsked([source.key, at, filter]);
      } catch (error) {
        if (isWanted) setProblem(String(error instanceof Error ? error.message : error));
      }
    }, state ? SETTLED_MS : 0);
    return () => { isWanted = false; clearTimeout(timer); };
  }, [source.key, at, filter]);
  const isBusy = [source.key, at, filter].some((one, i) => one !== asked[i]);
  return { state, problem, isBusy };
}

/** @param {{source: Source, at: number, filter: string, choose: (event: number) => void, level: 2 | 3}} props */
export function Segments({ source, at, filter, choose, level }) {
  const { state, problem, isBusy } = useAllocator(source, at, filter);
  const Heading = /** @type {'h2' | 'h3'} */ (`h${level}`);
  const pools = useMemo(() => /** @type {const} */ (['large', 'small']).map((pool) => ({ pool, list: state?.segments.filter((one) => one.pool === pool) ?? [] })).filter(({ list }) => list.length > 0), [state]);
  if (problem && !state) return <p class="field-error">{problem}</p>;
  if (!state) return <p class="muted segments-wait" role="status">Working out the allocator…</p>;
  const unit = source.name(state.reserved);
  const free = state.reserved - state.allocated - state.waiting;
  return (
    <section class={`segments${isBusy ? ' is-slow' : ''}`} aria-busy={isBusy} aria-labelledby="segments-title">
      <Heading id="segments-title">The allocator after event {fixed(state.event)}</Heading>
      {state.failed_at !== undefined && <p class="sub">It ran out of memory at event {fixed(state.failed_at)}: this is how it was then.</p>}
      <dl class="facts segments-facts">
        <div><dt>Allocated</dt><dd><Size n={state.allocated} unit={unit} /></dd></div>
        <div><dt>Reserved</dt><dd><Size n={state.reserved} unit={unit} /></dd></div>
        <div><dt>Free in segments</dt><dd><Size n={free} unit={unit} /></dd></div>
        <div><dt>Largest gap</dt><dd><Size n={state.largest_free} unit={unit} /></dd></div>
        {state.waiting > 0 && <div><dt>Waiting for streams</dt><dd><Size n={state.waiting} unit={unit} /></dd></div>}
        <div><dt data-tip="torch.cuda.empty_cache() would give these back">In empty segments</dt><dd><Size n={state.idle.bytes} unit={unit} /></dd></div>
      </dl>
      <p class="sub segments-said">{fixed(state.live_count)} live blocks in {fixed(state.segment_count)} segments.
        {free > 0 && ` ${percent(free, state.reserved)} of what is reserved is free; a request above ${natural(state.largest_free, unit)} needs a new segment all the same.`}</p>
      {state.segment_count === 0 && <p class="muted">Nothing is reserved here.</p>}
      {pools.map(({ pool, list }) => <Pool key={pool} pool={pool} list={list} unit={unit} choose={choose} source={source} at={state.event} />)}
      {state.other_segments && (
        <p class="sub">And {fixed(state.other_segments.count)} more segments of <Size n={state.other_segments.bytes} unit={unit} />, of which <Size n={state.other_segments.live} unit={unit} /> are live.</p>
      )}
      <Key state={state} />
      <Twin title="Table of segments" tall>{() => <SegmentTable list={state.segments} unit={unit} />}</Twin>
      <AliveTable state={state} unit={unit} filter={filter} choose={choose} level={level} />
    </section>
  );
}

/** What the fills mean. @param {{state: State}} props */
function Key({ state }) {
  const cells = state.segments.flatMap((segment) => segment.cells);
  const factors = inOrder([...new Set(cells.map((cell) => cell.factor).filter((name) => name !== undefined))]);
  const isRecorded = factors.length === 0;
  return (
    <p class="segments-key" aria-hidden="true">
      {isRecorded && <span><Box kind="allocated" />live</span>}
      {factors.map((name) => <span key={name}><Swatch name={/** @type {string} */ (name)} />{factor(/** @type {string} */ (name)).title}</span>)}
      <span><Box kind="free" />free</span>
      {cells.some((cell) => cell.state === 'waiting') && <span><Box kind="waiting" />waiting for a stream</span>}
      {cells.some((cell) => cell.state === 'several') && <span><Box kind="several" />small blocks, some of them free</span>}
    </p>
  );
}

/** @param {string} kind */
const lookOf = (kind) => (kind === 'waiting' ? { class: 'mark cell-waiting', fill: 'url(#cross)' } : kind === 'several' ? { class: 'mark cell-several', fill: 'url(#work)' }
  : kind === 'allocated' ? { class: 'mark f-allocated' } : kind === 'free' ? { class: 'cell-free' } : fill(kind));

/** @param {{kind: string}} props */
const Box = ({ kind }) => <svg class="swatch" width="12" height="12"><rect width="12" height="12" rx="2.5" {...lookOf(kind)} /></svg>;

/** The segments of one pool, on one scale. @param {{pool: 'large' | 'small', list: Segment[], unit: import('../format.js').Unit, choose: (event: number) => void,
 *   source: Source, at: number}} props */
function Pool({ pool, list, unit, choose, source, at }) {
  const [all, setAll] = useState(false);
  const [chosen, setChosen] = useState(/** @type {{of: Segment[], place: [row: number, cell: number]} | null} */ (null));
  const place = chosen?.of === list ? chosen.place : null; /* of these segments */
  const setPlace = (/** @type {[row: number, cell: number] | null} */ to) => setChosen(to && { of: list, place: to });
  const box = useRef(/** @type {HTMLDivElement | null} */ (null));
  const isMoving = useRef(false); /* by a key: the focus follows */
  const widest = Math.max(...list.map(({ bytes }) => bytes));
  const rows = all ? list : list.slice(0, SHORT);
  const row = Math.min(rows.length - 1, place?.[0] ?? 0);
  const segment = rows[row];
  const nth = Math.min(segment.cells.length - 1, place?.[1] ?? 0);
  const cell = segment.cells[nth];
  const count = list.reduce((sum, one) => sum + (one.count ?? 1), 0);
  const size = (/** @type {number} */ bytes) => natural(bytes, unit);
  useLayoutEffect(() => {
    if (isMoving.current) /** @type {HTMLElement | null | undefined} */ (box.current?.querySelector('[tabindex="0"]'))?.focus();
    isMoving.current = false;
  }, [row]);

  /** @param {KeyboardEvent} event */
  function key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const to = { ArrowDown: [row + 1, 0], ArrowUp: [row - 1, 0], ArrowRight: [row, nth + 1], ArrowLeft: [row, nth - 1], Home: [row, 0], End: [row, segment.cells.length - 1],
      PageDown: [row + 8, 0], PageUp: [row - 8, 0] }[event.key];
    if (to) {
      const next = Math.max(0, Math.min(rows.length - 1, to[0]));
      isMoving.current = next !== row;
      setPlace([next, Math.max(0, Math.min(rows[next].cells.length - 1, to[1]))]);
    } else if (event.key === 'Enter' && cell.event !== undefined) choose(cell.event);
    else if (event.key === 't') showTable(event);
    else return;
    event.preventDefault();
  }
  /** @param {PointerEvent} event @param {number} index */
  function point(event, index) {
    const of = /** @type {HTMLElement} */ (event.currentTarget).getBoundingClientRect();
    setPlace([index, cellAt(rows[index], (event.clientX - of.left) / Math.max(1, of.width))]);
  }
  return (
    <div class="pool">
      <p class="pool-head"><b>{pool === 'large' ? 'Large pool' : 'Small pool'}</b> <span class="muted">{fixed(count)} segment{count === 1 ? '' : 's'}, {size(list.reduce((sum, one) => sum + one.bytes * (one.count ?? 1), 0))}; width is bytes, most free memory first</span></p>
      <div ref={box} class="pool-rows" role="group" aria-label={`${pool === 'large' ? 'Large' : 'Small'} pool: up and down move between segments, left and right between blocks, Enter goes to the event that took one`}
        onKeyDown={key} onPointerLeave={() => setPlace(null)}>
        {rows.map((one, index) => {
          const isAt = index === row;
          const shown = isAt && place ? one.cells[nth] : null;
          return (
            <div key={one.address} class="segment">
              <span class="segment-size"><Size n={one.bytes} unit={unit} />{(one.count ?? 1) > 1 && <b>×{fixed(one.count ?? 1)}</b>}</span>
              <div class="segment-plot" ref={(plot) => { if (plot) plot.style.inlineSize = `max(6px, ${((100 * one.bytes) / widest).toFixed(3)}%)`; }} role="slider" tabIndex={isAt ? 0 : -1}
                aria-label={`Segment ${hex(one.address)}, ${size(one.bytes)}${(one.count ?? 1) > 1 ? `, ${one.count} alike` : ''}, ${size(freeOf(one))} free`}
                aria-valuemin={1} aria-valuemax={one.cells.length} aria-valuenow={isAt ? nth + 1 : 1} aria-valuetext={cellWords(one.cells[isAt ? nth : 0], size)}
                onFocus={() => { if (!place || place[0] !== index) setPlace([index, 0]); }} onPointerMove={(event) => point(event, index)}
                onClick={() => { if (shown?.event !== undefined) choose(shown.event); }}>
                <svg width="100%" height={HIGH} viewBox={`0 0 1000 ${HIGH}`} preserveAspectRatio="none" aria-hidden="true">
                  <rect class="cell-free" width="1000" height={HIGH} />
                  {cellPaths(one, HIGH).map(([kind, d]) => <path key={kind} {...lookOf(kind)} d={d} />)}
                  <path class="cell-edges" d={one.cells.slice(1).map((each) => `M${((1000 * each.at) / one.bytes).toFixed(2)} 0V${HIGH}`).join('')} />
                  {shown && <rect class="cell-outline" x={(1000 * shown.at) / one.bytes} width={(1000 * shown.bytes) / one.bytes} y="0" height={HIGH} />}
                </svg>
              </div>
              <span class="segment-free muted">{freeOf(one) > 0 ? <><Size n={freeOf(one)} unit={unit} /> free</> : 'full'}</span>
            </div>
          );
        })}
      </div>
      {list.length > rows.length && <button type="button" class="button small more-rows" onClick={() => setAll(true)}>Show all {fixed(list.length)} rows</button>}
      <p class="readout segment-readout">
        {place ? <>
          <b>{hex(segment.address + cell.at)}</b> <span>{cellWords(cell, size)}</span> <code class="muted">{sourceOf(cell)}</code>
        </> : <span class="muted">Point at a block, or move to it with the arrow keys.</span>}
      </p>
      <Twin title={`Table of the blocks in segment ${hex(segment.address)}`} tall>{() => <BlockTable key={segment.address} source={source} at={at} segment={segment} unit={unit} choose={choose} />}</Twin>
    </div>
  );
}

/** @param {{list: Segment[], unit: import('../format.js').Unit}} props */
const SegmentTable = ({ list, unit }) => (
  <table class="numbers">
    <thead><tr><th scope="col" class="left">Segment</th><th scope="col" class="left">Pool</th><th scope="col">Stream</th><th scope="col">Size</th><th scope="col">Count</th>
      <th scope="col">Blocks</th><th scope="col">Live</th><th scope="col">Free</th><th scope="col">Largest gap</th></tr></thead>
    <tbody>{list.map((one) => (
      <tr key={one.address}><th scope="row" class="left"><code>{hex(one.address)}</code></th><td class="left">{one.pool}{one.is_expandable && ', expandable'}</td><td>{one.stream}</td>
        <td><Size n={one.bytes} unit={unit} /></td><td>{fixed(one.count ?? 1)}</td><td>{fixed(one.blocks)}</td><td><Size n={one.live} unit={unit} /></td>
        <td><Size n={freeOf(one)} unit={unit} /></td><td><Size n={one.largest_free} unit={unit} /></td></tr>
    ))}</tbody>
  </table>
);

/** @param {{source: Source, at: number, segment: Segment, unit: import('../format.js').Unit, choose: (event: number) => void}} props */
function BlockTable({ source, at, segment, unit, choose }) {
  const [blocks, setBlocks] = useState(/** @type {Cell[] | null} */ (null));
  useEffect(() => {
    let isWanted = true;
    setBlocks(null);
    source.ask('state', { at, segment: segment.address }, 'blocks').then((reply) => { if (isWanted && reply?.ok) setBlocks(reply.blocks); }, () => {});
    return () => { isWanted = false; };
  }, [source.key, at, segment.address]);
  if (!blocks) return <p class="muted">Working it out…</p>;
  return (
    <>
      <table class="numbers">
        <thead><tr><th scope="col" class="left">Block</th><th scope="col">Size</th><th scope="col">Asked for</th><th scope="col" class="left">State</th><th scope="col">Since event</th><th scope="col" class="left">From</th></tr></thead>
        <tbody>{blocks.map((one) => (
          <tr key={one.at}><th scope="row" class="left"><code>{hex(segment.address + one.at)}</code></th><td><Size n={one.bytes} unit={unit} /></td>
            <td>{one.requested !== undefined && exact(one.requested).replace(' bytes', ' B')}</td><td class="left">{one.factor && <Swatch name={one.factor} />}{one.state}</td>
            <td>{one.event !== undefined ? <button type="button" class="link" onClick={() => choose(/** @type {number} */ (one.event))}>{fixed(one.event)}</button> : one.state === 'live' ? 'before' : ''}</td>
            <td class="left events-from"><code>{sourceOf(one)}</code></td></tr>
        ))}</tbody>
      </table>
      {segment.blocks > blocks.length && <p class="sub">The first {fixed(blocks.length)} of {fixed(segment.blocks)} blocks.</p>}
    </>
  );
}

/** What holds most, equal blocks of one origin together. @param {{state: State, unit: import('../format.js').Unit, filter: string, choose: (event: number) => void, level: number}} props */
function AliveTable({ state, unit, filter, choose, level }) {
  const [all, setAll] = useState(false);
  const groups = /** @type {Alive[]} */ (state.alive.filter((one) => one.rest === undefined));
  const rest = /** @type {{rest: number} | undefined} */ (state.alive.find((one) => one.rest !== undefined))?.rest ?? 0;
  const shown = all ? groups : groups.slice(0, 10);
  const Heading = /** @type {'h2' | 'h3'} */ (`h${level}`);
  return (
    <>
      <Heading id="alive-title">Alive after event {fixed(state.event)} <small>equal blocks of one origin together{filter && `; those with “${filter}”`}</small></Heading>
      <div class="scroll" tabIndex={0} role="group" aria-labelledby="alive-title">
        <table class="numbers tensors alive">
          <thead><tr><th scope="col">Total</th><th scope="col">Count × each</th><th scope="col">Since event</th><th scope="col" class="left">From</th></tr></thead>
          <tbody>
            {shown.map((one) => (
              <tr key={one.address}>
                <th scope="row" class="total"><Size n={one.bytes} unit={unit} /></th>
                <td>{fixed(one.count)} × <Size n={one.each} unit={unit} /></td>
                <td>{one.event === undefined ? 'before' : <button type="button" class="link" onClick={() => choose(/** @type {number} */ (one.event))}>{fixed(one.event)}</button>}</td>
                <td class="left from">
                  {one.frames && one.frames.length > 1 ? <details class="twin"><summary><code>{sourceOf(one)}</code></summary><Frames list={one.frames} /></details>
                    : one.op !== undefined ? <><span class="from-head"><Swatch name={one.factor ?? ''} />{factor(one.factor ?? '').title} <code>{one.op}</code> <span class="muted">{one.module}</span></span></>
                      : <code>{sourceOf(one) || 'no frame was recorded'}</code>}
                </td>
              </tr>
            ))}
            {shown.length === 0 && <tr><td colSpan={4} class="left muted">{filter ? 'Nothing with this text is alive here.' : 'Nothing is alive here.'}</td></tr>}
          </tbody>
          {rest > 0 && (all || groups.length <= 10) && <tfoot><tr><th scope="row" class="total"><Size n={rest} unit={unit} /></th><td colSpan={3} class="left muted">everything else</td></tr></tfoot>}
        </table>
      </div>
      {groups.length > shown.length && <button type="button" class="button small more-rows" aria-expanded={all} onClick={() => setAll(true)}>Show all {groups.length}</button>}
    </>
  );
}
