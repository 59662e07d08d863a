/* SPDX-License-Identifier: Apache-2.0 */
/* Every built-in description, read whole and checked: functions and modules are otherwise read when they are first
 * used. And the language: what descriptions that extend others come to, and how mistakes in them are answered.
 *
 * A failure points to core/src/lang/ (inherit.c, unused.c), train/lint.c, or the description that it names. */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tidemark/tidemark.h>

#include "base/json_write.h"
#include "base/units.h"
#include "lang/lang.h"

static int passed, failed;

/* ---- built-in ones ---- */

static tide_source find(void *user, tide_text name) {
    (void)user;
    for (uint32_t i = 0; i < tide_architecture_source_count; i++)
        if (tide_text_is(name, tide_architecture_sources[i].name)) return tide_architecture_sources[i];
    return (tide_source){.text = NULL};
}

static bool read_whole(tide_arena *arena, const char *name) {
    tide_diagnostics diags;
    tide_descriptions set;
    tide_diagnostics_init(&diags, arena);
    tide_descriptions_init(&set, arena, &diags, find, NULL);
    bool ok = true;
    for (uint32_t i = 0; i < tide_architecture_source_count; i++) /* what modules extend may be in the library */
        if (tide_text_starts(tide_text_of(tide_architecture_sources[i].name), TIDE_TEXT("library/")))
            ok = ok && tide_description_load(&set, tide_text_of(tide_architecture_sources[i].name));
    tide_description *d = ok ? tide_description_load(&set, tide_text_of(name)) : NULL;
    ok = d && tide_description_read(&set, d) && tide_description_all_used(&set, d) && diags.count == 0;
    for (uint32_t i = 0; i < diags.count; i++)
        printf("FAIL %s: %s: %s\n", name, diags.items[i].place, diags.items[i].message);
    return ok;
}

static bool reads(const char *name) {
    jmp_buf escape;
    tide_arena arena;
    tide_arena_init(&arena, tide_default_allocator(), &escape);
    bool ok = setjmp(escape) == 0 && read_whole(&arena, name);
    tide_arena_free(&arena);
    return ok;
}

/* ---- requests ---- */

typedef struct reply {
    char *text;
    size_t length;
} reply;

static reply call_of(tide_arena *arena, const tide_writer *w) {
    char *text = NULL;
    size_t length = 0;
    tide_call(w->bytes, w->length, NULL, &text, &length);
    reply made = {tide_text_copy(arena, (tide_text){text, length}), length};
    tide_free(NULL, text, length);
    return made;
}

/* What `describe --check` finds. */
static reply check(tide_arena *arena, tide_text description) {
    tide_writer w;
    tide_writer_init(&w, arena);
    tide_write_open(&w, '{');
    tide_write_string_at(&w, "call", "describe");
    tide_write_key(&w, "check");
    tide_write_text(&w, description);
    tide_write_close(&w, '}');
    return call_of(arena, &w);
}

static void write_file(tide_writer *w, const char *name, const char *text) {
    tide_write_open(w, '{');
    tide_write_string_at(w, "name", name);
    tide_write_string_at(w, "text", text);
    tide_write_close(w, '}');
}

/* A training step of a small llama whose model_type is "tested". */
static reply estimate(tide_arena *arena, const char *description) {
    tide_writer w;
    tide_writer_init(&w, arena);
    tide_write_open(&w, '{');
    tide_write_string_at(&w, "call", "estimate");
    tide_write_open_at(&w, "settings", '[');
    tide_write_string(&w, "steps=1");
    tide_write_close(&w, ']');
    tide_write_open_at(&w, "files", '[');
    write_file(&w, "config.json",
               "{\"model_type\":\"tested\",\"architectures\":[\"TestedForCausalLM\"],\"hidden_size\":64,"
               "\"intermediate_size\":128,\"num_attention_heads\":4,\"num_key_value_heads\":2,"
               "\"num_hidden_layers\":2,\"vocab_size\":256,\"hidden_act\":\"silu\"}");
    write_file(&w, "tested.json", description);
    tide_write_close(&w, ']');
    tide_write_close(&w, '}');
    return call_of(arena, &w);
}

