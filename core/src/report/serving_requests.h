/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of one length or of a mix, and how many of them a server's cache holds. Private to report/. */
#ifndef TIDE_REPORT_SERVING_REQUESTS_H
#define TIDE_REPORT_SERVING_REQUESTS_H

#include "job/job.h"
#include "serve/serve.h"

enum { TIDE_MIX_LIMIT = 16, TIDE_MIX_WEIGHT_LIMIT = 10000 };

/* Requests of `tokens`, in and out, are `weight` parts of all. */
typedef struct tide_request_share {
    int64_t tokens, weight;
} tide_request_share;

typedef struct tide_request_mix {
    tide_request_share shares[TIDE_MIX_LIMIT];
    uint32_t count;
    int64_t weight;       /* of all shares */
    int64_t most_percent; /* of percentiles: the highest that is given; those beyond are as long as max_model_len */
} tide_request_mix;

/* job->request_lengths: "1000:70,8000:30", or percentiles as "p50:1000,p99:8000", of which each stands for all requests
 * down to the one before. Not set: input_len + output_len; count 0: neither is. False after an error. */
bool tide_request_mix_read(tide_request_mix *mix, const tide_job *job, tide_diagnostics *diags);

/* The longest of the mix; beyond percentiles that of the server. */
int64_t tide_request_longest(const tide_request_mix *mix, const tide_serve_run *run);

/* Requests of `tokens` that are admitted at once for sure, of one server: one block is the null block. */
int64_t tide_requests_of(const tide_serve_run *run, int64_t tokens);
/* Requests in these shares that are admitted at once for sure; 0 where some are longer than max_model_len. */
int64_t tide_requests_of_mix(const tide_serve_run *run, const tide_request_mix *mix);
/* The longest requests of which `count` fit at once, up to `most` tokens; 0: none. */
int64_t tide_requests_longest(const tide_serve_run *run, int64_t count, int64_t most);

#endif
