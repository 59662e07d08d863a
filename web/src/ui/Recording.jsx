// SPDX-License-Identifier: Apache-2.0
/* A recorded run: whether it runs on a GPU, memory over its events, other allocator options, and what was live at the peak. */
import { area, curveStepAfter, line } from 'd3-shape';
import { useEffect, useState } from 'preact/hooks';
import { exact, fixed, headline, inUnit, natural, tick, ticks } from '../format.js';
import { askRecording, closeRecording, recording, replay } from '../recordings.js';
import { addStyle } from '../sheet.js';
import { describe, unit } from '../state.js';
import { useWidth } from './hooks.js';
import { Lazy } from './lazy.jsx';
import style from './recording.css';
import './whatif.js';
import { fill, Icon } from './marks.jsx';
import { Diagnostics } from './Notes.jsx';
import { Picker } from './Picker.jsx';
import { showTable, Twin } from './Twin.jsx';
import { Minimap, useBrush, useWindow, Zoom } from './zoom.jsx';

/** @typedef {import('../types.js').Recorded} Recorded */
/** @typedef {import('../recordings.js').Recording} Opened */

addStyle(style);

const HIGH = 190;
const ACROSS = 1000;

/* Small runs are read in MiB. */
const shownUnit = () => (unit.value === 'GiB' && (recording.value?.reply?.reserved_peak ?? 0) < 2 ** 30 ? 'MiB' : unit.value);

/** A size in the chosen unit; exact bytes on hover. @param {{n: number, style?: 'table' | 'headline' | 'natural', named?: boolean}} props */
function Bytes({ n, style = 'table', named: isNamed = false }) {
  const shown = style === 'natural' ? natural(n, shownUnit()) : style === 'headline' ? headline(n, shownUnit()) : inUnit(n, shownUnit());
  return <span class="bytes" data-tip={exact(n)}>{shown}{isNamed && style !== 'natural' ? ` ${shownUnit()}` : ''}</span>;
}

/** @param {string} conf */
const named = (conf) => conf || 'PyTorch’s defaults';

/** @param {{of: Opened}} props */
function Head({ of }) {
  const r = of.reply;
  const words = r ? [r.recording.format, `${fixed(r.recording.requests)} requests, ${fixed(r.recording.frees)} frees`,
    r.recording.devices > 1 && `device ${r.recording.device} of ${r.recording.devices}`, r.recording.is_estimate && 'an estimate of the run on a GPU'] : [];
  return (
    <div class="job">
      <h2 class="job-name">{of.name}<span class="tag">recording</span></h2>
      <p class="job-words">{words.filter(Boolean).map((word) => <span key={word}>{word}</span>)}</p>
      <div class="recording-actions">
        <button type="button" class="button" onClick={() => document.getElementById('chooser')?.click()}><Icon name="file" />Open another</button>
        <button type="button" class="button recording-close" onClick={closeRecording}><Icon name="cross" />Close the recording</button>
      </div>
    </div>
  );
}

/** The GPU by its title. @param {Opened} of */
const cardTitle = (of) => describe.value?.gpus.find(({ name }) => name === of.words.gpu)?.title;

