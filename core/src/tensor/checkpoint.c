/* torch.utils.checkpoint, both kinds.
 *
 * Note [Non-reentrant]: while the function runs, everything it saves is replaced by a place in the frame. The first
 * place that backward asks for runs the function again, with gradients, until as many tensors have been saved as
 * there are places; what was saved then is handed out once each. The frame's own inputs are saved as any tensor is
 * (_NoopSaveInputs): inside of another frame they are places in that one, and come with its recomputation.
 * torch/utils/checkpoint.py: _checkpoint_hook.
 *
 * Note [Reentrant]: the function runs without gradients; backward runs it again with them on detached inputs and
 * differentiates that graph by a backward pass of its own. torch/utils/checkpoint.py: CheckpointFunction. */
#include "tensor/checkpoint.h"

#include <string.h>

static tide_checkpoint *frame_new(tide_machine *m, void *function, const tide_value *inputs, uint32_t count,
                                  bool is_nested) {
    tide_checkpoint *frame = tide_pool_alloc(m, sizeof *frame);
    frame->references = 1;
    frame->function = function;
    frame->input_count = count;
    frame->inputs = tide_pool_alloc(m, (count + 1) * sizeof *inputs);
    frame->saved = tide_pool_alloc(m, (count + 1) * sizeof *frame->saved);
    for (uint32_t i = 0; i < count; i++) {
        bool is_saved = is_nested && inputs[i].kind == TIDE_VALUE_TENSOR;
        frame->inputs[i] = is_saved ? tide_none() : tide_value_retain(inputs[i]);
        if (is_saved && !m->is_stopped) tide_checkpoint_pack(m, &frame->saved[i], inputs[i].tensor);
    }
    frame->autocast_enabled = m->autocast_enabled;
    frame->autocast_dtype = m->autocast_dtype;
    return frame;
}

/* Of a reentrant frame whose backward has run: the saved inputs go, the function and what it holds stay. */
static void drop_inputs(tide_machine *m, tide_held *held) {
    tide_checkpoint *frame = (tide_checkpoint *)held;
    for (uint32_t i = 0; i < frame->input_count; i++) {
        tide_value_release(m, frame->inputs[i]);
        frame->inputs[i] = tide_none();
        tide_saved_clear(m, &frame->saved[i]);
    }
}

void tide_checkpoint_release(tide_machine *m, tide_checkpoint *frame) {
    if (--frame->references) return;
    drop_inputs(m, &frame->held);
    tide_pool_free(m, frame->inputs, (frame->input_count + 1) * sizeof *frame->inputs);
    tide_pool_free(m, frame->saved, (frame->input_count + 1) * sizeof *frame->saved);
    for (uint32_t i = 0; i < frame->holder_count; i++) tide_release(m, frame->holders[i].tensor);
    if (frame->holders) tide_arena_drop(m->arena, frame->holders);
    m->function_free(m, frame->function);
    tide_pool_free(m, frame, sizeof *frame);
}

void tide_checkpoint_pack(tide_machine *m, tide_saved *slot, tide_tensor *t) {
    tide_checkpoint *frame = m->recomputing;
    if (!frame) {
        frame = m->saving_for;
        TIDE_ROOM(m->arena, frame->holders, frame->holder_count, frame->holder_capacity);
        frame->holders[frame->holder_count] = (struct holder){.is_alive = true};
        slot->frame = frame;
        slot->holder = frame->holder_count++;
        frame->references++;
        return;
    }
    if (tide_is_aborting(m)) return;
    uint32_t place = frame->counter++;
    if (place >= frame->holder_count) {
        tide_fail(m, TIDE_ERR_DESCRIPTION, "a checkpointed module saved more the second time than the first");
        return;
    }
    slot->tensor = tide_alias(m, t);
    if (frame->holders[place].is_alive) frame->holders[place].tensor = tide_alias(m, t);
    if (frame->counter == frame->holder_count) m->is_stopped = true; /* early stop */
}

