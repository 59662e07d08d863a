// SPDX-License-Identifier: Apache-2.0
/* Up to six named jobs side by side. They are kept in this browser; those of a link only when one says so. */
import { signal } from '@preact/signals';
import { ask, askAll } from './asking.js';
import { packSeveral, unpackSeveral } from './links.js';
import { report, scenarios } from './state.js';
import { kept, keep } from './storage.js';

/** @typedef {import('./state.js').Scenario} Scenario */

export const MOST_SCENARIOS = 6;
const MOST_NAME = 60;

/* Those that are shown came with a link, and one's own stay as they are. */
export const isShared = signal(false);

/* Of those of a link, what each came to when it was made, in GiB, by its link. */
export const linkedFigures = signal(/** @type {Record<string, string | undefined>} */ ({}));

/** What is a list of scenarios in what is kept or linked. @param {unknown} list @returns {Scenario[]} */
const valid = (list) => (Array.isArray(list) ? list : []).filter((one) => typeof one?.name === 'string' && typeof one?.link === 'string')
  .slice(0, MOST_SCENARIOS).map(({ name, link }) => ({ name: name.slice(0, MOST_NAME), link }));

function own() {
  try {
    return valid(JSON.parse(kept('scenarios') ?? '[]'));
  } catch {
    return [];
  }
}

export const countOwn = () => own().length;

/** One's own are shown. */
export function showOwn() {
  isShared.value = false;
  scenarios.value = own();
}

/** @param {Scenario[]} list */
function change(list) {
  scenarios.value = list;
  if (!isShared.value) keep('scenarios', JSON.stringify(list));
}

/** Those of the link become one's own. */
export function keepShared() {
  isShared.value = false;
  change(scenarios.value);
}

/** The job as it is. @returns {Promise<string>} what came of it, to be said */
export async function addScenario() {
  const r = report.value;
  const reply = await ask('link');
  if (!r || !reply?.ok) return 'A job with an error is no scenario.';
  if (scenarios.value.length >= MOST_SCENARIOS) return `There are ${MOST_SCENARIOS} scenarios: remove one first.`;
  const base = [r.model.title, r.gpu?.title].filter(Boolean).join(' on ').slice(0, MOST_NAME - 4);
  const isTaken = (/** @type {string} */ name) => scenarios.value.some((one) => one.name === name);
  let name = base;
  for (let i = 2; isTaken(name); i++) name = `${base} (${i})`;
  change([...scenarios.value, { name, link: reply.link }]);
  return `${name} is a scenario.`;
}

/** @param {number} at */
export const removeScenario = (at) => change(scenarios.value.filter((_, i) => i !== at));

/** @param {number} at @param {string} name */
export const renameScenario = (at, name) => change(scenarios.value.map((one, i) => (i === at ? { ...one, name: name.trim().slice(0, MOST_NAME) || one.name } : one)));

/** The address of the page with all of them in it, each with what it comes to, or that there is none. */
export async function addressOfAll() {
  const links = scenarios.value.map(({ link }) => link);
  await askAll(links.map((link) => ({ call: 'link', link, was: true })), (reply, i) => { links[i] = reply?.link ?? links[i]; });
  const text = await packSeveral(scenarios.value.map(({ name }, i) => [name, links[i]]));
  return text ? `${location.href.split('#')[0]}#${text}` : 'The scenarios are too long for one link.';
}

/** Shows the scenarios of a link. @param {string} fragment @returns {Promise<string>} the first one's job */
export async function openShared(fragment) {
  const linked = await unpackSeveral(fragment);
  const list = valid(linked.map(([name, link]) => ({ name, link: link.replace(/(^|&)was=[^&]*/, '') })));
  isShared.value = JSON.stringify(list) !== JSON.stringify(own());
  scenarios.value = list;
  linkedFigures.value = Object.fromEntries(linked.map(([, link], i) => [list[i]?.link, new URLSearchParams(link).get('was')?.split('_')[0]]));
  return linked[0][1];
}
