/* SPDX-License-Identifier: Apache-2.0 */
/* The model: a file, an entry of the catalogue, or a description; and settings that change its configuration. */
#include "job/builder.h"

#include <string.h>

#include "base/units.h"
#include "job/model_names.h"
#include "lang/lang.h"

bool tide_is_undescribed(const tide_job_builder *b, const char *key) {
    tide_text rest = tide_text_of(tide_argument_text(&b->arguments, TIDE_SET_undescribed)), piece;
    while (tide_piece_next(&rest, ',', &piece))
        if (tide_text_is(tide_base_name(piece), key)) return true;
    return false;
}

void tide_leave_undescribed(tide_job_builder *b, const char *key) {
    if (!tide_is_undescribed(b, key)) tide_arguments_leave_undescribed(&b->arguments, key);
}

/* Routers of mixtures, which an engine would quantise like other linear layers unless the checkpoint lists them. */
static void keep_routers(const tide_job_builder *b, tide_json *quantization) {
    const tide_json *config = b->inputs.config, *layers = tide_json_at(config, "num_hidden_layers");
    if (!b->arguments.serves || quantization->kind != TIDE_JSON_OBJECT || !tide_json_at(config, "num_experts") ||
        !layers || !layers->is_integer)
        return;
    const char *list = "[\"lm_head\"";
    for (int64_t i = 0; i < layers->integer && i < 1000; i++)
        list = tide_format(b->arena, "%s,\"model.layers.%d.mlp.gate\"", list, (int)i);
    tide_json *names = tide_json_parse(b->arena, tide_text_of(tide_format(b->arena, "%s]", list)), "/model", b->diags);
    if (names) tide_json_put(b->arena, quantization, TIDE_TEXT("modules_to_not_convert"), names);
}

/* unsloth excludes layers that suffer most from 4 bits, different ones for each model. */
static void say_kept_layers(tide_job_builder *b, const char *shown) {
    tide_report(b->diags, TIDE_WARNING, TIDE_ERR_UNSUPPORTED, "/settings/model",
                tide_format(b->arena,
                            "\"%s\" keeps some layers in 16 bits, listed in its config.json: all are assumed to be "
                            "in 4 bits",
                            shown),
                "give its config.json");
    tide_leave_undescribed(b, "quantization_config");
}

/* What a variant shares with its base, and what may differ. */
static void model_of_variant(tide_job_builder *b, const char *name, const tide_source *source,
                             const tide_hub_name *read) {
    const char *shown = tide_shown(b->arena, tide_text_of(name));
    bool is_quantised = read->quantization && *read->quantization;
    tide_report(b->diags, read->is_dated ? TIDE_WARNING : TIDE_ASSUMPTION,
                read->is_dated ? TIDE_ERR_MODEL_UNKNOWN : TIDE_OK, "/settings/model",
                tide_format(b->arena, "\"%s\" is read as %s%s%s", shown, source->name,
                            is_quantised     ? ", with the quantization_config of such checkpoints"
                            : read->is_tuned ? ": tuned and converted variants have the configuration of their base"
                                             : "",
                            read->is_dated ? "; for another date the context length may differ" : ""),
                "give its config.json if it differs");
    const bool has_one = tide_json_at(b->inputs.config, "quantization_config") != NULL,
               is_whole = has_one && (read->is_whole || (read->quantization && !is_quantised));
    if ((!is_quantised && !is_whole) || !b->inputs.config) return;
    b->inputs.config_name = name; /* which a link must contain */
    tide_json *config =
        tide_json_parse(b->arena, tide_text_of(is_whole ? "null" : read->quantization), "/model", b->diags);
    if (config && (is_whole || !has_one)) {
        keep_routers(b, config);
        tide_json_put(b->arena, b->inputs.config, TIDE_TEXT("quantization_config"), config);
    }
    bool has_tower = tide_json_at(b->inputs.config, "vision_config") && strstr(read->format ? read->format : "", "bnb");
    if (has_tower || (read->format && strncmp(read->format, "unsloth", strlen("unsloth")) == 0))
        say_kept_layers(b, shown);
}

