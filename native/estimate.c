/* SPDX-License-Identifier: Apache-2.0 */
/* `tidemark estimate`: the verdict, the memory at the peak, and when it is reached. */
#include "estimate.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { TENSOR_ROWS = 10, BAR_COLUMNS = 60, STEP_COLUMNS = 5, STEP_ROWS = 8 };

/* ---- head ---- */

static void settings_show(const cJSON *answer) {
    const cJSON *setting;
    cli_buffer text = {0};
    cJSON_ArrayForEach(setting, cli_at(answer, "settings")) {
        const char *name = cli_text_at(setting, "name");
        if (strcmp(cli_text_at(setting, "origin"), "default") == 0 || strcmp(name, "model") == 0) continue;
        cli_format(&text, "%s%s=%s", text.length ? " " : "", name, cli_text_at(setting, "value"));
    }
    if (text.length) cli_wrapped(text.at, 0, 0);
    cli_buffer_free(&text);
}

static int keys_of(const cJSON *file, const char *effect) {
    return cJSON_GetArraySize(cli_at(file, effect));
}

/* What keys of files that start training were used for; those that may matter are warnings. */
static void files_show(const cJSON *answer) {
    const cJSON *file;
    cJSON_ArrayForEach(file, cli_at(answer, "files")) {
        cli_buffer text = {0};
        cli_format(&text, "%s, %s: %d keys used, %d without effect on memory", cli_text_at(file, "name"),
                   cli_text_at(file, "title"), keys_of(file, "used"), keys_of(file, "ignored"));
        if (keys_of(file, "unsupported")) cli_format(&text, ", %d not described", keys_of(file, "unsupported"));
        if (keys_of(file, "unknown")) cli_format(&text, ", %d not known", keys_of(file, "unknown"));
        if (keys_of(file, "overruled")) cli_format(&text, ", %d overruled", keys_of(file, "overruled"));
        cli_wrapped(text.at, 0, 0);
        cli_buffer_free(&text);
    }
}

static void model_show(const cJSON *answer) {
    const cJSON *model = cli_at(answer, "model"), *count = cli_at(model, "parameters");
    const char *title = cli_text_at(model, "title");
    int64_t total = cli_int_at(count, "total"), trainable = cli_int_at(count, "trainable");
    cli_number number;
    printf("%s%s%s  %s parameters", cli_styled(CLI_BOLD), title[0] ? title : cli_text_at(model, "name"),
           cli_styled_end(), cli_count(number, total));
    if (cli_at(count, "rank")) printf(" on rank %s", cli_count(number, cli_int_at(count, "rank")));
    if (trainable > 0 && trainable < total) printf(", %s trained", cli_count(number, trainable));
    puts("");
}

/* used of whole, in bytes; an overflow fills the bar. */
static void bar_show(int64_t used, int64_t whole) {
    int filled = whole <= 0 || used >= whole ? BAR_COLUMNS : (int)(used / (whole / BAR_COLUMNS + 1));
    fputs("  ", stdout);
    fputs(cli_styled(used > whole ? CLI_RED : CLI_GREEN), stdout);
    for (int i = 0; i < filled; i++) fputs(cli_is_utf8() ? "█" : "#", stdout);
    fputs(cli_styled_end(), stdout);
    fputs(cli_styled(CLI_DIM), stdout);
    for (int i = filled; i < BAR_COLUMNS; i++) fputs(cli_is_utf8() ? "░" : "-", stdout);
    printf("%s\n", cli_styled_end());
}

void cli_verdict_show(const cJSON *answer) {
    const cJSON *verdict = cli_at(answer, "verdict"), *fits = cli_at(verdict, "fits");
    enum cli_style style = cJSON_IsTrue(fits) ? CLI_GREEN : cJSON_IsFalse(fits) ? CLI_RED : CLI_BOLD;
    const char *gpu = cli_text_at(cli_at(answer, "gpu"), "title");
    if (!gpu[0]) gpu = cli_text_at(cli_at(answer, "gpu"), "name");
    printf("\n  %s%s%s", cli_styled(style), cli_text_at(verdict, "sentence"), cli_styled_end());
    if (gpu[0]) printf("  %s(%s)%s", cli_styled(CLI_DIM), gpu, cli_styled_end());
    putchar('\n');
    if (cJSON_IsBool(fits)) bar_show(cli_int_at(verdict, "device_bytes"), cli_int_at(verdict, "gpu_bytes"));
}

