/* SPDX-License-Identifier: Apache-2.0 */
/* Elementwise operations: aten/src/ATen/native/{Unary,Binary}Ops.cpp, tools/autograd/derivatives.yaml.
 * Generated backwards compute the gradients in the alphabetical order of the arguments' names: other before self. */
#include "tensor/ops/ops.h"

#include <string.h>

#include "base/units.h"

tide_tensor *tide_elementwise(tide_machine *m, tide_tensor *const *inputs, int count, tide_dtype dtype) {
    tide_layout *layout = inputs[0]->layout;
    bool is_kept = layout->is_contiguous ? layout->is_canonical : layout->is_dense;
    for (int i = 1; i < count; i++) is_kept = is_kept && inputs[i]->layout == layout;
    if (is_kept) return tide_empty_laid_out(m, layout, dtype);
    tide_shape shape = layout->shape;
    for (int i = 1; i < count; i++)
        if (!tide_broadcast(m, &shape, &shape, inputs[i]->shape)) return tide_retain(inputs[0]);
    return tide_empty_laid_out(m, tide_elementwise_layout(m, &shape, inputs, count), dtype);
}

static tide_tensor *on_two(tide_machine *m, tide_tensor *a, tide_tensor *b) {
    tide_tensor *both[2] = {a, b};
    return tide_elementwise(m, both, 2, tide_promote(a, b));
}

/* ---- one input ---- */

/* What backward makes besides the gradient: temporaries before it, freed after it in reverse order. */
static void unary_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    tide_tensor *saved = tide_saved_at(m, node, 0), *temporaries[4] = {NULL};
    int count = node->of.pointwise.temporaries;
    tide_tensor *from = saved ? saved : grads[0];
    for (int i = 0; i < count; i++) temporaries[i] = tide_elementwise(m, &from, 1, from->dtype);
    results[0] = saved ? on_two(m, grads[0], saved) : tide_elementwise(m, grads, 1, grads[0]->dtype);
    while (count--) tide_release(m, temporaries[count]);
    tide_release(m, saved);
}

static void pass_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    (void)m;
    for (unsigned i = 0; i < node->edge_count; i++)
        results[i] = tide_needs_input_grad(node, (int)i) ? tide_retain(grads[0]) : NULL;
}

typedef enum saves { SAVES_NOTHING, SAVES_INPUT, SAVES_RESULT } saves;

static tide_tensor *unary(tide_machine *m, const tide_backward *backward, tide_tensor *x, saves what, int temporaries) {
    tide_node *node = tide_node_new(m, backward, &x, 1);
    if (node) node->of.pointwise.temporaries = temporaries;
    if (what == SAVES_INPUT) tide_save(m, node, x);
    tide_dtype dtype = tide_dtype_is_float(x->dtype) || what == SAVES_NOTHING ? (tide_dtype)x->dtype : TIDE_FP32;
    tide_tensor *out = tide_set_grad_fn(m, node, tide_elementwise(m, &x, 1, dtype));
    if (what == SAVES_RESULT) tide_save(m, node, out);
    return out;
}

#define UNARY(name, backward_name, what, temporaries)                                                                  \
    static const tide_backward name##_backward = {backward_name, unary_run};                                           \
    static tide_value op_##name(tide_machine *m, tide_value *a) {                                                      \
        return tide_of_tensor(unary(m, &name##_backward, tide_arg_tensor(m, a[0]), what, temporaries));                \
    }

/* BinaryOps.cpp, threshold_backward: the result comes before the gradient and so determines the layout. */
static void relu_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    tide_tensor *out = tide_saved_at(m, node, 0);
    results[0] = on_two(m, out, grads[0]);
    tide_release(m, out);
}
static const tide_backward relu_backward = {"ReluBackward0", relu_run};

static tide_value op_relu(tide_machine *m, tide_value *a) {
    return tide_of_tensor(unary(m, &relu_backward, tide_arg_tensor(m, a[0]), SAVES_RESULT, 0));
}

