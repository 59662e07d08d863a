/* SPDX-License-Identifier: Apache-2.0 */
/* What agents logged (agent.c), summed up by process and device. */
#ifndef TIDE_AGENT_READ_H
#define TIDE_AGENT_READ_H

#include "launch.h"

enum { AGENT_OWNERS = 32, AGENT_DEVICES = 16 };

typedef struct agent_owner { /* a library that requested memory from the driver */
    char name[64];
    int64_t live, peak;
    int64_t at_peak; /* live when the device had the most in use */
} agent_owner;

typedef struct agent_device {
    char uuid[64];
    bool is_used;
    int64_t first;     /* memory in use when first seen, including the context, before any allocation */
    int64_t used_peak; /* the most in use, over all processes */
    int64_t modules;   /* growth caused by loading modules, up to the peak */
    int64_t total;     /* according to cuMemGetInfo */
    int64_t modules_now;
    int64_t managed; /* requested bytes, which migrate when they are accessed */
    int64_t calls, failures;
    agent_owner owners[AGENT_OWNERS];
    int owner_count;
} agent_device;

typedef struct agent_process {
    int64_t pid;
    int version, subscribed; /* -1: CUPTI was not found */
    char path[320];
    bool has_record; /* the file existed: the driver had loaded the agent */
    agent_device devices[AGENT_DEVICES];
} agent_process;

/* The records of a run; the caller frees. */
agent_process *agent_read(const launch *l, size_t *count);

#endif
