/* SPDX-License-Identifier: Apache-2.0 */
/* Printing what is wrong, where, and what to do about it. */
#include "cli.h"

#include <stdarg.h>
#include <string.h>

enum { MESSAGE_LIMIT = 4096 };

/* Errors of the command line, in the same form as those of the core. */
void cli_complain(const char *remedy, const char *format, ...) {
    char message[MESSAGE_LIMIT];
    va_list list;
    va_start(list, format);
    vsnprintf(message, sizeof message, format, list);
    va_end(list);
    cli_clean(message);
    fprintf(stderr, "tidemark: %s\n", message);
    if (remedy) fprintf(stderr, "  %s\n", remedy);
}

/* "/settings/batch" is shown as the word that a user types; other places stay JSON Pointers. */
static void place_show(FILE *out, const char *place) {
    static const char settings[] = "/settings/";
    if (!place[0]) return;
    if (strncmp(place, settings, sizeof settings - 1) == 0) place += sizeof settings - 1;
    fprintf(out, "%s: ", place);
}

static void diagnostic_show(FILE *out, const cJSON *diagnostic) {
    const char *remedy = cli_text_at(diagnostic, "remedy");
    fprintf(out, "%s: ", cli_text_at(diagnostic, "severity"));
    place_show(out, cli_text_at(diagnostic, "place"));
    fprintf(out, "%s\n", cli_text_at(diagnostic, "message"));
    if (remedy[0]) fprintf(out, "  %s\n", remedy);
}

void cli_diagnostics_show(FILE *out, const cJSON *diagnostics) {
    const cJSON *diagnostic;
    cJSON_ArrayForEach(diagnostic, diagnostics) diagnostic_show(out, diagnostic);
}
