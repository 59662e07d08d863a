// SPDX-License-Identifier: Apache-2.0
/* The answer: one number, whether it fits, and the bar of what the device holds. */
import { useEffect, useState } from 'preact/hooks';
import { factor, inOrder } from '../factors.js';
import { exact, extent, fixed, headline, inUnit, percent, tick, ticks, UNITS } from '../format.js';
import { gpusOf, hasStages, layoutOf } from '../layout.js';
import { baselineReport, isConfirmed, settingsOpen, unit } from '../state.js';
import { useWidth } from './hooks.js';
import { Lazy } from './lazy.jsx';
import { Bytes, Delta, fill, Icon } from './marks.jsx';

/** @typedef {import('../types.js').Report} Report */

/* Less than this share of the GPU left is marked: a driver or kernel of another version may need it. */
export const CLOSE = 0.03;

/** The GPU, or the device of a given memory; 0 bytes where neither is chosen.
 * @param {Report} r */
export function cardOf(r) {
  const bytes = r.verdict.gpu_bytes ?? 0;
  return { bytes, title: r.gpu?.title ?? `${headline(bytes, unit.value)} ${unit.value}` };
}

/** @param {Report} r @returns {{kind: 'fits' | 'close' | 'not' | 'none', icon: 'check' | 'warn' | 'cross' | 'info', text: string, detail: string}} */
export function verdictOf(r) {
  const { fits, margin_bytes: margin = 0, retries = 0 } = r.verdict;
  const { smallest_device_bytes: smallest } = r;
  const { title, bytes: whole } = cardOf(r);
  if (r.serving && fits !== null) {
    return fits ? { kind: 'fits', icon: 'check', text: `Starts on ${title}`, detail: r.verdict.sentence }
      : { kind: 'not', icon: 'cross', text: `Not on ${title}`, detail: r.verdict.sentence };
  }
  if (fits === null && r.verdict.gpu_bytes) return { kind: 'close', icon: 'warn', text: 'Cannot tell', detail: r.verdict.sentence };
  const { loading } = r.verdict, ofSteps = loading && `the steps allocate ${headline(loading.steps_allocated, unit.value)} ${unit.value}`;
  if (fits === null) {
    return { kind: 'none', icon: 'info', text: 'No GPU chosen',
      detail: loading ? `Loading needs this${loading.setting ? ` (less with ${loading.setting})` : ''}; ${ofSteps}.` : 'Choose a GPU to see whether it fits.' };
  }
  const { range } = r.peak;
  const sizeOf = (/** @type {number} */ bytes) => `${headline(Math.abs(bytes), unit.value)} ${unit.value}`, atLeast = range ? 'at least ' : '';
  const size = sizeOf(margin), spare = range ? whole - range.high : margin;
  if (range && range.low <= whole && range.high > whole) {
    return { kind: 'close', icon: 'warn', text: 'Cannot tell', detail: r.verdict.sentence };
  }
  if (loading) {
    return { kind: 'not', icon: 'cross', text: `Loading does not fit ${title}`, detail: loading.setting ? `set ${loading.setting}` : ofSteps ?? '' };
  }
  if (!fits) return { kind: 'not', icon: 'cross', text: `Does not fit ${title}`, detail: `${atLeast}${sizeOf(range ? range.low - whole : margin)} over` };
  if (margin < 0) {
    return { kind: 'close', icon: 'warn', text: `Barely fits ${title}`,
      detail: `would reserve ${size} more than there is; the allocator frees cached memory in ${retries === 1 ? 'one retry' : `${retries} retries`}${
        smallest ? `. It runs on ${headline(smallest, unit.value)} ${unit.value} or more` : ''}` };
  }
  const detail = `${atLeast}${sizeOf(spare)} to spare (${percent(spare, whole)})`;
  return spare < CLOSE * whole
    ? { kind: 'close', icon: 'warn', text: `Barely fits ${title}`, detail }
    : { kind: 'fits', icon: 'check', text: `Fits ${title}`, detail };
}

