// SPDX-License-Identifier: Apache-2.0
/* What the page offers in place of what cannot be: values near a wrong one, the closest change of a job that does not fit. */

/** The nearest first, at most `most`. Numbers in the message are often the limit that was passed, or what has to be divided.
 * @param {import('./types.js').Setting} setting @param {string} value @param {string} [message] @param {number} [most] @returns {string[]} */
export function nearValues({ type, choices, least = 1, most: top = 2 ** 31, default: usual }, value, message = '', most = 16) {
  if (choices) return choices.map(String).filter((choice) => choice !== value).slice(0, most);
  if (/^bool/.test(type)) return ['true', 'false'].filter((choice) => choice !== value);
  const number = Number(value);
  if (!/^int/.test(type)) return usual === '' || usual === null ? [] : [String(usual)];
  const start = Number.isFinite(number) && number > 0 ? Math.round(number) : Math.max(least, Number(usual) || 1);
  const power = 2 ** Math.floor(Math.log2(start));
  const near = new Set([start, start - 1, start + 1, power, power * 2, power / 2, power * 4, Number(usual) || least, least, Math.min(top, 2 ** 20)]);
  for (let n = power * 8; n <= power * 128; n *= 2) near.add(n);
  for (const [digits] of message.matchAll(/\d+/g)) {
    for (const n of [Number(digits) - 1, Number(digits), Number(digits) + 1]) near.add(n);
    for (let part = 2; / divide|multiple of/.test(message) && part <= 1024; part++) if (Number(digits) % part === 0) near.add(part);
  }
  for (let part = 2; part <= 8; part++) if (start % part === 0) near.add(start / part);
  return [...near].filter((n) => Number.isInteger(n) && n >= least && n <= top && String(n) !== value)
    .sort((a, b) => Math.abs(Math.log(a / start)) - Math.abs(Math.log(b / start))).slice(0, most).map(String);
}

/** Of values in their order those that run, as far as all before them are answered: none that comes later takes the place of one that is shown.
 * @param {string[]} values @param {boolean[]} runs which do; holes are not answered yet @param {number} most
 * @returns {{first: string[], isWhole: boolean}} isWhole: what comes later adds nothing */
export function firstThatRun(values, runs, most) {
  let answered = 0;
  while (answered < values.length && answered in runs) answered++;
  const first = values.slice(0, answered).filter((_, i) => runs[i]).slice(0, most);
  return { first, isWhole: first.length === most || answered === values.length };
}

/** @typedef {{title: string, effect: string, settings: string[], fits?: boolean, lasts?: boolean, device_bytes?: number, gpu_bytes?: number}} Change */

/** Of what fits what lasts, or else what needs no retries, if anything does, and on the GPUs that are there if anything does; the largest saving comes first, so the least is last.
 * @param {Change[]} changes */
export function closest(changes) {
  const all = changes.filter(({ fits }) => fits);
  const held = all.filter(({ device_bytes: needs = 0, gpu_bytes: has = Infinity }) => needs <= has);
  const fitting = [all.filter(({ lasts }) => lasts), held, all].find((some) => some.length) ?? [];
  return fitting.findLast((change) => !isOfGpus(change)) ?? fitting.at(-1) ?? null;
}

/** Whether it takes other GPUs, or more of them. @param {Change} change */
export const isOfGpus = ({ settings }) => settings.some((word) => /^(parallel\.dp|gpu)=/.test(word));

/** Where no change by itself is enough: the batch that is. @param {number | undefined} largest @returns {Change | null} */
export const smaller = (largest) => (largest ? { title: `a micro-batch of ${largest}`, effect: 'the largest that fits', settings: [`batch=${largest}`] } : null);
