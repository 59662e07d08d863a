/* Stands in for d3-interpolate in the bundle: the page's scales map numbers only, so d3's interpolation of colours, dates
 * and objects (a quarter of all its script) stays out. */

/** @param {number} a @param {number} b */
export const interpolateNumber = (a, b) => (/** @type {number} */ t) => a * (1 - t) + b * t;

export const interpolate = interpolateNumber;

/** @param {number} a @param {number} b */
export const interpolateRound = (a, b) => (/** @type {number} */ t) => Math.round(a * (1 - t) + b * t);

/** Named by d3-scale for scales of several colours; the page has none. */
export function piecewise() {
  throw new Error('The page has no piecewise scale.');
}
