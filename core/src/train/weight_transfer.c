/* SPDX-License-Identifier: Apache-2.0 */
#include "train/weight_transfer.h"

#include <string.h>

/* ---- merge_adapter() ---- */

/* lora/layer.py, get_delta_weight() and merge(): the product, scaled, added in place. */
static void merge_layer(tide_machine *m, tide_tensor *a, tide_tensor *b) {
    tide_value of[] = {tide_of_tensor(b), tide_of_tensor(a)};
    bool has_grad = m->state.grad_enabled;
    m->state.grad_enabled = false;
    m->op = "merge_adapter";
    tide_value product = tide_op_find(TIDE_TEXT("matmul"))->run(m, of);
    if (product.kind == TIDE_VALUE_TENSOR) tide_release(m, tide_scale(m, product.tensor));
    tide_value_release(m, product);
    m->state.grad_enabled = has_grad;
}

/* merge_adapter() or unmerge_adapter(), for every pair of A and B. */
static void merge_adapters(tide_run *run, const tide_job *job) {
    tide_model *model = &run->model;
    for (uint32_t i = 0; job->adapter != TIDE_adapter_none && i + 1 < model->parameter_count; i++) {
        const tide_parameter_row *a = &model->parameters[i], *b = &model->parameters[i + 1];
        bool is_pair = strstr(a->name, "lora_A") && strstr(b->name, "lora_B");
        if (is_pair && a->tensor->shape->dims == 2) merge_layer(&run->machine, a->tensor, b->tensor);
    }
}

/* ---- _iter_named_params() ---- */

/* A generator, which keeps its local state until the next item is requested. */
typedef struct named_params {
    tide_run *run;
    tide_wrapper *w;
    const tide_strategy *strategy;
    uint32_t next;
    tide_tensor *param, *gathered; /* that of FSDP2, and the one gathered by a context */
    tide_tensor **all;             /* with adapters, one context gathers all */
    uint32_t count;
    bool has_ended;
} named_params;

static bool has_adapters(const named_params *n) {
    return n->w->job->adapter != TIDE_adapter_none;
}

static void leave_param(named_params *n) {
    tide_release_at(&n->run->machine, &n->param);
    if (n->gathered) n->strategy->leave_params(n->w, &n->gathered, 1);
    n->gathered = NULL;
}

static void begin_params(named_params *n) {
    tide_model *model = &n->run->model;
    if (!has_adapters(n)) return;
    n->all = TIDE_NEW(n->run->machine.arena, tide_tensor *, model->parameter_count + 1);
    for (uint32_t i = 0; i < model->parameter_count; i++) n->all[n->count++] = model->parameters[i].tensor;
    if (n->strategy->gather_params) n->strategy->gather_params(n->w, n->all, n->count);
    merge_adapters(n->run, n->w->job);
}

static void end_params(named_params *n) {
    if (!has_adapters(n)) return;
    merge_adapters(n->run, n->w->job);
    if (n->strategy->leave_params) n->strategy->leave_params(n->w, n->all, n->count);
}

static bool is_of_adapter(const char *name) {
    return strstr(name, "lora_") != NULL;
}

/* Owned by the caller; NULL: there are no more. */
static tide_tensor *next_param(named_params *n) {
    tide_machine *m = &n->run->machine;
    tide_model *model = &n->run->model;
    if (n->has_ended) return NULL;
    if (n->next == 0) begin_params(n);
    leave_param(n);
    while (n->next < model->parameter_count && is_of_adapter(model->parameters[n->next].name)) n->next++;
    if (n->next == model->parameter_count) {
        end_params(n);
        n->has_ended = true;
        return NULL;
    }
    tide_tensor *weight = model->parameters[n->next++].tensor;
    m->op = "_iter_named_params";
    if (n->strategy->full_tensor) {
        n->param = n->strategy->full_tensor(n->w, weight);
        return tide_retain(n->param);
    }
    if (n->strategy->gather_params && !has_adapters(n)) {
        n->strategy->gather_params(n->w, &weight, 1);
        n->gathered = weight;
    }
    return tide_alias(m, weight);
}

/* ---- who takes them ---- */

void tide_walk_weights(tide_run *run, tide_wrapper *w, const tide_strategy *strategy) {
    named_params n = {.run = run, .w = w, .strategy = strategy};
    tide_tensor *held = NULL, *next;
    while ((next = next_param(&n))) { /* the name is rebound before the previous one is released */
        tide_release(&run->machine, held);
        held = next;
    }
    tide_release(&run->machine, held);
}

enum { BUFFERS = 2, BUFFER_BYTES = 1 << 30 };

/* pack_tensors(): joins weights until they exceed the size of a buffer. NULL: there are none. */
static tide_tensor *pack_tensors(named_params *n, tide_tensor **tensors) {
    tide_machine *m = &n->run->machine;
    tide_tensor *packed = NULL, *next;
    int64_t bytes = 0;
    uint32_t count = 0;
    while (bytes <= BUFFER_BYTES && (next = next_param(n))) {
        tensors[count++] = next;
        bytes += tide_bytes(next);
    }
    tide_shape shape = {.dim = {{.size = bytes}}, .dims = 1};
    m->op = "packed_nccl_broadcast_producer";
    if (count) packed = tide_empty(m, &shape, TIDE_UINT8);
    for (uint32_t i = 0; i < count; i++) tide_release(m, tensors[i]);
    return packed;
}

void tide_send_weights(tide_run *run, tide_wrapper *w, const tide_strategy *strategy) {
    tide_machine *m = &run->machine;
    named_params n = {.run = run, .w = w, .strategy = strategy};
    tide_tensor *in_flight[BUFFERS] = {NULL}, *packed;
    tide_tensor **room = TIDE_NEW(m->arena, tide_tensor *, run->model.parameter_count + 1);
    uint32_t before = m->state.stream, buffer = 0;
    do {
        tide_release_at(m, &in_flight[buffer]);
        m->state.stream = TIDE_FIRST_BUFFER + buffer;
        in_flight[buffer] = packed = pack_tensors(&n, room);
        m->state.stream = before;
        buffer = (buffer + 1) % BUFFERS;
    } while (packed && !m->has_failed);
    for (uint32_t i = 0; i < BUFFERS; i++) tide_release(m, in_flight[i]);
}
