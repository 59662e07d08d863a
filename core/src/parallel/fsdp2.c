/* FullyShardedDataParallel, fully_shard: torch/distributed/fsdp/_fully_shard/.
 *
 * Note [Units]: a unit is a module, or some that run one after the other, with the parameters below it that no inner
 * unit has. The rank keeps a part of every parameter; before the unit runs, forward and backward, all parts are
 * gathered on a stream of their own and copied out, and after it they go. The same storage comes back, so what autograd
 * saved finds it. Gradients are reduced unit after unit. */
#include <string.h>

#include "base/units.h"
#include "parallel/parallel.h"
#include "tensor/ops/ops.h"

typedef enum phase { IDLE, FORWARD, BEFORE_BACKWARD, AFTER_BACKWARD } phase;
typedef enum place { SHARDED, KEPT, GATHERED } place; /* KEPT: on fewer ranks, between forward and backward */

enum { GATHER_STREAM = TIDE_STREAM_SIDE, REDUCE_STREAM = TIDE_STREAM_SECOND, ALL_REDUCE_STREAM = TIDE_STREAM_THIRD };

typedef struct shard {
    tide_tensor *leaf;  /* what modules use: gathered, or without storage */
    tide_tensor *local; /* what the optimizer updates */
    tide_tensor *kept;
    uint32_t module;
    int64_t padded, count; /* elements of a rank's part, padded and real */
    tide_layout *layout;   /* of the real part */
    tide_dtype dtype;      /* of the part */
    bool trains, is_on_meta, is_padded;
} shard;

typedef struct unit {
    shard *shards;
    uint32_t count;
    uint32_t modules, left; /* of the unit: all, and those that have not run yet */
    phase state, group;     /* of FSDPState, of FSDPParamGroup */
    place place;
    bool is_gathering;
    tide_tensor *gathered; /* the all-gather's output */
    int64_t keepers;       /* ranks that keep the parameters after forward: 0 all, 1 none */
    tide_tensor *all_reduced;
    uint32_t *order; /* its places in fsdp.order */
    uint32_t order_count, order_capacity;
} unit;

typedef struct fsdp {
    tide_wrapper *w;
    unit *units; /* the root is the last; the others in the order in which they are wrapped */
    uint32_t count;
    uint32_t *unit_of; /* by instance: one more than the unit whose module it is */
    uint32_t *visits;  /* units in the order of named_modules() */
    uint32_t prefetch;
    int64_t ranks, rank; /* of a shard group */
    tide_dtype computed, reduced;
    bool casts, has_reduced, is_hybrid, is_offloaded, reduces;
    tide_tensor *applied; /* by Module._apply */
    tide_tensor *held;    /* gathered parameters that wait for the next copy-out */
    tide_tensor *sending; /* the last reduction's input */
    uint32_t *order;      /* units in the order in which they ran */
    uint32_t order_count, order_capacity;
    uint32_t forward_root; /* one more than the unit that entered a forward first: the model's, or one of a
                              recomputation; 0: none runs */
    tide_unit_hooks hooks;
} fsdp;

static const char op_name[] = "fully_shard";

static tide_machine *machine_of(const fsdp *f) {
    return f->w->model->m;
}

static int64_t bytes_of(int64_t count, tide_dtype dtype) {
    return count * tide_dtype_bytes(dtype);
}

static tide_tensor *on_stream(fsdp *f, uint8_t stream, int64_t count, tide_dtype dtype, tide_factor factor) {
    return tide_flat_on(machine_of(f), stream, op_name, count, dtype, factor);
}

/* ---- modules made on the meta device ---- */

static shard *shard_of(const fsdp *f, const tide_tensor *leaf) {
    for (uint32_t k = 0; k < f->count; k++)
        for (uint32_t i = 0; i < f->units[k].count; i++)
            if (f->units[k].shards[i].leaf == leaf) return &f->units[k].shards[i];
    return NULL;
}

/* The part alone, without padding. Module._apply swaps a DTensor with what it made of it (torch.utils.swap_tensors),
 * and holds that until it makes the next one or returns: of a tied parameter, which has its part already, that part. */
