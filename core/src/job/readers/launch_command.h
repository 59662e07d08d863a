/* SPDX-License-Identifier: Apache-2.0 */
/* Scripts that start training. Private to readers. */
#ifndef TIDE_JOB_READERS_LAUNCH_COMMAND_H
#define TIDE_JOB_READERS_LAUNCH_COMMAND_H

#include "job/readers/readers.h"
#include "job/readers/shell_variables.h"

/* Claims from the first command of a script that starts training, and from its launcher; false: the text is not such a
 * script. */
bool tide_launch_read_script(tide_reading *r);

/* ---- launched_programs.c ---- */

/* Claims from the program that a command runs and from its launcher, or a refusal; false: it runs no known program. */
bool tide_launched_program_read(tide_reading *r, const tide_command_line *line, const tide_shell_variable *variables);

/* Whether a command contains a program that starts training, or launches one. */
bool tide_runs_known(const tide_command_line *line);

/* ---- launchers.c ---- */

/* Claims from the launcher of the program at word `end`; false: there is none. */
bool tide_launcher_read(tide_reading *r, const tide_command_line *line, uint32_t end);

/* Programs that start torchrun themselves, as ms-swift (cli/main.py) and LLaMA-Factory (launcher.py) do: with
 * NPROC_PER_NODE; the latter also if several devices are visible. */
void tide_started_ranks_read(tide_reading *r, const tide_command_line *line, const tide_shell_variable *variables,
                             bool counts_devices);

#endif
