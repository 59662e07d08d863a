/* SPDX-License-Identifier: Apache-2.0 */
/* The model: built over a configuration, changed by wrappers, moved to the device, and run. */
#include <string.h>

#include "base/rounding.h"
#include "lang/interpreter.h"

/* ---- the whole model ---- */

static const char *where_it_stands(tide_machine *m) {
    const tide_model *model = m->interpreter;
    const char *path = m->module && m->module < model->instance_count ? model->instances[m->module].path : "";
    tide_statement *s = m->statement && m->statement < model->descriptions->statement_capacity
                            ? model->descriptions->statements[m->statement]
                            : NULL;
    if (!s) return path;
    return tide_format(m->arena, "%s%s'%.*s'", path, *path ? ", " : "",
                       (int)(s->text.length < 160 ? s->text.length : 160), s->text.at);
}

void tide_model_init(tide_model *model, tide_machine *m, tide_descriptions *descriptions) {
    *model = (tide_model){.m = m, .descriptions = descriptions};
    tide_names_init(&model->size_names, descriptions->arena);
    m->interpreter = model;
    m->call_again = tide_call_again;
    m->function_free = tide_closure_free;
    m->where = where_it_stands;
    TIDE_ROOM(m->arena, model->instances, model->instance_count, model->instance_capacity);
    model->instance_count = 1;
    model->instances[0].path = "";
    tide_intern(m->arena, &model->parts, &model->part_count, &model->part_capacity, TIDE_TEXT(""));
    tide_intern(m->arena, &model->layers, &model->layer_count, &model->layer_capacity, TIDE_TEXT(""));
}

static void tie_parameters(tide_model *model, uint32_t instance) {
    tide_machine *m = model->m;
    const tide_class *of = model->instances[instance].of;
    if (!of->ties || m->has_failed) return;
    if (of->tie_condition) {
        tide_value holds = tide_eval_config(model, model->instances[instance].scope, of->tie_condition);
        bool ties = tide_is_true(m, holds);
        tide_value_release(m, holds);
        if (!ties) return;
    }
    for (const tide_statement *tie = of->ties; tie; tie = tie->next) {
        tide_value *to = tide_slot_at(model, instance, tie->targets[0]),
                   *from = tide_slot_at(model, instance, tie->targets[1]);
        if (!to || !from || from->kind != TIDE_VALUE_TENSOR) {
            tide_fail(m, TIDE_ERR_DESCRIPTION, "the tie of '%s' to '%s' names no parameters",
                      tide_terminated(m, tie->targets[0]), tide_terminated(m, tie->targets[1]));
            return;
        }
        tide_value_release(m, *to);
        *to = tide_value_retain(*from);
    }
}

static void list_parameters(tide_model *model, uint32_t instance, int depth);

/* A module, or a list of modules and lists. */
static void list_within(tide_model *model, tide_value v, int depth) {
    if (v.kind == TIDE_VALUE_MODULE) list_parameters(model, v.module, depth);
    for (uint32_t k = 0; v.kind == TIDE_VALUE_LIST && depth <= CALL_DEPTH && k < v.list->count; k++)
        list_within(model, v.list->items[k], depth + 1);
}

static void list_parameters(tide_model *model, uint32_t instance, int depth) {
    tide_machine *m = model->m;
    tide_instance *of = &model->instances[instance];
    if (depth > CALL_DEPTH) return;
    for (uint32_t i = 0; i < of->of->member_count; i++) {
        tide_value v = of->slots[of->of->parameter_count + i];
        if (v.kind != TIDE_VALUE_TENSOR) continue;
        if (!v.tensor->is_parameter) {
            TIDE_ROOM(m->arena, model->buffers, model->buffer_count, model->buffer_capacity);
            model->buffers[model->buffer_count++] = v.tensor;
            continue;
        }
        bool is_listed = v.tensor->offset == -1; /* marks a parameter that was listed already */
        if (is_listed || v.tensor->is_absent) continue;
        v.tensor->offset = -1;
        TIDE_ROOM(m->arena, model->parameters, model->parameter_count, model->parameter_capacity);
        model->parameters[model->parameter_count++] =
            (tide_parameter_row){.tensor = v.tensor,
                                 .module = instance,
                                 .name = tide_dotted(m->arena, tide_text_of(of->path), of->of->members[i].name)};
    }
    for (uint32_t i = 0; i < of->of->member_count; i++)
        list_within(model, of->slots[of->of->parameter_count + i], depth + 1);
}

