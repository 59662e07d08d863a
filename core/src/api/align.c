/* A prediction beside a recording. */
#include "report/align.h"

#include "api/calls.h"
#include "report/recorded.h"
#include "report/report.h"

static bool answer_align(call *c) {
    tide_job *job = call_build_job(c);
    tide_run *run = TIDE_NEW(&c->arena, tide_run, 1);
    tide_replay_config config;
    uint32_t number;
    if (!call_run_job(c, run, job) || !call_find_recording(c)) return false;
    const tide_tape *tape = tide_recorded_tape(&config, c->recording, job, call_recorded_device(c), &number, &c->diags);
    if (!tape) return c->diags.error_count == 0 && call_out_of_memory(c);
    call_open_answer(c);
    if (!tide_write_alignment(&c->writer, run, &config, c->recording, tape)) return call_out_of_memory(c);
    tide_write_diagnostics(&c->writer, &c->diags, false);
    return true;
}

const call_table align_calls = {{{"align", answer_align}}};
