/* SPDX-License-Identifier: Apache-2.0 */
/* What in LLaMA-Factory's files depends on the model: parts and layers that are frozen, or left without adapters, and
 * the size of images. */
#include "job/builder.h"

#include <inttypes.h>
#include <string.h>

#include "base/units.h"

typedef struct composite {
    const char *types, *parts[3]; /* vision tower, projector, language model */
} composite;

static const composite *composite_of(const tide_json *config) {
    static const composite rows[] = {
#define TIDE_COMPOSITE(types, vision, projector, language) {types, {vision, projector, language}},
#include "job/composites.def"
#undef TIDE_COMPOSITE
    };
    const tide_json *type = tide_json_at(config, "model_type");
    for (size_t i = 0; i < TIDE_COUNT_OF(rows) && tide_json_is(type, TIDE_JSON_STRING); i++) {
        if (tide_text_is_among(type->text, rows[i].types)) return &rows[i];
    }
    return NULL;
}

/* A comma-separated list of names, joined by bars. */
static const char *bars_of(tide_arena *arena, const char *names) {
    const char *joined = "";
    tide_text rest = tide_text_of(names), one;
    while (tide_piece_next(&rest, ',', &one))
        joined = tide_format(arena, "%s%s%.*s", joined, *joined ? "|" : "", (int)one.length, one.at);
    return joined;
}

/* Such a list as a regular expression over full paths. */
static const char *pattern_of(tide_arena *arena, const char *names) {
    return tide_format(arena, "(.*\\.)?(%s)(\\..*)?", bars_of(arena, names));
}

enum { PROJECTOR = 1 /* in composite.parts */, IMAGE_SIDE_LIMIT = 65536 /* of image_size */ };

/* A part of the model's names, without those of audio if the model has none. */
static const char *part_of(const tide_job_builder *b, const composite *of, size_t part) {
    const char *joined = "";
    tide_text rest = tide_text_of(of->parts[part]), one;
    bool has_audio = tide_json_is(tide_json_at(b->inputs.config, "audio_config"), TIDE_JSON_OBJECT);
    while (tide_piece_next(&rest, ',', &one))
        if (has_audio || !tide_text_matches_one(one, "audio_tower|embed_audio"))
            joined = tide_format(b->arena, "%s%s%.*s", joined, *joined ? "," : "", (int)one.length, one.at);
    return joined;
}

static void freeze_parts(tide_job_builder *b, const composite *found) {
    const char *names = "";
    for (size_t i = 0; found && i < TIDE_COUNT_OF(found->parts); i++)
        if (b->inputs.frozen_parts & 1u << i)
            names = tide_format(b->arena, "%s%s%s", names, *names ? "," : "", part_of(b, found, i));
    bool adapts = tide_arguments_adapt(&b->arguments);
    tide_setting_id setting = adapts ? TIDE_SET_adapter_exclude_modules : TIDE_SET_freeze;
    if (!*names || b->arguments.is_given[setting]) return;
    tide_setting_put(&b->arguments, tide_text_of(tide_settings[setting].name),
                     tide_text_of(adapts ? pattern_of(b->arena, names) : names), TIDE_ORIGIN_FILE);
}

static int64_t layer_count_of(const tide_json *config) {
    static const char *const keys[] = {"num_hidden_layers", "num_layers", "n_layer"};
    const tide_json *text = tide_json_at(config, "text_config");
    for (size_t i = 0; i < TIDE_COUNT_OF(keys); i++) {
        const tide_json *count = tide_json_at(text ? text : config, keys[i]);
        if (tide_json_is(count, TIDE_JSON_NUMBER) && count->integer > 0) return count->integer;
    }
    return 0;
}

/* The numbers of the layers that train, joined by bars. */
static const char *trainable_layers(const tide_job_builder *b, int64_t layers) {
    const tide_freeze_tuning *of = &b->inputs.freeze_tuning;
    int64_t count = of->layers < 0 ? -of->layers : of->layers, step = of->is_llama_pro ? layers / count : 1;
    int64_t first = of->is_llama_pro ? step - 1 : of->layers < 0 || count > layers ? 0 : layers - count;
    const char *joined = NULL;
    for (int64_t i = 0, at = first; i < count && at < layers; i++, at += step)
        joined = joined ? tide_format(b->arena, "%s|%" PRId64, joined, at) : tide_format(b->arena, "%" PRId64, at);
    return joined;
}

