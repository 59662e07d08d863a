/* SPDX-License-Identifier: Apache-2.0 */
/* How long an estimate takes and how much memory it asks for, through the one door.
 *
 *     bench_estimate [ROUNDS [NAME]]      one JSON line a figure: name, value, unit */
#if defined(__linux__)
#include <malloc.h>
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/arena.h"
#include "tidemark/tidemark.h"

static size_t live, most;

static void *counted(void *user, void *at, size_t old_size, size_t new_size) {
    (void)user;
    live += new_size - old_size;
    if (live > most) most = live;
    if (!new_size) {
        free(at);
        return NULL;
    }
    return realloc(at, new_size);
}

static double now(void) {
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

typedef struct job {
    const char *name, *request;
} job;

static const job jobs[] = {
    {"estimate_llava_1.5_7b_stage_2",
     "{\"call\":\"estimate\",\"settings\":[\"model=llava-1.5-7b\",\"batch=16\",\"seq=1024\",\"freeze=vision_tower\","
     "\"checkpointing=full\",\"gpu=h100-80\"]}"},
    {"estimate_llava_1.5_7b_without_checkpointing",
     "{\"call\":\"estimate\",\"settings\":[\"model=llava-1.5-7b\",\"batch=2\",\"seq=1024\",\"freeze=vision_tower\"]}"},
    {"estimate_llama_3.1_70b",
     "{\"call\":\"estimate\",\"settings\":[\"model=llama-3.1-70b\",\"batch=1\",\"seq=4096\"]}"},
    {"estimate_gpt2", "{\"call\":\"estimate\",\"settings\":[\"model=gpt2\",\"batch=4\",\"seq=512\"]}"},
    {"measure_llava_1.5_7b_zero2_three_steps",
     "{\"call\":\"measure\",\"settings\":[\"recipe=llava-finetune\",\"parallel.kind=zero2\",\"dp=8\",\"rank=0\",\"seq="
     "1024\",\"steps=3\"]}"},
    {"measure_llama_2_7b_zero3_1024_micro_batches",
     "{\"call\":\"measure\",\"settings\":[\"model=llama-2-7b\",\"parallel.kind=zero3\",\"dp=8\",\"grad_accum=1024\"]}"},
    {"measure_llama_2_7b",
     "{\"call\":\"measure\",\"settings\":[\"model=llama-2-7b\",\"gpu=h100-80\",\"batch=4\",\"seq=2048\"]}"},
    {"measure_llama_2_7b_8_cells", "{\"call\":\"measure\",\"settings\":[\"model=llama-2-7b\",\"gpu=h100-80\",\"seq="
                                   "2048\"],\"cells\":[[\"batch=1\"],[\"batch=2\"],[\"batch=3\"],"
                                   "[\"batch=4\"],[\"batch=5\"],[\"batch=6\"],[\"batch=7\"],[\"batch=8\"]]}"},
    {"measure_llama_3.1_8b_32768_tokens",
     "{\"call\":\"measure\",\"settings\":[\"model=llama-3.1-8b\",\"mode=infer\",\"seq=128\",\"decode=32768\"]}"},
    {"measure_mistral_7b_lora_200_steps_of_other_lengths",
     "{\"call\":\"measure\",\"settings\":[\"model=mistral-7b\",\"trainer=hf\",\"adapter=lora\",\"checkpointing=full\","
     "\"optimizer=adamw_fused\",\"batch=2\",\"lengths=p0:60,p50:400,p100:2048\",\"steps=200\"]}"},
    {"measure_llama_2_7b_trainer_1000_steps_of_16_micro_batches",
     "{\"call\":\"measure\",\"settings\":[\"model=llama-2-7b\",\"trainer=sft\",\"adapter=lora\",\"grad_accum=16\","
     "\"steps=1000\"]"
     "}"},
    {"estimate_llama_2_7b_int8_1024_micro_batches", "{\"call\":\"estimate\",\"settings\":[\"model=llama-2-7b\",\"quant="
                                                    "int8\",\"adapter=lora\",\"batch=4\",\"grad_accum=1024\"]}"},
    {"estimate_mamba_2.8b_8192_tokens", "{\"call\":\"estimate\",\"settings\":[\"model=mamba-2.8b\",\"seq=8192\"]}"},
    {"estimate_bloom_32768_tokens",
     "{\"call\":\"estimate\",\"settings\":[\"model=bloom\",\"mode=infer\",\"seq=128\",\"decode=32768\"]}"},
    {"estimate_mamba_2.8b_65536_tokens",
     "{\"call\":\"estimate\",\"settings\":[\"model=mamba-2.8b\",\"batch=4\",\"seq=16384\"]}"},
    {"measure_glm_4.6_32768_tokens",
     "{\"call\":\"measure\",\"settings\":[\"model=glm-4.6\",\"mode=infer\",\"decode=32768\"]}"},
    {"describe", "{\"call\":\"describe\"}"},
};

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 200;
    if (rounds < 1) rounds = 1;
#ifdef M_TRIM_THRESHOLD
    mallopt(M_MMAP_THRESHOLD, 32 << 20); /* a host that goes on keeps its heap, as the page does */
    mallopt(M_TRIM_THRESHOLD, 64 << 20);
#endif
    double *times = malloc((size_t)rounds * sizeof *times);
    if (!times) return 3;
    tide_allocator allocator = {counted, NULL};
    for (size_t j = 0; j < sizeof jobs / sizeof *jobs; j++) {
        if (argc > 2 && strcmp(argv[2], jobs[j].name)) continue;
        most = live;
        size_t before = live, length = 0;
        for (int i = 0; i < rounds; i++) {
            char *answer = NULL;
            double start = now();
            int status = tide_call(jobs[j].request, strlen(jobs[j].request), &allocator, &answer, &length);
            times[i] = now() - start;
            if (status) {
                fprintf(stderr, "%s: status %d\n%.*s\n", jobs[j].name, status, (int)length, answer ? answer : "");
                return 1;
            }
            tide_free(&allocator, answer, length);
        }
        qsort(times, (size_t)rounds, sizeof *times, by_value);
        printf("{\"name\":\"%s\",\"value\":%.3f,\"unit\":\"ms\"}\n", jobs[j].name, times[rounds / 2]);
        printf("{\"name\":\"%s_memory\",\"value\":%.2f,\"unit\":\"MiB\"}\n", jobs[j].name,
               (double)(most - before) / 1048576);
        printf("{\"name\":\"%s_answer\",\"value\":%.1f,\"unit\":\"KiB\"}\n", jobs[j].name, (double)length / 1024);
    }
    free(times);
    return 0;
}
