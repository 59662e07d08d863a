/* SPDX-License-Identifier: Apache-2.0 */
/* Words of a request with blanks are jobs in words: they are replaced by their meaning, which is reported. */
#include <string.h>

#include "base/rounding.h"
#include "job/model_names.h"
#include "job/phrase.h"

enum { PHRASE_LIMIT = 400, WORDS_OF_PHRASE = 96 };

typedef struct word_list {
    tide_text *words;
    uint32_t count, room;
} word_list;

/* The meaning of a phrase as words of a command: the model's name, NAME=VALUE. */
static const char *as_typed(tide_arena *arena, const word_list *out, uint32_t from) {
    const char *text = "";
    for (uint32_t i = from; i < out->count; i++) {
        tide_text word = out->words[i];
        size_t skipped = tide_text_starts(word, TIDE_TEXT("model=")) ? sizeof "model=" - 1 : 0;
        text =
            tide_format(arena, "%s%s%.*s", text, i > from ? " " : "", (int)(word.length - skipped), word.at + skipped);
    }
    return text;
}

/* ---- whether it trains or runs ---- */

static const char *const tells_mode[] = {
    "mode=",          "trainer",    "adapter",          "optimizer", "engine=",     "parallel.",
    "checkpointing=", "grad_accum", "use_liger_kernel", "recipe=",   "concurrency="};

static bool says_mode(const tide_phrase *p) {
    tide_hub_name read;
    if (p->model && !tide_catalogue_find(p->arena, p->model) && tide_catalogue_variant(p->arena, p->model, &read) &&
        read.format)
        return true; /* its packed weights do not train */
    for (size_t i = 0; i < TIDE_COUNT_OF(tells_mode); i++)
        if (strstr(p->settings, tells_mode[i])) return true;
    return p->serves || p->is_told;
}

/* With several GPUs it is a server; bitsandbytes weights without an adapter do not train. */
static void choose_mode(tide_phrase *p) {
    bool is_quantised = strstr(p->settings, "quant="), is_served = p->gpu_count > 1 && !is_quantised;
    char *infers = strstr(p->settings, "mode=infer");
    if (p->model && is_served && infers && !p->is_told) memcpy(infers, "mode=serve", strlen("mode=serve"));
    p->serves = p->serves || strstr(p->settings, "mode=serve");
    if (!p->model || says_mode(p) || !(p->runs || is_quantised)) return;
    tide_phrase_add(p, is_served ? "mode=serve" : "mode=infer");
}

static const char *remedy_of(const tide_phrase *p, const char *typed) {
    if (p->second)
        return tide_format(p->arena, "a job has one model: write %s, and compare it with model=%s", typed, p->second);
    tide_text rest = tide_text_of(p->unknown), word;
    while (p->model && !p->remedy && tide_piece_next(&rest, ' ', &word))
        if (tide_is_size_word(word))
            return tide_format(p->arena, "%s has another size: give the config.json of the model", p->model);
    return p->remedy ? p->remedy : tide_format(p->arena, "write %s, and settings as NAME=VALUE", typed);
}

/* Other models with the same words. */
static const char *older_of(const tide_phrase *p) {
    return p->others ? tide_format(p->arena, " (the newest; older: %s)", p->others) : "";
}

/* The command that answers a question for the largest value, or for the number of GPUs. */
static const char *answer_of(const tide_phrase *p, const char *typed) {
    if (p->serves) return "";
    if (p->asks) return tide_format(p->arena, "; the largest is told by `tidemark fit %s --knob %s`", typed, p->asks);
    if (!p->counts_gpus || p->gpu_count) return "";
    const char *kind = strstr(p->settings, "parallel.kind=") ? "" : " parallel.kind=fsdp2 parallel.meta_init=true";
    return tide_format(p->arena, "; how many GPUs is told by `tidemark gpus %s%s`", typed, kind);
}

static void say_phrase(const tide_phrase *p, tide_text text, const char *typed, bool is_unsaid) {
    const char *shown = tide_shown(p->arena, text);
    if (p->model && *p->unknown)
        tide_error(p->diags, TIDE_ERR_MODEL_UNKNOWN, "/settings/model",
                   tide_format(p->arena, "\"%s\" in \"%s\" is not understood",
                               tide_shown(p->arena, tide_text_of(p->unknown)), shown),
                   remedy_of(p, typed));
    else if (is_unsaid && p->gpu_count > 1)
        tide_error(p->diags, TIDE_ERR_MODEL_UNKNOWN, "/settings/model",
                   tide_format(p->arena, "\"%s\" does not say whether the model trains or serves on these GPUs", shown),
                   "add serving (mode=serve), or a kind of parallel training: ddp, fsdp, zero3, tp "
                   "(parallel.kind=...)");
    else if (*p->settings || p->is_meant || strchr(tide_text_copy(p->arena, text), ' '))
        tide_report(
            p->diags, TIDE_ASSUMPTION, TIDE_OK, "/settings/model",
            tide_format(p->arena, "\"%s\" is read as %s%s%s%s", shown, typed, older_of(p),
                        is_unsaid ? ", and as training by default; otherwise give mode=infer or mode=serve" : "",
                        answer_of(p, typed)),
            "write settings as NAME=VALUE to override that");
}

