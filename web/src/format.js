// SPDX-License-Identifier: Apache-2.0
/* Numbers for people. The core's sizes are whole bytes below 2^53, so every number here is exact until it is shown. */

/** @typedef {'GiB' | 'MiB' | 'GB'} Unit */

/** @type {Record<Unit, {bytes: number, digits: number, spoken: string}>} */
export const UNITS = {
  GiB: { bytes: 2 ** 30, digits: 2, spoken: 'gibibytes' },
  MiB: { bytes: 2 ** 20, digits: 0, spoken: 'mebibytes' },
  GB: { bytes: 1e9, digits: 2, spoken: 'gigabytes' },
};

/** Digits in groups of three. (Intl.NumberFormat costs a slow machine 60 ms at its first use.)
 * @param {number} value @param {number} [digits] */
export function fixed(value, digits = 0) {
  const [whole, part] = Math.abs(value).toFixed(digits).split('.');
  const grouped = whole.replace(/\B(?=(\d{3})+$)/g, ',');
  return (value < 0 ? '−' : '') + grouped + (part ? `.${part}` : '');
}

/** A size in a unit without its name; what would show as zero shows as less than the last digit.
 * @param {number} bytes @param {Unit} unit @param {number} [digits] */
export function inUnit(bytes, unit, digits = UNITS[unit].digits) {
  const value = bytes / UNITS[unit].bytes;
  if (bytes > 0 && value < 0.5 * 10 ** -digits) return `<${fixed(10 ** -digits, digits)}`;
  return fixed(value, digits);
}

/** One digit for headlines.
 * @param {number} bytes @param {Unit} unit */
export const headline = (bytes, unit) => inUnit(bytes, unit, unit === 'MiB' ? 0 : 1);

/** A size in the unit that suits it, for tensors.
 * @param {number} bytes @param {Unit} unit */
export function natural(bytes, unit) {
  const steps = unit === 'GB' ? [['GB', 1e9], ['MB', 1e6], ['kB', 1e3]] : [['GiB', 2 ** 30], ['MiB', 2 ** 20], ['KiB', 2 ** 10]];
  for (const [name, size] of /** @type {[string, number][]} */ (unit === 'MiB' ? steps.slice(1) : steps)) {
    if (bytes >= size) return `${fixed(bytes / size, bytes / size >= 100 ? 0 : 1)} ${name}`;
  }
  return `${bytes} B`;
}

/** Both bounds of a range; or the distance from the middle, if rounding hides it.
 * @param {{low: number, high: number}} range @param {Unit} unit */
export function extent({ low, high }, unit) {
  const [least, most] = [headline(low, unit), headline(high, unit)];
  return least === most ? `give or take ${natural((high - low) / 2, unit)}` : `between ${least} and ${most} ${unit}`;
}

/** @param {number} bytes */
export const exact = (bytes) => `${fixed(bytes, 0)} bytes`;

/** A diagnostic as sentences: the core's message may leave its subject to the place that it carries.
 * @param {import('./types.js').Diagnostic} diagnostic @returns {{said: string, todo: string}} */
export function sentences({ place, message, remedy = '' }) {
  const subject = place === '/link' ? 'This link' : place && /^(applies|are|belongs|cannot|contains|differs|does|exceeds|has|is|keeps|leaves|must|names|needs|redefines|sends|takes) /.test(message) ? place.split('/').pop() : '';
  const stop = (/** @type {string} */ text) => (text === '' || /[.!?]$/.test(text) ? text : `${text}.`);
  const capital = (/** @type {string} */ text) => (/^[a-z]+[ ,;]/.test(text) ? text[0].toUpperCase() + text.slice(1) : text);
  return { said: stop(subject ? `${subject} ${message}` : capital(message)), todo: stop(capital(remedy)) };
}

/** @param {number} part @param {number} whole */
export function percent(part, whole) {
  if (!whole) return '';
  const value = (100 * part) / whole;
  return part > 0 && value < 0.5 ? '<1 %' : `${fixed(value, 0)} %`;
}

/** Parameter counts as people say them.
 * @param {number} count */
export function params(count) {
  if (count >= 1e9) return `${fixed(count / 1e9, 2)} B`;
  if (count >= 1e6) return `${fixed(count / 1e6, count >= 1e8 ? 0 : 1)} M`;
  return fixed(count, 0);
}

/** Ticks from 0 in binary (or decimal, for GB) steps: about `wanted` of them, in bytes.
 * @param {number} top @param {Unit} unit @param {number} wanted */
export function ticks(top, unit, wanted) {
  const base = UNITS[unit].bytes;
  let step = unit === 'GB' ? base / 10 : base / 1024;
  if (unit === 'GB') {
    for (let i = 0; top / step > wanted; i++) step *= [2, 2.5, 2][i % 3];
  } else {
    while (top / step > wanted) step *= 2;
  }
  const out = [];
  for (let at = 0; at <= top; at += step) out.push(at);
  return out;
}

/** @param {number} bytes @param {Unit} unit */
export function tick(bytes, unit) {
  const value = bytes / UNITS[unit].bytes;
  return fixed(value, value >= 1 || value === 0 ? 0 : value >= 0.1 ? 1 : 2);
}
