/* SPDX-License-Identifier: Apache-2.0 */
/* Advice: changes to a job, each of them played. */
#include <stdlib.h>
#include <string.h>

#include "base/units.h"
#include "report/moves.h"
#include "report/other_gpus.h"
#include "report/queries.h"

enum { CHANGE_WORD_LIMIT = 4 };

typedef struct change_row {
    const char *mode, *kinds, *words[CHANGE_WORD_LIMIT + 1], *title, *effect;
    bool trains_alike; /* the result of training is the same, up to the order of sums */
} change_row;

/* A change as words, the jobs it is for, and its side effects. mode and kinds are prefixes of mode and parallel.kind,
 * separated by `|`; "" all. A change that the job does not support (such as a loss that its model lacks) is left out.
 * Combinations follow this order. */
static const change_row changes[] = {
    {"train",
     "",
     {"checkpointing=full"},
     "gradient checkpointing",
     "a second forward pass in backward, about a third more time",
     true},
    {"train|infer",
     "",
     {"attention=sdpa", "sdpa_backend=flash"},
     "FlashAttention",
     "16-bit tensors and masks that it supports",
     true},
    {"train",
     "",
     {"loss=liger"},
     "Liger's fused linear cross entropy",
     "logits are computed in chunks; the output has none",
     true},
    {"train",
     "",
     {"loss=no_upcast"},
     "loss without the fp32 copy of the logits",
     "its sums are rounded like the logits",
     false},
    {"train",
     "",
     {"optimizer=adamw_fused"},
     "fused AdamW",
     "the same result, without the temporaries of the foreach implementation",
     true},
    {"train", "", {"optimizer=adamw8bit"}, "8-bit AdamW of bitsandbytes", "states are rounded, block by block", false},
    {"train", "", {"optimizer=adafactor"}, "Adafactor", "another optimizer: learning rate and results change", false},
    {"train",
     "",
     {"dtype=bf16", "autocast=none", "scaler=false"},
     "weights in bf16",
     "updates are rounded to 8 bits of mantissa",
     false},
    {"train", "", {"adapter=lora"}, "LoRA", "the base model is frozen; adapters of linear layers train", false},
    {"train",
     "",
     {"quant=nf4", "adapter=lora"},
     "QLoRA",
     "the base model is frozen and rounded to 4 bits; slower steps",
     false},
    {"infer",
     "",
     {"quant=nf4"},
     "4-bit weights of bitsandbytes",
     "weights are rounded to 4 bits; each product dequantises its own",
     false},
    {"infer",
     "",
     {"quant=int8"},
     "8-bit weights of bitsandbytes",
     "weights are rounded to 8 bits; slower steps",
     false},
    {"train|infer",
     "",
     {"allocator=expandable_segments:True"},
     "expandable segments",
     "an environment variable; less fragmentation",
     true},
    {"serve", "", {"kv_cache_dtype=fp8"}, "cache in fp8", "keys and values are rounded to 8 bits", false},
    {"serve",
     "",
     {"gpu_memory_utilization=0.95"},
     "more of the GPU",
     "less is left for anything besides the engine",
     false},
    {"serve", "", {"max_num_seqs=64"}, "fewer requests per batch", "the rest waits", false},
    {"serve", "", {"max_num_batched_tokens=2048"}, "fewer tokens per batch", "long prompts take more steps", false},
    {"serve", "", {"enforce_eager=true"}, "no CUDA graphs", "slower steps", false},
    {"serve", "", {"tensor_parallel_size=2"}, "layers sharded over 2 GPUs", "two GPUs", false},
    {"serve", "", {"tensor_parallel_size=4"}, "layers sharded over 4 GPUs", "four GPUs", false},
    {"train",
     "none",
     {"parallel.kind=zero2", "parallel.dp=8"},
     "ZeRO-2 over 8 GPUs",
     "7 more GPUs; batch applies to each",
     false},
    {"train",
     "none",
     {"parallel.kind=zero3", "parallel.dp=8", "parallel.zero_init=true"},
     "ZeRO-3 over 8 GPUs",
     "7 more GPUs, and parameters are communicated in every pass",
     false},
    {"train",
     "none",
     {"parallel.kind=fsdp2", "parallel.dp=8", "parallel.meta_init=true"},
     "FSDP2 over 8 GPUs",
     "7 more GPUs, and parameters are communicated in every pass",
     false},
    {"train",
     "none",
     {"parallel.kind=zero2", "parallel.offload_optimizer=cpu"},
     "optimizer on the host, by ZeRO-2 on one GPU",
     "the host holds master weights and states; every step transfers them",
     false},
    {"train", "ddp|zero0|zero1", {"parallel.kind=zero2"}, "ZeRO-2", "gradients and states are sharded", false},
    {"train",
     "ddp|zero0|zero1|zero2",
     {"parallel.kind=zero3", "parallel.zero_init=true"},
     "ZeRO-3",
     "parameters are communicated in every pass",
     false},
    {"train",
     "ddp|zero0|zero1|zero2|fsdp1",
     {"parallel.kind=fsdp2", "parallel.meta_init=true"},
     "FSDP2",
     "parameters are communicated in every pass",
     false},
    {"train",
     "fsdp2|tp|pp",
     {"parallel.meta_init=true"},
     "modules made on the meta device",
     "parts are filled by to_empty() and a checkpoint, rather than sharded from a full model",
     false},
    {"train",
     "fsdp2",
     {"quant.storage=bf16"},
     "4-bit weights stored as bf16",
     "bnb_4bit_quant_storage: accelerate does not shard weights stored as bytes",
     true},
    {"train",
     "zero3",
     {"parallel.zero_init=true"},
     "parameters partitioned as they are made",
     "deepspeed.zero.Init; from_pretrained() uses it with a stage 3 configuration",
     false},
    {"train",
     "zero",
     {"parallel.offload_optimizer=cpu"},
     "optimizer on the host",
     "the host holds master weights and states; every step transfers them",
     false},
    {"train",
     "zero3",
     {"parallel.offload_optimizer=cpu", "parallel.offload_param=cpu"},
     "optimizer and parameters on the host",
     "every pass transfers them",
     false},
    {"train",
     "tp|native|megatron",
     {"parallel.sequence_parallel=true"},
     "sequence parallel",
     "norms and residuals are sharded along the sequence; communication is the same",
     true},
    {"train",
     "native",
     {"parallel.ac=full"},
     "full activation checkpointing",
     "a second forward pass in backward, about a third more time",
     true},
    {"train",
     "tp|native",
     {"parallel.loss_parallel=true"},
     "loss parallel",
     "the loss is computed from logits sharded along the vocabulary",
     true},
    {"train",
     "native",
     {"parallel.reshard_after_forward=true"},
     "parameters released after forward",
     "they are gathered again in each backward pass",
     true},
    {"train",
     "megatron",
     {"parallel.recompute=selective", "parallel.recompute_modules=layernorm,mlp"},
     "norms and MLPs recomputed",
     "their forward pass runs again in backward",
     true},
    {"train",
     "megatron",
     {"parallel.recompute=full", "parallel.recompute_method=uniform", "parallel.recompute_layers=1"},
     "full recomputation",
     "a second forward pass in backward, about a third more time",
     true},
    {"train",
     "megatron",
     {"parallel.cross_entropy_fusion=te"},
     "Transformer Engine's fused cross entropy",
     "logits are not copied to fp32",
     false},
    {"train",
     "megatron",
     {"parallel.grad_reduce_in_fp32=false"},
     "gradients in bf16",
     "gradients are accumulated and reduced in 16 bits",
     false},
    {"train",
     "megatron",
     {"parallel.precision_aware=true", "parallel.exp_avg_dtype=bf16", "parallel.exp_avg_sq_dtype=bf16"},
     "moments of Adam in bf16",
     "they are rounded to 8 bits of mantissa",
     false},
    {"train",
     "fsdp",
     {"parallel.offload=true"},
     "shards on the host",
     "parameters, gradients and states; every pass transfers them",
     false},
};

