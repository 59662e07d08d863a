/* SPDX-License-Identifier: Apache-2.0 */
/* `tidemark check`: a program on real GPUs, observed. */
#define _GNU_SOURCE
#include "check.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { POLL_MS = 10, STEPS_LIMIT = 1000000, WORDS = 64 };

/* ---- options ---- */

static bool percent_read(const char *name, const char *text, double *out) {
    char *end;
    double value = strtod(text, &end);
    if (end != text && (!*end || strcmp(end, "%") == 0) && value >= 0 && value <= 1000) {
        *out = value;
        return true;
    }
    cli_complain(NULL, "%s is \"%s\"; it is a percentage such as 5%%", name, text);
    return false;
}

static bool option_read(check *c, int argc, char **argv, int *at) {
    static const char *const with_value[] = {"--estimate", "--tolerance", "--tolerance-under", "--steps", "--measure",
                                             "--out",      "--log"};
    const char *word = argv[*at], *equals = strchr(word, '=');
    size_t length = equals ? (size_t)(equals - word) : strlen(word);
    char name[24] = "";
    bool is_known = false;
    if (length < sizeof name) memcpy(name, word, length);
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) return c->shows_help = true;
    if (strcmp(word, "--json") == 0) return c->is_json = true;
    if (strcmp(word, "--bytes") == 0) return c->shows_bytes = true;
    if (strcmp(word, "--allow-shared") == 0) return c->allows_shared = true;
    for (size_t i = 0; i < sizeof with_value / sizeof *with_value; i++) is_known |= strcmp(name, with_value[i]) == 0;
    if (!is_known) {
        cli_complain("`tidemark check --help` lists the options; the command stands after --", "no option %s here",
                     word);
        return false;
    }
    const char *value = equals ? equals + 1 : *at + 1 < argc ? argv[++*at] : NULL;
    if (!value) {
        cli_complain(NULL, "%s needs a value", name);
        return false;
    }
    if (strcmp(name, "--estimate") == 0) c->estimate = value;
    if (strcmp(name, "--out") == 0) c->out = value;
    if (strcmp(name, "--log") == 0) c->log = value;
    if (strcmp(name, "--tolerance") == 0) return percent_read(name, value, &c->tolerance);
    if (strcmp(name, "--tolerance-under") == 0) return percent_read(name, value, &c->tolerance_under);
    if (strcmp(name, "--steps") == 0) return observed_integer(name, value, 0, STEPS_LIMIT, &c->steps);
    if (strcmp(name, "--measure") == 0) {
        c->measure = value;
        if (strcmp(value, "auto") != 0 && strcmp(value, "poll") != 0) {
            cli_complain(NULL, "--measure is \"%s\"; it is auto or poll", value);
            return false;
        }
    }
    return true;
}

/* ---- the prediction ---- */

/* An answer saved with --json. */
static bool answer_read(check *c) {
    cli_buffer text = {0};
    if (!cli_is_file(c->estimate) || !cli_read_file(&text, c->estimate)) return false;
    cJSON *json = cJSON_ParseWithLength(text.at, text.length);
    cli_buffer_free(&text);
    if (cli_at(cli_at(json, "peak"), "allocated"))
        c->predicted = json;
    else
        cJSON_Delete(json);
    return c->predicted != NULL;
}

/* The words of `tidemark estimate`, as one argument. */
static int estimate_read(check *c) {
    char *words[WORDS], *copy, *rest = NULL;
    int count = 0, status;
    if (!c->estimate || answer_read(c)) return OBSERVED_OK;
    if (!(copy = strdup(c->estimate))) return CLI_INTERNAL;
    for (char *word = strtok_r(copy, " \t\n", &rest); word && count < WORDS; word = strtok_r(NULL, " \t\n", &rest))
        words[count++] = word;
    cli_arguments arguments;
    cli_buffer request = {0};
    cli_answer answer = {0};
    status = cli_arguments_read(&arguments, count, words, CLI_TAKES_SETTINGS);
    if (status == CLI_OK) status = cli_request(&request, "estimate", &arguments, "");
    if (status == CLI_OK) status = cli_ask_or_explain(&answer, &request, false);
    if (status == CLI_OK) c->predicted = cJSON_Duplicate(answer.json, true);
    cli_answer_free(&answer);
    cli_buffer_free(&request);
    cli_arguments_free(&arguments);
    free(copy);
    return status;
}

/* ---- the run ---- */

