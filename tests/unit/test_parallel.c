/* SPDX-License-Identifier: Apache-2.0 */
/* What holds of every job over several GPUs, whatever its settings: stages never hold more than the ones below, parts
 * add up to the whole, what is offloaded is not on the device.
 *
 *     test_parallel [ROUNDS [SEED]] */
#include <inttypes.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tidemark/tidemark.h>

#include "report/ranks.h"

enum { BLOCK = 512, SEGMENT = 2 << 20 };

static int passed, failed;
static const char *shown; /* the words of the job */

static void complain(const char *what, int64_t is, int64_t most) {
    printf("%s: %s: %" PRId64 " against %" PRId64 "\n", shown, what, is, most);
    failed++;
}

static void check(bool holds, const char *what, int64_t is, int64_t most) {
    if (holds)
        passed++;
    else
        complain(what, is, most);
}

/* Bytes asked for that are live at the end of a phase of the last step, by factor. */
typedef struct held {
    int64_t of[TIDE_FACTOR_COUNT];
    int64_t state; /* parameters in any form, gradients, optimizer */
    int64_t trainable, tensors;
    int64_t most_computed; /* at any moment */
    int64_t most;          /* the same of all */
    int64_t others[TIDE_OTHER_RANKS];
    uint32_t other_count;
    bool plays;
} held;

/* Of activations and temporaries, which reports tell apart; or of everything. */
static int64_t most_live(const tide_run *run, bool is_computed) {
    const tide_timeline *t = &run->machine.timeline;
    int64_t live = 0, most = 0, *change = calloc((size_t)t->event_count + 1, sizeof *change);
    if (!change) exit(3);
    for (uint32_t i = 0; i < t->allocation_count; i++) {
        const tide_allocation *a = tide_timeline_at(t, i);
        if (is_computed && a->factor != TIDE_FACTOR_ACTIVATION && a->factor != TIDE_FACTOR_TEMPORARY) continue;
        change[a->born] += (int64_t)a->bytes;
        uint32_t died = *tide_timeline_died(t, i);
        if (died < t->event_count) change[died] -= (int64_t)a->bytes;
    }
    for (uint32_t i = 0; i < t->event_count; i++) {
        live += change[i];
        if (live > most) most = live;
    }
    free(change);
    return most;
}

static void sum(held *h, const tide_run *run, tide_phase phase) {
    const tide_timeline *t = &run->machine.timeline;
    uint32_t end = 0;
    for (uint32_t i = 0; i < t->mark_count; i++)
        if (t->marks[i].phase == (uint8_t)phase) end = t->marks[i].event;
    for (uint32_t i = 0; i < t->allocation_count; i++) {
        const tide_allocation *a = tide_timeline_at(t, i);
        if (a->born < end && *tide_timeline_died(t, i) >= end) h->of[a->factor] += (int64_t)a->bytes;
    }
    static const tide_factor state[] = {TIDE_FACTOR_PARAMETER, TIDE_FACTOR_GRADIENT, TIDE_FACTOR_OPTIMIZER,
                                        TIDE_FACTOR_MASTER, TIDE_FACTOR_GATHERED};
    for (size_t i = 0; i < sizeof state / sizeof *state; i++) h->state += h->of[state[i]];
    h->trainable = run->trainable;
    h->tensors = run->model.parameter_count;
    h->most_computed = most_live(run, true);
    h->most = most_live(run, false);
    memcpy(h->others, run->other_ranks, sizeof h->others);
    h->other_count = run->other_rank_count;
    h->plays = true;
}

/* The words are joined by spaces. */
static held play(const char *words, tide_phase phase) {
    jmp_buf escape;
    tide_arena arena;
    tide_diagnostics diags;
    tide_text list[32];
    uint32_t count = 0;
    held h;
    memset(&h, 0, sizeof h);
    tide_arena_init(&arena, tide_default_allocator(), &escape);
    if (setjmp(escape)) {
        puts("no memory");
        exit(3);
    }
    tide_diagnostics_init(&diags, &arena);
    for (const char *at = words; *at; at += *at == ' ') {
        size_t length = strcspn(at, " ");
        list[count++] = (tide_text){at, length};
        at += length;
    }
    tide_job *job = tide_job_build(&arena, list, count, NULL, 0, &diags);
    tide_run *run = TIDE_NEW(&arena, tide_run, 1);
    run->frameworks = &tide_frameworks_of_jobs;
    if (job && tide_run_job(run, job, &arena, &diags))
        sum(&h, run, phase);
    else
        printf("%s: %s %s\n", words, diags.count ? diags.items[0].place : "",
               diags.count ? diags.items[0].message : "refused"),
            failed++;
    tide_arena_free(&arena);
    return h;
}

