/* SPDX-License-Identifier: Apache-2.0 */
/* The options of a command as the object that a configuration file would contain. Private to readers. */
#ifndef TIDE_JOB_READERS_COMMAND_OPTIONS_H
#define TIDE_JOB_READERS_COMMAND_OPTIONS_H

#include "base/json_read.h"
#include "job/readers/shell.h"

/* Adds a word to an object: a number, a boolean or a text. */
void tide_option_put(tide_arena *arena, tide_json *object, const char *key, const char *word);

/* --lora-r as lora_r. */
char *tide_flag_key(tide_arena *arena, const char *token, size_t length);

/* The options from word `from` to `end`: --key value, --key=value, --key (true), --key one two (one,two). The first
 * word that belongs to no option is stored in *word, which may be NULL; --section.key keeps its dot. */
tide_json *tide_command_options(const tide_command_line *line, uint32_t from, uint32_t end, const char **word);

/* --section.key as a section with a key. */
tide_json *tide_options_in_sections(tide_arena *arena, const tide_json *options);

/* section.key=value, a Hydra override: missing sections are created. Other words are ignored. */
void tide_option_override(tide_arena *arena, tide_json *root, const char *word);

#endif
