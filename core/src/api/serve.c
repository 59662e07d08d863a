/* SPDX-License-Identifier: Apache-2.0 */
/* Recorded starts of an inference server. */
#include <string.h>

#include "api/calls.h"
#include "base/units.h"
#include "report/serving.h"

/* The cards of the serving oracle (serve_oracle.py, GPUS): name in a case, as the driver tells it, whole MiB, compute
 * capability, multiprocessors. */
static const struct {
    const char *key, *name;
    int mib, capability, sms;
} cards[] = {{"h100", "NVIDIA H100 80GB HBM3", 81080, 90, 132},
             {"h200", "NVIDIA H200", 143155, 90, 132},
             {"a100-80", "NVIDIA A100-SXM4-80GB", 81152, 80, 108},
             {"a100-40", "NVIDIA A100-SXM4-40GB", 40448, 80, 108},
             {"l40s", "NVIDIA L40S", 45465, 89, 142},
             {"l4", "NVIDIA L4", 22579, 89, 58},
             {"a10", "NVIDIA A10G", 22579, 86, 80},
             {"rtx4090", "NVIDIA GeForce RTX 4090", 24094, 89, 128},
             {"rtx3090", "NVIDIA GeForce RTX 3090", 24135, 86, 82},
             {"b200", "NVIDIA B200", 182630, 100, 148}};

static int64_t int_at(const tide_json *object, const char *key, int64_t otherwise) {
    const tide_json *found = tide_json_at(object, key);
    return found && found->is_integer ? found->integer : otherwise;
}

static bool device_of_case(call *c, const tide_json *of_case, tide_serve_device *device) {
    const tide_json *gpu = tide_json_at(of_case, "gpu"), *measured = tide_json_at(c->request, "device");
    size_t at = 0;
    while (gpu && gpu->kind == TIDE_JSON_STRING && at < TIDE_COUNT_OF(cards) && !tide_text_is(gpu->text, cards[at].key))
        at++;
    if (at == TIDE_COUNT_OF(cards))
        return tide_error(&c->diags, TIDE_ERR_UNSUPPORTED, "/case/gpu", "no such card", NULL);
    uint64_t total = (uint64_t)int_at(of_case, "gpu_bytes", (int64_t)cards[at].mib << 20),
             used = (uint64_t)int_at(of_case, "context_mib", 0) << 20;
    *device = (tide_serve_device){.name = cards[at].name,
                                  .total_bytes = (uint64_t)int_at(measured, "total", (int64_t)total),
                                  .used_bytes = used,
                                  .capability = (int)int_at(of_case, "capability", cards[at].capability),
                                  .sms = (int)int_at(of_case, "sms", cards[at].sms)};
    return true;
}

static void serving_not_expressed(call *c) {
    const char *message = "no reason given";
    for (uint32_t i = c->diags.count; i-- > 0;)
        if (c->diags.items[i].severity == TIDE_ERROR) message = c->diags.items[i].message;
    call_open_answer(c);
    tide_write_bool_at(&c->writer, "expressed", false);
    tide_write_string_at(&c->writer, "reason", message);
}

bool call_verify_serving(call *c, const tide_json *of_case) {
    tide_text *words;
    tide_file *files;
    uint32_t word_count, file_count;
    tide_serve_device device;
    tide_serve_run *run = TIDE_NEW(&c->arena, tide_serve_run, 1);
    if (!call_read_files(c, &files, &file_count)) return false;
    tide_job_arguments_of_start(&c->arena, of_case, &words, &word_count);
    tide_job_add_files_of_case(&c->arena, of_case, &files, &file_count);
    tide_job *job = device_of_case(c, of_case, &device)
                        ? tide_job_build(&c->arena, words, word_count, files, file_count, &c->diags)
                        : NULL;
    if (!job || !tide_serve_start(run, job, &device, &c->arena, &c->diags)) {
        serving_not_expressed(c);
        return true;
    }
    call_open_answer(c);
    tide_write_bool_at(&c->writer, "expressed", true);
    tide_write_serving_figures(&c->writer, run);
    return true;
}
