/* SPDX-License-Identifier: Apache-2.0 */
/* Sets the fields of the job from values of settings. */
#include "job/builder.h"

#include <inttypes.h>
#include <string.h>

#include "base/checked.h"
#include "base/units.h"
#include "job/lengths.h"

void tide_read_allocator(tide_job_builder *b) {
    tide_job *job = b->job;
    tide_alloc_conf_error error;
    if (!tide_alloc_conf_parse(&job->allocator_conf, TIDE_ALLOC_TORCH_MAIN, job->allocator, strlen(job->allocator),
                               &error)) {
        tide_error(b->diags, TIDE_ERR_FIELD_RANGE, "/settings/allocator",
                   tide_format(b->arena, "PyTorch refuses it at character %u: %s", (unsigned)error.offset + 1,
                               tide_text_copy(b->arena, tide_text_of(error.message))),
                   "write key:value pairs, such as expandable_segments:True,max_split_size_mb:128");
        return;
    }
    static const struct {
        unsigned bit;
        const char *message;
    } warnings[] = {
        {TIDE_ALLOC_CONF_ASYNC_IGNORES, "cudaMallocAsync ignores the native allocator's options"},
        {TIDE_ALLOC_CONF_NOT_MODELLED, "contains an option without effect on the answer"},
        {TIDE_ALLOC_CONF_TRAILING_TEXT, "PyTorch reads the digits of a number and ignores what follows"},
    };
    for (size_t i = 0; i < TIDE_COUNT_OF(warnings); i++)
        if (job->allocator_conf.warnings & warnings[i].bit)
            tide_report(b->diags, TIDE_WARNING, TIDE_ERR_FIELD_RANGE, "/settings/allocator", warnings[i].message, NULL);
    if (job->allocator_conf.is_approximate)
        tide_report(b->diags, TIDE_WARNING, TIDE_ERR_UNSUPPORTED, "/settings/allocator",
                    "cudaMallocAsync grows by the driver's rules: reserved memory is an estimate", NULL);
}

/* dtype=auto; torch.get_default_dtype() if neither the configuration nor a checkpoint has one. */
static void choose_dtype(tide_job_builder *b) {
    bool serves = b->arguments.serves; /* the engine chooses */
    if (serves && !b->arguments.is_given[TIDE_SET_dtype]) b->arguments.values[TIDE_SET_dtype] = "auto";
    if (!tide_argument_is(&b->arguments, TIDE_SET_dtype, "auto")) return;
    tide_text stated = tide_model_dtype(b->inputs.config, &b->inputs.checkpoint);
    bool is_thought = b->inputs.assumes_dtype && stated.length;
    if (serves) {
        if (is_thought)
            tide_report(b->diags, TIDE_ASSUMPTION, TIDE_OK, tide_builder_place(b, TIDE_SET_dtype),
                        tide_format(b->arena, "the model is taken to be published in %s: its config.json was not seen",
                                    tide_text_copy(b->arena, stated)),
                        NULL);
        return;
    }
    const char *chosen = tide_text_is(stated, "bfloat16") ? "bf16" : tide_text_is(stated, "float16") ? "fp16" : "fp32";
    b->arguments.values[TIDE_SET_dtype] = chosen;
    tide_report(b->diags, TIDE_ASSUMPTION, TIDE_OK, tide_builder_place(b, TIDE_SET_dtype),
                tide_format(b->arena,
                            is_thought      ? "%s weights, as the model is believed to be published: its config.json "
                                              "was not seen"
                            : stated.length ? "%s weights, as the model is published"
                                            : "%s weights: the configuration has no dtype, and no checkpoint is given",
                            chosen),
                NULL);
}

/* "336x448", or "16x336x448" with the number of frames first. */
static tide_pixels pixels_of(const char *text) {
    int64_t numbers[3] = {0};
    int count = 0;
    tide_text rest = tide_text_of(text), part;
    while (*text && count < 3 && tide_piece_next(&rest, 'x', &part)) tide_text_to_i64(&numbers[count++], part);
    if (count == 3) return (tide_pixels){numbers[0], numbers[1], numbers[2]};
    return (tide_pixels){0, numbers[0], numbers[1]};
}

/* Enums are written through the type that the compiler gives them. */
_Static_assert(sizeof(tide_mode_choice) == sizeof(unsigned), "an enum has the size of an int");

