/* SPDX-License-Identifier: Apache-2.0 */
/* Lengths of samples: a list, in the order in which batches take them, or a distribution from which they are drawn. */
#include "job/lengths.h"
#include "job/trainers.h"

#include <inttypes.h>
#include <string.h>

#include "base/decimal.h"
#include "base/units.h"

/* ---- as text ---- */

static const int64_t PERCENT = 1000000; /* one percent, in units of a quantile's `at` */

/* "512", or "512*3". */
static const char *read_run(tide_text piece, int64_t *tokens, int64_t *times) {
    tide_text rest = piece, first;
    *times = 1;
    if (!tide_piece_next(&rest, '*', &first) || !tide_text_to_i64(tokens, tide_trimmed(first)) ||
        (rest.at && !tide_text_to_i64(times, tide_trimmed(rest))))
        return "must be the tokens of each sample, such as 512,300*3,1024, or quantiles, such as "
               "p0:16,p50:300,p100:2048";
    if (*tokens < 1 || *tokens > TIDE_LENGTH_MOST) return "a sample has from 1 to 10000000 tokens";
    return *times < 1 || *times > TIDE_LENGTHS_MOST ? "must have from 1 to 65536 samples" : NULL;
}

static const char *read_samples(tide_arena *arena, tide_text text, tide_lengths *lengths) {
    uint32_t capacity = 0;
    int64_t *samples = NULL, tokens, times;
    tide_text rest = text, piece;
    while (tide_piece_next(&rest, ',', &piece)) {
        const char *rule = read_run(tide_trimmed(piece), &tokens, &times);
        if (rule) return rule;
        if (lengths->count + times > TIDE_LENGTHS_MOST) return "must have from 1 to 65536 samples";
        for (int64_t i = 0; i < times; i++) {
            TIDE_ROOM(arena, samples, lengths->count, capacity);
            samples[lengths->count++] = tokens;
        }
    }
    lengths->tokens = samples;
    return NULL;
}

/* "p99.5:2048" */
static const char *read_quantile(tide_text piece, tide_quantile *quantile) {
    static const char *const rule = "must be quantiles from p0 to p100, such as p0:16,p50:300,p99.5:2000,p100:2048";
    tide_text rest = piece, percent;
    int64_t pico;
    if (piece.length < 2 || (piece.at[0] | 0x20) != 'p' || !tide_piece_next(&rest, ':', &percent) || !rest.at ||
        !tide_text_to_i64(&quantile->tokens, tide_trimmed(rest)))
        return rule;
    percent = tide_trimmed((tide_text){percent.at + 1, percent.length - 1});
    if (tide_decimal_read(&pico, percent) != TIDE_DECIMAL_OK || pico < 0 || pico > 100 * TIDE_PICO ||
        pico % (TIDE_PICO / PERCENT))
        return rule;
    quantile->at = pico / (TIDE_PICO / PERCENT);
    return quantile->tokens < 1 || quantile->tokens > TIDE_LENGTH_MOST ? "a sample has from 1 to 10000000 tokens"
                                                                       : NULL;
}

static const char *read_quantiles(tide_arena *arena, tide_text text, tide_lengths *lengths) {
    tide_quantile *quantiles = TIDE_NEW(arena, tide_quantile, TIDE_QUANTILES_MOST);
    tide_text rest = text, piece;
    uint32_t count = 0;
    for (; tide_piece_next(&rest, ',', &piece); count++) {
        if (count == TIDE_QUANTILES_MOST) return "must have at most 256 quantiles";
        const char *rule = read_quantile(tide_trimmed(piece), &quantiles[count]);
        if (rule) return rule;
        if (count &&
            (quantiles[count].at <= quantiles[count - 1].at || quantiles[count].tokens < quantiles[count - 1].tokens))
            return "must increase from quantile to quantile";
    }
    if (count < 2 || quantiles[0].at != 0 || quantiles[count - 1].at != 100 * PERCENT)
        return "must have quantiles from p0, the shortest, to p100, the longest";
    lengths->quantiles = quantiles;
    lengths->quantile_count = count;
    return NULL;
}

