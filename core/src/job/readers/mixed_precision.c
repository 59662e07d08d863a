/* SPDX-License-Identifier: Apache-2.0 */
/* The mixed precision of TrainingArguments, TRL and Accelerate. */
#include "job/readers/claims.h"

const char *tide_mixed_precision(const tide_claims *c) {
    if (tide_fact_is(c, TIDE_FACT_bf16, "true"))
        return "bf16"; /* TrainingArguments override Accelerate's environment */
    if (tide_fact_is(c, TIDE_FACT_fp16, "true")) return "fp16";
    if (tide_trl_kind(c) && !c->facts[TIDE_FACT_bf16]) return "bf16";
    if (tide_fact_of(c, TIDE_FACT_mixed)) return tide_fact_of(c, TIDE_FACT_mixed);
    return tide_claims_train(c) || c->facts[TIDE_FACT_distributed] ? "none" : NULL;
}

tide_fact tide_mixed_precision_fact(const tide_claims *c) {
    return tide_fact_is(c, TIDE_FACT_bf16, "true")   ? TIDE_FACT_bf16
           : tide_fact_is(c, TIDE_FACT_fp16, "true") ? TIDE_FACT_fp16
                                                     : TIDE_FACT_mixed;
}
