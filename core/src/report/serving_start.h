/* SPDX-License-Identifier: Apache-2.0 */
/* The start of an inference server, played for a job. Private to report/. */
#ifndef TIDE_REPORT_SERVING_START_H
#define TIDE_REPORT_SERVING_START_H

#include "report/serving_requests.h"
#include "train/train.h"

/* A job with mode=serve, played. */
typedef struct tide_serving {
    const tide_job *job;
    tide_serve_device device; /* as the last server on the GPU finds it */
    tide_serve_run *run;      /* of the pipeline stage with the fewest blocks */
    tide_request_mix mix;     /* the requested lengths; empty: max_model_len */
} tide_serving;

/* Starts the engine, whose timeline becomes that of the run. False after an error. */
bool tide_run_serving(tide_run *run, const tide_job *job, tide_arena *arena, tide_diagnostics *diags);

/* Starts the server of a job: each stage of a pipeline, and the last one on the GPU. NULL after an error, which is
 * reported. `like` and `kept` are those of the runs, or NULL. */
tide_serve_run *tide_serving_play(const tide_job *job, const tide_serve_run *like, tide_serve_descriptions *kept,
                                  tide_arena *arena, tide_diagnostics *diags);

/* How many requests of the requested lengths `run` can hold in any case, over all servers. */
int64_t tide_serving_requests_of(const tide_serving *serving, const tide_serve_run *run);
int64_t tide_serving_requests(const tide_serving *serving);
/* Whether the engine starts and serves the requested number: possibly, and certainly. */
bool tide_serving_may_fit(const tide_serving *serving);
bool tide_serving_fits(const tide_serving *serving);
/* What the GPU holds: context, weights, the peak of the profile run, graphs and cache, of all its servers. */
uint64_t tide_serving_bytes(const tide_serving *serving);
/* Block tables and slot mappings, allocated after the cache: v1/worker/gpu/block_table.py. */
int64_t tide_serving_tables(const tide_serve_run *run);

#endif
