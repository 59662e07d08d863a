/* SPDX-License-Identifier: Apache-2.0 */
/* `tidemark link`: the shortest words for a job, as an address. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>

void cli_address(cli_buffer *out, const char *base, const char *link) {
    if (!base) base = "";
    cli_format(out, "%.*s#", (int)strcspn(base, "#"), base);
    cli_buffer packed = {0};
    if (cli_link_pack(&packed, link)) {
        cli_append_text(out, packed.at);
    } else {
        cli_complain("give the files to whoever opens it", "the link would be longer than 8,000 characters");
        out->length = 0;
    }
    cli_buffer_free(&packed);
}

static int cli_link(int argc, char **argv) {
    cli_arguments arguments;
    cli_buffer request = {0}, address = {0};
    cli_answer answer = {0};
    int status = cli_arguments_read(&arguments, argc, argv, CLI_TAKES_BASE | CLI_TAKES_SETTINGS | CLI_TAKES_JSON);
    if (status == CLI_OK && arguments.shows_help) {
        cli_help(stdout, "link");
    } else if (status == CLI_OK) {
        status = cli_request(&request, "link", &arguments, arguments.notes_was ? ",\"was\":true" : "");
        if (status == CLI_OK) status = cli_ask_or_explain(&answer, &request, arguments.is_json);
        if (status == CLI_OK && arguments.is_json) {
            printf("%.*s\n", (int)answer.length, answer.text);
        } else if (status == CLI_OK) {
            cli_address(&address, arguments.base ? arguments.base : getenv("TIDEMARK_PAGE"),
                        cli_text_at(answer.json, "link"));
            if (address.length)
                puts(address.at);
            else
                status = CLI_BAD_INPUT;
        }
    }
    cli_answer_free(&answer);
    cli_buffer_free(&address);
    cli_buffer_free(&request);
    cli_arguments_free(&arguments);
    return status;
}

const cli_command cli_link_command = {
    "link", cli_link, "link MODEL|config.json|LINK [key=value ...] [--base ADDRESS] [--was] [--json]",
    "the job as a link that the page opens",
    "Checks the settings and prints them in their shortest form, with the configuration where that is a file. A long\n"
    "link is compressed (#z=1.TEXT); every command that takes a job takes a LINK, with or without its address.\n\n"
    "  --base ADDRESS    where the page is; without it TIDEMARK_PAGE, or only the part from the # on\n"
    "  --was             note what the job comes to now, so that a later version can say what changed\n"
    "  --json            the readable link as an answer\n\n"
    "examples\n"
    "  tidemark link llava-1.5-7b batch=16 freeze=vision_tower --base http://127.0.0.1:8000/\n"
    "  tidemark compare '#model=gpt2&batch=4&b.batch=2&v=1'      # b.KEY is a baseline\n"};
