/* SPDX-License-Identifier: Apache-2.0 */
/* deepspeed/runtime/zero/parameter_offload.py: hooks of modules. */
#include "parallel/zero3.h"

/* The engines that have hooks on a model, in the order in which these run. */
static zero3 *first_engine(zero3 *last) {
    return last->earlier ? last->earlier : last;
}

static zero3 *next_engine(zero3 *last, const zero3 *e) {
    return e == last ? NULL : last;
}

/* The autograd functions of a module, which the first engine makes for all. */

static void pre_backward_module_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    zero3 *z = first_engine(m->wrapper);
    uint32_t instance = node->of.wrapped.index;
    if (z->modules[instance].applied_pre_backward_ref_cnt) {
        tide_zero3_fetch_sub_module(z, instance, false);
        z->modules[instance].applied_pre_backward_ref_cnt--;
    }
    results[0] = tide_retain(grads[0]);
}
static const tide_backward pre_backward_function = {"PreBackwardFunctionForModule", pre_backward_module_run};

static void post_backward_module_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    zero3 *z = first_engine(m->wrapper);
    uint32_t instance = node->of.wrapped.index;
    if (--z->modules[instance].ds_grads_remaining == 0) tide_zero3_release_sub_module(z, instance, false);
    results[0] = tide_retain(grads[0]);
}
static const tide_backward post_backward_module = {"PostBackwardFunctionModule", post_backward_module_run};

/* register_full_backward_hook on a leaf module: its gradients are reduced when all have arrived. */
static void leaf_backward_hook_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    zero3 *z = m->wrapper;
    const zero_module *of = &z->modules[node->of.wrapped.index];
    for (uint32_t i = 0; i < z->trainable_count; i++)
        for (uint32_t k = 0; k < of->count; k++)
            if (of->params[k] == z->trainable[i] && z->params[of->params[k]].tensor->grad)
                tide_zero3_reduce_gradient(z, of->params[k]);
    results[0] = tide_retain(grads[0]);
}
static const tide_backward backward_hook_function = {"BackwardHookFunction", leaf_backward_hook_run};

/* An autograd function whose output is its detached input. */
static void apply_function(zero3 *z, uint32_t instance, const tide_backward *function, tide_value *value) {
    tide_machine *m = zero3_machine(z);
    tide_tensor *t = value->tensor, *same = tide_alias(m, t);
    tide_node *node = tide_node_with(m, function, &t, 1, 1, 0);
    same->is_view = true;
    if (node) node->of.wrapped.index = instance;
    value->tensor = tide_set_grad_fn(m, node, same);
    tide_release(m, t);
}

/* peft's PeftModel calls LoraModel if it knows its task, and that calls the model: modules without parameters, which
 * have numbers that no instance has, the outer one first. */
enum { PEFT_MODULES = 2 };

static uint32_t peft_module(const tide_model *model, int i) {
    return i ? model->instance_count : 0;
}

/* The hooks of one engine before a module's forward(), but for those of tensors. */
static void before_module(zero3 *z, uint32_t instance, bool is_outermost) {
    if (is_outermost) tide_zero3_reset_step(z); /* _start_of_forward_hook */
    tide_zero3_fetch_sub_module(z, instance, true);
}

static void apply_post_backward(zero3 *z, uint32_t instance, tide_value *positional, uint32_t count) {
    uint32_t *remaining = &z->modules[instance].ds_grads_remaining;
    *remaining = 0;
    for (uint32_t i = 0; i < count; i++)
        if (positional[i].kind == TIDE_VALUE_TENSOR && tide_dtype_is_float(positional[i].tensor->dtype)) {
            *remaining += positional[i].tensor->requires_grad; /* without gradients as well */
            apply_function(z, instance, &post_backward_module, &positional[i]);
        }
}

static void pre_forward_module_hook(tide_model *model, uint32_t instance, tide_value *positional, uint32_t count,
                                    tide_value *named, uint32_t named_count) {
    zero3 *z = model->m->wrapper;
    const zero_module *of = &z->modules[instance];
    const char *op = model->m->op;
    (void)named, (void)named_count; /* hooks without keywords do not see keyword arguments */
    if (of->is_in_z3_leaf) return;
    bool starts = instance == model->root && !model->m->state.is_in_backward;
    for (int i = 0; i < z->peft_modules && starts; i++)
        for (zero3 *e = first_engine(z); e; e = next_engine(z, e)) before_module(e, peft_module(model, i), i == 0);
    for (zero3 *e = first_engine(z); e; e = next_engine(z, e)) {
        before_module(e, instance, starts && !z->peft_modules);
        apply_post_backward(e, instance, positional, count);
    }
    for (uint32_t i = 0; i < count && of->is_z3_leaf; i++)
        if (positional[i].kind == TIDE_VALUE_TENSOR && tide_dtype_is_float(positional[i].tensor->dtype))
            apply_function(z, instance, &backward_hook_function, &positional[i]);
    model->m->op = op;
}

