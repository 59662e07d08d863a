/* Storages, tensors, strides, and the names of dimensions. */
#include "machine.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "../base/checked.h"

const char *const tide_dtype_names[TIDE_DTYPE_COUNT] = {
#define TIDE_DTYPE(name, text, torch, bytes) text,
#include "dtype.def"
#undef TIDE_DTYPE
};

static const uint8_t dtype_bytes[TIDE_DTYPE_COUNT] = {
#define TIDE_DTYPE(name, text, torch, bytes) (bytes),
#include "dtype.def"
#undef TIDE_DTYPE
};

int64_t tide_dtype_bytes(tide_dtype dtype) {
    return dtype_bytes[dtype];
}

bool tide_dtype_is_float(tide_dtype dtype) {
    return dtype >= TIDE_FP16;
}

void tide_machine_init(tide_machine *m, tide_arena *arena, tide_diagnostics *diags) {
    memset(m, 0, sizeof *m);
    m->arena = arena;
    m->diags = diags;
    m->grad_enabled = true;
    m->device = (tide_device){90, 132, 2048};
    m->factor = TIDE_FACTOR_TEMPORARY;
    m->op = "";
    m->op_limit = UINT64_C(10000000); /* about 1 GB of events and what they hold */
    tide_timeline_init(&m->timeline, arena);
    m->symbol_slot_count = 256;
    m->symbol_slots = TIDE_NEW(arena, uint32_t, m->symbol_slot_count);
    TIDE_ROOM(arena, m->symbols, m->symbol_count, m->symbol_capacity);
    m->symbol_count = 1; /* 0: no name */
}

tide_tensor *tide_fail(tide_machine *m, tide_status status, const char *format, ...) {
    if (m->has_failed) return NULL;
    char text[400];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    const char *where = m->where ? m->where(m) : "";
    tide_error(m->diags, status, "/model", tide_format(m->arena, "%s%s%s", where, *where ? ": " : "", text), NULL);
    m->has_failed = true;
    return NULL;
}

/* ---- recycled memory ---- */

enum { UNIT = 32 };

void *tide_take(tide_machine *m, size_t bytes) {
    size_t units = (bytes + UNIT - 1) / UNIT;
    if (units < sizeof m->free_lists / sizeof *m->free_lists && m->free_lists[units]) {
        void *memory = m->free_lists[units];
        memcpy(&m->free_lists[units], memory, sizeof(void *));
        return memset(memory, 0, bytes);
    }
    return tide_arena_alloc(m->arena, units * UNIT);
}

void tide_give(tide_machine *m, void *memory, size_t bytes) {
    size_t units = (bytes + UNIT - 1) / UNIT;
    if (units >= sizeof m->free_lists / sizeof *m->free_lists) return; /* rare and large: the arena keeps it */
    memcpy(memory, &m->free_lists[units], sizeof(void *));
    m->free_lists[units] = memory;
}

/* ---- symbols ---- */

static uint32_t symbol_hash(const tide_symbol *s) {
    uint32_t hash = 2166136261u ^ (uint32_t)s->operator;
    hash = (hash ^ s->left) * 16777619u;
    hash = (hash ^ s->right) * 16777619u;
    hash = (hash ^ (uint32_t)s->value) * 16777619u;
    for (size_t i = 0; i < s->name.length; i++) hash = (hash ^ (unsigned char)s->name.at[i]) * 16777619u;
    return hash;
}

static bool symbol_equal(const tide_symbol *a, const tide_symbol *b) {
    return a->operator == b->operator && a->left == b->left && a->right == b->right && a->value == b->value &&
           tide_text_equal(a->name, b->name);
}