void tide_checkpoint_forget(tide_machine *m, tide_saved *slot) {
    tide_checkpoint *frame = slot->frame;
    frame->holders[slot->holder].is_alive = false;
    tide_release_at(m, &frame->holders[slot->holder].tensor);
    slot->frame = NULL;
    tide_checkpoint_release(m, frame);
}

/* What a repeated run must find as it was, and leave so. */
typedef struct surroundings {
    tide_checkpoint *saving_for, *recomputing;
    bool grad_enabled, autocast_enabled;
    tide_dtype autocast_dtype;
    uint32_t module, statement;
    const char *op;
} surroundings;

static surroundings enter(tide_machine *m, const tide_checkpoint *frame) {
    surroundings outside = {m->saving_for,     m->recomputing, m->grad_enabled, m->autocast_enabled,
                            m->autocast_dtype, m->module,      m->statement,    m->op};
    m->grad_enabled = true;
    m->saving_for = m->recomputing = NULL;
    if (frame->autocast_enabled) tide_autocast_begin(m, frame->autocast_dtype);
    return outside;
}

static void leave(tide_machine *m, const tide_checkpoint *frame, surroundings outside) {
    if (frame->autocast_enabled) tide_autocast_end(m);
    m->saving_for = outside.saving_for;
    m->recomputing = outside.recomputing;
    m->grad_enabled = outside.grad_enabled;
    m->autocast_enabled = outside.autocast_enabled;
    m->autocast_dtype = outside.autocast_dtype;
    m->module = outside.module;
    m->statement = outside.statement;
    m->op = outside.op;
}

static tide_value input_of(tide_machine *m, tide_checkpoint *frame, uint32_t i) {
    tide_saved *saved = &frame->saved[i];
    if (!saved->frame && !saved->tensor) return tide_value_retain(frame->inputs[i]);
    tide_tensor *t = saved->frame ? tide_checkpoint_unpack(m, saved) : tide_retain(saved->tensor);
    return t ? tide_of_tensor(t) : tide_none();
}

static void recompute(tide_machine *m, tide_checkpoint *frame) {
    tide_value *inputs = tide_pool_alloc(m, (frame->input_count + 1) * sizeof *inputs);
    frame->references++;
    for (uint32_t i = 0; i < frame->input_count; i++) inputs[i] = input_of(m, frame, i);
    surroundings outside = enter(m, frame);
    m->recomputing = frame;
    tide_value result = m->call_again(m, frame->function, inputs, frame->input_count);
    tide_value_release(m, result);
    m->is_stopped = false;
    leave(m, frame, outside);
    for (uint32_t i = 0; i < frame->input_count; i++) tide_value_release(m, inputs[i]);
    tide_pool_free(m, inputs, (frame->input_count + 1) * sizeof *inputs);
    frame->is_recomputed = true;
    tide_checkpoint_release(m, frame);
}

tide_tensor *tide_checkpoint_unpack(tide_machine *m, tide_saved *slot) {
    tide_checkpoint *frame = slot->frame;
    if (!frame->is_recomputed) recompute(m, frame);
    tide_tensor *t = frame->holders[slot->holder].tensor;
    frame->holders[slot->holder].tensor = NULL;
    return t;
}

/* ---- reentrant ---- */

enum { INPUT_LIMIT = 16, OUTPUT_LIMIT = 3 };

static void detached_inputs(tide_machine *m, const tide_checkpoint *frame, tide_value *detached) {
    for (uint32_t i = 0; i < frame->input_count; i++) {
        tide_value v = frame->inputs[i];
        if (v.kind == TIDE_VALUE_TENSOR) {
            bool requires_grad = v.tensor->requires_grad;
            v.tensor = tide_alias(m, v.tensor);
            v.tensor->is_view = false; /* detach() tracks no base */
            v.tensor->requires_grad = requires_grad;
            detached[i] = v;
        } else {
            detached[i] = tide_value_retain(v);
        }
    }
}

