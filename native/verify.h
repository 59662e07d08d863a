/* SPDX-License-Identifier: Apache-2.0 */
/* Predicted against measured: data and output of `tidemark verify`. */
#ifndef TIDE_VERIFY_H
#define TIDE_VERIFY_H

#include "cli.h"

/* Sizes that are compared. The first two are of the whole run, the others of each step. */
#define VERIFY_FIGURES(X)                                                                                              \
    X(allocated)                                                                                                       \
    X(reserved)                                                                                                        \
    X(before)                                                                                                          \
    X(peak_sync)                                                                                                       \
    X(peak_generate)                                                                                                   \
    X(after_generate)                                                                                                  \
    X(peak_score)                                                                                                      \
    X(after_score)                                                                                                     \
    X(peak_forward)                                                                                                    \
    X(after_forward)                                                                                                   \
    X(peak_backward)                                                                                                   \
    X(after_backward)                                                                                                  \
    X(peak_optimizer)                                                                                                  \
    X(peak_prefill)                                                                                                    \
    X(after_prefill)                                                                                                   \
    X(peak_decode)                                                                                                     \
    X(after_decode)                                                                                                    \
    X(after_step)                                                                                                      \
    X(peak_evaluate)                                                                                                   \
    X(after_evaluate)                                                                                                  \
    X(peak_save)                                                                                                       \
    X(after_save)

enum verify_figure {
#define VERIFY_ENUM(name) VERIFY_##name,
    VERIFY_FIGURES(VERIFY_ENUM)
#undef VERIFY_ENUM
        VERIFY_FIGURE_COUNT,
    VERIFY_FIRST_PHASE = VERIFY_before
};

extern const char *const verify_figure_names[VERIFY_FIGURE_COUNT];

/* One comparison. */
typedef struct verify_error {
    uint64_t bytes, ppm; /* absolute; ppm of what was measured */
    size_t of_case;
} verify_error;

typedef struct verify_errors {
    verify_error *items;
    size_t count;
} verify_errors;

/* Of one figure: shares and quantiles in parts per million. */
typedef struct verify_summary {
    size_t count, exact;
    uint64_t exact_ppm, median_ppm, p95_ppm, worst_ppm;
    size_t worst_case;
} verify_summary;

typedef struct verify_case {
    char *id, *model;
    char *reason; /* why it cannot be expressed; NULL: it can */
    char *outcome;
    int64_t predicted[2], measured[2];                 /* allocated, reserved */
    int64_t parameters_predicted, parameters_measured; /* in total; trainable ones if only these differ */
    bool has_other_parameters;
    bool has_other_outcome;
    bool is_served;      /* a start of a server: predicted[0] and measured[0] are blocks */
    char *other_outcome; /* the predicted outcome, if it differs */
    int64_t
        range_percent; /* for a model without a description, and for blocks within the range; 0: there is no range */
    uint64_t breakdown_ppm; /* largest error of a category, relative to the peak */
    char *breakdown_name;   /* which category; NULL: no error */
} verify_case;

/* Figures of a start of an inference server. */
#define VERIFY_SERVING(X)                                                                                              \
    X(blocks) X(weights) X(consumed) X(transient) X(available) X(block_bytes) X(tokens) X(started) X(reserved)

enum verify_serving_figure {
#define VERIFY_ENUM(name) VERIFY_SERVING_##name,
    VERIFY_SERVING(VERIFY_ENUM)
#undef VERIFY_ENUM
        VERIFY_SERVING_COUNT
};

extern const char *const verify_serving_names[VERIFY_SERVING_COUNT];

typedef struct verify_results {
    verify_case *cases;
    size_t count, expressed;
    verify_errors errors[VERIFY_FIGURE_COUNT];
    verify_errors breakdown;
    size_t served; /* starts of a server among those that can be expressed */
    verify_errors serving[VERIFY_SERVING_COUNT];
    size_t other_parameters, other_outcomes;
} verify_results;

/* verify_results.c */
uint64_t verify_ppm(int64_t predicted, int64_t measured);
void verify_compare(verify_results *results, const cJSON *measured, const cJSON *answer);
void verify_refuse(verify_results *results, const cJSON *measured, const char *reason);
verify_summary verify_summarize(const verify_errors *errors); /* sorts them */
void verify_results_free(verify_results *results);

verify_case *verify_case_add(verify_results *results, const cJSON *measured);
void verify_error_add(verify_errors *errors, int64_t predicted, int64_t measured, size_t of_case);

/* verify_serving.c */
bool verify_is_serving(const cJSON *measured);
void verify_compare_serving(verify_results *results, const cJSON *measured, const cJSON *answer);

/* verify_show.c */
void verify_show(verify_results *results);
void verify_show_json(verify_results *results);
bool verify_write_csv(const verify_results *results, const char *path);

#endif