UNARY(gelu, "GeluBackward0", SAVES_INPUT, 0)
UNARY(silu, "SiluBackward0", SAVES_INPUT, 0)
UNARY(mish, "MishBackward0", SAVES_INPUT, 0)
UNARY(hardswish, "HardswishBackward0", SAVES_INPUT, 0)
UNARY(leaky_relu, "LeakyReluBackward0", SAVES_INPUT, 0)
UNARY(elu, "EluBackward0", SAVES_INPUT, 0)
UNARY(softplus, "SoftplusBackward0", SAVES_INPUT, 0)
UNARY(relu6, "HardtanhBackward0", SAVES_INPUT, 0)
UNARY(logsigmoid, "LogSigmoidBackward0", SAVES_INPUT, 0)
UNARY(tanh, "TanhBackward0", SAVES_RESULT, 0)
UNARY(sigmoid, "SigmoidBackward0", SAVES_RESULT, 0)
UNARY(exp, "ExpBackward0", SAVES_RESULT, 0)
UNARY(expm1, "Expm1Backward0", SAVES_RESULT, 1)
UNARY(sqrt, "SqrtBackward0", SAVES_RESULT, 1)
UNARY(rsqrt, "RsqrtBackward0", SAVES_RESULT, 2)
UNARY(reciprocal, "ReciprocalBackward0", SAVES_RESULT, 2)
UNARY(log, "LogBackward0", SAVES_INPUT, 0)
UNARY(sin, "SinBackward0", SAVES_INPUT, 1)
UNARY(cos, "CosBackward0", SAVES_INPUT, 2)
UNARY(erf, "ErfBackward0", SAVES_INPUT, 4)
UNARY(neg, "NegBackward0", SAVES_NOTHING, 0)
UNARY(floor, "FloorBackward0", SAVES_NOTHING, 0)
/* square is pow(x, 2), which autocast runs in fp32. */
UNARY(square, "PowBackward0", SAVES_INPUT, 2)
UNARY(pow, "PowBackward0", SAVES_INPUT, 2)

static const tide_backward abs_backward = {"AbsBackward0", unary_run};

/* Integers stay integers. */
static tide_value op_abs(tide_machine *m, tide_value *a) {
    tide_tensor *x = tide_arg_tensor(m, a[0]);
    bool is_float = tide_dtype_is_float(x->dtype);
    return tide_of_tensor(unary(m, &abs_backward, x, is_float ? SAVES_INPUT : SAVES_NOTHING, is_float ? 1 : 0));
}

/* clamp: the gradient is a where, with a mask of the input for each bound. */
static void clamped(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results, bool has_both) {
    tide_tensor *x = tide_saved_at(m, node, 0);
    tide_shape scalar = {.dims = 0};
    tide_tensor *zero = tide_empty(m, &scalar, grads[0]->dtype);
    tide_tensor *above = tide_elementwise(m, &x, 1, TIDE_BOOL),
                *below = has_both ? tide_elementwise(m, &x, 1, TIDE_BOOL) : NULL;
    tide_tensor *all[3] = {above, grads[0], zero}; /* where(mask, grad, 0) */
    results[0] = tide_elementwise(m, all, 3, grads[0]->dtype);
    tide_release(m, below);
    tide_release(m, above);
    tide_release(m, zero);
    tide_release(m, x);
}
static void clamp_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    clamped(m, node, grads, results, true);
}
static void clamp_one_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    clamped(m, node, grads, results, false);
}
static const tide_backward clamp_backward = {"ClampBackward1", clamp_run},
                           clamp_one_backward = {"ClampBackward1", clamp_one_run};

static tide_value op_clamp(tide_machine *m, tide_value *a) {
    tide_tensor *x = tide_arg_tensor(m, a[0]);
    bool has_both = a[1].kind != TIDE_VALUE_NONE && a[2].kind != TIDE_VALUE_NONE;
    return tide_of_tensor(unary(m, has_both ? &clamp_backward : &clamp_one_backward, x,
                                tide_dtype_is_float(x->dtype) ? SAVES_INPUT : SAVES_NOTHING, 0));
}

/* clamp with tensors as bounds, FunctionsManual.cpp clamp_backward: for self where it is inside of the bounds, and for
 * each bound where it takes effect, all by masks of the size of self. */
static void clamp_to_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    tide_tensor *most = tide_saved_at(m, node, 0), *least = tide_saved_at(m, node, 1), *x = tide_saved_at(m, node, 2);
    tide_tensor *is_ordered = tide_empty(m, least->shape, TIDE_BOOL), *masks[7];
    for (int i = 0; i < 4; i++) masks[i] = tide_elementwise(m, &x, 1, TIDE_BOOL);
    for (int i = 2; i >= 0; i--) tide_release(m, masks[i]);
    for (int i = 4; i < 7; i++) masks[i] = tide_elementwise(m, &x, 1, TIDE_BOOL);
    for (int i = 5; i >= 4; i--) tide_release(m, masks[i]);
    tide_tensor *filled = tide_elementwise(m, grads, 1, grads[0]->dtype);
    results[0] = tide_elementwise(m, grads, 1, grads[0]->dtype);
    tide_tensor *made[] = {filled, masks[6], masks[3], is_ordered, most, least, x};
    for (unsigned i = 0; i < TIDE_COUNT_OF(made); i++) tide_release(m, made[i]);
}
static const tide_backward clamp_to_backward = {"ClampBackward0", clamp_to_run};

