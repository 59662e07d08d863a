/* SPDX-License-Identifier: Apache-2.0 */
/* torch/distributed/fsdp/_fully_shard/: _fsdp_param_group.py, _fsdp_collectives.py. */
#include "base/units.h"
#include "parallel/fsdp2.h"

const char tide_fsdp2_name[] = "fully_shard";

enum {
    FSDP2_ALL_GATHER_STREAM = TIDE_STREAM_SIDE,
    FSDP2_REDUCE_SCATTER_STREAM = TIDE_STREAM_SECOND,
    FSDP2_ALL_REDUCE_STREAM = TIDE_STREAM_THIRD
};

static tide_tensor *flat_on_stream(fsdp2 *f, uint8_t stream, int64_t count, tide_dtype dtype, tide_factor factor) {
    return tide_flat_on(fsdp2_machine(f), stream ? (uint8_t)(stream + f->first_stream) : 0, tide_fsdp2_name, count,
                        dtype, factor);
}

static int64_t all_gather_ranks(const fsdp_param_group *u) {
    return u->sharded_state == FSDP_SHARDED_POST_FORWARD ? u->post_forward_mesh_size : u->mesh.ranks;
}

/* foreach_all_gather. */
void tide_fsdp2_unshard(fsdp2 *f, fsdp_param_group *u) {
    tide_machine *m = fsdp2_machine(f);
    if (!u->count || u->has_all_gather_result || u->sharded_state == FSDP_UNSHARDED) return;
    u->has_all_gather_result = true;
    if (u->mesh.ranks == 1) return;
    int64_t part_bytes = 0,
            cast = 0; /* parameters of several dtypes are gathered as bytes: _get_all_gather_input_metadatas */
    uint8_t stream = f->is_async ? 0 : FSDP2_ALL_GATHER_STREAM; /* get_all_gather_streams() */
    tide_tensor **uploads = TIDE_NEW(m->arena, tide_tensor *, 2 * u->count + 1);
    uint32_t n = 0;
    for (uint32_t i = 0; i < u->count; i++) {
        const fsdp_param *s = &u->fsdp_params[i];
        int64_t numel = u->sharded_state == FSDP_SHARDED_POST_FORWARD
                            ? s->padded_sharded_numel * u->mesh.ranks / u->post_forward_mesh_size
                            : s->padded_sharded_numel;
        part_bytes += numel_bytes(numel, fsdp2_casts(f, s) ? f->param_dtype : s->orig_dtype);
        if (fsdp2_casts(f, s)) cast += numel;
        if (!f->offload_to_cpu) continue;
        uploads[n++] = flat_on_stream(f, stream, s->padded_sharded_numel, s->orig_dtype, TIDE_FACTOR_GATHERED);
        if (fsdp2_casts(f, s)) {
            uploads[n] = flat_on_stream(f, stream, s->padded_sharded_numel, f->param_dtype, TIDE_FACTOR_GATHERED);
            tide_release(m, uploads[n - 1]);
            uploads[n - 1] = uploads[n];
        }
    }
    tide_tensor *staged =
        cast && !f->offload_to_cpu ? flat_on_stream(f, stream, cast, f->param_dtype, TIDE_FACTOR_COMMUNICATION) : NULL;
    u->all_gather_output =
        flat_on_stream(f, stream, part_bytes * all_gather_ranks(u), TIDE_UINT8, TIDE_FACTOR_COMMUNICATION);
    tide_release(m, staged);
    for (uint32_t i = 0; i < n; i++) tide_release(m, uploads[i]);
}

static void alloc_all_gather_outputs(fsdp2 *f, const fsdp_param_group *u, fsdp_param *s) {
    tide_machine *m = fsdp2_machine(f);
    if (!s->all_gather_output) s->all_gather_output = tide_alias(m, s->unsharded_param);
    m->state.factor = TIDE_FACTOR_GATHERED;
    m->module = s->module;
    m->op = tide_fsdp2_name;
    tide_fill_storage(m, s->all_gather_output, s->padded_sharded_numel * u->mesh.ranks);
    m->state.factor = TIDE_FACTOR_TEMPORARY;
}

/* _default_all_gather_output_fn: a parameter sharded along another dimension than the first arrives part by part and is
 * joined from there. */
