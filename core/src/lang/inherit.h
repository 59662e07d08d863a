/* SPDX-License-Identifier: Apache-2.0 */
/* Finding and merging the contents of descriptions, for the files that read them. */
#ifndef TIDE_LANG_INHERIT_H
#define TIDE_LANG_INHERIT_H

#include "lang/description.h"

/* The name in a key of "modules" or "functions", or of a function in a module, without its parameters. */
tide_text tide_head_name(tide_text key);

/* The i-th description in the order of resolution, with the libraries last; NULL at the end. */
tide_description *tide_description_in_order(const tide_descriptions *set, const tide_description *from, uint32_t i);

/* Finds the module of this name from the `first` description in the order on; sets *at to its place in the order. NULL
 * if there is none. */
const tide_entry *tide_module_entry(const tide_descriptions *set, const tide_description *from, tide_text name,
                                    uint32_t first, uint32_t *at);

/* The object of a module with everything that it inherits by "@extends"; NULL after an error. `at` is its place in the
 * order of `from`. */
const tide_json *tide_module_merged(tide_descriptions *set, const tide_description *from, const tide_json *item,
                                    uint32_t at);

/* The object of a module or function with the names that the descriptions from `first` to before `last` in the order of
 * `from` give by "renames". */
const tide_json *tide_renamed(tide_descriptions *set, const tide_description *from, const tide_json *item,
                              uint32_t first, uint32_t last);

/* Reports "renames" that are not names; false if there are any. */
bool tide_check_renames(tide_descriptions *set, const tide_json *json, const char *place);
/* Whether a name occurs in a module that the description extends. */
bool tide_renames_something(const tide_descriptions *set, const tide_description *from, tide_text word);

/* Finds a name in an expression, outside of 'texts'; NULL if it does not occur. */
const char *tide_find_word(const char *text, tide_text word);

/* Reports an error in a description; returns false. `near`: what may have been meant, or NULL. */
bool tide_description_fails(tide_descriptions *set, const char *place, const char *message, const char *near);

#endif
