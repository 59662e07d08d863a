// SPDX-License-Identifier: Apache-2.0
/* Of a job that does not fit: the change that fits and changes least. */
import { useEffect, useState } from 'preact/hooks';
import { closest, isOfGpus, smaller } from '../nearest.js';
import { askMany } from '../asking.js';
import { setWords } from '../changes.js';
import { link } from '../state.js';
import { toWord } from '../words.js';

export default function Closest() {
  const [found, setFound] = useState(/** @type {import('../nearest.js').Change | null} */ (null));
  const key = link.value;
  useEffect(() => {
    setFound(null);
    const stop = new AbortController();
    const timer = setTimeout(async () => {
      /** @type {import('../nearest.js').Change | null} */
      let best = null;
      await askMany([{ call: 'advice', words: [] }], (reply) => { best = closest(reply?.changes ?? []); }, stop.signal);
      if (!best || isOfGpus(best)) await askMany([{ call: 'fit', words: [], more: { knob: 'batch' } }], (reply) => { best = smaller(reply?.rows?.[0]?.largest) ?? best; }, stop.signal);
      if (!stop.signal.aborted) setFound(best);
    }, 200);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [key]);
  return found && (
    <p class="closest">The closest change that fits: <b>{found.title}</b> <span class="muted">({found.effect})</span>{' '}
      <button type="button" class="button small" onClick={() => setWords(found.settings.map(toWord))} aria-label={`Apply ${found.title}: ${found.settings.join(' ')}`}>Apply</button></p>
  );
}
