/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of modules with equal keys: the first is played and the others are replayed. */
#ifndef TIDE_MEMO_LAYER_MEMO_H
#define TIDE_MEMO_LAYER_MEMO_H

#include "lang/lang.h"

/* For tide_model.call. */
tide_value tide_call_memoized(const tide_call_arguments *arguments);

/* Calls that were captured from an event on are forgotten: the timeline has them no more. */
void tide_layer_memo_forget(tide_model *model, uint32_t first_event);

#endif
