/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of other programs' files among the settings of a command: "output_dir=out", "lora_rank=8". They are the rows by
 * which the files themselves are read (readers/keys). Private to job/. */
#ifndef TIDE_JOB_FOREIGN_KEYS_H
#define TIDE_JOB_FOREIGN_KEYS_H

#include "base/arena.h"
#include "base/text.h"
#include "job/job.h"

typedef struct tide_foreign_key {
    const char *key;         /* joined by `|`; `*` matches any characters */
    bool is_neutral;         /* without effect on memory */
    tide_setting_id setting; /* that it sets; TIDE_SET_COUNT: none */
    const char *values;      /* of that setting, or without effect: key_values.h */
    const char *matter;      /* what it does that is not described; NULL: nothing */
    bool is_refused;         /* no figure would be right */
    const char *near;        /* what is described and similar; NULL: nothing */
    int fact;                /* that it states, in facts.def, counted from 1; 0: none */
} tide_foreign_key;

/* NULL: no program has it. */
const tide_foreign_key *tide_foreign_find(tide_text key);

/* The setting that such a key sets; TIDE_SET_COUNT: none. */
tide_setting_id tide_foreign_setting(tide_text key);

/* What the value of a key that sets a setting stands for: "true" of load_in_4bit is "nf4". Empty: it sets nothing.
 * is_near: it is not described, and that is similar. */
tide_text tide_foreign_value(tide_arena *arena, tide_text key, tide_text value, bool *is_near);

/* Whether the value disables what the key is about. */
bool tide_foreign_is_off(tide_arena *arena, const tide_foreign_key *row, tide_text value);

/* What to write in place of a key that sets no setting by itself; NULL: nothing in particular. */
const char *tide_foreign_remedy(const tide_foreign_key *row);

/* The keys that set this setting, in turn: the one at *at, which is counted on; empty at the end. */
tide_text tide_foreign_key_of(tide_setting_id id, uint32_t *at);

#endif
