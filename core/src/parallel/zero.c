/* DeepSpeed ZeRO stages 1 and 2: deepspeed/runtime/zero/stage_1_and_2.py.
 *
 * Note [Partitions]: each group of the optimizer is one flat tensor, cut into as many parts as there are ranks; the
 * parameters are views of it. A rank updates an fp32 copy of its part. Gradients are copied into a bucket (ipg),
 * reduced, and those that lie in the rank's part, whole ones at its edges, are copied into one buffer for all groups,
 * which lives while any group has not stepped. */
#include <string.h>

#include "parallel/parallel.h"

#include "base/units.h"

typedef struct zero_param {
    tide_tensor *tensor;
    uint32_t group;
    int64_t start, count; /* elements, in the group's flat tensor */
    tide_tensor *norm;    /* of its gradient, when that has gone to the host */
    bool is_owned;
} zero_param;

typedef struct zero_group {
    uint32_t first, end; /* of zero.params, in the order of the flat tensor */
    int64_t part;        /* elements of a rank's part */
    tide_tensor *flat, *master;
    tide_tensor **grads; /* of this rank's parameters, and a padding: averaged_gradients */
    tide_tensor *wide;   /* in their place, where gradients accumulate in fp32: one buffer of the part */
    uint32_t grad_count;
} zero_group;

typedef struct zero {
    tide_wrapper *w;
    zero_param *params;
    uint32_t count, hint;
    zero_group groups[2];
    uint32_t group_count;
    tide_dtype dtype, reduced_as;
    int64_t bucket_size;
    bool widens;  /* the model's gradients accumulate in fp32 */
    int64_t *own; /* elements of the slices of a chunk that are this rank's */
    uint32_t own_count;
    bool partitions, overlaps, is_contiguous, scatters, reduces_together, is_offloaded;
    /* the bucket */
    tide_tensor *ipg[2];
    uint32_t ipg_index;
    uint32_t *bucket;
    tide_tensor **bucket_grads;
    uint32_t bucket_count;
    int64_t bucket_elements;
    bool is_ready, bucket_is_large;
    tide_tensor *owned; /* grads_in_partition */
    tide_tensor *staging, *norm;
} zero;

static const char op_name[] = "DeepSpeed";

static tide_machine *machine_of(const zero *z) {
    return z->w->model->m;
}

static uint8_t reduction_stream(const zero *z) {
    return z->overlaps ? TIDE_STREAM_SIDE : 0;
}

/* ---- layout ---- */

/* The ranks whose parts hold an element of p: from *first to *last. */
static void owners_of(const zero *z, const zero_param *p, int64_t *first, int64_t *last) {
    int64_t part = z->groups[p->group].part;
    *first = p->start / part;
    *last = (p->start + p->count - 1) / part;
}

static bool is_owner(const zero *z, const zero_param *p) {
    int64_t first, last;
    owners_of(z, p, &first, &last);
    return z->w->rank >= first && z->w->rank <= last;
}

/* Elements of p that lie in this rank's part. */
static int64_t owned_count(const zero *z, const zero_param *p) {
    int64_t from = z->w->rank * z->groups[p->group].part, to = from + z->groups[p->group].part;
    int64_t start = p->start > from ? p->start : from, end = p->start + p->count < to ? p->start + p->count : to;
    return end > start ? end - start : 0;
}

/* round_robin_gradients: every ranks-th parameter after the other. */
static void reorder(zero *z, zero_group *g) {
    tide_machine *m = machine_of(z);
    uint32_t count = g->end - g->first, n = 0;
    zero_param *order = TIDE_NEW(m->arena, zero_param, count + 1);
    for (int64_t from = 0; from < z->w->ranks && from < count; from++)
        for (int64_t i = from; i < count; i += z->w->ranks) order[n++] = z->params[g->first + i];
    memcpy(z->params + g->first, order, n * sizeof *order);
}

