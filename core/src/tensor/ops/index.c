/* SPDX-License-Identifier: Apache-2.0 */
/* Creating tensors, embeddings, indexing, scattering: aten/src/ATen/native/cuda/{Embedding,Indexing,IndexKernel}.cu.
 *
 * Note [Library scratch]: sorts, scans and selections of CUB and Thrust allocate scratch memory whose size follows from
 * their tiles; measured with torch 2.15.0 at compute capability 9.0, and exact for every size tried. */
#include "tensor/ops/ops.h"

#include "base/units.h"

enum { SCAN_TILE = 4992, SCAN_TILE_BOOL = 896, SELECT_TILE = 4224, COUNT_TILE = 4096, SORT_ALONE = 2304 };

/* cub/agent/single_pass_scan_operators.cuh, ScanTileState: TILE_STATUS_PADDING. */
enum { TILE_PADDING = 32 };
/* cuda/Embedding.cu, embedding_dense_backward_cuda: up to this many indices, a kernel works without sorting. */
enum { UNSORTED_INDICES = 3072 };

/* cub::DeviceScan: a state per tile, twice as wide as the sum. */
static int64_t scan_scratch_of(int64_t n, int64_t tile, int64_t bytes) {
    return TIDE_CUB_ALIGNING + TIDE_CUB_PART +
           TIDE_ROUND_UP(2 * bytes * (TILE_PADDING + TIDE_CEIL_DIV(n, tile)), TIDE_CUB_PART);
}

static int64_t scan_scratch(int64_t n, int64_t tile) {
    return scan_scratch_of(n, tile, 8);
}

/* cub::DeviceSelect behind nonzero: one 8-byte state per tile. */
static int64_t select_scratch(int64_t n) {
    return TIDE_CUB_ALIGNING + TIDE_CUB_PART +
           TIDE_ROUND_UP(8 * (TILE_PADDING + TIDE_CEIL_DIV(n, SELECT_TILE)), TIDE_CUB_PART);
}

/* cub::DeviceReduce behind the count of nonzero (cub/device/dispatch/dispatch_reduce.cuh, InvokePasses): a 32-bit sum
 * per block, for CUB_SUBSCRIPTION_FACTOR (5) times as many blocks of 256 threads as the device holds; a single tile
 * needs none. */
static int64_t count_scratch(const tide_device *device, int64_t n) {
    int64_t blocks = 5 * (int64_t)device->sms * (device->threads_per_sm / 256);
    return n <= COUNT_TILE ? 1 : TIDE_CUB_ALIGNING + TIDE_ROUND_UP(4 * blocks, TIDE_CUB_PART);
}

/* ---- making tensors ---- */

static tide_dtype dtype_or(tide_value v, tide_dtype otherwise) {
    return v.kind == TIDE_VALUE_DTYPE ? v.dtype : otherwise;
}

static tide_value op_empty(tide_machine *m, tide_value *a) {
    tide_shape shape = {.dims = 0};
    if (!tide_arg_shape(m, a[0], &shape)) return tide_none();
    return tide_of_tensor(tide_empty(m, &shape, dtype_or(a[1], TIDE_FP32)));
}

static tide_value op_host(tide_machine *m, tide_value *a) {
    tide_shape shape = {.dims = 0};
    if (!tide_arg_shape(m, a[0], &shape)) return tide_none();
    return tide_of_tensor(tide_empty_host(m, &shape, dtype_or(a[1], TIDE_FP32)));
}

static tide_value op_arange(tide_machine *m, tide_value *a) {
    tide_shape shape = tide_shape1((tide_dim){tide_arg_int(m, a[0]), a[0].symbol});
    return tide_of_tensor(tide_empty(m, &shape, dtype_or(a[1], TIDE_INT64)));
}

static tide_value op_empty_like(tide_machine *m, tide_value *a) {
    tide_tensor *x = tide_arg_tensor(m, a[0]);
    return tide_of_tensor(tide_empty_like(m, x, dtype_or(a[1], (tide_dtype)x->dtype)));
}

/* ---- embedding ---- */