static tide_value op_clamp_to(tide_machine *m, tide_value *a) {
    tide_tensor *x = tide_arg_tensor(m, a[0]), *least = tide_arg_tensor(m, a[1]), *most = tide_arg_tensor(m, a[2]);
    tide_node *node = tide_node_new(m, &clamp_to_backward, &x, 1);
    tide_save(m, node, most);
    tide_save(m, node, least);
    tide_save(m, node, x);
    return tide_of_tensor(tide_set_grad_fn(m, node, tide_elementwise(m, &x, 1, x->dtype)));
}

/* ---- two inputs ---- */

static const tide_backward add_backward = {"AddBackward0", pass_run};

tide_tensor *tide_add(tide_machine *m, tide_tensor *a, tide_tensor *b) {
    tide_tensor *both[2] = {a, b};
    tide_node *node = tide_node_new(m, &add_backward, both, 2);
    return tide_set_grad_fn(m, node, on_two(m, a, b));
}

static void sub_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    if (tide_needs_input_grad(node, 1)) results[1] = tide_elementwise(m, grads, 1, grads[0]->dtype);
    if (tide_needs_input_grad(node, 0)) results[0] = tide_retain(grads[0]);
}
static const tide_backward sub_backward = {"SubBackward0", sub_run};

/* mul_tensor_backward: grad * x.conj(), which the kernel is given resolved (ConjugateFallback.cpp). */
static tide_tensor *on_conjugate(tide_machine *m, tide_tensor *grad, tide_tensor *x) {
    tide_tensor *resolved = x->dtype == TIDE_COMPLEX64 ? tide_empty(m, x->shape, x->dtype) : tide_retain(x);
    tide_tensor *product = on_two(m, grad, resolved);
    tide_release(m, resolved);
    return product;
}

static void mul_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    tide_tensor *other = tide_saved_at(m, node, 0), *self = tide_saved_at(m, node, 1);
    if (tide_needs_input_grad(node, 1) && self) results[1] = on_conjugate(m, grads[0], self);
    if (tide_needs_input_grad(node, 0) && other) results[0] = on_conjugate(m, grads[0], other);
    tide_release(m, self);
    tide_release(m, other);
}
static const tide_backward mul_backward = {"MulBackward0", mul_run};

tide_tensor *tide_mul(tide_machine *m, tide_tensor *a, tide_tensor *b) {
    tide_tensor *both[2] = {a, b};
    tide_node *node = tide_node_new(m, &mul_backward, both, 2);
    if (node) {
        tide_save(m, node, tide_needs_input_grad(node, 0) ? b : NULL);
        tide_save(m, node, tide_needs_input_grad(node, 1) ? a : NULL);
    }
    return tide_set_grad_fn(m, node, on_two(m, a, b));
}

static void div_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    tide_tensor *other = tide_saved_at(m, node, 0), *self = tide_saved_at(m, node, 1);
    if (tide_needs_input_grad(node, 1) && self) { /* div_tensor_other_grad: -grad * ((self / other) / other) */
        tide_tensor *quotient = on_two(m, self, other), *again = on_two(m, quotient, other);
        tide_tensor *negative = tide_elementwise(m, grads, 1, grads[0]->dtype);
        results[1] = on_two(m, negative, again);
        tide_release(m, negative);
        tide_release(m, again);
        tide_release(m, quotient);
    }
    if (tide_needs_input_grad(node, 0) && other) results[0] = on_two(m, grads[0], other);
    tide_release(m, self);
    tide_release(m, other);
}
static const tide_backward div_backward = {"DivBackward0", div_run};

static tide_tensor *divide(tide_machine *m, tide_tensor *a, tide_tensor *b) {
    tide_tensor *both[2] = {a, b};
    tide_node *node = tide_node_new(m, &div_backward, both, 2);
    if (node) {
        tide_save(m, node, b);
        tide_save(m, node, tide_needs_input_grad(node, 1) ? a : NULL);
    }
    return tide_set_grad_fn(m, node, on_two(m, a, b));
}

static const tide_backward scale_backward = {"MulBackward0", unary_run};
static const tide_backward shift_backward = {"AddBackward0", pass_run};

