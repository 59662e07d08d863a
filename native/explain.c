/* SPDX-License-Identifier: Apache-2.0 */
/* `tidemark explain`: the tensors behind the bytes at the peak. */
#include "estimate.h"

#include <inttypes.h>
#include <string.h>

enum { TEXT_INDENT = 6 };

static void line_show(const char *text) {
    printf("%*s%s", TEXT_INDENT, "", cli_styled(CLI_DIM));
    cli_wrapped(text, TEXT_INDENT, TEXT_INDENT);
    fputs(cli_styled_end(), stdout);
}

static void peak_show(const cJSON *answer) {
    const cJSON *at = cli_at(answer, "at");
    const char *module = cli_text_at(at, "module"), *op = cli_text_at(at, "op");
    cli_number bytes;
    cli_buffer text = {0};
    cli_format(&text, "%s bytes are allocated at the peak: step %" PRId64 ", %s",
               cli_count(bytes, cli_int_at(answer, "allocated_peak")), cli_int_at(at, "step"),
               cli_text_at(at, "phase"));
    if (module[0]) cli_format(&text, ", %s", module);
    if (op[0]) cli_format(&text, ", %s", op);
    cli_wrapped(text.at, 0, 0);
    if (cli_text_at(at, "line")[0]) line_show(cli_text_at(at, "line"));
    cli_buffer_free(&text);
}

static void sum_show(const cJSON *answer, const char *of) {
    int64_t bytes = cli_int_at(answer, "bytes"), peak = cli_int_at(answer, "allocated_peak");
    int groups = cJSON_GetArraySize(cli_at(answer, "tensors"));
    cli_number count, share;
    if (of[0])
        printf("%s: %s bytes of them, %s, in %d groups of tensors that are alike\n", of, cli_count(count, bytes),
               cli_share(share, bytes, peak), groups);
    else
        printf("%d groups of tensors that are alike\n", groups);
}

/* Adds "kept until MulBackward0 of layers.*.mlp", from what freed it. */
static void kept_add(cli_buffer *text, const cJSON *freed) {
    const char *by = cli_text_at(freed, "by"), *op = cli_text_at(freed, "op"), *module = cli_text_at(freed, "module"),
               *line = cli_text_at(freed, "line"), *of = module[0] ? module : "the model";
    if (strcmp(by, "end") == 0)
        cli_append_text(text, "kept to the end of the run");
    else if (strcmp(by, "assignment") == 0)
        cli_format(text, "kept until %s assigns another: %s", of, line);
    else if (strcmp(by, "return") == 0)
        cli_format(text, "kept until %s returns: %s", of, line);
    else if (strcmp(by, "other") == 0)
        cli_append_text(text, "kept until others");
    else
        cli_format(text, "kept until %s%s%s", op, module[0] ? " of " : "", module);
}

/* What freed the tensors; with counts, if that differs. */
static void kept_show(const cJSON *tensor) {
    const cJSON *freed = cli_at(tensor, "freed"), *one;
    bool is_one = cJSON_GetArraySize(freed) == 1;
    cJSON_ArrayForEach(one, freed) {
        cli_buffer text = {0};
        cli_number count;
        if (!is_one) cli_format(&text, "%s ", cli_count(count, cli_int_at(one, "count")));
        kept_add(&text, one);
        printf("%*s", TEXT_INDENT, "");
        cli_wrapped(text.at, TEXT_INDENT, TEXT_INDENT);
        cli_buffer_free(&text);
    }
}

/* "3 x 4,096 = 12,288 bytes": the count, the block of one tensor, and the requested bytes if they are fewer. */
static void tensor_show(const cJSON *tensor) {
    int64_t count = cli_int_at(tensor, "count"), each = cli_int_at(tensor, "each"),
            requested = cli_int_at(tensor, "requested");
    const char *module = cli_text_at(tensor, "module"), *op = cli_text_at(tensor, "op");
    cli_number bytes, number, block;
    cli_buffer text = {0}, shape = {0};
    printf("\n%s%s bytes%s  %s", cli_styled(CLI_BOLD), cli_count(bytes, cli_int_at(tensor, "bytes")), cli_styled_end(),
           cli_factor_title(cli_text_at(tensor, "factor")));
    cli_shape(&shape, tensor);
    if (shape.length) printf(": %s", shape.at);
    putchar('\n');
    if (count != 1) cli_format(&text, "%s tensors of %s bytes; ", cli_count(number, count), cli_count(block, each));
    if (requested && requested != each)
        cli_format(&text, "%s bytes requested, in a block of %s; ", cli_count(number, requested),
                   cli_count(block, each));
    cli_format(&text, "made by %s%s%s", op, module[0] ? " in " : "", module);
    printf("%*s", TEXT_INDENT, "");
    cli_wrapped(text.at, TEXT_INDENT, TEXT_INDENT);
    if (cli_text_at(tensor, "line")[0]) line_show(cli_text_at(tensor, "line"));
    kept_show(tensor);
    cli_buffer_free(&text);
    cli_buffer_free(&shape);
}

