/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold whatever the job: of two jobs that differ in one thing, which needs less.
 *
 *     test_invariants [JOBS [SEED [STRIDE]]]     random jobs, each under every law, and every STRIDE-th family */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tidemark/tidemark.h>

#include "lang/lang.h"
#include "report/ranks.h"

enum { WORD_LIMIT = 24 };

typedef struct words {
    const char *text[WORD_LIMIT];
    uint32_t count;
} words;

/* With the words `less` a job needs no more than with `more`: any job, one of the language models, or one of those that
 * have sdpa. */
typedef struct law {
    const char *what, *less, *more;
    enum { ANY, TEXT, SDPA } where;
} law;

static const law laws[] = {
    {"a smaller batch", "batch=2", "batch=3", ANY},
    {"a shorter sequence", "seq=256", "seq=512", TEXT},
    {"checkpointing", "checkpointing=full", "checkpointing=none", TEXT},
    {"SGD without momentum", "optimizer=sgd", "optimizer=sgd_momentum", ANY},
    {"one state in place of two", "optimizer=sgd_momentum", "optimizer=adamw", ANY},
    {"no AMSGrad", "optimizer=adamw", "optimizer=adamw_amsgrad", ANY},
    {"states of 8 bits", "optimizer=adamw8bit", "optimizer=adamw_single", ANY},
    {"inference", "mode=infer", "optimizer=adamw", ANY},
    {"a logit of the last token alone", "mode=infer logits_to_keep=1", "mode=infer logits_to_keep=0", TEXT},
    {"fewer tokens made", "mode=infer decode=2", "mode=infer decode=40", TEXT},
    {"attention without its scores", "attention=sdpa", "attention=eager", SDPA},
    {"outputs dropped", "hold_outputs=false", "hold_outputs=true", ANY},
    {"gradients that are not clipped", "clip=none", "clip=1.0", ANY},
    {"gradients that are freed", "zero_grad=none", "zero_grad=zero", ANY},
    {"workspaces that are not kept", "gemm_workspace=transient", "gemm_workspace=kept", ANY},
    {"logits in their own type", "loss=no_upcast", "loss=default", TEXT},
    {"no average of the weights", "ema=none", "ema=swa_utils", ANY},
    {"gradients in the type of the weights", "dtype=bf16 main_grads=none", "dtype=bf16 main_grads=fp32", ANY},
    {"gradients freed after the step", "zero_grad_at=after_step", "zero_grad_at=before_forward", ANY},
    {"gradients freed before forward", "zero_grad_at=before_forward", "zero_grad_at=before_backward", ANY},
    {"half the precision", "dtype=bf16", "dtype=fp32", ANY},
    {"freezing an embedding", "freeze=EMBEDDING", "", TEXT},
    {"freezing everything but a head or a norm", "train_only=LAST", "freeze=EMBEDDING", TEXT},
    {"LoRA", "adapter=lora lora.r=4", "", TEXT},
    {"LoRA over checkpoints", "lora.r=4 checkpointing=full", "lora.r=4", TEXT},
    {"LoRA of fewer modules", "lora.r=8 lora.target_modules=FEW", "lora.r=8", TEXT},
    {"LoRA of a lower rank", "lora.r=4", "lora.r=32", TEXT},
    {"inference over 4 bits", "mode=infer quant=nf4", "mode=infer", TEXT},
    {"inference of packed weights", "mode=infer quant=gptq", "mode=infer quant=fp8", TEXT},
    {"a fused optimizer", "optimizer=sgd_fused", "optimizer=sgd_momentum", ANY},
    {"schedule-free SGD", "optimizer=sgd_schedulefree", "optimizer=adamw_schedulefree", ANY},
    {"freezing more", "freeze=EMBEDDING,LAST", "freeze=EMBEDDING", TEXT},
    {"IA3 of fewer modules", "ia3.target_modules=FEW ia3.feedforward_modules=none",
     "ia3.target_modules=all-linear ia3.feedforward_modules=none", TEXT},
    {"fewer virtual tokens", "adapter=prompt prompt.num_virtual_tokens=8",
     "adapter=prompt prompt.num_virtual_tokens=100", TEXT},
    {"LoRA without dropout", "lora.r=8 lora.dropout=0", "lora.r=8 lora.dropout=0.1", TEXT},
    {"LoRA in place of DoRA", "lora.r=8 lora.dora=false", "lora.r=8 lora.dora=true", TEXT},
    {"nothing else saved", "lora.r=8", "lora.r=8 lora.modules_to_save=SAVED", TEXT},
    {"QLoRA", "lora.r=8 quant=nf4 kbit_prepare=false", "lora.r=8", TEXT},
    {"4 bits in place of 8", "lora.r=8 quant=nf4 kbit_prepare=false", "lora.r=8 quant=int8 kbit_prepare=false", TEXT},
    {"double quantisation", "lora.r=8 quant=nf4 quant.double=true", "lora.r=8 quant=nf4 quant.double=false", TEXT},
};

