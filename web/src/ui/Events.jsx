// SPDX-License-Identifier: Apache-2.0
/* Events one by one, of a job or a recording: what each took or gave back, who asked for it, and the allocator after it. */
import { useEffect, useRef, useState } from 'preact/hooks';
import { ASKED, hex, KIND_HELP, kindOf, SEEN, seenRows, sizeOf, sourceOf, wholeSource } from '../events.js';
import { exact, fixed, inUnit, natural } from '../format.js';
import { addStyle } from '../sheet.js';
import { factor } from '../factors.js';
import { spoken } from '../state.js';
import style from './events.css';
import { Icon, Swatch } from './marks.jsx';
import { Segments } from './Segments.jsx';
import { Frames, Size } from './frames.jsx';

/** @typedef {import('../events.js').Source} Source */
/** @typedef {import('../events.js').EventRow} EventRow */
/** @typedef {import('../events.js').EventWindow} EventWindow */

addStyle(style);

const SETTLED_MS = 120;

/** The window around an event, asked for again where its end comes near. @param {Source} source @param {number} at @param {string} filter */
function useRows(source, at, filter) {
  const [window, setWindow] = useState(/** @type {(EventWindow & {of: string}) | null} */ (null));
  const [problem, setProblem] = useState('');
  const of = useRef({ key: /** @type {unknown} */ (null), count: 0 });
  if (of.current.key !== source.key) of.current = { key: source.key, count: of.current.count + 1 };
  const key = `${of.current.count} ${filter}`;
  const isOther = window?.of !== key;
  const wants = isOther || !window || seenRows(window, at).wantsMore;
  useEffect(() => {
    if (!wants) return;
    let isWanted = true;
    const timer = setTimeout(async () => {
      try {
        const reply = await source.ask('events', { at, count: ASKED, filter }, 'events');
        if (!isWanted || !reply) return;
        setProblem(reply.ok ? '' : reply.diagnostics?.[0]?.message ?? 'No answer came.');
        if (reply.ok) setWindow({ ...reply, of: key });
      } catch (error) {
        if (isWanted) setProblem(String(error instanceof Error ? error.message : error));
      }
    }, isOther && window ? SETTLED_MS : 0);
    return () => { isWanted = false; clearTimeout(timer); };
  }, [key, wants, wants && at]);
  return { window, isBusy: isOther, problem };
}

