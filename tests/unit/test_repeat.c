/* SPDX-License-Identifier: Apache-2.0 */
/* Steps, micro-batches and calls of layers that are taken from earlier ones: the timeline is the one that playing each
 * of them makes.
 *
 *     test_repeat STRIDE FOLDER...     every STRIDE-th job of the folders' *.jsonl, over three steps */
#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/ranks.h"

static int passed, failed;
static unsigned repeated, repeated_calls;

static tide_run *play(tide_arena *arena, const tide_job *job, bool plays_all, tide_diagnostics *diags) {
    tide_run *run = TIDE_NEW(arena, tide_run, 1);
    run->frameworks = &tide_frameworks_of_jobs;
    run->plays_all = plays_all;
    return tide_run_job(run, job, arena, diags) ? run : NULL;
}

/* Symbols are numbered as they are made, which may be in another order. */
static bool same_dims(tide_run *one, const tide_dim *x, tide_run *other, const tide_dim *y, unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        if (x[i].size != y[i].size || !x[i].name != !y[i].name) return false;
        if (x[i].name != y[i].name &&
            strcmp(tide_symbol_text(&one->machine, x[i].name), tide_symbol_text(&other->machine, y[i].name)) != 0)
            return false;
    }
    return true;
}

/* What let go of it; a name and a return are not of an operation. */
static bool same_end(const tide_allocation *a, const tide_allocation *b) {
    bool has_op = a->freed_by != TIDE_FREED_BY_ASSIGNMENT && a->freed_by != TIDE_FREED_BY_RETURN && a->freed_by;
    return a->freed_by == b->freed_by && a->freed_module == b->freed_module &&
           a->freed_statement == b->freed_statement && (!has_op || strcmp(a->freed_op, b->freed_op) == 0);
}

static bool same_allocation(tide_run *one, const tide_allocation *a, tide_run *other, const tide_allocation *b) {
    const tide_timeline *t = &one->machine.timeline, *u = &other->machine.timeline;
    return a->bytes == b->bytes && a->born == b->born && a->module == b->module && a->stream == b->stream &&
           a->used_by == b->used_by && a->statement == b->statement && a->factor == b->factor && a->dtype == b->dtype &&
           a->dims == b->dims && strcmp(a->op, b->op) == 0 &&
           same_dims(one, &t->dims[a->shape], other, &u->dims[b->shape], a->dims) && same_end(a, b);
}

static const char *difference(tide_run *one, tide_run *other) {
    const tide_timeline *t = &one->machine.timeline, *u = &other->machine.timeline;
    if (t->event_count != u->event_count || t->allocation_count != u->allocation_count) return "the number of events";
    if (memcmp(t->events, u->events, t->event_count * sizeof *t->events) != 0) return "the order of events";
    for (uint32_t i = 0; i < t->allocation_count; i++)
        if (!same_allocation(one, tide_timeline_at(t, i), other, tide_timeline_at(u, i)) ||
            *tide_timeline_died(t, i) != *tide_timeline_died(u, i))
            return "an allocation";
    if (t->mark_count != u->mark_count) return "the number of marks";
    for (uint32_t i = 0; i < t->mark_count; i++)
        if (t->marks[i].event != u->marks[i].event || t->marks[i].step != u->marks[i].step ||
            t->marks[i].phase != u->marks[i].phase)
            return "a mark";
    return one->machine.op_count == other->machine.op_count ? NULL : "the count of operations";
}

/* ---- repetitions: what is kept once comes to the figures of what is kept each time ---- */

/* What lives at the peak comes to the peak. */
static bool adds_up(const tide_run *run, const tide_replay *r) {
    const tide_timeline *t = &run->machine.timeline;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < t->allocation_count; i++)
        if (tide_timeline_at(t, i)->born <= r->peak_event && r->peak_event < *tide_timeline_died(t, i))
            sum += r->block_bytes[i];
    return sum == r->allocated_peak;
}

