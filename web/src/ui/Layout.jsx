// SPDX-License-Identifier: Apache-2.0
/* The GPUs of a job as a picture: a row for each kind of rank, its ranks as squares, and what one of them needs. */
import { useEffect, useState } from 'preact/hooks';
import { askMany } from '../asking.js';
import { setWord } from '../changes.js';
import { fixed, percent } from '../format.js';
import { gpusOf, layoutOf, layoutWords, stagesLeft } from '../layout.js';
import { addStyle } from '../sheet.js';
import { failure, unit } from '../state.js';
import { Bytes } from './marks.jsx';
import { Fits } from './played.jsx';
import ScheduleOf from './Schedule.jsx';
import { Section } from './Section.jsx';
import style from './layout.css';

addStyle(style);

/** @typedef {import('../types.js').Report} Report
 * @typedef {{rank: number, stage: number, layers?: number, allocated: number, reserved: number, fits?: boolean}} Row */

const SIDE = 12;
const STEP = 14;
const MOST_SHOWN = 64;

/** The stages that the answer has no peak of: it is of one rank alone, or of more stages than it has rows. What is brief has them later. @param {Report} r @param {import('../layout.js').Layout} layout */
function useStages(r, layout) {
  const [got, setGot] = useState(/** @type {{of: Report, rows: Row[]} | null} */ (null));
  const isGood = failure.value === null;
  useEffect(() => {
    if (!isGood || r.brief) return;
    const left = stagesLeft(layout, r.ranks ?? []);
    const stop = new AbortController();
    /** @type {Row[]} */
    const rows = [];
    askMany(left.map(({ rank }) => ({ words: [`parallel.rank=${rank}`] })), (reply, i) => {
      if (reply?.ok) rows.push({ ...left[i], allocated: reply.peak.allocated, reserved: reply.peak.reserved, fits: reply.verdict.fits ?? undefined });
      setGot({ of: r, rows: [...rows] });
    }, stop.signal);
    return () => stop.abort();
  }, [r, isGood]);
  return got?.of === r ? got.rows : [];
}

/** The ranks of a stage: those of a tensor parallel group stand together. @param {{layout: import('../layout.js').Layout, kind: string, at: number}} props at: the
 *   rank that is played, counted in its stage; -1: it is of another one */
function Squares({ layout: { dp, tp, cp }, kind, at }) {
  const all = dp * tp * cp;
  const shown = Math.min(all, MOST_SHOWN);
  const group = tp > 1 && tp < all ? tp : all;
  const x = (/** @type {number} */ i) => 1 + i * STEP + Math.floor(i / group) * 5;
  const perRow = Math.max(group, Math.floor(32 / group) * group);
  const [wide, high] = [x(Math.min(shown, perRow) - 1) + STEP, Math.ceil(shown / perRow) * STEP + 1];
  return (
    <span class="squares">
      <svg width={wide} height={high} viewBox={`0 0 ${wide} ${high}`} aria-hidden="true">
        {Array.from({ length: shown }, (_, i) => (
          <rect key={i} class={`rank is-${kind}${i === at ? ' at' : ''}`} x={x(i % perRow)} y={1 + Math.floor(i / perRow) * STEP} width={SIDE} height={SIDE} rx="2" />
        ))}
      </svg>
      {all > shown && <span class="muted">and {fixed(all - shown)} more</span>}
    </span>
  );
}

