/* SPDX-License-Identifier: Apache-2.0 */
/* Turns the text of PYTORCH_CUDA_ALLOC_CONF into tide_alloc_conf.
 * Grammar and limits: pytorch c10/core/AllocatorConfig.{h,cpp}, c10/cuda/CUDAAllocatorConfig.cpp.
 */
#include "allocator/alloc_conf.h"

#include "base/units.h"

#include <string.h>

static const uint64_t conf_mib = (uint64_t)1 << 20;
static const uint64_t conf_large_buffer = (uint64_t)20 << 20; /* kLargeBuffer */
static const uint64_t conf_min_large_alloc_mb = 10;           /* kMinLargeAlloc */
static const uint64_t conf_max_register_threads = 128;        /* pinned_max_register_threads() */

/* A key, a value or one of , : [ ]. Blanks are dropped wherever they stand, inside a word too. */
typedef struct conf_token {
    char text[96]; /* terminated; a longer word is cut, and no word that long is valid */
    size_t length;
    size_t offset; /* into the whole text */
    size_t index;  /* number of tokens before it */
} conf_token;

typedef struct conf_reader {
    const char *text;
    size_t length, at, count;
    conf_token token; /* the current one; length 0 at the end */
    tide_alloc_conf *conf;
    tide_alloc_conf_error *error;
    bool has_native_option;
} conf_reader;

static bool conf_is_mark(char c) {
    return c == ',' || c == ':' || c == '[' || c == ']';
}