const char *tide_lengths_read(tide_arena *arena, tide_text text, tide_lengths *lengths) {
    *lengths = (tide_lengths){.count = 0};
    text = tide_trimmed(text);
    if (!text.length) return NULL;
    bool is_drawn = (text.at[0] | 0x20) == 'p';
    return is_drawn ? read_quantiles(arena, text, lengths) : read_samples(arena, text, lengths);
}

const char *tide_lengths_text(tide_arena *arena, const tide_lengths *lengths) {
    enum { ITEM = 48 };
    size_t room = ((size_t)lengths->count + lengths->quantile_count) * ITEM + 1, length = 0;
    char *out = tide_arena_alloc(arena, room);
    for (uint32_t i = 0, times; i < lengths->count; i += times) {
        for (times = 1; i + times < lengths->count && lengths->tokens[i + times] == lengths->tokens[i];) times++;
        const char *item = tide_format(arena, times > 1 ? "%s%" PRId64 "*%u" : "%s%" PRId64, length ? "," : "",
                                       lengths->tokens[i], (unsigned)times);
        memcpy(out + length, item, strlen(item));
        length += strlen(item);
    }
    for (uint32_t i = 0; i < lengths->quantile_count; i++) {
        const tide_quantile *q = &lengths->quantiles[i];
        const char *item = tide_format(arena, "%sp%s:%" PRId64, i ? "," : "",
                                       tide_decimal_text(arena, q->at * (TIDE_PICO / PERCENT)), q->tokens);
        memcpy(out + length, item, strlen(item));
        length += strlen(item);
    }
    return out;
}

bool tide_job_has_lengths(const tide_job *job) {
    return job->mode == TIDE_mode_train && (job->lengths.count || job->lengths.quantile_count);
}

static int64_t end_of(const tide_lengths *lengths, bool is_longest) {
    if (lengths->quantile_count) return lengths->quantiles[is_longest ? lengths->quantile_count - 1 : 0].tokens;
    int64_t found = lengths->count ? lengths->tokens[0] : 0;
    for (uint32_t i = 1; i < lengths->count; i++)
        if (is_longest ? lengths->tokens[i] > found : lengths->tokens[i] < found) found = lengths->tokens[i];
    return found;
}

int64_t tide_lengths_longest(const tide_lengths *lengths) {
    return end_of(lengths, true);
}

int64_t tide_lengths_shortest(const tide_lengths *lengths) {
    return end_of(lengths, false);
}

/* ---- the samples of a run ---- */

/* SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014): number `index` of a seed,
 * computed directly. */
