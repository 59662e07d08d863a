/* SPDX-License-Identifier: Apache-2.0 */
/* `tidemark fit`, `gpus`, `advice` and `compare`: answers for which the job is played with other settings. */
#include <inttypes.h>
#include <string.h>

#include "cli.h"
#include "estimate.h"

#define CLOSE "\nWhere it needs more than there is, it runs because the allocator gives cached memory back.\n"

/* What a row of fit is about, its setting, the value that fits again, and the one that does not. */
#define AGAIN                                                                                                          \
    "\n%s: %s=%s fits too, but not every value below it: %s does not, because the allocator rounds what it "           \
    "reserves.\n"

typedef void show_fn(const cJSON *answer);

static void number_cell(cli_table *table, int64_t bytes) {
    cli_number text;
    cli_table_cell(table, cli_gib(text, bytes));
}

/* "+1.25" or "-1.25": GiB. */
static void change_cell(cli_table *table, int64_t bytes) {
    cli_number size;
    cli_buffer text = {0};
    cli_format(&text, "%s%s", bytes < 0 ? "-" : "+", cli_gib(size, bytes < 0 ? -bytes : bytes));
    cli_table_cell(table, text.at);
    cli_buffer_free(&text);
}

static void headings(cli_table *table, const char *const *names, size_t count) {
    cli_table_init(table, count);
    for (size_t i = 0; i < count; i++) cli_table_cell(table, names[i]);
    cli_table_rule(table);
}

/* ---- fit ---- */

static const char *fit_title(const cJSON *row) {
    const char *with = cli_text_at(row, "with");
    return *with ? with : "the job as it is";
}

static void show_again(const cJSON *answer) {
    const cJSON *row;
    cJSON_ArrayForEach(row, cli_at(answer, "rows")) {
        cli_number again, too_large;
        if (!cli_at(row, "fits_again")) continue;
        printf(AGAIN, fit_title(row), cli_text_at(answer, "knob"), cli_count(again, cli_int_at(row, "fits_again")),
               cli_count(too_large, cli_int_at(row, "largest") + 1));
    }
}

/* Why the next value is refused, if not for memory. */
static void show_refused(const cJSON *answer) {
    const cJSON *row;
    cJSON_ArrayForEach(row, cli_at(answer, "rows")) {
        const char *error = cli_text_at(cli_at(row, "above"), "error");
        cli_buffer line = {0};
        if (!error[0]) continue;
        cli_format(&line, "%s: one more is refused: %s", fit_title(row),
                   error + (strncmp(error, "/settings/", 10) == 0 ? 10 : 0));
        putchar('\n');
        cli_wrapped(line.at, 2, 0);
        cli_buffer_free(&line);
    }
}

static void fit_show(const cJSON *answer) {
    static const char *const names[] = {"With", "Largest", "Needs, GiB", "of", "One more needs"};
    const cJSON *row;
    cli_table table;
    bool serves = cli_at(cJSON_GetArrayItem(cli_at(answer, "rows"), 0), "serves") != NULL;
    printf(serves ? "The largest %s with which the server starts and holds the requests\n\n"
                  : "The largest %s that fits\n\n",
           cli_text_at(answer, "knob"));
    headings(&table, names, 5);
    table.is_left[0] = true;
    table.limit[4] = 48;
    cJSON_ArrayForEach(row, cli_at(answer, "rows")) {
        const cJSON *above = cli_at(row, "above");
        int64_t largest = cli_int_at(row, "largest");
        cli_number count;
        cli_table_cell(&table, fit_title(row));
        cli_table_cell(&table, largest ? cli_count(count, largest) : "none");
        if (largest)
            number_cell(&table, cli_int_at(row, "device_bytes"));
        else
            cli_table_cell(&table, "");
        number_cell(&table, cli_int_at(row, "gpu_bytes"));
        if (cli_at(above, "device_bytes"))
            number_cell(&table, cli_int_at(above, "device_bytes"));
        else
            cli_table_cell(&table, "refused");
    }
    cli_table_print(&table);
    show_refused(answer);
    show_again(answer);
    row = cJSON_GetArrayItem(cli_at(answer, "rows"), 0);
    if (cJSON_IsNull(cli_at(row, "fits")))
        puts("\nWhether these fit cannot be told: `tidemark estimate` says what their figures leave out.");
    cJSON_ArrayForEach(row, cli_at(answer, "rows")) {
        if (cli_int_at(row, "largest") && cli_int_at(row, "device_bytes") > cli_int_at(row, "gpu_bytes")) {
            fputs(CLOSE, stdout);
            break;
        }
    }
}