/* The smallest GPU that is enough, and the effect of an allocator option. */
static void smallest_show(const cJSON *answer) {
    cli_number reserved, smallest;
    const char *advice = cli_text_at(cli_at(answer, "advice"), "sentence");
    if (cli_at(cli_at(answer, "peak"), "range")) return; /* the figures belong to another family */
    printf("  %s reserved at most", cli_size(reserved, cli_int_at(cli_at(answer, "peak"), "reserved")));
    if (cli_at(answer, "smallest_device_bytes"))
        printf("; runs on a device of %s or more", cli_size(smallest, cli_int_at(answer, "smallest_device_bytes")));
    putchar('\n');
    if (advice[0]) printf("  %s\n", advice);
}

void cli_add_pinned(cli_buffer *text, const cJSON *versions) {
    const cJSON *one;
    bool is_first = true, has_setting = false;
    cJSON_ArrayForEach(one, versions) {
        const char *name = cli_text_at(one, "name");
        if (!cli_at(one, "pinned")) continue;
        if (is_first) cli_format(text, "; %s pins", cli_text_at(one, "by"));
        cli_format(text, "%s %s %s", is_first ? "" : ",", name, cli_text_at(one, "pinned"));
        has_setting |= strcmp(name, "PyTorch") == 0 || strcmp(name, "transformers") == 0;
        is_first = false;
    }
    if (has_setting) cli_append_text(text, " (transformers=VERSION and torch=VERSION say how far those may differ)");
}

/* With a range, something left out, or a warning about an undescribed option in a file, the figures are approximate. */
static bool is_exact_answer(const cJSON *answer) {
    const cJSON *one;
    if (cli_at(cli_at(answer, "verdict"), "left_out")) return false;
    cJSON_ArrayForEach(one, cli_at(answer, "diagnostics")) {
        bool is_near = strcmp(cli_text_at(one, "code"), "ERR_UNSUPPORTED") == 0 &&
                       strncmp(cli_text_at(one, "place"), "/files/", 7) == 0;
        if (is_near && strcmp(cli_text_at(one, "severity"), "warning") == 0) return false;
    }
    return !cli_at(cli_at(answer, "peak"), "range");
}

/* What the figures are exact for, or whose rules they follow. */
void cli_versions_show(const cJSON *answer) {
    const cJSON *one;
    cli_buffer text = {0};
    cJSON_ArrayForEach(one, cli_at(answer, "versions")) {
        const char *separator = text.length ? ", " : "";
        cli_format(&text, "%s%s %s", separator, cli_text_at(one, "name"), cli_text_at(one, "version"));
    }
    cli_add_pinned(&text, cli_at(answer, "versions"));
    if (text.length) {
        bool is_exact = is_exact_answer(answer);
        printf("  %s", is_exact ? "exact for " : "by the rules of ");
        cli_wrapped(text.at, 2, is_exact ? 12 : 18);
    }
    cli_buffer_free(&text);
}

/* Memory that the verdict does not include. */
static void besides_show(const cJSON *answer) {
    const cJSON *one;
    cJSON_ArrayForEach(one, cli_at(answer, "besides")) {
        cli_number bytes, least, most;
        if (strcmp(cli_text_at(one, "name"), "nccl") == 0)
            printf("  plus about %s for NCCL (%s to %s), not included\n", cli_size(bytes, cli_int_at(one, "bytes")),
                   cli_size(least, cli_int_at(one, "least")), cli_size(most, cli_int_at(one, "most")));
        else
            printf("  plus %s of pinned memory on the host\n", cli_size(bytes, cli_int_at(one, "bytes")));
    }
}

/* ---- when ---- */

