/* SPDX-License-Identifier: Apache-2.0 */
/* Constructors: making modules, parameters and buffers. */
#include "lang/interpreter.h"

uint32_t tide_scope_new(tide_model *model, tide_description *description, const tide_json *config) {
    TIDE_ROOM(model->m->arena, model->scopes, model->scope_count, model->scope_capacity);
    model->scopes[model->scope_count] = (tide_scope){.description = description, .config = config};
    return model->scope_count++;
}

uint32_t tide_instance_new(tide_model *model, tide_class *of, uint32_t scope) {
    if (model->instance_count >= INSTANCE_LIMIT) {
        tide_fail(model->m, TIDE_ERR_LIMIT, "more than a million modules");
        return 0;
    }
    TIDE_ROOM(model->m->arena, model->instances, model->instance_count, model->instance_capacity);
    model->instances[model->instance_count] = (tide_instance){.of = of, .scope = scope, .path = ""};
    model->instances[model->instance_count].slots =
        TIDE_NEW(model->m->arena, tide_value, of->parameter_count + of->member_count + 1);
    return model->instance_count++;
}

/* ---- modules ---- */

static void make_members(tide_frame *f, tide_class *of) {
    tide_model *model = f->model;
    tide_machine *m = model->m;
    for (uint32_t i = 0; i < of->member_count && !m->has_failed; i++) {
        if (model->is_made_on_device) m->module = f->instance;
        if (model->depth >= CALL_DEPTH) tide_fail(m, TIDE_ERR_LIMIT, "modules nested deeper than %d", CALL_DEPTH);
        model->depth++;
        tide_value v = tide_eval(f, of->members[i].expr);
        model->depth--;
        model->instances[f->instance].slots[of->parameter_count + i] = v;
    }
}

uint32_t tide_instantiate(tide_model *model, tide_class *of, uint32_t scope, const tide_arguments *given) {
    tide_machine *m = model->m;
    tide_bind_members(model, of);
    uint32_t made = tide_instance_new(model, of, scope), slots = of->constructor->local_count;
    if (slots > ARGUMENT_LIMIT) tide_fail(m, TIDE_ERR_LIMIT, "more than %d names in a constructor", ARGUMENT_LIMIT);
    if (!made || m->has_failed) {
        tide_release_arguments(m, given);
        return 0;
    }
    tide_value locals[ARGUMENT_LIMIT];
    for (uint32_t i = 0; i < slots; i++) locals[i] = tide_none();
    const tide_call_arguments call = {model,           of->constructor,   made,
                                      scope,           given->positional, given->named,
                                      given->keywords, given->count,      given->named_count};
    tide_arrange(&call, locals);
    for (uint32_t i = 0; i < of->parameter_count; i++) model->instances[made].slots[i] = tide_value_retain(locals[i]);
    tide_frame f = {.model = model, .instance = made, .scope = scope, .function = of->constructor, .locals = locals};
    make_members(&f, of);
    for (uint32_t i = 0; i < slots; i++) tide_value_release(m, locals[i]);
    return made;
}

/* Removes a keyword from the arguments and returns its value; none if it is missing. */
static tide_value take_keyword(tide_arguments *given, const char *keyword) {
    for (uint32_t i = 0; i < given->named_count; i++) {
        if (!tide_text_is(given->keywords[i], keyword)) continue;
        tide_value found = given->named[i];
        given->keywords[i] = given->keywords[--given->named_count];
        given->named[i] = given->named[given->named_count];
        return found;
    }
    return tide_none();
}

/* Makes a module over the configuration of the scope, or over one of its own. Takes ownership of the arguments. */
static tide_value make_module(tide_frame *f, tide_description *description, tide_text class_name,
                              const tide_json *config, tide_arguments *given) {
    tide_model *model = f->model;
    tide_machine *m = model->m;
    uint32_t scope = f->scope;
    if (config && !m->has_failed) {
        scope = tide_scope_new(model, description, config);
        tide_run_checks(model, scope);
    }
    tide_class *of = m->has_failed ? NULL : tide_class_find(model->descriptions, description, class_name);
    if (!of && !m->has_failed) tide_fail(m, TIDE_ERR_DESCRIPTION, "no module '%s'", tide_terminated(m, class_name));
    if (!of) {
        tide_release_arguments(m, given);
        return tide_none();
    }
    uint32_t instance = tide_instantiate(model, of, scope, given);
    return instance ? (tide_value){.kind = TIDE_VALUE_MODULE, .module = instance} : tide_none();
}

