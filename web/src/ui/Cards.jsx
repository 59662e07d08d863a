// SPDX-License-Identifier: Apache-2.0
/* The present job on every card. */
import { Bytes } from './marks.jsx';
import { apply, Fits, NoAnswer, useAnswers } from './played.jsx';

/** @typedef {import('./played.jsx').Figures & {name: string, title: string, cards: number, error?: string}} Card */

export default function Cards() {
  const reply = useAnswers(() => [{ call: 'cards', words: [] }])?.[0];
  if (!reply?.ok) return <NoAnswer reply={reply} />;
  /** @type {Card[]} */
  const list = [...reply.cards].sort((a, b) => Number(b.fits ?? false) - Number(a.fits ?? false) || (a.gpu_bytes ?? 0) - (b.gpu_bytes ?? 0)); /* the smallest that it runs on first */
  return (
    <table class="numbers whatif">
      <thead><tr><th scope="col" class="left">GPU</th><th scope="col">Has</th><th scope="col">Needs</th><th scope="col" class="left"><span class="hidden">Verdict</span></th><th scope="col"><span class="hidden">Use</span></th></tr></thead>
      <tbody>
        {list.map((card) => (
          <tr key={card.name}>
            <th scope="row" class="left">{card.title}</th>
            {card.error ? <td colSpan={4} class="left muted">{card.error}</td> : (
              <>
                <td data-label="has"><Bytes n={card.gpu_bytes ?? 0} style="natural" /></td>
                <td data-label="needs"><Bytes n={card.device_bytes} style="natural" /></td>
                <td class="left"><Fits of={card}>{card.cards > 1 && ` on ${card.cards}`}</Fits></td>
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
