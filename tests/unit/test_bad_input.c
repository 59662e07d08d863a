/* SPDX-License-Identifier: Apache-2.0 */
/* Input that no model or job can have: each is answered with an error at its place, whose message
 * names what is wrong, and never with a number.
 *
 * A failure points to core/src/job/ (words, files, config_check.c), base/json_read.c, the checks of
 * models/architectures/ or the limits of lang/module.c.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tidemark/tidemark.h>

#include "base/json_read.h"

static int passed, failed;

/* ---- requests ---- */

enum { REQUEST_LIMIT = 5 << 20 };

static char request[REQUEST_LIMIT];
static size_t request_length;

static void put(const char *text, size_t length) {
    if (request_length + length >= REQUEST_LIMIT) abort();
    memcpy(request + request_length, text, length);
    request_length += length;
}

static void put_text(const char *text) {
    put(text, strlen(text));
}

static void put_quoted(const char *text, size_t length) {
    put_text("\"");
    for (size_t i = 0; i < length; i++) {
        if (text[i] == '"' || text[i] == '\\') put_text("\\");
        put(text + i, 1);
    }
    put_text("\"");
}

/* words are joined by spaces; file texts may be NULL. */
static void make_request(const char *words, const char *file, const char *other) {
    request_length = 0;
    put_text("{\"call\":\"estimate\",\"settings\":[");
    while (words && *words) {
        size_t length = strcspn(words, " ");
        put_quoted(words, length);
        words += length;
        if (*words) words++, put_text(",");
    }
    put_text("],\"files\":[");
    if (file) {
        put_text("{\"name\":\"config.json\",\"text\":");
        put_quoted(file, strlen(file));
        put_text("}");
    }
    if (other) {
        put_text(",{\"name\":\"description.json\",\"text\":");
        put_quoted(other, strlen(other));
        put_text("}");
    }
    put_text("]}");
}

/* ---- answers ---- */

static const char *text_at(const tide_json *object, const char *key) {
    const tide_json *found = tide_json_at(object, key);
    return found && found->kind == TIDE_JSON_STRING ? found->text.at : "";
}

static void complain(const char *what, const char *wanted, const char *answer, size_t length) {
    printf("FAIL %s: wanted %s\n     %.*s\n", what, wanted, (int)(length < 500 ? length : 500), answer);
    failed++;
}

/* The call ends with `status`, and a diagnostic stands at `place` with `word` in its message: an
 * error where the request is refused, else a warning. */
static void expect_status(const char *what, int wanted_status, const char *code, const char *place, const char *word) {
    char *answer = NULL, wanted[300];
    size_t length = 0;
    int status = tide_call(request, request_length, NULL, &answer, &length);
    snprintf(wanted, sizeof wanted, "%s at \"%s\" with \"%s\"", code, place, word);
    tide_arena arena;
    tide_diagnostics diags;
    tide_arena_init(&arena, tide_default_allocator(), NULL);
    tide_diagnostics_init(&diags, &arena);
    tide_json *root = tide_json_parse(&arena, (tide_text){answer, length}, "", &diags);
    const tide_json *list = tide_json_at(root, "diagnostics");
    bool is_found = false;
    for (const tide_json *item = list ? list->first : NULL; item; item = item->next)
        is_found = is_found || (strcmp(text_at(item, "severity"), wanted_status ? "error" : "warning") == 0 &&
                                strcmp(text_at(item, "code"), code) == 0 &&
                                strcmp(text_at(item, "place"), place) == 0 && strstr(text_at(item, "message"), word));
    if (status != wanted_status || !is_found)
        complain(what, wanted, answer, length);
    else
        passed++;
    tide_arena_free(&arena);
    tide_free(NULL, answer, length);
}

static void expect(const char *what, const char *code, const char *place, const char *word) {
    expect_status(what, 1, code, place, word);
}

/* ---- settings ---- */