static void make_group(zero *z, uint32_t group) {
    tide_machine *m = machine_of(z);
    zero_group *g = &z->groups[group];
    int64_t elements = 0, alignment = 2 * z->w->ranks; /* nccl_start_alignment_factor */
    if (tide_option_true(z->w->job, TIDE_OPTION_round_robin_gradients, false)) reorder(z, g);
    for (uint32_t i = g->first; i < g->end; i++) {
        z->params[i].start = elements;
        elements += z->params[i].count;
    }
    int64_t padding = (alignment - elements % alignment) % alignment;
    g->part = (elements + padding) / z->w->ranks;
    tide_timeline_empty_cache(&m->timeline);
    if (padding || g->end - g->first > 1) {
        tide_tensor *pad = padding ? tide_flat_of(m, op_name, padding, z->dtype, TIDE_FACTOR_TEMPORARY) : NULL;
        g->flat = tide_flat_of(m, op_name, elements + padding, z->dtype, TIDE_FACTOR_PARAMETER);
        tide_release(m, pad);
    } else {
        g->flat = tide_alias(m, z->params[g->first].tensor);
    }
    for (uint32_t i = g->first; i < g->end; i++) {
        tide_set_data(m, z->params[i].tensor, g->flat);
        z->params[i].is_owned = is_owner(z, &z->params[i]);
    }
    tide_tensor *part = tide_flat_of(m, op_name, g->part, z->dtype, TIDE_FACTOR_TEMPORARY);
    if (z->is_offloaded) {
        tide_shape shape = tide_shape1((tide_dim){g->part, 0});
        g->master = tide_empty_host(m, &shape, TIDE_FP32);
        if (tide_option_true(z->w->job, TIDE_OPTION_pin_memory,
                             true)) { /* master, its gradient, the updated part on its way back */
            tide_pin_host(m, tide_bytes(g->master));
            tide_pin_host(m, tide_bytes(g->master));
            tide_pin_host(m, g->part * tide_dtype_bytes(z->dtype));
        }
    } else if (z->dtype == TIDE_FP32) {
        g->master = tide_retain(part);
        tide_set_factor(m, part, TIDE_FACTOR_MASTER);
    } else {
        g->master = tide_flat_of(m, op_name, g->part, TIDE_FP32, TIDE_FACTOR_MASTER);
    }
    tide_release(m, part);
}

/* ---- gradients ---- */

static zero_param *param_of(zero *z, const tide_tensor *leaf) {
    for (uint32_t n = 0; n < z->count; n++, z->hint = z->hint ? z->hint - 1 : z->count - 1)
        if (z->params[z->hint].tensor == leaf) return &z->params[z->hint];
    return NULL;
}

static void setup_buckets(zero *z) {
    tide_machine *m = machine_of(z);
    if (z->is_ready) return;
    z->is_ready = true;
    z->ipg_index = 0;
    for (int i = 0; z->is_contiguous && i <= z->overlaps; i++)
        z->ipg[i] = tide_flat_of(m, op_name, z->bucket_size, z->dtype, TIDE_FACTOR_COMMUNICATION);
}

/* A collective over slices: one is sent as it is, several are put together (allreduce_bucket). */
static void reduce_slices(zero *z, uint32_t count, int64_t elements) {
    tide_machine *m = machine_of(z);
    tide_tensor *flat = count > 1 ? tide_flat_of(m, op_name, elements, z->dtype, TIDE_FACTOR_COMMUNICATION) : NULL;
    tide_tensor *sent =
        z->reduced_as != z->dtype ? tide_flat_of(m, op_name, elements, z->reduced_as, TIDE_FACTOR_COMMUNICATION) : NULL;
    for (uint32_t i = 0; i < z->own_count; i++) /* _add_to_grad_partition_buffer */
        tide_release(m, tide_flat_of(m, op_name, z->own[i], TIDE_FP32, TIDE_FACTOR_TEMPORARY));
    z->own_count = 0;
    tide_release(m, flat);
    tide_release(m, sent);
}

/* Slices are sent in chunks of more than reduce_bucket_size elements. */
typedef struct chunk {
    uint32_t count;
    int64_t elements;
} chunk;

static void chunk_add(zero *z, chunk *c, int64_t elements, bool is_own) {
    if (is_own && z->widens) z->own[z->own_count++] = elements;
    c->count++;
    c->elements += elements;
    if (c->elements <= z->bucket_size) return;
    reduce_slices(z, c->count, c->elements);
    *c = (chunk){0, 0};
}

