/* SPDX-License-Identifier: Apache-2.0 */
/* torch.distributed.pipelining: stages, and the schedules that run them. Private to parallel/. */
#ifndef TIDE_PIPELINE_H
#define TIDE_PIPELINE_H

#include "parallel/parallel.h"

typedef struct tide_pipeline tide_pipeline;

/* stage.py: PipelineStage. Arrays are by micro-batch; what they hold is owned, NULL where there is nothing. */
typedef struct tide_pipeline_stage {
    tide_pipeline *of;
    uint32_t index, first_layer, end_layer;
    bool is_first, is_last;
    tide_tensor **recv_forward, **recv_backward; /* args_recv_info, grad_recv_info */
    tide_tensor **inputs, **outputs;             /* _ForwardChunkState: input_values, live_outputs */
    tide_tensor **bwd_cache;
} tide_pipeline_stage;

struct tide_pipeline {
    tide_wrapper *w;
    uint32_t ranks, rank, chunks, microbatches, stage_count;
    tide_pipeline_stage *stages; /* this rank's, `chunks` of them */
    int64_t batch, length, rows; /* of a micro-batch: samples, positions, positions of hidden states */
    tide_dtype dtype;            /* of hidden states */
    tide_tensor *ids, *labels;   /* of all micro-batches; borrowed */
    tide_tensor **losses;        /* _internal_losses */
    const char *loss_function;
    bool is_connected;                   /* _p2p_initialized */
    void (*after_backward)(void *state); /* what the engine's queue has at the end of a pass; NULL: nothing */
    void (*reduce_grad)(void *state);    /* perform_reduce_grad(); NULL: nothing is allocated */
    void *state;
};

/* ---- pipeline.c ---- */

/* Whether the schedule takes these sizes; false after an error, in PyTorch's words. */
bool tide_pipeline_check(tide_wrapper *w, const tide_pipeline *p);
/* The stages of this rank; false after an error, which is reported. */
bool tide_pipeline_init(tide_pipeline *p, tide_wrapper *w);
/* By instance: what is of other ranks' stages. */
bool *tide_pipeline_absent(const tide_pipeline *p);
/* Lets go of the parameters of other ranks' stages; the optimizer has the others, stage after stage. */
void tide_pipeline_drop_others(tide_pipeline *p);
/* _initialize_pipeline_distributed_state(): the first step's small tensors. */
void tide_pipeline_connect(tide_pipeline *p);

/* The buffer of a receive: what get_fwd_recv_ops() and get_bwd_recv_ops() name; borrowed, NULL: nothing comes. */
tide_tensor *tide_stage_recv_forward(tide_pipeline_stage *s, uint32_t mb);
tide_tensor *tide_stage_recv_backward(tide_pipeline_stage *s, uint32_t mb);
/* forward_one_chunk() and _maybe_compute_loss(); the output is the caller's. */
tide_tensor *tide_stage_forward(tide_pipeline_stage *s, uint32_t mb);
void tide_stage_compute_loss(tide_pipeline_stage *s, uint32_t mb, tide_tensor *output);
/* release_fwd_send_outputs() */
void tide_stage_release_sent(tide_pipeline_stage *s, uint32_t mb);
/* backward_one_chunk() in full */
void tide_stage_backward(tide_pipeline_stage *s, uint32_t mb);
/* get_bwd_send_ops(): the gradient of the input, owned by the caller; NULL: nothing is sent. */
tide_tensor *tide_stage_send_backward(tide_pipeline_stage *s, uint32_t mb);

/* ---- pipeline_schedules.c ---- */

/* schedule.step() */
void tide_pipeline_step(tide_pipeline *p);

#endif
