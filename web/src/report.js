// SPDX-License-Identifier: Apache-2.0
/* What the page shows as one HTML file to pass on, print or keep beside a run: no script, no request, and the link and command that give it again. */
import { address } from './address.js';
import { played, result, save } from './exports.js';
import { factor, heldFactors, inOrder, totalOf } from './factors.js';
import { exact, fixed, inUnit, natural, percent } from './format.js';
import { svgText } from './picture.js';
import { recording } from './recordings.js';
import { baselineReport, command, describe, unit } from './state.js';
import { placeOf, verdictOf } from './ui/Verdict.jsx';

/** @param {string | number} text */
const plain = (text) => String(text).replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);

/** @typedef {(string | number)[]} Row  the first is its heading; numbers are sizes in bytes */

/** @param {string | number} cell */
const isFigure = (cell) => typeof cell === 'number' || /^<?[\d.,]+ ?%?$/.test(cell);

/** @param {number} bytes */
const size = (bytes) => `<td title="${exact(bytes)}">${bytes ? inUnit(bytes, unit.value) : '–'}</td>`;

/** @param {string} title @param {string[]} head @param {Row[]} rows @param {Row[]} [foot] */
function table(title, head, rows, foot = []) {
  if (!rows.length) return '';
  const line = (/** @type {Row} */ [first, ...rest]) => `<tr><th scope="row">${plain(first)}</th>${rest.map((cell) => (typeof cell === 'number' ? size(cell) : `<td${isFigure(cell) ? '' : ' class="words"'}>${plain(cell)}</td>`)).join('')}</tr>`;
  const heads = head.map((said, i) => `<th scope="col"${i && isFigure(rows[0][i] ?? '') ? '' : ' class="words"'}>${plain(said)}</th>`);
  return `<h2>${plain(title)}</h2><table><thead><tr>${heads.join('')}</tr></thead><tbody>${rows.map(line).join('\n')}</tbody>${
    foot.length ? `<tfoot>${foot.map(line).join('')}</tfoot>` : ''}</table>`;
}

const STYLE = `body{max-width:1080px;margin:32px auto;padding:0 20px;font:15px/1.5 system-ui,"Segoe UI",Roboto,"Liberation Sans",sans-serif;color:#14171c;background:#fff}
h1{margin:0 0 4px;font-size:28px}h2{margin:30px 0 6px;font-size:17px;break-after:avoid}p{margin:4px 0}svg{display:block;width:100%;height:auto;margin:18px 0}
table{border-collapse:collapse;width:100%;font-size:13.5px;font-variant-numeric:tabular-nums}th,td{padding:4px 10px 4px 0;border-bottom:1px solid #e2e6eb;text-align:right;vertical-align:top}
th:first-child,.words{text-align:left;overflow-wrap:anywhere}thead th{color:#525b68;font-weight:500}tbody th{font-weight:400}tfoot th,tfoot td{font-weight:650}tr{break-inside:avoid}
pre{padding:10px 12px;background:#f3f5f8;white-space:pre-wrap;overflow-wrap:anywhere}footer{margin-top:28px;color:#525b68;font-size:13px;overflow-wrap:anywhere}`;

/** @param {string} title @param {string[]} lines @param {string} drawing @param {string[]} parts @param {string} footer */
const page = (title, lines, drawing, parts, footer) => `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>${plain(title)}</title><style>${STYLE}</style></head><body>
<h1>${plain(title)}</h1>${lines.map((line) => `<p>${plain(line)}</p>`).join('')}
${drawing}
${parts.filter(Boolean).join('\n')}
<h2>Command</h2><pre>${plain(command.value)}</pre>
<footer>${footer}</footer>
</body></html>
`;

/** What is held, part by part. @param {import('./types.js').Report} r */
function categories(r) {
  const parts = r.breakdown.filter((part) => part.bytes > 0);
  const blanks = parts.map(() => 0);
  const all = totalOf(r);
  return table(`What uses the memory, ${unit.value} at the peak`, ['Category', ...parts.map((part) => part.title), 'Total', '%'], [
    ...heldFactors(r).map(({ name, title, bytes }) => [title, ...parts.map((part) => part.factors[name] ?? 0), bytes, percent(bytes, all.bytes)]),
    ['Allocated', ...parts.map((part) => part.bytes), r.peak.allocated, percent(r.peak.allocated, all.bytes)],
    ...r.outside.map(({ name, bytes }) => [factor(name).title, ...blanks, bytes, percent(bytes, all.bytes)]),
  ], [[all.title, ...blanks, all.bytes, '100 %']]);
}

/** @param {import('./types.js').Report} r @param {string} name */
const valueOf = (r, name) => r.settings.find((one) => one.name === name)?.value || 'default';

