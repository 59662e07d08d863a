/* SPDX-License-Identifier: Apache-2.0 */
/* What the trainers of transformers, TRL and LLaMA-Factory are like: trainers.def. */
#ifndef TIDE_JOB_TRAINERS_H
#define TIDE_JOB_TRAINERS_H

#include "job/job.h"

/* For sentences that say what is described of TRL. */
#define TIDE_TRL_TRAINERS "sft, dpo, kto, orpo, cpo, reward, grpo, rloo, online_dpo and gkd"

typedef struct tide_trainer_traits {
    const char *function; /* of library/trainers.json: FUNCTION_batch() makes a batch, FUNCTION_policy() calls the
                           * model, FUNCTION_reference() the reference model, and FUNCTION_loss() is the rest of
                           * compute_loss(); NULL: it is not TRL's, and the model computes the loss */
    const char *losses, *losses_of_factory;          /* what loss_type may be, joined by `|`; NULL: not checked */
    const char *max_completion_length, *temperature; /* defaults; NULL: those of settings.def */
    bool generates;                                  /* rows from prompts, which are scored (GRPO, RLOO) */
    bool pairs_completions;                          /* training_step() makes two completions of each prompt */
    bool has_teacher;                                /* learns from the logits of another model */
    bool has_reference;
    bool freezes_reference; /* create_reference_model() copies the model */
    bool has_pairs;         /* a sample is two rows */
    bool joins_pairs;       /* its collator makes one tensor of both */
    bool scores_rows;       /* not tokens: the model classifies sequences */
    bool counts_labels;     /* the third column is "labels", which are counted */
    bool sees_images;       /* its collator makes rows with images: the fourth column, names and values in turn */
    bool builds_logits;     /* calls the model as it is, without the fused head */
    bool built_logits;      /* before TRL 1.14 */
    bool scales_loss;       /* it divides the loss by the micro-batches of a step itself */
    bool keeps_dropout;     /* disable_dropout is False by default */
    bool prepares_kbit;     /* prepare_model_for_kbit_training() and a collator of its own: trl/experimental/utils.py */
    bool packs;             /* packing and padding_free */
    bool selects_checkpoints;  /* selective checkpoints */
    bool offloads_activations; /* activation_offloading */
    bool has_kl_term;          /* beta is above 0 by default */
    bool keeps_old_logps;      /* computes old_per_token_logps at all times */
    bool keeps_sampling_logps; /* of what vLLM generated */
    bool is_of_factory;        /* LLaMA-Factory has one of its own */
} tide_trainer_traits;

const tide_trainer_traits *tide_trainer_traits_of(const tide_job *job);
/* The only trainer that has a loss of this name; NULL: none, or several. */
const char *tide_trainer_of_loss(tide_text loss);

#endif
