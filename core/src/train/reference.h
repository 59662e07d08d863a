/* SPDX-License-Identifier: Apache-2.0 */
/* The reference model of TRL's trainers: a second set of weights for the same modules. */
#ifndef TIDE_TRAIN_REFERENCE_H
#define TIDE_TRAIN_REFERENCE_H

#include "train/run.h"

/* What a module keeps from one forward() to the next: a member that is an empty list at first. */
typedef struct tide_kept_state {
    tide_value *member, other;
} tide_kept_state;

/* What a strategy has put on a model: its wrapper, and the hooks that belong to it. */
typedef struct tide_hooks {
    void *machine_wrapper;
    void (*before_forward)(tide_model *model, uint32_t instance, tide_value *positional, uint32_t count,
                           tide_value *named, uint32_t named_count);
    void (*after_forward)(tide_model *model, uint32_t instance, tide_value *output);
    tide_tensor *(*read_parameter)(tide_model *model, uint32_t instance, tide_tensor *parameter);
    tide_tensor *(*linear)(tide_machine *m, tide_tensor *x, tide_tensor *weight, tide_tensor *bias);
} tide_hooks;

/* Gives a model these, and returns those that it had. */
tide_hooks tide_exchange_hooks(tide_model *model, tide_hooks given);

/* Parameters, buffers, states and hooks of the model that is not running: those of the reference between its
 * passes, those of the policy during them. */
typedef struct tide_reference {
    tide_wrapper wrapper;
    tide_tensor **weights;
    uint32_t count;
    tide_kept_state *states;
    uint32_t state_count, state_capacity;
    tide_hooks hooks;
} tide_reference;

/* create_model_from_path(), then prepare_deepspeed(), prepare_fsdp() or prepare_model(). Lives as long as the run; NULL
 * after an error. */
tide_reference *tide_reference_new(tide_run *run, const tide_job *job);
/* Gives what lives of the allocations from `first` on this name: a second model's. */
void tide_name_kept_allocations(tide_machine *m, uint32_t first, const char *name);
/* Called before and after its passes: exchanges the reference and the policy. */
void tide_reference_swap(tide_reference *r);
/* The garbage collector takes the modules of one that was dropped; flat parameters of FSDP1 outlive them, gathered or
 * not, as C++ refers to them. */
void tide_reference_collect(tide_reference *r);

#endif
