// SPDX-License-Identifier: Apache-2.0
/* The present job on every GPU: whether it fits, and when asked for the largest batch, the tokens of a step and one's own price. */
import { useEffect, useState } from 'preact/hooks';
import { askMany } from '../asking.js';
import { fixed } from '../format.js';
import { tokensOf } from '../layout.js';
import { prices, setPrice } from '../prices.js';
import { shown as report, shownValue as valueOf } from '../shown.js';
import { Bytes } from './marks.jsx';
import { apply, Fits, NoAnswer, useAnswers } from './played.jsx';

/** @typedef {import('./played.jsx').Figures & {name: string, title: string, cards: number, dp?: number, requests?: number, error?: string}} Card  cards: how many GPUs, dp: data parallel ranks of training; requests: that a server on it holds at once */

/** The smallest that it runs on first, then where that cannot be told; of the others those that lack the least. @param {Card} a @param {Card} b */
function inOrder(a, b) {
  const turn = (/** @type {Card} */ { fits }) => (fits ? 0 : fits === null ? 1 : 2);
  if (turn(a) !== turn(b)) return turn(a) - turn(b);
  const size = (/** @type {Card} */ { gpu_bytes: has = 0, device_bytes: needs }) => (a.fits ?? true ? has : needs - has);
  return size(a) - size(b);
}

/** What the core varied to find how many it takes: a server is cut over GPUs, a training job takes more data. @param {Card} card */
const wordsOf = ({ name, cards, dp }) => [`gpu=${name}`, ...(dp ? [`parallel.dp=${dp}`] : report.value?.serving && cards > 1 ? [`tensor_parallel_size=${cards}`] : [])];

/** The largest batch by GPU, once it is wanted: a number, 0 where none fits, -1 where there is no answer. @param {Card[]} list @param {boolean} isWanted */
function useLargest(list, isWanted) {
  const [largest, setLargest] = useState(/** @type {Record<string, number>} */ ({}));
  const key = report.value?.link;
  useEffect(() => {
    setLargest({});
    if (!isWanted || !list.length || report.value?.serving) return;
    const stop = new AbortController();
    askMany(list.map((card) => ({ call: 'fit', words: wordsOf(card), more: { knob: 'batch' } })), (reply, i) => {
      setLargest((before) => ({ ...before, [list[i].name]: reply?.ok ? reply.rows[0].largest : -1 }));
    }, stop.signal);
    return () => stop.abort();
  }, [key, list.length, isWanted]);
  return largest;
}

/** What is typed stays while the rows are drawn anew, until it is taken. @param {{of: Card}} props */
function Price({ of: { name, title } }) {
  const [draft, setDraft] = useState(/** @type {string | null} */ (null));
  return (
    <input class="price" type="text" inputMode="decimal" autocomplete="off" aria-label={`Price an hour of one ${title}`} value={draft ?? prices.value[name] ?? ''}
      onInput={(event) => setDraft(event.currentTarget.value)} onChange={(event) => { setDraft(null); setPrice(name, event.currentTarget.value); }} />
  );
}

export default function Cards() {
  const reply = useAnswers(() => [{ call: 'cards', words: [] }])?.[0];
  const [isWanted, setWanted] = useState(false);
  /** @type {Card[]} */
  const list = reply?.ok ? [...reply.cards].sort(inOrder) : [];
  const largest = useLargest(list.filter(({ error }) => !error), isWanted);
  if (!reply?.ok) return <NoAnswer reply={reply} />;
  const tokens = (/** @type {Card} */ { name, dp }) => tokensOf((setting) => (setting === 'batch' ? String(largest[name]) : setting === 'parallel.dp' && dp ? String(dp) : valueOf(setting)));
  const isServed = !!report.value?.serving;
  const gets = (/** @type {Card} */ card) => (isServed ? card.requests ?? 0 : largest[card.name] > 0 ? tokens(card) : 0);
  const per = (/** @type {Card} */ card) => { const price = prices.value[card.name] * Math.max(1, card.cards); return gets(card) > 0 && price > 0 ? fixed(gets(card) / price) : ''; };
  return (
    <>
      <p class="cards-tools"><label><input type="checkbox" checked={isWanted} onChange={(event) => setWanted(event.currentTarget.checked)} /> {isServed ? 'Your own price of each' : 'Largest batch on each, with tokens a step and your own price'}</label></p>
      <table class="numbers whatif">
        <thead><tr><th scope="col" class="left">GPU</th><th scope="col">Has</th><th scope="col">Needs</th><th scope="col" class="left"><span class="hidden">Verdict</span></th>
          {isServed && <th scope="col">Requests at once</th>}
          {isWanted && isServed && <><th scope="col">Price an hour</th><th scope="col" data-tip="Requests held at once for each unit of the price an hour. How fast they are answered is not known.">Requests per price</th></>}
          {isWanted && !isServed && <><th scope="col">Largest batch</th><th scope="col">Tokens a step</th><th scope="col">Price an hour</th><th scope="col" data-tip="Tokens of a step with the largest batch, for each unit of the price an hour. How long a step takes is not known.">Tokens a step per price</th></>}
          <th scope="col"><span class="hidden">Use</span></th></tr></thead>
        <tbody>
          {list.map((card) => (
            <tr key={card.name}>
              <th scope="row" class="left">{card.title}</th>
              {card.error ? <td colSpan={4 + (isServed ? 1 : 0) + (isWanted ? (isServed ? 2 : 4) : 0)} class="left muted">{card.error}</td> : (
                <>
                  <td data-label="has"><Bytes n={card.gpu_bytes ?? 0} style="natural" /></td>
                  <td data-label="needs"><Bytes n={card.device_bytes} style="natural" /></td>
                  <td class="left"><Fits of={card}>{card.cards > 1 && ` on ${card.cards}`}</Fits></td>
                  {isServed && <td data-label="requests at once">{fixed(card.requests ?? 0)}</td>}
                  {isWanted && !isServed && <>
                    <td data-label="largest batch">{largest[card.name] === undefined ? '…' : largest[card.name] < 0 ? '–' : largest[card.name] === 0 ? 'none' : fixed(largest[card.name])}</td>
                    <td data-label="tokens a step">{largest[card.name] > 0 ? fixed(tokens(card)) : ''}</td>
                  </>}
                  {isWanted && <>
                    <td data-label="price an hour">{(isServed || largest[card.name] !== 0) && <Price of={card} />}</td>
                    <td data-label={isServed ? 'requests per price' : 'tokens a step per price'}>{per(card)}</td>
                  </>}
                  <td>{(card.fits || (isWanted && largest[card.name] > 0)) && <button type="button" class="button small" aria-label={`Apply ${card.title}`}
                    onClick={() => apply([...wordsOf(card), ...(isWanted && largest[card.name] > 0 ? [`batch=${largest[card.name]}`] : [])])}>Apply</button>}</td>
                </>
              )}
            </tr>
          ))}
        </tbody>
      </table>
    </>
  );
}
