/* SPDX-License-Identifier: Apache-2.0 */
/* torch/distributed/pipelining: _initialize_pp_stages() of stages that were not told the shapes of hidden states. Each
 * runs once forward, and backward to the gradient of its input, before the first micro-batch. */
#include "lang/lang.h"
#include "parallel/fsdp2.h"
#include "parallel/pipeline.h"

static void back_up_module(tide_model *model, uint32_t instance, tide_list *copies) {
    const tide_instance *of = &model->instances[instance];
    for (uint32_t i = 0; i < of->of->member_count; i++) {
        tide_value v = of->slots[of->of->parameter_count + i];
        if (v.kind != TIDE_VALUE_TENSOR || v.tensor->is_parameter) continue;
        tide_list_push(model->m, copies, tide_of_tensor(tide_empty_like(model->m, v.tensor, v.tensor->dtype)));
    }
}

/* _pre_metadata_inference_backup(): a list of copies of every stage's buffers. */
static tide_value back_up_buffers(const tide_pipeline *p) {
    tide_model *model = p->w->model;
    tide_value copies = {.kind = TIDE_VALUE_LIST, .list = tide_list_new(model->m)};
    model->m->op = "clone";
    for (uint32_t chunk = 0; chunk < p->chunks; chunk++)
        for (uint32_t i = 1; i < model->instance_count; i++)
            if (i == model->root || !p->stages[chunk].absent[i]) back_up_module(model, i, copies.list);
    return copies;
}

/* What the schedule sets before each pass is not set yet. */
static void set_for_inference(const tide_pipeline_stage *s, bool is_inferring) {
    fsdp2 *f = s->fsdp;
    if (!f) return;
    f->finalizes_by_hand = !is_inferring;
    f->keeps_after_backward = !is_inferring;
    f->reduce_grads = is_inferring;
}

/* _forward_metadata_inference(); the output stays in outputs[0]. */
static void infer_forward(tide_pipeline_stage *s) {
    set_for_inference(s, true);
    if (!s->is_first) s->recv_forward[0] = tide_stage_hidden(s->of, "to_tensor");
    tide_release(s->of->w->model->m, tide_stage_forward(s, 0));
}

/* _autograd_grad_for_inputs(); output_grad: NULL for a loss. */
static void differentiate_input(tide_pipeline_stage *s, tide_tensor *root, tide_tensor *output_grad) {
    tide_machine *m = s->of->w->model->m;
    if (s->is_first || !root || !root->node) return;
    m->op = "ones_like";
    tide_tensor *grad = output_grad ? tide_retain(output_grad) : tide_empty_like(m, root, (tide_dtype)root->dtype),
                *of_input = NULL;
    tide_node *wanted = tide_accumulator_of(m, s->inputs[0]);
    if (s->fsdp) m->wrapper = s->fsdp;
    tide_autograd_grad(m, &(tide_edge){root->node, root->output}, &grad, 1, &wanted, 1, &of_input, false);
    if (s->fsdp && !m->has_failed) tide_fsdp2_root_post_backward_final_callback(s->fsdp);
    tide_release(m, grad);
    tide_release(m, of_input);
    tide_node_release(m, wanted);
}

/* _backward_metadata_inference() */
static void infer_backward(tide_pipeline_stage *s) {
    tide_machine *m = s->of->w->model->m;
    if (s->is_last) tide_stage_compute_loss(s, 0, s->outputs[0]);
    tide_tensor *output_grad = s->is_last ? NULL : tide_stage_hidden(s->of, "ones"),
                *root = s->is_last ? s->of->losses[0] : s->outputs[0];
    differentiate_input(s, root, output_grad);
    tide_release(m, output_grad);
    if (s->is_last) tide_release_at(m, &s->of->losses[0]);
    tide_release_at(m, &s->outputs[0]);
    tide_release_at(m, &s->inputs[0]);
}

void tide_pipeline_infer_metadata(tide_pipeline *p) {
    tide_machine *m = p->w->model->m;
    tide_value copies = back_up_buffers(p);
    for (uint32_t i = 0; i < p->chunks && !tide_is_aborting(m); i++) infer_forward(&p->stages[i]);
    for (uint32_t i = p->chunks; i-- > 0 && !tide_is_aborting(m);) infer_backward(&p->stages[i]);
    tide_value_release(m, copies);
    for (uint32_t i = 0; i < p->chunks; i++) {
        fsdp2 *f = p->stages[i].fsdp;
        for (uint32_t k = 0; f && k < f->group_count; k++) tide_fsdp2_reshard(f, &f->groups[k]);
        set_for_inference(&p->stages[i], false);
    }
    m->module = m->statement = 0;
}
