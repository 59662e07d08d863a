/* SPDX-License-Identifier: Apache-2.0 */
/* allocator/: PyTorch's CUDA caching allocator, and what it is asked.
 *
 * A timeline is the list of requests and frees of a run in order, each with its bytes, its stream, where it came from
 * and whose bytes they are; tensor/ writes one while a job is played. Events are the same of any source, a timeline or
 * a recording's tape. The caching allocator (c10/cuda/CUDACachingAllocator.cpp, with its options, statistics and
 * segments) takes requests one by one; the player puts all events of a source through it and keeps the figures that
 * they come to: the peaks of what is allocated and reserved, by step and phase, and when they were reached. It knows
 * bytes, blocks and streams, and neither tensors nor models. */
#ifndef TIDE_ALLOCATOR_ALLOCATOR_H
#define TIDE_ALLOCATOR_ALLOCATOR_H

#include "allocator/alloc_conf.h"
#include "allocator/caching_allocator.h"
#include "allocator/events.h"
#include "allocator/player.h"
#include "allocator/timeline.h"

#endif