/** @param {{source: Source, at: number, choose: (event: number) => void, level?: 2 | 3}} props at: the event that is looked at */
export default function Events({ source, at, choose, level = 3 }) {
  const [filter, setFilter] = useState('');
  const [typed, setTyped] = useState(/** @type {string | null} */ (null)); /* into the field of the number */
  const { window, isBusy, problem } = useRows(source, at, filter);
  const seen = window && seenRows(window, at);
  const rows = seen?.rows ?? [];
  const chosen = rows[seen?.at ?? -1];
  const isThere = chosen?.event === at;
  /* With a filter, only what passes is stepped to. */
  const next = window && !isBusy && !seen?.wantsMore && chosen && !isThere ? chosen.event : -1;
  useEffect(() => { if (next >= 0) choose(next); }, [next]);
  const unit = source.name(chosen?.reserved ?? 0);
  const hasStreams = window?.rows.some(({ stream = 0 }) => stream > 0);
  const Heading = /** @type {'h2' | 'h3'} */ (`h${level}`);

  /** One row on or back among those that pass. @param {number} by */
  function step(by) {
    if (!window || !seen) return;
    const index = window.rows.findIndex((row) => row.event >= at);
    const from = index < 0 ? window.rows.length : !isThere && by > 0 ? index - 1 : index;
    const to = window.rows[Math.max(0, Math.min(window.rows.length - 1, from + by))];
    if (to) choose(to.event);
  }
  const end = (/** @type {boolean} */ isLast) => choose(isLast ? source.events - 1 : 0);

  /** @param {KeyboardEvent} event */
  function key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const by = { ArrowDown: 1, ArrowUp: -1, ArrowRight: 1, ArrowLeft: -1, ']': 1, '[': -1, PageDown: SEEN, PageUp: -SEEN }[event.key];
    if (by !== undefined) step(by);
    else if (event.key === 'Home' || event.key === 'End') end(event.key === 'End');
    else if (event.key === 'p') choose(source.peak);
    else if (event.key === 'Enter' && chosen?.other !== undefined) choose(chosen.other);
    else return;
    event.preventDefault();
  }
  function go() {
    const wanted = Number((typed ?? '').replaceAll(/[\s,.]/g, ''));
    if (typed && Number.isFinite(wanted)) choose(Math.max(0, Math.min(source.events - 1, Math.round(wanted))));
    setTyped(null);
  }

  return (
    <div class="events">
      <div class="events-tools" role="group" aria-label="Step through events">
        <button type="button" class="icon-button" onClick={() => step(-1)} aria-label="Event before" data-tip="The event before  ↑"><Icon name="left" /></button>
        <button type="button" class="icon-button" onClick={() => step(1)} aria-label="Next event" data-tip="The next event  ↓"><Icon name="right" /></button>
        <label class="events-number">Event <input type="text" inputMode="numeric" autocomplete="off" value={typed ?? fixed(at)} aria-label="Number of the event"
          onFocus={(event) => event.currentTarget.select()} onInput={(event) => setTyped(event.currentTarget.value)} onChange={go}
          onKeyDown={(event) => { if (event.key === 'Enter') go(); }} /></label>
        <span class="muted events-count">of {fixed(source.events)}</span>
        <button type="button" class="button small" onClick={() => choose(source.peak)} data-tip="To the peak  p">Peak</button>
        <label class="events-filter"><span class="hidden">Only events with this text</span><Icon name="search" />
          <input type="text" spellcheck={false} autocomplete="off" placeholder="Filter: a file, function, module, free…" value={filter}
            onInput={(event) => setFilter(event.currentTarget.value)} /></label>
        {filter && <span class="muted events-count" role="status">{isBusy ? '…' : `${fixed(window?.passing ?? 0)} pass`}</span>}
      </div>
      {problem && <p class="field-error">{problem}</p>}
      <div class="events-pair">
        <div class={`scroll events-list${isBusy ? ' is-slow' : ''}`}>
          <table class="numbers" role="grid" tabIndex={0} aria-label="Events. Arrows step, Enter goes to where the block is freed or taken." aria-rowcount={window?.passing}
            aria-activedescendant={chosen ? `event-${chosen.event}` : undefined} onKeyDown={key}>
            <thead><tr><th scope="col">Event</th><th scope="col" class="left">What</th><th scope="col">Size</th>{hasStreams && <th scope="col">Stream</th>}
              <th scope="col" class="events-wide">Allocated, {unit}</th><th scope="col" class="left">From</th></tr></thead>
            <tbody>
              {rows.map((row) => {
                const isAt = row === chosen;
                const size = sizeOf(row);
                return (
                  <tr key={row.event} id={`event-${row.event}`} class={`${isAt ? 'at' : ''} k-${row.kind}`} aria-selected={isAt} onClick={() => choose(row.event)}>
                    <th scope="row">{fixed(row.event)}</th>
                    <td class="left">{row.factor && <Swatch name={row.factor} />}{kindOf(row)}</td>
                    <td>{size !== undefined && <Size n={size} unit={unit} />}</td>
                    {hasStreams && <td>{row.stream}</td>}
                    <td class="events-wide">{row.allocated === undefined ? <span class="muted">not replayed</span> : <span class="bytes" data-tip={exact(row.allocated)}>{inUnit(row.allocated, unit)}</span>}</td>
                    <td class="left events-from"><code data-tip={wholeSource(row)}>{sourceOf(row)}</code></td>
                  </tr>
                );
              })}
              {window && rows.length === 0 && <tr><td colSpan={6} class="left muted">No event has this text.</td></tr>}
            </tbody>
          </table>
        </div>
        <div class="events-one">
          {chosen && <One row={chosen} isAt={isThere} frames={window?.stacks?.[chosen.stack ?? -1]} unit={unit} choose={choose} peak={source.peak} Heading={Heading} />}
        </div>
      </div>
      <Segments source={source} at={at} filter={filter} choose={(event) => { choose(event); spoken.value = `Event ${fixed(event)}`; }} level={level} />
    </div>
  );
}

