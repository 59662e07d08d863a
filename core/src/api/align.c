/* SPDX-License-Identifier: Apache-2.0 */
/* Comparing a prediction with a recording. */
#include "api/calls.h"

static bool answer_align(call *c) {
    tide_job *job = call_build_job(c);
    tide_run *run = call_run_job(c, job);
    if (!run || !call_find_recording(c)) return false;
    call_open_answer(c);
    return tide_write_alignment(&c->writer, run, c->recording, job, call_recorded_device(c), &c->diags) ||
           (c->diags.error_count == 0 && call_out_of_memory(c));
}

const call_table align_calls = {{{"align", answer_align}}};
