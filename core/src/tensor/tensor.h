/* SPDX-License-Identifier: Apache-2.0 */
/* The symbolic machine: tensors without values, what operations allocate and save, and autograd in PyTorch's order.
 *
 * A tensor is a dtype, a shape and strides over a storage; creating and freeing storages are the events of the
 * timeline. Operations (ops/) allocate, save and return; this file and autograd.c know when things are freed.
 * References are counted as in PyTorch and Python: the caller owns what a function returns. */
#ifndef TIDE_TENSOR_TENSOR_H
#define TIDE_TENSOR_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "base/diagnostics.h"
#include "base/invariant.h"
#include "tensor/folded_loops.h"
#include "tensor/layout.h"
#include "tensor/node_members.h"

typedef struct tide_storage {
    uint32_t references;
    uint32_t allocation;   /* index in the timeline */
    uint32_t serial, mark; /* see memo/layer_memo.c */
    bool is_untracked;     /* without events: on the host, empty, or created while the machine winds down */
} tide_storage;

typedef struct tide_node tide_node;

typedef struct tide_tensor {
    /* The properties of a tensor as plain values: TIDE_TENSOR_IS bytes, which memos compare as a whole. */
    int64_t offset; /* elements */
    tide_layout *layout;
    uint16_t output; /* which output of the node */
    uint8_t dtype;
    bool requires_grad;
    bool is_leaf; /* has no node */
    bool is_view;
    bool is_parameter;
    bool is_absent;        /* a parameter missing from the checkpoint: without memory */
    bool is_dtensor;       /* torch.distributed.tensor.DTensor, of which this is the local part */
    bool is_replicated;    /* a DTensor that every rank has in full: Replicate() */
    bool has_partial_grad; /* a replicated DTensor to whose gradient each rank contributes a part */
    bool is_of_iteration;  /* of a folded iteration, for whose nodes those of the stored one stand: folded_loops.h */
    /* What it refers to, and what refers to it. */
    uint32_t references;
    uint32_t serial, mark; /* see memo/layer_memo.c */
    tide_storage *storage;
    tide_node *node;        /* grad_fn, owned */
    tide_node *accumulator; /* of a leaf: its AccumulateGrad while a graph refers to that; not owned */
    struct tide_tensor *grad;
    struct tide_tensor *cast; /* of a weight: its entry in the autocast cache; not owned */
    const tide_shape *shape;  /* that of layout */
    const int64_t *stride;    /* likewise */
} tide_tensor;

enum { TIDE_TENSOR_IS = offsetof(tide_tensor, references) };

/* The backward of a node: `grads` has one gradient (or NULL) for each output of the forward, owned by the engine;
 * `results` receives one owned gradient (or NULL) for each edge. */
typedef struct tide_backward {
    const char *name;
    void (*run)(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results);
} tide_backward;

/* The header of what a node owns besides tensors: the frame of a checkpoint, the context of an autograd.Function. */
typedef struct tide_held {
    void (*clear)(tide_machine *m,
                  struct tide_held *held); /* called when its backward has run; NULL: nothing to release */
    void (*drop)(tide_machine *m, struct tide_held *held); /* called when the node is released */
} tide_held;

typedef struct tide_edge {
    tide_node *node; /* owned; NULL: no gradient needed */
    uint32_t input;
} tide_edge;

typedef struct tide_saved_tensors_hooks tide_saved_tensors_hooks;

/* A saved tensor, or what hooks packed it into. */
typedef struct tide_saved {
    tide_tensor *tensor;                 /* owned; with hooks, as they set it */
    tide_saved_tensors_hooks *packed_by; /* NULL: the tensor is saved as it is */
    uint32_t packed;                     /* for the hooks */
    bool requires_grad;                  /* with hooks: as the tensor had it, whatever they return */
} tide_saved;

