/* Trials, and what they are for: cells, fit, cards. */
#include "report/trials.h"

#include "base/units.h"

#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include "lang/embedded_models.h"
#include "report/ranks.h"

/* ---- one trial ---- */

static void keep_rows(tide_verdict *v, tide_arena *arena, const tide_job *job) {
    v->rows = TIDE_NEW(arena, tide_setting_row, job->row_count + 1);
    v->row_count = job->row_count;
    for (uint32_t i = 0; i < job->row_count; i++)
        v->rows[i] = (tide_setting_row){tide_text_copy(arena, tide_text_of(job->rows[i].name)),
                                        tide_text_copy(arena, tide_text_of(job->rows[i].value)), job->rows[i].origin};
}

static bool play(tide_verdict *v, const tide_query *q, tide_arena *arena, tide_arena *ranks, const char *const *more,
                 uint32_t count) {
    tide_diagnostics diags;
    tide_diagnostics_init(&diags, arena);
    tide_text *words = TIDE_NEW(arena, tide_text, q->word_count + count + 1);
    memcpy(words, q->words, q->word_count * sizeof *words);
    for (uint32_t i = 0; i < count; i++) words[q->word_count + i] = tide_text_of(more[i]);
    tide_job *job = tide_job_build(arena, words, q->word_count + count, q->files, q->file_count, &diags);
    tide_run *run = job ? tide_run_trial(q->shelf, job, arena, ranks, &diags) : NULL;
    if (!run) {
        v->status = diags.first_error;
        for (uint32_t i = diags.count; i-- > 0;)
            if (diags.items[i].severity == TIDE_ERROR)
                v->message = tide_format(q->arena, "%s: %s", diags.items[i].place, diags.items[i].message);
        return true;
    }
    tide_replay r, on_card;
    tide_replay_config config = tide_report_config(job);
    tide_settle_factors(&run->machine.timeline);
    if (!tide_replay_timeline(&r, &run->machine.timeline, &config, false)) return false;
    if (!tide_report_on_card(&on_card, run, job, &r)) return false;
    v->fits = !on_card.is_oom;
    v->need = tide_report_device_bytes(job, &r);
    v->there = job->device_bytes;
    v->allocated = r.allocated_peak;
    v->reserved = r.reserved_peak;
    tide_report_factors(&run->machine.timeline, &r, r.peak_event, v->factors);
    v->parts = tide_report_parts(&v->part_count, run, &r, r.peak_event, q->arena);
    keep_rows(v, q->arena, job);
    return true;
}

tide_verdict tide_try(const tide_query *q, const char *const *more, uint32_t count) {
    jmp_buf escape;
    tide_arena arena, ranks;
    tide_verdict v = {.status = TIDE_OK, .message = ""};
    tide_arena_init(&arena, q->arena->memory, &escape);
    tide_arena_init(&ranks, q->arena->memory, &escape);
    jmp_buf *outside = q->arena->escape;
    q->arena->escape = &escape; /* what is kept of the trial is made there */
    bool ok = setjmp(escape) == 0 && play(&v, q, &arena, &ranks, more, count);
    q->arena->escape = outside;
    tide_arena_free(&ranks);
    tide_arena_free(&arena);
    if (!ok) tide_arena_fail(q->arena);
    return v;
}

const char *tide_setting_of(const tide_verdict *v, const char *name) {
    for (uint32_t i = 0; i < v->row_count; i++)
        if (strcmp(v->rows[i].name, name) == 0) return v->rows[i].value;
    return "";
}

bool tide_try_first(tide_verdict *v, const tide_query *q, tide_diagnostics *diags) {
    *v = tide_try(q, NULL, 0);
    return v->status == TIDE_OK || tide_error(diags, v->status, "", v->message, NULL);
}

bool tide_warn_of_more(const tide_query *q, tide_run *run, const tide_job *job, tide_diagnostics *diags) {
    static const struct {
        const char *word, *place, *remedy;
    } plain[] = {{"quant=none", "/settings/quant",
                  "what is not quantised is kept in fp32 (kbit_prepare), and a product needs its weight dequantised: "
                  "try kbit_prepare=false, or no quant"},
                 {"adapter=none", "/settings/adapter",
                  "adapt fewer modules or at a lower rank, without copies (modules_to_save) and DoRA, or train the "
                  "model itself"}};
    bool is_quantised = strcmp(job->quant, "none") != 0, is_training = strcmp(job->mode, "train") == 0;
    if (!is_training || (!is_quantised && strcmp(job->adapter.method, "none") == 0)) return true;
    tide_replay r;
    tide_replay_config config = tide_report_config(job);
    if (!tide_replay_timeline(&r, &run->machine.timeline, &config, false)) return false;
    const char *word = plain[!is_quantised].word;
    tide_verdict v = tide_try(q, &word, 1);
    if (v.status == TIDE_OK && v.allocated < r.allocated_peak)
        tide_report(diags, TIDE_WARNING, TIDE_ERR_CONFLICT, plain[!is_quantised].place,
                    tide_format(q->arena, "needs more than %s: %s allocated at most, in place of %s", word,
                                tide_gib(q->arena, r.allocated_peak), tide_gib(q->arena, v.allocated)),
                    plain[!is_quantised].remedy);
    return true;
}