/** @param {{r: Report, panel: import('../panels.js').Panel}} props */
export default function Layout({ r, panel }) {
  const used = (/** @type {string} */ name) => r.settings.find((one) => one.name === name)?.value ?? '';
  const layout = layoutOf(used);
  const later = useStages(r, layout);
  const own = r.settings.find(({ name, origin }) => name === 'parallel.rank' && origin !== 'default')?.value;
  const each = gpusOf(layout) / layout.pp;
  const { gpu_bytes: has = 0, device_bytes: needs } = r.verdict;
  const context = needs - r.peak.reserved;
  const shown = r.peak.rank ?? 0;
  /** @type {Row[]} */
  const played = r.ranks?.length ? r.ranks : [{ rank: shown, stage: Math.floor(shown / each), allocated: r.peak.allocated, reserved: r.peak.reserved }];
  const rows = [...played, ...later.filter(({ stage }) => !played.some((one) => one.stage === stage))].sort((a, b) => a.rank - b.rank);
  const most = rows.reduce((a, b) => (b.reserved > a.reserved ? b : a));
  const kindOf = (/** @type {Row} */ row) => (!has || r.verdict.fits === null ? 'none' : row.reserved + context <= has * 0.97 ? 'fits' : row.reserved + context <= has ? 'close' : 'not');
  /* What reserves more than there is may fit by retries: that is known of what was played on this GPU. What allocates more does not. */
  const fitsOf = (/** @type {Row} */ row) => (row.rank === shown ? r.verdict.fits ?? undefined
    : row.fits ?? (row.reserved + context <= has || (row.allocated + context > has ? false : undefined)));
  const isStaged = layout.pp > 1;
  const asked = used('parallel.stage_layers').split(',');
  const isOfStages = asked.length === layout.pp;
  const layersOf = (/** @type {Row} */ row) => row.layers ?? (isOfStages ? asked[row.stage] : undefined);
  const chunks = Number(used(layout.kind === 'megatron' ? 'parallel.virtual_stages' : 'parallel.chunks')) || 1;
  const ranksOf = (/** @type {Row} */ { stage, rank }) => (isStaged ? `${stage * each} to ${(stage + 1) * each - 1}` : `like ${rank}`);
  const wanting = layout.pp - new Set(rows.map(({ stage }) => stage)).size;
  return (
    <Section panel={panel} r={r} note={`${fixed(gpusOf(layout))} GPUs: ${layoutWords(layout)}`}>
      <p class="sub layout-said">{own ? <>Rank {own} is shown, as it is set. <button type="button" class="button small" onClick={() => setWord('parallel.rank', null)}>Show the rank that needs the most</button></>
        : <>Rank {shown} needs the most, and is what the rest of the page shows.</>}</p>
      <div class="scroll" tabIndex={0} role="group" aria-label="Ranks">
        <table class="numbers layout-ranks">
          <thead><tr><th scope="col" class="left">{!isStaged ? 'Kind of rank' : chunks > 1 ? 'Pipeline rank' : 'Stage'}</th><th scope="col" class="left">Ranks</th><th scope="col">Allocated, {unit.value}</th><th scope="col">Needs, {unit.value}</th>
            <th scope="col">{has > 0 && 'Of the GPU'}</th><th scope="col" class="left"><span class="hidden">Verdict</span></th><th scope="col"><span class="hidden">Show</span></th></tr></thead>
          <tbody>{rows.map((row) => (
            <tr key={row.rank} class={row === most ? 'strong' : undefined}>
              <th scope="row" class="left">{isStaged ? row.stage : `rank ${row.rank}`}{isStaged && layersOf(row) && <small>{fixed(Number(layersOf(row)))} {Number(layersOf(row)) === 1 ? 'layer' : 'layers'}</small>}
                {row === most && rows.length > 1 && <small>needs the most</small>}</th>
              <td class="left"><span class="muted">{each > 1 || !isStaged ? ranksOf(row) : row.rank}</span>
                {isStaged && <Squares layout={layout} kind={kindOf(row)} at={Math.floor(shown / each) === row.stage ? shown % each : -1} />}</td>
              <td><Bytes n={row.allocated} /></td>
              <td><Bytes n={row.reserved + context} /></td>
              <td>{has > 0 && percent(row.reserved + context, has)}</td>
              <td class="left">{has > 0 && <Fits of={{ device_bytes: row.reserved + context, gpu_bytes: has, fits: fitsOf(row) }} />}</td>
              <td>{row.rank !== shown && <button type="button" class="button small" aria-label={`Show rank ${row.rank}`} onClick={() => setWord('parallel.rank', String(row.rank))}>Show</button>}</td>
            </tr>
          ))}</tbody>
        </table>
      </div>
      {r.moves?.map(({ from, to, saves, settings }) => (
        <p key={to} class="sub">A layer of stage {from} moved to stage {to} needs {saves === 0 ? 'as much' : <><Bytes n={Math.abs(saves)} style="natural" /> {saves > 0 ? 'less' : 'more'}</>}: <code>{settings[0]}</code></p>
      ))}
      {isStaged && <p class="sub">A square is a GPU{layout.tp > 1 && layout.tp < each && '; those that stand together are a tensor parallel group'}.</p>}
      {wanting > 0 && <p class="muted" role="status">Working out {wanting === 1 ? 'one more stage' : `${wanting} more stages`}…</p>}
      {isStaged && <ScheduleOf r={r} worst={most.stage} rankOf={(stage) => stage * each} />}
      {!isStaged && <p class="sub">The other ranks need no more than these.</p>}
    </Section>
  );
}
