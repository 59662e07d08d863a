/* SPDX-License-Identifier: Apache-2.0 */
#include "train/teacher.h"

#include "base/units.h"
#include "train/adapters.h"
#include "train/reference.h"

#define PLACE "/settings/trainer.teacher"

/* ---- which model it is ---- */

static const tide_json *teacher_text_config(const tide_json *config) {
    const tide_json *text = tide_json_at(config, "text_config");
    return text ? text : config;
}

/* NULL after an error. */
static const tide_json *config_of_teacher(const tide_job *job, tide_arena *arena, tide_diagnostics *diags) {
    const char *name = job->trainer_teacher;
    if (!name || !name[0]) return job->config;
    const tide_json *config = tide_catalogue_config(arena, name, diags);
    if (!config)
        tide_error(diags, TIDE_ERR_MODEL_UNKNOWN, PLACE,
                   tide_format(arena, "\"%s\" is not in the catalogue", tide_shown(arena, tide_text_of(name))),
                   "give the name of a model that `tidemark describe models` lists");
    return config;
}

/* GKDTrainer.__init__ */
static bool check_teacher(const tide_job *job, const tide_json *config, tide_arena *arena, tide_diagnostics *diags) {
    const tide_json *student = tide_json_at(teacher_text_config(job->config), "vocab_size"),
                    *teacher = tide_json_at(teacher_text_config(config), "vocab_size");
    if (tide_json_at(config, "quantization_config"))
        return tide_error(diags, TIDE_ERR_UNSUPPORTED, PLACE, "a quantised teacher is not described",
                          "give a model with weights of 16 or 32 bits");
    if (student && teacher && student->integer != teacher->integer)
        return tide_error(diags, TIDE_ERR_CONFLICT, PLACE,
                          tide_format(arena,
                                      "The student model has vocab_size %lld but the teacher model has vocab_size "
                                      "%lld. GKD compares the teacher's full next-token distribution, which requires "
                                      "a shared vocabulary",
                                      (long long)student->integer, (long long)teacher->integer),
                          "give a teacher with the same vocab_size");
    return true;
}

/* ---- loading ---- */

/* What of a model belongs to the root that is loaded. */
typedef struct listed {
    uint32_t root, parameter_count, parameter_capacity, buffer_count, buffer_capacity, extra_count;
    tide_parameter_row *parameters;
    tide_tensor **buffers;
} listed;

static listed exchange_listed(tide_model *model, listed of) {
    const listed was = {.root = model->root,
                        .parameter_count = model->parameter_count,
                        .parameter_capacity = model->parameter_capacity,
                        .buffer_count = model->buffer_count,
                        .buffer_capacity = model->buffer_capacity,
                        .extra_count = model->extra_count,
                        .parameters = model->parameters,
                        .buffers = model->buffers};
    model->root = of.root;
    model->parameter_count = of.parameter_count;
    model->parameter_capacity = of.parameter_capacity;
    model->buffer_count = of.buffer_count;
    model->buffer_capacity = of.buffer_capacity;
    model->extra_count = of.extra_count;
    model->parameters = of.parameters;
    model->buffers = of.buffers;
    return was;
}

/* Its modules are one part of the model in every report. */
static void name_teacher_modules(tide_model *model, uint32_t first) {
    tide_arena *arena = model->m->arena;
    uint32_t part = model->part_count;
    TIDE_ROOM(arena, model->parts, model->part_count, model->part_capacity);
    model->parts[model->part_count++] = "Teacher";
    for (uint32_t i = first; i < model->instance_count; i++) {
        tide_instance *of = &model->instances[i];
        of->part = part;
        of->layer = 0;
        of->path = tide_format(arena, "teacher%s%s", *of->path ? "." : "", of->path);
    }
}

void tide_teacher_exchange(tide_teacher *teacher, tide_model *model) {
    static const char *const names[TIDE_TEACHER_SETTING_COUNT] = {TIDE_TEACHER_SETTINGS};
    for (size_t i = 0; i < TIDE_COUNT_OF(names); i++) {
        tide_value *setting = tide_model_setting(model, names[i]), of_other = teacher->settings[i];
        teacher->settings[i] = *setting;
        *setting = of_other;
    }
    uint32_t root = model->root;
    model->root = teacher->root;
    teacher->root = root;
    teacher->hooks = tide_exchange_hooks(model, teacher->hooks);
    model->setting_changes++;
}

/* In the order of TIDE_TEACHER_SETTINGS. */
static void set_up_teacher(tide_teacher *teacher, const tide_job *job, const tide_json *config, tide_dtype dtype) {
    const tide_json *cache = tide_json_at(teacher_text_config(config), "use_cache");
    tide_dtype compute = tide_dtype_or(job->quant_compute_dtype, dtype);
    const tide_value of_dtype = {.kind = TIDE_VALUE_DTYPE, .dtype = dtype},
                     settings[] = {of_dtype,
                                   of_dtype,
                                   {.kind = TIDE_VALUE_DTYPE, .dtype = compute},
                                   {.kind = TIDE_VALUE_TEXT, .text = tide_text_of(job->values[TIDE_SET_quant])},
                                   tide_of_bool(false),
                                   tide_of_bool(!cache || cache->is_true)};
    for (size_t i = 0; i < TIDE_COUNT_OF(settings); i++) teacher->settings[i] = settings[i];
}