/* average_tensor: the bucket cut where the owner changes. With separate reductions, owner after owner. */
static void average(zero *z, const tide_tensor *sent) {
    int64_t least = INT64_MAX, most = -1, owner = -1, elements = 0;
    if (!z->scatters) {
        if (z->reduced_as != z->dtype) reduce_slices(z, 1, z->bucket_elements);
        return;
    }
    for (uint32_t i = 0; i < z->bucket_count; i++) {
        int64_t first, last;
        owners_of(z, &z->params[z->bucket[i]], &first, &last);
        if (first < least) least = first;
        if (last > most) most = last;
    }
    int64_t turns = z->reduces_together ? 1 : most - least + 1;
    for (int64_t turn = 0; turn < turns; turn++) {
        chunk c = {0, 0};
        owner = -1;
        for (uint32_t i = 0; i < z->bucket_count; i++) {
            const zero_param *p = &z->params[z->bucket[i]];
            int64_t first, last, part = z->groups[p->group].part;
            owners_of(z, p, &first, &last);
            for (int64_t r = first; r <= last; r++) {
                int64_t from = r * part > p->start ? r * part : p->start,
                        to = (r + 1) * part < p->start + p->count ? (r + 1) * part : p->start + p->count;
                if (r != owner || (z->widens && r == z->w->rank)) {
                    if (elements && (z->reduces_together || owner == least + turn))
                        chunk_add(z, &c, elements, owner == z->w->rank);
                    elements = 0;
                    owner = r;
                }
                elements += to - from;
                if (z->widens && r == z->w->rank && !z->groups[p->group].wide)
                    z->groups[p->group].wide =
                        tide_flat_of(machine_of(z), op_name, part, TIDE_FP32, TIDE_FACTOR_GRADIENT);
                if (r == z->w->rank && z->overlaps) tide_record_stream(machine_of(z), sent, TIDE_STREAM_SIDE);
            }
        }
        if (elements && (z->reduces_together || owner == least + turn)) chunk_add(z, &c, elements, owner == z->w->rank);
        elements = 0;
        if (c.count) reduce_slices(z, c.count, c.elements);
    }
}

/* copy_grads_in_partition: into one buffer for all that this rank owns, or to the host. */
static void keep_gradient(zero *z, zero_param *p) {
    tide_machine *m = machine_of(z);
    if (z->is_offloaded) {
        if (!z->w->is_last) return;                              /* added up on the host */
        p->norm = tide_fp64_norm(m, op_name, owned_count(z, p)); /* norm_for_param_grads */
        if (z->dtype != TIDE_FP32 && !z->widens)
            tide_release(m, tide_flat_of(m, op_name, owned_count(z, p), TIDE_FP32, TIDE_FACTOR_TEMPORARY));
        tide_release_at(m, &p->tensor->grad);
        return;
    }
    if (z->widens) return;
    if (!z->owned) {
        int64_t elements = 0;
        for (uint32_t i = 0; i < z->count; i++)
            if (z->params[i].is_owned) elements += z->params[i].count;
        z->owned = tide_flat_of(m, op_name, elements, z->dtype, TIDE_FACTOR_GRADIENT);
    }
    tide_set_data(m, p->tensor->grad, z->owned);
}

/* reduce_ipg_grads. */
static void reduce_bucket(zero *z) {
    tide_machine *m = machine_of(z);
    if (!z->bucket_count) return;
    m->state.stream = reduction_stream(z);
    const tide_tensor *sent = z->is_contiguous && !z->bucket_is_large ? z->ipg[z->ipg_index] : z->bucket_grads[0];
    if (z->is_contiguous)
        average(z, sent);
    else
        reduce_slices(z, z->bucket_count, z->bucket_elements); /* buffered_reduce_fallback */
    for (uint32_t i = 0; i < z->bucket_count; i++) {
        zero_param *p = &z->params[z->bucket[i]];
        if (p->is_owned && z->is_contiguous)
            keep_gradient(z, p);
        else if (!p->is_owned && z->partitions)
            tide_release_at(m, &p->tensor->grad);
    }
    m->state.stream = 0;
    for (uint32_t i = 0; i < z->bucket_count; i++) tide_release(m, z->bucket_grads[i]);
    z->bucket_count = 0;
    z->bucket_elements = 0;
    z->bucket_is_large = false;
}