static void tell(bool ok, const char *name, const char *wanted, const reply *got) {
    if (!ok)
        printf("FAIL %s: wanted %s\n     %.*s\n", name, wanted, (int)(got->length < 600 ? got->length : 600),
               got->text);
    ok ? passed++ : failed++;
}

/* ---- the language ---- */

#define TESTED(extends, more)                                                                                          \
    "{\"tidemark\":1,\"architecture\":\"tested\",\"extends\":" extends ",\"model_type\":{\"tested\":\"LlamaModel\"},"  \
    "\"roots\":{\"Tested\":[\"ForCausalLM\"]}" more "}"
#define MODULES(modules) TESTED("\"llama\"", ",\"modules\":{" modules "}")
#define MLP(name, members, forward) "\"" name "\":{" members "\"forward(x)\":[" forward "]}"
#define LAYER(members) "\"DecoderLayer\":{\"@extends\":\"DecoderLayer\",\"mlp\":\"Plain()\"" members "}"
#define UP "\"up_proj\":\"Linear(hidden, inner, bias=false)\","
#define DOWN "\"down_proj\":\"Linear(inner, hidden, bias=false)\","
#define RUN "\"x = up_proj(x)\",\"return down_proj(silu(x))\""
#define ATTENTION "\"@extends\":\"Attention\""
#define FORWARD(statements)                                                                                            \
    "\"forward(hidden_states, position_embeddings, attention_mask, position_ids, past, slides)\":[" statements "]"
#define BEGIN                                                                                                          \
    "\"residual = hidden_states\",\"hidden_states = input_layernorm(hidden_states)\","                                 \
    "\"hidden_states, weights = self_attn(hidden_states, position_embeddings, attention_mask, position_ids, past, "    \
    "slides)\","
#define REST                                                                                                           \
    "\"hidden_states = residual + hidden_states\",\"residual = hidden_states\","                                       \
    "\"hidden_states = post_attention_layernorm(hidden_states)\",\"hidden_states = mlp(hidden_states)\","              \
    "\"hidden_states = residual + hidden_states\",\"return hidden_states\""