/* A default sequence holds text only; what images and the like need of it ("media_tokens") is added, and always for an
 * image that a collator adds. */
static void make_room_for_media(tide_model *model, uint32_t scope) {
    tide_machine *m = model->m;
    tide_value *seq = tide_model_setting(model, "seq"), *cache = tide_model_setting(model, "cache_length");
    const tide_value *added = tide_model_setting(model, "adds_image");
    bool is_default = false, adds_image = added && added->truth;
    if (!seq || !model->find_place ||
        !tide_size_is_defined(model->scopes[scope].description, TIDE_TEXT("media_tokens")))
        return;
    const char *place = model->find_place(model->user, model->scopes[scope].config, TIDE_TEXT("seq"), &is_default);
    uint32_t reads = model->step_reads;
    tide_value tokens = is_default || adds_image
                            ? tide_scope_size(model, scope, tide_name(&model->size_names, TIDE_TEXT("media_tokens")))
                            : tide_none();
    model->step_reads = reads;
    if (tokens.kind != TIDE_VALUE_INT || tokens.integer < 1 || tokens.integer > INT64_C(1) << 40) return;
    if (adds_image) {
        int64_t all = seq->integer + tokens.integer + tide_model_setting(model, "added_markers")->integer;
        tokens.integer = TIDE_ROUND_UP(all, tide_model_setting(model, "added_multiple")->integer) - seq->integer;
    }
    tide_report(m->diags, TIDE_ASSUMPTION, TIDE_OK, place,
                tide_format(m->arena,
                            adds_image ? "%lld tokens in each row: %lld of text, and %lld for an image of 64 x 64 "
                                         "pixels that the collator adds to a batch without images"
                                       : "%lld tokens per sample: %lld of text, and %lld of images",
                            (long long)(seq->integer + tokens.integer), (long long)seq->integer,
                            (long long)tokens.integer),
                NULL);
    seq->integer += tokens.integer;
    if (cache) cache->integer += tokens.integer;
}

bool tide_model_build(tide_model *model, tide_description *description, tide_text class_name, const tide_json *config) {
    tide_machine *m = model->m;
    uint32_t scope = tide_scope_new(model, description, config);
    tide_class *of = tide_class_find(model->descriptions, description, class_name);
    if (!of) {
        tide_fail(m, TIDE_ERR_MODEL_UNKNOWN, "the description '%s' has no module '%s'", description->name.at,
                  tide_terminated(m, class_name));
        return false;
    }
    make_room_for_media(model, scope);
    tide_run_checks(model, scope);
    if (m->has_failed) return false;
    const tide_arguments none = {.count = 0};
    uint32_t first = model->instance_count;
    model->root = tide_instantiate(model, of, scope, &none);
    if (!model->root || m->has_failed) return false;
    tide_name_instance(model, model->root, 0, TIDE_TEXT(""));
    for (uint32_t i = first; i < model->instance_count; i++) tie_parameters(model, i);
    tide_model_list_parameters(model);
    return !m->has_failed;
}

void tide_model_forget_step_sizes(tide_model *model) {
    model->size_op_count = 0;
    for (uint32_t i = 0; i < model->scope_count; i++)
        for (uint32_t k = 0; k < model->scopes[i].capacity; k++)
            if (model->scopes[i].states[k] == TIDE_SIZE_OF_STEP) model->scopes[i].states[k] = TIDE_SIZE_UNKNOWN;
}

