/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU: its row of models/gpus.json, its memory, and how much of it may be used. */
#include "job/builder.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

#include "base/units.h"
#include "lang/lang.h"

static const char *gpu_string(const tide_json *object, const char *key) {
    const tide_json *value = tide_json_at(object, key);
    return tide_json_is(value, TIDE_JSON_STRING) ? value->text.at : "";
}

static int64_t gpu_integer(const tide_json *object, const char *key) {
    const tide_json *value = tide_json_at(object, key);
    return tide_json_is(value, TIDE_JSON_NUMBER) && value->is_integer && value->integer > 0 ? value->integer : 0;
}

/* Finds the object with a name without parsing all of them; empty if that is not simple. The objects are flat. */
static tide_text gpu_text(tide_arena *arena, tide_text all, const char *name) {
    const char *quoted = tide_format(arena, "\"%s\"", name);
    size_t length = strlen(quoted);
    for (const char *at = all.at; (at = strstr(at, quoted)); at += length) {
        const char *start = at, *end = at;
        while (start > all.at && *start != '{' && *start != '}') start--;
        while (*end && *end != '{' && *end != '}') end++;
        if (*start == '{' && *end == '}') return (tide_text){start, (size_t)(end - start) + 1};
    }
    return TIDE_TEXT("");
}

static const tide_json *gpu_find_alone(tide_job_builder *b, const char *name) {
    tide_text text = gpu_text(b->arena, (tide_text){tide_gpu_source.text, tide_gpu_source.length}, name);
    const tide_json *row = text.length ? tide_json_parse(b->arena, text, "/gpus", b->diags) : NULL;
    return row && strcmp(gpu_string(row, "name"), name) == 0 ? row : NULL;
}

/* ---- a GPU as people write it ---- */

/* "NVIDIA A100-SXM4-80GB" as " a100 sxm 80 ": in lower case, without vendor, brand and kind of memory. */
static const char *gpu_words(tide_arena *arena, const char *name) {
    static const char *const meaningless[] = {"nvidia", "geforce", "tesla", "gpu",   "generation", "gb",   "hgx",
                                              "dgx",    "gib",     "hbm2",  "hbm2e", "hbm3",       "hbm3e"};
    char *text = tide_lowered(arena, tide_text_of(name));
    for (char *at = text; *at; at++)
        if (!isalnum((unsigned char)*at)) *at = ' ';
    const char *words = " ";
    tide_text rest = tide_text_of(text), word;
    while (tide_piece_next(&rest, ' ', &word)) {
        bool counts = word.length > 0;
        for (size_t i = 0; i < TIDE_COUNT_OF(meaningless); i++) counts = counts && !tide_text_is(word, meaningless[i]);
        if (!counts) continue;
        const char *brand = "";
        if (word.length > 3 && tide_text_starts(word, TIDE_TEXT("rtx"))) {
            brand = "rtx ";
            word = (tide_text){word.at + 3, word.length - 3};
        }
        if (tide_text_starts(word, TIDE_TEXT("sxm"))) word.length = 3;
        size_t digits = strspn(word.at, "0123456789");
        tide_text unit = {word.at + digits, word.length - digits};
        if (digits && (tide_text_is(unit, "g") || tide_text_is(unit, "gb") || tide_text_is(unit, "gib")))
            word.length = digits;
        bool is_ti = digits && tide_text_is(unit, "ti"); /* "2080ti" */
        if (is_ti) word.length = digits;
        words = tide_format(arena, "%s%s%.*s %s", words, brand, (int)word.length, word.at, is_ti ? "ti " : "");
    }
    return words;
}

/* Whether each of the words is among `others`. */
static bool gpu_has_words(tide_arena *arena, const char *words, const char *others) {
    tide_text rest = tide_text_of(words), word;
    while (tide_piece_next(&rest, ' ', &word)) {
        const char *wanted = tide_format(arena, " %.*s ", (int)word.length, word.at);
        if (word.length && !strstr(others, wanted)) return false;
    }
    return true;
}

/* Whether nothing is said about a GPU that contradicts its row. */
static bool gpu_may_be(tide_arena *arena, const tide_json *row, const char *words) {
    const char *all =
        tide_format(arena, "%s %s %s", gpu_string(row, "name"), gpu_string(row, "title"), gpu_string(row, "also"));
    return strcmp(words, " ") != 0 && gpu_has_words(arena, words, gpu_words(arena, all));
}