static const struct {
    const char *model, *shrink, *embedding, *last, *few, *saved, *attention; /* that transformers chooses */
} bases[] = {
    {"gpt2", "overrides.n_layer=5", "transformer.wte", "transformer.ln_f", "c_attn", "ln_f", "sdpa"},
    {"llama-3.2-1b", "overrides.num_hidden_layers=5", "model.embed_tokens", "model.norm", "q_proj,v_proj", "norm",
     "sdpa"},
    {"mistral-7b", "overrides.num_hidden_layers=3", "model.embed_tokens", "model.norm", "q_proj,v_proj", "lm_head",
     "sdpa"},
    {"qwen2-0.5b", "overrides.num_hidden_layers=6", "model.embed_tokens", "model.norm", "q_proj", "norm", "sdpa"},
    {"qwen3-4b", "overrides.num_hidden_layers=4", "model.embed_tokens", "model.norm", "o_proj", "lm_head", "sdpa"},
    {"phi-3-mini", "overrides.num_hidden_layers=4", "model.embed_tokens", "model.norm", "qkv_proj", "lm_head", "sdpa"},
    {"gemma-2-2b", "overrides.num_hidden_layers=4", "model.embed_tokens", "model.norm", "down_proj", "norm", "eager"},
    {"clip-vit-b-32", "dropout=0", NULL, NULL, NULL, NULL, NULL},
    {"siglip-base", "dropout=0", NULL, NULL, NULL, NULL, NULL},
};

static bool has_sdpa(uint32_t model) {
    return bases[model].attention && strcmp(bases[model].attention, "sdpa") == 0;
}

static bool holds_for(const law *l, uint32_t model) {
    return l->where == ANY || (l->where == TEXT && bases[model].embedding) || (l->where == SDPA && has_sdpa(model));
}

enum { BASE_COUNT = sizeof bases / sizeof *bases, LAW_COUNT = sizeof laws / sizeof *laws };

static int passed, failed;
static uint64_t state;

static uint32_t below(uint32_t count) { /* xorshift64* */
    state ^= state >> 12, state ^= state << 25, state ^= state >> 27;
    return (uint32_t)((state * UINT64_C(2685821657736338717)) >> 33) % count;
}

#define PICK(...)                                                                                                      \
    ((const char *const[]){__VA_ARGS__}[below(sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))])

/* What a run needs: live bytes at the most, in forward and backward passes alone as well, at the end of a forward pass,
 * and what is left after each step. */
typedef struct needs {
    uint64_t peak, passes, kept, left[4];
} needs;

static void measure(const tide_timeline *t, needs *n) {
    uint64_t live = 0, most = 0; /* since the last mark */
    for (uint32_t i = 0, mark = 0; i <= t->event_count; i++) {
        for (; mark < t->mark_count && t->marks[mark].event <= i; mark++) {
            bool is_pass = t->marks[mark].phase == TIDE_PHASE_FORWARD || t->marks[mark].phase == TIDE_PHASE_BACKWARD;
            if (is_pass && most > n->passes) n->passes = most;
            if (t->marks[mark].phase == TIDE_PHASE_FORWARD && live > n->kept) n->kept = live;
            n->left[t->marks[mark].step & 3] = most = live;
        }
        if (i == t->event_count || t->events[i] == TIDE_EMPTY_CACHE) continue;
        uint64_t bytes = (tide_timeline_at(t, t->events[i] & ~TIDE_FREE_BIT)->bytes + 511) / 512 * 512;
        live = t->events[i] & TIDE_FREE_BIT ? live - bytes : live + bytes;
        if (live > n->peak) n->peak = live;
        if (live > most) most = live;
    }
}