static uint32_t random_below(uint64_t *seed, uint32_t limit) {
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*seed >> 33) % limit;
}

static const char *one_of(uint64_t *seed, const char *const *words) {
    uint32_t count = 0;
    while (words[count]) count++;
    return words[random_below(seed, count)];
}

static void check_job(uint64_t *seed) {
    static const char *const models[] = {"gpt2 overrides.n_layer=3", "llama-3.2-1b overrides.num_hidden_layers=2",
                                         "qwen2.5-0.5b overrides.num_hidden_layers=3",
                                         "gpt2-medium overrides.n_layer=2", NULL};
    static const char *const of_training[] = {"",
                                              " checkpointing=full",
                                              " grad_accum=2",
                                              " param_groups=trainer",
                                              " optimizer=sgd_momentum",
                                              " optimizer=adamw_fused",
                                              NULL};
    static const char *const of_zero[] = {"",
                                          " parallel.overlap_comm=true",
                                          " parallel.contiguous_gradients=false",
                                          " parallel.reduce_bucket_size=1000000",
                                          " parallel.round_robin_gradients=true",
                                          " parallel.reduce_scatter=false",
                                          NULL};
    static const int sizes[] = {2, 3, 4, 7, 8, 64};
    int dp = sizes[random_below(seed, 6)];
    char base[400], words[600];
    snprintf(base, sizeof base, "model=%s batch=%u seq=64 steps=2 use_cache=false%s", one_of(seed, models),
             1 + random_below(seed, 3), one_of(seed, of_training));
    const char *zero = one_of(seed, of_zero);
    held stages[4], offloaded;
    shown = words;
    int rank = (int)random_below(seed, (uint32_t)dp);
    for (int stage = 0; stage < 4; stage++) {
        bool has_option = stage == 1 || stage == 2;
        snprintf(words, sizeof words, "%s parallel.kind=zero%d dp=%d rank=%d%s", base, stage, dp, rank,
                 has_option ? zero : "");
        stages[stage] = play(words, TIDE_PHASE_BACKWARD);
        /* Parts are padded: of ZeRO-1 and 2 once for a group, of ZeRO-3 for each parameter, the small of which stay
         * whole too. */
        int64_t padding = stage == 3 ? stages[3].of[TIDE_FACTOR_GATHERED] + 16 * stages[3].tensors : 64 * dp;
        if (stage)
            check(stages[stage].state <= stages[stage - 1].state + padding, "holds more than the stage below",
                  stages[stage].state, stages[stage - 1].state);
        if (stage == 0) continue;
        snprintf(words, sizeof words, "%s parallel.kind=zero%d dp=%d rank=%d parallel.offload_optimizer=cpu%s", base,
                 stage, dp, rank, has_option ? zero : "");
        offloaded = play(words, TIDE_PHASE_BACKWARD);
        check(offloaded.state <= stages[stage].state, "offloading raises what is on the device", offloaded.state,
              stages[stage].state);
        check(offloaded.of[TIDE_FACTOR_MASTER] + offloaded.of[TIDE_FACTOR_OPTIMIZER] <= 64 * 16,
              "offloaded, but on the device", offloaded.of[TIDE_FACTOR_MASTER] + offloaded.of[TIDE_FACTOR_OPTIMIZER],
              0);
    }
}

/* What lies besides the device, of recorded runs: "name":...,"bytes":N in the answer. */
static void check_besides(const char *words, const char *name, int64_t bytes) {
    char request[600], wanted[80];
    char *answer = NULL;
    size_t length = 0;
    size_t at = (size_t)snprintf(request, sizeof request, "{\"call\":\"estimate\",\"settings\":[");
    for (const char *word = words; *word;) {
        size_t end = strcspn(word, " ");
        at +=
            (size_t)snprintf(request + at, sizeof request - at, "%s\"%.*s\"", word == words ? "" : ",", (int)end, word);
        word += end + (word[end] == ' ');
    }
    snprintf(request + at, sizeof request - at, "]}");
    shown = words;
    tide_call(request, strlen(request), NULL, &answer, &length);
    const char *besides = answer ? strstr(answer, "\"besides\":[") : NULL;
    const char *end = besides ? strchr(besides, ']') : NULL;
    snprintf(wanted, sizeof wanted, "\"name\":\"%s\",\"bytes\":%lld", name, (long long)bytes);
    const char *found = besides ? strstr(besides, wanted) : NULL;
    check(bytes ? found && found < end : !besides, "stands besides the device", found != NULL, bytes);
    if (answer) tide_free(NULL, answer, length);
}

