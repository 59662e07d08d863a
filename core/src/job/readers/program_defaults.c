/* SPDX-License-Identifier: Apache-2.0 */
/* Defaults of the program that a file belongs to. */
#include <inttypes.h>
#include <string.h>

#include "base/units.h"
#include "job/readers/claims.h"

/* swift/trainers/mixin.py, _fix_gradient_checkpointing; base_args/model_args.py, _init_mixed_precision: the dtype of
 * the weights, by default that of the configuration. */
static void swift_facts(tide_claims *c) {
    const tide_file_key *dtype = c->settings[TIDE_SET_dtype];
    bool is_spread = c->facts[TIDE_FACT_deepspeed] || c->facts[TIDE_FACT_processes] || c->arguments->is_spread;
    if (!is_spread) tide_imply_fact(c, TIDE_FACT_reentrant, "use_reentrant", "true");
    if (c->facts[TIDE_FACT_bf16] || c->facts[TIDE_FACT_fp16]) return;
    bool is_bf16 = !dtype || strcmp(dtype->taken, "bf16") == 0;
    tide_imply_fact(c, is_bf16 ? TIDE_FACT_bf16 : TIDE_FACT_fp16, is_bf16 ? "bf16" : "fp16", "true");
    if (!dtype)
        tide_report(c->diags, TIDE_ASSUMPTION, TIDE_OK, "/settings/dtype",
                    "ms-swift uses the configuration's dtype, assumed to be bf16", NULL);
}

/* trainers/arguments.py: 16 rows per step; arguments/rlhf_args.py. */
static void swift_accumulation(tide_claims *c) {
    enum { ROWS = 16 };
    int64_t batch = 1, ranks = tide_fact_int(c, TIDE_FACT_processes, 1), each;
    const tide_file_key *said = c->settings[TIDE_SET_batch];
    if (said) tide_text_to_i64(&batch, tide_text_of(said->taken));
    if (batch < 1 || batch > ROWS) batch = ROWS;
    if (ranks < 1 || ranks > ROWS) ranks = ROWS;
    each = (ROWS + batch * ranks - 1) / (batch * ranks);
    if (tide_fact_is(c, TIDE_FACT_trl, "grpo")) each = 1;
    tide_imply(c, TIDE_SET_grad_accum, tide_format(c->arena, "%" PRId64, each));
}

void tide_default_facts(tide_claims *c) {
    static const struct {
        tide_program program;
        tide_fact fact;
        const char *key, *value;
    } rows[] = {
#define DEFAULT_FACT(program, fact, key, value) {TIDE_PROGRAM_##program, TIDE_FACT_##fact, key, value},
#define DEFAULT_SETTING(program, setting, value)
#include "job/readers/keys/defaults.def"
#undef DEFAULT_FACT
#undef DEFAULT_SETTING
    };
    for (size_t i = 0; i < TIDE_COUNT_OF(rows); i++) {
        bool is_half = rows[i].fact == TIDE_FACT_bf16 && tide_fact_is(c, TIDE_FACT_fp16, "true");
        if (tide_claims_have(c, rows[i].program) && !is_half)
            tide_imply_fact(c, rows[i].fact, rows[i].key, rows[i].value);
    }
    if (tide_claims_have(c, TIDE_PROGRAM_ms_swift)) swift_facts(c);
    if (tide_claims_have(c, TIDE_PROGRAM_axolotl)) tide_axolotl_facts(c);
}

void tide_default_settings(tide_claims *c) {
    static const struct {
        tide_program program;
        tide_setting_id setting;
        const char *value;
    } rows[] = {
#define DEFAULT_FACT(program, fact, key, value)
#define DEFAULT_SETTING(program, setting, value) {TIDE_PROGRAM_##program, TIDE_SET_##setting, value},
#include "job/readers/keys/defaults.def"
#undef DEFAULT_FACT
#undef DEFAULT_SETTING
    };
    const tide_file_key *adapter = c->settings[TIDE_SET_adapter];
    bool adapts = adapter && strcmp(adapter->taken, "lora") == 0;
    for (size_t i = 0; i < TIDE_COUNT_OF(rows); i++) {
        bool is_of_adapter = strncmp(tide_settings[rows[i].setting].name, "adapter.", 8) == 0,
             is_of_quant = rows[i].setting == TIDE_SET_kbit_prepare;
        if (tide_claims_have(c, rows[i].program) && (adapts || !is_of_adapter) &&
            (c->settings[TIDE_SET_quant] || !is_of_quant))
            tide_imply(c, rows[i].setting, rows[i].value);
    }
    if (tide_claims_have(c, TIDE_PROGRAM_ms_swift)) swift_accumulation(c);
    if (tide_claims_have(c, TIDE_PROGRAM_axolotl)) tide_axolotl_settings(c);
}