/* The row whose name is given in full, except for the family. "A100" is ambiguous. */
static const tide_json *gpu_find(tide_arena *arena, const tide_json *list, const char *name) {
    const char *words = gpu_words(arena, name);
    for (const tide_json *row = list ? list->first : NULL; row; row = row->next) {
        const char *own = gpu_words(arena, gpu_string(row, "name"));
        if (strncmp(own, " rtx ", 5) == 0) own += 4;
        if (gpu_has_words(arena, own, words) && gpu_may_be(arena, row, words)) return row;
    }
    return NULL;
}

/* "2xl40s": NULL unless it is a count of a known GPU. */
static const char *remedy_of_count(tide_job_builder *b, const tide_json *list, const char *name) {
    int64_t count;
    tide_text rest = tide_text_of(name), number;
    if (!tide_piece_next(&rest, 'x', &number) || !rest.at) return NULL;
    if (!tide_text_to_i64(&count, tide_trimmed(number)) || count < 1) return NULL;
    const char *gpu = tide_text_copy(b->arena, tide_trimmed(rest));
    return tide_gpu_is_named(b->arena, list, gpu) ? tide_format(b->arena, "write gpus=%" PRId64 " gpu=%s", count, gpu)
                                                  : NULL;
}

/* Of several candidates, the one marked as usual: none of the others has less memory. It is reported. */
static const tide_json *gpu_usual(tide_job_builder *b, const tide_json *list, const char *name) {
    const char *words = gpu_words(b->arena, name), *others = "";
    const tide_json *usual = NULL;
    for (const tide_json *row = list ? list->first : NULL; row; row = row->next) {
        if (!gpu_may_be(b->arena, row, words)) continue;
        if (tide_json_is_true(tide_json_at(row, "usual")))
            usual = row;
        else
            others = tide_format(b->arena, "%s%s%s", others, *others ? ", " : "", gpu_string(row, "name"));
    }
    if (usual)
        tide_report(b->diags, TIDE_ASSUMPTION, TIDE_OK, "/settings/gpu",
                    tide_format(b->arena, "\"%s\" is read as %s; others of that name: %s",
                                tide_shown(b->arena, tide_text_of(name)), gpu_string(usual, "title"), others),
                    NULL);
    return usual;
}

/* "16gb" alone: the memory of a GPU; 0 if it is not. */
static int64_t size_alone(const char *name) {
    tide_text all = tide_trimmed(tide_text_of(name));
    size_t digits = strspn(all.at, "0123456789");
    int64_t size;
    tide_text unit = tide_trimmed((tide_text){all.at + digits, all.length - digits});
    bool is_size =
        tide_text_is_among(unit, "g|gb|gib|G|GB|GiB") && tide_text_to_i64(&size, (tide_text){all.at, digits});
    return is_size ? size : 0;
}

static void gpu_refuse(tide_job_builder *b, const tide_json *list, const char *name) {
    enum { NEAR = 4 };
    uint32_t count = 0, near_count = 0;
    const char **names = TIDE_NEW(b->arena, const char *, (list ? list->count : 0) + 1), *may_be[NEAR];
    const char *words = gpu_words(b->arena, name);
    for (const tide_json *row = list ? list->first : NULL; row; row = row->next) {
        names[count++] = gpu_string(row, "name");
        if (near_count < NEAR && gpu_may_be(b->arena, row, words)) may_be[near_count++] = gpu_string(row, "name");
    }
    const char *near = near_count ? tide_one_of(b->arena, may_be, near_count)
                                  : tide_near_names(b->arena, tide_text_of(name), names, count);
    const char *counted = remedy_of_count(b, list, name), *shown = tide_shown(b->arena, tide_text_of(name));
    const char *told =
        counted ? counted : tide_word_remedy(tide_text_of(tide_lowered(b->arena, tide_text_of(name)))); /* "MI300X" */
    int64_t gib = size_alone(name);
    const char *size =
        gib ? tide_format(b->arena, "give its memory as gpu_gib=%" PRId64, gib) : "give its memory as gpu_gib=SIZE";
    if (near_count > 1)
        tide_error(b->diags, TIDE_ERR_FIELD_RANGE, "/settings/gpu", tide_format(b->arena, "\"%s\" is ambiguous", shown),
                   tide_format(b->arena, "choose %s%s%s", near, gib ? "; or " : "", gib ? size : ""));
    else
        tide_error(b->diags, TIDE_ERR_FIELD_RANGE, "/settings/gpu",
                   tide_format(b->arena, "\"%s\" is not a known GPU", shown),
                   told   ? told
                   : near ? tide_format(b->arena, "did you mean %s? Otherwise %s", near, size)
                          : size);
}

