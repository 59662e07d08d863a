/* SPDX-License-Identifier: Apache-2.0 */
/* torch.utils.checkpoint, both variants.
 *
 * Note [Non-reentrant]: while the function runs, everything that it saves is replaced by a holder in the frame. When
 * backward unpacks the first holder, the function runs again with gradients, until as many tensors have been saved as
 * there are holders; each of these is handed out once. The frame's own inputs are saved like any other tensor
 * (_NoopSaveInputs): inside of another frame they are holders of that frame, and are recomputed with it.
 * torch/utils/checkpoint.py: _checkpoint_hook.
 *
 * Note [Reentrant]: the function runs without gradients; backward runs it again with gradients on detached inputs, and
 * differentiates that graph in a nested backward pass. torch/utils/checkpoint.py: CheckpointFunction. */
#include "tensor/checkpoint.h"

#include <string.h>

/* ---- hooks ---- */

static void frame_release(tide_machine *m, tide_checkpoint_frame *frame);
static void checkpoint_pack(tide_machine *m, tide_saved_tensors_hooks *hooks, tide_saved *slot, tide_tensor *t);
static tide_tensor *checkpoint_unpack(tide_machine *m, tide_saved *slot);
static void checkpoint_drop(tide_machine *m, tide_saved *slot);
static void recomputation_pack(tide_machine *m, tide_saved_tensors_hooks *hooks, tide_saved *slot, tide_tensor *t);

static const tide_hook_pair checkpoint_hook = {checkpoint_pack, checkpoint_unpack, checkpoint_drop},
                            recomputation_hook = {recomputation_pack, NULL, NULL};

static tide_checkpoint_frame *frame_of_checkpoint_hook(tide_saved_tensors_hooks *hooks) {
    return (tide_checkpoint_frame *)(void *)((char *)hooks - offsetof(tide_checkpoint_frame, checkpoint_hook));
}

static tide_checkpoint_frame *frame_of_recomputation_hook(tide_saved_tensors_hooks *hooks) {
    return (tide_checkpoint_frame *)(void *)((char *)hooks - offsetof(tide_checkpoint_frame, recomputation_hook));
}

static tide_checkpoint_frame *frame_saving(tide_saved_tensors_hooks *hooks) {
    return hooks && hooks->pair == &checkpoint_hook ? frame_of_checkpoint_hook(hooks) : NULL;
}

static tide_checkpoint_frame *frame_recomputing(tide_saved_tensors_hooks *hooks) {
    return hooks && hooks->pair == &recomputation_hook ? frame_of_recomputation_hook(hooks) : NULL;
}

tide_checkpoint_frame *tide_checkpoint_saving(const tide_machine *m) {
    return frame_saving(m->state.saved_tensors_hooks);
}

tide_checkpoint_frame *tide_checkpoint_recomputing(const tide_machine *m) {
    return frame_recomputing(m->state.saved_tensors_hooks);
}

tide_checkpoint_frame *tide_checkpoint_of(const tide_saved *slot) {
    bool has_place = slot->packed_by && slot->packed_by->pair == &checkpoint_hook;
    return has_place ? frame_of_checkpoint_hook(slot->packed_by) : NULL;
}

static void checkpoint_pack(tide_machine *m, tide_saved_tensors_hooks *hooks, tide_saved *slot, tide_tensor *t) {
    (void)t;
    tide_checkpoint_frame *frame = frame_of_checkpoint_hook(hooks);
    TIDE_ROOM(m->arena, frame->holders, frame->holder_count, frame->holder_capacity);
    frame->holders[frame->holder_count] = (tide_holder){.is_alive = true};
    slot->packed_by = hooks;
    slot->packed = frame->holder_count++;
    frame->references++;
}

static void holder_clear(tide_machine *m, tide_holder *holder) {
    tide_release_at(m, &holder->tensor);
    for (uint32_t i = 0; i < holder->left_count; i++) tide_release(m, holder->left[i]);
    if (holder->left) tide_arena_drop(m->arena, holder->left);
    holder->left = NULL;
    holder->left_count = holder->left_capacity = 0;
}

