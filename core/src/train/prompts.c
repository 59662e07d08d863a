/* SPDX-License-Identifier: Apache-2.0 */
/* peft's prompt learning: a wrapper around the whole model. The wrappers are in
 * models/architectures/library/prompts.json. */
#include "train/adapters.h"

#include "base/units.h"
#include "train/run.h"

#include <string.h>

static bool refuse_prompt(tide_model *model, const char *what, const char *remedy) {
    model->m->has_failed = true;
    return tide_error(model->m->diags, TIDE_ERR_FIELD_RANGE, "/settings/adapter", what, remedy);
}

/* The first of these keys in the configuration, as an integer; 0: none. */
static int64_t first_of(const tide_json *config, const char *const *keys, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const tide_json *value = tide_json_at(config, keys[i]);
        if (value && value->kind == TIDE_JSON_NUMBER && value->is_integer && value->integer > 0) return value->integer;
    }
    return 0;
}

#define FIRST_OF(config, ...)                                                                                          \
    first_of(config, (const char *const[]){__VA_ARGS__}, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

/* The configuration of the language model. */
static const tide_json *text_config(const tide_job *job) {
    const tide_json *text = tide_json_at(job->config, "text_config");
    return text && text->kind == TIDE_JSON_OBJECT ? text : job->config;
}

/* peft_model.py, _setup_prompt_encoder: the word embedding is the first parameter with a row per token. */
static uint32_t word_embeddings(const tide_model *model, const tide_job *job) {
    int64_t vocab = FIRST_OF(text_config(job), "vocab_size");
    for (uint32_t i = 0; i < model->parameter_count && vocab; i++)
        if (model->parameters[i].tensor->shape->dim[0].size == vocab) return model->parameters[i].module;
    return 0;
}

/* A decoder that predicts tokens, for peft's PeftModelForCausalLM. */
static bool is_causal(tide_model *model, const tide_job *job) {
    const tide_json *names = tide_json_at(job->config, "architectures"), *name = names ? names->first : NULL;
    if (name && name->kind == TIDE_JSON_STRING && tide_text_matches(name->text, TIDE_TEXT("*Classification*")))
        return false;
    bool has_encoder = tide_method_find(model->instances[model->root].of, TIDE_TEXT("encode")) != NULL;
    return !has_encoder && tide_model_takes(model, "input_ids") && tide_model_takes(model, "labels") &&
           tide_model_takes(model, "attention_mask") && !tide_model_takes(model, "pixel_values");
}

/* A text encoder with a decoder, whose inputs may be embeddings, for PeftModelForSeq2SeqLM. */
static bool is_seq2seq(tide_model *model) {
    bool has_encoder = tide_method_find(model->instances[model->root].of, TIDE_TEXT("encode")) != NULL;
    return has_encoder && tide_model_takes(model, "input_ids") && tide_model_takes(model, "labels") &&
           tide_model_takes(model, "inputs_embeds");
}

static const struct {
    const char *class_name, *seq2seq; /* NULL: not described */
} wrappers[] = {[TIDE_adapter_prompt_tuning] = {"PromptTuning", "PromptTuningSeq2Seq"},
                [TIDE_adapter_p_tuning] = {"PTuning", "PTuningSeq2Seq"},
                [TIDE_adapter_prefix_tuning] = {"PrefixTuning", NULL}};

static tide_value size_named(tide_model *model, int64_t n, const char *name) {
    tide_value v = tide_of_int(n);
    v.symbol = tide_symbol_name(model->m, tide_text_of(name));
    return v;
}

/* utils/other.py, _prepare_prompt_learning_config */
bool tide_add_prompt(tide_model *model, const tide_job *job) {
    const tide_json *config = text_config(job);
    bool is_prefix = job->adapter == TIDE_adapter_prefix_tuning;
    uint32_t embeddings = word_embeddings(model, job);
    int64_t layers = FIRST_OF(config, "num_hidden_layers", "num_layers", "n_layer"),
            width = FIRST_OF(config, "hidden_size", "n_embd", "d_model");
    int64_t heads = FIRST_OF(config, "num_attention_heads", "n_head", "num_heads", "encoder_attention_heads");
    int64_t kv_heads = FIRST_OF(config, "num_key_value_heads"), head_dim = FIRST_OF(config, "head_dim");
    const char *class_name = is_causal(model, job) ? wrappers[job->adapter].class_name
                             : is_seq2seq(model)   ? wrappers[job->adapter].seq2seq
                                                   : NULL;
    if (!embeddings || !layers || !heads || !width || !class_name)
        return refuse_prompt(
            model,
            tide_format(model->m->arena, "is %s, which is described for language models that are decoders%s",
                        job->values[TIDE_SET_adapter],
                        wrappers[job->adapter].seq2seq ? ", or take embeddings for their encoder" : " alone"),
            "give lora or ia3");
    if (is_prefix && model->state.is_checkpointing)
        return refuse_prompt(model, "is prefix_tuning, which peft refuses with gradient checkpointing",
                             "give checkpointing=none");
    bool takes_embeds = tide_model_takes(model, "inputs_embeds");
    if (!is_prefix && !takes_embeds)
        embeddings = tide_model_wrap(model, embeddings, TIDE_TEXT("GivenEmbedding"), NULL, 0);
    if (!head_dim) head_dim = width / heads;
    if (is_prefix && kv_heads) heads = kv_heads;
    int64_t token_dim = is_prefix ? heads * head_dim : width, encoder = job->adapter_encoder_hidden_size;
    tide_value arguments[] = {{.kind = TIDE_VALUE_MODULE, .module = embeddings},
                              size_named(model, job->adapter_num_virtual_tokens, "virtual"),
                              size_named(model, token_dim, "token_dim"),
                              size_named(model, layers, "layers"),
                              size_named(model, heads, "heads"),
                              size_named(model, encoder ? encoder : token_dim, "encoder"),
                              tide_of_bool(job->adapter_prefix_projection),
                              tide_of_bool(takes_embeds)};
    uint32_t made = tide_model_wrap(model, model->root, tide_text_of(class_name), arguments, TIDE_COUNT_OF(arguments));
    if (made) tide_model_call(model, made, TIDE_TEXT("init"), TIDE_FACTOR_PARAMETER);
    if (is_prefix) *tide_model_setting(model, "past_length") = tide_of_int(job->adapter_num_virtual_tokens);
    return made != 0;
}