static uint32_t symbol_intern(tide_machine *m, tide_symbol symbol) {
    uint32_t mask = m->symbol_slot_count - 1;
    uint32_t at = symbol_hash(&symbol) & mask;
    for (; m->symbol_slots[at]; at = (at + 1) & mask)
        if (symbol_equal(&m->symbols[m->symbol_slots[at]], &symbol)) return m->symbol_slots[at];
    TIDE_ROOM(m->arena, m->symbols, m->symbol_count, m->symbol_capacity);
    m->symbols[m->symbol_count] = symbol;
    m->symbol_slots[at] = m->symbol_count++;
    if (m->symbol_count * 2 > m->symbol_slot_count) {
        m->symbol_slot_count *= 2;
        m->symbol_slots = TIDE_NEW(m->arena, uint32_t, m->symbol_slot_count);
        mask = m->symbol_slot_count - 1;
        for (uint32_t i = 1; i < m->symbol_count; i++) {
            uint32_t slot = symbol_hash(&m->symbols[i]) & mask;
            while (m->symbol_slots[slot]) slot = (slot + 1) & mask;
            m->symbol_slots[slot] = i;
        }
    }
    return m->symbol_count - 1;
}

uint32_t tide_symbol_name(tide_machine *m, tide_text name) {
    return symbol_intern(m, (tide_symbol){.operator= 'n', .name = name});
}

uint32_t tide_symbol_literal(tide_machine *m, int64_t value) {
    return symbol_intern(m, (tide_symbol){.operator= '#', .value = value});
}

uint32_t tide_symbol_of(tide_machine *m, char operator, tide_value left, tide_value right) {
    if (!left.symbol && !right.symbol) return 0;
    if (operator == '*' && !left.symbol && left.integer == 1) return right.symbol;
    if ((operator == '*' || operator == '/') && !right.symbol && right.integer == 1) return left.symbol;
    if ((operator == '+' || operator == '-') && !right.symbol && right.integer == 0) return left.symbol;
    uint32_t l = left.symbol ? left.symbol : tide_symbol_literal(m, left.integer);
    uint32_t r = right.symbol ? right.symbol : tide_symbol_literal(m, right.integer);
    return symbol_intern(m, (tide_symbol){.operator= operator, .left = l, .right = r});
}

enum { SYMBOL_TEXT_LIMIT = 160 };

static void symbol_print(const tide_machine *m, uint32_t symbol, char outer, char *text, size_t *length, int depth) {
    const tide_symbol *s = &m->symbols[symbol];
    size_t left = SYMBOL_TEXT_LIMIT - *length;
    if (left < 32 || depth > 8) return;
    if (s->operator == 'n' || s->operator == '#') {
        int n = s->operator == 'n' ? snprintf(text + *length, left, "%.*s", (int)s->name.length, s->name.at)
                                   : snprintf(text + *length, left, "%lld", (long long)s->value);
        *length += n > 0 ? ((size_t)n < left ? (size_t)n : left - 1) : 0;
        return;
    }
    bool is_sum = s->operator == '+' || s->operator == '-';
    bool needs_brackets = (is_sum && (outer == '*' || outer == '/')) || outer == '/';
    if (needs_brackets) text[(*length)++] = '(';
    symbol_print(m, s->left, s->operator == '/' ? '*' : s->operator, text, length, depth + 1);
    text[(*length)++] = s->operator;
    symbol_print(m, s->right, s->operator == '-' ? '/' : s->operator, text, length, depth + 1);
    if (needs_brackets) text[(*length)++] = ')';
    text[*length] = 0;
}

const char *tide_symbol_text(tide_machine *m, uint32_t symbol) {
    char text[SYMBOL_TEXT_LIMIT + 8] = "";
    size_t length = 0;
    if (symbol) symbol_print(m, symbol, 0, text, &length, 0);
    return tide_text_copy(m->arena, (tide_text){text, length});
}

/* ---- shapes ---- */

/* Saturates: a view may have more elements than 63 bits count, and is refused where it is stored. */
static int64_t times(int64_t a, int64_t b) {
    int64_t product;
    return tide_mul_i64(&product, a, b) ? product : INT64_MAX;
}

