/* SPDX-License-Identifier: Apache-2.0 */
/* transformers/distributed: expert_parallel.py, and of tensor_parallel.py MoeExpertsParallel and MlaKvAProjParallel. */
#include "parallel/expert_parallel.h"

#include <math.h>
#include <string.h>

#include "base/units.h"

/* ---- plans ---- */

static bool path_ends_like(const char *path, tide_text key) {
    size_t at = strlen(path), left = key.length;
    while (left && at) {
        if (key.at[left - 1] == '*') {
            size_t end = at;
            while (at && path[at - 1] >= '0' && path[at - 1] <= '9') at--;
            if (at == end) return false;
            left--;
        } else if (path[--at] != key.at[--left]) {
            return false;
        }
    }
    return !left && (!at || path[at - 1] == '.');
}

static tide_text plan_at(const tide_json *plan, const char *path) {
    for (const tide_json *item = plan ? plan->first : NULL; item; item = item->next)
        if (path_ends_like(path, item->key)) return item->text;
    return (tide_text){0};
}

tide_text tide_style_at(const tide_json *const *plans, const tide_model *model, uint32_t instance, const char *path) {
    return plan_at(plans ? plans[model->instances[instance].scope] : NULL, path);
}

int tide_plan_dim(tide_text style, const tide_tensor *parameter) {
    int dims = parameter->shape->dims;
    if (tide_text_is(style, "grouped_gemm")) return 0;
    if (tide_text_is(style, "packed_colwise") || tide_text_is(style, "colwise")) return dims < 2 ? 0 : dims - 2;
    if (tide_text_is(style, "packed_rowwise") || tide_text_is(style, "rowwise")) return dims < 2 ? -1 : dims - 1;
    return -1;
}

/* ---- hooks ---- */

static tide_value call_library(tide_model *model, const char *name, const tide_value *arguments, uint32_t count) {
    tide_function *function = tide_function_find(model->descriptions, NULL, tide_text_of(name));
    return function ? tide_model_run(model, function, arguments, count) : tide_none();
}

static void exchange_value(tide_machine *m, tide_value *value, tide_value by) {
    tide_value_release(m, *value);
    *value = by;
}

/* DTensor.from_local().redistribute().to_local() along the tokens. */
static void redistribute_tokens(tide_machine *m, tide_value *value, const tide_experts *e, tide_collective forward,
                                tide_collective backward) {
    if (value->kind != TIDE_VALUE_TENSOR || e->tp_ranks == 1) return;
    const tide_redistribute how = {.forward = forward, .backward = backward, .ranks = e->tp_ranks};
    exchange_value(m, value, tide_of_tensor(tide_dtensor_redistribute(m, value->tensor, &how)));
}

int64_t tide_rows_received(int64_t pairs, int64_t ranks, double imbalance) {
    int64_t of_each = (int64_t)rint((double)pairs / (double)ranks * imbalance);
    return ranks * (of_each < pairs ? of_each : pairs);
}

/* What dispatch_tokens() of the library returns, and what outlives that call: tokens, experts and weights for the
 * experts, and _AllToAllState. */
enum { EXPERTS_ORDER = 3, EXPERTS_WEIGHTS, EXPERTS_STATE };

/* AllToAllEP._dispatch_tokens */
static tide_value dispatch_to_ranks(tide_model *model, uint32_t instance, tide_experts *e, tide_value *tokens) {
    tide_machine *m = model->m;
    int64_t experts = 0;
    for (int i = 0; i < 3; i++)
        redistribute_tokens(m, &tokens[i], e, TIDE_COLLECTIVE_CHUNK, TIDE_COLLECTIVE_ALL_GATHER);
    for (uint32_t i = 0; i < model->parameter_count && !experts; i++)
        if (model->parameters[i].module == instance) experts = model->parameters[i].tensor->shape->dim[0].size;
    if (m->has_failed || tokens[1].kind != TIDE_VALUE_TENSOR) return tide_none();
    const tide_shape *chosen = tokens[1].tensor->shape;
    const tide_value arguments[] = {
        tokens[0],
        tokens[1],
        tokens[2],
        tide_of_int(experts),
        tide_of_int(e->ranks),
        tide_of_int(
            tide_rows_received(chosen->dim[0].size * chosen->dim[chosen->dims - 1].size, e->ranks, e->imbalance))};
    return call_library(model, "dispatch_tokens", arguments, TIDE_COUNT_OF(arguments));
}

/* Also of a recomputation that stopped within the module, whose context Python leaves then. */
static void restore_params(tide_model *model, tide_experts *e) {
    for (; e->local_count; e->local_count--) {
        const tide_local_param *local = &e->locals[e->local_count - 1];
        tide_value *slots = model->instances[e->local_instance].slots;
        tide_release(model->m, slots[local->slot].tensor);
        slots[local->slot].tensor = local->parameter;
    }
}