/* The job of loading it: from_pretrained() with the dtype and quantization_config of teacher_model_init_kwargs. */
static bool job_of_teacher(tide_job *of, const tide_job *job, tide_arena *arena, tide_diagnostics *diags) {
    static const tide_quant_choice quants[] = {[TIDE_trainer_teacher_quant_none] = TIDE_quant_none,
                                               [TIDE_trainer_teacher_quant_nf4] = TIDE_quant_nf4,
                                               [TIDE_trainer_teacher_quant_fp4] = TIDE_quant_fp4,
                                               [TIDE_trainer_teacher_quant_int8] = TIDE_quant_int8};
    *of = *job;
    of->config = config_of_teacher(job, arena, diags);
    of->quant = quants[job->trainer_teacher_quant];
    of->values[TIDE_SET_quant] = job->values[TIDE_SET_trainer_teacher_quant];
    of->adapter = TIDE_adapter_none;
    return of->config && check_teacher(job, of->config, arena, diags);
}

/* accelerator.prepare_model(), or prepare_deepspeed(): an engine without an optimizer, which casts on the host. */
static void place_teacher(tide_teacher *teacher, tide_run *run, const tide_job *of) {
    const tide_strategy *strategy = run->strategy;
    bool has_engine = tide_job_has_deepspeed(of) && strategy && strategy->prepare_reference;
    if (!has_engine || of->quant != TIDE_quant_none || run->model.parameter_made) tide_model_to_device(&run->model);
    if (!has_engine) return;
    if (strategy->loaded) strategy->loaded(&run->model, of);
    teacher->wrapper = (tide_wrapper){.model = &run->model,
                                      .job = of,
                                      .ranks = tide_job_reduction_ranks(of),
                                      .rank = of->parallel_rank,
                                      .has_trainer = true};
    strategy->prepare_reference(&teacher->wrapper);
}

bool tide_teacher_load(tide_teacher *teacher, tide_run *run, const tide_job *job) {
    tide_model *model = &run->model;
    tide_machine *m = &run->machine;
    tide_job *of = TIDE_NEW(m->arena, tide_job, 1);
    if (!job_of_teacher(of, job, m->arena, m->diags)) return false;
    const tide_dtype dtype = model->state.dtype, own = tide_dtype_or(job->trainer_teacher_dtype, dtype);
    const bool is_base_model = run->is_base_model, is_on_host = m->makes_on_host, is_on_meta = model->state.is_on_meta;
    void (*const made)(tide_model *, tide_tensor *) = model->parameter_made;
    const listed student = exchange_listed(model, (listed){.root = 0});
    uint32_t first_instance = model->instance_count, first = m->timeline.allocation_count;
    set_up_teacher(teacher, of, of->config, own);
    tide_teacher_exchange(teacher, model);
    model->state.dtype = own;
    m->makes_on_host = model->state.is_on_meta = false;
    model->parameter_made = NULL;
    bool is_made = tide_make_model(run, of) && (of->quant == TIDE_quant_none || tide_quantise(model, of));
    if (is_made && run->strategy && run->strategy->load) run->strategy->load(model, of);
    if (is_made) place_teacher(teacher, run, of);
    model->parameter_made = made;
    name_teacher_modules(model, first_instance);
    tide_name_kept_allocations(m, first, "teacher model");
    m->makes_on_host = is_on_host;
    model->state.is_on_meta = is_on_meta;
    model->state.dtype = dtype;
    run->is_base_model = is_base_model;
    tide_teacher_exchange(teacher, model);
    exchange_listed(model, student);
    m->module = m->statement = 0;
    m->state.factor = TIDE_FACTOR_TEMPORARY;
    return is_made && !m->has_failed;
}

/* ---- a pass ---- */

tide_value tide_teacher_call(tide_teacher *teacher, tide_run *run, tide_value batch) {
    tide_model *model = &run->model;
    const bool checkpoints = model->state.is_checkpointing, has_grad = model->m->state.grad_enabled;
    const tide_value arguments[] = {{.kind = TIDE_VALUE_MODULE, .module = teacher->root}, batch};
    tide_teacher_exchange(teacher, model);
    model->state.is_checkpointing = model->m->state.grad_enabled = false;
    tide_value made = tide_model_run(model, teacher->logits, arguments, TIDE_COUNT_OF(arguments));
    model->m->state.grad_enabled = has_grad;
    model->state.is_checkpointing = checkpoints;
    tide_teacher_exchange(teacher, model);
    return made;
}
