/* SPDX-License-Identifier: Apache-2.0 */
/* Selecting the strategy of a job. */
#include "parallel/parallel.h"

static const tide_strategy *const strategies[TIDE_parallel_kind_COUNT] = {
#define STRATEGY(name) [TIDE_parallel_kind_##name] = &tide_##name##_strategy,
#include "parallel/strategies.def"
#undef STRATEGY
};

static bool is_dtype(tide_optional_dtype chosen, tide_dtype dtype) {
    return chosen.is_set && chosen.dtype == dtype;
}

/* engine.py: _configure_optimizer. */
static bool is_bf16_optimizer(const tide_job *job) {
    return job->parallel_kind == TIDE_parallel_kind_zero1 && is_dtype(job->parallel_half, TIDE_BF16) &&
           is_dtype(job->parallel_grad_accum_dtype, TIDE_FP32) &&
           job->parallel_offload_optimizer != TIDE_parallel_offload_optimizer_cpu &&
           job->optimizer != TIDE_optimizer_none;
}

const tide_strategy *tide_strategy_find(const tide_job *job) {
    return is_bf16_optimizer(job) ? &tide_zero_bf16_strategy : strategies[job->parallel_kind];
}
