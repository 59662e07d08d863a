/* SPDX-License-Identifier: Apache-2.0 */
/* The device of a recorded start. */
#include "base/rounding.h"
#include "base/text.h"
#include "serve/serve.h"

/* GPUs of the serving recordings (serve_oracle.py, GPUS): name in a case, name and whole MiB according to the driver,
 * compute capability, multiprocessors. */
static const struct {
    const char *key, *name;
    int mib, capability, sms;
} recorded_cards[] = {{"h100", "NVIDIA H100 80GB HBM3", 81080, 90, 132},
                      {"h200", "NVIDIA H200", 143155, 90, 132},
                      {"a100-80", "NVIDIA A100-SXM4-80GB", 81152, 80, 108},
                      {"a100-40", "NVIDIA A100-SXM4-40GB", 40448, 80, 108},
                      {"l40s", "NVIDIA L40S", 45465, 89, 142},
                      {"l4", "NVIDIA L4", 22579, 89, 58},
                      {"a10", "NVIDIA A10G", 22579, 86, 80},
                      {"rtx4090", "NVIDIA GeForce RTX 4090", 24094, 89, 128},
                      {"rtx3090", "NVIDIA GeForce RTX 3090", 24135, 86, 82},
                      {"b200", "NVIDIA B200", 182630, 100, 148}};

static int64_t figure_of_case(const tide_json *of_case, const char *key, int64_t otherwise) {
    const tide_json *found = tide_json_at(of_case, key);
    return found && found->is_integer ? found->integer : otherwise;
}

bool tide_serve_device_of_case(const tide_json *of_case, tide_serve_device *device) {
    const tide_json *gpu = tide_json_at(of_case, "gpu");
    size_t at = 0;
    if (gpu && gpu->kind != TIDE_JSON_STRING) return false;
    while (gpu && at < TIDE_COUNT_OF(recorded_cards) && !tide_text_is(gpu->text, recorded_cards[at].key)) at++;
    if (at == TIDE_COUNT_OF(recorded_cards)) return false;
    int64_t total = (int64_t)recorded_cards[at].mib << 20, context = figure_of_case(of_case, "context_mib", 0);
    *device =
        (tide_serve_device){.name = recorded_cards[at].name,
                            .total_bytes = (uint64_t)figure_of_case(of_case, "gpu_bytes", total),
                            .used_bytes = (uint64_t)context << 20,
                            .capability = (int)figure_of_case(of_case, "capability", recorded_cards[at].capability),
                            .sms = (int)figure_of_case(of_case, "sms", recorded_cards[at].sms)};
    return true;
}
