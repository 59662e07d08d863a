/* The lists of what can be chosen, as the pickers show them. */
import { signal } from '@preact/signals';
import { askAsIs } from './asking.js';
import { helps, models } from './state.js';

/** @typedef {import('./types.js').Describe} Describe */

/* What a form needs at once: the models come when a list of them is wanted, and with them what the settings mean. */
export const FORM = { call: 'describe', of: 'form' };

/** @param {any} entry @param {(string | undefined)[]} said @returns {import('./types.js').Choice} */
function choice({ name, title = name }, ...said) {
  const note = said.filter(Boolean).join(' · ');
  return { name, title, note, search: `${name} ${title} ${note}`.toLowerCase() };
}

/** @param {any} reply to FORM @returns {Describe} */
export const readDescribe = (reply) => ({
  settings: reply.settings,
  gpus: reply.gpus.map((/** @type {any} */ g) => choice(g, g.bytes && `${(g.bytes / 2 ** 30).toFixed(1)} GiB`)),
});

/* Why there is no list of models. */
export const noModels = signal('');

/** Has the models and what the settings mean, which are with the rest of the core. */
export async function wantModels() {
  if (models.value) return;
  noModels.value = 'The models are on their way.';
  const reply = await askAsIs({ call: 'describe' }, 'models').catch(() => null);
  if (reply && !reply.ok) noModels.value = reply.diagnostics[0].message;
  if (!reply?.ok) return;
  helps.value = Object.fromEntries(reply.settings.map((/** @type {any} */ s) => [s.name, s.help]));
  models.value = reply.models.map((/** @type {any} */ m) => choice(m, m.model_type, billions(m.parameters)));
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
