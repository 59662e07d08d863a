/* SPDX-License-Identifier: Apache-2.0 */
/* Variables of a script, as far as they hold words of a command. Private to job/. */
#ifndef TIDE_JOB_READERS_SHELL_VARIABLES_H
#define TIDE_JOB_READERS_SHELL_VARIABLES_H

#include "job/readers/shell.h"

typedef struct tide_shell_variable {
    const char *name, *const *words;
    uint32_t count;
    const struct tide_shell_variable *next;
} tide_shell_variable;

/* What the script assigns: NAME=word, NAME="several words", NAME=(an array over lines); the last assignment of a name
 * is first. */
const tide_shell_variable *tide_shell_variables(tide_arena *arena, tide_text script);

/* The words of a command with $NAME, ${NAME}, ${NAME:-word} and ${NAME[@]} in their place; a variable that is not
 * assigned stays as it is written. */
void tide_shell_expand(tide_command_line *line, const tide_shell_variable *variables);

/* A script with the values of $((16 / $N)), $(expr 16 / $N) and `expr 16 / $N` in their place, where all is known. */
tide_text tide_shell_compute(tide_arena *arena, tide_text script, const tide_shell_variable *variables);

#endif
