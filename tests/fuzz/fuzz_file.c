/* SPDX-License-Identifier: Apache-2.0 */
/* Files of other programs, beside a small job: every reader of readers.def, by what is in the file. A failure points to
 * core/src/job/readers/.
 *
 * tests/fuzz/corpus/fuzz_file holds an input for each reader; one that begins with "#toml" has a name of TOML. */
#include <string.h>

#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_request request = {0};
    fuzz_text(&request, "{\"call\":\"estimate\",\"settings\":[\"smollm2-135m\",\"steps=1\",\"seq=8\",\"batch=1\","
                        "\"grad_accum=1\",\"overrides.num_hidden_layers=1\"],\"files\":[{\"name\":\"file.");
    fuzz_text(&request, size >= 5 && memcmp(data, "#toml", 5) == 0 ? "toml" : "json");
    fuzz_text(&request, "\",\"text\":");
    fuzz_quoted(&request, (const char *)data, size);
    fuzz_text(&request, "}]}");
    fuzz_call(&request);
    return 0;
}
