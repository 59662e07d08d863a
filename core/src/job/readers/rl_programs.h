/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the readers for verl, OpenRLHF and NeMo-RL. Private to job/readers. */
#ifndef TIDE_JOB_READERS_RL_PROGRAMS_H
#define TIDE_JOB_READERS_RL_PROGRAMS_H

#include "job/readers/claims.h"

#define RL_SECTION(name)                                                                                               \
    static const tide_key_table name##_keys = {.rows = name##_rows, .count = TIDE_COUNT_OF(name##_rows)}

/* A section without effect unless its `enabled` or `enable` is true. */
#define RL_SWITCHED(name)                                                                                              \
    static const tide_key_table name##_keys = {                                                                        \
        .rows = name##_rows, .count = TIDE_COUNT_OF(name##_rows), .is_overruled = tide_rl_is_off}

bool tide_rl_is_off(tide_claims *c, const tide_json *section, const char *above);

#endif
