/* SPDX-License-Identifier: Apache-2.0 */
/* Launchers of a program on its ranks: accelerate launch, torchrun, deepspeed; and programs that launch themselves. */
#include <inttypes.h>
#include <string.h>

#include "base/units.h"
#include "job/readers/claims.h"
#include "job/readers/command_options.h"
#include "job/readers/launch_command.h"

static const tide_key_row launcher_rows[] = {KEY_HOLDS("config_file", tide_accelerate_keys)};

static const tide_key_table launcher_keys = {
    .rows = launcher_rows, .count = TIDE_COUNT_OF(launcher_rows), .more = &tide_accelerate_keys};

const tide_reader tide_launcher_reader = {
    .title = "a launcher's command line", .keys = &launcher_keys, .precedence = TIDE_PRECEDENCE_MOST};

static int64_t flag_number(const tide_json *options, const char *key) {
    const tide_json *value = tide_json_at(options, key);
    return value && value->kind == TIDE_JSON_NUMBER && value->is_integer && value->integer > 0 &&
                   value->integer <= INT32_MAX
               ? value->integer
               : 0;
}

static void put_number(tide_arena *arena, tide_json *object, const char *key, int64_t number) {
    tide_option_put(arena, object, key, tide_format(arena, "%" PRId64, number));
}

/* torchrun and deepspeed: the numbers of processes and of machines. */
static void put_processes(tide_arena *arena, tide_json *said, const tide_json *options) {
    int64_t each = flag_number(options, "nproc_per_node"), nodes = flag_number(options, "nnodes");
    if (!each) each = flag_number(options, "num_gpus");
    if (!nodes) nodes = flag_number(options, "num_nodes");
    if (!nodes) nodes = 1;
    if (!each) return;
    put_number(arena, said, "num_processes", each * nodes);
    put_number(arena, said, "num_machines", nodes);
    tide_option_put(arena, said, "distributed_type", each * nodes > 1 ? "MULTI_GPU" : "NO");
}

/* accelerate launch: commands/launch.py. */
static void put_accelerate(tide_arena *arena, tide_json *said, const tide_json *options) {
    static const char *const same[] = {"config_file", "num_processes", "num_machines", "mixed_precision"};
    for (size_t i = 0; i < TIDE_COUNT_OF(same); i++) {
        const tide_json *value = tide_json_at(options, same[i]);
        if (value) tide_json_put(arena, said, tide_text_of(same[i]), tide_json_clone(arena, value));
    }
    tide_json *fsdp = tide_json_new(arena, TIDE_JSON_OBJECT), *deepspeed = tide_json_new(arena, TIDE_JSON_OBJECT);
    for (const tide_json *option = options->first; option; option = option->next) {
        bool is_of_deepspeed = tide_key_find(&tide_deepspeed_plugin_keys, option->key) != NULL;
        if (tide_text_starts(option->key, TIDE_TEXT("fsdp_")))
            tide_json_put(arena, fsdp, option->key, tide_json_clone(arena, option));
        else if (is_of_deepspeed)
            tide_json_put(arena, deepspeed, option->key, tide_json_clone(arena, option));
    }
    if (fsdp->first) tide_json_put(arena, said, TIDE_TEXT("fsdp_config"), fsdp);
    if (deepspeed->first) tide_json_put(arena, said, TIDE_TEXT("deepspeed_config"), deepspeed);
    bool is_counted = flag_number(options, "num_processes") > 0 || tide_json_at(options, "multi_gpu");
    const char *type = tide_json_at(options, "use_deepspeed")                ? "DEEPSPEED"
                       : tide_json_at(options, "use_fsdp")                   ? "FSDP"
                       : tide_json_at(options, "config_file") || !is_counted ? NULL
                       : flag_number(options, "num_processes") == 1          ? "NO"
                                                                             : "MULTI_GPU";
    if (type) tide_option_put(arena, said, "distributed_type", type);
}

/* The number of words of a launcher: `accelerate launch` has 2, torchrun and deepspeed 1; 0: there is none. */
static uint32_t words_of_launcher(const tide_command_line *l, uint32_t at) {
    const char *token = l->tokens[at];
    if (tide_shell_runs(token, "accelerate"))
        return at + 1 < l->count && strcmp(l->tokens[at + 1], "launch") == 0 ? 2 : 0;
    bool is_one = tide_shell_runs(token, "torchrun") || tide_shell_runs(token, "deepspeed") ||
                  strcmp(token, "torch.distributed.run") == 0;
    return is_one;
}

bool tide_launcher_read(tide_reading *r, const tide_command_line *l, uint32_t end) {
    for (uint32_t i = 0; i < end; i++) {
        uint32_t words = words_of_launcher(l, i);
        if (!words) continue;
        const char *word = NULL;
        tide_json *options = tide_command_options(l, i + words, end, &word),
                  *said = tide_json_new(l->arena, TIDE_JSON_OBJECT);
        if (words == 2)
            put_accelerate(l->arena, said, options);
        else
            put_processes(l->arena, said, options);
        if (said->first) tide_claims_add(r->claims, &tide_launcher_reader, said, r->name, r->place);
        return true;
    }
    return false;
}

/* The value of an environment variable: set before the command, or on an earlier line; NULL: not set. */
static const char *environment_of(const tide_command_line *l, const tide_shell_variable *variables, const char *name) {
    size_t length = strlen(name);
    for (uint32_t i = 0; i < l->count; i++)
        if (strncmp(l->tokens[i], name, length) == 0 && l->tokens[i][length] == '=') return l->tokens[i] + length + 1;
    for (; variables; variables = variables->next)
        if (strcmp(variables->name, name) == 0) return variables->count == 1 ? variables->words[0] : NULL;
    return NULL;
}

void tide_started_ranks_read(tide_reading *r, const tide_command_line *l, const tide_shell_variable *variables,
                             bool counts_devices) {
    const char *each = environment_of(l, variables, "NPROC_PER_NODE"), *nodes = environment_of(l, variables, "NNODES"),
               *devices = counts_devices && !each ? environment_of(l, variables, "CUDA_VISIBLE_DEVICES") : NULL;
    if (!each) each = environment_of(l, variables, "NGPU"); /* torchtitan's run_train.sh */
    int64_t visible = 1, number;
    for (const char *at = devices ? strchr(devices, ',') : NULL; at; at = strchr(at + 1, ',')) visible++;
    if (devices && visible > 1) each = tide_format(l->arena, "%" PRId64, visible);
    if (!each || !tide_text_to_i64(&number, tide_text_of(each))) return;
    tide_json *options = tide_json_new(l->arena, TIDE_JSON_OBJECT), *said = tide_json_new(l->arena, TIDE_JSON_OBJECT);
    tide_json_put(l->arena, options, TIDE_TEXT("nproc_per_node"),
                  tide_argument_json(l->arena, tide_text_of(each), "", r->diags));
    if (nodes && tide_text_to_i64(&number, tide_text_of(nodes)))
        tide_json_put(l->arena, options, TIDE_TEXT("nnodes"),
                      tide_argument_json(l->arena, tide_text_of(nodes), "", r->diags));
    put_processes(l->arena, said, options);
    if (said->first) tide_claims_add(r->claims, &tide_launcher_reader, said, r->name, r->place);
}