void tide_write_trial(tide_writer *w, const tide_verdict *v) {
    if (v->there) tide_write_bool_at(w, "fits", v->fits);
    tide_write_bytes_at(w, "device_bytes", v->need);
    if (v->there) tide_write_bytes_at(w, "gpu_bytes", v->there);
    tide_write_bytes_at(w, "allocated_peak", v->allocated);
    tide_write_bytes_at(w, "reserved_peak", v->reserved);
}

/* ---- cells ---- */

/* False when memory ran out. */
static bool play_cell(tide_writer *w, const tide_query *q, const tide_json *words, tide_arena *arena,
                      tide_arena *ranks) {
    tide_diagnostics diags;
    tide_diagnostics_init(&diags, arena);
    tide_text *all = TIDE_NEW(arena, tide_text, q->word_count + words->count + 1);
    uint32_t count = q->word_count;
    memcpy(all, q->words, count * sizeof *all);
    for (const tide_json *word = words->first; word; word = word->next) all[count++] = word->text;
    tide_job *job = tide_job_build(arena, all, count, q->files, q->file_count, &diags);
    tide_run *run = job ? tide_run_trial(q->shelf, job, arena, ranks, &diags) : NULL;
    tide_write_bool_at(w, "ok", run != NULL);
    if (run) return tide_write_cell(w, run, job);
    tide_write_diagnostics(w, &diags, false);
    return true;
}

static bool write_cell(tide_writer *w, const tide_query *q, const tide_json *words) {
    jmp_buf escape;
    tide_arena arena, ranks;
    tide_arena_init(&arena, q->arena->memory, &escape);
    tide_arena_init(&ranks, q->arena->memory, &escape);
    jmp_buf *outside = q->arena->escape;
    q->arena->escape = &escape; /* the answer grows there */
    bool ok = setjmp(escape) == 0 && play_cell(w, q, words, &arena, &ranks);
    q->arena->escape = outside;
    tide_arena_free(&ranks);
    tide_arena_free(&arena);
    return ok;
}

bool tide_write_cells(tide_writer *w, const tide_query *q, const tide_json *cells, tide_diagnostics *diags) {
    for (const tide_json *cell = cells->first; cell; cell = cell->next) {
        bool is_list = cell->kind == TIDE_JSON_ARRAY;
        for (const tide_json *word = cell->first; word && is_list; word = word->next)
            is_list = word->kind == TIDE_JSON_STRING;
        if (!is_list)
            return tide_error(diags, TIDE_ERR_REQUEST, tide_json_place(q->arena, cell, ""),
                              "a cell is an array of words like \"batch=4\"", NULL);
    }
    tide_write_key(w, "cells");
    tide_write_open(w, '[');
    for (const tide_json *cell = cells->first; cell; cell = cell->next) {
        tide_write_open(w, '{');
        if (!write_cell(w, q, cell)) tide_arena_fail(q->arena);
        tide_write_close(w, '}');
    }
    tide_write_close(w, ']');
    return true;
}

/* ---- fit ---- */

static const int64_t HIGHEST = INT64_C(1) << 30;
enum { MOST_VALUES = 64 };

typedef struct search {
    const tide_query *question;
    const char *more[2]; /* the other setting, then the knob */
    uint32_t others;
    const char *knob;
    tide_verdict best, next; /* of the largest that fits, and of the one above it */
    int64_t largest;
} search;

static tide_verdict try_value(search *s, int64_t value) {
    s->more[s->others] = tide_format(s->question->arena, "%s=%lld", s->knob, (long long)value);
    return tide_try(s->question, s->more, s->others + 1);
}

static bool holds(const tide_verdict *v) {
    return v->status == TIDE_OK && v->fits;
}

/* Doubles from `start`, whose verdict is `v`, while it fits, or begins below it, and halves what is between. More needs
 * more: what is not monotone (the allocator's remainders) moves the answer by little. */
static void find_largest(search *s, int64_t start, tide_verdict v) {
    int64_t low = 0, high = start;
    while (holds(&v) && high < HIGHEST) {
        low = high;
        s->best = v;
        high *= 2;
        v = try_value(s, high);
    }
    s->next = v;
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        v = try_value(s, middle);
        if (holds(&v)) {
            low = middle;
            s->best = v;
        } else {
            high = middle;
            s->next = v;
        }
    }
    s->largest = low;
}

