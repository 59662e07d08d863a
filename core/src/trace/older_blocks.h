/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks older than a recording, recreated where they were when it began. */
#ifndef TIDE_TRACE_OLDER_BLOCKS_H
#define TIDE_TRACE_OLDER_BLOCKS_H

#include "allocator/allocator.h"

/* Allocates the older blocks of the player's tape into their slots. If a request fails it is the player's oom_request.
 */
tide_caching_status tide_take_older_blocks(tide_player *player, const tide_replay_config *config);

#endif