/* The functions of a kind of hooks: a constant table. */
typedef struct tide_hook_pair {
    /* Packs a tensor (borrowed) into an empty slot and sets its packed_by. */
    void (*pack)(tide_machine *m, tide_saved_tensors_hooks *hooks, tide_saved *slot, tide_tensor *t);
    /* Unpacks a slot that has packed_by: the caller owns the tensor; NULL after an error. */
    tide_tensor *(*unpack)(tide_machine *m, tide_saved *slot);
    /* Releases what was packed; the caller releases a tensor in the slot itself. */
    void (*drop)(tide_machine *m, tide_saved *slot);
} tide_hook_pair;

/* torch.autograd.graph.saved_tensors_hooks: those in the machine's state are given everything that is saved. The header
 * of what such hooks need, as the frame of a checkpoint. */
struct tide_saved_tensors_hooks {
    const tide_hook_pair *pair;
};

/* Tensor.register_hook: runs once, before the backward of the node that made the tensor
 * (torch/csrc/autograd/engine.cpp: call_tensor_pre_hooks). The header of what such a hook needs. */
typedef struct tide_tensor_hook {
    void (*run)(tide_machine *m, struct tide_tensor_hook *hook);
    void (*drop)(tide_machine *m,
                 struct tide_tensor_hook *hook); /* called after it has run, or when its node is released */
    struct tide_tensor_hook *next;
} tide_tensor_hook;

/* Shape and dtype of an output of the forward, which its gradient must have. */
typedef struct tide_meta {
    const tide_shape *shape; /* that of a layout */
    uint8_t dtype;
    bool is_dtensor; /* gradients are accumulated out of place, and may have another placement */
} tide_meta;

enum { TIDE_ORDER_EARLY = INT32_MAX }; /* Node._set_sequence_nr() */

struct tide_node {
    uint32_t references;
    uint32_t order;  /* sequence number; AccumulateGrad: UINT32_MAX; TIDE_ORDER_EARLY: as soon as it is ready */
    uint32_t serial; /* see memo/layer_memo.c */
    uint32_t walk;   /* the last walk over the graph that visited it, counted by machine.walk_count */
    const tide_backward *backward;
    uint32_t bytes;
    uint16_t edge_count, output_count, output_capacity, saved_count, saved_capacity;
    uint8_t stream; /* of the forward, and so of the backward */
    bool is_spent;  /* its saved tensors are freed, so that it cannot run again */
    uint32_t module, statement;
    const char *op;
    tide_edge *edges;
    tide_meta *outputs;
    tide_saved *saved;
    tide_node_members of;
    tide_meta extra;                /* a shape that backward needs and no saved tensor has */
    tide_held *held;                /* owned, may be NULL */
    tide_tensor_hook *tensor_hooks; /* in order of registration; owned, may be NULL */
    union {
        struct tide_task_state *state; /* in the current backward pass, see autograd.c */
        struct tide_node *next;        /* next one to be released, of those that no pass still has to run */
    };
};

/* How the size of a dimension was derived: a name, a literal, or an operation on two others. */
typedef struct tide_symbol {
    char operator; /* 'n' a name, '#' a literal, else one of + - * / */
    uint32_t left, right;
    tide_text name;
    int64_t value; /* of a literal */
} tide_symbol;

/* Values of the description language. */
typedef enum tide_value_kind {
    TIDE_VALUE_NONE,
    TIDE_VALUE_BOOL,
    TIDE_VALUE_INT,
    TIDE_VALUE_FLOAT,
    TIDE_VALUE_TEXT,
    TIDE_VALUE_DTYPE,
    TIDE_VALUE_TENSOR,
    TIDE_VALUE_LIST, /* tuples too */
    TIDE_VALUE_MODULE,
    TIDE_VALUE_CONFIG /* an object of a model's configuration */
} tide_value_kind;

typedef struct tide_list tide_list;

typedef struct tide_value {
    tide_value_kind kind;
    uint32_t symbol; /* of an integer: how it was derived */
    union {
        bool truth;
        int64_t integer;
        double number;
        tide_text text;
        tide_dtype dtype;
        tide_tensor *tensor;
        tide_list *list;
        uint32_t module; /* instance */
        const struct tide_json *config;
    };
} tide_value;

