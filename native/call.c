/* SPDX-License-Identifier: Apache-2.0 */
/* `tidemark call`: requests as they are, answers as they are. */
#include "cli.h"

#include <string.h>

#include <tidemark/tidemark.h>

static int answer(const char *request, size_t length) {
    char *response = NULL;
    size_t size = 0;
    int answered = tide_call(request, length, NULL, &response, &size);
    if (response)
        fwrite(response, 1, size, stdout), putchar('\n');
    else
        cli_complain(NULL, "out of memory");
    if (response) tide_free(NULL, response, size);
    return answered == 0 ? CLI_OK : answered == 1 ? CLI_BAD_INPUT : CLI_INTERNAL;
}

/* The worst of what the lines ended with. */
static int answer_lines(const char *text, size_t length) {
    int status = CLI_OK;
    for (size_t at = 0; at < length;) {
        const char *end = memchr(text + at, '\n', length - at);
        size_t line = end ? (size_t)(end - text) - at : length - at;
        int ended = answer(text + at, line);
        if (ended > status) status = ended;
        at += line + 1;
    }
    return status;
}

static int cli_call(int argc, char **argv) {
    cli_arguments arguments;
    cli_buffer requests = {0};
    int status = cli_arguments_read(&arguments, argc, argv, CLI_ARE_PATHS | CLI_TAKES_LINES);
    if (status == CLI_OK && arguments.shows_help) {
        cli_help(stdout, "call");
    } else if (status == CLI_OK && arguments.path_count > 1) {
        cli_complain("--lines reads several from one", "one file at a time");
        status = CLI_BAD_INPUT;
    } else if (status == CLI_OK && !cli_read_file(&requests, arguments.path_count ? arguments.paths[0] : "-")) {
        status = CLI_NO_FILE;
    } else if (status == CLI_OK) {
        status = (arguments.are_lines ? answer_lines : answer)(requests.at, requests.length);
    }
    cli_buffer_free(&requests);
    cli_arguments_free(&arguments);
    return status;
}

const cli_command cli_call_command = {"call", cli_call, "call [FILE] [--lines]",
                                      "a request in JSON from FILE or standard input, the answer as it is",
                                      "The one door of the library, for scripts and for tests.\n\n"
                                      "  --lines           each line is a request, and is answered by a line\n\n"
                                      "examples\n"
                                      "  echo '{\"call\":\"version\"}' | tidemark call\n"};