/* The effect of moving a layer away from the rank that needs the most. */
static void moves_show(const cJSON *answer) {
    const cJSON *move;
    cJSON_ArrayForEach(move, cli_at(answer, "moves")) {
        cli_number reserved, by;
        int64_t saves = cli_int_at(move, "saves");
        printf("  A layer of stage %" PRId64 " moved to stage %" PRId64 ": %s reserved at most, %s%s (%s)\n",
               cli_int_at(move, "from"), cli_int_at(move, "to"), cli_size(reserved, cli_int_at(move, "reserved_peak")),
               saves ? cli_size(by, saves < 0 ? -saves : saves) : "as much",
               saves < 0 ? " more"
               : saves   ? " less"
                         : "",
               cJSON_GetStringValue(cJSON_GetArrayItem(cli_at(move, "settings"), 0)));
    }
}

/* A row for each different kind of rank. */
static void ranks_show(const cJSON *answer) {
    static const char *const heads[] = {"Rank",   "Allocated, at most",     "Reserved, at most", "Stage",
                                        "Layers", "Micro-batches in flight"};
    const cJSON *ranks = cli_at(answer, "ranks"), *one;
    cli_table table;
    cli_number text;
    if (!cJSON_GetArraySize(ranks)) return;
    bool is_staged = cli_at(ranks->child, "layers");
    unsigned columns = is_staged ? 6 : 3;
    cli_heading("Ranks that differ");
    cli_table_init(&table, columns);
    for (unsigned i = 0; i < columns; i++) cli_table_cell(&table, heads[i]);
    cJSON_ArrayForEach(one, ranks) {
        cli_table_cell(&table, cli_count(text, cli_int_at(one, "rank")));
        cli_table_cell(&table, cli_size(text, cli_int_at(one, "allocated")));
        cli_table_cell(&table, cli_size(text, cli_int_at(one, "reserved")));
        if (!is_staged) continue;
        cli_table_cell(&table, cli_count(text, cli_int_at(one, "stage")));
        cli_table_cell(&table, cli_count(text, cli_int_at(one, "layers")));
        cli_table_cell(&table, cli_count(text, cli_int_at(one, "in_flight")));
    }
    cli_table_print(&table);
    moves_show(answer);
    const cJSON *peak = cli_at(answer, "peak"), *most = cli_at(peak, "most_allocated");
    if (most)
        printf("  Rank %" PRId64 " reserves the most, and what follows is of it; rank %" PRId64
               " allocates the most.\n",
               cli_int_at(peak, "rank"), cli_int_at(most, "rank"));
}

/* The maximum over the steps with padded batches, or over those with full ones. */
static void kind_of_batch_show(const cJSON *batches, const char *kind, const char *what) {
    const cJSON *of = cli_at(batches, kind);
    cli_number allocated, tokens, steps;
    cli_buffer text = {0};
    if (!of) return;
    cli_format(&text, "%s in %s of the steps: %s at most, in step %" PRId64 " of %s tokens.", what,
               cli_count(steps, cli_int_at(of, "steps")), cli_size(allocated, cli_int_at(of, "allocated")),
               cli_int_at(of, "step"), cli_count(tokens, cli_int_at(of, "seq")));
    fputs("  ", stdout);
    cli_wrapped(text.at, 2, 2);
    cli_buffer_free(&text);
}

/* If batches differ: why the peak is in this step, and both peaks of a job with and without masks. */
static void batches_show(const cJSON *answer) {
    const cJSON *batches = cli_at(answer, "batches");
    if (!batches) return;
    fputs("  ", stdout);
    cli_wrapped(cli_text_at(batches, "sentence"), 2, 2);
    if (!cli_at(batches, "padded") || !cli_at(batches, "full")) return;
    kind_of_batch_show(batches, "padded", "Padded, with a mask,");
    kind_of_batch_show(batches, "full", "Full, without one,");
}

void cli_peak_show(const cJSON *answer) {
    const cJSON *peak = cli_at(answer, "peak");
    const char *module = cli_text_at(peak, "module"), *op = cli_text_at(peak, "op");
    cli_number allocated, reserved;
    cli_buffer text = {0};
    cli_format(&text, "step %" PRId64 ", %s", cli_int_at(peak, "step"), cli_text_at(peak, "phase"));
    if (module[0]) cli_format(&text, ", %s", module);
    if (op[0]) cli_format(&text, ", %s", op);
    cli_format(&text, ": %s allocated of %s reserved.", cli_size(allocated, cli_int_at(peak, "allocated")),
               cli_size(reserved, cli_int_at(peak, "reserved")));
    cli_heading("Where the peak is");
    fputs("  ", stdout);
    cli_wrapped(text.at, 2, 2);
    cli_buffer_free(&text);
    batches_show(answer);
    ranks_show(answer);
}