/** @param {{of: Opened, r: Recorded}} props */
function Verdict({ of, r }) {
  const { fits, gpu_bytes: whole = 0, smallest_device_bytes: smallest, oom } = r.verdict;
  const card = cardTitle(of) ?? (whole ? `a device of ${natural(whole, shownUnit())}` : '');
  const kind = fits === null ? 'none' : fits ? 'fits' : 'not';
  return (
    <section class={`card verdict is-${kind}`} aria-labelledby="recorded-verdict">
      <div class="verdict-head">
        <div class="verdict-number">
          <h2 id="recorded-verdict" class="hidden">Memory that the run reserves</h2>
          <p class="big"><Bytes n={r.reserved_peak} style="headline" /> <span class="big-unit">{shownUnit()}</span></p>
          <p class="sub">reserved at most{r.verdict.outside_bytes > 0 && <>, and <Bytes n={r.verdict.outside_bytes} style="natural" /> outside of the allocator</>}</p>
        </div>
        <div class="verdict-words">
          <p class="pill"><Icon name={kind === 'none' ? 'info' : fits ? 'check' : 'cross'} />
            {kind === 'none' ? 'No GPU chosen' : `${fits ? 'Runs' : 'Does not run'} on ${card}`}</p>
          <p class="sub strong">The smallest device it runs on has <Bytes n={smallest} style="natural" /></p>
        </div>
        <dl class="facts">
          <div><dt>Allocated</dt><dd><Bytes n={r.allocated_peak} named /></dd></div>
          <div><dt>Not in use at the reserved peak</dt><dd><Bytes n={r.reserved_peak - r.fragmentation.allocated_at_reserved_peak} named /></dd></div>
          <div><dt>Retries</dt><dd>{fixed(r.retries)}</dd></div>
        </dl>
      </div>
      {oom && (
        <p class="oom"><b>Out of memory at event {fixed(oom.event)}:</b> <Bytes n={oom.tried} style="natural" /> wanted, <Bytes n={oom.free} style="natural" /> free.
          {oom.frames?.[0] && <code class="oom-line">{oom.frames[0]}</code>}</p>
      )}
      <Bar of={of} r={r} />
    </section>
  );
}

const BAR = 30;

/** @param {{of: Opened, r: Recorded}} props */
function Bar({ of, r }) {
  const [ref, width] = useWidth('.bar', 1020);
  const whole = r.verdict.gpu_bytes ?? 0;
  const parts = [
    { title: 'allocated', class: 'mark f-allocated', bytes: r.allocated_peak },
    { title: 'reserved besides', ...fill('fragmentation'), bytes: Math.max(0, r.reserved_peak - r.allocated_peak) },
    { title: 'outside of the allocator', ...fill('context'), bytes: r.verdict.outside_bytes },
  ].filter(({ bytes }) => bytes > 0);
  const used = parts.reduce((all, { bytes }) => all + bytes, 0);
  const top = Math.max(whole, used, 1);
  const share = (/** @type {number} */ bytes) => `${((100 * bytes) / top).toFixed(3)}%`;
  const marks = ticks(top, shownUnit(), Math.max(3, Math.min(9, Math.round(width / 90))));
  let at = 0;
  return (
    <div ref={ref} class="bar">
      <svg width="100%" height={BAR + 26} role="img" aria-label={`${cardTitle(of) ?? 'Memory'}: ${parts.map((p) => `${p.title} ${natural(p.bytes, shownUnit())}`).join(', ')}`}>
        <rect class="bar-track" x="0" y="0" width={share(whole || used)} height={BAR} rx="4" />
        {parts.map(({ title, bytes, ...look }) => {
          const from = at;
          at += bytes;
          return <rect key={title} {...look} x={share(from)} y="0" width={share(bytes)} height={BAR} data-tip={`${title}: ${fixed(bytes)} bytes`} />;
        })}
        {whole > 0 && <line class="bar-limit" x1={share(whole)} x2={share(whole)} y1="-3" y2={BAR + 3} />}
        <g class="axis">{marks.map((mark) => (
          <text key={mark} x={share(mark)} y={BAR + 18} text-anchor={mark === 0 ? 'start' : mark > 0.95 * top ? 'end' : 'middle'}>{tick(mark, shownUnit())}</text>))}</g>
      </svg>
    </div>
  );
}

/** @param {{of: Opened, r: Recorded}} props */
function Controls({ of, r }) {
  const [typed, setTyped] = useState(of.words.allocator ?? r.recording.allocator);
  const cards = [{ name: '', title: 'As recorded', note: '', search: 'as recorded none' }, ...describe.value?.gpus ?? []];
  const error = of.problem?.map(({ message, remedy }) => [message, remedy].filter(Boolean).join('; ')).join(' ');
  return (
    <form class="card recording-controls" aria-label="Play it on" onSubmit={(event) => { event.preventDefault(); replay({ allocator: typed.trim() }); }}>
      <Picker id="recorded-gpu" label="GPU" word="gpu" choices={cards} value={of.words.gpu ?? ''} shown={cardTitle(of) ?? 'As recorded'}
        empty="Not in the list." choose={(name) => replay({ gpu: name })} />
      <div class="field">
        <div class="label-row"><label for="recorded-allocator">Allocator options</label><code>allocator</code></div>
        <div class="recording-conf">
          <input id="recorded-allocator" type="text" value={typed} spellcheck={false} autocomplete="off" aria-invalid={!!error}
            aria-describedby={error ? 'recorded-error' : undefined} onInput={(event) => setTyped(event.currentTarget.value)} />
          <button class="button" type="submit">Play</button>
        </div>
        {error && <p class="field-error" id="recorded-error">{error}</p>}
      </div>
      {r.recording.devices > 1 && (
        <div class="field">
          <div class="label-row"><label for="recorded-device">Recorded device</label></div>
          <select id="recorded-device" value={String(r.recording.device)} onChange={(event) => replay({}, Number(event.currentTarget.value))}>
            {Array.from({ length: r.recording.devices }, (_, i) => <option key={i} value={String(i)}>{i}</option>)}
          </select>
        </div>
      )}
    </form>
  );
}

