/* SPDX-License-Identifier: Apache-2.0 */
/* A run from inside: what the files of train/ offer to one another. */
#ifndef TIDE_TRAIN_RUN_H
#define TIDE_TRAIN_RUN_H

#include "train/train.h"

/* ---- architecture.c ---- */

/* Whose descriptions are looked for; the model's `user`. */
typedef struct tide_finder {
    const tide_job *job;
    tide_arena *arena;
    tide_run *run;
    tide_diagnostics *diags;
    bool reads_lazily; /* the given description's functions: when they are first called, not when it is loaded */
} tide_finder;

/* Where descriptions come from, for tide_descriptions_init; user is a tide_finder. */
tide_source tide_job_source(void *user, tide_text name);
/* The model's own questions go to the finder. */
void tide_set_finder(tide_model *model, tide_finder *finder);
/* Reads the library, and then the description that came with the job; NULL if one cannot be read. */
tide_description *tide_load_given_description(tide_run *run, const tide_job *job);
/* The module tree of the job's configuration, or of what stands in for it. False after an error. */
bool tide_make_model(tide_run *run, const tide_job *job);

/* ---- model_settings.c ---- */

/* use_cache of a decoder that has a configuration of its own, a copy or the text_config: a Trainer sets the model's to
 * false. */
bool tide_copied_use_cache(const tide_job *job);
/* What forward() may ask for. */
void tide_set_model_settings(tide_run *run, const tide_job *job, bool uses_cache);

/* ---- unread.c ---- */

/* Says what was given and changes nothing, and widens the range of a stand-in that leaves sizes unread. */
void tide_check_unread(tide_run *run, const tide_job *job);
/* Names settings that were given and that nothing has read when all is played. */
void tide_check_unused(tide_run *run, const tide_job *job);

/* ---- trainable.c ---- */

/* Whether the prefixes of "freeze" and "train_only" name parameters; an error if not. */
bool tide_check_prefixes(const tide_run *run, const tide_job *job);
void tide_choose_trainable(tide_run *run, const tide_job *job);
void tide_count_parameters(tide_run *run);
/* Of the layers only every so many are checkpointed from here on. */
void tide_skip_layers(tide_model *model, int64_t every);

/* ---- description_cache.c ---- */

/* Takes the descriptions from the cache, or an empty cache for new ones. Until they are put back it counts as empty: a
 * run that fails may leave a function half read. */
void tide_take_descriptions(tide_run *run, const tide_job *job, tide_finder *finder);
void tide_put_descriptions(tide_run *run, const tide_job *job);

/* ---- run.c ---- */

/* From the model on the device to the end. */
bool tide_play(tide_run *run, const tide_job *job);
/* Whether it failed for a loop that cannot be folded: it is to be loaded and played with plays_loops. What it has said
 * since `said` is forgotten then. */
bool tide_must_play_loops(const tide_run *run, const tide_diagnostics *said, tide_diagnostics *diags);

/* ---- micro_batches.c ---- */

/* Where a loop is in the micro-batches of a step; Note [Alike]. */
typedef struct tide_alike {
    tide_run *run;
    unsigned step;
    uint32_t count;                  /* of micro-batches */
    tide_timeline_place before, now; /* where the one before began, and this one */
    uint32_t in_a_row;               /* that have done what the one before did */
} tide_alike;

void tide_alike_begins(tide_alike *a);
/* After micro-batch `micro`, from 0: how many that follow it are kept with it and need not be played. leaves_state: all
 * state is known to be that in which it began. */
uint32_t tide_alike_ends(tide_alike *a, uint32_t micro, bool leaves_state);
/* The same of a step, where a->count are steps: how many of the `left` that may be as it is need not be played. */
uint32_t tide_alike_step_ends(tide_alike *a, uint32_t left);
/* What was played from a place on, in `step`, comes `times` more, a step later each. */
void tide_repeat_step(tide_run *run, tide_timeline_place from, unsigned step, uint32_t times);
/* A stretch of more events than these is kept once where it repeats. */
enum { TIDE_KEPT_EVENTS = 1 << 18 };

/* ---- lengths.c ---- */

/* Makes micro-batch `index` of the run the one that is played next, of a job with lengths; of others all are alike. */
void tide_take_micro_batch(tide_run *run, const tide_job *job, uint64_t index);
/* The same of a micro-batch of those samples. */
void tide_take_samples(tide_run *run, const tide_job *job, const tide_micro_batch *of);
/* Another value for a size that forward() may ask for. */
void tide_put_size(tide_run *run, const char *name, int64_t value);

/* ---- batch.c, loop.c, infer.c ---- */

enum { TIDE_INPUT_LIMIT = 32 };

/* The keyword arguments of the forward pass. */
typedef struct tide_batch {
    const char *names[TIDE_INPUT_LIMIT];
    tide_value values[TIDE_INPUT_LIMIT]; /* owned */
    uint32_t count;
    uint32_t kept; /* values behind them, which forward() does not name: a trainer's shift_labels and position_ids */
} tide_batch;

/* Whether the model's forward() has a parameter of that name. */
bool tide_model_takes(tide_model *model, const char *name);
/* The inputs of the root's description, without labels where there is no head for them. False after an error. */
bool tide_make_batch(tide_run *run, const tide_job *job, tide_batch *b, tide_diagnostics *diags);
/* The loss that the model computed, or the mean of its first tensor. Owned by the caller; NULL after an error. */
tide_tensor *tide_loss_of(tide_machine *m, tide_value output);

/* wrap.c: the optimizer, and what parallel.kind makes of it and of the model: the strategy, which for one GPU is
 * tide_one_gpu. NULL after an error. */
const tide_strategy *tide_wrap_model(tide_run *run, const tide_job *job, tide_wrapper *w);
extern const tide_strategy tide_one_gpu;

/* The strategy and its optimizer, the batch, and then every step; for inference, once the batch is there, tide_infer.
 * False after an error. */
bool tide_play_loop(tide_run *run, const tide_job *job);

/* Plays job->steps runs of a greedy loop over the batch: the prompt (phase prefill), and job->decode tokens (phase
 * decode). A model that keeps no keys and values only runs forward. False after an error. */
bool tide_infer(tide_run *run, const tide_job *job, const tide_batch *batch);

#endif
