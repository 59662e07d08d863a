/* SPDX-License-Identifier: Apache-2.0 */
/* A running trainer: what its loop and its evaluation do with a batch. */
#ifndef TIDE_TRAIN_TRAINER_RUN_H
#define TIDE_TRAIN_TRAINER_RUN_H

#include "job/trainers.h"
#include "tensor/context_parallel.h"
#include "tensor/offload.h"
#include "train/reference.h"
#include "train/run.h"
#include "train/teacher.h"
#include "train/vllm_generation.h"

typedef struct tide_trainer_run {
    tide_run *run;
    const tide_job *job;
    const tide_trainer_traits *kind;
    const tide_strategy *strategy;
    tide_wrapper wrapper;
    tide_batch *batch_samples;                                         /* of a step, fetched together */
    tide_tensor *num_items;                                            /* of their labels */
    tide_tensor *loss;                                                 /* tr_loss_step: of the previous micro-batch */
    tide_function *nan_inf_filter, *policy, *reference, *compute_loss; /* NULL: Trainer's own, or none */
    tide_reference *reference_model; /* NULL: none, or the model with its adapters disabled */
    tide_teacher teacher;
    bool calls_bare_model;      /* rather than a strategy's wrapper */
    bool evaluates_bare_model;  /* _wrap_model(training=False) returns it as it is */
    tide_value buffered;        /* of trainers that generate: the rest of a generation, by micro-batches */
    int64_t micro;              /* micro-batches so far */
    tide_value locals;          /* of a training_step() that computes the loss itself: they live until it returns */
    tide_tensor *entropy_stats; /* of the micro-batches so far; NULL: none */
    tide_value base_model, lm_head;
    tide_tensor *fp32_head; /* the weight of cast_lm_head_to_fp32; NULL: none */
    tide_scaler scaler;     /* that the wrapper has, if it has one */
    tide_vllm_generation vllm;
    tide_offload *offload; /* activation_offloading; NULL: none */
    tide_context_parallel context;
    tide_value whole_batch; /* for DeepSpeed's Ulysses: what the loader keeps on the device until its next batch */
} tide_trainer_run;

/* The job's trainer, or what LLaMA-Factory has in its place. */
const tide_trainer_traits *tide_trainer_kind(const tide_job *job);

/* The dtype of torch.amp.autocast("cuda") around compute_loss(): float16 by default. Inside of it accelerate uses its
 * own, except for FSDP2. */
tide_dtype tide_loss_dtype(const tide_trainer_run *t);

/* self.accelerator.autocast() of TRL around calls of a model that accelerate has not wrapped, as with FSDP2; for a
 * wrapped one it changes nothing. */
void tide_accelerator_autocast_begin(tide_trainer_run *t);
void tide_accelerator_autocast_end(tide_trainer_run *t);

/* A function of library/trainers.json; reports an error and returns NULL if there is none. */
tide_function *tide_trainer_function(tide_trainer_run *t, const char *name);
/* The tensor of torch.distributed.barrier(), which the first barrier of a run leaves: in
 * PartialState().main_process_first() around the data set, which trainers that generate do not use, or after vLLM has
 * started. */
void tide_keep_barrier(tide_trainer_run *t);
/* Whether rows have images. Their data set is not prepared, but read by the collator. */
bool tide_has_images(const tide_trainer_run *t);
/* Fills an empty batch with what the collator makes, for as many rows as the job says. False after an error. */
bool tide_trainer_batch(tide_trainer_run *t, const tide_job *job, tide_batch *b);
/* trainer_init.c: disable_dropout of DPOConfig and others, for torch.nn.Dropout only. */
bool tide_disables_dropout(const tide_job *job);
/* What __init__() of TRL's trainers does before the training. False after an error. */
bool tide_trl_init(tide_trainer_run *t);
/* trainer_answers.c: GKDTrainer.generate_on_policy_outputs(): answers take the place of the data's in the batch. */
void tide_answer_prompts(tide_trainer_run *t, unsigned step, tide_batch *batch);
/* OnlineDPOTrainer._generate(): the batch is made of prompts and completions, which live until the step ends. */
void tide_pair_completions(tide_trainer_run *t, unsigned step, tide_batch *batch);
/* Sets the length of a prompt, and of a row with it. */
void tide_trainer_put_row(tide_trainer_run *t, int64_t prompt, int64_t seq);
/* Sets the rows and the length of what the model is given. */
void tide_trainer_put_rows(tide_trainer_run *t, int64_t rows, int64_t seq);
/* What the processor makes of so many prompts with images: token ids, mask, none, and a list of names and values of the
 * rest. Owned by the caller. */
tide_value tide_trainer_prompts(tide_trainer_run *t, int64_t rows);
void tide_drop_batch(tide_machine *m, tide_batch *b);
/* _get_num_items_in_batch; NULL: there is nothing to count. */
tide_tensor *tide_count_items(tide_trainer_run *t, const tide_batch *batches, int64_t count);
/* Sets the number by which the model divides its loss, num_items, owned by the trainer; NULL: none. */
void tide_set_num_items(tide_trainer_run *t, tide_tensor *num_items);
/* A pass without gradients and checkpointing. Owned by the caller. */
tide_value tide_call_without_grad(tide_trainer_run *t, tide_function *function, tide_value batch, tide_value policy);
/* The reference pass: by the model itself with adapters disabled, or by its copy in evaluation mode, which allocates
 * alike. Owned by the caller. */
tide_value tide_call_reference(tide_trainer_run *t, tide_value batch, tide_value policy);
/* _prepare_inputs of trainers that generate: a micro-batch; before the first of a generation it is made and scored.
 * Owned by the caller. */
tide_value tide_next_rollouts(tide_trainer_run *t, unsigned step);
tide_value tide_list_of_batch(tide_machine *m, const tide_batch *inputs);
/* Trainer.compute_loss; if outputs is not NULL it receives the model's outputs. Owned by the caller. */
tide_tensor *tide_compute_loss(tide_trainer_run *t, const tide_batch *inputs, tide_value *outputs);
/* compute_loss() of one of TRL's trainers. Owned by the caller, who keeps the batch. */
tide_tensor *tide_compute_trl_loss(tide_trainer_run *t, tide_value batch);
/* context_parallel() around a micro-batch, if the job has context parallel ranks: inputs become this rank's parts, and
 * get shift_labels and position_ids as well. */
void tide_trainer_context_begins(tide_trainer_run *t, tide_batch *inputs);
void tide_trainer_context_ends(tide_trainer_run *t);
/* UlyssesSPDataLoaderAdapter.__next__() for micro-batch `index` of the run, from 0. Parts of sequences wait on the
 * host. */
void tide_ulysses_next(tide_trainer_run *t, uint64_t index);
/* What strategies do around model(...), for tide_model. */
void tide_trainer_call_begins(tide_model *model, bool replaced, tide_value *inputs, uint32_t count);
void tide_trainer_call_ends(tide_model *model, tide_value *outputs, bool replaced);
/* model.base_model and get_output_embeddings(), or an error. */
bool tide_find_parts(tide_trainer_run *t);

#endif
