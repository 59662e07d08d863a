/* A prediction beside a recording: where they part. */
#ifndef TIDE_ALIGN_H
#define TIDE_ALIGN_H

#include "base/json_write.h"
#include "report/replay.h"
#include "trace/trace.h"
#include "train/train.h"

/* Members of the answer to "align", written into the open object: requests and frees in their order, what each has that
 * the other has not, and the peaks of both on the device of the configuration. False when memory ran out. */
bool tide_write_alignment(tide_writer *w, tide_run *run, const tide_replay_config *config, const tide_recording *r,
                          const tide_tape *tape);

#endif
