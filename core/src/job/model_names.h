/* SPDX-License-Identifier: Apache-2.0 */
/* Finding entries of the catalogue by the names that people use. Private to job/. */
#ifndef TIDE_JOB_MODEL_NAMES_H
#define TIDE_JOB_MODEL_NAMES_H

#include "job/hub_names.h"
#include "lang/lang.h"

/* The entry for a name, or for a path on the Hub; NULL: there is none. "Llama 3.1 8B" is "llama-3.1-8b": case, dashes,
 * underscores, colons and blanks are ignored, except between digits. */
const tide_source *tide_catalogue_find(tide_arena *arena, const char *name);

/* The entry that a name on the Hub is a variant of, in any quantisation; NULL: none. */
const tide_source *tide_catalogue_hub_base(tide_arena *arena, const char *name, tide_hub_name *read);

/* The entry that a name on the Hub is a variant of, and what the name says about it; NULL: none, or one whose
 * configuration is unknown. */
const tide_source *tide_catalogue_variant(tide_arena *arena, const char *name, tide_hub_name *read);

/* "8b", "135m", "large": words in which models of one family differ. */
bool tide_is_size_word(tide_text word);

/* Whether a word is the number of parameters of an entry, or of the base of a variant, within a tenth: "671b". */
bool tide_catalogue_has_size(tide_arena *arena, const char *name, tide_text word);

/* The entry of a name as it is published, without its organisation: "phi-3-mini-128k-instruct"; NULL: none. */
const tide_source *tide_catalogue_published(tide_arena *arena, const char *name);

/* Whether the catalogue has it, or its base. */
bool tide_model_is_known(tide_arena *arena, const char *name);

/* The only entry with all words of a name ("flux dev"); the newest of those that differ only in version, if there is a
 * size among the words ("llama 8b": `others` are the older ones, or NULL); or the one whose name is a prefix of all
 * others. NULL: none, or it is ambiguous. */
const tide_source *tide_catalogue_meant(tide_arena *arena, const char *name, const char **others);

/* Up to four entries that may be meant: "a, b or c"; NULL: none is similar. */
const char *tide_catalogue_near(tide_arena *arena, const char *name);

/* For a name that is not in the catalogue: what no description covers ("Gemma 3n: ..."); NULL: unknown. */
const char *tide_model_undescribed(tide_arena *arena, const char *name);

#endif