static const char *figures_differ(const tide_run *one, const tide_run *other, const tide_replay_config *config,
                                  tide_arena *arena) {
    tide_event_source of_one = tide_timeline_events(&one->machine.timeline),
                      of_other = tide_timeline_events(&other->machine.timeline);
    tide_replay x, y;
    if (!tide_replay_all(&x, &of_one, config, arena) || !tide_replay_all(&y, &of_other, config, arena)) return "memory";
    if (x.is_oom != y.is_oom || x.retries != y.retries || x.ooms != y.ooms) return "retries, or where memory ends";
    if (x.allocated_peak != y.allocated_peak || x.requested_peak != y.requested_peak) return "what is allocated";
    if (x.reserved_peak != y.reserved_peak || x.peak_reserved != y.peak_reserved) return "what is reserved";
    if (x.allocated != y.allocated || x.reserved != y.reserved || x.requested != y.requested) return "the end";
    if (x.small_segments != y.small_segments || x.large_bytes != y.large_bytes) return "segments";
    if (x.step_count != y.step_count || memcmp(x.steps, y.steps, x.step_count * sizeof *x.steps) != 0)
        return "the figures of a step";
    return x.is_oom || adds_up(one, &x) ? NULL : "what lives at the peak";
}

static unsigned kept_once, accumulated;

/* Without limits, with ranges, and with less and less memory. */
static const char *repetition_differs(const tide_run *one, const tide_run *other, const tide_job *job,
                                      tide_arena *arena) {
    tide_replay_config config = {.conf = job->allocator_conf};
    tide_event_source source = tide_timeline_events(&one->machine.timeline);
    tide_replay whole;
    const char *differs = figures_differ(one, other, &config, arena);
    if (differs || !tide_replay_peaks(&whole, &source, &config, arena)) return differs;
    for (int i = 1; i <= 4 && !differs; i++) {
        config.device_bytes = whole.reserved_peak - (whole.reserved_peak - whole.allocated_peak) / 4 * (uint64_t)i;
        differs = figures_differ(one, other, &config, arena);
    }
    config.device_bytes = 0;
    config.conf.expandable_segments = true;
    kept_once += one->machine.timeline.repetition_count > 0;
    return differs ? differs : figures_differ(one, other, &config, arena);
}

/* ---- recorded jobs ---- */

/* With `accumulates`, over so many micro-batches in each step: more than are kept. */
static void check_line(const char *line, int64_t accumulates) {
    jmp_buf escape;
    tide_arena arena;
    tide_arena_init(&arena, tide_default_allocator(), &escape);
    if (setjmp(escape)) {
        puts("no memory");
        exit(3);
    }
    tide_diagnostics diags;
    tide_diagnostics_init(&diags, &arena);
    tide_json *measured = tide_json_parse(&arena, tide_text_of(line), "", &diags);
    const tide_json *id = tide_json_at(tide_json_at(measured, "case"), "id");
    tide_text *words;
    uint32_t count;
    const char *reason = "";
    tide_job *job = NULL;
    tide_file *files = NULL;
    uint32_t file_count = 0;
    if (measured) tide_job_add_files_of_case(&arena, tide_json_at(measured, "case"), &files, &file_count);
    if (measured && tide_job_arguments_of_case(&arena, tide_json_at(measured, "case"), &words, &count, &reason))
        job = tide_job_build(&arena, words, count, files, file_count, &diags);
    if (job) job->steps = accumulates ? 2 : 3;
    bool has_groups = job && tide_trainer_generates(job);
    if (job && accumulates) job->grad_accum = has_groups ? 8 * job->grad_accum : accumulates;
    /* Megatron-Core's micro-batches are a setting of its own */
    accumulated += job && accumulates && job->parallel_kind != TIDE_parallel_kind_megatron;
    tide_run *one = job ? play(&arena, job, false, &diags) : NULL,
             *other = job ? play(&arena, job, true, &diags) : NULL;
    bool is_folded = one && one->machine.timeline.repetition_count > 0;
    const char *differs = !one || !other             ? "the job does not run"
                          : accumulates || is_folded ? repetition_differs(one, other, job, &arena)
                                                     : difference(one, other);
    if (differs) {
        printf("%s%s: %s\n", id ? id->text.at : line, accumulates ? ", repeated" : "", differs);
        failed++;
    } else {
        repeated += one->repeated;
        repeated_calls += one->model.repeated_calls;
        passed++;
    }
    tide_arena_free(&arena);
}