static const struct {
    const char *words, *code, *place, *word;
} words[] = {
    {"model=gpt2 batch=0", "ERR_FIELD_RANGE", "/settings/batch", "0"},
    {"model=gpt2 batch=-3", "ERR_FIELD_RANGE", "/settings/batch", "-3"},
    {"model=gpt2 batch=many", "ERR_FIELD_TYPE", "/settings/batch", "many"},
    {"model=gpt2 batch=1e18", "ERR_FIELD_TYPE", "/settings/batch", "1e18"},
    {"model=gpt2 seq=99999999999999999999", "ERR_FIELD_RANGE", "/settings/seq", "9"},
    {"model=gpt2 nonsense=1", "ERR_FIELD_UNKNOWN", "/settings/nonsense", ""},
    {"model=gtp2", "ERR_MODEL_UNKNOWN", "/settings/model", "gtp2"},
    {"", "ERR_FIELD_MISSING", "/settings/model", "no model"},
    {"model=gpt2 gpu=h1000", "ERR_FIELD_RANGE", "/settings/gpu", "h1000"},
    {"model=llama-3.1-8b overrides.rope_scaling.rope_type=bogus", "ERR_FIELD_RANGE", "/config.json/rope_scaling",
     "rope_type"},
    {"model=gpt2 seq=5000", "ERR_FIELD_RANGE", "/settings/seq", "n_positions, which is 1024"},
    {"model=gpt2 freeze=transfomer", "ERR_FIELD_RANGE", "/settings/freeze", "transfomer"},
    {"model=gpt2 train_only=nosuch", "ERR_FIELD_RANGE", "/settings/train_only", "nosuch"},
    {"model=gpt2 train_only=^no.such", "ERR_FIELD_RANGE", "/settings/train_only", "matches no parameter"},
    {"model=gpt2 freeze=^(wte", "ERR_FIELD_TYPE", "/settings/freeze", "regular expression"},
    {"model=gpt2 trainer=hf grad_accum=100000", "ERR_LIMIT", "/settings/grad_accum", "100000"},
    {"model=clip-vit-b-32 image_size=10x10", "ERR_UNSUPPORTED", "/settings/image_size", "leave it out"},
    {"model=llava-1.5-7b seq=100", "ERR_FIELD_RANGE", "/settings/seq", "576"},
    {"model=llava-1.5-7b seq=1024 images=2", "ERR_FIELD_RANGE", "/settings/seq", "2 x 576"},
    {"model=gpt2 dtype=bf16 scaler=true autocast=fp16", "ERR_CONFLICT", "/settings/scaler", "bf16"},
    {"model=deberta-v3-base checkpointing=full_reentrant", "ERR_CONFLICT", "/model",
     "backward through the graph a second time"},
    {"model=gpt2 torch=new", "ERR_FIELD_TYPE", "/settings/torch", "new"},
    {"model=gpt2 transformers=4", "ERR_FIELD_TYPE", "/settings/transformers", "4"},
    {"model=gpt2 ema=swa_utils quant=nf4", "ERR_UNSUPPORTED", "/settings/ema", "quantised"},
    {"model=gpt2 main_grads=fp32 parallel.kind=ddp parallel.dp=2", "ERR_UNSUPPORTED", "/settings/main_grads",
     "parallel.kind"},
    {"model=gpt2 dtype=fp16 scaler=true", "ERR_CONFLICT", "/settings/scaler", "Attempting to unscale FP16 gradients"},
    {"model=gpt2 dtype=fp16 scaler=true optimizer=adamw_fused clip=1", "ERR_CONFLICT", "/settings/scaler", "FP16"},
    {"model=gpt2 dtype=fp16 scaler=true lora.autocast_adapter_dtype=false", "ERR_CONFLICT", "/settings/scaler", "FP16"},
    {"model=gpt2 allocator=max_split_size_mb:x", "ERR_FIELD_RANGE", "/settings/allocator", "PyTorch refuses"},
#define OVER(assignment, code, word)                                                                                   \
    { "model=gpt2 overrides." assignment, code, "/settings/overrides.", word }
    OVER("n_head=7", "ERR_FIELD_RANGE", "768"),
    OVER("n_head=0", "ERR_FIELD_RANGE", "n_head is 0"),
    OVER("n_layer=-1", "ERR_FIELD_RANGE", "n_layer is -1"),
    OVER("n_layer=1000000000", "ERR_FIELD_RANGE", "1000000000"),
    OVER("vocab_size=0", "ERR_FIELD_RANGE", "vocab_size is 0"),
    OVER("vocab_size=true", "ERR_FIELD_TYPE", "vocab_size is true"),
    OVER("n_embd=-5", "ERR_FIELD_RANGE", "n_embd is -5"),
    OVER("n_embd=768.5", "ERR_FIELD_RANGE", "768.5"),
    OVER("n_embd=1e18", "ERR_FIELD_RANGE", "1e+18"),
    OVER("n_embd=abc", "ERR_FIELD_TYPE", "\"abc\""),
    OVER("n_embd=[1]", "ERR_FIELD_TYPE", "an array"),
    OVER("n_embd={}", "ERR_FIELD_TYPE", "an object"),
    OVER("n_inner=abc", "ERR_FIELD_TYPE", "\"abc\""),
    OVER("attn_pdrop=2", "ERR_FIELD_RANGE", "from 0 to 1"),
    OVER("attn_pdrop=-0.1", "ERR_FIELD_RANGE", "from 0 to 1"),
    OVER("tie_word_embeddings=maybe", "ERR_FIELD_TYPE", "true or false"),
    OVER("use_cache=5", "ERR_FIELD_TYPE", "true or false"),
    OVER("architectures=3", "ERR_FIELD_TYPE", "an array of class names"),
#undef OVER
    {"model=llama-3.2-1b overrides.num_attention_heads=7", "ERR_FIELD_RANGE", "/config.json/num_key_value_heads",
     "8 do not divide num_attention_heads, which is 7"},
    {"model=llama-3.2-1b overrides.num_key_value_heads=5", "ERR_FIELD_RANGE", "/settings/overrides.num_key_value_heads",
     "5 do not divide"},
    {"model=llama-3.2-1b overrides.head_dim=7", "ERR_FIELD_RANGE", "/settings/overrides.head_dim", "7"},
    {"model=llama-3.2-1b overrides.intermediate_size=0", "ERR_FIELD_RANGE", "/settings/overrides.intermediate_size",
     "0"},
    {"model=clip-vit-b-32 overrides.vision_config.patch_size=300", "ERR_FIELD_RANGE",
     "/settings/overrides.vision_config.patch_size", "300"},
    {"model=clip-vit-b-32 overrides.vision_config.num_attention_heads=7", "ERR_FIELD_RANGE",
     "/settings/overrides.vision_config.num_attention_heads", "7 heads"},
    {"model=llava-1.5-7b seq=1024 overrides.vision_feature_select_strategy=foo", "ERR_FIELD_RANGE",
     "/settings/overrides.vision_feature_select_strategy", "none that the model knows"},
};

