/* SPDX-License-Identifier: Apache-2.0 */
/* Saved tensors on the host: torch/autograd/graph.py, save_on_cpu; trl/models/activation_offloading.py,
 * OffloadActivations.
 *
 * Note [Stashes]: TRL copies on a stream of its own. In forward, a tensor that is being copied to the host stays in a
 * stash until enough others have followed. In backward, a tensor that was brought back stays in another stash until the
 * node after the one that needed it has run; if something else still refers to its memory by then, its block waits for
 * the compute stream (record_stream). */
#include "tensor/offload.h"

enum { FWD_STASH_SIZE = 5, MIN_OFFLOAD_SIZE = 1024, COMMUNICATION_STREAM = 1 };

/* What pack_tensor() stores under a tensor_id. */
typedef struct offloaded {
    tide_tensor *kept; /* on the device: a tensor that is not offloaded */
    tide_layout *layout;
    uint64_t pinned;               /* bytes of pinned memory */
    int64_t offset, storage_count; /* elements; storage_count: for a broadcast tensor, whose storage is copied */
    uint8_t dtype;
    bool is_away, requires_grad;
    tide_node *grad_fn; /* unless it is an output of the node that saves it; owned */
    uint16_t output;
    tide_tensor *stashed;    /* fwd_stash */
    tide_tensor *brought;    /* bwd_tensor_stash */
    uint32_t references;     /* to its storage, when it was unpacked */
    uint32_t storage_serial; /* storage_key: 0: not tracked */
    int64_t storage_offset;
} offloaded;

struct tide_offload {
    tide_saved_tensors_hooks hooks;
    tide_machine *m;
    bool is_of_trl;
    offloaded *tensors; /* by tensor_id */
    uint32_t count, capacity, first_stashed;
    uint64_t pinned, most_pinned; /* bytes */
    uint32_t *waiting;            /* of the current node: tensors whose hooks run after it */
    uint32_t waiting_count, waiting_capacity;
    uint32_t *previous; /* of earlier nodes: tensors to be released then */
    uint32_t previous_count, previous_capacity;
};

static void offload_pack(tide_machine *m, tide_saved_tensors_hooks *hooks, tide_saved *slot, tide_tensor *t);
static tide_tensor *offload_unpack(tide_machine *m, tide_saved *slot);
static void offload_drop(tide_machine *m, tide_saved *slot);
static const tide_hook_pair offload_hooks = {offload_pack, offload_unpack, offload_drop};

static uint64_t power_of_two(int64_t bytes) {
    uint64_t block = 1;
    while (block < (uint64_t)bytes) block *= 2;
    return block;
}

/* Pinned memory is reused (c10/core/CachingHostAllocator.h). */
static void pin(tide_offload *o, offloaded *x, int64_t bytes) {
    x->pinned = power_of_two(bytes);
    o->pinned += x->pinned;
    if (o->pinned <= o->most_pinned) return;
    o->m->host_pinned += o->pinned - o->most_pinned;
    o->most_pinned = o->pinned;
}

/* ---- SavedVariable: torch/csrc/autograd/saved_variable.cpp ---- */

/* A node's own output is saved without its grad_fn. */
static void keep_grad_fn(offloaded *x, const tide_saved *slot, tide_tensor *t) {
    const tide_node *node = t->node;
    bool is_output = node && slot >= node->saved && slot < node->saved + node->saved_capacity;
    x->requires_grad = t->requires_grad;
    if (!node || is_output) return;
    x->grad_fn = t->node;
    x->grad_fn->references++;
    x->output = t->output;
}

static tide_tensor *with_grad_fn(const offloaded *x, tide_tensor *t) {
    t->requires_grad = x->requires_grad;
    if (!x->grad_fn) return t;
    t->is_leaf = false;
    t->node = x->grad_fn;
    t->node->references++;
    t->output = x->output;
    return t;
}

/* ---- pack ---- */

static bool is_of_parameter(const tide_machine *m, const tide_tensor *t) {
    return t->is_parameter || (!t->storage->is_untracked &&
                               tide_timeline_at(&m->timeline, t->storage->allocation)->factor == TIDE_FACTOR_PARAMETER);
}

static bool has_broadcast(const tide_tensor *t) {
    for (int i = 0; i < t->shape->dims; i++)
        if (t->stride[i] == 0) return true;
    return false;
}

/* The most recent tracked tensor with this storage. */
static offloaded *tracked(tide_offload *o, const tide_tensor *t) {
    for (uint32_t i = o->count; i-- > 0;) {
        offloaded *x = &o->tensors[i];
        if (x->storage_serial && x->storage_serial == t->storage->serial && x->storage_offset == t->offset &&
            x->dtype == t->dtype)
            return x;
    }
    return NULL;
}

