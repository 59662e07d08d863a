/* SPDX-License-Identifier: Apache-2.0 */
/* `tidemark replay --on-gpu`: allocates on a real GPU, step by step, what a timeline reserves. */
#define _GNU_SOURCE
#include "launch.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { PIECES = 1 << 16, STUB_LIBRARY = 34, OUT_OF_MEMORY = 2 };
static const int64_t page = 2 << 20;      /* granularity of the driver */
static const int64_t headroom = 64 << 20; /* never allocated, so that other users of the GPU can go on */

typedef struct driver {
    int (*init)(unsigned), (*get)(int *, int), (*retain)(void **, int), (*release)(int), (*set)(void *);
    int (*name)(char *, int, int), (*info)(size_t *, size_t *), (*take)(uint64_t *, size_t), (*give)(uint64_t);
} driver;

typedef struct played {
    uint64_t at[PIECES]; /* what is held, in order of allocation */
    int64_t size[PIECES];
    int count;
    int64_t held, steps, worst_gap, most;
} played;

static volatile sig_atomic_t is_over;
static void end(int signal) {
    is_over = signal;
}

/* ---- the timeline ---- */

static bool is_config(const char *path) {
    size_t length = strlen(path);
    return strcmp(path, "-") == 0 || (length > 5 && strcmp(path + length - 5, ".json") == 0);
}

/* A file that is not a configuration is a recording; anything else is a job. */
static int timeline_make(cli_answer *answer, int argc, char **argv) {
    cli_arguments arguments;
    cli_buffer request = {0};
    int status = cli_arguments_read(&arguments, argc, argv, CLI_TAKES_SETTINGS);
    *answer = (cli_answer){0};
    if (status == CLI_OK && arguments.path_count == 1 && !is_config(arguments.paths[0])) {
        status = cli_replay_ask(answer, &arguments);
    } else if (status == CLI_OK) {
        status = cli_request(&request, "estimate", &arguments, "");
        if (status == CLI_OK) status = cli_ask_or_explain(answer, &request, false);
    }
    cli_buffer_free(&request);
    cli_arguments_free(&arguments);
    return status;
}

/* ---- the GPU ---- */

static bool driver_open(driver *d) {
    static const char *const names[] = {
        "cuInit",          "cuDeviceGet",     "cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease_v2",
        "cuCtxSetCurrent", "cuDeviceGetName", "cuMemGetInfo_v2",          "cuMemAlloc_v2",
        "cuMemFree_v2"};
    void *library = dlopen("libcuda.so.1", RTLD_NOW),
         **into[] = {(void **)&d->init, (void **)&d->get,  (void **)&d->retain, (void **)&d->release, (void **)&d->set,
                     (void **)&d->name, (void **)&d->info, (void **)&d->take,   (void **)&d->give};
    if (!library) {
        cli_complain("run on a node with a GPU; without one, `tidemark replay` alone plays the allocator",
                     "no CUDA driver here (libcuda.so.1 is not found)");
        return false;
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!(*into[i] = dlsym(library, names[i]))) {
            cli_complain("install a newer driver", "the CUDA driver lacks %s", names[i]);
            return false;
        }
    int status = d->init(0);
    if (status == 0) return true;
    cli_complain(status == STUB_LIBRARY ? "take the toolkit's folder stubs/ out of LD_LIBRARY_PATH"
                                        : "`tidemark doctor` looks closer",
                 "the CUDA driver does not start (error %d)", status);
    return false;
}

static int64_t free_bytes(const driver *d, int64_t *total) {
    size_t unused = 0, whole = 0;
    d->info(&unused, &whole);
    *total = (int64_t)whole;
    return (int64_t)unused;
}

/* Allocates or frees up to what is reserved at a step; false: the GPU does not have it. */
static bool level_reach(const driver *d, played *p, int64_t reserved) {
    int64_t total;
    while (p->held > reserved && p->count > 0) {
        p->count--;
        d->give(p->at[p->count]);
        p->held -= p->size[p->count];
    }
    int64_t more = (reserved - p->held + page - 1) / page * page;
    if (more <= 0 || p->count == PIECES) return true;
    if (free_bytes(d, &total) - more < headroom) return false;
    if (d->take(&p->at[p->count], (size_t)more) != 0) return false;
    p->size[p->count++] = more;
    p->held += more;
    if (p->held > p->most) p->most = p->held;
    return true;
}

/* Plays every column; returns the number of the one that does not fit, or -1. */
static int columns_play(const driver *d, played *p, const cJSON *columns) {
    int64_t total, empty = free_bytes(d, &total);
    const cJSON *column;
    int at = 0, failed = -1;
    cJSON_ArrayForEach(column, columns) {
        if (is_over || !level_reach(d, p, cli_int_at(column, "reserved"))) {
            failed = at;
            break;
        }
        int64_t gap = empty - free_bytes(d, &total) - p->held;
        if (llabs(gap) > llabs(p->worst_gap)) p->worst_gap = gap;
        p->steps++;
        at++;
    }
    while (p->count > 0) d->give(p->at[--p->count]);
    return failed;
}

static int play(const driver *d, const cJSON *answer) {
    static played p;
    const cJSON *columns = cli_at(cli_at(answer, "timeline"), "columns");
    char name[96] = "GPU 0";
    int64_t total = 0;
    void *context;
    cli_number most, held, gap, whole;
    if (d->retain(&context, 0) != 0 || d->set(context) != 0) {
        cli_complain("another process may hold it exclusively, or no memory is left", "GPU 0 refuses a context");
        return OBSERVED_CANNOT;
    }
    d->name(name, sizeof name, 0);
    int64_t empty = free_bytes(d, &total);
    signal(SIGINT, end);
    signal(SIGTERM, end);
    int failed = columns_play(d, &p, columns);
    d->release(0);
    if (is_over) {
        cli_complain(NULL, "stopped after %" PRId64 " steps", p.steps);
        return OBSERVED_INCONCLUSIVE;
    }
    if (failed >= 0) {
        printf("does not fit  %s on %s: step %d of %d of the timeline reserves %s, of %s that were "
               "free\n",
               cli_size(whole, total), name, failed + 1, cJSON_GetArraySize(columns),
               cli_size(most, cli_int_at(cJSON_GetArrayItem(columns, failed), "reserved")), cli_size(held, empty));
        return OBSERVED_NO;
    }
    printf("fits  %s on %s: %s reserved at most, in %" PRId64 " steps; of %s free with the context made\n",
           cli_size(whole, total), name, cli_size(most, p.most), p.steps, cli_size(held, empty));
    printf("The GPU's own count is off by %s at most\n", cli_size(gap, llabs(p.worst_gap)));
    return OBSERVED_OK;
}

int cli_on_gpu(int argc, char **argv) {
    driver d;
    cli_answer answer;
    if (argc == 0) {
        cli_complain("tidemark replay --on-gpu run.tide, or tidemark replay --on-gpu llama-3.2-1b batch=4",
                     "replay --on-gpu needs a recording or a job");
        return OBSERVED_USAGE;
    }
    int status = timeline_make(&answer, argc, argv);
    if (status == CLI_OK) status = driver_open(&d) ? play(&d, answer.json) : OBSERVED_CANNOT;
    cli_answer_free(&answer);
    return status;
}
