/* SPDX-License-Identifier: Apache-2.0 */
/* ZeRO-1 in bf16 with gradients accumulated in fp32: deepspeed/runtime/bf16_optimizer.py, and engine.py for the
 * reduction. Every rank has fp32 gradients of all parameters, to which the bf16 gradients are added after each
 * backward; it updates its part of an fp32 copy. */
#include "parallel/autotp.h"
#include "parallel/parallel.h"
#include "parallel/ulysses.h"

typedef struct bf16_group {
    uint32_t first, end; /* indices of parameters */
    int64_t elements;    /* including padding */
    tide_tensor *flat, *master, *grads;
} bf16_group;

typedef struct bf16_optimizer {
    tide_wrapper *w;
    tide_optimized *members;
    uint32_t count, group_count;
    bf16_group groups[2];
    tide_tensor *norm;
} bf16_optimizer;

static const char bf16_optimizer_name[] = "DeepSpeed";

static void setup_bf16_group(bf16_optimizer *z, bf16_group *g) {
    tide_machine *m = z->w->model->m;
    int64_t aligned = 2 * z->w->ranks, elements = 0; /* nccl_start_alignment_factor */
    for (uint32_t i = g->first; i < g->end; i++) elements += tide_count(z->members[i].tensor);
    int64_t padding = (aligned - elements % aligned) % aligned;
    g->elements = elements + padding;
    if (padding || g->end - g->first > 1) {
        tide_tensor *pad =
            padding ? tide_flat_of(m, bf16_optimizer_name, padding, TIDE_BF16, TIDE_FACTOR_TEMPORARY) : NULL;
        g->flat = tide_flat_of(m, bf16_optimizer_name, g->elements, TIDE_BF16, TIDE_FACTOR_PARAMETER);
        tide_release(m, pad);
    } else {
        g->flat = tide_alias(m, z->members[g->first].tensor);
    }
    for (uint32_t i = g->first; i < g->end; i++) tide_set_data(m, z->members[i].tensor, g->flat);
    tide_tensor *clone =
        tide_flat_of(m, bf16_optimizer_name, g->elements / z->w->ranks, TIDE_BF16, TIDE_FACTOR_TEMPORARY);
    g->master = tide_flat_of(m, bf16_optimizer_name, g->elements / z->w->ranks, TIDE_FP32, TIDE_FACTOR_MASTER);
    tide_release(m, clone);
    g->grads = tide_flat_of(m, bf16_optimizer_name, g->elements, TIDE_FP32, TIDE_FACTOR_GRADIENT);
    g->master->grad = tide_view_as(m, g->grads, g->master->layout);
}

static void bf16_optimizer_wrap(tide_wrapper *w) {
    tide_machine *m = w->model->m;
    tide_optimized masters[2];
    tide_cast_and_place_model(w, TIDE_BF16);
    if (!tide_autotp(w)) return;
    if (w->job->parallel_sequence_parallel_size > 1) /* get_grads_for_norm: tensor_mp_rank is that of the sequence */
        tide_report(m->diags, TIDE_WARNING, TIDE_ERR_CONFLICT, "/settings/parallel.grad_accum_dtype",
                    "of the ranks that share a sequence the first alone has gradients for the norm; the others stop: "
                    "\"stack expects a non-empty TensorList\"",
                    "leave it out, or use parallel.kind=zero2");
    bf16_optimizer *z = TIDE_NEW(m->arena, bf16_optimizer, 1);
    *z = (bf16_optimizer){.w = w, .count = tide_optimizer_members(w->optimizer, NULL)};
    z->members = TIDE_NEW(m->arena, tide_optimized, z->count + 1);
    tide_optimizer_members(w->optimizer, z->members);
    for (uint32_t i = 0; i < z->count; i++) {
        if (!i || z->members[i].group != z->members[i - 1].group) z->groups[z->group_count++].first = i;
        z->groups[z->group_count - 1].end = i + 1;
    }
    for (uint32_t i = 0; i < z->group_count; i++) {
        setup_bf16_group(z, &z->groups[i]);
        masters[i] = (tide_optimized){.tensor = z->groups[i].master, .group = z->members[z->groups[i].first].group};
    }
    tide_optimizer_replace(w->optimizer, masters, z->group_count);
    w->state = z;
}

