/* SPDX-License-Identifier: Apache-2.0 */
/* What files say about settings: the first file takes precedence, and contradictions are reported. */
#include "job/readers/claims.h"

#include <string.h>

#include "base/units.h"

/* ---- keys and claims ---- */

tide_file_key *tide_claims_note(tide_claims *c, const char *key, tide_key_effect effect, const char *value,
                                const char *note) {
    tide_file_key *entry = TIDE_NEW(c->arena, tide_file_key, 1);
    tide_file_summary *summary = c->at->summary;
    *entry = (tide_file_key){.key = key, .value = value, .note = note, .effect = effect};
    if (summary->last)
        summary->last->next = entry;
    else
        summary->first = entry;
    return summary->last = entry;
}

const char *tide_claims_place(const tide_claims *c, const char *key) {
    return tide_format(c->arena, "%s/%s", c->at->place, key);
}

bool tide_claims_refuse(tide_claims *c, tide_status status, const char *key, const char *message, const char *remedy) {
    return tide_error(c->diags, status, tide_claims_place(c, key), message, remedy);
}

/* An earlier file takes precedence. */
static void overrule(tide_claims *c, tide_file_key *entry, const tide_file_key *first, const char *file) {
    entry->effect = TIDE_KEY_OVERRULED;
    entry->note = tide_format(c->arena, "%s says %s", file, first->value ? first->value : "otherwise");
    tide_report(c->diags, TIDE_WARNING, TIDE_ERR_CONFLICT, tide_claims_place(c, entry->key),
                tide_format(c->arena, "%s says %s, %s says %s=%s: the latter is used", c->at->summary->name,
                            entry->value ? entry->value : "otherwise", file, first->key,
                            first->value ? first->value : "..."),
                "make the two agree, or give the setting itself");
}

void tide_claim(tide_claims *c, const char *key, const char *given, tide_setting_id setting, const char *value) {
    tide_file_key *entry = tide_claims_note(c, key, TIDE_KEY_USED, given, NULL);
    const char *name = tide_settings[setting].name;
    tide_diagnostics scratch;
    tide_diagnostics_init(&scratch, c->arena);
    const char *taken = tide_setting_read(c->arena, setting, tide_text_of(value), &scratch);
    if (!taken) {
        tide_claims_refuse(c, scratch.items[0].status, key,
                           tide_format(c->arena, "%s, %s: %s", c->at->summary->name, name, scratch.items[0].message),
                           scratch.items[0].remedy);
        return;
    }
    entry->setting = name;
    entry->taken = taken;
    if (!c->settings[setting]) {
        c->settings[setting] = entry;
        c->setting_files[setting] = c->at->summary->name;
    } else if (strcmp(c->settings[setting]->taken, taken) != 0) {
        overrule(c, entry, c->settings[setting], c->setting_files[setting]);
    }
}

void tide_imply(tide_claims *c, tide_setting_id setting, const char *value) {
    if (c->settings[setting]) return;
    tide_file_key *entry = TIDE_NEW(c->arena, tide_file_key, 1);
    *entry = (tide_file_key){.setting = tide_settings[setting].name, .taken = value, .effect = TIDE_KEY_USED};
    c->settings[setting] = entry;
}

const char *tide_known_of(const tide_claims *c, tide_setting_id id) {
    const char *asked = c->arguments->asked[id];
    return asked ? asked : c->settings[id] ? c->settings[id]->taken : NULL;
}

void tide_settle(tide_claims *c, tide_fact fact, tide_setting_id setting, const char *value) {
    const char *name = tide_settings[setting].name;
    tide_imply(c, setting, value);
    tide_file_key *entry = c->facts[fact];
    if (!entry) return;
    entry->effect = TIDE_KEY_USED;
    entry->taken = entry->setting ? tide_format(c->arena, "%s %s=%s", entry->taken, name, value) : value;
    if (!entry->setting) entry->setting = name;
}

/* ---- facts ---- */

