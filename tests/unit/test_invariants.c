/* What must hold whatever the job: of two jobs that differ in one thing, which needs less.
 *
 *     test_invariants [JOBS [SEED]]     so many random jobs, each under every law */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/sources.h"
#include "training/step.h"

enum { WORD_LIMIT = 24 };

typedef struct words {
    const char *text[WORD_LIMIT];
    uint32_t count;
} words;

/* With the words `less` a job needs no more than with `more`: any job, or one of the language models. */
typedef struct law {
    const char *what, *less, *more;
    enum { ANY, TEXT } where;
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
    {"attention without its scores", "attention=sdpa", "attention=eager", TEXT},
    {"outputs dropped", "hold_outputs=false", "hold_outputs=true", ANY},
    {"gradients that are not clipped", "clip=none", "clip=1.0", ANY},
    {"gradients that are freed", "zero_grad=none", "zero_grad=zero", ANY},
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
    {"IA3 of fewer modules", "ia3.target_modules=FEW", "ia3.target_modules=all-linear", TEXT},
    {"fewer virtual tokens", "adapter=prompt prompt.num_virtual_tokens=8", "adapter=prompt prompt.num_virtual_tokens=100", TEXT},
    {"LoRA without dropout", "lora.r=8 lora.dropout=0", "lora.r=8 lora.dropout=0.1", TEXT},
    {"LoRA in place of DoRA", "lora.r=8 lora.dora=false", "lora.r=8 lora.dora=true", TEXT},
    {"nothing else saved", "lora.r=8", "lora.r=8 lora.modules_to_save=SAVED", TEXT},
    {"QLoRA", "lora.r=8 quant=nf4 kbit_prepare=false", "lora.r=8", TEXT},
    {"4 bits in place of 8", "lora.r=8 quant=nf4 kbit_prepare=false", "lora.r=8 quant=int8 kbit_prepare=false", TEXT},
    {"double quantisation", "lora.r=8 quant=nf4 quant.double=true", "lora.r=8 quant=nf4 quant.double=false", TEXT},
};

static const struct {
    const char *model, *shrink, *embedding, *last, *few, *saved;
} bases[] = {
    {"gpt2", "overrides.n_layer=5", "transformer.wte", "transformer.ln_f", "c_attn", "ln_f"},
    {"llama-3.2-1b", "overrides.num_hidden_layers=5", "model.embed_tokens", "model.norm", "q_proj,v_proj", "norm"},
    {"mistral-7b", "overrides.num_hidden_layers=3", "model.embed_tokens", "model.norm", "q_proj,v_proj", "lm_head"},
    {"qwen2-0.5b", "overrides.num_hidden_layers=6", "model.embed_tokens", "model.norm", "q_proj", "norm"},
    {"qwen3-4b", "overrides.num_hidden_layers=4", "model.embed_tokens", "model.norm", "o_proj", "lm_head"},
    {"phi-3-mini", "overrides.num_hidden_layers=4", "model.embed_tokens", "model.norm", "qkv_proj", "lm_head"},
    {"gemma-2-2b", "overrides.num_hidden_layers=4", "model.embed_tokens", "model.norm", "down_proj", "norm"},
    {"clip-vit-b-32", "dropout=0", NULL, NULL, NULL, NULL},
    {"siglip-base", "dropout=0", NULL, NULL, NULL, NULL},
};

enum { BASE_COUNT = sizeof bases / sizeof *bases, LAW_COUNT = sizeof laws / sizeof *laws };

static int passed, failed;
static uint64_t state;

static uint32_t below(uint32_t count) { /* xorshift64* */
    state ^= state >> 12, state ^= state << 25, state ^= state >> 27;
    return (uint32_t)((state * UINT64_C(2685821657736338717)) >> 33) % count;
}

#define PICK(...) ((const char *const[]){__VA_ARGS__}[below(sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))])

/* What a run needs: live bytes at the most, and what is left after each step. */
typedef struct needs {
    uint64_t peak, left[4];
} needs;

static void measure(const tide_timeline *t, needs *n) {
    uint64_t live = 0;
    for (uint32_t i = 0, mark = 0; i <= t->event_count; i++) {
        for (; mark < t->mark_count && t->marks[mark].event <= i; mark++) n->left[t->marks[mark].step & 3] = live;
        if (i == t->event_count || t->events[i] == TIDE_EMPTY_CACHE) continue;
        uint64_t bytes = (t->allocations[t->events[i] & ~TIDE_FREE_BIT].bytes + 511) / 512 * 512;
        live = t->events[i] & TIDE_FREE_BIT ? live - bytes : live + bytes;
        if (live > n->peak) n->peak = live;
    }
}

/* Zero if the job does not run. */
static needs needs_of(const words *given, const tide_source *file) {
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
    tide_file config = file ? (tide_file){TIDE_TEXT("entry.json"), {file->text, file->length}} : (tide_file){{NULL, 0}, {NULL, 0}};
    tide_job *job = tide_job_build(&arena, texts, given->count, &config, file != NULL, &diags);
    tide_run *run = TIDE_NEW(&arena, tide_run, 1);
    if (job) job->steps = 3;
    if (job && tide_run_job(run, job, &arena, &diags)) measure(&run->machine.timeline, &n);
    else
        for (uint32_t i = 0; i < diags.count; i++) printf("%s: %s\n", diags.items[i].place, diags.items[i].message);
    tide_arena_free(&arena);
    return n;
}

static void print_words(const char *title, const words *w, uint64_t peak) {
    printf("    %-5s %12llu ", title, (unsigned long long)peak);
    for (uint32_t i = 0; i < w->count; i++) printf(" %s", w->text[i]);
    puts("");
}

/* Words apart at spaces, names of the model in place of the law's. */
static words with(const words *base, uint32_t model, const char *added, char *buffer, size_t room) {
    words made = *base;
    const struct { const char *name, *text; } names[] = {{"EMBEDDING", bases[model].embedding}, {"LAST", bases[model].last}, {"FEW", bases[model].few}, {"SAVED", bases[model].saved}};
    snprintf(buffer, room, "%s", added);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *at = strstr(buffer, names[i].name);
        if (!at) continue;
        char tail[64];
        snprintf(tail, sizeof tail, "%s", at + strlen(names[i].name));
        snprintf(at, room - (size_t)(at - buffer), "%s%s", names[i].text, tail);
    }
    for (char *word = strtok(buffer, " "); word && made.count < WORD_LIMIT; word = strtok(NULL, " ")) made.text[made.count++] = word;
    return made;
}

static void check(const law *l, const words *base, uint32_t model) {
    char less_text[256], more_text[256];
    words less = with(base, model, l->less, less_text, sizeof less_text), more = with(base, model, l->more, more_text, sizeof more_text);
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

int main(int argc, char **argv) {
    int jobs = argc > 1 ? atoi(argv[1]) : 40;
    state = argc > 2 ? strtoull(argv[2], NULL, 10) : 20261121;
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
            base.text[base.count++] = PICK("attention=sdpa", "attention=sdpa", "attention=eager");
            base.text[base.count++] = PICK("padding=false", "padding=true");
        }
        base.text[base.count++] = PICK("dtype=bf16", "dtype=fp32");
        base.text[base.count++] = PICK("grad_accum=1", "grad_accum=2");
        base.text[base.count++] = PICK("clip=none", "clip=1.0");
        check_file(&base, model);
        for (uint32_t k = 0; k < LAW_COUNT; k++)
            if (laws[k].where == ANY || bases[model].embedding) check(&laws[k], &base, model);
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
