/* SPDX-License-Identifier: Apache-2.0 */
/* What transformers, and torch below it, refuse of a configuration: entries that do not fit together. */
#include "job/builder.h"

#include <inttypes.h>

#include "base/units.h"

enum { LEAST_CHECKED = 4057 }; /* transformers as tide_version_number() returns it: layer_type_validation() counts */

/* "layer_types" as overrides give it. */
static const char *path_of(tide_arena *arena, const tide_json *entry) {
    const char *place = tide_json_place(arena, entry, "");
    char *path = tide_format(arena, "overrides.%s", *place == '/' ? place + 1 : place);
    for (char *at = path; *at; at++)
        if (*at == '/') *at = '.';
    return path;
}

/* The first layers' types, as an argument. */
static const char *types_of_first(tide_arena *arena, const tide_json *types, int64_t layers) {
    const char *list = "";
    const tide_json *type = types->first;
    for (int64_t i = 0; i < layers; i++, type = type->next)
        list = tide_format(arena, "%s%s\"%s\"", list, i ? "," : "",
                           tide_json_is(type, TIDE_JSON_STRING) ? tide_shown(arena, type->text) : "?");
    return tide_format(arena, "add '%s=[%s]'", path_of(arena, types), list);
}

/* configuration_utils.py, validate_layer_type(). */
static bool check_layer_types(tide_arena *arena, const tide_job *job, const tide_json *part, tide_diagnostics *diags) {
    static const char *const keys[] = {"layer_types", "mlp_layer_types"};
    const tide_json *layers = tide_json_at(part, "num_hidden_layers");
    bool is_right = true, is_counted = layers && layers->kind == TIDE_JSON_NUMBER && layers->is_integer;
    if (!is_counted || tide_version_number(job->values[TIDE_SET_transformers]) < LEAST_CHECKED) return true;
    for (size_t i = 0; i < TIDE_COUNT_OF(keys); i++) {
        const tide_json *types = tide_json_at(part, keys[i]);
        if (!tide_json_is(types, TIDE_JSON_ARRAY)) break;
        if (types->count == layers->integer) continue;
        is_right = tide_error(
            diags, TIDE_ERR_CONFLICT, tide_job_config_place(arena, job, layers),
            tide_format(arena, "\"`num_hidden_layers` (%" PRId64 ") must be equal to the number of `%s` (%u)\"",
                        layers->integer, keys[i], (unsigned)types->count),
            layers->integer < types->count ? types_of_first(arena, types, layers->integer)
                                           : tide_format(arena, "give %s for each layer", path_of(arena, types)));
    }
    return is_right;
}

/* Whether an entry is as published: of the catalogue, and not overridden. */
static bool is_published(tide_arena *arena, const tide_job *job, const tide_json *entry) {
    return !job->config_text.length &&
           (!entry ||
            tide_text_starts(tide_text_of(tide_job_config_place(arena, job, entry)), TIDE_TEXT("/config.json")));
}

/* torch.nn.Embedding, which models make with config.pad_token_id. */
static bool check_padding(tide_arena *arena, const tide_job *job, const tide_json *part, tide_diagnostics *diags) {
    const tide_json *type = tide_json_at(part, "model_type"), *vocabulary = tide_json_at(part, "vocab_size");
    const tide_json *given = tide_json_at(part, "pad_token_id");
    if (!tide_json_is(type, TIDE_JSON_STRING) || !tide_json_is(vocabulary, TIDE_JSON_NUMBER)) return true;
    if (is_published(arena, job, vocabulary) && is_published(arena, job, given)) return true;
    const tide_json *defaults = tide_config_defaults_of(arena, type->text, diags),
                    *default_id = tide_json_at(defaults, "@padding_idx"), *id = given ? given : default_id;
    if (!default_id || !tide_json_is(id, TIDE_JSON_NUMBER) || id->integer < vocabulary->integer) return true;
    return tide_error(
        diags, TIDE_ERR_CONFLICT, tide_job_config_place(arena, job, given ? given : vocabulary),
        tide_format(arena,
                    "torch.nn.Embedding: \"Padding_idx must be within num_embeddings\": pad_token_id is %" PRId64
                    "%s, of a vocabulary of %" PRId64,
                    id->integer, given ? "" : ", the default of transformers' class", vocabulary->integer),
        tide_format(arena, "give a pad_token_id within it as well, or vocab_size=%" PRId64 " and more",
                    id->integer + 1));
}

/* _init_weights() of transformers, which a trainer's from_pretrained() calls with gathered parameters. */
static bool check_partitioned_padding(tide_arena *arena, const tide_job *job, const tide_json *part,
                                      tide_diagnostics *diags) {
    const tide_json *type = tide_json_at(part, "model_type");
    if (!tide_job_has_zero_init(job) || tide_job_has_trainer(job) || !tide_json_is(type, TIDE_JSON_STRING)) return true;
    const tide_json *given = tide_json_at(part, "pad_token_id"),
                    *default_id = tide_json_at(tide_config_defaults_of(arena, type->text, diags), "@padding_idx"),
                    *id = given ? given : default_id;
    if (!default_id || !tide_json_is(id, TIDE_JSON_NUMBER)) return true;
    return tide_error(
        diags, TIDE_ERR_CONFLICT, "/settings/parallel.zero_init",
        tide_format(arena,
                    "the embedding of padding is set to zero when the weight is partitioned: \"index %" PRId64
                    " is out of bounds for dimension 0 with size 0\"",
                    id->integer),
        "use trainer=hf, whose from_pretrained() gathers what it initialises, or parallel.zero_init=false");
}

static bool check_part(tide_arena *arena, const tide_job *job, const tide_json *part, tide_diagnostics *diags) {
    bool is_right = check_layer_types(arena, job, part, diags);
    is_right = check_padding(arena, job, part, diags) && is_right;
    is_right = check_partitioned_padding(arena, job, part, diags) && is_right;
    for (const tide_json *entry = part->first; entry; entry = entry->next)
        if (entry->kind == TIDE_JSON_OBJECT && tide_text_matches(entry->key, TIDE_TEXT("*_config")))
            is_right = check_part(arena, job, entry, diags) && is_right;
    return is_right;
}

bool tide_job_check_library(tide_arena *arena, const tide_job *job, tide_diagnostics *diags) {
    return !tide_job_is_of_transformers(job) || check_part(arena, job, job->config, diags);
}