/* ---- long generations, of which a step is kept once ---- */

static const char *const generations[] = {
    "model=smollm2-135m decode=120 steps=4",
    "model=smollm2-135m decode=120 cache=static batch=3 seq=40",
    "model=t5-small decode=450 steps=3 dtype=fp32",
    "model=qwen2.5-0.5b decode=120 seq=700 steps=8",
    "model=smollm2-135m decode=300 batch=4 seq=60",
    "model=llama-3.2-1b decode=300 batch=4 seq=200 overrides.num_hidden_layers=3",
    "model=gemma-2-2b decode=200 batch=2 seq=100 overrides.num_hidden_layers=4 overrides.sliding_window=160",
    "model=gemma-2-2b decode=200 batch=2 seq=64 attention=eager overrides.sliding_window=160",
    "model=mistral-7b decode=260 batch=3 seq=300 overrides.num_hidden_layers=2 overrides.sliding_window=400",
    "model=gemma-3-1b decode=150 seq=450 overrides.num_hidden_layers=7 dtype=bf16",
    "model=deepseek-v2-lite decode=90 batch=20 seq=40 overrides.num_hidden_layers=3",
    "model=gpt2 decode=200 batch=8 seq=100 attention=eager",
    "model=bart-large decode=100 batch=4 seq=100 dtype=fp32",
    "model=whisper-tiny decode=120 batch=2",
    "model=mamba-130m decode=60 batch=2 seq=40",
    "model=phi-3-mini decode=120 seq=2000 overrides.num_hidden_layers=2 allocator=expandable_segments:True",
    "model=llama-3.2-1b decode=100 batch=4 seq=500 overrides.num_hidden_layers=2 autocast=bf16 dtype=fp32",
    "model=opt-125m decode=100 batch=3 seq=90 dtype=fp16",
    "model=gemma-4-12b decode=100 seq=300 images=0",
    "model=gemma-4-12b decode=91 batch=2 seq=77 images=0"};

/* ---- schedules of pipelines, of whose steady state a round is kept once ---- */

#define MEGATRON "parallel.kind=megatron seq=512 "
#define NATIVE "parallel.kind=native parallel.schedule=1F1B seq=256 "
#define CHUNKS                                                                                                         \
    "parallel.kind=pp model=smollm2-135m overrides.num_hidden_layers=12 overrides.tie_word_embeddings=false "          \
    "parallel.pp=3 parallel.chunks=2 batch=60 parallel.microbatches=60 seq=64 "
#define GPIPE "parallel.kind=native parallel.schedule=GPipe "

