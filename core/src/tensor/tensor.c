/* SPDX-License-Identifier: Apache-2.0 */
/* Storages and tensors, and the lists of values that refer to them. */
#include "tensor/tensor.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/units.h"

void tide_machine_init(tide_machine *m, tide_arena *arena, tide_diagnostics *diags) {
    memset(m, 0, sizeof *m);
    m->arena = arena;
    m->diags = diags;
    m->state.grad_enabled = true;
    m->state.autocast_dtype = TIDE_AUTOCAST_DTYPE;
    m->device = TIDE_DEVICE_DEFAULT;
    m->state.factor = TIDE_FACTOR_TEMPORARY;
    m->op = "";
    m->op_limit = UINT64_C(10000000); /* about 1 GB of events and their allocations */
    tide_timeline_init(&m->timeline, arena);
    m->symbol_slot_count = 256;
    m->symbol_slots = TIDE_NEW(arena, uint32_t, m->symbol_slot_count);
    TIDE_ROOM(arena, m->symbols, m->symbol_count, m->symbol_capacity);
    m->symbol_count = 1; /* 0: no name */
    m->layout_slot_count = 1024;
    m->layout_slots = TIDE_NEW(arena, tide_layout *, m->layout_slot_count);
}

/* No padding, as -Wpadded would tell: memos compare the bytes. */
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
    key.workspaces[!key.is_in_backward] = NULL; /* that of the other thread */
    key.saved_tensors_hooks = NULL;             /* only their kind matters */
    if (m->state.saved_tensors_hooks) key.saved_tensors_hooks = (void *)(uintptr_t)m->state.saved_tensors_hooks->pair;
    return key;
}

/* For messages that do not say what to do. */
static const char *way_out(const tide_machine *m, tide_status status, const char *text) {
    if (strstr(text, "; ")) return NULL;
    if (status == TIDE_ERR_SHAPE && m->has_dtensors)
        return "what the plan cuts does not fit to what it leaves whole: parallel.kind=tp parallel.tp_plan=auto has "
               "transformers' own plan, and fsdp2 and zero3 run the model as it is";
    if (status == TIDE_ERR_CONFLICT && strstr(text, "the same dtype"))
        return "autocast casts both, except in DeepSpeed's engine (parallel.half=none casts nothing there); of a "
               "quantised model, quant.skip (llm_int8_skip_modules) names what stays as it is by the beginning or end "
               "of its path, such as model.vision_tower,model.embed_vision,lm_head";
    if (strstr(text, "'tuple' object has no attribute 'dtype'"))
        return "peft's layer casts what the layer under it returns, which is several tensors here: name that one in "
               "adapter.exclude_modules";
    if (status == TIDE_ERR_LIMIT) return "give less of it: fewer tokens (seq), layers (num_hidden_layers) or steps";
    if (status == TIDE_ERR_SHAPE)
        return "sizes do not agree there: give the whole config.json, or run the program by `tidemark dry-run`";
    return NULL;
}

enum { FAILURE_TEXT = 400 };