static void embedding_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    tide_tensor *indices = tide_saved_at(m, node, 0);
    int64_t n = tide_count(indices), rows = node->extra.shape->dim[0].size, width = node->extra.shape->dim[1].size;
    tide_tensor *g = tide_contiguous(m, grads[0]), *dense = tide_contiguous(m, indices);
    if (n <= UNSORTED_INDICES) {
        results[0] = tide_empty(m, node->extra.shape, grads[0]->dtype);
        tide_release(m, dense);
        tide_release(m, g);
        tide_release(m, indices);
        return;
    }
    int64_t segments = n < rows ? n : rows, partials = segments + n / 10; /* NROWS_PER_THREAD 10 */
    tide_tensor *sorted = tide_scratch(m, 8 * n), *origin = tide_scratch(m, 8 * n), *range = tide_scratch(m, 8 * n);
    tide_alloc_and_free(m, tide_sort_scratch(n, rows));
    tide_release(m, range);
    results[0] = tide_empty(m, node->extra.shape, grads[0]->dtype);
    tide_tensor *offsets = tide_scratch(m, 8 * n), *count = tide_scratch(m, 8), *ones = tide_scratch(m, 8 * n);
    tide_alloc_and_free(m, scan_scratch(n, SCAN_TILE));
    tide_release(m, ones);
    tide_tensor *per_segment = tide_scratch(m, 8 * segments), *segment_offsets = tide_scratch(m, 8 * segments);
    tide_alloc_and_free(m, scan_scratch(segments, SCAN_TILE_BOOL));
    tide_tensor *partial_count = tide_scratch(m, 8), *partial_offsets = tide_scratch(m, 8 * partials);
    /* With few segments of many rows, partial sums are added directly to those of the segments, which are fp32 even if
     * the weight is not; each partial sum stores its segment. The bound was measured with 132 multiprocessors. */
    bool is_crowded = segments < 4 * (int64_t)m->device.sms && partials > 4 * segments;
    tide_tensor *owner = is_crowded ? tide_scratch(m, 8 * partials) : NULL;
    if (!is_crowded)
        tide_alloc_and_free(m, 4 * width * partials);
    else if (grads[0]->dtype != TIDE_FP32)
        tide_alloc_and_free(m, 4 * width * segments);
    tide_release(m, owner);
    tide_tensor *all[] = {
        partial_offsets, partial_count, segment_offsets, per_segment, count, offsets, origin, sorted, g};
    for (unsigned i = 0; i < TIDE_COUNT_OF(all); i++) tide_release(m, all[i]);
    tide_release(m, dense);
    tide_release(m, indices);
}
static const tide_backward embedding_backward = {"EmbeddingBackward0", embedding_run};

/* For a DTensor that holds some of the rows, backward makes the gradient of all num_weights rows from the original
 * indices. */
static tide_value op_embedding(tide_machine *m, tide_value *a) {
    tide_tensor *indices = tide_arg_tensor(m, a[0]), *weight = tide_arg_tensor(m, a[1]);
    if (weight->shape->dims != 2 || indices->shape->dims >= TIDE_MAX_DIMS) {
        tide_fail(m, TIDE_ERR_SHAPE, "embedding: a weight of %s", tide_shape_text(m, weight->shape));
        return tide_none();
    }
    tide_node *node = tide_node_new(m, &embedding_backward, &weight, 1);
    tide_shape rows = *weight->shape;
    if (a[2].kind == TIDE_VALUE_INT) rows.dim[0].size = a[2].integer;
    if (node) node->extra.shape = &tide_layout_of(m, &rows, NULL)->shape;
    tide_save(m, node, a[3].kind == TIDE_VALUE_TENSOR ? a[3].tensor : indices);
    tide_shape shape = *indices->shape;
    shape.dim[shape.dims].size = weight->shape->dim[1].size;
    shape.dim[shape.dims++].name = weight->shape->dim[1].name;
    tide_tensor *flat = tide_contiguous(m, indices); /* indices.reshape(-1) */
    tide_tensor *made = tide_empty(m, &shape, weight->dtype);
    tide_release(m, flat);
    return tide_of_tensor(tide_set_grad_fn(m, node, made));
}

/* ---- nonzero and what is built on it ---- */

/* The positions of `found` true elements among n: (found, dims) int64. Their number is transferred through a 4-byte
 * counter. */