int64_t tide_count_of(const tide_shape *shape) {
    int64_t count = 1;
    for (int i = 0; i < shape->dims; i++) count = times(count, shape->size[i]);
    return count;
}

int64_t tide_count(const tide_tensor *t) {
    return tide_count_of(&t->shape);
}

int64_t tide_bytes(const tide_tensor *t) {
    return times(tide_count(t), dtype_bytes[t->dtype]);
}

void tide_contiguous_strides(const tide_shape *shape, int64_t *stride) {
    int64_t next = 1;
    for (int i = shape->dims; i-- > 0;) {
        stride[i] = next;
        next = times(next, shape->size[i] > 1 ? shape->size[i] : 1);
    }
}

bool tide_is_contiguous(const tide_tensor *t) {
    int64_t next = 1;
    for (int i = t->shape.dims; i-- > 0;) {
        if (t->shape.size[i] == 1) continue;
        if (t->stride[i] != next) return false;
        next = times(next, t->shape.size[i]);
    }
    return true;
}

bool tide_is_dense(const tide_tensor *t) {
    if (tide_is_contiguous(t)) return true;
    int order[TIDE_MAX_DIMS], n = 0; /* dimensions above 1 by stride; c10/core/TensorImpl: is_non_overlapping_and_dense */
    for (int i = 0; i < t->shape.dims; i++) {
        if (t->shape.size[i] < 2) continue;
        int at = n++;
        for (; at > 0 && t->stride[order[at - 1]] > t->stride[i]; at--) order[at] = order[at - 1];
        order[at] = i;
    }
    int64_t next = 1;
    for (int k = 0; k < n; k++) {
        if (t->stride[order[k]] != next) return false;
        next = times(next, t->shape.size[order[k]]);
    }
    return true;
}

bool tide_same_shape(const tide_shape *a, const tide_shape *b) {
    if (a->dims != b->dims) return false;
    for (int i = 0; i < a->dims; i++)
        if (a->size[i] != b->size[i]) return false;
    return true;
}

const char *tide_shape_text(tide_machine *m, const tide_shape *shape) {
    char text[256];
    size_t length = 0;
    text[length++] = '[';
    for (int i = 0; i < shape->dims; i++)
        length += (size_t)snprintf(text + length, sizeof text - length, "%s%lld", i ? ", " : "", (long long)shape->size[i]);
    text[length++] = ']';
    return tide_text_copy(m->arena, (tide_text){text, length});
}

tide_shape tide_shape1(tide_dim a) {
    tide_shape shape = {.dims = 1};
    shape.size[0] = a.n;
    shape.name[0] = a.name;
    return shape;
}

tide_dim tide_dim_of(const tide_tensor *t, int dim) {
    return (tide_dim){t->shape.size[dim], t->shape.name[dim]};
}

int tide_wrap_dim(tide_machine *m, int64_t dim, int dims) {
    int64_t limit = dims ? dims : 1;
    if (dim < -limit || dim >= limit) {
        tide_fail(m, TIDE_ERR_SHAPE, "dimension %lld of a tensor with %d", (long long)dim, dims);
        return 0;
    }
    return (int)(dim < 0 ? dim + limit : dim);
}

bool tide_broadcast(tide_machine *m, tide_shape *out, const tide_shape *a, const tide_shape *b) {
    tide_shape made = a->dims >= b->dims ? *a : *b;
    const tide_shape *shorter = a->dims >= b->dims ? b : a;
    for (int i = 0; i < shorter->dims; i++) {
        int at = made.dims - shorter->dims + i;
        if (made.size[at] == 1) {
            made.size[at] = shorter->size[i];
            made.name[at] = shorter->name[i];
        } else if (shorter->size[i] != 1 && shorter->size[i] != made.size[at]) {
            tide_fail(m, TIDE_ERR_SHAPE, "%s: shapes %s and %s do not broadcast", m->op, tide_shape_text(m, a),
                      tide_shape_text(m, b));
            return false;
        } else if (!made.name[at]) {
            made.name[at] = shorter->name[i];
        }
    }
    *out = made;
    return true;
}

