// SPDX-License-Identifier: Apache-2.0
/* What one number is made of: the tensors behind it, each as a product of named dimensions, with its operation and the line
 * of the description that made it. */
import { useEffect, useRef, useState } from 'preact/hooks';
import { factor } from '../factors.js';
import { exact, fixed, inUnit, natural, percent } from '../format.js';
import { askApart } from '../asking.js';
import { keptUntil } from '../kept.js';
import { details, job, link, report, unit } from '../state.js';
import { copy } from './CopyDialog.jsx';
import { Bytes, Icon, Swatch } from './marks.jsx';
import { addStyle } from '../sheet.js';
import style from './drawer.css';

addStyle(style);

/** @typedef {import('../types.js').Tensor & {requested?: number}} Tensor */
/** @typedef {{allocated_peak: number, bytes: number, at: {event: number, step: number, phase: string, op: string, module: string, line?: string, allocated?: number},
 *   tensors: Tensor[]}} Explanation */

/** Bytes of one element, where shape and request say it. @param {Tensor} tensor */
function elementBytes({ shape, each, requested = each }) {
  const count = shape.reduce((product, { n }) => product * n, 1);
  return count > 0 && requested % count === 0 ? requested / count : 0;
}

/** @param {{tensor: Tensor}} props */
function Formula({ tensor }) {
  const size = elementBytes(tensor);
  return (
    <p class="formula">
      {tensor.count > 1 && <span class="dim"><span><b>{fixed(tensor.count)}</b><small>tensors</small></span></span>}
      {tensor.shape.map(({ n, name }, i) => (
        <span key={i} class="dim">{(i > 0 || tensor.count > 1) && <i>×</i>}<span><b>{fixed(n)}</b><small>{name}</small></span></span>
      ))}
      {size > 0 && <span class="dim"><i>×</i><span><b>{size} B</b><small>{tensor.dtype}</small></span></span>}
      <span class="dim"><i>=</i><span><b>{natural(tensor.bytes, unit.value)}</b><small>{size > 0 && tensor.requested !== tensor.each ? 'in blocks' : ''}</small></span></span>
    </p>
  );
}

/** @param {Tensor} tensor */
const formulaText = (tensor) => `${tensor.count > 1 ? `${tensor.count} x ` : ''}${tensor.shape.map(({ n, name }) => (name ? `${n} ${name}` : n)).join(' x ')} x ${tensor.dtype} = ${tensor.bytes} bytes`;

/** @param {{tensor: Tensor, whole: number, shows: boolean}} props */
const Item = ({ tensor, whole, shows }) => (
  <li>
    <p class="item-head">{shows && <Swatch name={tensor.factor} />}<b><Bytes n={tensor.bytes} style="natural" /></b> <span class="muted">{percent(tensor.bytes, whole)}</span>
      <button type="button" class="icon-button small" aria-label="Copy this formula" data-tip="Copy" onClick={() => copy('Formula', formulaText(tensor))}><Icon name="copy" /></button></p>
    <Formula tensor={tensor} />
    <p class="item-from"><code>{tensor.module || 'outside of the model'}</code> <span class="muted">by</span> <code>{tensor.op}</code></p>
    {tensor.line && <code class="line">{tensor.line}</code>}
    {tensor.freed.map((freed, i) => (
      <p key={i} class="item-from"><span class="muted">{tensor.freed.length > 1 && `${fixed(freed.count)} `}kept until</span> {keptUntil(freed)}</p>
    ))}
    {tensor.requested !== undefined && tensor.requested !== tensor.each
      && <p class="item-from muted">{exact(tensor.requested)} asked for, a block of {exact(tensor.each)}</p>}
  </li>
);