static tide_tensor *nonzero(tide_machine *m, int64_t n, int64_t found, int dims) {
    tide_tensor *count = tide_scratch(m, 4);
    tide_alloc_and_free(m, count_scratch(&m->device, n));
    const tide_shape shape = {.dims = 2, .dim = {{.size = found}, {.size = dims}}};
    tide_tensor *positions = tide_empty(m, &shape, TIDE_INT64);
    tide_alloc_and_free(m, select_scratch(n));
    tide_release(m, count);
    return positions;
}

/* torch.nonzero of a tensor with `count` nonzero elements: (count, dims) int64. */
static tide_value op_nonzero(tide_machine *m, tide_value *a) {
    const tide_tensor *x = tide_arg_tensor(m, a[0]);
    int64_t found = tide_arg_int(m, a[1]);
    if (found < 0 || found > tide_count(x)) tide_fail(m, TIDE_ERR_SHAPE, "nonzero: more than there are%s", "");
    return tide_is_aborting(m) ? tide_none() : tide_of_tensor(nonzero(m, tide_count(x), found, x->shape->dims));
}

/* ---- x[indices]: integer indices of dimensions side by side, from `dim` on ---- */

/* An index on the host is copied at each use; one of int32 becomes int64 (IndexingUtils.h, expandTensors). */
static tide_tensor *on_device(tide_machine *m, const tide_tensor *index) {
    bool is_moved = index && (index->storage->is_untracked || index->dtype == TIDE_INT32);
    return is_moved ? tide_empty(m, index->shape, index->dtype == TIDE_INT32 ? TIDE_INT64 : index->dtype) : NULL;
}

/* cuda/Indexing.cu, wrapIndexOnce: unless backward computed it, aminmax() and a comparison with each bound. */
static void check_range(tide_machine *m, const tide_tensor *index) {
    tide_tensor *least = tide_scratch(m, 8), *most = tide_scratch(m, 8);
    tide_reduction_scratch(m, index, 1, 16);
    for (int i = 0; i < 2; i++) tide_alloc_and_free(m, 1);
    tide_release(m, most);
    tide_release(m, least);
}

/* index_put_ of `g` with accumulate (cuda/Indexing.cu): the indices are combined into one linear index, which is
 * sorted. An index from the host is wrapped there and is the linear index; `positions` of a mask, or a copy of the
 * index, are no longer needed afterwards. Both are released. */
static void put_accumulated(tide_machine *m, tide_tensor *g, int64_t n, int64_t limit, int indices, tide_tensor *linear,
                            tide_tensor *positions, bool is_deterministic) {
    if (!linear) {
        tide_tensor *wrapped = tide_scratch(m, 8 * n);
        linear = tide_scratch(m, 8 * n);
        tide_release(m, wrapped);
    }
    if (indices > 1) {
        tide_tensor *second = tide_scratch(m, 8 * n), *sum = tide_scratch(m, 8 * n);
        tide_release(m, second);
        tide_release(m, sum);
    }
    tide_release(m, positions);
    tide_tensor *value = tide_contiguous(m, g);
    tide_tensor *sorted = tide_scratch(m, 8 * n), *range = tide_scratch(m, 8 * n), *origin = tide_scratch(m, 8 * n);
    if (is_deterministic) tide_alloc_and_free(m, 8); /* arange: fill_resize_deterministic_() of a view */
    tide_alloc_and_free(
        m, n <= SORT_ALONE ? 1 : tide_sort_scratch(n, limit - 1)); /* a single block sorts without scratch */
    tide_release(m, origin);
    tide_release(m, range);
    tide_release(m, sorted);
    tide_release(m, value);
    tide_release(m, linear);
}