/* A path that an entry lists in "also": a model with the same configuration. */
static void model_of_also(tide_job_builder *b, const char *path, const tide_source *source) {
    const tide_source whole = tide_source_whole(b->arena, source);
    const char *text = tide_lowered(b->arena, (tide_text){whole.text, whole.length}),
               *published = tide_format(b->arena, "\"source\": \"huggingface.co/%s\"",
                                        tide_lowered(b->arena, tide_text_of(path)));
    if (!strchr(path, '/') || strstr(text, published)) return;
    tide_report(b->diags, TIDE_ASSUMPTION, TIDE_OK, "/settings/model",
                tide_format(b->arena, "\"%s\" is read as %s, which has the same configuration",
                            tide_shown(b->arena, tide_text_of(path)), source->name),
                "give its config.json if it differs");
}

/* The most similar model has another architecture, so none is suggested. */
static void refuse_undescribed(tide_job_builder *b, const char *place, const char *name, const char *what) {
    tide_error(b->diags, TIDE_ERR_MODEL_UNKNOWN, place,
               tide_format(b->arena, "\"%s\" is not in the catalogue: no description covers %s",
                           tide_shown(b->arena, tide_text_of(name)), what),
               "run the program with `tidemark dry-run`, which needs no description; or give its config.json as a "
               "file, for a range if there is one");
}

static const char *remedy_of_format(const tide_job_builder *b, const tide_source *base, const tide_hub_name *read) {
    return tide_format(b->arena,
                       strstr(read->format, "gguf")
                           ? "did you mean %s, which transformers loads from a GGUF file? For llama.cpp's server "
                             "give the file, or engine=llama_cpp and its ftype"
                           : "did you mean %s, whose weights are not quantised? Give the config.json, which says "
                             "how these are quantised",
                       base->name);
}

static void model_unknown(tide_job_builder *b, const char *name) {
    const char *word = tide_word_remedy(tide_text_of(name));
    const char *near = tide_catalogue_near(b->arena, name), *what = tide_model_undescribed(b->arena, name);
    const char *file = "give its config.json as a file";
    tide_hub_name read;
    const tide_source *base = tide_catalogue_hub_base(b->arena, name, &read);
    if (what && !base) {
        refuse_undescribed(b, "/settings/model", name, what);
        return;
    }
    if (base && read.format) word = remedy_of_format(b, base, &read);
    tide_error(b->diags, TIDE_ERR_MODEL_UNKNOWN, "/settings/model",
               tide_format(b->arena, "\"%s\" is not in the catalogue", tide_shown(b->arena, tide_text_of(name))),
               word   ? word
               : near ? tide_format(b->arena, "did you mean %s? Otherwise %s", near, file)
                      : file);
}

static void model_of_catalogue(tide_job_builder *b, const tide_source *source) {
    const char *place = tide_format(b->arena, "/models/%s", source->name);
    tide_source whole = tide_source_whole(b->arena, source);
    const tide_json *entry = tide_json_parse(b->arena, (tide_text){whole.text, whole.length}, place, b->diags);
    if (!entry || !tide_entry_read(&b->inputs, b->arena, entry, place, b->diags)) return;
    b->is_of_catalogue = true;
    b->inputs.config_name = source->name;
    if (!b->inputs.title) b->inputs.title = source->name;
}

/* A description without a configuration contains all sizes. */
static void model_of_description(tide_job_builder *b) {
    const tide_json *name = tide_json_at(b->inputs.description, "architecture");
    b->inputs.config = tide_json_new(b->arena, TIDE_JSON_OBJECT);
    b->inputs.config_name = b->inputs.title = tide_shown(b->arena, name->text);
    b->model_is_file = true;
}

/* A configuration given as a file takes precedence over the catalogue; a name that is not in the catalogue is then a
 * label. */
static void model_of_file(tide_job_builder *b, const char *name) {
    b->model_is_file = true;
    if (!name[0]) return;
    if (tide_catalogue_find(b->arena, name)) {
        tide_report(
            b->diags, TIDE_WARNING, TIDE_ERR_CONFLICT, "/settings/model",
            tide_format(b->arena, "%s is ignored in favour of the configuration in %s", name, b->inputs.config_file),
            "give one of the two");
        return;
    }
    b->model_is_file = false;
    b->inputs.config_name = name;
}

