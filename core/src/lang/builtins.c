/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of the language that are not operations of PyTorch. */
#include <math.h>
#include <string.h>

#include "base/units.h"
#include "lang/interpreter.h"

static int64_t whole_number(tide_frame *f, tide_value v) {
    if (v.kind != TIDE_VALUE_INT && !f->model->m->has_failed)
        tide_fail(f->model->m, TIDE_ERR_DESCRIPTION, "an integer is wanted, not %s", tide_kind_name(v));
    return v.kind == TIDE_VALUE_INT ? v.integer : 0;
}

/* ---- lists, texts and configurations ---- */

static tide_value builtin_range(tide_frame *f, const tide_value *a, uint32_t count) {
    tide_machine *m = f->model->m;
    int64_t from = count > 1 ? whole_number(f, a[0]) : 0, to = whole_number(f, a[count - 1]);
    if (m->has_failed) return tide_none();
    if (to > from && (uint64_t)to - (uint64_t)from > LOOP_LIMIT)
        return tide_nothing(m, TIDE_ERR_LIMIT, "a range of more than a million%s", "");
    tide_value list = {.kind = TIDE_VALUE_LIST, .list = tide_list_new(m)};
    if (to > from) m->op_count += (uint64_t)(to - from) / 64; /* long texts and lists count as work */
    for (int64_t i = from; i < to; i++) tide_list_push(m, list.list, tide_of_int(i));
    return list;
}

static tide_value builtin_len(tide_frame *f, const tide_value *a, uint32_t count) {
    (void)count;
    if (a[0].kind == TIDE_VALUE_LIST) return tide_of_int(a[0].list->count);
    if (a[0].kind == TIDE_VALUE_CONFIG) return tide_of_int(a[0].config->count);
    if (a[0].kind == TIDE_VALUE_TEXT) return tide_of_int((int64_t)a[0].text.length);
    return tide_nothing(f->model->m, TIDE_ERR_DESCRIPTION, "len of %s", tide_kind_name(a[0]));
}

static tide_value builtin_is_list(tide_frame *f, const tide_value *a, uint32_t count) {
    (void)f, (void)count;
    return tide_of_bool(a[0].kind == TIDE_VALUE_LIST);
}

static tide_value builtin_is_view(tide_frame *f, const tide_value *a, uint32_t count) {
    (void)f, (void)count;
    return tide_of_bool(a[0].kind == TIDE_VALUE_TENSOR && a[0].tensor->is_view);
}

static tide_value builtin_contains(tide_frame *f, const tide_value *a, uint32_t count) {
    (void)count;
    if (a[0].kind == TIDE_VALUE_CONFIG && a[1].kind == TIDE_VALUE_TEXT)
        return tide_of_bool(tide_json_find(a[0].config, a[1].text) != NULL);
    if (a[0].kind == TIDE_VALUE_TEXT && a[1].kind == TIDE_VALUE_TEXT)
        return tide_of_bool(tide_text_contains(a[0].text, a[1].text));
    if (a[0].kind != TIDE_VALUE_LIST)
        return tide_nothing(f->model->m, TIDE_ERR_DESCRIPTION, "contains(list, item) of %s", tide_kind_name(a[0]));
    for (uint32_t i = 0; i < a[0].list->count; i++)
        if (tide_compare(f->model->m, '=', a[0].list->items[i], a[1])) return tide_of_bool(true);
    return tide_of_bool(false);
}

/* ---- numbers ---- */

static tide_value best_of(tide_frame *f, char op, const tide_value *a, uint32_t count) {
    tide_value best = a[0];
    for (uint32_t i = 1; i < count; i++)
        if (tide_compare(f->model->m, op, a[i], best)) best = a[i];
    return tide_value_retain(best);
}

static tide_value builtin_min(tide_frame *f, const tide_value *a, uint32_t count) {
    return best_of(f, '<', a, count);
}

static tide_value builtin_max(tide_frame *f, const tide_value *a, uint32_t count) {
    return best_of(f, '>', a, count);
}

