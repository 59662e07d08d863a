/* Settings of an engine from words and from recorded cases. */
#include "serve/settings.h"

#include <string.h>

typedef enum kind { KIND_INT, KIND_AUTO, KIND_PPM, KIND_TRUE, KIND_NOT, KIND_TEXT, KIND_OBJECT } kind;

static const struct {
    const char *name, *help;
    size_t offset;
    kind kind;
} table[] = {
#define SERVE_SETTING(name, member, kind, help) {#name, help, offsetof(tide_serve_settings, member), KIND_##kind},
#include "serve/settings.def"
#undef SERVE_SETTING
};

enum { COUNT = sizeof table / sizeof *table };

/* Short forms that people know. */
static const char *const aliases[][2] = {{"tp", "tensor_parallel_size"},
                                         {"pp", "pipeline_parallel_size"},
                                         {"dp", "data_parallel_size"},
                                         {"ep", "enable_expert_parallel"},
                                         {"gpus", "tensor_parallel_size"},
                                         {"utilization", "gpu_memory_utilization"},
                                         {"speculative_config.num_speculative_tokens", "num_speculative_tokens"}};

static const char *full_name(tide_arena *arena, tide_text name) {
    char *made = tide_text_copy(arena, name);
    for (char *c = made; *c; c++)
        if (*c == '-') *c = '_';
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
        if (strcmp(made, aliases[i][0]) == 0) return aliases[i][1];
    return made;
}

/* "0.92" in parts per million; at most six digits behind the point count. */
static bool read_ppm(tide_text text, int64_t *ppm) {
    int64_t whole = 0, digits = -1;
    for (size_t i = 0; i < text.length; i++) {
        if (text.at[i] == '.' && digits < 0) {
            digits = 0;
        } else if (text.at[i] >= '0' && text.at[i] <= '9' && whole < 1000000) {
            if (digits == 6) continue;
            whole = whole * 10 + (text.at[i] - '0');
            if (digits >= 0) digits++;
        } else {
            return false;
        }
    }
    for (int64_t i = digits < 0 ? 0 : digits; i < 6; i++) whole *= 10;
    *ppm = whole;
    return text.length > 0;
}

static bool is_true_word(tide_text text, bool *truth) {
    *truth = tide_text_is(text, "true") || tide_text_is(text, "True") || tide_text_is(text, "1") || !text.length;
    return *truth || tide_text_is(text, "false") || tide_text_is(text, "False") || tide_text_is(text, "0");
}

static bool refuse(tide_serve_words *w, const char *name, const char *wants) {
    return tide_error(w->diags, TIDE_ERR_FIELD_TYPE, tide_format(w->arena, "/settings/%s", name),
                      tide_format(w->arena, "must be %s", wants), NULL);
}

static bool set(tide_serve_words *w, size_t row, tide_text value) {
    char *at = (char *)w->settings + table[row].offset;
    bool truth = false;
    switch (table[row].kind) {
    case KIND_AUTO:
        if (tide_text_is(value, "auto") || tide_text_is(value, "-1")) {
            *(int64_t *)(void *)at = TIDE_SERVE_AUTO;
            return true;
        }
        /* fall through */
    case KIND_INT:
        if (!tide_text_to_i64((int64_t *)(void *)at, value) || *(int64_t *)(void *)at < 0 ||
            *(int64_t *)(void *)at > INT64_C(1) << 50)
            return refuse(w, table[row].name, "a whole number from 0 to 2^50");
        return true;
    case KIND_PPM:
        if (!read_ppm(value, (int64_t *)(void *)at) || *(int64_t *)(void *)at < 1 || *(int64_t *)(void *)at > 1000000)
            return refuse(w, table[row].name, "above 0 and at most 1");
        return true;
    case KIND_TRUE:
    case KIND_NOT:
        if (!is_true_word(value, &truth)) return refuse(w, table[row].name, "true or false");
        *(bool *)(void *)at = truth == (table[row].kind == KIND_TRUE);
        return true;
    case KIND_TEXT:
        *(const char **)(void *)at = tide_text_copy(w->arena, value);
        return true;
    case KIND_OBJECT:
        break;
    }
    *(const tide_json **)(void *)at =
        tide_json_parse(w->arena, value, tide_format(w->arena, "/settings/%s", table[row].name), w->diags);
    return *(const tide_json **)(void *)at != NULL;
}

