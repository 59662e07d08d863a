/* SPDX-License-Identifier: Apache-2.0 */
/* Samples of different lengths: how they are written, and the batches that they come to. */
#include "job_builder.h"

#include "../../core/src/job/lengths.h"

static void test_written(void) {
    begin_job("lengths are a list or quantiles");
    ROW("gpt2|lengths= 512, 300 * 2,300,1024", "lengths", "512,300*3,1024");
    ROW("gpt2|lengths=P0:16, p50:300,p99.5:2000,p100:2048", "lengths", "p0:16,p50:300,p99.5:2000,p100:2048");
    ROW("gpt2|lengths=none", "lengths", "");
    REFUSE("gpt2|lengths=512,", "/settings/lengths", "tokens of each sample");
    REFUSE("gpt2|lengths=0", "/settings/lengths", "from 1 to 10000000 tokens");
    REFUSE("gpt2|lengths=5*99999", "/settings/lengths", "65536 samples");
    REFUSE("gpt2|lengths=p0:16,p100", "/settings/lengths", "quantiles");
    REFUSE("gpt2|lengths=p0:16,p50:20,p50:30,p100:40", "/settings/lengths", "must increase");
    REFUSE("gpt2|lengths=p0:16,p50:60,p100:40", "/settings/lengths", "must increase");
    REFUSE("gpt2|lengths=p10:16,p100:40", "/settings/lengths", "from p0");
    end_job();
}

static void test_followed(void) {
    begin_job("seq and steps follow lengths, and links leave them out");
    ROW("gpt2|batch=2|lengths=100,300,200*5", "seq", "300");
    ROW("gpt2|batch=2|lengths=100,300,200*5", "steps", "4");
    ROW("gpt2|batch=8|lengths=100,300", "steps", "2");
    ROW("gpt2|lengths=p0:10,p100:900", "steps", "20");
    ROW("gpt2|lengths=100,300|seq=200|steps=7", "seq", "200");
    LINK("gpt2|batch=2|lengths=100,300,200*5", "model=gpt2&batch=2&lengths=100,300,200%2A5&v=1");
    LINK("gpt2|lengths=100,300|seq=200|steps=7", "model=gpt2&seq=200&lengths=100,300&steps=7&v=1");
    end_job();
}

static bool is_batch(const tide_job *job, uint64_t index, int64_t seq, int64_t tokens, bool is_padded) {
    tide_micro_batch of = tide_job_micro_batch(job, index);
    return of.seq == seq && of.tokens == tokens && of.is_padded == is_padded;
}

static void test_batches(void) {
    begin_job("a batch is as long as its longest sample");
    tide_job *job = build("gpt2|batch=2|lengths=100,300,200,200,50");
    CHECK(job && is_batch(job, 0, 300, 400, true) && is_batch(job, 1, 200, 400, false));
    CHECK(job && is_batch(job, 2, 100, 150, true)); /* again from the first */
    job = build("gpt2|batch=2|lengths=100,300,200,200|pad_to_multiple_of=64|seq=256");
    CHECK(job && is_batch(job, 0, 256, 356, true) && is_batch(job, 1, 256, 400, true));
    job = build("gpt2|batch=1|trainer=dpo|lengths=100,300,200,200|trainer.prompt_length=20");
    CHECK(job && is_batch(job, 0, 300, 400, true) && is_batch(job, 1, 200, 400, false));
    CHECK(job && tide_job_micro_batch(job, 0).scored == 360);
    end_job();
}

static void test_drawn(void) {
    begin_job("samples are drawn between quantiles, the same from the same seed");
    tide_job *job = build("gpt2|lengths=p0:10,p50:100,p100:1000");
    int64_t low = 0, longest = 0, shortest = INT64_MAX;
    for (uint64_t i = 0; job && i < 10000; i++) {
        int64_t tokens = tide_job_micro_batch(job, i).tokens;
        low += tokens <= 100;
        longest = tokens > longest ? tokens : longest;
        shortest = tokens < shortest ? tokens : shortest;
    }
    CHECK(low > 4800 && low < 5200 && shortest == 10 && longest > 990 && longest <= 1000);
    tide_job *other = build("gpt2|lengths=p0:10,p50:100,p100:1000|data_seed=7");
    CHECK(job && other && tide_job_micro_batch(job, 5).tokens != tide_job_micro_batch(other, 5).tokens);
    job = build("gpt2|lengths=p0:64,p100:64");
    CHECK(job && is_batch(job, 3, 64, 64, false));
    end_job();
}

/* 4 rows of each of 2 ranks are 2 micro-batches: prompts of 2 completions, 4 of them to a generation, 2 to a rank. */
static void test_generations(void) {
    begin_job("a generation is as wide as the longest prompt of a rank");
    static const char words[] =
        "gpt2|lengths=10,20,30,30,5,7,9,50|trainer=grpo|trainer.num_generations=2|batch=2|"
        "trainer.steps_per_generation=2|trainer.max_completion_length=4|trainer.num_iterations=2|"
        "parallel.kind=ddp|parallel.dp=2";
    tide_job *job = build(words);
    CHECK(job && job->seq == 54 && is_batch(job, 0, 24, 48, true) && is_batch(job, 3, 24, 48, true) &&
          is_batch(job, 4, 11, 22, true) && is_batch(job, 8, 24, 48, true));
    job = build(tide_format(&arena, "%s|parallel.rank=1", words));
    CHECK(job && is_batch(job, 0, 34, 68, false) && is_batch(job, 4, 54, 108, true));
    end_job();
}

static void test_refused(void) {
    begin_job("what takes no batches of different lengths says so");
    REFUSE("gpt2|lengths=9,8|trainer=sft|packing=true", "/settings/lengths", "packed rows");
    REFUSE("gpt2|lengths=9,8|trainer=online_dpo", "/settings/lengths", "trainer=online_dpo");
    REFUSE("gpt2|lengths=9,8|batch=8|trainer=grpo|seq=64", "/settings/seq", "as its longest one");
    REFUSE("gpt2|lengths=9,8|trainer=orpo|pad_to_multiple_of=8", "/settings/pad_to_multiple_of", "no such argument");
    REFUSE("gpt2|lengths=9,8|parallel.kind=pp|parallel.pp=2|parallel.dp=1", "/settings/lengths", "parallel.kind=pp");
    REFUSE("gpt2|lengths=9,8|trainer=sft|trainer.prompt_length=8", "/settings/lengths", "nothing left to be scored");
    REFUSE("gpt2|lengths=9,8|padding=true", "/settings/padding", "which batches are padded");
    REFUSE("gpt2|lengths=9,8|batch=1000000", "/settings/lengths", "exceed the number that tidemark draws");
    CHECK(build("gpt2|data_seed=1") && says(TIDE_WARNING, "/settings/data_seed", "has no effect"));
    end_job();
}

int main(void) {
    test_written();
    test_followed();
    test_batches();
    test_drawn();
    test_generations();
    test_refused();
    return report_tests();
}
