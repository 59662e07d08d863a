/* SPDX-License-Identifier: Apache-2.0 */
/* Commands of a shell script as words. Private to readers. */
#ifndef TIDE_JOB_READERS_SHELL_H
#define TIDE_JOB_READERS_SHELL_H

#include "base/text.h"

enum { TIDE_SHELL_SCRIPT_LIMIT = 1 << 20 };

/* Words without quotes; variables are kept as written. */
typedef struct tide_command_line {
    tide_arena *arena;
    const char **tokens;
    uint32_t count, capacity;
} tide_command_line;

/* Reads the words of one command and advances *at past it. */
void tide_shell_read(tide_command_line *l, tide_text text, size_t *at);

/* Adds a word, up to a limit. */
void tide_shell_add(tide_command_line *l, const char *token);

/* Whether a word is a program of that name, with or without a path. */
bool tide_shell_runs(const char *token, const char *name);

/* --name or -n, but not a number. */
bool tide_shell_is_option(const char *token);

#endif