/** The whole device: allocated, and what is around it. @param {{r: import('../types.js').Report}} props */
function Device({ r }) {
  return (
    <>
      <p class="drawer-sum">{inUnit(r.verdict.device_bytes, unit.value)} {unit.value}<small>{exact(r.verdict.device_bytes)}</small></p>
      <ul class="drawer-list">
        <li><p class="item-head"><b><Bytes n={r.peak.allocated} style="natural" /></b> allocated</p>
          <p class="item-from">What PyTorch’s tensors hold at the highest point: {[r.peak.op, r.peak.module].filter(Boolean).join(' in ')}.</p></li>
        {r.outside.map(({ name, bytes, source }) => (
          <li key={name}><p class="item-head"><Swatch name={name} /><b><Bytes n={bytes} style="natural" /></b> {factor(name).title.toLowerCase()}</p>
            <p class="item-from">{factor(name).help} {source && <span class="muted">{source}.</span>}</p></li>
        ))}
      </ul>
      <p class="drawer-note">Reserved is {exact(r.peak.reserved)}: what <code>torch.cuda.max_memory_reserved()</code> would say. {r.allocator.segments} segments
        are held at the end{r.allocator.retries > 0 && `, after ${r.allocator.retries} retries`}.</p>
    </>
  );
}

/** @param {{of: import('../types.js').Details}} props */
function Tensors({ of }) {
  const [reply, setReply] = useState(/** @type {Explanation | null | 'lost'} */ (null));
  const [all, setAll] = useState(false);
  const { title, ...cell } = of;
  const key = JSON.stringify(cell) + link.value;
  useEffect(() => {
    const stop = new AbortController();
    setReply(null);
    setAll(false);
    askApart('explain', cell, job(), stop.signal).then((answer) => { if (!stop.signal.aborted) setReply(answer?.ok ? answer : 'lost'); });
    return () => stop.abort();
  }, [key]);
  if (reply === 'lost') return <p class="drawer-note">No answer came. Change a setting or reload the page.</p>;
  if (!reply) return <p class="drawer-note">Working it out…</p>;
  const { at, bytes, tensors } = reply;
  const shown = all ? tensors : tensors.slice(0, 12);
  return (
    <>
      <p class="drawer-sum">{inUnit(bytes, unit.value)} {unit.value}<small>{exact(bytes)}, {percent(bytes, at.allocated ?? reply.allocated_peak)} of what is allocated {of.event === undefined ? 'at the peak' : 'then'}</small></p>
      {of.event !== undefined && <p class="drawer-note">Event {fixed(at.event)}, {at.step > 0 && `step ${at.step}, `}{at.phase}: <code>{at.op}</code>{at.module && <> in <code>{at.module}</code></>}</p>}
      {tensors.length === 0 && <p class="drawer-note">Nothing lives here then.</p>}
      <ul class="drawer-list">{shown.map((tensor, i) => <Item key={i} tensor={tensor} whole={bytes} shows={!of.factor} />)}</ul>
      {tensors.length > shown.length && (
        <button type="button" class="button" onClick={() => setAll(true)}>{fixed(tensors.length - 12)} more, {natural(tensors.slice(12).reduce((sum, t) => sum + t.bytes, 0), unit.value)}</button>
      )}
    </>
  );
}

export default function Drawer() {
  const box = useRef(/** @type {HTMLDivElement | null} */ (null));
  const of = details.value;
  const r = report.value;
  const from = useRef(/** @type {Element | null} */ (null));
  useEffect(() => {
    if (document.activeElement && !box.current?.contains(document.activeElement)) from.current = document.activeElement;
    /** @type {HTMLElement | null | undefined} */ (box.current?.querySelector('.drawer-head button'))?.focus();
  }, [of]);
  if (!of || !r) return null;
  function close() {
    details.value = null;
    /** @type {HTMLElement | null} */ (from.current)?.focus?.();
  }
  return (
    <div ref={box} class="drawer" role="dialog" aria-labelledby="drawer-title"
      onKeyDown={(event) => { if (event.key === 'Escape') { event.stopPropagation(); close(); } }}>
      <div class="drawer-head">
        <h2 id="drawer-title">{of.factor && <Swatch name={of.factor} />}{of.title}</h2>
        <button type="button" class="icon-button" aria-label="Close the details" onClick={close}><Icon name="cross" /></button>
      </div>
      <div class="drawer-body" tabIndex={0} role="group" aria-label="Details">
        {of.factor || of.part !== undefined || of.event !== undefined ? <Tensors of={of} /> : <Device r={r} />}
      </div>
    </div>
  );
}
