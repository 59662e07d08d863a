/* Stands in for d3-interpolate and d3-format in the bundle. The page's scales map numbers only, and its tick labels come
 * from format.js, so d3's interpolation of colours and dates and its number formats (a quarter of all script) stay out. */

/** @param {number} a @param {number} b */
export const interpolateNumber = (a, b) => (/** @type {number} */ t) => a * (1 - t) + b * t;

export const interpolate = interpolateNumber;

/** @param {number} a @param {number} b */
export const interpolateRound = (a, b) => (/** @type {number} */ t) => Math.round(a * (1 - t) + b * t);

/* Named by d3-scale for what the page never asks of it. */
function unused() {
  throw new Error('The page has no such scale.');
}
export { unused as piecewise, unused as formatSpecifier, unused as precisionFixed, unused as precisionRound,
  unused as precisionPrefix, unused as formatPrefix, unused as format };
