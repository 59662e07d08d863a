/* SPDX-License-Identifier: Apache-2.0 */
/* Playing jobs: the usual loop around a model, call by call. It finds the model's architecture, loads it, adds adapters
 * and quantised layers, makes the batch, and runs forward, backward and the optimizer for every step, or the prompt and
 * tokens of inference. What a framework for several GPUs adds is a strategy (strategy.h), implemented in parallel/. The
 * result is a timeline, from which every answer is computed. */
#ifndef TIDE_TRAIN_TRAIN_H
#define TIDE_TRAIN_TRAIN_H

#include "allocator/allocator.h"
#include "job/job.h"
#include "lang/lang.h"
#include "train/lint.h"
#include "train/optimizer.h"
#include "train/strategy.h"

/* What consecutive jobs share: descriptions that were read, with their functions bound as far as they were called, and
 * for tide_run_next the loaded model. Zero-initialise before the first job; whoever owns the arenas frees them after
 * the last one. */
typedef struct tide_description_cache {
    tide_arena arena;
    tide_arena loaded; /* of `run`, kept with it if loaded_for is not NULL */
    struct tide_run *run;
    const tide_job *loaded_for;
    tide_descriptions descriptions;
    tide_names size_names;
    bool is_filled;
} tide_description_cache;

/* The most that a rank needs, in bytes. */
typedef struct tide_rank_need {
    int64_t rank;
    uint64_t allocated, reserved;
    uint32_t in_flight; /* see train/strategy.h */
} tide_rank_need;

/* What starting an engine in a trainer's process leaves on its GPU, in bytes. */
typedef struct tide_colocated {
    uint64_t weights, cache; /* released by sleep() */
    uint64_t kept;           /* buffers, graphs, and unused parts of segments */
    uint64_t working;        /* of a forward pass, as measured by the profile run */
    uint64_t uncertain;      /* by how much `kept` may be off */
    bool may_refuse;         /* the engine may refuse to start, with the fewest blocks of the range */
} tide_colocated;

/* Plays such a start next to so many bytes of the trainer. False after an error, which has the engine's words. */
typedef bool tide_colocated_start(tide_colocated *engine, const tide_job *job, uint64_t beside, tide_arena *arena,
                                  tide_diagnostics *diags);

/* What plays frameworks around the loop, supplied by higher layers. */
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
    const tide_frameworks *frameworks; /* NULL: only jobs on one GPU without an engine */
    const tide_strategy *strategy;     /* of the job; NULL for one GPU */
    const char *margin_reason;         /* for the margin */
    bool engine_may_refuse;            /* to start in the trainer's process */
    uint64_t margin;                   /* by how many bytes reserved memory may be off; see Note [Small requests] */
    bool has_barrier;                  /* see train/strategy.h */
    bool is_base_model;                /* its class is XModel, without a head */
    bool has_decoded;                  /* token by token */
    bool plays_loops;                  /* play every iteration of every loop: one of this job's could not be folded */
    bool plays_all;                    /* for tests: play every micro-batch and every call of a layer */
    uint32_t in_flight;                /* see train/strategy.h */
    int64_t other_ranks[TIDE_OTHER_RANKS]; /* that may need more memory than this one */
    uint32_t other_rank_count;
    tide_stages stages;                              /* of a pipeline */
    tide_rank_need rank_needs[TIDE_OTHER_RANKS + 1]; /* for each kind of rank, if several were played */
    uint32_t rank_need_count;
    tide_replay peaks; /* with the job's allocator settings, if computed already: has_peaks */
    bool has_peaks;
    const tide_json
        *stand_in_of;         /* the last configuration for which the nearest family stood in: figures are a range */
    int64_t stand_in_percent; /* how wide, in either direction */
    uint32_t repeated;        /* micro-batches that were replayed */
    struct tide_serving *serving; /* of a server's start (report/serving.h); NULL: a training or inference job */
} tide_run;

/* Plays a job into run->machine.timeline. *run is zero-initialised, except for plays_all, cache and frameworks. False
 * after an error, which is reported. */
bool tide_run_job(tide_run *run, const tide_job *job, tide_arena *arena, tide_diagnostics *diags);

/* Only up to the model on the device, before its optimizer and its batch. */
bool tide_load(tide_run *run, const tide_job *job, tide_arena *arena, tide_diagnostics *diags);

/* The same for a series of jobs. If a job differs from the previous one only in settings of the step (batch, seq,
 * steps, ...), the model is not loaded again: the arena of that run is restored to the state in which its model had
 * just been loaded. A job that fails this way is played again from the start for its messages. The job is in `arena`,
 * which the cache may take over and leave empty; the run is valid until the next call. NULL after an error. */
tide_run *tide_run_next(tide_description_cache *cache, const tide_job *job, tide_arena *arena, tide_diagnostics *diags);

/* Prepares a run for reading the description of a job, without a model; NULL if it cannot be read. */
tide_description *tide_run_description(tide_run *run, const tide_job *job, tide_arena *arena, tide_diagnostics *diags);

#endif
