// SPDX-License-Identifier: Apache-2.0
/* An inference server: how many requests of which length its cache holds, what other flags would give, and the command that starts it. */
import { useRef } from 'preact/hooks';
import { fixed, inUnit } from '../format.js';
import { addStyle } from '../sheet.js';
import { unit } from '../state.js';
import { copy } from './CopyDialog.jsx';
import { useWidth } from './hooks.js';
import { Bytes } from './marks.jsx';
import { Section } from './Section.jsx';
import style from './serving.css';

addStyle(style);

/** @typedef {import('../types.js').Report} Report
 * @typedef {NonNullable<Report['serving']>} ServingReport */

const HEIGHT = 168;
const LEFT = 58;
const BOTTOM = 36;

/** Requests that fit at once, by their length: both axes by powers of two. The line is the GPU's edge.
 * @param {{serving: ServingReport}} props */
function Lengths({ serving }) {
  const [ref, width] = useWidth('.lengths', 640);
  const points = serving.requests.filter(({ fit }) => fit > 0);
  if (points.length < 2) return null;
  const wide = Math.max(width, 300);
  const log = Math.log2;
  const first = log(points[0].tokens);
  const span = log(points[points.length - 1].tokens) - first;
  const top = Math.ceil(log(Math.max(...points.map(({ fit }) => fit)) + 1));
  const x = (/** @type {number} */ tokens) => LEFT + ((log(tokens) - first) / span) * (wide - LEFT - 24);
  const y = (/** @type {number} */ fit) => 10 + (1 - log(fit) / top) * (HEIGHT - BOTTOM - 10);
  const line = points.map(({ tokens, fit }) => `${x(tokens).toFixed(1)},${y(fit).toFixed(1)}`).join(' ');
  const floor = HEIGHT - BOTTOM;
  const labels = points.filter((_, i) => i % Math.ceil(points.length / Math.max(2, Math.floor(wide / 80))) === 0);
  const said = points.map(({ tokens, fit }) => `${fixed(fit)} of ${fixed(tokens)} tokens`).join(', ');
  return (
    <div ref={ref} class="lengths">
      <svg width="100%" height={HEIGHT} viewBox={`0 0 ${wide} ${HEIGHT}`} role="img" aria-label={`Requests that fit at once: ${said}`}>
        {Array.from({ length: Math.floor(top / 2) + 1 }, (_, i) => 2 ** (i * 2)).map((fit) => (
          <g key={fit} class="axis"><line x1={LEFT} x2={wide - 24} y1={y(fit)} y2={y(fit)} /><text x={LEFT - 8} y={y(fit)} dy="0.35em" text-anchor="end">{fixed(fit)}</text></g>
        ))}
        <polygon class="lengths-fit" points={`${x(points[0].tokens)},${floor} ${line} ${x(points[points.length - 1].tokens)},${floor}`} />
        <polyline class="lengths-edge" points={line} />
        {points.map(({ tokens, fit }) => (
          <circle key={tokens} class="lengths-point" cx={x(tokens)} cy={y(fit)} r="4" data-tip={`${fixed(fit)} requests of ${fixed(tokens)} tokens fit at once`} />
        ))}
        {labels.map(({ tokens }) => <g key={tokens} class="axis"><text x={x(tokens)} y={floor + 16} text-anchor="middle">{fixed(tokens)}</text></g>)}
        <text class="axis-title" x={wide - 24} y={HEIGHT - 1} text-anchor="end">tokens per request</text>
        <text class="axis-title" x={wide - 32} y={26} text-anchor="end">more than the GPU holds</text>
        <text class="axis-title" x={LEFT + 8} y={floor - 8}>requests that fit at once</text>
      </svg>
    </div>
  );
}

/** The longest request, and the fewest GPUs for as many requests as are asked for.
 * @param {{serving: ServingReport, smallest: ServingReport['smallest'], isLate: boolean}} props */
