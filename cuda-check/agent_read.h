/* SPDX-License-Identifier: Apache-2.0 */
/* What agents wrote (agent.c), summed up for each process and device. */
#ifndef TIDE_AGENT_READ_H
#define TIDE_AGENT_READ_H

#include "launch.h"

enum { AGENT_OWNERS = 32, AGENT_DEVICES = 16 };

typedef struct agent_owner { /* a library that asked the driver for memory */
    char name[64];
    int64_t live, peak;
    int64_t at_peak; /* live when the device was fullest */
} agent_owner;

typedef struct agent_device {
    char uuid[64];
    bool is_used;
    int64_t first;     /* memory in use when it was first seen, with the context, before any allocation */
    int64_t used_peak; /* the most in use, all processes together */
    int64_t modules;   /* growth across the loading of modules, up to the fullest moment */
    int64_t total;     /* as cuMemGetInfo says */
    int64_t modules_now;
    int64_t managed; /* bytes asked for, which move as they are touched */
    int64_t calls, failures;
    agent_owner owners[AGENT_OWNERS];
    int owner_count;
} agent_device;

typedef struct agent_process {
    int64_t pid;
    int version, subscribed; /* -1: CUPTI was not there */
    char path[320];
    bool has_record; /* the file was there: the driver had loaded the agent */
    agent_device devices[AGENT_DEVICES];
} agent_process;

/* The records of a run; the caller frees. */
agent_process *agent_read(const launch *l, size_t *count);

#endif