/* Zero if the job does not run. */
static needs needs_said(const words *given, const tide_source *file, bool says) {
    jmp_buf escape;
    tide_arena arena;
    tide_text texts[WORD_LIMIT];
    needs n = {0};
    tide_arena_init(&arena, tide_default_allocator(), &escape);
    if (setjmp(escape)) {
        puts("no memory");
        exit(3);
    }
    tide_diagnostics diags;
    tide_diagnostics_init(&diags, &arena);
    for (uint32_t i = 0; i < given->count; i++) texts[i] = tide_text_of(given->text[i]);
    tide_file config =
        file ? (tide_file){TIDE_TEXT("entry.json"), {file->text, file->length}} : (tide_file){{NULL, 0}, {NULL, 0}};
    tide_job *job = tide_job_build(&arena, texts, given->count, &config, file != NULL, &diags);
    tide_run *run = TIDE_NEW(&arena, tide_run, 1);
    run->frameworks = &tide_frameworks_of_jobs;
    if (job) job->steps = 3;
    if (job && tide_run_job(run, job, &arena, &diags))
        measure(&run->machine.timeline, &n);
    else
        for (uint32_t i = 0; i < diags.count && says; i++)
            printf("%s: %s\n", diags.items[i].place, diags.items[i].message);
    tide_arena_free(&arena);
    return n;
}

static needs needs_of(const words *given, const tide_source *file) {
    return needs_said(given, file, true);
}

/* False if the job does not run. */
static bool needs_quietly(const words *given, needs *n) {
    *n = needs_said(given, NULL, false);
    return n->peak != 0;
}

static void print_words(const char *title, const words *w, uint64_t peak) {
    printf("    %-5s %12llu ", title, (unsigned long long)peak);
    for (uint32_t i = 0; i < w->count; i++) printf(" %s", w->text[i]);
    puts("");
}

/* Words apart at spaces, names of the model in place of the law's. */
static words with(const words *base, uint32_t model, const char *added, char *buffer, size_t room) {
    words made = *base;
    const struct {
        const char *name, *text;
    } names[] = {{"EMBEDDING", bases[model].embedding},
                 {"LAST", bases[model].last},
                 {"FEW", bases[model].few},
                 {"SAVED", bases[model].saved}};
    snprintf(buffer, room, "%s", added);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *at = strstr(buffer, names[i].name);
        if (!at) continue;
        char tail[64];
        snprintf(tail, sizeof tail, "%s", at + strlen(names[i].name));
        snprintf(at, room - (size_t)(at - buffer), "%s%s", names[i].text, tail);
    }
    for (char *word = strtok(buffer, " "); word && made.count < WORD_LIMIT; word = strtok(NULL, " "))
        made.text[made.count++] = word;
    return made;
}

static void check(const law *l, const words *base, uint32_t model) {
    char less_text[256], more_text[256];
    words less = with(base, model, l->less, less_text, sizeof less_text),
          more = with(base, model, l->more, more_text, sizeof more_text);
    needs x = needs_of(&less, NULL), y = needs_of(&more, NULL);
    bool is_steady = x.left[2] == x.left[3];
    if (x.peak && x.peak <= y.peak && is_steady) {
        passed++;
        return;
    }
    printf("FAIL %s%s\n", l->what, is_steady ? "" : ": the third step leaves more than the second");
    print_words("less", &less, x.peak);
    print_words("more", &more, y.peak);
    failed++;
}

/* The entry of the catalogue given as a file needs what its name does. */
static void check_file(const words *base, uint32_t model) {
    const tide_source *source = NULL;
    words unnamed = *base;
    for (uint32_t i = 0; i < tide_catalogue_source_count; i++)
        if (strcmp(tide_catalogue_sources[i].name, bases[model].model) == 0) source = &tide_catalogue_sources[i];
    unnamed.count--;
    memmove(unnamed.text, base->text + 1, unnamed.count * sizeof *unnamed.text); /* without model=NAME */
    needs x = needs_of(base, NULL), y = source ? needs_of(&unnamed, source) : (needs){0};
    if (x.peak && memcmp(&x, &y, sizeof x) == 0) {
        passed++;
        return;
    }
    puts("FAIL a file of the configuration and its entry in the catalogue agree");
    print_words("name", base, x.peak);
    print_words("file", &unnamed, y.peak);
    failed++;
}

/* ---- laws over every family ---- */