static void phase_cell(cli_table *table, const cJSON *figures, const cJSON *column, cli_unit unit) {
    cli_number text;
    const char *name = cli_text_at(column, "name");
    cli_table_cell(table, cli_at(figures, name) ? cli_amount(text, cli_int_at(figures, name), unit) : "");
}

/* For a long run the first two steps, the last one, and those with a peak. */
static bool is_shown(const cJSON *answer, int step, int count) {
    const cJSON *batches = cli_at(answer, "batches");
    if (count <= STEP_ROWS || step < 2 || step == count - 1) return true;
    return step + 1 == cli_int_at(cli_at(answer, "peak"), "step") ||
           step + 1 == cli_int_at(cli_at(batches, "padded"), "step") ||
           step + 1 == cli_int_at(cli_at(batches, "full"), "step");
}

static void step_cell(cli_table *table, int step) {
    cli_number text;
    snprintf(text, sizeof text, "Step %d", step + 1);
    cli_table_cell(table, text);
}

/* Bytes need more space: then steps are columns. */
static void steps_as_columns(const cJSON *steps, const cJSON *columns, cli_unit unit) {
    cli_table table;
    const cJSON *column;
    int count = cJSON_GetArraySize(steps);
    if (count > STEP_COLUMNS) count = STEP_COLUMNS;
    cli_table_init(&table, (size_t)count + 1);
    cli_table_cell(&table, "");
    for (int s = 0; s < count; s++) step_cell(&table, s);
    cJSON_ArrayForEach(column, columns) {
        cli_table_cell(&table, cli_text_at(column, "title"));
        for (int s = 0; s < count; s++) phase_cell(&table, cJSON_GetArrayItem(steps, s), column, unit);
    }
    cli_table_print(&table);
}

static void steps_as_rows(const cJSON *answer, const cJSON *columns, cli_unit unit) {
    const cJSON *steps = cli_at(answer, "steps"), *column;
    bool has_lengths = cli_at(cJSON_GetArrayItem(steps, 0), "seq");
    int count = cJSON_GetArraySize(steps);
    cli_table table;
    cli_number text;
    cli_table_init(&table, (size_t)cJSON_GetArraySize(columns) + (has_lengths ? 2 : 1));
    cli_table_cell(&table, "");
    if (has_lengths) cli_table_cell(&table, "Tokens");
    cJSON_ArrayForEach(column, columns) cli_table_cell(&table, cli_text_at(column, "title"));
    for (int s = 0; s < count; s++) {
        const cJSON *figures = cJSON_GetArrayItem(steps, s);
        if (!is_shown(answer, s, count)) continue;
        step_cell(&table, s);
        if (has_lengths) cli_table_cell(&table, cli_count(text, cli_int_at(figures, "seq")));
        cJSON_ArrayForEach(column, columns) phase_cell(&table, figures, column, unit);
    }
    cli_table_print(&table);
}

void cli_steps_show(const cJSON *answer, cli_unit unit) {
    const cJSON *steps = cli_at(answer, "steps"), *columns = cli_at(answer, "step_columns");
    cli_buffer head = {0};
    if (cJSON_GetArraySize(steps) == 0) return;
    cli_format(&head, "Allocated, %s: the most in each phase", cli_unit_name(unit));
    cli_heading(head.at);
    cli_buffer_free(&head);
    if (unit == CLI_BYTES)
        steps_as_columns(steps, columns, unit);
    else
        steps_as_rows(answer, columns, unit);
}

/* ---- what ---- */

/* The operation, if it says more than the factor. */
static const char *made_by(const cJSON *tensor) {
    static const char *const told[] = {"parameters", "gradients", "optimizer", "buffers"};
    for (size_t i = 0; i < sizeof told / sizeof *told; i++)
        if (strcmp(cli_text_at(tensor, "factor"), told[i]) == 0) return "";
    return cli_text_at(tensor, "op");
}

