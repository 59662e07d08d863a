/* SPDX-License-Identifier: Apache-2.0 */
/* Commands of a script that start training: TRL's, ms-swift's and LLaMA-Factory's with options, scripts that take
 * TrainingArguments, and what launches them (accelerate launch, torchrun, deepspeed). */
#include <inttypes.h>
#include <string.h>

#include "base/units.h"
#include "job/readers/claims.h"
#include "job/readers/launch_command.h"
#include "job/readers/shell_variables.h"

/* ---- options as an object ---- */

/* A number, a truth or a text. */
static tide_json *typed_word(tide_arena *arena, const char *word) {
    tide_diagnostics scratch;
    tide_diagnostics_init(&scratch, arena);
    const char *lowered = tide_lowered(arena, tide_text_of(word));
    bool is_truth = strcmp(lowered, "true") == 0 || strcmp(lowered, "false") == 0;
    bool is_number = (word[0] >= '0' && word[0] <= '9') || (word[0] == '-' && word[1] >= '0' && word[1] <= '9');
    tide_json *read =
        is_truth || is_number ? tide_json_parse(arena, tide_text_of(is_truth ? lowered : word), "", &scratch) : NULL;
    if (read) return read;
    read = tide_json_new(arena, TIDE_JSON_STRING);
    read->text = tide_text_of(word);
    return read;
}

static void put(tide_arena *arena, tide_json *object, const char *key, const char *word) {
    tide_json_put(arena, object, tide_text_of(key), typed_word(arena, word));
}

/* --lora-r as lora_r. */
static char *flag_key(tide_arena *arena, const char *token, size_t length) {
    while (length && *token == '-') token++, length--;
    char *key = tide_text_copy(arena, (tide_text){token, length});
    for (char *c = key; *c; c++)
        if (*c == '-') *c = '_';
    return key;
}

/* The options from `from` to `end`: --key value, --key=value, --key (true), --key one two (one,two). Words that belong
 * to none go to *word, the first of them. */
static tide_json *read_flags(const tide_command_line *l, uint32_t from, uint32_t end, const char **word) {
    tide_json *options = tide_json_new(l->arena, TIDE_JSON_OBJECT);
    for (uint32_t i = from; i < end; i++) {
        const char *token = l->tokens[i], *equals = strchr(token, '=');
        if (!tide_shell_is_option(token)) {
            if (!*word) *word = token;
            continue;
        }
        char *key = flag_key(l->arena, token, equals ? (size_t)(equals - token) : strlen(token));
        uint32_t count = 0;
        while (i + 1 + count < end && !tide_shell_is_option(l->tokens[i + 1 + count])) count++;
        if (!*key) continue;
        if (equals || !count) {
            put(l->arena, options, key, equals ? equals + 1 : "true");
            continue;
        }
        const char *joined = l->tokens[i + 1];
        for (uint32_t k = 2; k <= count; k++) joined = tide_format(l->arena, "%s,%s", joined, l->tokens[i + k]);
        put(l->arena, options, key, joined);
        i += count;
    }
    return options;
}

/* ---- launchers ---- */

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
    put(arena, object, key, tide_format(arena, "%" PRId64, number));
}

/* torchrun and deepspeed: so many processes on each of so many machines. */
static void put_processes(tide_arena *arena, tide_json *said, const tide_json *options) {
    int64_t each = flag_number(options, "nproc_per_node"), nodes = flag_number(options, "nnodes");
    if (!each) each = flag_number(options, "num_gpus");
    if (!nodes) nodes = flag_number(options, "num_nodes");
    if (!nodes) nodes = 1;
    if (!each) return;
    put_number(arena, said, "num_processes", each * nodes);
    put_number(arena, said, "num_machines", nodes);
    put(arena, said, "distributed_type", each * nodes > 1 ? "MULTI_GPU" : "NO");
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
    if (type) put(arena, said, "distributed_type", type);
}