static void empty_part(tide_model *model, uint32_t instance, tide_tensor *leaf) {
    tide_machine *m = model->m;
    fsdp *f = m->wrapper;
    shard *s = shard_of(f, leaf);
    if (!s) return;
    m->module = instance;
    m->op = "to_empty";
    m->state.factor = TIDE_FACTOR_PARAMETER;
    tide_tensor *part = tide_empty(m, &s->layout->shape, s->dtype);
    m->state.factor = TIDE_FACTOR_TEMPORARY;
    tide_release_at(m, &f->applied);
    f->applied = tide_alias(m, s->local);
    tide_set_data(m, s->local, part);
    tide_release(m, part);
    s->is_on_meta = false;
}

/* FSDPModule._apply, FSDPParam.reset_sharded_param: the parts of a unit are padded as soon as one of its modules has
 * them. */
static void pad_parts(tide_model *model, uint32_t instance) {
    tide_machine *m = model->m;
    fsdp *f = m->wrapper;
    const unit *u = f->unit_of[instance] ? &f->units[f->unit_of[instance] - 1] : NULL;
    tide_release_at(m, &f->applied);
    for (uint32_t i = 0; u && i < u->count; i++) {
        shard *s = &u->shards[i];
        if (s->is_on_meta || s->is_padded || s->count == s->padded) continue;
        s->is_padded = true;
        tide_tensor *padded = tide_flat_on(m, 0, op_name, s->padded, s->dtype, TIDE_FACTOR_PARAMETER);
        tide_set_data(m, s->local, padded);
        tide_release(m, padded);
    }
}

static void to_empty(fsdp *f) {
    tide_model *model = f->w->model;
    model->state.is_on_meta = false;
    model->parameter_empty = empty_part;
    model->module_empty = pad_parts;
    tide_model_to_device(model);
    model->parameter_empty = NULL;
    model->module_empty = NULL;
}

/* ---- gathering ---- */

static int64_t group_ranks(const fsdp *f, const unit *u) {
    return u->place == KEPT ? u->keepers : f->ranks;
}

/* foreach_all_gather. */
static void unshard(fsdp *f, unit *u) {
    tide_machine *m = machine_of(f);
    if (u->is_gathering || u->place == GATHERED) return;
    u->is_gathering = true;
    if (f->ranks == 1) return;
    int64_t parts = 0;
    tide_dtype dtype = f->computed;
    tide_tensor **uploads = TIDE_NEW(m->arena, tide_tensor *, 2 * u->count + 1);
    uint32_t n = 0;
    for (uint32_t i = 0; i < u->count; i++) {
        const shard *s = &u->shards[i];
        parts += u->place == KEPT ? s->padded * f->ranks / u->keepers : s->padded;
        if (!f->casts) dtype = s->dtype;
        if (!f->is_offloaded) continue;
        uploads[n++] = on_stream(f, GATHER_STREAM, s->padded, s->dtype, TIDE_FACTOR_GATHERED);
        if (f->casts) {
            uploads[n] = on_stream(f, GATHER_STREAM, s->padded, f->computed, TIDE_FACTOR_GATHERED);
            tide_release(m, uploads[n - 1]);
            uploads[n - 1] = uploads[n];
        }
    }
    tide_tensor *staged = f->casts && !f->is_offloaded
                              ? on_stream(f, GATHER_STREAM, parts, f->computed, TIDE_FACTOR_COMMUNICATION)
                              : NULL;
    u->gathered = on_stream(f, GATHER_STREAM, parts * group_ranks(f, u), dtype, TIDE_FACTOR_COMMUNICATION);
    tide_release(m, staged);
    for (uint32_t i = 0; i < n; i++) tide_release(m, uploads[i]);
}

static void fill(fsdp *f, const shard *s) {
    tide_machine *m = machine_of(f);
    m->state.factor = TIDE_FACTOR_GATHERED;
    m->module = s->module;
    m->op = op_name;
    tide_fill_storage(m, s->leaf, s->padded * f->ranks);
    m->state.factor = TIDE_FACTOR_TEMPORARY;
}

/* Note [Copy kernels], aten/src/ATen/native/cuda/TensorShape.cu: the kernels that spread a gathered buffer over
 * parameters (split_with_sizes_copy) and put gradients into one (_chunk_cat) get a list of blocks and of tensors, 8
 * bytes an entry. A block of _chunk_cat moves 2048 bytes of a rank's part. One of split_with_sizes_copy moves n times
 * that: with W parts of c blocks, and twice the blocks that the device runs at once, the least n for which n * (n + 1)
 * such sets cover W * c, and n of them c. */
enum { BLOCK_BYTES = 2048, BLOCK_THREADS = 128 };

