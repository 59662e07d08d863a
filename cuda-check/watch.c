/* SPDX-License-Identifier: Apache-2.0 */
/* `tidemark watch`: GPU memory of running processes, as counted by the driver. */
#define _GNU_SOURCE
#include "launch.h"
#include "nvml.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SEEN = 1024, DEPTH = 64 };

typedef struct seen {
    int64_t pid, bytes, peak;
    int device;
    bool is_there;
} seen;

static volatile sig_atomic_t is_over;
static void end(int signal) {
    is_over = signal;
}

/* Whether `pid` is `root` or a descendant of it. */
static bool is_of(int64_t pid, int64_t root) {
    for (int i = 0; i < DEPTH && pid > 1; i++) {
        char path[64], text[1024];
        if (pid == root) return true;
        snprintf(path, sizeof path, "/proc/%" PRId64 "/stat", pid);
        FILE *file = fopen(path, "r");
        if (!file) return false;
        size_t length = fread(text, 1, sizeof text - 1, file);
        fclose(file);
        text[length] = 0;
        const char *after = strrchr(text, ')'); /* the name may contain anything */
        if (!after || sscanf(after + 1, " %*c %" SCNd64, &pid) != 1) return false;
    }
    return false;
}

static seen *seen_find(seen *list, int *count, int64_t pid, int device) {
    for (int i = 0; i < *count; i++)
        if (list[i].pid == pid && list[i].device == device) return &list[i];
    if (*count == SEEN) return NULL;
    list[*count] = (seen){.pid = pid, .device = device};
    return &list[(*count)++];
}

/* Takes one sample; returns the number of processes, or -1: the driver does not tell. */
static int look(const nvml *n, int64_t root, seen *list, int *count) {
    int there = 0;
    for (int i = 0; i < *count; i++) list[i].is_there = false;
    for (int i = 0; i < n->count; i++) {
        nvml_process processes[NVML_PROCESSES];
        int found = nvml_processes(n, &n->devices[i], processes);
        if (found < 0) return -1;
        for (int k = 0; k < found; k++) {
            if (root && !is_of(processes[k].pid, root)) continue;
            seen *s = seen_find(list, count, processes[k].pid, i);
            if (!s) continue;
            s->is_there = true;
            s->bytes = processes[k].bytes;
            if (s->bytes > s->peak) s->peak = s->bytes;
            there++;
        }
    }
    return there;
}

static void show(const seen *list, int count) {
    cli_number now, most;
    for (int i = 0; i < count; i++) {
        const seen *s = &list[i];
        if (s->bytes < 0)
            printf("GPU %d  process %" PRId64 "  the driver does not tell its memory\n", s->device, s->pid);
        else
            printf("GPU %d  process %" PRId64 "  %s%s, %s at most\n", s->device, s->pid, s->is_there ? "" : "ended; ",
                   cli_size(now, s->is_there ? s->bytes : 0), cli_size(most, s->peak));
    }
    fflush(stdout);
}

static int watch(int64_t root, int64_t seconds) {
    static seen list[SEEN];
    nvml n;
    const char *why;
    int count = 0, there = 0, status = OBSERVED_OK;
    if (nvml_open(&n, &why) != NVML_OK) {
        cli_complain("run on a node with a GPU", "no NVIDIA driver answers here: there is no GPU to watch");
        nvml_close(&n);
        return OBSERVED_CANNOT;
    }
    signal(SIGINT, end);
    signal(SIGTERM, end);
    for (int64_t i = 0; !is_over; i++) {
        bool is_alive = root == 0 || kill((pid_t)root, 0) == 0 || errno == EPERM;
        there = look(&n, root, list, &count);
        if (there < 0 || !is_alive || i == seconds) break;
        if (isatty(STDOUT_FILENO)) show(list, count);
        sleep(1);
    }
    if (there < 0) {
        cli_complain("MIG slices, WSL and some containers do so; `tidemark check` reads inside the "
                     "program instead",
                     "the driver does not tell which processes use the GPU");
        status = OBSERVED_CANNOT;
    } else if (count == 0) {
        cli_complain(NULL, "no process%s used a GPU", root ? " of it" : "");
        status = OBSERVED_CANNOT;
    } else {
        puts("The most that was seen, once a second: a lower bound");
        show(list, count);
    }
    nvml_close(&n);
    return status;
}

static int cli_watch(int argc, char **argv) {
    int64_t root = -1, seconds = -1;
    for (int i = 0; i < argc; i++) {
        const char *word = argv[i];
        if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
            cli_help(stdout, "watch");
            return OBSERVED_OK;
        } else if (strcmp(word, "--all") == 0) {
            root = 0;
        } else if (strcmp(word, "--for") == 0 && i + 1 < argc) {
            if (!observed_integer(word, argv[++i], 0, 1 << 30, &seconds)) return OBSERVED_USAGE;
        } else if (word[0] == '-') {
            cli_complain("`tidemark watch --help` lists the options", "no option %s here", word);
            return OBSERVED_USAGE;
        } else if (!observed_integer("PID", word, 1, INT32_MAX, &root)) {
            return OBSERVED_USAGE;
        }
    }
    if (root < 0) {
        cli_complain("tidemark watch PID, or tidemark watch --all", "watch needs a process");
        return OBSERVED_USAGE;
    }
    if (root > 0 && kill((pid_t)root, 0) != 0 && errno == ESRCH) {
        cli_complain(NULL, "there is no process %" PRId64, root);
        return OBSERVED_USAGE;
    }
    return watch(root, seconds);
}

const cli_command cli_watch_command = {
    "watch", cli_watch, "watch PID|--all [--for SECONDS]", "GPU memory of running processes, by the driver's count",
    "Looks once a second at what the driver says that a process and its children hold, until it ends or Ctrl-C.\n\n"
    "  --all             every process on every GPU\n"
    "  --for SECONDS     not longer\n\n"
    "exit code: 0 something was seen; 2 the command line; 3 nothing was\n"};
