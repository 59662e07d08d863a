/* SPDX-License-Identifier: Apache-2.0 */
/* memo/: what has been played is not played again.
 *
 * The layers of a model are most often equal, and so are micro-batches. A call of a module whose key equals that of an
 * earlier one (its arguments, its weights, the state of the machine: call_key.h) is replayed from what the earlier one
 * did: the same allocations and frees, the same nodes, with other tensors in their places. A micro-batch is likewise
 * repeated in the timeline. No answer differs by it: tests/unit/test_repeat.c plays every recorded run both ways. */
#ifndef TIDE_MEMO_MEMO_H
#define TIDE_MEMO_MEMO_H

#include "memo/layer_memo.h"
#include "memo/micro_batch_memo.h"

#endif