/** Of which device the number is. @param {Report} r */
function subjectOf(r) {
  const used = (/** @type {string} */ name) => r.settings.find((setting) => setting.name === name)?.value ?? '';
  const wanted = r.verdict.fits && (r.verdict.margin_bytes ?? 0) < 0 ? 'would be reserved' : '';
  const gpus = gpusOf(layoutOf(used));
  const where = gpus > 1 && (hasStages(used) || used('parallel.rank') !== '') ? `on rank ${r.peak.rank} of ${fixed(gpus)} GPUs` : gpus > 1 ? `on each of ${fixed(gpus)} GPUs` : 'on the device';
  return `${wanted} ${where} at the peak`.trim();
}

/** Where the peak is, in words. @param {Report['peak']} peak */
export function placeOf(peak) {
  return [peak.step ? `step ${peak.step}` : '', peak.phase].filter(Boolean).join(', ');
}

/** What a file or its program pins in place of the versions that the figures are exact for. @param {{name: string, pinned?: string, by?: string}[]} versions */
function pinnedOf(versions) {
  const pinned = versions.filter((one) => one.pinned);
  return pinned.length ? `; ${pinned[0].by} pins ${pinned.map((one) => `${one.name} ${one.pinned}`).join(', ')}` : '';
}

/** The figures are near: something is left out, a server's are a range, or a file has what is not described. @param {Report} r */
const isNear = (r) => !!r.verdict.left_out || !!r.serving && (!!r.serving.buffers || r.serving.blocks_at_least < r.serving.blocks_at_most) || r.diagnostics?.some(({ severity, code, place }) => severity === 'warning' && code === 'ERR_UNSUPPORTED' && place?.startsWith('/files/'));

/** Whether the verdict's own sentence has the range. @param {{detail: string}} verdict */
const saysRange = ({ detail }) => detail.startsWith('between');

/** What the range is for, of a model without a description: what it was taken for, and the keys that nothing reads. @param {Report} r */
const unsure = (r) => r.assumptions.filter(({ setting }) => setting.startsWith('/')).map(({ text }) => text[0].toUpperCase() + text.slice(1));

/** @param {{r: Report, isFramed?: boolean}} props isFramed: in another page, where nothing is changed */
export function Verdict({ r, isFramed = false }) {
  const verdict = verdictOf(r);
  const { peak } = r;
  const then = baselineReport.value;
  return (
    <section class={`card verdict is-${verdict.kind}`} aria-labelledby="verdict-title">
      <div class="verdict-head">
        <div class="verdict-number">
          <h2 id="verdict-title" class="hidden">Memory on the device</h2>
          <p class="big"><Bytes n={r.verdict.device_bytes} style="headline" /> <span class="big-unit">{unit.value}</span></p>
          <p class="sub">{subjectOf(r)}{then && <span class="since"> {r.verdict.device_bytes === then.verdict.device_bytes ? 'as the baseline' : <><Delta n={r.verdict.device_bytes - then.verdict.device_bytes} /> {unit.value}</>}</span>}</p>
        </div>
        <div class="verdict-words">
          <p class="pill"><Icon name={verdict.icon} />{verdict.text}</p>
          {r.read_as?.split('\n').map((text) => <p key={text} class="sub strong">{text}</p>)}
          <p class="sub strong">{verdict.detail}</p>
          {isConfirmed.value && <p class="sub">As it was when the link was made</p>}
          {r.besides?.map(({ name, bytes, least, most, source }) => <p key={name} class="sub" data-tip={source}>plus {name === 'nccl' && 'about '}<Bytes n={bytes} style="natural" /> {name !== 'nccl' ? 'of pinned memory on the host' : <>for NCCL ({least !== undefined && <Bytes n={least} style="natural" />} to {most !== undefined && <Bytes n={most} style="natural" />})</>}, not included</p>)}
          {r.peak.range && !saysRange(verdict) && <p class="sub">{extent(r.peak.range, unit.value)}, as {r.peak.range.reason ?? 'no run of it is recorded'}</p>}
          {r.peak.range?.remedy && <p class="sub">For an exact answer {r.peak.range.remedy.split('`').map((text, i) => (i % 2 ? <code key={text}>{text}</code> : text))}</p>}
          {r.peak.range && unsure(r).map((text) => <p key={text} class="sub">{text}</p>)}
          {r.versions && r.versions.length > 0 && <p class="sub versions">{peak.range || isNear(r) ? 'By the rules of' : 'Exact for'} {r.versions.map(({ name, version }) => `${name} ${version}`).join(', ')}{pinnedOf(r.versions)}</p>}
        </div>
        <dl class="facts">
          <div><dt>Allocated</dt><dd><Bytes n={peak.allocated} named /></dd></div>
          <div><dt>Reserved</dt><dd><Bytes n={peak.reserved} named /></dd></div>
          <div class="fact-wide"><dt>Peak in</dt><dd>{placeOf(peak)}{(peak.module || peak.op) && <small>{[peak.op, peak.module].filter(Boolean).join(' · ')}</small>}{r.batches && <small>{r.batches.sentence}</small>}</dd></div>
        </dl>
      </div>
      {r.verdict.oom && <OutOfMemory oom={r.verdict.oom} />}
      {verdict.kind === 'not' && !isFramed && <div class="closest-place"><Lazy load={() => import('./Closest.jsx')} /></div>}
      <CapacityBar r={r} />
    </section>
  );
}

