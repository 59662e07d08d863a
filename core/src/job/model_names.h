/* SPDX-License-Identifier: Apache-2.0 */
/* Entries of the catalogue by what people call them. Private to job/. */
#ifndef TIDE_JOB_MODEL_NAMES_H
#define TIDE_JOB_MODEL_NAMES_H

#include "job/hub_names.h"
#include "lang/lang.h"

/* The entry of a name, or of a path on the Hub; NULL: there is none. "Llama 3.1 8B" is "llama-3.1-8b": case, dashes,
 * underscores, colons and blanks say nothing but between digits. */
const tide_source *tide_catalogue_find(tide_arena *arena, const char *name);

/* The entry that a name of the Hub is a variant of, whatever it is quantised in; NULL: none. */
const tide_source *tide_catalogue_hub_base(tide_arena *arena, const char *name, tide_hub_name *read);

/* The entry that a name of the Hub is a variant of, and what the name says of it; NULL: none, or one whose
 * configuration is not known. */
const tide_source *tide_catalogue_variant(tide_arena *arena, const char *name, tide_hub_name *read);

/* "8b", "135m", "large": what models of one family may differ in alone. */
bool tide_is_size_word(tide_text word);

/* Whether a word is the number of parameters of an entry, or of what a name is a variant of, within a tenth: "671b". */
bool tide_catalogue_has_size(tide_arena *arena, const char *name, tide_text word);

/* Whether the catalogue has it, or what it is a variant of. */
bool tide_model_is_known(tide_arena *arena, const char *name);

/* The one entry that has all words of a name ("flux dev"), the newest of those that differ in their version alone where
 * a size is among the words ("llama 8b": `others` are the older ones, or NULL), or the one with whose name all others
 * begin; NULL: none, or several may be meant. */
const tide_source *tide_catalogue_meant(tide_arena *arena, const char *name, const char **others);

/* Up to four entries that may be meant: "a, b or c"; NULL: none is near. */
const char *tide_catalogue_near(tide_arena *arena, const char *name);

/* Of a name that the catalogue does not have: what no description covers ("Gemma 3n: ..."); NULL: not known. */
const char *tide_model_undescribed(tide_arena *arena, const char *name);

#endif