static bool conf_is_blank(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Reads the next token into r->token; false at the end of the text. */
static bool conf_next(conf_reader *r) {
    conf_token *t = &r->token;
    while (r->at < r->length && conf_is_blank(r->text[r->at])) r->at++;
    t->length = 0;
    t->offset = r->at;
    t->index = r->count;
    while (r->at < r->length) {
        char c = r->text[r->at];
        if (conf_is_mark(c) && t->length > 0) break;
        r->at++;
        if (conf_is_blank(c)) continue;
        if (t->length + 1 < sizeof t->text) t->text[t->length++] = c;
        if (conf_is_mark(c)) break;
    }
    t->text[t->length] = 0;
    if (t->length == 0) return false;
    r->count++;
    return true;
}

static bool conf_is(const conf_reader *r, const char *word) {
    return strcmp(r->token.text, word) == 0;
}

/* Joins up to four pieces into the error's message and returns false. */
static bool conf_fail(conf_reader *r, const char *a, const char *b, const char *c, const char *d) {
    const char *pieces[4] = {a, b, c, d};
    if (!r->error) return false;
    size_t used = 0;
    r->error->offset = r->token.offset;
    for (int i = 0; i < 4; i++)
        for (const char *p = pieces[i]; p && *p && used + 1 < sizeof r->error->message; p++)
            r->error->message[used++] = *p;
    r->error->message[used] = 0;
    return false;
}

/* Decimal digits of v into text[21]. */
static const char *conf_digits(char *text, uint64_t v) {
    char *p = text + 20;
    *p = 0;
    do {
        *--p = (char)('0' + v % 10);
        v /= 10;
    } while (v);
    return p;
}

static bool conf_expect(conf_reader *r, char mark) {
    const char word[2] = {mark, 0};
    if (conf_next(r) && conf_is(r, word)) return true;
    return conf_fail(r, "Error parsing CachingAllocator settings, expected ", word, "", "");
}

static bool conf_value(conf_reader *r, const char *key) {
    if (conf_next(r) && !conf_is(r, ",") && !conf_is(r, ":") && !conf_is(r, "]")) return true;
    return conf_fail(r, "Error, expecting ", key, " value", "");
}

/* As std::stoull: a sign and the leading digits count, "-1" wraps, text after the digits is
 * dropped. */
static bool conf_number(conf_reader *r, const char *key, uint64_t *out) {
    const char *p = r->token.text;
    bool is_negative = *p == '-';
    uint64_t v = 0;
    if (*p == '-' || *p == '+') p++;
    if (*p < '0' || *p > '9') return conf_fail(r, key, " is not a number: '", r->token.text, "'");
    for (; *p >= '0' && *p <= '9'; p++) {
        uint64_t digit = (uint64_t)(*p - '0');
        if (v > (UINT64_MAX - digit) / 10) return conf_fail(r, key, " is out of range: '", r->token.text, "'");
        v = v * 10 + digit;
    }
    if (*p) r->conf->warnings |= TIDE_ALLOC_CONF_TRAILING_TEXT;
    *out = is_negative ? 0 - v : v;
    return true;
}

/* As std::stod for decimal text; exact for up to 15 digits, which is more than anyone writes here.
 */
static bool conf_decimal(conf_reader *r, const char *key, double *out) {
    const char *p = r->token.text;
    bool is_negative = *p == '-', has_digits = false;
    uint64_t digits = 0;
    int scale = 0, exponent = 0;
    if (*p == '-' || *p == '+') p++;
    for (bool is_fraction = false; (*p >= '0' && *p <= '9') || (*p == '.' && !is_fraction); p++) {
        if (*p == '.') {
            is_fraction = true;
            continue;
        }
        has_digits = true;
        if (digits < (uint64_t)1 << 49) {
            digits = digits * 10 + (uint64_t)(*p - '0');
            scale -= is_fraction;
        } else {
            scale += !is_fraction;
        }
    }
    if (!has_digits) return conf_fail(r, key, " is not a number: '", r->token.text, "'");
    if ((*p == 'e' || *p == 'E') &&
        ((p[1] >= '0' && p[1] <= '9') || ((p[1] == '-' || p[1] == '+') && p[2] >= '0' && p[2] <= '9'))) {
        bool is_down = p[1] == '-';
        for (p += p[1] == '-' || p[1] == '+' ? 2 : 1; *p >= '0' && *p <= '9'; p++)
            if (exponent < 1000) exponent = exponent * 10 + (*p - '0');
        if (is_down) exponent = -exponent;
    }
    if (*p) r->conf->warnings |= TIDE_ALLOC_CONF_TRAILING_TEXT;
    double power = 1, value = (double)digits;
    scale += exponent;
    for (int i = scale < 0 ? -scale : scale; i > 0 && power < 1e300; i--) power *= 10;
    value = scale < 0 ? value / power : value * power;
    *out = is_negative ? -value : value;
    return true;
}

static bool conf_is_power_of_two(uint64_t v) {
    return v && !(v & (v - 1));
}

static unsigned conf_log2(uint64_t v) {
    return 63 - (unsigned)__builtin_clzll(v);
}

/* ---- one function per kind of value; the current token is the value's first ---- */

static bool conf_bool(conf_reader *r, bool *out) {
    char digits[21];
    if (!conf_is(r, "True") && !conf_is(r, "False")) {
        char where[64] = "";
        const char *index = conf_digits(digits, r->token.index);
        size_t n = strlen(index);
        memcpy(where, index, n);
        memcpy(where + n, " in ConfigTokenizer but got '", 30);
        return conf_fail(r, "Expected 'True' or 'False' at index ", where, r->token.text, "'");
    }
    *out = conf_is(r, "True");
    return true;
}

/* A size in MiB that must be at least `least`. */
static bool conf_megabytes(conf_reader *r, const char *key, uint64_t least, uint64_t *out) {
    uint64_t v;
    char digits[21];
    if (!conf_number(r, key, &v)) return false;
    if (v < least)
        return conf_fail(r, "CachingAllocator option ", key, " too small, must be >= ", conf_digits(digits, least));
    if (v > UINT64_MAX / conf_mib) v = UINT64_MAX / conf_mib;
    *out = v * conf_mib;
    return true;
}

static bool conf_large_segment_size(conf_reader *r) {
    uint64_t v;
    if (!conf_number(r, "large_segment_size_mb", &v)) return false;
    if (v <= conf_min_large_alloc_mb)
        return conf_fail(r, "CachingAllocator option large_segment_size_mb must be > 10 MB", "", "", "");
    if (v > UINT64_MAX / conf_mib) v = UINT64_MAX / conf_mib;
    r->conf->large_segment_size_bytes = v * conf_mib;
    return true;
}

static bool conf_threshold(conf_reader *r) {
    double v;
    if (!conf_decimal(r, "garbage_collection_threshold", &v)) return false;
    if (!(v > 0 && v < 1))
        return conf_fail(r, "garbage_collect_threshold is invalid, set it in (0.0, 1.0)", "", "", "");
    r->conf->garbage_collection_threshold = v;
    return true;
}

static bool conf_fraction(conf_reader *r) {
    double v;
    if (!conf_decimal(r, "per_process_memory_fraction", &v)) return false;
    if (!(v >= 0 && v <= 1))
        return conf_fail(r, "per_process_memory_fraction is invalid, set it in [0.0, 1.0]", "", "", "");
    r->conf->per_process_memory_fraction = v;
    return true;
}

static void conf_fill(uint64_t *divisions, unsigned from, unsigned to, uint64_t v) {
    for (unsigned i = from; i < to; i++) divisions[i] = v;
}

/* `[256:1,512:2,>:8]`: each boundary in MiB fills its bucket, the first one also all below it. */
static bool conf_roundup_list(conf_reader *r) {
    uint64_t *divisions = r->conf->roundup_power2_divisions;
    unsigned last = 0;
    bool is_first = true;
    if (!conf_next(r)) return conf_fail(r, "Expected closing bracket ']'", "", "", "");
    if (conf_is(r, "]")) return true;
    for (;;) {
        uint64_t boundary = 0, v;
        bool is_rest = conf_is(r, ">");
        if (!is_rest && !conf_number(r, "roundup_power2_divisions", &boundary)) return false;
        if (!is_rest && !conf_is_power_of_two(boundary))
            return conf_fail(r, "For roundups, the intervals have to be power of 2", "", "", "");
        if (!conf_expect(r, ':') || !conf_value(r, "roundup_power2_divisions") ||
            !conf_number(r, "roundup_power2_divisions", &v))
            return false;
        if (v && !conf_is_power_of_two(v))
            return conf_fail(r, "For roundups, the divisions has to be power of 2 or 0 to disable roundup", "", "", "");
        if (is_rest) {
            /* Before 2.9 the remainder began at the last bucket itself. */
            unsigned from = last + (r->conf->profile == TIDE_ALLOC_TORCH_MAIN);
            conf_fill(divisions, from, TIDE_ROUNDUP_BUCKETS, v);
        } else {
            unsigned bucket = conf_log2(boundary);
            if (bucket > TIDE_ROUNDUP_BUCKETS - 1) bucket = TIDE_ROUNDUP_BUCKETS - 1;
            if (is_first) conf_fill(divisions, 0, bucket, v);
            is_first = false;
            divisions[bucket] = v;
            last = bucket;
        }
        if (!conf_next(r)) return conf_fail(r, "Expected closing bracket ']'", "", "", "");
        if (conf_is(r, "]")) return true;
        if (!conf_is(r, ",")) return conf_fail(r, "Error parsing CachingAllocator settings, expected ,", "", "", "");
        if (!conf_next(r)) return conf_fail(r, "Expected closing bracket ']'", "", "", "");
        if (conf_is(r, "]")) return true;
    }
}

static bool conf_roundup(conf_reader *r) {
    uint64_t v;
    if (conf_is(r, "[")) return conf_roundup_list(r);
    if (!conf_number(r, "roundup_power2_divisions", &v)) return false;
    if (!conf_is_power_of_two(v)) return conf_fail(r, "For roundups, the divisions has to be power of 2", "", "", "");
    conf_fill(r->conf->roundup_power2_divisions, 0, TIDE_ROUNDUP_BUCKETS, v);
    return true;
}

static bool conf_backend(conf_reader *r) {
    bool is_async = conf_is(r, "cudaMallocAsync");
    if (!is_async && !conf_is(r, "native"))
        return conf_fail(r, "Unknown allocator backend, options are native and cudaMallocAsync", "", "", "");
    r->conf->backend = is_async ? TIDE_ALLOC_CUDA_MALLOC_ASYNC : TIDE_ALLOC_NATIVE;
    return true;
}

/* Options of the pinned host allocator: validated, but without effect on device memory. */
static bool conf_register_threads(conf_reader *r) {
    uint64_t v;
    if (!conf_number(r, "pinned_num_register_threads", &v)) return false;
    if (!conf_is_power_of_two(v))
        return conf_fail(r, "Number of register threads has to be power of 2, got ", r->token.text, "", "");
    if (v > conf_max_register_threads)
        return conf_fail(r, "Number of register threads should be less than or equal to 128, got ", r->token.text, "",
                         "");
    return true;
}

static bool conf_pinned_segment(conf_reader *r) {
    uint64_t v;
    if (!conf_number(r, "pinned_reserve_segment_size_mb", &v)) return false;
    if (v == 0) return conf_fail(r, "Pinned reserve segment size has to be greater than 0", "", "", "");
    return true;
}

/* Skips a value that is not modelled: a word, or a bracketed list. */
static bool conf_skip(conf_reader *r) {
    r->conf->warnings |= TIDE_ALLOC_CONF_NOT_MODELLED;
    if (!conf_is(r, "[")) return true;
    while (conf_next(r))
        if (conf_is(r, "]")) return true;
    return conf_fail(r, "Expected closing bracket ']'", "", "", "");
}

static bool conf_flag(conf_reader *r) {
    bool ignored;
    return conf_bool(r, &ignored);
}

/* Keys that only newer releases accept. */
static bool conf_is_newer(const char *key) {
    static const char *const keys[] = {
        "max_non_split_rounding_mb",      "large_segment_size_mb",       "per_process_memory_fraction",
        "throw_on_cudamalloc_oom",        "expandable_segments_reserve", "expandable_segments_reserve_by_class",
        "pinned_reserve_segment_size_mb", "pinned_free_catch_all",       "graph_capture_record_stream_reuse"};
    for (size_t i = 0; i < TIDE_COUNT_OF(keys); i++)
        if (strcmp(key, keys[i]) == 0) return true;
    return false;
}

static bool conf_option(conf_reader *r, const char *key) {
    tide_alloc_conf *c = r->conf;
    uint64_t least = c->large_segment_size_bytes / conf_mib;
    if (strcmp(key, "backend") == 0) return conf_backend(r);
    r->has_native_option = true;
    if (strcmp(key, "max_split_size_mb") == 0) return conf_megabytes(r, key, least, &c->max_split_size_bytes);
    if (strcmp(key, "max_non_split_rounding_mb") == 0)
        return conf_megabytes(r, key, least, &c->max_non_split_rounding_bytes);
    if (strcmp(key, "large_segment_size_mb") == 0) return conf_large_segment_size(r);
    if (strcmp(key, "garbage_collection_threshold") == 0) return conf_threshold(r);
    if (strcmp(key, "roundup_power2_divisions") == 0) return conf_roundup(r);
    if (strcmp(key, "expandable_segments") == 0) return conf_bool(r, &c->expandable_segments);
    if (strcmp(key, "per_process_memory_fraction") == 0) return conf_fraction(r);
    if (strcmp(key, "throw_on_cudamalloc_oom") == 0) return conf_bool(r, &c->throw_on_cudamalloc_oom);
    if (strcmp(key, "expandable_segments_reserve") == 0 || strcmp(key, "expandable_segments_reserve_by_class") == 0)
        return conf_skip(r);
    if (strcmp(key, "pinned_num_register_threads") == 0) return conf_register_threads(r);
    if (strcmp(key, "pinned_reserve_segment_size_mb") == 0) return conf_pinned_segment(r);
    return conf_flag(r);
}

static bool conf_is_key(const char *key) {
    static const char *const keys[] = {"backend",
                                       "max_split_size_mb",
                                       "max_non_split_rounding_mb",
                                       "large_segment_size_mb",
                                       "garbage_collection_threshold",
                                       "roundup_power2_divisions",
                                       "expandable_segments",
                                       "expandable_segments_reserve",
                                       "expandable_segments_reserve_by_class",
                                       "per_process_memory_fraction",
                                       "throw_on_cudamalloc_oom",
                                       "graph_capture_record_stream_reuse",
                                       "release_lock_on_cudamalloc",
                                       "release_lock_on_hipmalloc",
                                       "pinned_use_cuda_host_register",
                                       "pinned_use_hip_host_register",
                                       "pinned_num_register_threads",
                                       "pinned_use_background_threads",
                                       "pinned_reserve_segment_size_mb",
                                       "pinned_free_catch_all"};
    for (size_t i = 0; i < TIDE_COUNT_OF(keys); i++)
        if (strcmp(key, keys[i]) == 0) return true;
    return false;
}

static bool conf_read(conf_reader *r) {
    while (conf_next(r)) {
        char key[sizeof r->token.text];
        memcpy(key, r->token.text, r->token.length + 1);
        bool is_known = conf_is_key(key);
        if (r->conf->profile == TIDE_ALLOC_TORCH_2_4 && conf_is_newer(key)) is_known = false;
        if (!is_known) return conf_fail(r, "Unrecognized key '", key, "' in CUDA allocator config.", "");
        if (!conf_expect(r, ':') || !conf_value(r, key) || !conf_option(r, key)) return false;
        if (conf_next(r) && !conf_is(r, ","))
            return conf_fail(r, "Error parsing CachingAllocator settings, expected ,", "", "", "");
    }
    return true;
}

tide_alloc_conf tide_alloc_conf_default(tide_alloc_profile profile) {
    tide_alloc_conf c = {.profile = profile,
                         .max_split_size_bytes = UINT64_MAX,
                         .max_non_split_rounding_bytes = conf_large_buffer,
                         .large_segment_size_bytes = conf_large_buffer,
                         .per_process_memory_fraction = 1};
    return c;
}

bool tide_alloc_conf_parse(tide_alloc_conf *conf, tide_alloc_profile profile, const char *text, size_t length,
                           tide_alloc_conf_error *error) {
    conf_reader r = {.text = text, .length = length, .conf = conf, .error = error};
    *conf = tide_alloc_conf_default(profile);
    if (error) *error = (tide_alloc_conf_error){0};
    if (!conf_read(&r)) {
        *conf = tide_alloc_conf_default(profile);
        return false;
    }
    if (conf->backend == TIDE_ALLOC_CUDA_MALLOC_ASYNC) {
        conf->is_approximate = true;
        if (r.has_native_option) conf->warnings |= TIDE_ALLOC_CONF_ASYNC_IGNORES;
    }
    return true;
}