static tide_tensor *gathered_copy(fsdp2 *f, const fsdp_param_group *u, const fsdp_param *s) {
    return tide_flat_of(fsdp2_machine(f), tide_fsdp2_name, s->padded_sharded_numel * u->mesh.ranks,
                        (tide_dtype)s->all_gather_output->dtype, TIDE_FACTOR_COMMUNICATION);
}

/* Note [Copy kernels], aten/src/ATen/native/cuda/TensorShape.cu: the kernels that copy a gathered buffer to parameters
 * (split_with_sizes_copy) and gradients into one (_chunk_cat) get a list of blocks and one of tensors, 8 bytes per
 * entry. A block of _chunk_cat moves 2048 bytes of a rank's part. A block of split_with_sizes_copy moves n times that:
 * for W parts of c blocks, and twice as many blocks as the device runs at once, the smallest n for which n * (n + 1)
 * such sets cover W * c, and n of them c. */
enum { BLOCK_BYTES = 2048, BLOCK_THREADS = 128 };

static void alloc_copy_metadata(fsdp2 *f, int64_t blocks, int64_t entries) {
    fsdp2_machine(f)->op = tide_fsdp2_name;
    tide_alloc_and_free(fsdp2_machine(f), 8 * (blocks + entries));
}

/* The blocks of so many bytes that a parameter's elements take in one of `ranks` parts. */
static int64_t copy_blocks(const fsdp_param_group *u, const fsdp_param *s, int64_t ranks, int64_t bytes) {
    return TIDE_CEIL_DIV(
        numel_bytes(s->padded_sharded_numel * u->mesh.ranks / ranks, (tide_dtype)s->all_gather_output->dtype), bytes);
}

static void split_with_sizes_copy(fsdp2 *f, const fsdp_param_group *u, int64_t ranks) {
    const tide_device *device = &fsdp2_machine(f)->device;
    int64_t all = 0, blocks = 0, times = 1, few = 2 * (int64_t)device->sms * (device->threads_per_sm / BLOCK_THREADS);
    for (uint32_t i = 0; i < u->count; i++) all += copy_blocks(u, &u->fsdp_params[i], ranks, BLOCK_BYTES);
    while (times * (times + 1) * few < all * ranks) times++;
    if (times * few < all) times = TIDE_CEIL_DIV(all, few);
    for (uint32_t i = 0; i < u->count; i++) blocks += copy_blocks(u, &u->fsdp_params[i], ranks, BLOCK_BYTES * times);
    alloc_copy_metadata(f, blocks, 4 * (int64_t)u->count + 1);
}

void tide_fsdp2_wait_for_unshard(fsdp2 *f, fsdp_param_group *u) {
    tide_machine *m = fsdp2_machine(f);
    uint32_t module = m->module;
    if (!u->has_all_gather_result) return;
    if (f->states[u->state].is_read_outside) tide_fsdp2_show_dtypes(f, u, true);
    if (u->training_state == FSDP_FORWARD) tide_release_at(m, &f->all_gather_state);
    tide_tensor *cast = NULL, **copies = TIDE_NEW(m->arena, tide_tensor *, u->count + 1);
    for (uint32_t i = 0; i < u->count; i++) {
        if (u->mesh.ranks == 1 && fsdp2_casts(f, &u->fsdp_params[i])) {
            tide_tensor *next =
                flat_on_stream(f, 0, u->fsdp_params[i].padded_sharded_numel, f->param_dtype, TIDE_FACTOR_GATHERED);
            tide_release(m, cast);
            cast = next;
        }
        alloc_all_gather_outputs(f, u, &u->fsdp_params[i]);
        if (u->mesh.ranks > 1 && u->fsdp_params[i].dim) copies[i] = gathered_copy(f, u, &u->fsdp_params[i]);
    }
    tide_release(m, cast);
    if (u->mesh.ranks > 1) split_with_sizes_copy(f, u, all_gather_ranks(u));
    for (uint32_t i = 0; i < u->count; i++) tide_release(m, copies[i]);
    for (uint32_t i = 0; i < u->count; i++) tide_release_at(m, &u->fsdp_params[i].sharded_post_forward);
    u->sharded_state = FSDP_UNSHARDED;
    u->has_all_gather_result = false;
    if (u->training_state == FSDP_FORWARD && u->mesh.ranks > 1) {
        f->all_gather_state = u->all_gather_output;
        u->all_gather_output = NULL;
    } else {
        tide_release_at(m, &u->all_gather_output);
    }
    m->module = module;
}