/* c10/core/ScalarType promoteTypes and ATen/native/TypeProperties result_type, for two tensors. */
static tide_dtype promote_types(tide_dtype a, tide_dtype b) {
    if (a == b) return a;
    if ((a == TIDE_FP16 && b == TIDE_BF16) || (a == TIDE_BF16 && b == TIDE_FP16)) return TIDE_FP32;
    if ((a == TIDE_UINT8 && b == TIDE_INT8) || (a == TIDE_INT8 && b == TIDE_UINT8)) return TIDE_INT32;
    return a > b ? a : b;
}

tide_dtype tide_promote(const tide_tensor *a, const tide_tensor *b) {
    bool a_counts = a->shape.dims > 0, b_counts = b->shape.dims > 0;
    int a_class = tide_dtype_is_float(a->dtype) ? 2 : a->dtype != TIDE_BOOL;
    int b_class = tide_dtype_is_float(b->dtype) ? 2 : b->dtype != TIDE_BOOL;
    if (a_counts && !b_counts && a_class >= b_class) return a->dtype;
    if (b_counts && !a_counts && b_class >= a_class) return b->dtype;
    return promote_types(a->dtype, b->dtype);
}

/* ---- storages and tensors ---- */

static tide_storage *storage_new(tide_machine *m, int64_t bytes, const tide_shape *shape, tide_dtype dtype) {
    tide_storage *storage = tide_take(m, sizeof *storage);
    storage->references = 1;
    if (tide_is_winding_down(m) || bytes == 0) {
        storage->is_silent = true;
        return storage;
    }
    tide_allocation made = {.bytes = (uint64_t)bytes,
                            .module = m->module,
                            .statement = m->statement,
                            .dims = (uint8_t)shape->dims,
                            .dtype = (uint8_t)dtype,
                            .factor = (uint8_t)m->factor,
                            .op = m->op};
    tide_dim dims[TIDE_MAX_DIMS];
    for (int i = 0; i < shape->dims; i++) dims[i] = (tide_dim){shape->size[i], shape->name[i]};
    if (m->timeline.event_count >= UINT32_C(1) << 30) {
        tide_fail(m, TIDE_ERR_LIMIT, "more than a thousand million events");
        storage->is_silent = true;
        return storage;
    }
    storage->allocation = tide_timeline_alloc(&m->timeline, &made, dims);
    return storage;
}

static void storage_release(tide_machine *m, tide_storage *storage) {
    if (--storage->references) return;
    if (!storage->is_silent) tide_timeline_free(&m->timeline, storage->allocation);
    tide_give(m, storage, sizeof *storage);
}

/* Bytes of a dense tensor of that shape, or 0 after an error. */
static int64_t shape_bytes(tide_machine *m, const tide_shape *shape, tide_dtype dtype) {
    int64_t bytes = dtype_bytes[dtype];
    for (int i = 0; i < shape->dims; i++) {
        if (shape->size[i] < 0) {
            tide_fail(m, TIDE_ERR_SHAPE, "%s: a dimension of %lld", m->op, (long long)shape->size[i]);
            return 0;
        }
        if (!tide_mul_i64(&bytes, bytes, shape->size[i]) || bytes >= INT64_C(1) << 60) {
            tide_fail(m, TIDE_ERR_OVERFLOW, "%s: a tensor of %s does not fit in 2^60 bytes", m->op, tide_shape_text(m, shape));
            return 0;
        }
    }
    return bytes;
}

