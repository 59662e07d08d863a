/* SPDX-License-Identifier: Apache-2.0 */
/* Defaults from a recipe, or from an older version of a library. */
#include <string.h>

#include "base/units.h"
#include "job/builder.h"
#include "lang/lang.h"

void tide_read_recipe(tide_job_builder *b) {
    const char *name = tide_argument_text(&b->arguments, TIDE_SET_recipe);
    for (uint32_t i = 0; i < tide_recipe_source_count; i++) {
        const tide_source *source = &tide_recipe_sources[i];
        if (strcmp(source->name, name) != 0) continue;
        const char *place = tide_format(b->arena, "/recipes/%s", name);
        tide_source whole = tide_source_whole(b->arena, source);
        const tide_json *recipe = tide_json_parse(b->arena, (tide_text){whole.text, whole.length}, place, b->diags);
        const tide_json *settings = tide_json_at(recipe, "settings");
        if (settings) tide_arguments_of_json(&b->arguments, settings, TIDE_ORIGIN_RECIPE);
    }
}

/* Defaults of an older version, from the rows of versions.def. */
static void read_defaults(tide_job_builder *b) {
    static const struct {
        tide_setting_id library, setting;
        int since;
        const char *before, *what, *source;
    } rows[] = {
#define TIDE_VERSION(library, major, minor, setting, before, what, source)                                             \
    {TIDE_SET_##library, TIDE_SET_##setting, 1000 * (major) + (minor), before, what, source},
#include "job/versions.def"
    };
    for (size_t i = 0; i < TIDE_COUNT_OF(rows); i++) {
        int number = tide_version_number(tide_argument_text(&b->arguments, rows[i].library));
        if (!number || number >= rows[i].since || b->arguments.is_given[rows[i].setting]) continue;
        tide_setting_put(&b->arguments, tide_text_of(tide_settings[rows[i].setting].name), tide_text_of(rows[i].before),
                         TIDE_ORIGIN_RECIPE);
        tide_report(b->diags, TIDE_ASSUMPTION, TIDE_OK, tide_builder_place(b, rows[i].setting),
                    tide_format(b->arena, "%s=%s: %s (%s)", tide_settings[rows[i].library].name,
                                tide_argument_text(&b->arguments, rows[i].library), rows[i].what, rows[i].source),
                    NULL);
    }
}

/* Versions that are too far from the recorded one for a range. */
static void check_described(tide_job_builder *b, tide_setting_id library, int number) {
    static const struct {
        tide_setting_id library;
        int since;
        const char *keys, *what;
    } rows[] = {
#define TIDE_UNDESCRIBED(library, major, minor, keys, what) {TIDE_SET_##library, 1000 * (major) + (minor), keys, what},
#include "job/versions.def"
    };
    for (size_t i = 0; i < TIDE_COUNT_OF(rows); i++) {
        tide_text rest = tide_text_of(rows[i].keys), key;
        if (rows[i].library != library || number >= rows[i].since) continue;
        while (tide_piece_next(&rest, '|', &key))
            if (tide_json_find(b->inputs.config, key))
                tide_error(b->diags, TIDE_ERR_UNSUPPORTED, tide_builder_place(b, library),
                           tide_format(b->arena, "%s of this model %s, which is not described",
                                       tide_argument_text(&b->arguments, library), rows[i].what),
                           "leave it out for the figures of a newer version, or run the program with `tidemark "
                           "dry-run`");
    }
}

static void read_version(tide_job_builder *b, tide_setting_id library) {
    const char *given = tide_argument_text(&b->arguments, library), *asked = b->job->versions_asked;
    int number = tide_version_number(given);
    if (!number) {
        tide_error(b->diags, TIDE_ERR_FIELD_TYPE, tide_builder_place(b, library),
                   tide_format(b->arena, "\"%s\" is no version", tide_shown(b->arena, tide_text_of(given))),
                   tide_format(b->arena, "write as %s", tide_setting_default(library)));
        return;
    }
    int64_t percent = tide_unrecorded_percent(library, number);
    if (!percent) return;
    if (b->inputs.config) check_described(b, library, number);
    const char *one = tide_format(b->arena, "%s %s", tide_settings[library].name, given);
    b->job->versions_percent += percent;
    b->job->versions_asked = asked ? tide_format(b->arena, "%s or %s", asked, one) : one;
    tide_report(b->diags, TIDE_ASSUMPTION, TIDE_OK, tide_builder_place(b, library),
                tide_format(b->arena,
                            "no run of %s is recorded: judging by known changes and the rules of %s, the peak may "
                            "differ by %lld %%%s",
                            one, tide_setting_default(library), (long long)percent,
                            library == TIDE_SET_torch ? ", which no run confirms" : ""),
                NULL);
}

void tide_read_versions(tide_job_builder *b) {
    read_version(b, TIDE_SET_torch);
    if (!tide_json_at(b->inputs.config, "_class_name") && !tide_json_at(b->inputs.config, "architecture"))
        read_version(b, TIDE_SET_transformers);
    read_defaults(b);
}
