/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks that are older than a recording, as they lay when it began. */
#ifndef TIDE_TRACE_OLDER_BLOCKS_H
#define TIDE_TRACE_OLDER_BLOCKS_H

#include "allocator/allocator.h"

/* Takes the older blocks of the player's tape into their slots. The request that could not be had is the player's
 * oom_request. */
tide_caching_status tide_take_older_blocks(tide_player *player, const tide_replay_config *config);

#endif