/* math.sqrt */
static tide_value builtin_root(tide_frame *f, const tide_value *a, uint32_t count) {
    (void)count;
    double x = tide_arg_number(f->model->m, a[0]);
    return (tide_value){.kind = TIDE_VALUE_FLOAT, .number = x > 0 ? sqrt(x) : 0};
}

/* math.isqrt */
static tide_value builtin_isqrt(tide_frame *f, const tide_value *a, uint32_t count) {
    enum { MOST_BITS = 31 };
    const int64_t most = INT64_C(3037000499); /* the largest integer whose square fits in 63 bits */
    (void)count;
    int64_t of = whole_number(f, a[0]), root = 0;
    for (int64_t bit = INT64_C(1) << MOST_BITS; bit; bit >>= 1)
        if (root + bit <= most && (root + bit) * (root + bit) <= of) root += bit;
    return tide_of_int(root);
}

/* ---- what is said ---- */

/* Reports an error at the setting or key that the text names ("parallel.tp: text", "key: text"), else at the current
 * position. */
static void say_error(tide_machine *m, const char *text, const char *about) {
    const tide_model *model = m->interpreter;
    size_t length = strspn(text, "abcdefghijklmnopqrstuvwxyz_"), name = strspn(text, "abcdefghijklmnopqrstuvwxyz_.");
    if (text[length] == '.' && text[name] == ':') {
        m->module = m->statement = 0;
        tide_fail_setting(m, TIDE_ERR_CONFLICT, tide_format(m->arena, "%.*s", (int)name, text), "%s%s%s",
                          text + name + 2, *about ? " " : "", about);
        return;
    }
    bool is_default = false, has_key = length && text[length] == ':' && text[length + 1] == ' ';
    if (m->has_failed) return;
    if (!has_key || !model->find_place) {
        m->statement = 0;
        tide_fail(m, TIDE_ERR_UNSUPPORTED, "%s%s%s%s", text, *about ? ": '" : "", about, *about ? "'" : "");
        return;
    }
    const char *place = model->find_place(model->user, model->scopes[0].config, (tide_text){text, length}, &is_default);
    tide_error(m->diags, TIDE_ERR_UNSUPPORTED, place,
               tide_format(m->arena, "%s%s%s", text + length + 2, *about ? ": " : "", about), NULL);
    m->has_failed = true;
}

/* error('key: text', value) */
static tide_value builtin_error(tide_frame *f, const tide_value *a, uint32_t count) {
    tide_machine *m = f->model->m;
    tide_text text = a[0].kind == TIDE_VALUE_TEXT ? a[0].text : TIDE_TEXT("");
    const char *about = "";
    if (count > 1 && a[1].kind == TIDE_VALUE_TEXT) about = tide_terminated(m, a[1].text);
    if (count > 1 && a[1].kind == TIDE_VALUE_INT) about = tide_format(m->arena, "%lld", (long long)a[1].integer);
    say_error(m, tide_terminated(m, text), about);
    return tide_none();
}

/* ---- the model ---- */

static tide_value builtin_deepcopy(tide_frame *f, const tide_value *a, uint32_t count) {
    (void)count;
    return tide_deepcopy(f->model, a[0], 0);
}

static tide_value builtin_save_for_backward(tide_frame *f, const tide_value *a, uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        tide_save(f->model->m, f->model->state.applied, a[i].kind == TIDE_VALUE_TENSOR ? a[i].tensor : NULL);
    return tide_none();
}

static tide_value builtin_set_materialize_grads(tide_frame *f, const tide_value *a, uint32_t count) {
    (void)count;
    if (a[0].kind != TIDE_VALUE_BOOL)
        return tide_nothing(f->model->m, TIDE_ERR_DESCRIPTION, "set_materialize_grads() of %s", tide_kind_name(a[0]));
    if (f->model->state.applied) f->model->state.applied->of.applied.skips_zeros = !a[0].truth;
    return tide_none();
}

