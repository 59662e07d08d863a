/* SPDX-License-Identifier: Apache-2.0 */
/* `tidemark dry-run`: a program on phantom GPUs. */
#define _GNU_SOURCE
#include "launch.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { GPUS_LIMIT = 64, STEPS_LIMIT = 1000000, WORLD_LIMIT = 1 << 20, STANDARD_STEPS = 3 };

typedef struct dry_run {
    const char *gpu, *out;
    int64_t gpus, steps, world, rank;
    bool is_json, shows_bytes, shows_help;
    cli_buffer answers; /* FILE:LINE=N, one a line */
    int64_t bytes, context_bytes;
    cJSON *card;
    launch launch;
} dry_run;

/* ---- options ---- */

static bool answer_read(dry_run *d, const char *text) {
    const char *equals = strrchr(text, '='), *colon = equals ? memrchr(text, ':', (size_t)(equals - text)) : NULL;
    char *end;
    if (colon && colon > text && strtol(colon + 1, &end, 10) > 0 && end == equals && equals[1]) {
        strtoll(equals + 1, &end, 10);
        if (!*end) {
            cli_format(&d->answers, "%s\n", text);
            return true;
        }
    }
    cli_complain("such as --answer model.py:120=64: the line reads 64 from the GPU",
                 "--answer is \"%s\"; it is FILE:LINE=NUMBER", text);
    return false;
}

/* Takes argv[*at] and its value. */
static bool option_read(dry_run *d, int argc, char **argv, int *at) {
    static const char *const with_value[] = {"--gpu", "--gpus", "--steps", "--world", "--rank", "--answer", "--out"};
    const char *word = argv[*at], *equals = strchr(word, '='), *value = NULL;
    size_t length = equals ? (size_t)(equals - word) : strlen(word);
    char name[16] = "";
    if (length < sizeof name) memcpy(name, word, length);
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) return d->shows_help = true;
    if (strcmp(word, "--json") == 0) return d->is_json = true;
    if (strcmp(word, "--bytes") == 0) return d->shows_bytes = true;
    bool is_known = false;
    for (size_t i = 0; i < sizeof with_value / sizeof *with_value; i++) is_known |= strcmp(name, with_value[i]) == 0;
    if (!is_known) {
        cli_complain("`tidemark dry-run --help` lists the options; the command stands after --", "no option %s here",
                     word);
        return false;
    }
    value = equals ? equals + 1 : *at + 1 < argc ? argv[++*at] : NULL;
    if (!value) {
        cli_complain(NULL, "%s needs a value", name);
        return false;
    }
    if (strcmp(name, "--gpu") == 0) d->gpu = value;
    if (strcmp(name, "--out") == 0) d->out = value;
    if (strcmp(name, "--answer") == 0) return answer_read(d, value);
    if (strcmp(name, "--gpus") == 0) return observed_integer(name, value, 1, GPUS_LIMIT, &d->gpus);
    if (strcmp(name, "--steps") == 0) return observed_integer(name, value, 0, STEPS_LIMIT, &d->steps);
    if (strcmp(name, "--world") == 0) return observed_integer(name, value, 1, WORLD_LIMIT, &d->world);
    if (strcmp(name, "--rank") == 0) return observed_integer(name, value, 0, WORLD_LIMIT - 1, &d->rank);
    return true;
}

static int options_read(dry_run *d, int argc, char **argv, int *at) {
    for (*at = 0; *at < argc && argv[*at][0] == '-'; ++*at) {
        if (strcmp(argv[*at], "--") == 0) {
            ++*at;
            break;
        }
        if (!option_read(d, argc, argv, at)) return OBSERVED_USAGE;
    }
    if (d->shows_help) return OBSERVED_OK;
    if (d->rank >= 0 && d->world == 0) {
        cli_complain("give the number of ranks too: --world 8 --rank 3", "--rank stands alone");
        return OBSERVED_USAGE;
    }
    if (d->world && d->rank >= d->world) {
        cli_complain(NULL, "--rank %" PRId64 " is not one of %" PRId64 " ranks, which count from 0", d->rank, d->world);
        return OBSERVED_USAGE;
    }
    return OBSERVED_OK;
}