static void track(tide_offload *o, offloaded *x, const tide_tensor *t) {
    offloaded *before = tracked(o, t);
    if (before) before->storage_serial = 0;
    x->storage_serial = t->storage->serial;
    x->storage_offset = t->offset;
}

static void leave_stash(tide_offload *o, uint32_t end) {
    for (; o->first_stashed < end; o->first_stashed++) {
        offloaded *x = &o->tensors[o->first_stashed];
        if (!x->stashed) continue;
        tide_release_at(o->m, &x->stashed);
        x->storage_serial = 0;
    }
}

/* clone(memory_format=torch.contiguous_format) or contiguous(); else the tensor itself. Owned by the caller. */
static tide_tensor *contiguous_of(tide_machine *m, const tide_tensor *t) {
    if (tide_is_contiguous(t) && t->offset == 0) return tide_alias(m, t);
    return tide_empty(m, t->shape, (tide_dtype)t->dtype);
}

static void send(tide_offload *o, offloaded *x, tide_tensor *t, uint32_t id) {
    tide_machine *m = o->m;
    const char *op = m->op;
    m->op = "pack_tensor";
    int64_t bytes = (int64_t)tide_timeline_at(&m->timeline, t->storage->allocation)->bytes,
            of_storage = bytes / tide_dtype_bytes(t->dtype);
    x->storage_count = has_broadcast(t) ? of_storage : 0;
    tide_tensor *activation = x->storage_count ? tide_alias(m, t) : contiguous_of(m, t);
    if (id >= FWD_STASH_SIZE) leave_stash(o, id - FWD_STASH_SIZE + 1);
    x = &o->tensors[id];
    x->is_away = true;
    x->layout = activation->layout;
    x->offset = x->storage_count ? activation->offset : 0;
    pin(o, x, x->storage_count ? x->storage_count * tide_dtype_bytes(t->dtype) : tide_bytes(activation));
    x->stashed = activation;
    track(o, x, t);
    m->op = op;
}

static void offload_pack(tide_machine *m, tide_saved_tensors_hooks *hooks, tide_saved *slot, tide_tensor *t) {
    tide_offload *o = (tide_offload *)(void *)hooks;
    TIDE_ROOM(m->arena, o->tensors, o->count, o->capacity);
    uint32_t id = o->count++;
    offloaded *x = &o->tensors[id];
    *x = (offloaded){.dtype = t->dtype, .layout = t->layout};
    slot->packed_by = hooks;
    slot->packed = id;
    keep_grad_fn(x, slot, t);
    if (t->storage->is_untracked) {
        x->kept = t->is_parameter ? tide_retain(t) : tide_alias(m, t);
    } else if (!o->is_of_trl) {
        x->is_away = true;
        x->layout = tide_layout_of(m, t->shape, NULL);
        pin(o, x, tide_bytes(t));
        if (!tide_is_contiguous(t)) tide_alloc_and_free(m, tide_bytes(t)); /* native/cuda/Copy.cu: src_contig */
    } else if (tracked(o, t)) {
        x->kept = t->is_parameter ? tide_retain(t) : tide_alias(m, t);
        track(o, x, t);
    } else if (tide_bytes(t) < MIN_OFFLOAD_SIZE || is_of_parameter(m, t)) {
        x->kept = t->is_parameter ? tide_retain(t) : tide_alias(m, t);
    } else {
        send(o, x, t, id);
    }
}

/* ---- unpack ---- */

static void push_offloaded(tide_offload *o, uint32_t **list, uint32_t *count, uint32_t *capacity, uint32_t id) {
    TIDE_ROOM(o->m->arena, *list, *count, *capacity);
    (*list)[(*count)++] = id;
}

/* tensor.to("cuda", non_blocking=True), and as_strided() of it. */
static tide_tensor *bring(tide_offload *o, const offloaded *x) {
    tide_machine *m = o->m;
    const char *op = m->op;
    uint32_t outside = m->state.stream;
    if (o->is_of_trl) m->state.stream = COMMUNICATION_STREAM;
    m->op = "unpack_tensor";
    tide_tensor *made;
    if (x->storage_count) {
        tide_tensor *storage = tide_flat(m, x->storage_count, (tide_dtype)x->dtype);
        made = tide_view_as(m, storage, x->layout);
        made->offset = x->offset;
        tide_release(m, storage);
    } else {
        made = tide_empty_laid_out(m, x->layout, (tide_dtype)x->dtype);
    }
    m->op = op;
    m->state.stream = outside;
    return made;
}

