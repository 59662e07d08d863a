// SPDX-License-Identifier: Apache-2.0
/* Beside an error at a setting: values near it with which the job runs, each tried. */
import { useEffect, useState } from 'preact/hooks';
import { firstThatRun, nearValues } from '../nearest.js';
import { askMany } from '../asking.js';
import { setWord } from '../changes.js';
import { describe, valueOf, words } from '../state.js';

const SHOWN = 3;

/** @param {{name: string, message: string}} props */
export default function Nearest({ name, message }) {
  const [good, setGood] = useState(/** @type {string[]} */ ([]));
  const key = JSON.stringify(words.value);
  const setting = describe.value?.settings.find((s) => s.name === name);
  useEffect(() => {
    setGood([]);
    if (!setting) return;
    const values = nearValues(setting, valueOf(name), message);
    const stop = new AbortController();
    /** @type {boolean[]} */
    const runs = [];
    askMany(values.map((value) => ({ words: [`${name}=${value}`] })), (reply, i) => {
      runs[i] = !!reply?.ok;
      const { first, isWhole } = firstThatRun(values, runs, SHOWN);
      setGood(first);
      if (isWhole) stop.abort(); /* those that are left are further off, and may take long */
    }, stop.signal);
    return () => stop.abort();
  }, [key]);
  return good.length > 0 && (
    <p class="nearest">With these it runs: {good.map((value) => (
      <button key={value} type="button" class="button small" onClick={() => setWord(name, value)}>{name}={value}</button>
    ))}</p>
  );
}