/* getattr(module, 'name') */
static tide_value builtin_getattr(tide_frame *f, const tide_value *a, uint32_t count) {
    (void)count;
    if (a[0].kind != TIDE_VALUE_MODULE || a[1].kind != TIDE_VALUE_TEXT)
        return tide_nothing(f->model->m, TIDE_ERR_DESCRIPTION, "getattr(module, 'name') of %s", tide_kind_name(a[0]));
    return tide_member_of_module(f, a[0].module, a[1].text);
}

/* call_with(module, 'name', value, argument, ...): calls the module with one of its members replaced, which is restored
 * even if the call is abandoned (torch.nn.utils.parametrize, whose context ends in a finally). */
static tide_value builtin_call_with(tide_frame *f, const tide_value *a, uint32_t count) {
    enum { OWN = 3 };
    tide_model *model = f->model;
    if (a[0].kind != TIDE_VALUE_MODULE || a[1].kind != TIDE_VALUE_TEXT)
        return tide_nothing(model->m, TIDE_ERR_DESCRIPTION, "call_with(module, 'name', value) of %s",
                            tide_kind_name(a[0]));
    uint32_t owner = a[0].module, slot = tide_member_slot(model, &owner, a[1].text);
    if (slot == UINT32_MAX) return tide_none();
    tide_value *slots = model->instances[owner].slots, before = slots[slot];
    slots[slot] = tide_value_retain(a[2]);
    tide_value made = tide_call_module(model, a[0].module, NULL, a + OWN, count - OWN, NULL, NULL, 0);
    tide_value_release(model->m, slots[slot]);
    slots[slot] = before;
    return made;
}

/* Sets what forward() reads under this name; the caller restores it. */
static tide_value builtin_set_setting(tide_frame *f, const tide_value *a, uint32_t count) {
    tide_machine *m = f->model->m;
    (void)count;
    tide_value *setting =
        a[0].kind == TIDE_VALUE_TEXT ? tide_model_setting(f->model, tide_terminated(m, a[0].text)) : NULL;
    if (!setting)
        return tide_nothing(m, TIDE_ERR_DESCRIPTION, "set_setting('name', value) of %s", tide_kind_name(a[0]));
    tide_value old = *setting;
    *setting = tide_value_retain(a[1]);
    f->model->setting_changes++;
    tide_value_release(m, old);
    return tide_none();
}

/* torch.is_grad_enabled() */
static tide_value builtin_is_grad_enabled(tide_frame *f, const tide_value *a, uint32_t count) {
    (void)a;
    (void)count;
    return tide_of_bool(f->model->m->state.grad_enabled);
}

/* inputs = call_begins(forward_is_replaced, inputs): names and values in turn. */
static tide_value builtin_call_begins(tide_frame *f, const tide_value *a, uint32_t count) {
    tide_machine *m = f->model->m;
    tide_value inputs[ARGUMENT_LIMIT], made = {.kind = TIDE_VALUE_LIST, .list = tide_list_new(m)};
    uint32_t given = count > 1 && a[1].kind == TIDE_VALUE_LIST ? a[1].list->count / 2 : 0;
    if (given > ARGUMENT_LIMIT) given = 0;
    for (uint32_t i = 0; i < given; i++) inputs[i] = tide_value_retain(a[1].list->items[2 * i + 1]);
    if (f->model->call_begins) f->model->call_begins(f->model, tide_is_true(m, a[0]), inputs, given);
    for (uint32_t i = 0; i < given; i++) {
        tide_list_push(m, made.list, tide_value_retain(a[1].list->items[2 * i]));
        tide_list_push(m, made.list, inputs[i]);
    }
    return made;
}

/* outputs = call_ends(outputs, forward_is_replaced) */
static tide_value builtin_call_ends(tide_frame *f, const tide_value *a, uint32_t count) {
    tide_value outputs = tide_value_retain(a[0]);
    (void)count;
    if (f->model->call_ends && !tide_is_aborting(f->model->m))
        f->model->call_ends(f->model, &outputs, tide_is_true(f->model->m, a[1]));
    return outputs;
}