static void check_host(void) {
    static const char llama[] =
        "model=llama-2-7b overrides.num_hidden_layers=2 batch=1 seq=512 use_cache=false dp=4 rank=1 ";
    char words[500];
#define BESIDES(more, name, bytes) (snprintf(words, sizeof words, "%s" more, llama), check_besides(words, name, bytes))
    BESIDES("parallel.kind=zero2 parallel.hf_auto=true parallel.offload_optimizer=cpu", "host_pinned", 2952790016);
    BESIDES("parallel.kind=zero2 parallel.hf_auto=true parallel.offload_optimizer=cpu param_groups=trainer",
            "host_pinned", 2952871936);
    BESIDES("parallel.kind=zero3 parallel.hf_auto=true parallel.offload_optimizer=cpu", "host_pinned", 1610612736);
    BESIDES("parallel.kind=zero3 parallel.hf_auto=true parallel.offload_optimizer=cpu parallel.offload_param=cpu",
            "host_pinned", 2550147072);
    BESIDES("parallel.kind=fsdp1 parallel.offload=true", "host_pinned", 805306368);
    BESIDES("parallel.kind=fsdp2 parallel.offload=true", "host_pinned", 536883200);
    BESIDES("parallel.kind=ddp", "nccl", 24 * 9633792);
    BESIDES("parallel.kind=zero2", "nccl", 2 * 24 * 9633792);
    BESIDES("parallel.kind=fsdp2 parallel.hybrid=2", "nccl", 3 * 24 * 9633792);
    check_besides("model=llama-2-7b overrides.num_hidden_layers=2 batch=1 seq=512 parallel.kind=zero2 dp=1", "nccl", 0);
}

/* Optimizer states of all ranks are those of one GPU, and padding. */
static void check_sums(const char *model, int dp) {
    static const char *const kinds[] = {"zero1", "zero2", "zero3", "fsdp1", "fsdp2"};
    char words[400];
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        int64_t all = 0, states = 0, tensors = 0;
        shown = words;
        for (int rank = 0; rank < dp; rank++) {
            snprintf(words, sizeof words,
                     "model=%s dtype=fp32 batch=1 seq=64 use_cache=false parallel.kind=%s dp=%d rank=%d", model,
                     kinds[k], dp, rank);
            held h = play(words, TIDE_PHASE_OPTIMIZER);
            if (!h.plays) return;
            all += h.of[TIDE_FACTOR_OPTIMIZER];
            states = 8 * h.trainable;
            tensors = h.tensors;
        }
        int64_t padding = strcmp(kinds[k], "fsdp2") == 0   ? 0
                          : strcmp(kinds[k], "zero3") == 0 ? 8 * dp * tensors
                                                           : 8 * 2 * 2 * dp * tensors;
        check(all >= states && all <= states + padding, "parts do not add up", all, states);
    }
}

/* ZeRO-2 on one GPU: flat bf16 parameters, an fp32 copy, two fp32 states, all padded to two elements. */
static void check_layout(void) {
    shown = "model=gpt2 batch=1 seq=64 steps=2 use_cache=false parallel.kind=zero2 dp=1";
    held h = play(shown, TIDE_PHASE_OPTIMIZER);
    int64_t padded = (h.trainable + 1) / 2 * 2;
    check(h.of[TIDE_FACTOR_PARAMETER] == 2 * padded, "flat parameters", h.of[TIDE_FACTOR_PARAMETER], 2 * padded);
    check(h.of[TIDE_FACTOR_MASTER] == 4 * padded, "the fp32 copy", h.of[TIDE_FACTOR_MASTER], 4 * padded);
    check(h.of[TIDE_FACTOR_OPTIMIZER] == 8 * padded, "the states", h.of[TIDE_FACTOR_OPTIMIZER], 8 * padded);
    check(h.of[TIDE_FACTOR_GRADIENT] == 0, "gradients after a step", h.of[TIDE_FACTOR_GRADIENT], 0);
}

