/* SPDX-License-Identifier: Apache-2.0 */
/* Types and ranges of configuration entries that are read as sizes, probabilities or switches. Values that no model has
 * are reported here, with their place; how entries fit together is checked by the description. */
#include "job/arguments.h"

#include "base/units.h"

#include <inttypes.h>
#include <string.h>

typedef enum entry_kind { ENTRY_SIZE, ENTRY_SIDES, ENTRY_PROBABILITY, ENTRY_SWITCH } entry_kind;

/* least and most are limits of a size, or of each of two sides. `null` or a missing key means the model's default. */
static const struct {
    const char *pattern;
    entry_kind kind;
    int64_t least, most;
} entries[] = {
    {"num_hidden_layers", ENTRY_SIZE, 0, 2000},
    {"n_layer", ENTRY_SIZE, 0, 2000},
    {"num_layers", ENTRY_SIZE, 0, 2000},
    {"encoder_layers", ENTRY_SIZE, 0, 2000},
    {"decoder_layers", ENTRY_SIZE, 0, 2000},
    {"hidden_size", ENTRY_SIZE, 1, 1 << 24},
    {"d_model", ENTRY_SIZE, 1, 1 << 24},
    {"n_embd", ENTRY_SIZE, 1, 1 << 24},
    {"intermediate_size", ENTRY_SIZE, 1, 1 << 26},
    {"n_inner", ENTRY_SIZE, 1, 1 << 26},
    {"num_attention_heads", ENTRY_SIZE, 1, 1 << 20},
    {"n_head", ENTRY_SIZE, 1, 1 << 20},
    {"num_key_value_heads", ENTRY_SIZE, 1, 1 << 20},
    {"head_dim", ENTRY_SIZE, 1, 1 << 20},
    {"vocab_size", ENTRY_SIZE, 1, 1 << 30},
    {"max_position_embeddings", ENTRY_SIZE, 1, INT64_C(1) << 40},
    {"n_positions", ENTRY_SIZE, 1, 1 << 30},
    {"projection_dim", ENTRY_SIZE, 1, 1 << 24},
    {"num_channels", ENTRY_SIZE, 1, 1 << 16},
    {"image_size", ENTRY_SIDES, 1, 1 << 16},
    {"patch_size", ENTRY_SIDES, 1, 1 << 16},
    {"sliding_window", ENTRY_SIZE, 1, INT64_C(1) << 40},
    {"*dropout", ENTRY_PROBABILITY, 0, 1},
    {"*dropout_prob", ENTRY_PROBABILITY, 0, 1},
    {"*_pdrop", ENTRY_PROBABILITY, 0, 1},
    {"tie_word_embeddings", ENTRY_SWITCH, 0, 0},
    {"use_cache", ENTRY_SWITCH, 0, 0},
    {"attention_bias", ENTRY_SWITCH, 0, 0},
    {"mlp_bias", ENTRY_SWITCH, 0, 0},
    {"multimodal_projector_bias", ENTRY_SWITCH, 0, 0},
    {"use_sliding_window", ENTRY_SWITCH, 0, 0},
    {"vision_use_head", ENTRY_SWITCH, 0, 0},
};

const char *tide_job_config_place(tide_arena *arena, const tide_job *job, const tide_json *entry) {
    const char *pointer = tide_json_place(arena, entry, "");
    for (uint32_t i = 0; i < job->row_count; i++) {
        const char *path = job->rows[i].name;
        if (strncmp(path, "overrides.", 10) != 0) continue;
        const char *a = path + 10, *b = pointer + 1; /* "a.b" and "a/b" */
        while (*a && (*a == *b || (*a == '.' && *b == '/'))) a++, b++;
        if (*pointer && !*a && (!*b || *b == '/')) return tide_format(arena, "/settings/%s", path);
    }
    return tide_format(arena, "/config.json%s", pointer);
}

bool tide_config_is_size(tide_text key) {
    for (size_t i = 0; i < TIDE_COUNT_OF(entries); i++)
        if (entries[i].kind == ENTRY_SIZE && tide_text_is(key, entries[i].pattern)) return true;
    return false;
}

/* The value as in the file; an array or object by its kind. */
static const char *entry_shown(tide_arena *arena, const tide_json *entry) {
    if (entry->kind == TIDE_JSON_ARRAY || entry->kind == TIDE_JSON_OBJECT) return tide_json_kind_name(entry);
    if (entry->kind == TIDE_JSON_STRING) return tide_format(arena, "\"%s\"", tide_shown(arena, entry->text));
    return tide_argument_json_text(arena, entry);
}

static bool is_within(const tide_json *value, int64_t least, int64_t most) {
    return value->kind == TIDE_JSON_NUMBER && value->is_integer && value->integer >= least && value->integer <= most;
}

/* [height, width], or a number for each stage */
static bool are_sides(const tide_json *entry, int64_t least, int64_t most) {
    bool fit = entry->kind == TIDE_JSON_ARRAY && (entry->count == 2 || entry->count == 4);
    for (const tide_json *side = fit ? entry->first : NULL; side; side = side->next)
        fit = fit && is_within(side, least, most);
    return fit;
}

static bool entry_check(tide_arena *arena, const tide_job *job, const tide_json *entry, size_t rule,
                        tide_diagnostics *diags) {
    int64_t least = entries[rule].least, most = entries[rule].most;
    bool is_number = entry->kind == TIDE_JSON_NUMBER;
    const char *wanted = "true or false";
    tide_status status = is_number ? TIDE_ERR_FIELD_RANGE : TIDE_ERR_FIELD_TYPE;
    switch (entries[rule].kind) {
    case ENTRY_SIDES:
        if (are_sides(entry, least, most)) return true; /* fall through */
    case ENTRY_SIZE:
        if (is_within(entry, least, most)) return true;
        wanted = tide_format(arena, "a whole number from %" PRId64 " to %" PRId64, least, most);
        break;
    case ENTRY_PROBABILITY:
        if (entry->kind == TIDE_JSON_BOOL) return true; /* a switch of another meaning, such as token_dropout */
        if (is_number && entry->number >= 0 && entry->number <= 1) return true;
        wanted = "a number from 0 to 1";
        break;
    case ENTRY_SWITCH:
        if (entry->kind == TIDE_JSON_BOOL) return true;
        status = TIDE_ERR_FIELD_TYPE;
        break;
    }
    return tide_error(
        diags, status, tide_job_config_place(arena, job, entry),
        tide_format(arena, "%s is %s; must be %s", tide_shown(arena, entry->key), entry_shown(arena, entry), wanted),
        "compare with the model's published config.json");
}

static bool object_check(tide_arena *arena, const tide_job *job, const tide_json *object, tide_diagnostics *diags) {
    bool is_right = true;
    for (const tide_json *entry = object->first; entry; entry = entry->next) {
        if (entry->kind == TIDE_JSON_NULL) continue;
        if (tide_text_matches(entry->key, TIDE_TEXT("*_config"))) {
            if (entry->kind == TIDE_JSON_OBJECT) is_right = object_check(arena, job, entry, diags) && is_right;
            continue;
        }
        for (size_t i = 0; i < TIDE_COUNT_OF(entries); i++)
            if (tide_text_matches(entry->key, tide_text_of(entries[i].pattern))) {
                is_right = entry_check(arena, job, entry, i, diags) && is_right;
                break;
            }
    }
    return is_right;
}

bool tide_job_check_config(tide_arena *arena, const tide_job *job, tide_diagnostics *diags) {
    return object_check(arena, job, job->config, diags);
}
