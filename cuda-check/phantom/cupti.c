/* SPDX-License-Identifier: Apache-2.0 */
/* libcupti for phantom GPUs, as far as the agent uses it. PHANTOM_CUPTI=NUMBER makes it fail with that error. */
#define _GNU_SOURCE
#include "../cupti.h"
#include "phantom.h"

#include <dlfcn.h>
#include <stdlib.h>

typedef int subscribes(cupti_callback *, void *);

API(int, cuptiGetVersion, uint32_t *version) {
    *version = 130200;
    return OK;
}
API(int, cuptiSubscribe, void **subscriber, cupti_callback *callback, void *user) {
    const char *refuse = getenv("PHANTOM_CUPTI");
    subscribes *subscribe = *(subscribes **)&(void *){dlsym(RTLD_DEFAULT, "phantom_subscribe")};
    *subscriber = NULL;
    if (refuse && atoi(refuse)) return atoi(refuse);
    return subscribe ? subscribe(callback, user) : CUPTI_NOT_INITIALIZED;
}
API(int, cuptiEnableCallback, uint32_t enable, void *subscriber, int domain, uint32_t id) {
    return OK;
}
