/* SPDX-License-Identifier: Apache-2.0 */
/* The largest value of a setting that fits the GPU: without releasing cached memory if any value does.
 *
 * Larger values need more memory, except for the effect of blocks that the allocator cannot split: a value may not fit
 * although a larger one does. So the values right below the largest are played as well, and the answer is the one up to
 * which all of them fit; if larger ones fit again, that is mentioned. */
#include <string.h>

#include "report/queries.h"

static const int64_t HIGHEST = INT64_C(1) << 30;
enum { MOST_VALUES = 64, PLAYED_BELOW = 16 };

typedef struct fit_search {
    const tide_query *query;
    const char *more[2]; /* the other setting, then this one */
    uint32_t others;
    const char *knob;
    bool retries;            /* a job that releases cached memory also counts */
    tide_what_if best, next; /* of the largest value that fits, and of the next one */
    int64_t largest;
    int64_t again; /* fits although a smaller one does not; 0: none */
} fit_search;

static tide_what_if try_value(fit_search *s, int64_t value) {
    s->more[s->others] = tide_format(s->query->arena, "%s=%lld", s->knob, (long long)value);
    return tide_what_if_play(s->query, s->more, s->others + 1);
}

static bool holds(const fit_search *s, const tide_what_if *v) {
    return s->retries ? v->status == TIDE_OK && v->fits : tide_what_if_holds(v);
}

/* Goes down until the values below fit as well. */
static void look_below(fit_search *s) {
    int64_t top = s->largest;
    for (int64_t value = top - 1; value > 0 && value >= top - PLAYED_BELOW; value--) {
        tide_what_if v = try_value(s, value);
        if (!holds(s, &v)) {
            if (!s->again) s->again = top;
            s->next = v;
            s->largest = value - 1;
        } else if (value == s->largest) {
            s->best = v;
        }
    }
}

/* Starting at `start`, whose verdict is `v`, doubles while it fits or starts lower, then bisects. */
static void find_largest(fit_search *s, int64_t start, tide_what_if v) {
    int64_t low = 0, high = start;
    while (holds(s, &v) && high < HIGHEST) {
        low = high;
        s->best = v;
        high *= 2;
        v = try_value(s, high);
    }
    s->next = v;
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        v = try_value(s, middle);
        if (holds(s, &v)) {
            low = middle;
            s->best = v;
        } else {
            high = middle;
            s->next = v;
        }
    }
    s->largest = low;
    s->again = 0;
    look_below(s);
}

static bool write_largest(tide_writer *w, const tide_query *q, const char *knob, const char *other,
                          tide_diagnostics *diags) {
    fit_search s = {.query = q, .knob = knob};
    if (other) s.more[s.others++] = other;
    tide_what_if now = tide_what_if_play(q, s.more, s.others);
    if (now.status != TIDE_OK) return tide_error(diags, now.status, now.place, now.what, now.remedy);
    if (!now.there)
        return tide_error(diags, TIDE_ERR_FIELD_MISSING, "/settings/gpu", "there is no GPU that it should fit",
                          "give a GPU, such as gpu=h100-80, or gpu_gib=...");
    int64_t start = 1;
    const char *given = tide_what_if_setting(&now, knob);
    bool is_open = now.serves && !*given; /* the engine's default: the search starts from below */
    if (!is_open && (!tide_text_to_i64(&start, tide_text_of(given)) || start < 1))
        return tide_error(diags, TIDE_ERR_FIELD_TYPE, tide_format(q->arena, "/settings/%s", knob),
                          "is not an integer setting", "try batch, seq, images or grad_accum");
    if (is_open) now = try_value(&s, start);
    find_largest(&s, start, now);
    s.retries = s.largest == 0;
    if (s.retries) find_largest(&s, start, now);
    tide_write_open(w, '{');
    if (now.serves) tide_write_bool_at(w, "serves", true);
    tide_write_string_at(w, "with", other ? other : "");
    tide_write_int_at(w, "largest", s.largest);
    if (s.again) tide_write_int_at(w, "fits_again", s.again);
    if (s.largest) {
        tide_write_what_if(w, &s.best);
    } else {
        tide_write_bool_at(w, "fits", false);
        tide_write_bytes_at(w, "gpu_bytes", now.there);
    }
    tide_write_open_at(w, "above", '{');
    if (s.next.status == TIDE_OK)
        tide_write_what_if(w, &s.next);
    else
        tide_write_string_at(w, "error", s.next.message);
    tide_write_close(w, '}');
    tide_write_close(w, '}');
    return true;
}

bool tide_write_fit(tide_writer *w, const tide_query *q, tide_text knob, tide_text by, tide_diagnostics *diags) {
    const char *name = tide_setting_named(q->arena, knob.length ? knob : TIDE_TEXT("batch"));
    const char *equals = by.length ? memchr(by.at, '=', by.length) : NULL;
    if (by.length && !equals)
        return tide_error(diags, TIDE_ERR_REQUEST, "/by", "must be a setting with values",
                          "write it as seq=1024,2048,4096");
    size_t values = 1;
    for (size_t i = 0; i < by.length; i++) values += by.at[i] == ',';
    if (values > MOST_VALUES)
        return tide_error(diags, TIDE_ERR_LIMIT, "/by", tide_format(q->arena, "more than %d values", MOST_VALUES),
                          "ask for fewer at a time");
    tide_write_string_at(w, "knob", name);
    tide_write_open_at(w, "rows", '[');
    size_t head = equals ? (size_t)(equals - by.at) + 1 : 0, at = head;
    do {
        const char *comma = by.length ? memchr(by.at + at, ',', by.length - at) : NULL;
        size_t end = comma ? (size_t)(comma - by.at) : by.length;
        const char *other =
            by.length ? tide_format(q->arena, "%.*s%.*s", (int)head, by.at, (int)(end - at), by.at + at) : NULL;
        if (!write_largest(w, q, name, other, diags)) return false;
        at = end + 1;
    } while (at < by.length);
    tide_write_close(w, ']');
    return true;
}
