/* SPDX-License-Identifier: Apache-2.0 */
/* The events of a recording, described by call sites. */
#ifndef TIDE_REPORT_RECORDED_EVENTS_H
#define TIDE_REPORT_RECORDED_EVENTS_H

#include "report/described_events.h"
#include "trace/trace.h"

tide_described_events tide_recorded_events(tide_recording *recording, const tide_tape *tape);

/* The frame that represents a stack: the innermost in a Python file that is not part of PyTorch, else the outermost. */
tide_text tide_frame_of(const tide_recording *recording, uint32_t stack);
/* The same as an index into recording->names; 0: none. */
uint32_t tide_frame_name(const tide_recording *recording, uint32_t stack);
/* An array with the frames of a stack, innermost first, at most `most`. */
void tide_write_frames(tide_writer *w, const tide_recording *recording, uint32_t stack, int most);
/* Microseconds from the first recorded time to the last one up to an event. False: there is none. */
bool tide_time_at(const tide_tape *tape, uint32_t event, uint64_t *microseconds);

#endif
