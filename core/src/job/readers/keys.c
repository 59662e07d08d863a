/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the keys of a file by the rows of a table. */
#include "job/readers/claims.h"

#include <string.h>

static bool is_off(const tide_json *value) {
    if (value->kind == TIDE_JSON_STRING) return value->text.length == 0;
    if (value->kind == TIDE_JSON_BOOL) return !value->is_true;
    if (value->kind == TIDE_JSON_NUMBER) return value->number == 0;
    return value->kind == TIDE_JSON_NULL || !value->first;
}

/* The configuration itself instead of a path. */
static void hold_deepspeed(tide_claims *c, const char *key, const tide_json *value) {
    c->of_deepspeed = *c->at;
    c->of_deepspeed.root = value;
    c->of_deepspeed.place = tide_claims_place(c, key);
    tide_claims_note(c, key, TIDE_KEY_USED, NULL, NULL);
}

/* If the key belongs to one trainer it names it; with several, the file is about preferences or rewards without saying
 * which. */
static void name_trainers(tide_claims *c, const tide_key_row *row, const char *key, const char *text) {
    if (strchr(row->trainers, '|'))
        tide_imply_fact(c, TIDE_FACT_preference, key, text);
    else if (!c->trainer)
        c->trainer = row->trainers;
}

static void say_key(tide_claims *c, const tide_key_row *row, const char *key, const tide_json *value) {
    if (value->kind == TIDE_JSON_OBJECT && row->fact == TIDE_FACT_deepspeed) {
        hold_deepspeed(c, key, value);
        return;
    }
    bool is_empty_list = value->kind == TIDE_JSON_ARRAY && !value->first;
    const char *text = is_empty_list ? "" : tide_argument_value(c->arena, value);
    if (value->kind == TIDE_JSON_NULL || (text && !text[0])) {
        tide_claims_note(c, key, TIDE_KEY_IGNORED, NULL, NULL);
        return;
    }
    if (!text) {
        tide_claims_refuse(c, TIDE_ERR_FIELD_TYPE, key,
                           tide_format(c->arena, "%s: is %s; must be a single value", c->at->summary->name,
                                       tide_json_kind_name(value)),
                           NULL);
        return;
    }
    if (tide_text_starts(value->text, TIDE_TEXT("${"))) { /* not resolved by interpolation.h */
        tide_claims_note(c, key, TIDE_KEY_UNSUPPORTED, text, "refers to something that does not exist");
        tide_report(c->diags, TIDE_WARNING, TIDE_ERR_UNSUPPORTED, tide_claims_place(c, key),
                    tide_format(c->arena, "%s: %s is %s, which refers to something that does not exist",
                                c->at->summary->name, key, tide_shown(c->arena, value->text)),
                    "write the value");
        return;
    }
    tide_text taken = tide_text_of(text);
    bool is_near = false;
    tide_key_value_listed(row->values, tide_lowered(c->arena, taken), &taken, &is_near);
    const char *said = tide_text_copy(c->arena, taken);
    if (is_near)
        tide_report(c->diags, TIDE_WARNING, TIDE_ERR_UNSUPPORTED, tide_claims_place(c, key),
                    tide_format(c->arena, "%s: %s=%s is not described: treated as %s=%s, which is similar",
                                c->at->summary->name, key, text, tide_settings[row->setting].name, said),
                    NULL);
    if (!said[0])
        tide_claims_note(c, key, TIDE_KEY_IGNORED, text, NULL);
    else if (row->rule == TIDE_RULE_SAYS)
        tide_claim_fact(c, key, said, row->fact);
    else
        tide_claim(c, key, text, row->setting, said);
    if (is_near) tide_claims_note(c, key, TIDE_KEY_UNSUPPORTED, text, "is treated as what is similar");
    if (said[0] && row->trainers) name_trainers(c, row, key, text);
}

/* Whether a value disables the option; for a list, whether all of its items do. */
static bool is_listed_off(const tide_claims *c, const tide_key_row *row, const tide_json *value) {
    const char *text = tide_argument_value(c->arena, value);
    if (is_off(value)) return true;
    if (text && (tide_key_value_listed(row->values, text, NULL, NULL) ||
                 tide_key_value_listed(row->values, tide_lowered(c->arena, tide_text_of(text)), NULL, NULL) ||
                 strcmp(text, "none") == 0))
        return true;
    if (value->kind != TIDE_JSON_ARRAY) return false;
    for (const tide_json *one = value->first; one; one = one->next)
        if (!is_listed_off(c, row, one)) return false;
    return true;
}