struct tide_list {
    uint32_t references;
    uint32_t count, capacity;
    uint32_t serial, mark, pops; /* see memo/layer_memo.c */
    bool is_read;                /* its items or length have been read */
    bool is_output; /* "a, b" or "(a, b)": attributes of an object, or a ModelOutput, which is a dictionary */
    tide_value *items;
};

/* What depends on the device. */
typedef struct tide_device {
    int capability; /* compute capability times 10 */
    int sms;
    int threads_per_sm;
} tide_device;

/* If no GPU is given: H100 SXM (NVIDIA H100 Tensor Core GPU Architecture, tables 4 and 5). */
#define TIDE_DEVICE_DEFAULT ((tide_device){.capability = 90, .sms = 132, .threads_per_sm = 2048})

typedef enum tide_sdpa_choice {
    TIDE_SDPA_FLASH,     /* flash, else efficient, else math */
    TIDE_SDPA_EFFICIENT, /* efficient, else math */
    TIDE_SDPA_MATH,
    TIDE_SDPA_CUDNN, /* cuDNN, else math */
    TIDE_SDPA_DEFAULT,
    TIDE_SDPA_TITAN,      /* sdpa_kernel() of torchtitan: cuDNN, else flash, else math */
    TIDE_SDPA_TITAN_FLASH /* the same without cuDNN */
} tide_sdpa_choice;

typedef struct tide_cast {
    tide_tensor *from, *to; /* both owned */
} tide_cast;

/* What operations may read of the machine besides their arguments, and what may change during a job; much of it is
 * thread-local in PyTorch (aten/src/ATen/ThreadLocalState.h). Temporary changes save a copy and restore it
 * (tide_machine_restore); memos compare it as a whole (tide_machine_state_key). Without padding. */
typedef struct tide_machine_state {
    tide_saved_tensors_hooks *saved_tensors_hooks; /* NULL: none */
    tide_tensor *workspaces[2]; /* workspaces that cuBLAS keeps for forward and backward, see ops/linear.c */
    tide_dtype autocast_dtype;
    tide_factor factor; /* of new storages: TEMPORARY unless set otherwise */
    uint32_t stream;    /* of new storages */
    bool grad_enabled;
    bool autocast_enabled;
    bool is_in_backward;
    bool keeps_workspaces; /* cuBLAS */
} tide_machine_state;

/* Memory of a machine that can be used again. */
typedef struct tide_free_piece {
    struct tide_free_piece *next;
} tide_free_piece;

struct tide_machine {
    tide_arena *arena;
    tide_diagnostics *diags;
    tide_timeline timeline;
    tide_device device;
    tide_sdpa_choice sdpa;
    bool makes_on_host, unifies_workspaces; /* a model before it is moved to the device; cuBLASLt uses the workspace of
                                               cuBLAS: linear.c */

    tide_free_piece *free_pieces[128];      /* of the pool, by size in units of 16 bytes */
    tide_free_piece *large_free_pieces[64]; /* larger ones by the logarithm of their size */
    tide_symbol *symbols;
    uint32_t symbol_count, symbol_capacity;
    uint32_t *symbol_slots;
    uint32_t symbol_slot_count;
    tide_layout **layout_slots; /* open addressing */
    tide_layout *scratch;       /* last used by tide_alloc_and_free */
    uint32_t layout_count, layout_slot_count;

    tide_machine_state state;
    tide_cast *casts; /* the weight cache of autocast */
    uint32_t cast_count, cast_capacity;

