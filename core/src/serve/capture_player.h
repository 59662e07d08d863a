/* SPDX-License-Identifier: Apache-2.0 */
/* Playing the events of a captured graph through two allocators. */
#ifndef TIDE_SERVE_CAPTURE_PLAYER_H
#define TIDE_SERVE_CAPTURE_PLAYER_H

#include "allocator/allocator.h"
#include "serve/serve.h"

/* The stream that descriptions use for what runs between pieces, outside of the pool. */
enum { TIDE_SERVE_BESIDE_GRAPHS = 3 };

typedef struct tide_capture_player {
    const tide_serve_capture *of;
    tide_caching_allocator *pool, *beside; /* for what is captured, and for the stream beside it; may be the same */
    tide_block *blocks;                    /* by allocation of the start in which it was played */
} tide_capture_player;

/* False: out of memory. */
bool tide_play_capture(tide_capture_player *player);

#endif
