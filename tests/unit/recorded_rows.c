/* SPDX-License-Identifier: Apache-2.0 */
/* See recorded_rows.h. */
#include "recorded_rows.h"

#include <setjmp.h>
#include <stdio.h>

#include "base/text.h"

uint64_t digest_more(uint64_t hash, const char *text) {
    for (; *text; text++) hash = (hash ^ (uint64_t)(unsigned char)*text) * UINT64_C(0x100000001b3);
    return hash;
}

bool each_recorded_row(const char *folder, const char *name, void (*check)(const tide_json *row, tide_arena *arena)) {
    jmp_buf escape;
    char path[4096], line[65536];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "r");
    if (!file || setjmp(escape)) {
        printf("%s: cannot be read, or memory is out\n", path);
        return false;
    }
    bool is_json = true;
    while (fgets(line, sizeof line, file)) {
        tide_arena arena;
        tide_arena_init(&arena, tide_default_allocator(), &escape);
        tide_diagnostics diags = {.arena = &arena};
        const tide_json *row = tide_json_parse(&arena, tide_text_of(line), "", &diags);
        if (row)
            check(row, &arena);
        else
            is_json = false;
        tide_arena_free(&arena);
    }
    fclose(file);
    return is_json;
}