static const char *const schedules[] = {
    MEGATRON "model=llama-3.2-1b parallel.pp=4 parallel.microbatches=24",
    MEGATRON "model=llama-3.2-1b parallel.pp=4 parallel.microbatches=25 parallel.rank=1",
    MEGATRON "model=llama-3.2-1b parallel.pp=4 parallel.microbatches=25 parallel.rank=3",
    MEGATRON "model=gpt2 parallel.pp=2 parallel.virtual_stages=3 parallel.microbatches=40",
    MEGATRON "model=gpt2 parallel.pp=2 parallel.virtual_stages=2 parallel.microbatches=42 parallel.rank=1",
    MEGATRON "model=llama-3.2-1b parallel.pp=4 parallel.virtual_stages=2 parallel.microbatches=64 "
             "parallel.overlap_p2p=true",
    MEGATRON "model=llama-3.2-1b parallel.pp=4 parallel.virtual_stages=2 parallel.microbatches=64 "
             "parallel.overlap_p2p=true parallel.rank=3",
    MEGATRON "model=llama-3.2-1b parallel.tp=2 parallel.sequence_parallel=true parallel.microbatches=20",
    NATIVE "model=llama-3.2-1b parallel.pp=4 parallel.microbatches=24",
    NATIVE "model=llama-3.2-1b parallel.pp=2 parallel.dp=2 parallel.microbatches=24 parallel.rank=3",
    NATIVE "model=llama-3.2-1b parallel.tp=2 parallel.dp=2 parallel.microbatches=17 parallel.sync_each=false",
    "parallel.kind=pp model=llama-3.2-1b parallel.pp=3 parallel.schedule=1F1B batch=32 parallel.microbatches=32",
    GPIPE "model=llama-3.2-1b seq=64 parallel.pp=4 parallel.microbatches=40",
    GPIPE "model=llama-3.2-1b seq=100 parallel.pp=4 parallel.microbatches=24 parallel.rank=1 batch=3",
    GPIPE "model=llama-3.2-1b seq=256 parallel.pp=4 parallel.microbatches=24 parallel.rank=0 optimizer=sgd",
    GPIPE "model=smollm2-135m seq=34 parallel.pp=3 parallel.microbatches=30 parallel.rank=1 checkpointing=full",
    GPIPE "model=smollm2-135m seq=700 parallel.pp=3 parallel.microbatches=24 parallel.rank=2 checkpointing=full",
    GPIPE "model=llama-3.2-1b seq=256 parallel.pp=2 parallel.dp=2 parallel.microbatches=24 parallel.rank=1",
    GPIPE "model=llama-3.2-1b seq=128 parallel.pp=2 parallel.tp=2 parallel.dp=2 parallel.microbatches=24 "
          "parallel.rank=6",
    CHUNKS "parallel.schedule=Interleaved1F1B parallel.rank=0",
    CHUNKS "parallel.schedule=Interleaved1F1B parallel.rank=1 model=olmo2-1b",
    CHUNKS "parallel.schedule=Interleaved1F1B parallel.rank=2",
    CHUNKS "parallel.schedule=InterleavedZeroBubble parallel.rank=1 checkpointing=full",
    CHUNKS "parallel.schedule=ZBVZeroBubble parallel.rank=2",
    CHUNKS "parallel.schedule=DualPipeV parallel.rank=0",
    CHUNKS "parallel.schedule=DualPipeV parallel.rank=1 optimizer=sgd_single",
    "parallel.kind=pp model=llama-3.2-1b parallel.pp=3 parallel.schedule=GPipe batch=32 seq=77 "
    "parallel.microbatches=32 parallel.rank=2 dtype=fp32",
    "parallel.kind=pp model=smollm2-135m parallel.pp=2 parallel.schedule=GPipe batch=32 seq=77 "
    "parallel.microbatches=16 parallel.rank=0 optimizer=sgd dtype=fp32"};

/* ---- scans, of whose loops an iteration is kept once ---- */

#define FIVE_LAYERS                                                                                                    \
    "overrides.num_hidden_layers=5 overrides.layer_types=[\"linear_attention\",\"linear_attention\","                  \
    "\"linear_attention\",\"full_attention\",\"linear_attention\"]"

static const char *const scans[] = {
    "model=mamba-130m seq=70 batch=3 steps=2 overrides.num_hidden_layers=3",
    "model=mamba-130m seq=50 batch=2 checkpointing=full overrides.num_hidden_layers=4",
    "model=mamba-130m seq=40 grad_accum=14 overrides.num_hidden_layers=2",
    "model=mamba-130m seq=33 batch=9 dtype=fp32 autocast=bf16 overrides.num_hidden_layers=2",
    "model=jamba-1.5-mini seq=60 checkpointing=full grad_accum=9 overrides.num_hidden_layers=9",
    "model=jamba-1.5-mini seq=44 adapter=lora overrides.num_hidden_layers=6",
    "model=qwen3.5-27b-text seq=1500 batch=2 steps=2 " FIVE_LAYERS,
    "model=qwen3.5-27b-text seq=1300 checkpointing=full " FIVE_LAYERS,
    "model=qwen3-next-80b-a3b seq=1200 overrides.num_hidden_layers=4 parallel.kind=fsdp2 parallel.dp=4",
    "model=mamba-370m seq=80 trainer=dpo overrides.num_hidden_layers=3",
    "model=mamba-130m seq=60 trainer=sft grad_accum=11 steps=2 overrides.num_hidden_layers=3",
    "model=mamba-130m seq=60 batch=2 trainer=sft grad_accum=12 checkpointing=full overrides.num_hidden_layers=3",
    "model=jamba-1.5-mini seq=50 trainer=sft adapter=lora grad_accum=9 steps=2 overrides.num_hidden_layers=5"};

