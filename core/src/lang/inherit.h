/* SPDX-License-Identifier: Apache-2.0 */
/* What stands in a description, found and put together; for the files that read descriptions. */
#ifndef TIDE_LANG_INHERIT_H
#define TIDE_LANG_INHERIT_H

#include "lang/description.h"

/* A key of "modules" or "functions", or of a function in a module, without its parameters. */
tide_text tide_head_name(tide_text key);

/* The i-th description in the order of resolution, the libraries behind the others; NULL behind the last. */
tide_description *tide_description_in_order(const tide_descriptions *set, const tide_description *from, uint32_t i);

/* The module of this name, looked for from the `first` description in the order on; *at becomes the place in it. NULL
 * if there is none. */
const tide_entry *tide_module_entry(const tide_descriptions *set, const tide_description *from, tide_text name,
                                    uint32_t first, uint32_t *at);

/* The object of a module with all that it takes over ("@extends"); NULL after an error. `at` is where in the order of
 * `from` it stands. */
const tide_json *tide_module_merged(tide_descriptions *set, const tide_description *from, const tide_json *item,
                                    uint32_t at);

/* The object of a module or function as the descriptions from the `first` to before the `last` in the order of `from`
 * call its names ("renames"). */
const tide_json *tide_renamed(tide_descriptions *set, const tide_description *from, const tide_json *item,
                              uint32_t first, uint32_t last);

/* Reports "renames" that are no names; false if they are. */
bool tide_check_renames(tide_descriptions *set, const tide_json *json, const char *place);
/* Whether a name stands in a module that the description extends. */
bool tide_renames_something(const tide_descriptions *set, const tide_description *from, tide_text word);

/* Where a name stands in an expression, outside of 'texts'; NULL if nowhere. */
const char *tide_find_word(const char *text, tide_text word);

/* Reports an error of a description; returns false. `near`: what may have been meant, or NULL. */
bool tide_description_fails(tide_descriptions *set, const char *place, const char *message, const char *near);

#endif