/* config=...: a part of the configuration; NULL if it is missing. */
static const tide_json *take_config(tide_frame *f, tide_text class_name, tide_arguments *given) {
    tide_machine *m = f->model->m;
    bool is_given = false;
    for (uint32_t i = 0; i < given->named_count; i++) is_given = is_given || tide_text_is(given->keywords[i], "config");
    tide_value config = take_keyword(given, "config");
    if (config.kind == TIDE_VALUE_CONFIG) return config.config;
    if (is_given && !m->has_failed)
        tide_fail(m, TIDE_ERR_FIELD_MISSING, "%s wants a configuration, not %s", tide_terminated(m, class_name),
                  tide_kind_name(config));
    tide_value_release(m, config);
    return NULL;
}

tide_value tide_construct(tide_frame *f, tide_text class_name, tide_arguments *given) {
    const tide_json *config = take_config(f, class_name, given);
    return make_module(f, f->model->scopes[f->scope].description, class_name, config, given);
}

/* ---- AutoModel ---- */

/* The description for a model_type, or a stand-in for the configuration. */
static tide_description *find_description(tide_model *model, const tide_json *config, tide_text type,
                                          tide_text *class_name) {
    tide_machine *m = model->m;
    tide_text found;
    bool is_known = type.length && model->find_model(model->user, type, &found, class_name);
    if (!is_known &&
        !(config && model->find_stand_in && model->find_stand_in(model->user, config, &found, class_name))) {
        tide_fail(m, TIDE_ERR_MODEL_UNKNOWN, "no description covers model_type '%s'", tide_terminated(m, type));
        return NULL;
    }
    tide_description *description = tide_description_load(model->descriptions, found);
    if (!description) m->has_failed = true;
    return description;
}

/* AutoModel(config=...) makes the model named by its model_type; model_type='...' gives it if the configuration does
 * not; head=true selects the first root of the description, as AutoModelForCausalLM does. */
tide_value tide_construct_auto_model(tide_frame *f, tide_arguments *given) {
    tide_model *model = f->model;
    const tide_text own_name = TIDE_TEXT("AutoModel");
    const tide_json *config = take_config(f, own_name, given);
    tide_value head = take_keyword(given, "head"), type = take_keyword(given, "model_type");
    const tide_json *own = tide_json_at(config, "model_type");
    tide_text named = type.kind == TIDE_VALUE_TEXT ? type.text : TIDE_TEXT(""), class_name = own_name;
    if (!named.length && own && own->kind == TIDE_JSON_STRING) named = own->text;
    tide_description *description = model->m->has_failed ? NULL : find_description(model, config, named, &class_name);
    bool with_head = head.kind == TIDE_VALUE_BOOL && head.truth;
    if ((head.kind != TIDE_VALUE_BOOL && head.kind != TIDE_VALUE_NONE) ||
        (type.kind != TIDE_VALUE_TEXT && type.kind != TIDE_VALUE_NONE))
        tide_fail(model->m, TIDE_ERR_DESCRIPTION, "AutoModel: head is true or false, model_type a text");
    const tide_json *roots = description && with_head ? tide_description_at(description, "roots") : NULL;
    if (roots && roots->first && roots->first->kind == TIDE_JSON_STRING) class_name = roots->first->text;
    tide_value_release(model->m, head);
    tide_value_release(model->m, type);
    return make_module(f, description, class_name, config, given);
}

/* ---- parameters and buffers ---- */

enum { DIMENSION_BITS = 40 }; /* no parameter has a longer dimension */

static bool read_shape(tide_frame *f, const tide_arguments *given, tide_shape *shape) {
    tide_machine *m = f->model->m;
    for (uint32_t i = 0; i < given->count; i++)
        if (!tide_arg_shape(m, given->positional[i], shape)) return false;
    for (int i = 0; i < shape->dims; i++) {
        if (shape->dim[i].size > 0 && shape->dim[i].size <= INT64_C(1) << DIMENSION_BITS) continue;
        tide_fail(m, TIDE_ERR_FIELD_RANGE, "%s has a parameter of %s: every size must be positive",
                  tide_terminated(m, f->function->name), tide_shape_text(m, shape));
        return false;
    }
    return true;
}

