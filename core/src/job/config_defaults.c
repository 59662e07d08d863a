/* SPDX-License-Identifier: Apache-2.0 */
/* What transformers makes of a config.json, from models/config_defaults.json: other names of keys, and defaults for
 * keys that are missing, since of a part of a configuration PreTrainedConfig only saves what differs from its class
 * (configuration_utils.py, to_diff_dict). */
#include "job/builder.h"

#include <string.h>

#include "base/units.h"
#include "lang/lang.h"

enum { FILLED_LIMIT = 64 };

typedef struct config_filling {
    tide_job_builder *b;
    const char *place; /* of the object being filled */
    uint32_t *parts;   /* filled so far */
} config_filling;

/* Parses only the text of the object, not the whole file. */
const tide_json *tide_config_defaults_of(tide_arena *arena, tide_text model_type, tide_diagnostics *diags) {
    const tide_source all = tide_source_whole(arena, &tide_config_defaults_source);
    const char *quoted = tide_format(arena, "\"%.*s\": {", (int)model_type.length, model_type.at),
               *start = strstr(all.text, quoted);
    if (!start || memchr(model_type.at, '"', model_type.length)) return NULL;
    const char *open = strchr(start, '{'), *end = open;
    int depth = 0;
    do {
        depth += *end == '{' ? 1 : *end == '}' ? -1 : 0;
        end++;
    } while (depth && *end);
    return tide_json_parse(arena, (tide_text){open, (size_t)(end - open)}, "/config_defaults", diags);
}

/* Reports assumed sizes: transformers saves all keys of a model, but few of its parts. */
static void say_filled(const config_filling *x, const char *sizes) {
    bool is_part = strcmp(x->place, "/config.json") != 0;
    tide_report(x->b->diags, is_part ? TIDE_ASSUMPTION : TIDE_WARNING, is_part ? TIDE_OK : TIDE_ERR_FIELD_MISSING,
                x->place, tide_format(x->b->arena, "lacks %s: transformers' defaults are used", sizes),
                "give the complete config.json if these are wrong");
}

/* PreTrainedConfig's attribute_map: another name sets the key, after those given by their own names. */
static void rename_keys(const config_filling *x, tide_json *config, const tide_json *defaults) {
    const tide_json *names = tide_json_at(defaults, "@names");
    for (const tide_json *name = names ? names->first : NULL; name; name = name->next) {
        const tide_json *given = tide_json_find(config, name->key);
        if (given) tide_json_put(x->b->arena, config, name->text, tide_json_clone(x->b->arena, given));
    }
}

static void fill_keys(const config_filling *x, tide_json *config, const tide_json *defaults) {
    tide_arena *arena = x->b->arena;
    const char *sizes = NULL;
    for (const tide_json *row = defaults->first; row; row = row->next) {
        if (row->key.at[0] == '@' || tide_json_find(config, row->key)) continue;
        tide_json_put(arena, config, row->key, tide_json_clone(arena, row));
        if (tide_config_is_size(row->key))
            sizes = tide_format(arena, "%s%s%s (%lld)", sizes ? sizes : "", sizes ? ", " : "", row->key.at,
                                (long long)row->integer);
    }
    if (sizes) say_filled(x, sizes);
}

static void fill_config(const config_filling *x, tide_json *config, tide_text model_type) {
    if (++*x->parts > FILLED_LIMIT) return; /* tide_fill_config() says so */
    const tide_json *defaults =
        model_type.length ? tide_config_defaults_of(x->b->arena, model_type, x->b->diags) : NULL;
    rename_keys(x, config, defaults);
    if (defaults && !x->b->is_of_catalogue) fill_keys(x, config, defaults);
    const tide_json *parts = tide_json_at(defaults, "@parts");
    for (tide_json *part = config->first; part; part = part->next) {
        if (part->kind != TIDE_JSON_OBJECT) continue;
        const tide_json *own = tide_json_at(part, "model_type"), *of_class = tide_json_find(parts, part->key);
        config_filling below = *x;
        below.place = tide_format(x->b->arena, "%s/%s", x->place, part->key.at);
        if (tide_json_is(own, TIDE_JSON_STRING))
            fill_config(&below, part, own->text);
        else if (of_class)
            fill_config(&below, part, of_class->text);
    }
}

void tide_fill_config(tide_job_builder *b) {
    const tide_json *type = tide_json_at(b->inputs.config, "model_type");
    bool is_complete = b->is_of_catalogue && !b->arguments.override_count;
    if (is_complete || !tide_json_is(type, TIDE_JSON_STRING)) return;
    uint32_t parts = 0;
    const config_filling x = {b, "/config.json", &parts};
    fill_config(&x, b->inputs.config, type->text);
    if (parts > FILLED_LIMIT)
        tide_error(b->diags, TIDE_ERR_LIMIT, "/config.json",
                   tide_format(b->arena, "more than %d of its parts have a model_type", FILLED_LIMIT),
                   "a configuration has a few parts; check the file");
}

tide_text tide_config_key(tide_arena *arena, const tide_json *config, tide_text name, tide_diagnostics *diags) {
    const tide_json *type = tide_json_at(config, "model_type");
    if (!tide_json_is(type, TIDE_JSON_STRING)) return name;
    const tide_json *key =
        tide_json_find(tide_json_at(tide_config_defaults_of(arena, type->text, diags), "@names"), name);
    return key ? key->text : name;
}