tide_tensor *tide_scale(tide_machine *m, tide_tensor *x) {
    return unary(m, &scale_backward, x, SAVES_NOTHING, 0);
}

static bool is_scalar(tide_value v) {
    return v.kind == TIDE_VALUE_INT || v.kind == TIDE_VALUE_FLOAT || v.kind == TIDE_VALUE_BOOL;
}

/* A Python scalar promotes integers to the default dtype, and changes nothing else. */
static tide_tensor *with_number(tide_machine *m, const tide_backward *backward, tide_tensor *x, tide_value number) {
    tide_node *node = tide_node_new(m, backward, &x, 1);
    tide_dtype dtype = (tide_dtype)x->dtype;
    if (!tide_dtype_is_float(dtype) && number.kind == TIDE_VALUE_FLOAT) dtype = TIDE_FP32;
    if (dtype == TIDE_BOOL && number.kind == TIDE_VALUE_INT) dtype = TIDE_INT64;
    return tide_set_grad_fn(m, node, tide_elementwise(m, &x, 1, dtype));
}

static tide_value op_add(tide_machine *m, tide_value *a) {
    if (is_scalar(a[1])) return tide_of_tensor(with_number(m, &shift_backward, tide_arg_tensor(m, a[0]), a[1]));
    if (is_scalar(a[0])) return tide_of_tensor(with_number(m, &shift_backward, tide_arg_tensor(m, a[1]), a[0]));
    return tide_of_tensor(tide_add(m, tide_arg_tensor(m, a[0]), tide_arg_tensor(m, a[1])));
}

static tide_value op_sub(tide_machine *m, tide_value *a) {
    if (is_scalar(a[1])) return tide_of_tensor(with_number(m, &shift_backward, tide_arg_tensor(m, a[0]), a[1]));
    if (is_scalar(a[0])) return tide_of_tensor(with_number(m, &scale_backward, tide_arg_tensor(m, a[1]), a[0]));
    tide_tensor *both[2] = {tide_arg_tensor(m, a[0]), tide_arg_tensor(m, a[1])};
    tide_node *node = tide_node_new(m, &sub_backward, both, 2);
    return tide_of_tensor(tide_set_grad_fn(m, node, on_two(m, both[0], both[1])));
}

static tide_value op_mul(tide_machine *m, tide_value *a) {
    if (is_scalar(a[1])) return tide_of_tensor(with_number(m, &scale_backward, tide_arg_tensor(m, a[0]), a[1]));
    if (is_scalar(a[0])) return tide_of_tensor(with_number(m, &scale_backward, tide_arg_tensor(m, a[1]), a[0]));
    return tide_of_tensor(tide_mul(m, tide_arg_tensor(m, a[0]), tide_arg_tensor(m, a[1])));
}

static tide_value op_div(tide_machine *m, tide_value *a) {
    if (is_scalar(a[1])) {
        a[1].kind = TIDE_VALUE_FLOAT; /* true division of integers gives floats */
        return tide_of_tensor(with_number(m, &scale_backward, tide_arg_tensor(m, a[0]), a[1]));
    }
    return tide_of_tensor(divide(m, tide_arg_tensor(m, a[0]), tide_arg_tensor(m, a[1])));
}

/* x += y: keeps the storage; the tensor gets a new node. */
static tide_value in_place(tide_machine *m, const tide_backward *backward, tide_value *a) {
    tide_tensor *x = tide_arg_tensor(m, a[0]);
    tide_tensor *both[2] = {x, is_scalar(a[1]) ? NULL : tide_arg_tensor(m, a[1])};
    tide_node *node = tide_node_new(m, backward, both, 2);
    tide_tensor *t = tide_alias(m, x);
    if (node && x->node && strcmp(x->node->backward->name, "RedistributeBackward") == 0) /* VariableTypeUtils.h */
        tide_fail(m, TIDE_ERR_CONFLICT,
                  "\"Output 0 of _ToTorchTensor is a view and is being modified inplace\": the result of a layer that "
                  "tensor parallelism cuts; use parallel.kind=fsdp2 or zero3");
    return tide_of_tensor(node ? tide_set_grad_fn(m, node, t) : t);
}

static void scaled_add_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    if (tide_needs_input_grad(node, 1)) results[1] = tide_elementwise(m, grads, 1, grads[0]->dtype);
    if (tide_needs_input_grad(node, 0)) results[0] = tide_retain(grads[0]);
}
static const tide_backward scaled_add_backward = {"AddBackward0", scaled_add_run};