/* Outputs, and those in a tuple of one, as hidden_states; caches, whose layers are lists, are no tuples. */
static void apply_pre_backward(zero3 *z, uint32_t instance, tide_value *items, uint32_t count, bool is_nested) {
    for (uint32_t i = 0; i < count; i++) {
        if (items[i].kind == TIDE_VALUE_LIST && !is_nested)
            apply_pre_backward(z, instance, items[i].list->items, items[i].list->count, true);
        if (items[i].kind != TIDE_VALUE_TENSOR) continue;
        z->modules[instance].applied_pre_backward_ref_cnt++;
        apply_function(z, instance, &pre_backward_function, &items[i]);
    }
}

static void post_forward_module_hook(tide_model *model, uint32_t instance, tide_value *output) {
    zero3 *z = model->m->wrapper;
    tide_value *items = output->kind == TIDE_VALUE_LIST ? output->list->items : output;
    uint32_t count = output->kind == TIDE_VALUE_LIST ? output->list->count : 1;
    if (z->modules[instance].is_in_z3_leaf) return;
    for (zero3 *e = first_engine(z); e; e = next_engine(z, e)) {
        tide_zero3_release_sub_module(e, instance, true);
        apply_pre_backward(e, instance, items, count, false);
    }
    for (int k = z->peft_modules; k-- > 0 && instance == model->root;)
        for (zero3 *e = first_engine(z); e; e = next_engine(z, e))
            apply_pre_backward(e, peft_module(model, k), items, count, false);
}

/* ---- modules and their parameters ---- */

/* Inserts a parameter into those of a module, sorted by index. */
static void add_param(zero3 *z, uint32_t instance, const tide_tensor *leaf) {
    tide_machine *m = zero3_machine(z);
    zero_module *of = &z->modules[instance];
    uint32_t p = tide_zero3_param_of(z, leaf);
    for (uint32_t i = 0; i < of->count; i++)
        if (of->params[i] == p) return;
    if (p == z->count) return;
    TIDE_ROOM(m->arena, of->params, of->count, of->capacity);
    uint32_t at = of->count++;
    for (; at && of->params[at - 1] > p; at--) of->params[at] = of->params[at - 1];
    of->params[at] = p;
    if (of->count > ZERO_MODULE_PARAMS)
        tide_fail(m, TIDE_ERR_LIMIT, "more than %d parameters in one module under ZeRO-3", ZERO_MODULE_PARAMS);
}

/* ZeROOrderedDict.__getitem__: forward() of a module that reads another module's parameter gathers it, and owns it from
 * then on. */
static tide_tensor *zero3_read_parameter(tide_model *model, uint32_t instance, tide_tensor *leaf) {
    tide_machine *m = model->m;
    zero3 *z = m->wrapper;
    uint32_t p = tide_zero3_param_of(z, leaf), outside = m->module;
    if (!instance) instance = model->root; /* of a function that replaces its forward() */
    if (p == z->count || z->params[p].ds_status != ZERO_NOT_AVAILABLE || m->state.is_in_backward) return NULL;
    add_param(z, instance, leaf);
    if (!z->modules[instance].is_z3_leaf) z->modules[instance].own_count = z->modules[instance].count;
    tide_zero3_allgather_param(z, &z->params[p], 0);
    z->params[p].ds_status = ZERO_AVAILABLE;
    m->module = outside;
    return NULL;
}

/* The parameters of an instance and of all modules below; `leaf`: the leaf module that contains them. */
static void collect_params(zero3 *z, uint32_t above, uint32_t instance, uint32_t leaf, int depth);

static void collect_value(zero3 *z, uint32_t above, tide_value v, uint32_t leaf, int depth) {
    if (v.kind == TIDE_VALUE_MODULE) collect_params(z, above, v.module, leaf, depth);
    for (uint32_t k = 0; v.kind == TIDE_VALUE_LIST && depth < ZERO_MODULE_DEPTH && k < v.list->count; k++)
        collect_value(z, above, v.list->items[k], leaf, depth + 1);
}

static void collect_params(zero3 *z, uint32_t above, uint32_t instance, uint32_t leaf, int depth) {
    tide_model *model = z->w->model;
    tide_machine *m = model->m;
    const tide_instance *of = &model->instances[instance];
    zero_module *to = &z->modules[above];
    if (depth > ZERO_MODULE_DEPTH) return;
    if (leaf && instance != leaf) z->modules[instance].is_in_z3_leaf = true;
    for (uint32_t i = 0; i < z->modules[instance].own_count; i++) {
        uint32_t p = z->modules[instance].params[i];
        TIDE_ROOM(m->arena, to->all, to->all_count, to->all_capacity);
        to->all[to->all_count++] = p;
        if (leaf) z->params[p].is_in_z3_leaf = true;
        if (leaf && instance != leaf) add_param(z, leaf, z->params[p].tensor);
    }
    for (uint32_t k = 0; k < of->of->member_count; k++)
        collect_value(z, above, of->slots[of->of->parameter_count + k], leaf, depth + 1);
}