/* One entry of the catalogue for each model_type, cut to a few layers. */
typedef struct family {
    const tide_source *source;
    char words[8][96];
    uint32_t word_count;
    bool has_tokens;
    char first[96], second[96]; /* beginnings of parameters' names */
} family;

/* overrides.PATH=[...]: the types of the first three layers. */
static void cut_types(family *f, const tide_json *types, const char *path) {
    if (f->word_count == 8 || types->count < 3) return;
    char *word = f->words[f->word_count++];
    size_t room = sizeof *f->words, length = (size_t)snprintf(word, room, "%s=[", path);
    const tide_json *type = types->first;
    for (uint32_t i = 0; i < 3; i++, type = type->next)
        length += (size_t)snprintf(word + length, room - length, "\"%s\"%s", type->text.at, i < 2 ? "," : "]");
}

/* overrides.PATH=3 for every number of layers. */
static void cut_layers(family *f, const tide_json *config, const char *path) {
    static const char *const keys[] = {"n_layer",           "n_layers",       "num_layers",     "num_decoder_layers",
                                       "num_hidden_layers", "encoder_layers", "decoder_layers", "depth"};
    static const char *const lists[][2] = {{"intermediate_layers_indices", "[0,1,2,0,1]"},
                                           {"cross_attention_layers", "[1]"}, /* of those that are left */
                                           {"attention_types", "[[[\"global\",\"local\",\"global\"],1]]"},
                                           {"attention_layers", "[\"global\",\"local\",\"global\"]"},
                                           {"activation_sparsity_pattern", "[0.95,0,0]"},
                                           {"kda_layers", "[1,2]"},
                                           {"full_attn_layers", "[3]"},
                                           {"num_kv_shared_layers", "0"}};
    for (const tide_json *entry = config->first; entry; entry = entry->next) {
        char name[64];
        snprintf(name, sizeof name, "%s.%s", path, entry->key.at);
        if (entry->kind == TIDE_JSON_OBJECT) cut_layers(f, entry, name);
        if (tide_text_is(entry->key, "vocab_size")) f->has_tokens = true;
        if (tide_text_matches(entry->key, TIDE_TEXT("*layer_types"))) cut_types(f, entry, name);
        for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
            if (tide_text_is(entry->key, lists[i][0]) && f->word_count < 8)
                snprintf(f->words[f->word_count++], sizeof *f->words, "%s=%s", name, lists[i][1]);
        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
            if (tide_text_is(entry->key, keys[i]) && entry->is_integer && entry->integer > 3 && f->word_count < 8)
                snprintf(f->words[f->word_count++], sizeof *f->words, "%s=3", name);
    }
}

/* The name of a parameter up to its last dot. */
static void name_module(char *to, size_t room, const char *name) {
    const char *dot = strrchr(name, '.');
    snprintf(to, room, "%.*s", dot ? (int)(dot - name) : (int)strlen(name), name);
}

static words words_of(const family *f, const char *const *more, uint32_t count) {
    words w = {.count = 0};
    for (uint32_t i = 0; i < f->word_count; i++) w.text[w.count++] = f->words[i];
    for (uint32_t i = 0; i < count; i++)
        if (more[i] && w.count < WORD_LIMIT) w.text[w.count++] = more[i];
    return w;
}

/* What the allocator has allocated at the most, and whether the answer warns that this is more than another job would
 * need; 0: it does not run. */
static uint64_t estimate(const words *w, bool *warns) {
    char request[4096] = "{\"call\":\"estimate\",\"settings\":[";
    for (uint32_t i = 0; i < w->count; i++) {
        strncat(request, i ? ",\"" : "\"", sizeof request - strlen(request) - 1);
        for (const char *at = w->text[i]; *at; at++) {
            const char letter[3] = {*at == '"' ? '\\' : *at, *at == '"' ? *at : 0};
            strncat(request, letter, sizeof request - strlen(request) - 1);
        }
        strncat(request, "\"", sizeof request - strlen(request) - 1);
    }
    strncat(request, "]}", sizeof request - strlen(request) - 1);
    char *answer = NULL;
    size_t length = 0;
    tide_call(request, strlen(request), NULL, &answer, &length);
    static const char peak[] = "\"peak\":{\"allocated\":"; /* the most of any step, or of loading */
    const char *at = answer ? strstr(answer, peak) : NULL;
    uint64_t bytes = at ? strtoull(at + sizeof peak - 1, NULL, 10) : 0;
    *warns = answer && strstr(answer, "needs more than");
    tide_free(NULL, answer, length);
    return bytes;
}