static void checkpoint_drop(tide_machine *m, tide_saved *slot) {
    tide_checkpoint_frame *frame = frame_of_checkpoint_hook(slot->packed_by);
    TIDE_INVARIANT(slot->packed < frame->holder_count && frame->holders[slot->packed].is_alive);
    frame->holders[slot->packed].is_alive = false;
    holder_clear(m, &frame->holders[slot->packed]);
    frame_release(m, frame);
}

/* Detached if it requires a gradient; a frozen parameter is saved itself, and its data may be taken away. */
static tide_tensor *recomputed(tide_machine *m, tide_tensor *t) {
    return t->requires_grad ? tide_alias(m, t) : tide_retain(t);
}

static void recomputation_pack(tide_machine *m, tide_saved_tensors_hooks *hooks, tide_saved *slot, tide_tensor *t) {
    tide_checkpoint_frame *frame = frame_of_recomputation_hook(hooks);
    if (tide_is_aborting(m)) return;
    uint32_t place = frame->recomputed_count++;
    if (place >= frame->holder_count) {
        tide_fail(m, TIDE_ERR_DESCRIPTION, "a checkpointed module saved more the second time than the first");
        return;
    }
    slot->tensor = recomputed(m, t);
    if (frame->holders[place].is_alive) frame->holders[place].tensor = recomputed(m, t);
    if (frame->recomputed_count == frame->holder_count && !m->recomputes_to_end) m->is_stopped = true; /* early stop */
}

/* ---- frames ---- */

static tide_checkpoint_frame *frame_new(tide_machine *m, void *function, const tide_value *inputs, uint32_t count,
                                        bool is_nested) {
    tide_checkpoint_frame *frame = tide_pool_alloc(m, sizeof *frame);
    frame->references = 1;
    frame->checkpoint_hook.pair = &checkpoint_hook;
    frame->recomputation_hook.pair = &recomputation_hook;
    frame->function = function;
    frame->input_count = count;
    frame->inputs = tide_pool_alloc(m, (count + 1) * sizeof *inputs);
    frame->saved = tide_pool_alloc(m, (count + 1) * sizeof *frame->saved);
    for (uint32_t i = 0; i < count; i++) {
        bool is_saved = is_nested && inputs[i].kind == TIDE_VALUE_TENSOR;
        frame->inputs[i] = is_saved ? tide_none() : tide_value_retain(inputs[i]);
        if (is_saved && !m->is_stopped) tide_slot_save(m, &frame->saved[i], inputs[i].tensor);
    }
    frame->autocast_enabled = m->state.autocast_enabled;
    frame->autocast_dtype = m->state.autocast_dtype;
    return frame;
}

/* Of a reentrant frame after its backward: releases the saved inputs but keeps the function and what it refers to, and
 * inputs that are no tensors: ctx.inputs. */
static void drop_saved_inputs(tide_machine *m, tide_held *held) {
    tide_checkpoint_frame *frame = (tide_checkpoint_frame *)held;
    for (uint32_t i = 0; i < frame->input_count; i++) {
        if (frame->inputs[i].kind == TIDE_VALUE_LIST) continue;
        tide_value_release(m, frame->inputs[i]);
        frame->inputs[i] = tide_none();
        tide_slot_clear(m, &frame->saved[i]);
    }
}

static void forget_remade(tide_machine *m, tide_checkpoint_frame *frame) {
    tide_value_release(m, frame->outputs);
    frame->outputs = tide_none();
    for (uint32_t i = 0; frame->remade && i < frame->input_count; i++) tide_value_release(m, frame->remade[i]);
    if (frame->remade) tide_pool_free(m, frame->remade, (frame->input_count + 1) * sizeof *frame->remade);
    frame->remade = NULL;
}