/* deepspeed/runtime/zero/leaf_module_config.py */
static void set_z3_leaf_modules(zero3 *z) {
    const tide_model *model = z->w->model;
    bool has_any = false;
    for (uint32_t i = 1; i < model->instance_count; i++) {
        z->modules[i].own_count = z->modules[i].count;
        has_any = has_any || model->instances[i].of->is_zero_leaf;
    }
    for (uint32_t i = 1; i < model->instance_count && has_any; i++) {
        z->modules[i].is_z3_leaf = model->instances[i].of->is_zero_leaf;
        collect_params(z, i, i, z->modules[i].is_z3_leaf ? i : 0, 0);
    }
}

static void set_hooks(zero3 *z) {
    z->w->model->before_forward = pre_forward_module_hook;
    z->w->model->after_forward = post_forward_module_hook;
    z->w->model->read_parameter = zero3_read_parameter;
}

void tide_zero3_generation_begins(tide_wrapper *w, tide_value *inputs, uint32_t count) {
    (void)inputs;
    (void)count;
    zero3 *z = w->state;
    tide_model *model = w->model;
    uint32_t outside = model->m->module;
    for (uint32_t i = 0; i < z->count; i++) {
        zero_param *p = &z->params[i];
        if (p->ds_status == ZERO_NOT_AVAILABLE) tide_zero3_allgather_param(z, p, 0);
        p->ds_status = ZERO_AVAILABLE;
        p->active_sub_module_count = 0;
    }
    model->m->module = outside;
    model->before_forward = NULL;
    model->after_forward = NULL;
    model->read_parameter = NULL;
}

void tide_zero3_generation_ends(tide_wrapper *w) {
    zero3 *z = w->state;
    tide_zero3_invalidate_trace(z);
    set_hooks(z);
    for (uint32_t i = 0; i < z->count; i++) tide_zero3_release_param(z, &z->params[i]);
}

/* GatheredParameters.params: sorted by ds_id. */
static zero_param **sorted_params(zero3 *z, tide_tensor *const *weights, uint32_t count, uint32_t *found) {
    zero_param **params = TIDE_NEW(zero3_machine(z)->arena, zero_param *, count + 1);
    for (uint32_t i = *found = 0; i < count; i++) {
        uint32_t of = tide_zero3_param_of(z, weights[i]), at = *found;
        if (of == z->count) continue;
        for (; at && params[at - 1]->ds_id > z->params[of].ds_id; at--) params[at] = params[at - 1];
        params[at] = &z->params[of];
        ++*found;
    }
    return params;
}

void tide_zero3_gather_params(tide_wrapper *w, tide_tensor *const *weights, uint32_t count) {
    zero3 *z = w->state;
    tide_machine *m = zero3_machine(z);
    uint32_t outside = m->module, found;
    zero_param **params = sorted_params(z, weights, count, &found);
    for (uint32_t i = 0; i < found; i++) {
        if (params[i]->ds_status != ZERO_NOT_AVAILABLE) continue;
        tide_zero3_allgather_param(z, params[i], (uint8_t)m->state.stream);
        params[i]->ds_status = ZERO_AVAILABLE;
    }
    m->module = outside;
}

void tide_zero3_leave_params(tide_wrapper *w, tide_tensor *const *weights, uint32_t count) {
    zero3 *z = w->state;
    tide_machine *m = zero3_machine(z);
    uint32_t found;
    zero_param **params = sorted_params(z, weights, count, &found);
    for (uint32_t i = 0; i < found; i++) {
        if (params[i]->ds_status != ZERO_AVAILABLE) continue;
        if (z->w->ranks > 1) tide_record_stream(m, params[i]->tensor, (uint8_t)m->state.stream);
        tide_zero3_empty_data(m, params[i]->tensor);
        params[i]->ds_status = ZERO_NOT_AVAILABLE;
    }
}

void tide_zero3_checkpoint_event(tide_wrapper *w, bool has_ended) {
    zero3 *z = w->state;
    if (has_ended) tide_zero3_allgather_persistent(z);
    for (uint32_t i = 0; i < z->count && !has_ended; i++) tide_zero3_release_param(z, &z->params[i]);
}

static void find_module_params(zero3 *z) {
    const tide_model *model = z->w->model;
    z->modules = TIDE_NEW(model->m->arena, zero_module, model->instance_count + 1);
    for (uint32_t i = 1; i < model->instance_count; i++) { /* tied parameters belong to every module that has them */
        const tide_instance *of = &model->instances[i];
        for (uint32_t k = 0; k < of->of->member_count; k++) {
            tide_value v = of->slots[of->of->parameter_count + k];
            if (v.kind == TIDE_VALUE_TENSOR && v.tensor->is_parameter) add_param(z, i, v.tensor);
        }
    }
    set_z3_leaf_modules(z);
}

void tide_zero3_register_modules(zero3 *z) {
    if (z->earlier)
        z->modules = z->earlier->modules;
    else
        find_module_params(z);
    z->peft_modules = z->w->job->adapter == TIDE_adapter_none ? 0 : tide_adapter_has_task(z->w->job) ? PEFT_MODULES : 1;
    set_hooks(z);
}