/* ---- runs of many steps, of which one is kept once ---- */

static const char *const long_runs[] = {
    "model=smollm2-135m steps=90",
    "model=smollm2-135m steps=60 grad_accum=9 adapter=lora",
    "model=smollm2-135m steps=30 grad_accum=12 trainer=sft batch=2",
    "model=smollm2-135m steps=130 trainer=hf trainer.eval_strategy=steps trainer.eval_steps=100",
    "model=smollm2-135m steps=70 trainer=dpo adapter=lora quant=int8",
    "model=gpt2 steps=120 parallel.kind=ddp parallel.dp=4 grad_accum=2",
    NATIVE "model=llama-3.2-1b steps=40 parallel.pp=2 parallel.dp=2 parallel.microbatches=24",
    GPIPE "model=smollm2-135m seq=64 steps=40 parallel.pp=2 parallel.microbatches=12",
    "model=smollm2-135m steps=40 parallel.kind=zero3 parallel.dp=8 grad_accum=2",
    "model=smollm2-135m steps=50 parallel.kind=zero3 parallel.dp=4 trainer=sft",
    "model=llama-3.2-1b steps=50 parallel.kind=fsdp2 parallel.dp=4 seq=100 checkpointing=full",
    "model=mamba-130m seq=40 steps=60 grad_accum=2 overrides.num_hidden_layers=6"};

static void check_folded(const char *line, tide_text mode) {
    jmp_buf escape;
    tide_arena arena;
    tide_arena_init(&arena, tide_default_allocator(), &escape);
    if (setjmp(escape)) exit(3);
    tide_diagnostics diags;
    tide_diagnostics_init(&diags, &arena);
    tide_text words[12] = {mode};
    uint32_t count = 1;
    for (const char *at = line; *at && count < 12;) {
        size_t length = strcspn(at, " ");
        words[count++] = (tide_text){at, length};
        at += length + (at[length] == ' ');
    }
    tide_job *job = tide_job_build(&arena, words, count, NULL, 0, &diags);
    tide_run *one = job ? play(&arena, job, false, &diags) : NULL,
             *other = job ? play(&arena, job, true, &diags) : NULL;
    const char *differs = one && other ? repetition_differs(one, other, job, &arena) : "the job does not run";
    if (!differs && one->machine.timeline.event_count >= other->machine.timeline.event_count)
        differs = "each one is kept";
    if (differs) printf("%s: %s\n", line, differs);
    failed += differs != NULL;
    passed += differs == NULL;
    tide_arena_free(&arena);
}

/* ---- descriptions made for it ---- */

/* Layers whose calls look alike, and the modules around them. Those that leave something behind outside of their
 * result, or do something else each time, must be played. */
