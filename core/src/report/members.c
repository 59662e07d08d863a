/* SPDX-License-Identifier: Apache-2.0 */
/* Diagnostics, remainders of lists, out-of-memory errors. */
#include "report/members.h"

static void write_diagnostic(tide_writer *w, const tide_diagnostic *d) {
    static const char *const severities[] = {"error", "warning", "assumption"};
    tide_write_open(w, '{');
    tide_write_string_at(w, "severity", severities[d->severity]);
    if (d->status != TIDE_OK) tide_write_string_at(w, "code", tide_status_name(d->status));
    tide_write_string_at(w, "place", d->place);
    tide_write_string_at(w, "message", d->message);
    if (d->remedy) tide_write_string_at(w, "remedy", d->remedy);
    tide_write_close(w, '}');
}

void tide_write_diagnostics(tide_writer *w, const tide_diagnostics *diags, bool with_assumptions) {
    tide_write_open_at(w, "diagnostics", '[');
    for (uint32_t i = 0; i < diags->count; i++)
        if (diags->items[i].severity == TIDE_ERROR) write_diagnostic(w, &diags->items[i]);
    for (uint32_t i = 0; i < diags->count; i++)
        if (diags->items[i].severity == TIDE_WARNING ||
            (diags->items[i].severity == TIDE_ASSUMPTION && with_assumptions))
            write_diagnostic(w, &diags->items[i]);
    tide_write_close(w, ']');
}

void tide_write_rest(tide_writer *w, uint64_t bytes) {
    if (bytes) {
        tide_write_open(w, '{');
        tide_write_bytes_at(w, "rest", bytes);
        tide_write_close(w, '}');
    }
    tide_write_close(w, ']');
}

void tide_write_oom(tide_writer *w, const tide_caching_oom *oom) {
    tide_write_bytes_at(w, "tried", oom->tried_bytes);
    tide_write_bytes_at(w, "free", oom->free_bytes);
    tide_write_bytes_at(w, "allocated", oom->allocated_bytes);
    tide_write_bytes_at(w, "unallocated", oom->unallocated_bytes);
}