static void expect(bool is_so, const char *what, const words *less, uint64_t x, const words *more, uint64_t y) {
    if (is_so) {
        passed++;
        return;
    }
    printf("FAIL %s\n", what);
    print_words("less", less, x);
    print_words("more", more, y);
    failed++;
}

static void compare(const char *what, const words *a, const words *b) {
    needs x = needs_of(a, NULL), y = needs_of(b, NULL);
    expect(x.peak && x.peak <= y.peak, what, a, x.peak, b, y.peak);
}

/* a needs no more than b, or the answer warns; it warns of nothing else. */
static void compare_or_warns(const char *what, const words *a, const words *b) {
    bool warned, ignored;
    uint64_t x = estimate(a, &warned), y = estimate(b, &ignored);
    expect(x && y && warned == (x > y), what, a, x, b, y);
}

static bool find_names(family *f) {
    jmp_buf escape;
    tide_arena arena;
    tide_arena_init(&arena, tide_default_allocator(), &escape);
    if (setjmp(escape)) exit(3);
    tide_diagnostics diags;
    tide_diagnostics_init(&diags, &arena);
    tide_text texts[WORD_LIMIT];
    for (uint32_t i = 0; i < f->word_count; i++) texts[i] = tide_text_of(f->words[i]);
    tide_job *job = tide_job_build(&arena, texts, f->word_count, NULL, 0, &diags);
    tide_run *run = TIDE_NEW(&arena, tide_run, 1);
    run->frameworks = &tide_frameworks_of_jobs;
    bool ok = job && tide_run_job(run, job, &arena, &diags) && run->model.parameter_count > 1;
    if (ok) {
        name_module(f->first, sizeof f->first, run->model.parameters[below(run->model.parameter_count)].name);
        name_module(f->second, sizeof f->second, run->model.parameters[below(run->model.parameter_count)].name);
    }
    tide_arena_free(&arena);
    return ok;
}

static void check_family(family *f, uint32_t round) {
    char frozen[128], more_frozen[240];
    if (!find_names(f)) {
        printf("FAIL %s, cut to three layers, does not run\n", f->source->name);
        failed++;
        return;
    }
    snprintf(frozen, sizeof frozen, "freeze=%s", f->first);
    snprintf(more_frozen, sizeof more_frozen, "freeze=%s,%s", f->first, f->second);
    const char *base[] = {
        f->has_tokens && round % 2 ? "padding=true" : NULL,
        PICK("dtype=bf16", "dtype=fp32", "dtype=fp16"),
        PICK("autocast=none", "autocast=bf16"),
        PICK("optimizer=adamw", "optimizer=adamw", "optimizer=sgd", "optimizer=adamw8bit", "optimizer=adafactor"),
        PICK("grad_accum=1", "grad_accum=2"),
        PICK("clip=none", "clip=1.0"),
        PICK("batch=1", "batch=2"),
        NULL,
        NULL,
        NULL,
        NULL,
        NULL};
    enum { BASE = 7, FREE = 5, MORE = BASE + FREE };
    words plain = words_of(f, base, MORE), with = plain;
#define WITH(...)                                                                                                      \
    (memcpy(&base[BASE], (const char *const[FREE]){__VA_ARGS__}, FREE * sizeof *base), words_of(f, base, MORE))
    with = WITH(strcmp(base[6], "batch=1") == 0 ? "batch=2" : "batch=3");
    needs x = needs_of(&plain, NULL), y = needs_of(&with, NULL);
    expect(x.passes && x.passes < y.passes, "a larger micro-batch needs more", &plain, x.passes, &with, y.passes);
    with = WITH(frozen);
    words both = WITH(more_frozen);
    if (strcmp(base[3], "optimizer=adafactor") !=
        0) { /* which keeps of one group of parameters while it does the next: recorded */
        compare("freezing", &with, &plain);
        compare("freezing more", &both, &with);
    }
    with = WITH("checkpointing=full"); /* the peak may be in one layer's backward pass, which takes as much */
    if (needs_quietly(&with, &y))
        expect(y.kept < x.kept, "checkpointing keeps less of a forward pass", &with, y.kept, &plain, x.kept);
    with = WITH("checkpointing=full_reentrant");
    if (needs_quietly(&with, &y))
        expect(y.kept < x.kept, "reentrant checkpointing keeps less", &with, y.kept, &plain, x.kept);
    with = WITH("adapter=lora", PICK("lora.r=4", "lora.r=64"));
    if (!needs_quietly(&with, &y)) return; /* no linear layer, or experts */
    compare_or_warns("LoRA, or a warning", &with, &plain);
    both = WITH("adapter=lora", with.text[with.count - 1], PICK("quant=nf4", "quant=int8"));
    if (needs_quietly(&both, &y)) compare_or_warns("QLoRA, or a warning", &both, &with);
    const char *kind = PICK("parallel.kind=ddp", "parallel.kind=zero2", "parallel.kind=zero3", "parallel.kind=fsdp1");
    with = WITH("adapter=lora", with.text[with.count - 1], kind, "parallel.dp=2");
    both = WITH("adapter=lora", with.text[with.count - 3], kind, "parallel.dp=2", "quant=nf4");
    if (needs_quietly(&both, &y) && needs_quietly(&with, &y))
        compare_or_warns("QLoRA of a rank, or a warning", &both, &with);
    both = WITH(kind, "parallel.dp=2");
    if (needs_quietly(&both, &y) && needs_quietly(&with, &y))
        compare_or_warns("LoRA of a rank, or a warning", &with, &both);
#undef WITH
}

