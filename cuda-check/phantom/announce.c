/* SPDX-License-Identifier: Apache-2.0 */
/* Observers: loads a library named in the environment, as the driver does, and notifies it of calls. */
#define _GNU_SOURCE
#include "../cupti.h"
#include "phantom.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>

static cupti_callback *listener;
static void *listener_user;

/* For the replacement of CUPTI. */
API(int, phantom_subscribe, cupti_callback *callback, void *user) {
    if (listener) return CUPTI_MULTIPLE_SUBSCRIBERS;
    listener = callback;
    listener_user = user;
    return OK;
}

static void say(unsigned call, const char *name, int site, const void *parameters, int result) {
    if (!listener) return;
    cupti_callback_data data = {.site = site, .function = name, .parameters = parameters, .result = &result};
    listener(listener_user, CUPTI_DOMAIN_DRIVER, call, &data);
}

void announce(unsigned call, const char *name, const void *parameters, int result) {
    say(call, name, CUPTI_SITE_EXIT, parameters, result);
}

void announce_begin(unsigned call, const char *name) {
    say(call, name, CUPTI_SITE_ENTER, NULL, 0);
}

static void injection_load(void) {
    const char *path = getenv("CUDA_INJECTION64_PATH");
    int (*initialize)(void) = NULL;
    void *library = path && path[0] ? dlopen(path, RTLD_NOW) : NULL;
    if (library) *(void **)&initialize = dlsym(library, "InitializeInjection");
    if (initialize) initialize();
}

void announce_open(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, injection_load);
}