static const struct {
    const char *what;
    bool repeats;
    const char *modules;
} own[] = {
    {"the same each time", true,
     "\"L\":{\"w\":\"Linear(64,64)\",\"forward(x,kept)\":[\"return x + w(x)\"]},\"M\":{\"h\":\"L() for i in "
     "range(6)\",\"forward(x)\":[\"kept = []\",\"for i in range(6):\",[\"x = h[i](x, kept)\"],\"return x.sum()\"]}"},
    {"its own number", false,
     "\"L(n)\":{\"w\":\"Linear(64,64)\",\"forward(x,kept)\":[\"return w(x) if n < 3 else x + "
     "w(x)\"]},\"M\":{\"h\":\"L(i) for i in range(6)\",\"forward(x)\":[\"kept = []\",\"for i in range(6):\",[\"x = "
     "h[i](x, kept)\"],\"return x.sum()\"]}"},
    {"appended", true,
     "\"L\":{\"w\":\"Linear(64,64)\",\"forward(x,kept)\":[\"y = w(x)\",\"kept.append(y)\",\"kept.append([gelu(y), "
     "7])\",\"return x + y\"]},\"M\":{\"h\":\"L() for i in range(6)\",\"forward(x)\":[\"kept = []\",\"for i in "
     "range(6):\",[\"x = h[i](x, kept)\"],\"return x.sum() + kept[7][0].sum()\"]}"},
    {"appended and counted", false,
     "\"L\":{\"w\":\"Linear(64,64)\",\"forward(x,kept)\":[\"kept.append(x)\",\"return w(x) if len(kept) > 3 else x * "
     "w(x)\"]},\"M\":{\"h\":\"L() for i in range(6)\",\"forward(x)\":[\"kept = []\",\"for i in range(6):\",[\"x = "
     "h[i](x, kept)\"],\"return x.sum()\"]}"},
    {"popped", false,
     "\"L\":{\"w\":\"Linear(64,64)\",\"forward(x,kept)\":[\"y = kept.pop(0)\",\"kept.append(w(x))\",\"return x + "
     "y\"]},\"M\":{\"h\":\"L() for i in range(6)\",\"forward(x)\":[\"kept = [x, x]\",\"for i in range(6):\",[\"x = "
     "h[i](x, kept)\"],\"return x.sum()\"]}"},
    {"a setting", false,
     "\"L\":{\"w\":\"Linear(64,64)\",\"forward(x,kept)\":[\"y = w(x) * w(x) if past_length > 2 else "
     "w(x)\",\"set_setting('past_length', past_length + 1)\",\"return y\"]},\"M\":{\"h\":\"L() for i in "
     "range(6)\",\"forward(x)\":[\"for i in range(6):\",[\"x = h[i](x, none)\"],\"set_setting('past_length', "
     "0)\",\"return x.sum()\"]}"},
    {"one module twice", true,
     "\"L\":{\"w\":\"Linear(64,64)\",\"forward(x,kept)\":[\"return gelu(w(x))\"]},\"M\":{\"h\":\"L() for i in "
     "range(3)\",\"forward(x)\":[\"for i in range(6):\",[\"x = h[i // 2](x, none)\"],\"return x.sum()\"]}"},
    {"another layer's input", true,
     "\"L\":{\"w\":\"Linear(64,64)\",\"forward(x,kept)\":[\"return x * w(kept)\"]},\"M\":{\"h\":\"L() for i in "
     "range(6)\",\"forward(x)\":[\"y = x\",\"for i in range(6):\",[\"z = h[i](x, y if i % 3 == 0 else x)\",\"y = "
     "x\",\"x = z\"],\"return x.sum()\"]}"},
    {"an input in place", true,
     "\"L\":{\"w\":\"Linear(64,64)\",\"forward(x,kept)\":[\"x += w(x)\",\"return x\"]},\"M\":{\"h\":\"L() for i in "
     "range(6)\",\"forward(x)\":[\"x = gelu(x)\",\"for i in range(6):\",[\"x = h[i](x, none)\"],\"return x.sum()\"]}"},
    {"a cast that is shared", true,
     "\"L\":{\"forward(x,w)\":[\"return x + w(x)\"]},\"M\":{\"h\":\"L() for i in "
     "range(6)\",\"w\":\"Linear(64,64)\",\"forward(x)\":[\"for i in range(6):\",[\"x = h[i](x, w)\"],\"return "
     "x.sum()\"]}"},
    {"the list of layers", false,
     "\"L\":{\"w\":\"Linear(64,64)\",\"forward(x,all)\":[\"return x + w(x) if len(all) > 2 else "
     "x\"]},\"M\":{\"h\":\"L() for i in range(6)\",\"forward(x)\":[\"for i in range(6):\",[\"x = h[i](x, "
     "h)\"],\"return x.sum()\"]}"},
    {"tuples", true,
     "\"L\":{\"w\":\"Linear(64,64)\",\"forward(x,pair)\":[\"a, b = pair\",\"a = w(a)\",\"return a * b, [b, a + "
     "b]\"]},\"M\":{\"h\":\"L() for i in range(6)\",\"forward(x)\":[\"pair = [x, gelu(x)]\",\"for i in "
     "range(6):\",[\"x, pair = h[i](x, pair)\"],\"return x.sum() + pair[1].sum()\"]}"},
};

/* ---- loops whose iterations look alike: what is folded comes to the same, and what is not alike is played ---- */

#define SCAN "for i in range(24):\",[\"s = h * s + h\",\"outs.append(gelu(s))\"],\""
#define START "h = w(x)\",\"s = h * 2\",\"outs = []\",\""

