/* SPDX-License-Identifier: Apache-2.0 */
/* The events of a recording, described by their call sites. */
#ifndef TIDE_REPORT_RECORDED_EVENTS_H
#define TIDE_REPORT_RECORDED_EVENTS_H

#include "report/described_events.h"
#include "trace/trace.h"

tide_described_events tide_recorded_events(tide_recording *recording, const tide_tape *tape);

/* The frame that a stack is told by: the innermost of a Python file that is not PyTorch's own, else the outermost of
 * all. */
tide_text tide_frame_of(const tide_recording *recording, uint32_t stack);
/* The same as a number of recording->names; 0: none. */
uint32_t tide_frame_name(const tide_recording *recording, uint32_t stack);
/* The frames of a stack, the innermost first, `most` at the most: an array. */
void tide_write_frames(tide_writer *w, const tide_recording *recording, uint32_t stack, int most);
/* The microseconds from the first time that was recorded to the last one at or before an event. False: there is none.
 */
bool tide_time_at(const tide_tape *tape, uint32_t event, uint64_t *microseconds);

#endif
