/* SPDX-License-Identifier: Apache-2.0 */
/* What a framework for several GPUs does around and inside of a training step; parallel/ has them. */
#ifndef TIDE_TRAIN_STRATEGY_H
#define TIDE_TRAIN_STRATEGY_H

#include "job/job.h"
#include "train/optimizer.h"

enum { TIDE_OTHER_RANKS = 63 };

/* How the layers of a model lie over the stages of a pipeline; zeros: there is none. */
typedef struct tide_stages {
    uint32_t ranks, chunks; /* chunks: stages of a rank */
    uint32_t kinds;         /* of layers that differ in their modules */
    uint32_t *of_rank;      /* the stages of a rank: of_rank[rank * chunks + chunk] */
    uint32_t *layers;       /* of a stage: layers[stage * kinds + kind] */
    int64_t apart;          /* ranks between one stage and the next */
} tide_stages;

typedef struct tide_wrapper {
    tide_model *model;
    const tide_job *job;
    tide_optimizer *optimizer;
    int64_t ranks, rank;
    bool is_last;         /* of the micro-batches of a step: gradients are reduced after it */
    uint32_t micro;       /* the micro-batch, from 0 */
    bool computes_loss;   /* outside of the model, which is not given the labels */
    tide_value input_ids; /* of the batch; borrowed */
    tide_value labels;
    bool plays_all;         /* of the run: for tests */
    bool has_barrier;       /* that of torch.distributed has its tensor, which the first one makes and the rest share */
    bool has_trainer;       /* Trainer's loop: it has divided the loss; gradients are always clipped */
    tide_tensor *grad_norm; /* that it keeps until the next */
    const bool *is_absent;  /* by instance: modules of other ranks' stages; NULL: none */
    tide_stages stages;     /* after wrap() */
    void *state;
} tide_wrapper;

/* Members may be NULL: nothing happens, or what happens on one GPU. */
typedef struct tide_strategy {
    const char *dialect; /* of descriptions: models are written anew for this framework; NULL: Hugging Face's */
    /* Before the model comes to the device. */
    void (*load)(tide_model *model, const tide_job *job);
    /* All of it has come there. */
    void (*loaded)(tide_model *model, const tide_job *job);
    /* The model is on the device; the optimizer, which stands, may be given other tensors. */
    void (*wrap)(tide_wrapper *w);
    /* A model that a trainer runs without gradients and that is no part of what trains: its reference. It is loaded, as
     * the model was, and comes to where it runs from, with hooks and a machine's wrapper of its own. NULL: it is on the
     * device, whole and without hooks. */
    void (*prepare_reference)(tide_wrapper *w);
    void (*before_forward)(tide_wrapper *w);
    void (*after_forward)(tide_wrapper *w, tide_value *output);
    void (*backward)(tide_wrapper *w, tide_tensor *loss);
    void (*after_backward)(tide_wrapper *w);
    void (*update)(tide_wrapper *w);
    /* trl/models/utils.py, unwrap_model_for_generation(): around generate(). NULL: the model is as it is. */
    void (*generation_begins)(tide_wrapper *w);
    void (*generation_ends)(tide_wrapper *w);
    /* trl/distributed.py, gather_params(): around who reads weights, of rows of the model. NULL: they are whole. */
    void (*gather_params)(tide_wrapper *w, tide_tensor *const *weights, uint32_t count);
    void (*leave_params)(tide_wrapper *w, tide_tensor *const *weights, uint32_t count);
    /* DeepSpeed's checkpoint_event_prologue(), and checkpoint_event_epilogue() where it has ended. */
    void (*checkpoint_event)(tide_wrapper *w, bool has_ended);
    /* DTensor.full_tensor(), owned by the caller. NULL: there are none. */
    tide_tensor *(*full_tensor)(tide_wrapper *w, tide_tensor *weight);
    /* FSDP's model.state_dict() and optim_state_dict(), whole on the host. NULL: nothing is gathered for them. */
    void (*state_dict)(tide_wrapper *w);
    void (*optim_state_dict)(tide_wrapper *w);
    bool trains_a_copy; /* calls of the bare model pass its hooks by: DistributedDataParallel is a module around it */
    bool updates_in_backward; /* of a Trainer: accelerate calls DeepSpeed's engine.step() behind its backward() */
    /* All of a step in place of the above: micro-batches, update and the marks of its phases. */
    void (*step)(tide_wrapper *w, unsigned step);
    /* After wrap(): ranks that may need more than rank 0, at most TIDE_OTHER_RANKS. NULL: none does. */
    uint32_t (*other_ranks)(const tide_wrapper *w, int64_t *ranks);
    /* After wrap(): the most micro-batches that have gone forward and not back, counted for each stage of the rank.
     * NULL: there are no stages. */
    uint32_t (*in_flight)(const tide_wrapper *w);
} tide_strategy;

#endif
