/* SPDX-License-Identifier: Apache-2.0 */
/* Branches of a script: which a shell takes. Private to job/. */
#ifndef TIDE_JOB_READERS_SHELL_BRANCHES_H
#define TIDE_JOB_READERS_SHELL_BRANCHES_H

#include "job/readers/shell.h"

/* A script in which the branches of `if` that its own variables exclude are blank. Conditions about files, and about
 * variables that it does not assign, are open, and what depends on them stays; `*open` is then the number of the first
 * line of such a branch that has options of a command, else 0. */
tide_text tide_shell_take_branches(tide_arena *arena, tide_text script, uint32_t *open);

#endif
