// SPDX-License-Identifier: Apache-2.0
/* What the palette finds: words typed against words of an entry. */

const WORDS = /[^a-z0-9]+/;

/** How well one typed word meets one word of an entry; 0: not at all.
 * @param {string} typed @param {string} word */
function meets(typed, word) {
  if (word === typed) return 6;
  if (word.startsWith(typed)) return 4;
  if (word.includes(typed)) return 3;
  if (typed.length < 3) return 0;
  let at = 0; /* letters in order, from the first on */
  for (const letter of word) if (letter === typed[at]) at++;
  return at === typed.length && word[0] === typed[0] ? 1 : 0;
}

/** @typedef {{title: string, note: string, search: string, help?: string, run: () => any}} Entry  help: words that count little */

/** Entries that meet every typed word, the best first; those that meet alike stay in their order.
 * @template {Entry} T @param {T[]} entries @param {string} text @param {number} [most] @returns {T[]} */
export function find(entries, text, most = 50) {
  const typed = text.toLowerCase().split(WORDS).filter(Boolean);
  if (!typed.length) return entries.slice(0, most);
  const found = [];
  for (const entry of entries) {
    const words = entry.search.toLowerCase().split(WORDS);
    const help = entry.help?.toLowerCase().split(WORDS) ?? [];
    let score = 0;
    for (const word of typed) {
      const best = Math.max(...words.map((other) => meets(word, other)), help.includes(word) ? 0.5 : 0);
      if (!best) {
        score = -1;
        break;
      }
      score += best;
    }
    if (score >= 0) found.push({ entry, score: score - words.length / 100 });
  }
  return found.sort((a, b) => b.score - a.score).slice(0, most).map(({ entry }) => entry);
}

/** "batch 32", "seq=4096": a setting by name and the value it is to have.
 * @param {string} text @returns {{name: string, value: string} | null} */
export function assignment(text) {
  const found = /^\s*(.+?)(?:\s*=\s*|\s+)(\S+)\s*$/.exec(text);
  return found && { name: found[1].toLowerCase(), value: found[2] };
}
