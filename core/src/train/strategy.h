/* SPDX-License-Identifier: Apache-2.0 */
/* What a framework for several GPUs does around and inside of a training step; implemented in parallel/. */
#ifndef TIDE_TRAIN_STRATEGY_H
#define TIDE_TRAIN_STRATEGY_H

#include "job/job.h"
#include "train/grad_scaler.h"

enum { TIDE_OTHER_RANKS = 63 };

/* How the layers of a model are distributed over the stages of a pipeline; zeros: there is none. */
typedef struct tide_stages {
    uint32_t ranks, chunks; /* chunks: stages per rank */
    uint32_t kinds;         /* number of different kinds of layers */
    uint32_t *of_rank;      /* the stages of a rank: of_rank[rank * chunks + chunk] */
    uint32_t *layers;       /* the layers of a stage by kind: layers[stage * kinds + kind] */
    int64_t apart;          /* ranks between adjacent stages */
} tide_stages;

typedef struct tide_wrapper {
    tide_model *model;
    const tide_job *job;
    tide_optimizer *optimizer;
    int64_t ranks, rank;
    bool is_last;         /* of the step's micro-batches: gradients are reduced after it */
    uint32_t micro;       /* the micro-batch, from 0 */
    bool computes_loss;   /* outside of the model, which does not get the labels */
    tide_value input_ids; /* of the batch; borrowed */
    tide_value labels;
    bool plays_all;         /* for tests: nothing is folded */
    bool has_barrier;       /* torch.distributed's barrier has its tensor, which the first barrier allocates */
    bool has_trainer;       /* Trainer's loop: gradients are always clipped */
    bool has_divided;       /* the loop, the loss by the micro-batches of a step */
    tide_tensor *grad_norm; /* kept until the next one */
    tide_scaler *scaler;    /* the loop's; NULL: none */
    const bool *is_absent;  /* by instance: modules in other ranks' stages; NULL: none */
    tide_stages stages;     /* after wrap() */
    void *state;
    void *precomputed; /* state of prepare_reference() for the same model, whose hooks stay on it; NULL: none */
} tide_wrapper;

/* Members may be NULL: nothing happens, or the same as on one GPU. */
typedef struct tide_strategy {
    const char *dialect; /* of descriptions: the framework reimplements models; NULL: Hugging Face's */
    /* Called before the model is moved to the device. */
    void (*load)(tide_model *model, const tide_job *job);
    /* Called after all of it was moved. */
    void (*loaded)(tide_model *model, const tide_job *job);
    /* The model is on the device; the optimizer exists and may be given other tensors. */
    void (*wrap)(tide_wrapper *w);
    /* A model that a trainer runs only without gradients, its reference: it is loaded like the policy and moved to
     * where it runs from, with hooks and a wrapper of its own. NULL: it is on the device, in full and without hooks.
     * Also called for the policy whose log-probabilities are computed before wrap(). */
    void (*prepare_reference)(tide_wrapper *w);
    void (*before_forward)(tide_wrapper *w);
    void (*after_forward)(tide_wrapper *w, tide_value *output);
    void (*backward)(tide_wrapper *w, tide_tensor *loss);
    void (*after_backward)(tide_wrapper *w);
    void (*update)(tide_wrapper *w);
    /* trl/models/utils.py, unwrap_model_for_generation(), around generate(). NULL: the model is used as it is. */
    void (*generation_begins)(tide_wrapper *w, tide_value *inputs, uint32_t count);
    void (*generation_ends)(tide_wrapper *w);
    /* trl/distributed.py, gather_params(), around code that reads these weights. NULL: they are not sharded. */
    void (*gather_params)(tide_wrapper *w, tide_tensor *const *weights, uint32_t count);
    void (*leave_params)(tide_wrapper *w, tide_tensor *const *weights, uint32_t count);
    /* DeepSpeed's checkpoint_event_prologue(), and checkpoint_event_epilogue() if has_ended. */
    void (*checkpoint_event)(tide_wrapper *w, bool has_ended);
    /* DTensor.full_tensor(), owned by the caller. NULL: there are none. */
    tide_tensor *(*full_tensor)(tide_wrapper *w, tide_tensor *weight);
    void (*state_dict_begins)(tide_wrapper *w); /* releases what forward passes left whole; NULL: nothing */
    /* FSDP's model.state_dict() and optim_state_dict(), in full on the host. NULL: nothing is gathered. */
    void (*state_dict)(tide_wrapper *w);
    void (*optim_state_dict)(tide_wrapper *w);
    bool trains_a_copy; /* calls of the bare model bypass its hooks: DistributedDataParallel is a module around it */
    bool updates_in_backward; /* with a Trainer: accelerate calls DeepSpeed's engine.step() after its backward() */
    /* The loop has its batch, and no other name of the model. */
    void (*batch_made)(tide_wrapper *w);
    /* A whole step, instead of the above: micro-batches, update and the marks of its phases. */
    void (*step)(tide_wrapper *w, unsigned step);
    /* After wrap(): ranks that may need more than rank 0, at most TIDE_OTHER_RANKS. NULL: none. */
    uint32_t (*other_ranks)(const tide_wrapper *w, int64_t *ranks);
    /* After wrap(): the most micro-batches in flight, counted per stage of the rank: forward done, backward not. NULL:
     * there are no stages. */
    uint32_t (*in_flight)(const tide_wrapper *w);
} tide_strategy;

#endif
