/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of the output of an estimate. */
#ifndef TIDE_ESTIMATE_H
#define TIDE_ESTIMATE_H

#include "cli.h"

typedef enum cli_unit { CLI_GIB, CLI_MIB, CLI_BYTES } cli_unit;

/* estimate.c: parts of an answer, in the form that `dry-run` and `check` share */
void cli_report_show(const cJSON *answer, bool is_exact); /* all of it */
void cli_verdict_show(const cJSON *answer);
void cli_versions_show(const cJSON *answer);
/* "; FILE pins LIBRARY VERSION": what a file or its program pins in place of the versions of the figures. */
void cli_add_pinned(cli_buffer *text, const cJSON *versions);
/* Runs an estimate as another command, with a word that is always added (NULL: none). */
int cli_estimate_of(int argc, char **argv, const char *command, const char *word);
void cli_peak_show(const cJSON *answer);
void cli_steps_show(const cJSON *answer, cli_unit unit);

/* serve.c: for a job with mode=serve */
void cli_server_show(const cJSON *answer);

/* estimate_factors.c */
const char *cli_factor_title(const char *name);
const char *cli_amount(cli_number out, int64_t bytes, cli_unit unit); /* a dot for none */
const char *cli_unit_name(cli_unit unit);
void cli_shape(cli_buffer *text, const cJSON *tensor);
void cli_factors_show(const cJSON *answer, cli_unit unit);

#endif
