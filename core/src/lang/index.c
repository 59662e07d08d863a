/* SPDX-License-Identifier: Apache-2.0 */
/* Indexing tensors, lists and texts. */
#include "lang/interpreter.h"

/* ---- tensors ---- */

/* x[a, :, b:c, ..., none, [i, j], tensor]: tensors, and lists, which are converted to tensors, must be adjacent. */
typedef struct indexing {
    tide_frame *f;
    tide_tensor *at; /* owned: the result so far */
    int dim;         /* its dimension for the next item */
    int skipped;     /* the number of dimensions covered by an ellipsis */
    uint32_t items;
    bool has_changed;
    tide_list *tensors; /* index tensors, for the dimensions from `first` on */
    int first;
} indexing;

static void take_made(indexing *x, tide_tensor *made) {
    tide_release(x->f->model->m, x->at);
    x->at = made;
    x->has_changed = true;
}

static tide_value bound_or(tide_frame *f, tide_expr *e, int64_t otherwise) {
    return e ? tide_eval(f, e) : tide_of_int(otherwise);
}

static void index_by_slice(indexing *x, const tide_expr *item) {
    tide_machine *m = x->f->model->m;
    tide_value start = bound_or(x->f, item->a, 0), stop = bound_or(x->f, item->b, INT64_MAX);
    if (x->dim >= x->at->shape->dims) {
        tide_fail(m, TIDE_ERR_SHAPE, "more indices than dimensions of %s", tide_shape_text(m, x->at->shape));
        return;
    }
    if (item->c) {
        tide_value step = tide_eval(x->f, item->c);
        m->op = "slice";
        take_made(x, tide_every(m, x->at, x->dim++, tide_arg_int(m, start), tide_arg_int(m, step)));
        return;
    }
    int64_t size = x->at->shape->dim[x->dim].size, first = tide_arg_int(m, start), last = tide_arg_int(m, stop);
    bool is_full = first == 0 && last >= size;
    if (is_full && x->items > 1) { /* a full range changes nothing */
        x->dim++;
        return;
    }
    if (is_full) first = -size; /* x[a:b] alone is a slice even if it is full: applySlice, disable_slice_optimization */
    m->op = "slice";
    take_made(x, tide_slice(m, x->at, x->dim++, (tide_dim){first, start.symbol}, (tide_dim){last, stop.symbol}));
}

static void index_by_value(indexing *x, tide_expr *item) {
    tide_machine *m = x->f->model->m;
    tide_value index = tide_eval(x->f, item);
    if (index.kind == TIDE_VALUE_LIST) { /* sequenceToVariable: numbers are copied to the device as int64 */
        m->op = "index";
        tide_shape shape = tide_shape1((tide_dim){index.list->count, 0});
        tide_value_release(m, index);
        index = tide_of_tensor(tide_empty(m, &shape, TIDE_INT64));
    }
    if (index.kind != TIDE_VALUE_TENSOR) {
        m->op = "select";
        take_made(x, tide_select(m, x->at, x->dim, tide_arg_int(m, index)));
        return;
    }
    if (x->tensors->count == 0)
        x->first = x->dim;
    else if (x->first + (int)x->tensors->count != x->dim)
        tide_fail(m, TIDE_ERR_DESCRIPTION, "tensors that index stand side by side");
    tide_list_push(m, x->tensors, index);
    x->dim++;
}

static void index_by(indexing *x, tide_expr *item) {
    switch (item->kind) {
    case TIDE_EXPR_ELLIPSIS:
        x->dim += x->skipped > 0 ? x->skipped : 0;
        break;
    case TIDE_EXPR_NONE:
        take_made(x, tide_unsqueeze(x->f->model->m, x->at, x->dim++));
        break;
    case TIDE_EXPR_SLICE:
        index_by_slice(x, item);
        break;
    default:
        index_by_value(x, item);
    }
}

static tide_value index_tensor(tide_frame *f, tide_expr *e, tide_tensor *t) {
    tide_machine *m = f->model->m;
    tide_value indices = {.kind = TIDE_VALUE_LIST, .list = tide_list_new(m)};
    indexing x = {.f = f, .at = tide_retain(t), .skipped = t->shape->dims, .items = e->count, .tensors = indices.list};
    for (uint32_t i = 0; i < e->count; i++)
        if (e->items[i]->kind != TIDE_EXPR_ELLIPSIS && e->items[i]->kind != TIDE_EXPR_NONE) x.skipped--;
    for (uint32_t i = 0; i < e->count && !tide_is_aborting(m); i++) index_by(&x, e->items[i]);
    tide_value made;
    if (indices.list->count && !tide_is_aborting(m)) {
        tide_value arguments[3] = {tide_of_tensor(x.at), indices, tide_of_int(x.first)};
        made = tide_run_operation(m, tide_op_find(TIDE_TEXT("index")), arguments, 3);
        tide_value_release(m, indices);
        tide_release(m, x.at);
        return made;
    }
    tide_value_release(m, indices);
    if (!x.has_changed && !tide_is_aborting(m)) /* at::alias */
        take_made(&x, tide_slice(m, x.at, 0, (tide_dim){0, 0}, (tide_dim){INT64_MAX, 0}));
    return tide_of_tensor(x.at);
}