tide_tensor *tide_fail(tide_machine *m, tide_status status, const char *format, ...) {
    if (m->has_failed) return NULL;
    char text[FAILURE_TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    const char *where = m->where ? m->where(m) : "";
    tide_error(m->diags, status, "/model", tide_format(m->arena, "%s%s%s", where, *where ? ": " : "", text),
               way_out(m, status, text));
    m->has_failed = true;
    return NULL;
}

tide_tensor *tide_fail_setting(tide_machine *m, tide_status status, const char *setting, const char *format, ...) {
    if (m->has_failed) return NULL;
    char text[FAILURE_TEXT], *remedy = NULL;
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    for (char *end = strstr(text, "; "); end; end = strstr(end + 1, "; ")) remedy = end;
    if (remedy) *remedy = 0;
    tide_error(m->diags, status, tide_format(m->arena, "/settings/%s", setting), tide_format(m->arena, "%s", text),
               remedy ? tide_format(m->arena, "%s", remedy + 2) : NULL);
    m->has_failed = true;
    return NULL;
}

/* ---- recycled memory ---- */

enum { UNIT = 16 };

/* Larger pieces go back to the arena: the graph of a long scan, say, is gone before its events are played. */
enum { LARGE_PIECE = 128 << 10 };

/* The free pieces with room for so many bytes. `units`: their size, above a limit a power of two. */
static tide_free_piece **free_pieces(tide_machine *m, size_t bytes, size_t *units) {
    size_t least = TIDE_CEIL_DIV(bytes, UNIT);
    if (least < TIDE_COUNT_OF(m->free_pieces)) return &m->free_pieces[*units = least];
    unsigned power = 0;
    while ((size_t)1 << power < least) power++;
    *units = (size_t)1 << power;
    return &m->large_free_pieces[power];
}

void *tide_pool_alloc(tide_machine *m, size_t bytes) {
    if (bytes > LARGE_PIECE) return tide_arena_grow(m->arena, NULL, 0, bytes);
    size_t units;
    tide_free_piece **list = free_pieces(m, bytes, &units), *piece = *list;
    if (!piece) return tide_arena_alloc(m->arena, units * UNIT);
    *list = piece->next;
    return memset(piece, 0, bytes);
}

void tide_pool_free(tide_machine *m, void *memory, size_t bytes) {
    if (bytes > LARGE_PIECE) {
        tide_arena_drop(m->arena, memory);
        return;
    }
    size_t units;
    tide_free_piece **list = free_pieces(m, bytes, &units), *piece = memory;
    piece->next = *list;
    *list = piece;
}

/* ---- storages and tensors ---- */

/* Allocates a storage; returns its index in the timeline. */
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

static void free_allocation(tide_machine *m, uint32_t allocation) {
    tide_freed_by by = m->freeing ? m->freeing : TIDE_FREED_BY_LOOP;
    tide_timeline_free(&m->timeline, allocation, &(tide_freeing){m->op, m->module, m->statement, by});
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
    TIDE_INVARIANT(storage->references > 0);
    if (--storage->references) return;
    if (!storage->is_untracked) free_allocation(m, storage->allocation);
    tide_pool_free(m, storage, sizeof *storage);
}

/* The bytes of a dense tensor of that shape; 0 after an error. */
static int64_t shape_bytes(tide_machine *m, const tide_layout *layout, tide_dtype dtype) {
    const tide_shape *shape = &layout->shape;
    for (int i = 0; i < shape->dims; i++)
        if (shape->dim[i].size < 0) {
            tide_fail(m, TIDE_ERR_SHAPE, "%s: a dimension of %lld", m->op, (long long)shape->dim[i].size);
            return 0;
        }
    int64_t bytes;
    if (tide_mul_i64(&bytes, layout->count, tide_dtype_bytes(dtype)) && bytes < INT64_C(1) << 60) return bytes;
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
    int64_t bytes = shape_bytes(m, layout, dtype);
    return tensor_over(m, storage_new(m, m->makes_on_host ? 0 : bytes, layout, dtype), layout, dtype);
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
    if (bytes == 0 || m->makes_on_host || tide_is_aborting(m) || !has_room(m)) return;
    free_allocation(m, allocate(m, bytes, m->scratch, TIDE_UINT8));
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
    free_allocation(m, t->storage->allocation);
    t->storage->is_untracked = true;
}

void tide_fill_storage(tide_machine *m, const tide_tensor *t, int64_t count) {
    tide_shape shape = tide_shape1((tide_dim){count, 0});
    bool is_whole = count == tide_count(t); /* without padding the storage has the shape of the tensor */
    tide_layout *layout = is_whole ? t->layout : tide_layout_of(m, &shape, NULL);
    int64_t bytes = shape_bytes(m, layout, (tide_dtype)t->dtype);
    tide_drop_storage(m, t);
    if (bytes == 0 || tide_is_aborting(m) || !has_room(m)) return;
    t->storage->allocation = allocate(m, bytes, layout, (tide_dtype)t->dtype);
    t->storage->is_untracked = false;
}

void tide_record_stream(tide_machine *m, const tide_tensor *t, uint8_t stream) {
    if (!t->storage->is_untracked)
        tide_timeline_at(&m->timeline, t->storage->allocation)->used_by = (uint8_t)(stream + 1);
}

tide_tensor *tide_alias(tide_machine *m, const tide_tensor *of) {
    tide_tensor *t = tensor_over(m, of->storage, of->layout, (tide_dtype)of->dtype);
    t->storage->references++;
    t->is_view = of->is_view;
    t->is_replicated = of->is_replicated && !of->has_partial_grad;
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

void tide_del(tide_machine *m, const char *what, tide_tensor *t) {
    tide_freeing before = tide_freeing_begins(m, TIDE_FREED_BY_LOOP, what);
    m->module = m->statement = 0;
    tide_release(m, t);
    tide_freeing_ends(m, before);
}

void tide_set_factor(tide_machine *m, tide_tensor *t, tide_factor factor) {
    if (t && !t->storage->is_untracked)
        tide_timeline_at(&m->timeline, t->storage->allocation)->factor = (uint8_t)factor;
}

/* ---- values ---- */

/* CPython releases the values of a dictionary from the first on, those of a list (Objects/listobject.c, list_dealloc)
 * from the last. */
void tide_list_release(tide_machine *m, tide_list *list) {
    TIDE_INVARIANT(list->references > 0);
    if (--list->references) return;
    for (uint32_t i = 0; i < list->count; i++)
        tide_value_release(m, list->items[list->is_output ? i : list->count - 1 - i]);
    if (list->items) tide_pool_free(m, list->items, list->capacity * sizeof *list->items);
    *list = (tide_list){.items = (void *)m->spare_lists};
    m->spare_lists = list;
}

tide_list *tide_list_new(tide_machine *m) {
    tide_list *list = m->spare_lists;
    if (list)
        m->spare_lists = (void *)list->items;
    else
        list = tide_pool_alloc(m, sizeof *list);
    *list = (tide_list){.references = 1, .serial = ++m->serial};
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