/** @param {{r: Recorded, event: number, choose: (event: number) => void, part: import('./zoom.jsx').Part<Recorded['timeline']>}} props event: the one that is looked at; part: of the run, that is seen */
function Curve({ r, event: looked, choose, part: { curve: t, from: first, to: end, window: seen, zoom } }) {
  const { events } = r.timeline;
  const [at, setAt] = useState(-1);
  const { columns } = t;
  const columnOf = (/** @type {number} */ event) => Math.max(0, columns.findLastIndex(({ from }) => from <= event));
  const share = (/** @type {number} */ event) => Math.min(1, Math.max(0, (event - first) / (end - first)));
  const isIn = (/** @type {number} */ event) => event >= first && event < end;
  const endOf = (/** @type {number} */ column) => columns[column + 1]?.from ?? end;
  const hasPeak = (/** @type {number} */ column) => r.peak_event >= columns[column].from && r.peak_event < endOf(column);
  /** @param {number} to a column */
  const look = (to) => choose(hasPeak(to) ? r.peak_event : columns[to].from);
  const { brush, handlers } = useBrush({ first, end, zoom, hover: (event) => setAt(event === null ? -1 : columnOf(event)), pick: (event) => look(columnOf(event)) });
  useEffect(() => { if (!isIn(looked)) zoom(looked - (end - first) / 2, looked + (end - first) / 2); }, [looked]);
  if (columns.length === 0) return null;
  const shown = at >= 0 && at < columns.length ? at : columnOf(Math.min(end - 1, Math.max(first, looked)));
  const column = columns[shown];
  const isPeak = at >= 0 ? hasPeak(shown) : looked === r.peak_event && isIn(looked);
  const here = at >= 0 || !isIn(looked) ? column.from : looked;
  const limit = r.verdict.gpu_bytes && r.verdict.gpu_bytes - r.verdict.outside_bytes < 1.45 * r.reserved_peak ? r.verdict.gpu_bytes - r.verdict.outside_bytes : 0;
  const top = Math.max(r.reserved_peak, r.allocated_peak, limit, 1) * 1.04;
  const x = (/** @type {number} */ event) => ACROSS * (event - first) / (end - first);
  const y = (/** @type {number} */ bytes) => HIGH * (1 - bytes / top);
  const rows = [...columns, { ...columns[columns.length - 1], from: end }];
  const allocated = area().curve(curveStepAfter).digits(1).x((_, i) => x(rows[i].from)).y0(HIGH).y1((_, i) => y(rows[i].allocated));
  const reserved = line().curve(curveStepAfter).digits(1).x((_, i) => x(rows[i].from)).y((_, i) => y(rows[i].reserved));
  const pc = (/** @type {number} */ event) => `${(100 * share(event)).toFixed(3)}%`;
  const marks = ticks(top, shownUnit(), 5);

  /** @param {number} by */
  const scale = (by) => zoom(here - (seen.to - seen.from) * by / 2, here + (seen.to - seen.from) * by / 2);
  /** @param {KeyboardEvent} event */
  function key(event) {
    const big = Math.max(1, Math.round(columns.length / 20));
    const to = { ArrowRight: shown + 1, ArrowUp: shown + 1, ArrowLeft: shown - 1, ArrowDown: shown - 1, PageUp: shown + big, PageDown: shown - big,
      Home: 0, End: columns.length - 1 }[event.key];
    const isWhole = end - first >= events;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (to !== undefined) {
      setAt(-1);
      if (to < 0) choose(Math.max(0, first - 1));
      else if (to >= columns.length) choose(Math.min(events - 1, end));
      else look(to);
    } else if (event.key === 't') showTable(event);
    else if (event.key === '+' || event.key === '=') scale(0.25);
    else if (event.key === '-') scale(4);
    else if (event.key === 'Escape' && !isWhole) zoom(0, events);
    else if (event.key === 'Escape' || event.key === 'p') choose(r.peak_event);
    else return;
    event.preventDefault();
  }

  return (
    <section class="card" id="timeline" aria-labelledby="recorded-curve">
      <h2 id="recorded-curve">Over the run <small>{fixed(events)} requests and frees</small></h2>
      <div class="timeline">
        <svg class="axis timeline-y" width="44" height={HIGH} aria-hidden="true">
          {marks.map((mark) => <text key={mark} x="38" y={y(mark).toFixed(1)} dy={mark === 0 ? '0' : '0.35em'} text-anchor="end">{tick(mark, shownUnit())}</text>)}
        </svg>
        <div class="plot" role="slider" tabIndex={0} aria-label="Memory over the run" aria-valuemin={0} aria-valuemax={columns.length - 1} aria-valuenow={shown}
          aria-valuetext={`Event ${fixed(here)}: ${inUnit(column.allocated, shownUnit())} ${shownUnit()} allocated, ${inUnit(column.reserved, shownUnit())} reserved`}
          {...handlers} onKeyDown={key} onBlur={() => setAt(-1)}>
          <svg width="100%" height={HIGH} aria-hidden="true">
            {marks.map((mark) => <line key={mark} class="grid" x1="0" x2="100%" y1={y(mark).toFixed(1)} y2={y(mark).toFixed(1)} />)}
            <svg width="100%" height={HIGH} viewBox={`0 0 ${ACROSS} ${HIGH}`} preserveAspectRatio="none">
              <path class="mark f-allocated" d={allocated(/** @type {any} */ (rows)) ?? ''} />
              <path class="reserved" d={reserved(/** @type {any} */ (rows)) ?? ''} />
            </svg>
            {limit > 0 && <line class="limit" x1="0" x2="100%" y1={y(limit).toFixed(1)} y2={y(limit).toFixed(1)} />}
            {r.verdict.oom && isIn(r.verdict.oom.event) && <line class="oom-edge" x1={pc(r.verdict.oom.event)} x2={pc(r.verdict.oom.event)} y1="0" y2={HIGH} />}
            {isIn(r.peak_event) && <circle class="peak-dot" cx={pc(r.peak_event)} cy={y(r.allocated_peak).toFixed(1)} r="4" />}
            {brush && <rect class="brush" {...brush} y="0" height={HIGH} />}
            {!isPeak && <line class="cursor" x1={pc(here)} x2={pc(here)} y1="0" y2={HIGH} />}
          </svg>
        </div>
      </div>
      <Minimap t={r.timeline} top={top} seen={seen} zoom={zoom} />
      <div class="timeline-tools" role="group" aria-label="Zoom">
        <Zoom seen={seen} first={first} end={end} events={events} scale={scale} zoom={zoom}>Whole run</Zoom>
      </div>
      <p class="readout">
        <b>{isPeak ? 'Peak' : here === column.from && endOf(shown) > here + 1 ? `From event ${fixed(here)} on` : `Event ${fixed(here)}`}</b>{' '}
        <Bytes n={column.allocated} named /> <span class="muted">allocated,</span> <Bytes n={column.reserved} named /> <span class="muted">reserved</span>
        {column.us !== undefined && column.us > 0 && <span class="muted">after {fixed(column.us / 1e6, 2)} s</span>}
      </p>
      <Twin title="Table of the run" tall>{() => (
        <table class="numbers">
          <thead><tr><th scope="col">From event</th><th scope="col">Allocated, {shownUnit()}</th><th scope="col">Reserved, {shownUnit()}</th>{columns[0].us !== undefined && <th scope="col">After, s</th>}</tr></thead>
          <tbody>{columns.map((one) => (
            <tr key={one.from}><th scope="row">{fixed(one.from)}</th><td><Bytes n={one.allocated} /></td><td><Bytes n={one.reserved} /></td>{one.us !== undefined && <td>{fixed(one.us / 1e6, 2)}</td>}</tr>
          ))}</tbody>
        </table>
      )}</Twin>
    </section>
  );
}