static bool take_device(tide_serve_words *w, const char *name, tide_text value, bool *is_taken) {
    static const char *const names[] = {"input_len", "output_len", "max_concurrency", "context_mib"};
    int64_t *const members[] = {&w->input_len, &w->output_len, &w->target, &w->context_mib};
    *is_taken = true;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0)
            return (tide_text_to_i64(members[i], value) && *members[i] >= 0 && *members[i] <= INT64_C(1) << 40) ||
                   refuse(w, name, "a whole number from 0 to 2^40");
    if (strcmp(name, "usage") == 0) {
        w->settings->is_offline = tide_text_is(value, "llm");
        return w->settings->is_offline || tide_text_is(value, "server") || refuse(w, name, "server or llm");
    }
    if (strcmp(name, "engine") == 0)
        return tide_text_is(value, "vllm") ||
               tide_error(w->diags, TIDE_ERR_UNSUPPORTED, "/settings/engine",
                          tide_format(w->arena, "the engine '%s' is not described", tide_text_copy(w->arena, value)),
                          "vllm is");
    *is_taken = false;
    return true;
}

bool tide_serve_read_word(tide_serve_words *w, tide_text word, bool *is_taken) {
    const char *equals = memchr(word.at, '=', word.length);
    *is_taken = false;
    if (!equals) return true;
    tide_text value = {equals + 1, word.length - (size_t)(equals - word.at) - 1};
    const char *name = full_name(w->arena, (tide_text){word.at, (size_t)(equals - word.at)});
    if (!take_device(w, name, value, is_taken)) return false;
    for (size_t i = 0; i < COUNT && !*is_taken; i++)
        if (strcmp(table[i].name, name) == 0) {
            *is_taken = true;
            return set(w, i, value);
        }
    return true;
}

/* A value of JSON as a word. */
static tide_text word_of(tide_arena *arena, const tide_json *value) {
    switch (value->kind) {
    case TIDE_JSON_BOOL:
        return value->is_true ? TIDE_TEXT("true") : TIDE_TEXT("false");
    case TIDE_JSON_STRING:
        return value->text;
    case TIDE_JSON_NUMBER:
        return tide_text_of(value->is_integer ? tide_format(arena, "%lld", (long long)value->integer)
                                              : tide_format(arena, "%.6f", value->number));
    default:
        return TIDE_TEXT("");
    }
}

bool tide_serve_read_case(tide_serve_words *w, const tide_json *key, bool *is_taken) {
    const char *name = full_name(w->arena, key->key);
    *is_taken = true;
    if (strcmp(name, "note") == 0) {
        w->settings->first_start = key->kind == TIDE_JSON_STRING && tide_text_contains(key->text, TIDE_TEXT("first"));
        return true;
    }
    if (strcmp(name, "speculative_config") == 0) {
        const tide_json *method = tide_json_at(key, "method"), *count = tide_json_at(key, "num_speculative_tokens");
        w->settings->num_speculative_tokens = count && count->is_integer ? count->integer : 0;
        w->settings->speculates_ngrams =
            method && method->kind == TIDE_JSON_STRING && tide_text_is(method->text, "ngram");
        return true;
    }
    for (size_t i = 0; i < COUNT; i++)
        if (strcmp(table[i].name, name) == 0 && table[i].kind == KIND_OBJECT) {
            *(const tide_json **)(void *)((char *)w->settings + table[i].offset) = key;
            return true;
        }
    return tide_serve_read_word(
        w, tide_text_of(tide_format(w->arena, "%s=%s", name, tide_text_copy(w->arena, word_of(w->arena, key)))),
        is_taken);
}

void tide_serve_describe(tide_writer *writer) {
    tide_write_open(writer, '[');
    for (size_t i = 0; i < COUNT; i++) {
        tide_write_open(writer, '{');
        tide_write_string_at(writer, "name", table[i].name);
        tide_write_string_at(writer, "help", table[i].help);
        tide_write_close(writer, '}');
    }
    tide_write_close(writer, ']');
}
