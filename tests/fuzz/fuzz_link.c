/* SPDX-License-Identifier: Apache-2.0 */
/* Links: read, and written again from what was read. A failure points to core/src/job/links.c. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_request request = {0};
    fuzz_text(&request, "{\"call\":\"read_link\",\"link\":");
    fuzz_quoted(&request, (const char *)data, size);
    fuzz_text(&request, "}");
    fuzz_call(&request);
    return 0;
}