bool tide_model_resize(tide_model *model) {
    tide_model_forget_step_sizes(model);
    make_room_for_media(model, 0);
    for (uint32_t i = 0; i < model->scope_count && !model->m->has_failed; i++) tide_run_checks(model, i);
    return !model->m->has_failed;
}

void tide_model_list_parameters(tide_model *model) {
    model->parameter_count = model->buffer_count = 0;
    list_parameters(model, model->root, 0);
    for (uint32_t i = 0; i < model->extra_count; i++) {
        TIDE_ROOM(model->m->arena, model->parameters, model->parameter_count, model->parameter_capacity);
        model->parameters[model->parameter_count++] = model->extra[i];
    }
    for (uint32_t i = 0; i < model->parameter_count; i++) model->parameters[i].tensor->offset = 0;
}

tide_tensor *tide_model_untie(tide_model *model, uint32_t instance, const tide_tensor *tied) {
    tide_machine *m = model->m;
    tide_instance *of = &model->instances[instance];
    for (uint32_t i = 0; i < of->of->member_count; i++) {
        tide_value *slot = &of->slots[of->of->parameter_count + i];
        if (slot->kind != TIDE_VALUE_TENSOR || slot->tensor != tied) continue;
        tide_tensor *own = tide_empty_host(m, tied->shape, (tide_dtype)tied->dtype);
        own->is_parameter = own->is_leaf = true;
        own->requires_grad = tied->requires_grad;
        tide_value_release(m, *slot);
        *slot = tide_of_tensor(own);
        TIDE_ROOM(m->arena, model->parameters, model->parameter_count, model->parameter_capacity);
        model->parameters[model->parameter_count++] =
            (tide_parameter_row){.tensor = own,
                                 .module = instance,
                                 .name = tide_dotted(m->arena, tide_text_of(of->path), of->of->members[i].name)};
        return own;
    }
    return NULL;
}

/* ---- changing a model: what peft and bitsandbytes do to its tree ---- */

static void list_modules(tide_model *model, tide_value v, uint32_t *list, uint32_t *count, int depth) {
    if (v.kind == TIDE_VALUE_LIST)
        for (uint32_t i = 0; i < v.list->count; i++) list_modules(model, v.list->items[i], list, count, depth);
    if (v.kind != TIDE_VALUE_MODULE || depth > CALL_DEPTH || *count >= model->instance_count) return;
    const tide_instance *of = &model->instances[v.module];
    if (of->is_listed) return;
    model->instances[v.module].is_listed = true;
    list[(*count)++] = v.module;
    for (uint32_t i = 0; i < of->of->member_count; i++)
        list_modules(model, of->slots[of->of->parameter_count + i], list, count, depth + 1);
}

uint32_t *tide_model_modules(tide_model *model, uint32_t *count) {
    uint32_t *list = TIDE_NEW(model->m->arena, uint32_t, model->instance_count);
    *count = 0;
    list_modules(model, (tide_value){.kind = TIDE_VALUE_MODULE, .module = model->root}, list, count, 0);
    for (uint32_t i = 0; i < *count; i++) model->instances[list[i]].is_listed = false;
    return list;
}

uint32_t tide_model_below(tide_model *model, uint32_t instance, tide_text path) {
    tide_value *found = instance && path.length ? tide_slot_at(model, instance, path) : NULL;
    return found && found->kind == TIDE_VALUE_MODULE ? found->module : 0;
}

uint32_t tide_model_find(tide_model *model, tide_text path) {
    const tide_value *found = path.length ? tide_slot_at(model, model->root, path) : NULL;
    return found && found->kind == TIDE_VALUE_MODULE ? found->module : 0;
}