static void touch_list(fsdp *f, int64_t blocks, int64_t entries) {
    machine_of(f)->op = op_name;
    tide_alloc_and_free(machine_of(f), 8 * (blocks + entries));
}

/* Elements of a parameter in one of `ranks` parts, in blocks of so many bytes. */
static int64_t blocks_of(const fsdp *f, const shard *s, int64_t ranks, int64_t bytes) {
    return (bytes_of(s->padded * f->ranks / ranks, (tide_dtype)s->leaf->dtype) + bytes - 1) / bytes;
}

static void copy_out_list(fsdp *f, const unit *u, int64_t ranks) {
    const tide_device *device = &machine_of(f)->device;
    int64_t all = 0, blocks = 0, times = 1, few = 2 * (int64_t)device->sms * (device->threads_per_sm / BLOCK_THREADS);
    for (uint32_t i = 0; i < u->count; i++) all += blocks_of(f, &u->shards[i], ranks, BLOCK_BYTES);
    while (times * (times + 1) * few < all * ranks) times++;
    if (times * few < all) times = TIDE_CEIL_DIV(all, few);
    for (uint32_t i = 0; i < u->count; i++) blocks += blocks_of(f, &u->shards[i], ranks, BLOCK_BYTES * times);
    touch_list(f, blocks, 4 * (int64_t)u->count + 1);
}

static void wait_for_unshard(fsdp *f, unit *u) {
    tide_machine *m = machine_of(f);
    uint32_t module = m->module;
    if (!u->is_gathering) return;
    if (u->group == FORWARD) tide_release_at(m, &f->held);
    tide_tensor *cast = NULL;
    for (uint32_t i = 0; i < u->count; i++) {
        if (f->ranks == 1 && f->casts) {
            tide_tensor *next = on_stream(f, 0, u->shards[i].padded, f->computed, TIDE_FACTOR_GATHERED);
            tide_release(m, cast);
            cast = next;
        }
        fill(f, &u->shards[i]);
    }
    tide_release(m, cast);
    if (f->ranks > 1) copy_out_list(f, u, group_ranks(f, u));
    for (uint32_t i = 0; i < u->count; i++) tide_release_at(m, &u->shards[i].kept);
    u->place = GATHERED;
    u->is_gathering = false;
    if (u->group == FORWARD && f->ranks > 1) {
        f->held = u->gathered;
        u->gathered = NULL;
    } else {
        tide_release_at(m, &u->gathered);
    }
    m->module = module;
}

static void drop(fsdp *f, unit *u) {
    for (uint32_t i = 0; i < u->count; i++) tide_drop_storage(machine_of(f), u->shards[i].leaf);
}

static void reshard(fsdp *f, unit *u) {
    if (u->group == FORWARD && u->keepers == 0) return;
    if (u->group == FORWARD && u->keepers > 1) {
        for (uint32_t i = 0; i < u->count; i++) {
            shard *s = &u->shards[i];
            s->kept =
                on_stream(f, 0, s->padded * f->ranks / u->keepers, (tide_dtype)s->leaf->dtype, TIDE_FACTOR_GATHERED);
            tide_drop_storage(machine_of(f), s->leaf);
        }
        u->place = KEPT;
        return;
    }
    if (u->place == SHARDED) return;
    drop(f, u);
    u->place = SHARDED;
}

/* ---- reducing ---- */

/* foreach_reduce. Takes the gradients over. */
static void reduce(fsdp *f, unit *u, tide_tensor **grads, uint32_t *with, uint32_t count) {
    tide_machine *m = machine_of(f);
    int64_t parts = 0, blocks = 0;
    tide_dtype dtype = f->has_reduced ? f->reduced : u->shards[with[0]].dtype;
    for (uint32_t i = 0; i < count; i++) {
        parts += u->shards[with[i]].padded;
        blocks += (bytes_of(u->shards[with[i]].padded, dtype) + BLOCK_BYTES - 1) / BLOCK_BYTES;
    }
    tide_tensor *input = on_stream(f, 0, parts * f->ranks, dtype, TIDE_FACTOR_COMMUNICATION);
    touch_list(f, blocks, 6 * (int64_t)count + 2);
    for (uint32_t i = 0; i < count; i++) tide_release(m, grads[i]);
    tide_tensor *output = on_stream(f, REDUCE_STREAM, parts, dtype, TIDE_FACTOR_GRADIENT);
    if (f->is_hybrid) {
        tide_release(m, u->all_reduced);
        u->all_reduced = tide_retain(output);
    }
    if (dtype != u->shards[with[0]].dtype) {
        tide_tensor *cast = on_stream(f, f->is_hybrid ? ALL_REDUCE_STREAM : REDUCE_STREAM, parts,
                                      u->shards[with[0]].dtype, TIDE_FACTOR_GRADIENT);
        tide_release(m, output);
        output = cast;
    }
    for (uint32_t i = 0; i < count && !f->is_offloaded; i++) {
        shard *s = &u->shards[with[i]];
        if (!s->local->grad) s->local->grad = tide_view_as(m, output, s->layout);
    }
    tide_release(m, output);
    f->sending = input;
}