/* Two ways of writing one model: the same answer. */
static const struct {
    const char *name, *brief, *whole;
} alike[] = {
    {"roots by prefix", MODULES(""),
     "{\"tidemark\":1,\"architecture\":\"tested\",\"extends\":\"llama\",\"model_type\":{\"tested\":\"LlamaModel\"},"
     "\"roots\":{\"TestedForCausalLM\":\"ForCausalLM\"}}"},
    {"an inherited signature",
     MODULES(LAYER("") "," MLP("Plain", UP DOWN, RUN) ",\"ForCausalLM\":{\"@extends\":\"ForCausalLM\"}"),
     MODULES(LAYER("") ",\"Old\":{" UP DOWN "\"forward(x)\":[\"return x\"]},"
                       "\"Plain\":{\"@extends\":\"Old\",\"forward\":[" RUN "]}")},
    {"a member that is none is the identity when it is called",
     MODULES(LAYER("") "," MLP("Plain", UP "\"norm\":\"none\"," DOWN,
                               "\"x = norm(up_proj(x))\",\"return down_proj(silu(x))\"")),
     MODULES(LAYER("") "," MLP("Plain", UP DOWN, RUN))},
    {"a size that is a module",
     TESTED("\"llama\"", ",\"sizes\":{\"norm_class\":\"GemmaRMSNorm\"},\"modules\":{\"DecoderLayer\":{"
                         "\"@extends\":\"DecoderLayer\",\"input_layernorm\":\"norm_class(hidden)\"}}"),
     MODULES("\"DecoderLayer\":{\"@extends\":\"DecoderLayer\",\"input_layernorm\":\"GemmaRMSNorm(hidden)\"}")},
    {"a statement after another, and a member that is new",
     MODULES("\"DecoderLayer\":{\"@extends\":\"DecoderLayer\",\"+post_norm\":\"RMSNorm(hidden)\",\"forward\":{"
             "\"after hidden_states, weights =\":[\"hidden_states = post_norm(hidden_states)\"]}}"),
     MODULES("\"DecoderLayer\":{\"@extends\":\"DecoderLayer\",\"+post_norm\":\"RMSNorm(hidden)\"," FORWARD(
         BEGIN "\"hidden_states = post_norm(hidden_states)\"," REST) "}")},
    {"a statement before another",
     MODULES("\"DecoderLayer\":{\"@extends\":\"DecoderLayer\",\"forward\":{"
             "\"before return\":[\"hidden_states = hidden_states * 2\"]}}"),
     MODULES("\"DecoderLayer\":{\"@extends\":\"DecoderLayer\",\"forward\":{"
             "\"replace return\":[\"hidden_states = hidden_states * 2\",\"return hidden_states\"]}}")},
    {"a statement with its block replaced, a parameter more",
     MODULES("\"Attention\":{" ATTENTION ",\"forward(hidden_states, position_embeddings, attention_mask, position_ids, "
             "past, slides, more=none)\":{\"replace if past != none:\":[]}}"),
     MODULES("\"Attention\":{" ATTENTION ",\"forward\":{\"replace if past != none:\":[]}}")},
    {"statements from one to another replaced, and one behind another of those that are alike",
     MODULES("\"DecoderLayer\":{\"@extends\":\"DecoderLayer\",\"forward\":{"
             "\"replace hidden_states = post_attention_layernorm( ... hidden_states = mlp(\":["
             "\"hidden_states = mlp(post_attention_layernorm(hidden_states))\"],"
             "\"before hidden_states, weights = ... residual =\":[\"hidden_states = hidden_states * 2\"],"
             "\"after hidden_states = mlp( ... hidden_states = residual\":[\"hidden_states = hidden_states * 3\"]}}"),
     MODULES("\"DecoderLayer\":{\"@extends\":\"DecoderLayer\"," FORWARD(
         BEGIN "\"hidden_states = residual + hidden_states\",\"hidden_states = hidden_states * 2\","
               "\"residual = hidden_states\",\"hidden_states = mlp(post_attention_layernorm(hidden_states))\","
               "\"hidden_states = residual + hidden_states\",\"hidden_states = hidden_states * 3\","
               "\"return hidden_states\"") "}")},
    {"a module that is removed from another",
     MODULES("\"DecoderLayer\":{\"@extends\":\"DecoderLayer\",\"post_attention_layernorm\":null,\"forward\":{"
             "\"replace hidden_states = post_attention_layernorm\":[]}}"),
     MODULES("\"DecoderLayer\":{\"@extends\":\"DecoderLayer\",\"post_attention_layernorm\":\"none\"}")},
    {"an inherited member under another name, which statements that are changed have too",
     TESTED("\"llama\"", ",\"renames\":{\"mlp\":\"feed_forward\"},\"modules\":{\"DecoderLayer\":{"
                         "\"@extends\":\"DecoderLayer\",\"forward\":{"
                         "\"after hidden_states = feed_forward(\":[\"hidden_states = hidden_states * 2\"]}}}"),
     MODULES("\"DecoderLayer\":{\"@extends\":\"DecoderLayer\",\"forward\":{"
             "\"after hidden_states = mlp(\":[\"hidden_states = hidden_states * 2\"]}}")},
    {"several parents: the first goes before the second", TESTED("[\"gemma\",\"qwen3\"]", ""),
     TESTED("\"gemma\"",
            ",\"modules\":{\"Attention\":{" ATTENTION
            ",\"+q_norm\":\"RMSNorm(head_dim)\",\"+k_norm\":\"RMSNorm(head_dim)\",\"forward\":{"
            "\"replace query_states =\":[\"query_states = q_norm(q_proj(hidden_states).view(input_shape, -1,"
            " head_dim)).transpose(1, 2)\"],"
            "\"replace key_states =\":[\"key_states = k_norm(k_proj(hidden_states).view(input_shape, -1, "
            "head_dim)).transpose(1, 2)\"]}}}")},
};

