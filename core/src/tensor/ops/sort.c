/* SPDX-License-Identifier: Apache-2.0 */
/* Sorting and maxima: aten/src/ATen/native/cuda/{Sort,TensorTopK}.cu. For scratch memory see Note [Library scratch]. */
#include "base/units.h"
#include "tensor/ops/ops.h"

enum { SORT_TILE = 4608, SORT_TILE_4_BYTES = 5376, SORT_TILE_KEYS = 5760 };
/* cub/device/dispatch/dispatch_radix_sort.cuh, InvokeOnesweep: for each of 256 digits a 64-bit count per pass, and 32
 * bits of look-back per tile. */
enum { RADIX_DIGITS = 256, DIGIT_COUNTS = 8 * RADIX_DIGITS, DIGIT_LOOKBACK = 4 * RADIX_DIGITS };

/* cub::DeviceRadixSort of keys of so many bits with int64 values: one pass for every 8 bits; with several passes, two
 * buffers are used in turn. */
static int64_t sort_scratch_of(int64_t n, int64_t bits, int64_t key_bytes) {
    int64_t passes = bits > 8 ? (bits + 7) / 8 : 1, tile = key_bytes > 4 ? SORT_TILE : SORT_TILE_4_BYTES;
    return (passes > 1 ? TIDE_ROUND_UP(key_bytes * n, TIDE_CUB_PART) + TIDE_ROUND_UP(8 * n, TIDE_CUB_PART) : 0) +
           TIDE_CUB_ALIGNING + TIDE_CUB_PART + DIGIT_COUNTS * passes + DIGIT_LOOKBACK * TIDE_CEIL_DIV(n, tile);
}

int64_t tide_sort_scratch(int64_t n, int64_t limit) {
    int64_t bits = 0;
    for (; limit > 0; limit >>= 1) bits++;
    return sort_scratch_of(n, bits, 8);
}

/* ---- sort, topk: values and indices; the gradient goes back to where the values were (cuda/Sort.cpp, TensorTopK.cu)
 * ---- */

enum { SMALL_SORT = 4096 };

static tide_value pair_of(tide_machine *m, const tide_backward *backward, tide_tensor *x, const tide_shape *shape) {
    tide_node *node = tide_node_new(m, backward, &x, 1);
    if (node) node->extra.shape = x->shape;
    tide_value list = {.kind = TIDE_VALUE_LIST, .list = tide_list_new(m)};
    tide_list_push(m, list.list, tide_of_tensor(tide_set_grad_fn(m, node, tide_empty(m, shape, x->dtype))));
    tide_tensor *indices = tide_empty(m, shape, TIDE_INT64);
    tide_save(m, node, indices);
    tide_list_push(m, list.list, tide_of_tensor(indices));
    return list;
}

static const tide_backward sort_backward = {"SortBackward0", tide_gather_run};
static const tide_backward topk_backward = {"TopkBackward0", tide_gather_run};

/* cuda/Sort.cu, segmented_sort_pairs_by_full_sort(): elements are sorted together with an int2 of index and row each,
 * then by row. */
static void sort_few_rows(tide_machine *m, int64_t n, int64_t key_bytes) {
    tide_tensor *pairs = tide_scratch(m, 8 * n), *sorted = tide_scratch(m, 8 * n),
                *keys = tide_scratch(m, key_bytes * n);
    tide_alloc_and_free(m, sort_scratch_of(n, 8 * key_bytes, key_bytes));
    tide_release(m, keys);
    tide_alloc_and_free(m, TIDE_CUB_ALIGNING + TIDE_CUB_PART + DIGIT_COUNTS +
                               DIGIT_LOOKBACK * TIDE_CEIL_DIV(n, SORT_TILE_KEYS));
    tide_release(m, sorted);
    tide_release(m, pairs);
}

/* segmented_sort_pairs(): the second buffers of a segmented radix sort, which has no counters. */
static void sort_many_rows(tide_machine *m, int64_t n, int64_t key_bytes) {
    tide_tensor *reversed = tide_scratch(m, 8 * n);
    tide_alloc_and_free(m, TIDE_ROUND_UP(key_bytes * n, TIDE_CUB_PART) + TIDE_ROUND_UP(8 * n, TIDE_CUB_PART) +
                               TIDE_CUB_ALIGNING);
    tide_release(m, reversed);
}

