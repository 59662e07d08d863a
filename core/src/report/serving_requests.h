/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of one length or of a mix of lengths, and how many of them a server's cache holds. Private to report/. */
#ifndef TIDE_REPORT_SERVING_REQUESTS_H
#define TIDE_REPORT_SERVING_REQUESTS_H

#include "job/job.h"
#include "serve/serve.h"

enum { TIDE_MIX_LIMIT = 16, TIDE_MIX_WEIGHT_LIMIT = 10000 };

/* Requests of `tokens`, input and output, with a share of `weight`. */
typedef struct tide_request_share {
    int64_t tokens, weight;
} tide_request_share;

typedef struct tide_request_mix {
    tide_request_share shares[TIDE_MIX_LIMIT];
    uint32_t count;
    int64_t weight;       /* of all shares */
    int64_t most_percent; /* with percentiles: the highest one given; requests above it are as long as max_model_len */
} tide_request_mix;

/* job->request_lengths: "1000:70,8000:30", or percentiles as "p50:1000,p99:8000", each of which stands for all requests
 * above the previous one. If it is not set: input_len + output_len; count 0: neither is set. False after an error. */
bool tide_request_mix_read(tide_request_mix *mix, const tide_job *job, tide_diagnostics *diags);

/* The longest request of the mix; above percentiles that of the server. */
int64_t tide_request_longest(const tide_request_mix *mix, const tide_serve_run *run);

/* How many requests of `tokens` one server can hold in any case: one block is the null block. */
int64_t tide_requests_of(const tide_serve_run *run, int64_t tokens);
/* How many requests in these shares it can hold in any case; 0 if some are longer than max_model_len. */
int64_t tide_requests_of_mix(const tide_serve_run *run, const tide_request_mix *mix);
/* The longest requests, up to `most` tokens, of which `count` fit at once; 0: none. */
int64_t tide_requests_longest(const tide_serve_run *run, int64_t count, int64_t most);

#endif
