/* SPDX-License-Identifier: Apache-2.0 */
/* A tape as a source of events for the player. */
#ifndef TIDE_TRACE_TAPE_EVENTS_H
#define TIDE_TRACE_TAPE_EVENTS_H

#include "trace/tape.h"

/* Slots are those of the tape; a request is a call site. */
tide_event_source tide_tape_events(const tide_tape *tape);

#endif
