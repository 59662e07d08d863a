/* SPDX-License-Identifier: Apache-2.0 */
/* DeepSpeed configurations that a file refers to by path and that were not given, but are published by its program. */
#include "job/readers/claims.h"

#include <string.h>

#include "base/units.h"

static bool is_path_of(const char *path, const char *published) {
    size_t length = strlen(path), of_published = strlen(published);
    if (length < of_published || strcmp(path + length - of_published, published) != 0) return false;
    return length == of_published || path[length - of_published - 1] == '/';
}

bool tide_published_take(tide_claims *c, const char *path) {
    static const struct {
        const char *program, *path, *configuration;
    } rows[] = {
#define TIDE_PUBLISHED(program, path, configuration) {program, path, configuration},
#include "job/readers/published.def"
#undef TIDE_PUBLISHED
    };
    const char *program = c->inputs->program ? c->inputs->program : "";
    for (size_t i = 0; i < TIDE_COUNT_OF(rows); i++) {
        if (strcmp(program, rows[i].program) != 0 || !is_path_of(path, rows[i].path)) continue;
        const char *place = c->fact_places[TIDE_FACT_deepspeed];
        const tide_json *root = tide_json_parse(c->arena, tide_text_of(rows[i].configuration), place, c->diags);
        if (!root) return false;
        const char *slash = strrchr(rows[i].path, '/');
        tide_claims_add(c, &tide_deepspeed_reader, root, slash ? slash + 1 : rows[i].path, place);
        tide_report(c->diags, TIDE_ASSUMPTION, TIDE_OK, place,
                    tide_format(c->arena, "%s is not given: assumed to be as published by %s", rows[i].path, program),
                    "give the file itself if yours differs");
        return true;
    }
    return false;
}
