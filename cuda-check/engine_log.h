/* SPDX-License-Identifier: Apache-2.0 */
/* An inference server's own lines about its memory, beside an estimate of it. */
#ifndef TIDE_ENGINE_LOG_H
#define TIDE_ENGINE_LOG_H

#include "../native/cli.h"

enum { ENGINE_LOG_ROWS = 8 };

/* GiB as the log rounds them, or a whole number. */
typedef struct engine_log_row {
    const char *name;
    double logged, predicted, least, most;
    bool is_gib;
} engine_log_row;

/* Fills the rows with what a log says and an estimate's "serving" has; how many. */
int engine_log_read(engine_log_row *rows, const char *text, const cJSON *serving);
/* Whether what is logged is in the range that is said. */
bool engine_log_is_met(const engine_log_row *row);
void engine_log_show(const engine_log_row *rows, int count);
/* [{name, predicted, least, most, logged, is_met}]; owned by the caller. */
cJSON *engine_log_json(const engine_log_row *rows, int count);
void engine_log_print(const engine_log_row *rows, int count); /* {"ok", "log"}, on standard output */

#endif