/* _use_local_dtensor_params(): forward() reads DTensor.to_local() of its parameters, whose gradients are accumulated
 * after all that follows has run backward. */
static void use_local_params(tide_model *model, uint32_t instance, tide_experts *e) {
    tide_machine *m = model->m;
    tide_instance *of = &model->instances[instance];
    const tide_redistribute to_local = {.ranks = 1};
    uint32_t count = of->of->parameter_count + of->of->member_count;
    restore_params(model, e);
    e->local_instance = instance;
    for (uint32_t i = of->of->parameter_count; i < count && e->local_count < TIDE_EXPERTS_PARAMETERS; i++) {
        if (of->slots[i].kind != TIDE_VALUE_TENSOR || !of->slots[i].tensor->is_parameter) continue;
        e->locals[e->local_count++] = (tide_local_param){i, of->slots[i].tensor};
        of->slots[i].tensor = tide_dtensor_redistribute(m, of->slots[i].tensor, &to_local);
    }
}

void tide_experts_before(tide_model *model, uint32_t instance, tide_experts *e, tide_value *positional,
                         uint32_t count) {
    tide_machine *m = model->m;
    tide_value tokens[3], made = tide_none();
    if (count < 3 || positional[0].kind != TIDE_VALUE_TENSOR) return;
    e->dtype = (tide_dtype)positional[0].tensor->dtype;
    if (e->style != TIDE_EXPERTS_SHARED) use_local_params(model, instance, e);
    for (int i = 0; i < 3; i++) tokens[i] = tide_value_retain(positional[i]);
    if (e->style == TIDE_EXPERTS_SENT)
        made = dispatch_to_ranks(model, instance, e, tokens);
    else
        made = call_library(model, e->style == TIDE_EXPERTS_SHARED ? "share_tokens" : "mask_tokens", tokens, 3);
    for (int i = 0; i < 3; i++) tide_value_release(m, tokens[i]);
    for (uint32_t i = 0; made.kind == TIDE_VALUE_LIST && i < made.list->count; i++) {
        if (i < 3) exchange_value(m, &positional[i], tide_value_retain(made.list->items[i]));
        if (i >= EXPERTS_STATE)
            exchange_value(m, &made.list->items[i], tide_none()); /* of the frame of dispatch_tokens() */
    }
    if (e->style == TIDE_EXPERTS_SHARED) use_local_params(model, instance, e);
    e->given = positional;
    if (e->style == TIDE_EXPERTS_SENT)
        exchange_value(m, &e->state, made);
    else
        tide_value_release(m, made);
}

/* AllToAllEP._combine_tokens, ep_forward */
static void combine(tide_model *model, tide_experts *e, tide_value *output) {
    tide_machine *m = model->m;
    const tide_value *state = e->state.list->items;
    const tide_value arguments[] = {*output, state[EXPERTS_ORDER], state[EXPERTS_WEIGHTS]};
    tide_value made = call_library(model, "combine_tokens", arguments, TIDE_COUNT_OF(arguments)), gathered;
    if (made.kind != TIDE_VALUE_LIST || made.list->count < 2) {
        tide_value_release(m, made);
        return;
    }
    gathered = tide_value_retain(made.list->items[1]);
    redistribute_tokens(m, &gathered, e, TIDE_COLLECTIVE_ALL_GATHER, TIDE_COLLECTIVE_CHUNK);
    tide_value_release(m, made);
    for (int i = 0; i < 3; i++) exchange_value(m, &e->given[i], tide_none());
    exchange_value(m, &e->state, tide_none());
    exchange_value(m, output, gathered);
    const tide_value cast[] = {*output, {.kind = TIDE_VALUE_DTYPE, .dtype = e->dtype}};
    exchange_value(m, output, call_library(model, "cast_tokens", cast, TIDE_COUNT_OF(cast)));
}

void tide_experts_after(tide_model *model, tide_experts *e, tide_value *output) {
    restore_params(model, e);
    if (output->kind != TIDE_VALUE_TENSOR) return;
    if (e->style != TIDE_EXPERTS_SENT)
        exchange_value(model->m, output, call_library(model, "reduce_tokens", output, 1));
    else if (e->state.kind == TIDE_VALUE_LIST && e->state.list->count >= EXPERTS_STATE)
        combine(model, e, output);
    exchange_value(model->m, &e->state, tide_none());
}

void tide_mla_after(tide_model *model, int64_t rope, tide_value *output) {
    const tide_value arguments[] = {*output, tide_of_int(rope)};
    if (output->kind == TIDE_VALUE_TENSOR)
        exchange_value(model->m, output, call_library(model, "average_rotary", arguments, TIDE_COUNT_OF(arguments)));
}