static uint64_t drawn(uint64_t seed, uint64_t index) {
    uint64_t x = (seed * UINT64_C(0xd1342543de82ef95) + index + 1) * UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* Lengths are uniformly distributed between two quantiles. */
static int64_t draw_length(const tide_lengths *lengths, uint64_t seed, uint64_t index) {
    int64_t at = (int64_t)((drawn(seed, index) >> 32) * (uint64_t)(100 * PERCENT) >> 32);
    const tide_quantile *q = lengths->quantiles + 1;
    while (q->at <= at) q++;
    return q[-1].tokens + (q->tokens - q[-1].tokens + 1) * (at - q[-1].at) / (q->at - q[-1].at);
}

int64_t tide_job_rows(const tide_job *job) {
    return job->batch * (tide_trainer_traits_of(job)->has_pairs ? 2 : 1);
}

/* accelerate/data_loader.py, BatchSamplerShard: a trainer's loader deals batches to the ranks in turn. Without a
 * trainer, samples belong to their rank. */
uint64_t tide_job_first_sample(const tide_job *job, uint64_t index) {
    bool goes_round = tide_job_has_trainer(job) && job->parallel_kind != TIDE_parallel_kind_none;
    uint64_t batch = goes_round ? index * (uint64_t)job->parallel_dp + (uint64_t)job->parallel_rank : index;
    return batch * (uint64_t)tide_job_rows(job);
}

static int64_t tokens_of_sample(const tide_job *job, uint64_t sample) {
    const tide_lengths *lengths = &job->lengths;
    int64_t tokens = lengths->count ? lengths->tokens[sample % lengths->count]
                                    : draw_length(lengths, (uint64_t)job->data_seed, sample);
    return tokens < job->seq ? tokens : job->seq;
}

static void add_sample(tide_micro_batch *of, const tide_job *job, uint64_t sample) {
    int64_t tokens = tokens_of_sample(job, sample),
            prompt = job->trainer_prompt_length > 1 ? job->trainer_prompt_length : 1;
    if (tokens > of->longest) of->longest = tokens;
    if (tokens < of->shortest) of->shortest = tokens;
    int64_t *of_kind = sample % 2 ? &of->rejected : &of->chosen;
    if (tokens > *of_kind) *of_kind = tokens;
    of->tokens += tokens;
    of->scored += tokens - prompt;
}

static tide_micro_batch padded_batch(tide_micro_batch of, int64_t multiple) {
    of.seq = (of.longest + multiple - 1) / multiple * multiple;
    of.is_padded = of.shortest < of.seq;
    return of;
}

tide_micro_batch tide_job_samples(const tide_job *job, uint64_t first) {
    tide_micro_batch of = {.shortest = INT64_MAX};
    for (int64_t i = 0; i < tide_job_rows(job); i++) add_sample(&of, job, first + (uint64_t)i);
    return padded_batch(of, job->pad_to_multiple_of);
}

/* trl/trainer/utils.py, RepeatSampler without shuffling: each prompt as often as it is completed, then dealt to the
 * ranks. What is generated together has one width, and completions their maximum length. */
static tide_micro_batch rollouts_of(const tide_job *job, uint64_t generation) {
    tide_micro_batch of = {.shortest = INT64_MAX};
    int64_t rows = job->batch * tide_steps_per_generation(job), group = job->trainer_num_generations;
    uint64_t first = generation * (uint64_t)(rows * tide_data_ranks(job) / group), rank = (uint64_t)job->parallel_rank,
             of_rank = (uint64_t)rows, repeats = (uint64_t)group;
    for (uint64_t i = rank * of_rank / repeats; i <= ((rank + 1) * of_rank - 1) / repeats; i++)
        add_sample(&of, job, first + i);
    of.is_padded = of.shortest < of.longest;
    of.shortest += job->trainer_max_completion_length;
    of.seq = of.longest += job->trainer_max_completion_length;
    of.tokens = job->batch * of.seq;
    return of;
}

tide_micro_batch tide_job_micro_batch(const tide_job *job, uint64_t index) {
    if (!tide_trainer_generates(job)) return tide_job_samples(job, tide_job_first_sample(job, index));
    return rollouts_of(job, index / (uint64_t)(tide_steps_per_generation(job) * job->trainer_num_iterations));
}

tide_micro_batch tide_job_evaluated(const tide_job *job, int64_t samples, int64_t index, int64_t rank) {
    int64_t ranks = tide_data_ranks(job), most = job->trainer_per_device_eval_batch_size,
            rows = tide_job_rows(job) / job->batch, first = (index * ranks + rank) * most,
            again = ranks * most < samples ? ranks * most : samples;
    tide_micro_batch of = {.shortest = INT64_MAX};
    for (int64_t i = first; i < first + most && (ranks > 1 || i < samples); i++)
        for (int64_t k = 0; k < rows; k++)
            add_sample(&of, job, (uint64_t)((i < samples ? i : (i - samples) % again) * rows + k));
    return padded_batch(of, job->pad_to_multiple_of);
}
