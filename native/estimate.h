/* Parts of the view of an estimate. */
#ifndef TIDE_ESTIMATE_H
#define TIDE_ESTIMATE_H

#include "cli.h"

/* estimate_factors.c */
const char *cli_factor_title(const char *name);
const char *cli_amount(cli_number out, int64_t bytes,
                       bool is_exact); /* GiB, or bytes; a dot for none */
void cli_shape(cli_buffer *text, const cJSON *tensor);
void cli_factors_show(const cJSON *answer, bool is_exact);

#endif
