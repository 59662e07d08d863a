/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the files that start training or a server, settles their facts, and turns their claims into settings. */
#include "job/readers/claims.h"
#include "job/readers/interpolation.h"

/* Some programs refuse unknown keys; others ignore them. */
static void report_unknown(tide_claims *c) {
    enum { SHOWN = 6 };
    const char *list = "", *name = c->at->summary->name, *program = c->at->reader->refuses_unknown;
    unsigned count = 0;
    for (const tide_file_key *entry = c->at->summary->first; entry; entry = entry->next)
        if (entry->effect == TIDE_KEY_UNKNOWN && ++count <= SHOWN)
            list = tide_format(c->arena, "%s%s%s", list, count > 1 ? ", " : "", entry->key);
    if (!count) return;
    if (count > SHOWN) list = tide_format(c->arena, "%s and %u more", list, count - SHOWN);
    if (program)
        tide_error(c->diags, TIDE_ERR_FIELD_UNKNOWN, c->at->place,
                   tide_format(c->arena, "%s refuses it: \"%s had unknown keys (%s)\"", program, name, list),
                   "remove them");
    else
        tide_report(c->diags, TIDE_WARNING, TIDE_ERR_FIELD_UNKNOWN, c->at->place,
                    tide_format(c->arena, "%s has unknown keys: %s", name, list), NULL);
}

/* Options of a kind that is not used have no effect. */
static void put_settings(tide_claims *c) {
    const tide_file_key *kind = c->settings[TIDE_SET_parallel_kind];
    for (unsigned id = 0; id < TIDE_SET_COUNT; id++) {
        tide_file_key *entry = c->settings[id];
        if (!entry) continue;
        if (id > TIDE_SET_parallel_kind &&
            !tide_beginning_listed(tide_setting_wants(&tide_settings[id]), kind ? kind->taken : "none"))
            entry->effect = TIDE_KEY_IGNORED;
        else
            tide_setting_put(c->arguments, tide_text_of(tide_settings[id].name), tide_text_of(entry->taken),
                             TIDE_ORIGIN_FILE);
    }
}

static void read_files(tide_claims *c, int precedence) {
    for (const tide_claims_file *file = c->first; file; file = file->next) {
        if (file->reader->precedence != precedence || !file->reader->keys) continue;
        c->at = file;
        tide_claims_read(c, file->reader->keys, file->root, "");
        report_unknown(c);
    }
}

/* Keys that may matter and that no rule describes stay with the job, including its link. */
static void keep_undescribed(tide_claims *c) {
    enum { MOST = 32 };
    const char *list = NULL;
    uint32_t count = 0;
    for (const tide_file_summary *file = c->inputs->summaries; file; file = file->next)
        for (const tide_file_key *entry = file->first; entry; entry = entry->next)
            if (entry->effect == TIDE_KEY_UNSUPPORTED && ++count <= MOST)
                list = list ? tide_format(c->arena, "%s,%s", list, entry->key) : entry->key;
    if (list) tide_imply(c, TIDE_SET_undescribed, count > MOST ? tide_format(c->arena, "%s,others", list) : list);
}

/* Calls each settle function once. */
static void settle_files(tide_claims *c) {
    for (const tide_claims_file *file = c->first; file; file = file->next) {
        bool is_settled = false;
        for (const tide_claims_file *other = c->first; other != file; other = other->next)
            is_settled = is_settled || other->reader->settle == file->reader->settle;
        if (is_settled) continue;
        if (file->reader->settle)
            file->reader->settle(c);
        else
            tide_training_settle(c);
    }
}

static void interpolate_files(tide_claims *c) {
    for (tide_claims_file *file = c->first; file; file = file->next) {
        if (!file->reader->interpolates) continue;
        tide_json *root = tide_json_clone(c->arena, file->root);
        tide_interpolate(c->arena, root);
        file->root = root;
    }
}

void tide_claims_resolve(tide_claims *c) {
    if (!c->first) return;
    interpolate_files(c);
    for (int precedence = TIDE_PRECEDENCE_MOST; precedence >= 0; precedence--) read_files(c, precedence);
    c->at = c->first;
    settle_files(c);
    keep_undescribed(c);
    put_settings(c);
}
