/* SPDX-License-Identifier: Apache-2.0 */
/* `tidemark replay`: plays a recording through the simulated allocator. */
#include "cli.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <tidemark/tidemark.h>

enum { PIECE = 256 << 10, LIVE_ROWS = 10, CURVE_COLUMNS = 76 };
/* Bytes of a recording after decompression: a small file may expand to a huge one. */
static const uint64_t RECORDING_LIMIT = UINT64_C(64) << 30;

/* ---- bytes ---- */

/* Passes on the bytes of a file, decompressed if it is gzip. *damage says what ended in the middle, or stays NULL. */
static int file_feed(struct tide_recorded *recording, const char *path, const char **damage) {
    static unsigned char piece[PIECE];
    cli_source source;
    size_t length;
    int status = CLI_OK;
    if (!cli_source_open(&source, path)) {
        cli_complain(NULL, "%s: %s", path, strerror(errno));
        return CLI_NO_FILE;
    }
    source.limit = RECORDING_LIMIT;
    source.limit_text = "more than 64 GiB";
    while (status == CLI_OK && (length = cli_source_read(&source, piece, PIECE)) > 0)
        if (tide_recording_add(recording, piece, length) != 0) status = CLI_INTERNAL;
    cli_source_close(&source);
    *damage = source.damage;
    if (source.error) {
        cli_complain(NULL, "%s: %s", path, strerror(source.error));
        status = CLI_NO_FILE;
    }
    if (status == CLI_INTERNAL) cli_complain(NULL, "out of memory");
    return status;
}

int cli_recording_read(struct tide_recorded **recording, const char *path, const char **damage) {
    *damage = NULL;
    if (tide_recording_open(NULL, recording) == 0) return file_feed(*recording, path, damage);
    cli_complain(NULL, "out of memory");
    return CLI_INTERNAL;
}

static void request_make(cli_buffer *request, const cli_arguments *a, const char *damage) {
    cli_format(request, "{\"call\":\"%s\",\"settings\":[",
               a->shows_state    ? "recorded_state"
               : a->shows_events ? "recorded_events"
                                 : "replay");
    for (size_t i = 0; i < a->word_count; i++) {
        if (i) cli_append_text(request, ",");
        cli_append_quoted(request, a->words[i], strlen(a->words[i]));
    }
    cli_append_text(request, "]");
    if (damage) cli_format(request, ",\"damage\":\"%s\"", damage);
    if (a->device) cli_format(request, ",\"device\":%ld", strtol(a->device, NULL, 10));
    cli_events_members(request, a);
    cli_append_text(request, "}");
}

/* ---- text ---- */

static void head_show(const cJSON *answer, const char *path) {
    const cJSON *recording = cli_at(answer, "recording");
    cli_number requests, frees;
    printf("%s%s%s  %s, %s requests and %s frees", cli_styled(CLI_BOLD), cli_base_name(path), cli_styled_end(),
           cli_text_at(recording, "format"), cli_count(requests, cli_int_at(recording, "requests")),
           cli_count(frees, cli_int_at(recording, "frees")));
    if (cli_int_at(recording, "devices") > 1) printf(" on device %" PRId64, cli_int_at(recording, "device"));
    const char *allocator = cli_text_at(answer, "allocator");
    printf("\n%s%s%s\n", allocator[0] ? "allocator=" : "", allocator, allocator[0] ? "\n" : "");
}

static void verdict_show(const cJSON *answer) {
    const cJSON *verdict = cli_at(answer, "verdict"), *fits = cli_at(verdict, "fits"), *oom = cli_at(verdict, "oom");
    cli_number whole, smallest, tried, free_text;
    enum cli_style style = cJSON_IsTrue(fits) ? CLI_GREEN : cJSON_IsFalse(fits) ? CLI_RED : CLI_BOLD;
    printf("  %s", cli_styled(style));
    if (cJSON_IsBool(fits))
        printf("%s on %s: ", cJSON_IsTrue(fits) ? "runs" : "does not run",
               cli_size(whole, cli_int_at(verdict, "gpu_bytes")));
    printf("the smallest device it runs on has %s%s\n",
           cli_size(smallest, cli_int_at(verdict, "smallest_device_bytes")), cli_styled_end());
    if (oom)
        printf("  out of memory at event %" PRId64 ": %s wanted, %s free\n", cli_int_at(oom, "event"),
               cli_size(tried, cli_int_at(oom, "tried")), cli_size(free_text, cli_int_at(oom, "free")));
}

