/* `tidemark link`: the job's shortest words, as an address. */
#include "cli.h"

#include <string.h>

int cli_link(int argc, char **argv) {
    cli_arguments arguments;
    cli_buffer request = {0};
    cli_answer answer = {0};
    int status = cli_arguments_read(&arguments, argc, argv, CLI_TAKES_BASE | CLI_TAKES_GPU);
    if (status == CLI_OK && arguments.shows_help) {
        cli_help(stdout, "link");
    } else if (status == CLI_OK) {
        const char *base = arguments.base ? arguments.base : "";
        status = cli_request(&request, "link", &arguments, "");
        if (status == CLI_OK) status = cli_ask_or_explain(&answer, &request, false);
        if (status == CLI_OK)
            printf("%.*s#%s\n", (int)strcspn(base, "#"), base, cli_text_at(answer.json, "link"));
        if (status == CLI_OK && arguments.path_count)
            cli_complain("whoever opens it gives the file as well",
                         "the link does not hold the files' content");
    }
    cli_answer_free(&answer);
    cli_buffer_free(&request);
    cli_arguments_free(&arguments);
    return status;
}