/* Several GPUs as a start, if more of the same kind cannot help. */
static const change_row over_8_gpus = {
    .words = {"parallel.kind=fsdp2", "parallel.dp=8", "parallel.meta_init=true"},
    .title = "FSDP2 over 8 GPUs",
    .effect = "7 more GPUs, and parameters are communicated in every pass",
};

enum {
    CHANGE_COUNT = TIDE_COUNT_OF(changes),
    SCALED_COUNT = 2,
    EVALUATION_COUNT = 2,
    ENGINE_COUNT = 3,
    TOGETHER_COUNT = 2,
    GPUS_COUNT = 2,
    TOGETHER_LIMIT = 12
};

typedef struct tried_change {
    const char *const *words;
    uint32_t count;
    const char *title, *effect;
    tide_what_if verdict;
} tried_change;

typedef struct adviser {
    const tide_query *query;
    tide_what_if now;
    tried_change list[CHANGE_COUNT + SCALED_COUNT + EVALUATION_COUNT + ENGINE_COUNT + TOGETHER_COUNT + GPUS_COUNT +
                      TIDE_MOVES_MOST];
    uint32_t count;
} adviser;

/* Changes that fit with room to spare come first, then those that fit without retries, those that fit with them, and
 * the rest. */
static int standing(const tide_what_if *v) {
    return tide_what_if_lasts(v) + tide_what_if_holds(v) + v->fits;
}