/* Its model_type in `type`; false if it has none. */
static bool read_family(family *f, const tide_source *source, char *type, size_t room) {
    jmp_buf escape;
    tide_arena arena;
    tide_arena_init(&arena, tide_default_allocator(), &escape);
    if (setjmp(escape)) exit(3);
    tide_diagnostics diags;
    tide_diagnostics_init(&diags, &arena);
    *f = (family){.source = source, .word_count = 1};
    snprintf(f->words[0], sizeof *f->words, "model=%s", source->name);
    const tide_json *config =
        tide_json_at(tide_json_parse(&arena, (tide_text){source->text, source->length}, "", &diags), "config");
    const tide_json *kind = config ? tide_config_type(config) : NULL;
    if (kind) cut_layers(f, config, "overrides");
    snprintf(type, room, "%s", kind ? kind->text.at : "");
    tide_arena_free(&arena);
    return kind != NULL;
}

/* Every `stride`-th family, `rounds` times. */
static void check_families(uint32_t rounds, uint32_t stride) {
    static char seen[128][48];
    uint32_t count = 0;
    for (uint32_t i = 0; i < tide_catalogue_source_count && count < sizeof seen / sizeof *seen; i++) {
        family f;
        uint32_t known = 0;
        if (!read_family(&f, &tide_catalogue_sources[i], seen[count], sizeof *seen)) continue;
        while (strcmp(seen[known], seen[count]) != 0) known++;
        if (known < count) continue;
        for (uint32_t round = 0; round < rounds && count % stride == 0; round++) check_family(&f, round + count);
        count++;
    }
}

int main(int argc, char **argv) {
    int jobs = argc > 1 ? atoi(argv[1]) : 40;
    state = argc > 2 ? strtoull(argv[2], NULL, 10) : 20261121;
    check_families(1 + (uint32_t)jobs / 100, argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) : 1);
    for (int i = 0; i < jobs; i++) {
        uint32_t model = (uint32_t)i % BASE_COUNT;
        words base = {.count = 0};
        char name[64];
        snprintf(name, sizeof name, "model=%s", bases[model].model);
        base.text[base.count++] = name;
        base.text[base.count++] = bases[model].shrink;
        base.text[base.count++] = PICK("batch=1", "batch=2", "batch=4");
        if (bases[model].embedding) {
            base.text[base.count++] = PICK("seq=128", "seq=384", "seq=1000");
            const char *attention = PICK("attention=sdpa", "attention=sdpa", "attention=eager");
            base.text[base.count++] = has_sdpa(model) ? attention : "attention=eager";
            base.text[base.count++] = PICK("padding=false", "padding=true");
        }
        base.text[base.count++] = PICK("dtype=bf16", "dtype=fp32");
        base.text[base.count++] = PICK("grad_accum=1", "grad_accum=2");
        base.text[base.count++] = PICK("clip=none", "clip=1.0");
        check_file(&base, model);
        for (uint32_t k = 0; k < LAW_COUNT; k++)
            if (holds_for(&laws[k], model)) check(&laws[k], &base, model);
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
