// SPDX-License-Identifier: Apache-2.0
/* Changes to the present job, by what they save. */
import { Bytes } from './marks.jsx';
import { apply, Fits, NoAnswer, useAnswers } from './played.jsx';

/** @typedef {import('./played.jsx').Figures & {title: string, effect: string, settings: string[], saves: number}} Change */

export default function Advice() {
  const reply = useAnswers(() => [{ call: 'advice', words: [] }])?.[0];
  if (!reply?.ok) return <NoAnswer reply={reply} />;
  /** @type {Change[]} */
  const list = reply.changes;
  if (!list.length) return <p class="muted">No known change would help.</p>;
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
