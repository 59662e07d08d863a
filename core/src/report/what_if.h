/* SPDX-License-Identifier: Apache-2.0 */
/* A job with other settings: each is played in full, in memory of its own. */
#ifndef TIDE_REPORT_WHAT_IF_H
#define TIDE_REPORT_WHAT_IF_H

#include "report/model_parts.h"

/* The job that is asked for. */
typedef struct tide_query {
    tide_arena *arena; /* what outlives a play */
    const tide_text *arguments;
    uint32_t argument_count;
    const tide_file *files;
    uint32_t file_count;
    tide_description_cache *cache; /* NULL: none */
} tide_query;

/* Its result, in bytes. */
typedef struct tide_what_if {
    tide_status status;                /* TIDE_OK: it was played */
    const char *message;               /* of the first error, with its place */
    const char *place, *what, *remedy; /* the same in parts */
    tide_fit fit;                      /* on the GPU, or on gpu_gib, as reported */
    bool fits;                         /* certainly, by the figures; true without a GPU */
    uint64_t need;                     /* reserved, and outside of the allocator */
    uint64_t there;                    /* capacity of the GPU; 0: without limit */
    uint64_t allocated, reserved;
    int64_t gpus, data_ranks;            /* of a job that trains */
    bool serves;                         /* for an inference server: */
    int64_t requests, tokens;            /* that fit at once; in its cache */
    uint64_t factors[TIDE_FACTOR_COUNT]; /* at the peak */
    tide_part_bytes *parts;              /* the same by part of the model */
    uint32_t part_count;
    tide_stages stages;   /* of a pipeline whose ranks were played */
    uint32_t stages_rank; /* the rank that needs the most */
    tide_setting_row *rows;
    uint32_t row_count;
} tide_what_if;

/* Plays the job with further arguments, which override those of the query. Jumps to the arena's escape when host memory
 * ran out. */
tide_what_if tide_what_if_play(const tide_query *q, const char *const *more, uint32_t count);

/* Plays the job as it is. False if that fails, with its error among the diagnostics. */
bool tide_what_if_now(tide_what_if *now, const tide_query *q, tide_diagnostics *diags);

/* Members of the open object: whether it fits, and what it needs. */
void tide_write_what_if(tide_writer *w, const tide_what_if *what_if);
/* The same for a change: its settings, and how much of `need` it saves. */
void tide_write_changed(tide_writer *w, const char *const *words, uint32_t count, uint64_t need,
                        const tide_what_if *after);

/* Whether a trainer evaluates between steps; only for one GPU. */
bool tide_what_if_evaluates(const tide_what_if *what_if);
/* Whether it fits without releasing cached memory: retries are slow, and may fail with other fragmentation. */
bool tide_what_if_holds(const tide_what_if *what_if);
/* Whether it fits with 3 % of the GPU to spare: another driver or kernel may need more. */
bool tide_what_if_lasts(const tide_what_if *what_if);

/* The canonical value of a setting of a played job; "" if it is not set. */
const char *tide_what_if_setting(const tide_what_if *what_if, const char *name);

/* Whether different ranks of a pipeline were played, so that layers can be moved. */
bool tide_moves_layers(const tide_run *run);
/* Whether an estimate plays other jobs besides its own. */
bool tide_plays_others(const tide_run *run, const tide_job *job);
/* Warns if quantised weights or adapters allocate more than the job without them, which is played for this. */
void tide_warn_of_more(const tide_query *q, const tide_run *run, const tide_job *job, uint64_t allocated_peak,
                       tide_diagnostics *diags);

#endif
