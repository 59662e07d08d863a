/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a run: functions shared by the files of train/. */
#ifndef TIDE_TRAIN_RUN_H
#define TIDE_TRAIN_RUN_H

#include "train/train.h"

/* ---- architecture.c ---- */

/* Whose descriptions to find; the `user` of the model. */
typedef struct tide_finder {
    const tide_job *job;
    tide_arena *arena;
    tide_run *run;
    tide_diagnostics *diags;
    bool reads_lazily; /* read functions of the given description when first called, not when it is loaded */
} tide_finder;

/* The source of descriptions for tide_descriptions_init; user is a tide_finder. */
tide_source tide_job_source(void *user, tide_text name);
/* Sets the finder for the model's own lookups. */
void tide_set_finder(tide_model *model, tide_finder *finder);
/* Reads the library and the description that came with the job; NULL if either cannot be read. */
tide_description *tide_load_given_description(tide_run *run, const tide_job *job);
/* Builds the modules for the job's configuration, or for a stand-in. False after an error. */
bool tide_make_model(tide_run *run, const tide_job *job);

/* ---- model_settings.c ---- */

/* use_cache of a decoder with a configuration of its own, a copy or the text_config: a Trainer sets that of the model
 * to false. */
bool tide_copied_use_cache(const tide_job *job);
/* Sets what forward() may read. */
void tide_set_model_settings(tide_run *run, const tide_job *job, bool uses_cache);

/* ---- unread.c ---- */

/* Reports settings that have no effect, and widens the range of a stand-in that leaves sizes unread. */
void tide_check_unread(tide_run *run, const tide_job *job);
/* Reports given settings that nothing had read by the end of the run. */
void tide_check_unused(tide_run *run, const tide_job *job);

/* ---- trainable.c ---- */

/* Whether the prefixes of "freeze" and "train_only" match parameters; an error if not. */
bool tide_check_prefixes(const tide_run *run, const tide_job *job);
void tide_choose_trainable(tide_run *run, const tide_job *job);
void tide_count_parameters(tide_run *run);
/* LLaMA-Factory: model/model_utils/checkpointing.py, get_custom_gradient_checkpointing_func(). Layers without a
 * parameter that trains run without a checkpoint; the first input of the others is made to require gradients. */
void tide_checkpoint_trainable(tide_model *model);
/* From here on only every `every`th layer is checkpointed. */
void tide_skip_layers(tide_model *model, int64_t every);

/* ---- description_cache.c ---- */

/* Takes the descriptions out of the cache, or starts new ones. Until they are put back the cache counts as empty,
 * because a failing run may leave a function partly read. */
void tide_take_descriptions(tide_run *run, const tide_job *job, tide_finder *finder);
void tide_put_descriptions(tide_run *run, const tide_job *job);

/* ---- run.c ---- */

/* From the model on the device to the end. */
bool tide_play(tide_run *run, const tide_job *job);
/* Whether the run failed because a loop cannot be folded: then it must be loaded and played again with plays_loops.
 * Removes diagnostics after `said` in that case. */
bool tide_must_play_loops(const tide_run *run, const tide_diagnostics *said, tide_diagnostics *diags);

/* ---- micro_batches.c ---- */

/* The position of a loop within the micro-batches of a step; Note [Alike]. */
typedef struct tide_alike {
    tide_run *run;
    unsigned step;
    uint32_t count;                  /* of micro-batches */
    tide_timeline_place before, now; /* where the previous one and this one started */
    uint32_t in_a_row;               /* how many of the last ones repeated the one before them */
} tide_alike;

void tide_alike_begins(tide_alike *a);
/* Called after micro-batch `micro`, from 0: how many of the following ones are folded into it. leaves_state: it is
 * known to end in the state in which it started, and the last one of a step does the same. */
uint32_t tide_alike_ends(tide_alike *a, uint32_t micro, bool leaves_state);
/* The same for a step, where a->count are steps: how many of the `left` steps that may be like it are folded. */
uint32_t tide_alike_step_ends(tide_alike *a, uint32_t left);
/* Repeats what was played since a place, in `step`, `times` more, each a step later. */
void tide_repeat_step(tide_run *run, tide_timeline_place from, unsigned step, uint32_t times);
/* Events above this number are folded if they repeat. */
enum { TIDE_KEPT_EVENTS = 1 << 18 };

/* ---- lengths.c ---- */

/* Selects micro-batch `index` of the run as the next one, for a job with lengths; otherwise all are alike. */
void tide_take_micro_batch(tide_run *run, const tide_job *job, uint64_t index);
/* The same for a micro-batch of given samples. */
void tide_take_samples(tide_run *run, const tide_job *job, const tide_micro_batch *of);
/* Changes a size that forward() may read. */
void tide_put_size(tide_run *run, const char *name, int64_t value);

/* ---- batch.c, loop.c, infer.c ---- */

enum { TIDE_INPUT_LIMIT = 32 };

/* The keyword arguments of the forward pass. */
typedef struct tide_batch {
    const char *names[TIDE_INPUT_LIMIT];
    tide_value values[TIDE_INPUT_LIMIT]; /* owned */
    uint32_t count;
    uint32_t kept; /* number of values after those, which are not parameters of forward(): a trainer's shift_labels and
                      position_ids */
} tide_batch;

/* Whether the model's forward() has a parameter of this name. */
bool tide_model_takes(tide_model *model, const char *name);
/* The names of the inputs with the expressions that make them: the root's own, or its description's; NULL: none. */
const tide_json *tide_described_inputs(const tide_model *model);
/* Makes the inputs of the root, without labels if it has no head for them. False after an error. */
bool tide_make_batch(tide_run *run, const tide_job *job, tide_batch *b, tide_diagnostics *diags);
/* The loss that the model computed, or the mean of its first tensor. Owned by the caller; NULL after an error. */
tide_tensor *tide_loss_of(tide_machine *m, tide_value output);

/* wrap.c: creates the optimizer and applies parallel.kind to it and to the model; returns the strategy, tide_one_gpu
 * for one GPU. NULL after an error. */
const tide_strategy *tide_wrap_model(tide_run *run, const tide_job *job, tide_wrapper *w);
extern const tide_strategy tide_one_gpu;

/* Wraps the model, makes the batch, and plays every step; for inference, tide_infer after the batch. False after an
 * error. */
bool tide_play_loop(tide_run *run, const tide_job *job);

/* value_head.c: the decoder that is loaded becomes a part of the model, beside a value head. False after an error. */
bool tide_add_value_head(tide_run *run, const tide_job *job);

/* llama_factory_v1.c: the loop of LLaMA-Factory's v1 trainer, with the model under its strategy. False after an error.
 */
bool tide_play_llama_factory_v1(tide_run *run, const tide_job *job, const tide_strategy *strategy, tide_wrapper *w);

/* Plays job->steps runs of a greedy loop over the batch: the prompt (phase prefill), then job->decode tokens (phase
 * decode). A model without a cache only runs forward. False after an error. */
bool tide_infer(tide_run *run, const tide_job *job, const tide_batch *batch);

#endif
