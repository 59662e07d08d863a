/* SPDX-License-Identifier: Apache-2.0 */
/* memo/: not playing the same thing twice.
 *
 * The layers of a model are mostly alike, and so are micro-batches. A call whose key equals that of an earlier one (its
 * arguments, its weights, the state of the machine: call_key.h) is replayed from it: the same allocations and frees and
 * the same nodes, with other tensors in their places. Micro-batches are likewise repeated in the timeline. Answers do
 * not depend on this: tests/unit/test_repeat.c plays every recorded run both ways. */
#ifndef TIDE_MEMO_MEMO_H
#define TIDE_MEMO_MEMO_H

#include "memo/layer_memo.h"
#include "memo/micro_batch_memo.h"

#endif
