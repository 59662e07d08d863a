/* SPDX-License-Identifier: Apache-2.0 */
/* allocator/: PyTorch's CUDA caching allocator, and the requests that it serves.
 *
 * A timeline lists the requests and frees of a run in order, each with its size, its stream, its origin and its
 * category; tensor/ appends to one while a job is played. Events look the same whatever their source, a timeline or the
 * tape of a recording. The caching allocator (c10/cuda/CUDACachingAllocator.cpp with its options, statistics and
 * segments) serves requests one at a time; the player feeds it all events of a source and records the peaks of
 * allocated and reserved memory, by step and phase, and when they were reached. This folder knows bytes, blocks and
 * streams, but neither tensors nor models. */
#ifndef TIDE_ALLOCATOR_ALLOCATOR_H
#define TIDE_ALLOCATOR_ALLOCATOR_H

#include "allocator/alloc_conf.h"
#include "allocator/caching_allocator.h"
#include "allocator/events.h"
#include "allocator/player.h"
#include "allocator/timeline.h"

#endif
