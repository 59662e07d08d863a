/* SPDX-License-Identifier: Apache-2.0 */
/* A recorded case (shared vocabulary, other defaults) as words. */
#include "job/arguments.h"

#include "base/units.h"

#include <string.h>

typedef struct case_reader {
    tide_arena *arena;
    tide_text *words;
    uint32_t count, capacity;
    const char *reason;
} case_reader;

static bool case_refuse(case_reader *r, const char *reason) {
    r->reason = reason;
    return false;
}

static void case_word(case_reader *r, const char *key, const char *value) {
    TIDE_ROOM(r->arena, r->words, r->count, r->capacity);
    r->words[r->count++] = tide_text_of(tide_format(r->arena, "%s=%s", key, value));
}

/* Keys without an equivalent: accepted only if the recorded training would not read them. */
static bool is_unset(const tide_json *value) {
    return value->kind == TIDE_JSON_NULL || (value->kind == TIDE_JSON_BOOL && !value->is_true);
}

static bool is_one_of(tide_text key, const char *const *names, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (tide_text_is(key, names[i])) return true;
    return false;
}

/* In "parallel" null stands for the framework's choice; if that is not the default here, for none. */
static const char *case_null(tide_setting_id id) {
    const tide_setting *setting = &tide_settings[id];
    bool is_none =
        setting->default_value && tide_setting_chooses(setting) && tide_setting_has_choice(setting, TIDE_TEXT("none"));
    return is_none ? "none" : "";
}

static bool case_plan(case_reader *r, const tide_json *plan) {
    if (plan->kind == TIDE_JSON_NULL) return true;
    for (const tide_json *entry = plan->first; entry; entry = entry->next) {
        const char *name = tide_format(r->arena, "parallel.%s", tide_shown(r->arena, entry->key));
        const tide_json *kind = tide_json_at(plan, "kind");
        tide_setting_id id = tide_setting_find(tide_text_of(name));
        bool is_kind = entry == kind;
        const char *text = entry->kind == TIDE_JSON_NULL && id != TIDE_SET_COUNT ? case_null(id)
                                                                                 : tide_argument_value(r->arena, entry);
        if (!is_kind && is_unset(entry) && id == TIDE_SET_COUNT) continue;
        if (id == TIDE_SET_COUNT) return case_refuse(r, name);
        if (is_kind && text && !tide_setting_has_choice(&tide_settings[id], tide_text_of(text)))
            return case_refuse(r, tide_format(r->arena, "%s %s", name, text));
        if (!text) return case_refuse(r, name);
        if (*text) case_word(r, name, text);
    }
    if (!tide_json_at(plan, "rank")) case_word(r, "parallel.rank", "0");
    const tide_json *kind_of = tide_json_at(plan, "kind");
    if (kind_of && kind_of->kind == TIDE_JSON_STRING && tide_text_is(kind_of->text, "megatron") &&
        !tide_json_at(plan, "jit"))
        case_word(r, "parallel.jit", "false");
    if (tide_json_is_text(kind_of, "native") && !tide_json_at(plan, "meta_init"))
        case_word(r, "parallel.meta_init", "false");
    return true;
}

/* "lora": {"r": ...}; with "method": "ia3" it is IA3. */
static bool case_adapter(case_reader *r, const tide_json *options) {
    if (is_unset(options)) return true;
    const tide_json *method = tide_json_at(options, "method");
    case_word(r, "adapter", method && method->kind == TIDE_JSON_STRING ? method->text.at : "lora");
    if (tide_json_is(method, TIDE_JSON_STRING) && tide_text_is(method->text, "ia3") &&
        !tide_json_at(options, "target_modules"))
        case_word(r, "adapter.target_modules", "all-linear");
    for (const tide_json *entry = options->first; entry; entry = entry->next) {
        const char *name = tide_format(r->arena, "adapter.%s", tide_shown(r->arena, entry->key));
        const char *text = tide_argument_value_or_map(r->arena, entry);
        if (entry == method || entry->kind == TIDE_JSON_NULL) continue;
        if (tide_text_is(entry->key, "feedforward_modules") && text && !*text) text = "none";
        if (!text || tide_setting_find(tide_text_of(name)) == TIDE_SET_COUNT) return case_refuse(r, name);
        case_word(r, name, text);
    }
    return true;
}