    tide_saved_tensors_hooks *hooks_around_function; /* while the forward of an autograd function runs */
    bool is_stopped;                                 /* the recomputation is complete: wind down without events */
    bool has_failed;                                 /* a diagnostic says why; wind down likewise */
    uint32_t node_order;
    tide_list *spare_lists;   /* released ones, chained by items; their places hold lists only: see memo/capture.c */
    uint32_t serial;          /* of the newest tensor, storage, node or list */
    bool recomputes_to_end;   /* early_stop=False: checkpoints recompute what nothing saves, too */
    bool keeps_mm_alone;      /* selective checkpointing counts mm, but not addmm and bmm, as matrix products */
    int64_t recomputed_mm[2]; /* rows and columns of matrices whose mm does not count, either; 0: none */
    uint8_t kept_kinds;       /* what the current checkpoint saves, see tensor/checkpoint.h: one bit per kind */
    uint32_t task_count;      /* backward passes begun */
    uint32_t graph_task;      /* the current one; 0: none */
    uint32_t walk_count;      /* walks over the graph, see tide_node.walk */
    tide_node *dying;         /* nodes waiting to be released */
    bool is_tearing_down;
    struct tide_cached *cached;   /* tensors that live as long as the process, see ops/cached.c */
    bool has_dtensors;            /* of tensor parallelism */
    tide_tensor *in_flight;       /* AsyncCollectiveTensor: the result of the pending collective; NULL: there is none */
    tide_tensor *in_flight_input; /* its input, kept until the result is read */
    /* The origin of allocations and frees, for the report. */
    uint32_t module, statement;
    const char *op;
    tide_freed_by freeing; /* what releases tensors at the moment; NONE: the training loop, or a framework */
    uint64_t op_count, op_limit;
    tide_folding folding;
    int64_t same_keys; /* how many more keys leave unchanged all operations that depend on ranges of their number */

    uint64_t host_pinned; /* bytes */
    /* Called when a leaf received a gradient, which the engine still owns: register_post_accumulate_grad_hook. */
    void (*gradient_ready)(tide_machine *m, tide_tensor *leaf);
    void (*after_backward)(
        void *of); /* called for each node before it releases its saved tensors: Node.register_hook */
    void *after_backward_of;
    /* The replacement of torch.nn.functional.linear; NULL: none. */
    tide_tensor *(*linear)(tide_machine *m, tide_tensor *x, tide_tensor *weight, tide_tensor *bias);
    void *wrapper;           /* the owner of these hooks */
    tide_tensor **passed_on; /* what it keeps from one token of a generation to the next; NULL: nothing */

    /* Hooks of the interpreter, by which frames of checkpoints run their function again. */
    void *interpreter;
    tide_value (*call_again)(tide_machine *m, void *function, tide_value *inputs, uint32_t count);
    void (*function_free)(tide_machine *m, void *function);
    const char *(*where)(tide_machine *m); /* module path and line, for error messages */
};

void tide_machine_init(tide_machine *m, tide_arena *arena, tide_diagnostics *diags);

/* Restores an earlier state; workspaces created since then stay. */
void tide_machine_restore(tide_machine *m, const tide_machine_state *before);
/* The state as memos compare it: equal bytes mean that operations behave alike. */
tide_machine_state tide_machine_state_key(const tide_machine *m);

/* Reports the first error and makes the machine wind down. Returns NULL. */
tide_tensor *tide_fail(tide_machine *m, tide_status status, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 3, 4)))
#endif
    ;

/* The same for a setting, by its name, whichever module runs; what to do follows the last "; " of the message. */
tide_tensor *tide_fail_setting(tide_machine *m, tide_status status, const char *setting, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 4, 5)))
#endif
    ;
static inline bool tide_is_aborting(const tide_machine *m) {
    return m->is_stopped || m->has_failed;
}

/* Says what releases tensors from here on, until tide_freeing_ends() is given the returned value. `op` NULL: the
 * current operation. */
static inline tide_freeing tide_freeing_begins(tide_machine *m, tide_freed_by by, const char *op) {
    tide_freeing before = {m->op, m->module, m->statement, m->freeing};
    m->freeing = by;
    if (op) m->op = op;
    return before;
}
static inline void tide_freeing_ends(tide_machine *m, tide_freeing before) {
    m->op = before.op;
    m->module = before.module;
    m->statement = before.statement;
    m->freeing = before.by;
}

/* Small recycled pieces of memory, zeroed. */
void *tide_pool_alloc(tide_machine *m, size_t bytes);
void tide_pool_free(tide_machine *m, void *memory, size_t bytes);

/* ---- symbols ---- */