static void index_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    int64_t n = node->of.index.count, indices = node->of.index.indices, limit = 1;
    tide_tensor *moved[TIDE_MAX_DIMS] = {NULL}, *index[TIDE_MAX_DIMS];
    for (int i = 0; i < indices; i++) limit *= node->extra.shape->dim[node->of.index.first_dim + i].size;
    for (int i = 0; i < indices; i++)
        index[i] = tide_saved_at(m, node, i); /* inside of a checkpoint, this recomputes it */
    results[0] = tide_empty(m, node->extra.shape, grads[0]->dtype);
    for (int i = 0; i < indices; i++) moved[i] = on_device(m, index[i]);
    bool is_linear = moved[0] && index[0]->storage->is_untracked;
    put_accumulated(m, grads[0], n, limit, (int)indices, is_linear ? moved[0] : NULL, is_linear ? NULL : moved[0],
                    false);
    for (int i = 1; i < indices; i++) tide_release(m, moved[i]);
    for (int i = 0; i < indices; i++) tide_release(m, index[i]);
}
static const tide_backward index_backward = {"IndexBackward0", index_run};

/* Indices are broadcast against each other; if their strides then differ, those that are not contiguous are copied
 * (aten/src/ATen/native/TensorAdvancedIndexing.cpp, AdvancedIndex). */
static tide_value op_index(tide_machine *m, tide_value *a) {
    tide_tensor *x = tide_arg_tensor(m, a[0]);
    tide_list *list = a[1].kind == TIDE_VALUE_LIST ? a[1].list : NULL;
    int indices = list && list->count <= TIDE_MAX_DIMS ? (int)list->count : 0;
    if (tide_is_aborting(m)) return tide_none();
    tide_shape wide = {0};
    int from = tide_wrap_dim(m, tide_arg_int(m, a[2]), x->shape->dims);
    bool fits = indices > 0 && from + indices <= x->shape->dims;
    for (int i = 0; fits && i < indices; i++) {
        tide_tensor *index = tide_arg_tensor(m, list->items[i]);
        fits = i ? tide_broadcast(m, &wide, &wide, index->shape) : (wide = *index->shape, true);
    }
    if (!fits || wide.dims + x->shape->dims - indices > TIDE_MAX_DIMS) {
        tide_fail(m, TIDE_ERR_SHAPE, "index: %d indices into %s", indices, tide_shape_text(m, x->shape));
        return tide_none();
    }
    tide_tensor *expanded[TIDE_MAX_DIMS];
    bool alike = true;
    for (int i = 0; i < indices; i++) {
        expanded[i] = tide_expand(m, list->items[i].tensor, &wide);
        for (int d = 0; d < wide.dims; d++)
            if (expanded[i]->stride[d] != expanded[0]->stride[d]) alike = false;
    }
    tide_tensor *copies[TIDE_MAX_DIMS] = {0};
    for (int i = 0; i < indices; i++)
        if (!alike && !tide_is_contiguous(expanded[i])) copies[i] = tide_empty(m, &wide, expanded[i]->dtype);
    tide_shape shape = {.dims = 0};
    for (int i = 0; i < x->shape->dims + wide.dims - indices; i++) {
        bool is_kept = i < from || i >= from + wide.dims;
        const tide_shape *of = is_kept ? x->shape : &wide;
        int at = i < from ? i : is_kept ? i - wide.dims + indices : i - from;
        shape.dim[shape.dims].size = of->dim[at].size;
        shape.dim[shape.dims++].name = of->dim[at].name;
    }
    tide_node *node = tide_node_new(m, &index_backward, &x, 1);
    for (int i = 0; i < indices; i++) tide_save(m, node, list->items[i].tensor);
    if (node) {
        node->extra.shape = x->shape;
        node->of.index.count = tide_count_of(&wide);
        node->of.index.indices = indices;
        node->of.index.first_dim = from;
    }
    tide_tensor *moved[TIDE_MAX_DIMS];
    for (int i = 0; i < indices; i++) moved[i] = on_device(m, list->items[i].tensor);
    tide_tensor *out = tide_set_grad_fn(m, node, tide_empty(m, &shape, x->dtype));
    for (int i = 0; i < indices; i++) {
        tide_release(m, expanded[i]);
        tide_release(m, copies[i]);
        tide_release(m, moved[i]);
    }
    return tide_of_tensor(out);
}

/* ---- gather, index_select: one output, a gradient of the whole input ---- */