/* FSDPParamGroup.post_backward. */
static void post_backward(fsdp *f, unit *u) {
    tide_machine *m = machine_of(f);
    u->group = AFTER_BACKWARD;
    m->op = op_name;
    if (!f->reduces) { /* whole gradients stay */
        reshard(f, u);
        return;
    }
    tide_tensor **grads = TIDE_NEW(m->arena, tide_tensor *, u->count + 1);
    uint32_t *with = TIDE_NEW(m->arena, uint32_t, u->count + 1), count = 0;
    for (uint32_t i = 0; i < u->count; i++) {
        tide_tensor *leaf = u->shards[i].leaf;
        if (!leaf->grad) continue;
        with[count] = i;
        grads[count++] = leaf->grad;
        leaf->grad = NULL;
    }
    reshard(f, u);
    tide_release_at(m, &f->sending);
    if (count) reduce(f, u, grads, with, count);
}

/* ---- backward ---- */

static void prefetch(fsdp *f, uint32_t target, phase as) {
    unit *u = &f->units[target];
    phase outside = u->group;
    u->group = as;
    unshard(f, u);
    u->group = outside;
}

/* Note [Wide gradients]: where gradients are reduced in a wider type than they are computed in, they are cast as they
 * come only if they stay for the next micro-batch. FSDPParamGroup._set_unsharded_grad_dtypes. */
static void set_gradient_dtypes(fsdp *f, unit *u) {
    for (uint32_t i = 0; i < u->count; i++) {
        tide_tensor *leaf = u->shards[i].leaf;
        tide_dtype wide = f->has_reduced ? f->reduced : u->shards[i].dtype;
        bool is_wider = tide_dtype_bytes(wide) > tide_dtype_bytes((tide_dtype)leaf->dtype);
        if (leaf->accumulator && is_wider)
            leaf->accumulator->outputs[0].dtype = leaf->grad || f->reduces ? leaf->dtype : (uint8_t)wide;
    }
}

/* FSDPState._pre_backward. */
static void pre_backward(void *state, uint32_t index) {
    fsdp *f = state;
    unit *u = &f->units[index];
    u->state = BEFORE_BACKWARD;
    if (u->group != BEFORE_BACKWARD && u->count) { /* a root whose parameters are all in units has no group */
        u->group = BEFORE_BACKWARD;
        unshard(f, u);
        wait_for_unshard(f, u);
        set_gradient_dtypes(f, u);
        if (!(f->prefetch && index + 1 < f->count) && u->order_count) {
            uint32_t at = u->order[--u->order_count];
            if (at) prefetch(f, f->order[at - 1], BEFORE_BACKWARD);
        }
    }
    if (!f->prefetch || index + 1 == f->count) return;
    for (uint32_t i = index; i-- > 0 && index - i <= f->prefetch;) prefetch(f, i, BEFORE_BACKWARD);
}

static void before_backward(tide_machine *m, tide_node *node) {
    tide_unit_hooks_run(&((fsdp *)m->wrapper)->hooks, m, node, pre_backward);
}

static void after_inputs(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    fsdp *f = m->wrapper;
    const char *op = m->op;
    post_backward(f, &f->units[node->attribute[0]]);
    m->op = op;
    for (unsigned i = 0; i < node->edge_count; i++) results[i] = tide_retain(grads[i]);
}
static const tide_backward post_backward_function = {"RegisterPostBackwardFunction", after_inputs};