/* Replaces a module in a member or list of its parent. */
static void take_place(tide_value *v, uint32_t old, uint32_t made) {
    if (v->kind == TIDE_VALUE_MODULE && v->module == old) v->module = made;
    for (uint32_t i = 0; v->kind == TIDE_VALUE_LIST && i < v->list->count; i++)
        take_place(&v->list->items[i], old, made);
}

uint32_t tide_model_wrap(tide_model *model, uint32_t instance, tide_text class_name, const tide_value *more,
                         uint32_t more_count) {
    tide_machine *m = model->m;
    tide_arguments given = {.positional = {{.kind = TIDE_VALUE_MODULE, .module = instance}}, .count = more_count + 1};
    tide_instance old = model->instances[instance];
    tide_class *of = tide_class_find(model->descriptions, model->scopes[old.scope].description, class_name);
    if (!of) tide_fail(m, TIDE_ERR_DESCRIPTION, "no module '%s'", tide_terminated(m, class_name));
    if (!of) return 0;
    for (uint32_t i = 0; i < more_count; i++) given.positional[i + 1] = tide_value_retain(more[i]);
    model->instances[instance].path = ""; /* to be named again, below the new module */
    uint32_t made = tide_instantiate(model, of, old.scope, &given);
    if (!made || m->has_failed) return 0;
    if (instance == model->root) { /* the names below it stay */
        model->root = made;
        tide_name_instance(model, made, 0, TIDE_TEXT(""));
        return made;
    }
    tide_instance *parent = &model->instances[old.parent];
    for (uint32_t i = 0; i < parent->of->member_count; i++)
        take_place(&parent->slots[parent->of->parameter_count + i], instance, made);
    tide_name_instance(model, made, old.parent, old.name);
    return made;
}

/* Releases the parameters and buffers of a module and of those below it, except one. */
static void drop_tensors(tide_model *model, tide_value *v, uint32_t kept, int depth) {
    if (depth > CALL_DEPTH) return;
    if (v->kind == TIDE_VALUE_TENSOR) {
        tide_value_release(model->m, *v);
        *v = tide_none();
    }
    for (uint32_t i = 0; v->kind == TIDE_VALUE_LIST && i < v->list->count; i++)
        drop_tensors(model, &v->list->items[i], kept, depth + 1);
    if (v->kind != TIDE_VALUE_MODULE || v->module == kept) return;
    const tide_instance *of = &model->instances[v->module];
    for (uint32_t i = 0; i < of->of->member_count; i++)
        drop_tensors(model, &of->slots[of->of->parameter_count + i], kept, depth + 1);
}

void tide_model_unwrap(tide_model *model, uint32_t instance) {
    tide_instance old = model->instances[instance];
    tide_value *inner = old.of->delegate.length ? tide_slot_at(model, instance, old.of->delegate) : NULL;
    if (!inner || inner->kind != TIDE_VALUE_MODULE || !old.parent) return;
    uint32_t kept = inner->module;
    tide_instance *parent = &model->instances[old.parent];
    for (uint32_t i = 0; i < parent->of->member_count; i++)
        take_place(&parent->slots[parent->of->parameter_count + i], instance, kept);
    tide_value wrapper = {.kind = TIDE_VALUE_MODULE, .module = instance};
    drop_tensors(model, &wrapper, kept, 0);
    model->instances[kept].path = "";
    tide_name_instance(model, kept, old.parent, old.name);
}

static void claim(tide_machine *m, tide_value v, tide_factor factor) {
    if (v.kind == TIDE_VALUE_TENSOR) tide_set_factor(m, v.tensor, factor);
    for (uint32_t i = 0; v.kind == TIDE_VALUE_LIST && i < v.list->count; i++) claim(m, v.list->items[i], factor);
}