static void reentrant_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    tide_checkpoint *frame = (tide_checkpoint *)node->held;
    tide_value *detached = tide_pool_alloc(m, (frame->input_count + 1) * sizeof *detached);
    tide_tensor *zeros[OUTPUT_LIMIT] = {
        NULL}; /* torch/csrc/autograd/python_function.cpp: PyNode::apply materializes what is undefined */
    for (unsigned i = 0; i < node->output_count; i++)
        if (!grads[i]) zeros[i] = tide_empty(m, node->outputs[i].shape, node->outputs[i].dtype);
    detached_inputs(m, frame, detached);
    surroundings outside = enter(m, frame);
    tide_value output = m->call_again(m, frame->function, detached, frame->input_count);
    leave(m, frame, outside);
    const tide_value *items = output.kind == TIDE_VALUE_LIST ? output.list->items : &output;
    uint32_t item_count = output.kind == TIDE_VALUE_LIST ? output.list->count : 1;
    tide_tensor *roots[OUTPUT_LIMIT], *root_grads[OUTPUT_LIMIT];
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
    for (unsigned i = node->output_count;
         i-- > 0;) { /* the arguments of backward(): a tuple lets go of its last item first */
        tide_release(m, zeros[i]);
        tide_release_at(m, &grads[i]);
    }
    tide_pool_free(m, detached, (frame->input_count + 1) * sizeof *detached);
}

static void release_frame(tide_machine *m, tide_held *held) {
    tide_checkpoint_release(m, (tide_checkpoint *)held);
}

static const tide_backward reentrant = {"CheckpointFunction", reentrant_run};

static tide_value call_reentrant(tide_machine *m, tide_checkpoint *frame) {
    tide_tensor *tensors[INPUT_LIMIT];
    int count = 0;
    for (uint32_t i = 0; i < frame->input_count && count < INPUT_LIMIT; i++)
        if (frame->inputs[i].kind == TIDE_VALUE_TENSOR) tensors[count++] = frame->inputs[i].tensor;
    tide_node *node = tide_node_with(m, &reentrant, tensors, count, OUTPUT_LIMIT, 0);
    bool grad_enabled = m->grad_enabled;
    m->grad_enabled = false;
    tide_value output = m->call_again(m, frame->function, frame->inputs, frame->input_count);
    m->grad_enabled = grad_enabled;
    if (!node) return output;
    frame->references++;
    frame->held = (tide_held){drop_inputs, release_frame};
    node->held = &frame->held;
    tide_value *items = output.kind == TIDE_VALUE_LIST ? output.list->items : &output;
    uint32_t item_count = output.kind == TIDE_VALUE_LIST ? output.list->count : 1;
    bool is_used = false;
    for (uint32_t i = 0; i < item_count && i < OUTPUT_LIMIT; i++) {
        if (items[i].kind != TIDE_VALUE_TENSOR) continue;
        tide_set_grad_fn(m, node, items[i].tensor);
        is_used = true;
    }
    if (!is_used) tide_node_release(m, node);
    return output;
}

tide_value tide_checkpoint_call(tide_machine *m, bool is_reentrant, void *function, tide_value *inputs,
                                uint32_t count) {
    bool saves = !is_reentrant && m->grad_enabled;
    tide_checkpoint *frame = frame_new(m, function, inputs, count, saves && (m->saving_for || m->recomputing));
    tide_value output;
    if (is_reentrant) {
        output = call_reentrant(m, frame);
    } else {
        tide_checkpoint *outer = m->saving_for, *recomputing = m->recomputing;
        if (saves) m->saving_for = frame, m->recomputing = NULL;
        output = m->call_again(m, function, inputs, count);
        m->saving_for = outer;
        m->recomputing = recomputing;
    }
    tide_checkpoint_release(m, frame);
    return output;
}
