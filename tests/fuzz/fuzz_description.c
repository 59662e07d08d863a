/* SPDX-License-Identifier: Apache-2.0 */
/* Model descriptions from bytes. A failure points to core/src/lang/ and lang/module.c.
 *
 * The input is a description, the model a small llama. */
#include "fuzz.h"

static const char config[] = "{\"model_type\":\"fuzzed\",\"architectures\":[\"FuzzedForCausalLM\"],\"hidden_size\":16,"
                             "\"intermediate_size\":32,\"num_attention_heads\":2,\"num_key_value_heads\":2,"
                             "\"num_hidden_layers\":2,\"vocab_size\":64,\"hidden_act\":\"silu\"}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_request request = {0};
    fuzz_text(&request, "{\"call\":\"estimate\",\"settings\":[\"steps=1\",\"seq=8\"],\"files\":["
                        "{\"name\":\"config.json\",\"text\":");
    fuzz_quoted(&request, config, sizeof config - 1);
    fuzz_text(&request, "},{\"name\":\"fuzzed.json\",\"text\":");
    fuzz_quoted(&request, (const char *)data, size);
    fuzz_text(&request, "}]}");
    fuzz_call(&request);
    return 0;
}