void tide_model_call(tide_model *model, uint32_t instance, tide_text method, tide_factor factor) {
    tide_machine *m = model->m;
    tide_function *function = tide_method_find(model->instances[instance].of, method);
    if (!function || m->has_failed) return;
    bool grad_enabled = m->state.grad_enabled;
    m->state.grad_enabled = false;
    tide_value_release(m, tide_call_module(model, instance, function, NULL, 0, NULL, NULL, 0));
    m->state.grad_enabled = grad_enabled;
    const tide_instance *of = &model->instances[instance];
    for (uint32_t i = 0; i < of->of->member_count; i++) {
        tide_value v = of->slots[of->of->parameter_count + i];
        if (v.kind == TIDE_VALUE_LIST) claim(m, v, factor);
    }
}

int64_t tide_model_count(tide_model *model, const tide_parameter_row *parameter) {
    bool may_be_packed = !tide_dtype_is_float((tide_dtype)parameter->tensor->dtype) ||
                         tide_text_ends(tide_text_of(parameter->name), TIDE_TEXT(".weight")); /* in a storage dtype */
    tide_function *numel =
        may_be_packed ? tide_method_find(model->instances[parameter->module].of, TIDE_TEXT("numel")) : NULL;
    const char *dot = strrchr(parameter->name, '.');
    tide_value name = {.kind = TIDE_VALUE_TEXT, .text = tide_text_of(dot ? dot + 1 : parameter->name)};
    tide_value made = numel ? tide_call_module(model, parameter->module, numel, &name, 1, NULL, NULL, 0) : tide_none();
    return made.kind == TIDE_VALUE_INT ? made.integer : tide_count(parameter->tensor);
}

static void give_storage(tide_model *model, uint32_t instance, tide_tensor *t, tide_factor factor) {
    tide_machine *m = model->m;
    if (!t->storage->is_untracked || t->is_absent || tide_count(t) == 0)
        return; /* shared with one that exists already */
    m->module = instance;
    m->state.factor = factor;
    m->op = "to";
    tide_tensor *made = tide_empty(m, t->shape, t->dtype);
    m->state.factor = TIDE_FACTOR_TEMPORARY;
    tide_storage *old = t->storage;
    t->storage = made->storage;
    made->storage = old;
    tide_release(m, made);
}

void tide_model_place(tide_model *model, uint32_t instance, tide_tensor *t, tide_factor factor) {
    give_storage(model, instance, t, factor);
}

void tide_model_place_buffers(tide_model *model, uint32_t instance) {
    const tide_instance *of = &model->instances[instance];
    uint32_t first = of->of->parameter_count, end = first + of->of->member_count;
    for (uint32_t i = first; i < end; i++)
        if (of->slots[i].kind == TIDE_VALUE_TENSOR && !of->slots[i].tensor->is_parameter) {
            tide_model_place(model, instance, of->slots[i].tensor, TIDE_FACTOR_BUFFER);
            model->buffer_bytes += (uint64_t)tide_bytes(of->slots[i].tensor);
        }
}

static void to_device(tide_model *model, uint32_t instance, int depth);

static void move_within(tide_model *model, tide_value v, int depth) {
    if (v.kind == TIDE_VALUE_MODULE) to_device(model, v.module, depth);
    for (uint32_t k = 0; v.kind == TIDE_VALUE_LIST && depth <= CALL_DEPTH && k < v.list->count; k++)
        move_within(model, v.list->items[k], depth + 1);
}

