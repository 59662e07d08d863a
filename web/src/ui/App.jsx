// SPDX-License-Identifier: Apache-2.0
import { computed } from '@preact/signals';
import { Component } from 'preact';
import { useEffect } from 'preact/hooks';
import { cancel } from '../asking.js';
import { core, coreProblem, failure, files, isExample, notices, report, link, settingsOpen, slow, spoken, stale, valueOf,
  verySlow } from '../state.js';
import { fixed, params } from '../format.js';
import { layoutOf, layoutWords, reads } from '../layout.js';
import { doAction } from '../actions.js';
import { CopyDialog, Said } from './CopyDialog.jsx';
import { DropTarget } from './DropTarget.jsx';
import { FactorTable, lit } from './FactorTable.jsx';
import { Header } from './Header.jsx';
import { Icicle } from './Icicle.jsx';
import { inSight, later } from '../later.js';
import { isOffline, update, waiting } from '../offline.js';
import { inside, PANELS } from '../panels.js';
import { Lazy, Near } from './lazy.jsx';
import { Icon, Patterns } from './marks.jsx';
import { Assumptions, CoreLost, Diagnostics } from './Notes.jsx';
import { Overlays } from './Overlays.jsx';
import { recording } from '../recordings.js';
import { Settings } from './Settings.jsx';
import { Tensors } from './Tensors.jsx';
import { Timeline } from './Timeline.jsx';
import { Tip } from './Tip.jsx';
import { StickyVerdict, Verdict } from './Verdict.jsx';

/** The job in one line. @param {{r: import('../types.js').Report}} props */
function JobLine({ r }) {
  const used = (/** @type {string} */ name) => r.settings.find((s) => s.name === name)?.value ?? '';
  const { total, trainable, rank } = r.model.parameters;
  const mode = used('mode') || 'train';
  const trains = mode === 'train';
  const words = [
    `${params(total)} parameters${rank === undefined ? '' : ` on rank ${rank}`}${trains && trainable < total ? `, ${params(trainable)} trained` : ''}`,
    mode !== 'serve' && (reads(r, 'seq') ? `${used('batch')} × ${fixed(Number(used('seq')))} tokens` : `batch of ${used('batch')}`),
    used('dtype') !== 'auto' && used('dtype') + (/^(|none)$/.test(used('autocast')) ? '' : `, autocast ${used('autocast')}`),
    !/^(|default)$/.test(used('head')) && `head ${used('head')}`,
    trains && !/^(|none)$/.test(used('trainer')) && used('trainer'),
    trains ? used('optimizer') : mode === 'serve' ? r.serving?.engine : reads(r, 'decode') && `${used('decode')} tokens generated`,
    used('quant') && used('quant') !== 'none' && `base in ${used('quant')}`,
    used('adapter') && used('adapter') !== 'none' && used('adapter'),
    used('parallel.kind') && used('parallel.kind') !== 'none' && `${used('parallel.kind')} over ${layoutWords(layoutOf(used))}`,
    !trains ? '' : used('checkpointing') === 'none' ? 'no checkpointing' : `checkpointing ${used('checkpointing')}`,
  ];
  return (
    <div class="job">
      <h2 class="job-name">{used('title') ? `${used('title')} · ` : ''}{r.model.title}{isExample.value && <span class="tag">example</span>}</h2>
      <button type="button" class="button small job-keep" data-tip="Keep this job by a name, beside others" onClick={() => doAction('scenario')}>Add to scenarios</button>
      <p class="job-words">{words.filter(Boolean).map((word) => <span key={word}>{word}</span>)}</p>
    </div>
  );
}

/** The live region: one sentence for each settled change. */
const Spoken = () => <output class="hidden" aria-live="polite" id="spoken">{spoken.value}</output>;

/** @typedef {import('../types.js').Report} Report */
/** @typedef {import('../panels.js').Panel} Row */

/* Panels that come with the page. */
const AT_ONCE = /** @type {Record<string, (props: {r: Report, panel: Row, inside: Row[]}) => any>} */ ({
  factors: FactorTable, layers: Icicle, timeline: Timeline, tensors: Tensors, assumptions: Assumptions,
});

/* What stands in their places in the static page: drawing charts twice would hold up the first answer. */
const PLACES = /** @type {Record<string, any>} */ ({
  layers: <div class="icicle" />,
  timeline: <div class="timeline"><span /><div class="plot" /></div>,
  tensors: null,
});

/** @param {{panel: Row, r: Report}} props */
function Panel({ panel, r }) {
  if (panel.isOffered && !panel.isOffered(r)) return null;
  const Part = AT_ONCE[panel.name];
  const props = { panel, r, inside: inside(panel) };
  return Part ? <Part {...props} /> : panel.isNear ? <Near {...props} /> : <Lazy load={panel.load} {...props} />;
}

/** What is drawn with the answer. @param {{of: (props: any) => any, [name: string]: any}} props */
function Now({ of: Part, ...more }) {
  const r = report.value;
  return r && <Part r={r} {...more} />;
}

/** A panel that is drawn once the numbers are. @extends {Component<{panel: Row}, {r: Report | null}>} */
class Late extends Component {
  state = { r: report.peek() };
  componentDidMount() {
    const { name } = this.props.panel;
    this.leave = later({ isSeen: () => inSight(name), draw: (r) => this.setState({ r }) }, this.state.r);
  }
  componentWillUnmount() {
    this.leave?.();
  }
  /** @param {unknown} _ @param {{r: Report | null}} next */
  shouldComponentUpdate(_, next) {
    return next.r !== this.state.r;
  }
  render() {
    return this.state.r && <Panel panel={this.props.panel} r={this.state.r} />;
  }
}