static void frame_release(tide_machine *m, tide_checkpoint_frame *frame) {
    TIDE_INVARIANT(frame->references > 0);
    if (--frame->references) return;
    drop_saved_inputs(m, &frame->held);
    for (uint32_t i = 0; i < frame->input_count; i++) tide_value_release(m, frame->inputs[i]);
    for (int i = 0; i < TIDE_CHECKPOINT_OUTPUTS; i++) tide_release(m, frame->output[i]);
    forget_remade(m, frame);
    tide_pool_free(m, frame->inputs, (frame->input_count + 1) * sizeof *frame->inputs);
    tide_pool_free(m, frame->saved, (frame->input_count + 1) * sizeof *frame->saved);
    for (uint32_t i = 0; i < frame->holder_count; i++) holder_clear(m, &frame->holders[i]);
    for (int kind = 0; kind < TIDE_KEPT_COUNT; kind++) {
        tide_kept *kept = &frame->kept[kind];
        for (uint32_t i = 0; i < kept->count; i++) tide_release(m, kept->tensors[i]);
        if (kept->tensors) tide_arena_drop(m->arena, kept->tensors);
    }
    if (frame->holders) tide_arena_drop(m->arena, frame->holders);
    m->function_free(m, frame->function);
    tide_pool_free(m, frame, sizeof *frame);
}

/* ---- create_selective_checkpoint_contexts() ---- */

/* An autograd function's forward runs under the modes around it. */
static tide_saved_tensors_hooks *hooks_of_modes(const tide_machine *m) {
    return m->state.saved_tensors_hooks ? m->state.saved_tensors_hooks : m->hooks_around_function;
}

bool tide_has_dispatch_mode(const tide_machine *m) {
    tide_saved_tensors_hooks *hooks = hooks_of_modes(m);
    return m->kept_kinds && (frame_saving(hooks) || frame_recomputing(hooks));
}

void tide_keep(tide_machine *m, tide_kept_kind kind, tide_tensor *const *made, uint32_t count) {
    tide_checkpoint_frame *frame = m->kept_kinds >> kind & 1 ? frame_saving(hooks_of_modes(m)) : NULL;
    if (!frame) return;
    tide_kept *kept = &frame->kept[kind];
    bool is_kept = kind != TIDE_KEPT_PRODUCT || kept->count % 2 == 0;
    for (uint32_t i = 0; i < count; i++) {
        TIDE_ROOM(m->arena, kept->tensors, kept->count, kept->capacity);
        kept->tensors[kept->count++] = is_kept && made[i] ? tide_alias(m, made[i]) : NULL;
    }
}

bool tide_take_kept(tide_machine *m, tide_kept_kind kind, tide_tensor **made, uint32_t count) {
    tide_checkpoint_frame *frame = m->kept_kinds >> kind & 1 ? frame_recomputing(hooks_of_modes(m)) : NULL;
    if (!frame || m->is_stopped || frame->kept[kind].taken + count > frame->kept[kind].count) return false;
    tide_kept *kept = &frame->kept[kind];
    bool is_kept = kept->tensors[kept->taken] != NULL;
    for (uint32_t i = 0; i < count; i++) {
        made[i] = kept->tensors[kept->taken];
        kept->tensors[kept->taken++] = NULL;
        if (made[i]) made[i]->is_view = false;
    }
    return is_kept;
}

/* The position of the machine, for the report. */
typedef struct origin {
    uint32_t module, statement;
    const char *op;
} origin;

/* Runs the function again, with gradients and the autocast state of the first run. */
static tide_value run_again(tide_machine *m, tide_checkpoint_frame *frame, tide_value *inputs,
                            tide_saved_tensors_hooks *hooks) {
    tide_machine_state outside = m->state;
    origin at = {m->module, m->statement, m->op};
    m->state.grad_enabled = true;
    m->state.saved_tensors_hooks = hooks;
    if (frame->autocast_enabled) tide_autocast_begin(m, frame->autocast_dtype);
    tide_value made = m->call_again(m, frame->function, inputs, frame->input_count);
    if (hooks) { /* only what it saved is needed, not its result */
        tide_value_release(m, made);
        made = tide_none();
        m->is_stopped = false;
    }
    if (frame->autocast_enabled) tide_autocast_end(m);
    tide_machine_restore(m, &outside);
    m->module = at.module;
    m->statement = at.statement;
    m->op = at.op;
    return made;
}

static tide_value input_of(tide_machine *m, tide_checkpoint_frame *frame, uint32_t i) {
    tide_saved *saved = &frame->saved[i];
    if (!saved->packed_by && !saved->tensor) return tide_value_retain(frame->inputs[i]);
    tide_tensor *t = tide_slot_unpack(m, saved);
    if (t && saved->packed_by) t->requires_grad = saved->requires_grad; /* autograd/saved_variable.cpp, unpack */
    return tide_of_tensor(t);
}