/* Parameter(sizes..., dtype=..., requires_grad=..., device=...) */
static tide_value make_tensor(tide_frame *f, tide_arguments *given, bool is_parameter) {
    tide_machine *m = f->model->m;
    tide_shape shape = {.dims = 0};
    tide_dtype dtype = f->model->state.dtype;
    bool trains = is_parameter, is_meta = false;
    for (uint32_t i = 0; i < given->named_count && !m->has_failed; i++) {
        tide_value v = given->named[i];
        if (tide_text_is(given->keywords[i], "dtype") && v.kind == TIDE_VALUE_DTYPE)
            dtype = v.dtype;
        else if (tide_text_is(given->keywords[i], "requires_grad") && v.kind == TIDE_VALUE_BOOL)
            trains = trains && v.truth;
        else if (tide_text_is(given->keywords[i], "device") && v.kind == TIDE_VALUE_TEXT)
            is_meta = tide_text_is(v.text, "meta");
        else
            tide_fail(m, TIDE_ERR_DESCRIPTION, "Parameter has no '%s'", tide_terminated(m, given->keywords[i]));
    }
    bool ok = !m->has_failed && read_shape(f, given, &shape);
    tide_release_arguments(m, given);
    if (!ok) return tide_none();
    tide_factor factor = m->state.factor;
    m->state.factor = is_parameter ? TIDE_FACTOR_PARAMETER : TIDE_FACTOR_BUFFER;
    if (f->model->is_made_on_device) m->module = f->instance;
    bool is_on_device = f->model->is_made_on_device && !is_meta;
    tide_tensor *t = is_on_device ? tide_empty(m, &shape, dtype) : tide_empty_host(m, &shape, dtype);
    m->state.factor = factor;
    t->is_parameter = is_parameter;
    t->requires_grad = trains && tide_dtype_is_float(dtype);
    return tide_of_tensor(t);
}

tide_value tide_construct_parameter(tide_frame *f, tide_arguments *given) {
    return make_tensor(f, given, true);
}

tide_value tide_construct_buffer(tide_frame *f, tide_arguments *given) {
    return make_tensor(f, given, false);
}

/* ---- copies ---- */

/* copy.deepcopy: clones a module's parameters and buffers, in the order of its attributes. */
tide_value tide_deepcopy(tide_model *model, tide_value v, int depth) {
    tide_machine *m = model->m;
    if (v.kind == TIDE_VALUE_TENSOR) {
        bool is_host = v.tensor->storage->is_untracked;
        tide_tensor *made = is_host ? tide_empty_host(m, v.tensor->shape, v.tensor->dtype)
                                    : tide_empty_like(m, v.tensor, v.tensor->dtype);
        made->is_parameter = v.tensor->is_parameter;
        made->requires_grad = v.tensor->requires_grad;
        tide_set_factor(m, made, made->is_parameter ? TIDE_FACTOR_PARAMETER : TIDE_FACTOR_BUFFER);
        return tide_of_tensor(made);
    }
    if (v.kind == TIDE_VALUE_LIST) {
        tide_value made = {.kind = TIDE_VALUE_LIST, .list = tide_list_new(m)};
        for (uint32_t i = 0; i < v.list->count; i++)
            tide_list_push(m, made.list, tide_deepcopy(model, v.list->items[i], depth));
        return made;
    }
    if (v.kind != TIDE_VALUE_MODULE || depth > CALL_DEPTH) return tide_value_retain(v);
    const tide_class *of = model->instances[v.module].of;
    uint32_t made = tide_instance_new(model, model->instances[v.module].of, model->instances[v.module].scope);
    if (!made) return tide_none();
    for (uint32_t i = 0; i < of->parameter_count; i++)
        model->instances[made].slots[i] = tide_value_retain(model->instances[v.module].slots[i]);
    for (uint32_t pass = 0; pass < 2; pass++) /* Module.__dict__: _parameters and _buffers come before _modules */
        for (uint32_t i = of->parameter_count; i < of->parameter_count + of->member_count; i++) {
            tide_value old = model->instances[v.module].slots[i];
            if ((old.kind != TIDE_VALUE_TENSOR) != pass) continue;
            tide_value copied = tide_deepcopy(model, old, depth + 1);
            model->instances[made].slots[i] = copied;
        }
    return (tide_value){.kind = TIDE_VALUE_MODULE, .module = made};
}
