/* SPDX-License-Identifier: Apache-2.0 */
/* Programs that a command runs: those of TRL, ms-swift, LLaMA-Factory, axolotl, OpenRLHF and verl, scripts with
 * TrainingArguments, and some that are reported but not read. */
#include <string.h>

#include "base/units.h"
#include "job/readers/claims.h"
#include "job/readers/command_options.h"
#include "job/readers/command_programs.h"
#include "job/readers/launch_command.h"
#include "job/trainers.h"

/* A program in a command: its word, and its options. */
typedef struct launched {
    tide_reading *reading;
    const tide_command_line *line;
    const tide_shell_variable *variables;
    uint32_t at;
    tide_json *options;
    const char *word; /* the first one that belongs to no option; NULL: none */
} launched;

/* The word after the program. */
static const char *second_of(const launched *s) {
    return s->at + 1 < s->line->count ? s->line->tokens[s->at + 1] : "";
}

static bool claim_launched(const launched *s, const tide_reader *reader, tide_json *options) {
    tide_claims_add(s->reading->claims, reader, options, s->reading->name, s->reading->place);
    return true;
}

static void put_launched(const launched *s, const char *key, const char *word) {
    tide_option_put(s->line->arena, s->options, key, word);
}

static void launch_by_launcher(const launched *s) {
    tide_launcher_read(s->reading, s->line, s->at);
}

/* ---- TRL ---- */

#define TRL_KINDS "sft|dpo|kto|reward|grpo|rloo|orpo|cpo|online_dpo|gkd"

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

/* Whether a script of TRL is of a kind: "sft.py", "sft_vlm.py", "reward_modeling.py". */
static bool is_script_of(const char *token, const char *kind) {
    const char *slash = strrchr(token, '/'), *name = slash ? slash + 1 : token;
    size_t length = strlen(kind);
    return strncmp(name, kind, length) == 0 && (name[length] == '_' || strcmp(name + length, ".py") == 0);
}

static const char *kind_of_trl(const launched *s) {
    static const char kinds[] = TRL_KINDS, module[] = "trl.scripts.";
    const char *token = s->line->tokens[s->at];
    if (tide_shell_runs(token, "trl")) return second_of(s);
    if (strncmp(token, module, sizeof module - 1) == 0)
        return tide_text_is_among(tide_text_of(token + sizeof module - 1), kinds) ? token + sizeof module - 1 : NULL;
    if (is_script_of(token, "dpo_online")) return "online_dpo";
    if (is_script_of(token, "gspo")) return "grpo"; /* with importance_sampling_level among its options */
    tide_text rest = tide_text_of(kinds), kind;
    while (tide_piece_next(&rest, '|', &kind)) {
        const char *name = tide_text_copy(s->line->arena, kind);
        if (is_script_of(token, name)) return name;
    }
    return NULL;
}

static bool launch_trl(launched *s) {
    const char *kind = kind_of_trl(s);
    if (!kind) return false;
    put_launched(s, "trl", kind);
    launch_by_launcher(s);
    return claim_launched(s, &tide_trl_command_reader, s->options);
}

/* ---- ms-swift, LLaMA-Factory, axolotl, Megatron-LM ---- */

static void launch_ranks(const launched *s, bool counts_devices) {
    if (!tide_launcher_read(s->reading, s->line, s->at))
        tide_started_ranks_read(s->reading, s->line, s->variables, counts_devices);
}

static bool launch_swift(launched *s) {
    if (strcmp(second_of(s), "rlhf") == 0 && !tide_json_at(s->options, "rlhf_type"))
        put_launched(s, "rlhf_type", "dpo"); /* swift/arguments/rlhf_args.py */
    launch_ranks(s, false);
    return claim_launched(s, &tide_ms_swift_reader, s->options);
}

/* A program whose settings are in the file given to it. */
static bool claim_launched_file(const launched *s) {
    tide_json *file = tide_json_new(s->line->arena, TIDE_JSON_OBJECT);
    tide_option_put(s->line->arena, file, "file", s->word);
    return claim_launched(s, &tide_launched_reader, file);
}

