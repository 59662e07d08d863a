/* SPDX-License-Identifier: Apache-2.0 */
/* Comparing two jobs: what differs, and which setting is the cause. */
#include <string.h>

#include "report/queries.h"

static void write_factors_at(tide_writer *w, const char *key, const uint64_t *factors) {
    tide_write_key(w, key);
    tide_write_open(w, '{');
    for (int i = 0; factors && i < TIDE_FACTOR_COUNT; i++) tide_write_bytes_at(w, tide_factor_names[i], factors[i]);
    tide_write_close(w, '}');
}

static void write_side(tide_writer *w, const char *key, const tide_what_if *v) {
    tide_write_key(w, key);
    tide_write_open(w, '{');
    tide_write_what_if(w, v);
    write_factors_at(w, "factors", v->factors);
    tide_write_close(w, '}');
}

/* ---- parts of the model ---- */

static const tide_part_bytes *part_named(const tide_what_if *v, const char *part) {
    for (uint32_t i = 0; i < v->part_count; i++)
        if (strcmp(v->parts[i].part, part) == 0) return &v->parts[i];
    return NULL;
}

static void write_part(tide_writer *w, const tide_part_bytes *one, const tide_part_bytes *other) {
    tide_write_open(w, '{');
    tide_write_string_at(w, "part", one ? one->part : other->part);
    tide_write_string_at(w, "title", one ? one->title : other->title);
    write_factors_at(w, "one", one ? one->factors : NULL);
    write_factors_at(w, "other", other ? other->factors : NULL);
    tide_write_close(w, '}');
}

static void write_compared_parts(tide_writer *w, const tide_what_if *one, const tide_what_if *other) {
    tide_write_open_at(w, "parts", '[');
    for (uint32_t i = 0; i < one->part_count; i++) write_part(w, &one->parts[i], part_named(other, one->parts[i].part));
    for (uint32_t i = 0; i < other->part_count; i++)
        if (!part_named(one, other->parts[i].part)) write_part(w, NULL, &other->parts[i]);
    tide_write_close(w, ']');
}

/* ---- settings ---- */

enum { STEP_LIMIT = 16 }; /* settings played one by one; further ones are changed together with the last */

typedef struct difference {
    const char *name, *one, *other; /* "": not set */
} difference;

/* A setting that a recipe, a file or another setting implies is not a cause itself. */
static const tide_setting_row *given_row(const tide_what_if *v, const char *name) {
    for (uint32_t i = 0; i < v->row_count; i++)
        if (strcmp(v->rows[i].name, name) == 0) return v->rows[i].origin == TIDE_ORIGIN_USER ? &v->rows[i] : NULL;
    return NULL;
}

static difference *find_differences(uint32_t *count, tide_arena *arena, const tide_what_if *one,
                                    const tide_what_if *other) {
    difference *list = TIDE_NEW(arena, difference, one->row_count + other->row_count + 1);
    *count = 0;
    for (uint32_t i = 0; i < one->row_count; i++) {
        const tide_setting_row *row = &one->rows[i];
        bool is_given = given_row(one, row->name) || given_row(other, row->name);
        if (is_given && strcmp(row->value, tide_what_if_setting(other, row->name)) != 0)
            list[(*count)++] = (difference){row->name, row->value, tide_what_if_setting(other, row->name)};
    }
    for (uint32_t i = 0; i < other->row_count; i++) {
        const tide_setting_row *row = &other->rows[i];
        bool is_new = given_row(other, row->name) && *row->value;
        for (uint32_t k = 0; k < one->row_count && is_new; k++) is_new = strcmp(one->rows[k].name, row->name) != 0;
        if (is_new) list[(*count)++] = (difference){row->name, "", row->value};
    }
    return list;
}

static tide_text word_of(tide_arena *arena, const char *name, const char *value) {
    return tide_text_of(tide_format(arena, "%s=%s", name, value));
}

/* The first job with the first `count` differing settings taken from the second. */
static tide_what_if try_between(const tide_query *q, const tide_what_if *one, const difference *list, uint32_t count) {
    tide_text *words = TIDE_NEW(q->arena, tide_text, one->row_count + count + 1);
    tide_query between = *q;
    between.arguments = words;
    between.argument_count = 0;
    for (uint32_t i = 0; i < one->row_count; i++) {
        bool differs = one->rows[i].origin != TIDE_ORIGIN_USER;
        for (uint32_t k = 0; k < count && !differs; k++) differs = strcmp(list[k].name, one->rows[i].name) == 0;
        if (!differs) words[between.argument_count++] = word_of(q->arena, one->rows[i].name, one->rows[i].value);
    }
    for (uint32_t k = 0; k < count; k++)
        if (*list[k].other) words[between.argument_count++] = word_of(q->arena, list[k].name, list[k].other);
    return tide_what_if_play(&between, NULL, 0);
}

/* Settings of one group, such as parallel.kind and parallel.dp, only make sense together. */
static bool goes_with_next(const difference *list, uint32_t i) {
    size_t head = strcspn(list[i].name, ".");
    return list[i].name[head] && strncmp(list[i].name, list[i + 1].name, head + 1) == 0;
}

static void write_changes(tide_writer *w, const tide_query *q, const tide_what_if *one, const tide_what_if *other) {
    uint32_t count;
    const difference *list = find_differences(&count, q->arena, one, other);
    uint64_t need = one->need;
    tide_write_open_at(w, "settings", '[');
    for (uint32_t i = 0; i < count; i++) {
        bool is_last = i + 1 == count, is_step = is_last || (i < STEP_LIMIT && !goes_with_next(list, i));
        tide_what_if between = {.status = TIDE_OK};
        if (is_step && !is_last) between = try_between(q, one, list, i + 1);
        const tide_what_if *then = is_last ? other : &between;
        tide_write_open(w, '{');
        tide_write_string_at(w, "setting", list[i].name);
        tide_write_string_at(w, "one", list[i].one);
        tide_write_string_at(w, "other", list[i].other);
        if (is_step && then->status == TIDE_OK) {
            tide_write_int_at(w, "change", (int64_t)(then->need - need));
            need = then->need;
        }
        tide_write_close(w, '}');
    }
    tide_write_close(w, ']');
}

bool tide_write_comparison(tide_writer *w, const tide_query *one, const tide_query *other, tide_diagnostics *diags) {
    tide_what_if a, b;
    if (!tide_what_if_now(&a, one, diags) || !tide_what_if_now(&b, other, diags)) return false;
    write_side(w, "one", &a);
    write_side(w, "other", &b);
    write_compared_parts(w, &a, &b);
    write_changes(w, one, &a, &b);
    return true;
}
