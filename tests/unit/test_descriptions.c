/* Every built-in description, read whole: functions and modules are otherwise read when they are first used. */
#include <setjmp.h>
#include <stdio.h>

#include "lang/lang.h"

static tide_source find(void *user, tide_text name) {
    (void)user;
    for (uint32_t i = 0; i < tide_architecture_source_count; i++)
        if (tide_text_is(name, tide_architecture_sources[i].name)) return tide_architecture_sources[i];
    return (tide_source){.text = NULL};
}

static bool read_whole(tide_arena *arena, const char *name) {
    tide_diagnostics diags;
    tide_descriptions set;
    tide_diagnostics_init(&diags, arena);
    tide_descriptions_init(&set, arena, &diags, find, NULL);
    bool ok = true;
    for (uint32_t i = 0; i < tide_architecture_source_count; i++) /* what modules extend may be in the library */
        if (tide_text_starts(tide_text_of(tide_architecture_sources[i].name), TIDE_TEXT("library/")))
            ok = ok && tide_description_load(&set, tide_text_of(tide_architecture_sources[i].name));
    tide_description *d = ok ? tide_description_load(&set, tide_text_of(name)) : NULL;
    ok = d && tide_description_read(&set, d) && diags.count == 0;
    for (uint32_t i = 0; i < diags.count; i++)
        printf("%s: %s: %s\n", name, diags.items[i].place, diags.items[i].message);
    return ok;
}

static bool check(const char *name) {
    jmp_buf escape;
    tide_arena arena;
    tide_arena_init(&arena, tide_default_allocator(), &escape);
    bool ok = setjmp(escape) == 0 && read_whole(&arena, name);
    tide_arena_free(&arena);
    return ok;
}

int main(void) {
    int passed = 0, failed = 0;
    for (uint32_t i = 0; i < tide_architecture_source_count; i++) {
        if (check(tide_architecture_sources[i].name))
            passed++;
        else
            failed++;
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