static bool launch_llama_factory(launched *s) {
    launch_ranks(s, true);
    return s->word ? claim_launched_file(s) : claim_launched(s, &tide_llama_factory_reader, s->options);
}

static bool launch_axolotl(launched *s) {
    if (!s->word) return false;
    launch_by_launcher(s);
    return claim_launched_file(s);
}

static bool launch_megatron(launched *s) {
    launch_by_launcher(s);
    return claim_launched(s, &tide_megatron_reader, s->options);
}

/* torchrun -m torchtitan.train --job.config_file FILE --training.seq_len N; or run_train.sh, told by NGPU and
 * CONFIG_FILE. */
static bool launch_torchtitan(launched *s) {
    s->options = tide_options_in_sections(s->line->arena, s->options);
    launch_by_launcher(s);
    tide_started_ranks_read(s->reading, s->line, s->variables, false);
    return claim_launched(s, &tide_torchtitan_command_reader, s->options);
}

/* ---- OpenRLHF: --key value; verl: section.key=value ---- */

static bool launch_openrlhf(launched *s) {
    static const char module[] = "openrlhf.cli.train_";
    const char *kind = s->line->tokens[s->at] + sizeof module - 1;
    s->options = tide_options_in_sections(s->line->arena, s->options);
    const tide_json *advantage = tide_json_at(tide_json_at(s->options, "algo"), "advantage");
    bool rewards = strncmp(kind, "ppo", 3) == 0;
    if (!rewards || !(tide_json_at(s->options, "advantage_estimator") || tide_json_at(advantage, "estimator")))
        put_launched(s, "trains", rewards ? "ppo" : kind);
    launch_by_launcher(s);
    return claim_launched(s, &tide_openrlhf_reader, s->options);
}

static bool launch_verl(launched *s) {
    const tide_json *said = tide_json_at(s->options, "config_name");
    s->options = tide_json_new(s->line->arena, TIDE_JSON_OBJECT);
    if (tide_json_is(said, TIDE_JSON_STRING)) {
        tide_text rest = said->text, name; /* overrides that follow are appended to it */
        tide_piece_next(&rest, ',', &name);
        put_launched(s, "config_name", tide_text_copy(s->line->arena, name));
    }
    for (uint32_t i = s->at + 1; i < s->line->count; i++)
        tide_option_override(s->line->arena, s->options, s->line->tokens[i]);
    launch_by_launcher(s);
    return claim_launched(s, &tide_verl_reader, s->options);
}

/* ---- scripts ---- */

/* Whether options are about training, rather than converting a model. */
static bool trains(const tide_json *options) {
    static const char *const keys[] = {"per_device_train_batch_size",
                                       "gradient_accumulation_steps",
                                       "learning_rate",
                                       "num_train_epochs",
                                       "max_steps",
                                       "do_train",
                                       "gradient_checkpointing",
                                       "deepspeed",
                                       "bf16",
                                       "fp16"};
    bool has_one = false;
    for (size_t i = 0; i < TIDE_COUNT_OF(keys); i++) has_one |= tide_json_at(options, keys[i]) != NULL;
    return has_one;
}

static bool takes_arguments(const tide_json *options) {
    return tide_json_at(options, "per_device_train_batch_size") ||
           (tide_json_at(options, "model_name_or_path") && trains(options));
}

/* A script with a file of arguments, overridden by options, or with TrainingArguments as options. */
static bool launch_script(launched *s) {
    const char *script = s->line->tokens[s->at];
    bool has_file = s->word && tide_text_matches_one(tide_text_of(s->word), "*.yaml|*.yml|*.json");
    if (has_file) put_launched(s, "config", s->word);
    bool has_config = tide_json_at(s->options, "config") != NULL;
    if (!has_config && !takes_arguments(s->options)) return false;
    if (tide_preference_word(s->line->arena, tide_text_of(script))) put_launched(s, "script", script);
    launch_by_launcher(s);
    return claim_launched(s, has_config ? &script_reader : &tide_trainer_reader, s->options);
}

