// SPDX-License-Identifier: Apache-2.0
/* The largest groups of tensors that live at the peak, with where their shapes come from. */
import { useState } from 'preact/hooks';
import { factor } from '../factors.js';
import { exact, fixed, percent } from '../format.js';
import { keptUntil } from '../kept.js';
import { CopyTable } from './CopyDialog.jsx';
import { Bytes, Swatch } from './marks.jsx';
import { Section } from './Section.jsx';

/** @param {{tensor: import('../types.js').Tensor}} props */
function Shape({ tensor }) {
  return (
    <span class="shape">
      {tensor.shape.map(({ n, name }, i) => (
        <span key={i} class="dim">{i > 0 && <i>×</i>}<span><b>{fixed(n)}</b><small>{name}</small></span></span>
      ))}
      <span class="dim"><i>×</i><span><b>{tensor.dtype}</b><small>dtype</small></span></span>
    </span>
  );
}

const SHORT = 8; /* rows at first */

/** The module without what its part's name says already.
 * @param {import('../types.js').Tensor} tensor */
function moduleOf({ part, module }) {
  const path = `.${module}.`;
  const at = part ? path.indexOf(`.${part}.`) : -1;
  return at < 0 ? module : path.slice(at + part.length + 2, -1);
}

/** @param {{r: import('../types.js').Report, panel: import('../panels.js').Panel}} props */
export function Tensors({ r, panel }) {
  const [all, setAll] = useState(false);
  const groups = r.tensors.filter((t) => t.rest === undefined);
  const rest = r.tensors.find((t) => t.rest !== undefined)?.rest ?? 0;
  const part = (/** @type {string} */ name) => r.breakdown.find((p) => p.part === name)?.title ?? name;
  return (
    <Section panel={panel} r={r} tools={<CopyTable />}>
      <div class="scroll" tabIndex={0} role="group" aria-label="Table of the largest tensors">
        <table class="numbers tensors">
          <thead><tr><th scope="col">Total</th><th scope="col" class="share">%</th><th scope="col">Count × each</th><th scope="col" class="left">Shape</th><th scope="col" class="left">From</th></tr></thead>
          <tbody>
            {(all ? groups : groups.slice(0, SHORT)).map((g, i) => {
              const t = /** @type {import('../types.js').Tensor} */ (g);
              return (
                <tr key={i}>
                  <th scope="row" class="total"><Bytes n={t.bytes} style="natural" /></th>
                  <td class="share">{percent(t.bytes, r.peak.allocated)}</td>
                  <td>{fixed(t.count)} × <Bytes n={t.each} style="natural" /></td>
                  <td class="left"><Shape tensor={t} /></td>
                  <td class="left from"><span class="from-head" data-tip={factor(t.factor).title}><Swatch name={t.factor} />{part(t.part)} <span class="muted">{moduleOf(t)}</span> <code data-tip={`kept until ${keptUntil(t.freed[0])}`}>{t.op}</code></span>
                    {t.line && <code class="line">{t.line}</code>}</td>
                </tr>
              );
            })}
          </tbody>
          {rest > 0 && (all || groups.length <= SHORT) && <tfoot><tr><th scope="row" class="total"><Bytes n={rest} style="natural" /></th><td class="share">{percent(rest, r.peak.allocated)}</td><td colSpan={3} class="left muted">everything smaller ({exact(rest)})</td></tr></tfoot>}
        </table>
      </div>
      {groups.length > SHORT && (
        <button type="button" class="button small more-rows" aria-expanded={all} onClick={() => setAll(!all)}>{all ? 'Show fewer' : `Show all ${groups.length}`}</button>
      )}
    </Section>
  );
}