static void recompute(tide_machine *m, tide_checkpoint_frame *frame) {
    tide_value *inputs = tide_pool_alloc(m, (frame->input_count + 1) * sizeof *inputs);
    frame->references++;
    for (uint32_t i = 0; i < frame->input_count; i++) inputs[i] = input_of(m, frame, i);
    run_again(m, frame, inputs, &frame->recomputation_hook);
    if (frame->recomputed_count < frame->holder_count && !tide_is_aborting(m))
        tide_fail(m, TIDE_ERR_DESCRIPTION, "a checkpointed module saved less the second time than the first");
    for (uint32_t i = 0; i < frame->input_count; i++) tide_value_release(m, inputs[i]);
    tide_pool_free(m, inputs, (frame->input_count + 1) * sizeof *inputs);
    frame->is_recomputed = true;
    frame_release(m, frame);
}

/* Each graph task recomputes for itself; what another task left lives as long as its holder. */
static void begin_task(tide_machine *m, tide_checkpoint_frame *frame) {
    for (uint32_t i = 0; i < frame->holder_count && frame->is_recomputed; i++) {
        tide_holder *holder = &frame->holders[i];
        if (!holder->tensor) continue;
        TIDE_ROOM(m->arena, holder->left, holder->left_count, holder->left_capacity);
        holder->left[holder->left_count++] = holder->tensor;
        holder->tensor = NULL;
    }
    frame->is_recomputed = false;
    frame->recomputed_count = 0;
    frame->task = m->graph_task;
}

static tide_tensor *checkpoint_unpack(tide_machine *m, tide_saved *slot) {
    tide_checkpoint_frame *frame = frame_of_checkpoint_hook(slot->packed_by);
    TIDE_INVARIANT(slot->packed < frame->holder_count && frame->holders[slot->packed].is_alive);
    if (frame->task != m->graph_task) begin_task(m, frame);
    if (!frame->is_recomputed) recompute(m, frame);
    tide_tensor *t = frame->holders[slot->packed].tensor;
    frame->holders[slot->packed].tensor = NULL;
    return t || !m->has_failed ? t : tide_empty(m, &(tide_shape){.dim = {{1, 0}, {1, 0}}, .dims = 2}, TIDE_FP32);
}

/* ---- reentrant ---- */

enum { CHECKPOINT_INPUT_LIMIT = 16, CHECKPOINT_OUTPUT_LIMIT = TIDE_CHECKPOINT_OUTPUTS };

static void detached_inputs(tide_machine *m, const tide_checkpoint_frame *frame, tide_value *detached) {
    for (uint32_t i = 0; i < frame->input_count; i++) {
        tide_value v = frame->inputs[i];
        if (v.kind == TIDE_VALUE_TENSOR) {
            bool requires_grad = v.tensor->requires_grad;
            v.tensor = tide_alias(m, v.tensor);
            v.tensor->is_view = false; /* detach() does not track a base */
            v.tensor->requires_grad = requires_grad;
            detached[i] = v;
        } else {
            detached[i] = tide_value_retain(v);
        }
    }
}

/* tensor_parallel/utils.py: gather_split_1d_tensor. */
static void gather_input(tide_machine *m, const tide_checkpoint_frame *frame) {
    if (!frame->gathered || frame->inputs[0].kind != TIDE_VALUE_TENSOR) return;
    tide_tensor *input = frame->inputs[0].tensor;
    tide_tensor *whole = tide_empty(m, &frame->gathered->shape, (tide_dtype)input->dtype);
    tide_set_data(m, input, whole);
    input->layout = whole->layout;
    input->shape = whole->shape;
    input->stride = whole->stride;
    tide_release(m, whole);
}

/* tensor_parallel/utils.py: split_tensor_into_1d_equal_chunks, into a new buffer that replaces the input. */
static void split_input(tide_machine *m, tide_checkpoint_frame *frame, int64_t parts) {
    if (!parts || !frame->input_count || frame->inputs[0].kind != TIDE_VALUE_TENSOR) return;
    tide_tensor *input = frame->inputs[0].tensor, *part = tide_flat(m, tide_count(input) / parts, input->dtype);
    frame->gathered = input->layout;
    tide_set_data(m, input, part);
    input->layout = part->layout;
    input->shape = part->shape;
    input->stride = part->stride;
    tide_release(m, part);
}

