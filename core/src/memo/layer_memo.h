/* SPDX-License-Identifier: Apache-2.0 */
/* Of calls with equal keys, the first is played and the others are replayed. */
#ifndef TIDE_MEMO_LAYER_MEMO_H
#define TIDE_MEMO_LAYER_MEMO_H

#include "lang/lang.h"

/* For tide_model.call. */
tide_value tide_call_memoized(const tide_call_arguments *arguments);

/* Removes entries captured at or after an event, because the timeline no longer has these events. */
void tide_layer_memo_forget(tide_model *model, uint32_t first_event);

#endif