/** Where the job would stop on this GPU, in the words of PyTorch's own error.
 * @param {{oom: NonNullable<Report['verdict']['oom']>}} props */
const OutOfMemory = ({ oom }) => (
  <p class="oom">
    <b>Stops in step {oom.step}, {oom.phase}:</b> <code>{oom.op}</code>{oom.module && <> in <code>{oom.module}</code></>} asks
    for <Bytes n={oom.tried} style="natural" /> with <Bytes n={oom.free} style="natural" /> free.
    {oom.line && <code class="oom-line">{oom.line}</code>}
  </p>
);

const BAR = 30;
const WHISKER = 14; /* above the bar, whose labels it would strike through */

/** What an inference server holds, by the factor whose fill it has. @param {NonNullable<Report['serving']>} serving */
export const heldBy = ({ weights, consumed, transient, graphs, blocks, block_bytes: block, card }) => [
  { name: 'parameters', title: 'Weights', bytes: weights },
  { name: 'buffers', title: 'Buffers of the model', bytes: consumed - weights },
  { name: 'temporary', title: 'Largest batch', bytes: transient },
  { name: 'workspace', title: 'CUDA graphs', bytes: graphs },
  { name: 'activations', title: 'KV cache', bytes: blocks * block },
  { name: 'context', title: factor('context').title, bytes: card.context },
].filter(({ bytes }) => bytes > 0);

/** Where a part's label has room: the wider side of the GPU's line, where that goes through the part. @param {number} from @param {number} to @param {number} gpu */
function roomFor(from, to, gpu) {
  if (gpu <= from || gpu >= to) return [from, to];
  return gpu - from > to - gpu ? [from, gpu] : [gpu, to];
}

