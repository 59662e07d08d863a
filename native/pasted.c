/* SPDX-License-Identifier: Apache-2.0 */
/* The command of an inference server among the words, as it was pasted: `vllm serve MODEL --max-model-len 8k`. It is
 * read as a file that holds it. Words that no server has stay this program's. */
#include "cli.h"

#include <string.h>

/* Words that begin a server's command; readers/server_command.c finds the same in scripts. */
static int words_of_start(int argc, char **argv) {
    const char *program = cli_base_name(argv[0]);
    if (strcmp(program, "llama-server") == 0) return 1;
    if (strcmp(program, "vllm") == 0) return argc > 1 && strcmp(argv[1], "serve") == 0 ? 2 : 0;
    bool is_module = strncmp(program, "python", 6) == 0 && argc > 2 && strcmp(argv[1], "-m") == 0;
    return is_module && (strncmp(argv[2], "vllm.entrypoints.", 17) == 0 || strcmp(argv[2], "sglang.launch_server") == 0)
               ? 3
               : 0;
}

bool cli_is_server_command(int argc, char **argv) {
    int from = words_of_start(argc, argv);
    if (!from || from == argc) return false;
    return argv[from][0] == '-' || (from + 1 < argc && argv[from + 1][0] == '-');
}

static const char *const own[] = {"gpu",       "gpus",       "gpu_gib",         "concurrency", "max_concurrency",
                                  "input_len", "output_len", "request_lengths", "replicas",    "json"};

/* gpu=l40s, and --gpu l40s or --gpu=l40s, with the word behind it: how many words it is; 0: the server's. */
static int words_of_own(int argc, char **argv) {
    bool is_option = strncmp(argv[0], "--", 2) == 0;
    const char *name = argv[0] + (is_option ? 2 : 0), *equals = strchr(name, '=');
    size_t length = equals ? (size_t)(equals - name) : strlen(name);
    if (!is_option && !equals) return 0;
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        bool is_it = strlen(own[i]) == length;
        for (size_t c = 0; is_it && c < length; c++) is_it = own[i][c] == (name[c] == '-' ? '_' : name[c]);
        if (is_it) return equals || strcmp(own[i], "json") == 0 || argc < 2 ? 1 : 2;
    }
    return 0;
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

int cli_server_command_read(cli_buffer *command, int argc, char **argv) {
    int left = 0;
    for (int i = 0; i < argc;) {
        int mine = words_of_own(argc - i, argv + i);
        if (!mine) append_word(command, argv[i++]);
        for (; mine; mine--) argv[left++] = argv[i++];
    }
    return left;
}