/* _root_post_backward_final_callback. */
static void end_backward(void *state) {
    fsdp *f = state;
    tide_machine *m = machine_of(f);
    for (uint32_t i = 0; i < f->count; i++) {
        unit *u = &f->units[f->visits[i]];
        if (u->group != AFTER_BACKWARD && u->count) post_backward(f, u);
        u->group = u->state = IDLE;
    }
    for (uint32_t i = 0; i < f->count; i++) {
        unit *u = &f->units[f->visits[i]];
        tide_release_at(m, &u->all_reduced);
        tide_release_at(m, &u->gathered);
        u->is_gathering = false;
        u->order_count = 0;
        u->left = 0;
    }
    tide_release_at(m, &f->held);
    tide_release_at(m, &f->sending);
    f->order_count = f->forward_root = 0;
    f->hooks.count = 0;
}

/* ---- forward ---- */

/* Lists among the arguments are objects, as the cache of keys and values, into which the hooks do not look. */
static void each_tensor(tide_value *values, uint32_t count, void (*visit)(void *user, tide_value *value), void *user) {
    for (uint32_t i = 0; i < count; i++)
        if (values[i].kind == TIDE_VALUE_TENSOR) visit(user, &values[i]);
}

typedef struct cast_to {
    tide_machine *m;
    tide_dtype dtype;
} cast_to;

static void cast_one(void *user, tide_value *value) {
    const cast_to *c = user;
    if (!tide_dtype_is_float(value->tensor->dtype) || value->tensor->dtype == c->dtype) return;
    tide_value arguments[2] = {*value, {.kind = TIDE_VALUE_DTYPE, .dtype = c->dtype}};
    tide_value cast = tide_op_find(TIDE_TEXT("to"))->run(c->m, arguments);
    tide_value_release(c->m, *value);
    *value = cast;
}

enum { INPUT_LIMIT = 32 };

typedef struct found {
    tide_value *values[INPUT_LIMIT];
    int count;
} found;

static void find_one(void *user, tide_value *value) {
    found *f = user;
    if (value->tensor->requires_grad && f->count < INPUT_LIMIT) f->values[f->count++] = value;
}

/* RegisterPostBackwardFunction over all inputs that want a gradient. */
static void watch_inputs(fsdp *f, uint32_t index, found *inputs) {
    tide_machine *m = machine_of(f);
    tide_tensor *tensors[INPUT_LIMIT];
    for (int i = 0; i < inputs->count; i++) tensors[i] = inputs->values[i]->tensor;
    if (!inputs->count || !m->state.grad_enabled) return;
    m->op = op_name;
    tide_node *node = tide_node_with(m, &post_backward_function, tensors, inputs->count, inputs->count, 0);
    if (!node) return;
    node->attribute[0] = index;
    for (int i = 0; i < inputs->count; i++) {
        tide_tensor *same = tide_alias(m, tensors[i]);
        same->is_view = true;
        inputs->values[i]->tensor = tide_set_grad_fn(m, node, same);
        tide_release(m, tensors[i]);
    }
}

static void before_forward(tide_model *model, uint32_t instance, tide_value *positional, uint32_t count,
                           tide_value *named, uint32_t named_count) {
    tide_machine *m = model->m;
    fsdp *f = m->wrapper;
    uint32_t index = f->unit_of[instance];
    if (!index--) return;
    unit *u = &f->units[index];
    bool is_again = u->state == BEFORE_BACKWARD, is_first = u->state != FORWARD;
    if (!u->left) u->left = u->modules;
    if (is_again && u->place != GATHERED) {
        unshard(f, u);
        wait_for_unshard(f, u);
    }
    if (f->casts) {
        cast_to cast = {m, f->computed};
        each_tensor(positional, count, cast_one, &cast);
        each_tensor(named, named_count, cast_one, &cast);
    }
    if (is_again) return;
    u->state = FORWARD;
    if (!f->forward_root) f->forward_root = index + 1;
    bool is_entering = u->group != FORWARD;
    u->group = FORWARD;
    unshard(f, u);
    wait_for_unshard(f, u);
    if (is_entering) {
        found inputs = {.count = 0};
        each_tensor(positional, count, find_one, &inputs);
        each_tensor(named, named_count, find_one, &inputs);
        watch_inputs(f, index, &inputs);
    }
    if (!is_first || index + 1 == f->count) return;
    for (uint32_t i = index + 1; i < f->count - 1 && i - index <= f->prefetch; i++) prefetch(f, i, FORWARD);
}

typedef struct hook_to {
    fsdp *f;
    uint32_t unit;
} hook_to;

static void hook_one(void *user, tide_value *value) {
    const hook_to *h = user;
    tide_node *node = value->tensor->node;
    if (!node) return;
    tide_unit_hook_add(&h->f->hooks, machine_of(h->f), node, h->unit);
}