/* Answered, but not in silence. */
static const struct {
    const char *words, *code, *place, *word;
} doubtful[] = {
    {"model=gpt2 overrides.n_layers=1", "ERR_NO_EFFECT", "/settings/overrides.n_layers", "has no effect"},
    {"model=llama-3.2-1b overrides.text_config.num_hidden_layers=1", "ERR_NO_EFFECT",
     "/settings/overrides.text_config.num_hidden_layers", "has no effect"},
    {"model=gpt2 overrides.n_positions=100", "ERR_FIELD_RANGE", "/settings/seq", "100"},
    {"model=gpt2 loss=liger", "ERR_NO_EFFECT", "/settings/loss", "has no effect"},
    {"model=gpt2 use_liger_kernel=true", "ERR_NO_EFFECT", "/settings/use_liger_kernel", "has no effect"},
    {"model=granite-3.0-2b loss=cut_cross_entropy", "ERR_NO_EFFECT", "/settings/loss", "has no effect"},
    {"model=gpt2 images=3", "ERR_NO_EFFECT", "/settings/images", "has no effect"},
    {"model=clip-vit-b-32 images=2", "ERR_NO_EFFECT", "/settings/images", "has no effect"},
    {"model=gpt2 image_size=8x8", "ERR_NO_EFFECT", "/settings/image_size", "has no effect"},
    {"model=gpt2 steps=1", "ERR_FIELD_RANGE", "/settings/steps", "1"},
};

/* An override's place is its own: written once above, and completed here. */
static const char *place_of_words(size_t i, char *place, size_t size) {
    const char *dotted = strstr(words[i].words, "overrides.");
    if (strcmp(words[i].place, "/settings/overrides.") != 0) return words[i].place;
    snprintf(place, size, "/settings/%.*s", (int)strcspn(dotted, "="), dotted);
    return place;
}

/* ---- files ---- */

#define LLAMA(more)                                                                                                    \
    "{\"model_type\":\"llama\",\"hidden_size\":64,\"intermediate_size\":128,"                                          \
    "\"num_attention_heads\":4,\"num_hidden_layers\":1,\"vocab_size\":99" more "}"

