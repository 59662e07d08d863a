/* Which strategy a job plays. */
#include "parallel/parallel.h"

static const tide_strategy *const strategies[TIDE_parallel_kind_COUNT] = {
    [TIDE_parallel_kind_ddp] = &tide_ddp,     [TIDE_parallel_kind_zero0] = &tide_zero0,
    [TIDE_parallel_kind_zero1] = &tide_zero1, [TIDE_parallel_kind_zero2] = &tide_zero2,
    [TIDE_parallel_kind_zero3] = &tide_zero3, [TIDE_parallel_kind_fsdp1] = &tide_fsdp1,
    [TIDE_parallel_kind_fsdp2] = &tide_fsdp2, [TIDE_parallel_kind_megatron] = &tide_megatron_core,
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
    return is_bf16_optimizer(job) ? &tide_zero_bf16 : strategies[job->parallel_kind];
}