uint32_t tide_symbol_name(tide_machine *m, tide_text name);
uint32_t tide_symbol_literal(tide_machine *m, int64_t value);
/* The symbol of `left operator right`; 0 if neither side has a name. */
uint32_t tide_symbol_of(tide_machine *m, char operator, tide_value left, tide_value right);
const char *tide_symbol_text(tide_machine *m, uint32_t symbol);

/* ---- tensors (tensor.c) ---- */

/* The layout of a shape with these strides; NULL: contiguous. */
tide_layout *tide_layout_of(tide_machine *m, const tide_shape *shape, const int64_t *stride);

/* A contiguous tensor over a new storage of its size. */
tide_tensor *tide_empty(tide_machine *m, const tide_shape *shape, tide_dtype dtype);
/* Pinned host memory: a power of two, kept until the end of the run (c10/core/CachingHostAllocator.h). */
void tide_pin_host(tide_machine *m, int64_t bytes);
/* As tide_empty(), but on the host: no event. */
tide_tensor *tide_empty_host(tide_machine *m, const tide_shape *shape, tide_dtype dtype);
/* As torch.empty_like with preserve_format, which keeps dense strides. */
tide_tensor *tide_empty_like(tide_machine *m, const tide_tensor *like, tide_dtype dtype);
/* With the given strides, which must be dense. */
tide_tensor *tide_empty_strided(tide_machine *m, const tide_shape *shape, const int64_t *stride, tide_dtype dtype);
tide_tensor *tide_empty_laid_out(tide_machine *m, tide_layout *layout, tide_dtype dtype);
/* A tensor over an allocation that is already in the timeline. */
tide_tensor *tide_tensor_of(tide_machine *m, uint32_t allocation, tide_layout *layout, tide_dtype dtype);
/* A flat scratch tensor of so many bytes. */
tide_tensor *tide_scratch(tide_machine *m, int64_t bytes);
/* Allocates and frees at once. */
void tide_alloc_and_free(tide_machine *m, int64_t bytes);
/* A flat tensor of so many elements. */
tide_tensor *tide_flat(tide_machine *m, int64_t count, tide_dtype dtype);
/* A tensor without dimensions. */
tide_tensor *tide_scalar(tide_machine *m, tide_dtype dtype);
/* t.data = from: t takes over the storage of `from`. */
void tide_set_data(tide_machine *m, tide_tensor *t, const tide_tensor *from);
/* t.untyped_storage().resize_(): to 0, and back to `count` elements. All views of it see that. */
void tide_drop_storage(tide_machine *m, const tide_tensor *t);
void tide_fill_storage(tide_machine *m, const tide_tensor *t, int64_t count);
/* t.record_stream(stream): once freed, its block waits for that stream. */
void tide_record_stream(tide_machine *m, const tide_tensor *t, uint8_t stream);

/* Another tensor over the same storage, without a node. */
tide_tensor *tide_alias(tide_machine *m, const tide_tensor *of);
/* The same with another layout: a view. */
tide_tensor *tide_view_as(tide_machine *m, const tide_tensor *of, tide_layout *layout);
static inline tide_tensor *tide_retain(tide_tensor *t) {
    if (t) t->references++;
    return t;
}
void tide_tensor_free(tide_machine *m, tide_tensor *t);            /* called when there are no more references */
static inline void tide_release(tide_machine *m, tide_tensor *t) { /* NULL is allowed */
    if (!t) return;
    TIDE_INVARIANT(t->references > 0);
    if (--t->references == 0) tide_tensor_free(m, t);
}
static inline void tide_release_at(tide_machine *m, tide_tensor **t) { /* and sets it to NULL */
    tide_tensor *old = *t;
    *t = NULL;
    tide_release(m, old);
}
/* A name of the training loop is rebound or deleted: `what` says which. t may be NULL. */
void tide_del(tide_machine *m, const char *what, tide_tensor *t);