/* reduce_independent_p_g_buckets_and_remove_grads. */
static void add_to_bucket(zero *z, zero_param *p) {
    tide_machine *m = machine_of(z);
    if (z->bucket_elements + p->count > z->bucket_size) {
        reduce_bucket(z);
        if (z->is_contiguous && z->overlaps) z->ipg_index = 1 - z->ipg_index;
    }
    tide_tensor *grad = p->tensor->grad;
    if (z->is_contiguous && p->count > z->bucket_size) {
        z->bucket_is_large = true;
        if (z->is_offloaded) { /* a copy that nothing else writes to */
            tide_tensor *copy = tide_empty_like(m, grad, (tide_dtype)grad->dtype);
            tide_set_data(m, grad, copy);
            tide_release(m, copy);
        }
    } else if (z->is_contiguous) {
        tide_set_data(m, grad, z->ipg[z->ipg_index]);
    }
    z->bucket_grads[z->bucket_count] = tide_retain(grad);
    z->bucket[z->bucket_count++] = (uint32_t)(p - z->params);
    z->bucket_elements += p->count;
}

static void gradient_ready(tide_machine *m, tide_tensor *leaf) {
    zero *z = m->wrapper;
    zero_param *p = param_of(z, leaf);
    if (!p) return;
    m->op = op_name;
    setup_buckets(z);
    if (z->partitions || (z->overlaps && z->w->is_last)) add_to_bucket(z, p);
}

/* The gradients that this rank's part is made of, and zeros for parameters without one and for the rest of the part. */
static void collect_gradients(zero *z, zero_group *g) {
    tide_machine *m = machine_of(z);
    uint32_t n = 0;
    int64_t elements = 0;
    bool is_new = g->grad_count == 0;
    if (z->widens) {
        if (z->w->is_last && !g->wide) g->wide = tide_flat_of(m, op_name, g->part, TIDE_FP32, TIDE_FACTOR_GRADIENT);
        return;
    }
    for (uint32_t i = g->first; i < g->end; i++) {
        zero_param *p = &z->params[i];
        if (!p->is_owned) continue;
        tide_tensor *grad = p->tensor->grad;
        if (!grad)
            grad = tide_empty_like(m, p->tensor, z->dtype);
        else
            tide_retain(grad);
        if (is_new)
            g->grads[n++] = grad;
        else
            tide_release(m, grad); /* added to the ones that are there */
        elements += owned_count(z, p);
    }
    if (is_new) g->grad_count = n;
    if (z->w->is_last && elements < g->part)
        g->grads[g->grad_count++] = tide_flat_of(m, op_name, g->part - elements, z->dtype, TIDE_FACTOR_GRADIENT);
}

/* independent_gradient_partition_epilogue, and before it for stage 1 reduce_gradients. */
static void epilogue(zero *z) {
    tide_machine *m = machine_of(z);
    m->op = op_name;
    m->module = m->statement = 0;
    if (!z->partitions && !z->w->is_last) return;
    if (!z->partitions && !z->overlaps)
        for (uint32_t i = 0; i < z->count; i++)
            if (z->params[i].tensor->grad) add_to_bucket(z, &z->params[i]);
    reduce_bucket(z);
    for (uint32_t g = 0; g < z->group_count && !z->is_offloaded; g++) collect_gradients(z, &z->groups[g]);
    for (int i = 1; i >= 0; i--) tide_release_at(m, &z->ipg[i]);
    tide_release_at(m, &z->owned);
    z->is_ready = false;
    for (uint32_t i = 0; i < z->count; i++) tide_release_at(m, &z->params[i].tensor->grad);
}

/* ---- the engine ---- */

static void zero_backward(tide_wrapper *w, tide_tensor *loss) {
    tide_machine *m = w->model->m;
    m->op = op_name;
    tide_tensor *scaled = tide_scale(m, loss),
                *again = tide_scale(m, scaled); /* by the micro-batches, by the loss scaler */
    tide_run_backward(m, again);
    epilogue(w->state);
    tide_release(m, again);
    tide_release(m, scaled);
}

static void step_group(zero *z, uint32_t group) {
    tide_machine *m = machine_of(z);
    zero_group *g = &z->groups[group];
    if (z->is_offloaded) tide_release_at(m, &g->wide);
    if (!z->is_offloaded) {
        bool is_whole = g->grad_count == 1;
        tide_tensor *flat = z->widens  ? g->wide
                            : is_whole ? tide_retain(g->grads[0])
                                       : tide_flat_of(m, op_name, g->part, z->dtype, TIDE_FACTOR_GRADIENT);
        tide_tensor *grad = z->dtype == TIDE_FP32 || z->widens
                                ? tide_retain(flat)
                                : tide_flat_of(m, op_name, g->part, TIDE_FP32, TIDE_FACTOR_GRADIENT);
        tide_release(m, flat);
        for (uint32_t i = 0; i < g->grad_count; i++) tide_release(m, g->grads[i]);
        g->grad_count = 0;
        g->wide = NULL;
        g->master->grad = grad;
        tide_optimizer_step_one(z->w->optimizer, group);
        tide_release_at(m, &g->master->grad);
    }
}

