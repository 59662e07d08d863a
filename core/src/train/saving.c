/* SPDX-License-Identifier: Apache-2.0 */
/* transformers/trainer.py, save_model() and _save_optimizer_and_scheduler(). Full tensors are copied to the host as
 * they are; sharded ones are gathered, one tensor or one module at a time. */
#include "train/saving.h"

#include "train/adapters.h"

bool tide_saves_behind(const tide_job *job, unsigned step) {
    int64_t every = job->trainer_save_steps;
    if (job->trainer_save_strategy == TIDE_trainer_save_strategy_no) return false;
    bool is_regular = job->trainer_save_strategy == TIDE_trainer_save_strategy_steps && every && every <= job->steps;
    return step == (unsigned)job->steps || (is_regular && step % every == 0);
}

/* Calls a function of library/trainers.json with a count. */
static void call_of_count(tide_trainer_run *t, const char *name, int64_t count) {
    tide_function *function = tide_trainer_function(t, name);
    const tide_value argument = tide_of_int(count);
    if (function) tide_value_release(&t->run->machine, tide_model_run(&t->run->model, function, &argument, 1));
    t->run->machine.module = t->run->machine.statement = 0;
}

/* bitsandbytes/functional.py, QuantState.as_dict(): nested states are copied into the state dict. */
static void copy_quant_maps(tide_trainer_run *t) {
    const tide_model *model = &t->run->model;
    int64_t count = 0;
    for (uint32_t i = 0; i < model->parameter_count; i++) count += tide_has_quant_state(model, i);
    if (count && t->job->quant_double) call_of_count(t, "nested_quant_maps", count);
}

/* transformers/core_model_loading.py, revert_weight_conversion(): weights that a checkpoint stores differently from the
 * model are copied, by saved() of their modules, and all copies exist before the first file is written. */
static void revert_weight_conversion(tide_trainer_run *t) {
    tide_model *model = &t->run->model;
    tide_machine *m = model->m;
    tide_function *saved = tide_trainer_function(t, "saved_by");
    tide_value made = {.kind = TIDE_VALUE_LIST, .list = tide_list_new(m)};
    for (uint32_t i = 1; saved && i < model->instance_count && !m->has_failed; i++) {
        const tide_value module = {.kind = TIDE_VALUE_MODULE, .module = i};
        if (tide_method_find(model->instances[i].of, TIDE_TEXT("saved")))
            tide_list_push(m, made.list, tide_model_run(model, saved, &module, 1));
    }
    tide_value_release(m, made);
    m->module = m->statement = 0;
}

/* module.named_parameters(recurse=False); returns their number. */
static uint32_t params_of_module(const tide_model *model, uint32_t instance, tide_tensor **params) {
    const tide_instance *of = &model->instances[instance];
    uint32_t count = 0;
    for (uint32_t k = 0; k < of->of->member_count; k++) {
        tide_value v = of->slots[of->of->parameter_count + k];
        if (v.kind == TIDE_VALUE_TENSOR && v.tensor->is_parameter) params[count++] = v.tensor;
    }
    return count;
}

static tide_tensor **room_for_params(const tide_model *model) {
    uint32_t most = 0;
    for (uint32_t i = 1; i < model->instance_count; i++)
        if (model->instances[i].of->member_count > most) most = model->instances[i].of->member_count;
    return TIDE_NEW(model->m->arena, tide_tensor *, most + 1);
}

/* ---- DeepSpeed: runtime/engine.py ---- */

/* _zero3_consolidated_16bit_state_dict: module by module, frozen ones included. */
static void consolidate_16bit(tide_trainer_run *t) {
    const tide_model *model = &t->run->model;
    tide_tensor **params = room_for_params(model);
    t->strategy->checkpoint_event(&t->wrapper, false);
    for (uint32_t i = 1; i < model->instance_count && !model->m->has_failed; i++) {
        uint32_t count = params_of_module(model, i, params);
        if (!count) continue;
        t->strategy->gather_params(&t->wrapper, params, count);
        t->strategy->leave_params(&t->wrapper, params, count);
    }
    t->strategy->checkpoint_event(&t->wrapper, true);
}

/* engine.save_checkpoint(): partitions as they are. */
static void save_engine(tide_trainer_run *t) {
    if (t->strategy->checkpoint_event)
        t->strategy->checkpoint_event(&t->wrapper, false);
    else
        tide_keep_barrier(t); /* for stage 3, zero.Init has one already */
    call_of_count(t, "checkpoint_tag_validation", 0);
    if (t->strategy->checkpoint_event) t->strategy->checkpoint_event(&t->wrapper, true);
}

