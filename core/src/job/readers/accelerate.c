/* SPDX-License-Identifier: Apache-2.0 */
/* `accelerate config`: its own keys, and the plugins for DeepSpeed and FSDP that it creates. */
#include "job/readers/claims.h"

#include <string.h>

#include "base/units.h"

/* ---- accelerate.utils.DeepSpeedPlugin ---- */

static const tide_key_row plugin_rows[] = {
#include "job/readers/keys/deepspeed_plugin.def"

    KEY_NEUTRAL("*"),
};

/* DeepSpeedPlugin._deepspeed_config_checks: with a DeepSpeed file, accelerate's own keys have no effect. */
static bool is_plugin_overruled(tide_claims *c, const tide_json *section, const char *above) {
    if (!c->of_deepspeed.root) return false;
    const char *file = c->of_deepspeed.summary->name, *list = "";
    for (const tide_json *entry = section->first; entry; entry = entry->next) {
        const tide_key_row *row = tide_key_find(&tide_deepspeed_plugin_keys, entry->key);
        const char *key = tide_format(c->arena, "%s%s", above, tide_shown(c->arena, entry->key)),
                   *value = tide_argument_value(c->arena, entry);
        bool says = row && (row->rule == TIDE_RULE_SETS || row->rule == TIDE_RULE_SAYS);
        if (!says || row->fact == TIDE_FACT_deepspeed) {
            tide_claims_note(c, key, TIDE_KEY_IGNORED, value, NULL);
            continue;
        }
        tide_claims_note(c, key, TIDE_KEY_OVERRULED, value, tide_format(c->arena, "%s is used", file));
        list = tide_format(c->arena, "%s%s%s", list, *list ? ", " : "", tide_shown(c->arena, entry->key));
    }
    if (*list)
        tide_report(
            c->diags, TIDE_WARNING, TIDE_ERR_CONFLICT, tide_claims_place(c, "deepspeed_config"),
            tide_format(c->arena, "%s also configures DeepSpeed (%s): %s is used", c->at->summary->name, list, file),
            "keep these in one file");
    return true;
}

const tide_key_table tide_deepspeed_plugin_keys = {
    .rows = plugin_rows, .count = TIDE_COUNT_OF(plugin_rows), .is_overruled = is_plugin_overruled};

/* ---- fsdp_config of both: accelerate.utils.FullyShardedDataParallelPlugin, TrainingArguments._process_fsdp_args ----
 */

static const tide_key_row fsdp_rows[] = {
#include "job/readers/keys/fsdp.def"
};

const tide_key_table tide_fsdp_keys = {.rows = fsdp_rows, .count = TIDE_COUNT_OF(fsdp_rows), .prefix = "fsdp_"};

const tide_reader tide_fsdp_reader = {
    .title = "an FSDP configuration",
    .marks = "fsdp_transformer_layer_cls_to_wrap|transformer_layer_cls_to_wrap|fsdp_version|fsdp_sharding_strategy",
    .keys = &tide_fsdp_keys,
    .precedence = 1};

/* ---- accelerate.parallelism_config.ParallelismConfig ---- */

static const tide_key_row parallelism_rows[] = {
    KEY_SAYS("dp_shard_size", dp_shard, ""),
    KEY_SAYS("dp_replicate_size", dp_replicate, ""),
    KEY_SAYS("tp_size", tensor_ranks, ""),
    KEY_SAYS("cp_size", context_ranks, ""),
    KEY_SETS("cp_comm_strategy", parallel_rotate, ""),
    KEY_SAYS("sp_size", sequence_ranks, ""),
    KEY_NEUTRAL("tp_*"),
    KEY_NEUTRAL("cp_*"),
    KEY_NEUTRAL("sp_*"),
};

static const tide_key_table parallelism_keys = {
    .rows = parallelism_rows, .count = TIDE_COUNT_OF(parallelism_rows), .prefix = "parallelism_config_"};

/* ---- accelerate config ---- */

static const tide_key_row accelerate_rows[] = {
#include "job/readers/keys/accelerate.def"
};

const tide_key_table tide_accelerate_keys = {.rows = accelerate_rows, .count = TIDE_COUNT_OF(accelerate_rows)};

const tide_reader tide_accelerate_reader = {.title = "an Accelerate configuration",
                                            .marks = "distributed_type|compute_environment",
                                            .keys = &tide_accelerate_keys,
                                            .refuses_unknown = "accelerate"};