/* x.add_(y, alpha=2) */
static tide_value op_add_(tide_machine *m, tide_value *a) {
    bool is_scaled = is_scalar(a[2]) && !(a[2].kind == TIDE_VALUE_INT && a[2].integer == 1);
    tide_tensor *x = tide_arg_tensor(m, a[0]);
    if (tide_is_tracked_view(x) && !is_scaled && !is_scalar(a[1]))
        return tide_of_tensor(tide_write_to_view(m, x, tide_arg_tensor(m, a[1]), NULL));
    return in_place(m, is_scaled ? &scaled_add_backward : &add_backward, a);
}

/* x *= y, x /= y: a clone of x is saved if y requires a gradient. */
static tide_value scaled_in_place(tide_machine *m, const tide_backward *backward, tide_value *a, bool keeps_other) {
    if (is_scalar(a[1])) return in_place(m, &scale_backward, a);
    tide_tensor *both[2] = {tide_arg_tensor(m, a[0]), tide_arg_tensor(m, a[1])};
    if (tide_is_tracked_view(both[0]) && !both[1]->requires_grad && !keeps_other)
        return tide_of_tensor(tide_write_to_view(m, both[0], NULL, both[1]));
    tide_node *node = tide_node_new(m, backward, both, 2);
    tide_tensor *old = node && tide_needs_input_grad(node, 1) ? tide_empty_like(m, both[0], both[0]->dtype) : NULL;
    tide_save(m, node, node && (keeps_other || tide_needs_input_grad(node, 0)) ? both[1] : NULL);
    tide_save(m, node, old);
    tide_release(m, old);
    tide_tensor *t = tide_alias(m, both[0]);
    return tide_of_tensor(node ? tide_set_grad_fn(m, node, t) : t);
}

static tide_value op_mul_(tide_machine *m, tide_value *a) {
    return scaled_in_place(m, &mul_backward, a, false);
}

static tide_value op_div_(tide_machine *m, tide_value *a) {
    return scaled_in_place(m, &div_backward, a, true);
}

/* floor_divide and remainder. */
static tide_value op_whole_division(tide_machine *m, tide_value *a) {
    tide_tensor *x = tide_arg_tensor(m, a[0]), *by = is_scalar(a[1]) ? NULL : tide_arg_tensor(m, a[1]);
    if (x->requires_grad || (by && by->requires_grad))
        tide_fail(m, TIDE_ERR_UNSUPPORTED, "// and %%: of a tensor without gradient");
    return tide_of_tensor(by ? on_two(m, x, by) : tide_elementwise(m, &x, 1, x->dtype));
}

/* An activation in place: the tensor gets a new node; a copy of the old values is saved if backward needs them. */
static tide_value activated_in_place(tide_machine *m, const tide_backward *backward, tide_value *a, bool keeps_old) {
    tide_tensor *x = tide_arg_tensor(m, a[0]);
    tide_node *node = tide_node_new(m, backward, &x, 1);
    tide_tensor *old = node && keeps_old ? tide_empty_like(m, x, x->dtype) : NULL;
    if (keeps_old) tide_save(m, node, old);
    tide_release(m, old);
    tide_tensor *t = tide_alias(m, x);
    if (!node) return tide_of_tensor(t);
    t = tide_set_grad_fn(m, node, t);
    if (!keeps_old) tide_save(m, node, t);
    return tide_of_tensor(t);
}

static tide_value op_relu_(tide_machine *m, tide_value *a) {
    return activated_in_place(m, &relu_backward, a, false);
}

static tide_value op_clamp_(tide_machine *m, tide_value *a) {
    return activated_in_place(m, &clamp_backward, a, true);
}

static tide_value op_silu_(tide_machine *m, tide_value *a) {
    return activated_in_place(m, &silu_backward, a, true);
}

/* ---- comparisons and logic: bool results without gradients ---- */

static tide_value op_compare(tide_machine *m, tide_value *a) {
    if (is_scalar(a[1])) {
        tide_tensor *x = tide_arg_tensor(m, a[0]);
        return tide_of_tensor(tide_elementwise(m, &x, 1, TIDE_BOOL));
    }
    tide_tensor *both[2] = {tide_arg_tensor(m, a[0]), tide_arg_tensor(m, a[1])};
    return tide_of_tensor(tide_elementwise(m, both, 2, TIDE_BOOL));
}