/* ---- the GPU ---- */

/* The row for --gpu, interpreted like `gpu=` of a job: "H100 SXM" is h100-80. Freed by the caller. */
static int card_named(const dry_run *d, char **name) {
    cli_buffer request = {0}, setting = {0};
    cli_answer answer = {0};
    cli_format(&setting, "gpu=%s", d->gpu);
    cli_append_text(&request, "{\"call\":\"link\",\"settings\":[\"model=gpt2\",");
    cli_append_quoted(&request, setting.at, setting.length);
    cli_append_text(&request, "]}");
    int status = cli_ask_or_explain(&answer, &request, false);
    const char *link = cli_text_at(answer.json, "link"), *at = strstr(link, "&gpu=");
    *name = status == CLI_OK && at ? strndup(at + 5, strcspn(at + 5, "&")) : NULL;
    cli_answer_free(&answer);
    cli_buffer_free(&setting);
    cli_buffer_free(&request);
    return status == CLI_OK && !*name ? OBSERVED_USAGE : status;
}

static int card_find(dry_run *d) {
    static const char request[] = "{\"call\":\"describe\"}";
    char *name = NULL;
    int status = card_named(d, &name);
    if (status != CLI_OK) return OBSERVED_USAGE;
    cli_buffer text = {0};
    cli_answer answer = {0};
    cli_append_text(&text, request);
    status = cli_ask(&answer, &text);
    const cJSON *card;
    cJSON_ArrayForEach(card, cli_at(answer.json, "gpus")) if (strcmp(cli_text_at(card, "name"), name) == 0) d->card =
        cJSON_Duplicate(card, true);
    d->bytes = cli_int_at(d->card, "bytes");
    d->context_bytes = cli_int_at(d->card, "context_bytes");
    cli_answer_free(&answer);
    cli_buffer_free(&text);
    free(name);
    return status;
}

/* ---- the run ---- */

static void set_number(const char *name, int64_t value) {
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, value);
    launch_set(name, text);
}

static void environment_set(const dry_run *d) {
    const launch *l = &d->launch;
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    char path[4200], card[160];
    snprintf(card, sizeof card, "%" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64, d->bytes, d->context_bytes,
             cli_int_at(d->card, "capability"), cli_int_at(d->card, "sms"), cli_int_at(d->card, "threads_per_sm"));
    launch_set("TIDEMARK_CARD", card);
    set_number("TIDEMARK_GPUS", d->gpus);
    set_number("TIDEMARK_STEPS", d->steps);
    launch_set("TIDEMARK_HISTORY", "1");
    if (d->answers.length) launch_set("TIDEMARK_ANSWERS", d->answers.at);
    snprintf(path, sizeof path, "%s/libcuda.so.1", l->tools);
    launch_prepend("LD_PRELOAD", path, ':');
    launch_prepend("LD_LIBRARY_PATH", l->tools, ':');
    launch_set("TRITON_LIBCUDA_PATH", l->tools);
    snprintf(path, sizeof path, "%s/hook", l->tools);
    launch_prepend("PYTHONPATH", path, ':');
    /* A machine without a GPU often sets CUDA_VISIBLE_DEVICES to none. */
    if (visible && (!visible[0] || visible[0] == '-')) unsetenv("CUDA_VISIBLE_DEVICES");
    if (d->world) {
        launch_set("TIDEMARK_ALONE", "1");
        set_number("WORLD_SIZE", d->world);
        set_number("LOCAL_WORLD_SIZE", d->world);
        set_number("RANK", d->rank < 0 ? 0 : d->rank);
        launch_set("LOCAL_RANK", "0");
        launch_set("MASTER_ADDR", "127.0.0.1");
        launch_set("MASTER_PORT", "29500");
    }
    /* Threads of NCCL's watchdog would wait for missing ranks. */
    launch_set("TORCH_NCCL_ENABLE_MONITORING", "0");
    launch_set("TORCH_NCCL_DUMP_ON_TIMEOUT", "0");
    launch_set("TORCH_NCCL_CUDA_EVENT_CACHE", "0");
}