void tide_fsdp2_show_dtypes(const fsdp2 *f, const fsdp_param_group *u, bool is_gathered) {
    for (uint32_t i = 0; i < u->count; i++) {
        const fsdp_param *s = &u->fsdp_params[i];
        s->unsharded_param->dtype = (uint8_t)(is_gathered && fsdp2_casts(f, s) ? f->param_dtype : s->orig_dtype);
    }
}

/* FSDPParam.free_unsharded_param. */
static void free_unsharded_param(fsdp2 *f, const fsdp_param *s) {
    tide_drop_storage(fsdp2_machine(f), s->all_gather_output ? s->all_gather_output : s->unsharded_param);
}

void tide_fsdp2_free_unsharded_params(fsdp2 *f, fsdp_param_group *u) {
    for (uint32_t i = 0; i < u->count; i++) free_unsharded_param(f, &u->fsdp_params[i]);
    if (f->states[u->state].is_read_outside) tide_fsdp2_show_dtypes(f, u, false);
}

void tide_fsdp2_reshard(fsdp2 *f, fsdp_param_group *u) {
    if (u->training_state == FSDP_FORWARD && u->post_forward_mesh_size == 0) return;
    if (u->training_state == FSDP_FORWARD && u->post_forward_mesh_size > 1) {
        for (uint32_t i = 0; i < u->count; i++) {
            fsdp_param *s = &u->fsdp_params[i];
            s->sharded_post_forward =
                flat_on_stream(f, 0, s->padded_sharded_numel * u->mesh.ranks / u->post_forward_mesh_size,
                               (tide_dtype)s->all_gather_output->dtype, TIDE_FACTOR_GATHERED);
            free_unsharded_param(f, s);
        }
        u->sharded_state = FSDP_SHARDED_POST_FORWARD;
        return;
    }
    if (u->sharded_state == FSDP_SHARDED) return;
    tide_fsdp2_free_unsharded_params(f, u);
    u->sharded_state = FSDP_SHARDED;
}

/* _default_reduce_scatter_input_fn: gradients of parameters sharded along another dimension than the first are
 * rearranged part by part; the loop's names still refer to the one before. */
static void chunk_gradients(fsdp2 *f, const fsdp_param_group *u, tide_tensor **grads, const uint32_t *with,
                            uint32_t count) {
    tide_machine *m = fsdp2_machine(f);
    tide_tensor *before = NULL;
    for (uint32_t i = 0; i < count && u->mesh.ranks > 1; i++) {
        if (!u->fsdp_params[with[i]].dim) continue;
        tide_release(m, before);
        before = grads[i];
        grads[i] = tide_empty(m, before->shape, (tide_dtype)before->dtype);
    }
    tide_release(m, before);
}

void tide_fsdp2_drop_reduce_scatter_inputs(fsdp2 *f) {
    for (uint32_t i = 0; i < f->reduce_scatter_count; i++)
        tide_release_at(fsdp2_machine(f), &f->reduce_scatter_inputs[i]);
    f->reduce_scatter_count = 0;
}

/* chunk_cat_mixed_dtype: a kernel joins gradients of the dtype of the buffer, and bf16 in fp32. fp16 in fp32 is padded
 * first, each gradient by itself (_pad_chunk), or cast for the kernel where others are in fp32. */
static void chunk_cat(fsdp2 *f, const fsdp_param_group *u, tide_tensor *const *grads, const uint32_t *with,
                      uint32_t count, tide_dtype dtype) {
    tide_machine *m = fsdp2_machine(f);
    int64_t blocks = 0;
    uint32_t narrow = 0;
    for (uint32_t i = 0; i < count; i++) {
        narrow += dtype == TIDE_FP32 && grads[i]->dtype == TIDE_FP16;
        blocks += TIDE_CEIL_DIV(numel_bytes(u->fsdp_params[with[i]].padded_sharded_numel, dtype), BLOCK_BYTES);
    }
    bool has_kernel = !narrow || narrow < count;
    tide_tensor **made = TIDE_NEW(m->arena, tide_tensor *, count + 1);
    for (uint32_t i = 0; i < count && narrow; i++) {
        int64_t numel = tide_count(grads[i]), padded = u->fsdp_params[with[i]].padded_sharded_numel * u->mesh.ranks;
        if (has_kernel && grads[i]->dtype == TIDE_FP16)
            made[i] = flat_on_stream(f, 0, numel, TIDE_FP32, TIDE_FACTOR_COMMUNICATION);
        else if (!has_kernel && padded > numel)
            made[i] = flat_on_stream(f, 0, padded, TIDE_FP16, TIDE_FACTOR_COMMUNICATION);
    }
    if (has_kernel) alloc_copy_metadata(f, blocks, 6 * (int64_t)count + 2);
    for (uint32_t i = 0; i < count; i++) tide_release(m, made[i]);
}