void tide_gather_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    tide_tensor *saved[2] = {tide_saved_at(m, node, 0), tide_saved_at(m, node, 1)};
    results[0] = tide_empty(m, node->extra.shape, grads[0]->dtype);
    if (saved[0]->is_dtensor || (saved[1] && saved[1]->is_dtensor)) { /* gather_backward: scatter_add() out of place */
        tide_tensor *zeros = results[0];
        results[0] = tide_empty(m, node->extra.shape, grads[0]->dtype);
        tide_release(m, zeros);
    }
    tide_release(m, saved[1]);
    tide_release(m, saved[0]);
}
static const tide_backward gather_backward = {"GatherBackward0", tide_gather_run};

static tide_value op_gather(tide_machine *m, tide_value *a) {
    tide_tensor *x = tide_arg_tensor(m, a[0]), *index = tide_arg_tensor(m, a[2]);
    tide_node *node = tide_node_new(m, &gather_backward, &x, 1);
    if (node) node->extra.shape = x->shape;
    tide_save(m, node, index);
    tide_save(m, node, x);
    return tide_of_tensor(tide_set_grad_fn(m, node, tide_empty(m, index->shape, x->dtype)));
}

static tide_value op_index_select(tide_machine *m, tide_value *a) {
    tide_tensor *x = tide_arg_tensor(m, a[0]), *index = tide_arg_tensor(m, a[2]);
    int dim = tide_wrap_dim(m, tide_arg_int(m, a[1]), x->shape->dims);
    tide_node *node = tide_node_new(m, &gather_backward, &x, 1);
    if (node) node->extra.shape = x->shape;
    tide_save(m, node, index);
    tide_shape shape = *x->shape;
    if (shape.dims) shape.dim[dim].size = tide_count(index), shape.dim[dim].name = index->shape->dim[0].name;
    return tide_of_tensor(tide_set_grad_fn(m, node, tide_empty(m, &shape, x->dtype)));
}

/* ---- masked_scatter: aten/src/ATen/native/cuda/IndexKernel.cpp ---- */

static void masked_scatter_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    tide_tensor *mask = tide_saved_at(m, node, 0);
    if (tide_needs_input_grad(node, 0)) results[0] = tide_elementwise(m, grads, 1, grads[0]->dtype); /* masked_fill */
    if (tide_needs_input_grad(node, 1)) { /* masked_select of as many elements as were written */
        tide_tensor *full = tide_is_contiguous(mask) ? NULL : tide_empty(m, grads[0]->shape, TIDE_BOOL);
        int64_t found = tide_count_of(node->extra.shape);
        tide_tensor *positions = nonzero(m, tide_count(grads[0]), found, grads[0]->shape->dims);
        tide_release(m, full);
        results[1] = tide_empty(m, node->extra.shape, grads[0]->dtype);
        tide_release(m, positions);
    }
    tide_release(m, mask);
}
static const tide_backward masked_scatter_backward = {"MaskedScatterBackward0", masked_scatter_run};

/* launch_masked_scatter_kernel: for each position the index of its source element, and a contiguous source. */
static void masked_scatter_scratch(tide_machine *m, const tide_tensor *x, const tide_tensor *wide,
                                   const tide_tensor *source) {
    tide_tensor *prefix = tide_empty(m, x->shape, TIDE_INT64);
    tide_tensor *full = tide_is_contiguous(wide) ? NULL : tide_empty(m, x->shape, TIDE_BOOL);
    tide_alloc_and_free(m, scan_scratch(tide_count(x), SCAN_TILE_BOOL));
    if (!tide_is_contiguous(source)) tide_alloc_and_free(m, tide_bytes(source));
    tide_release(m, full);
    tide_release(m, prefix);
}

/* Without a graph. */
static tide_value op_masked_scatter_in_place(tide_machine *m, tide_value *a) {
    tide_tensor *x = tide_arg_tensor(m, a[0]), *mask = tide_arg_tensor(m, a[1]), *source = tide_arg_tensor(m, a[2]);
    tide_tensor *wide = tide_expand(m, mask, x->shape);
    masked_scatter_scratch(m, x, wide, source);
    tide_release(m, wide);
    return tide_of_tensor(tide_retain(x));
}

