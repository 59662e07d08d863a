/* `tidemark call`: a request as it is, the answer as it is. */
#include "cli.h"

#include <tidemark/tidemark.h>

int cli_call(int argc, char **argv) {
    cli_arguments arguments;
    cli_buffer request = {0};
    int status = cli_arguments_read(&arguments, argc, argv, CLI_ARE_PATHS);
    if (status == CLI_OK && arguments.shows_help) {
        cli_help(stdout, "call");
    } else if (status == CLI_OK && arguments.path_count > 1) {
        cli_complain(NULL, "one request at a time");
        status = CLI_BAD_INPUT;
    } else if (status == CLI_OK) {
        if (!cli_read_file(&request, arguments.path_count ? arguments.paths[0] : "-")) {
            status = CLI_NO_FILE;
        } else {
            char *response = NULL;
            size_t length = 0;
            int answered = tide_call(request.at, request.length, NULL, &response, &length);
            if (response)
                fwrite(response, 1, length, stdout), putchar('\n');
            else
                cli_complain(NULL, "out of memory");
            status = answered == 0 ? CLI_OK : answered == 1 ? CLI_BAD_INPUT : CLI_INTERNAL;
            if (response) tide_free(NULL, response, length);
        }
    }
    cli_buffer_free(&request);
    cli_arguments_free(&arguments);
    return status;
}
