/* SPDX-License-Identifier: Apache-2.0 */
/* The first bytes of GGUF files. A failure points to core/src/base/gguf.c. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    fuzz_request request = {0};
    fuzz_text(&request, "{\"call\":\"gguf\",\"base64\":\"");
    for (size_t i = 0; i + 2 < size; i += 3) { /* what is left over is cut off */
        uint32_t three = (uint32_t)data[i] << 16 | (uint32_t)data[i + 1] << 8 | data[i + 2];
        char four[4] = {digits[three >> 18], digits[three >> 12 & 63], digits[three >> 6 & 63], digits[three & 63]};
        fuzz_append(&request, four, sizeof four);
    }
    fuzz_text(&request, "\"}");
    fuzz_call(&request);
    return 0;
}
