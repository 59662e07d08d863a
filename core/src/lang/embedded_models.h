/* SPDX-License-Identifier: Apache-2.0 */
/* The files of models/, embedded when the library is built. */
#ifndef TIDE_LANG_EMBEDDED_MODELS_H
#define TIDE_LANG_EMBEDDED_MODELS_H

#include "lang/description.h"

/* A build may embed only what is needed at once, and have the rest in a separate file, the pack, which is supplied
 * later (web/wasm/wasm_exports.c). Sources in the pack have no text. */
extern const char *tide_pack;           /* NULL: not loaded (yet) */
extern bool tide_pack_is_missed;        /* a call ended because the pack was missing */
extern const uint32_t tide_pack_length; /* bytes; 0: everything is embedded */

/* The source with its complete text. Without the pack it jumps to arena->escape. */
tide_source tide_source_whole(tide_arena *arena, const tide_source *source);

/* By name; NULL if there is none. What is available at once is searched first, so that the complete tables can be
 * loaded later too (web/split.mjs). */
const tide_source *tide_architecture_source(tide_text name);
const tide_source *tide_catalogue_source(const char *name);

/* models/architectures/NAME.json; "library/NAME" for the libraries. */
extern const tide_source tide_architecture_sources[];
extern const uint32_t tide_architecture_source_count;
extern const tide_source tide_architecture_at_once[]; /* those available at once; a NULL name ends the table */

extern const char *const tide_libraries[]; /* names of the libraries; NULL ends the table */

/* models/catalogue/NAME.json, sorted by name. */
extern const tide_source tide_catalogue_sources[];
extern const uint32_t tide_catalogue_source_count;
extern const tide_source tide_catalogue_at_once[];

/* models/recipes/NAME.json, sorted by name. */
extern const tide_source tide_recipe_sources[];
extern const uint32_t tide_recipe_source_count;

extern const tide_source tide_gpu_source;              /* models/gpus.json */
extern const tide_source tide_config_defaults_source;  /* models/config_defaults.json */
extern const tide_source tide_tp_plans_source;         /* models/tp_plans.json */
extern const tide_source tide_no_split_modules_source; /* models/no_split_modules.json */

/* The description of a model_type, and the class that AutoModel makes for it. */
typedef struct tide_model_type {
    const char *model_type, *description, *class_name;
} tide_model_type;

extern const tide_model_type tide_model_types[];
extern const uint32_t tide_model_type_count;
extern const tide_model_type tide_model_types_at_once[];

/* An inference engine's description of a class that config.json names in "architectures". */
typedef struct tide_engine_root {
    const char *engine, *architecture, *description, *class_name;
} tide_engine_root;

extern const tide_engine_root tide_engine_roots[];
extern const uint32_t tide_engine_root_count;

/* NULL: the engine has no description of it. */
const tide_engine_root *tide_engine_root_of(const char *engine, tide_text architecture);

/* The class that a configuration names in "architectures", or else the first root of the description for its
 * model_type. Empty: there is neither. */
tide_text tide_config_architecture(tide_arena *arena, tide_diagnostics *diags, const tide_json *config);

/* NULL: there is no description of it. */
const tide_model_type *tide_model_type_of(tide_text model_type);

#endif