static bool write_largest(tide_writer *w, const tide_query *q, const char *knob, const char *other,
                          tide_diagnostics *diags) {
    search s = {.question = q, .knob = knob};
    if (other) s.more[s.others++] = other;
    tide_verdict now = tide_try(q, s.more, s.others);
    if (now.status != TIDE_OK) return tide_error(diags, now.status, "", now.message, NULL);
    if (!now.there)
        return tide_error(diags, TIDE_ERR_FIELD_MISSING, "/settings/gpu", "what it is to fit is not said",
                          "give a card, as in gpu=h100-80, or gpu_gib=...");
    int64_t start;
    if (!tide_text_to_i64(&start, tide_text_of(tide_setting_of(&now, knob))) || start < 1)
        return tide_error(diags, TIDE_ERR_FIELD_TYPE, tide_format(q->arena, "/settings/%s", knob),
                          "is no whole number that could grow", "try batch, seq, images or grad_accum");
    find_largest(&s, start, now);
    tide_write_open(w, '{');
    tide_write_string_at(w, "with", other ? other : "");
    tide_write_int_at(w, "largest", s.largest);
    if (s.largest) {
        tide_write_trial(w, &s.best);
    } else {
        tide_write_bool_at(w, "fits", false);
        tide_write_bytes_at(w, "gpu_bytes", now.there);
    }
    tide_write_key(w, "above");
    tide_write_open(w, '{');
    if (s.next.status == TIDE_OK)
        tide_write_trial(w, &s.next);
    else
        tide_write_string_at(w, "error", s.next.message);
    tide_write_close(w, '}');
    tide_write_close(w, '}');
    return true;
}

bool tide_write_fit(tide_writer *w, const tide_query *q, tide_text knob, tide_text by, tide_diagnostics *diags) {
    const char *name = tide_text_copy(q->arena, knob.length ? knob : TIDE_TEXT("batch"));
    const char *equals = by.length ? memchr(by.at, '=', by.length) : NULL;
    if (by.length && !equals)
        return tide_error(diags, TIDE_ERR_REQUEST, "/by", "a setting with values is wanted",
                          "write it as seq=1024,2048,4096");
    size_t values = 1;
    for (size_t i = 0; i < by.length; i++) values += by.at[i] == ',';
    if (values > MOST_VALUES)
        return tide_error(diags, TIDE_ERR_LIMIT, "/by", tide_format(q->arena, "more than %d values", MOST_VALUES),
                          "ask for fewer at a time");
    tide_write_string_at(w, "knob", name);
    tide_write_key(w, "rows");
    tide_write_open(w, '[');
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

/* ---- cards ---- */

enum { MOST_CARDS = 1024 };

static void write_card(tide_writer *w, const tide_query *q, const tide_json *card, bool is_parallel) {
    const tide_json *name = tide_json_at(card, "name"), *title = tide_json_at(card, "title");
    if (!name || !title || name->kind != TIDE_JSON_STRING || title->kind != TIDE_JSON_STRING) return;
    const char *more[2] = {tide_format(q->arena, "gpu=%s", name->text.at), NULL};
    int64_t cards = is_parallel ? 2 : 1;
    tide_verdict v;
    for (;; cards *= 2) {
        if (is_parallel) more[1] = tide_format(q->arena, "parallel.dp=%lld", (long long)cards);
        v = tide_try(q, more, is_parallel ? 2 : 1);
        if (!is_parallel || v.status != TIDE_OK || v.fits || cards >= MOST_CARDS) break;
    }
    tide_write_open(w, '{');
    tide_write_string_at(w, "name", name->text.at);
    tide_write_string_at(w, "title", title->text.at);
    if (v.status != TIDE_OK)
        tide_write_string_at(w, "error", v.message);
    else
        tide_write_trial(w, &v);
    tide_write_int_at(w, "cards", v.status == TIDE_OK && v.fits ? cards : 0);
    tide_write_close(w, '}');
}

bool tide_write_cards(tide_writer *w, const tide_query *q, tide_diagnostics *diags) {
    tide_verdict now;
    if (!tide_try_first(&now, q, diags)) return false;
    const char *kind = tide_setting_of(&now, "parallel.kind");
    bool is_parallel = *kind && strcmp(kind, "none") != 0;
    const tide_json *table =
        tide_json_parse(q->arena, (tide_text){tide_gpu_source.text, tide_gpu_source.length}, "/gpus", diags);
    const tide_json *cards = tide_json_at(table, "gpus");
    tide_write_key(w, "cards");
    tide_write_open(w, '[');
    for (const tide_json *card = cards ? cards->first : NULL; card; card = card->next)
        write_card(w, q, card, is_parallel);
    tide_write_close(w, ']');
    return true;
}
