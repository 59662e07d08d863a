/* SPDX-License-Identifier: Apache-2.0 */
/* A program that uses a GPU through the driver alone: what `tidemark check` and `dry-run` observe
 * in tests.
 *
 *     gpu_program MODE     plain, pages, failing, killed, leaving, forking, waiting, many, module,
 * without, status N */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int (*init)(unsigned), (*retain)(void **, int), (*take)(void **, size_t), (*give)(void *),
    (*load)(void **, const void *);
static int (*create)(unsigned long long *, size_t, const void *, unsigned long long), (*release)(unsigned long long);

static const size_t mib = 1 << 20;

static void driver_open(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) {
        fprintf(stderr, "%s\n", dlerror());
        exit(9);
    }
    *(void **)&init = dlsym(driver, "cuInit");
    *(void **)&retain = dlsym(driver, "cuDevicePrimaryCtxRetain");
    *(void **)&take = dlsym(driver, "cuMemAlloc_v2");
    *(void **)&give = dlsym(driver, "cuMemFree_v2");
    *(void **)&load = dlsym(driver, "cuModuleLoadData");
    *(void **)&create = dlsym(driver, "cuMemCreate");
    *(void **)&release = dlsym(driver, "cuMemRelease");
    void *context;
    if (init(0) != 0 || retain(&context, 0) != 0) exit(8);
}

static void *must_take(size_t bytes) {
    void *at = NULL;
    if (take(&at, bytes) != 0) exit(7);
    return at;
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "plain";
    void *at, *module;
    unsigned long long pages;
    if (strcmp(mode, "without") == 0) return 0;
    if (strcmp(mode, "status") == 0) return atoi(argv[2]);
    driver_open();
    at = must_take(64 * mib);
    if (strcmp(mode, "plain") == 0) {
        give(at);
        must_take(96 * mib);
        must_take(32 * mib);
    } else if (strcmp(mode, "pages") == 0) {
        if (create(&pages, 20 * mib, NULL, 0) != 0 || release(pages) != 0) return 6;
        if (create(&pages, 40 * mib, NULL, 0) != 0) return 6;
    } else if (strcmp(mode, "failing") == 0) {
        if (take(&at, (size_t)1 << 40) != 2) return 6;
    } else if (strcmp(mode, "killed") == 0) {
        raise(SIGKILL);
    } else if (strcmp(mode, "leaving") == 0) {
        _exit(0);
    } else if (strcmp(mode, "module") == 0) {
        load(&module, "");
    } else if (strcmp(mode, "forking") == 0) {
        pid_t child = fork();
        if (child == 0) _exit(3);
        waitpid(child, NULL, 0);
    } else if (strcmp(mode, "waiting") == 0) {
        usleep(200000); /* for a poll to see it */
    } else if (strcmp(mode, "many") == 0) {
        for (int i = 0; i < 20000; i++) give(must_take(2 * mib));
    }
    return 0;
}