/* Parameters of all ranks: of tensor parallelism the whole and copies of what is not cut, of a pipeline the whole. */
static void check_cut(const char *model, const char *options, int ranks, int64_t copied) {
    char words[500];
    int64_t all = 0;
    held whole = play(model, TIDE_PHASE_OPTIMIZER);
    shown = words;
    for (int rank = 0; rank < ranks; rank++) {
        snprintf(words, sizeof words, "%s %s rank=%d", model, options, rank);
        held h = play(words, TIDE_PHASE_OPTIMIZER);
        if (!h.plays) return;
        all += h.of[TIDE_FACTOR_PARAMETER];
    }
    int64_t expected = whole.of[TIDE_FACTOR_PARAMETER] + copied;
    check(all == expected, "cut parameters do not add up", all, expected);
}

static const char *const dense = "model=llama-3.1-8b overrides.num_hidden_layers=8 batch=16 seq=64 use_cache=false";

static void check_cuts(void) {
    static const char *const mixture =
        "model=mixtral-8x7b overrides.num_hidden_layers=2 batch=1 seq=64 use_cache=false";
    const int64_t norms = 2 * 4096 * 17, norms_and_routers = 2 * 4096 * (5 + 2 * 8);
    check_cut(dense, "parallel.kind=tp parallel.tp=2", 2, norms);
    check_cut(dense, "parallel.kind=tp parallel.tp=8 parallel.sequence_parallel=true", 8, 7 * norms);
    check_cut(dense, "parallel.kind=tp parallel.tp=8 parallel.tp_plan=auto", 8, 7 * norms);
    check_cut(dense, "parallel.kind=tp parallel.tp=2 parallel.dp=4 parallel.tp_plan=auto", 8, norms);
    check_cut(mixture, "parallel.kind=tp parallel.tp=4 parallel.tp_plan=auto", 4, 3 * norms_and_routers);
    check_cut(mixture, "parallel.kind=tp parallel.tp=4 parallel.tp_plan=auto parallel.ep=4", 4, 3 * norms_and_routers);
    check_cut(mixture, "parallel.kind=tp parallel.tp=2 parallel.dp=4 parallel.tp_plan=auto parallel.ep=4", 8,
              norms_and_routers);
    check_cut(mixture, "parallel.kind=tp parallel.tp=1 parallel.dp=8 parallel.tp_plan=auto parallel.ep=8", 8, 0);
    check_cut(
        mixture,
        "parallel.kind=tp parallel.tp=8 parallel.tp_plan=auto parallel.ep=8 parallel.ep_implementation=all_reduce", 8,
        7 * norms_and_routers);
    check_cut(dense, "parallel.kind=pp parallel.pp=4 parallel.microbatches=4", 4, 0);
    check_cut(dense, "parallel.kind=pp parallel.pp=3 parallel.microbatches=4 parallel.stage_layers=1,5,2", 3, 0);
    check_cut(dense,
              "parallel.kind=native pp=2 parallel.microbatches=4 parallel.schedule=ZBVZeroBubble parallel.chunks=2 "
              "parallel.stage_layers=1,2,4,1",
              2, 0);
}

/* torchtitan's experts: each rank's own, cut over the ranks that have the same ones; their router's biases and counts
 * are buffers. With tensor parallel ranks norms and routers are copied. */
static void check_titan_cuts(void) {
    static const char *const mixture =
        "model=mixtral-8x7b overrides.num_hidden_layers=2 batch=1 seq=128 use_cache=false dtype=fp32";
    const int64_t norms_and_routers = 4 * 4096 * (5 + 2 * 8);
    check_cut(mixture, "parallel.kind=native dp=4 ep=4", 4, 0);
    check_cut(mixture, "parallel.kind=native dp=4 ep=2", 4, 0);
    check_cut(mixture, "parallel.kind=native dp=2 cp=2 ep=4", 4, 0);
    check_cut(mixture, "parallel.kind=native dp=4 ep=4 parallel.spmd_backend=spmd_types", 4, 0);
    check_cut(mixture, "parallel.kind=native dp=4 ep=2 pp=2", 8, 0);
    check_cut(mixture, "parallel.kind=native dp=2 tp=2 ep=4 parallel.sequence_parallel=true", 4, norms_and_routers);
}

/* PyTorch's own, all ranks of a random layout: the whole and copies of the norms, each cut over data and context
 * ranks; its sizes need no padding. One rank of everything has what one GPU has. */