/** @param {{r: Recorded}} props */
function Figures({ r }) {
  const said = r.recording.said ?? (r.recording.reserved_peak === undefined ? null : r.recording);
  const rows = /** @type {[string, 'allocated_peak' | 'reserved_peak' | 'allocated' | 'reserved'][]} */ ([
    ['Allocated, at most', 'allocated_peak'], ['Reserved, at most', 'reserved_peak'], ['Allocated at the end', 'allocated'], ['Reserved at the end', 'reserved']]);
  const counts = /** @type {[string, 'retries' | 'ooms'][]} */ ([['Retries', 'retries'], ['Out of memory', 'ooms']]);
  return (
    <section class="card" aria-labelledby="recorded-figures">
      <h2 id="recorded-figures">{said ? 'Replayed against recorded' : 'Replayed'}</h2>
      <div class="scroll" tabIndex={0} role="region" aria-labelledby="recorded-figures">
        <table class="numbers">
          <thead><tr><th scope="col">{shownUnit()}</th><th scope="col">Replayed</th>{said && <th scope="col">Recorded</th>}</tr></thead>
          <tbody>
            {rows.map(([title, name]) => (
              <tr key={name}><th scope="row">{title}</th><td><Bytes n={r[name]} /></td>
                {said && <td>{/** @type {any} */ (said)[name] === undefined ? '' : <Bytes n={/** @type {any} */ (said)[name]} />}</td>}</tr>
            ))}
            {counts.filter(([, name]) => r[name] || /** @type {any} */ (said)?.[name]).map(([title, name]) => (
              <tr key={name}><th scope="row">{title}</th><td>{fixed(r[name])}</td>{said && <td>{/** @type {any} */ (said)[name]}</td>}</tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

/** What the run would reserve on a device that never runs out: what the changes are changes of. @param {Recorded} r */
const unlimited = ({ options: [first], reserved_peak: reserved }) => (first ? first.reserved_peak - first.change : reserved);

/** @param {{r: Recorded}} props */
const Options = ({ r }) => (
  <section class="card" aria-labelledby="recorded-options">
    <h2 id="recorded-options">With other options <small>of PYTORCH_CUDA_ALLOC_CONF</small></h2>
    <div class="scroll" tabIndex={0} role="region" aria-labelledby="recorded-options">
      <table class="numbers whatif">
        <thead><tr><th scope="col">Options</th><th scope="col">Reserved, {shownUnit()}</th><th scope="col">Change</th><th scope="col" /><th scope="col" /></tr></thead>
        <tbody>
          <tr><th scope="row"><code>{named(r.allocator)}</code><small>{unlimited(r) === r.reserved_peak ? 'as replayed' : 'where memory never runs out'}</small></th><td><Bytes n={unlimited(r)} /></td><td /><td /><td /></tr>
          {r.options.map((option) => (
            <tr key={option.allocator}>
              <th scope="row"><code>{named(option.allocator)}</code></th>
              <td><Bytes n={option.reserved_peak} /></td>
              <td>{option.change === 0 ? '' : `${option.change > 0 ? '+' : '−'}${natural(Math.abs(option.change), shownUnit())}`}</td>
              <td class="left">{option.is_approximate ? 'an estimate' : option.fits === false ? <span class="bad"><Icon name="cross" />does not run</span>
                : option.fits ? <span class="good"><Icon name="check" />runs</span> : ''}</td>
              <td><button type="button" class="button small" onClick={() => replay({ allocator: option.allocator })} aria-label={`Use ${named(option.allocator)}`}>Use</button></td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
    {r.advice && <p class="sub">{r.advice.sentence}.</p>}
  </section>
);

/** @param {{r: Recorded}} props */
const Live = ({ r }) => (
  <section class="card" aria-labelledby="recorded-live">
    <h2 id="recorded-live">Live at the peak <small>by the line that asked for it</small></h2>
    <div class="scroll" tabIndex={0} role="region" aria-labelledby="recorded-live">
      <table class="numbers tensors recording-live">
        <thead><tr><th scope="col">Total</th><th scope="col">Count</th><th scope="col">Each</th><th scope="col" class="left">From</th></tr></thead>
        <tbody>
          {r.live_at_peak.map((group, index) => (group.rest !== undefined ? (
            <tr key={index}><th scope="row"><Bytes n={group.rest} style="natural" /></th><td /><td /><td class="left">all others</td></tr>
          ) : (
            <tr key={index}>
              <th scope="row"><Bytes n={group.bytes} style="natural" /></th><td>{fixed(group.count)}</td><td><Bytes n={group.requested} style="natural" /></td>
              <td class="left from">
                {group.frames.length > 1 ? (
                  <details class="twin"><summary><code>{group.frame || 'no frame'}</code></summary>
                    <ol class="frames">{group.frames.map((frame, i) => <li key={i}><code>{frame}</code></li>)}</ol>
                  </details>
                ) : <code>{group.frame || 'no frame was recorded'}</code>}
              </td>
            </tr>
          )))}
        </tbody>
      </table>
    </div>
  </section>
);

/** What is over the events of the run: all parts look at the same event, and at the same part of the run. @param {{r: Recorded}} props */
function OverEvents({ r }) {
  const [looked, setLooked] = useState(/** @type {{of: Recorded, event: number} | null} */ (null));
  const event = looked?.of === r ? looked.event : r.peak_event;
  const choose = (/** @type {number} */ to) => setLooked({ of: r, event: to });
  const part = useWindow(r.timeline, async (window) => {
    const reply = await askRecording('recorded_timeline', window);
    return reply?.ok && recording.value?.reply === r ? reply.timeline : null;
  });
  return (
    <>
      <Curve r={r} event={event} choose={choose} part={part} />
      {r.timeline.events > 0 && <Lazy load={() => import('./Stacks.jsx')} played={r} event={event} choose={choose} unit={shownUnit()} seen={part.window} zoom={part.zoom} />}
      {r.timeline.events > 0 && (
        <section class="card" id="events" aria-labelledby="events-title">
          <h2 id="events-title">Event by event <small>each request and free, and the allocator after it</small></h2>
          <Lazy load={() => import('./Events.jsx')} at={event} choose={choose}
            source={{ ask: (/** @type {string} */ call, /** @type {object} */ more, /** @type {string} */ lane) => askRecording(`recorded_${call}`, more, lane), events: r.timeline.events, peak: r.peak_event, key: r, name: shownUnit }} />
        </section>
      )}
    </>
  );
}

export default function RecordingView() {
  const of = recording.value;
  const r = of?.reply;
  if (!of) return null;
  return (
    <main id="result" class={`result${of.busy && r ? ' is-slow' : ''}`} tabIndex={-1} aria-busy={of.busy}>
      <Head of={of} />
      {of.busy && !r && (
        <div class="card recording-reading" role="status">
          <p>{of.read < of.file.size ? `Reading: ${natural(of.read, 'MiB')} of ${natural(of.file.size, 'MiB')}` : 'Playing it…'}</p>
          <progress max={Math.max(1, of.file.size)} value={of.read} aria-label="Read" />
        </div>
      )}
      {of.problem && !r && <Diagnostics title="Errors" list={of.problem} />}
      {r && (
        <div class="answer">
          <Verdict of={of} r={r} />
          <Controls key={`${of.words.gpu}${r.allocator}`} of={of} r={r} />
          <Diagnostics title="Remarks" list={r.diagnostics} />
          <OverEvents r={r} />
          <div class="pair"><Figures r={r} /><Options r={r} /></div>
          <Live r={r} />
          <Lazy load={() => import('./Against.jsx')} played={r} name={of.name} unit={shownUnit()} />
          {r.differences && (
            <section class="card" aria-labelledby="recorded-differences">
              <h2 id="recorded-differences">An estimate of the run on a GPU, from one without</h2>
              <ul class="notes-list">{r.differences.map((text) => <li key={text}>{text}</li>)}</ul>
            </section>
          )}
        </div>
      )}
    </main>
  );
}