/* The most bytes in use on one device, over all processes: {in use, peak} of each, as counted by the phantom. */
static int64_t device_peak(const launch *l, int64_t gpus) {
    char path[4096];
    uint64_t pair[2], most = 0;
    FILE *file = launch_path(l, path, sizeof path, "devices") ? fopen(path, "rb") : NULL;
    for (int64_t i = 0; file && i < gpus && fread(pair, sizeof pair, 1, file) == 1; i++)
        if (pair[1] > most) most = pair[1];
    if (file) fclose(file);
    return (int64_t)most;
}

/* ---- the verdict ---- */

static bool has_note(const cJSON *notes, const char *kind) {
    const cJSON *note;
    cJSON_ArrayForEach(note, notes) if (strcmp(cli_text_at(note, "kind"), kind) == 0) return true;
    return false;
}

/* The request at which a process ended, or NULL. */
static const cJSON *last_oom(const cJSON *processes, const cJSON **of) {
    const cJSON *seen;
    cJSON_ArrayForEach(seen, processes) {
        const cJSON *ooms = cli_at(seen, "ooms");
        bool is_oom =
            strstr(cli_text_at(seen, "error"), "out of memory") || strstr(cli_text_at(seen, "error"), "OutOfMemory");
        int count = cJSON_GetArraySize(ooms);
        if (is_oom && count) {
            *of = seen;
            return cJSON_GetArrayItem(ooms, count - 1);
        }
    }
    return NULL;
}

static bool has_failed(const dry_run *d) {
    return !WIFEXITED(d->launch.status) || WEXITSTATUS(d->launch.status) != 0;
}

static void verdict_add(const dry_run *d, cJSON *answer, const cJSON *processes, int64_t device, int64_t retries) {
    cJSON *verdict = cJSON_AddObjectToObject(answer, "verdict");
    const cJSON *of = NULL, *oom = last_oom(processes, &of);
    cli_number used, whole, spare;
    cli_buffer text = {0};
    if (oom)
        cli_format(&text, "out of memory in step %" PRId64 ", %s: %s asked for, %s of %s free", cli_int_at(oom, "step"),
                   cli_text_at(oom, "phase"), cli_size(used, cli_int_at(oom, "bytes")),
                   cli_size(spare, cli_int_at(oom, "free")), cli_size(whole, d->bytes));
    else if (has_failed(d))
        cli_format(&text, "%s of %s up to where the program failed: cannot tell whether it fits",
                   cli_size(used, device), cli_size(whole, d->bytes));
    else
        cli_format(&text, "%s of %s: fits, %s to spare", cli_size(used, device), cli_size(whole, d->bytes),
                   cli_size(spare, d->bytes - device));
    if (!oom && has_failed(d))
        cJSON_AddNullToObject(verdict, "fits");
    else
        cJSON_AddBoolToObject(verdict, "fits", !oom);
    cJSON_AddNumberToObject(verdict, "device_bytes", (double)device);
    cJSON_AddNumberToObject(verdict, "gpu_bytes", (double)d->bytes);
    cJSON_AddNumberToObject(verdict, "margin_bytes", (double)(d->bytes - device));
    cJSON_AddNumberToObject(verdict, "retries", (double)retries);
    cJSON_AddStringToObject(verdict, "sentence", text.at);
    cli_buffer_free(&text);
}

static void title_add(const dry_run *d, cJSON *answer, const observed_process *worst) {
    cli_buffer text = {0};
    int steps = cJSON_GetArraySize(cli_at(worst->seen, "steps"));
    for (char **word = d->launch.command; *word && text.length < 60; word++)
        cli_format(&text, "%s%s", text.length ? " " : "", cli_base_name(*word));
    cli_format(&text, ": %d step%s on %" PRId64 " phantom GPU%s, PyTorch %s, %.1f s", steps, steps == 1 ? "" : "s",
               d->gpus, d->gpus == 1 ? "" : "s", cli_text_at(worst->seen, "torch"), d->launch.seconds);
    if (d->world) cli_format(&text, ", rank %" PRId64 " of %" PRId64, d->rank < 0 ? 0 : d->rank, d->world);
    if (strcmp(cli_text_at(worst->seen, "ended"), "stopped") == 0) cli_append_text(&text, ", then stopped (--steps)");
    cJSON_AddStringToObject(answer, "title", text.at);
    cli_buffer_free(&text);
}

