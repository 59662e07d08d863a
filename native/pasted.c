/* SPDX-License-Identifier: Apache-2.0 */
/* A command among the words that starts an inference server or a training, as it was pasted: `vllm serve MODEL
 * --max-model-len 8k`, 'trl sft --model_name_or_path MODEL ...'. It is read as a file that holds it. Words that are
 * this program's alone stay its. */
#include "cli.h"

#include <ctype.h>
#include <string.h>

static const char *const own[] = {"gpu",       "gpus",       "gpu_gib",         "concurrency", "max_concurrency",
                                  "input_len", "output_len", "request_lengths", "replicas",    "json"};

/* gpu=l40s, and --gpu l40s or --gpu=l40s, with the word behind it: how many words it is; 0: the command's, as docker's
 * --gpus. */
static int words_of_own(int argc, char **argv) {
    bool is_option = strncmp(argv[0], "--", 2) == 0;
    const char *name = argv[0] + (is_option ? 2 : 0), *equals = strchr(name, '=');
    size_t length = equals ? (size_t)(equals - name) : strlen(name);
    if ((!is_option && !equals) || strcmp(argv[0], "--gpus") == 0) return 0;
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        bool is_it = strlen(own[i]) == length;
        for (size_t c = 0; is_it && c < length; c++) is_it = own[i][c] == (name[c] == '-' ? '_' : name[c]);
        if (is_it) return equals || strcmp(own[i], "json") == 0 || argc < 2 ? 1 : 2;
    }
    return 0;
}

/* Programs with the words that may follow at once, parted by "|"; readers/server_command.c and launch_command.c find
 * the same in scripts. */
static const char *const programs[][2] = {
    {"vllm", "serve"},
    {"sglang", "serve"},
    {"llama-server", ""},
    {"llama-cli", ""},
    {"llama-bench", ""},
    {"docker", "run"},
    {"podman", "run"},
    {"python", ""},
    {"torchrun", ""},
    {"deepspeed", ""},
    {"accelerate", "launch"},
    {"axolotl", "train"},
    {"llamafactory-cli", "train"},
    {"swift", "sft|pt|rlhf"},
    {"trl", ""},
    {"tune", "run"},
};

static bool is_among(const char *word, const char *list) {
    size_t length = strlen(word);
    for (const char *at = list; (at = strstr(at, word)); at += length)
        if ((at == list || at[-1] == '|') && (!at[length] || at[length] == '|')) return true;
    return false;
}

/* "python3.12" is python. */
static bool is_program(const char *word, const char *program) {
    const char *name = cli_base_name(word);
    size_t length = strlen(program);
    bool has_version = strcmp(program, "python") == 0;
    return strncmp(name, program, length) == 0 &&
           strspn(name + length, has_version ? ".0123456789" : "") == strlen(name + length);
}

/* HF_HUB_OFFLINE=1 before a program. */
static bool is_variable(const char *word) {
    const char *equals = strchr(word, '=');
    if (!equals || equals == word) return false;
    while (isupper((unsigned char)*word) || isdigit((unsigned char)*word) || *word == '_') word++;
    return word == equals;
}

static bool is_option_or_file(int argc, char **argv) {
    static const char *const endings[] = {".py", ".yaml", ".yml", ".json"};
    for (size_t i = 0; argc && i < sizeof endings / sizeof *endings; i++)
        if (cli_ends_in(argv[0], endings[i])) return true;
    return argc && argv[0][0] == '-' && !words_of_own(argc, argv);
}

bool cli_is_command(int argc, char **argv) {
    while (argc && is_variable(*argv)) argc--, argv++;
    for (size_t i = 0; argc && i < sizeof programs / sizeof *programs; i++) {
        const char *seconds = programs[i][1];
        int from = *seconds ? 2 : 1;
        if (!is_program(argv[0], programs[i][0]) || argc < from) continue;
        if (*seconds && !is_among(argv[1], seconds)) continue;
        return is_option_or_file(argc - from, argv + from) ||
               (argc > from && is_option_or_file(argc - from - 1, argv + from + 1));
    }
    return false;
}

/* As a shell reads it back. */
static void append_word(cli_buffer *command, const char *word) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=./:,+@%";
    if (command->length) cli_append_text(command, " ");
    if (*word && strspn(word, plain) == strlen(word)) {
        cli_append_text(command, word);
        return;
    }
    cli_append_text(command, "'");
    for (const char *c = word; *c; c++) {
        if (*c == '\'')
            cli_append_text(command, "'\\''");
        else
            cli_append(command, c, 1);
    }
    cli_append_text(command, "'");
}

int cli_command_read(cli_buffer *command, int argc, char **argv) {
    int left = 0;
    for (int i = 0; i < argc;) {
        int mine = words_of_own(argc - i, argv + i);
        if (!mine) append_word(command, argv[i++]);
        for (; mine; mine--) argv[left++] = argv[i++];
    }
    return left;
}

bool cli_is_quoted_command(const char *text) {
    enum { WORDS = 8 };
    cli_buffer copy = {0};
    char *words[WORDS];
    int count = 0;
    cli_append_text(&copy, text);
    for (char *at = copy.at; count < WORDS;) {
        at += strspn(at, " \t\n\r\\");
        if (!*at) break;
        words[count++] = at;
        at += strcspn(at, " \t\n\r");
        if (*at) *at++ = 0;
    }
    bool is_one = count > 1 && cli_is_command(count, words);
    cli_buffer_free(&copy);
    return is_one;
}
