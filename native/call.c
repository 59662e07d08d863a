/* SPDX-License-Identifier: Apache-2.0 */
/* `tidemark call`: requests and answers in JSON. */
#include "cli.h"

#include <errno.h>
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

/* Reads a line without its line break; false and empty at the end; false if a line exceeds the size limit of files. */
static bool read_line(cli_buffer *line, FILE *file, const char *name) {
    char piece[4096];
    size_t length = 0;
    int byte;
    line->length = 0;
    cli_append(line, "", 0);
    while ((byte = getc(file)) != EOF && byte != '\n') {
        piece[length++] = (char)byte;
        if (length < sizeof piece) continue;
        cli_append(line, piece, length);
        length = 0;
        if (line->length <= CLI_FILE_LIMIT) continue;
        cli_complain("one request per line", "%s has a line of more than 64 MiB", name);
        return false;
    }
    cli_append(line, piece, length);
    return byte == '\n' || line->length > 0;
}

/* Answers each line when it arrives. Returns the worst exit code. */
static int answer_lines(const char *path) {
    bool is_stdin = strcmp(path, "-") == 0;
    FILE *file = is_stdin ? stdin : fopen(path, "rb");
    cli_buffer line = {0};
    int status = CLI_OK;
    if (!file) {
        cli_complain(NULL, "%s: %s", path, strerror(errno));
        return CLI_NO_FILE;
    }
    while (read_line(&line, file, is_stdin ? "standard input" : path)) {
        int ended = answer(line.at, line.length);
        if (ended > status) status = ended;
        fflush(stdout);
    }
    if (line.length > 0 && status == CLI_OK) status = CLI_BAD_INPUT;
    if (ferror(file)) {
        cli_complain(NULL, "%s: %s", path, strerror(errno));
        status = CLI_NO_FILE;
    }
    cli_buffer_free(&line);
    if (!is_stdin) fclose(file);
    return status;
}

static int answer_file(const char *path) {
    cli_buffer request = {0};
    int status = cli_read_file(&request, path) ? answer(request.at, request.length) : CLI_NO_FILE;
    cli_buffer_free(&request);
    return status;
}

static int cli_call(int argc, char **argv) {
    cli_arguments arguments;
    int status = cli_arguments_read(&arguments, argc, argv, CLI_ARE_PATHS | CLI_TAKES_LINES);
    if (status == CLI_OK && arguments.shows_help) {
        cli_help(stdout, "call");
    } else if (status == CLI_OK && arguments.path_count > 1) {
        cli_complain("--lines reads several from one", "one file at a time");
        status = CLI_BAD_INPUT;
    } else if (status == CLI_OK) {
        status = (arguments.are_lines ? answer_lines : answer_file)(arguments.path_count ? arguments.paths[0] : "-");
    }
    cli_arguments_free(&arguments);
    return status;
}

const cli_command cli_call_command = {"call", cli_call, "call [FILE] [--lines]",
                                      "a JSON request from FILE or standard input, and its answer",
                                      "The one door of the library, for scripts and for tests.\n\n"
                                      "  --lines           each line is a request, and is answered by a line\n\n"
                                      "examples\n"
                                      "  echo '{\"call\":\"version\"}' | tidemark call\n"};