/* model/adapter.py, _setup_freeze_tuning(): parameters train whose names have the number of such a layer in them, or
 * the name of another module that is given, or that of the projector. */
static void train_layers(tide_job_builder *b, const composite *found) {
    const tide_freeze_tuning *of = &b->inputs.freeze_tuning;
    int64_t layers = layer_count_of(b->inputs.config);
    if (!of->is_asked || b->arguments.is_given[TIDE_SET_train_only]) return;
    if (!layers || !of->layers || (of->is_llama_pro && (of->layers < 0 || layers % of->layers))) {
        tide_error(b->diags, TIDE_ERR_CONFLICT, of->place,
                   !layers ? "\"Current model does not support freeze tuning.\""
                           : tide_format(b->arena,
                                         "\"`num_layers` %" PRId64
                                         " should be divisible by `num_layer_trainable` %" PRId64 ".\"",
                                         layers, of->layers),
                   "give train_only with prefixes of the names of the parameters that train");
        return;
    }
    bool takes_all = strcmp(of->modules, "all") == 0;
    const char *pattern = tide_format(b->arena, "^.*\\.(%s)\\.%s", trainable_layers(b, layers),
                                      takes_all ? "" : tide_format(b->arena, "(%s)", bars_of(b->arena, of->modules)));
    const char *others = found && !(b->inputs.frozen_parts & 1u << PROJECTOR) ? part_of(b, found, PROJECTOR) : "";
    if (of->extra_modules) others = tide_format(b->arena, "%s%s%s", others, *others ? "," : "", of->extra_modules);
    if (*others) pattern = tide_format(b->arena, "%s,^.*(%s)", pattern, bars_of(b->arena, others));
    tide_setting_put(&b->arguments, TIDE_TEXT("train_only"), tide_text_of(pattern), TIDE_ORIGIN_FILE);
}

/* data/mm_plugin.py, _preprocess_image(): larger images become smaller before the model's processor sees them. */
static void limit_images(tide_job_builder *b) {
    static const char resized[] =
        "qwen2_vl|qwen2_5_vl|qwen3_vl|qwen3_vl_moe|qwen3_5|qwen3_5_moe|glm4v|glm46v|glm4v_moe",
                      fixed[] = "llava|gemma3|paligemma";
    const tide_json *type = tide_json_at(b->inputs.config, "model_type");
    bool has_images = tide_json_at(b->inputs.config, "vision_config") && tide_json_is(type, TIDE_JSON_STRING);
    int64_t most = b->inputs.image_max_pixels, side = 1;
    has_images = has_images && strcmp(tide_argument_text(&b->arguments, TIDE_SET_images), "0") != 0;
    if (most <= 0 || !has_images || b->arguments.is_given[TIDE_SET_image_size] || tide_text_is_among(type->text, fixed))
        return;
    if (!tide_text_is_among(type->text, resized)) {
        tide_leave_undescribed(b, "image_max_pixels");
        return;
    }
    while (side < IMAGE_SIDE_LIMIT && (side + 1) * (side + 1) <= most) side++;
    tide_setting_put(&b->arguments, TIDE_TEXT("image_size"),
                     tide_text_of(tide_format(b->arena, "%" PRId64 "x%" PRId64, side, side)), TIDE_ORIGIN_FILE);
    tide_report(b->diags, TIDE_ASSUMPTION, TIDE_OK, "/settings/image_size",
                "the largest square image that image_max_pixels leaves as it is", NULL);
}

void tide_load_as_factory(tide_job_builder *b) {
    if (!b->inputs.config) return;
    const composite *found = composite_of(b->inputs.config);
    if (b->inputs.frozen_parts) freeze_parts(b, found);
    train_layers(b, found);
    limit_images(b);
}
