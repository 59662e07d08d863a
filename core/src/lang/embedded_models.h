/* SPDX-License-Identifier: Apache-2.0 */
/* What is built in: the texts under models/, embedded when the library is built. */
#ifndef TIDE_LANG_EMBEDDED_MODELS_H
#define TIDE_LANG_EMBEDDED_MODELS_H

#include "lang/description.h"

/* A build may keep in its program only what is needed at once, and the rest in a file of its own, the pack, which is
 * given later (web/wasm/wasm_exports.c). A source of the pack has no text. */
extern const char *tide_pack;           /* NULL: not there (yet) */
extern bool tide_pack_is_missed;        /* a call ended because it was not */
extern const uint32_t tide_pack_length; /* bytes; 0: everything is in the program */

/* The source with its whole text. Without the pack control leaves by arena->escape. */
tide_source tide_source_whole(tide_arena *arena, const tide_source *source);

/* By name; NULL: there is none. What is needed at once is looked through first, so that the tables of all can come
 * later too (web/split.mjs). */
const tide_source *tide_architecture_source(tide_text name);
const tide_source *tide_catalogue_source(const char *name);

/* models/architectures/NAME.json, "library/NAME" for the shared ones. */
extern const tide_source tide_architecture_sources[];
extern const uint32_t tide_architecture_source_count;
extern const tide_source tide_architecture_at_once[]; /* those needed at once; ends with a name of NULL */

extern const char *const tide_libraries[]; /* names of the shared ones, NULL behind them */

/* models/catalogue/NAME.json, sorted by name. */
extern const tide_source tide_catalogue_sources[];
extern const uint32_t tide_catalogue_source_count;
extern const tide_source tide_catalogue_at_once[];

/* models/recipes/NAME.json, sorted by name. */
extern const tide_source tide_recipe_sources[];
extern const uint32_t tide_recipe_source_count;

extern const tide_source tide_gpu_source;             /* models/gpus.json */
extern const tide_source tide_config_defaults_source; /* models/config_defaults.json */
extern const tide_source tide_tp_plans_source;        /* models/tp_plans.json */

/* Which description covers a model_type, and the class that AutoModel makes of it. */
typedef struct tide_model_type {
    const char *model_type, *description, *class_name;
} tide_model_type;

extern const tide_model_type tide_model_types[];
extern const uint32_t tide_model_type_count;
extern const tide_model_type tide_model_types_at_once[];

/* Which description of an engine covers a class that config.json's "architectures" names. */
typedef struct tide_engine_root {
    const char *engine, *architecture, *description, *class_name;
} tide_engine_root;

extern const tide_engine_root tide_engine_roots[];
extern const uint32_t tide_engine_root_count;

/* NULL: no description of that engine covers it. */
const tide_engine_root *tide_engine_root_of(const char *engine, tide_text architecture);

/* The class that a configuration's "architectures" names, or else the one that transformers makes of its model_type:
 * the first root of the description that covers it. Empty: neither is there. */
tide_text tide_config_architecture(tide_arena *arena, tide_diagnostics *diags, const tide_json *config);

/* NULL: no description covers it. */
const tide_model_type *tide_model_type_of(tide_text model_type);

#endif