/* ---- GPUs ---- */

/* Each reason once, after the GPUs that it is for. */
static void show_refused_cards(const cJSON *answer) {
    const cJSON *cards = cli_at(answer, "cards"), *card, *other;
    cJSON_ArrayForEach(card, cards) {
        const char *error = cli_text_at(card, "error");
        bool is_said = !error[0];
        for (other = cards->child; other != card && !is_said; other = other->next)
            is_said = strcmp(cli_text_at(other, "error"), error) == 0;
        if (is_said) continue;
        printf("\nRefused on %s", cli_text_at(card, "title"));
        for (other = card->next; other; other = other->next)
            if (strcmp(cli_text_at(other, "error"), error) == 0) printf(", %s", cli_text_at(other, "title"));
        fputs(":\n  ", stdout);
        cli_wrapped(error, 2, 2);
    }
}

static void gpus_show(const cJSON *answer) {
    static const char *const names[] = {"GPU", "GiB", "Needs", "To spare", "GPUs", "Requests"};
    const cJSON *card;
    cli_table table;
    bool is_close = false, serves = false;
    cJSON_ArrayForEach(card, cli_at(answer, "cards")) serves = serves || cli_at(card, "requests");
    headings(&table, names, serves ? 6 : 5);
    table.is_left[0] = true;
    cJSON_ArrayForEach(card, cli_at(answer, "cards")) {
        int64_t count = cli_int_at(card, "cards"), there = cli_int_at(card, "gpu_bytes"),
                need = cli_int_at(card, "device_bytes");
        cli_number text;
        cli_table_cell(&table, cli_text_at(card, "title"));
        if (cli_text_at(card, "error")[0]) {
            for (int i = 0; i < 3; i++) cli_table_cell(&table, "");
            cli_table_cell(&table, "refused");
            if (serves) cli_table_cell(&table, "");
            continue;
        }
        number_cell(&table, there);
        number_cell(&table, need);
        change_cell(&table, there - need);
        cli_table_cell(&table, cJSON_IsNull(cli_at(card, "fits")) ? "cannot tell"
                               : count                            ? cli_count(text, count)
                                                                  : "no");
        if (serves) cli_table_cell(&table, cli_count(text, cli_int_at(card, "requests")));
        is_close = is_close || (count && need > there);
    }
    cli_table_print(&table);
    show_refused_cards(answer);
    if (is_close) fputs(CLOSE, stdout);
}

/* ---- advice ---- */

static void settings_show(const cJSON *change) {
    const cJSON *word;
    cJSON_ArrayForEach(word, cli_at(change, "settings")) printf(" %s", cJSON_GetStringValue(word));
}

/* What a server's cache holds. */
static void cache_show(const cJSON *of) {
    cli_number tokens, requests;
    int64_t count = cli_int_at(of, "requests");
    printf("%s tokens of cache, %s request%s at once", cli_count(tokens, cli_int_at(of, "tokens")),
           cli_count(requests, count), count == 1 ? "" : "s");
}

static void advice_show(const cJSON *answer) {
    const cJSON *change, *now = cli_at(answer, "now");
    bool has_card = cli_at(now, "fits") != NULL;
    cli_number need, there, saves;
    printf("Now: %s", cli_size(need, cli_int_at(now, "device_bytes")));
    if (has_card) printf(" of %s: %s", cli_size(there, cli_int_at(now, "gpu_bytes")), cli_verdict(now));
    if (cli_at(now, "requests")) {
        fputs("; ", stdout);
        cache_show(now);
    }
    putchar('\n');
    cJSON_ArrayForEach(change, cli_at(answer, "changes")) {
        int64_t saved = cli_int_at(change, "saves");
        printf("\n%s%s%s: ", cli_styled(CLI_BOLD), cli_text_at(change, "title"), cli_styled_end());
        if (cli_at(change, "requests"))
            cache_show(change);
        else
            printf("%s, %s %s%s%s", cli_size(need, cli_int_at(change, "device_bytes")),
                   cli_size(saves, saved < 0 ? -saved : saved), saved < 0 ? "more" : "less", has_card ? ": " : "",
                   cli_verdict(change));
        fputs("\n     ", stdout);
        settings_show(change);
        printf("\n      %s%s%s\n", cli_styled(CLI_DIM), cli_text_at(change, "effect"), cli_styled_end());
    }
    if (cJSON_GetArraySize(cli_at(answer, "changes")) == 0) puts("No known change would help.");
}

