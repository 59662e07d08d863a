// SPDX-License-Identifier: Apache-2.0
/* A recording beside another one, and beside the page's job. */
import { useState } from 'preact/hooks';
import { sourceOf } from '../events.js';
import { natural, percent } from '../format.js';
import { lookInto } from '../recordings.js';
import { difference, ownFrame } from '../stacks.js';
import { isExample, report } from '../state.js';
import { Frames, Size } from './frames.jsx';
import { Icon } from './marks.jsx';
import { useAnswer } from './Stacks.jsx';

const ROWS = 24;
const WORDS = { new: 'new', grew: 'grew', shrank: 'shrank', gone: 'gone' };

/** @param {{n: number, unit: import('../format.js').Unit}} props */
const Change = ({ n, unit }) => (n === 0 ? <>0</> : <>{n > 0 ? '+' : '−'}<Size n={Math.abs(n)} unit={unit} /></>);

/** @param {{played: import('../types.js').Recorded, name: string, unit: import('../format.js').Unit}} props */
function Other({ played, name, unit }) {
  const [other, setOther] = useState(/** @type {Awaited<ReturnType<typeof lookInto>> | null} */ (null));
  const [state, setState] = useState('');
  const live = /** @type {import('../stacks.js').Live | null} */ (useAnswer('recorded_live', { at: played.peak_event }, played, 'against'));
  /** @param {File | undefined} file */
  async function open(file) {
    if (!file) return;
    setState(`Reading ${file.name}…`);
    try {
      setOther(await lookInto(file));
      setState('');
    } catch (error) {
      setState(`${file.name} could not be read: ${error instanceof Error ? error.message : error}`);
    }
  }
  const rows = other && live ? difference(live, other.live) : [];
  const kinds = /** @type {(keyof typeof WORDS)[]} */ (['new', 'grew', 'shrank', 'gone']);
  return (
    <section class="card" id="against" aria-labelledby="against-title" aria-busy={state.startsWith('Reading')}>
      <h2 id="against-title">Against another recording <small>what is live at the two peaks, by stack</small></h2>
      <p class="against-actions">
        <label class="button"><Icon name="file" />{other ? 'Compare with another one' : 'Compare with…'}
          <input class="hidden" id="other-recording" type="file" onChange={(event) => { open(event.currentTarget.files?.[0]); event.currentTarget.value = ''; }} /></label>
        {state && <span role="status">{state}</span>}
        {other && <span><b>{other.name}</b> allocates <Size n={other.live.allocated} unit={unit} /> at its peak, {name} <Size n={live?.allocated ?? 0} unit={unit} />: <Change n={other.live.allocated - (live?.allocated ?? 0)} unit={unit} />;{' '}
          reserved <Change n={other.reply.reserved_peak - played.reserved_peak} unit={unit} /></span>}
      </p>
      {other && rows.length === 0 && live && <p class="sub">The same stacks hold the same at both peaks.</p>}
      {rows.length > 0 && (
        <div class="scroll" tabIndex={0} role="region" aria-labelledby="against-title">
          <table class="numbers against">
            <caption><span class="hidden">What differs. </span>{kinds.map((kind) => {
              const of = rows.filter((row) => row.kind === kind);
              return of.length > 0 && `${of.length} ${WORDS[kind]} (${natural(of.reduce((sum, row) => sum + Math.abs(row.change), 0), unit)})`;
            }).filter(Boolean).join(', ')}</caption>
            <thead><tr><th scope="col">Change</th><th scope="col" class="left" /><th scope="col">Here</th><th scope="col">There</th><th scope="col" class="left">Stack</th></tr></thead>
            <tbody>{rows.slice(0, ROWS).map(({ frames, before, after, change, kind }) => (
              <tr key={frames.join('\n')}>
                <th scope="row"><Change n={change} unit={unit} /></th><td class="left">{WORDS[/** @type {keyof typeof WORDS} */ (kind)]}</td><td><Size n={before} unit={unit} /></td><td><Size n={after} unit={unit} /></td>
                <td class="left"><details class="twin"><summary><code>{sourceOf({ frame: ownFrame(frames) })}</code></summary><Frames list={frames} /></details></td>
              </tr>
            ))}</tbody>
          </table>
        </div>
      )}
    </section>
  );
}

/** The recording beside what the page says of the job that is set up. @param {{played: import('../types.js').Recorded, unit: import('../format.js').Unit}} props */
function Job({ played, unit }) {
  const r = report.value;
  if (!r || isExample.value || r.serving) return null;
  const rows = /** @type {[string, number, number][]} */ ([['Allocated, at most', r.peak.allocated, played.allocated_peak], ['Reserved, at most', r.peak.reserved, played.reserved_peak]]);
  return (
    <section class="card" id="beside-job" aria-labelledby="beside-title">
      <h2 id="beside-title">Beside the job <small>{r.model.title}, as it is set up on the page</small></h2>
      <table class="numbers">
        <thead><tr><th scope="col" class="left" /><th scope="col">Estimated</th><th scope="col">Recorded</th><th scope="col">Difference</th></tr></thead>
        <tbody>{rows.map(([title, one, two]) => (
          <tr key={title}><th scope="row">{title}</th><td><Size n={one} unit={unit} /></td><td><Size n={two} unit={unit} /></td>
            <td>{one === two ? 'exact' : <><Change n={two - one} unit={unit} /> ({percent(Math.abs(two - one), Math.max(1, one))})</>}</td></tr>
        ))}</tbody>
      </table>
      <p class="sub">To see where the two part, event by event: <code>tidemark compare JOB --recording FILE</code></p>
    </section>
  );
}

/** @param {{played: import('../types.js').Recorded, name: string, unit: import('../format.js').Unit}} props */
export default (props) => <><Job {...props} /><Other {...props} /></>;