/* Where a peak and the number of parameters stand in an answer; what follows names lines of the description. */
static bool is_same(const reply *a, const reply *b) {
    static const char *const keys[] = {"\"parameters\":", "\"peak\":", "\"reserved\":"};
    for (size_t i = 0; i < TIDE_COUNT_OF(keys); i++) {
        const char *x = strstr(a->text, keys[i]), *y = strstr(b->text, keys[i]);
        if (!x || !y || strncmp(x, y, strcspn(x, "}")) != 0) return false;
    }
    return strstr(a->text, "\"ok\":true") && strstr(b->text, "\"ok\":true");
}

/* ---- mistakes ---- */

static const struct {
    const char *name, *text, *word;
} mistakes[] = {
    {"a misspelt member", MODULES("\"Attention\":{" ATTENTION ",\"o_prj\":\"Linear(hidden, hidden)\"}"),
     "has no 'o_prj'; what is new is written '+o_prj'; did you mean \\\"o_proj\\\"?"},
    {"a new member that is there", MODULES("\"Attention\":{" ATTENTION ",\"+o_proj\":\"Linear(hidden, hidden)\"}"),
     "has 'o_proj' already"},
    {"a statement that is not there",
     MODULES("\"Attention\":{" ATTENTION ",\"forward\":{\"after quary_states =\":[\"x = 1\"]}}"),
     "begins with 'quary_states ='; did you mean \\\"query_states"},
    {"two such statements",
     MODULES("\"DecoderLayer\":{\"@extends\":\"DecoderLayer\",\"forward\":{\"after residual =\":[]}}"),
     "more than one statement of the inherited function begins with 'residual ='"},
    {"a range without its end",
     MODULES("\"Attention\":{" ATTENTION ",\"forward\":{\"replace cos, sin = ... sin =\":[]}}"),
     "no statement of the inherited function begins with 'cos, sin = ... sin ='"},
    {"a range that ends before it begins",
     MODULES("\"Attention\":{" ATTENTION ",\"forward\":{\"replace return ... cos, sin\":[]}}"), "no statement of"},
    {"a range of nothing", MODULES("\"Attention\":{" ATTENTION ",\"forward\":{\"replace  ... \":[]}}"), "statement"},
    {"an empty statement", MODULES("\"Attention\":{" ATTENTION ",\"forward\":{\"after \":[]}}"), "no statement of"},
    {"a change without a verb", MODULES("\"Attention\":{" ATTENTION ",\"forward\":{\"cos, sin =\":[]}}"),
     "a change is"},
    {"a change that is no array", MODULES("\"Attention\":{" ATTENTION ",\"forward\":{\"after cos, sin =\":\"x\"}}"),
     "a change is"},
    {"a function that is not inherited", MODULES("\"Attention\":{" ATTENTION ",\"o_proj\":{\"after x\":[]}}"),
     "a member is an expression"},
    {"a module that extends itself in a circle",
     MODULES("\"A\":{\"@extends\":\"B\"},\"B\":{\"@extends\":\"A\"},\"DecoderLayer\":{\"@extends\":\"A\"}"),
     "at most 8 extend one another"},
    {"a module that extends none", MODULES("\"A\":{\"@extends\":\"Atention\"}"), "names a module of this description"},
    {"a module nobody uses", MODULES("\"Plain\":{\"@extends\":\"GatedMLP\"}"), "nothing uses the module 'Plain'"},
    {"a size nobody reads", TESTED("\"llama\"", ",\"sizes\":{\"hiden\":\"hidden_size\"}"),
     "nothing reads the size 'hiden'"},
    {"a size that reads but itself", TESTED("\"llama\"", ",\"sizes\":{\"depth\":\"depth ?? 2\"}"),
     "nothing reads the size 'depth'"},
    {"a misspelt name",
     TESTED("\"llama\"", ",\"modules\":{\"DecoderLayer\":{\"@extends\":\"DecoderLayer\","
                         "\"mlp\":\"GatedMLP(hiden, inner, act)\"}}"),
     "did you mean 'hidden'?"},
    {"a name that nothing inherited has", TESTED("\"llama\"", ",\"renames\":{\"mlpp\":\"feed_forward\"}"),
     "nothing inherited has the name 'mlpp'"},
    {"a name that is none", TESTED("\"llama\"", ",\"renames\":{\"mlp\":\"feed forward\"}"),
     "\\\"renames\\\" is an object of names"},
    {"nothing described", "{\"tidemark\":1,\"architecture\":\"tested\"}", "describes nothing"},
    {"roots that are no modules",
     "{\"tidemark\":1,\"architecture\":\"tested\",\"extends\":\"llama\",\"roots\":[\"A\"]}", "is an object"},
    {"a task that is no name",
     "{\"tidemark\":1,\"architecture\":\"tested\",\"extends\":\"llama\",\"roots\":{\"A\":[1]}}", "a root is"},
    {"a parent that is no name", "{\"tidemark\":1,\"architecture\":\"tested\",\"extends\":[1],\"modules\":{}}",
     "names a description"},
    {"a parent that is not there", "{\"tidemark\":1,\"architecture\":\"tested\",\"extends\":\"lama\",\"modules\":{}}",
     "no description of this name"},
};