static unsigned choice_index(const tide_setting *setting, const char *text) {
    for (uint32_t i = 0; i < setting->choice_count; i++)
        if (tide_text_is(tide_setting_choice(setting, i), text)) return i;
    return 0;
}

/* The data parallel ranks of a job for which GPUs were counted: what tensor, pipeline and context parallel ranks leave.
 */
static void share_gpus(tide_job_builder *b) {
    tide_job_arguments *given = &b->arguments;
    static const tide_setting_id sizes[] = {TIDE_SET_parallel_tp, TIDE_SET_parallel_pp, TIDE_SET_parallel_cp,
                                            TIDE_SET_parallel_sequence_parallel_size};
    int64_t gpus = tide_argument_int(given, TIDE_SET_parallel_dp), others = 1;
    if (!given->dp_is_world_size || tide_argument_is(given, TIDE_SET_parallel_kind, "none")) return;
    for (size_t i = 0; i < TIDE_COUNT_OF(sizes); i++)
        if (!tide_mul_i64(&others, others, tide_argument_int(given, sizes[i]))) return;
    if (others < 2) return;
    int64_t rounded = (gpus + others - 1) / others * others;
    if (gpus % others)
        tide_builder_refuse(b, TIDE_ERR_CONFLICT, TIDE_SET_parallel_dp,
                            tide_format(b->arena,
                                        "%" PRId64 " GPUs are not divided by %" PRId64
                                        ", which is tensor times pipeline times context parallel ranks",
                                        gpus, others),
                            tide_format(b->arena, "give gpus=%" PRId64 ", or other sizes", rounded));
    else
        given->values[TIDE_SET_parallel_dp] = tide_format(b->arena, "%" PRId64, gpus / others);
}

static void fill(tide_job_builder *b, tide_setting_id id) {
    const tide_setting *setting = &tide_settings[id];
    void *field = (char *)b->job + setting->offset;
    const char *text = tide_argument_text(&b->arguments, id);
    b->job->values[id] = text;
    switch (setting->type) {
    case TIDE_SETTING_INT:
        *(int64_t *)field = *text ? tide_argument_int(&b->arguments, id) : setting->otherwise;
        break;
    case TIDE_SETTING_NUMBER:
        *(int64_t *)field = *text ? tide_argument_pico(&b->arguments, id) : setting->otherwise;
        break;
    case TIDE_SETTING_BOOL:
        *(bool *)field = *text ? strcmp(text, "true") == 0 : setting->otherwise != 0;
        break;
    case TIDE_SETTING_CHOICE:
        memcpy(field, &(unsigned){choice_index(setting, text)}, sizeof(unsigned));
        break;
    case TIDE_SETTING_DTYPE: {
        tide_optional_dtype *dtype = field;
        dtype->is_set = tide_dtype_named(tide_text_of(text), &dtype->dtype);
        break;
    }
    case TIDE_SETTING_TEXT:
        *(const char **)field = text;
        break;
    case TIDE_SETTING_LIST:
        *(tide_name_list *)field = tide_argument_names(&b->arguments, id);
        break;
    case TIDE_SETTING_COUNTS:
        *(tide_counts *)field = tide_counts_of(b->arena, tide_text_of(text));
        break;
    case TIDE_SETTING_SIZE:
        *(tide_pixels *)field = pixels_of(text);
        break;
    case TIDE_SETTING_LENGTHS:
        tide_lengths_read(b->arena, tide_text_of(text), field);
        break;
    case TIDE_SETTING_NAME:
    case TIDE_SETTING_RECIPE:
    case TIDE_SETTING_OVERRIDES:
        break;
    }
}