static void to_device(tide_model *model, uint32_t instance, int depth) {
    tide_instance *of = &model->instances[instance];
    if (depth > CALL_DEPTH || model->m->has_failed) return;
    uint32_t first = of->of->parameter_count, end = first + of->of->member_count;
    for (uint32_t i = first; i < end; i++) move_within(model, of->slots[i], depth + 1);
    if (tide_method_find(of->of, TIDE_TEXT("cuda"))) { /* quantised when it is moved */
        tide_model_call(model, instance, TIDE_TEXT("cuda"), TIDE_FACTOR_PARAMETER);
        return;
    }
    for (uint32_t i = first; i < end; i++)
        if (of->slots[i].kind == TIDE_VALUE_TENSOR && of->slots[i].tensor->is_parameter) {
            if (model->parameter_empty)
                model->parameter_empty(model, instance, of->slots[i].tensor);
            else
                give_storage(model, instance, of->slots[i].tensor, TIDE_FACTOR_PARAMETER);
        }
    for (uint32_t i = first; i < end && model->parameter_made; i++)
        if (of->slots[i].kind == TIDE_VALUE_TENSOR && of->slots[i].tensor->is_parameter)
            model->parameter_made(model, of->slots[i].tensor);
    if (!model->without_buffers || !model->without_buffers[instance]) tide_model_place_buffers(model, instance);
    if (model->module_empty) model->module_empty(model, instance);
}

void tide_model_require_input_grads(tide_model *model, bool by_peft) {
    model->has_peft = by_peft;
    for (uint32_t i = 1; i < model->instance_count; i++) {
        uint32_t embeddings = tide_model_below(model, i, model->instances[i].of->input_embeddings);
        if (embeddings) model->instances[embeddings].makes_grad = true;
    }
}

void tide_model_to_device(tide_model *model) {
    if (model->state.is_on_meta) return;
    to_device(model, model->root, 0);
    for (uint32_t i = 0; i < model->extra_count; i++)
        give_storage(model, model->extra[i].module, model->extra[i].tensor, TIDE_FACTOR_PARAMETER);
    model->m->module = 0;
}

/* In the order of Module.to() and of FSDP2's search: the parameters of children before a module's own. */
static bool comes_before(const tide_model *model, uint32_t a, uint32_t b) {
    uint32_t first = model->parameters[a].module, second = model->parameters[b].module;
    return first != second && tide_is_below(model, first, second);
}

const uint32_t *tide_children_first(const tide_model *model) {
    if (model->children_first) return model->children_first;
    uint32_t *order = TIDE_NEW(model->m->arena, uint32_t, model->parameter_count + 1);
    for (uint32_t i = 0; i < model->parameter_count; i++) {
        uint32_t at = i;
        for (; at && comes_before(model, i, order[at - 1]); at--) order[at] = order[at - 1];
        order[at] = i;
    }
    return order;
}

tide_value *tide_model_setting(const tide_model *model, const char *name) {
    for (uint32_t i = 0; i < model->setting_count; i++)
        if (strcmp(model->settings[i].name, name) == 0) return &model->settings[i].value;
    return NULL;
}

static tide_text delegate_of(const tide_model *model, const tide_class *of) {
    if (!of->delegate_disabled.length) return of->delegate;
    const tide_value *disabled = tide_model_setting(model, "adapters_disabled");
    return disabled && disabled->truth ? of->delegate_disabled : of->delegate;
}

uint32_t tide_delegated(const tide_model *model, uint32_t module, tide_text name) {
    enum { WRAPPERS = 4 }; /* most wrappers around each other */
    for (int depth = 0; depth < WRAPPERS && module; depth++) {
        const tide_instance *of = &model->instances[module];
        if (!of->of->delegate.length || tide_attribute_slot(of->of, name) != UINT32_MAX ||
            tide_method_find(of->of, name))
            break;
        uint32_t slot = tide_attribute_slot(of->of, delegate_of(model, of->of));
        if (slot == UINT32_MAX || of->slots[slot].kind != TIDE_VALUE_MODULE) break;
        module = of->slots[slot].module;
    }
    return module;
}

/* Calls the root's method of this name, or the root itself if NULL. */
static tide_value call_root(tide_model *model, tide_function *method, const char *const *names,
                            const tide_value *values, uint32_t count) {
    tide_text keywords[ARGUMENT_LIMIT];
    for (uint32_t i = 0; i < count && i < ARGUMENT_LIMIT; i++) keywords[i] = tide_text_of(names[i]);
    return tide_call_module(model, model->root, method, NULL, 0, keywords, values, count);
}

