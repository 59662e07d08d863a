/* SPDX-License-Identifier: Apache-2.0 */
/* Files that start SGLang. Private to job/readers. */
#ifndef TIDE_JOB_READERS_SGLANG_H
#define TIDE_JOB_READERS_SGLANG_H

#include "job/readers/claims.h"

extern const tide_reader tide_sglang_reader, tide_sglang_command_reader;

#endif
