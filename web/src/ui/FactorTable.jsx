/* Factors down, parts of the model across. Rows and columns sum to the peak, to the byte. */
import { signal } from '@preact/signals';
import { factor, inOrder } from '../factors.js';
import { percent } from '../format.js';
import { unit } from '../state.js';
import { Bytes, Swatch } from './marks.jsx';

/* The factor under the pointer or focus, lit in every chart. */
export const lit = signal('');

/** @param {{n: number}} props */
const Cell = ({ n }) => <td>{n ? <Bytes n={n} /> : <span class="nothing" aria-label="none">–</span>}</td>;

const MOST_COLUMNS = 5;

/** The parts as columns: all, or where there are many, the largest and one for the others.
 * @param {import('../types.js').Part[]} parts @returns {{part: string, title: string, help?: string, bytes: number, factors: Record<string, number>}[]} */
function columnsOf(parts) {
  if (parts.length <= MOST_COLUMNS) return parts;
  const least = parts.map((part) => part.bytes).sort((a, b) => b - a)[MOST_COLUMNS - 2];
  const large = parts.filter((part) => part.bytes >= least);
  const small = parts.filter((part) => part.bytes < least);
  /** @type {Record<string, number>} */
  const factors = {};
  for (const part of small) for (const [name, bytes] of Object.entries(part.factors)) factors[name] = (factors[name] ?? 0) + bytes;
  const bytes = small.reduce((sum, part) => sum + part.bytes, 0);
  return [...large, { part: '*', title: `${small.length} others`, help: small.map((part) => part.title).join(', '), bytes, factors }];
}

/** @param {{r: import('../types.js').Report}} props */
export function FactorTable({ r }) {
  const parts = columnsOf(r.breakdown.filter((part) => part.bytes > 0));
  const byName = new Map(r.factors.map((f) => [f.name, f.bytes]));
  const names = inOrder([...byName.keys()].filter((name) => byName.get(name)));
  const device = r.verdict.device_bytes;
  const light = (/** @type {string} */ name) => ({
    onPointerEnter: () => { lit.value = name; },
    onPointerLeave: () => { lit.value = ''; },
  });
  return (
    <section class="card" aria-labelledby="factors-title">
      <h2 id="factors-title">By factor and module <small>{unit.value} at the peak</small></h2>
      <div class="scroll" tabIndex={0} role="group" aria-label="Table of factors and modules">
        <table class="numbers factor-table">
          <thead>
            <tr>
              <th scope="col"><span class="hidden">Factor</span></th>
              {parts.map((part) => <th key={part.part} scope="col" data-tip={'help' in part ? part.help : undefined}>{part.title}</th>)}
              <th scope="col" class="total">Total</th>
              <th scope="col" class="share">%</th>
            </tr>
          </thead>
          <tbody>
            {names.map((name) => (
              <tr key={name} {...light(name)}>
                <th scope="row" data-tip={factor(name).help}><Swatch name={name} />{factor(name).title}</th>
                {parts.map((part) => <Cell key={part.part} n={part.factors[name] ?? 0} />)}
                <td class="total"><Bytes n={byName.get(name) ?? 0} /></td>
                <td class="share">{percent(byName.get(name) ?? 0, device)}</td>
              </tr>
            ))}
          </tbody>
          <tbody class="sums">
            <tr>
              <th scope="row">Allocated</th>
              {parts.map((part) => <Cell key={part.part} n={part.bytes} />)}
              <td class="total"><Bytes n={r.peak.allocated} /></td>
              <td class="share">{percent(r.peak.allocated, device)}</td>
            </tr>
            {r.outside.map(({ name, bytes, source }) => (
              <tr key={name} {...light(name)}>
                <th scope="row" data-tip={[factor(name).help, source && `Source: ${source}`].filter(Boolean).join(' ')} colSpan={parts.length + 1}><Swatch name={name} />{factor(name).title}</th>
                <td class="total"><Bytes n={bytes} /></td>
                <td class="share">{percent(bytes, device)}</td>
              </tr>
            ))}
          </tbody>
          <tfoot>
            <tr>
              <th scope="row" colSpan={parts.length + 1}>On the device</th>
              <td class="total"><Bytes n={device} /></td>
              <td class="share">100 %</td>
            </tr>
          </tfoot>
        </table>
      </div>
    </section>
  );
}
