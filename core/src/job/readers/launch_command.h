/* SPDX-License-Identifier: Apache-2.0 */
/* Scripts that start training. Private to readers. */
#ifndef TIDE_JOB_READERS_LAUNCH_COMMAND_H
#define TIDE_JOB_READERS_LAUNCH_COMMAND_H

#include "job/readers/readers.h"

/* The first command of a script that starts training, and its launcher, as claims; false: the text is no such script.
 */
bool tide_launch_read_script(tide_reading *r);

#endif