/* ---- compare ---- */

static int64_t sum_of(const cJSON *factors) {
    const cJSON *factor;
    int64_t sum = 0;
    cJSON_ArrayForEach(factor, factors) sum += cli_int(factor);
    return sum;
}

static void difference_row(cli_table *table, const char *name, int64_t one, int64_t other) {
    if (!one && !other) return;
    cli_table_cell(table, name);
    number_cell(table, one);
    number_cell(table, other);
    change_cell(table, other - one);
}

static void factors_show(const cJSON *one, const cJSON *other) {
    static const char *const names[] = {"By factor, GiB", "One", "Other", "Change"};
    const cJSON *factor;
    cli_table table;
    headings(&table, names, 4);
    table.is_left[0] = true;
    cJSON_ArrayForEach(factor, cli_at(one, "factors"))
        difference_row(&table, cli_factor_title(factor->string), cli_int(factor),
                       cli_int_at(cli_at(other, "factors"), factor->string));
    cli_table_rule(&table);
    difference_row(&table, "Allocated", cli_int_at(one, "allocated_peak"), cli_int_at(other, "allocated_peak"));
    difference_row(&table, "Reserved", cli_int_at(one, "reserved_peak"), cli_int_at(other, "reserved_peak"));
    difference_row(&table, "Device", cli_int_at(one, "device_bytes"), cli_int_at(other, "device_bytes"));
    cli_table_print(&table);
    if (cli_at(one, "requests") && cli_at(other, "requests")) {
        cli_number tokens_then, requests_then;
        putchar('\n');
        cache_show(one);
        printf("; then %s and %s\n", cli_count(tokens_then, cli_int_at(other, "tokens")),
               cli_count(requests_then, cli_int_at(other, "requests")));
    }
}

static void parts_show(const cJSON *parts) {
    static const char *const names[] = {"By module, GiB", "One", "Other", "Change"};
    const cJSON *part;
    cli_table table;
    headings(&table, names, 4);
    table.is_left[0] = true;
    table.limit[0] = 40;
    cJSON_ArrayForEach(part, parts)
        difference_row(&table, cli_text_at(part, "title"), sum_of(cli_at(part, "one")), sum_of(cli_at(part, "other")));
    cli_table_print(&table);
}

static void settings_differ(const cJSON *settings) {
    static const char *const names[] = {"Setting", "One", "Other", "GiB"};
    const cJSON *setting;
    cli_table table;
    if (cJSON_GetArraySize(settings) == 0) {
        puts("No setting differs: what the other job has in its place stands after --with, as --with batch=16.");
        return;
    }
    headings(&table, names, 4);
    for (int i = 0; i < 3; i++) {
        table.is_left[i] = true;
        table.limit[i] = 32;
    }
    cJSON_ArrayForEach(setting, settings) {
        cli_table_cell(&table, cli_text_at(setting, "setting"));
        cli_table_cell(&table, cli_text_at(setting, "one"));
        cli_table_cell(&table, cli_text_at(setting, "other"));
        if (cli_at(setting, "change"))
            change_cell(&table, cli_int_at(setting, "change"));
        else
            cli_table_cell(&table, "with the next");
    }
    cli_table_print(&table);
    if (cJSON_GetArraySize(settings) > 1)
        puts("Each is played in addition to those above it: the changes add up to the total.");
}

static void comparison_show(const cJSON *answer) {
    factors_show(cli_at(answer, "one"), cli_at(answer, "other"));
    putchar('\n');
    parts_show(cli_at(answer, "parts"));
    putchar('\n');
    settings_differ(cli_at(answer, "settings"));
}

/* ---- commands ---- */

static void append_member(cli_buffer *more, const char *name, const char *text) {
    if (!text) return;
    cli_format(more, ",\"%s\":", name);
    cli_append_quoted(more, text, strlen(text));
}

/* The other job: the words of the first one, plus those of --with. */
static void append_other(cli_buffer *more, const cli_arguments *a) {
    cli_append_text(more, ",\"with\":[");
    for (size_t i = 0; i < a->word_count + a->with_count; i++) {
        const char *word = i < a->word_count ? a->words[i] : a->with[i - a->word_count];
        if (i) cli_append_text(more, ",");
        cli_append_quoted(more, word, strlen(word));
    }
    cli_append_text(more, "]");
}