static void reentrant_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    tide_checkpoint_frame *frame = (tide_checkpoint_frame *)node->held;
    tide_value *detached = tide_pool_alloc(m, (frame->input_count + 1) * sizeof *detached);
    tide_tensor *zeros[CHECKPOINT_OUTPUT_LIMIT] = {
        NULL}; /* torch/csrc/autograd/python_function.cpp: PyNode::apply materializes undefined gradients */
    for (unsigned i = 0; i < node->output_count; i++)
        if (!grads[i]) zeros[i] = tide_empty(m, node->outputs[i].shape, node->outputs[i].dtype);
    gather_input(m, frame);
    detached_inputs(m, frame, detached);
    tide_value output = run_again(m, frame, detached, NULL);
    const tide_value *items = output.kind == TIDE_VALUE_LIST ? output.list->items : &output;
    uint32_t item_count = output.kind == TIDE_VALUE_LIST ? output.list->count : 1;
    tide_tensor *roots[CHECKPOINT_OUTPUT_LIMIT], *root_grads[CHECKPOINT_OUTPUT_LIMIT];
    int root_count = 0;
    for (uint32_t i = 0, made = 0; i < item_count && made < node->output_count; i++) {
        if (items[i].kind != TIDE_VALUE_TENSOR) continue;
        tide_tensor *grad = grads[made] ? grads[made] : zeros[made];
        made++;
        if (!items[i].tensor->requires_grad) continue;
        roots[root_count] = items[i].tensor;
        root_grads[root_count++] = grad;
    }
    if (root_count) tide_run_backward_from(m, roots, root_grads, root_count);
    unsigned edge = 0;
    for (uint32_t i = 0; i < frame->input_count; i++)
        if (detached[i].kind == TIDE_VALUE_TENSOR) results[edge++] = tide_retain(detached[i].tensor->grad);
    for (uint32_t i = output.kind == TIDE_VALUE_LIST ? output.list->count : 0; i-- > 0;) { /* as below */
        tide_value_release(m, output.list->items[i]);
        output.list->items[i] = tide_none();
    }
    tide_value_release(m, output);
    for (uint32_t i = 0; i < frame->input_count; i++) tide_value_release(m, detached[i]);
    /* the arguments of backward(): a tuple releases its last item first */
    for (unsigned i = node->output_count; i-- > 0;) {
        tide_release(m, zeros[i]);
        tide_release_at(m, &grads[i]);
    }
    tide_pool_free(m, detached, (frame->input_count + 1) * sizeof *detached);
}

static void release_frame(tide_machine *m, tide_held *held) {
    frame_release(m, (tide_checkpoint_frame *)held);
}

static const tide_backward reentrant = {"CheckpointFunction", reentrant_run};

/* torch/csrc/autograd/custom_function.cpp: integers are not differentiable, but get zeros as their gradient. */
static void set_output(tide_machine *m, tide_node *node, tide_tensor *t) {
    if (tide_dtype_is_float(t->dtype) || !node->output_count)
        tide_set_grad_fn(m, node, t);
    else if (node->output_count < node->output_capacity)
        node->outputs[node->output_count++] = (tide_meta){t->shape, t->dtype, t->is_dtensor};
}

