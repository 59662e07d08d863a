/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of a model that LLaMA-Factory freezes, or leaves without adapters; what they are depends on the model. */
#include "job/builder.h"

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

/* A comma-separated list of names as a regular expression over full paths. */
static const char *pattern_of(tide_arena *arena, const char *names) {
    const char *joined = "";
    tide_text rest = tide_text_of(names), one;
    while (tide_piece_next(&rest, ',', &one))
        joined = tide_format(arena, "%s%s%.*s", joined, *joined ? "|" : "", (int)one.length, one.at);
    return tide_format(arena, "(.*\\.)?(%s)(\\..*)?", joined);
}

void tide_freeze_composite(tide_job_builder *b) {
    const composite *found = b->inputs.config && b->inputs.frozen_parts ? composite_of(b->inputs.config) : NULL;
    const char *names = "";
    for (size_t i = 0; found && i < 3; i++)
        if (b->inputs.frozen_parts & 1u << i)
            names = tide_format(b->arena, "%s%s%s", names, *names ? "," : "", found->parts[i]);
    bool adapts = tide_arguments_adapt(&b->arguments);
    tide_setting_id setting = adapts ? TIDE_SET_adapter_exclude_modules : TIDE_SET_freeze;
    if (!*names || b->arguments.is_given[setting]) return;
    tide_setting_put(&b->arguments, tide_text_of(tide_settings[setting].name),
                     tide_text_of(adapts ? pattern_of(b->arena, names) : names), TIDE_ORIGIN_FILE);
}