/* x.shape[i], without a list for x.shape. */
static tide_value one_size(tide_frame *f, tide_expr *e) {
    tide_machine *m = f->model->m;
    tide_value x = tide_eval(f, e->a->a), made = tide_none();
    int64_t i = e->items[0]->kind == TIDE_EXPR_NEGATE ? -e->items[0]->a->integer : e->items[0]->integer;
    if (x.kind != TIDE_VALUE_TENSOR) {
        if (!tide_is_aborting(m)) tide_fail(m, TIDE_ERR_DESCRIPTION, "'shape' of %s", tide_kind_name(x));
    } else if (i >= x.tensor->shape->dims || i < -x.tensor->shape->dims) {
        tide_fail(m, TIDE_ERR_DESCRIPTION, "index %lld into a shape of %d", (long long)i, x.tensor->shape->dims);
    } else {
        tide_dim dim = tide_dim_of(x.tensor, (int)(i < 0 ? i + x.tensor->shape->dims : i));
        made = (tide_value){.kind = TIDE_VALUE_INT, .symbol = dim.name, .integer = dim.size};
    }
    tide_value_release(m, x);
    return made;
}

/* ---- lists and texts ---- */

static tide_value slice_list(tide_frame *f, const tide_expr *item, tide_list *list) {
    tide_machine *m = f->model->m;
    int64_t count = list->count;
    tide_value start = bound_or(f, item->a, 0), stop = bound_or(f, item->b, count);
    int64_t from = tide_arg_int(m, start), to = tide_arg_int(m, stop);
    from = from < 0 ? (from + count > 0 ? from + count : 0) : from;
    to = to < 0 ? to + count : to > count ? count : to;
    tide_value made = {.kind = TIDE_VALUE_LIST, .list = tide_list_new(m)};
    for (int64_t i = from; i < to; i++) tide_list_push(m, made.list, tide_value_retain(list->items[i]));
    return made;
}

static tide_value index_list(tide_frame *f, tide_expr *e, tide_list *list) {
    tide_machine *m = f->model->m;
    list->is_read = true;
    if (e->items[0]->kind == TIDE_EXPR_SLICE) return slice_list(f, e->items[0], list);
    tide_value index = tide_eval(f, e->items[0]);
    int64_t i = tide_arg_int(m, index);
    if (i < 0) i += list->count;
    if (i >= 0 && i < (int64_t)list->count && e->count == 1) return tide_value_retain(list->items[i]);
    if (!tide_is_aborting(m))
        tide_fail(m, f->function ? TIDE_ERR_DESCRIPTION : TIDE_ERR_FIELD_TYPE, "index %lld into a list of %u",
                  (long long)i, list->count);
    return tide_none();
}

/* A character of a text. */
static tide_value index_text(tide_frame *f, tide_expr *e, tide_text text) {
    tide_machine *m = f->model->m;
    int64_t i = tide_arg_int(m, tide_eval(f, e->items[0]));
    if (i >= 0 && i < (int64_t)text.length && e->count == 1)
        return (tide_value){.kind = TIDE_VALUE_TEXT, .text = {text.at + i, 1}};
    if (!tide_is_aborting(m))
        tide_fail(m, TIDE_ERR_DESCRIPTION, "index %lld into a text of %u letters", (long long)i, (unsigned)text.length);
    return tide_none();
}

static bool is_literal(const tide_expr *e) {
    return e->kind == TIDE_EXPR_INT || (e->kind == TIDE_EXPR_NEGATE && e->a->kind == TIDE_EXPR_INT);
}

/* In a size, the configuration is to blame. */
static void fail_index(tide_frame *f, const tide_expr *e, tide_value a) {
    tide_machine *m = f->model->m;
    bool is_named = e->a->kind == TIDE_EXPR_NAME || e->a->kind == TIDE_EXPR_MEMBER;
    if (f->function || !is_named)
        tide_fail(m, f->function ? TIDE_ERR_DESCRIPTION : TIDE_ERR_FIELD_TYPE, "an index into %s", tide_kind_name(a));
    else
        tide_fail(m, TIDE_ERR_FIELD_TYPE, "'%s' of the configuration is %s; the description reads a list",
                  tide_terminated(m, e->a->text), tide_kind_name(a));
}

tide_value tide_eval_index(tide_frame *f, tide_expr *e) {
    tide_machine *m = f->model->m;
    if (e->a->kind == TIDE_EXPR_MEMBER && e->a->slot == MEMBER_SHAPE && e->count == 1 && is_literal(e->items[0]))
        return one_size(f, e);
    tide_value a = tide_eval(f, e->a), made = tide_none();
    if (a.kind == TIDE_VALUE_TENSOR)
        made = index_tensor(f, e, a.tensor);
    else if (a.kind == TIDE_VALUE_LIST)
        made = index_list(f, e, a.list);
    else if (a.kind == TIDE_VALUE_TEXT)
        made = index_text(f, e, a.text);
    else if (!tide_is_aborting(m) && !(a.kind == TIDE_VALUE_NONE && e->may_miss))
        fail_index(f, e, a);
    tide_value_release(m, a);
    return made;
}
