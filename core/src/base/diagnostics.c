/* SPDX-License-Identifier: Apache-2.0 */
/* The diagnostics of one call. */
#include "base/diagnostics.h"

#include "base/text.h"

enum { DIAGNOSTICS_LIMIT = 100, QUOTED_LIMIT = 2000 };

const char *tide_status_name(tide_status status) {
    switch (status) {
#define TIDE_STATUS(name, value, text)                                                                                 \
    case TIDE_##name:                                                                                                  \
        return #name;
#include "base/status.def"
#undef TIDE_STATUS
    }
    return "";
}

void tide_diagnostics_init(tide_diagnostics *diags, tide_arena *arena) {
    *diags = (tide_diagnostics){.arena = arena};
}

/* Text quoted from a file may have any length. */
static const char *short_enough(tide_diagnostics *diags, const char *text) {
    tide_text all = tide_text_of(text ? text : "");
    if (all.length <= QUOTED_LIMIT) return text;
    return tide_format(diags->arena, "%s...", tide_text_copy(diags->arena, tide_text_start(all, QUOTED_LIMIT)));
}

void tide_report(tide_diagnostics *diags, tide_severity severity, tide_status status, const char *place,
                 const char *message, const char *remedy) {
    if (severity == TIDE_ERROR) {
        if (diags->error_count++ == 0) diags->first_error = status;
    }
    if (diags->count >= DIAGNOSTICS_LIMIT) return;
    TIDE_ROOM(diags->arena, diags->items, diags->count, diags->capacity);
    diags->items[diags->count++] = (tide_diagnostic){severity, status, short_enough(diags, place ? place : ""),
                                                     short_enough(diags, message), short_enough(diags, remedy)};
}

bool tide_error(tide_diagnostics *diags, tide_status status, const char *place, const char *message,
                const char *remedy) {
    tide_report(diags, TIDE_ERROR, status, place, message, remedy);
    return false;
}

bool tide_take_back_error(tide_diagnostics *diags, tide_status status, tide_diagnostic *taken) {
    const tide_diagnostic *last = diags->count ? &diags->items[diags->count - 1] : NULL;
    if (!last || last->severity != TIDE_ERROR || last->status != status) return false;
    *taken = *last;
    diags->count--;
    diags->error_count--;
    return true;
}