/* What launches the program, from which word the program stands; 0 where nothing does. */
static uint32_t read_launcher(tide_reading *r, const tide_command_line *l) {
    for (uint32_t i = 0; i < l->count; i++) {
        bool is_accelerate =
            tide_shell_runs(l->tokens[i], "accelerate") && i + 1 < l->count && strcmp(l->tokens[i + 1], "launch") == 0;
        bool is_torchrun = tide_shell_runs(l->tokens[i], "torchrun") ||
                           strcmp(l->tokens[i], "torch.distributed.run") == 0 ||
                           tide_shell_runs(l->tokens[i], "deepspeed");
        if (!is_accelerate && !is_torchrun) continue;
        uint32_t from = i + (is_accelerate ? 2 : 1), end = from;
        while (end < l->count && !tide_shell_runs(l->tokens[end], "trl") &&
               !(strlen(l->tokens[end]) > 3 && strcmp(l->tokens[end] + strlen(l->tokens[end]) - 3, ".py") == 0) &&
               strcmp(l->tokens[end], "-m") != 0 && strcmp(l->tokens[end], "--module") != 0)
            end++;
        const char *word = NULL;
        tide_json *options = read_flags(l, from, end, &word), *said = tide_json_new(l->arena, TIDE_JSON_OBJECT);
        if (is_accelerate)
            put_accelerate(l->arena, said, options);
        else
            put_processes(l->arena, said, options);
        if (said->first) tide_claims_add(r->claims, &tide_launcher_reader, said, r->name, r->place);
        return end;
    }
    return 0;
}

/* What a command's environment has of a name: before the command, or assigned on a line before; NULL: nothing. */
static const char *environment_of(const tide_command_line *l, const tide_shell_variable *variables, const char *name) {
    size_t length = strlen(name);
    for (uint32_t i = 0; i < l->count; i++)
        if (strncmp(l->tokens[i], name, length) == 0 && l->tokens[i][length] == '=') return l->tokens[i] + length + 1;
    for (; variables; variables = variables->next)
        if (strcmp(variables->name, name) == 0) return variables->count == 1 ? variables->words[0] : NULL;
    return NULL;
}

/* ms-swift (cli/main.py) and LLaMA-Factory (launcher.py) start torchrun by themselves: with NPROC_PER_NODE, and the
 * second with the devices that are visible where there are several. */