static cJSON *answer_make(const dry_run *d, const cJSON *processes, cJSON *notes) {
    observed_process worst;
    cJSON *answer = cJSON_CreateObject(), *more;
    observed_worst(&worst, processes);
    int64_t device = device_peak(&d->launch, d->gpus);
    cJSON_AddBoolToObject(answer, "ok", true);
    cJSON_AddStringToObject(answer, "how", "dry-run");
    title_add(d, answer, &worst);
    cJSON_AddItemToObject(answer, "gpu", cJSON_Duplicate(d->card, true));
    verdict_add(d, answer, processes, device, cli_int_at(worst.device, "retries"));
    cJSON_AddItemToObject(answer, "notes", notes);
    observed_answer(answer, &worst, processes);
    recording_play(&d->launch, &worst, answer, d->bytes, d->context_bytes);
    cJSON *peak = cJSON_GetObjectItem(answer, "peak"), *outside = cJSON_GetObjectItem(answer, "outside");
    const int64_t others = device - worst.reserved - d->context_bytes;
    const struct {
        const char *name;
        int64_t bytes;
    } rows[] = {{"libraries", others}, {"context", d->context_bytes}};
    for (size_t i = 0; i < 2; i++) {
        if (rows[i].bytes == 0) continue;
        more = cJSON_CreateObject();
        cJSON_AddStringToObject(more, "name", rows[i].name);
        cJSON_AddNumberToObject(more, "bytes", (double)rows[i].bytes);
        cJSON_AddItemToArray(outside, more);
    }
    cJSON_AddNumberToObject(peak, "device", (double)device);
    cJSON_AddNumberToObject(peak, "context", (double)d->context_bytes);
    return answer;
}

/* Explains why nothing was seen on a device. */
static int explain_nothing(const dry_run *d, const cJSON *processes, const cJSON *notes) {
    const cJSON *seen = cJSON_GetArrayItem(processes, 0), *note;
    cli_buffer end = {0};
    launch_end_text(&d->launch, &end);
    int64_t device = device_peak(&d->launch, d->gpus);
    int status = OBSERVED_CANNOT;
    static const char no_hook[] = "run python without -I, -E and -S, and add to PYTHONPATH in place of setting it: "
                                  "these keep tidemark's hook out";
    if (has_note(notes, "phantom-no-hook")) {
        cli_complain(no_hook, "%s ran without tidemark's hook: its CUDA calls could not be answered",
                     d->launch.command[0]);
    } else if (has_note(notes, "phantom-static-runtime")) {
        cJSON_ArrayForEach(note, notes) if (strcmp(cli_text_at(note, "kind"), "phantom-static-runtime") == 0)
            cli_complain("install a build that links libcudart.so, or measure on a GPU with "
                         "`tidemark check`",
                         "phantom-static-runtime: %s carries a CUDA runtime of its own, whose "
                         "memory is not seen",
                         cli_text_at(note, "text"));
    } else if (seen && strcmp(cli_text_at(seen, "cuda"), "None") == 0) {
        cli_complain("install PyTorch with CUDA (pip's default on Linux); no GPU and no driver are needed",
                     "this PyTorch (%s) is built without CUDA", cli_text_at(seen, "torch"));
    } else if (has_failed(d)) {
        cli_complain("what it wrote is above; run it again without dry-run to see whether it runs at all",
                     "%s ended with %s before it used a GPU", d->launch.command[0], end.at);
        status = OBSERVED_FAILED;
    } else if (device > 0) {
        cli_number text;
        cli_complain(no_hook, "%s took %s of a GPU, but no PyTorch was seen", d->launch.command[0],
                     cli_size(text, device));
    } else {
        cli_complain(
            "does it move its model to \"cuda\"? if so: run python without -I, -E and -S, and add to PYTHONPATH "
            "in place of setting it: these keep tidemark's hook out",
            "%s made no CUDA call: there is nothing to report", d->launch.command[0]);
    }
    cli_buffer_free(&end);
    return status;
}