static tide_value op_masked_scatter(tide_machine *m, tide_value *a) {
    tide_tensor *x = tide_arg_tensor(m, a[0]), *mask = tide_arg_tensor(m, a[1]), *source = tide_arg_tensor(m, a[2]);
    tide_tensor *both[2] = {x, source};
    tide_node *node = tide_node_new(m, &masked_scatter_backward, both, 2);
    if (node) node->extra.shape = source->shape;
    tide_tensor *wide = tide_expand(m, mask, x->shape); /* expand_outplace: a view */
    tide_save(m, node, wide);
    tide_tensor *out = tide_set_grad_fn(m, node, tide_empty(m, x->shape, x->dtype));
    masked_scatter_scratch(m, x, wide, source);
    tide_release(m, wide);
    return tide_of_tensor(out);
}

/* x[mask] with a mask of the full shape of x, which selects as many elements as `like` has. */
static tide_value op_masked_select(tide_machine *m, tide_value *a) {
    tide_tensor *x = tide_arg_tensor(m, a[0]), *mask = tide_arg_tensor(m, a[1]), *like = tide_arg_tensor(m, a[2]);
    tide_tensor *full = tide_is_contiguous(mask) ? NULL : tide_empty(m, x->shape, TIDE_BOOL);
    tide_tensor *positions = nonzero(m, tide_count(x), tide_count(like), x->shape->dims);
    tide_release(m, full);
    tide_shape shape = tide_shape1((tide_dim){tide_count(like), 0});
    tide_tensor *out = tide_empty(m, &shape, x->dtype);
    tide_release(m, positions);
    return tide_of_tensor(out);
}

/* ---- x[mask], x[mask] = values: the mask is of x's first dimensions, and found to be true for so many rows ---- */

static tide_shape rows_shape(const tide_shape *x, int mask_dims, tide_dim count) {
    tide_shape shape = tide_shape1(count);
    for (int d = mask_dims; d < x->dims; d++) {
        shape.dim[shape.dims++] = x->dim[d];
    }
    return shape;
}

static bool is_row_mask(tide_machine *m, const tide_tensor *x, const tide_tensor *mask) {
    bool fits = mask->shape->dims > 0 && mask->shape->dims <= x->shape->dims;
    for (int d = 0; fits && d < mask->shape->dims; d++) fits = mask->shape->dim[d].size == x->shape->dim[d].size;
    if (!fits)
        tide_fail(m, TIDE_ERR_SHAPE, "%s: a mask of %s for %s", m->op, tide_shape_text(m, mask->shape),
                  tide_shape_text(m, x->shape));
    return fits;
}

static tide_tensor *read_rows(tide_machine *m, const tide_tensor *mask, const tide_shape *shape, tide_dtype dtype) {
    tide_tensor *positions = nonzero(m, tide_count(mask), shape->dim[0].size, mask->shape->dims);
    tide_tensor *out = tide_empty(m, shape, dtype);
    tide_release(m, positions);
    return out;
}

static void masked_rows_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    tide_tensor *mask = tide_saved_at(m, node, 0);
    int64_t found = grads[0]->shape->dim[0].size;
    results[0] = tide_empty(m, node->extra.shape, grads[0]->dtype);
    tide_tensor *positions = nonzero(m, tide_count(mask), found, mask->shape->dims);
    put_accumulated(m, grads[0], found, tide_count(mask), mask->shape->dims, NULL, positions, false);
    tide_release(m, mask);
}
static const tide_backward masked_rows_backward = {"IndexBackward0", masked_rows_run};

static tide_value op_masked_rows(tide_machine *m, tide_value *a) {
    tide_tensor *x = tide_arg_tensor(m, a[0]), *mask = tide_arg_tensor(m, a[1]);
    if (!is_row_mask(m, x, mask)) return tide_none();
    tide_shape shape = rows_shape(x->shape, mask->shape->dims, (tide_dim){tide_arg_int(m, a[2]), a[2].symbol});
    tide_node *node = tide_node_new(m, &masked_rows_backward, &x, 1);
    if (node) node->extra.shape = x->shape;
    tide_save(m, node, mask);
    return tide_of_tensor(tide_set_grad_fn(m, node, read_rows(m, mask, &shape, (tide_dtype)x->dtype)));
}