static const struct {
    const char *what;
    bool folds;
    const char *forward; /* statements */
} loops[] = {
    {"a state and outputs", true, START SCAN "return stack(outs, dim=1).sum()"},
    {"the last state", true, START SCAN "return stack(outs, dim=1).sum() + s.sum()"},
    {"outputs without gradients", true, START "with no_grad:\",[\"" SCAN "y = stack(outs, dim=1)\"],\"return h.sum()"},
    {"an index", true,
     START
     "a = h[:, none, :] * stack([h, h, h, h, h, h, h, h, h, h, h, h, h, h, h, h, h, h, h, h], dim=1)\",\"for i in "
     "range(20):\",[\"s = a[:, i] * s + h\",\"outs.append(gelu(s))\"],\"return stack(outs, dim=1).sum()"},
    {"two loops", true,
     START SCAN "h = stack(outs, dim=1).sum(dim=1)\",\"outs = []\",\"" SCAN "return stack(outs, dim=1).sum()"},
    {"an output by itself", false, START SCAN "return stack(outs, dim=1).sum() + (outs[9] * 2).sum()"},
    {"outputs one by one", false, START SCAN "y = h\",\"for o in outs:\",[\"y = y + o * 2\"],\"return y.sum()"},
    {"a choice by the index", false,
     START "for i in range(24):\",[\"s = h * s if i < 9 else gelu(h * s)\",\"outs.append(s)\"],\"return stack(outs, "
           "dim=1).sum()"},
    {"a size by the index", false,
     START "for i in range(24):\",[\"s = h * s\",\"outs.append(s[:, i // 8].sum())\"],\"return stack(outs, "
           "dim=0).sum()"},
    {"a state of two iterations before", false,
     START "t = gelu(h)\",\"for i in range(24):\",[\"s, t = t, h * s\",\"outs.append(gelu(t))\"],\"return stack(outs, "
           "dim=1).sum()"},
    {"no backward", false, START SCAN "return h.sum()"},
    {"few", false, START "for i in range(9):\",[\"s = h * s\",\"outs.append(s)\"],\"return stack(outs, dim=1).sum()"},
};

static void check_loop(size_t which, const char *word) {
    static char text[4096];
    snprintf(text, sizeof text,
             "{\"tidemark\":1,\"architecture\":\"own\",\"roots\":{\"M\":\"M\"},\"inputs\":{\"x\":\"empty(batch, 64, "
             "dtype=float32)\"},\"modules\":{\"M\":{\"w\":\"Linear(64,64)\",\"forward(x)\":[\"%s\"]}}}",
             loops[which].forward);
    jmp_buf escape;
    tide_arena arena;
    tide_arena_init(&arena, tide_default_allocator(), &escape);
    if (setjmp(escape)) exit(3);
    tide_diagnostics diags;
    tide_diagnostics_init(&diags, &arena);
    tide_text words[] = {TIDE_TEXT("batch=700"), TIDE_TEXT("dtype=fp32"), tide_text_of(word)};
    tide_file file = {TIDE_TEXT("own.json"), tide_text_of(text)};
    tide_job *job = tide_job_build(&arena, words, 3, &file, 1, &diags);
    tide_run *one = job ? play(&arena, job, false, &diags) : NULL,
             *other = job ? play(&arena, job, true, &diags) : NULL;
    const char *differs = one && other  ? repetition_differs(one, other, job, &arena)
                          : diags.count ? diags.items[diags.count - 1].message
                                        : "the job does not run";
    if (!differs && loops[which].folds != (one->machine.folding.count > 0 || one->machine.folding.has_folded))
        differs = loops[which].folds ? "each iteration is kept" : "iterations are left out";
    if (differs) printf("%s, %s: %s\n", loops[which].what, word, differs);
    failed += differs != NULL;
    passed += differs == NULL;
    tide_arena_free(&arena);
}

