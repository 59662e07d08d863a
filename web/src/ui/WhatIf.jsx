/* What would change the answer, and on which cards the job runs: each line is played by the core when it is asked for. */
import { useEffect, useState } from 'preact/hooks';
import { ask, link, setWords } from '../state.js';
import { Bytes, Icon } from './marks.jsx';

/** @typedef {{device_bytes: number, gpu_bytes?: number, fits?: boolean}} Figures */
/** @typedef {Figures & {title: string, effect: string, settings: string[], saves: number}} Change */
/** @typedef {Figures & {name: string, title: string, cards: number, error?: string}} Card */

/** @param {{fits?: boolean, children?: any}} props */
const Fit = ({ fits, children }) => (fits === undefined ? null
  : <span class={fits ? 'good' : 'bad'}><Icon name={fits ? 'check' : 'cross'} />{children ?? (fits ? 'fits' : 'does not fit')}</span>);

/** @param {{list: Change[]}} props */
function Changes({ list }) {
  const use = (/** @type {Change} */ change) => setWords(change.settings.map((word) => {
    const at = word.indexOf('=');
    return [word.slice(0, at), word.slice(at + 1)];
  }));
  if (!list.length) return <p class="muted">Nothing that is known here would change it.</p>;
  return (
    <table class="numbers whatif">
      <thead><tr><th scope="col" class="left">Change</th><th scope="col">Saves</th><th scope="col">Then</th><th scope="col" class="left" /><th scope="col" /></tr></thead>
      <tbody>
        {list.map((change) => (
          <tr key={change.title}>
            <th scope="row" class="left">{change.title}<small>{change.effect}</small></th>
            <td>{change.saves < 0 && '+'}<Bytes n={Math.abs(change.saves)} style="natural" />{change.saves < 0 && ' more'}</td>
            <td><Bytes n={change.device_bytes} style="natural" /></td>
            <td class="left"><Fit fits={change.fits} /></td>
            <td><button type="button" class="button small" onClick={() => use(change)} aria-label={`Use ${change.title}: ${change.settings.join(' ')}`}>Use</button></td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** @param {{list: Card[]}} props */
function Cards({ list }) {
  return (
    <table class="numbers whatif">
      <thead><tr><th scope="col" class="left">Card</th><th scope="col">Has</th><th scope="col">Needs</th><th scope="col" class="left" /><th scope="col" /></tr></thead>
      <tbody>
        {list.map((card) => (
          <tr key={card.name}>
            <th scope="row" class="left">{card.title}</th>
            {card.error ? <td colSpan={4} class="left muted">{card.error}</td> : (
              <>
                <td><Bytes n={card.gpu_bytes ?? 0} style="natural" /></td>
                <td><Bytes n={card.device_bytes} style="natural" /></td>
                <td class="left"><Fit fits={card.fits}>{card.cards > 1 ? `on ${card.cards}` : undefined}</Fit></td>
                <td><button type="button" class="button small" aria-label={`Use ${card.title}`}
                  onClick={() => setWords([['gpu', card.name], ...(card.cards > 1 ? [/** @type {[string, string]} */ (['parallel.dp', String(card.cards)])] : [])])}>Use</button></td>
              </>
            )}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

export function WhatIf() {
  const [shown, setShown] = useState(/** @type {{call: string, reply: any} | null} */ (null));
  const [isAsking, setAsking] = useState(false);
  useEffect(() => setShown(null), [link.value]); /* of another job */
  async function open(/** @type {string} */ call) {
    setAsking(true);
    const reply = await ask(call);
    setAsking(false);
    setShown({ call, reply });
  }
  const reply = shown?.reply;
  return (
    <section class="card" id="whatif" aria-labelledby="whatif-title" aria-busy={isAsking}>
      <h2 id="whatif-title">What if <small>every line is played, not guessed</small></h2>
      <p class="whatif-ask">
        <button type="button" class="button" disabled={isAsking} onClick={() => open('advice')}>What would change it</button>
        <button type="button" class="button" disabled={isAsking} onClick={() => open('cards')}>On which cards</button>
      </p>
      {shown && (!reply?.ok ? <p class="muted">{reply?.diagnostics?.[0]?.message ?? 'No answer came.'}</p> : (
        <div class="scroll" tabIndex={0} role="group" aria-label={shown.call === 'advice' ? 'Changes' : 'Cards'}>
          {shown.call === 'advice' ? <Changes list={reply.changes} /> : <Cards list={reply.cards} />}
        </div>
      ))}
    </section>
  );
}