static void tensors_show(const cJSON *answer, bool is_exact) {
    const cJSON *tensors = cli_at(answer, "tensors"), *tensor;
    int64_t rest = 0;
    int shown = 0;
    cli_number text;
    cli_table table;
    if (cJSON_GetArraySize(tensors) == 0) return;
    cli_heading("Largest tensors at the peak");
    cli_table_init(&table, 5);
    table.is_left[0] = false;
    table.is_left[2] = table.is_left[3] = table.is_left[4] = true;
    table.limit[3] = 44;
    table.shrinks_last = true;
    cli_table_cell(&table, "Total");
    cli_table_cell(&table, "Count");
    cli_table_cell(&table, "Category");
    cli_table_cell(&table, "Shape");
    cli_table_cell(&table, "From");
    cJSON_ArrayForEach(tensor, tensors) {
        int64_t bytes = cli_int_at(tensor, "bytes");
        if (cli_at(tensor, "rest")) {
            rest += cli_int_at(tensor, "rest");
            continue;
        }
        if (shown++ >= TENSOR_ROWS) {
            rest += bytes;
            continue;
        }
        cli_buffer shape = {0}, from = {0};
        cli_shape(&shape, tensor);
        const char *module = cli_text_at(tensor, "module"), *op = made_by(tensor);
        cli_format(&from, "%s%s%s", module, module[0] && op[0] ? " " : "", op);
        cli_table_cell(&table, is_exact ? cli_count(text, bytes) : cli_size(text, bytes));
        cli_table_cell(&table, cli_count(text, cli_int_at(tensor, "count")));
        cli_table_cell(&table, cli_factor_title(cli_text_at(tensor, "factor")));
        cli_table_cell(&table, shape.at ? shape.at : "");
        cli_table_cell(&table, from.at ? from.at : "");
        cli_buffer_free(&shape);
        cli_buffer_free(&from);
    }
    if (rest > 0) {
        cli_table_cell(&table, is_exact ? cli_count(text, rest) : cli_size(text, rest));
        cli_table_cell(&table, "");
        cli_table_cell(&table, "all others");
        cli_table_cell(&table, "");
        cli_table_cell(&table, "");
    }
    cli_table_print(&table);
}

/* ---- what was taken for granted ---- */

static void item_show(const char *head, const char *text) {
    printf("  %s%s%s  ", cli_styled(CLI_BOLD), head, cli_styled_end());
    cli_wrapped(text, 4, 4 + cli_width(head));
}

/* How the words of the job were understood, before anything else: a line for each phrase. */
static void reading_show(const cJSON *answer) {
    const char *at = cli_text_at(answer, "read_as");
    while (*at) {
        size_t length = strcspn(at, "\n");
        cli_buffer line = {0};
        cli_append(&line, at, length);
        cli_wrapped(line.at, 2, 0);
        cli_buffer_free(&line);
        at += length + (at[length] == '\n');
    }
}

static void assumptions_show(const cJSON *answer) {
    const cJSON *assumptions = cli_at(answer, "assumptions"), *item;
    if (cJSON_GetArraySize(assumptions) == 0) return;
    cli_heading("Assumptions; settings change them");
    cJSON_ArrayForEach(item, assumptions) {
        if (strstr(cli_text_at(answer, "read_as"), cli_text_at(item, "text"))) continue; /* was shown first */
        cli_buffer head = {0};
        const char *value = cli_text_at(item, "value");
        cli_format(&head, "%s%s%s", cli_text_at(item, "setting"), value[0] ? "=" : "", value);
        item_show(head.at, cli_text_at(item, "text"));
        cli_buffer_free(&head);
    }
}

