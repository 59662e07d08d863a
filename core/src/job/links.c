/* SPDX-License-Identifier: Apache-2.0 */
/* Reading and writing links. A link is read as far as possible, so that opening it always yields a job. */
#include "job/arguments.h"

#include <string.h>

#include "base/units.h"
enum { LINK_WORD_LIMIT = 2048, NAMED_LIMIT = 8, VIEW_LIMIT = 500 };

/* Keys for the content of files. */
static const struct {
    const char *key, *name;
} file_keys[] = {
    {"config", "config.json"}, {"preprocessor", "preprocessor_config.json"}, {"description", "description.json"}};

enum { FILE_KEYS = TIDE_COUNT_OF(file_keys) };

/* ---- percent-encoding ---- */

typedef struct link_text {
    tide_arena *arena;
    char *bytes;
    size_t length, capacity;
} link_text;

static void put_bytes(link_text *link, const char *bytes, size_t length) {
    if (length == 0) return; /* which has neither capacity nor bytes yet */
    if (link->capacity - link->length < length) {
        size_t capacity = (link->capacity + length) * 2;
        link->bytes = tide_arena_grow(link->arena, link->bytes, link->capacity, capacity);
        link->capacity = capacity;
    }
    memcpy(link->bytes + link->length, bytes, length);
    link->length += length;
}

static bool is_plain(char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || (c && strchr("-_.,:/", c));
}

/* Only characters that no chat or mail program changes in an address are left unencoded. */
static void put_encoded(link_text *link, tide_text text) {
    static const char digits[] = "0123456789ABCDEF";
    for (size_t i = 0; i < text.length; i++) {
        unsigned char c = (unsigned char)text.at[i];
        char escape[3] = {'%', digits[c >> 4], digits[c & 15]};
        if (is_plain(text.at[i]))
            put_bytes(link, &text.at[i], 1);
        else
            put_bytes(link, escape, sizeof escape);
    }
}