static const struct {
    const char *name, *text, *code, *place, *word;
} files[] = {
    {"nothing", "", "ERR_FILE", "/files/0", ""},
    {"cut off", "{\"model_type\":", "ERR_JSON_SYNTAX", "/files/0", "line 1"},
    {"no JSON", "hidden_size: 64", "ERR_JSON_SYNTAX", "/files/0", "line 1"},
    {"an array", "[]", "ERR_FIELD_TYPE", "/files/0", "an array"},
    {"null", "null", "ERR_FIELD_TYPE", "/files/0", "null"},
    {"a key twice", LLAMA(",\"vocab_size\":9"), "ERR_JSON_SYNTAX", "/files/0/vocab_size", "twice"},
    {"no type", "{\"hidden_size\":64}", "ERR_MODEL_UNKNOWN", "/files/0", "model_type"},
    {"an unknown type", "{\"model_type\":\"nosuch\"}", "ERR_MODEL_UNKNOWN", "/config.json/model_type", "nosuch"},
    {"a key missing", "{\"model_type\":\"llama\",\"hidden_size\":null}", "ERR_FIELD_MISSING",
     "/config.json/hidden_size", "is null"},
    {"a negative size", LLAMA(",\"head_dim\":-16"), "ERR_FIELD_RANGE", "/config.json/head_dim", "-16"},
    {"a size beyond doubles", LLAMA(",\"head_dim\":1e400"), "ERR_FIELD_RANGE", "/files/0/head_dim", "too large"},
    {"a nested size", "{\"model_type\":\"clip\",\"text_config\":{\"hidden_size\":\"wide\"},\"vision_config\":{}}",
     "ERR_FIELD_TYPE", "/config.json/text_config/hidden_size", "\"wide\""},
    {"no nested configuration", "{\"model_type\":\"llava\",\"text_config\":3,\"vision_config\":{}}", "ERR_FIELD_TYPE",
     "/files/0/text_config", "an object"},
    {"another architecture", LLAMA(",\"architectures\":[\"LlamaForMultipleChoice\"]"), "ERR_UNSUPPORTED",
     "/config.json/architectures/0", "LlamaForMultipleChoice"},
    {"a needed size that is null", "{\"model_type\":\"llama\",\"hidden_size\":null}", "ERR_FIELD_MISSING",
     "/config.json/hidden_size", "is null"},
    {"an unknown activation", LLAMA(",\"hidden_act\":\"nosuch\""), "ERR_UNSUPPORTED", "/model", "nosuch"},
};

static void check_long_files(void) {
    static char deep[1000];
    size_t at = 0;
    for (int i = 0; i < 200; i++) deep[at++] = '[';
    deep[at] = 0;
    make_request("", deep, NULL);
    expect("200 levels", "ERR_JSON_LIMIT", "/files/0", "64 levels");
    static char wide[(4 << 20) + 2];
    memset(wide, ' ', 4 << 20);
    wide[0] = '[';
    for (at = 1; at <= 1 << 20; at++) wide[2 * at - 1] = '0', wide[2 * at] = ',';
    make_request("", wide, NULL);
    expect("a million numbers", "ERR_JSON_LIMIT", "/files/0", "a million values");
    memset(wide, 'a', 4 << 20);
    wide[0] = '"';
    wide[4 << 20] = '"';
    make_request("", wide, NULL);
    expect("4 MiB", "ERR_FILE", "/files/0", "larger than 4 MiB");
}

/* ---- descriptions ---- */

#define CONFIG "{\"model_type\":\"bad\",\"hidden_size\":8}"
#define DESCRIPTION(sizes, functions, modules)                                                                         \
    "{\"tidemark\":1,\"architecture\":\"bad\",\"model_type\":{\"bad\":\"M\"},"                                         \
    "\"roots\":{\"M\":\"M\"},\"inputs\":{\"x\":\"empty(batch, 8, dtype=bf16)\"},\"sizes\":{" sizes                     \
    "},\"functions\":{" functions "},\"modules\":{" modules "}}"
#define MODULE(line) "\"M\":{\"w\":\"Parameter(8)\",\"forward(x)\":[" line "]}"