static void sort_one_row(tide_machine *m, int64_t length, int64_t key_bytes) {
    tide_tensor *range = tide_scratch(m, 8 * length);
    if (length > SMALL_SORT)
        tide_alloc_and_free(m, key_bytes == 4 ? sort_scratch_of(length, 32, key_bytes)
                                              : tide_sort_scratch(length, INT64_MAX));
    tide_release(m, range);
}

/* With this many rows, they are segments of one sort; rows of this many elements are sorted one by one; the most
 * elements of one sort. */
enum { MANY_ROWS = 128, LONG_ROW = 1000000 };

static void sort_rows(tide_machine *m, int64_t n, int64_t length, int64_t key_bytes) {
    if (length <= SMALL_SORT || n == length)
        sort_one_row(m, length, key_bytes);
    else if (n / length < MANY_ROWS)
        sort_few_rows(m, n, key_bytes);
    else
        sort_many_rows(m, n, key_bytes);
}

/* Along the last dimension. Rows of up to 4,096 elements are sorted in place beside an arange; longer ones by radix
 * sort (launch_stable_sort_kernel). */
static tide_value op_sort(tide_machine *m, tide_value *a) {
    tide_tensor *x = tide_arg_tensor(m, a[0]);
    int64_t length = x->shape->dims ? x->shape->dim[x->shape->dims - 1].size : 1, n = tide_count(x),
            key_bytes = tide_dtype_bytes((tide_dtype)x->dtype);
    bool has_rows = length > SMALL_SORT && n != length;
    if (has_rows && (length >= LONG_ROW || n > INT32_MAX || key_bytes != 4)) {
        tide_fail(m, TIDE_ERR_UNSUPPORTED, "sort: several rows of %lld elements of %s are not described",
                  (long long)length, tide_dtype_names[x->dtype]);
        return tide_none();
    }
    tide_value made = pair_of(m, &sort_backward, x, x->shape);
    sort_rows(m, n, length, key_bytes);
    return made;
}

/* Values and indices of the maxima along the last dimension. */
static tide_value op_max_along(tide_machine *m, tide_value *a) {
    tide_tensor *x = tide_arg_tensor(m, a[0]);
    tide_shape shape = *x->shape;
    if (shape.dims) shape.dims--;
    tide_value made = pair_of(m, &topk_backward, x, &shape);
    if (shape.dims) tide_reduction_scratch(m, x, 1u << shape.dims, 16); /* a value and an index */
    return made;
}

/* cuda/TensorTopK.cu, should_use_multiblock: from so many rows on, up to the next entry, rows of that length are given
 * to several blocks. */
static const struct {
    int64_t rows, length;
} multiblock[] = {{1, 20000}, {21, 10000}, {41, 8000}, {81, 5000}, {200, 3000}, {800, 800}, {4001, 400}};

static bool has_several_blocks(int64_t rows, int64_t length) {
    int64_t least = INT64_MAX;
    for (size_t i = 0; i < sizeof multiblock / sizeof *multiblock && rows >= multiblock[i].rows; i++)
        least = multiblock[i].length;
    return length >= least && rows <= UINT32_MAX && length <= UINT32_MAX;
}

/* torch/_native/ops/topk/aot.py: kernels that need no scratch memory, where each multiprocessor has a row. */
static bool has_native_kernel(const tide_machine *m, tide_dtype dtype, int64_t rows, int64_t length, int64_t k) {
    static const int64_t shortest[][2] = {{64, 2048}, {128, 2048}, {256, 2048}, {512, 4096}, {1024, 32768}};
    static const int64_t shortest_fp32_10[] = {128, 256, 512, 4096, 32768};
    int major = m->device.capability / 10;
    if ((dtype != TIDE_FP32 && dtype != TIDE_BF16) || (major != 9 && major != 10) || rows < m->device.sms) return false;
    bool is_power = (length & (length - 1)) == 0;
    if (dtype == TIDE_FP32 && k == 16 && is_power && length >= 64 && length <= 1024) return major == 9 || length < 1024;
    for (int i = 0; i < 5; i++)
        if (k == shortest[i][0])
            return length % 4 == 0 &&
                   length >= (major == 10 && dtype == TIDE_FP32 ? shortest_fp32_10[i] : shortest[i][1]);
    return false;
}