/** @param {import('./types.js').Report} r */
function settings(r) {
  const then = baselineReport.value;
  const titles = new Map(describe.value?.settings.map(({ name, title }) => [name, title]));
  const given = r.settings.filter(({ name, value, origin }) => origin !== 'default' || (then && valueOf(then, name) !== (value || 'default')));
  return table(then ? 'Settings, and those of the baseline' : 'Settings', ['Setting', 'Name', 'Value', ...(then ? ['Baseline'] : [])],
    given.map(({ name, value }) => [titles.get(name) ?? name, name, value || 'default', ...(then ? [valueOf(then, name)] : [])]));
}

/** Against the baseline. @param {import('./types.js').Report} r */
function differences(r) {
  const then = baselineReport.value;
  if (!then) return '';
  const held = (/** @type {import('./types.js').Report} */ of) => new Map([...of.factors, ...of.outside].map(({ name, bytes }) => [name, bytes]));
  const [was, is] = [held(then), held(r)];
  const names = inOrder([...new Set([...was.keys(), ...is.keys()])]);
  return table(`Against the baseline, ${unit.value}`, ['Category', 'Baseline', 'Now'], names.map((name) => [factor(name).title, was.get(name) ?? 0, is.get(name) ?? 0]),
    [['On the device', then.verdict.device_bytes, r.verdict.device_bytes]]);
}

/** Each kind of rank. @param {import('./types.js').Report} r */
const ranks = (r) => table(`Ranks, ${unit.value}`, ['Rank', 'Stage', 'Layers', 'Allocated', 'Reserved'],
  (r.ranks ?? []).map(({ rank, stage, layers, allocated, reserved }) => [fixed(rank), fixed(stage), layers === undefined ? '–' : fixed(layers), allocated, reserved]));

async function reportOfJob() {
  const r = result();
  const verdict = verdictOf(r);
  const u = unit.value;
  const link = await address();
  const tensors = r.tensors.flatMap((one) => (one.rest === undefined ? [one] : []));
  return page(`${r.model.title}: ${inUnit(r.verdict.device_bytes, u, 1)} ${u}`, [
    `${verdict.text}. ${verdict.detail}.`,
    `Peak: ${placeOf(r.peak)}; ${natural(r.peak.allocated, u)} allocated, ${natural(r.peak.reserved, u)} reserved.`,
    ...r.diagnostics.map(({ message }) => message),
  ], await svgText(false), [
    categories(r), differences(r), settings(r),
    r.serving ? `<h2>Flags to paste</h2><pre>${plain(r.serving.command)}</pre>` : '',
    r.serving ? table('Requests that fit at once', ['Tokens per request', 'Requests'], r.serving.requests.map(({ tokens, fit }) => [fixed(tokens), fixed(fit)])) : '',
    ranks(r),
    table('Largest tensors at the peak', ['Total', 'Count × each', 'Shape', 'Category', 'From'], tensors.map((t) => [natural(t.bytes, u), `${fixed(t.count)} × ${natural(t.each, u)}`,
      `${t.shape.map(({ n }) => fixed(n)).join(' × ')} ${t.dtype}`, factor(t.factor).title, `${t.module} ${t.op}`])),
    table('Assumptions', ['Setting', 'Value', ''], r.assumptions.map(({ setting, value, text }) => [setting, value || 'default', text])),
  ], `tidemark ${plain(r.tidemark)}${r.versions?.length ? `, by the rules of ${plain(r.versions.map(({ name, version }) => `${name} ${version}`).join(', '))}` : ''} · <a href="${plain(link)}">${plain(link)}</a>`);
}

async function reportOfRecording() {
  const run = /** @type {import('./types.js').Recorded} */ (played());
  const u = unit.value;
  const { fits, smallest_device_bytes: smallest, gpu_bytes: card = 0, oom } = run.verdict;
  return page(`${recording.value?.name}: ${natural(run.reserved_peak, u)} reserved at most`, [
    `${natural(run.allocated_peak, u)} allocated at most. ${fits === null ? '' : `${fits ? 'Runs' : 'Does not run'} on ${natural(card, u)}. `}The smallest device it runs on has ${natural(smallest, u)}.`,
    ...(oom ? [`Out of memory at event ${fixed(oom.event)}: ${natural(oom.tried, u)} asked for, ${natural(oom.free, u)} free.`] : []),
  ], await svgText(false), [
    table('Live at the peak', ['Total', 'Count', 'Each', 'From'], run.live_at_peak.map((group) => (group.rest === undefined
      ? [natural(group.bytes, u), fixed(group.count), natural(group.requested, u), group.frame || 'no frame was recorded'] : [natural(group.rest, u), '', '', 'all others']))),
    table('With other options of PYTORCH_CUDA_ALLOC_CONF', ['Options', 'Reserved', ''], run.options.map((option) => [option.allocator || 'PyTorch’s defaults', natural(option.reserved_peak, u),
      option.fits === false ? 'does not run' : ''])),
  ], `tidemark ${plain(run.tidemark)}, ${plain(run.recording.format)}`);
}

export const saveReport = () => save('tidemark-report.html', recording.value ? reportOfRecording() : reportOfJob());
