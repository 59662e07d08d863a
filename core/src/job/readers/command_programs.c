/* SPDX-License-Identifier: Apache-2.0 */
/* Programs at the beginning of commands: launchers of training, inference servers and containers. */
#include "job/readers/command_programs.h"

#include <ctype.h>
#include <string.h>

#include "base/units.h"
#include "job/job.h"

static const struct {
    const char *programs, *verbs; /* separated by `|`; a verb must follow directly, "": none is needed */
    tide_program_starts starts;
} table[] = {
    {"python|python2*|python3*|torchrun|deepspeed|trl", "", TIDE_STARTS_TRAINING},
    {"accelerate", "launch", TIDE_STARTS_TRAINING},
    {"axolotl|llamafactory-cli", "train", TIDE_STARTS_TRAINING},
    {"swift", "sft|pt|rlhf", TIDE_STARTS_TRAINING},
    {"tune", "run", TIDE_STARTS_TRAINING},
    {"litgpt", TIDE_LITGPT_VERBS, TIDE_STARTS_TRAINING},
    {"vllm|sglang", "serve", TIDE_STARTS_SERVER},
    {"llama-server|llama-cli|llama-bench", "", TIDE_STARTS_SERVER},
    {"docker|podman|nerdctl", "run", TIDE_STARTS_CONTAINER},
};

static bool is_program_among(const char *word, const char *programs) {
    return tide_text_matches_one(tide_base_name(tide_text_of(word)), programs);
}

bool tide_is_program_of(const char *word, tide_program_starts starts) {
    for (size_t i = 0; i < TIDE_COUNT_OF(table); i++)
        if (table[i].starts == starts && is_program_among(word, table[i].programs)) return true;
    return false;
}

/* HF_HUB_OFFLINE=1 before a program. */
static bool assigns_variable(const char *word) {
    const char *equals = strchr(word, '=');
    if (!equals || equals == word) return false;
    while (isupper((unsigned char)*word) || isdigit((unsigned char)*word) || *word == '_') word++;
    return word == equals;
}

static bool is_option_or_file(const tide_command_line *l, uint32_t at) {
    return at < l->count && (tide_shell_is_option(l->tokens[at]) ||
                             tide_text_matches_one(tide_text_of(l->tokens[at]), "*.py|*.yaml|*.yml|*.json"));
}

static bool starts_something(const tide_command_line *l) {
    uint32_t at = 0;
    while (at < l->count && assigns_variable(l->tokens[at])) at++;
    if (at >= l->count) return false;
    const char *verb = at + 1 < l->count ? l->tokens[at + 1] : "";
    for (size_t i = 0; i < TIDE_COUNT_OF(table); i++) {
        bool has_verb = *table[i].verbs;
        if (!is_program_among(l->tokens[at], table[i].programs)) continue;
        if (has_verb && !tide_text_is_among(tide_text_of(verb), table[i].verbs)) continue;
        uint32_t next = at + (has_verb ? 2 : 1);
        return is_option_or_file(l, next) || is_option_or_file(l, next + 1);
    }
    return false;
}

bool tide_is_command(tide_arena *arena, tide_text text) {
    tide_command_line l = {.arena = arena};
    bool is_one = false;
    for (size_t at = 0; at < text.length && !is_one;) {
        tide_shell_read(&l, text, &at);
        is_one = starts_something(&l);
    }
    return is_one;
}