static void check_native(uint64_t *seed) {
    static const char *const options[] = {"",
                                          " parallel.param_dtype=bf16",
                                          " parallel.ac=full",
                                          " parallel.meta_init=false",
                                          " parallel.sync_each=false",
                                          NULL};
    static const char *const schedules[] = {"1F1B", "GPipe", NULL};
    int tp = 1 << random_below(seed, 3), pp = 1 << random_below(seed, 3), dp = 1 + (int)random_below(seed, 2),
        cp = 1 + (int)random_below(seed, 2);
    char words[400];
    snprintf(words, sizeof words,
             "parallel.kind=native tp=%d pp=%d dp=%d cp=%d parallel.microbatches=%d parallel.schedule=%s%s%s", tp, pp,
             dp, cp, pp, one_of(seed, schedules),
             tp > 1 && random_below(seed, 2) ? " parallel.sequence_parallel=true" : "", one_of(seed, options));
    int64_t copied = (tp - 1) * INT64_C(2) * 4096 * 17;
    int ranks = tp * pp * dp * cp;
    char whole[500];
    snprintf(whole, sizeof whole, "%s", dense);
    shown = words;
    held one = play(whole, TIDE_PHASE_OPTIMIZER);
    int64_t all = 0, states = 0;
    for (int rank = 0; rank < ranks; rank++) {
        char job[1000];
        snprintf(job, sizeof job, "%s %s rank=%d", dense, words, rank);
        held h = play(job, TIDE_PHASE_OPTIMIZER);
        if (!h.plays) return;
        all += h.of[TIDE_FACTOR_PARAMETER];
        states += h.of[TIDE_FACTOR_OPTIMIZER];
    }
    check(all == one.of[TIDE_FACTOR_PARAMETER] + copied, "parameters of PyTorch's ranks do not add up", all,
          one.of[TIDE_FACTOR_PARAMETER] + copied);
    int64_t steps = states - one.of[TIDE_FACTOR_OPTIMIZER] - 2 * copied; /* counts of steps, of each tensor on each */
    check(steps >= 0 && steps <= ranks * INT64_C(1000) * 8, "states of PyTorch's ranks do not add up", states,
          one.of[TIDE_FACTOR_OPTIMIZER] + 2 * copied);
}

/* Megatron-Core, all ranks of a random layout: what is cut over tensor ranks and stages adds up to the whole and copies
 * of the norms, fp32 copies over data ranks to four bytes a parameter. The vocabulary needs no padding. */
static void check_megatron(uint64_t *seed) {
    static const char *const model =
        "model=llama-3.1-8b overrides.num_hidden_layers=8 overrides.vocab_size=32768 batch=1 "
        "seq=64 steps=1 use_cache=false";
    static const char *const options[] = {"",
                                          " parallel.impl=local",
                                          " parallel.sequence_parallel=true",
                                          " parallel.overlap_grad_reduce=true parallel.bucket_size=1000000",
                                          " parallel.recompute=full parallel.recompute_method=uniform",
                                          " parallel.fp8=delayed",
                                          " parallel.fp8=blockwise",
                                          NULL};
    const int64_t norms = 4096 * 17;
    int tp = 1 << random_below(seed, 4), pp = 1 << random_below(seed, 3), dp = 1 + (int)random_below(seed, 3);
    bool is_interleaved = pp > 1 && random_below(seed, 2);
    const char *option = one_of(seed, options);
    char words[600];
    shown = words;
    int64_t all = 0, masters = 0, whole = play(model, TIDE_PHASE_OPTIMIZER).trainable;
    for (int stage = 0; stage < pp; stage++)
        for (int replica = 0; replica < dp; replica++) {
            snprintf(words, sizeof words,
                     "%s parallel.kind=megatron tp=%d pp=%d dp=%d %s parallel.microbatches=%d rank=%d%s", model, tp, pp,
                     dp, is_interleaved ? "parallel.virtual_stages=2" : "", pp, tp * (replica + dp * stage), option);
            held h = play(words, TIDE_PHASE_OPTIMIZER);
            if (!h.plays) return;
            all += replica ? 0 : tp * h.trainable;
            masters += tp * h.of[TIDE_FACTOR_MASTER];
        }
    check(all == whole + (tp - 1) * norms, "parameters of Megatron's ranks do not add up", all, whole);
    check(masters == 4 * all, "fp32 copies of Megatron's ranks do not add up", masters, 4 * all);
}