/* A model that a file names by its path is taken from the catalogue if it is there. */
static void model_asked(tide_job_builder *b) {
    const char *asked = b->inputs.asked_model;
    if (!asked || b->inputs.config || b->inputs.description || b->arguments.is_given[TIDE_SET_model]) return;
    const tide_source *source = tide_catalogue_find(b->arena, asked);
    tide_hub_name read;
    if (source) {
        model_of_also(b, asked, source);
        tide_setting_put(&b->arguments, TIDE_TEXT("model"), tide_text_of(source->name), TIDE_ORIGIN_FILE);
    } else if (tide_catalogue_variant(b->arena, asked, &read)) {
        tide_setting_put(&b->arguments, TIDE_TEXT("model"), tide_text_of(asked), TIDE_ORIGIN_FILE);
    } else {
        const char *near = asked[0] == '$' ? NULL : tide_catalogue_near(b->arena, asked),
                   *file = "give its config.json too", *what = tide_model_undescribed(b->arena, asked);
        const tide_source *base = asked[0] == '$' ? NULL : tide_catalogue_hub_base(b->arena, asked, &read);
        if (what && !base) {
            refuse_undescribed(b, b->inputs.asked_place, asked, what);
            return;
        }
        tide_error(b->diags, TIDE_ERR_MODEL_UNKNOWN, b->inputs.asked_place,
                   tide_format(b->arena, "\"%s\", named by a file, is not in the catalogue",
                               tide_shown(b->arena, tide_text_of(asked))),
                   base && read.format ? remedy_of_format(b, base, &read)
                   : near ? tide_format(b->arena, "add model=%s if that is the one; otherwise %s", near, file)
                          : file);
    }
}

/* Qwen3-8B-GGUF:Q4_K_M, as for llama.cpp's server: the model, and the file type. */
static const char *model_of_gguf(tide_job_builder *b, const char *name) {
    if (!b->arguments.serves || !tide_argument_is(&b->arguments, TIDE_SET_engine, "llama_cpp")) return name;
    char *model = tide_text_copy(b->arena, tide_text_of(name)), *type = strrchr(model, ':');
    if (type) *type++ = 0;
    tide_hub_name read;
    const tide_source *base = tide_catalogue_hub_base(b->arena, model, &read);
    if (!base || !read.format || strcmp(read.format, "gguf") != 0) return name;
    if (type && !b->arguments.is_given[TIDE_SET_ftype])
        tide_setting_put(&b->arguments, TIDE_TEXT("ftype"), tide_text_of(type), TIDE_ORIGIN_FILE);
    tide_report(
        b->diags, TIDE_ASSUMPTION, TIDE_OK, "/settings/model",
        tide_format(b->arena, "\"%s\" is read as %s, converted", tide_shown(b->arena, tide_text_of(name)), base->name),
        "give the GGUF file, or ftype");
    return base->name;
}

void tide_find_model(tide_job_builder *b) {
    model_asked(b);
    const char *name = model_of_gguf(b, tide_argument_text(&b->arguments, TIDE_SET_model));
    const tide_source *source = b->inputs.config ? NULL : tide_catalogue_find(b->arena, name), *variant = NULL;
    tide_hub_name read;
    if (b->inputs.config) {
        model_of_file(b, name);
    } else if (source) {
        model_of_also(b, name, source);
        model_of_catalogue(b, source);
    } else if (name[0] && (variant = tide_catalogue_variant(b->arena, name, &read))) {
        model_of_catalogue(b, variant);
        model_of_variant(b, name, variant, &read);
    } else if (name[0]) {
        model_unknown(b, name);
    } else if (b->inputs.description) {
        model_of_description(b);
    } else if (!b->files_failed && !b->inputs.asked_model) {
        tide_error(b->diags, TIDE_ERR_FIELD_MISSING, "/settings/model", "no model is given",
                   "write model=NAME with a name from the catalogue, or give a config.json");
    }
    tide_job *job = b->job;
    job->model = b->inputs.config_name ? b->inputs.config_name : "";
    job->model_title = b->inputs.title ? b->inputs.title : job->model;
    job->model_source = b->inputs.source ? b->inputs.source : "";
    job->published_parameters = b->inputs.published_parameters;
    job->preprocessor = b->inputs.preprocessor;
    if (b->inputs.assumes_config)
        tide_report(b->diags, TIDE_ASSUMPTION, TIDE_OK, "/settings/model",
                    "the configuration was written from memory, and no published number of parameters confirms it",
                    "give the model's config.json to be certain");
    job->description = b->inputs.description;
    job->description_text = b->inputs.description_text;
    if (b->inputs.checkpoint.count || b->inputs.checkpoint.index) {
        tide_checkpoint *checkpoint = TIDE_NEW(b->arena, tide_checkpoint, 1);
        *checkpoint = b->inputs.checkpoint;
        job->checkpoint = checkpoint;
    }
    if (b->inputs.config_file) job->config_text = b->inputs.config_text;
    job->preprocessor_text = b->inputs.preprocessor_text;
}