tide_value tide_model_method(tide_model *model, tide_text name, const char *const *names, const tide_value *values,
                             uint32_t count) {
    tide_function *method = tide_method_find(model->instances[model->root].of, name);
    return method ? call_root(model, method, names, values, count) : tide_none();
}

tide_value tide_model_forward(tide_model *model, const char *const *names, const tide_value *values, uint32_t count) {
    if (!model->instances[model->root].of->forward)
        return tide_nothing(model->m, TIDE_ERR_DESCRIPTION, "the model has no forward()%s", "");
    return call_root(model, NULL, names, values, count);
}

tide_value tide_size_in(tide_model *model, uint32_t scope, const char *name) {
    return tide_scope_size(model, scope, tide_name(&model->size_names, tide_text_of(name)));
}

tide_value tide_model_size(tide_model *model, const char *name) {
    return tide_size_in(model, 0, name);
}

tide_value tide_model_evaluate(tide_model *model, tide_text expression, const char *place) {
    tide_machine *m = model->m;
    tide_expr *expr = tide_parse_expr(m->arena, expression, place, m->diags);
    if (!expr) m->has_failed = true;
    if (!expr) return tide_none();
    tide_function function = {.name = TIDE_TEXT("inputs"), .description = model->scopes[0].description};
    tide_value locals[ARGUMENT_LIMIT];
    for (uint32_t i = 0; i < ARGUMENT_LIMIT; i++) locals[i] = tide_none();
    if (!tide_bind_alone(model, &function, expr)) return tide_none();
    if (function.local_count > ARGUMENT_LIMIT) return tide_nothing(m, TIDE_ERR_LIMIT, "too many names%s", "");
    tide_frame f = {.model = model, .instance = model->root, .function = &function, .locals = locals};
    return tide_eval(&f, expr);
}

void tide_model_loop(tide_model *model, tide_function *function, uint32_t turns,
                     void (*next)(void *user, uint32_t turn, tide_value *arguments), void *user) {
    tide_machine *m = model->m;
    if (tide_is_aborting(m) || !tide_bind_function(model, function)) return;
    tide_value arguments[ARGUMENT_LIMIT], result = tide_none(),
                                          *locals = tide_pool_alloc(m, (function->local_count + 1) * sizeof *locals);
    tide_frame f = {.model = model, .function = function, .locals = locals};
    for (uint32_t turn = 0; turn < turns && !tide_is_aborting(m); turn++) {
        next(user, turn, arguments);
        for (uint32_t i = 0; i < function->parameter_count; i++) tide_set_local(&f, i, arguments[i]);
        tide_run_block(&f, function->body, &result);
        tide_value_release(m, result);
        result = tide_none();
    }
    for (uint32_t i = 0; i < function->local_count; i++) tide_value_release(m, locals[i]);
    tide_pool_free(m, locals, (function->local_count + 1) * sizeof *locals);
}

tide_value tide_model_run(tide_model *model, tide_function *function, const tide_value *arguments, uint32_t count) {
    if (!model->scope_count) tide_scope_new(model, function->description, NULL);
    tide_value kept[ARGUMENT_LIMIT];
    for (uint32_t i = 0; i < count && i < ARGUMENT_LIMIT; i++) kept[i] = tide_value_retain(arguments[i]);
    const tide_call_arguments call = {.model = model, .function = function, .positional = kept, .count = count};
    return tide_call_function(&call);
}

const char *tide_root_name(const tide_model *model) {
    const tide_instance *root = &model->instances[model->root];
    const tide_json *roots = tide_description_at(root->of->description, "roots");
    for (const tide_json *item = roots ? roots->first : NULL; item; item = item->next)
        if (tide_text_equal(item->text, root->of->name)) return item->key.at;
    return root->of->name.at;
}
