/* The core as one file: its names do not meet, and it answers as the library does. */
#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wshadow" /* a local of one file may be named as a function of another */
#endif
#include "core.c"

#include <stdio.h>

static unsigned passed, failed;

static void expect(bool holds, const char *what) {
    passed += holds;
    failed += !holds;
    if (!holds) printf("FAIL %s\n", what);
}

static void answers(const char *request, const char *beginning) {
    char *answer = NULL;
    size_t length = 0;
    int status = tide_call(request, strlen(request), NULL, &answer, &length);
    expect(status == 0 && strncmp(answer, beginning, strlen(beginning)) == 0, request);
    tide_free(NULL, answer, length);
}

int main(void) {
    answers("{\"call\":\"measure\",\"settings\":[\"model=gpt2\",\"batch=4\",\"checkpointing=full\"]}",
            "{\"ok\":true,\"tidemark\":\"" TIDEMARK_VERSION "\",\"peak\":{\"allocated\":");
    answers("{\"call\":\"describe\"}", "{\"ok\":true,");
    printf("%u passed, %u failed\n", passed, failed);
    return failed > 0;
}
