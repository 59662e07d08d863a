/* SPDX-License-Identifier: Apache-2.0 */
/* An inference server's own log lines about its memory, compared with an estimate. */
#ifndef TIDE_ENGINE_LOG_H
#define TIDE_ENGINE_LOG_H

#include "../native/cli.h"

enum { ENGINE_LOG_ROWS = 8 };

/* GiB rounded as in the log, or an integer. */
typedef struct engine_log_row {
    const char *name;
    double logged, predicted, least, most;
    bool is_gib;
} engine_log_row;

/* Fills the rows from a log and an estimate's "serving"; returns their number. */
int engine_log_read(engine_log_row *rows, const char *text, const cJSON *serving);
/* Whether the logged value is within the predicted range. */
bool engine_log_is_met(const engine_log_row *row);
void engine_log_show(const engine_log_row *rows, int count);
/* [{name, predicted, least, most, logged, is_met}]; owned by the caller. */
cJSON *engine_log_json(const engine_log_row *rows, int count);
void engine_log_print(const engine_log_row *rows, int count); /* {"ok", "log"}, on standard output */

#endif