static void zero_update(tide_wrapper *w) {
    zero *z = w->state;
    tide_machine *m = w->model->m;
    m->op = op_name;
    tide_tensor *norm = NULL;
    for (uint32_t i = 0; i < z->group_count && !z->is_offloaded; i++) { /* scaled_global_norm */
        zero_group *g = &z->groups[i];
        tide_tensor **norms = TIDE_NEW(m->arena, tide_tensor *, g->grad_count + 1);
        uint32_t n = 0;
        for (uint32_t k = g->first; k < g->end; k++)
            if (z->params[k].is_owned) norms[n++] = tide_fp64_norm(m, op_name, owned_count(z, &z->params[k]));
        for (uint32_t k = n; k-- > 0;) tide_release(m, norms[k]);
    }
    for (uint32_t i = 0; i < z->group_count && z->is_offloaded; i++)
        tide_release(m, tide_scalar(m, TIDE_FP32)); /* it goes to the host */
    tide_tensor *before = z->norm;                  /* the engine has it too, until the step is over */
    if (!z->is_offloaded) {
        norm = tide_scalar(m, TIDE_FP32);
        z->norm = tide_scalar(m, TIDE_FP32);
    }
    for (uint32_t i = 0; i < z->group_count; i++) step_group(z, i);
    for (uint32_t i = 0; i < z->count; i++) tide_release_at(m, &z->params[i].norm);
    tide_release(m, before);
    tide_release(m, norm);
}

static void zero_update_at_boundary(tide_wrapper *w) {
    if (strcmp(w->job->optimizer, "none") != 0) zero_update(w);
}

static void zero_wrap(tide_wrapper *w, bool partitions) {
    tide_machine *m = w->model->m;
    const tide_job *job = w->job;
    tide_dtype half = tide_option_dtype(job, TIDE_OPTION_half, TIDE_FP32),
               accumulated = tide_option_dtype(job, TIDE_OPTION_grad_accum_dtype, half);
    bool widens = accumulated != half, is_plain = partitions &&
                                                  tide_option_true(job, TIDE_OPTION_contiguous_gradients, true) &&
                                                  tide_option_true(job, TIDE_OPTION_reduce_scatter, true);
    if (widens && (accumulated != TIDE_FP32 || !is_plain)) {
        tide_fail(m, TIDE_ERR_UNSUPPORTED,
                  "parallel.grad_accum_dtype other than that of the model is described for fp32 in stage 2 with "
                  "contiguous_gradients and reduce_scatter, and in stage 1 with bf16 that is not offloaded");
        return;
    }
    tide_cast_model(w, half);
    zero *z = TIDE_NEW(m->arena, zero, 1);
    uint32_t count = tide_optimizer_members(w->optimizer, NULL);
    tide_optimized *members = TIDE_NEW(m->arena, tide_optimized, count + 1), masters[2];
    tide_optimizer_members(w->optimizer, members);
    *z = (zero){.w = w,
                .count = count,
                .partitions = partitions,
                .widens = widens,
                .dtype = w->model->state.dtype,
                .bucket_size = tide_bucket_size(w, TIDE_OPTION_reduce_bucket_size, 500000000, 1, 1),
                .overlaps = tide_option_true(job, TIDE_OPTION_overlap_comm, false),
                .is_contiguous = tide_option_true(job, TIDE_OPTION_contiguous_gradients, true) ||
                                 tide_option_is(job, TIDE_OPTION_offload_optimizer, "cpu"),
                .scatters = tide_option_true(job, TIDE_OPTION_reduce_scatter, true),
                .reduces_together = tide_option_true(job, TIDE_OPTION_use_multi_rank_bucket_allreduce, true),
                .is_offloaded = tide_option_is(job, TIDE_OPTION_offload_optimizer, "cpu")};
    z->reduced_as = tide_option_dtype(job, TIDE_OPTION_communication_data_type, z->dtype);
    z->params = TIDE_NEW(m->arena, zero_param, count + 1);
    z->own = TIDE_NEW(m->arena, int64_t, count + 1);
    z->bucket = TIDE_NEW(m->arena, uint32_t, count + 1);
    z->bucket_grads = TIDE_NEW(m->arena, tide_tensor *, count + 1);
    int64_t largest = 0;
    for (uint32_t i = 0; i < count; i++) {
        z->params[i] = (zero_param){
            .tensor = members[i].tensor, .group = members[i].group, .count = tide_count(members[i].tensor)};
        if (z->params[i].count > largest) largest = z->params[i].count;
        zero_group *g = &z->groups[members[i].group];
        if (g->end == 0) g->first = i;
        g->end = i + 1;
    }
    if (count && members[0].group == 1) { /* nothing decays: the only group is the second */
        for (uint32_t i = 0; i < count; i++) z->params[i].group = 0;
        z->groups[0] = z->groups[1];
        z->groups[1].end = 0;
    }
    z->group_count = (z->groups[0].end ? 1u : 0) + (z->groups[1].end ? 1u : 0);
    for (uint32_t i = 0; i < z->group_count; i++) {
        zero_group *g = &z->groups[i];
        make_group(z, i);
        g->grads = TIDE_NEW(m->arena, tide_tensor *, g->end - g->first + 2);
        masters[i] = (tide_optimized){g->master, 0, members[g->first].group};
    }
    tide_optimizer_replace(w->optimizer, masters, z->group_count);
    if (z->is_offloaded) {
        z->staging = tide_flat_of(m, op_name, largest, z->dtype, TIDE_FACTOR_COMMUNICATION);
        if (tide_option_true(w->job, TIDE_OPTION_pin_memory, true))
            tide_pin_host(m, largest * tide_dtype_bytes(z->dtype)); /* temp_grad_buffer_for_cpu_offload */
    }
    tide_tensor *zeros[2] = {NULL};
    for (uint32_t i = 0; i < z->group_count && !z->is_offloaded; i++)
        zeros[i] = tide_flat_of(m, op_name, z->groups[i].part, TIDE_FP32,
                                TIDE_FACTOR_GRADIENT); /* initialize_optimizer_states */
    for (uint32_t i = 0; i < z->group_count; i++) tide_release(m, zeros[i]);
    w->state = m->wrapper = z;
    m->gradient_ready = gradient_ready;
}