void tide_claim_fact(tide_claims *c, const char *key, const char *given, tide_fact fact) {
    tide_file_key *entry = tide_claims_note(c, key, TIDE_KEY_IGNORED, given, NULL);
    if (!c->facts[fact]) {
        c->facts[fact] = entry;
        c->fact_places[fact] = tide_claims_place(c, key);
        return;
    }
    if (fact == TIDE_FACT_preference || fact == TIDE_FACT_own_preference) return; /* several keys state it */
    if (strcmp(c->facts[fact]->value, given) != 0) overrule(c, entry, c->facts[fact], "another file");
}

void tide_imply_fact(tide_claims *c, tide_fact fact, const char *key, const char *value) {
    if (c->facts[fact]) return;
    tide_file_key *entry = TIDE_NEW(c->arena, tide_file_key, 1);
    *entry = (tide_file_key){.key = key, .value = value, .effect = TIDE_KEY_USED};
    c->facts[fact] = entry;
    c->fact_places[fact] = tide_claims_place(c, key);
}

const char *tide_fact_of(const tide_claims *c, tide_fact fact) {
    return c->facts[fact] ? c->facts[fact]->value : NULL;
}

bool tide_fact_is(const tide_claims *c, tide_fact fact, const char *value) {
    const char *said = tide_fact_of(c, fact);
    return said && tide_text_same(tide_text_of(said), tide_text_of(value));
}

int64_t tide_fact_int(const tide_claims *c, tide_fact fact, int64_t otherwise) {
    int64_t value;
    const char *said = tide_fact_of(c, fact);
    return said && tide_text_to_i64(&value, tide_text_of(said)) ? value : otherwise;
}

/* ---- files ---- */

bool tide_claims_have(const tide_claims *c, tide_program program) {
    for (const tide_claims_file *file = c->first; file; file = file->next)
        if (file->reader->program == program) return true;
    return false;
}

bool tide_claims_have_model(const tide_claims *c) {
    return c->inputs->config || c->arguments->asked[TIDE_SET_model];
}

bool tide_claims_know_model(const tide_claims *c) {
    return tide_claims_have_model(c) || c->inputs->asked_model;
}

bool tide_claims_train(const tide_claims *c) {
    for (const tide_claims_file *file = c->first; file; file = file->next)
        if (file->reader->trains) return true;
    return false;
}

static tide_file_summary *summary_new(tide_claims *c, const char *title, const char *name) {
    tide_file_summary *summary = TIDE_NEW(c->arena, tide_file_summary, 1);
    *summary = (tide_file_summary){.name = name, .title = title};
    if (c->inputs->last_summary)
        c->inputs->last_summary->next = summary;
    else
        c->inputs->summaries = summary;
    return c->inputs->last_summary = summary;
}

static const char *const program_titles[] = {
    NULL,
#define TIDE_PROGRAM(name, title) title,
#include "job/readers/programs.def"
#undef TIDE_PROGRAM
};

void tide_claims_add(tide_claims *c, const tide_reader *reader, const tide_json *root, const char *name,
                     const char *place) {
    tide_claims_file *file = TIDE_NEW(c->arena, tide_claims_file, 1);
    *file = (tide_claims_file){
        .reader = reader, .root = root, .place = place, .summary = summary_new(c, reader->title, name)};
    for (const tide_claims_file *other = c->first; other; other = other->next) {
        bool is_held = other->reader != reader && (other->reader->joins || reader->joins);
        if (is_held || (other->reader != reader && !(other->reader->trains && reader->trains))) continue;
        tide_error(c->diags, TIDE_ERR_CONFLICT, place,
                   tide_format(c->arena, "%s is %s, and %s is %s", name, reader->title, other->summary->name,
                               other->summary->title),
                   "give one of the two");
        return;
    }
    if (reader->program == TIDE_PROGRAM_deepspeed) c->of_deepspeed = *file;
    if (reader->trains && program_titles[reader->program]) c->inputs->program = program_titles[reader->program];
    if (c->last)
        c->last->next = file;
    else
        c->first = file;
    c->last = file;
}