static void read_started_ranks(tide_reading *r, const tide_command_line *l, const tide_shell_variable *variables,
                               bool counts_devices) {
    const char *each = environment_of(l, variables, "NPROC_PER_NODE"), *nodes = environment_of(l, variables, "NNODES"),
               *devices = counts_devices && !each ? environment_of(l, variables, "CUDA_VISIBLE_DEVICES") : NULL;
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

/* ---- programs ---- */

static const tide_key_row trl_command_rows[] = {KEY_HOLDS("config", tide_trainer_keys), KEY_NEUTRAL("script")};

static const tide_key_table trl_command_keys = {
    .rows = trl_command_rows, .count = TIDE_COUNT_OF(trl_command_rows), .more = &tide_trainer_keys};

const tide_reader tide_trl_command_reader = {.title = "a command line of TRL",
                                             .keys = &trl_command_keys,
                                             .program = TIDE_PROGRAM_trl,
                                             .trains = true,
                                             .joins = true,
                                             .precedence = TIDE_PRECEDENCE_MOST};

static void settle_launched(tide_claims *c) {
    const tide_json *path = NULL;
    for (const tide_claims_file *file = c->first; file; file = file->next)
        if (file->reader == &tide_launched_reader) path = file->root->first;
    if (path && !tide_claims_train(c))
        tide_error(c->diags, TIDE_ERR_FIELD_MISSING, c->first->place,
                   tide_format(c->arena, "%s starts training by %s", c->first->summary->name,
                               tide_shown(c->arena, path->text)),
                   "give that file too");
}

/* axolotl train FILE, llamafactory-cli train FILE. */
const tide_reader tide_launched_reader = {.title = "a command line", .precedence = 0, .settle = settle_launched};

/* A script that takes a file of TrainingArguments. */
static const tide_reader script_reader = {.title = "a command line",
                                          .keys = &trl_command_keys,
                                          .program = TIDE_PROGRAM_transformers,
                                          .joins = true,
                                          .precedence = TIDE_PRECEDENCE_MOST,
                                          .settle = settle_launched};

/* Whether a script of TRL's is of a kind: "sft.py", "sft_vlm.py", "reward_modeling.py". */
static bool is_script_of(const char *token, const char *kind) {
    const char *slash = strrchr(token, '/'), *name = slash ? slash + 1 : token;
    size_t length = strlen(kind);
    return strncmp(name, kind, length) == 0 && (name[length] == '_' || strcmp(name + length, ".py") == 0);
}

static const char *trl_kind_of(const tide_command_line *l, uint32_t at) {
    static const char *const kinds[] = {"sft", "dpo", "kto", "reward", "grpo", "rloo", "orpo", "cpo"};
    const char *token = l->tokens[at];
    bool is_trl = tide_shell_runs(token, "trl") && at + 1 < l->count;
    bool is_script = strstr(token, "trl/scripts/") || strstr(token, "examples/scripts/");
    if (is_script && is_script_of(token, "gspo")) return "grpo"; /* with importance_sampling_level among its options */
    for (size_t i = 0; i < TIDE_COUNT_OF(kinds); i++)
        if ((is_trl && strcmp(l->tokens[at + 1], kinds[i]) == 0) || (is_script && is_script_of(token, kinds[i])) ||
            strcmp(token, tide_format(l->arena, "trl.scripts.%s", kinds[i])) == 0)
            return kinds[i];
    return NULL;
}

/* ---- openrlhf.cli.train_NAME --key value; verl.trainer.NAME section.key=value ---- */

static tide_json *override_section(tide_arena *arena, tide_json *object, tide_text name) {
    for (tide_json *entry = object->first; entry; entry = entry->next)
        if (entry->kind == TIDE_JSON_OBJECT && tide_text_equal(entry->key, name)) return entry;
    tide_json *made = tide_json_new(arena, TIDE_JSON_OBJECT);
    tide_json_put(arena, object, tide_text_of(tide_text_copy(arena, name)), made);
    return made;
}

/* An override of Hydra: its sections are made where they are not there. */
static void put_override(tide_arena *arena, tide_json *root, const char *token) {
    const char *equals = strchr(token, '=');
    if (!equals || tide_shell_is_option(token)) return;
    while (*token == '+') token++;
    for (const char *dot = memchr(token, '.', (size_t)(equals - token)); dot;
         dot = memchr(token, '.', (size_t)(equals - token))) {
        tide_text name = {token, (size_t)(dot - token)};
        root = override_section(arena, root, name);
        token = dot + 1;
    }
    put(arena, root, tide_text_copy(arena, (tide_text){token, (size_t)(equals - token)}), equals + 1);
}

/* --section.key as a section with a key. */
static tide_json *in_sections(tide_arena *arena, const tide_json *options) {
    tide_json *root = tide_json_new(arena, TIDE_JSON_OBJECT);
    for (const tide_json *option = options->first; option; option = option->next) {
        tide_json *section = root;
        tide_text rest = option->key, name;
        while (memchr(rest.at, '.', rest.length) && tide_piece_next(&rest, '.', &name))
            section = override_section(arena, section, name);
        tide_json_put(arena, section, rest, tide_json_clone(arena, option));
    }
    return root;
}

static void read_openrlhf(tide_reading *r, const tide_command_line *l, uint32_t at, const char *kind) {
    const char *word = NULL;
    tide_json *options = in_sections(l->arena, read_flags(l, at + 1, l->count, &word));
    const tide_json *advantage = tide_json_at(tide_json_at(options, "algo"), "advantage");
    bool rewards = strncmp(kind, "ppo", 3) == 0;
    if (!rewards || !(tide_json_at(options, "advantage_estimator") || tide_json_at(advantage, "estimator")))
        put(l->arena, options, "trains", rewards ? "ppo" : kind);
    read_launcher(r, l);
    tide_claims_add(r->claims, &tide_openrlhf_reader, options, r->name, r->place);
}

static void read_verl(tide_reading *r, const tide_command_line *l, uint32_t at) {
    static const char option[] = "--config-name";
    tide_json *root = tide_json_new(l->arena, TIDE_JSON_OBJECT);
    for (uint32_t k = at + 1; k < l->count; k++) {
        const char *token = l->tokens[k];
        put_override(l->arena, root, token);
        if (strncmp(token, option, sizeof option - 1) != 0) continue;
        const char *name = token[sizeof option - 1] == '=' ? token + sizeof option
                           : k + 1 < l->count              ? l->tokens[k + 1]
                                                           : "";
        put(l->arena, root, "config_name", name);
    }
    read_launcher(r, l);
    tide_claims_add(r->claims, &tide_verl_reader, root, r->name, r->place);
}

static bool read_rl_program(tide_reading *r, const tide_command_line *l) {
    static const char openrlhf[] = "openrlhf.cli.train_";
    for (uint32_t i = 0; i < l->count; i++) {
        tide_text token = tide_text_of(l->tokens[i]);
        bool is_of_openrlhf = tide_text_starts(token, TIDE_TEXT("openrlhf.cli.train_")),
             is_of_verl = tide_text_matches(token, TIDE_TEXT("verl.*main_ppo*")) ||
                          tide_text_matches(token, TIDE_TEXT("verl.trainer.*sft_trainer*"));
        if (is_of_openrlhf) read_openrlhf(r, l, i, token.at + sizeof openrlhf - 1);
        if (is_of_verl) read_verl(r, l, i);
        if (is_of_openrlhf || is_of_verl) return true;
    }
    return false;
}

/* A script with a file of arguments, and options that hold over those in it. */
static bool read_script(tide_reading *r, const tide_command_line *l, const char *script, const char *file,
                        tide_json *options) {
    tide_text name = tide_text_of(file ? file : "");
    bool has_file = tide_text_ends(name, TIDE_TEXT(".yaml")) || tide_text_ends(name, TIDE_TEXT(".yml")) ||
                    tide_text_ends(name, TIDE_TEXT(".json"));
    if (!has_file && !tide_json_at(options, "config")) return false;
    if (has_file) put(l->arena, options, "config", file);
    if (tide_preference_word(l->arena, tide_text_of(script))) put(l->arena, options, "script", script);
    tide_claims_add(r->claims, &script_reader, options, r->name, r->place);
    return true;
}

/* swift sft, pt and rlhf, and the scripts that they run. */
static bool runs_swift(const char *token, const char *next) {
    return tide_text_matches(tide_text_of(token), TIDE_TEXT("*swift/cli/sft.py")) ||
           tide_text_matches(tide_text_of(token), TIDE_TEXT("*swift/cli/pt.py")) ||
           (tide_shell_runs(token, "swift") &&
            (strcmp(next, "sft") == 0 || strcmp(next, "pt") == 0 || strcmp(next, "rlhf") == 0));
}

/* Whether options say how something trains, and not what a model is turned into. */
static bool trains(const tide_json *options) {
    static const char *const keys[] = {"per_device_train_batch_size",
                                       "gradient_accumulation_steps",
                                       "learning_rate",
                                       "num_train_epochs",
                                       "max_steps",
                                       "do_train",
                                       "gradient_checkpointing",
                                       "bf16",
                                       "fp16"};
    bool has_one = false;
    for (size_t i = 0; i < TIDE_COUNT_OF(keys); i++) has_one |= tide_json_at(options, keys[i]) != NULL;
    return has_one;
}

/* The program from `from` on; whether there is one that is known. */
static bool read_program(tide_reading *r, const tide_command_line *l, uint32_t from,
                         const tide_shell_variable *variables) {
    for (uint32_t i = from; i < l->count; i++) {
        const char *token = l->tokens[i], *next = i + 1 < l->count ? l->tokens[i + 1] : "", *kind = trl_kind_of(l, i),
                   *word = NULL;
        bool of_swift = runs_swift(token, next),
             of_factory = tide_shell_runs(token, "llamafactory-cli") && strcmp(next, "train") == 0,
             of_axolotl = (tide_shell_runs(token, "axolotl") && strcmp(next, "train") == 0) ||
                          strcmp(token, "axolotl.cli.train") == 0,
             of_megatron = tide_shell_runs(token, "pretrain_gpt.py"),
             is_script = strlen(token) > 3 && strcmp(token + strlen(token) - 3, ".py") == 0;
        if (!kind && !of_swift && !of_factory && !of_axolotl && !is_script) continue;
        if (!from && (of_swift || of_factory)) read_started_ranks(r, l, variables, of_factory);
        bool is_module = strcmp(token, "axolotl.cli.train") == 0 || strncmp(token, "trl.scripts.", 12) == 0;
        uint32_t behind = i + (is_script || is_module ? 1 : 2);
        tide_json *options = read_flags(l, behind, l->count, &word);
        const tide_reader *reader = kind          ? &tide_trl_command_reader
                                    : of_swift    ? &tide_ms_swift_reader
                                    : of_factory  ? &tide_llama_factory_reader
                                    : of_megatron ? &tide_megatron_reader
                                                  : &tide_trainer_reader;
        bool takes_arguments = tide_json_at(options, "per_device_train_batch_size") ||
                               (tide_json_at(options, "model_name_or_path") && trains(options));
        if ((of_axolotl || of_factory) && word) {
            tide_json *launched = tide_json_new(l->arena, TIDE_JSON_OBJECT);
            put(l->arena, launched, "file", word);
            tide_claims_add(r->claims, &tide_launched_reader, launched, r->name, r->place);
            return true;
        }
        bool is_unknown = is_script && !kind && !of_megatron && !of_swift;
        if (is_unknown && read_script(r, l, token, word, options)) return true;
        if (of_axolotl || (is_unknown && !takes_arguments)) continue;
        if (kind) put(l->arena, options, "trl", kind);
        if (is_unknown && tide_preference_word(l->arena, tide_text_of(token))) put(l->arena, options, "script", token);
        if (of_swift && strcmp(next, "rlhf") == 0 && !tide_json_at(options, "rlhf_type"))
            put(l->arena, options, "rlhf_type", "dpo"); /* swift/arguments/rlhf_args.py */
        tide_claims_add(r->claims, reader, options, r->name, r->place);
        return true;
    }
    return false;
}

/* Programs that are named and not read; whether one of them is there. */
static bool refuse_program(tide_reading *r, const tide_command_line *l) {
#define NEAR_ACTOR                                                                                                     \
    "say model=NAME, batch, seq, dtype, optimizer, checkpointing and parallel.kind for the update of the actor "       \
    "alone, "                                                                                                          \
    "or trainer=grpo for TRL's GRPO on one GPU"
#define NEAR_SFT                                                                                                       \
    "say model=NAME, batch, seq, dtype, optimizer, checkpointing and parallel.kind: an SFT of transformers is near "   \
    "to it"
    static const struct {
        const char *program, *verbs, *what, *remedy; /* verbs: words of which one is behind it; "": any */
    } rows[] = {
        {"openrlhf.cli.*", "", "starts OpenRLHF, and trains nothing", "give the command that trains"},
        {"verl.trainer.*", "", "starts verl, and trains nothing", "give the command that trains"},
        {"*run_grpo*.py", "", "starts NeMo-RL, which trains by rewards beside what generates: not described",
         NEAR_ACTOR},
        {"nemo_automodel*", "", "starts NeMo AutoModel, whose recipes are not described", NEAR_SFT},
        {"automodel", "", "starts NeMo AutoModel, whose recipes are not described", NEAR_SFT},
        {"tune", "run", "starts torchtune, whose models are its own and not described", NEAR_SFT},
        {"swift", "infer|app|sample|eval", "generates by ms-swift, and trains nothing",
         "give mode=infer with model=NAME, or mode=serve for a server"},
        {"swift", "deploy|rollout", "starts a server by ms-swift, and trains nothing",
         "give mode=serve with model=NAME and gpu=NAME"},
        {"swift|megatron", "export|merge-lora", "merges, converts or exports a model, and trains nothing",
         "give the command that trains, or mode=infer"},
        {"llamafactory-cli", "chat|webchat|webui|api|eval|export", "starts LLaMA-Factory, and trains nothing",
         "give the command that trains, or mode=infer or mode=serve with model=NAME"},
        {"megatron", "sft|pt|rlhf", "starts ms-swift's Megatron, which is not described",
         "say parallel.kind=megatron with its sizes for Megatron-Core's own loop"},
        {"trl",
         "a2po|async_grpo|bco|distillation|gkd|gmpo|gold|minillm|nash_md|online_dpo|papo|ppo|prm|sdft|sdpo|tpo|xpo",
         "starts a trainer of TRL's that is not described",
         "trainer=sft, dpo, kto, orpo, cpo, reward, grpo and rloo are"},
        {"*examples/scripts/async_grpo*|*examples/scripts/bco*|*examples/scripts/distillation*|"
         "*examples/scripts/gkd*|*examples/scripts/gold*|*examples/scripts/mpo*|*examples/scripts/nash_md*|"
         "*examples/scripts/online_dpo*|*examples/scripts/ppo*|*examples/scripts/prm*|*examples/scripts/sdft*|"
         "*examples/scripts/sdpo*|*examples/scripts/ssd*|*examples/scripts/tpo*|*examples/scripts/xpo*",
         "", "starts a trainer of TRL's that is not described",
         "trainer=sft, dpo, kto, orpo, cpo, reward, grpo and rloo are"},
    };
#undef NEAR_ACTOR
#undef NEAR_SFT
    for (uint32_t i = 0; i < l->count; i++)
        for (size_t k = 0; k < TIDE_COUNT_OF(rows); k++) {
            bool is_it = false;
            tide_text programs = tide_text_of(rows[k].program), program;
            while (tide_piece_next(&programs, '|', &program))
                is_it = is_it || tide_text_matches(tide_text_of(l->tokens[i]), program);
            bool runs = !rows[k].verbs[0];
            tide_text rest = tide_text_of(rows[k].verbs), verb;
            while (i + 1 < l->count && tide_piece_next(&rest, '|', &verb))
                runs = runs || tide_text_is(verb, l->tokens[i + 1]);
            if (!is_it || !runs) continue;
            tide_file_refuse(r, TIDE_ERR_MODEL_UNKNOWN, rows[k].what, rows[k].remedy);
            return true;
        }
    return false;
}

/* Programs that start training, or launch one that does. */
static bool runs_known(const tide_command_line *l) {
    static const char known[] = "accelerate|torchrun|deepspeed|trl|axolotl|llamafactory-cli|swift";
    for (uint32_t i = 0; i < l->count; i++) {
        tide_text name = tide_base_name(tide_text_of(l->tokens[i]));
        if (tide_text_is_among(name, known) || tide_text_matches(name, TIDE_TEXT("python*"))) return true;
    }
    return false;
}

static const char *script_of(const tide_command_line *l) {
    for (uint32_t i = 0; i < l->count; i++)
        if (tide_text_ends(tide_text_of(l->tokens[i]), TIDE_TEXT(".py"))) return l->tokens[i];
    return NULL;
}

static void refuse_script(tide_reading *r, const char *script) {
    const char *shown = tide_shown(r->arena, tide_text_of(script));
    tide_file_refuse(r, TIDE_ERR_MODEL_UNKNOWN,
                     tide_format(r->arena, "runs %s: what it trains is in its code, and no option says it", shown),
                     tide_format(r->arena,
                                 "say model=NAME and its settings, or `tidemark dry-run -- python %s` with its options",
                                 shown));
}

bool tide_launch_read_script(tide_reading *r) {
    tide_text text = tide_trimmed(r->text);
    tide_command_line l = {.arena = r->arena};
    const char *script = NULL;
    if (!text.length || text.length > TIDE_SHELL_SCRIPT_LIMIT || text.at[0] == '{' || text.at[0] == '[') return false;
    const tide_shell_variable *variables = tide_shell_variables(r->arena, text);
    for (int i = 0; i < 2; i++) { /* variables may be computed themselves */
        text = tide_shell_compute(r->arena, text, variables);
        variables = tide_shell_variables(r->arena, text);
    }
    for (size_t at = 0; at < text.length;) {
        tide_shell_read(&l, text, &at);
        tide_shell_expand(&l, variables);
        if (read_rl_program(r, &l) || refuse_program(r, &l)) return true;
        if (!runs_known(&l)) continue;
        if (read_program(r, &l, read_launcher(r, &l), variables)) return true;
        if (!script) script = script_of(&l);
    }
    if (script) refuse_script(r, script);
    return script != NULL;
}