static tide_tensor *tensor_over(tide_machine *m, tide_storage *storage, const tide_shape *shape, tide_dtype dtype) {
    tide_tensor *t = tide_take(m, sizeof *t);
    t->references = 1;
    t->dtype = (uint8_t)dtype;
    t->is_leaf = true;
    t->storage = storage;
    t->shape = *shape;
    return t;
}

tide_tensor *tide_empty(tide_machine *m, const tide_shape *shape, tide_dtype dtype) {
    int64_t bytes = shape_bytes(m, shape, dtype);
    tide_tensor *t = tensor_over(m, storage_new(m, bytes, shape, dtype), shape, dtype);
    tide_contiguous_strides(shape, t->stride);
    return t;
}

tide_tensor *tide_empty_host(tide_machine *m, const tide_shape *shape, tide_dtype dtype) {
    shape_bytes(m, shape, dtype);
    tide_tensor *t = tensor_over(m, storage_new(m, 0, shape, dtype), shape, dtype);
    tide_contiguous_strides(shape, t->stride);
    return t;
}

tide_tensor *tide_empty_strided(tide_machine *m, const tide_shape *shape, const int64_t *stride, tide_dtype dtype) {
    tide_tensor *t = tide_empty(m, shape, dtype);
    memcpy(t->stride, stride, sizeof t->stride);
    return t;
}

tide_tensor *tide_empty_like(tide_machine *m, const tide_tensor *like, tide_dtype dtype) {
    tide_tensor *self = (tide_tensor *)like;
    int64_t stride[TIDE_MAX_DIMS];
    if (tide_is_dense(like)) memcpy(stride, like->stride, sizeof stride);
    else tide_elementwise_strides(&like->shape, &self, 1, stride); /* at::infer_dense_strides */
    return tide_empty_strided(m, &like->shape, stride, dtype);
}

tide_tensor *tide_scratch(tide_machine *m, int64_t bytes) {
    tide_shape shape = tide_shape1((tide_dim){bytes, 0});
    return tide_empty(m, &shape, TIDE_UINT8);
}

void tide_touch(tide_machine *m, int64_t bytes) {
    tide_release(m, tide_scratch(m, bytes));
}

tide_tensor *tide_alias(tide_machine *m, const tide_tensor *of) {
    tide_tensor *t = tide_take(m, sizeof *t);
    *t = *of;
    t->references = 1;
    t->storage->references++;
    t->requires_grad = false;
    t->is_leaf = true;
    t->is_parameter = false;
    t->node = t->accumulator = NULL;
    t->grad = t->cast = NULL;
    t->output = 0;
    return t;
}

tide_tensor *tide_retain(tide_tensor *t) {
    if (t) t->references++;
    return t;
}

void tide_release(tide_machine *m, tide_tensor *t) {
    if (!t || --t->references) return;
    tide_node *node = t->node;
    tide_tensor *grad = t->grad;
    storage_release(m, t->storage);
    tide_give(m, t, sizeof *t);
    if (grad) tide_release(m, grad);
    if (node) tide_node_release(m, node);
}

void tide_release_at(tide_machine *m, tide_tensor **t) {
    tide_tensor *old = *t;
    *t = NULL;
    tide_release(m, old);
}

void tide_set_factor(tide_machine *m, tide_tensor *t, tide_factor factor) {
    if (t && !t->storage->is_silent) m->timeline.allocations[t->storage->allocation].factor = (uint8_t)factor;
}

/* ---- strides of elementwise results: aten/src/ATen/TensorIterator.cpp ---- */

/* The stride of an input in dimension `dim` of the broadcast shape, 0 where it is broadcast. */
static int64_t broadcast_stride(const tide_tensor *t, const tide_shape *shape, int dim) {
    int at = dim - (shape->dims - t->shape.dims);
    if (at < 0 || (t->shape.size[at] == 1 && shape->size[dim] != 1)) return 0;
    return t->stride[at];
}

