/* SPDX-License-Identifier: Apache-2.0 */
/* The input of an answer: settings, files, the GPU, and assumptions. */
#include "report/job_inputs.h"

#include <string.h>

void tide_write_gpu(tide_writer *w, const tide_job *job) {
    tide_write_key(w, "gpu");
    if (!job->has_gpu) {
        tide_write_null(w);
        return;
    }
    tide_write_open(w, '{');
    tide_write_string_at(w, "name", job->gpu.name);
    tide_write_string_at(w, "title", job->gpu.title);
    tide_write_bytes_at(w, "bytes", job->gpu.bytes);
    tide_write_int_at(w, "capability", job->gpu.capability);
    tide_write_bytes_at(w, "context_bytes", job->gpu.context_bytes);
    tide_write_close(w, '}');
}

void tide_write_settings(tide_writer *w, const tide_job *job) {
    static const char *const origins[] = {"default", "recipe", "file", "user"};
    tide_write_string_at(w, "link", job->link);
    tide_write_open_at(w, "settings", '[');
    for (uint32_t i = 0; i < job->row_count; i++) {
        tide_write_open(w, '{');
        tide_write_string_at(w, "name", job->rows[i].name);
        tide_write_string_at(w, "value", job->rows[i].value);
        tide_write_string_at(w, "origin", origins[job->rows[i].origin]);
        tide_write_close(w, '}');
    }
    tide_write_close(w, ']');
}

void tide_write_libraries(tide_writer *w, const tide_job *job) {
    tide_library libraries[TIDE_LIBRARIES_MOST];
    uint32_t count = tide_job_libraries(job, libraries);
    tide_write_open_at(w, "versions", '[');
    for (uint32_t i = 0; i < count; i++) {
        tide_write_open(w, '{');
        tide_write_string_at(w, "name", libraries[i].title);
        tide_write_string_at(w, "version", libraries[i].version);
        if (libraries[i].pinned) {
            tide_write_string_at(w, "pinned", libraries[i].pinned);
            tide_write_string_at(w, "by", libraries[i].by);
        }
        if (libraries[i].asked) tide_write_string_at(w, "asked", libraries[i].asked);
        tide_write_close(w, '}');
    }
    tide_write_close(w, ']');
}

static void write_file_keys(tide_writer *w, const tide_file_summary *card, tide_key_effect effect, const char *name) {
    tide_write_key(w, name);
    tide_write_open(w, '[');
    for (const tide_file_key *entry = card->first; entry; entry = entry->next) {
        if (entry->effect != effect) continue;
        tide_write_open(w, '{');
        tide_write_string_at(w, "key", entry->key);
        if (entry->value) tide_write_string_at(w, "value", entry->value);
        if (effect == TIDE_KEY_USED && entry->setting) {
            tide_write_string_at(w, "setting", entry->setting);
            tide_write_string_at(w, "taken", entry->taken);
        }
        if (entry->note) tide_write_string_at(w, "note", entry->note);
        tide_write_close(w, '}');
    }
    tide_write_close(w, ']');
}

/* Files that start training: the effect of each key. */
void tide_write_files(tide_writer *w, const tide_job *job) {
    static const char *const names[TIDE_KEY_EFFECT_COUNT] = {"used", "ignored", "unsupported", "unknown", "overruled"};
    if (!job->files) return;
    tide_write_open_at(w, "files", '[');
    for (const tide_file_summary *card = job->files; card; card = card->next) {
        tide_write_open(w, '{');
        tide_write_string_at(w, "name", card->name);
        tide_write_string_at(w, "title", card->title);
        for (unsigned effect = 0; effect < TIDE_KEY_EFFECT_COUNT; effect++)
            write_file_keys(w, card, (tide_key_effect)effect, names[effect]);
        tide_write_close(w, '}');
    }
    tide_write_close(w, ']');
}

/* The value of the setting that an assumption is about, and the text of the assumption. */
void tide_write_assumptions(tide_writer *w, const tide_job *job, const tide_diagnostics *diags) {
    tide_write_open_at(w, "assumptions", '[');
    for (uint32_t i = 0; i < diags->count; i++) {
        const tide_diagnostic *d = &diags->items[i];
        if (d->severity != TIDE_ASSUMPTION) continue;
        tide_text place = tide_text_of(d->place);
        const char *setting = d->place;
        if (tide_text_starts(place, TIDE_TEXT("/settings/"))) setting += sizeof "/settings/" - 1;
        const char *value = "";
        for (uint32_t k = 0; k < job->row_count; k++)
            if (strcmp(job->rows[k].name, setting) == 0) value = job->rows[k].value;
        tide_write_open(w, '{');
        tide_write_string_at(w, "setting", setting);
        tide_write_string_at(w, "value", value);
        tide_write_string_at(w, "text", d->message);
        tide_write_close(w, '}');
    }
    tide_write_close(w, ']');
}