static void warnings_show(const cJSON *answer) {
    const cJSON *diagnostics = cli_at(answer, "diagnostics"), *item;
    bool is_first = true;
    cJSON_ArrayForEach(item, diagnostics) {
        if (strcmp(cli_text_at(item, "severity"), "assumption") == 0) continue;
        if (is_first) cli_heading("Look at");
        is_first = false;
        const char *place = cli_text_at(item, "place"), *remedy = cli_text_at(item, "remedy");
        if (strncmp(place, "/settings/", 10) == 0) place += 10;
        cli_buffer text = {0};
        cli_format(&text, "%s%s%s", cli_text_at(item, "message"), remedy[0] ? "; " : "", remedy);
        item_show(place[0] ? place : cli_text_at(item, "severity"), text.at);
        cli_buffer_free(&text);
    }
}

void cli_report_show(const cJSON *answer, bool is_exact) {
    reading_show(answer);
    if (cli_at(answer, "serving")) {
        cli_server_show(answer);
        settings_show(answer);
        files_show(answer);
        assumptions_show(answer);
        warnings_show(answer);
        return;
    }
    bool is_small = cli_int_at(cli_at(answer, "peak"), "device") < 1 << 30;
    cli_unit unit = is_exact ? CLI_BYTES : is_small ? CLI_MIB : CLI_GIB;
    model_show(answer);
    settings_show(answer);
    files_show(answer);
    cli_verdict_show(answer);
    smallest_show(answer);
    cli_versions_show(answer);
    besides_show(answer);
    cli_factors_show(answer, unit);
    cli_peak_show(answer);
    cli_steps_show(answer, unit);
    tensors_show(answer, is_exact);
    assumptions_show(answer);
    warnings_show(answer);
    cli_buffer address = {0};
    cli_address(&address, NULL, cli_text_at(answer, "link"));
    if (address.length) printf("\n%s%s%s\n", cli_styled(CLI_DIM), address.at, cli_styled_end());
    cli_buffer_free(&address);
}

static int cli_estimate(int argc, char **argv) {
    return cli_estimate_of(argc, argv, "estimate", NULL);
}

const cli_command cli_estimate_command = {
    "estimate", cli_estimate, "estimate MODEL|config.json|LINK [files] [key=value ...] [--gpu NAME] [--bytes] [--json]",
    "the memory of a training step: whether it fits, and where every byte is",
    "Plays the job's training steps as PyTorch would run them, with shapes in place of numbers, "
    "and\n"
    "shows the moment at which most memory is in use.\n\n" CLI_JOB_WORDS
    "  --gpu NAME        the GPU (`tidemark describe gpus`): its memory and its kernels\n"
    "  --bytes           exact bytes in place of GiB\n"
    "  --json            the whole answer: tensors, timeline and phases too\n\n"
    "examples\n"
    "  tidemark estimate llava-1.5-7b --gpu h100-80 batch=16 seq=1024 freeze=vision_tower\n"
    "  tidemark estimate llama-3.1-8b checkpointing=full optimizer=adamw_fused dtype=bf16\n"
    "  tidemark estimate ./my-model/config.json batch=2 overrides.num_hidden_layers=8\n"
    "  tidemark estimate '#model=qwen2.5-7b&batch=4&v=1' --json | jq .peak\n\n"
    "exit code: 0 it fits, or no GPU is given; 1 it does not fit, or that cannot be told; 2 to 4 as in `tidemark "
    "--help`\n"};

int cli_estimate_of(int argc, char **argv, const char *command, const char *word) {
    cli_arguments arguments;
    cli_buffer request = {0};
    cli_answer answer = {0};
    int status = cli_arguments_read(&arguments, argc, argv, CLI_TAKES_JSON | CLI_TAKES_BYTES | CLI_TAKES_SETTINGS);
    if (status == CLI_OK && arguments.shows_help) {
        cli_help(stdout, command);
    } else if (status == CLI_OK) {
        if (word) cli_arguments_add(&arguments, word);
        status = cli_request(&request, "estimate", &arguments, ",\"options\":true");
        if (status == CLI_OK) status = cli_ask_or_explain(&answer, &request, arguments.is_json);
        if (status == CLI_OK) {
            if (arguments.is_json)
                printf("%.*s\n", (int)answer.length, answer.text);
            else
                cli_report_show(answer.json, arguments.shows_bytes);
            if (!cli_may_fit(answer.json)) status = CLI_NO;
        }
    }
    cli_answer_free(&answer);
    cli_buffer_free(&request);
    cli_arguments_free(&arguments);
    return status;
}