/* foreach_reduce. Takes ownership of the gradients. */
static void foreach_reduce(fsdp2 *f, fsdp_param_group *u, tide_tensor **grads, uint32_t *with, uint32_t count) {
    tide_machine *m = fsdp2_machine(f);
    int64_t parts = 0;
    tide_dtype dtype = f->has_reduce_dtype ? f->reduce_dtype : u->fsdp_params[with[0]].orig_dtype;
    for (uint32_t i = 0; i < count; i++) parts += u->fsdp_params[with[i]].padded_sharded_numel;
    chunk_gradients(f, u, grads, with, count);
    tide_tensor *input = flat_on_stream(f, 0, parts * u->mesh.ranks, dtype, TIDE_FACTOR_COMMUNICATION);
    chunk_cat(f, u, grads, with, count, dtype);
    for (uint32_t i = 0; i < count; i++) tide_release(m, grads[f->finalizes_by_hand ? count - 1 - i : i]);
    bool is_cast = dtype != u->fsdp_params[with[0]].orig_dtype,
         is_added = u->fsdp_params[with[0]].sharded_param->grad; /* and dropped */
    tide_tensor *output =
        flat_on_stream(f, FSDP2_REDUCE_SCATTER_STREAM, parts, dtype,
                       is_cast || (is_added && u->mesh.ranks == 1) ? TIDE_FACTOR_COMMUNICATION : TIDE_FACTOR_GRADIENT);
    if (u->mesh.ranks == 1 && u->mesh.has_divide_factor)
        tide_release(m, flat_on_stream(f, FSDP2_REDUCE_SCATTER_STREAM, parts, dtype, TIDE_FACTOR_COMMUNICATION));
    if (f->is_hsdp) {
        tide_release(m, u->all_reduce_input);
        u->all_reduce_input = tide_retain(output);
    }
    if (is_cast) {
        tide_tensor *cast = flat_on_stream(f, f->is_hsdp ? FSDP2_ALL_REDUCE_STREAM : FSDP2_REDUCE_SCATTER_STREAM, parts,
                                           u->fsdp_params[with[0]].orig_dtype,
                                           is_added ? TIDE_FACTOR_COMMUNICATION : TIDE_FACTOR_GRADIENT);
        tide_release(m, output);
        output = cast;
    }
    for (uint32_t i = 0; i < count && !f->offload_to_cpu; i++) {
        fsdp_param *s = &u->fsdp_params[with[i]];
        if (!s->sharded_param->grad) s->sharded_param->grad = tide_view_as(m, output, s->sharded_layout);
    }
    tide_release(m, output);
    TIDE_ROOM(m->arena, f->reduce_scatter_inputs, f->reduce_scatter_count, f->reduce_scatter_capacity);
    f->reduce_scatter_inputs[f->reduce_scatter_count++] = input;
}

/* FSDPParam._get_grad_inner_tensor: the gradient of a DTensor in the placement of its parameter. Takes ownership of it.
 */
static tide_tensor *unsharded_grad_data(fsdp2 *f, const tide_tensor *leaf) {
    tide_machine *m = fsdp2_machine(f);
    tide_tensor *grad = leaf->grad;
    if (!leaf->is_dtensor || (tide_same_shape(grad->shape, leaf->shape) && !leaf->has_partial_grad)) return grad;
    m->state.factor = TIDE_FACTOR_GRADIENT;
    tide_tensor *placed = tide_empty(m, leaf->shape, (tide_dtype)grad->dtype);
    m->state.factor = TIDE_FACTOR_TEMPORARY;
    tide_release(m, grad);
    return placed;
}