/** @param {{r: Report}} props */
function CapacityBar({ r }) {
  const [ref, width] = useWidth('.bar', 1020);
  const { bytes: gpu, title: card } = cardOf(r);
  const used = r.verdict.device_bytes;
  const { range } = r.peak;
  const top = Math.max(gpu, used, range?.high ?? 0, 1);
  const above = range ? WHISKER : 0;
  const share = (/** @type {number} */ bytes) => `${((100 * bytes) / top).toFixed(3)}%`;
  const byName = new Map(r.factors.map((f) => [f.name, f.bytes]));
  const parts = r.serving ? heldBy(r.serving) : [
    ...inOrder([...byName.keys()]).map((name) => ({ name, bytes: byName.get(name) ?? 0 })),
    ...r.outside.map(({ name, bytes }) => ({ name, bytes })),
  ].map((part) => ({ ...part, title: factor(part.name).title })).filter(({ bytes }) => bytes > 0);

  let at = 0;
  const segments = parts.map((part) => {
    const from = at;
    at += part.bytes;
    return { ...part, from };
  });
  const marks = ticks(top, unit.value, Math.max(3, Math.min(9, Math.round(width / 90))));
  const summary = `${headline(used, unit.value)} ${UNITS[unit.value].spoken} used` +
    (gpu ? ` of ${headline(gpu, unit.value)} on ${card}` : '') +
    (range ? `, ${extent(range, unit.value)}` : '') + ': ' +
    parts.map((p) => `${p.title.toLowerCase()} ${inUnit(p.bytes, unit.value)}`).join(', ');

  return (
    <div ref={ref} class="bar">
      <svg width="100%" height={BAR + 26 + above} role="img" aria-label={summary}>
        <g transform={above ? `translate(0 ${above})` : undefined}>
          <rect class="bar-track" x="0" y="0" width={share(gpu || used)} height={BAR} rx="4" />
          {segments.map(({ name, title, bytes, from }) => {
            const pixels = (bytes / top) * width;
            const [left, right] = roomFor(from, from + bytes, gpu);
            const room = ((right - left) / top) * width;
            const value = inUnit(bytes, unit.value, unit.value === 'MiB' ? 0 : 1);
            const patterned = !!factor(name).pattern;
            const label = patterned ? '' : room > (title.length + value.length + 1) * 6.9 + 14 ? `${title} ${value}`
              : room > title.length * 6.9 + 12 ? title : room > value.length * 7 + 8 ? value : '';
            return (
              <g key={name} data-tip={`${title}: ${inUnit(bytes, unit.value)} ${unit.value}, ${percent(bytes, used)} (${exact(bytes)})`}>
                <rect x={share(from)} y="0" width={share(bytes)} height={BAR} {...fill(name)} />
                {pixels > 4 && <line class="gap" x1={share(from + bytes)} x2={share(from + bytes)} y1="0" y2={BAR} />}
                {label && <text class={`on on-${name}`} x={share((left + right) / 2)} y={BAR / 2} dy="0.36em" text-anchor="middle">{label}</text>}
              </g>
            );
          })}
          {range && (
            <g class="whisker" data-tip={`The answer is ${extent(range, unit.value)}`}>
              <line x1={share(range.low)} x2={share(range.high)} y1="-8" y2="-8" />
              {[range.low, range.high].map((end) => <line key={end} x1={share(end)} x2={share(end)} y1="-13" y2="-3" />)}
            </g>
          )}
          {gpu > 0 && used > gpu && <rect class="bar-over" x={share(gpu)} y={BAR + 2} width={share(used - gpu)} height="3" />}
          {gpu > 0 && <line class="bar-limit" x1={share(gpu)} x2={share(gpu)} y1="-2" y2={BAR + 6} />}
          {marks.map((mark) => {
            const x = mark / top;
            if (gpu > 0 && Math.abs(mark - gpu) / top * width < 84 && mark !== 0) return null;
            return (
              <g key={mark} class="axis">
                <line x1={share(mark)} x2={share(mark)} y1={BAR} y2={BAR + 4} />
                <text x={share(mark)} y={BAR + 18} text-anchor={mark === 0 ? 'start' : x > 0.97 ? 'end' : 'middle'}>{tick(mark, unit.value)}</text>
              </g>
            );
          })}
          {gpu > 0 && (
            <text class="bar-gpu" x={share(gpu)} y={BAR + 18} text-anchor={gpu / top > 0.9 ? 'end' : 'middle'}>{inUnit(gpu, unit.value, unit.value === 'MiB' ? 0 : 1)} {unit.value}</text>
          )}
        </g>
      </svg>
    </div>
  );
}

/** One line that stays in sight on a small screen: the verdict once the number itself is out of sight.
 * @param {{r: Report}} props */
export function StickyVerdict({ r }) {
  const verdict = verdictOf(r);
  const [isSeen, setSeen] = useState(true);
  useEffect(() => {
    const observer = new IntersectionObserver(([entry]) => setSeen(entry.isIntersecting), { rootMargin: '-106px 0px 0px' });
    observer.observe(/** @type {Element} */ (document.querySelector('.verdict-number')));
    return () => observer.disconnect();
  }, []);
  return (
    <div class={`sticky-verdict is-${verdict.kind}${isSeen ? ' is-above' : ''}`}>
      <span class="sticky-text" aria-hidden="true"><b>{headline(r.verdict.device_bytes, unit.value)} {unit.value}</b>
        <span class="sticky-state"><Icon name={verdict.icon} />{verdict.text}</span></span>
      <button type="button" class="button" onClick={() => { settingsOpen.value = true; }}><Icon name="sliders" />Settings</button>
    </div>
  );
}

/** The sentence of the live region. @param {Report} r */
export function spokenVerdict(r) {
  const { text, detail } = verdictOf(r);
  return `${fixed(r.verdict.device_bytes / UNITS[unit.value].bytes, 1)} ${UNITS[unit.value].spoken}. ${text}, ${detail}.`;
}
