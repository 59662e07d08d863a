/* SPDX-License-Identifier: Apache-2.0 */
/* Files that start training, as YAML. A failure points to native/yaml.c, core/src/job/readers/. */
#include "fuzz.h"

#include "../../native/cli.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_request request = {0};
    cli_buffer json = {0};
    char message[256];
    if (cli_yaml_to_json(&json, size ? (const char *)data : "", size, message, sizeof message)) {
        fuzz_text(&request,
                  "{\"call\":\"estimate\",\"settings\":[\"smollm2-135m\",\"steps=1\",\"seq=8\",\"batch=1\",\"grad_"
                  "accum=1\",\"overrides.num_hidden_layers=1\"],\"files\":[{\"name\":\"run.yaml\",\"text\":");
        fuzz_quoted(&request, json.at, json.length);
        fuzz_text(&request, "}]}");
        fuzz_call(&request);
    }
    cli_buffer_free(&json);
    return 0;
}