const tide_json *tide_gpu_list(tide_arena *arena, tide_diagnostics *diags) {
    const tide_text text = {tide_gpu_source.text, tide_gpu_source.length};
    return tide_json_at(tide_json_parse(arena, text, "/gpus", diags), "gpus");
}

bool tide_gpu_is_named(tide_arena *arena, const tide_json *gpus, const char *words) {
    const char *read = gpu_words(arena, words);
    for (const tide_json *row = gpus ? gpus->first : NULL; row; row = row->next)
        if (gpu_may_be(arena, row, read)) return true;
    return false;
}

void tide_find_gpu(tide_job_builder *b) {
    const char *name = tide_argument_text(&b->arguments, TIDE_SET_gpu);
    tide_gpu *gpu = &b->job->gpu;
    *gpu = (tide_gpu){.name = "",
                      .title = "",
                      .source = "",
                      .context_source = "",
                      .capability = TIDE_DEVICE_DEFAULT.capability,
                      .sms = TIDE_DEVICE_DEFAULT.sms,
                      .threads_per_sm = TIDE_DEVICE_DEFAULT.threads_per_sm};
    if (!name[0]) return;
    const tide_json *row = gpu_find_alone(b, name);
    if (!row) {
        const tide_json *list = tide_gpu_list(b->arena, b->diags);
        if (!(row = gpu_find(b->arena, list, name)) && !(row = gpu_usual(b, list, name))) {
            gpu_refuse(b, list, name);
            return;
        }
    }
    b->job->has_gpu = true;
    *gpu = (tide_gpu){.name = gpu_string(row, "name"),
                      .title = gpu_string(row, "title"),
                      .source = gpu_string(row, "source"),
                      .context_source = gpu_string(row, "context_source"),
                      .bytes = (uint64_t)gpu_integer(row, "bytes"),
                      .context_bytes = (uint64_t)gpu_integer(row, "context_bytes"),
                      .capability = (int)gpu_integer(row, "capability"),
                      .sms = (int)gpu_integer(row, "sms"),
                      .threads_per_sm = (int)gpu_integer(row, "threads_per_sm")};
    b->arguments.values[TIDE_SET_gpu] = gpu->name;
}

/* Whole MiB, as counted by the recorder's device. */
static uint64_t bytes_of_gib(int64_t pico) {
    uint64_t mib = (uint64_t)(pico / TIDE_PICO) * 1024 + (uint64_t)(pico % TIDE_PICO) * 1024 / (uint64_t)TIDE_PICO;
    return mib << 20;
}

void tide_size_device(tide_job_builder *b) {
    tide_job *job = b->job;
    tide_job_arguments *given = &b->arguments;
    bool has_size = tide_argument_text(given, TIDE_SET_gpu_gib)[0] != 0,
         has_fraction = tide_argument_text(given, TIDE_SET_memory_fraction)[0] != 0;
    if (!tide_argument_text(given, TIDE_SET_capability)[0])
        given->values[TIDE_SET_capability] = tide_format(b->arena, "%d", job->gpu.capability);
    job->capability = tide_argument_int(given, TIDE_SET_capability);
    job->device_bytes = has_size ? bytes_of_gib(tide_argument_pico(given, TIDE_SET_gpu_gib)) : job->gpu.bytes;
    job->memory_fraction_ppm =
        has_fraction ? tide_argument_pico(given, TIDE_SET_memory_fraction) / (TIDE_PICO / 1000000) : 0;
}

void tide_warn_of_fraction(tide_job_builder *b) {
    if (b->job->memory_fraction_ppm && !b->job->device_bytes)
        tide_report(b->diags, TIDE_WARNING, TIDE_ERR_NO_EFFECT, "/settings/memory_fraction",
                    "has no effect: a device without limit has no fraction", "give gpu=NAME or gpu_gib=SIZE");
}
