// SPDX-License-Identifier: Apache-2.0
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

const HUB = 'huggingface.co/';

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
  models.value = reply.models.map((/** @type {any} */ m) => ({ ...choice(m, m.model_type, billions(m.parameters)), ids: m.source?.startsWith(HUB) ? [m.source.slice(HUB.length)] : [] }));
}

/** @param {number | undefined} count */
const billions = (count) => (!count ? '' : count >= 1e9 ? `${(count / 1e9).toFixed(1)} B` : `${Math.round(count / 1e6)} M`);

/* Parts of a published name that say how its weights were trained on or packed, and nothing of its architecture. */
const ASIDE = /^(meta|hf|base|instruct|chat|it|v\d+(\.\d+)*|\d{4,}|bnb|\d+bit|awq|gptq|int\d+|fp\d+|quantized|pretrained)$/;
/* How weights are packed, by the end of such a name. */
const PACKED = /** @type {[RegExp, string][]} */ ([[/awq/, 'awq'], [/gptq/, 'gptq'], [/fp8/, 'fp8'], [/8-?bit|int8/, 'int8'], [/4-?bit/, 'nf4']]);

/** "meta-llama/Meta-Llama-3.1-8B-Instruct": meta, llama, 3.1, 8b, instruct. @param {string} text */
const piecesOf = (text) => text.toLowerCase().split('/').at(-1)?.match(/(v|int|fp)\d+(\.\d+)*|\d+(\.\d+)*[a-z]*|[a-z]+/g) ?? [];

/** What is left of a list when the pieces of another one are taken out in order; null where they are not all there.
 * @param {string[]} list @param {string[]} out */
function without(list, out) {
  let at = 0;
  const left = list.filter((piece) => piece !== out[at] || !++at);
  return at === out.length ? left : null;
}

/** The choice that a published name means, where what the name says more is aside; and what it says of the weights.
 * @param {import('./types.js').Choice[]} choices @param {string} typed @returns {import('./types.js').Choice[]} */
function taken(choices, typed) {
  const pieces = piecesOf(typed);
  const found = choices.flatMap((choice) => [choice.name, ...choice.ids ?? []].flatMap((id) => {
    const left = without(pieces, piecesOf(id));
    return left?.every((piece) => ASIDE.test(piece)) ? [{ choice, left: left.length }] : [];
  })).sort((a, b) => a.left - b.left);
  if (!found.length || !pieces.length) return [];
  const quant = PACKED.find(([end]) => end.test(typed.toLowerCase()))?.[1];
  const [{ choice }] = found;
  return [{ ...choice, taken: typed.trim(), ...(quant && { words: [['quant', quant]] }), note: [quant && `quant=${quant}`, choice.note].filter(Boolean).join(' · ') }];
}

/** The choices that hold every typed word; a name that is typed whole comes first, then those that begin so. Where none does, the one that a
 * published name means: "Qwen/Qwen2.5-7B-Instruct" finds qwen2.5-7b. Else those that hold every piece of it: "llama3" finds llama-3-8b.
 * @param {import('./types.js').Choice[]} choices @param {string} typed @returns {import('./types.js').Choice[]} */
export function narrow(choices, typed) {
  const words = typed.toLowerCase().split(/\s+/).filter(Boolean);
  const rank = (/** @type {string} */ name) => (words.length !== 1 || !name.startsWith(words[0]) ? 2 : Number(name !== words[0]));
  const found = choices.filter((choice) => words.every((word) => choice.search.includes(word))).sort((a, b) => rank(a.name) - rank(b.name));
  if (found.length || !words.length) return found;
  const meant = taken(choices, typed);
  if (meant.length || typed.includes('/')) return meant;
  const pieces = piecesOf(typed);
  return pieces.length ? choices.filter(({ name }) => without(piecesOf(name), pieces)) : [];
}
