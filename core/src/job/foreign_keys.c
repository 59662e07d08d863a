/* SPDX-License-Identifier: Apache-2.0 */
/* The tables by which files of other programs are read, for single keys. */
#include "job/foreign_keys.h"

#include <string.h>

#include "base/each.h"
#include "base/units.h"
#include "job/readers/key_values.h"

enum {
    NO_FACT,
#define TIDE_FACT(name) FACT_##name,
#define TIDE_FACT_SAID(name, remedy) FACT_##name,
#include "job/readers/facts.def"
#undef TIDE_FACT_SAID
#undef TIDE_FACT
    FACTS
};

static const char *const fact_remedies[FACTS] = {
#define TIDE_FACT(name)
#define TIDE_FACT_SAID(name, remedy) [FACT_##name] = remedy,
#include "job/readers/facts.def"
#undef TIDE_FACT_SAID
#undef TIDE_FACT
};

/* those of claims.h, which this file does not include, where all files are one */
#undef KEY_SETS
#undef KEY_SETS_OF
#undef KEY_SAYS
#undef KEY_SAYS_OF
#undef KEY_NEUTRAL
#undef KEY_MATTERS
#undef KEY_REFUSED
#undef KEY_REFUSED_NEAR
#undef KEY_OF_MODEL
#undef KEY_HOLDS

#define FOREIGN(...)                                                                                                   \
    { .setting = TIDE_SET_COUNT, __VA_ARGS__ }
#define KEY_SETS(name, id, list)                                                                                       \
    { .key = name, .setting = TIDE_SET_##id, .values = list }
#define KEY_SETS_OF(trainers, ...) KEY_SETS(__VA_ARGS__)
#define KEY_SAYS(name, stated, list) FOREIGN(.key = name, .values = list, .fact = FACT_##stated)
#define KEY_SAYS_OF(trainers, ...) KEY_SAYS(__VA_ARGS__)
#define KEY_NEUTRAL(name) FOREIGN(.key = name, .is_neutral = true)
#define KEY_MATTERS(name, what, list) FOREIGN(.key = name, .matter = what, .values = list)
#define KEY_REFUSED(name, what, list) FOREIGN(.key = name, .matter = what, .values = list, .is_refused = true)
#define KEY_REFUSED_NEAR(name, what, list, other)                                                                      \
    FOREIGN(.key = name, .matter = what, .values = list, .is_refused = true, .near = other)
#define KEY_OF_MODEL(name, what, list) KEY_REFUSED(name, what, list)
#define KEY_HOLDS(name, section) FOREIGN(.key = name)

/* With "fsdp_" before them. */
static const tide_foreign_key keys_of_fsdp[] = {
#include "job/readers/keys/fsdp.def"
};

/* The first one that has a key holds. */
static const tide_foreign_key keys_of_programs[] = {
#include "job/readers/keys/trainer.def"

#include "job/readers/keys/llama_factory.def"

#include "job/readers/keys/axolotl.def"

#include "job/readers/keys/ms_swift.def"

#include "job/readers/keys/accelerate.def"

#include "job/readers/keys/deepspeed_plugin.def"

#include "job/readers/keys/megatron.def"

#include "job/readers/keys/parallel_sizes.def"
};

static const tide_foreign_key *find_in(const tide_foreign_key *rows, size_t count, tide_text key) {
    for (size_t i = 0; i < count; i++)
        if (tide_text_matches_one(key, rows[i].key)) return &rows[i];
    return NULL;
}

const tide_foreign_key *tide_foreign_find(tide_text key) {
    tide_text fsdp = TIDE_TEXT("fsdp_"), trainer = TIDE_TEXT("trainer.");
    if (tide_text_starts(key, trainer)) key = (tide_text){key.at + trainer.length, key.length - trainer.length};
    tide_text option = {key.at + fsdp.length, key.length - fsdp.length};
    const tide_foreign_key *row =
        tide_text_starts(key, fsdp) ? find_in(keys_of_fsdp, TIDE_COUNT_OF(keys_of_fsdp), option) : NULL;
    return row ? row : find_in(keys_of_programs, TIDE_COUNT_OF(keys_of_programs), key);
}

tide_setting_id tide_foreign_setting(tide_text key) {
    const tide_foreign_key *row = tide_foreign_find(key);
    return row ? row->setting : TIDE_SET_COUNT;
}

tide_text tide_foreign_value(tide_arena *arena, tide_text key, tide_text value, bool *is_near) {
    const tide_foreign_key *row = tide_foreign_find(key);
    *is_near = false;
    if (row) tide_key_value_listed(row->values, tide_lowered(arena, tide_trimmed(value)), &value, is_near);
    return value;
}

bool tide_foreign_is_off(tide_arena *arena, const tide_foreign_key *row, tide_text value) {
    const char *lowered = tide_lowered(arena, tide_trimmed(value));
    bool is_off = !*lowered || tide_text_is_among(tide_text_of(lowered), "false|no|off|none|null|0|0.0");
    tide_text taken;
    bool is_listed = tide_key_value_listed(row->values, lowered, &taken, NULL);
    return row->matter ? is_off || is_listed : is_listed && !taken.length;
}

const char *tide_foreign_remedy(const tide_foreign_key *row) {
    return row->near ? row->near : fact_remedies[row->fact];
}

tide_text tide_foreign_key_of(tide_setting_id id, uint32_t *at) {
    uint32_t number = 0;
    for (size_t i = 0; i < TIDE_COUNT_OF(keys_of_programs); i++) {
        const tide_foreign_key *row = &keys_of_programs[i];
        tide_text rest = tide_text_of(row->key), key;
        while (row->setting == id && tide_piece_next(&rest, '|', &key)) {
            if (memchr(key.at, '*', key.length) || tide_foreign_find(key) != row || number++ < *at) continue;
            ++*at;
            return key;
        }
    }
    return TIDE_TEXT("");
}