/* engine.py: buffered_allreduce_fallback. */
static void bf16_optimizer_allreduce_fallback(const bf16_optimizer *z) {
    tide_machine *m = z->w->model->m;
    tide_dtype as = tide_communication_dtype(z->w->job);
    int64_t elements = 0;
    uint32_t count = 0;
    for (uint32_t i = 0; i < z->group_count; i++) {
        elements += z->groups[i].elements;
        count++;
        if (elements <= TIDE_MEMORY_OPT_ALLREDUCE_SIZE && i + 1 < z->group_count) continue;
        tide_tensor *flat =
            count > 1 ? tide_flat_of(m, bf16_optimizer_name, elements, TIDE_FP32, TIDE_FACTOR_COMMUNICATION) : NULL;
        tide_tensor *sent =
            as != TIDE_FP32 ? tide_flat_of(m, bf16_optimizer_name, elements, as, TIDE_FACTOR_COMMUNICATION) : NULL;
        tide_release(m, flat);
        tide_release(m, sent);
        elements = count = 0;
    }
}

static void bf16_optimizer_backward(tide_wrapper *w, tide_tensor *loss) {
    const bf16_optimizer *z = w->state;
    tide_machine *m = w->model->m;
    m->op = bf16_optimizer_name;
    /* divided by the number of micro-batches */
    tide_tensor *scaled = w->has_divided ? tide_retain(loss) : tide_scale(m, loss);
    tide_run_backward(m, scaled);
    m->module = m->statement = 0;
    for (uint32_t i = 0; i < z->count; i++) /* update_hp_grads */
        if (z->members[i].tensor->grad)
            tide_release(m, tide_flat_of(m, bf16_optimizer_name, tide_count(z->members[i].tensor), TIDE_FP32,
                                         TIDE_FACTOR_TEMPORARY));
    if (w->is_last) bf16_optimizer_allreduce_fallback(z);
    tide_release(m, scaled);
}

static void bf16_optimizer_step(tide_wrapper *w) {
    bf16_optimizer *z = w->state;
    tide_machine *m = w->model->m;
    uint32_t n = 0;
    tide_tensor **norms = TIDE_NEW(m->arena, tide_tensor *, z->count + 1), *before = z->norm;
    m->op = bf16_optimizer_name;
    for (uint32_t i = 0; i < z->count; i++) { /* get_global_norm_of_tensors */
        const tide_tensor *p = z->members[i].tensor;
        if (!p->grad || !tide_autotp_counts(w, p)) continue;
        tide_shape flat = tide_shape1((tide_dim){tide_count(p), 0});
        tide_tensor *grad = tide_view_as(m, z->groups[z->group_count > 1 && i >= z->groups[1].first].grads,
                                         tide_layout_of(m, &flat, NULL));
        norms[n++] = tide_sum_plain(m, grad, 1, false, TIDE_FP32);
        tide_release(m, grad);
    }
    z->norm = tide_scalar(m, TIDE_FP32);
    for (uint32_t i = n; i-- > 0;) tide_release(m, norms[i]);
    tide_optimizer_step(w->optimizer);
    for (uint32_t i = 0; i < z->count; i++) tide_release_at(m, &z->members[i].tensor->grad);
    tide_release(m, before);
}

const tide_strategy tide_zero_bf16_strategy = {.wrap = bf16_optimizer_wrap,
                                               .before_forward = tide_ulysses_before_forward,
                                               .after_forward = tide_ulysses_after_forward,
                                               .prepare_reference = tide_prepare_whole_reference,
                                               .backward = bf16_optimizer_backward,
                                               .update = bf16_optimizer_step,
                                               .updates_in_backward = true};