/* Without the gathered weights, save_model() saves the engine instead. */
static void save_deepspeed(tide_trainer_run *t) {
    const tide_job *job = t->job;
    if (t->strategy->checkpoint_event &&
        (job->parallel_stage3_gather_16bit_weights_on_model_save || job->adapter != TIDE_adapter_none))
        consolidate_16bit(t);
    else if (t->strategy->checkpoint_event)
        save_engine(t);
    if (!job->trainer_save_only_model) save_engine(t);
}

/* ---- FSDP2: torch/distributed/checkpoint/state_dict.py, full and on the host ---- */

static void gather_one(tide_trainer_run *t, tide_tensor *weight) {
    tide_machine *m = &t->run->machine;
    m->op = "state_dict";
    tide_release(m, t->strategy->full_tensor(&t->wrapper, weight));
}

static bool is_before(const tide_model *model, uint32_t instance, const tide_tensor *weight, tide_tensor **room) {
    for (uint32_t i = 1; i < instance; i++) {
        uint32_t count = params_of_module(model, i, room);
        for (uint32_t k = 0; k < count; k++)
            if (room[k] == weight) return true;
    }
    return false;
}

/* get_model_state_dict(), tied weights under both names. With adapters it leaves out frozen parameters, except for the
 * second name of a tied one. */
static void gather_model(tide_trainer_run *t, bool leaves_frozen) {
    const tide_model *model = &t->run->model;
    tide_tensor **params = room_for_params(model), **room = room_for_params(model);
    for (uint32_t i = 1; i < model->instance_count && !model->m->has_failed; i++) {
        uint32_t count = params_of_module(model, i, params);
        for (uint32_t k = 0; k < count; k++)
            if (!leaves_frozen || params[k]->requires_grad || is_before(model, i, params[k], room))
                gather_one(t, params[k]);
    }
}

/* get_optimizer_state_dict(): states have the shape of their parameter. */
static void gather_optimizer(tide_trainer_run *t) {
    tide_optimizer *optimizer = t->wrapper.optimizer;
    uint32_t count = tide_optimizer_members(optimizer, NULL);
    tide_optimized *members = TIDE_NEW(t->run->machine.arena, tide_optimized, count + 1);
    tide_optimizer_members(optimizer, members);
    for (uint32_t i = 0; i < count; i++)
        for (int k = 0; k < tide_optimizer_states(optimizer); k++) gather_one(t, members[i].tensor);
}

static void save_fsdp2(tide_trainer_run *t) {
    gather_model(t, false);
    if (t->job->trainer_save_only_model) return;
    gather_model(t, t->job->adapter != TIDE_adapter_none);
    gather_optimizer(t);
}

/* accelerate/utils/fsdp_utils.py: save_fsdp_model() and save_fsdp_optimizer(), after save_model(). */
static void save_fsdp1(tide_trainer_run *t) {
    t->strategy->state_dict(&t->wrapper);
    if (t->job->trainer_save_only_model) return;
    t->strategy->state_dict(&t->wrapper);
    t->strategy->optim_state_dict(&t->wrapper);
}

/* The first rank writes them from its device; DeepSpeed and FSDP have already copied them to the host. */
static bool saves_whole_weights(const tide_trainer_run *t) {
    return t->job->adapter == TIDE_adapter_none && t->wrapper.rank == 0 && !tide_job_has_deepspeed(t->job) &&
           !t->strategy->full_tensor && !t->strategy->state_dict;
}

void tide_save_checkpoint(tide_trainer_run *t, unsigned step) {
    tide_machine *m = &t->run->machine;
    bool has_grad = m->state.grad_enabled;
    m->module = m->statement = 0;
    m->state.grad_enabled = false;
    bool has_ranks = t->job->parallel_kind != TIDE_parallel_kind_none;
    if (has_ranks) call_of_count(t, "store_flos", t->wrapper.ranks);
    if (!t->strategy->gather_params && !t->strategy->full_tensor) copy_quant_maps(t);
    if (saves_whole_weights(t)) revert_weight_conversion(t);
    if (tide_job_has_deepspeed(t->job)) save_deepspeed(t);
    if (t->strategy->state_dict_begins) t->strategy->state_dict_begins(&t->wrapper);
    if (t->strategy->full_tensor && t->job->parallel_state_dict_type == TIDE_parallel_state_dict_type_full)
        save_fsdp2(t);
    if (t->strategy->state_dict) save_fsdp1(t);
    m->state.grad_enabled = has_grad;
    m->module = m->statement = 0;
    tide_timeline_mark(&m->timeline, step, TIDE_PHASE_SAVE);
}
