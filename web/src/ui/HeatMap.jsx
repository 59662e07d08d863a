/* The heat map: one to three settings against each other, every cell played. A real table: coarse cells come first, the heavy
 * line is the edge of fitting, click or Enter applies a cell. */
import { useEffect, useRef, useState } from 'preact/hooks';
import { fixed, headline, inUnit, percent } from '../format.js';
import { askMany, describe, failure, files, link, setWords, spoken, unit, valueOf, words } from '../state.js';
import { cellOf, inOrderOfPlay, MOST_VALUES, readValues, sweepCommand, sweepCsv, usualValues } from '../sweep.js';
import { copy } from './CopyDialog.jsx';
import { titleOf } from './Field.jsx';
import { Icon } from './marks.jsx';
import { CLOSE } from './Verdict.jsx';

/** @typedef {import('../sweep.js').Axis} Axis */
/** @typedef {import('../sweep.js').Cell} Cell */

const MOST_CELLS = 4096;
const DRAW_EVERY_MS = 90;
const MARKS = { fits: '✓', close: '!', not: '✕', none: '', refused: '–' };
const WORDS = { fits: 'fits', close: 'just fits', not: 'does not fit', none: '', refused: 'not possible' };

/** Settings that can be swept. */
function sweepable() {
  const all = describe.value?.settings ?? [];
  return [...all.filter(({ type, choices }) => /^(int|bool)/.test(type) || (choices?.length ?? 0) > 1).map(({ name }) => name).filter((name) => name !== 'mode'), 'gpu'];
}

/** @param {string} name @returns {string} values as text */
function usual(name) {
  if (name === 'gpu') return (describe.value?.gpus ?? []).slice(-MOST_VALUES).map((gpu) => gpu.name).join(',');
  const setting = describe.value?.settings.find((s) => s.name === name);
  return setting ? usualValues(setting, valueOf(name)).join(',') : '';
}

/** @param {{label: string, name: string, text: string, none?: boolean, change: (name: string, text: string) => void}} props */
const AxisField = ({ label, name, text, none, change }) => (
  <div class="axis-field">
    <label>{label}<select value={name} onChange={(event) => change(event.currentTarget.value, usual(event.currentTarget.value))}>
      {none && <option value="" selected={name === ''}>none</option>}
      {sweepable().map((one) => <option key={one} value={one} selected={one === name}>{titleOf(one)}</option>)}
    </select></label>
    {name !== '' && <label><span class="hidden">{label}: values of {titleOf(name)}</span>
      <input type="text" spellcheck={false} autocomplete="off" value={text} data-tip="Values with commas; 1-32 and 512-8192:512 are ranges"
        onChange={(event) => change(name, event.currentTarget.value)} /></label>}
  </div>
);

/** @param {string} name @param {string} value */
const spell = (name, value) => (name === 'gpu' ? describe.value?.gpus.find((gpu) => gpu.name === value)?.title ?? value : /^\d{4,}$/.test(value) ? fixed(Number(value)) : value);

