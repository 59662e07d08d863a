/* SPDX-License-Identifier: Apache-2.0 */
/* Scripts that start training. Private to readers. */
#ifndef TIDE_JOB_READERS_LAUNCH_COMMAND_H
#define TIDE_JOB_READERS_LAUNCH_COMMAND_H

#include "job/readers/readers.h"
#include "job/readers/shell_variables.h"

/* The first command of a script that starts training, and its launcher, as claims; false: the text is no such script.
 */
bool tide_launch_read_script(tide_reading *r);

/* ---- launched_programs.c ---- */

/* The program that a command runs and its launcher, as claims, or its refusal; false: it runs none that is known. */
bool tide_launched_program_read(tide_reading *r, const tide_command_line *line, const tide_shell_variable *variables);

/* Whether a command has a program among its words that starts training, or launches one that does. */
bool tide_runs_known(const tide_command_line *line);

/* ---- launchers.c ---- */

/* What launches the program at word `end`, as a claim; false: nothing does. */
bool tide_launcher_read(tide_reading *r, const tide_command_line *line, uint32_t end);

/* Programs that start torchrun by themselves, as ms-swift (cli/main.py) and LLaMA-Factory (launcher.py) do: with
 * NPROC_PER_NODE, and the second with the devices that are visible where there are several. */
void tide_started_ranks_read(tide_reading *r, const tide_command_line *line, const tide_shell_variable *variables,
                             bool counts_devices);

#endif