static inline int64_t tide_count(const tide_tensor *t) {
    return t->layout->count;
}
int64_t tide_count_of(const tide_shape *shape);
int64_t tide_bytes(const tide_tensor *t);
static inline bool tide_is_contiguous(const tide_tensor *t) {
    return t->layout->is_contiguous;
}
static inline bool tide_is_dense(const tide_tensor *t) {
    return t->layout->is_dense;
}
bool tide_same_shape(const tide_shape *a, const tide_shape *b);
void tide_contiguous_strides(const tide_shape *shape, int64_t *stride);
/* The layout of the output of an elementwise operation on these inputs with that shape, as TensorIterator computes it.
 */
tide_layout *tide_elementwise_layout(tide_machine *m, const tide_shape *shape, tide_tensor *const *inputs, int count);
bool tide_broadcast(tide_machine *m, tide_shape *out, const tide_shape *a, const tide_shape *b);
tide_dtype tide_promote(const tide_tensor *a, const tide_tensor *b);
int tide_wrap_dim(tide_machine *m, int64_t dim, int dims); /* negative counts from the end */
tide_shape tide_shape1(tide_dim a);
tide_dim tide_dim_of(const tide_tensor *t, int dim);
const char *tide_shape_text(tide_machine *m, const tide_shape *shape);

/* Marks the storage's allocation as belonging to a factor. */
void tide_set_factor(tide_machine *m, tide_tensor *t, tide_factor factor);

/* ---- autograd (autograd.c) ---- */

/* Whether an operation on these inputs needs a node. */
bool tide_needs_node(const tide_machine *m, tide_tensor *const *inputs, int count);

/* A node with one edge per input, for one output and at most five saved tensors; NULL if no gradient is needed. Inputs
 * may be NULL. */
tide_node *tide_node_new(tide_machine *m, const tide_backward *backward, tide_tensor *const *inputs, int count);
/* The same for so many outputs and saved tensors. */
tide_node *tide_node_with(tide_machine *m, const tide_backward *backward, tide_tensor *const *inputs, int count,
                          int outputs, int saved);
void tide_node_release(tide_machine *m, tide_node *node);
/* The bytes of a node with so many edges, outputs and saved tensors. */
uint32_t tide_node_bytes(unsigned edges, unsigned outputs, unsigned saved);
/* Sets the node's pointers to its edges, saved tensors and outputs, which follow it in the same memory. */
void tide_node_lay_out(tide_node *node);
/* The AccumulateGrad of a leaf, which lives while a graph refers to it; owned by the caller. */
tide_node *tide_accumulator_of(tide_machine *m, tide_tensor *leaf);
bool tide_is_accumulator(const tide_node *node);
bool tide_needs_input_grad(const tide_node *node, int edge); /* should_compute_output */

/* Saves a tensor in the next slot; NULL leaves the slot empty. node may be NULL. Inputs are saved before an operation
 * allocates, outputs after. */
void tide_save(tide_machine *m, tide_node *node, tide_tensor *t);
/* The saved tensor, owned by the caller; may run the recomputation of a checkpoint. NULL if the slot is empty. */
tide_tensor *tide_saved_at(tide_machine *m, tide_node *node, int slot);
/* The same for a slot outside of nodes: save, get, clear. */
void tide_slot_save(tide_machine *m, tide_saved *slot, tide_tensor *t);
tide_tensor *tide_slot_unpack(tide_machine *m, tide_saved *slot);
void tide_slot_clear(tide_machine *m, tide_saved *slot);
/* Takes ownership of the hook. */
void tide_register_hook(tide_node *node, tide_tensor_hook *hook);
/* Makes t the node's next output, recording its shape and dtype. node may be NULL. Returns t. */
tide_tensor *tide_set_grad_fn(tide_machine *m, tide_node *node, tide_tensor *t);

/* torch.Tensor.backward of a scalar. */
void tide_run_backward(tide_machine *m, tide_tensor *root);
/* torch.autograd.backward with a given gradient, which the caller keeps. */
void tide_run_backward_from(tide_machine *m, tide_tensor *const *roots, tide_tensor *const *grads, int count);
/* torch.autograd.grad from edges of the graph, for nodes whose gradients are returned rather than accumulated:
 * grads[i], owned, NULL if none arrived. Only what leads to them runs. retain_graph: nodes keep their saved tensors. */
