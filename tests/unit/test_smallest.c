/* SPDX-License-Identifier: Apache-2.0 */
/* The smallest device is the edge between running and not, and is found by playing few of them: no answer may cost many
 * plays of a long generation. */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/allocator_options.h"
#include "report/ranks.h"

static int passed, failed;
static unsigned plays;

static void *count_play(const tide_event_source *source, tide_arena *arena) {
    (void)source, (void)arena;
    plays++;
    return NULL;
}

static void nothing(void *state, tide_arena *arena) {
    (void)state, (void)arena;
}

static const struct {
    const char *words;
    unsigned most; /* plays */
} jobs[] = {{"model=llama-3.1-8b", 3},
            {"model=llama-3.2-1b seq=1024", 12},
            {"model=gpt2 batch=16 seq=512 autocast=bf16", 2},
            {"model=llama-3.2-1b mode=infer decode=400 batch=4 overrides.num_hidden_layers=4", 6},
            {"model=gpt2 batch=8 allocator=expandable_segments:True", 8},
            {"model=bert-base batch=8 memory_fraction=0.5", 16}};

static const char *wrong_of(const tide_run *run, const tide_job *job, unsigned most, tide_arena *arena) {
    tide_event_source source = tide_timeline_events(&run->machine.timeline);
    tide_event_reader reader = *source.reader;
    tide_replay_config config = {.conf = job->allocator_conf, .fraction_ppm = job->memory_fraction_ppm};
    tide_replay endless, on;
    uint64_t edge;
    reader.open = count_play;
    reader.close = nothing;
    source.reader = &reader;
    if (!tide_replay_peaks(&endless, &source, &config, arena)) return "no memory";
    plays = 0;
    config.outside_bytes = UINT64_C(500) << 20;
    if (!tide_smallest_device(&edge, &source, &config, &endless, arena)) return "no memory";
    if (plays > most) return "many plays";
    config.device_bytes = edge;
    if (!tide_replay_peaks(&on, &source, &config, arena) || !tide_replay_runs(&on)) return "it does not run there";
    config.device_bytes = edge - (UINT64_C(2) << 20);
    if (!tide_replay_peaks(&on, &source, &config, arena) || tide_replay_runs(&on)) return "it runs on less";
    return NULL;
}

static void check_job(const char *line, unsigned most) {
    jmp_buf escape;
    tide_arena arena;
    tide_arena_init(&arena, tide_default_allocator(), &escape);
    if (setjmp(escape)) exit(3);
    tide_diagnostics diags;
    tide_diagnostics_init(&diags, &arena);
    tide_text words[12];
    uint32_t count = 0;
    for (const char *at = line; *at && count < 12;) {
        size_t length = strcspn(at, " ");
        words[count++] = (tide_text){at, length};
        at += length + (at[length] == ' ');
    }
    tide_job *job = tide_job_build(&arena, words, count, NULL, 0, &diags);
    tide_run *run = TIDE_NEW(&arena, tide_run, 1);
    run->frameworks = &tide_frameworks_of_jobs;
    const char *wrong =
        job && tide_run_job(run, job, &arena, &diags) ? wrong_of(run, job, most, &arena) : "the job does not run";
    if (wrong) printf("%s: %s (%u plays)\n", line, wrong, plays);
    failed += wrong != NULL;
    passed += wrong == NULL;
    tide_arena_free(&arena);
}

int main(void) {
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) check_job(jobs[i].words, jobs[i].most);
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
