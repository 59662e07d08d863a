// SPDX-License-Identifier: Apache-2.0
/* The heat map: one to three settings against each other, every cell played. A real table: coarse cells come first, the heavy
 * line is the edge of fitting, click or Enter applies a cell. */
import { Component } from 'preact';
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { fixed, headline, inUnit, percent } from '../format.js';
import { askCells, tileOf } from '../asking.js';
import { setWords } from '../changes.js';
import { shown as report, shownValue as valueOf } from '../shown.js';
import { describe, failure, files, isIdle, looking, spoken, unit, view, words } from '../state.js';
import { cellOf, grows, inOrderOfPlay, MOST_VALUES, readValues, sweepCommand, sweepCsv, usualValues, walkEdge } from '../sweep.js';
import { copy } from './CopyDialog.jsx';
import { titleOf } from './Field.jsx';
import { Icon } from './marks.jsx';
import { CLOSE } from './Verdict.jsx';
import { addStyle } from '../sheet.js';
import style from './heatmap.css';

addStyle(style);

/** @typedef {import('../sweep.js').Axis} Axis */
/** @typedef {import('../sweep.js').Cell} Cell */

const MOST_CELLS = 4096;
const DRAW_EVERY_MS = 500;
const SETTLED_MS = 250; /* after a setting was changed, which may go on */
const WALK_FROM = 100; /* cells: fewer are played sooner than walked around */
const MARKS = { fits: '✓', close: '!', open: '?', not: '✕', none: '', refused: '–' };
const WORDS = { fits: 'fits', close: 'barely fits', open: 'cannot tell', not: 'does not fit', none: '', refused: 'not possible' };

/** Settings that can be swept. */
function sweepable() {
  const all = describe.value?.settings ?? [];
  return [...all.filter(({ type, choices }) => /^(int|bool)/.test(type) || (choices?.length ?? 0) > 1).filter(({ name, when }) => name !== 'mode' && !(when?.setting === 'mode' && isIdle(name))).map(({ name }) => name), 'gpu'];
}

/** @param {string} name @returns {string} values as text */
function usual(name) {
  if (name === 'gpu') return (describe.value?.gpus ?? []).slice(-MOST_VALUES).map((gpu) => gpu.name).join(',');
  const setting = describe.value?.settings.find((s) => s.name === name);
  return setting ? usualValues(setting, valueOf(name)).join(',') : '';
}

/** @param {{label: string, name: string, text: string, none?: boolean, change: (name: string, text: string) => void}} props */
function AxisField({ label, name, text, none, change }) {
  const [draft, setDraft] = useState(/** @type {string | null} */ (null)); /* what is typed, until it is taken */
  return (
    <div class="axis-field">
      <label>{label}<select value={name} onChange={(event) => { setDraft(null); change(event.currentTarget.value, usual(event.currentTarget.value)); }}>
        {none && <option value="" selected={name === ''}>none</option>}
        {sweepable().map((one) => <option key={one} value={one} selected={one === name}>{titleOf(one)}</option>)}
      </select></label>
      {name !== '' && <label><span class="hidden">{label}: values of {titleOf(name)}</span>
        <input type="text" spellcheck={false} autocomplete="off" value={draft ?? text} data-tip="Values with commas; 1-32 and 512-8192:512 are ranges"
          onInput={(event) => setDraft(event.currentTarget.value)} onChange={(event) => { setDraft(null); change(name, event.currentTarget.value); }} /></label>}
    </div>
  );
}

/** @param {string} name @param {string} value */
const spell = (name, value) => (name === 'gpu' ? describe.value?.gpus.find((gpu) => gpu.name === value)?.title ?? value : /^\d{4,}$/.test(value) ? fixed(Number(value)) : value);

/** A row that is drawn when it looks different. @extends {Component<{look: string, draw: () => import('preact').ComponentChildren}>} */
class Row extends Component {
  /** @param {{look: string}} next */
  shouldComponentUpdate(next) {
    return next.look !== this.props.look;
  }
  render() {
    return <tr>{this.props.draw()}</tr>;
  }
}