/* Note [Ranks of ZeRO-1 and 2]: all parts have one size; what differs is how many gradients a part is made of, each in
 * a block of its own, and when they come. Besides rank 0 these stand for all: the last, which has the padding and the
 * gradients that come first; the one whose pieces take the most blocks; and the one with the most pieces. */
typedef struct share {
    int64_t bytes, pieces;
} share;

static uint32_t zero_other_ranks(const tide_wrapper *w, int64_t *ranks) {
    const zero *z = w->state;
    int64_t largest = 0, most = 0, last = w->ranks - 1;
    uint32_t count = 0;
    share *of = TIDE_NEW(w->model->m->arena, share, w->ranks);
    for (uint32_t i = 0; i < z->count; i++) {
        int64_t first, end, part = z->groups[z->params[i].group].part;
        const zero_param *p = &z->params[i];
        owners_of(z, p, &first, &end);
        for (int64_t r = first; r <= end && r <= last; r++) {
            int64_t from = p->start > r * part ? p->start : r * part,
                    to = p->start + p->count < (r + 1) * part ? p->start + p->count : (r + 1) * part;
            of[r].bytes += TIDE_ROUND_UP((to - from) * (int64_t)tide_dtype_bytes(z->dtype), 512);
            of[r].pieces++;
        }
    }
    for (int64_t r = 0; r <= last; r++) {
        if (of[r].bytes > of[largest].bytes) largest = r;
        if (of[r].pieces > of[most].pieces) most = r;
    }
    if (last) ranks[count++] = last;
    if (largest && largest != last) ranks[count++] = largest;
    if (most && most != last && most != largest) ranks[count++] = most;
    return count;
}

static void zero1_wrap(tide_wrapper *w) {
    zero_wrap(w, false);
}

static void zero2_wrap(tide_wrapper *w) {
    zero_wrap(w, true);
}

const tide_strategy tide_zero1 = {.kind = "zero1",
                                  .wrap = zero1_wrap,
                                  .backward = zero_backward,
                                  .update = zero_update_at_boundary,
                                  .other_ranks = zero_other_ranks};
const tide_strategy tide_zero2 = {.kind = "zero2",
                                  .wrap = zero2_wrap,
                                  .backward = zero_backward,
                                  .update = zero_update_at_boundary,
                                  .other_ranks = zero_other_ranks};
