/* SPDX-License-Identifier: Apache-2.0 */
/* What uses the installed library: one request, with a count of what it took; exit code 0 if all is as promised. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tidemark/tidemark.h>

typedef struct count {
    size_t bytes, most;
} count;

static void *resize(void *user, void *ptr, size_t old_size, size_t new_size) {
    count *c = user;
    void *made = new_size ? realloc(ptr, new_size) : NULL;
    if (new_size && !made) return NULL;
    if (!new_size) free(ptr);
    c->bytes += new_size - old_size;
    if (c->bytes > c->most) c->most = c->bytes;
    return made;
}

int main(void) {
    static const char request[] = "{\"call\":\"estimate\",\"settings\":[\"model=gpt2\",\"overrides.n_layer=1\"]}";
    static const char begin[] = "{\"ok\":true,\"tidemark\":\"" TIDEMARK_VERSION "\"";
    count taken = {0, 0};
    const struct tide_allocator memory = {resize, &taken};
    char *answer;
    size_t length;
    int status = tide_call(request, strlen(request), &memory, &answer, &length);
    int is_right = status == 0 && strncmp(answer, begin, strlen(begin)) == 0 && taken.bytes == length + 1;
    tide_free(&memory, answer, length);
    printf("status %d, %zu bytes at most, %zu left\n", status, taken.most, taken.bytes);
    return is_right && taken.bytes == 0 ? 0 : 1;
}
