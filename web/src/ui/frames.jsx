// SPDX-License-Identifier: Apache-2.0
/* What events and segments share: a size, and the stack that asked for it. */
import { exact, natural } from '../format.js';

/** A size with its exact bytes. @param {{n: number, unit: import('../format.js').Unit}} props */
export const Size = ({ n, unit }) => <span class="bytes" data-tip={exact(n)}>{natural(n, unit)}</span>;

/** A stack, the innermost frame first. @param {{list: string[]}} props */
export const Frames = ({ list }) => (
  <div class="scroll event-frames" tabIndex={0} role="group" aria-label="Stack, the innermost frame first"><ol class="frames">{list.map((frame, i) => <li key={i}><code>{frame}</code></li>)}</ol></div>
);
