/* SPDX-License-Identifier: Apache-2.0 */
/* Variables of a script, as far as they contain words of a command. Private to job/. */
#ifndef TIDE_JOB_READERS_SHELL_VARIABLES_H
#define TIDE_JOB_READERS_SHELL_VARIABLES_H

#include "job/readers/shell.h"

typedef struct tide_shell_variable {
    const char *name, *const *words;
    uint32_t count;
    const struct tide_shell_variable *next;
} tide_shell_variable;

/* The variables that a script assigns: NAME=word, NAME="several words", NAME=(an array over several lines), and += of
 * each; the last assignment of a name comes first. */
const tide_shell_variable *tide_shell_variables(tide_arena *arena, tide_text script);

/* Expands $NAME, ${NAME}, ${NAME:-word} and ${NAME[@]} in the words of a command; an unassigned variable is kept as
 * written. */
void tide_shell_expand(tide_command_line *line, const tide_shell_variable *variables);

/* A script with $((16 / $N)), $(expr 16 / $N) and `expr 16 / $N` replaced by their values, if known. */
tide_text tide_shell_compute(tide_arena *arena, tide_text script, const tide_shell_variable *variables);

#endif