void tide_autograd_grad(tide_machine *m, const tide_edge *outputs, tide_tensor *const *grad_outputs, uint32_t count,
                        tide_node *const *inputs, uint32_t input_count, tide_tensor **grads, bool retain_graph);
/* For a node that is about to run: its incoming gradients, one per output; borrowed, NULL if there is none. */
tide_tensor *const *tide_incoming_grads(const tide_node *node);

/* Gradient helpers: sums broadcast dimensions, with the sum's scratch memory; takes ownership of g. */
tide_tensor *tide_sum_to(tide_machine *m, tide_tensor *g, const tide_shape *shape);
/* AsyncCollectiveTensor.wait(): `t` is about to be read; the collective that made it releases its input. */
void tide_wait_tensor(tide_machine *m, const tide_tensor *t);
/* Makes t the last owner of these tensors: they are freed right before it, in this order. Takes ownership of them. */
void tide_hold(tide_machine *m, tide_tensor *t, tide_tensor *const *held, uint32_t count);

/* ---- autocast (autocast.c) ---- */

#define TIDE_AUTOCAST_DTYPE TIDE_FP16 /* unless given (aten/src/ATen/autocast_mode.cpp: autocast_dtype) */

void tide_autocast_begin(tide_machine *m, tide_dtype dtype);
void tide_autocast_end(tide_machine *m); /* drops the weight cache */
/* The tensor cast to the autocast dtype or to fp32, cached for weights; owned by the caller. */
tide_tensor *tide_autocast_lower(tide_machine *m, tide_tensor *t);
tide_tensor *tide_autocast_fp32(tide_machine *m, tide_tensor *t);

/* ---- values ---- */

static inline tide_value tide_none(void) {
    return (tide_value){.kind = TIDE_VALUE_NONE};
}
static inline tide_value tide_of_tensor(tide_tensor *t) {
    return t ? (tide_value){.kind = TIDE_VALUE_TENSOR, .tensor = t} : tide_none();
}
static inline tide_value tide_of_int(int64_t n) {
    return (tide_value){.kind = TIDE_VALUE_INT, .integer = n};
}
static inline tide_value tide_of_bool(bool b) {
    return (tide_value){.kind = TIDE_VALUE_BOOL, .truth = b};
}
/* The bits of a value that has no identity; for text, a list, a tensor or a configuration those of its address. */
static inline uint64_t tide_value_bits(tide_value v) {
    uint64_t bits = 0;
    switch (v.kind) {
    case TIDE_VALUE_BOOL:
        return v.truth;
    case TIDE_VALUE_INT:
        return (uint64_t)v.integer;
    case TIDE_VALUE_FLOAT:
        memcpy(&bits, &v.number, sizeof bits);
        return bits;
    case TIDE_VALUE_DTYPE:
        return v.dtype;
    case TIDE_VALUE_MODULE:
        return v.module;
    case TIDE_VALUE_TEXT:
        return (uint64_t)(uintptr_t)v.text.at;
    case TIDE_VALUE_TENSOR:
        return (uint64_t)(uintptr_t)v.tensor;
    case TIDE_VALUE_LIST:
        return (uint64_t)(uintptr_t)v.list;
    case TIDE_VALUE_CONFIG:
        return (uint64_t)(uintptr_t)v.config;
    case TIDE_VALUE_NONE:
        break;
    }
    return 0;
}
static inline tide_value tide_value_retain(tide_value v) {
    if (v.kind == TIDE_VALUE_TENSOR)
        v.tensor->references++;
    else if (v.kind == TIDE_VALUE_LIST)
        v.list->references++;
    return v;
}
void tide_list_release(tide_machine *m, tide_list *list);
static inline void tide_value_release(tide_machine *m, tide_value v) {
    if (v.kind == TIDE_VALUE_TENSOR)
        tide_release(m, v.tensor);
    else if (v.kind == TIDE_VALUE_LIST)
        tide_list_release(m, v.list);
}
tide_list *tide_list_new(tide_machine *m);
void tide_list_push(tide_machine *m, tide_list *list, tide_value v); /* takes ownership of v */

#endif
