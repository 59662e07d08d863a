/* Advice, the largest that fits, cards, and the heat map. What is shown is asked for by itself, in workers of its own. */
import './App.jsx'; /* all that is shared stays in one chunk */
import { useEffect, useState } from 'preact/hooks';
import { fixed } from '../format.js';
import { askMany } from '../asking.js';
import { setWords } from '../changes.js';
import { shown as report, shownValue as valueOf } from '../shown.js';
import { describe, failure, looking, view } from '../state.js';
import { toWord } from '../words.js';
import { titleOf } from './Field.jsx';
import HeatMap from './HeatMap.jsx';
import './whatif.js';
import { Bytes, Icon } from './marks.jsx';

/** @typedef {{device_bytes: number, gpu_bytes?: number, fits?: boolean}} Figures */
/** @typedef {Figures & {title: string, effect: string, settings: string[], saves: number}} Change */
/** @typedef {Figures & {name: string, title: string, cards: number, error?: string}} Card */
/** @typedef {Figures & {with: string, largest: number, above: Figures & {error?: string}}} Fit */

const SETTLED_MS = 350;

/** @param {{of: Figures, children?: any}} props */
const Fits = ({ of: { fits, device_bytes: needs, gpu_bytes: has = 0 }, children }) => (fits === undefined ? null
  : <span class={fits ? 'good' : 'bad'} data-tip={fits && needs > has ? RETRIES : undefined}><Icon name={fits ? 'check' : 'cross'} />
    {children ?? (!fits ? 'does not fit' : needs > has ? 'just fits' : 'fits')}</span>);

const RETRIES = 'It wants more than there is, and runs because the allocator gives cached memory back.';

/** @param {string[]} words */
const apply = (words) => setWords(words.map(toWord));

/** The answers to questions about the present job, asked again when it changes.
 * @param {() => Parameters<typeof askMany>[0]} questions */
function useAnswers(questions) {
  const [answers, setAnswers] = useState(/** @type {any[] | null} */ (null));
  const key = report.value?.link;
  const isGood = failure.value === null;
  useEffect(() => {
    if (!isGood) return;
    const stop = new AbortController();
    const timer = setTimeout(async () => {
      const asked = questions();
      /** @type {any[]} */
      const got = [];
      if (await askMany(asked, (reply, i) => { got[i] = reply; }, stop.signal)) setAnswers(got);
    }, answers ? SETTLED_MS : 0);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [key, isGood]);
  return answers;
}

/** @param {{reply: any}} props */
const NoAnswer = ({ reply }) => <p class="muted">{reply ? reply.diagnostics?.[0]?.message ?? 'No answer came.' : 'Working it out…'}</p>;

function Advice() {
  const reply = useAnswers(() => [{ call: 'advice', words: [] }])?.[0];
  if (!reply?.ok) return <NoAnswer reply={reply} />;
  /** @type {Change[]} */
  const list = reply.changes;
  if (!list.length) return <p class="muted">Nothing that is known here would change it.</p>;
  return (
    <table class="numbers whatif">
      <thead><tr><th scope="col" class="left">Change</th><th scope="col">Saves</th><th scope="col">Then</th><th scope="col" class="left"><span class="hidden">Verdict</span></th><th scope="col"><span class="hidden">Use</span></th></tr></thead>
      <tbody>
        {list.map((change) => (
          <tr key={change.title} class={change.saves < 0 ? 'costs' : undefined}>
            <th scope="row" class="left">{change.title}<small>{change.effect}</small></th>
            <td data-label={change.saves < 0 ? 'costs' : 'saves'}>{change.saves < 0 && '+'}<Bytes n={Math.abs(change.saves)} style="natural" />{change.saves < 0 && ' more'}</td>
            <td data-label="then"><Bytes n={change.device_bytes} style="natural" /></td>
            <td class="left"><Fits of={change} /></td>
            <td><button type="button" class="button small" onClick={() => apply(change.settings)} aria-label={`Apply ${change.title}: ${change.settings.join(' ')}`}>Apply</button></td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/* Whole-numbered settings that can grow, where the job has them. */
const KNOBS = [
  { name: 'batch', has: () => true },
  { name: 'seq', has: () => true },
  { name: 'images', has: () => !!report.value?.model.parameters.parts.some((part) => /vision|image|visual/i.test(part.name)) },
  { name: 'adapter.r', has: () => valueOf('adapter') === 'lora' },
];

function Largest() {
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
    {replies.some((reply) => reply?.ok && wantsMore(reply.rows[0])) && <p class="sub">* {RETRIES}</p>}
    </>
  );
}

function Cards() {
  const reply = useAnswers(() => [{ call: 'cards', words: [] }])?.[0];
  if (!reply?.ok) return <NoAnswer reply={reply} />;
  /** @type {Card[]} */
  const list = [...reply.cards].sort((a, b) => Number(b.fits ?? false) - Number(a.fits ?? false) || (a.gpu_bytes ?? 0) - (b.gpu_bytes ?? 0)); /* the smallest that it runs on first */
  return (
    <table class="numbers whatif">
      <thead><tr><th scope="col" class="left">Card</th><th scope="col">Has</th><th scope="col">Needs</th><th scope="col" class="left"><span class="hidden">Verdict</span></th><th scope="col"><span class="hidden">Use</span></th></tr></thead>
      <tbody>
        {list.map((card) => (
          <tr key={card.name}>
            <th scope="row" class="left">{card.title}</th>
            {card.error ? <td colSpan={4} class="left muted">{card.error}</td> : (
              <>
                <td data-label="has"><Bytes n={card.gpu_bytes ?? 0} style="natural" /></td>
                <td data-label="needs"><Bytes n={card.device_bytes} style="natural" /></td>
                <td class="left"><Fits of={card}>{card.cards > 1 ? `on ${card.cards}` : undefined}</Fits></td>
                <td><button type="button" class="button small" aria-label={`Apply ${card.title}`}
                  onClick={() => apply([`gpu=${card.name}`, ...(card.cards > 1 ? [`parallel.dp=${card.cards}`] : [])])}>Apply</button></td>
              </>
            )}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

const TABS = [
  { name: 'advice', title: 'To free memory', Part: Advice },
  { name: 'fit', title: 'Largest that fits', Part: Largest },
  { name: 'cards', title: 'On which cards', Part: Cards },
  { name: 'map', title: 'Heat map', Part: HeatMap },
];

export default function WhatIfTabs() {
  const given = view.value.tab;
  const [at, setAt] = useState(0);
  useEffect(() => { if (given) setAt(Math.max(0, TABS.findIndex((tab) => tab.name === given))); }, [view.value]);
  looking.tab = TABS[at].name;
  const { name, title, Part } = TABS[at];
  /** @param {KeyboardEvent} event */
  function key(event) {
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: TABS.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const next = (to + TABS.length) % TABS.length;
    setAt(next);
    document.getElementById(`tab-${TABS[next].name}`)?.focus();
  }
  return (
    <>
      <div class="tabs" role="tablist" aria-label="What if" onKeyDown={key}>
        {TABS.map((tab, i) => (
          <button key={tab.name} id={`tab-${tab.name}`} type="button" role="tab" aria-selected={i === at} aria-controls="whatif-panel"
            tabIndex={i === at ? 0 : -1} onClick={() => setAt(i)}>{tab.title}</button>
        ))}
      </div>
      <div id="whatif-panel" class="scroll whatif-panel" role="tabpanel" tabIndex={0} aria-labelledby={`tab-${name}`} data-title={title}>
        {describe.value && <Part key={name} />}
      </div>
    </>
  );
}