static void after_forward(tide_model *model, uint32_t instance, tide_value *output) {
    tide_machine *m = model->m;
    fsdp *f = m->wrapper;
    uint32_t index = f->unit_of[instance];
    if (!index--) return;
    unit *u = &f->units[index];
    tide_dtype out = tide_option_dtype(f->w->job, TIDE_OPTION_output_dtype, TIDE_DTYPE_COUNT);
    bool is_last = !u->left || --u->left == 0;
    tide_value *items = output->kind == TIDE_VALUE_LIST ? output->list->items : output;
    uint32_t count = output->kind == TIDE_VALUE_LIST ? output->list->count : 1;
    if (is_last && u->state != BEFORE_BACKWARD) {
        if (!m->state.is_in_backward && u->count) {
            reshard(f, u);
            TIDE_ROOM(m->arena, f->order, f->order_count, f->order_capacity);
            TIDE_ROOM(m->arena, u->order, u->order_count, u->order_capacity);
            u->order[u->order_count++] = f->order_count;
            f->order[f->order_count++] = index;
        }
        u->group = IDLE;
        if (m->state.grad_enabled) each_tensor(items, count, hook_one, &(hook_to){f, index});
        u->state = IDLE;
        if (f->forward_root == index + 1) {
            tide_release_at(m, &f->held);
            f->forward_root = 0;
        }
    }
    if (out != TIDE_DTYPE_COUNT) each_tensor(items, count, cast_one, &(cast_to){m, out});
}

/* ---- wrapping ---- */

static bool is_below(const tide_model *model, uint32_t instance, uint32_t above) {
    while (instance && instance != above) instance = model->instances[instance].parent;
    return instance == above;
}

static uint32_t child_named(const tide_model *model, uint32_t parent, const char *name) {
    for (uint32_t i = 1; i < model->instance_count; i++)
        if (model->instances[i].parent == parent && tide_text_is(model->instances[i].name, name)) return i;
    return 0;
}

static void add_module(fsdp *f, uint32_t unit_index, uint32_t instance) {
    f->unit_of[instance] = unit_index + 1;
    f->units[unit_index].modules++;
}

/* Which modules are units. Blocks are those that gradient checkpointing runs again. */
static bool choose_units(fsdp *f) {
    tide_model *model = f->w->model;
    tide_machine *m = model->m;
    const char *wrap = f->w->job->options[TIDE_OPTION_wrap];
    bool is_pairs = strncmp(wrap, "pairs", 5) == 0, is_fine = strcmp(wrap, "fine") == 0,
         is_titan = strcmp(wrap, "titan") == 0;
    int64_t at_once = 2;
    if (is_pairs && wrap[5] && (!tide_text_to_i64(&at_once, tide_text_of(wrap + 5)) || at_once < 1)) is_pairs = false;
    if (!is_pairs && !is_fine && !is_titan && strcmp(wrap, "layer") != 0 && strcmp(wrap, "root") != 0) {
        tide_error(m->diags, TIDE_ERR_FIELD_RANGE, "/settings/parallel.wrap",
                   "must be layer, pairs, pairs4 and the like, fine, titan or root", NULL);
        return !(m->has_failed = true);
    }
    f->units = TIDE_NEW(m->arena, unit, model->instance_count + 4);
    f->unit_of = TIDE_NEW(m->arena, uint32_t, model->instance_count + 1);
    uint32_t embedding = 0, blocks = 0;
    for (uint32_t i = 1; i < model->instance_count && is_titan && !embedding; i++)
        if (tide_text_is(model->instances[i].name, "embed_tokens")) embedding = i;
    if (is_titan && embedding) add_module(f, f->count++, embedding);
    for (uint32_t i = 1; i < model->instance_count && is_fine; i++) {
        if (!model->instances[i].of->is_checkpointed) continue;
        for (uint32_t k = i; k < model->instance_count && is_below(model, k, i); k++)
            if (model->instances[k].parent == i &&
                (tide_text_is(model->instances[k].name, "self_attn") || tide_text_is(model->instances[k].name, "mlp")))
                add_module(f, f->count++, k);
    }
    for (uint32_t i = 1; i < model->instance_count && strcmp(wrap, "root") != 0; i++) {
        if (!model->instances[i].of->is_checkpointed) continue;
        if (!is_pairs || blocks % (uint32_t)at_once == 0) f->count++;
        add_module(f, f->count - 1, i);
        blocks++;
    }
    uint32_t norm = embedding ? child_named(model, model->instances[embedding].parent, "norm") : 0,
             head = child_named(model, model->root, "lm_head");
    if (is_titan && norm && head) {
        add_module(f, f->count, norm);
        add_module(f, f->count++, head);
    } else if (is_titan) {
        tide_error(m->diags, TIDE_ERR_UNSUPPORTED, "/settings/parallel.wrap",
                   "titan wants modules embed_tokens, norm and lm_head", "use layer");
        return !(m->has_failed = true);
    }
    add_module(f, f->count++, model->root);
    f->visits = TIDE_NEW(m->arena, uint32_t, f->count + 1);
    uint32_t n = 0;
    bool *is_seen = TIDE_NEW(m->arena, bool, f->count + 1);
    for (uint32_t i = 1; i < model->instance_count; i++) {
        uint32_t of = f->unit_of[i];
        if (!of || is_seen[of - 1]) continue;
        is_seen[of - 1] = true;
        f->visits[n++] = of - 1;
    }
    return true;
}

