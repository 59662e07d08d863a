/* Storages, tensors, strides, and the names of dimensions. */
#include "tensor/tensor.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/units.h"

const char *const tide_dtype_names[TIDE_DTYPE_COUNT] = {
#define TIDE_DTYPE(name, text, torch, bytes) text,
#include "tensor/dtype.def"
#undef TIDE_DTYPE
};

static const uint8_t dtype_bytes[TIDE_DTYPE_COUNT] = {
#define TIDE_DTYPE(name, text, torch, bytes) (bytes),
#include "tensor/dtype.def"
#undef TIDE_DTYPE
};

int64_t tide_dtype_bytes(tide_dtype dtype) {
    return dtype_bytes[dtype];
}

bool tide_dtype_is_float(tide_dtype dtype) {
    return dtype >= TIDE_FP16;
}

bool tide_dtype_named(tide_text name, tide_dtype *dtype) {
    static const char *const of_torch[TIDE_DTYPE_COUNT] = {
#define TIDE_DTYPE(name, text, torch, bytes) torch,
#include "tensor/dtype.def"
#undef TIDE_DTYPE
    };
    for (int i = 0; i < TIDE_DTYPE_COUNT; i++) {
        *dtype = (tide_dtype)i;
        if (tide_text_is(name, tide_dtype_names[i]) || tide_text_is(name, of_torch[i])) return true;
    }
    return false;
}

void tide_machine_init(tide_machine *m, tide_arena *arena, tide_diagnostics *diags) {
    memset(m, 0, sizeof *m);
    m->arena = arena;
    m->diags = diags;
    m->state.grad_enabled = true;
    m->state.autocast_dtype = TIDE_AUTOCAST_DTYPE;
    m->device = (tide_device){90, 132, 2048};
    m->state.factor = TIDE_FACTOR_TEMPORARY;
    m->op = "";
    m->op_limit = UINT64_C(10000000); /* about 1 GB of events and what they hold */
    tide_timeline_init(&m->timeline, arena);
    m->symbol_slot_count = 256;
    m->symbol_slots = TIDE_NEW(arena, uint32_t, m->symbol_slot_count);
    TIDE_ROOM(arena, m->symbols, m->symbol_count, m->symbol_capacity);
    m->symbol_count = 1; /* 0: no name */
    m->layout_slot_count = 1024;
    m->layout_slots = TIDE_NEW(arena, tide_layout *, m->layout_slot_count);
}

/* -Wpadded in words: memos compare bytes. */
_Static_assert(sizeof(tide_machine_state) ==
                   3 * sizeof(void *) + sizeof(tide_dtype) + sizeof(tide_factor) + sizeof(uint32_t) + 4 * sizeof(bool),
               "tide_machine_state has padding");

void tide_machine_restore(tide_machine *m, const tide_machine_state *before) {
    tide_tensor *workspaces[2] = {m->state.workspaces[0], m->state.workspaces[1]};
    m->state = *before;
    memcpy(m->state.workspaces, workspaces, sizeof workspaces);
}