/* Without seq samples are not cut, and without steps all of them are used. */
static void follow_lengths(tide_job_builder *b) {
    enum { STEPS_DRAWN = 20 };
    tide_job *job = b->job;
    const tide_lengths *lengths = &job->lengths;
    if (!tide_job_has_lengths(job)) return;
    bool generates = tide_trainer_generates(job);
    if (!b->arguments.is_given[TIDE_SET_seq]) {
        int64_t longest = tide_lengths_longest(lengths) + (generates ? job->trainer_max_completion_length : 0);
        b->arguments.values[TIDE_SET_seq] = tide_format(b->arena, "%" PRId64, longest);
        fill(b, TIDE_SET_seq);
    }
    if (b->arguments.is_given[TIDE_SET_steps]) return;
    bool goes_round = tide_job_has_trainer(job) && job->parallel_kind != TIDE_parallel_kind_none;
    int64_t of_step = tide_job_rows(job) * job->grad_accum * (goes_round ? job->parallel_dp : 1),
            samples = generates ? lengths->count * job->trainer_num_generations * job->trainer_num_iterations
                                : lengths->count,
            steps = (samples + of_step - 1) / of_step, most = tide_settings[TIDE_SET_steps].most;
    if (lengths->quantile_count) steps = STEPS_DRAWN;
    if (steps < 2) steps = 2;
    b->arguments.values[TIDE_SET_steps] = tide_format(b->arena, "%" PRId64, steps < most ? steps : most);
    fill(b, TIDE_SET_steps);
}

static void follow(tide_job_builder *b, tide_setting_id id, const char *value) {
    if (b->arguments.is_given[id]) return;
    b->arguments.values[id] = value;
    fill(b, id);
}

/* Defaults that depend on the trainer; complete groups if it generates. */
static void follow_trainer(tide_job_builder *b) {
    for (unsigned id = 0; id < TIDE_SET_COUNT; id++) {
        const char *own = tide_trainer_default(b->job, (tide_setting_id)id);
        if (own) follow(b, (tide_setting_id)id, own);
    }
    if (tide_trainer_generates(b->job))
        follow(b, TIDE_SET_batch, tide_format(b->arena, "%" PRId64, tide_least_batch(b->job)));
}

/* The prompts of generated answers are what these leave of seq. */
static void follow_answers(tide_job_builder *b) {
    if (tide_trainer_answers_prompts(b->job) && tide_prompt_length(b->job) > 0)
        follow(b, TIDE_SET_trainer_prompt_length, tide_format(b->arena, "%" PRId64, tide_prompt_length(b->job)));
}

tide_setting_id tide_job_unread_by(const tide_job *job, tide_setting_id id) {
    tide_text choices;
    bool is_excluded;
    tide_setting_id needs = tide_setting_needs(&tide_settings[id], &choices, &is_excluded);
    if (needs == TIDE_SET_COUNT) return TIDE_SET_COUNT;
    return tide_setting_is_of(&tide_settings[id], job->values[needs]) ? tide_job_unread_by(job, needs) : needs;
}

/* An option of another trainer has its default, and only its text stays as it was given. */
static void leave_unread(tide_job_builder *b, tide_setting_id id) {
    const char *given = b->arguments.values[id];
    if (!b->arguments.is_given[id] || tide_job_unread_by(b->job, id) != TIDE_SET_trainer) return;
    b->arguments.values[id] = tide_setting_default(id);
    fill(b, id);
    b->arguments.values[id] = b->job->values[id] = given;
}

/* What is given by vLLM's name, or as gpus, to another engine that has the same under its own name. */
static void follow_engine(tide_job_builder *b) {
    tide_job_arguments *given = &b->arguments;
    for (unsigned id = 0; id < TIDE_SET_COUNT; id++) {
        const tide_setting *row = &tide_settings[id];
        if (!row->same_as || !tide_setting_is_of(row, tide_argument_text(given, TIDE_SET_engine))) continue;
        tide_setting_id other = tide_setting_find_own(tide_text_of(row->same_as), true);
        if (!given->is_given[other] || given->is_given[id]) continue;
        given->values[id] = given->values[other];
        given->origins[id] = given->origins[other];
        given->is_given[id] = true;
        given->values[other] = tide_setting_default(other);
        given->is_given[other] = false;
    }
}

void tide_fill_fields(tide_job_builder *b) {
    choose_dtype(b);
    share_gpus(b);
    follow_engine(b);
    b->arguments.values[TIDE_SET_adapter] = tide_arguments_adapter(&b->arguments);
    for (unsigned id = 0; id < TIDE_SET_COUNT; id++) fill(b, (tide_setting_id)id);
    follow_trainer(b);
    for (unsigned id = 0; id < TIDE_SET_COUNT; id++) leave_unread(b, (tide_setting_id)id);
    follow_lengths(b);
    follow_answers(b);
}
