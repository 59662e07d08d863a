/* What the start of an inference server comes to. */
#ifndef TIDE_REPORT_SERVING_H
#define TIDE_REPORT_SERVING_H

#include "base/json_write.h"
#include "serve/settings.h"
#include "train/train.h"

/* A job with mode=serve, played. */
typedef struct tide_serving {
    tide_serve_settings settings; /* as given */
    tide_serve_device device;
    tide_serve_run *run;     /* of the pipeline's stage with the fewest blocks */
    int64_t asked_len;       /* input_len + output_len; 0: neither is given */
    int64_t max_concurrency; /* 0: not given */
} tide_serving;

/* Starts the engine; its timeline is the run's then. False after an error. */
bool tide_run_serving(tide_run *run, const tide_job *job, tide_arena *arena, tide_diagnostics *diags);

/* Requests of the asked length, or of max_model_len, that are admitted at once for sure. */
int64_t tide_serving_requests(const tide_serving *serving);
/* Whether the engine starts, and takes as many requests as are asked for. */
bool tide_serving_fits(const tide_serving *serving);
/* What the card holds: context, weights, the profile run's peak, graphs and the cache. */
uint64_t tide_serving_bytes(const tide_serving *serving);
/* The engine's own line, or its refusal. */
const char *tide_serving_sentence(const tide_serving *serving, tide_arena *arena);

/* "serving": all of it; several starts more are played for what flags buy. */
void tide_write_serving(tide_writer *writer, const tide_serving *serving, const tide_job *job, tide_arena *arena);
/* The same in short. */
void tide_write_serving_brief(tide_writer *writer, const tide_serving *serving);

/* The figures alone, as the recorded runs have them. */
void tide_write_serving_figures(tide_writer *writer, const tide_serve_run *run);

#endif