/* FSDPParam.unsharded_grad_dtype: gradients that are reduced in another dtype than the compute dtype are cast as they
 * arrive. Note [Wide gradients]: not those of a wider one that are added to others or reduced in the same pass, which
 * keep autograd's dtype (grad_dtype = None), unless the parameter is a replicated DTensor (may_reduce_grad_outside_dp).
 * FSDPParamGroup._set_unsharded_grad_dtypes.
 */
static void set_unsharded_grad_dtypes(fsdp2 *f, fsdp_param_group *u, bool defer_upcast) {
    for (uint32_t i = 0; i < u->count; i++) {
        tide_tensor *leaf = u->fsdp_params[i].unsharded_param;
        tide_dtype reduced = f->has_reduce_dtype ? f->reduce_dtype : u->fsdp_params[i].orig_dtype;
        bool is_wider = tide_dtype_bytes(reduced) > tide_dtype_bytes((tide_dtype)leaf->dtype);
        bool is_deferred = is_wider && defer_upcast && !leaf->is_replicated && (leaf->grad || f->reduce_grads);
        if (!leaf->accumulator || reduced == (tide_dtype)leaf->dtype) continue;
        leaf->accumulator->outputs[0].dtype = is_deferred ? leaf->dtype : (uint8_t)reduced;
        leaf->accumulator->of.accumulate_grad.keeps_dtype = is_deferred;
    }
}

/* FSDPParamGroup.post_backward. */
void tide_fsdp2_post_backward(fsdp2 *f, fsdp_param_group *u) {
    tide_machine *m = fsdp2_machine(f);
    u->training_state = FSDP_POST_BACKWARD;
    m->op = tide_fsdp2_name;
    if (u == f->groups)
        tide_release_at(m, &f->items.cast); /* the checkpoint of the first block had the last reference to it */
    if (!f->reduce_grads) {                 /* unsharded gradients stay */
        set_unsharded_grad_dtypes(f, u, false);
        if (!f->keeps_after_backward) tide_fsdp2_reshard(f, u);
        return;
    }
    tide_tensor **grads = TIDE_NEW(m->arena, tide_tensor *, u->count + 1);
    uint32_t *with = TIDE_NEW(m->arena, uint32_t, u->count + 1), count = 0;
    for (uint32_t i = 0; i < u->count; i++) {
        tide_tensor *leaf = u->fsdp_params[i].unsharded_param;
        if (!leaf->grad) continue;
        with[count] = i;
        grads[count++] = unsharded_grad_data(f, leaf);
        leaf->grad = NULL;
    }
    tide_fsdp2_reshard(f, u);
    const fsdp_state *state = &f->states[u->state];
    if (u + 1 == f->groups + state->first + state->count) tide_fsdp2_drop_reduce_scatter_inputs(f);
    uint32_t module = m->module;
    if (count) m->module = u->fsdp_params[with[0]].module;
    if (count) foreach_reduce(f, u, grads, with, count);
    m->module = module;
}

void tide_fsdp2_prefetch_unshard(fsdp2 *f, fsdp_param_group *u, fsdp_training_state as) {
    fsdp_training_state outside = u->training_state;
    u->training_state = as;
    tide_fsdp2_unshard(f, u);
    u->training_state = outside;
}

/* FSDPParamGroup._backward_prefetch: the group that ran before; in the second of several groups, all groups of that
 * one's state. */
static void backward_prefetch(fsdp2 *f, fsdp_param_group *u) {
    if (!u->post_forward_index_count) return;
    const fsdp_state *state = &f->states[u->state];
    uint32_t at = u->post_forward_indices[--u->post_forward_index_count], target = UINT32_MAX;
    if (state->count > 1 && u != &f->groups[state->first + 1]) return;
    while (at-- > 0) {
        fsdp_param_group *before = &f->groups[f->post_forward_order[at]];
        if (state->count > 1 && before->state == u->state) continue;
        if (target != UINT32_MAX && before->state != target) break;
        target = before->state;
        tide_fsdp2_prefetch_unshard(f, before, FSDP_PRE_BACKWARD);
        if (state->count == 1) break;
    }
}

void tide_fsdp2_group_pre_backward(fsdp2 *f, fsdp_param_group *u, bool prefetches) {
    u->training_state = FSDP_PRE_BACKWARD;
    tide_fsdp2_unshard(f, u);
    tide_fsdp2_wait_for_unshard(f, u);
    set_unsharded_grad_dtypes(f, u, true);
    if (prefetches) backward_prefetch(f, u);
}