static void matter(tide_claims *c, const tide_key_row *row, const char *key, const tide_json *value) {
    const char *text = tide_argument_value(c->arena, value);
    bool is_none = (row->is_of_model && tide_claims_know_model(c)) || is_listed_off(c, row, value);
    if (row->trainers && value->kind != TIDE_JSON_NULL) name_trainers(c, row, key, text);
    if (is_none) {
        tide_claims_note(c, key, TIDE_KEY_IGNORED, text, NULL);
        return;
    }
    tide_claims_note(c, key, TIDE_KEY_UNSUPPORTED, text, row->matter);
    if (row->rule == TIDE_RULE_REFUSED) {
        tide_claims_refuse(c, TIDE_ERR_UNSUPPORTED, key,
                           tide_format(c->arena, "%s: %s%s%s: it %s, which is not described", c->at->summary->name, key,
                                       text ? " is " : "", text ? text : "", row->matter),
                           row->near          ? row->near
                           : row->is_of_model ? "give the model as well: its name, or its config.json"
                                              : "run the program with `tidemark dry-run`, which needs no description");
        return;
    }
    tide_report(
        c->diags, TIDE_WARNING, TIDE_ERR_UNSUPPORTED, tide_claims_place(c, key),
        tide_format(c->arena, "%s: %s is not described and may matter: it %s", c->at->summary->name, key, row->matter),
        NULL);
}

static bool has_file_of(const tide_claims *c, const tide_key_table *keys) {
    for (const tide_claims_file *file = c->first; file; file = file->next)
        if (file->reader->keys == keys) return true;
    return false;
}

/* An object given on a command line, as text. */
static const tide_json *object_in(tide_claims *c, const char *key, const tide_json *value) {
    bool is_object = value->kind == TIDE_JSON_STRING && tide_text_starts(value->text, TIDE_TEXT("{"));
    const tide_json *object =
        is_object ? tide_json_parse(c->arena, value->text, tide_claims_place(c, key), c->diags) : NULL;
    return object ? object : value;
}

static void hold(tide_claims *c, const tide_key_row *row, const char *key, const tide_json *given) {
    const tide_json *value = object_in(c, key, given);
    if (value->kind == TIDE_JSON_OBJECT)
        tide_claims_read(c, row->section, value, tide_format(c->arena, "%s/", key));
    else if (row->matter && value->kind == TIDE_JSON_STRING)
        matter(c, &(tide_key_row){.rule = TIDE_RULE_REFUSED, .values = row->values, .matter = row->matter}, key, value);
    else if (value->kind != TIDE_JSON_STRING || !value->text.length)
        tide_claims_note(c, key, TIDE_KEY_IGNORED, NULL, NULL);
    else if (has_file_of(c, row->section))
        tide_claims_note(c, key, TIDE_KEY_USED, value->text.at, NULL);
    else
        tide_claims_refuse(
            c, TIDE_ERR_FIELD_MISSING, key,
            tide_format(c->arena, "%s refers to %s", c->at->summary->name, tide_shown(c->arena, value->text)),
            "give that file too");
}

const tide_key_row *tide_key_find(const tide_key_table *table, tide_text key) {
    for (; table; table = table->more) {
        tide_text prefix = tide_text_of(table->prefix), name = key;
        if (prefix.length && tide_text_starts(name, prefix))
            name = (tide_text){name.at + prefix.length, name.length - prefix.length};
        for (uint32_t i = 0; i < table->count; i++)
            if (tide_text_matches_one(name, table->rows[i].key)) return &table->rows[i];
    }
    return NULL;
}

static void read_key(tide_claims *c, const tide_key_table *table, const tide_json *entry, const char *above) {
    const char *key = tide_format(c->arena, "%s%s", above, tide_shown(c->arena, entry->key));
    const tide_key_row *row = tide_key_find(table, entry->key);
    if (!row) {
        tide_claims_note(c, key, TIDE_KEY_UNKNOWN, tide_argument_value(c->arena, entry), NULL);
        return;
    }
    switch (row->rule) {
    case TIDE_RULE_NEUTRAL:
        tide_claims_note(c, key, TIDE_KEY_IGNORED, tide_argument_value(c->arena, entry), NULL);
        break;
    case TIDE_RULE_MATTERS:
    case TIDE_RULE_REFUSED:
        matter(c, row, key, entry);
        break;
    case TIDE_RULE_SETS:
    case TIDE_RULE_SAYS:
        say_key(c, row, key, entry);
        break;
    case TIDE_RULE_HOLDS:
        hold(c, row, key, entry);
        break;
    }
}

void tide_claims_read(tide_claims *c, const tide_key_table *table, const tide_json *object, const char *above) {
    if (table->is_overruled && table->is_overruled(c, object, above)) return;
    for (const tide_json *entry = object->first; entry; entry = entry->next) read_key(c, table, entry, above);
}
