/* SPDX-License-Identifier: Apache-2.0 */
/* `tidemark check`: what was observed of a run on real GPUs, and how much of it was predicted. */
#ifndef TIDE_CHECK_H
#define TIDE_CHECK_H

#include "agent_read.h"
#include "engine_log.h"
#include "nvml.h"

enum { CHECK_WARNINGS = 64, CHECK_ROWS = AGENT_OWNERS + 8 };

typedef enum check_method { CHECK_AGENT, CHECK_POLL } check_method;

typedef struct check {
    const char *estimate, *out, *measure, *log;
    double tolerance, tolerance_under; /* percent */
    int64_t floor, steps;
    bool is_json, shows_bytes, shows_help, allows_shared;
    launch launch;
    nvml nvml;
    cJSON *predicted; /* an estimate's answer, or NULL */
    cJSON *processes;
    agent_process *agents;
    size_t agent_count;
    cJSON *warnings;  /* [{id, text, hint}] */
    bool is_injected; /* the agent was requested */
    engine_log_row log_rows[ENGINE_LOG_ROWS];
    int log_count;
    int64_t others[NVML_DEVICES]; /* bytes of other processes before the run; -1: there are some, of unknown size */
} check;

/* check_warn.c: each names cause, consequence and remedy. */
void check_warn(check *c, const char *id, const char *hint, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 4, 5)))
#endif
    ;
int check_preflight(check *c);       /* reports what prevents a measurement */
void check_look_at_agents(check *c); /* after the run: where the agent was loaded, and where not */

/* check_answer.c */
bool check_is_used(const check *c, const nvml_device *n);
cJSON *check_answer(check *c, int *status);
void check_show(const cJSON *answer, bool is_exact);

#endif