function Limits({ serving, smallest, isLate }) {
  const { longest } = serving;
  const all = longest?.of_max_concurrency;
  if (!longest && smallest === undefined) return null;
  return (
    <p class={`sub serving-limits${isLate && smallest !== undefined ? ' is-late' : ''}`}>
      {longest && (longest.of_one > 0 ? `The longest request that fits has ${fixed(longest.of_one)} tokens` : 'Not one token fits')}
      {longest && (all === undefined ? '. ' : all > 0 ? `; all of them fit at once with up to ${fixed(all)} each. ` : '; all of them at once do not fit at any length. ')}
      {smallest && `${fixed(smallest.cards)} ${smallest.asked ? (smallest.cards === 1 ? 'GPU holds all of them' : 'of these GPUs hold all of them') : 'of these GPUs start it'}: ${smallest.servers === 1 ? 'one server' : `${fixed(smallest.servers)} servers`}, --tensor-parallel-size ${fixed(smallest.tensor_parallel_size)}.`}
      {smallest === null && 'No server on up to 16 of these GPUs holds one of them.'}
    </p>
  );
}

/** @param {{r: Report, panel: import('../panels.js').Panel}} props */
export default function Serving({ r, panel }) {
  const serving = /** @type {ServingReport} */ (r.serving);
  const { command, buffers } = serving;
  const last = useRef(serving);
  if (!r.brief) last.current = serving;
  const { levers = [], smallest } = last.current; /* of the last whole answer until the next one is there */
  return (
    <Section panel={panel} r={r} note={`${serving.engine}: ${fixed(serving.tokens)} tokens of KV cache${buffers ? '' : ` in ${fixed(serving.blocks)} blocks`}`}>
      <div class="serving">
        <div>
          <h3>Requests that fit at once, by length</h3>
          <Lengths serving={serving} />
          <table class="numbers serving-requests">
            <thead><tr><th scope="col">Tokens per request</th><th scope="col">Fit at once</th></tr></thead>
            <tbody>{serving.requests.map(({ tokens, fit }) => <tr key={tokens}><th scope="row">{fixed(tokens)}</th><td>{fit ? fixed(fit) : 'none'}</td></tr>)}</tbody>
          </table>
        </div>
        <div>
          <h3>Flags to paste</h3>
          <p class="serving-command"><code>{command}</code>
            <button type="button" class="button small" onClick={() => copy('Command', command)}>Copy</button></p>
          <Limits serving={serving} smallest={smallest} isLate={!!r.brief} />
          {levers.length > 0 && (
            <table class={`numbers${r.brief ? ' is-late' : ''}`} aria-busy={r.brief}>
              <thead><tr><th scope="col" class="left">With</th><th scope="col">Cache, {unit.value}</th><th scope="col">Tokens</th></tr></thead>
              <tbody>
                {levers.map(({ flag, cache_bytes: bytes, tokens }) => (
                  <tr key={flag}><th scope="row" class="left"><code>{flag}</code></th>
                    <td>{bytes < 0 ? '−' : '+'}{inUnit(Math.abs(bytes), unit.value)}</td><td>{fixed(tokens)}</td></tr>
                ))}
              </tbody>
            </table>
          )}
          {buffers && (
            <table class="numbers">
              <thead><tr><th scope="col" class="left">Buffer</th><th scope="col" class="left">On</th><th scope="col">At least, {unit.value}</th><th scope="col">At most</th></tr></thead>
              <tbody>
                {buffers.map(({ name, place, low, high, why }) => (
                  <tr key={name} data-tip={why}><th scope="row" class="left">{name}</th><td class="left">{place === 'host' ? 'host' : 'GPU'}</td>
                    <td>{inUnit(low, unit.value)}</td><td>{inUnit(high, unit.value)}</td></tr>
                ))}
              </tbody>
            </table>
          )}
          {!buffers && <p class="sub">A block is {fixed(serving.groups[0]?.block_size ?? 0)} tokens, <Bytes n={serving.block_bytes} style="natural" />.
            {serving.blocks_at_least < serving.blocks_at_most && ` Between ${fixed(serving.blocks_at_least)} and ${fixed(serving.blocks_at_most)} blocks, as the compiler chooses buffers.`}</p>}
        </div>
      </div>
    </Section>
  );
}
