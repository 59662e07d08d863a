// SPDX-License-Identifier: Apache-2.0
/* Beside an error at a setting: values near it with which the job runs, each tried. */
import { useEffect, useState } from 'preact/hooks';
import { nearValues } from '../nearest.js';
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
    /** @type {Set<string>} */
    const found = new Set();
    askMany(values.map((value) => ({ words: [`${name}=${value}`] })), (reply, i) => {
      if (reply?.ok) found.add(values[i]);
    }, stop.signal).then((all) => { if (all) setGood(values.filter((value) => found.has(value)).slice(0, SHOWN)); });
    return () => stop.abort();
  }, [key]);
  return good.length > 0 && (
    <p class="nearest">With these it runs: {good.map((value) => (
      <button key={value} type="button" class="button small" onClick={() => setWord(name, value)}>{name}={value}</button>
    ))}</p>
  );
}