/* Megatron-Core's experts, all ranks of a random group: each has its part of them, and all of the rest. */
static void check_megatron_experts(uint64_t *seed) {
    static const char *const model = "model=mixtral-8x7b overrides.num_hidden_layers=2 batch=1 seq=64 steps=1 "
                                     "use_cache=false";
    static const char *const options[] = {"", " parallel.grouped_gemm=false", " parallel.dispatcher=allgather",
                                          " parallel.fp8=delayed", NULL};
    const int64_t experts = INT64_C(2) * 8 * 3 * 4096 * 14336;
    int ep = 1 << random_below(seed, 4);
    const char *option = one_of(seed, options);
    int64_t all = 0, whole = play(model, TIDE_PHASE_OPTIMIZER).trainable;
    char words[400];
    shown = words;
    for (int rank = 0; rank < ep; rank++) {
        snprintf(words, sizeof words, "%s parallel.kind=megatron dp=%d ep=%d rank=%d%s", model, ep, ep, rank, option);
        held h = play(words, TIDE_PHASE_OPTIMIZER);
        if (!h.plays) return;
        all += h.trainable;
    }
    int64_t expected = whole + (ep - 1) * (whole - experts);
    check(all == expected, "parameters of Megatron's expert ranks do not add up", all, expected);
}

/* Of 1F1B a stage holds as many micro-batches as there are, but no more than there are stages from it on: each adds the
 * same up to that, and nothing beyond but the input that comes before the next. The first and the last stage have more
 * than layers. */
static void check_in_flight(uint64_t *seed) {
    static const char *const options[] = {"",
                                          " parallel.sequence_parallel=true tp=2",
                                          " parallel.recompute=full parallel.recompute_method=uniform",
                                          " parallel.recompute=selective parallel.recompute_modules=mlp",
                                          " parallel.fp8=tensorwise",
                                          NULL};
    enum { MOST = 8 };
    int pp = 4 << random_below(seed, 2), stage = 1 + (int)random_below(seed, (uint32_t)pp - 2), bound = pp - stage;
    const char *option = one_of(seed, options);
    int tp = strstr(option, "tp=2") ? 2 : 1;
    const int64_t received = INT64_C(2) * 1024 * 2048 * 2; /* hidden states, bf16 */
    int64_t most[MOST + 1];
    char words[600];
    shown = words;
    for (int microbatches = 1; microbatches <= pp; microbatches++) {
        snprintf(words, sizeof words,
                 "model=llama-3.2-1b overrides.num_hidden_layers=16 batch=2 seq=1024 steps=1 use_cache=false "
                 "parallel.kind=megatron pp=%d parallel.microbatches=%d rank=%d%s",
                 pp, microbatches, stage * tp, option);
        held h = play(words, TIDE_PHASE_OPTIMIZER);
        if (!h.plays) return;
        most[microbatches] = h.most_computed;
    }
    int64_t set = most[2] - most[1];
    check(set > received / tp, "a micro-batch in flight holds its layers' inputs", set, received);
    for (int m = 2; m <= pp; m++) {
        int64_t expected = most[1] + ((m < bound ? m : bound) - 1) * set, more = most[m] - expected;
        check(m <= bound ? more == 0 : more >= 0 && more <= received, "micro-batches in flight", most[m], expected);
    }
}

/* Stages of several sizes, of a random pipeline: no rank holds more at any moment than one of those that are played to
 * find the worst. */