/* ---- all of them ---- */

#define NEAR_ACTOR                                                                                                     \
    "say model=NAME, batch, seq, dtype, optimizer, checkpointing and parallel.kind for the update of the actor "       \
    "alone, or trainer=grpo for TRL's GRPO on one GPU"
#define NEAR_SERVER "give model=NAME mode=serve gpu=NAME: vLLM serves the same models"
#define NEAR_SFT                                                                                                       \
    "give model=NAME, batch, seq, dtype, optimizer, checkpointing and parallel.kind: an SFT with transformers is "     \
    "similar to it"

/* The first row that matches a word, and reads or refuses the program. */
static const struct {
    const char *program, *verbs; /* patterns of the word; verbs of which one must follow, "": any word */
    bool (*read)(launched *s);   /* NULL: reported and not read */
    const char *what, *remedy;
} programs[] = {
    {"openrlhf.cli.train_*", "", launch_openrlhf, NULL, NULL},
    {"*verl.*main_ppo*|verl.trainer.*sft_trainer*", "", launch_verl, NULL, NULL},
    {"openrlhf.cli.*", "", NULL, "starts OpenRLHF, and trains nothing", "give the command that trains"},
    {"verl.trainer.*", "", NULL, "starts verl, and trains nothing", "give the command that trains"},
    {"*run_grpo*.py", "", NULL, "starts NeMo-RL, which trains on rewards beside an inference engine: not described",
     NEAR_ACTOR},
    {"nemo_automodel*", "", NULL, "starts NeMo AutoModel, whose recipes are not described", NEAR_SFT},
    {"automodel", "", NULL, "starts NeMo AutoModel, whose recipes are not described", NEAR_SFT},
    {"litgpt", TIDE_LITGPT_VERBS, NULL, "starts LitGPT, whose models are its own and not described", NEAR_SFT},
    {"tune", "run", NULL, "starts torchtune, whose models are its own and not described", NEAR_SFT},
    {"swift", "infer|app|sample|eval", NULL, "generates with ms-swift, and trains nothing",
     "give mode=infer with model=NAME, or mode=serve for a server"},
    {"swift", "deploy|rollout", NULL, "starts a server with ms-swift, and trains nothing",
     "give mode=serve with model=NAME and gpu=NAME"},
    {"swift|megatron", "export|merge-lora", NULL, "merges, converts or exports a model, and trains nothing",
     "give the command that trains, or mode=infer"},
    {"llamafactory-cli", "chat|webchat|webui|api|eval|export", NULL, "starts LLaMA-Factory, and trains nothing",
     "give the command that trains, or mode=infer or mode=serve with model=NAME"},
    {"megatron", "sft|pt|rlhf", NULL, "starts ms-swift's Megatron, which is not described",
     "give parallel.kind=megatron with its sizes for Megatron-Core's own loop"},
    {"*examples/scripts/async_grpo*|*examples/scripts/bco*|*examples/scripts/distillation*|"
     "*examples/scripts/gold*|*examples/scripts/mpo*|*examples/scripts/nash_md*|"
     "*examples/scripts/ppo*|*examples/scripts/prm*|*examples/scripts/sdft*|"
     "*examples/scripts/sdpo*|*examples/scripts/ssd*|*examples/scripts/tpo*|*examples/scripts/xpo*",
     "", NULL, "starts a trainer of TRL that is not described", "trainer=" TIDE_TRL_TRAINERS " are"},
    {"*text-generation-inference*|text-generation-launcher", "", NULL, "starts TGI, which is not described",
     NEAR_SERVER},
    {"trtllm-serve", "", NULL, "starts TensorRT-LLM, which is not described", NEAR_SERVER},
    {"lmdeploy", "serve", NULL, "starts LMDeploy, which is not described", NEAR_SERVER},
    {"*ollama/ollama*", "", NULL, "starts Ollama, which is not described",
     "give model=NAME mode=serve engine=llama_cpp gpu=NAME, which is similar"},
    {"trl", TRL_KINDS, launch_trl, NULL, NULL},
    {"trl", "vllm-serve|env|skills", NULL, "trains nothing", "give the command that trains"},
    {"trl", "", NULL, "starts a trainer of TRL that is not described", "trainer=" TIDE_TRL_TRAINERS " are"},
    {"trl.scripts.*|*trl/scripts/*|*examples/scripts/*", "", launch_trl, NULL, NULL},
    {"swift", "sft|pt|rlhf", launch_swift, NULL, NULL},
    {"*swift/cli/sft.py|*swift/cli/pt.py", "", launch_swift, NULL, NULL},
    {"llamafactory-cli", "train", launch_llama_factory, NULL, NULL},
    {"axolotl", "train", launch_axolotl, NULL, NULL},
    {"torchtitan.train|*torchtitan/train.py|run_train.sh", "", launch_torchtitan, NULL, NULL},
    {"axolotl.cli.train", "", launch_axolotl, NULL, NULL},
    {"pretrain_gpt.py", "", launch_megatron, NULL, NULL},
    {"pretrain_bert.py|pretrain_t5.py|pretrain_hybrid.py|pretrain_mamba.py|pretrain_vlm.py|pretrain_retro.py|"
     "pretrain_ict.py|pretrain_vision_classify.py|pretrain_vision_dino.py|pretrain_vision_inpaint.py",
     "", NULL, "trains a model of Megatron-LM that is not described",
     "pretrain_gpt.py is, for dense decoders and mixtures; model=NAME runs transformers' models"},
    {"*training/run_recipe.py|*training/setup_experiment.py", "", NULL,
     "runs a recipe of Megatron-Bridge, whose settings are in its code",
     "give the run_config.yaml that the run writes, or model=NAME with parallel.kind=megatron and its layout"},
    {"*.py", "", launch_script, NULL, NULL},
};