tide_machine_state tide_machine_state_key(const tide_machine *m) {
    tide_machine_state key = m->state;
    key.workspaces[!key.is_in_backward] = NULL; /* the other thread's */
    key.saved_tensors_hooks = NULL;             /* their kind, not which ones */
    if (m->state.saved_tensors_hooks) key.saved_tensors_hooks = (void *)(uintptr_t)m->state.saved_tensors_hooks->pair;
    return key;
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

void *tide_pool_alloc(tide_machine *m, size_t bytes) {
    size_t units = TIDE_CEIL_DIV(bytes, UNIT);
    if (units < sizeof m->free_lists / sizeof *m->free_lists && m->free_lists[units]) {
        void *memory = m->free_lists[units];
        memcpy(&m->free_lists[units], memory, sizeof(void *));
        return memset(memory, 0, bytes);
    }
    return tide_arena_alloc(m->arena, units * UNIT);
}

void tide_pool_free(tide_machine *m, void *memory, size_t bytes) {
    size_t units = TIDE_CEIL_DIV(bytes, UNIT);
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
    return a->operator== b->operator&& a->left == b->left && a->right == b->right && a->value == b->value &&
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
    if (operator== '*' && !left.symbol && left.integer == 1) return right.symbol;
    if ((operator== '*' || operator== '/') && !right.symbol && right.integer == 1) return left.symbol;
    if ((operator== '+' || operator== '-') && !right.symbol && right.integer == 0) return left.symbol;
    uint32_t l = left.symbol ? left.symbol : tide_symbol_literal(m, left.integer);
    uint32_t r = right.symbol ? right.symbol : tide_symbol_literal(m, right.integer);
    return symbol_intern(m, (tide_symbol){.operator= operator, .left = l, .right = r});
}

enum { SYMBOL_TEXT_LIMIT = 160 };

static void symbol_print(const tide_machine *m, uint32_t symbol, char outer, char *text, size_t *length, int depth) {
    const tide_symbol *s = &m->symbols[symbol];
    size_t left = SYMBOL_TEXT_LIMIT - *length;
    if (left < 32 || depth > 8) return;
    if (s->operator== 'n' || s->operator== '#') {
        int n = s->operator== 'n' ? snprintf(text + *length, left, "%.*s", (int)s->name.length, s->name.at)
                                  : snprintf(text + *length, left, "%lld", (long long)s->value);
        *length += n > 0 ? ((size_t)n < left ? (size_t)n : left - 1) : 0;
        return;
    }
    bool is_sum = s->operator== '+' || s->operator== '-';
    bool needs_brackets = (is_sum && (outer == '*' || outer == '/')) || outer == '/';
    if (needs_brackets) text[(*length)++] = '(';
    symbol_print(m, s->left, s->operator== '/' ? '*' : s->operator, text, length, depth + 1);
    text[(*length)++] = s->operator;
    symbol_print(m, s->right, s->operator== '-' ? '/' : s->operator, text, length, depth + 1);
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
    for (int i = 0; i < shape->dims; i++) count = times(count, shape->dim[i].size);
    return count;
}

int64_t tide_bytes(const tide_tensor *t) {
    return times(t->layout->count, dtype_bytes[t->dtype]);
}

void tide_contiguous_strides(const tide_shape *shape, int64_t *stride) {
    int64_t next = 1;
    for (int i = shape->dims; i-- > 0;) {
        stride[i] = next;
        next = times(next, shape->dim[i].size > 1 ? shape->dim[i].size : 1);
    }
}

static bool is_contiguous(const tide_layout *l) {
    int64_t next = 1;
    for (int i = l->shape.dims; i-- > 0;) {
        if (l->shape.dim[i].size == 1) continue;
        if (l->stride[i] != next) return false;
        next = times(next, l->shape.dim[i].size);
    }
    return true;
}

/* c10/core/TensorImpl: is_non_overlapping_and_dense. */
static bool is_dense(const tide_layout *l) {
    int order[TIDE_MAX_DIMS], n = 0; /* dimensions above 1 by stride */
    for (int i = 0; i < l->shape.dims; i++) {
        if (l->shape.dim[i].size < 2) continue;
        int at = n++;
        for (; at > 0 && l->stride[order[at - 1]] > l->stride[i]; at--) order[at] = order[at - 1];
        order[at] = i;
    }
    int64_t next = 1;
    for (int k = 0; k < n; k++) {
        if (l->stride[order[k]] != next) return false;
        next = times(next, l->shape.dim[order[k]].size);
    }
    return true;
}

static uint32_t layout_hash(const tide_shape *shape, const int64_t *stride) {
    uint64_t hash = (uint64_t)shape->dims;
    for (int i = 0; i < shape->dims; i++)
        hash = (hash ^
                ((uint64_t)shape->dim[i].size + ((uint64_t)shape->dim[i].name << 40) + ((uint64_t)stride[i] << 20))) *
               UINT64_C(0x9e3779b97f4a7c15);
    return (uint32_t)(hash >> 32);
}

static bool layout_is(const tide_layout *l, const tide_shape *shape, const int64_t *stride) {
    if (l->shape.dims != shape->dims) return false;
    for (int i = 0; i < shape->dims; i++)
        if (l->shape.dim[i].size != shape->dim[i].size || l->stride[i] != stride[i] ||
            l->shape.dim[i].name != shape->dim[i].name)
            return false;
    return true;
}

static uint32_t layout_slot(const tide_machine *m, const tide_shape *shape, const int64_t *stride) {
    uint32_t mask = m->layout_slot_count - 1, at = layout_hash(shape, stride) & mask;
    while (m->layout_slots[at] && !layout_is(m->layout_slots[at], shape, stride)) at = (at + 1) & mask;
    return at;
}

tide_layout *tide_layout_of(tide_machine *m, const tide_shape *shape, const int64_t *stride) {
    int64_t canonical[TIDE_MAX_DIMS];
    if (!stride) tide_contiguous_strides(shape, canonical);
    const int64_t *wanted = stride ? stride : canonical;
    uint32_t slot = layout_slot(m, shape, wanted);
    if (m->layout_slots[slot]) return m->layout_slots[slot];
    tide_layout *made = TIDE_NEW(m->arena, tide_layout, 1);
    made->shape.dims = shape->dims;
    for (int i = 0; i < shape->dims; i++) {
        made->shape.dim[i] = shape->dim[i];
        made->stride[i] = wanted[i];
    }
    made->count = tide_count_of(shape);
    made->is_contiguous = is_contiguous(made);
    made->is_dense = made->is_contiguous || is_dense(made);
    tide_contiguous_strides(shape, canonical);
    made->is_canonical = memcmp(canonical, made->stride, sizeof *canonical * (size_t)shape->dims) == 0;
    m->layout_slots[slot] = made;
    if (++m->layout_count * 2 > m->layout_slot_count) {
        tide_layout **old = m->layout_slots;
        uint32_t count = m->layout_slot_count;
        m->layout_slot_count *= 2;
        m->layout_slots = TIDE_NEW(m->arena, tide_layout *, m->layout_slot_count);
        for (uint32_t i = 0; i < count; i++)
            if (old[i]) m->layout_slots[layout_slot(m, &old[i]->shape, old[i]->stride)] = old[i];
    }
    return made;
}

bool tide_same_shape(const tide_shape *a, const tide_shape *b) {
    if (a == b) return true;
    if (a->dims != b->dims) return false;
    for (int i = 0; i < a->dims; i++)
        if (a->dim[i].size != b->dim[i].size) return false;
    return true;
}

const char *tide_shape_text(tide_machine *m, const tide_shape *shape) {
    char text[256];
    size_t length = 0;
    text[length++] = '[';
    for (int i = 0; i < shape->dims; i++)
        length += (size_t)snprintf(text + length, sizeof text - length, "%s%lld", i ? ", " : "",
                                   (long long)shape->dim[i].size);
    text[length++] = ']';
    return tide_text_copy(m->arena, (tide_text){text, length});
}

tide_shape tide_shape1(tide_dim a) {
    tide_shape shape = {.dims = 1};
    shape.dim[0] = a;
    return shape;
}

tide_dim tide_dim_of(const tide_tensor *t, int dim) {
    return t->shape->dim[dim];
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
        if (made.dim[at].size == 1) {
            made.dim[at] = shorter->dim[i];
        } else if (shorter->dim[i].size != 1 && shorter->dim[i].size != made.dim[at].size) {
            tide_fail(m, TIDE_ERR_SHAPE, "%s: shapes %s and %s do not broadcast", m->op, tide_shape_text(m, a),
                      tide_shape_text(m, b));
            return false;
        } else if (!made.dim[at].name) {
            made.dim[at].name = shorter->dim[i].name;
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
    bool a_counts = a->shape->dims > 0, b_counts = b->shape->dims > 0;
    int a_class = tide_dtype_is_float(a->dtype) ? 2 : a->dtype != TIDE_BOOL;
    int b_class = tide_dtype_is_float(b->dtype) ? 2 : b->dtype != TIDE_BOOL;
    if (a_counts && !b_counts && a_class >= b_class) return a->dtype;
    if (b_counts && !a_counts && b_class >= a_class) return b->dtype;
    return promote_types(a->dtype, b->dtype);
}

/* ---- storages and tensors ---- */

/* The allocation of a storage; its index in the timeline. */
static uint32_t allocate(tide_machine *m, int64_t bytes, tide_layout *layout, tide_dtype dtype) {
    if (!layout->listed) {
        layout->listed = 1 + tide_timeline_shape(&m->timeline, layout->shape.dim, (unsigned)layout->shape.dims);
    }
    return tide_timeline_alloc(&m->timeline, &(tide_allocation){.bytes = (uint64_t)bytes,
                                                                .module = m->module,
                                                                .statement = m->statement,
                                                                .shape = layout->listed - 1,
                                                                .dims = (uint8_t)layout->shape.dims,
                                                                .dtype = (uint8_t)dtype,
                                                                .factor = (uint8_t)m->state.factor,
                                                                .stream = (uint8_t)m->state.stream,
                                                                .op = m->op});
}

static bool has_room(tide_machine *m) {
    if (m->timeline.event_count < UINT32_C(1) << 30) return true;
    tide_fail(m, TIDE_ERR_LIMIT, "more than a thousand million events");
    return false;
}

static tide_storage *storage_new(tide_machine *m, int64_t bytes, tide_layout *layout, tide_dtype dtype) {
    tide_storage *storage = tide_pool_alloc(m, sizeof *storage);
    storage->references = 1;
    storage->serial = ++m->serial;
    storage->is_untracked = tide_is_aborting(m) || bytes == 0 || !has_room(m);
    if (!storage->is_untracked) storage->allocation = allocate(m, bytes, layout, dtype);
    return storage;
}

static void storage_release(tide_machine *m, tide_storage *storage) {
    if (--storage->references) return;
    if (!storage->is_untracked) tide_timeline_free(&m->timeline, storage->allocation);
    tide_pool_free(m, storage, sizeof *storage);
}

/* Bytes of a dense tensor of that shape, or 0 after an error. */
static int64_t shape_bytes(tide_machine *m, const tide_layout *layout, tide_dtype dtype) {
    const tide_shape *shape = &layout->shape;
    for (int i = 0; i < shape->dims; i++)
        if (shape->dim[i].size < 0) {
            tide_fail(m, TIDE_ERR_SHAPE, "%s: a dimension of %lld", m->op, (long long)shape->dim[i].size);
            return 0;
        }
    int64_t bytes;
    if (tide_mul_i64(&bytes, layout->count, dtype_bytes[dtype]) && bytes < INT64_C(1) << 60) return bytes;
    tide_fail(m, TIDE_ERR_OVERFLOW, "%s: a tensor of %s does not fit in 2^60 bytes", m->op, tide_shape_text(m, shape));
    return 0;
}

static void lay_out(tide_tensor *t, tide_layout *layout) {
    t->layout = layout;
    t->shape = &layout->shape;
    t->stride = layout->stride;
}

static tide_tensor *tensor_over(tide_machine *m, tide_storage *storage, tide_layout *layout, tide_dtype dtype) {
    tide_tensor *t = tide_pool_alloc(m, sizeof *t);
    t->references = 1;
    t->serial = ++m->serial;
    t->dtype = (uint8_t)dtype;
    t->is_leaf = true;
    t->storage = storage;
    lay_out(t, layout);
    return t;
}

tide_tensor *tide_tensor_of(tide_machine *m, uint32_t allocation, tide_layout *layout, tide_dtype dtype) {
    tide_storage *storage = tide_pool_alloc(m, sizeof *storage);
    *storage = (tide_storage){.references = 1, .allocation = allocation, .serial = ++m->serial};
    return tensor_over(m, storage, layout, dtype);
}

tide_tensor *tide_empty_laid_out(tide_machine *m, tide_layout *layout, tide_dtype dtype) {
    return tensor_over(m, storage_new(m, shape_bytes(m, layout, dtype), layout, dtype), layout, dtype);
}

tide_tensor *tide_empty(tide_machine *m, const tide_shape *shape, tide_dtype dtype) {
    return tide_empty_laid_out(m, tide_layout_of(m, shape, NULL), dtype);
}

void tide_pin_host(tide_machine *m, int64_t bytes) {
    uint64_t block = 1;
    if (bytes <= 0) return;
    while (block < (uint64_t)bytes) block *= 2;
    m->host_pinned += block;
}

tide_tensor *tide_empty_host(tide_machine *m, const tide_shape *shape, tide_dtype dtype) {
    tide_layout *layout = tide_layout_of(m, shape, NULL);
    shape_bytes(m, layout, dtype);
    return tensor_over(m, storage_new(m, 0, layout, dtype), layout, dtype);
}

tide_tensor *tide_empty_strided(tide_machine *m, const tide_shape *shape, const int64_t *stride, tide_dtype dtype) {
    return tide_empty_laid_out(m, tide_layout_of(m, shape, stride), dtype);
}

tide_tensor *tide_empty_like(tide_machine *m, const tide_tensor *like, tide_dtype dtype) {
    tide_tensor *self = (tide_tensor *)like;
    return tide_empty_laid_out(
        m, tide_is_dense(like) ? like->layout : tide_elementwise_layout(m, like->shape, &self, 1), dtype);
}

tide_tensor *tide_scratch(tide_machine *m, int64_t bytes) {
    tide_shape shape = tide_shape1((tide_dim){bytes, 0});
    return tide_empty(m, &shape, TIDE_UINT8);
}

void tide_alloc_and_free(tide_machine *m, int64_t bytes) {
    if (!m->scratch || m->scratch->count != bytes) {
        tide_shape shape = tide_shape1((tide_dim){bytes, 0});
        m->scratch = tide_layout_of(m, &shape, NULL);
    }
    bytes = shape_bytes(m, m->scratch, TIDE_UINT8);
    if (bytes == 0 || tide_is_aborting(m) || !has_room(m)) return;
    tide_timeline_free(&m->timeline, allocate(m, bytes, m->scratch, TIDE_UINT8));
}

tide_tensor *tide_flat(tide_machine *m, int64_t count, tide_dtype dtype) {
    tide_shape shape = tide_shape1((tide_dim){count, 0});
    return tide_empty(m, &shape, dtype);
}

tide_tensor *tide_scalar(tide_machine *m, tide_dtype dtype) {
    tide_shape shape = {.dims = 0};
    return tide_empty(m, &shape, dtype);
}

void tide_set_data(tide_machine *m, tide_tensor *t, const tide_tensor *from) {
    tide_storage *old = t->storage;
    t->storage = from->storage;
    t->storage->references++;
    storage_release(m, old);
}

void tide_drop_storage(tide_machine *m, const tide_tensor *t) {
    if (t->storage->is_untracked) return;
    tide_timeline_free(&m->timeline, t->storage->allocation);
    t->storage->is_untracked = true;
}

void tide_fill_storage(tide_machine *m, const tide_tensor *t, int64_t count) {
    tide_shape shape = tide_shape1((tide_dim){count, 0});
    bool is_whole = count == tide_count(t); /* without padding: it has the tensor's own shape */
    tide_layout *layout = is_whole ? t->layout : tide_layout_of(m, &shape, NULL);
    int64_t bytes = shape_bytes(m, layout, (tide_dtype)t->dtype);
    tide_drop_storage(m, t);
    if (bytes == 0 || tide_is_aborting(m) || !has_room(m)) return;
    t->storage->allocation = allocate(m, bytes, layout, (tide_dtype)t->dtype);
    t->storage->is_untracked = false;
}

void tide_record_stream(tide_machine *m, const tide_tensor *t, uint8_t stream) {
    if (!t->storage->is_untracked) m->timeline.allocations[t->storage->allocation].used_by = (uint8_t)(stream + 1);
}

tide_tensor *tide_alias(tide_machine *m, const tide_tensor *of) {
    tide_tensor *t = tensor_over(m, of->storage, of->layout, (tide_dtype)of->dtype);
    t->storage->references++;
    t->is_view = of->is_view;
    t->offset = of->offset;
    return t;
}

tide_tensor *tide_view_as(tide_machine *m, const tide_tensor *of, tide_layout *layout) {
    tide_tensor *t = tide_alias(m, of);
    lay_out(t, layout);
    t->is_view = true;
    return t;
}

void tide_tensor_free(tide_machine *m, tide_tensor *t) {
    tide_node *node = t->node;
    tide_tensor *grad = t->grad;
    tide_storage *storage = t->storage;
    tide_pool_free(m, t, sizeof *t);
    tide_release(m, grad); /* c10/core/TensorImpl.cpp: release_resources(): autograd_meta_, then storage_ */
    if (node) tide_node_release(m, node);
    storage_release(m, storage);
}

void tide_set_factor(tide_machine *m, tide_tensor *t, tide_factor factor) {
    if (t && !t->storage->is_untracked) m->timeline.allocations[t->storage->allocation].factor = (uint8_t)factor;
}

/* ---- strides of elementwise results: aten/src/ATen/TensorIterator.cpp ---- */

/* The stride of an input in dimension `dim` of the broadcast shape, 0 where it is broadcast. */
static int64_t broadcast_stride(const tide_tensor *t, const tide_shape *shape, int dim) {
    int at = dim - (shape->dims - t->shape->dims);
    if (at < 0 || (t->shape->dim[at].size == 1 && shape->dim[dim].size != 1)) return 0;
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
        if (shape->dim[dim0].size > shape->dim[dim1].size) return 1;
    }
    return 0;
}

tide_layout *tide_elementwise_layout(tide_machine *m, const tide_shape *shape, tide_tensor *const *inputs, int count) {
    bool all_same = true, all_contiguous = true;
    for (int i = 0; i < count; i++) {
        if (!tide_same_shape(inputs[i]->shape, shape))
            all_same = false;
        else if (!tide_is_contiguous(inputs[i]))
            all_contiguous = false;
    }
    if (all_same && all_contiguous) return tide_layout_of(m, shape, NULL);
    if (all_same && count > 0) { /* compute_fast_setup_type: equal dense strides are kept */
        bool equal = tide_is_dense(inputs[0]);
        for (int i = 1; equal && i < count; i++)
            for (int d = 0; equal && d < shape->dims; d++) equal = inputs[i]->stride[d] == inputs[0]->stride[d];
        if (equal) return tide_layout_of(m, shape, inputs[0]->stride);
    }
    int64_t stride[TIDE_MAX_DIMS];
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
        next = times(next, shape->dim[order[i]].size > 1 ? shape->dim[order[i]].size : 1);
    }
    return tide_layout_of(m, shape, stride);
}

/* ---- values ---- */

/* CPython lets go of a dictionary's values from the first on, of a list's (Objects/listobject.c, list_dealloc) from the
 * last. */
void tide_list_release(tide_machine *m, tide_list *list) {
    if (--list->references) return;
    for (uint32_t i = 0; i < list->count; i++)
        tide_value_release(m, list->items[list->is_output ? i : list->count - 1 - i]);
    if (list->items) tide_pool_free(m, list->items, list->capacity * sizeof *list->items);
    tide_pool_free(m, list, sizeof *list);
}

tide_list *tide_list_new(tide_machine *m) {
    tide_list *list = tide_pool_alloc(m, sizeof *list);
    list->references = 1;
    list->serial = ++m->serial;
    return list;
}

void tide_list_push(tide_machine *m, tide_list *list, tide_value v) {
    if (list->count == list->capacity) {
        uint32_t capacity = list->capacity ? list->capacity * 2 : 4;
        tide_value *items = tide_pool_alloc(m, capacity * sizeof *items);
        if (list->items) {
            memcpy(items, list->items, list->count * sizeof *items);
            tide_pool_free(m, list->items, list->capacity * sizeof *items);
        }
        list->items = items;
        list->capacity = capacity;
    }
    list->items[list->count++] = v;
}
