/* The lists of what can be chosen, as the pickers show them. */

/** @typedef {import('./types.js').Describe} Describe */

/** Makes the answer to describe uniform: catalogue entries may be names or objects.
 * @param {any} reply @returns {Describe} */
export function readDescribe(reply) {
  /** @param {any} entry @param {(entry: any) => string} note */
  const choice = (entry, note) => {
    const name = typeof entry === 'string' ? entry : entry.name;
    const title = (typeof entry === 'object' && entry.title) || name;
    const said = typeof entry === 'object' ? note(entry) : '';
    return { name, title, note: said, search: `${name} ${title} ${said}`.toLowerCase() };
  };
  const total = (/** @type {any} */ m) => (typeof m.parameters === 'object' ? m.parameters?.total : m.parameters);
  return {
    settings: reply.settings,
    models: reply.models.map((/** @type {any} */ m) => choice(m, () => [m.architecture ?? m.model_type, billions(total(m))].filter(Boolean).join(' · '))),
    gpus: reply.gpus.map((/** @type {any} */ g) => choice(g, () => (g.bytes ? `${(g.bytes / 2 ** 30).toFixed(1)} GiB` : ''))),
  };
}

/** @param {number | undefined} count */
const billions = (count) => (!count ? '' : count >= 1e9 ? `${(count / 1e9).toFixed(1)} B` : `${Math.round(count / 1e6)} M`);

/** The choices that hold every typed word; a name that is typed whole comes first, then those that begin so. Where none does, the one that a name continues: "Qwen/Qwen2.5-7B-Instruct" finds qwen2.5-7b.
 * @template {{name: string, search: string}} T @param {T[]} choices @param {string} typed @returns {T[]} */
export function narrow(choices, typed) {
  const words = typed.toLowerCase().split(/\s+/).filter(Boolean);
  const rank = (/** @type {string} */ name) => (words.length !== 1 || !name.startsWith(words[0]) ? 2 : Number(name !== words[0]));
  const found = choices.filter((choice) => words.every((word) => choice.search.includes(word))).sort((a, b) => rank(a.name) - rank(b.name));
  const base = words[0]?.slice(words[0].lastIndexOf('/') + 1);
  return found.length || words.length !== 1 ? found
    : choices.filter(({ name }) => `${base}-`.startsWith(`${name}-`)).sort((a, b) => b.name.length - a.name.length).slice(0, 1);
}