static void check_worst_rank(uint64_t *seed) {
    static const struct {
        const char *words;
        int chunks;
    } kinds[] = {{"kind=pp batch=24 parallel.microbatches=24 parallel.schedule=1F1B", 1},
                 {"kind=pp batch=24 parallel.microbatches=24 parallel.schedule=GPipe", 1},
                 {"kind=pp batch=24 parallel.microbatches=24 parallel.schedule=Interleaved1F1B parallel.chunks=2", 2},
                 {"kind=native parallel.microbatches=24 parallel.schedule=ZBVZeroBubble parallel.chunks=2", 2},
                 {"kind=native parallel.microbatches=24 parallel.schedule=DualPipeV parallel.chunks=2", 2},
                 {"kind=megatron parallel.microbatches=24", 1},
                 {"kind=megatron parallel.microbatches=24 parallel.virtual_stages=2", 2}};
    int kind = (int)random_below(seed, sizeof kinds / sizeof *kinds), pp = 2 + (int)random_below(seed, 5), layers = 0;
    if (pp == 5) pp = 6;
    char split[200] = "", job[600], words[700];
    for (int i = 0; i < pp * kinds[kind].chunks; i++) {
        int of = 1 + (int)random_below(seed, 3);
        snprintf(split + strlen(split), sizeof split - strlen(split), "%s%d", i ? "," : "", of);
        layers += of;
    }
    snprintf(job, sizeof job,
             "model=llama-3.2-1b overrides.tie_word_embeddings=false overrides.vocab_size=1024 "
             "overrides.num_hidden_layers=%d seq=128 steps=2 parallel.%s pp=%d parallel.stage_layers=%s",
             layers, kinds[kind].words, pp, split);
    shown = words;
    int64_t most = 0, most_played = 0;
    held first = {0};
    for (int rank = 0; rank < pp; rank++) {
        snprintf(words, sizeof words, "%s rank=%d", job, rank);
        held h = play(words, TIDE_PHASE_OPTIMIZER);
        if (!h.plays) return;
        if (!rank) first = h;
        bool is_played = !rank;
        for (uint32_t i = 0; i < first.other_count; i++) is_played = is_played || first.others[i] == rank;
        if (h.most > most) most = h.most;
        if (is_played && h.most > most_played) most_played = h.most;
    }
    check(most_played == most, "a rank that is not played needs more", most, most_played);
}

/* Megatron's own ways to say how layers lie come to the same as the list. */
static void check_stage_layers(void) {
    static const char *const alike[][2] = {
        {"parallel.first_stage_layers=2", "parallel.stage_layers=2,3,3"},
        {"parallel.last_stage_layers=4", "parallel.stage_layers=2,2,4"},
        {"overrides.num_hidden_layers=7 parallel.account_embedding=true parallel.account_loss=true",
         "overrides.num_hidden_layers=7 parallel.stage_layers=2,3,2"},
        {"overrides.num_hidden_layers=12 parallel.virtual_stages=2",
         "overrides.num_hidden_layers=12 parallel.virtual_stages=2 parallel.stage_layers=2,2,2,2,2,2"}};
    char words[2][400];
    for (size_t i = 0; i < sizeof alike / sizeof *alike; i++)
        for (int rank = 0; rank < 3; rank++) {
            held h[2];
            for (int k = 0; k < 2; k++) {
                shown = words[k];
                snprintf(words[k], sizeof words[k],
                         "model=llama-3.2-1b overrides.num_hidden_layers=8 seq=64 parallel.kind=megatron pp=3 rank=%d "
                         "%s",
                         rank, alike[i][k]);
                h[k] = play(words[k], TIDE_PHASE_OPTIMIZER);
            }
            check(h[0].most == h[1].most && h[0].most > 0, "layers of each stage", h[0].most, h[1].most);
        }
}

/* What a middle stage computes of a schedule of PyTorch's. */
static int64_t most_of_schedule(const char *option, const char *schedule, int pp, int microbatches, int stage) {
    static char words[600];
    shown = words;
    snprintf(words, sizeof words,
             "model=llama-3.2-1b overrides.num_hidden_layers=16 overrides.tie_word_embeddings=false batch=%d seq=512 "
             "steps=1 optimizer=sgd %s pp=%d parallel.microbatches=%d rank=%d parallel.schedule=%s",
             strstr(option, "kind=pp") ? microbatches : 1, option, pp, microbatches, stage, schedule);
    return play(words, TIDE_PHASE_OPTIMIZER).most_computed;
}

/* PyTorch's own schedules: a stage holds what all micro-batches need (GPipe), or as many of them as there are stages
 * from it to the last (1F1B), however many there are. */
static void check_schedules_in_flight(uint64_t *seed) {
    static const char *const options[] = {"parallel.kind=pp", "parallel.kind=native dtype=fp32",
                                          "parallel.kind=native parallel.ac=full", NULL};
    int pp = 4 << random_below(seed, 2), stage = 1 + (int)random_below(seed, (uint32_t)pp - 3);
    int more = pp + 1 + (int)random_below(seed, 4), m = 3 + (int)random_below(seed, (uint32_t)pp - 2);
    const char *option = one_of(seed, options);
    int64_t two = most_of_schedule(option, "GPipe", pp, 2, stage),
            set = most_of_schedule(option, "GPipe", pp, 3, stage) - two,
            all = most_of_schedule(option, "GPipe", pp, m, stage);
    check(set > 0, "a micro-batch in flight holds what its layers need", set, 1);
    const int64_t received = INT64_C(4) * 512 * 2048, ids = INT64_C(2) * 8 * 512; /* and labels, of a micro-batch */
    int64_t expected = two + (m - 2) * set;
    check(all >= expected && all <= expected + received + ids, "GPipe's micro-batches in flight", all, expected);
    int64_t here = most_of_schedule(option, "1F1B", pp, pp, stage),
            again = most_of_schedule(option, "1F1B", pp, more, stage),
            next = most_of_schedule(option, "1F1B", pp, pp, stage + 1);
    check(again >= here && again <= here + (more - pp) * ids, "micro-batches in flight follow their number", again,
          here);
    check(here - next <= set && here - next >= set - ids, "a stage holds one micro-batch more than the next",
          here - next, set);
}