static void figures_show(const cJSON *answer, bool is_exact) {
    static const struct {
        const char *key, *title;
        bool is_count;
    } rows[] = {{"allocated_peak", "Allocated, at most", false},
                {"reserved_peak", "Reserved, at most", false},
                {"allocated", "Allocated at the end", false},
                {"reserved", "Reserved at the end", false},
                {"retries", "Retries", true},
                {"ooms", "Out of memory", true}};
    const cJSON *recording = cli_at(answer, "recording"), *said = cli_at(recording, "said");
    if (!said) said = recording; /* its segments give the reserved peak */
    cli_table table;
    cli_number text;
    bool has_recorded = cli_at(said, "reserved_peak") != NULL;
    cli_heading(cli_at(cli_at(answer, "verdict"), "oom") ? "Replayed, up to where it fails"
                : has_recorded                           ? "Replayed against recorded"
                                                         : "Replayed");
    cli_table_init(&table, has_recorded ? 3 : 2);
    cli_table_cell(&table, "");
    cli_table_cell(&table, "Replayed");
    if (has_recorded) cli_table_cell(&table, "Recorded");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bool as_count = is_exact || rows[i].is_count;
        int64_t played = cli_int_at(answer, rows[i].key), recorded = cli_int_at(said, rows[i].key);
        cli_table_cell(&table, rows[i].title);
        cli_table_cell(&table, as_count ? cli_count(text, played) : cli_size(text, played));
        if (has_recorded)
            cli_table_cell(&table, !cli_at(said, rows[i].key) ? ""
                                   : as_count                 ? cli_count(text, recorded)
                                                              : cli_size(text, recorded));
    }
    cli_table_print(&table);
    const cJSON *lost = cli_at(answer, "fragmentation");
    printf("  Reserved and not allocated at the reserved peak: %s; ",
           cli_size(text, cli_int_at(answer, "reserved_peak") - cli_int_at(lost, "allocated_at_reserved_peak")));
    printf("%s of it in segments that are in use\n", cli_size(text, cli_int_at(lost, "cached_in_used_segments")));
}

void cli_options_show(const cJSON *answer, bool is_exact) {
    const cJSON *option;
    cli_table table;
    cli_number text;
    cli_heading("With other options of PYTORCH_CUDA_ALLOC_CONF");
    cli_table_init(&table, 4);
    table.is_left[0] = table.is_left[3] = true;
    cli_table_cell(&table, "");
    cli_table_cell(&table, "Reserved");
    cli_table_cell(&table, "Change");
    cli_table_cell(&table, "");
    cJSON_ArrayForEach(option, cli_at(answer, "options")) {
        const char *name = cli_text_at(option, "allocator");
        const cJSON *fits = cli_at(option, "fits");
        int64_t change = cli_int_at(option, "change"), reserved = cli_int_at(option, "reserved_peak");
        cli_buffer signed_text = {0};
        cli_format(&signed_text, "%s%s",
                   change > 0   ? "+"
                   : change < 0 ? "-"
                                : "",
                   is_exact ? cli_count(text, llabs(change)) : cli_size(text, llabs(change)));
        cli_table_cell(&table, name[0] ? name : "(PyTorch's defaults)");
        cli_table_cell(&table, is_exact ? cli_count(text, reserved) : cli_size(text, reserved));
        cli_table_cell(&table, signed_text.at);
        cli_table_cell(&table, cli_true_at(option, "is_approximate") ? "an estimate"
                               : cJSON_IsFalse(fits)                 ? "does not run"
                                                                     : "");
        cli_buffer_free(&signed_text);
    }
    cli_table_print(&table);
    const char *advice = cli_text_at(cli_at(answer, "advice"), "sentence");
    if (advice[0]) printf("  %s\n", advice);
}