/* "liger_kernel_config": {"rope": false, ...} */
static void case_liger(case_reader *r, const tide_json *kernels) {
    for (const tide_json *entry = kernels->first; entry; entry = entry->next)
        case_word(r, tide_format(r->arena, "liger.%s", tide_shown(r->arena, entry->key)),
                  tide_argument_value(r->arena, entry));
}

/* "trainer": {"kind": ...}; its other keys in the trainers' own terms, as those in "args" already are. */
static bool case_trainer(case_reader *r, const tide_json *plan) {
    static const char *const names[][2] = {{"kind", "trainer"},
                                           {"prompt", "trainer.prompt_length"},
                                           {"loss_type", "trainer.loss_type"},
                                           {"packing", "packing"},
                                           {"padding_free", "trainer.padding_free"},
                                           {"documents", "trainer.sequences_per_row"},
                                           {"generations", "trainer.num_generations"},
                                           {"completion", "trainer.max_completion_length"},
                                           {"beta", "trainer.beta"},
                                           {"iterations", "trainer.num_iterations"},
                                           {"eval_samples", "trainer.max_eval_samples"},
                                           {"resume", "trainer.resume_from_checkpoint"},
                                           {"compute_metrics", "trainer.compute_metrics"},
                                           {"preprocess", "trainer.preprocess_logits_for_metrics"},
                                           {"steps_per_generation", "trainer.steps_per_generation"},
                                           {"temperature", "trainer.temperature"},
                                           {"program", "trainer.program"},
                                           {"pure_bf16", "trainer.pure_bf16"},
                                           {"pref_ftx", "trainer.pref_ftx"},
                                           {"teacher", "trainer.teacher"},
                                           {"teacher_dtype", "trainer.teacher_dtype"},
                                           {"teacher_quant", "trainer.teacher_quant"},
                                           {"trl", "trl"}};
    static const char *const unread[] = {"logging_steps", "turns"};
    static const char *const without_effect[] = {"missing_eos_penalty", "load_best_model_at_end",
                                                 "average_tokens_across_devices"};
    static const char *const of_rollouts[][3] = {{"generations", "trainer.num_generations", "4"},
                                                 {"completion", "trainer.max_completion_length", "64"},
                                                 {"beta", "trainer.beta", "0"}};
    const tide_json *kind = tide_json_at(plan, "kind");
    for (const tide_json *entry = plan->first; entry; entry = entry->next) {
        const char *name = NULL, *text = tide_argument_value(r->arena, entry);
        for (size_t i = 0; i < TIDE_COUNT_OF(names) && !name; i++)
            if (tide_text_is(entry->key, names[i][0])) name = names[i][1];
        if (is_unset(entry) || is_one_of(entry->key, unread, TIDE_COUNT_OF(unread))) continue;
        if (tide_text_is(entry->key, "reference")) name = "trainer.precompute_ref_log_probs", text = "true";
        if (tide_text_is(entry->key, "args")) {
            for (const tide_json *value = entry->first; value; value = value->next) {
                const char *option = tide_format(r->arena, "trainer.%s", value->key.at);
                if (tide_text_is(value->key, "liger_kernel_config")) {
                    case_liger(r, value);
                    continue;
                }
                if (is_one_of(value->key, without_effect, TIDE_COUNT_OF(without_effect))) continue;
                if (tide_setting_find(tide_text_of(option)) == TIDE_SET_COUNT) return case_refuse(r, option);
                if (!tide_json_at(plan, value->key.at)) case_word(r, option, tide_argument_json_text(r->arena, value));
            }
            continue;
        }
        if (!name || !text) return case_refuse(r, tide_format(r->arena, "trainer.%s", entry->key.at));
        case_word(r, name, text);
    }
    bool answers = tide_json_is_text(kind, "gkd") || tide_json_is_text(kind, "online_dpo");
    if (answers && !tide_json_at(plan, "completion")) case_word(r, "trainer.max_completion_length", "64");
    if (tide_json_is_text(kind, "grpo") || tide_json_is_text(kind, "rloo"))
        for (size_t i = 0; i < TIDE_COUNT_OF(of_rollouts); i++)
            if (!tide_json_at(plan, of_rollouts[i][0])) case_word(r, of_rollouts[i][1], of_rollouts[i][2]);
    return true;
}