static void begin_node(tide_offload *o) {
    if (o->waiting_count) return;
    for (uint32_t i = 0; i < o->count; i++)
        if (o->tensors[i].brought) push_offloaded(o, &o->previous, &o->previous_count, &o->previous_capacity, i);
}

/* A tracked tensor is released when it is first unpacked. */
static void untrack(tide_offload *o, offloaded *x) {
    o->pinned -= x->pinned;
    x->pinned = 0;
    x->storage_serial = 0;
    tide_release_at(o->m, &x->kept);
    if (x->grad_fn) tide_node_release(o->m, x->grad_fn);
    x->grad_fn = NULL;
}

static tide_tensor *unpack_kept(tide_offload *o, offloaded *x) {
    tide_tensor *kept = x->kept;
    if (!kept) return tide_fail(o->m, TIDE_ERR_CONFLICT, "untracked tensor: an offloaded graph is run twice");
    tide_tensor *made = kept->is_parameter ? tide_retain(kept) : with_grad_fn(x, tide_alias(o->m, kept));
    if (o->is_of_trl) untrack(o, x);
    return made;
}

static tide_tensor *offload_unpack(tide_machine *m, tide_saved *slot) {
    tide_offload *o = (tide_offload *)(void *)slot->packed_by;
    offloaded *x = &o->tensors[slot->packed];
    if (!x->is_away) return unpack_kept(o, x);
    if (!o->is_of_trl) return with_grad_fn(x, bring(o, x));
    begin_node(o);
    push_offloaded(o, &o->waiting, &o->waiting_count, &o->waiting_capacity, slot->packed);
    tide_tensor *made = with_grad_fn(x, x->stashed ? tide_alias(m, x->stashed) : bring(o, x));
    if (!x->stashed) x->brought = tide_retain(made);
    x->references = made->storage->references;
    untrack(o, x);
    return made;
}

/* Hooks that run after a node. */
static void node_ran(void *of) {
    tide_offload *o = of;
    tide_machine *m = o->m;
    for (uint32_t i = 0; i < o->waiting_count; i++) {
        offloaded *x = &o->tensors[o->waiting[i]];
        bool escapes = x->brought && (x->brought->storage->references > x->references || x->brought->references > 1);
        if (escapes) {
            tide_record_stream(m, x->brought, 0);
            tide_release_at(m, &x->brought);
        }
        leave_stash(o, o->count);
        for (uint32_t k = 0; k < o->previous_count; k++) tide_release_at(m, &o->tensors[o->previous[k]].brought);
        o->previous_count = 0;
    }
    o->waiting_count = 0;
}

static void offload_drop(tide_machine *m, tide_saved *slot) {
    tide_offload *o = (tide_offload *)(void *)slot->packed_by;
    if (slot->packed >= o->count) return;
    (void)m;
    if (!o->is_of_trl) untrack(o, &o->tensors[slot->packed]);
}

/* ---- with ---- */

tide_offload *tide_offload_new(tide_machine *m, bool is_of_trl) {
    tide_offload *o = TIDE_NEW(m->arena, tide_offload, 1);
    *o = (tide_offload){.hooks = {&offload_hooks}, .m = m, .is_of_trl = is_of_trl};
    return o;
}

tide_saved_tensors_hooks *tide_offload_enter(tide_machine *m, tide_offload *o) {
    tide_saved_tensors_hooks *before = m->state.saved_tensors_hooks;
    m->state.saved_tensors_hooks = &o->hooks;
    if (!o->is_of_trl) return before;
    for (uint32_t i = 0; i < o->count; i++) untrack(o, &o->tensors[i]);
    o->count = o->first_stashed = 0;
    tide_timeline_empty_cache(&m->timeline); /* "bitsandbytes" in sys.modules: peft imports it if it is installed */
    m->after_backward = node_ran;
    m->after_backward_of = o;
    return before;
}

void tide_offload_end_backward(tide_machine *m, tide_offload *o) {
    for (uint32_t i = 0; i < o->count; i++) tide_release_at(m, &o->tensors[i].brought);
    o->waiting_count = o->previous_count = 0;
}

void tide_offload_exit(tide_machine *m, tide_offload *o, tide_saved_tensors_hooks *before) {
    m->state.saved_tensors_hooks = before;
    if (!o->is_of_trl) return;
    m->after_backward = NULL;
    leave_stash(o, o->count);
    tide_offload_end_backward(m, o);
}
