/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs from bytes. A failure points to core/src/job/, base/json_read.c and what plays the job.
 *
 * An input that begins with "{" is a request as it is. Any other is words, one a line, up to an
 * empty line; what follows is a config.json. The job is small: two layers, one step. */
#include "fuzz.h"

static void append_words(fuzz_request *request, const char *text, size_t length) {
    fuzz_text(request, "\"steps=1\",\"overrides.num_hidden_layers=2\"");
    size_t from = 0;
    while (from < length) {
        const char *end = memchr(text + from, '\n', length - from);
        size_t size = end ? (size_t)(end - text) - from : length - from;
        fuzz_text(request, ",");
        fuzz_quoted(request, text + from, size);
        from += size + 1;
    }
}

/* Where the empty line stands, or the end. */
static size_t words_length(const char *text, size_t length) {
    for (size_t i = 0; i + 1 < length; i++)
        if (text[i] == '\n' && text[i + 1] == '\n') return i;
    return length;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *text = (const char *)data;
    fuzz_request request = {0};
    if (size && text[0] == '{') {
        fuzz_append(&request, text, size);
    } else {
        size_t words = words_length(text, size);
        fuzz_text(&request, "{\"call\":\"estimate\",\"settings\":[");
        append_words(&request, text, words);
        fuzz_text(&request, "],\"files\":[");
        if (words + 2 < size) {
            fuzz_text(&request, "{\"name\":\"config.json\",\"text\":");
            fuzz_quoted(&request, text + words + 2, size - words - 2);
            fuzz_text(&request, "}");
        }
        fuzz_text(&request, "]}");
    }
    fuzz_call(&request);
    return 0;
}