/* A pattern without a star is the name of a program, with or without a path. */
static bool is_launched_by(const char *token, const char *patterns) {
    tide_text word = tide_text_of(token);
    return tide_text_matches_one(word, patterns) || tide_text_is_among(tide_base_name(word), patterns);
}

bool tide_runs_known(const tide_command_line *l) {
    for (uint32_t i = 0; i < l->count; i++)
        if (tide_is_program_of(l->tokens[i], TIDE_STARTS_TRAINING)) return true;
    return false;
}

static bool launch_row(launched *s, size_t row) {
    const char *verbs = programs[row].verbs;
    const char *token = s->line->tokens[s->at];
    if (strchr(token, '=') || !is_launched_by(token, programs[row].program)) return false; /* NAME=pretrain_gpt.py */
    if (*verbs && !tide_text_is_among(tide_text_of(second_of(s)), verbs)) return false;
    if (!programs[row].read)
        return tide_file_refuse(s->reading, TIDE_ERR_MODEL_UNKNOWN, programs[row].what, programs[row].remedy), true;
    bool is_script = tide_text_ends(tide_text_of(token), TIDE_TEXT(".py"));
    if (is_script && !tide_runs_known(s->line)) return false; /* mentioned, but not run */
    s->word = NULL;
    s->options = tide_command_options(s->line, s->at + (*verbs ? 2 : 1), s->line->count, &s->word);
    return programs[row].read(s);
}

bool tide_launched_program_read(tide_reading *r, const tide_command_line *l, const tide_shell_variable *variables) {
    launched s = {.reading = r, .line = l, .variables = variables};
    for (s.at = 0; s.at < l->count; s.at++)
        for (size_t row = 0; row < TIDE_COUNT_OF(programs); row++)
            if (launch_row(&s, row)) return true;
    return false;
}
