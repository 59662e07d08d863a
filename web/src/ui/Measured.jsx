// SPDX-License-Identifier: Apache-2.0
/* How exact the numbers are; and a measured run beside them: the difference, and the term that is nearest to it. */
import { useState } from 'preact/hooks';
import { factor } from '../factors.js';
import { inUnit, percent, UNITS } from '../format.js';
import { command, report, unit } from '../state.js';
import { copy } from './CopyDialog.jsx';
import { Delta } from './marks.jsx';
import { addStyle } from '../sheet.js';
import style from './measured.css';

addStyle(style);

const COUNTERS = [
  { name: 'reserved', title: 'torch.cuda.max_memory_reserved()' },
  { name: 'allocated', title: 'torch.cuda.max_memory_allocated()' },
  { name: 'device', title: 'nvidia-smi, for the process' },
];

/** Bytes of what is typed: "68.2", "68.2 GiB", "70,012 MiB", "73740058624" (no unit, and more than a GPU could hold: bytes).
 * @param {string} text @param {import('../format.js').Unit} usual */
export function readSize(text, usual) {
  const found = /^\s*([\d.,_ ]+?)\s*(b|bytes|mib|mb|gib|gb|kib)?\s*$/i.exec(text);
  const value = found ? Number(found[1].replace(/[,_ ]/g, '')) : NaN;
  if (!found || !(value > 0)) return null;
  const sizes = { b: 1, bytes: 1, kib: 2 ** 10, mib: 2 ** 20, mb: 1e6, gib: 2 ** 30, gb: 1e9 };
  const named = found[2]?.toLowerCase();
  if (named) return value * sizes[/** @type {keyof typeof sizes} */ (named)];
  return value > 1e7 ? value : value * UNITS[usual].bytes;
}

export default function Measured() {
  const [text, setText] = useState('');
  const [counter, setCounter] = useState('reserved');
  const r = report.value;
  if (!r) return null;
  const measured = readSize(text, unit.value);
  const predicted = { reserved: r.peak.reserved, allocated: r.peak.allocated, device: r.verdict.device_bytes }[counter] ?? 0;
  const by = measured === null ? 0 : predicted - measured;
  const terms = [...r.factors, ...r.outside.filter(({ name }) => counter === 'device' || (counter === 'reserved' && name === 'fragmentation'))].filter(({ bytes }) => bytes > 0);
  const off = (/** @type {number} */ bytes) => Math.abs(Math.log(bytes / Math.abs(by)));
  const near = terms.reduce((best, term) => (off(term.bytes) < off(best.bytes) ? term : best), terms[0]);
  const title = COUNTERS.find(({ name }) => name === counter)?.title;
  const wrong = () => copy('Report', `tidemark ${r.tidemark}\n\n${command.value}\n\n${title}: measured ${text.trim()}${/[a-z]/i.test(text) ? '' : ` ${unit.value}`}, predicted ${predicted} bytes\n`);
  return (
    <>
    <p class="sub">Allocated and reserved are what PyTorch’s own rules come to, simulated event by event; recorded runs are compared with them byte by byte in
      tidemark’s tests. Outside of the allocator, the CUDA context is measured for each kind of GPU, and may differ with another driver or library.</p>
    <div class="measured">
      <label>Peak of the run <input type="text" inputMode="decimal" autocomplete="off" value={text} aria-describedby="measured-result"
        onInput={(event) => setText(event.currentTarget.value)} /> <span>{unit.value}</span></label>
      <label>measured with <select value={counter} onChange={(event) => setCounter(event.currentTarget.value)}>
        {COUNTERS.map(({ name, title }) => <option key={name} value={name} selected={name === counter}>{title}</option>)}</select></label>
      <output id="measured-result">{measured === null ? (text.trim() ? <span class="bad">Write a size, such as 68.2 GiB or 70012 MiB.</span> : '')
        : by === 0 ? <>Predicted is the same, to the byte.</>
          : <>Predicted is {inUnit(predicted, unit.value)} {unit.value}: <Delta n={by} /> {unit.value}, {percent(Math.abs(by), measured)} {by < 0 ? 'less' : 'more'} than measured.
            {Math.abs(by) > 0.005 * measured && near && <> Nearest term: {factor(near.name).title.toLowerCase()}, {inUnit(near.bytes, unit.value)} {unit.value}.</>}{' '}
            <button type="button" class="button small" onClick={wrong} data-tip="Version, job and both numbers as text, for an issue">Copy a report</button></>}</output>
    </div>
    </>
  );
}