/* The gradient of x is a copy with zeroed rows, from which the gradient of the values is read first. */
static void put_rows_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    tide_tensor *mask = tide_saved_at(m, node, 0);
    tide_dim count = {.size = node->of.index.count};
    if (tide_needs_input_grad(node, 0)) {
        tide_tensor *zeros = tide_empty(m, node->extra.shape, grads[0]->dtype);
        results[0] = tide_clone(m, grads[0]);
        tide_release(m, nonzero(m, tide_count(mask), count.size, mask->shape->dims));
        tide_release(m, zeros);
    }
    if (tide_needs_input_grad(node, 1)) {
        tide_shape rows = rows_shape(grads[0]->shape, mask->shape->dims, count);
        results[1] = read_rows(m, mask, &rows, (tide_dtype)grads[0]->dtype);
    }
    tide_release(m, mask);
}
static const tide_backward put_rows_backward = {"IndexPutBackward0", put_rows_run};

/* values: a row for each place of the mask, or one for all of its `count` places. */
static tide_value op_put_rows(tide_machine *m, tide_value *a) {
    tide_tensor *both[2] = {tide_arg_tensor(m, a[0]), tide_arg_tensor(m, a[2])}, *mask = tide_arg_tensor(m, a[1]);
    if (!is_row_mask(m, both[0], mask) || both[1]->shape->dims < 1) return tide_none();
    int64_t count = a[3].kind == TIDE_VALUE_NONE ? both[1]->shape->dim[0].size : tide_arg_int(m, a[3]);
    tide_node *node = tide_node_new(m, &put_rows_backward, both, 2);
    if (node) {
        node->extra.shape = both[1]->shape;
        node->of.index.count = count;
    }
    tide_save(m, node, mask);
    tide_release(m, nonzero(m, tide_count(mask), count, mask->shape->dims));
    tide_tensor *t = tide_alias(m, both[0]);
    return tide_of_tensor(node ? tide_set_grad_fn(m, node, t) : t);
}

/* The gradient of x is passed on; that of the source is selected from it by the index. */
static void index_add_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    tide_tensor *index = tide_saved_at(m, node, 0);
    if (tide_needs_input_grad(node, 0)) results[0] = tide_retain(grads[0]);
    if (tide_needs_input_grad(node, 1)) results[1] = tide_empty(m, node->extra.shape, (tide_dtype)grads[0]->dtype);
    tide_release(m, index);
}
static const tide_backward index_add_backward = {"IndexAddBackward0", index_add_run};

/* Tensor.index_add_(0, index, source). */
static tide_value op_index_add(tide_machine *m, tide_value *a) {
    tide_tensor *both[2] = {tide_arg_tensor(m, a[0]), tide_arg_tensor(m, a[2])}, *index = tide_arg_tensor(m, a[1]);
    tide_node *node = tide_node_new(m, &index_add_backward, both, 2);
    if (node) node->extra.shape = both[1]->shape;
    tide_save(m, node, index);
    tide_tensor *t = tide_alias(m, both[0]);
    return tide_of_tensor(node ? tide_set_grad_fn(m, node, t) : t);
}

/* torchtitan, ops/scatter_add.py: scatter_add of rows by one index each with deterministic algorithms, which put rows
 * by a sorted index (aten/src/ATen/native/TensorAdvancedIndexing.cpp: _scatter_via_index_put). */
static const tide_backward scatter_add_backward = {"GeneratedBackwardFor_torchtitan_deterministic_scatter_add_default",
                                                   index_add_run};

static tide_value op_scatter_add(tide_machine *m, tide_value *a) {
    tide_tensor *both[2] = {tide_arg_tensor(m, a[0]), tide_arg_tensor(m, a[2])}, *index = tide_arg_tensor(m, a[1]);
    tide_node *node = tide_node_new(m, &scatter_add_backward, both, 2);
    if (node) node->extra.shape = both[1]->shape;
    tide_tensor *out = tide_empty_like(m, both[0], (tide_dtype)both[0]->dtype);
    check_range(m, index);
    put_accumulated(m, both[1], tide_count(index), both[0]->shape->dim[0].size, 1, NULL, NULL, true);
    tide_save(m, node, index); /* setup_context */
    return tide_of_tensor(tide_set_grad_fn(m, node, out));
}

