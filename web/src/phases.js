// SPDX-License-Identifier: Apache-2.0
/* The phases of a job's curve, and where in one job an event of another one belongs. */

/** @typedef {{from: number, to: number, step: number, phase: string}} Phase  events */

/** Phases as intervals of events; a mark is where its phase ends, and what follows the last belongs to it.
 * @param {import('./types.js').Curve} t @returns {Phase[]} */
export function phases(t) {
  /** @type {Phase[]} */
  const out = [];
  for (const { event, step, phase } of t.marks) {
    const last = out.at(-1);
    if (last && last.step === step && last.phase === phase) last.to = event;
    else if (event > (last?.to ?? 0)) out.push({ from: last?.to ?? 0, to: event, step, phase });
  }
  const last = out.at(-1);
  if (last) last.to = t.events;
  return out;
}

/** From events of one job to events of another: the same part of the same phase of the same step; a phase that the other
 * one lacks is where it would begin.
 * @param {Phase[]} one @param {Phase[]} other @returns {(event: number) => number} */
export function aligned(one, other) {
  const same = (/** @type {Phase} */ a, /** @type {Phase | undefined} */ b) => a.step === b?.step && a.phase === b.phase;
  let end = 0;
  const places = one.map((phase) => {
    const found = other.find((p) => same(phase, p));
    const place = { from: found?.from ?? end, to: found?.to ?? end };
    end = place.to;
    return place;
  });
  return (event) => {
    const at = Math.max(0, one.findLastIndex((phase) => phase.from <= event));
    if (!places[at]) return 0;
    const { from, to } = one[at];
    return places[at].from + (places[at].to - places[at].from) * Math.min(1, (event - from) / Math.max(1, to - from));
  };
}