/** @param {Row} panel */
const drawn = (panel) => (panel.isWithAnswer ? <Now key={panel.name} of={Panel} panel={panel} /> : <Late key={panel.name} panel={panel} />);

/** The same before any script. @param {Row} panel */
const drawnStill = (panel) => (panel.name in PLACES
  ? <section key={panel.name} class={`card place-${panel.name}`}><h2>{panel.title}</h2>{PLACES[panel.name]}</section>
  : panel.isWithAnswer && drawn(panel));

/** Panels of one place, the same for every answer. @param {Row['at']} at */
const placed = (at) => {
  const panels = PANELS.filter((panel) => panel.at === at && !panel.inside);
  return { live: panels.map(drawn), still: panels.map(drawnStill) };
};
const [above, halves, below] = [placed('top'), placed('half'), placed(undefined)];

const hasReport = computed(() => report.value !== null);

/** Numbers that stay as they are under an error have it named above them. */
/* That purpose has no effect is no news to who chose it by a button of the form. */
const Remarks = () => <Diagnostics title="Remarks" list={failure.value ? [] : report.value?.diagnostics.filter(({ place }) => place !== '/settings/purpose') ?? []} />;

/** What stands where no answer does. */
function absent() {
  if (!failure.value) return 'Working it out…';
  return valueOf('model') || files.value.length > 0 ? 'No answer for these settings. Change what is named above.'
    : 'Pick a model, or drop its config.json anywhere on this page.';
}

/** @param {{still: boolean}} props */
function Result({ still }) {
  const has = hasReport.value;
  const form = still ? 'still' : 'live';
  return (
    <main id="result" class={`result${stale.value ? ' is-stale' : ''}${slow.value ? ' is-slow' : ''}${lit.value ? ` lit lit-${lit.value}` : ''}`} tabIndex={-1}>
      {core.value === 'lost' && <CoreLost problem={coreProblem.value} />}
      {verySlow.value && <p class="computing" role="status">Computing… <button type="button" class="button small" onClick={cancel}>Cancel</button></p>}
      {notices.value.length > 0 && (
        <section class="diagnostics" aria-label="Notices">
          {notices.value.map((text) => <div key={text} class="diagnostic is-warning" role="status"><Icon name="warn" /><p>{text}</p></div>)}
        </section>
      )}
      {failure.value && <Diagnostics title="Errors" list={failure.value} />}
      {failure.value && has && <p class="stale-note">The numbers below are for the previous settings.</p>}
      {has ? (
        <div class="answer">
          <Now of={JobLine} />
          <Now of={Verdict} />
          {above[form]}
          <Remarks />
          <div class="pair">{halves[form]}</div>
          {below[form]}
        </div>
      ) : <p class="card empty">{absent()}</p>}
    </main>
  );
}

/** The link of what is printed. */
const Address = () => !recording.value && <p class="print-only">{location.href.split('#')[0]}#{link.value}</p>;

const version = computed(() => report.value?.tidemark);

/* The same for every answer. */
const patterns = <Patterns />;

/** @param {{still?: boolean}} props still: the static form, before any script */
export function App({ still = false }) {
  const open = settingsOpen.value;
  useEffect(() => {
    if (!open) return;
    document.querySelector('.side')?.scrollTo(0, 0);
    /** @type {HTMLElement | null} */ (document.querySelector('.sheet-head button'))?.focus({ preventScroll: true });
    const leave = (/** @type {KeyboardEvent} */ event) => { if (event.key === 'Escape') settingsOpen.value = false; };
    document.addEventListener('keydown', leave);
    return () => document.removeEventListener('keydown', leave);
  }, [open]);
  return (
    <div class={`page${open ? ' settings-open' : ''}${recording.value ? ' has-recording' : ''}`} data-core={still ? 'static' : core.value}>
      <a class="skip" href="#result" onClick={(event) => { event.preventDefault(); document.getElementById('result')?.focus(); }}>Skip to the result</a>
      {patterns}
      <Header />
      <div class="columns">
        <aside class="side" aria-label="Settings"><Settings /></aside>
        <div class="main-column">
          {!recording.value && <Now of={StickyVerdict} />}
          {recording.value ? <Lazy load={() => import('./Recording.jsx')} /> : <Result still={still} />}
          {!still && hasReport.value && <Address />}
          <footer class="foot">
            <p><b>Everything runs in this page. Nothing is sent</b>, unless you choose to fetch a model’s config.json from huggingface.co.</p>
            {waiting.value && <p role="status">A new version is ready. <button type="button" class="button small" onClick={update}>Update</button></p>}
            {!SINGLE && <p><a href="tidemark.html" download>Download this page</a> as one file, for offline use</p>}
            <p>{isOffline.value && 'offline copy · '}tidemark {version.value}{!recording.value && valueOf('steps') && valueOf('mode') === 'train' && ` · ${valueOf('steps')} steps simulated`}</p>
          </footer>
        </div>
      </div>
      <Spoken />
      {!still && <><Said /><Overlays /><CopyDialog /><DropTarget /><Tip /></>}
    </div>
  );
}
