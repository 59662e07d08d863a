/* SPDX-License-Identifier: Apache-2.0 */
/* Starts of an inference server: predicted against measured. */
#include "verify.h"

#include <string.h>

const char *const verify_serving_names[VERIFY_SERVING_COUNT] = {
#define VERIFY_NAME(name) #name,
    VERIFY_SERVING(VERIFY_NAME)
#undef VERIFY_NAME
};

bool verify_is_serving(const cJSON *measured) {
    return cli_text_at(cli_at(measured, "versions"), "vllm")[0] != 0 ||
           cli_text_at(cli_at(measured, "case"), "engine")[0];
}

/* Where a figure is in a result of the serving recordings; NULL: it was not measured. */
static const cJSON *measured_at(const cJSON *measured, enum verify_serving_figure figure) {
    const cJSON *memory = cli_at(measured, "memory"), *profile = cli_at(memory, "profile"),
                *kv = cli_at(measured, "kv");
    switch (figure) {
    case VERIFY_SERVING_blocks:
        return cli_at(kv, "num_blocks");
    case VERIFY_SERVING_weights:
        return cli_at(cli_at(measured, "weights"), "bytes");
    case VERIFY_SERVING_consumed:
        return cli_at(profile, "total_consumed");
    case VERIFY_SERVING_transient:
        return cli_at(profile, "transient_peak");
    case VERIFY_SERVING_available:
        return cli_at(memory, "available_kv_bytes");
    case VERIFY_SERVING_block_bytes:
        return cli_at(kv, "block_bytes");
    case VERIFY_SERVING_tokens:
        return cli_at(kv, "capacity_tokens");
    case VERIFY_SERVING_started:
        return cli_at(measured, "reserved_after_start");
    case VERIFY_SERVING_reserved:
        return cli_at(measured, "reserved_peak");
    case VERIFY_SERVING_COUNT:
        break;
    }
    return NULL;
}

void verify_compare_serving(verify_results *results, const cJSON *measured, const cJSON *answer) {
    verify_case *c = verify_case_add(results, measured);
    const char *outcome = cli_text_at(answer, "outcome");
    results->expressed++;
    results->served++;
    c->is_served = true;
    c->has_other_outcome = strcmp(outcome, c->outcome) != 0;
    if (c->has_other_outcome) {
        cli_buffer text = {0};
        cli_append_text(&text, outcome);
        c->other_outcome = text.at;
        results->other_outcomes++;
    }
    for (int f = 0; f < VERIFY_SERVING_COUNT; f++) {
        const cJSON *value = measured_at(measured, (enum verify_serving_figure)f);
        if (!cJSON_IsNumber(value)) continue;
        int64_t predicted = cli_int_at(answer, verify_serving_names[f]);
        verify_error_add(&results->serving[f], predicted, cli_int(value), results->count - 1);
        if (f == VERIFY_SERVING_reserved) {
            c->predicted[1] = predicted;
            c->measured[1] = cli_int(value);
        }
        if (f == VERIFY_SERVING_blocks) {
            c->predicted[0] = predicted;
            c->measured[0] = cli_int(value);
            int64_t least = cli_int_at(answer, "blocks_at_least"), most = cli_int_at(answer, "blocks_at_most");
            if (least && cli_int(value) >= least && cli_int(value) <= most)
                c->range_percent = (100 * (most - least) + most - 1) / most;
        }
    }
}
