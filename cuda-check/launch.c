/* SPDX-License-Identifier: Apache-2.0 */
/* Starting a command with tidemark's libraries in its environment, and waiting for its end. */
#define _GNU_SOURCE
#include "launch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- options ---- */

bool observed_integer(const char *name, const char *text, int64_t least, int64_t most, int64_t *out) {
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno == 0 && end != text && !*end && value >= least && value <= most) {
        *out = value;
        return true;
    }
    cli_complain(NULL, "%s is \"%s\"; it is a number from %" PRId64 " to %" PRId64, name, text, least, most);
    return false;
}

/* ---- where things are ---- */

static bool path_join(char *out, size_t size, const char *folder, const char *name) {
    return snprintf(out, size, "%s/%s", folder, name) < (int)size;
}

bool launch_path(const launch *l, char *out, size_t size, const char *name) {
    return path_join(out, size, l->folder, name);
}

static bool tools_are_at(launch *l, const char *folder, const char *name) {
    char hook[4096];
    return path_join(l->tools, sizeof l->tools, folder, name) &&
           path_join(hook, sizeof hook, l->tools, "hook/tidemark_hook.py") && cli_is_file(hook);
}

/* Next to the program in the build tree, or in the installed location. */
static bool tools_find(launch *l) {
    char self[3072];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length <= 0) return false;
    self[length] = 0;
    *strrchr(self, '/') = 0;
    return tools_are_at(l, self, "cuda-check") || tools_are_at(l, self, INSTALLED_TOOLS);
}

static bool is_executable(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode) && access(path, X_OK) == 0;
}

/* Searches like execvp. */
static bool command_find(const char *name) {
    const char *path = getenv("PATH");
    if (strchr(name, '/')) return is_executable(name);
    for (const char *at = path ? path : "/usr/bin:/bin"; *at;) {
        size_t length = strcspn(at, ":");
        char full[4096];
        if (snprintf(full, sizeof full, "%.*s/%s", (int)length, length ? at : ".", name) < (int)sizeof full &&
            is_executable(full))
            return true;
        at += length + (at[length] == ':');
    }
    return false;
}

void launch_set(const char *name, const char *value) {
    setenv(name, value, 1);
}

static int folder_make(launch *l) {
    const char *parent = getenv("TMPDIR");
    if (!parent || strlen(parent) > sizeof l->folder - 20) parent = "/tmp";
    snprintf(l->folder, sizeof l->folder, "%s/tidemark-XXXXXX", parent);
    if (mkdtemp(l->folder)) {
        launch_set("TIDEMARK_RUN", l->folder);
        return OBSERVED_OK;
    }
    cli_complain("set TMPDIR to a folder that can be written", "%s: %s", l->folder, strerror(errno));
    l->folder[0] = 0;
    return OBSERVED_CANNOT;
}

int launch_prepare(launch *l, const char *name, int argc, char **argv) {
    if (argc == 0) {
        cli_complain("write it after two dashes: tidemark COMMAND [options] -- python train.py",
                     "%s needs the command that it runs", name);
        return OBSERVED_USAGE;
    }
    l->command = argv;
    if (!command_find(argv[0])) {
        cli_complain("what stands after -- is run as it is: is it spelt right, and on the PATH?", "%s: no such command",
                     argv[0]);
        return OBSERVED_USAGE;
    }
    if (!tools_find(l)) {
        cli_complain("build tidemark with CMake on x86-64 Linux, without -DTIDEMARK_CUDA_CHECK=OFF",
                     "the folder cuda-check/ is not beside the program: nothing can be observed");
        return OBSERVED_CANNOT;
    }
    return folder_make(l);
}

void launch_prepend(const char *name, const char *value, char separator) {
    const char *before = getenv(name);
    cli_buffer text = {0};
    cli_append_text(&text, value);
    if (before && before[0]) cli_format(&text, "%c%s", separator, before);
    setenv(name, text.at, 1);
    cli_buffer_free(&text);
}

/* A signal that ends tidemark is passed on to the command; the report is still written. */

static volatile sig_atomic_t child;

/* the terminal sends it to the command as well */
static void pass_on(int signal) {
    if (child > 0) kill((pid_t)child, signal);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static _Noreturn void become(const launch *l, int failed) {
    if (l->log) dup2(l->log, STDOUT_FILENO), dup2(l->log, STDERR_FILENO);
    if (l->output_to_errors) dup2(STDERR_FILENO, STDOUT_FILENO);
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    signal(SIGHUP, SIG_DFL);
    execvp(l->command[0], l->command);
    int why = errno;
    if (write(failed, &why, sizeof why) < 0) _exit(126);
    _exit(127);
}

int launch_start(launch *l) {
    int ends[2], why = 0;
    if (pipe2(ends, O_CLOEXEC) != 0) return OBSERVED_CANNOT;
    fflush(NULL);
    l->seconds = -now();
    l->pid = fork();
    if (l->pid == 0) become(l, ends[1]);
    close(ends[1]);
    if (l->pid > 0) {
        child = l->pid;
        signal(SIGINT, SIG_IGN); /* the terminal sends it to the command too */
        signal(SIGTERM, pass_on);
        signal(SIGHUP, pass_on);
        if (read(ends[0], &why, sizeof why) == (ssize_t)sizeof why) waitpid(l->pid, NULL, 0);
    } else {
        why = errno;
    }
    close(ends[0]);
    if (why == 0) return OBSERVED_OK;
    child = 0;
    cli_complain(why == ENOEXEC ? "a script needs a first line such as #!/bin/sh" : NULL, "%s cannot be run: %s",
                 l->command[0], strerror(why));
    return OBSERVED_CANNOT;
}

bool launch_wait(launch *l, int milliseconds) {
    double until = now() + milliseconds / 1e3;
    while (!l->is_done) {
        pid_t ended = waitpid(l->pid, &l->status, milliseconds < 0 ? 0 : WNOHANG);
        if (ended == l->pid || (ended < 0 && errno != EINTR)) {
            l->is_done = true;
            l->seconds += now();
            child = 0;
        } else if (milliseconds >= 0) {
            double left = until - now();
            if (left <= 0) break;
            poll(NULL, 0, left > 2e-3 ? 2 : 1);
        }
    }
    return l->is_done;
}

void launch_end_text(const launch *l, cli_buffer *text) {
    if (WIFSIGNALED(l->status))
        cli_format(text, "signal %d (%s)", WTERMSIG(l->status), strsignal(WTERMSIG(l->status)));
    else
        cli_format(text, "exit code %d", WEXITSTATUS(l->status));
}

void launch_close(launch *l) {
    if (!l->folder[0]) return;
    DIR *folder = opendir(l->folder);
    char path[4096];
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        if (entry->d_name[0] != '.' && launch_path(l, path, sizeof path, entry->d_name)) unlink(path);
    if (folder) closedir(folder);
    rmdir(l->folder);
    l->folder[0] = 0;
}
