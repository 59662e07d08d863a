/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs played: the loop that people write around a model, call by call. It finds the model's architecture, loads it,
 * puts adapters and quantised layers in it, makes the batch, and then runs forward, backward and the optimizer for
 * every step, or prompt and tokens of inference. What a framework for several GPUs does around that is a strategy
 * (strategy.h), which parallel/ has. What it all leaves behind is a timeline: who wants to know what a job needs looks
 * there. */
#ifndef TIDE_TRAIN_TRAIN_H
#define TIDE_TRAIN_TRAIN_H

#include "allocator/allocator.h"
#include "job/job.h"
#include "lang/lang.h"
#include "train/lint.h"
#include "train/optimizer.h"
#include "train/strategy.h"

/* What jobs share that are played one after the other: descriptions, read, and bound where they have been called, and
 * for those of tide_run_next the model as it was loaded. Arenas and zeros before the first; the arenas are freed by
 * whom they belong to, after the last run. */
typedef struct tide_description_cache {
    tide_arena arena;
    tide_arena loaded; /* of `run`, and kept with it where loaded_for is not NULL */
    struct tide_run *run;
    const tide_job *loaded_for;
    tide_descriptions descriptions;
    tide_names size_names;
    bool is_filled;
} tide_description_cache;

/* What a rank needs at most, bytes. */
typedef struct tide_rank_need {
    int64_t rank;
    uint64_t allocated, reserved;
    uint32_t in_flight; /* see train/strategy.h */
} tide_rank_need;

/* What the start of an engine in a trainer's process leaves on its GPU, in bytes. */
typedef struct tide_colocated {
    uint64_t weights, cache; /* that sleep gives back */
    uint64_t kept;           /* buffers, graphs, and what is left of segments */
    uint64_t working;        /* of a forward pass, as the profile run measures it */
    uint64_t uncertain;      /* that `kept` may be more or less */
    bool may_refuse;         /* to start, with the fewest blocks of the range */
} tide_colocated;

/* Plays such a start, beside so many bytes of the trainer's. False after an error, which has the engine's words. */
typedef bool tide_colocated_start(tide_colocated *engine, const tide_job *job, uint64_t beside, tide_arena *arena,
                                  tide_diagnostics *diags);

/* What plays frameworks around the loop, from layers above. */
typedef struct tide_frameworks {
    const tide_strategy *(*strategy_of)(const tide_job *job); /* NULL for one GPU */
    tide_colocated_start *start_colocated;
} tide_frameworks;

/* Everything that playing a job leaves behind. */
typedef struct tide_run {
    tide_machine machine;
    tide_descriptions descriptions;
    tide_model model;
    int64_t parameters, trainable;
    tide_description_cache *cache;     /* NULL: nothing is shared */
    const tide_frameworks *frameworks; /* NULL: only jobs of one GPU without an engine can be played */
    const tide_strategy *strategy;     /* of the job; NULL for one GPU */
    const char *margin_reason;         /* of the margin */
    bool engine_may_refuse;            /* to start in the trainer's process */
    uint64_t margin;    /* bytes by which what is reserved may be more or less; see Note [Small requests] */
    bool has_barrier;   /* see train/strategy.h */
    bool is_base_model; /* its class is XModel, without a head */
    bool has_decoded;   /* tokens, one after another */
    bool plays_loops;   /* each iteration of each loop: one of this job's could not be folded */
    bool plays_all;     /* each micro-batch and each call of a layer, none is taken from another: for tests */
    uint32_t in_flight; /* see train/strategy.h */
    int64_t other_ranks[TIDE_OTHER_RANKS]; /* that may need more memory than this one */
    uint32_t other_rank_count;
    tide_stages stages;                              /* of a pipeline */
    tide_rank_need rank_needs[TIDE_OTHER_RANKS + 1]; /* of the kinds of ranks that differ, where several were played */
    uint32_t rank_need_count;
    tide_replay peaks; /* of the allocator as the job sets it, where it was asked for already: has_peaks */
    bool has_peaks;
    const tide_json
        *stand_in_of;         /* the last configuration that the nearest family was played for: figures are a range */
    int64_t stand_in_percent; /* how far, either way */
    uint32_t repeated;        /* micro-batches that were taken from others */
    struct tide_serving *serving; /* of a server's start (report/serving.h); NULL: of a training or inference job */
} tide_run;

/* Plays a job into run->machine.timeline. *run is zero, but for plays_all, cache and frameworks. False after an
 * error, which is reported. */
bool tide_run_job(tide_run *run, const tide_job *job, tide_arena *arena, tide_diagnostics *diags);

/* Up to the model on the device, before its optimizer and its batch. */
bool tide_load(tide_run *run, const tide_job *job, tide_arena *arena, tide_diagnostics *diags);

/* The same for one job after the other. Where it differs from the one before in settings of the step alone (batch, seq,
 * steps, ...), the model is not loaded again: the arena of that run goes back to where its model stood on the device. A
 * job that fails so is played from the beginning, for what it says. The job is in `arena`, which the cache may take
 * over, and leave empty; the run lives until the next. NULL after an error. */
tide_run *tide_run_next(tide_description_cache *cache, const tide_job *job, tide_arena *arena, tide_diagnostics *diags);

/* Makes a run ready to read the description of a job, without a model; NULL if the description cannot be read. */
tide_description *tide_run_description(tide_run *run, const tide_job *job, tide_arena *arena, tide_diagnostics *diags);

#endif