static void put_word(link_text *link, const char *prefix, const char *name, tide_text value) {
    put_bytes(link, prefix, strlen(prefix));
    put_encoded(link, tide_text_of(name));
    put_bytes(link, "=", 1);
    put_encoded(link, value);
    put_bytes(link, "&", 1);
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* Anything that is not an escape is kept. */
static tide_text decoded(tide_arena *arena, tide_text text) {
    char *out = tide_arena_alloc(arena, text.length + 1);
    size_t length = 0;
    for (size_t i = 0; i < text.length; i++) {
        int high = text.at[i] == '%' && i + 2 < text.length ? hex_digit(text.at[i + 1]) : -1;
        int low = high >= 0 ? hex_digit(text.at[i + 2]) : -1;
        if (low >= 0) i += 2;
        out[length++] = low >= 0 ? (char)(high * 16 + low) : text.at[i];
    }
    return (tide_text){out, length};
}

/* ---- reading ---- */

typedef struct link_reader {
    tide_arena *arena;
    tide_diagnostics *diags;
    tide_link *link;
    tide_job_arguments words, baseline;
    tide_text pairs[LINK_WORD_LIMIT][2]; /* b.KEY, processed when all other words are known */
    uint32_t pair_count, unknown_count;
    const char *unknown; /* "a, b" */
    bool has_version;
} link_reader;

static void warn(const link_reader *r, tide_status status, const char *message, const char *remedy) {
    tide_report(r->diags, TIDE_WARNING, status, "/link", message, remedy);
}

static void add_unknown(link_reader *r, tide_text name) {
    const char *shown = tide_shown(r->arena, name);
    if (r->unknown_count++ < NAMED_LIMIT)
        r->unknown = r->unknown ? tide_format(r->arena, "%s, %s", r->unknown, shown) : shown;
}

/* Takes a setting, or reports why not: then the default applies. */
static void read_setting(link_reader *r, tide_job_arguments *words, tide_text name, tide_text value,
                         tide_origin origin) {
    tide_diagnostics scratch;
    tide_setting_id id = tide_setting_find(name);
    tide_diagnostics_init(&scratch, r->arena);
    words->diags = &scratch;
    if (id == TIDE_SET_COUNT && !tide_setting_is_form(name)) {
        add_unknown(r, name);
        return;
    }
    tide_job_arguments before = *words;
    tide_setting_put(words, name, value, origin);
    if (scratch.error_count == 0) return;
    *words = before;
    for (uint32_t i = 0; i < scratch.count; i++)
        if (scratch.items[i].severity == TIDE_ERROR)
            tide_report(r->diags, TIDE_WARNING, scratch.items[i].status, scratch.items[i].place,
                        tide_format(r->arena, "is ignored in the link: %s", scratch.items[i].message),
                        scratch.items[i].remedy);
}

static bool is_was(tide_text text) {
    const char *bar = text.length < 40 ? memchr(text.at, '_', text.length) : NULL;
    for (size_t i = 0; bar && i < text.length; i++)
        if (!is_plain(text.at[i])) return false;
    return bar && bar != text.at;
}

/* Where a key of the view is stored; NULL: it is not one. */
static tide_text *view_text(tide_link_view *view, tide_text name) {
    return tide_text_is(name, "view")    ? &view->view
           : tide_text_is(name, "sel")   ? &view->sel
           : tide_text_is(name, "sweep") ? &view->sweep
                                         : NULL;
}

static bool read_file(link_reader *r, tide_text name, tide_text value) {
    for (int k = 0; k < FILE_KEYS; k++) {
        if (!tide_text_is(name, file_keys[k].key)) continue;
        tide_link *link = r->link;
        tide_text known = tide_text_of(file_keys[k].name);
        for (uint32_t i = 0; i < link->file_count; i++)
            if (tide_text_equal(link->files[i].name, known)) return true;
        link->files[link->file_count++] = (tide_file){known, value};
        return true;
    }
    return false;
}

static void read_link_version(link_reader *r, tide_text value) {
    int64_t version;
    size_t digits = 0;
    while (digits < value.length && value.at[digits] >= '0' && value.at[digits] <= '9')
        digits++; /* "v=1." at the end of a sentence */
    if (!tide_text_to_i64(&version, (tide_text){value.at, digits})) return;
    r->has_version = true;
    if (version > TIDE_LINK_VERSION)
        warn(r, TIDE_ERR_UNSUPPORTED,
             "was made with a newer version of tidemark; only what this version knows was "
             "read",
             "reload the page, or update tidemark");
}

static void read_piece(link_reader *r, tide_text piece) {
    if (tide_text_starts(piece, TIDE_TEXT("amp;"))) piece.at += 4, piece.length -= 4; /* the &amp; of HTML source */
    const char *equals = piece.length ? memchr(piece.at, '=', piece.length) : NULL;
    if (!piece.length) return;
    tide_text name = decoded(r->arena, (tide_text){piece.at, equals ? (size_t)(equals - piece.at) : piece.length});
    if (!equals) {
        add_unknown(r, name);
        return;
    }
    tide_text value = decoded(r->arena, (tide_text){equals + 1, piece.length - (size_t)(equals + 1 - piece.at)});
    bool is_base = tide_text_starts(name, TIDE_TEXT("b."));
    if (tide_text_is(name, "v")) {
        read_link_version(r, value);
    } else if (tide_text_is(name, "was")) {
        if (is_was(value)) r->link->was = value;
    } else if (view_text(&r->link->view, name)) {
        if (value.length <= VIEW_LIMIT) *view_text(&r->link->view, name) = value; /* an impossible value is ignored */
    } else if (is_base && r->pair_count < LINK_WORD_LIMIT) {
        r->pairs[r->pair_count][0] = (tide_text){name.at + 2, name.length - 2};
        r->pairs[r->pair_count++][1] = value;
    } else if (!read_file(r, name, value) && value.length) {
        read_setting(r, &r->words, name, value, TIDE_ORIGIN_FILE);
    }
}

static void take_words(const link_reader *r, const tide_job_arguments *words, tide_text **out, uint32_t *count) {
    *out = TIDE_NEW(r->arena, tide_text, TIDE_SET_COUNT + words->override_count);
    *count = 0;
    for (unsigned id = 0; id < TIDE_SET_COUNT; id++)
        if (words->is_given[id] && words->values[id][0])
            (*out)[(*count)++] = tide_text_of(
                tide_format(r->arena, "%s=%s", tide_argument_name(words, (tide_setting_id)id), words->values[id]));
    for (uint32_t i = 0; i < words->override_count; i++)
        (*out)[(*count)++] =
            tide_text_of(tide_format(r->arena, "overrides.%s=%s", words->overrides[i].path, words->overrides[i].text));
}

/* The job's words, overridden by those of b.; an empty one stands for the default. */
static void read_baseline(link_reader *r) {
    tide_arguments_init(&r->baseline, r->arena, r->diags);
    for (uint32_t i = 0; i < r->link->word_count; i++)
        tide_argument_read(&r->baseline, r->link->words[i], TIDE_ORIGIN_FILE, false);
    for (uint32_t i = 0; i < r->pair_count; i++) {
        tide_setting_id id = tide_setting_find(r->pairs[i][0]);
        if (r->pairs[i][1].length)
            read_setting(r, &r->baseline, r->pairs[i][0], r->pairs[i][1], TIDE_ORIGIN_USER);
        else if (id < TIDE_SET_COUNT)
            r->baseline.is_given[id] = false;
    }
    take_words(r, &r->baseline, &r->link->baseline, &r->link->baseline_count);
}

/* The part after the # of an address, with an extra level of encoding removed. */
static tide_text fragment_of(link_reader *r, tide_text text) {
    text = tide_trimmed(text);
    const char *hash = text.length ? memchr(text.at, '#', text.length) : NULL;
    if (hash) text = (tide_text){hash + 1, text.length - (size_t)(hash + 1 - text.at)};
    if (text.length > TIDE_LINK_READ_LIMIT) {
        warn(r, TIDE_ERR_LIMIT, "is longer than 256 KiB; the rest was not read", NULL);
        text.length = TIDE_LINK_READ_LIMIT;
    }
    bool is_encoded = text.length && !memchr(text.at, '=', text.length) &&
                      (tide_text_contains(text, TIDE_TEXT("%3D")) || tide_text_contains(text, TIDE_TEXT("%3d")));
    return is_encoded ? decoded(r->arena, text) : text;
}

void tide_link_read(tide_arena *arena, tide_text text, tide_link *link, tide_diagnostics *diags) {
    link_reader *r = TIDE_NEW(arena, link_reader, 1);
    *r = (link_reader){.arena = arena, .diags = diags, .link = link};
    *link = (tide_link){.was = TIDE_TEXT(""), .view = {TIDE_TEXT(""), TIDE_TEXT(""), TIDE_TEXT("")}};
    tide_arguments_init(&r->words, arena, diags);
    tide_text rest = fragment_of(r, text), piece;
    for (uint32_t i = 0; i < LINK_WORD_LIMIT && tide_piece_next(&rest, '&', &piece); i++) read_piece(r, piece);
    if (r->unknown_count)
        warn(r, TIDE_ERR_FIELD_UNKNOWN,
             tide_format(arena, "contains %u %s unknown to this version: %s%s", (unsigned)r->unknown_count,
                         r->unknown_count == 1 ? "setting that is" : "settings that are", r->unknown,
                         r->unknown_count > NAMED_LIMIT ? ", ..." : ""),
             NULL);
    if (!r->has_version)
        warn(r, TIDE_ERR_FIELD_MISSING, "looks truncated: it does not end in v=1", "check the settings");
    take_words(r, &r->words, &link->words, &link->word_count);
    if (r->pair_count) read_baseline(r);
}

static tide_text name_of(tide_text word) {
    const char *equals = memchr(word.at, '=', word.length);
    tide_text name = equals ? tide_trimmed((tide_text){word.at, (size_t)(equals - word.at)}) : TIDE_TEXT("model");
    tide_setting_id id = tide_setting_find(name);
    return id == TIDE_SET_COUNT ? name : tide_text_of(tide_settings[id].name);
}

uint32_t tide_words_join(tide_arena *arena, const tide_text *under, uint32_t under_count, const tide_text *words,
                         uint32_t count, tide_text **joined) {
    uint32_t length = 0;
    *joined = TIDE_NEW(arena, tide_text, under_count + count + 1);
    for (uint32_t i = 0; i < under_count; i++) {
        bool is_given = false;
        for (uint32_t k = 0; k < count; k++)
            is_given = is_given || tide_text_equal(name_of(under[i]), name_of(words[k]));
        if (!is_given) (*joined)[length++] = under[i];
    }
    for (uint32_t k = 0; k < count; k++) (*joined)[length++] = words[k];
    return length;
}

/* ---- writing ---- */

static const char *default_of(tide_arena *arena, const tide_job *job, tide_setting_id id) {
    if (id == TIDE_SET_dtype && job->mode == TIDE_mode_serve) return "auto";
    if (tide_trainer_default(job, id)) return tide_trainer_default(job, id);
    return id == TIDE_SET_capability ? tide_format(arena, "%d", job->gpu.capability) : tide_setting_default(id);
}

/* An adapter option implies an adapter, unless the job says that there is none. */
static bool has_adapter_option(const tide_job *job) {
    for (uint32_t i = 0; i < job->row_count; i++) {
        tide_setting_id id = job->rows[i].id;
        if (id < TIDE_SET_COUNT && strncmp(job->rows[i].name, "adapter.", strlen("adapter.")) == 0 &&
            strcmp(job->rows[i].value, tide_setting_default(id)) != 0)
            return true;
    }
    return false;
}

/* Whether a row must be in the link: it differs from the default, and a word can express it. */
static bool row_in_link(tide_arena *arena, const tide_job *job, const tide_setting_row *row) {
    tide_setting_id id = row->id;
    if (id == TIDE_SET_COUNT) return true; /* overrides.KEY */
    if (id == TIDE_SET_model) return !job->names_itself;
    if (id == TIDE_SET_recipe) return false; /* it is covered by its settings */
    bool follows_lengths = tide_job_has_lengths(job) && row->origin == TIDE_ORIGIN_DEFAULT;
    if (follows_lengths && (id == TIDE_SET_seq || id == TIDE_SET_steps)) return false;
    if (id == TIDE_SET_adapter && row->origin != TIDE_ORIGIN_DEFAULT && has_adapter_option(job)) return true;
    return strcmp(row->value, default_of(arena, job, id)) != 0;
}

/* JSON without whitespace between tokens. */
static tide_text minified(tide_arena *arena, tide_text text) {
    char *out = tide_arena_alloc(arena, text.length + 1);
    size_t length = 0;
    bool is_inside = false;
    for (size_t i = 0; i < text.length; i++) {
        char c = text.at[i];
        bool is_blank = c == ' ' || c == '\n' || c == '\r' || c == '\t';
        if (is_inside && c == '\\' && i + 1 < text.length)
            out[length++] = text.at[i++];
        else if (c == '"')
            is_inside = !is_inside;
        if (is_inside || !is_blank) out[length++] = text.at[i];
    }
    return (tide_text){out, length};
}

static const tide_setting_row *row_find(const tide_job *job, const char *name) {
    for (uint32_t i = 0; i < job->row_count; i++)
        if (strcmp(job->rows[i].name, name) == 0) return &job->rows[i];
    return NULL;
}

/* b.KEY for what differs in the baseline; b.KEY= if it has the default there. */
static void put_baseline(link_text *link, const tide_job *job, const tide_job *baseline) {
    for (uint32_t i = 0; i < baseline->row_count; i++) {
        const tide_setting_row *row = &baseline->rows[i], *own = row_find(job, row->name);
        bool is_said = row_in_link(link->arena, baseline, row), is_own = own && row_in_link(link->arena, job, own);
        if (is_said && !(is_own && strcmp(own->value, row->value) == 0))
            put_word(link, "b.", row->name, tide_text_of(row->value));
    }
    for (uint32_t i = 0; i < job->row_count; i++) {
        const tide_setting_row *row = &job->rows[i], *other = row_find(baseline, row->name);
        if (row_in_link(link->arena, job, row) && !(other && row_in_link(link->arena, baseline, other)))
            put_word(link, "b.", row->name, TIDE_TEXT(""));
    }
}

const char *tide_link_write_more(tide_arena *arena, const tide_job *job, const tide_job *baseline,
                                 const tide_link_view *view, tide_text was) {
    link_text link = {.arena = arena};
    const tide_text contents[FILE_KEYS] = {job->config_text, job->preprocessor_text, job->description_text};
    for (uint32_t i = 0; i < job->row_count; i++)
        if (row_in_link(arena, job, &job->rows[i]))
            put_word(&link, "", job->rows[i].name, tide_text_of(job->rows[i].value));
    for (int k = 0; k < FILE_KEYS; k++)
        if (contents[k].length) put_word(&link, "", file_keys[k].key, minified(arena, contents[k]));
    if (baseline) put_baseline(&link, job, baseline);
    if (view && view->view.length) put_word(&link, "", "view", view->view);
    if (view && view->sel.length) put_word(&link, "", "sel", view->sel);
    if (view && view->sweep.length) put_word(&link, "", "sweep", view->sweep);
    if (was.length) put_word(&link, "", "was", was);
    put_bytes(&link, "v=1", sizeof "v=1");
    return link.bytes;
}

const char *tide_link_write(tide_arena *arena, const tide_job *job) {
    return tide_link_write_more(arena, job, NULL, NULL, TIDE_TEXT(""));
}