static int explanation_show(const cJSON *answer, const char *of) {
    if (of[0] && !cJSON_GetArraySize(cli_at(answer, "tensors"))) {
        cli_complain(
            "give a factor (activations), a part of a module's name (`--stage modules` lists them) or an operation",
            "nothing that is live at the peak belongs to \"%s\"", of);
        return CLI_BAD_INPUT;
    }
    const cJSON *tensor;
    peak_show(answer);
    sum_show(answer, of);
    cJSON_ArrayForEach(tensor, cli_at(answer, "tensors")) tensor_show(tensor);
    return CLI_OK;
}

/* Tab-separated, for less -S, awk and spreadsheets. */
static void stage_show(const cJSON *answer) {
    const cJSON *row, *cell;
    bool is_first = true;
    cJSON_ArrayForEach(cell, cli_at(answer, "columns")) {
        printf("%s%s", is_first ? "" : "\t", cJSON_GetStringValue(cell));
        is_first = false;
    }
    putchar('\n');
    cJSON_ArrayForEach(row, cli_at(answer, "rows")) {
        is_first = true;
        cJSON_ArrayForEach(cell, row) {
            if (!is_first) putchar('\t');
            is_first = false;
            if (cJSON_IsNumber(cell))
                printf("%.0f", cell->valuedouble);
            else
                fputs(cJSON_GetStringValue(cell), stdout);
        }
        putchar('\n');
    }
}

static int cli_explain(int argc, char **argv) {
    cli_arguments arguments;
    cli_buffer request = {0}, more = {0};
    cli_answer answer = {0};
    int status =
        cli_arguments_read(&arguments, argc, argv,
                           CLI_TAKES_JSON | CLI_TAKES_OF | CLI_TAKES_SETTINGS | CLI_TAKES_EVENTS | CLI_TAKES_BYTES);
    if (status == CLI_OK && arguments.shows_help) {
        cli_help(stdout, "explain");
    } else if (status == CLI_OK) {
        const char *of = arguments.of ? arguments.of : "";
        bool is_of_events = arguments.shows_events || arguments.shows_state;
        if (!cli_events_members(&more, &arguments)) status = CLI_BAD_INPUT;
        cli_append_text(&more, ",\"of\":");
        cli_append_quoted(&more, of, strlen(of));
        if (arguments.stage) {
            cli_append_text(&more, ",\"stage\":");
            cli_append_quoted(&more, arguments.stage, strlen(arguments.stage));
        }
        const char *call = arguments.shows_state ? "state" : arguments.shows_events ? "events" : "explain";
        if (status == CLI_OK) status = cli_request(&request, call, &arguments, more.at);
        if (status == CLI_OK) status = cli_ask_or_explain(&answer, &request, arguments.is_json);
        if (status == CLI_OK) {
            if (arguments.is_json)
                printf("%.*s\n", (int)answer.length, answer.text);
            else if (is_of_events)
                cli_events_show(answer.json, &arguments);
            else if (arguments.stage)
                stage_show(answer.json);
            else
                status = explanation_show(answer.json, of);
        }
    }
    cli_answer_free(&answer);
    cli_buffer_free(&request);
    cli_buffer_free(&more);
    cli_arguments_free(&arguments);
    return status;
}

const cli_command cli_explain_command = {
    "explain", cli_explain,
    "explain MODEL|config.json|LINK [key=value ...] [--of WHAT] [--stage STAGE] [--events|--state] [--json]",
    "where a number comes from: tensor, shape, operation, line of the description",
    "The same words as `tidemark estimate`.\n\n"
    "  --of WHAT         a factor (activations), a part of a module's name or an operation;\n"
    "                    without it, everything that lives at the peak\n"
    "  --stage STAGE     what one stage made, tab-separated: job, modules, parameters,\n"
    "                    events (every allocation and free) or blocks (the allocator at the\n"
    "                    peak); --of keeps the rows that contain WHAT\n" CLI_EVENT_OPTIONS
    "  --json            the whole answer\n\n"
    "examples\n"
    "  tidemark explain llava-1.5-7b batch=16 --of activations\n"
    "  tidemark explain llama-2-7b --of mlp\n"
    "  tidemark explain gpt2 --stage events --of attn\n"
    "  tidemark explain gpt2 --state --at 1200\n"};