static const struct {
    const char *name, *text, *code, *place, *word;
} descriptions[] = {
    {"a size that depends on itself",
     DESCRIPTION("\"a\":\"b\",\"b\":\"a\"", "", "\"M\":{\"w\":\"Parameter(a)\",\"forward(x)\":[]}"), "ERR_DESCRIPTION",
     "/model", "depends on itself"},
    {"a module inside itself", DESCRIPTION("", "", "\"M\":{\"m\":\"M()\",\"forward(x)\":[]}"), "ERR_LIMIT", "/model",
     "deeper"},
    {"a function that calls itself", DESCRIPTION("", "\"f(x)\":[\"return f(x)\"]", MODULE("\"return f(x)\"")),
     "ERR_LIMIT", "/model", "deeper"},
    {"one that calls itself inside other calls",
     DESCRIPTION("", "\"i(x)\":[\"return x\"],\"f(x)\":[\"return i(i(i(i(i(i(i(f(x))))))))\"]",
                 MODULE("\"return f(x)\"")),
     "ERR_LIMIT", "/model", "deeper"},
    {"a loop in a loop",
     DESCRIPTION("", "",
                 MODULE("\"for i in range(1000000):\",[\"for j in range(1000000):\",[\"y = 1\"]],"
                        "\"return x\"")),
     "ERR_LIMIT", "/model", "more"},
    {"a list of lists",
     DESCRIPTION("", "", MODULE("\"y = range(1000000)\",\"z = [[i for i in y] for j in y]\",\"return x\"")),
     "ERR_LIMIT", "/model", "more"},
    {"a list that doubles",
     DESCRIPTION("", "", MODULE("\"y = range(1000)\",\"for i in range(1000):\",[\"y = y + y\"],\"return x\"")),
     "ERR_LIMIT", "/model", "million"},
    {"a range of all integers", DESCRIPTION("", "", MODULE("\"y = range(-9223372036854775807, 9223372036854775807)\"")),
     "ERR_LIMIT", "/model", "million"},
    {"a sum that overflows",
     DESCRIPTION("\"a\":\"9223372036854775807 + hidden_size\"", "", "\"M\":{\"w\":\"Parameter(a)\",\"forward(x)\":[]}"),
     "ERR_OVERFLOW", "/model", "63 bits"},
    {"a tensor that overflows",
     DESCRIPTION("", "", MODULE("\"return empty(1000000000, 1000000000, 1000000000, dtype=bf16)\"")), "ERR_OVERFLOW",
     "/model", "2^60"},
    {"a name that is none", DESCRIPTION("", "", MODULE("\"return nosuch(x)\"")), "ERR_DESCRIPTION", "/model", "nosuch"},
    {"a statement that is cut off", DESCRIPTION("", "", MODULE("\"return (x\"")), "ERR_DESCRIPTION",
     "/bad/modules/M/forward(x)/0", "')'"},
    {"one that extends itself",
     "{\"architecture\":\"bad\",\"extends\":\"bad\",\"model_type\":{\"bad\":\"M\"},\"modules\":{}}", "ERR_DESCRIPTION",
     "/bad", "extend"},
    {"a key that is none", "{\"architecture\":\"bad\",\"model_type\":{\"bad\":\"M\"},\"modules\":{},\"module\":{}}",
     "ERR_DESCRIPTION", "/bad/module", "modules"},
    {"another model's", "{\"architecture\":\"worse\",\"model_type\":{\"worse\":\"M\"},\"modules\":{}}", "ERR_CONFLICT",
     "/config.json/model_type", "worse"},
};

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

int main(void) {
    char place[200];
    for (size_t i = 0; i < COUNT_OF(words); i++) {
        make_request(words[i].words, NULL, NULL);
        expect(words[i].words, words[i].code, place_of_words(i, place, sizeof place), words[i].word);
    }
    for (size_t i = 0; i < COUNT_OF(files); i++) {
        make_request("", files[i].text, NULL);
        expect(files[i].name, files[i].code, files[i].place, files[i].word);
    }
    for (size_t i = 0; i < COUNT_OF(doubtful); i++) {
        make_request(doubtful[i].words, NULL, NULL);
        expect_status(doubtful[i].words, 0, doubtful[i].code, doubtful[i].place, doubtful[i].word);
    }
    check_long_files();
    for (size_t i = 0; i < COUNT_OF(descriptions); i++) {
        make_request("", CONFIG, descriptions[i].text);
        expect(descriptions[i].name, descriptions[i].code, descriptions[i].place, descriptions[i].word);
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