/** All that is known of one event.
 * @param {{row: EventRow, isAt: boolean, frames?: string[], unit: import('../format.js').Unit, choose: (event: number) => void, peak: number, Heading: 'h2' | 'h3'}} props */
function One({ row, frames, unit, choose, peak, Heading }) {
  const size = sizeOf(row);
  const isTaken = row.kind === 'alloc';
  const when = [row.phase && (row.step ? `step ${row.step}, ${row.phase}` : row.phase), row.us !== undefined && row.us > 0 && `after ${fixed(row.us / 1e6, 3)} s`, row.event === peak && 'the peak'];
  const help = KIND_HELP[/** @type {keyof typeof KIND_HELP} */ (row.kind)];
  return (
    <>
      <Heading class="event-title">Event {fixed(row.event)} {kindOf(row)}{size !== undefined && <>{' '}<Size n={size} unit={unit} /></>}</Heading>
      <p class="muted">{when.filter(Boolean).join(', ')}</p>
      {help && <p class="sub">{help}</p>}
      <dl class="event-facts">
        {row.requested !== undefined && <div><dt>Asked for</dt><dd>{exact(row.requested)}</dd></div>}
        {row.bytes !== undefined && row.bytes !== row.requested && <div><dt>Block of</dt><dd>{exact(row.bytes)}</dd></div>}
        {row.address !== undefined && <div><dt>Block</dt><dd><code>{hex(row.address)}</code> in segment <code>{hex(row.segment ?? 0)}</code></dd></div>}
        {row.stream !== undefined && <div><dt>Stream</dt><dd>{row.stream}</dd></div>}
        {row.kind !== 'oom' && row.kind !== 'empty_cache' && (
          <div><dt>{isTaken ? 'Freed' : 'Taken'}</dt><dd>{row.other === undefined ? (isTaken ? 'not before the end' : 'before the recording began')
            : <>at <button type="button" class="link" onClick={() => choose(/** @type {number} */ (row.other))}>event {fixed(row.other)}</button>, {fixed(Math.abs(row.other - row.event))} {Math.abs(row.other - row.event) === 1 ? 'event' : 'events'} {isTaken ? 'later' : 'earlier'}</>}</dd></div>
        )}
        {row.allocated !== undefined && <div><dt>Then allocated</dt><dd><Size n={row.allocated} unit={unit} /></dd></div>}
        {row.reserved !== undefined && <div><dt>Then reserved</dt><dd><Size n={row.reserved} unit={unit} /></dd></div>}
        {row.factor && <div><dt>Counts as</dt><dd><Swatch name={row.factor} /> {factor(row.factor).title.toLowerCase()}</dd></div>}
        {row.shape && row.shape.length > 0 && <div><dt>Shape</dt><dd>{row.shape.map(({ n, name }) => (name ? `${fixed(n)} ${name}` : fixed(n))).join(' × ')} × {row.dtype}</dd></div>}
        {row.op && <div><dt>By</dt><dd><code>{row.op}</code>{row.module && <> in <code>{row.module}</code></>}</dd></div>}
      </dl>
      {row.line && <code class="line">{row.line}</code>}
      {frames && <Frames list={frames} />}
      {row.frame === undefined && row.op === undefined && row.kind !== 'empty_cache' && <p class="muted">No stack was recorded with it.</p>}
    </>
  );
}