static tide_value call_reentrant(tide_machine *m, tide_checkpoint_frame *frame) {
    tide_tensor *tensors[CHECKPOINT_INPUT_LIMIT];
    int count = 0;
    for (uint32_t i = 0; i < frame->input_count && count < CHECKPOINT_INPUT_LIMIT; i++)
        if (frame->inputs[i].kind == TIDE_VALUE_TENSOR) tensors[count++] = frame->inputs[i].tensor;
    tide_node *node = tide_node_with(m, &reentrant, tensors, count, CHECKPOINT_OUTPUT_LIMIT, 0);
    tide_machine_state outside = m->state;
    m->state.grad_enabled = false;
    tide_value output = m->call_again(m, frame->function, frame->inputs, frame->input_count);
    tide_machine_restore(m, &outside);
    if (!node) return output;
    frame->references++;
    frame->held = (tide_held){drop_saved_inputs, release_frame};
    node->held = &frame->held;
    tide_value *items = output.kind == TIDE_VALUE_LIST ? output.list->items : &output;
    uint32_t item_count = output.kind == TIDE_VALUE_LIST ? output.list->count : 1;
    bool is_used = false;
    for (uint32_t i = 0; i < item_count && i < CHECKPOINT_OUTPUT_LIMIT; i++) {
        if (items[i].kind != TIDE_VALUE_TENSOR) continue;
        set_output(m, node, items[i].tensor);
        is_used = true;
    }
    if (!is_used) tide_node_release(m, node);
    return output;
}

tide_value tide_checkpoint_call(tide_machine *m, bool is_reentrant, void *function, tide_value *inputs,
                                uint32_t count) {
    bool saves = !is_reentrant && m->state.grad_enabled;
    tide_checkpoint_frame *frame = frame_new(m, function, inputs, count, saves && m->state.saved_tensors_hooks);
    tide_value output;
    if (is_reentrant) {
        output = call_reentrant(m, frame);
    } else {
        tide_machine_state outside = m->state;
        if (saves) m->state.saved_tensors_hooks = &frame->checkpoint_hook;
        output = m->call_again(m, function, inputs, count);
        tide_machine_restore(m, &outside);
    }
    frame_release(m, frame);
    return output;
}

tide_value tide_checkpoint_distributed(tide_machine *m, int64_t parts, void *function, tide_value *inputs,
                                       uint32_t count) {
    tide_checkpoint_frame *frame = frame_new(m, function, inputs, count, false);
    tide_value output = call_reentrant(m, frame);
    if (m->state.grad_enabled && !tide_is_aborting(m)) split_input(m, frame, parts);
    frame_release(m, frame);
    return output;
}

/* ---- without output ---- */

/* The output's storage is released once its consumer has run in forward. A hook on the consumer's result then runs the
 * function again with gradients and copies its result back. Both stay until the node's own backward, which
 * differentiates the second run. megatron/core/tensor_parallel/random.py: CheckpointWithoutOutputFunction,
 * CheckpointWithoutOutput. */

static const tide_value *outputs_of(const tide_value *made, uint32_t *count) {
    *count = made->kind == TIDE_VALUE_LIST ? made->list->count : 1;
    return made->kind == TIDE_VALUE_LIST ? made->list->items : made;
}

static void without_output_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    tide_checkpoint_frame *frame = (tide_checkpoint_frame *)node->held;
    if (!frame->remade) {
        tide_fail(m, TIDE_ERR_DESCRIPTION, "what a checkpoint without output made is not made again before it is used");
        return;
    }
    tide_tensor *roots[CHECKPOINT_OUTPUT_LIMIT], *root_grads[CHECKPOINT_OUTPUT_LIMIT];
    uint32_t count;
    int root_count = 0;
    const tide_value *items = outputs_of(&frame->outputs, &count);
    for (uint32_t i = 0; i < count && i < node->output_count; i++) {
        if (items[i].kind != TIDE_VALUE_TENSOR || !items[i].tensor->requires_grad || !grads[i]) continue;
        roots[root_count] = items[i].tensor;
        root_grads[root_count++] = grads[i];
    }
    if (root_count) tide_run_backward_from(m, roots, root_grads, root_count);
    unsigned edge = 0;
    for (uint32_t i = 0; i < frame->input_count; i++)
        if (frame->remade[i].kind == TIDE_VALUE_TENSOR) results[edge++] = tide_retain(frame->remade[i].tensor->grad);
    forget_remade(m, frame);
}
static const tide_backward without_output = {"CheckpointWithoutOutputFunction", without_output_run};

