/* SPDX-License-Identifier: Apache-2.0 */
/* Observing a command: its environment, its end, and what it left behind. */
#ifndef TIDE_LAUNCH_H
#define TIDE_LAUNCH_H

#include "../native/cli.h"

#include <sys/types.h>

/* Exit codes of dry-run and check; 0 to 2 are those of the other commands. */
enum observed_exit {
    OBSERVED_OK = 0,          /* ran, fits; for check: within the tolerance */
    OBSERVED_NO = 1,          /* out of memory; for check: past the tolerance */
    OBSERVED_USAGE = 2,       /* the command line */
    OBSERVED_CANNOT = 3,      /* nothing could be observed; the reason is reported */
    OBSERVED_FAILED = 4,      /* the command failed for reasons of its own */
    OBSERVED_INCONCLUSIVE = 5 /* check: too little was observed */
};

typedef struct launch {
    char **command;        /* ends in NULL */
    char folder[64];       /* of the run; its contents are removed at the end */
    char tools[4096];      /* where the libraries and the hook are */
    bool output_to_errors; /* redirects the command's standard output to standard error */
    int log;               /* descriptor that receives all output of the command; 0: none */
    pid_t pid;
    bool is_done;
    int status; /* from waitpid */
    double seconds;
} launch;

/* Parses a numeric option within bounds; reports errors. */
bool observed_integer(const char *name, const char *text, int64_t least, int64_t most, int64_t *out);

/* Finds the command and the tools, and makes the folder. Reports errors. */
int launch_prepare(launch *l, const char *name, int argc, char **argv);
void launch_set(const char *name, const char *value);
/* NAME=VALUE, or VALUE:old value */
void launch_prepend(const char *name, const char *value, char separator);
/* Fails with OBSERVED_CANNOT, and reports why. */
int launch_start(launch *l);
/* False while the command is running; waits up to `milliseconds` (-1: to the end). */
bool launch_wait(launch *l, int milliseconds);
void launch_close(launch *l);
/* "exit code 1", "signal 9 (Killed)" */
void launch_end_text(const launch *l, cli_buffer *text);
bool launch_path(const launch *l, char *out, size_t size, const char *name);

/* ---- observed.c: what processes wrote ---- */

/* The reports of all processes as an array, by rank; "notes": those of the phantom, [{kind,text}]. */
cJSON *observed_read(const launch *l);
cJSON *observed_notes(const launch *l);

typedef struct observed_process {
    const cJSON *seen;           /* PID.json */
    const cJSON *device;         /* the one on which it reserved the most, or NULL */
    int64_t allocated, reserved; /* peaks */
} observed_process;

/* The process with the largest reserved peak; false: none used a device. */
bool observed_worst(observed_process *out, const cJSON *processes);
observed_process observed_of(const cJSON *seen);

/* Members of an answer in the form of `estimate`, for the process that needs the most. */
void observed_answer(cJSON *answer, const observed_process *worst, const cJSON *processes);
void observed_show(const cJSON *answer, bool is_exact);

/* ---- recording.c ---- */

/* Converts the events of every process into recordings: FILE, or FILE with .rankN before its extension. */
int recording_write(const launch *l, const cJSON *processes, const char *path, int64_t device_bytes,
                    int64_t outside_bytes);
/* Plays the recording of the process that needs the most, for members that an estimate has too: "timeline", "options",
 * and the smallest device. */
void recording_play(const launch *l, const observed_process *worst, cJSON *answer, int64_t device_bytes,
                    int64_t outside_bytes);
/* Whether FILE can be written; reports why not. */
bool recording_can_write(const char *path);

#endif