/* -1: dim0 is inner and stays; 1: they swap; 0: undecided (reorder_dimensions: should_swap). */
static int compare_dims(const tide_shape *shape, tide_tensor *const *inputs, int count, int dim0, int dim1) {
    for (int i = 0; i < count; i++) {
        int64_t s0 = broadcast_stride(inputs[i], shape, dim0);
        int64_t s1 = broadcast_stride(inputs[i], shape, dim1);
        if (s0 == 0 || s1 == 0) continue;
        if (s0 < s1) return -1;
        if (s0 > s1) return 1;
        if (shape->size[dim0] > shape->size[dim1]) return 1;
    }
    return 0;
}

void tide_elementwise_strides(const tide_shape *shape, tide_tensor *const *inputs, int count, int64_t *stride) {
    bool all_same = true, all_contiguous = true;
    for (int i = 0; i < count; i++) {
        if (!tide_same_shape(&inputs[i]->shape, shape)) all_same = false;
        else if (!tide_is_contiguous(inputs[i])) all_contiguous = false;
    }
    if (all_same && all_contiguous) {
        tide_contiguous_strides(shape, stride);
        return;
    }
    if (all_same && count > 0) { /* compute_fast_setup_type: equal dense strides are kept */
        bool equal = tide_is_dense(inputs[0]);
        for (int i = 1; equal && i < count; i++)
            for (int d = 0; equal && d < shape->dims; d++) equal = inputs[i]->stride[d] == inputs[0]->stride[d];
        if (equal) {
            memcpy(stride, inputs[0]->stride, sizeof(int64_t) * TIDE_MAX_DIMS);
            return;
        }
    }
    int order[TIDE_MAX_DIMS]; /* innermost first */
    for (int i = 0; i < shape->dims; i++) order[i] = shape->dims - 1 - i;
    for (int i = 1; i < shape->dims; i++) {
        int dim1 = i;
        for (int dim0 = i - 1; dim0 >= 0; dim0--) {
            int comparison = compare_dims(shape, inputs, count, order[dim0], order[dim1]);
            if (comparison > 0) {
                int swapped = order[dim0];
                order[dim0] = order[dim1];
                order[dim1] = swapped;
                dim1 = dim0;
            } else if (comparison < 0) {
                break;
            }
        }
    }
    int64_t next = 1;
    for (int i = 0; i < shape->dims; i++) {
        stride[order[i]] = next;
        next = times(next, shape->size[order[i]] > 1 ? shape->size[order[i]] : 1);
    }
}

/* ---- values ---- */

tide_value tide_value_retain(tide_value v) {
    if (v.kind == TIDE_VALUE_TENSOR) v.tensor->references++;
    else if (v.kind == TIDE_VALUE_LIST) v.list->references++;
    return v;
}

void tide_value_release(tide_machine *m, tide_value v) {
    if (v.kind == TIDE_VALUE_TENSOR) {
        tide_release(m, v.tensor);
    } else if (v.kind == TIDE_VALUE_LIST && --v.list->references == 0) {
        for (uint32_t i = 0; i < v.list->count; i++) tide_value_release(m, v.list->items[i]);
        if (v.list->items) tide_give(m, v.list->items, v.list->capacity * sizeof *v.list->items);
        tide_give(m, v.list, sizeof *v.list);
    }
}

tide_list *tide_list_new(tide_machine *m) {
    tide_list *list = tide_take(m, sizeof *list);
    list->references = 1;
    return list;
}

void tide_list_push(tide_machine *m, tide_list *list, tide_value v) {
    if (list->count == list->capacity) {
        uint32_t capacity = list->capacity ? list->capacity * 2 : 4;
        tide_value *items = tide_take(m, capacity * sizeof *items);
        if (list->items) {
            memcpy(items, list->items, list->count * sizeof *items);
            tide_give(m, list->items, list->capacity * sizeof *items);
        }
        list->items = items;
        list->capacity = capacity;
    }
    list->items[list->count++] = v;
}