/* FSDPParam._init_sharded_param: parts along the first dimension, the first ranks' larger. */
static void make_shard(fsdp *f, shard *s, const tide_parameter_row *row) {
    tide_machine *m = machine_of(f);
    tide_shape padded = *row->tensor->shape, local;
    if (padded.dims == 0) padded = tide_shape1((tide_dim){1, 0});
    int64_t rows = padded.size[0], each = TIDE_CEIL_DIV(rows, f->ranks), from = f->rank * each;
    int64_t mine = from >= rows ? 0 : rows - from < each ? rows - from : each;
    padded.size[0] = each;
    local = padded;
    local.size[0] = mine;
    *s = (shard){.leaf = row->tensor,
                 .module = row->module,
                 .padded = tide_count_of(&padded),
                 .count = tide_count_of(&local),
                 .layout = tide_layout_of(m, &local, NULL),
                 .dtype = (tide_dtype)row->tensor->dtype,
                 .trains = row->tensor->requires_grad};
    m->module = row->module;
    m->op = op_name;
    if (f->w->model->state.is_on_meta) {
        s->is_on_meta = true;
        s->local = tide_empty_host(m, &local, s->dtype);
        return;
    }
    m->state.factor = TIDE_FACTOR_PARAMETER;
    tide_tensor *part = tide_empty(m, &padded, s->dtype);
    m->state.factor = TIDE_FACTOR_TEMPORARY;
    s->local = f->is_offloaded ? tide_empty_host(m, &local, s->dtype) : tide_view_as(m, part, s->layout);
    if (f->is_offloaded) tide_pin_host(m, bytes_of(s->padded, s->dtype));
    tide_release(m, part);
}

static int64_t keepers_of(fsdp *f, tide_option option, const char *otherwise) {
    tide_machine *m = machine_of(f);
    const char *given = f->w->job->options[option];
    int64_t ranks = 0;
    if (!*given) given = otherwise;
    if (strcmp(given, "false") == 0) return 0;
    if (strcmp(given, "true") == 0) return 1;
    if (tide_text_to_i64(&ranks, tide_text_of(given)) && ranks >= 1 && f->ranks % ranks == 0)
        return ranks == f->ranks ? 1 : ranks;
    tide_error(m->diags, TIDE_ERR_FIELD_RANGE,
               option == TIDE_OPTION_root_reshard ? "/settings/parallel.root_reshard"
                                                  : "/settings/parallel.reshard_after_forward",
               "must be true, false, or a number that divides the ranks of a shard group", NULL);
    m->has_failed = true;
    return 1;
}

static void fsdp2_load(tide_model *model, const tide_job *job) {
    model->state.is_on_meta = tide_option_true(job, TIDE_OPTION_meta_init, false);
}

