/* What a recipe or an older version of a library says where nothing is given. */
#include "job/builder.h"

#include <stdlib.h>
#include <string.h>

#include "base/units.h"
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

/* "2.4", "2.4.1" or "2.4.0+cu121" as 2004; 0: none of these. */
static int version_number(const char *text) {
    char *rest;
    long major = strtol(text, &rest, 10);
    if (rest == text || *rest != '.' || major < 0 || major > 99) return 0;
    const char *from = rest + 1;
    long minor = strtol(from, &rest, 10);
    if (rest == from || (*rest && *rest != '.' && *rest != '+' && *rest != 'a' && *rest != 'b' && *rest != 'r') ||
        minor < 0 || minor > 999)
        return 0;
    return (int)(1000 * major + minor);
}

/* What an older version has as a default where nothing is given; the rows of versions.def. */
void tide_read_versions(tide_job_builder *b) {
    static const struct {
        tide_setting_id library, setting;
        int since;
        const char *before, *what, *source;
    } rows[] = {
#define TIDE_VERSION(library, major, minor, setting, before, what, source)                                             \
    {TIDE_SET_##library, TIDE_SET_##setting, 1000 * (major) + (minor), before, what, source},
#include "job/versions.def"
#undef TIDE_VERSION
    };
    static const tide_setting_id libraries[] = {TIDE_SET_torch, TIDE_SET_transformers};
    for (size_t i = 0; i < TIDE_COUNT_OF(libraries); i++)
        if (!version_number(tide_argument_text(&b->arguments, libraries[i])))
            tide_error(b->diags, TIDE_ERR_FIELD_TYPE, tide_builder_place(b, libraries[i]),
                       tide_format(b->arena, "\"%s\" is no version",
                                   tide_shown(b->arena, tide_text_of(tide_argument_text(&b->arguments, libraries[i])))),
                       tide_format(b->arena, "write as %s", tide_setting_default(libraries[i])));
    for (size_t i = 0; i < TIDE_COUNT_OF(rows); i++) {
        int number = version_number(tide_argument_text(&b->arguments, rows[i].library));
        if (!number || number >= rows[i].since || b->arguments.is_given[rows[i].setting]) continue;
        tide_setting_put(&b->arguments, tide_text_of(tide_settings[rows[i].setting].name), tide_text_of(rows[i].before),
                         TIDE_ORIGIN_RECIPE);
        tide_report(b->diags, TIDE_ASSUMPTION, TIDE_OK, tide_builder_place(b, rows[i].setting),
                    tide_format(b->arena, "%s=%s: %s (%s)", tide_settings[rows[i].library].name,
                                tide_argument_text(&b->arguments, rows[i].library), rows[i].what, rows[i].source),
                    NULL);
    }
}