/* ---- the table ---- */

const tide_builtin tide_builtins[] = {
    {"range", 1, 2, false, builtin_range, NULL},
    {"len", 1, 1, false, builtin_len, NULL},
    {"is_list", 1, 1, true, builtin_is_list, NULL},
    {"is_grad_enabled", 0, 0, false, builtin_is_grad_enabled, NULL},
    {"is_view", 1, 1, false, builtin_is_view, NULL},
    {"min", 1, ARGUMENT_LIMIT, false, builtin_min, NULL},
    {"max", 1, ARGUMENT_LIMIT, false, builtin_max, NULL},
    {"isqrt", 1, 1, false, builtin_isqrt, NULL},
    {"root", 1, 1, false, builtin_root, NULL},
    {"contains", 2, 2, false, builtin_contains, NULL},
    {"error", 1, 2, false, builtin_error, NULL},
    {"deepcopy", 1, 1, false, builtin_deepcopy, NULL},
    {"apply", 1, ARGUMENT_LIMIT, true, tide_apply, NULL},
    {"checkpoint", 2, ARGUMENT_LIMIT, true, tide_builtin_checkpoint, NULL},
    {"checkpoint_without_output", 1, ARGUMENT_LIMIT, true, tide_builtin_checkpoint_without_output, NULL},
    {"discard_output", 2, 2, true, tide_builtin_discard_output, NULL},
    {"save_for_backward", 1, ARGUMENT_LIMIT, false, builtin_save_for_backward, NULL},
    {"set_materialize_grads", 1, 1, false, builtin_set_materialize_grads, NULL},
    {"getattr", 2, 2, true, builtin_getattr, NULL},
    {"call_with", 3, ARGUMENT_LIMIT, true, builtin_call_with, NULL},
    {"set_setting", 2, 2, true, builtin_set_setting, NULL},
    {"capture_hidden_states", 1, 1, false, tide_builtin_capture_hidden_states, NULL},
    {"call_begins", 1, 2, true, builtin_call_begins, NULL},
    {"call_ends", 2, 2, true, builtin_call_ends, NULL},
    {"Parameter", 0, ARGUMENT_LIMIT, true, NULL, tide_construct_parameter},
    {"Buffer", 0, ARGUMENT_LIMIT, true, NULL, tide_construct_buffer},
    {"AutoModel", 0, 0, true, NULL, tide_construct_auto_model},
};
const uint32_t tide_builtin_count = TIDE_COUNT_OF(tide_builtins);

const tide_builtin *tide_builtin_find(tide_text name) {
    for (uint32_t i = 0; i < tide_builtin_count; i++)
        if (tide_text_is(name, tide_builtins[i].name)) return &tide_builtins[i];
    return NULL;
}

tide_value tide_run_builtin(tide_frame *f, const tide_builtin *builtin, tide_arguments *given) {
    tide_machine *m = f->model->m;
    tide_value made = tide_none();
    if (builtin->construct) return builtin->construct(f, given);
    if (given->named_count || given->count < builtin->least || given->count > builtin->most) {
        if (!m->has_failed)
            tide_fail(m, TIDE_ERR_DESCRIPTION, "%s takes %s%d argument%s without names", builtin->name,
                      builtin->least == builtin->most ? ""
                      : given->count < builtin->least ? "at least "
                                                      : "at most ",
                      given->count < builtin->least ? builtin->least : builtin->most,
                      (given->count < builtin->least ? builtin->least : builtin->most) == 1 ? "" : "s");
    } else if (!m->has_failed) {
        for (uint32_t i = 0; i < given->count && !builtin->keeps_unread; i++) tide_value_is_read(given->positional[i]);
        made = builtin->run(f, given->positional, given->count);
    }
    tide_release_arguments(m, given);
    return made;
}
