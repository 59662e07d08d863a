/* What a recording says, played: the answer to "replay". */
#ifndef TIDE_RECORDED_H
#define TIDE_RECORDED_H

#include "../job/job.h"
#include "../recording/recording.h"

/* Members of the answer, written into the open object. `device`: a number, or -1 for the one that reserved most. False after
 * an error, which is reported, or when memory ran out (no error then). */
bool tide_write_recorded(tide_writer *w, tide_recording *r, const tide_job *job, int64_t device, tide_diagnostics *diags);

#endif