tide_value tide_checkpoint_without_output(tide_machine *m, void *function, tide_value *inputs, uint32_t count) {
    tide_tensor *tensors[CHECKPOINT_INPUT_LIMIT] = {NULL};
    tide_value detached[CHECKPOINT_INPUT_LIMIT] = {{.kind = TIDE_VALUE_NONE}};
    int tensor_count = 0;
    if (count > CHECKPOINT_INPUT_LIMIT) {
        tide_fail(m, TIDE_ERR_LIMIT, "a checkpoint of more than %d arguments", CHECKPOINT_INPUT_LIMIT);
        m->function_free(m, function);
        return tide_none();
    }
    for (uint32_t i = 0; i < count; i++)
        if (inputs[i].kind == TIDE_VALUE_TENSOR) tensors[tensor_count++] = inputs[i].tensor;
    tide_node *node = tide_node_with(m, &without_output, tensors, tensor_count, CHECKPOINT_OUTPUT_LIMIT, 0);
    bool grad_enabled = m->state.grad_enabled;
    m->state.grad_enabled = false;
    tide_value output = m->call_again(m, function, inputs, count);
    m->state.grad_enabled = grad_enabled;
    for (uint32_t i = 0; i < count; i++) {
        detached[i] = inputs[i];
        if (inputs[i].kind != TIDE_VALUE_TENSOR) continue;
        detached[i].tensor = tide_alias(m, inputs[i].tensor);
        detached[i].tensor->is_view = false;
        detached[i].tensor->requires_grad = inputs[i].tensor->requires_grad;
    }
    tide_checkpoint_frame *frame = frame_new(m, function, detached, count, false);
    for (uint32_t i = 0; i < count; i++)
        if (inputs[i].kind == TIDE_VALUE_TENSOR) tide_release(m, detached[i].tensor);
    uint32_t output_count;
    const tide_value *items = outputs_of(&output, &output_count);
    bool is_used = node && items[0].kind == TIDE_VALUE_TENSOR && !tide_is_aborting(m);
    if (is_used) {
        frame->references++;
        frame->held = (tide_held){drop_saved_inputs, release_frame};
        node->held = &frame->held;
    }
    for (uint32_t i = 0; is_used && i < output_count && i < CHECKPOINT_OUTPUT_LIMIT; i++) {
        if (items[i].kind != TIDE_VALUE_TENSOR) continue;
        tide_set_grad_fn(m, node, items[i].tensor);
        frame->output[i] = tide_retain(items[i].tensor);
    }
    if (node && !is_used) tide_node_release(m, node);
    frame_release(m, frame);
    return output;
}

static tide_checkpoint_frame *frame_of_recompute(tide_tensor_hook *hook) {
    return (tide_checkpoint_frame *)(void *)((char *)hook - offsetof(tide_checkpoint_frame, recompute));
}

static void release_hooked(tide_machine *m, tide_tensor_hook *hook) {
    frame_release(m, frame_of_recompute(hook));
}

static void remake(tide_machine *m, tide_tensor_hook *hook) {
    tide_checkpoint_frame *frame = frame_of_recompute(hook);
    if (!frame->output[0]) return;
    frame->remade = tide_pool_alloc(m, (frame->input_count + 1) * sizeof *frame->remade);
    detached_inputs(m, frame, frame->remade);
    frame->outputs = run_again(m, frame, frame->remade, NULL);
    tide_factor factor = m->state.factor;
    m->state.factor = TIDE_FACTOR_ACTIVATION;
    for (int i = 0; i < CHECKPOINT_OUTPUT_LIMIT && frame->output[i] && !tide_is_aborting(m); i++)
        tide_fill_storage(m, frame->output[i], tide_count(frame->output[i]));
    m->state.factor = factor;
    for (int i = 0; i < CHECKPOINT_OUTPUT_LIMIT; i++) tide_release_at(m, &frame->output[i]);
}

void tide_checkpoint_discard(tide_machine *m, tide_tensor *output, tide_tensor *hook) {
    bool is_ours = output->node && output->node->backward == &without_output;
    if (!is_ours || tide_is_aborting(m)) return;
    tide_checkpoint_frame *frame = (tide_checkpoint_frame *)output->node->held;
    for (int i = 0; i < CHECKPOINT_OUTPUT_LIMIT && frame->output[i]; i++) tide_drop_storage(m, frame->output[i]);
    if (!hook->node || !frame->output[0]) return;
    frame->references++;
    frame->recompute.run = remake;
    frame->recompute.drop = release_hooked;
    tide_register_hook(hook->node, &frame->recompute);
}
