// SPDX-License-Identifier: Apache-2.0
/* Factors down, parts of the model across. Rows and columns sum to the peak, to the byte. */
import { signal } from '@preact/signals';
import { factor, inOrder, totalOf } from '../factors.js';
import { exact, inUnit, percent } from '../format.js';
import { details, unit } from '../state.js';
import { CopyTable } from './CopyDialog.jsx';
import { Bytes, Swatch } from './marks.jsx';
import { Section } from './Section.jsx';

/* The factor under the pointer or focus, lit in every chart. */
export const lit = signal('');

/** A size that opens what it is made of, drawn again when it changes. One of them is the table's tab stop, and arrows move between them.
 * @param {{n: number, stop?: boolean} & import('../types.js').Details} props */
const Opens = ({ n, stop = false, ...of }) => (
  <button type="button" class="opens bytes" tabIndex={stop ? 0 : -1} aria-label={`${of.title}: ${inUnit(n, unit.value)} ${unit.value}`}
    data-tip={exact(n)} onClick={() => { details.value = of; }}>{inUnit(n, unit.value)}</button>
);

/** @param {{n: number} & import('../types.js').Details} props */
const Cell = ({ n, ...of }) => <td class="of-part">{!n ? <span class="nothing" aria-label="none">–</span> : of.part === '*' ? <Bytes n={n} /> : <Opens n={n} {...of} />}</td>;

/** @param {KeyboardEvent} event */
function move(event) {
  const at = /** @type {HTMLElement} */ (event.target);
  if (!at.matches('.opens')) return;
  const rows = [.../** @type {HTMLElement} */ (event.currentTarget).querySelectorAll('tr')].map((row) => /** @type {HTMLElement[]} */ ([...row.querySelectorAll('.opens')].filter((one) => one.getClientRects().length))).filter((row) => row.length);
  const y = rows.findIndex((row) => row.includes(at));
  const x = rows[y].indexOf(at);
  const near = (/** @type {HTMLElement[] | undefined} */ row) => row?.reduce((best, one) => (Math.abs(one.getBoundingClientRect().right - at.getBoundingClientRect().right)
    < Math.abs(best.getBoundingClientRect().right - at.getBoundingClientRect().right) ? one : best));
  const to = { ArrowRight: rows[y][x + 1], ArrowLeft: rows[y][x - 1], ArrowDown: near(rows[y + 1]), ArrowUp: near(rows[y - 1]), Home: rows[y][0], End: rows[y].at(-1) }[event.key];
  if (!/^(Arrow|Home|End)/.test(event.key)) return;
  event.preventDefault();
  if (!to) return;
  for (const one of rows.flat()) one.tabIndex = one === to ? 0 : -1;
  to.focus();
}

const MOST_COLUMNS = 5;
const ROOM = 49; /* letters that fit beside each other: the longest name of a factor, and the longest words of the headings */
const LEAST = 1000; /* times smaller than the largest: among the others */

/** The parts as columns: all, or where there are many, the largest and one for the others.
 * @param {import('../types.js').Part[]} parts @param {number} labels letters of the longest factor's name @returns {{part: string, title: string, help?: string, bytes: number, factors: Record<string, number>}[]} */
function columnsOf(parts, labels) {
  const named = parts.map((part) => (part.part === '' ? { ...part, title: 'Rest', help: part.title } : part));
  const sizes = parts.map((part) => part.bytes).sort((a, b) => b - a);
  const shown = Math.max(1, sizes.filter((bytes) => bytes >= sizes[0] / LEAST).length);
  const widest = (/** @type {string} */ title) => Math.max(...title.split(/\s/).map((word) => word.length));
  const letters = [...named].sort((a, b) => b.bytes - a.bytes).slice(0, MOST_COLUMNS).reduce((sum, { title }) => sum + widest(title), labels);
  const most = letters > ROOM ? MOST_COLUMNS - 1 : MOST_COLUMNS;
  if (parts.length <= most && shown >= parts.length - 1) return named;
  const least = sizes[Math.min(most - 1, shown) - 1];
  const large = named.filter((part) => part.bytes >= least);
  const small = parts.filter((part) => part.bytes < least);
  /** @type {Record<string, number>} */
  const factors = {};
  for (const part of small) for (const [name, bytes] of Object.entries(part.factors)) factors[name] = (factors[name] ?? 0) + bytes;
  const bytes = small.reduce((sum, part) => sum + part.bytes, 0);
  return [...large, { part: '*', title: `${small.length} others`, help: small.map((part) => part.title).join(', '), bytes, factors }];
}

/** @param {{r: import('../types.js').Report, panel: import('../panels.js').Panel}} props */
export function FactorTable({ r, panel }) {
  const byName = new Map(r.factors.map((f) => [f.name, f.bytes]));
  const names = inOrder([...byName.keys()].filter((name) => byName.get(name)));
  const parts = columnsOf(r.breakdown.filter((part) => part.bytes > 0), Math.max(...names.map((name) => factor(name).title.length)));
  const { title: all, bytes: device } = totalOf(r);
  const light = (/** @type {string} */ name) => ({
    onPointerEnter: () => { lit.value = name; },
    onPointerLeave: () => { lit.value = ''; },
  });
  return (
    <Section panel={panel} r={r} tools={<CopyTable />}>
      <div class="scroll" role="group" aria-label="Table of factors and modules. Arrows move, Enter opens a number." onKeyDown={move}>
        <table class="numbers factor-table">
          <thead>
            <tr>
              <th scope="col"><span class="hidden">Factor</span></th>
              {parts.map((part) => <th key={part.part} scope="col" class="of-part" data-tip={part.help}>{part.title}</th>)}
              <th scope="col" class="total">Total</th>
              <th scope="col" class="share">%</th>
            </tr>
          </thead>
          <tbody>
            {names.map((name, i) => (
              <tr key={name} {...light(name)}>
                <th scope="row" data-tip={factor(name).help}><Swatch name={name} />{factor(name).title}</th>
                {parts.map((part) => <Cell key={part.part} n={part.factors[name] ?? 0} title={`${factor(name).title}, ${part.title}`} factor={name} part={part.part} />)}
                <td class="total"><Opens n={byName.get(name) ?? 0} title={factor(name).title} factor={name} stop={i === 0} /></td>
                <td class="share">{percent(byName.get(name) ?? 0, device)}</td>
              </tr>
            ))}
          </tbody>
          <tbody class="sums">
            <tr>
              <th scope="row">Allocated</th>
              {parts.map((part) => <Cell key={part.part} n={part.bytes} title={part.title} part={part.part} />)}
              <td class="total"><Opens n={r.peak.allocated} title="Allocated" event={r.peak.event} /></td>
              <td class="share">{percent(r.peak.allocated, device)}</td>
            </tr>
            {r.outside.map(({ name, bytes, source }) => (
              <tr key={name} {...light(name)}>
                <th scope="row" data-tip={[factor(name).help, source && `Source: ${source}`].filter(Boolean).join(' ')}><Swatch name={name} />{factor(name).title}</th>{parts.map((part) => <td key={part.part} class="of-part" />)}
                <td class="total"><Bytes n={bytes} /></td>
                <td class="share">{percent(bytes, device)}</td>
              </tr>
            ))}
          </tbody>
          <tfoot>
            <tr>
              <th scope="row">{all}</th>{parts.map((part) => <td key={part.part} class="of-part" />)}
              <td class="total">{r.serving ? <Bytes n={device} /> : <Opens n={device} title={all} />}</td>
              <td class="share">100 %</td>
            </tr>
          </tfoot>
        </table>
      </div>
    </Section>
  );
}