/* The curve of one quantity, in steps of an eighth of the reserved peak. */
static void curve_show(const cJSON *columns, const char *title, const char *key, int64_t whole) {
    static const char *const steps[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    int count = cJSON_GetArraySize(columns), width = count < CURVE_COLUMNS ? count : CURVE_COLUMNS, at = 0;
    const cJSON *column = columns ? columns->child : NULL;
    printf("  %-10s", title);
    for (int i = 0; i < width; i++) {
        int64_t most = 0;
        for (; column && at < (i + 1) * count / width; at++, column = column->next)
            if (cli_int_at(column, key) > most) most = cli_int_at(column, key);
        fputs(steps[whole ? (most * 8 + whole - 1) / whole : 0], stdout);
    }
    putchar('\n');
}

static void curves_show(const cJSON *answer) {
    const cJSON *columns = cli_at(cli_at(answer, "timeline"), "columns");
    int64_t whole = cli_int_at(answer, "reserved_peak");
    if (!cli_is_utf8() || !cJSON_GetArraySize(columns)) return;
    cli_heading("From the first event to the last");
    curve_show(columns, "Reserved", "reserved", whole);
    curve_show(columns, "Allocated", "allocated", whole);
}

static void live_show(const cJSON *answer, bool is_exact) {
    const cJSON *group;
    cli_table table;
    cli_number text;
    int64_t rest = 0;
    int shown = 0;
    cli_heading("Live at the peak");
    cli_table_init(&table, 4);
    table.is_left[0] = false;
    table.is_left[3] = table.shrinks_last = true;
    static const char *const heads[] = {"Total", "Count", "Each", "From"};
    for (int i = 0; i < 4; i++) cli_table_cell(&table, heads[i]);
    cJSON_ArrayForEach(group, cli_at(answer, "live_at_peak")) {
        int64_t bytes = cli_int_at(group, "bytes"), each = cli_int_at(group, "requested");
        rest += cli_int_at(group, "rest");
        if (cli_at(group, "rest")) continue;
        if (shown++ >= LIVE_ROWS) {
            rest += bytes;
            continue;
        }
        cli_table_cell(&table, is_exact ? cli_count(text, bytes) : cli_size(text, bytes));
        cli_table_cell(&table, cli_count(text, cli_int_at(group, "count")));
        cli_table_cell(&table, is_exact ? cli_count(text, each) : cli_size(text, each));
        const char *frame = cli_text_at(group, "frame");
        cli_table_cell(&table, frame[0] ? frame : "(no frame)");
    }
    if (rest) {
        cli_table_cell(&table, is_exact ? cli_count(text, rest) : cli_size(text, rest));
        cli_table_cell(&table, "");
        cli_table_cell(&table, "");
        cli_table_cell(&table, "all others");
    }
    cli_table_print(&table);
}

static void differences_show(const cJSON *answer) {
    const cJSON *note;
    if (!cli_at(answer, "differences")) return;
    cli_heading("An estimate of the run on a GPU, from one without");
    cJSON_ArrayForEach(note, cli_at(answer, "differences")) {
        fputs("  ", stdout);
        cli_wrapped(cJSON_GetStringValue(note), 4, 2);
    }
}

static void replay_show(const cJSON *answer, const char *path, bool is_exact) {
    head_show(answer, path);
    verdict_show(answer);
    figures_show(answer, is_exact);
    cli_options_show(answer, is_exact);
    curves_show(answer);
    live_show(answer, is_exact);
    differences_show(answer);
    cli_diagnostics_show(stdout, cli_at(answer, "diagnostics"));
}

/* ---- the command ---- */

int cli_replay_ask(cli_answer *answer, const cli_arguments *a) {
    struct tide_recorded *recording = NULL;
    cli_buffer request = {0};
    const char *damage = NULL;
    *answer = (cli_answer){0};
    int status = cli_recording_read(&recording, a->paths[0], &damage);
    if (status == CLI_OK) {
        request_make(&request, a, damage);
        status = cli_ask_recording(answer, recording, &request, a->is_json);
    }
    cli_buffer_free(&request);
    tide_recording_free(recording);
    return status;
}

static int replay(const cli_arguments *a) {
    cli_answer answer;
    int status = cli_replay_ask(&answer, a);
    if (status == CLI_OK) {
        if (a->is_json)
            printf("%.*s\n", (int)answer.length, answer.text);
        else if (a->shows_events || a->shows_state)
            cli_events_show(answer.json, a);
        else
            replay_show(answer.json, a->paths[0], a->shows_bytes);
        if (a->word_count && cJSON_IsFalse(cli_at(cli_at(answer.json, "verdict"), "fits"))) status = CLI_NO;
    }
    cli_answer_free(&answer);
    return status;
}

static int cli_replay(int argc, char **argv) {
    if (argc > 0 && strcmp(argv[0], "--on-gpu") == 0) return cli_on_gpu(argc - 1, argv + 1);
    cli_arguments arguments;
    int status = cli_arguments_read(&arguments, argc, argv,
                                    CLI_TAKES_JSON | CLI_TAKES_BYTES | CLI_TAKES_SETTINGS | CLI_TAKES_DEVICE |
                                        CLI_TAKES_EVENTS | CLI_NAMES_ARE_PATHS);
    if (status == CLI_OK && arguments.shows_help) {
        cli_help(stdout, "replay");
    } else if (status == CLI_OK && arguments.path_count != 1) {
        cli_complain("`tidemark replay --help` has examples", "one recording at a time");
        status = CLI_BAD_INPUT;
    } else if (status == CLI_OK) {
        cli_buffer members = {0};
        status = cli_events_members(&members, &arguments) ? CLI_OK : CLI_BAD_INPUT;
        cli_buffer_free(&members);
        if (status == CLI_OK) status = replay(&arguments);
    }
    cli_arguments_free(&arguments);
    return status;
}

const cli_command cli_replay_command = {
    "replay", cli_replay,
    "replay RECORDING [key=value ...] [--gpu NAME] [--device N] [--events|--state] [--bytes] [--json]",
    "plays a recorded run through the allocator: peaks, what is live at the peak, other options",
    "Plays what a process asked of the allocator, as it did or on another device.\n\n"
    "  RECORDING         a snapshot of torch.cuda.memory._dump_snapshot(), a trace of "
    "torch.profiler with\n"
    "                    profile_memory=True, an event file or a tidemark recording; .gz as it "
    "is; \"-\" is\n"
    "                    standard input\n"
    "  allocator=...     another PYTORCH_CUDA_ALLOC_CONF\n"
    "  --gpu NAME        another GPU; gpu_gib=SIZE and memory_fraction=PART as for estimate\n"
    "  --device N        of several recorded devices, not the busiest one\n" CLI_EVENT_OPTIONS
    "  --bytes           exact bytes\n"
    "  --json            the whole answer\n"
    "  --on-gpu          (first) takes on GPU 0 what the recording, or a job as for estimate, reserves, step by\n"
    "                    step: does the GPU have it?\n\n"
    "examples\n"
    "  tidemark replay snapshot.pickle\n"
    "  tidemark replay snapshot.pickle --gpu a100-40 allocator=expandable_segments:True\n"
    "  tidemark replay snapshot.pickle --events --filter attention\n"
    "  tidemark replay snapshot.pickle --state --at 1200\n"
    "  tidemark replay trace.json.gz --json | jq .reserved_peak\n\n"
    "exit code: 0 played; 1 it does not run on the device or with the option that was given; 2 to 4 as in `tidemark "
    "--help`\n"};