/* A server's requests have a separate length. */
static tide_text server_word(const tide_phrase *p, tide_text setting) {
    const char *name = strstr(p->settings, "engine=llama_cpp") ? "ctx_size"
                       : strstr(p->settings, "engine=sglang")  ? "context_length"
                                                               : "max_model_len";
    if (p->serves && tide_text_starts(setting, TIDE_TEXT("seq=")))
        return tide_text_of(tide_format(p->arena, "%s=%.*s", name, (int)setting.length - 4, setting.at + 4));
    return setting;
}

static void put_once(word_list *out, tide_text word) {
    for (uint32_t i = 0; i < out->count; i++)
        if (tide_text_equal(out->words[i], word)) return;
    if (word.length && out->count < out->room) out->words[out->count++] = word;
}

static void put_phrase(word_list *out, tide_arena *arena, const tide_json *gpus, tide_text text, bool serves,
                       bool is_told, tide_diagnostics *diags, const char **asks) {
    tide_phrase *p = TIDE_NEW(arena, tide_phrase, 1);
    uint32_t from = out->count;
    *p = (tide_phrase){.arena = arena,
                       .diags = diags,
                       .gpus = gpus,
                       .unknown = "",
                       .settings = "",
                       .serves = serves,
                       .is_told = is_told};
    tide_phrase_read(p, text);
    choose_mode(p);
    bool is_unsaid = p->model && !says_mode(p);
    bool is_whole = tide_text_same(text, tide_text_of(p->unknown)); /* otherwise as it is spelled */
    const char *model = p->model || !*p->unknown ? p->model : is_whole ? tide_text_copy(arena, text) : p->unknown;
    if (model) put_once(out, tide_text_of(tide_format(arena, "model=%s", model)));
    tide_text rest = tide_text_of(p->settings), one;
    while (tide_piece_next(&rest, ' ', &one)) /* a server's parallelism is derived from its GPUs */
        if (!p->serves || !tide_text_is(one, "parallel.kind=tp")) put_once(out, server_word(p, one));
    say_phrase(p, text, as_typed(arena, out, from), is_unsaid);
    if (p->asks && asks) *asks = p->asks;
}

static void put_meant(word_list *out, tide_arena *arena, tide_text word, const char *meant, tide_diagnostics *diags) {
    tide_report(diags, TIDE_ASSUMPTION, TIDE_OK, "/settings",
                tide_format(arena, "\"%s\" is read as %s", tide_shown(arena, word), meant), NULL);
    out->words[out->count++] = tide_text_of(meant);
}

/* Whether values of a setting have no blanks, so that words may follow: "batch=4 llama 8b". */
static bool is_number_setting(tide_text name) {
    tide_setting_id id = tide_setting_find(name);
    return id != TIDE_SET_COUNT && tide_settings[id].type == TIDE_SETTING_INT;
}

/* The text in "model=TEXT", or a word without `=` that is not the name of a model; "batch=4" is left alone. */
static tide_text phrase_in(tide_arena *arena, tide_text word) {
    tide_text model = TIDE_TEXT("model="), none = TIDE_TEXT("");
    const char *equals = memchr(word.at, '=', word.length), *blank = memchr(word.at, ' ', word.length);
    if (tide_text_starts(word, model))
        word = (tide_text){word.at + model.length, word.length - model.length};
    else if (equals &&
             !(blank && (blank < equals || is_number_setting((tide_text){word.at, (size_t)(equals - word.at)}))))
        return none;
    word = tide_trimmed(word);
    if (word.length > PHRASE_LIMIT || memchr(word.at, 0, word.length)) return none;
    const char *name = tide_text_copy(arena, word);
    bool is_name = !strchr(name, ' ') && tide_model_is_known(arena, name);
    return is_name || tide_setting_find(word) != TIDE_SET_COUNT ? none : word;
}

tide_text *tide_phrases_read(tide_arena *arena, const tide_text *words, uint32_t *count, tide_diagnostics *diags,
                             const char **asks) {
    word_list out = {.room = *count * WORDS_OF_PHRASE};
    const tide_json *gpus = NULL;
    bool serves = false, is_told = false;
    if (!*count) return NULL;
    for (uint32_t i = 0; i < *count; i++) {
        serves = serves || tide_text_is(words[i], "mode=serve");
        for (size_t k = 0; k < TIDE_COUNT_OF(tells_mode); k++)
            is_told = is_told || tide_text_starts(words[i], tide_text_of(tells_mode[k]));
    }
    out.words = TIDE_NEW(arena, tide_text, out.room);
    for (uint32_t i = 0; i < *count; i++) {
        tide_text text = phrase_in(arena, words[i]);
        if (text.length && !gpus) gpus = tide_gpu_list(arena, diags);
        const char *equals = memchr(words[i].at, '=', words[i].length);
        const char *meant =
            !text.length && equals ? tide_meant_setting(arena, words[i], (size_t)(equals - words[i].at)) : NULL;
        /* of which kind? */
        bool is_length = meant && serves && tide_text_starts(tide_text_of(meant), TIDE_TEXT("seq="));
        if (meant && !is_length)
            put_meant(&out, arena, words[i], meant, diags);
        else if (text.length)
            put_phrase(&out, arena, gpus, text, serves, is_told, diags, asks);
        else
            out.words[out.count++] = words[i];
    }
    *count = out.count;
    return out.words;
}