export default function HeatMap() {
  const given = view.value.axes;
  const [chosen, setChosen] = useState(() => [{ name: 'batch', text: usual('batch') }, { name: 'seq', text: usual('seq') }, { name: '', text: '' }]);
  useEffect(() => { if (given) setChosen([...given, { name: '', text: '' }].slice(0, 3)); }, [given]);
  looking.axes = chosen;
  const [shows, setShows] = useState(/** @type {'marks' | 'bytes' | 'percent'} */ ('bytes'));
  const [moved, setAt] = useState(/** @type {number[] | null} */ (null));
  const [played, setPlayed] = useState(0);
  const [isRunning, setRunning] = useState(false);
  const cells = useRef(/** @type {(Cell | null)[]} */ ([]));
  const expected = useRef(/** @type {boolean[]} */ ([])); /* to fit, by the edge that was found first */
  const [, setWalked] = useState(0);
  const stop = useRef(/** @type {AbortController | null} */ (null));
  const box = useRef(/** @type {HTMLDivElement | null} */ (null));

  /** @type {Axis[]} rows, columns, slices */
  const axes = chosen.filter(({ name }) => name).map(({ name, text }) => ({ name, values: readValues(text) }));
  const [rows, columns, slices = { name: '', values: [''] }] = axes;
  const size = [slices.values.length, rows.values.length, columns.values.length];
  const total = size[0] * size[1] * size[2];
  const isDoubled = new Set(axes.map(({ name }) => name)).size < axes.length;
  const problem = isDoubled ? 'Choose different settings.' : total === 0 ? 'Give values such as 1,2,4 or 1-32.' : total > MOST_CELLS ? `${fixed(total)} cells are too many: give fewer values.` : '';
  const place = (/** @type {number} */ p, /** @type {number} */ r, /** @type {number} */ c) => (p * size[1] + r) * size[2] + c;
  const cell = (/** @type {number} */ p, /** @type {number} */ r, /** @type {number} */ c) => cells.current[place(p, r, c)] ?? null;
  /* At first on the present job. */
  const at = moved ?? [slices, rows, columns].map((axis) => Math.max(0, axis ? axis.values.indexOf(valueOf(axis.name)) : 0));
  const settingsOf = (/** @type {number[]} */ [p, r, c]) => [`${rows.name}=${rows.values[r]}`, `${columns.name}=${columns.values[c]}`, ...(slices.name ? [`${slices.name}=${slices.values[p]}`] : [])];

  /* Rows are drawn again where something in them has changed, or in the row below, whose edge they show. */
  const changes = useRef(/** @type {number[]} */ ([]));
  const map = useRef(0); /* how many there have been */
  const touch = (/** @type {number} */ p, /** @type {number} */ r) => {
    for (const row of [r, r - 1]) if (row >= 0) changes.current[p * size[1] + row] = (changes.current[p * size[1] + row] ?? 0) + 1;
  };
  const put = (/** @type {number[]} */ [p, r, c], /** @type {any} */ reply) => {
    touch(p, r);
    return (cells.current[place(p, r, c)] = cellOf(reply, CLOSE));
  };

  const job = report.value?.link;
  const playedFor = useRef(job);
  const key = JSON.stringify(axes) + job;
  const isGood = failure.value === null && !problem;
  const isMoving = useRef(false); /* by a key: the focus follows */
  useLayoutEffect(() => {
    if (isMoving.current) /** @type {HTMLElement | null | undefined} */ (box.current?.querySelector('td[tabindex="0"]'))?.focus();
    isMoving.current = false;
  });
  useLayoutEffect(() => { /* the workers begin while the empty table is laid out */
    cells.current = [];
    expected.current = [];
    map.current++;
    setPlayed(0);
    setWalked(0);
    if (!isGood) return;
    const mine = stop.current = new AbortController();
    const play = async () => {
      if (mine.signal.aborted) return;
      let order = inOrderOfPlay(size[0], size[1], size[2]);
      let drawn = 0;
      const from = performance.now();
      setRunning(true);
      if (order.length > WALK_FROM && grows(rows) && grows(columns)) {
        for (let p = 0; p < size[0]; p++) {
          await walkEdge(size[1], size[2], async (r, c, turn) => {
            if (mine.signal.aborted) return null;
            /* Where the way may go on from there is played with it, in one request. */
            const near = [[p, r, c], [p, r, c + turn], [p, r - turn, c], [p, r - turn, c + turn]].filter(([, row, column]) => row >= 0 && row < size[1] && column >= 0 && column < size[2] && !cell(p, row, column));
            if (!cell(p, r, c)) await askCells(near.map(settingsOf), (reply, i) => { put(near[i], reply); }, mine.signal, near.length);
            const { kind } = cell(p, r, c) ?? { kind: 'refused' };
            return kind === 'refused' || kind === 'none' ? null : kind !== 'not';
          }, (r, edge) => { for (let c = 0; c < size[2]; c++) expected.current[place(p, r, c)] = c < edge; touch(p, r); });
          setPlayed(0);
          setWalked(p + 1);
        }
        if (mine.signal.aborted && stop.current !== mine) return;
        order.sort((a, b) => place(...a) - place(...b)); /* the picture is there: few rows are drawn again at a time */
      }
      order = order.filter((one) => !cells.current[place(...one)]);
      let count = total - order.length;
      drawn = performance.now();
      const done = await askCells(order.map(settingsOf), (reply, i) => {
        put(order[i], reply);
        count++;
        if (performance.now() - drawn > DRAW_EVERY_MS || count === total) {
          drawn = performance.now();
          setPlayed(count);
        }
      }, mine.signal, count ? tileOf(count, drawn - from) : undefined);
      if (stop.current !== mine) return;
      setRunning(false);
      if (done) spoken.value = `Heat map: ${cells.current.filter((one) => one?.kind === 'fits' || one?.kind === 'close').length} of ${total} fit.`;
    };
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    let settles;
    if (playedFor.current === job) play();
    else settles = setTimeout(play, SETTLED_MS);
    playedFor.current = job;
    return () => {
      clearTimeout(settles);
      mine.abort();
    };
  }, [key, isGood]);

  const change = (/** @type {number} */ i) => (/** @type {string} */ name, /** @type {string} */ text) =>
    setChosen((all) => all.map((one, k) => (k === i ? { name, text } : one)));
  const use = (/** @type {number[]} */ one) => setWords(settingsOf(one).map((word) => {
    const cut = word.indexOf('=');
    return [word.slice(0, cut), word.slice(cut + 1)];
  }));

  /** @param {KeyboardEvent} event */
  function move(event) {
    const [p, r, c] = at;
    const last = [size[1] - 1, size[2] - 1];
    const to = {
      ArrowRight: c < last[1] ? [p, r, c + 1] : [Math.min(size[0] - 1, p + 1), r, p + 1 < size[0] ? 0 : c],
      ArrowLeft: c > 0 ? [p, r, c - 1] : [Math.max(0, p - 1), r, p > 0 ? last[1] : 0],
      ArrowDown: [p, Math.min(last[0], r + 1), c], ArrowUp: [p, Math.max(0, r - 1), c], Home: [p, r, 0], End: [p, r, last[1]],
    }[event.key];
    if (event.key === 'Enter' || event.key === ' ') use(at);
    else if (to) {
      setAt(to);
      isMoving.current = true;
    } else return;
    event.preventDefault();
  }

  /** @param {Cell | null} c */
  const shown = (c) => {
    if (!c || c.kind === 'refused' || shows === 'marks') return '';
    return shows === 'percent' && c.card ? percent(c.bytes, c.card).replace(' %', '') : headline(c.bytes, unit.value);
  };
  const most = cells.current.some((one) => one && !one.card) ? cells.current.reduce((highest, one) => Math.max(highest, one?.bytes ?? 0), 1) : 1;
  /** @param {Cell | null} c */
  const shade = (c) => (!c ? 'wait' : c.kind === 'refused' ? 'refused' : c.kind === 'not' ? `not n${Math.min(3, Math.floor(c.bytes / c.card))}` : `${c.kind === 'open' ? 'close' : c.kind} h${Math.min(9, Math.floor(10 * c.bytes / (c.card || most)))}`);
  /** Whether a cell fits, as played or as expected; undefined: not known, or not possible. */
  const holds = (/** @type {number} */ p, /** @type {number} */ r, /** @type {number} */ c) => {
    if (r >= size[1] || c >= size[2]) return undefined;
    const one = cell(p, r, c);
    return !one ? expected.current[place(p, r, c)] : one.kind === 'refused' || one.kind === 'none' ? undefined : one.kind !== 'not';
  };
  const parts = (/** @type {boolean | undefined} */ a, /** @type {boolean | undefined} */ b) => a !== undefined && b !== undefined && a !== b;
  const [p0, r0, c0] = at.map((n, i) => Math.min(n, size[i] - 1));
  const read = !problem ? cell(p0, r0, c0) : null;
  const now = axes.map(({ name }) => valueOf(name));

  return (
    <div class="heat-box" onKeyDown={(event) => { if (event.key === 'Escape' && isRunning) stop.current?.abort(); }}>
      <div class="axis-fields">
        <AxisField label="Rows" {...chosen[0]} change={change(0)} />
        <AxisField label="Columns" {...chosen[1]} change={change(1)} />
        <AxisField label="Panels" {...chosen[2]} none change={change(2)} />
      </div>
      <div class="heat-tools">
        <fieldset class="segmented"><legend class="hidden">In each cell</legend>
          {[['bytes', unit.value], ['percent', '% of the GPU'], ['marks', '✓ ✕']].map(([value, words_]) => (
            <label key={value}><input type="radio" name="heat-shows" checked={shows === value} onChange={() => setShows(/** @type {any} */ (value))} aria-label={{ bytes: unit.value, percent: '% of the GPU', marks: 'Marks alone' }[value]} /><span aria-hidden="true">{words_}</span></label>
          ))}
        </fieldset>
        <button type="button" class="button" disabled={played < total} onClick={() => copy('CSV', sweepCsv(axes, (i) => cell(i[2] ?? 0, i[0], i[1])))}><Icon name="copy" />Copy CSV</button>
        <button type="button" class="button" disabled={!!problem} onClick={() => copy('Command', sweepCommand(words.value, files.value.map((file) => file.name), axes))}><Icon name="command" />Copy command</button>
        <p class="heat-state">{problem || (isRunning && played < total
          ? <>{fixed(played)} of {fixed(total)} <button type="button" class="button small" onClick={() => { stop.current?.abort(); setRunning(false); }}>Cancel</button></>
          : <span class="muted">{fixed(played)} cells simulated</span>)}</p>
      </div>
      {!problem && (
        <div ref={box} class="slices" onKeyDown={move}>
          {slices.values.map((slice, p) => (
            <div key={slice} class="scroll slice">
              <table class={`heat${size[2] > 14 || shows === 'marks' ? ' dense' : ''}`} role="grid" aria-label={`${slices.name ? `${titleOf(slices.name)} ${slice}: ` : ''}${titleOf(rows.name)} down, ${titleOf(columns.name)} across. Arrows move, Enter applies.`}>
                {slices.name && <caption>{titleOf(slices.name)}: <b>{spell(slices.name, slice)}</b></caption>}
                <thead><tr><th scope="col" class="corner"><span>{titleOf(rows.name)}</span><span>{titleOf(columns.name)}</span></th>{columns.values.map((value) => <th key={value} scope="col">{spell(columns.name, value)}</th>)}</tr></thead>
                <tbody>
                  {rows.values.map((value, r) => (
                    <Row key={value} look={JSON.stringify([key, map.current, shows, unit.value, r === r0 && p === p0 ? c0 : -1, now, rows.values.length, most, changes.current[p * size[1] + r]])} draw={() => (<>
                      <th scope="row">{spell(rows.name, value)}</th>
                      {columns.values.map((column, c) => {
                        const here = cell(p, r, c);
                        const fits = holds(p, r, c);
                        const edges = `${parts(fits, holds(p, r, c + 1)) ? ' edge-right' : ''}${parts(fits, holds(p, r + 1, c)) ? ' edge-below' : ''}`;
                        const isNow = now[0] === value && now[1] === column && (!slices.name || now[2] === slice);
                        const text = shown(here);
                        const guess = here ? undefined : expected.current[place(p, r, c)];
                        const word = here ? WORDS[here.kind] : guess === undefined ? 'not simulated yet' : guess ? 'should fit, not simulated yet' : 'should not fit, not simulated yet';
                        return (
                          <td key={column} aria-label={`${text} ${word}${isNow ? ', the present job' : ''}`.trim()} class={`${guess === undefined ? shade(here) : guess ? 'wait would' : 'wait would-not'}${edges}${isNow ? ' now' : ''}`} tabIndex={p === p0 && r === r0 && c === c0 ? 0 : -1}
                            onFocus={() => setAt([p, r, c])} onPointerEnter={() => setAt([p, r, c])} onClick={() => use([p, r, c])}>
                            {(here || guess !== undefined) && <span class="heat-mark">{here ? MARKS[here.kind] : guess ? '✓' : '✕'}</span>}{size[2] > 14 ? '' : text}
                          </td>
                        );
                      })}
                    </>)} />
                  ))}
                </tbody>
              </table>
            </div>
          ))}
        </div>
      )}
      {!problem && (
        <p class="readout">
          <b>{settingsOf([p0, r0, c0]).join(' ')}</b>{' '}
          {read && (read.kind === 'refused' ? <span>{read.said}</span> : <span>{inUnit(read.bytes, unit.value)} {unit.value}{read.card > 0 && ` of ${headline(read.card, unit.value)}, ${WORDS[read.kind]}${read.margin !== null && read.kind !== 'open' ? `: ${inUnit(Math.abs(read.margin), unit.value)} ${read.margin >= 0 ? 'to spare' : read.kind === 'not' ? 'over' : 'more than there is, freed from the cache'}` : ''}`}</span>)}
          <span class="readout-factors muted"><span>✓ fits</span><span>! barely fits</span><span>✕ does not</span><span>– not possible</span><span class="edge-key">edge of fitting</span></span>
        </p>
      )}
    </div>
  );
}
