// SPDX-License-Identifier: Apache-2.0
/* What let go of tensors, in words. */

/** @typedef {{by: 'end' | 'operation' | 'backward' | 'assignment' | 'return' | 'loop' | 'other', op?: string, module?: string, line?: string, count: number}} Freed  one
 *   way in which tensors of a group were freed; by: what made their last reference go */

/** "MulBackward0 of layers.*.mlp": until when they are kept. @param {Freed} freed */
export function keptUntil({ by, op, module, line }) {
  switch (by) {
    case 'end': return 'the end of the run';
    case 'assignment': return `${module ?? 'the model'} assigns another: ${line}`;
    case 'return': return `${module ?? 'the model'} returns: ${line}`;
    case 'other': return 'others';
    default: return `${op}${module ? ` of ${module}` : ''}`;
  }
}
