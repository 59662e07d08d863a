/* SPDX-License-Identifier: Apache-2.0 */
/* What programs do for some types of models when they load them. */
#include <string.h>

#include "base/units.h"
#include "job/builder.h"

static bool is_of_program(const tide_job_builder *b, const char *programs) {
    return b->inputs.program && tide_text_is_among(tide_text_of(b->inputs.program), programs);
}

/* axolotl 0.19: loaders/model.py, _set_quantization_config. */
static void skip_layers(tide_job_builder *b, tide_text type) {
    static const struct {
        const char *types, *quant, *skip;
    } rows[] = {{"falcon_h1", "nf4|int8", "out_proj"}, {"jamba", "int8", "mamba"}};
    const char *quant = tide_argument_text(&b->arguments, TIDE_SET_quant);
    if (!is_of_program(b, "axolotl") || b->arguments.is_given[TIDE_SET_quant_skip]) return;
    for (size_t i = 0; i < TIDE_COUNT_OF(rows); i++)
        if (tide_text_is_among(type, rows[i].types) && tide_text_is_among(tide_text_of(quant), rows[i].quant))
            tide_setting_put(&b->arguments, TIDE_TEXT("quant.skip"), tide_text_of(rows[i].skip), TIDE_ORIGIN_FILE);
}

/* transformers/models/auto/modeling_auto.py: MODEL_FOR_CAUSAL_LM_MAPPING_NAMES makes the text model of these. */
static void say_class(tide_job_builder *b, tide_text type) {
    if (!b->is_of_catalogue || b->inputs.program || !tide_text_is_among(type, "llama4|qwen3_5|qwen3_5_moe")) return;
    tide_report(b->diags, TIDE_ASSUMPTION, TIDE_OK, "/settings/model",
                "the whole model, as AutoModelForImageTextToText loads it; AutoModelForCausalLM loads its text model "
                "alone",
                "the catalogue has that with -text at the end of its name");
}

/* axolotl 0.19: loaders/model.py, _resize_token_embeddings. A tokenizer has at most vocab_size tokens, unless the file
 * adds some: rounded up to 32 they still fit if vocab_size is a multiple of it. */
static void resize_embeddings(tide_job_builder *b) {
    tide_file_key *key = b->inputs.resizes;
    const tide_json *text = tide_json_at(b->inputs.config, "text_config");
    const tide_json *size = tide_json_at(text ? text : b->inputs.config, "vocab_size");
    if (!key || (size && size->is_integer && size->integer % 32 == 0)) return;
    key->effect = TIDE_KEY_UNSUPPORTED;
    tide_report(b->diags, TIDE_WARNING, TIDE_ERR_UNSUPPORTED, b->inputs.resizes_place,
                tide_format(b->arena, "%s is not described and may matter: it makes the embeddings larger", key->key),
                "say overrides.vocab_size=N, a multiple of 32");
    tide_leave_undescribed(b, key->key);
}

/* axolotl 0.19: core/builders/causal.py, build_collator: without a processor the samples are text. */
static void leave_images_out(tide_job_builder *b) {
    const tide_json *config = b->inputs.config;
    bool sees_images = tide_json_at(config, "image_token_id") || tide_json_at(config, "image_token_index");
    if (!is_of_program(b, "axolotl") || b->inputs.has_processor || !sees_images) return;
    if (b->arguments.is_given[TIDE_SET_images] || b->arguments.is_given[TIDE_SET_video]) return;
    tide_setting_put(&b->arguments, TIDE_TEXT("images"), TIDE_TEXT("0"), TIDE_ORIGIN_FILE);
}

void tide_load_as_program(tide_job_builder *b) {
    const tide_json *type = tide_json_at(b->inputs.config, "model_type");
    if (!tide_json_is(type, TIDE_JSON_STRING)) return;
    skip_layers(b, type->text);
    say_class(b, type->text);
    resize_embeddings(b);
    leave_images_out(b);
}
