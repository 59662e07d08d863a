/* SPDX-License-Identifier: Apache-2.0 */
/* A pasted command that starts an inference server or a training: `vllm serve MODEL --max-model-len 8k`, 'trl sft
 * --model_name_or_path MODEL ...'. It is treated as a file with this content. Words that only belong to this program
 * stay arguments. */
#include "cli.h"

#include <string.h>

static const char *const own[] = {"gpu",       "gpus",       "gpu_gib",         "concurrency", "max_concurrency",
                                  "input_len", "output_len", "request_lengths", "replicas",    "json"};

/* gpu=l40s, and --gpu l40s or --gpu=l40s: the number of words; 0: it belongs to the command, as docker's --gpus does.
 */
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

/* Quoted for a shell. */
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

bool cli_is_command(const char *text) {
    cli_buffer request = {0};
    cli_answer answer;
    cli_append_text(&request, "{\"call\":\"command\",\"text\":");
    cli_append_quoted(&request, text, strlen(text));
    cli_append_text(&request, "}");
    bool is_one = cli_ask(&answer, &request) == CLI_OK && cli_true_at(answer.json, "is_command");
    cli_answer_free(&answer);
    cli_buffer_free(&request);
    return is_one;
}

int cli_command_read(cli_buffer *command, int argc, char **argv) {
    for (int i = 0, mine; i < argc; i += mine ? mine : 1) {
        mine = words_of_own(argc - i, argv + i);
        if (!mine) append_word(command, argv[i]);
    }
    if (!command->length || !cli_is_command(command->at)) {
        cli_buffer_free(command);
        return argc;
    }
    int left = 0;
    for (int i = 0; i < argc;) {
        int mine = words_of_own(argc - i, argv + i);
        if (!mine) i++;
        for (; mine; mine--) argv[left++] = argv[i++];
    }
    return left;
}