static void fsdp2_wrap(tide_wrapper *w) {
    tide_model *model = w->model;
    tide_machine *m = model->m;
    const tide_job *job = w->job;
    fsdp *f = TIDE_NEW(m->arena, fsdp, 1);
    int64_t hybrid = tide_option_int(job, TIDE_OPTION_hybrid, w->ranks);
    if (w->ranks % hybrid) {
        tide_error(m->diags, TIDE_ERR_FIELD_RANGE, "/settings/parallel.hybrid", "must divide parallel.dp", NULL);
        m->has_failed = true;
        return;
    }
    tide_dtype computed = tide_option_dtype(job, TIDE_OPTION_param_dtype, model->state.dtype),
               reduced = tide_option_dtype(job, TIDE_OPTION_reduce_dtype, TIDE_DTYPE_COUNT);
    *f = (fsdp){.w = w,
                .ranks = hybrid,
                .rank = w->rank % hybrid,
                .is_hybrid = tide_option_int(job, TIDE_OPTION_hybrid, 0) > 0,
                .computed = computed,
                .casts = computed != model->state.dtype,
                .has_reduced = reduced != TIDE_DTYPE_COUNT,
                .reduced = reduced,
                .is_offloaded = tide_option_true(job, TIDE_OPTION_offload, false),
                .prefetch = (uint32_t)tide_option_int(job, TIDE_OPTION_prefetch, 0)};
    if (model->state.is_on_meta && (f->is_offloaded || strcmp(job->adapter.method, "none") != 0)) {
        tide_error(m->diags, TIDE_ERR_UNSUPPORTED, "/settings/parallel.meta_init",
                   "is described for whole models on the device alone", "leave it out");
        m->has_failed = true;
        return;
    }
    w->state = m->wrapper = f;
    if (!choose_units(f)) return;
    uint32_t *of = TIDE_NEW(m->arena, uint32_t, model->parameter_count + 1);
    for (uint32_t i = 0; i < model->parameter_count; i++)
        f->units[of[i] = tide_unit_of_module(model, f->unit_of, f->count, model->parameters[i].module)].count++;
    const uint32_t *order = tide_children_first(model);
    int64_t keepers = keepers_of(f, TIDE_OPTION_reshard_after_forward, "true"),
            root = keepers_of(f, TIDE_OPTION_root_reshard, "false");
    tide_tensor **local_of = TIDE_NEW(m->arena, tide_tensor *, model->parameter_count + 1);
    for (uint32_t k = 0; k < f->count; k++) {
        unit *u = &f->units[k];
        uint32_t n = 0;
        u->keepers = k + 1 == f->count ? root : keepers;
        u->shards = TIDE_NEW(m->arena, shard, u->count + 1);
        for (uint32_t at = 0; at < model->parameter_count;
             at++) { /* _get_managed_modules: children first, as Module.to() goes */
            uint32_t i = order[at];
            if (of[i] != k) continue;
            make_shard(f, &u->shards[n], &model->parameters[i]);
            local_of[i] = u->shards[n++].local;
            bool is_root = u == &f->units[f->count - 1]; /* whose parts are pinned once more, as recorded */
            if (f->is_offloaded && is_root) tide_pin_host(m, bytes_of(u->shards[n - 1].padded, u->shards[n - 1].dtype));
        }
        drop(f, u);
        for (uint32_t i = 0; i < u->count; i++)
            u->shards[i].leaf->dtype = (uint8_t)(f->casts ? computed : u->shards[i].dtype);
    }
    if (model->state.is_on_meta) to_empty(f);
    uint32_t count = tide_optimizer_members(w->optimizer, NULL);
    tide_optimized *members = TIDE_NEW(m->arena, tide_optimized, count + 1);
    tide_optimizer_members(w->optimizer, members);
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t k = 0; k < model->parameter_count; k++)
            if (model->parameters[k].tensor == members[i].tensor) {
                members[i].tensor = local_of[k];
                break;
            }
    tide_optimizer_replace(w->optimizer, members, count);
    m->module = 0;
    model->before_forward = before_forward;
    model->after_forward = after_forward;
    m->before_backward = before_backward;
}

static void fsdp2_before_forward(tide_wrapper *w) {
    fsdp *f = w->state;
    f->reduces = w->is_last || tide_option_true(w->job, TIDE_OPTION_sync_each, false);
}

static void fsdp2_backward(tide_wrapper *w, tide_tensor *loss) {
    tide_backward_with_callback(w, loss, end_backward);
}

static void fsdp2_update(tide_wrapper *w) {
    fsdp *f = w->state;
    if (strcmp(w->job->optimizer, "none") == 0 || f->is_offloaded) return;
    tide_update_members(w);
}

const tide_strategy tide_fsdp2 = {.kind = "fsdp2",
                                  .load = fsdp2_load,
                                  .wrap = fsdp2_wrap,
                                  .before_forward = fsdp2_before_forward,
                                  .backward = fsdp2_backward,
                                  .update = fsdp2_update};
