/* SPDX-License-Identifier: Apache-2.0 */
/* Errors, warnings and assumptions as values: what is wrong, where, and what to do about it. */
#ifndef TIDE_BASE_DIAGNOSTICS_H
#define TIDE_BASE_DIAGNOSTICS_H

#include "base/text.h"

typedef enum tide_status {
#define TIDE_STATUS(name, value, text) TIDE_##name = (value),
#include "base/status.def"
#undef TIDE_STATUS
} tide_status;

/* "ERR_FIELD_RANGE" */
const char *tide_status_name(tide_status status);

typedef enum tide_severity { TIDE_ERROR, TIDE_WARNING, TIDE_ASSUMPTION } tide_severity;

typedef struct tide_diagnostic {
    tide_severity severity;
    tide_status status;
    const char *place;   /* a JSON Pointer, "" for the whole document */
    const char *message; /* one line: the fact and the limit */
    const char *remedy;  /* one line, or NULL */
} tide_diagnostic;

typedef struct tide_diagnostics {
    tide_arena *arena;
    tide_diagnostic *items;
    uint32_t count, capacity;
    uint32_t error_count;
    tide_status first_error; /* TIDE_OK if there is none */
} tide_diagnostics;

void tide_diagnostics_init(tide_diagnostics *diags, tide_arena *arena);

/* Keeps at most 100; place, message and remedy are terminated strings that outlive diags. */
void tide_report(tide_diagnostics *diags, tide_severity severity, tide_status status, const char *place,
                 const char *message, const char *remedy);

/* Reports an error and returns false. */
bool tide_error(tide_diagnostics *diags, tide_status status, const char *place, const char *message,
                const char *remedy);

/* Removes the newest diagnostic if it is an error of that status, for a caller with a better one. */
bool tide_take_back_error(tide_diagnostics *diags, tide_status status, tide_diagnostic *taken);

#endif