static int by_need(const void *a, const void *b) {
    const tried_change *x = a, *y = b;
    int of_x = standing(&x->verdict), of_y = standing(&y->verdict);
    if (of_x != of_y) return of_y - of_x;
    if (x->verdict.tokens != y->verdict.tokens) return x->verdict.tokens > y->verdict.tokens ? -1 : 1;
    if (x->verdict.need != y->verdict.need) return x->verdict.need < y->verdict.need ? -1 : 1;
    return strcmp(x->title, y->title);
}

/* Whether all of these settings are given already. */
static bool is_so(const tide_what_if *now, const char *const *words, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        size_t head = strcspn(words[i], "=");
        bool stands = false;
        for (uint32_t k = 0; k < now->row_count && !stands; k++)
            stands = strlen(now->rows[k].name) == head && strncmp(now->rows[k].name, words[i], head) == 0 &&
                     strcmp(now->rows[k].value, words[i] + head + 1) == 0;
        if (!stands) return false;
    }
    return true;
}

static void try_change(adviser *a, const char *const *words, uint32_t count, const char *title, const char *effect) {
    if (is_so(&a->now, words, count)) return;
    tried_change change = {words, count, title, effect, tide_what_if_play(a->query, words, count)};
    if (change.verdict.status == TIDE_OK && tide_what_if_evaluates(&change.verdict) == tide_what_if_evaluates(&a->now))
        a->list[a->count++] = change;
}

static bool read_number(const adviser *a, const char *name, int64_t *value) {
    return tide_text_to_i64(value, tide_text_of(tide_what_if_setting(&a->now, name)));
}

static void try_half_batch(adviser *a) {
    int64_t batch, accum;
    if (!read_number(a, "batch", &batch) || batch % 2 != 0 || !read_number(a, "grad_accum", &accum)) return;
    const char **words = TIDE_NEW(a->query->arena, const char *, 2);
    words[0] = tide_format(a->query->arena, "batch=%lld", (long long)batch / 2);
    words[1] = tide_format(a->query->arena, "grad_accum=%lld", (long long)accum * 2);
    try_change(a, words, 2, "half the batch, accumulated twice", "the same samples per step");
}

static void try_twice_the_cards(adviser *a) {
    int64_t dp;
    if (!read_number(a, "parallel.dp", &dp)) return;
    const char **words = TIDE_NEW(a->query->arena, const char *, 1);
    words[0] = tide_format(a->query->arena, "parallel.dp=%lld", (long long)dp * 2);
    try_change(a, words, 1, "twice the GPUs", "batch counts for each");
}

static void try_moves(adviser *a) {
    tide_move moves[TIDE_MOVES_MOST];
    uint32_t count = tide_moves_of(&a->now, a->query->arena, moves);
    for (uint32_t i = 0; i < count; i++)
        try_change(a, moves[i].words, moves[i].count,
                   tide_format(a->query->arena, "a layer of stage %u moved to stage %u", moves[i].from, moves[i].to),
                   "the same result; a stage of more layers takes longer");
}

static void try_evaluation(adviser *a) {
    static const char *const one_sample[] = {"trainer.per_device_eval_batch_size=1"},
                             *const to_host[] = {"trainer.eval_accumulation_steps=1"};
    if (!tide_what_if_evaluates(&a->now)) return;
    try_change(a, one_sample, 1, "one sample per batch in evaluation", "evaluations take longer");
    if (strcmp(tide_what_if_setting(&a->now, "trainer.compute_metrics"), "true") == 0)
        try_change(a, to_host, 1, "predictions to the host after each batch", "evaluations take longer");
}

