// SPDX-License-Identifier: Apache-2.0
/* The largest of the settings that can grow with which the present job fits. */
import { fixed } from '../format.js';
import { shown as report, shownValue as valueOf } from '../shown.js';
import { readsSize } from '../sizes.js';
import { titleOf } from './Field.jsx';
import { Bytes } from './marks.jsx';
import { apply, NoAnswer, RETRIES, useAnswers } from './played.jsx';

/** @typedef {import('./played.jsx').Figures} Figures */
/** @typedef {Figures & {with: string, largest: number, fits_again?: number, above: Figures & {error?: string}}} Fit */

/* Whole-numbered settings that can grow, where the job has them. */
const KNOBS = [
  { name: 'batch', has: () => true },
  { name: 'seq', has: () => !report.value || readsSize(report.value, 'seq') },
  { name: 'images', has: () => !!report.value && readsSize(report.value, 'images') },
  { name: 'adapter.r', has: () => valueOf('adapter') === 'lora' },
];

export default function Largest() {
  const knobs = KNOBS.filter(({ has }) => has()).map(({ name }) => name);
  const replies = useAnswers(() => knobs.map((knob) => ({ call: 'fit', words: [], more: { knob } })));
  if (!replies) return <NoAnswer reply={null} />;
  if (!replies.some((reply) => reply?.ok)) return <NoAnswer reply={replies[0]} />;
  const wantsMore = (/** @type {Fit} */ row) => row.largest > 0 && row.device_bytes > (row.gpu_bytes ?? Infinity);
  return (
    <>
    <table class="numbers whatif">
      <thead><tr><th scope="col" class="left">With all else as it is</th><th scope="col">Now</th><th scope="col">Largest</th><th scope="col">Needs</th><th scope="col">One more needs</th><th scope="col"><span class="hidden">Use</span></th></tr></thead>
      <tbody>
        {replies.map((reply, i) => {
          const name = knobs[i];
          /** @type {Fit | undefined} */
          const row = reply?.ok ? reply.rows[0] : undefined;
          if (!row) return null;
          return (
            <tr key={name}>
              <th scope="row" class="left">{titleOf(name)}<small>{name}</small></th>
              <td data-label="now">{fixed(Number(valueOf(name)))}</td>
              <td class="total" data-label="largest">{row.largest ? fixed(row.largest) : 'none fits'}</td>
              <td data-label="needs">{row.largest > 0 && <Bytes n={row.device_bytes} style="natural" />}{wantsMore(row) && '*'}</td>
              <td data-label="one more">{row.above.error ? <span class="muted" data-tip={row.above.error}>not possible</span> : <Bytes n={row.above.device_bytes} style="natural" />}</td>
              <td>{row.largest > 0 && <button type="button" class="button small" aria-label={`Apply ${name}=${row.largest}`} onClick={() => apply([`${name}=${row.largest}`])}>Apply</button>}</td>
            </tr>
          );
        })}
      </tbody>
    </table>
    {replies.map((reply, i) => {
      const row = reply?.ok ? reply.rows[0] : undefined;
      if (!row?.fits_again) return null;
      return <p class="sub" key={knobs[i]}>{knobs[i]}={fixed(row.fits_again)} fits too, but not every value below it: {fixed(row.largest + 1)} does not, because the allocator rounds what it reserves.</p>;
    })}
    {replies.some((reply) => reply?.ok && wantsMore(reply.rows[0])) && <p class="sub">* {RETRIES}</p>}
    </>
  );
}