/* Packed weights do not train: unless training is requested, they are used for inference. */
static void generate_with_packed(tide_job_builder *b) {
    static const tide_setting_id training[] = {TIDE_SET_mode,       TIDE_SET_optimizer,  TIDE_SET_freeze,
                                               TIDE_SET_train_only, TIDE_SET_grad_accum, TIDE_SET_checkpointing,
                                               TIDE_SET_steps};
    for (size_t i = 0; i < TIDE_COUNT_OF(training); i++)
        if (b->arguments.is_given[training[i]]) return;
    if (tide_arguments_adapt(&b->arguments) || !tide_argument_is(&b->arguments, TIDE_SET_trainer, "none")) return;
    if (!tide_argument_is(&b->arguments, TIDE_SET_parallel_kind, "none")) return;
    tide_setting_put(&b->arguments, TIDE_TEXT("mode"), TIDE_TEXT("infer"), TIDE_ORIGIN_FILE);
    tide_report(b->diags, TIDE_ASSUMPTION, TIDE_OK, "/settings/mode",
                "mode=infer: quantised weights do not train by themselves",
                "train the model that they were quantised from, or use adapter=lora with quant=nf4");
}

/* Weights stored quantised in a checkpoint. For training, transformers dequantises blocks of fp8 and mxfp4
 * (quantizer_finegrained_fp8.py and quantizer_mxfp4.py, dequantize). */
static void read_quantization(tide_job_builder *b) {
    const tide_json *from = tide_json_at(b->inputs.config, "quantization_config");
    const char *key, *fault = from ? tide_quantization_fault(from, &key) : NULL;
    if (fault) {
        tide_error(b->diags, TIDE_ERR_FIELD_RANGE, tide_format(b->arena, "/model/quantization_config/%s", key), fault,
                   "give it as in the checkpoint's config.json, or leave quantization_config out");
        return;
    }
    if (b->arguments.serves) return; /* the engine reads it */
    if (!from || from->kind == TIDE_JSON_NULL || b->arguments.is_given[TIDE_SET_quant]) return;
    tide_job_arguments with_quant = b->arguments;
    bool is_known = tide_quantization_read(&with_quant, from),
         is_fp8 = is_known && tide_argument_is(&with_quant, TIDE_SET_quant, "fp8"),
         is_mxfp4 = tide_json_is_text(tide_json_at(from, "quant_method"), "mxfp4");
    bool is_training = tide_argument_is(&b->arguments, TIDE_SET_mode, "train");
    if (is_known && !(is_training && is_fp8)) {
        b->arguments = with_quant;
        if (is_training) generate_with_packed(b);
        return;
    }
    if (!is_known && !is_mxfp4) tide_leave_undescribed(b, "quantization_config");
    tide_report(b->diags, TIDE_WARNING, TIDE_ERR_UNSUPPORTED, "/model/quantization_config",
                "is ignored: the weights are dequantised to dtype",
                is_fp8     ? "it applies with mode=infer"
                : is_mxfp4 ? "as in transformers for training, and without Triton or the kernels package; with "
                             "both, experts have 4.25 bits per weight in inference, which is not described"
                           : NULL);
}