/* A colocated engine that is awake while gradients and optimizer states exist. */
static void try_engine(adviser *a) {
    static const char *const asleep[] = {"trainer.vllm_enable_sleep_mode=true"},
                             *const smaller[] = {"trainer.vllm_gpu_memory_utilization=0.2"},
                             *const elsewhere[] = {"trainer.vllm_mode=server"};
    if (strcmp(tide_what_if_setting(&a->now, "trainer.use_vllm"), "true") != 0) return;
    try_change(a, asleep, 1, "the engine asleep while the trainer trains",
               "each generation wakes it, and copies the weights to it");
    try_change(a, smaller, 1, "a smaller part of the GPU for the engine", "fewer completions at once");
    try_change(a, elsewhere, 1, "the engine on other GPUs", "weights are sent there");
}

static void try_table(adviser *a, const char *mode, const char *kind) {
    for (size_t i = 0; i < CHANGE_COUNT; i++) {
        if (!tide_beginning_listed(changes[i].mode, mode) || !tide_beginning_listed(changes[i].kinds, kind)) continue;
        uint32_t words = 0;
        while (changes[i].words[words]) words++;
        try_change(a, changes[i].words, words, changes[i].title, changes[i].effect);
    }
}

/* ---- several together, where none is enough ---- */

typedef struct together {
    const change_row *list[TOGETHER_LIMIT];
    uint32_t count;
    tide_what_if verdict;
} together;

static uint32_t words_of(const together *t, const char **words) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < t->count; i++)
        for (uint32_t k = 0; t->list[i]->words[k]; k++) words[count++] = t->list[i]->words[k];
    return count;
}

static void play_together(adviser *a, together *t) {
    const char *words[TOGETHER_LIMIT * CHANGE_WORD_LIMIT];
    uint32_t count = words_of(t, words);
    t->verdict = tide_what_if_play(a->query, words, count);
    bool is_alike = tide_what_if_evaluates(&t->verdict) == tide_what_if_evaluates(&a->now);
    if (t->verdict.status == TIDE_OK && !is_alike) t->verdict.status = TIDE_ERR_UNSUPPORTED;
}

/* Whether a change conflicts with a setting of those before it, or is also about the number of GPUs. */
static bool is_at_odds(const together *t, const change_row *next) {
    const char *words[TOGETHER_LIMIT * CHANGE_WORD_LIMIT];
    uint32_t count = words_of(t, words);
    for (uint32_t k = 0; next->words[k]; k++) {
        size_t head = strcspn(next->words[k], "=") + 1;
        if (strncmp(next->words[k], "parallel.dp=", head) == 0) return true;
        for (uint32_t i = 0; i < count; i++)
            if (strncmp(words[i], next->words[k], head) == 0 && strcmp(words[i], next->words[k]) != 0) return true;
    }
    return false;
}

static bool is_there(const tide_what_if *now, const change_row *c) {
    uint32_t count = 0;
    while (c->words[count]) count++;
    return is_so(now, c->words, count);
}

/* Adds changes in the order of the table, as long as each reduces the need, until the job fits with room to spare. */
static void add_until_it_lasts(adviser *a, together *t, const char *mode, const char *kind, bool trains_alike) {
    for (size_t i = 0; i < CHANGE_COUNT && t->count < TOGETHER_LIMIT && !tide_what_if_lasts(&t->verdict); i++) {
        const change_row *next = &changes[i];
        if (!tide_beginning_listed(next->mode, mode) || !tide_beginning_listed(next->kinds, kind) ||
            (trains_alike && !next->trains_alike) || is_there(&a->now, next) || is_at_odds(t, next))
            continue;
        together more = *t;
        more.list[more.count++] = next;
        play_together(a, &more);
        if (more.verdict.status == TIDE_OK && more.verdict.need < t->verdict.need) *t = more;
    }
}

/* Removes those that turned out to be unnecessary, except the first `kept`. */
static void leave_out_unneeded(adviser *a, together *t, uint32_t kept) {
    for (uint32_t i = t->count; i-- > kept;) {
        together less = *t;
        memmove(&less.list[i], &less.list[i + 1], (less.count - i - 1) * sizeof *less.list);
        less.count--;
        play_together(a, &less);
        if (tide_what_if_lasts(&less.verdict)) *t = less;
    }
}