export default function HeatMap() {
  const [chosen, setChosen] = useState(() => [{ name: 'batch', text: usual('batch') }, { name: 'seq', text: usual('seq') }, { name: '', text: '' }]);
  const [shows, setShows] = useState(/** @type {'marks' | 'bytes' | 'percent'} */ ('bytes'));
  const [at, setAt] = useState([0, 0, 0]);
  const [played, setPlayed] = useState(0);
  const [isRunning, setRunning] = useState(false);
  const cells = useRef(/** @type {(Cell | null)[]} */ ([]));
  const stop = useRef(/** @type {AbortController | null} */ (null));
  const box = useRef(/** @type {HTMLDivElement | null} */ (null));

  /** @type {Axis[]} rows, columns, panels */
  const axes = chosen.filter(({ name }) => name).map(({ name, text }) => ({ name, values: readValues(text) }));
  const [rows, columns, panels = { name: '', values: [''] }] = axes;
  const size = [panels.values.length, rows.values.length, columns.values.length];
  const total = size[0] * size[1] * size[2];
  const isDoubled = new Set(axes.map(({ name }) => name)).size < axes.length;
  const problem = isDoubled ? 'Choose different settings.' : total === 0 ? 'Give values, as in 1,2,4 or 1-32.' : total > MOST_CELLS ? `${fixed(total)} cells are too many: give fewer values.` : '';
  const place = (/** @type {number} */ p, /** @type {number} */ r, /** @type {number} */ c) => (p * size[1] + r) * size[2] + c;
  const cell = (/** @type {number} */ p, /** @type {number} */ r, /** @type {number} */ c) => cells.current[place(p, r, c)] ?? null;
  const settingsOf = (/** @type {number[]} */ [p, r, c]) => [`${rows.name}=${rows.values[r]}`, `${columns.name}=${columns.values[c]}`, ...(panels.name ? [`${panels.name}=${panels.values[p]}`] : [])];

  const key = JSON.stringify(axes) + link.value;
  const isGood = failure.value === null && !problem;
  useEffect(() => {
    cells.current = [];
    setPlayed(0);
    if (!isGood) return;
    const mine = stop.current = new AbortController();
    const timer = setTimeout(async () => {
      const order = inOrderOfPlay(size[0], size[1], size[2]);
      let count = 0;
      let drawn = 0;
      setRunning(true);
      const done = await askMany(order.map((one) => ({ words: settingsOf(one) })), (reply, i) => {
        cells.current[place(...order[i])] = cellOf(reply, CLOSE);
        count++;
        if (performance.now() - drawn > DRAW_EVERY_MS || count === order.length) {
          drawn = performance.now();
          setPlayed(count);
        }
      }, mine.signal);
      if (stop.current !== mine) return;
      setRunning(false);
      if (done) spoken.value = `Heat map: ${cells.current.filter((one) => one?.kind === 'fits' || one?.kind === 'close').length} of ${order.length} fit.`;
    }, 250);
    return () => {
      clearTimeout(timer);
      mine.abort();
    };
  }, [key, isGood]);

  const change = (/** @type {number} */ i) => (/** @type {string} */ name, /** @type {string} */ text) =>
    setChosen(chosen.map((one, k) => (k === i ? { name, text } : one)));
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
      requestAnimationFrame(() => /** @type {HTMLElement | null | undefined} */ (box.current?.querySelector('td[tabindex="0"]'))?.focus());
    } else return;
    event.preventDefault();
  }

  /** @param {Cell | null} c */
  const shown = (c) => {
    if (!c || c.kind === 'refused' || shows === 'marks') return '';
    return shows === 'percent' && c.card ? percent(c.bytes, c.card).replace(' %', '') : headline(c.bytes, unit.value);
  };
  const most = Math.max(1, ...cells.current.map((one) => one?.bytes ?? 0));
  /** @param {Cell | null} c */
  const shade = (c) => (!c ? 'wait' : c.kind === 'refused' ? 'refused' : c.kind === 'not' ? `not n${Math.min(3, Math.floor(c.bytes / c.card))}` : `${c.kind} h${Math.min(9, Math.floor(10 * c.bytes / (c.card || most)))}`);
  const holds = (/** @type {Cell | null} */ c) => c !== null && (c.kind === 'fits' || c.kind === 'close');
  /** Whether the edge of fitting is between two cells. @param {Cell | null} a @param {Cell | null} b */
  const parts = (a, b) => (holds(a) && b?.kind === 'not') || (holds(b) && a?.kind === 'not');
  const [p0, r0, c0] = at.map((n, i) => Math.min(n, size[i] - 1));
  const read = !problem ? cell(p0, r0, c0) : null;

  return (
    <div class="heat-box" onKeyDown={(event) => { if (event.key === 'Escape' && isRunning) stop.current?.abort(); }}>
      <div class="axis-fields">
        <AxisField label="Rows" {...chosen[0]} change={change(0)} />
        <AxisField label="Columns" {...chosen[1]} change={change(1)} />
        <AxisField label="Panels" {...chosen[2]} none change={change(2)} />
      </div>
      <div class="heat-tools">
        <fieldset class="segmented"><legend class="hidden">In each cell</legend>
          {[['bytes', unit.value], ['percent', '% of card'], ['marks', '✓ ✕']].map(([value, words_]) => (
            <label key={value}><input type="radio" name="heat-shows" checked={shows === value} onChange={() => setShows(/** @type {any} */ (value))} aria-label={{ bytes: unit.value, percent: '% of card', marks: 'Marks alone' }[value]} /><span aria-hidden="true">{words_}</span></label>
          ))}
        </fieldset>
        <button type="button" class="button" disabled={played < total} onClick={() => copy('CSV', sweepCsv(axes, (i) => cell(i[2] ?? 0, i[0], i[1])))}><Icon name="copy" />Copy CSV</button>
        <button type="button" class="button" disabled={!!problem} onClick={() => copy('Command', sweepCommand(words.value, files.value.map((file) => file.name), axes))}><Icon name="command" />Copy command</button>
        <p class="heat-state">{problem || (isRunning && played < total
          ? <>{fixed(played)} of {fixed(total)} <button type="button" class="button small" onClick={() => { stop.current?.abort(); setRunning(false); }}>Cancel</button></>
          : <span class="muted">{fixed(played)} cells played</span>)}</p>
      </div>
      {!problem && (
        <div ref={box} class="panels" onKeyDown={move}>
          {panels.values.map((panel, p) => (
            <div key={panel} class="scroll panel">
              <table class={`heat${size[2] > 14 || shows === 'marks' ? ' dense' : ''}`} role="grid" aria-label={`${panels.name ? `${titleOf(panels.name)} ${panel}: ` : ''}${titleOf(rows.name)} down, ${titleOf(columns.name)} across. Arrows move, Enter applies.`}>
                {panels.name && <caption>{titleOf(panels.name)}: <b>{spell(panels.name, panel)}</b></caption>}
                <thead><tr><th scope="col" class="corner"><span>{titleOf(rows.name)}</span><span>{titleOf(columns.name)}</span></th>{columns.values.map((value) => <th key={value} scope="col">{spell(columns.name, value)}</th>)}</tr></thead>
                <tbody>
                  {rows.values.map((value, r) => (
                    <tr key={value}>
                      <th scope="row">{spell(rows.name, value)}</th>
                      {columns.values.map((column, c) => {
                        const here = cell(p, r, c);
                        const right = c + 1 < size[2] ? cell(p, r, c + 1) : null;
                        const below = r + 1 < size[1] ? cell(p, r + 1, c) : null;
                        const edges = `${parts(here, right) ? ' edge-right' : ''}${parts(here, below) ? ' edge-below' : ''}`;
                        const isNow = valueOf(rows.name) === value && valueOf(columns.name) === column && (!panels.name || valueOf(panels.name) === panel);
                        const text = shown(here);
                        return (
                          <td key={column} class={`${shade(here)}${edges}${isNow ? ' now' : ''}`} tabIndex={p === p0 && r === r0 && c === c0 ? 0 : -1}
                            onFocus={() => setAt([p, r, c])} onPointerEnter={() => setAt([p, r, c])} onClick={() => use([p, r, c])}>
                            {here && <span class="heat-mark" aria-hidden="true">{MARKS[here.kind]}</span>}{text && <span class={size[2] > 14 ? 'hidden' : undefined}>{text}</span>}<span class="hidden"> {here ? WORDS[here.kind] : 'not played yet'}{isNow && ', the present job'}</span>
                          </td>
                        );
                      })}
                    </tr>
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
          {read && (read.kind === 'refused' ? <span>{read.said}</span> : <span>{inUnit(read.bytes, unit.value)} {unit.value}{read.card > 0 && ` of ${headline(read.card, unit.value)}, ${WORDS[read.kind]}${read.margin !== null ? `: ${inUnit(Math.abs(read.margin), unit.value)} ${read.margin < 0 ? 'too much' : 'to spare'}` : ''}`}</span>)}
          <span class="readout-factors muted"><span>✓ fits</span><span>! just fits</span><span>✕ does not</span><span>– not possible</span><span class="edge-key">edge of fitting</span></span>
        </p>
      )}
    </div>
  );
}