/* One rank of everything holds what one GPU does, and computes as much: PyTorch's own loop makes a copy of a batch, and
 * its loss does not shift labels. Megatron-Core's is the run without a word about ranks, with fp32 copies of all. */
static void check_alone(uint64_t *seed) {
    static const char *const models[] = {"llama-3.2-1b", "qwen2.5-0.5b", "smollm2-135m", "qwen3-0.6b", NULL};
    static const char *const options[] = {"dtype=fp32 optimizer=adamw", "dtype=fp32 optimizer=adamw_fused",
                                          "dtype=bf16 optimizer=adamw", "dtype=bf16 optimizer=sgd", NULL};
    static const char *const inits[] = {"parallel.meta_init=false", "parallel.meta_init=true", NULL};
    static const tide_factor kept[] = {TIDE_FACTOR_PARAMETER, TIDE_FACTOR_GRADIENT, TIDE_FACTOR_OPTIMIZER};
    const int batch = 1 + (int)random_below(seed, 4), seq = 64 << random_below(seed, 4);
    char job[300], words[500];
    snprintf(job, sizeof job,
             "model=%s overrides.num_hidden_layers=3 overrides.tie_word_embeddings=false batch=%d seq=%d steps=2 "
             "use_cache=false",
             one_of(seed, models), batch, seq);
    const char *option = one_of(seed, options);
    shown = words;
    snprintf(words, sizeof words, "%s %s", job, option);
    held one = play(words, TIDE_PHASE_OPTIMIZER);
    snprintf(words, sizeof words, "%s %s parallel.kind=native tp=1 pp=1 cp=1 dp=1 parallel.microbatches=1 %s", job,
             option, one_of(seed, inits));
    held rank = play(words, TIDE_PHASE_OPTIMIZER);
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        check(rank.of[kept[i]] == one.of[kept[i]], "one rank keeps other than one GPU", rank.of[kept[i]],
              one.of[kept[i]]);
    int64_t tokens = INT64_C(8) * batch * seq, more = rank.most - one.most;
    check(more >= -2 * tokens && more <= 2 * tokens, "one rank needs other than one GPU", rank.most, one.most);
    snprintf(words, sizeof words, "%s dtype=bf16 parallel.kind=megatron", job);
    one = play(words, TIDE_PHASE_OPTIMIZER);
    snprintf(words, sizeof words, "%s dtype=bf16 parallel.kind=megatron tp=1 pp=1 cp=1 dp=1 ep=1 parallel.etp=1", job);
    rank = play(words, TIDE_PHASE_OPTIMIZER);
    check(rank.most == one.most && rank.most > 0, "one rank of Megatron's", rank.most, one.most);
    check(rank.of[TIDE_FACTOR_MASTER] == 4 * rank.trainable, "fp32 copies of one rank", rank.of[TIDE_FACTOR_MASTER],
          4 * rank.trainable);
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 60;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    check_layout();
    check_host();
    check_cuts();
    check_titan_cuts();
    check_sums("gpt2 overrides.n_layer=2", 3);
    check_sums("llama-3.2-1b overrides.num_hidden_layers=2", 8);
    for (int i = 0; i < rounds; i++) check_job(&seed);
    for (int i = 0; i < rounds / 6; i++) check_native(&seed);
    for (int i = 0; i < rounds / 4; i++) check_megatron(&seed);
    for (int i = 0; i < rounds / 12; i++) check_megatron_experts(&seed);
    for (int i = 0; i < rounds / 4; i++) check_in_flight(&seed);
    for (int i = 0; i < rounds / 4; i++) check_schedules_in_flight(&seed);
    for (int i = 0; i < rounds / 3; i++) check_worst_rank(&seed);
    for (int i = 0; i < rounds / 3; i++) check_alone(&seed);
    check_stage_layers();
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