static tide_value op_logical_not(tide_machine *m, tide_value *a) {
    tide_tensor *x = tide_arg_tensor(m, a[0]);
    return tide_of_tensor(tide_elementwise(m, &x, 1, TIDE_BOOL));
}

/* derivatives.yaml, minimum: where(self == other, grad / 2, grad).masked_fill_(self > other, 0); arguments of calls are
 * evaluated from the last to the first. */
static void minimum_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    tide_tensor *other = tide_saved_at(m, node, 0), *self = tide_saved_at(m, node, 1);
    tide_tensor *both[2] = {self, other};
    for (int i = 1; i >= 0; i--) {
        if (!tide_needs_input_grad(node, i)) continue;
        tide_tensor *farther = tide_elementwise(m, both, 2, TIDE_BOOL),
                    *half = tide_elementwise(m, grads, 1, grads[0]->dtype);
        tide_tensor *same = tide_elementwise(m, both, 2, TIDE_BOOL), *all[3] = {same, half, grads[0]};
        results[i] = tide_elementwise(m, all, 3, grads[0]->dtype);
        tide_release(m, same);
        tide_release(m, half);
        tide_release(m, farther);
    }
    tide_release(m, self);
    tide_release(m, other);
}
static const tide_backward minimum_backward = {"MinimumBackward0", minimum_run};

/* torch.minimum, torch.maximum */
static tide_value op_minimum(tide_machine *m, tide_value *a) {
    tide_tensor *both[2] = {tide_arg_tensor(m, a[0]), tide_arg_tensor(m, a[1])};
    tide_node *node = tide_node_new(m, &minimum_backward, both, 2);
    tide_save(m, node, both[1]);
    tide_save(m, node, both[0]);
    return tide_of_tensor(tide_set_grad_fn(m, node, on_two(m, both[0], both[1])));
}

/* ---- where, masked_fill ---- */

static void where_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    tide_tensor *condition = tide_saved_at(m, node, 0);
    tide_shape scalar = {.dims = 0};
    for (int i = 1; i >= 0; i--) {
        if (!tide_needs_input_grad(node, i)) continue;
        tide_tensor *zero = tide_empty(m, &scalar, grads[0]->dtype);
        tide_tensor *both[2] = {condition, grads[0]};
        results[i] = tide_elementwise(m, both, 2, grads[0]->dtype);
        tide_release(m, zero);
    }
    tide_release(m, condition);
}
static const tide_backward where_backward = {"WhereBackward0", where_run};

static tide_value op_where(tide_machine *m, tide_value *a) {
    tide_tensor *condition = tide_arg_tensor(m, a[0]), *made[2] = {NULL, NULL}, *sides[2];
    tide_dtype dtype = a[3].kind == TIDE_VALUE_DTYPE ? a[3].dtype : TIDE_FP32;
    tide_shape scalar = {.dims = 0};
    for (int i = 0; i < 2; i++) {
        if (a[1 + i].kind == TIDE_VALUE_TENSOR) {
            sides[i] = a[1 + i].tensor;
            if (a[3].kind != TIDE_VALUE_DTYPE) dtype = (tide_dtype)sides[i]->dtype;
        } else { /* a number becomes a 0-dim tensor on the device */
            if (a[2 - i].kind == TIDE_VALUE_TENSOR) dtype = (tide_dtype)a[2 - i].tensor->dtype;
            sides[i] = made[i] = tide_empty(m, &scalar, dtype);
        }
    }
    tide_node *node = tide_node_new(m, &where_backward, sides, 2);
    tide_save(m, node, condition);
    tide_tensor *all[3] = {condition, sides[0], sides[1]};
    tide_tensor *out = tide_set_grad_fn(m, node, tide_elementwise(m, all, 3, tide_promote(sides[0], sides[1])));
    tide_release(m, made[1]);
    tide_release(m, made[0]);
    return tide_of_tensor(out);
}

/* TensorAdvancedIndexing.cpp: both directions clone into a contiguous tensor. */
static void masked_fill_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    tide_tensor *mask = tide_saved_at(m, node, 0);
    if (tide_needs_input_grad(node, 0)) results[0] = tide_empty(m, grads[0]->shape, grads[0]->dtype);
    tide_release(m, mask);
}
static const tide_backward masked_fill_backward = {"MaskedFillBackward0", masked_fill_run};

/* derivatives.yaml, as_strided: a view that was written to gets a graph of its own, whose gradient is scattered into
 * zeros. */
static void written_view_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    if (tide_needs_input_grad(node, 0)) results[0] = tide_empty(m, grads[0]->shape, grads[0]->dtype);
}
static const tide_backward written_view_backward = {"AsStridedBackward0", written_view_run};

