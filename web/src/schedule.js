// SPDX-License-Identifier: Apache-2.0
/* A pipeline's schedule as a picture: when each pass can begin, where a forward pass counts one, a backward pass two and half of one one. */

/** @typedef {{name: string, stages: number, microbatches: number, ranks: {in_flight: number, passes: string[]}[]}} Schedule  the core's answer; a pass is as
 *   PyTorch writes it: stage, letter, micro-batch
 * @typedef {{kind: 'F' | 'B' | 'I' | 'W', stage: number, microbatch: number, from: number, to: number, inFlight: number}} Pass  inFlight: after it
 * @typedef {{ranks: Pass[][], end: number}} Times */

const WIDTH = { F: 1, B: 2, I: 1, W: 1 };

/** @param {string} text @returns {Pass} */
function passOf(text) {
  const [, stage, kind, microbatch] = /** @type {RegExpExecArray} */ (/^(\d+)([FBIW])(\d+)$/.exec(text));
  return { kind: /** @type {Pass['kind']} */ (kind), stage: Number(stage), microbatch: Number(microbatch), from: 0, to: 0, inFlight: 0 };
}

/** Each rank does its passes in order, each as soon as what it needs has come: the pass of the stage before it, and for the gradients of weights that of the input.
 * @param {Schedule} schedule @returns {Times} */
export function timesOf({ ranks: given, stages }) {
  const ranks = given.map(({ passes }) => passes.map(passOf));
  /** @type {Map<string, number>} when the output of a stage, or its gradient, is there */
  const done = new Map();
  const next = ranks.map(() => 0);
  const free = ranks.map(() => 0);
  /** @param {Pass} pass @returns {number | undefined} when it may begin; undefined: that is not known yet */
  function ready({ kind, stage, microbatch }) {
    if (kind === 'W') return 0;
    if (kind === 'F') return stage === 0 ? 0 : done.get(`F${stage - 1} ${microbatch}`);
    return stage === stages - 1 ? done.get(`F${stage} ${microbatch}`) : done.get(`B${stage + 1} ${microbatch}`);
  }
  for (let isMoving = true; isMoving;) {
    isMoving = false;
    ranks.forEach((passes, rank) => {
      for (let pass; (pass = passes[next[rank]]); next[rank]++) {
        const at = ready(pass);
        if (at === undefined) break;
        pass.from = Math.max(free[rank], at);
        free[rank] = pass.to = pass.from + WIDTH[pass.kind];
        if (pass.kind !== 'W') done.set(`${pass.kind === 'F' ? 'F' : 'B'}${pass.stage} ${pass.microbatch}`, pass.to);
        isMoving = true;
      }
    });
  }
  for (const passes of ranks) {
    let count = 0;
    for (const pass of passes) {
      count += pass.kind === 'F' ? 1 : pass.kind === 'I' ? 0 : -1;
      pass.inFlight = count;
    }
  }
  return { ranks, end: Math.max(...free) };
}

/** The first pass after which as many are in flight as ever. @param {Pass[]} passes */
export const fullest = (passes) => passes.reduce((most, pass, i) => (pass.inFlight > passes[most].inFlight ? i : most), 0);
