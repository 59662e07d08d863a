/* SPDX-License-Identifier: Apache-2.0 */
/* The types of settings.def: the choices of a row, its field of tide_job, and how the table refers to them. */
#ifndef TIDE_JOB_SETTINGS_TYPES_H
#define TIDE_JOB_SETTINGS_TYPES_H

#include "base/each.h"
#include "tensor/tensor.h"

/* A list of names, or of their prefixes or endings. */
typedef struct tide_name_list {
    const char **names;
    uint32_t count;
} tide_name_list;

typedef struct tide_counts {
    const int64_t *of;
    uint32_t count; /* 0: not set */
} tide_counts;

/* Lengths of a run's samples in tokens, or quantiles from which they are drawn (job/lengths.h). */
typedef struct tide_quantile {
    int64_t at; /* millionths of a percent */
    int64_t tokens;
} tide_quantile;

typedef struct tide_lengths {
    const int64_t *tokens;
    uint32_t count;
    const tide_quantile *quantiles; /* ascending, from p0 to p100 */
    uint32_t quantile_count;
} tide_lengths;

typedef struct tide_pixels {
    int64_t frames, height, width; /* 0: not set */
} tide_pixels;

typedef struct tide_optional_dtype {
    bool is_set; /* false: not set, none, default */
    tide_dtype dtype;
} tide_optional_dtype;

static inline tide_dtype tide_dtype_or(tide_optional_dtype of, tide_dtype otherwise) {
    return of.is_set ? of.dtype : otherwise;
}

/* The names in optimizers.def and trainers.def. */
typedef enum tide_optimizer_choice {
#define TIDE_OPTIMIZER(name, ...) TIDE_optimizer_##name,
#include "job/optimizers.def"
#undef TIDE_OPTIMIZER
    TIDE_optimizer_COUNT
} tide_optimizer_choice;

typedef enum tide_trainer_choice {
#define TIDE_TRAINER(name, ...) TIDE_trainer_##name,
#include "job/trainers.def"
#undef TIDE_TRAINER
    TIDE_trainer_COUNT
} tide_trainer_choice;

/* ---- choices: TIDE_CHOICES_TYPE is `what to make of them, the list` ---- */

#define TIDE_CHOICES_INT NOTHING, none
#define TIDE_CHOICES_NUMBER NOTHING, none
#define TIDE_CHOICES_BOOL NOTHING, none
#define TIDE_CHOICES_CHOICE(...) ENUM, __VA_ARGS__
#define TIDE_CHOICES_DTYPE(...) WORDS, __VA_ARGS__
#define TIDE_CHOICES_ROWS(of) NOTHING, none
#define TIDE_CHOICES_TEXT NOTHING, none
#define TIDE_CHOICES_LIST NOTHING, none
#define TIDE_CHOICES_SIZE NOTHING, none
#define TIDE_CHOICES_LENGTHS NOTHING, none
#define TIDE_CHOICES_COUNTS NOTHING, none
#define TIDE_CHOICES_NAME NOTHING, none
#define TIDE_CHOICES_RECIPE NOTHING, none
#define TIDE_CHOICES_OVERRIDES NOTHING, none

/* F_NOTHING, F_ENUM or F_WORDS of a row's name and its choices. */
#define TIDE_CHOICES(F, name, ...) TIDE_CHOICES_OF(F, name, __VA_ARGS__)
#define TIDE_CHOICES_OF(F, name, what, ...) F##_##what(name, __VA_ARGS__)

#define TIDE_ENUM_NOTHING(name, ...)
#define TIDE_ENUM_WORDS(name, ...)
#define TIDE_ENUM_ENUM(name, ...)                                                                                      \
    typedef enum tide_##name##_choice{TIDE_EACH(TIDE_ENUMERATOR, name, __VA_ARGS__)} tide_##name##_choice;             \
    enum { TIDE_##name##_COUNT = 0 TIDE_EACH(TIDE_ONE_MORE, name, __VA_ARGS__) };
#define TIDE_ONE_MORE(name, choice) +1
#define TIDE_ENUMERATOR(name, choice) TIDE_##name##_##choice,

#define TIDE_SETTING(name, type, ...) TIDE_CHOICES(TIDE_ENUM, name, TIDE_CHOICES_##type)
#include "job/settings.def"

/* ---- fields of tide_job: TIDE_FIELD_TYPE(name) ---- */

#define TIDE_FIELD_INT(name) int64_t name;
#define TIDE_FIELD_NUMBER(name) int64_t name;
#define TIDE_FIELD_BOOL(name) bool name;
#define TIDE_FIELD_CHOICE(...) TIDE_FIELD_CHOICE_OF
#define TIDE_FIELD_CHOICE_OF(name) tide_##name##_choice name;
#define TIDE_FIELD_DTYPE(...) TIDE_FIELD_DTYPE_OF
#define TIDE_FIELD_DTYPE_OF(name) tide_optional_dtype name;
#define TIDE_FIELD_ROWS(of) TIDE_FIELD_CHOICE_OF
#define TIDE_FIELD_TEXT(name) const char *name;
#define TIDE_FIELD_LIST(name) tide_name_list name;
#define TIDE_FIELD_SIZE(name) tide_pixels name;
#define TIDE_FIELD_LENGTHS(name) tide_lengths name;
#define TIDE_FIELD_COUNTS(name) tide_counts name;
#define TIDE_FIELD_NAME(name)
#define TIDE_FIELD_RECIPE(name)
#define TIDE_FIELD_OVERRIDES(name)

#endif
