/* SPDX-License-Identifier: Apache-2.0 */
/* The texts of models/, by name, and those in the pack. */
#include "lang/embedded_models.h"

#include <string.h>

const char *tide_pack;
bool tide_pack_is_missed;

tide_source tide_source_whole(tide_arena *arena, const tide_source *source) {
    tide_source whole = *source;
    if (!source->pack_length) return whole;
    if (!tide_pack) {
        tide_pack_is_missed = true;
        tide_arena_fail(arena);
    }
    whole.text = tide_pack + source->pack_at;
    whole.length = source->pack_length;
    return whole;
}

static const tide_source *find_by_name(const tide_source *sources, tide_text name) {
    for (; sources->name; sources++)
        if (tide_text_is(name, sources->name)) return sources;
    return NULL;
}

static const tide_model_type *find_type(const tide_model_type *types, tide_text model_type) {
    for (; types->model_type; types++)
        if (tide_text_is(model_type, types->model_type)) return types;
    return NULL;
}

/* In separate functions, which are not needed for what is available at once. */
static const tide_source *find_architecture(tide_text name) {
    return find_by_name(tide_architecture_sources, name);
}
static const tide_source *find_catalogue_entry(tide_text name) {
    return find_by_name(tide_catalogue_sources, name);
}
static const tide_model_type *find_any_type(tide_text model_type) {
    return find_type(tide_model_types, model_type);
}

const tide_source *tide_architecture_source(tide_text name) {
    const tide_source *found = find_by_name(tide_architecture_at_once, name);
    return found ? found : find_architecture(name);
}

const tide_source *tide_catalogue_source(const char *name) {
    const tide_source *found = find_by_name(tide_catalogue_at_once, tide_text_of(name));
    return found ? found : find_catalogue_entry(tide_text_of(name));
}

const tide_model_type *tide_model_type_of(tide_text model_type) {
    const tide_model_type *found = find_type(tide_model_types_at_once, model_type);
    return found ? found : find_any_type(model_type);
}

const tide_engine_root *tide_engine_root_of(const char *engine, tide_text architecture) {
    for (uint32_t i = 0; i < tide_engine_root_count; i++)
        if (strcmp(tide_engine_roots[i].engine, engine) == 0 &&
            tide_text_is(architecture, tide_engine_roots[i].architecture))
            return &tide_engine_roots[i];
    return NULL;
}

static tide_text architecture_of_type(tide_arena *arena, tide_diagnostics *diags, tide_text description) {
    const tide_source *source = tide_architecture_source(description);
    if (!source) return TIDE_TEXT("");
    tide_source whole = tide_source_whole(arena, source);
    const tide_json *json = tide_json_parse(arena, (tide_text){whole.text, whole.length}, "/roots", diags),
                    *roots = tide_json_at(json, "roots"), *first = roots ? roots->first : NULL,
                    *extends = tide_json_at(json, "extends");
    if (first && first->first) /* "Llama": ["ForCausalLM", ...] */
        return tide_text_of(tide_format(arena, "%s%s", first->key.at, first->first->text.at));
    if (first) return first->key;
    if (extends && extends->kind == TIDE_JSON_ARRAY) extends = extends->first;
    bool is_more = extends && extends->kind == TIDE_JSON_STRING;
    return is_more ? architecture_of_type(arena, diags, extends->text) : TIDE_TEXT("");
}

tide_text tide_config_architecture(tide_arena *arena, tide_diagnostics *diags, const tide_json *config) {
    const tide_json *given = tide_json_at(config, "architectures"), *type = tide_json_at(config, "model_type");
    if (given && given->kind == TIDE_JSON_ARRAY && given->first && given->first->kind == TIDE_JSON_STRING)
        return given->first->text;
    const tide_model_type *known = type && type->kind == TIDE_JSON_STRING ? tide_model_type_of(type->text) : NULL;
    return known ? architecture_of_type(arena, diags, tide_text_of(known->description)) : TIDE_TEXT("");
}
