/* SPDX-License-Identifier: Apache-2.0 */
/* How many requests fit: from the blocks of each, and the lower bound of available blocks. */
#include "report/serving_requests.h"
#include "base/units.h"

#include <string.h>

#include "base/decimal.h"

static bool refuse_requests(tide_diagnostics *diags, const char *message) {
    return tide_error(diags, TIDE_ERR_FIELD_RANGE, "/settings/request_lengths", message,
                      "such as request_lengths=1000:70,8000:30, or by percentiles, request_lengths=p50:1000,p99:8000");
}

static bool read_whole(int64_t *value, tide_text text, int64_t most) {
    int64_t pico;
    if (tide_decimal_read(&pico, text) != TIDE_DECIMAL_OK || pico % TIDE_PICO) return false;
    *value = pico / TIDE_PICO;
    return *value >= 1 && *value <= most;
}

/* "TOKENS:WEIGHT", or "pPERCENT:TOKENS". */
static bool read_share(tide_request_mix *mix, tide_text item, bool by_percent, tide_diagnostics *diags) {
    const char *colon = memchr(item.at, ':', item.length);
    if (!colon || mix->count == TIDE_MIX_LIMIT) return refuse_requests(diags, "at most 16 pairs with a colon in each");
    tide_text left = {item.at, (size_t)(colon - item.at)}, right = {colon + 1, item.length - left.length - 1};
    tide_request_share *share = &mix->shares[mix->count];
    int64_t percent = 0;
    if (by_percent) {
        if (left.length < 2 || left.at[0] != 'p' ||
            !read_whole(&percent, (tide_text){left.at + 1, left.length - 1}, 100) || percent <= mix->most_percent)
            return refuse_requests(diags, "percentiles must increase, from p1 to p100");
        share->weight = percent - mix->most_percent;
        mix->most_percent = percent;
    } else if (!read_whole(&share->weight, right, TIDE_MIX_WEIGHT_LIMIT)) {
        return refuse_requests(diags, "weights are whole numbers from 1 to 10000");
    }
    if (!read_whole(&share->tokens, by_percent ? right : left, INT64_C(1) << 30))
        return refuse_requests(diags, "tokens are whole numbers from 1 to 2^30");
    mix->weight += share->weight;
    mix->count++;
    return true;
}

bool tide_request_mix_read(tide_request_mix *mix, const tide_job *job, tide_diagnostics *diags) {
    const char *at = job->request_lengths;
    int64_t tokens = job->input_len + job->output_len;
    *mix = (tide_request_mix){.count = 0};
    if (at && *at && tokens)
        return refuse_requests(diags, "input_len and output_len give one length, request_lengths several");
    if (!at || !*at) {
        if (tokens) *mix = (tide_request_mix){.shares = {{tokens, 1}}, .count = 1, .weight = 1};
        return true;
    }
    for (bool by_percent = *at == 'p'; *at;) {
        const char *end = at + strcspn(at, ",");
        if (!read_share(mix, (tide_text){at, (size_t)(end - at)}, by_percent, diags)) return false;
        at = *end ? end + 1 : end;
        if (*end && !*at) return refuse_requests(diags, "ends in a comma");
    }
    return true;
}

/* The share of requests above the highest percentile. */
static int64_t beyond(const tide_request_mix *mix) {
    return mix->most_percent ? 100 - mix->most_percent : 0;
}

int64_t tide_request_longest(const tide_request_mix *mix, const tide_serve_run *run) {
    int64_t longest = beyond(mix) || !mix->count ? run->figures.max_model_len : 0;
    for (uint32_t i = 0; i < mix->count; i++)
        if (mix->shares[i].tokens > longest) longest = mix->shares[i].tokens;
    return longest;
}

static int64_t usable_blocks(const tide_serve_run *run) {
    int64_t usable = run->figures.blocks_at_least - run->engine->kept_blocks;
    return usable > 0 ? usable : 0;
}

/* The blocks of `count` requests in these shares, each share rounded up. */
static int64_t blocks_of_mix(const tide_serve_run *run, const tide_request_mix *mix, int64_t count) {
    int64_t weight = mix->weight + beyond(mix), blocks = 0;
    for (uint32_t i = 0; i < mix->count; i++)
        blocks +=
            tide_serve_blocks_of(run, tide_ceil_div(count * mix->shares[i].weight, weight), mix->shares[i].tokens);
    return blocks + tide_serve_blocks_of(run, tide_ceil_div(count * beyond(mix), weight), run->figures.max_model_len);
}

int64_t tide_requests_of(const tide_serve_run *run, int64_t tokens) {
    const tide_request_mix mix = {.shares = {{tokens, 1}}, .count = 1, .weight = 1};
    return tide_requests_of_mix(run, &mix);
}

int64_t tide_requests_of_mix(const tide_serve_run *run, const tide_request_mix *mix) {
    int64_t fit = 0, more = run->figures.max_num_seqs;
    if (!mix->count || tide_request_longest(mix, run) > run->figures.max_model_len) return 0;
    while (fit < more) {
        int64_t middle = fit + (more - fit + 1) / 2;
        if (blocks_of_mix(run, mix, middle) <= usable_blocks(run))
            fit = middle;
        else
            more = middle - 1;
    }
    return fit;
}

int64_t tide_requests_longest(const tide_serve_run *run, int64_t count, int64_t most) {
    int64_t found = 0;
    if (count > run->figures.max_num_seqs) return 0;
    for (int64_t left = 1, right = most; left <= right;) {
        int64_t middle = left + (right - left) / 2;
        if (tide_serve_blocks_of(run, count, middle) <= usable_blocks(run)) {
            found = middle;
            left = middle + 1;
        } else {
            right = middle - 1;
        }
    }
    return found;
}