/* torch/csrc/autograd/functions/tensor.cpp: CopySlices, for a view that covers its base: the backward of the write runs
 * on a clone of the gradient's slice, and its result is copied into the gradient of the base. */
static void masked_slice_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    if (!tide_needs_input_grad(node, 0)) return;
    tide_tensor *slice, *filled, *mask = tide_saved_at(m, node, 0);
    results[0] = tide_empty(m, grads[0]->shape, grads[0]->dtype);
    slice = tide_empty(m, grads[0]->shape, grads[0]->dtype);
    filled = tide_empty(m, grads[0]->shape, grads[0]->dtype);
    tide_release(m, slice);
    tide_release(m, filled);
    tide_release(m, mask);
}
static const tide_backward masked_slice_backward = {"CopySlices", masked_slice_run};

static tide_value op_masked_fill_(tide_machine *m, tide_value *a) {
    tide_tensor *x = tide_arg_tensor(m, a[0]), *mask = tide_arg_tensor(m, a[1]);
    tide_node *node = tide_node_new(m, x->is_view ? &masked_slice_backward : &masked_fill_backward, &x, 1);
    tide_save(m, node, mask);
    tide_tensor *filled = tide_set_grad_fn(m, node, tide_alias(m, x));
    if (!node || !x->is_view) return tide_of_tensor(filled);
    tide_node *strided = tide_node_new(m, &written_view_backward, &filled, 1);
    tide_tensor *view = tide_set_grad_fn(m, strided, tide_alias(m, filled));
    tide_release(m, filled);
    return tide_of_tensor(view);
}

static tide_value op_masked_fill(tide_machine *m, tide_value *a) {
    tide_tensor *x = tide_arg_tensor(m, a[0]), *mask = tide_arg_tensor(m, a[1]);
    tide_node *node = tide_node_new(m, &masked_fill_backward, &x, 1);
    tide_save(m, node, mask);
    tide_shape shape;
    return tide_broadcast(m, &shape, x->shape, mask->shape)
               ? tide_of_tensor(tide_set_grad_fn(m, node, tide_empty(m, &shape, x->dtype)))
               : tide_none();
}

/* ---- dropout: aten/src/ATen/native/Dropout.cpp, cuda/Dropout.cu (native_dropout: a bool mask is kept) ---- */

/* empty_like(grad, grad.suggest_memory_format()): contiguous, except for images with channels last. */
static void dropout_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    tide_tensor *mask = tide_saved_at(m, node, 0), *g = grads[0];
    bool is_channels_last = g->shape->dims >= 4 && g->stride[1] == 1 && tide_is_dense(g) && !tide_is_contiguous(g);
    for (int i = 3; i < g->shape->dims; i++) is_channels_last = is_channels_last && g->stride[i - 1] >= g->stride[i];
    results[0] = is_channels_last ? tide_empty_like(m, g, g->dtype) : tide_empty(m, g->shape, g->dtype);
    tide_release(m, mask);
}
static const tide_backward dropout_backward = {"NativeDropoutBackward0", dropout_run};

static void masked_mul_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    (void)node;
    results[0] = tide_elementwise(m, grads, 1, grads[0]->dtype);
}
static const tide_backward zeros_backward = {"MulBackward0", masked_mul_run};

tide_tensor *tide_dropout(tide_machine *m, tide_tensor *x, double p, bool training) {
    if (p <= 0 || !training || tide_count(x) == 0) return tide_retain(x);
    if (p >= 1) {
        tide_node *node = tide_node_new(m, &zeros_backward, &x, 1);
        tide_shape scalar = {.dims = 0};
        tide_tensor *zero = tide_empty(m, &scalar, x->dtype);
        tide_save(m, node, zero);
        tide_tensor *out = tide_set_grad_fn(m, node, tide_elementwise(m, &x, 1, x->dtype));
        tide_release(m, zero);
        return out;
    }
    tide_node *node = tide_node_new(m, &dropout_backward, &x, 1);
    tide_tensor *mask = tide_empty_like(m, x, TIDE_BOOL);
    tide_tensor *out = tide_set_grad_fn(m, node, tide_empty_like(m, x, x->dtype));
    tide_save(m, node, mask);
    tide_release(m, mask);
    return out;
}

static tide_value op_dropout(tide_machine *m, tide_value *a) {
    return tide_of_tensor(tide_dropout(m, tide_arg_tensor(m, a[0]), tide_arg_number(m, a[1]), tide_arg_bool(m, a[2])));
}

