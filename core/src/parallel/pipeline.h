/* SPDX-License-Identifier: Apache-2.0 */
/* torch.distributed.pipelining: stages, and the schedules that run them. Private to parallel/. */
#ifndef TIDE_PARALLEL_PIPELINE_H
#define TIDE_PARALLEL_PIPELINE_H

#include "parallel/parallel.h"
#include "parallel/pipeline_actions.h"
#include "parallel/steady_state.h"

typedef struct tide_pipeline tide_pipeline;

/* _backward.py: parameters whose gradients come through the same nodes. */
typedef struct tide_param_group tide_param_group;

/* backward_state: what the second part of a backward pass needs, owned; groups: NULL if the first part did nothing. */
typedef struct tide_backward_state {
    tide_param_group *groups;
    uint32_t count;
    tide_tensor *input, *stage_output, *output_grad;
} tide_backward_state;

/* stage.py: PipelineStage. Arrays are by micro-batch, and own their items; NULL for none. */
typedef struct tide_pipeline_stage {
    tide_pipeline *of;
    uint32_t index, first_layer, end_layer;
    bool is_first, is_last;
    tide_tensor **recv_forward, **recv_backward; /* args_recv_info, grad_recv_info */
    tide_tensor **inputs, **outputs;             /* _ForwardChunkState: input_values, live_outputs */
    tide_tensor **bwd_cache;
    tide_tensor **sent_forward, **sent_backward; /* of sends that were not waited for yet */
    tide_backward_state *backward_state;
    tide_tensor **params; /* of its modules, in their order */
    uint32_t param_count;
    const bool *absent; /* by instance: belongs to another stage */
    void *fsdp;         /* fully_shard() of the stage; NULL: none */
} tide_pipeline_stage;

struct tide_pipeline {
    tide_wrapper *w;
    uint32_t ranks, rank, chunks, microbatches, stage_count;
    int64_t apart;               /* ranks between adjacent stages */
    tide_pipeline_stage *stages; /* this rank's, `chunks` of them */
    int64_t batch, length, rows; /* of a micro-batch: samples, positions, positions of hidden states */
    tide_dtype dtype;            /* of hidden states */
    tide_tensor *ids, *labels;   /* of all micro-batches; borrowed */
    tide_tensor *positions;      /* the same, for forward_stage() of torchtitan's models; NULL: there are none */
    tide_tensor **losses;        /* _internal_losses */
    tide_tensor **folded_losses; /* of folded rounds, to be inserted before losses[folded_at] */
    uint32_t folded_count, folded_at;
    tide_actions actions; /* of this rank; empty for schedules with one stage per rank */
    const char *loss_function;
    void (*take_losses)(
        struct tide_pipeline *p);       /* after the schedule, before its losses are released; NULL: nothing */
    void *taker;                        /* of take_losses() */
    const tide_pipeline_stage *emptied; /* by tide_pipeline_part_to_empty() */
    bool is_connected;                  /* _p2p_initialized */
    bool has_optimizers;                /* each stage one of its own */
    bool infers_metadata;               /* stages are not told the shapes of hidden states */
};

/* ---- pipeline.c ---- */

tide_pipeline_sizes tide_pipeline_sizes_of(const tide_pipeline *p, const tide_job *job);
/* Whether the schedule allows these sizes; false after an error, in PyTorch's words. */
bool tide_pipeline_check(tide_wrapper *w, const tide_pipeline *p);
/* The stages of this rank; false after an error, which is reported. */
bool tide_pipeline_init(tide_pipeline *p, tide_wrapper *w);
/* tide_strategy.in_flight */
uint32_t tide_pipeline_most_in_flight(const tide_pipeline *p);
/* By instance: belongs to a stage of another rank. */
bool *tide_pipeline_absent(const tide_pipeline *p);
/* The same for one stage. */
bool *tide_stage_absent(const tide_pipeline *p, uint32_t chunk);
/* Releases the parameters of other ranks' stages; the optimizer keeps the others, by stage. */
void tide_pipeline_drop_others(tide_pipeline *p);
/* The whole model dies, and with it the buffers of other ranks' stages. */
void tide_pipeline_drop_buffers(const tide_pipeline *p);
/* Module.to_empty() of each stage; or of one, where buffers belong to the first alone. */
void tide_pipeline_to_empty(tide_pipeline *p);
void tide_pipeline_part_to_empty(tide_pipeline *p, uint32_t chunk);
/* _initialize_pipeline_distributed_state(): small tensors in the first step. */
void tide_pipeline_connect(tide_pipeline *p);

/* Hidden states between stages; owned by the caller. */
tide_tensor *tide_stage_hidden(const tide_pipeline *p, const char *op);
/* The receive buffer that get_fwd_recv_ops() and get_bwd_recv_ops() use; borrowed, NULL: nothing is received. */
tide_tensor *tide_stage_recv_forward(tide_pipeline_stage *s, uint32_t mb);
tide_tensor *tide_stage_recv_backward(tide_pipeline_stage *s, uint32_t mb);
/* forward_one_chunk() and _maybe_compute_loss(); the caller owns the output. */
tide_tensor *tide_stage_forward(tide_pipeline_stage *s, uint32_t mb);
void tide_stage_compute_loss(tide_pipeline_stage *s, uint32_t mb, tide_tensor *output);
/* Inserts the losses of folded rounds, the last of which starts with that of `mb`; held: each of its losses and the
 * stage's input, which the loss's graph refers to, then others. */
void tide_pipeline_fold_losses(tide_pipeline *p, const tide_steady_state *rounds, uint32_t mb, tide_tensor *const *held,
                               uint32_t losses, uint32_t held_count);
/* release_fwd_send_outputs() */
void tide_stage_release_sent(tide_pipeline_stage *s, uint32_t mb);
/* backward_one_chunk(): in full; or in two parts, for the gradient of the input and for those of the weights. */
void tide_stage_backward(tide_pipeline_stage *s, uint32_t mb);
void tide_stage_backward_first(tide_pipeline_stage *s, uint32_t mb);
void tide_stage_backward_second(tide_pipeline_stage *s, uint32_t mb);
/* get_bwd_send_ops(): the gradient of the input, owned by the caller; NULL: nothing is sent. */
tide_tensor *tide_stage_send_backward(tide_pipeline_stage *s, uint32_t mb);

/* perform_reduce_grad() */
void tide_stage_reduce_grad(tide_pipeline_stage *s);

/* ---- pipeline_backward.c ---- */

/* stage_backward_input(), stage_backward_weight() */
void tide_stage_backward_input(tide_machine *m, tide_backward_state *s, tide_tensor *const *params, uint32_t count);
void tide_stage_backward_weight(tide_machine *m, tide_backward_state *s);

/* ---- pipeline_metadata.c ---- */

/* Before the first step of stages that infer metadata. */
void tide_pipeline_infer_metadata(tide_pipeline *p);

/* ---- pipeline_runtime.c ---- */

/* _PipelineScheduleRuntime._step_microbatches() */
void tide_pipeline_run(tide_pipeline *p);

/* ---- pipeline_schedules.c ---- */

/* schedule.step() */
void tide_pipeline_step(tide_pipeline *p);

#endif
