// SPDX-License-Identifier: Apache-2.0
/* What the panels under What if share: answers to questions about the present job, and whether something fits. */
import { useEffect, useState } from 'preact/hooks';
import { askMany } from '../asking.js';
import { setWords } from '../changes.js';
import { shown as report } from '../shown.js';
import { failure } from '../state.js';
import { toWord } from '../words.js';
import { Icon } from './marks.jsx';
import { CLOSE } from './Verdict.jsx';
import './whatif.js';

/** @typedef {{device_bytes: number, gpu_bytes?: number, fits?: boolean | null}} Figures  fits: null, it cannot be told */

const SETTLED_MS = 350;

export const RETRIES = 'It would reserve more than there is, but runs because the allocator releases cached memory and retries.';

/** @param {{of: Figures, children?: any}} props */
export function Fits({ of: { fits, device_bytes: needs, gpu_bytes: has = 0 }, children }) {
  if (fits === undefined || (fits === null && !has)) return null;
  if (fits === null) return <span class="barely"><Icon name="warn" />cannot tell{children}</span>;
  const isClose = fits && needs > has * (1 - CLOSE);
  return (
    <span class={!fits ? 'bad' : isClose ? 'barely' : 'good'} data-tip={fits && needs > has ? RETRIES : undefined}>
      <Icon name={!fits ? 'cross' : isClose ? 'warn' : 'check'} />{!fits ? 'does not fit' : isClose ? 'barely fits' : 'fits'}{children}</span>
  );
}

/** @param {string[]} words */
export const apply = (words) => setWords(words.map(toWord));

/** The answers to questions about the present job, asked again when it changes.
 * @param {() => Parameters<typeof askMany>[0]} questions */
export function useAnswers(questions) {
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
export const NoAnswer = ({ reply }) => <p class="muted">{reply ? reply.diagnostics?.[0]?.message ?? 'No answer came.' : 'Working it out…'}</p>;