/* "kernels": "liger_layers" is all of Liger except the loss, "cce" is cut cross-entropy. */
static bool case_kernels(case_reader *r, const tide_json *entry) {
    if (is_unset(entry)) return true;
    tide_text name = entry->kind == TIDE_JSON_STRING ? entry->text : TIDE_TEXT("");
    bool is_without_loss = tide_text_is(name, "liger_layers");
    if (tide_text_is(name, "cce"))
        case_word(r, "loss", "cut_cross_entropy");
    else if (is_without_loss || tide_text_is(name, "liger"))
        case_word(r, "use_liger_kernel", "true");
    else
        return case_refuse(r, "kernels");
    if (is_without_loss) {
        case_word(r, "liger.fused_linear_cross_entropy", "false");
        case_word(r, "liger.cross_entropy", "false");
    }
    return true;
}

static bool case_entry(case_reader *r, const tide_json *entry) {
    static const char *const unread[] = {"id", "note", "seed", "from_pretrained", "config", "preprocessor"};
    if (is_one_of(entry->key, unread, TIDE_COUNT_OF(unread))) return true;
    if (tide_text_is(entry->key, "parallel")) return case_plan(r, entry);
    if (tide_text_is(entry->key, "trainer")) return is_unset(entry) || case_trainer(r, entry);
    if (tide_text_is(entry->key, "lora")) return case_adapter(r, entry);
    if (tide_text_is(entry->key, "kernels")) return case_kernels(r, entry);
    tide_setting_id id = tide_setting_find(entry->key);
    if (id == TIDE_SET_COUNT || !tide_text_is(entry->key, tide_settings[id].name) || id == TIDE_SET_gpu ||
        id == TIDE_SET_title)
        return case_refuse(r, tide_format(r->arena, "key %s", tide_shown(r->arena, entry->key)));
    if (entry->kind == TIDE_JSON_NULL) return true;
    if (id == TIDE_SET_overrides) {
        if (entry->kind != TIDE_JSON_OBJECT) return case_refuse(r, "overrides");
        for (const tide_json *value = entry->first; value; value = value->next)
            case_word(r, tide_format(r->arena, "overrides.%s", value->key.at),
                      tide_argument_json_text(r->arena, value));
        return true;
    }
    const char *text = tide_argument_value(r->arena, entry);
    if (!text) return case_refuse(r, entry->key.at);
    if (id == TIDE_SET_padding && strcmp(text, "mask") == 0) text = "true"; /* of a trainer: all rows are long */
    if (id == TIDE_SET_optimizer && !tide_setting_has_choice(&tide_settings[id], tide_text_of(text)))
        return case_refuse(r, tide_format(r->arena, "optimizer %s", text));
    case_word(r, tide_settings[id].name, text);
    return true;
}

/* Models by their names are recorded without YaRN in Megatron-Core, unless the case asks for it. */
static void case_rotary(case_reader *r, const tide_json *of_case) {
    bool is_of_name = !tide_json_at(of_case, "config"),
         is_megatron = tide_json_is_text(tide_json_at(tide_json_at(of_case, "parallel"), "kind"), "megatron");
    if (is_megatron && is_of_name && !tide_json_at(tide_json_at(of_case, "overrides"), "rope_type"))
        case_word(r, "overrides.rope_type", "rope");
}

/* Defaults of a case that differ from those of settings. */
static const struct {
    tide_setting_id id;
    const char *value;
} case_defaults[] = {{TIDE_SET_sdpa_backend, "flash"}, {TIDE_SET_gpu_gib, "2000"},
                     {TIDE_SET_capability, "90"},      {TIDE_SET_seq, "512"},
                     {TIDE_SET_quant, "none"},         {TIDE_SET_kbit_prepare, "true"}};