static const tide_op pointwise_ops[] = {
    {"relu", "x", TIDE_CAST_NONE, op_relu},
    {"relu_", "x", TIDE_CAST_NONE, op_relu_},
    {"silu_", "x", TIDE_CAST_NONE, op_silu_},
    {"clamp_", "x", TIDE_CAST_NONE, op_clamp_},
    {"gelu", "x, approximate='none'", TIDE_CAST_NONE, op_gelu},
    {"silu", "x", TIDE_CAST_NONE, op_silu},
    {"mish", "x", TIDE_CAST_NONE, op_mish},
    {"hardswish", "x", TIDE_CAST_NONE, op_hardswish},
    {"leaky_relu", "x", TIDE_CAST_NONE, op_leaky_relu},
    {"elu", "x", TIDE_CAST_NONE, op_elu},
    {"softplus", "x", TIDE_CAST_FP32, op_softplus},
    {"relu6", "x", TIDE_CAST_NONE, op_relu6},
    {"logsigmoid", "x", TIDE_CAST_NONE, op_logsigmoid},
    {"tanh", "x", TIDE_CAST_NONE, op_tanh},
    {"sigmoid", "x", TIDE_CAST_NONE, op_sigmoid},
    {"exp", "x", TIDE_CAST_FP32, op_exp},
    {"expm1", "x", TIDE_CAST_FP32, op_expm1},
    {"sqrt", "x", TIDE_CAST_NONE, op_sqrt},
    {"rsqrt", "x", TIDE_CAST_FP32, op_rsqrt},
    {"reciprocal", "x", TIDE_CAST_FP32, op_reciprocal},
    {"log", "x", TIDE_CAST_FP32, op_log},
    {"sin", "x", TIDE_CAST_NONE, op_sin},
    {"cos", "x", TIDE_CAST_NONE, op_cos},
    {"abs", "x", TIDE_CAST_NONE, op_abs},
    {"erf", "x", TIDE_CAST_NONE, op_erf},
    {"floor", "x", TIDE_CAST_NONE, op_floor},
    {"neg", "x", TIDE_CAST_NONE, op_neg},
    {"square", "x", TIDE_CAST_FP32, op_square},
    {"pow", "x, exponent", TIDE_CAST_FP32, op_pow},
    {"clamp", "x, min, max", TIDE_CAST_NONE, op_clamp},
    {"clamp_to", "x, min, max", TIDE_CAST_NONE, op_clamp_to},
    {"add", "self, other", TIDE_CAST_NONE, op_add},
    {"sub", "self, other", TIDE_CAST_NONE, op_sub},
    {"mul", "self, other", TIDE_CAST_NONE, op_mul},
    {"div", "self, other", TIDE_CAST_NONE, op_div},
    {"add_", "self, other, alpha=1", TIDE_CAST_NONE, op_add_},
    {"mul_", "self, other", TIDE_CAST_NONE, op_mul_},
    {"div_", "self, other", TIDE_CAST_NONE, op_div_},
    {"floor_divide", "self, other", TIDE_CAST_NONE, op_whole_division},
    {"remainder", "self, other", TIDE_CAST_NONE, op_whole_division},
    {"minimum", "self, other", TIDE_CAST_NONE, op_minimum},
    {"maximum", "self, other", TIDE_CAST_NONE, op_minimum},
    {"eq", "self, other", TIDE_CAST_NONE, op_compare},
    {"ne", "self, other", TIDE_CAST_NONE, op_compare},
    {"lt", "self, other", TIDE_CAST_NONE, op_compare},
    {"le", "self, other", TIDE_CAST_NONE, op_compare},
    {"gt", "self, other", TIDE_CAST_NONE, op_compare},
    {"ge", "self, other", TIDE_CAST_NONE, op_compare},
    {"logical_and", "self, other", TIDE_CAST_NONE, op_compare},
    {"logical_or", "self, other", TIDE_CAST_NONE, op_compare},
    {"logical_not", "x", TIDE_CAST_NONE, op_logical_not},
    {"where", "condition, self, other, dtype=none", TIDE_CAST_NONE, op_where},
    {"masked_fill_", "x, mask, value", TIDE_CAST_NONE, op_masked_fill_},
    {"masked_fill", "x, mask, value", TIDE_CAST_NONE, op_masked_fill},
    {"dropout", "x, p, training", TIDE_CAST_NONE, op_dropout},
};
TIDE_OP_TABLE(pointwise)