/* cub's scan by key: the first key of each tile, and 16 bytes for the state of each and of a warp before them. */
static int64_t scan_by_key_scratch(int64_t n) {
    int64_t tiles = TIDE_CEIL_DIV(n, 4032);
    return TIDE_CUB_ALIGNING + TIDE_ROUND_UP(4 * tiles, TIDE_CUB_PART) +
           TIDE_ROUND_UP(16 * (tiles + 32), TIDE_CUB_PART);
}

/* mbtopk: for each row the k-th value, and twice how many are left to find and the digits found; for each block and
 * each row a histogram of digits; for each block how many it has. Blocks have 256 threads of 4 to 64 items. */
static void multiblock_scratch(tide_machine *m, int64_t rows, int64_t length, int64_t value_bytes) {
    int64_t threads = 256, digits = 256, resident = (int64_t)m->device.sms * (65536 / (40 * threads));
    int64_t items = TIDE_CEIL_DIV(rows * length, resident * threads);
    items = items < 4 ? 4 : items > 64 ? 64 : items;
    int64_t blocks = rows * TIDE_CEIL_DIV(length, items * threads), wide = value_bytes < 4 ? 4 : value_bytes;
    int64_t bytes[] = {value_bytes * rows, 8 * rows,   2 * wide * rows, 2 * digits * blocks,
                       4 * digits * rows,  4 * blocks, 4 * blocks};
    enum { BUFFERS = sizeof bytes / sizeof *bytes };
    tide_tensor *buffers[BUFFERS];
    for (int i = 0; i < BUFFERS; i++) buffers[i] = tide_scratch(m, bytes[i]);
    tide_alloc_and_free(m, scan_by_key_scratch(blocks));
    tide_alloc_and_free(m, scan_by_key_scratch(blocks));
    for (int i = BUFFERS; i-- > 0;) tide_release(m, buffers[i]);
}

/* TensorTopK.cpp, topk_out_cuda: more values than a small sort takes are sorted, and the indices gathered. */
static void sort_selected(tide_machine *m, const tide_shape *shape, tide_dtype dtype, int64_t rows, int64_t k) {
    if (k <= SMALL_SORT) return;
    tide_tensor *indices = tide_empty(m, shape, TIDE_INT64), *values = tide_empty(m, shape, dtype);
    sort_rows(m, rows * k, k, tide_dtype_bytes(dtype));
    tide_release(m, tide_empty(m, shape, TIDE_INT64));
    tide_release(m, values);
    tide_release(m, indices);
}

static tide_value op_topk(tide_machine *m, tide_value *a) {
    tide_tensor *x = tide_arg_tensor(m, a[0]);
    tide_shape shape = *x->shape;
    int last = shape.dims - 1;
    int64_t k = tide_arg_int(m, a[1]);
    if (last < 0 || k < 0 || k > shape.dim[last].size) {
        tide_fail(m, TIDE_ERR_SHAPE, "topk: %lld of %s", (long long)k, tide_shape_text(m, x->shape));
        return tide_none();
    }
    int64_t length = shape.dim[last].size, rows = length ? tide_count(x) / length : 0;
    tide_dtype dtype = (tide_dtype)x->dtype;
    shape.dim[last].size = k;
    shape.dim[last].name = a[1].symbol;
    tide_value made = pair_of(m, &topk_backward, x, &shape);
    if (tide_is_contiguous(x) && has_native_kernel(m, dtype, rows, length, k)) return made;
    tide_tensor *input = has_several_blocks(rows, length) ? tide_contiguous(m, x) : NULL;
    if (input) multiblock_scratch(m, rows, length, tide_dtype_bytes(dtype));
    tide_release(m, input);
    sort_selected(m, &shape, dtype, rows, k);
    return made;
}

static const tide_op sort_ops[] = {
    {"sort", "x", TIDE_CAST_NONE, op_sort},
    {"max_along_last", "x", TIDE_CAST_NONE, op_max_along},
    {"topk", "x, k", TIDE_CAST_NONE, op_topk},
};
TIDE_OP_TABLE(sort)