static void try_together(adviser *a, const change_row *first, const char *mode, const char *kind) {
    together t = {.list = {first}, .count = first != NULL, .verdict = a->now};
    if (first) play_together(a, &t);
    if (t.verdict.status != TIDE_OK) return;
    add_until_it_lasts(a, &t, mode, kind, first != NULL);
    if (!tide_what_if_lasts(&t.verdict)) return;
    leave_out_unneeded(a, &t, first != NULL);
    if (t.count < 2) return;
    tide_arena *arena = a->query->arena;
    tried_change *found = &a->list[a->count++];
    const char **words = TIDE_NEW(arena, const char *, TOGETHER_LIMIT *CHANGE_WORD_LIMIT);
    *found = (tried_change){words, words_of(&t, words), t.list[0]->title, t.list[0]->effect, t.verdict};
    for (uint32_t i = 1; i < t.count; i++) {
        found->title = tide_format(arena, i + 1 < t.count ? "%s, %s" : "%s and %s", found->title, t.list[i]->title);
        found->effect = tide_format(arena, "%s; %s", found->effect, t.list[i]->effect);
    }
}

static bool is_any_lasting(const adviser *a) {
    for (uint32_t i = 0; i < a->count; i++)
        if (tide_what_if_lasts(&a->list[i].verdict)) return true;
    return tide_what_if_lasts(&a->now);
}

static bool is_tried(const adviser *a, const char *word) {
    for (uint32_t i = 0; i < a->count; i++)
        for (uint32_t k = 0; k < a->list[i].count; k++)
            if (strcmp(a->list[i].words[k], word) == 0 && tide_what_if_lasts(&a->list[i].verdict)) return true;
    return false;
}

/* Adds GPUs that hold the job as it is. */
static void add_gpus(adviser *a, tide_other_gpus found) {
    if (!found.count || is_tried(a, found.words[0])) return;
    const char **words = TIDE_NEW(a->query->arena, const char *, found.count);
    memcpy(words, found.words, found.count * sizeof *words);
    a->list[a->count++] = (tried_change){words, found.count, found.title, found.effect, found.verdict};
}

static void write_change(tide_writer *w, const tide_what_if *now, const tried_change *change) {
    tide_write_open(w, '{');
    tide_write_string_at(w, "title", change->title);
    tide_write_string_at(w, "effect", change->effect);
    tide_write_changed(w, change->words, change->count, now->need, &change->verdict);
    tide_write_close(w, '}');
}

bool tide_write_advice(tide_writer *w, const tide_query *q, tide_diagnostics *diags) {
    adviser *a = TIDE_NEW(q->arena, adviser, 1);
    a->query = q;
    if (!tide_what_if_now(&a->now, q, diags)) return false;
    const char *mode = tide_what_if_setting(&a->now, "mode"), *kind = tide_what_if_setting(&a->now, "parallel.kind");
    if (strcmp(mode, "train") == 0) try_half_batch(a);
    try_evaluation(a);
    try_engine(a);
    if (strcmp(kind, "none") != 0) try_twice_the_cards(a);
    try_moves(a);
    try_table(a, mode, kind);
    if (!a->now.serves && !is_any_lasting(a)) {
        try_together(a, NULL, mode, kind);
        if (strcmp(mode, "train") == 0 && strcmp(kind, "none") == 0) try_together(a, &over_8_gpus, mode, "fsdp2");
    }
    if (a->now.there && !tide_what_if_holds(&a->now)) {
        add_gpus(a, tide_smallest_gpu(q, &a->now));
        if (a->now.serves || strcmp(mode, "train") == 0) add_gpus(a, tide_fewest_gpus(q, &a->now));
    }
    qsort(a->list, a->count, sizeof *a->list, by_need);
    tide_write_open_at(w, "now", '{');
    tide_write_what_if(w, &a->now);
    tide_write_close(w, '}');
    tide_write_open_at(w, "changes", '[');
    for (uint32_t i = 0; i < a->count; i++)
        if (a->list[i].verdict.need != a->now.need || a->list[i].verdict.tokens != a->now.tokens)
            write_change(w, &a->now, &a->list[i]);
    tide_write_close(w, ']');
    return true;
}