static void environment_set(const check *c) {
    const launch *l = &c->launch;
    char path[4200];
    snprintf(path, sizeof path, "%" PRId64, c->steps);
    launch_set("TIDEMARK_STEPS", path);
    if (c->out) launch_set("TIDEMARK_HISTORY", "1");
    snprintf(path, sizeof path, "%s/agent.so", l->tools);
    if (c->is_injected) launch_set("CUDA_INJECTION64_PATH", path);
    snprintf(path, sizeof path, "%s/hook", l->tools);
    launch_prepend("PYTHONPATH", path, ':');
}

/* The hook knows devices by number, the driver by name: joined by PyTorch's properties, or else by the agent's lines.
 */
static void uuids_fill(check *c) {
    cJSON *seen, *device;
    cJSON_ArrayForEach(seen, c->processes) cJSON_ArrayForEach(device, cJSON_GetObjectItem(seen, "devices")) {
        int64_t index = cli_int_at(device, "index");
        const char *uuid = c->nvml.count == 1 ? c->nvml.devices[0].uuid : "";
        if (cli_text_at(device, "uuid")[0]) continue;
        for (size_t i = 0; i < c->agent_count; i++)
            if (c->agents[i].pid == cli_int_at(seen, "pid") && index < AGENT_DEVICES &&
                c->agents[i].devices[index].is_used)
                uuid = c->agents[i].devices[index].uuid;
        cJSON_DeleteItemFromObject(device, "uuid");
        cJSON_AddStringToObject(device, "uuid", uuid);
    }
}

static bool saw_anything(const check *c) {
    for (int i = 0; i < c->nvml.count; i++)
        if (check_is_used(c, &c->nvml.devices[i])) return true;
    return false;
}

/* ---- the log of an inference server ---- */