/* FunctionsManual.cpp, cumsum_backward: grad.flip(dim).cumsum(dim).flip(dim), in the dtype of the input. */
static void cumsum_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    tide_tensor *grad = tide_to(m, grads[0], node->of.cast.dtype);
    tide_tensor *flipped = tide_empty_like(m, grad, grad->dtype), *sums = tide_empty(m, grad->shape, grad->dtype);
    tide_release(m, tide_contiguous(m, flipped));
    results[0] = tide_empty(m, grad->shape, grad->dtype);
    tide_release(m, sums);
    tide_release(m, flipped);
    tide_release(m, grad);
}
static const tide_backward cumsum_backward = {"CumsumBackward0", cumsum_run};

/* Tensor.cumsum; cuda/ScanKernels.cpp scans a contiguous copy. Autocast only sets its dtype. */
static tide_value op_cumsum(tide_machine *m, tide_value *a) {
    tide_tensor *x = tide_arg_tensor(m, a[0]);
    bool is_half = x->dtype == TIDE_BF16 || x->dtype == TIDE_FP16;
    tide_dtype own = is_half && m->state.autocast_enabled ? TIDE_FP32
                     : tide_dtype_is_float(x->dtype)      ? (tide_dtype)x->dtype
                                                          : TIDE_INT64;
    tide_dtype dtype = dtype_or(a[2], own);
    tide_node *node = tide_node_new(m, &cumsum_backward, &x, 1);
    if (node) node->of.cast.dtype = (tide_dtype)x->dtype;
    tide_tensor *out = tide_empty(m, x->shape, dtype), *cast = tide_to(m, x, dtype), *wide = tide_contiguous(m, cast);
    tide_release(m, cast);
    int dim = tide_wrap_dim(m, tide_arg_int(m, a[1]), x->shape->dims);
    if (x->shape->dims && x->shape->dim[dim].size == tide_count(x))
        tide_alloc_and_free(m, scan_scratch_of(tide_count(x), SCAN_TILE_BOOL, tide_dtype_bytes(dtype)));
    tide_release(m, wide);
    return tide_of_tensor(tide_set_grad_fn(m, node, out));
}

/* torch.cuda.empty_cache() */
static tide_value op_empty_cache(tide_machine *m, tide_value *a) {
    (void)a;
    if (!tide_is_aborting(m)) tide_timeline_empty_cache(&m->timeline);
    return tide_none();
}

static const tide_op index_ops[] = {
    {"empty_cache", "", TIDE_CAST_NONE, op_empty_cache},
    {"empty", "*sizes, dtype=none", TIDE_CAST_NONE, op_empty},
    {"host_tensor", "*sizes, dtype=none", TIDE_CAST_NONE, op_host},
    {"arange", "end, dtype=none", TIDE_CAST_NONE, op_arange},
    {"empty_like", "x, dtype=none", TIDE_CAST_NONE, op_empty_like},
    {"nonzero", "x, count", TIDE_CAST_NONE, op_nonzero},
    {"embedding", "indices, weight, num_weights=none, whole_indices=none", TIDE_CAST_NONE, op_embedding},
    {"index", "x, indices, dim=0", TIDE_CAST_NONE, op_index},
    {"gather", "x, dim, index", TIDE_CAST_NONE, op_gather},
    {"index_select", "x, dim, index", TIDE_CAST_NONE, op_index_select},
    {"masked_scatter", "x, mask, source", TIDE_CAST_NONE, op_masked_scatter},
    {"masked_scatter_", "x, mask, source", TIDE_CAST_NONE, op_masked_scatter_in_place},
    {"masked_rows", "x, mask, count", TIDE_CAST_NONE, op_masked_rows},
    {"put_rows_", "x, mask, values, count=none", TIDE_CAST_NONE, op_put_rows},
    {"index_add_", "x, index, source", TIDE_CAST_NONE, op_index_add},
    {"scatter_add", "x, index, source", TIDE_CAST_NONE, op_scatter_add},
    {"masked_select", "x, mask, like", TIDE_CAST_NONE, op_masked_select},
    {"cumsum", "x, dim=0, dtype=none", TIDE_CAST_NONE, op_cumsum},
};
TIDE_OP_TABLE(index)