static int ask(const char *call, int argc, char **argv, unsigned takes, show_fn *show) {
    cli_arguments arguments;
    cli_buffer request = {0}, more = {0};
    cli_answer answer = {0};
    int status = cli_arguments_read(&arguments, argc, argv, takes | CLI_TAKES_JSON | CLI_TAKES_SETTINGS);
    if (status == CLI_OK && arguments.shows_help) {
        cli_help(stdout, call);
    } else if (status == CLI_OK && arguments.recording) {
        status = cli_align(&arguments);
    } else if (status == CLI_OK) {
        append_member(&more, "knob", arguments.knob);
        append_member(&more, "by", arguments.by);
        if (arguments.with_count) append_other(&more, &arguments);
        status = cli_request(&request, call, &arguments, more.at ? more.at : "");
        if (status == CLI_OK) status = cli_ask_or_explain(&answer, &request, arguments.is_json);
        if (status == CLI_OK && arguments.is_json)
            printf("%.*s\n", (int)answer.length, answer.text);
        else if (status == CLI_OK)
            show(answer.json);
    }
    cli_answer_free(&answer);
    cli_buffer_free(&request);
    cli_buffer_free(&more);
    cli_arguments_free(&arguments);
    return status;
}

static int cli_fit(int argc, char **argv) {
    return ask("fit", argc, argv, CLI_TAKES_KNOB, fit_show);
}

const cli_command cli_fit_command = {
    "fit", cli_fit, "fit MODEL|config.json|LINK [key=value ...] [--knob NAME] [--by NAME=A,B,...] [--json]",
    "the largest batch, sequence, ... that fits the GPU",
    "The same words as `tidemark estimate`, a GPU among them. Every size that is tried is played.\n\n"
    "  --knob NAME       a whole-numbered setting: batch (the default), seq, images, grad_accum, adapter.r ...\n"
    "  --by NAME=A,B     for each of these values of another setting\n"
    "  --json            the whole answer\n\n"
    "examples\n"
    "  tidemark fit llama-3.1-8b --gpu h100-80 seq=2048 checkpointing=full\n"
    "  tidemark fit llama-3.1-8b --gpu h100-80 --by seq=1024,2048,4096,8192\n"};
static int cli_gpus(int argc, char **argv) {
    return ask("cards", argc, argv, 0, gpus_show);
}

const cli_command cli_gpus_command = {
    "gpus", cli_gpus, "gpus MODEL|config.json|LINK [key=value ...] [--json]", "on which GPUs it runs",
    "The same words as `tidemark estimate`; every GPU is played with its own kernels. With parallel.kind\n"
    "it says how many GPUs it takes, in powers of two.\n\n"
    "  --json            the whole answer\n\n"
    "examples\n"
    "  tidemark gpus llama-3.1-8b adapter=lora\n"
    "  tidemark gpus llama-3.1-8b parallel.kind=zero3\n"};
static int cli_advice(int argc, char **argv) {
    return ask("advice", argc, argv, 0, advice_show);
}

const cli_command cli_advice_command = {
    "advice", cli_advice, "advice MODEL|config.json|LINK [key=value ...] [--gpu NAME] [--json]",
    "what to change so that it fits: each change is played",
    "The same words as `tidemark estimate`. Changes are listed by what is left; one that costs memory\n"
    "says so. Where none is enough, as few as are enough are put together.\n\n"
    "  --json            the whole answer\n\n"
    "examples\n"
    "  tidemark advice llama-3.1-8b --gpu a100-40\n"};
static int cli_compare(int argc, char **argv) {
    return ask("compare", argc, argv, CLI_TAKES_WITH, comparison_show);
}

const cli_command cli_compare_command = {
    "compare", cli_compare,
    "compare MODEL|config.json|LINK [key=value ...] --with key=value ...|--recording FILE [--json]",
    "compares two jobs, or a job with a recorded run",
    "The first job is that of `tidemark estimate`; the settings after --with are what the other one has in\n"
    "their place. Both are played, and so is every step between them: what each setting changes. With --recording, "
    "the prediction is laid beside what a process asked for (`tidemark replay "
    "--help` lists\n"
    "the kinds of recordings): where they part, by size and order.\n\n"
    "  --json            the whole answer\n\n"
    "examples\n"
    "  tidemark compare llama-2-7b batch=4 --with batch=16 checkpointing=full\n"
    "  tidemark compare llama-2-7b batch=4 --recording snapshot.pickle\n"};