/* Opened before a command that writes it; without a command it exists. */
static bool log_open(check *c) {
    c->launch.log = open(c->log, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (c->launch.log > 0) return true;
    c->launch.log = 0;
    cli_complain(NULL, "%s: %s", c->log, strerror(errno));
    return false;
}

static bool log_read(check *c) {
    cli_buffer text = {0};
    bool is_read = cli_read_file(&text, c->log);
    if (is_read) c->log_count = engine_log_read(c->log_rows, text.at, cli_at(c->predicted, "serving"));
    cli_buffer_free(&text);
    return is_read;
}

static int log_compare(check *c) {
    int status = OBSERVED_OK;
    if (!cli_at(c->predicted, "serving")) {
        cli_complain("as --estimate 'llama-3.1-8b mode=serve gpu=h100-80'", "--log needs the estimate of a server");
        return OBSERVED_USAGE;
    }
    if (!log_read(c)) return CLI_NO_FILE;
    if (!c->log_count) {
        cli_complain("is it vLLM's, at level INFO?", "%s has none of the lines that say what the engine takes", c->log);
        return OBSERVED_CANNOT;
    }
    for (int i = 0; i < c->log_count; i++)
        if (!engine_log_is_met(&c->log_rows[i])) status = OBSERVED_NO;
    if (c->is_json)
        engine_log_print(c->log_rows, c->log_count);
    else
        engine_log_show(c->log_rows, c->log_count);
    return status;
}

static int report(check *c) {
    int status = OBSERVED_OK;
    cli_buffer end = {0};
    c->processes = observed_read(&c->launch);
    c->agents = agent_read(&c->launch, &c->agent_count);
    check_look_at_agents(c);
    uuids_fill(c);
    launch_end_text(&c->launch, &end);
    if (c->log && !log_read(c)) c->log_count = 0;
    if (!saw_anything(c)) {
        bool has_failed = !WIFEXITED(c->launch.status) || WEXITSTATUS(c->launch.status) != 0;
        if (has_failed)
            cli_complain("what it wrote is above", "%s ended with %s before it used a GPU", c->launch.command[0],
                         end.at);
        else
            cli_complain("does the program run on the GPU at all? sudo, containers and mpirun "
                         "without -x drop the environment that "
                         "it is watched by",
                         "%s made no CUDA call that could be seen: there is nothing to compare", c->launch.command[0]);
        const cJSON *warning;
        cJSON_ArrayForEach(warning, c->warnings) cli_complain(cli_text_at(warning, "hint"), "%s: %s",
                                                              cli_text_at(warning, "id"), cli_text_at(warning, "text"));
        status = has_failed ? OBSERVED_FAILED : OBSERVED_CANNOT;
    } else {
        cJSON *answer = check_answer(c, &status);
        if (c->is_json) {
            char *text = cJSON_Print(answer);
            puts(text ? text : "");
            free(text);
        } else {
            putchar('\n');
            check_show(answer, c->shows_bytes);
            if (c->log_count) putchar('\n'), engine_log_show(c->log_rows, c->log_count);
        }
        int64_t total = c->nvml.devices[0].total - c->nvml.devices[0].reserved;
        if (c->out && recording_write(&c->launch, c->processes, c->out, total, 0) != CLI_OK) status = CLI_NO_FILE;
        cJSON_Delete(answer);
    }
    cli_buffer_free(&end);
    return status;
}

static int run(check *c, int argc, char **argv) {
    int status = estimate_read(c);
    if (status == OBSERVED_OK && c->log && !argc) return log_compare(c);
    if (status == OBSERVED_OK && c->out && !recording_can_write(c->out)) status = CLI_NO_FILE;
    if (status == OBSERVED_OK && c->log && !log_open(c)) status = CLI_NO_FILE;
    if (status == OBSERVED_OK) status = launch_prepare(&c->launch, "check", argc, argv);
    if (status == OBSERVED_OK) status = check_preflight(c);
    if (status != OBSERVED_OK) return status;
    environment_set(c);
    status = launch_start(&c->launch);
    if (status != OBSERVED_OK) return status;
    while (!launch_wait(&c->launch, POLL_MS)) nvml_poll(&c->nvml);
    return report(c);
}

static int cli_check(int argc, char **argv) {
    check c = {.measure = "auto", .tolerance = 5, .tolerance_under = 2, .floor = 256 << 20};
    int at = 0, status = OBSERVED_OK;
    for (; at < argc && argv[at][0] == '-' && status == OBSERVED_OK; at++) {
        if (strcmp(argv[at], "--") == 0) {
            at++;
            break;
        }
        if (!option_read(&c, argc, argv, &at)) status = OBSERVED_USAGE;
    }
    c.warnings = cJSON_CreateArray();
    c.launch.output_to_errors = c.is_json;
    if (status == OBSERVED_OK && c.shows_help)
        cli_help(stdout, "check");
    else if (status == OBSERVED_OK)
        status = run(&c, argc - at, argv + at);
    if (c.launch.log) close(c.launch.log);
    launch_close(&c.launch);
    nvml_close(&c.nvml);
    cJSON_Delete(c.predicted);
    cJSON_Delete(c.processes);
    cJSON_Delete(c.warnings);
    free(c.agents);
    return status;
}

const cli_command cli_check_command = {
    "check", cli_check,
    "check [--estimate JOB] [--tolerance 5%] [--steps N] [--measure auto|poll] [--out FILE] [--log FILE] "
    "[--allow-shared] "
    "[--json] -- COMMAND ...",
    "a program on real GPUs, observed and compared with an estimate",
    "Runs the command as it is and reads, at each call of the CUDA driver that takes memory, what the device holds; "
    "and what\n"
    "PyTorch itself counts.\n\n"
    "  --estimate JOB    the words of `tidemark estimate` in one, or a file of its --json (or that of dry-run)\n"
    "  --tolerance P     error allowed, 5% if not given; differences below 256 MiB are never too large\n"
    "  --tolerance-under P  error allowed where the estimate is below, 2% if not given\n"
    "  --steps N         end the program after N optimizer steps; it runs to its end if not given\n"
    "  --measure poll    without the agent in the driver: sampled every 10 ms, a lower bound\n"
    "  --out FILE        a recording for `tidemark replay`: costs some microseconds for each allocation\n"
    "  --log FILE        vLLM's log, whose weights, cache and tokens are compared with an estimate of mode=serve: with "
    "a\n"
    "                    command what it writes goes there, without one it is read\n"
    "  --allow-shared    compare although other processes are on the GPU\n"
    "  --bytes           exact bytes in place of GiB\n"
    "  --json            the answer as an object; what the program prints goes to standard error\n\n"
    "examples\n"
    "  tidemark check --estimate 'llama-3.2-1b --gpu h200 batch=4' -- python train.py\n"
    "  tidemark check --estimate 'llama-3.1-8b mode=serve gpu=l40s' --log vllm.log -- vllm serve "
    "meta-llama/Llama-3.1-8B\n"
    "  tidemark check --steps 3 --out run.tide -- torchrun --nproc-per-node 8 train.py\n\n"
    "exit code: 0 within the tolerance, or nothing to compare; 1 past it; 2 the command line; 3 nothing could be\n"
    "measured, or others were on the GPU; 4 the program failed; 5 fewer than two steps were seen\n"};