bool tide_job_arguments_of_case(tide_arena *arena, const tide_json *of_case, tide_text **words, uint32_t *count,
                                const char **reason) {
    case_reader r = {.arena = arena};
    *words = NULL;
    *count = 0;
    *reason = NULL;
    bool is_case = of_case && of_case->kind == TIDE_JSON_OBJECT && tide_json_at(of_case, "model");
    if (!is_case) case_refuse(&r, "not a case: no model");
    const tide_json *trainer = is_case ? tide_json_at(tide_json_at(of_case, "trainer"), "kind") : NULL;
    bool generates = tide_json_is_text(trainer, "grpo") || tide_json_is_text(trainer, "rloo") ||
                     tide_json_is_text(trainer, "online_dpo"); /* seq is not read */
    for (const tide_json *entry = is_case ? of_case->first : NULL; entry && is_case; entry = entry->next)
        is_case = (generates && tide_text_is(entry->key, "seq")) || case_entry(&r, entry);
    const tide_json *by_hand = is_case ? tide_json_at(tide_json_at(of_case, "lora"), "kbit_layers") : NULL;
    if (is_case && !by_hand && !tide_json_at(of_case, "from_pretrained"))
        case_word(&r, "quant.from_pretrained", "false");
    bool is_of_trl = trainer && !tide_json_is_text(trainer, "hf"); /* whose data are texts here */
    if (is_case && is_of_trl && !tide_json_at(of_case, "images")) case_word(&r, "images", "0");
    if (is_case) case_rotary(&r, of_case);
    if (!is_case) {
        *reason = r.reason;
        return false;
    }
    bool is_of_samples = generates || tide_json_at(of_case, "lengths");
    for (size_t i = 0; i < TIDE_COUNT_OF(case_defaults); i++) {
        const char *name = tide_settings[case_defaults[i].id].name;
        if (is_of_samples && case_defaults[i].id == TIDE_SET_seq) continue; /* prompt and completion, or lengths */
        const tide_json *given = tide_json_at(of_case, name);
        if (!given || given->kind == TIDE_JSON_NULL) case_word(&r, name, case_defaults[i].value);
    }
    *words = r.words;
    *count = r.count;
    return true;
}

/* Keys of a recorded start that do not belong to the engine: the GPU is given separately. */
static bool is_of_recorder(const tide_json *entry) {
    static const char *const names[] = {"id",  "gpu", "gpu_gib", "gpu_bytes", "sms",
                                        "top", "env", "config",  "warm_up",   "preprocessor"};
    return is_one_of(entry->key, names, TIDE_COUNT_OF(names)) || entry->kind == TIDE_JSON_NULL;
}

void tide_job_arguments_of_start(tide_arena *arena, const tide_json *of_case, tide_text **words, uint32_t *count) {
    case_reader r = {.arena = arena};
    case_word(&r, "mode", "serve");
    case_word(&r, "gpu_gib", "1"); /* replaced by the recorded GPU */
    if (!tide_json_at(of_case, "config") && !tide_json_at(tide_json_at(of_case, "overrides"), "quantization_config"))
        case_word(&r, "overrides.quantization_config",
                  "null"); /* how weights are stored is given by the case, not its model */
    for (const tide_json *entry = of_case->first; entry; entry = entry->next) {
        const char *name = tide_shown(arena, entry->key), *text = tide_argument_value(arena, entry);
        if (is_of_recorder(entry)) continue;
        if (tide_text_is(entry->key, "note")) {
            if (text && strstr(text, "first")) case_word(&r, "first_start", "true");
        } else if (tide_text_is(entry->key, "overrides")) {
            for (const tide_json *value = entry->first; value; value = value->next)
                case_word(&r, tide_format(arena, "overrides.%s", value->key.at), tide_argument_json_text(arena, value));
        } else {
            case_word(&r, name, text ? text : tide_argument_json_text(arena, entry));
        }
    }
    *words = r.words;
    *count = r.count;
}

void tide_job_add_files_of_case(tide_arena *arena, const tide_json *of_case, tide_file **files, uint32_t *count) {
    static const char *const keys[] = {"config", "preprocessor"}, *const names[] = {"config.json",
                                                                                    "preprocessor_config.json"};
    tide_file *all = TIDE_NEW(arena, tide_file, *count + 2);
    for (uint32_t i = 0; i < *count; i++) all[i] = (*files)[i];
    for (size_t i = 0; i < TIDE_COUNT_OF(keys); i++) {
        const tide_json *value = tide_json_at(of_case, keys[i]);
        if (value && value->kind == TIDE_JSON_OBJECT)
            all[(*count)++] = (tide_file){tide_text_of(names[i]), tide_text_of(tide_argument_json_text(arena, value))};
    }
    *files = all;
}