/* ---- checks of the library ---- */

#define SIZES(sizes, more) TESTED("\"llama\"", ",\"sizes\":{" sizes "}" more)

static const struct {
    const char *name, *text, *word;
} checked[] = {
    {"a check of the library on sizes that a description has", SIZES("\"experts\":\"4\",\"top_k\":\"8\"", ""),
     "8 experts for each token are more than the 4 there are"},
    {"one that is kept", SIZES("\"experts\":\"8\",\"top_k\":\"8\"", ""), "\"ok\":true"},
    {"one on sizes that are not all there", SIZES("\"top_k\":\"8\"", ""), "\"ok\":true"},
    {"a check of the same expression in its place",
     SIZES("\"experts\":\"4\",\"top_k\":\"8\"", ",\"checks\":{\"is_list(experts) or is_list(top_k) or experts == 0 or "
                                                "top_k <= experts\":\"moe_k: too many; give fewer\"}"),
     "\"message\":\"too many\",\"remedy\":\"give fewer\"}"},
};

static bool is_for_servers(const char *name) { /* their settings are those of tidemark serve */
    return tide_text_starts(tide_text_of(name), TIDE_TEXT("vllm/"));
}

static void test_built_in(tide_arena *arena) {
    for (uint32_t i = 0; i < tide_architecture_source_count; i++) {
        const tide_source *source = &tide_architecture_sources[i];
        reads(source->name) ? passed++ : failed++;
        if (is_for_servers(source->name) || !tide_text_starts(tide_text_of(source->text), TIDE_TEXT("{"))) continue;
        tide_source whole = tide_source_whole(arena, source);
        if (!strstr(whole.text, "\"roots\"")) continue; /* for others to extend */
        reply found = check(arena, (tide_text){whole.text, whole.length});
        tell(strstr(found.text, "\"errors\":0") != NULL, source->name, "no errors", &found);
    }
}

static void test_language(tide_arena *arena) {
    for (size_t i = 0; i < TIDE_COUNT_OF(alike); i++) {
        reply brief = estimate(arena, alike[i].brief), whole = estimate(arena, alike[i].whole);
        tell(is_same(&brief, &whole), alike[i].name, whole.text, &brief);
    }
    for (size_t i = 0; i < TIDE_COUNT_OF(mistakes); i++) {
        reply found = check(arena, tide_text_of(mistakes[i].text));
        tell(strstr(found.text, mistakes[i].word) != NULL, mistakes[i].name, mistakes[i].word, &found);
    }
    for (size_t i = 0; i < TIDE_COUNT_OF(checked); i++) {
        reply found = estimate(arena, checked[i].text);
        tell(strstr(found.text, checked[i].word) != NULL, checked[i].name, checked[i].word, &found);
    }
}

int main(void) {
    tide_arena arena;
    tide_arena_init(&arena, tide_default_allocator(), NULL);
    test_built_in(&arena);
    test_language(&arena);
    tide_arena_free(&arena);
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