static int report(dry_run *d) {
    observed_process worst;
    cJSON *processes = observed_read(&d->launch), *notes = observed_notes(&d->launch);
    int status;
    if (!observed_worst(&worst, processes)) {
        status = explain_nothing(d, processes, notes);
        cJSON_Delete(notes);
    } else {
        cJSON *answer = answer_make(d, processes, notes);
        bool is_full = cJSON_IsFalse(cli_at(cli_at(answer, "verdict"), "fits"));
        if (d->is_json) {
            char *text = cJSON_Print(answer);
            puts(text ? text : "");
            free(text);
        } else {
            putchar('\n');
            observed_show(answer, d->shows_bytes);
        }
        status = is_full ? OBSERVED_NO : OBSERVED_OK;
        if (d->out && recording_write(&d->launch, processes, d->out, d->bytes, d->context_bytes) != CLI_OK)
            status = CLI_NO_FILE;
        if (!is_full && has_failed(d)) {
            cli_buffer end = {0};
            launch_end_text(&d->launch, &end);
            cli_complain("the figures above hold up to there", "%s ended with %s%s%s", d->launch.command[0], end.at,
                         cli_text_at(worst.seen, "error")[0] ? ": " : "", cli_text_at(worst.seen, "error"));
            cli_buffer_free(&end);
            status = OBSERVED_FAILED;
        }
        cJSON_Delete(answer);
    }
    cJSON_Delete(processes);
    return status;
}

static int cli_dry_run(int argc, char **argv) {
    dry_run d = {.gpu = "h100-80", .gpus = 1, .steps = STANDARD_STEPS, .rank = -1};
    int at = 0, status = options_read(&d, argc, argv, &at);
    if (status == OBSERVED_OK && d.shows_help) {
        cli_help(stdout, "dry-run");
    } else if (status == OBSERVED_OK) {
        d.launch.output_to_errors = d.is_json;
        status = card_find(&d);
        if (status == OBSERVED_OK && d.out && !recording_can_write(d.out)) status = CLI_NO_FILE;
        if (status == OBSERVED_OK) status = launch_prepare(&d.launch, "dry-run", argc - at, argv + at);
        if (status == OBSERVED_OK) {
            environment_set(&d);
            status = launch_start(&d.launch);
        }
        if (status == OBSERVED_OK) {
            launch_wait(&d.launch, -1);
            status = report(&d);
        }
    }
    launch_close(&d.launch);
    cJSON_Delete(d.card);
    cli_buffer_free(&d.answers);
    return status;
}

const cli_command cli_dry_run_command = {
    "dry-run", cli_dry_run,
    "dry-run [--gpu NAME] [--gpus N] [--steps N] [--world N [--rank R]] [--answer FILE:LINE=N] "
    "[--out FILE] [--bytes] [--json] -- COMMAND ...",
    "the memory of a program that runs on phantom GPUs: exact, on any Linux machine",
    "Runs the command as it is, with its own PyTorch, on GPUs that keep the books of their memory and compute "
    "nothing;\n"
    "all values there are zero. What PyTorch allocates and reserves is what it would on the GPU.\n\n"
    "  --gpu NAME        the GPU (`tidemark describe gpus`); h100-80 if not given\n"
    "  --gpus N          how many of them; 1 if not given\n"
    "  --steps N         end the program after N optimizer steps; 3 if not given, 0: let it run\n"
    "  --world N         the program is one rank of N, the others are imagined; without it, use torchrun\n"
    "  --rank R          which one; 0 if not given\n"
    "  --answer F:L=N    what line L of file F reads from the GPU; may be repeated\n"
    "  --out FILE        a recording for `tidemark replay` (of several ranks, one for each)\n"
    "  --bytes           exact bytes in place of GiB\n"
    "  --json            the answer as an object; what the program prints goes to standard error\n\n"
    "examples\n"
    "  tidemark dry-run -- python train.py\n"
    "  tidemark dry-run --gpu a100-40 --gpus 2 -- torchrun --nproc-per-node 2 train.py\n"
    "  tidemark dry-run --world 64 -- python train_fsdp.py\n\n"
    "exit code: 0 it ran and fits; 1 out of memory; 2 the command line; 3 nothing could be observed;\n"
    "4 the program failed for other reasons\n"};