static void check_own(size_t which, const char *word) {
    static char text[4096];
    snprintf(text, sizeof text,
             "{\"tidemark\":1,\"architecture\":\"own\",\"roots\":{\"M\":\"M\"},\"inputs\":{\"x\":\"empty(batch, 64, "
             "dtype=float32)\"},\"modules\":{%s}}",
             own[which].modules);
    jmp_buf escape;
    tide_arena arena;
    tide_arena_init(&arena, tide_default_allocator(), &escape);
    if (setjmp(escape)) exit(3);
    tide_diagnostics diags;
    tide_diagnostics_init(&diags, &arena);
    tide_text words[] = {TIDE_TEXT("batch=32"), TIDE_TEXT("dtype=fp32"), tide_text_of(word)};
    tide_file file = {TIDE_TEXT("own.json"), tide_text_of(text)};
    tide_job *job = tide_job_build(&arena, words, *word ? 3 : 2, &file, 1, &diags);
    if (job) job->steps = 3;
    tide_run *one = job ? play(&arena, job, false, &diags) : NULL,
             *other = job ? play(&arena, job, true, &diags) : NULL;
    const char *differs = one && other  ? difference(one, other)
                          : diags.count ? diags.items[diags.count - 1].message
                                        : "the job does not run";
    if (!differs && !*word && own[which].repeats != (one->model.repeated_calls > 0))
        differs = own[which].repeats ? "no call was made from another" : "calls were made from others";
    if (!differs && !one->repeated) differs = "the third step was not taken from one before it";
    if (differs) {
        printf("%s, %s: %s\n", own[which].what, word, differs);
        failed++;
    } else {
        passed++;
    }
    tide_arena_free(&arena);
}

static int is_results(const struct dirent *entry) {
    size_t length = strlen(entry->d_name);
    return length > 6 && strcmp(entry->d_name + length - 6, ".jsonl") == 0;
}

static void check_file(const char *path, int stride, int often) {
    static char line[1 << 20];
    static long number; /* of the line, through all files */
    FILE *file = fopen(path, "rb");
    for (; file && fgets(line, sizeof line, file); number++)
        if (number % stride == 0) {
            check_line(line, 0);
            if (number % (often * stride) == 0) check_line(line, 6 + number / stride % 15);
        }
    if (file) fclose(file);
}

static void check_folder(const char *folder, int stride) {
    char path[4096];
    struct dirent **names = NULL;
    int count = scandir(folder, &names, is_results, alphasort);
    if (count <= 0) {
        printf("%s has no results\n", folder);
        failed++;
    }
    for (int i = 0; i < count; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]->d_name);
        check_file(path, stride, strstr(folder, "parallel") || strstr(folder, "trainers") ? 2 : 8);
        free(names[i]);
    }
    free(names);
}

int main(int argc, char **argv) {
    int stride = argc > 2 ? atoi(argv[1]) : 0;
    if (stride < 1) return 2;
    for (int i = 2; i < argc; i++) check_folder(argv[i], stride);
    if (repeated < (unsigned)passed) { /* two of three steps, for most jobs */
        printf("only %u micro-batches were taken from others\n", repeated);
        failed++;
    }
    if (repeated_calls < 8 * (unsigned)passed) {
        printf("only %u calls of layers were taken from others\n", repeated_calls);
        failed++;
    }
    if (kept_once < accumulated / 4 * 3) { /* pipelines are played each time, and what is refused */
        printf("only %u of %u jobs kept micro-batches once\n", kept_once, accumulated);
        failed++;
    }
    for (size_t i = 0; i < sizeof generations / sizeof *generations; i++)
        check_folded(generations[i], TIDE_TEXT("mode=infer"));
    for (size_t i = 0; i < sizeof schedules / sizeof *schedules; i++)
        check_folded(schedules[i], TIDE_TEXT("mode=train"));
    for (size_t i = 0; i < sizeof long_runs / sizeof *long_runs; i++)
        check_folded(long_runs[i], TIDE_TEXT("mode=train"));
    for (size_t i = 0; i < sizeof scans / sizeof *scans; i++) check_folded(scans[i], TIDE_TEXT("mode=train"));
    for (size_t i = 0; i < sizeof loops / sizeof *loops; i++) {
        check_loop(i, "steps=2");
        check_loop(i, "autocast=bf16");
        check_loop(i, "grad_accum=12");
    }
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        check_own(i, "");
        check_own(i, "autocast=bf16");
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
