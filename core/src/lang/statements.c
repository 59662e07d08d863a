/* SPDX-License-Identifier: Apache-2.0 */
/* Statements. */
#include "lang/interpreter.h"

void tide_set_local(tide_frame *f, uint32_t slot, tide_value v) {
    tide_machine *m = f->model->m;
    tide_value old = f->locals[slot];
    f->locals[slot] = v;
    tide_freed_by freeing = m->freeing;
    m->freeing = TIDE_FREED_BY_ASSIGNMENT;
    tide_value_release(m, old);
    m->freeing = freeing;
}

static void assign(tide_frame *f, tide_statement *s, tide_value v) {
    tide_machine *m = f->model->m;
    if (s->target_count == 1) {
        tide_set_local(f, s->slots[0], v);
        return;
    }
    tide_value_is_read(v);
    if (v.kind == TIDE_VALUE_LIST && v.list->count == s->target_count) {
        for (uint32_t i = 0; i < s->target_count; i++)
            tide_set_local(f, s->slots[i], tide_value_retain(v.list->items[i]));
    } else if (!tide_is_aborting(m)) {
        tide_fail(m, TIDE_ERR_DESCRIPTION, "%u names for %s of %u", s->target_count, tide_kind_name(v),
                  v.kind == TIDE_VALUE_LIST ? v.list->count : 0);
    }
    tide_value_release(m, v);
}

static tide_outcome run_for(tide_frame *f, tide_statement *s, tide_value *result) {
    tide_machine *m = f->model->m;
    tide_value over = tide_eval(f, s->expr);
    tide_outcome out = GOES_ON;
    if (over.kind != TIDE_VALUE_LIST && !tide_is_aborting(m))
        tide_fail(m, TIDE_ERR_DESCRIPTION, "'for' over %s", tide_kind_name(over));
    tide_value_is_read(over);
    tide_loop_looks looks = {0};
    uint32_t count = over.kind == TIDE_VALUE_LIST ? over.list->count : 0;
    for (uint32_t i = 0; i < count && out == GOES_ON && !tide_is_aborting(m); i++) {
        i += tide_fold_iterations(f, s, &looks, i, count);
        assign(f, s, tide_value_retain(over.list->items[i]));
        out = tide_run_block(f, s->body, result);
    }
    tide_looks_drop(f, &looks);
    tide_value_release(m, over);
    return out;
}

/* name += e: in place for a tensor. */
static void run_add(tide_frame *f, tide_statement *s) {
    tide_machine *m = f->model->m;
    tide_value old = tide_value_retain(f->locals[s->slots[0]]), by = tide_eval(f, s->expr), made;
    tide_value both[] = {old, by, tide_of_int(1)}; /* and alpha of add_ */
    if (tide_is_aborting(m))
        made = tide_none();
    else if (old.kind == TIDE_VALUE_TENSOR ||
             by.kind == TIDE_VALUE_TENSOR) /* number += tensor does not change a tensor */
        made = tide_run_operation(m, tide_op_find(old.kind == TIDE_VALUE_TENSOR ? TIDE_TEXT("add_") : TIDE_TEXT("add")),
                                  both, 2);
    else
        made = tide_arithmetic(m, '+', old, by);
    tide_value_release(m, by);
    tide_value_release(m, old);
    tide_set_local(f, s->slots[0], made);
}

static tide_outcome run_if(tide_frame *f, tide_statement *s, tide_value *result) {
    tide_machine *m = f->model->m;
    tide_value condition = tide_eval(f, s->expr);
    bool holds = tide_is_true(m, condition);
    tide_value_release(m, condition);
    return tide_run_block(f, holds ? s->body : s->otherwise, result);
}

static tide_outcome run_with(tide_frame *f, tide_statement *s, bool *setting, bool value, tide_value *result) {
    bool before = *setting;
    *setting = value;
    tide_outcome out = tide_run_block(f, s->body, result);
    *setting = before;
    return out;
}

static tide_outcome run_autocast(tide_frame *f, tide_statement *s, tide_value *result) {
    tide_model *model = f->model;
    bool is_enabled = model->m->state.autocast_enabled, is_outermost = model->autocasts && !is_enabled;
    if (is_outermost) tide_autocast_begin(model->m, model->autocast_dtype);
    if (model->leaves_autocast) model->m->state.autocast_enabled = false;
    tide_outcome out = tide_run_block(f, s->body, result);
    if (is_outermost)
        tide_autocast_end(model->m);
    else
        model->m->state.autocast_enabled = is_enabled;
    return out;
}

static tide_outcome run_statement(tide_frame *f, tide_statement *s, tide_value *result) {
    tide_machine *m = f->model->m;
    switch (s->kind) {
    case TIDE_STATEMENT_ASSIGN:
        assign(f, s, tide_eval(f, s->expr));
        break;
    case TIDE_STATEMENT_ADD:
        run_add(f, s);
        break;
    case TIDE_STATEMENT_EXPR:
        tide_value_release(m, tide_eval(f, s->expr));
        break;
    case TIDE_STATEMENT_RETURN:
        *result = s->expr ? tide_eval(f, s->expr) : tide_none();
        return RETURNED;
    case TIDE_STATEMENT_DELETE:
        for (uint32_t i = 0; i < s->target_count; i++) tide_set_local(f, s->slots[i], tide_none());
        break;
    case TIDE_STATEMENT_FOR:
        return run_for(f, s, result);
    case TIDE_STATEMENT_IF:
        return run_if(f, s, result);
    case TIDE_STATEMENT_NO_GRAD:
        return run_with(f, s, &m->state.grad_enabled, false, result);
    case TIDE_STATEMENT_ENABLE_GRAD:
        return run_with(f, s, &m->state.grad_enabled, true, result);
    case TIDE_STATEMENT_NO_AUTOCAST:
        return run_with(f, s, &m->state.autocast_enabled, false, result);
    case TIDE_STATEMENT_AUTOCAST:
        return run_autocast(f, s, result);
    }
    return GOES_ON;
}

tide_outcome tide_run_block(tide_frame *f, tide_statement *s, tide_value *result) {
    tide_machine *m = f->model->m;
    for (; s && !tide_is_aborting(m); s = s->next) {
        m->statement = s->number;
        if (++m->op_count > m->op_limit)
            tide_fail(m, TIDE_ERR_LIMIT, "more statements than tidemark plays for one job");
        if (run_statement(f, s, result) == RETURNED) return RETURNED;
    }
    return GOES_ON;
}