/* The class of the same family with another head: XForCausalLM, XLMHeadModel, XModel and others belong to X. */
static void change_head(tide_job_builder *b, tide_json *config, const char *head) {
    static const char *const endings[] = {"LMHeadModel", "TextModel", "Model"};
    const tide_json *names = tide_json_at(config, "architectures");
    tide_json *name = names && names->kind == TIDE_JSON_ARRAY ? names->first : NULL;
    if (!tide_json_is(name, TIDE_JSON_STRING)) return;
    const char *task = strstr(name->text.at, "For");
    size_t length = task && task > name->text.at ? (size_t)(task - name->text.at) : name->text.length;
    for (size_t i = 0; i < TIDE_COUNT_OF(endings) && length == name->text.length; i++)
        if (tide_text_ends(name->text, tide_text_of(endings[i]))) length -= strlen(endings[i]);
    bool has_none = strcmp(head, "none") == 0;
    /* transformers/models/auto/modeling_auto.py: the classifier of gemma3_text is Gemma3TextForSequenceClassification
     */
    const tide_json *type = tide_json_at(config, "model_type");
    bool is_text = strcmp(head, "SequenceClassification") == 0 && tide_json_is(type, TIDE_JSON_STRING) &&
                   tide_text_ends(type->text, TIDE_TEXT("_text")) && !strstr(name->text.at, "TextFor");
    name->text = tide_text_of(tide_format(b->arena, "%.*s%s%s%s", (int)length, name->text.at, is_text ? "Text" : "",
                                          has_none ? "Model" : "For", has_none ? "" : head));
}

/* trl/trainer/reward_trainer.py, __init__: AutoModelForSequenceClassification with num_labels=1, even for a model given
 * as a causal language model, and with the id of the padding token. peft's PeftModelForSequenceClassification saves its
 * head, "score". */
static void make_reward_model(tide_job_builder *b) {
    tide_json *config = b->inputs.config;
    const tide_json *names = tide_json_at(config, "architectures"), *pad = tide_json_at(config, "pad_token_id");
    const tide_json *name = names && names->kind == TIDE_JSON_ARRAY ? names->first : NULL;
    bool speaks = tide_json_is(name, TIDE_JSON_STRING) && (tide_text_ends(name->text, TIDE_TEXT("ForCausalLM")) ||
                                                           tide_text_ends(name->text, TIDE_TEXT("LMHeadModel")));
    if (speaks) change_head(b, config, "SequenceClassification");
    if (!pad || pad->kind == TIDE_JSON_NULL)
        tide_json_put(b->arena, config, TIDE_TEXT("pad_token_id"),
                      tide_argument_json(b->arena, TIDE_TEXT("0"), "", b->diags));
    tide_json_put(b->arena, config, TIDE_TEXT("num_labels"),
                  tide_argument_json(b->arena, TIDE_TEXT("1"), "", b->diags));
    const char *saved = tide_argument_text(&b->arguments, TIDE_SET_adapter_modules_to_save);
    if (!tide_arguments_adapt(&b->arguments) || strstr(saved, "score")) return;
    tide_setting_put(&b->arguments, TIDE_TEXT("adapter.modules_to_save"),
                     tide_text_of(tide_format(b->arena, "%s%sscore", saved, saved[0] ? "," : "")), TIDE_ORIGIN_FILE);
}

/* --hidden-dropout and --attention-dropout, whether or not the original model has them. */
static void put_megatron_dropout(const tide_job_builder *b, tide_json *config) {
    static const char *const keys[] = {"hidden_dropout", "attention_dropout"};
    for (unsigned i = 0; i < TIDE_COUNT_OF(keys); i++)
        tide_json_put(b->arena, config, tide_text_of(keys[i]),
                      tide_argument_json(b->arena, TIDE_TEXT("0"), "", b->diags));
}

void tide_change_config(tide_job_builder *b) {
    tide_json *config = b->inputs.config;
    if (!config) return;
    const char *head = tide_argument_text(&b->arguments, TIDE_SET_head);
    bool has_value_head = tide_argument_is(&b->arguments, TIDE_SET_trainer_program, "llama_factory");
    if (tide_argument_is(&b->arguments, TIDE_SET_trainer, "reward") && !has_value_head)
        make_reward_model(b);
    else if (head[0] && strcmp(head, "default") != 0)
        change_head(b, config, head);
    for (uint32_t i = 0; i < b->arguments.override_count; i++)
        tide_config_override(b->arena, config, &b->arguments.overrides[i], b->diags);
    if (tide_argument_text(&b->arguments, TIDE_SET_dropout)[0]) {
        if (tide_argument_is(&b->arguments, TIDE_SET_parallel_kind, "megatron")) put_megatron_dropout(b, config);
        tide_config_dropout(config, tide_argument_pico(&b->arguments, TIDE_SET_dropout));
    }
    tide_fill_config(b);
    read_quantization(b);
    b->job->config = config;
}
