/* SPDX-License-Identifier: Apache-2.0 */
/* What prevents or degrades a measurement: cause, consequence, remedy. */
#define _GNU_SOURCE
#include "check.h"
#include "cupti.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { OLDEST_CUDA = 12000 };

void check_warn(check *c, const char *id, const char *hint, const char *format, ...) {
    char line[2048];
    va_list list;
    va_start(list, format);
    vsnprintf(line, sizeof line, format, list);
    va_end(list);
    const cJSON *other;
    cJSON_ArrayForEach(other, c->warnings) if (strcmp(cli_text_at(other, "id"), id) == 0 &&
                                               strcmp(cli_text_at(other, "text"), line) == 0) return;
    if (cJSON_GetArraySize(c->warnings) >= CHECK_WARNINGS) return;
    cJSON *warning = cJSON_CreateObject();
    cJSON_AddStringToObject(warning, "id", id);
    cJSON_AddStringToObject(warning, "text", line);
    cJSON_AddStringToObject(warning, "hint", hint);
    cJSON_AddItemToArray(c->warnings, warning);
}

static void look_for_others(check *c) {
    cli_number text;
    for (int i = 0; i < c->nvml.count; i++) {
        nvml_process list[NVML_PROCESSES];
        int count = nvml_processes(&c->nvml, &c->nvml.devices[i], list);
        int64_t bytes = 0;
        for (int k = 0; k < count; k++) bytes = list[k].bytes < 0 || bytes < 0 ? -1 : bytes + list[k].bytes;
        c->others[i] = count > 0 ? bytes : 0;
        if (count > 0)
            check_warn(c, "shared-device",
                       "wait for them to end, choose another GPU with CUDA_VISIBLE_DEVICES, or "
                       "--allow-shared",
                       "%d other process%s hold%s %s on GPU %d: what they take or give meanwhile "
                       "is counted here",
                       count, count == 1 ? "" : "es", count == 1 ? "s" : "",
                       bytes < 0 ? "memory" : cli_size(text, bytes), i);
    }
}

int check_preflight(check *c) {
    const char *why, *other = getenv("CUDA_INJECTION64_PATH");
    static const char dry[] = "run on a node with a GPU; `tidemark dry-run` needs none";
    switch (nvml_open(&c->nvml, &why)) {
    case NVML_NO_LIBRARY:
        cli_complain(dry, "no NVIDIA driver here (libnvidia-ml.so.1 is not found): there is no GPU to measure");
        return OBSERVED_CANNOT;
    case NVML_NOT_STARTED:
        cli_complain("`nvidia-smi` says the same; load the driver, or in a container pass the "
                     "devices in (--gpus all)",
                     "the NVIDIA driver does not answer%s%s: no GPU can be measured", why[0] ? ": " : "", why);
        return OBSERVED_CANNOT;
    case NVML_NO_DEVICE:
        cli_complain(dry, "the NVIDIA driver %s has no GPU: there is nothing to measure", c->nvml.driver);
        return OBSERVED_CANNOT;
    case NVML_OK:
        break;
    }
    if (c->nvml.cuda && c->nvml.cuda < OLDEST_CUDA) {
        cli_complain("install a driver of 525 or newer",
                     "driver %s supports CUDA %d.%d only: PyTorch and CUPTI of today need 12.0", c->nvml.driver,
                     c->nvml.cuda / 1000, c->nvml.cuda % 1000 / 10);
        return OBSERVED_CANNOT;
    }
    for (int i = 0; i < c->nvml.count; i++) {
        if (c->nvml.devices[i].is_mig)
            check_warn(c, "mig", "compare with the slice's own size, which the agent reads inside the program",
                       "GPU %d is cut into MIG slices: the driver counts the whole GPU, so its poll says "
                       "nothing of one slice",
                       i);
        else if (!c->nvml.devices[i].is_readable)
            check_warn(c, "nvml-memory", "rely on the agent's figures", "the driver does not tell the memory of GPU %d",
                       i);
    }
    look_for_others(c);
    c->is_injected = strcmp(c->measure, "poll") != 0;
    if (c->is_injected && other && other[0]) {
        check_warn(c, "injection-taken", "run without that tool, or with --measure poll",
                   "CUDA_INJECTION64_PATH is set to %s already: that is left alone, and the peak "
                   "is polled, a lower bound",
                   other);
        c->is_injected = false;
    }
    nvml_set_base(&c->nvml);
    return OBSERVED_OK;
}

/* ---- after the run ---- */

static void look_at_agent(check *c, const agent_process *agent) {
    static const char poll[] = "the peak is polled, a lower bound";
    switch (agent->subscribed) {
    case CUPTI_OK:
        return;
    case -1:
        check_warn(c, "cupti-missing",
                   "install nvidia-cuda-cupti of the CUDA version that PyTorch has, or give "
                   "TIDEMARK_CUPTI=libcupti.so.13",
                   "no libcupti for CUDA 12 or 13 (looked: what the program had loaded, the "
                   "loader's path): %s",
                   poll);
        break;
    case CUPTI_MULTIPLE_SUBSCRIBERS:
        check_warn(c, "cupti-held",
                   "end that tool (Nsight, a profiler), or use a driver of r610 or newer, which "
                   "allows several",
                   "CUPTI is held by another tool: %s", poll);
        break;
    case CUPTI_NOT_INITIALIZED:
        check_warn(c, "cupti-too-new", "install the nvidia-cuda-cupti of the driver's CUDA version, or a newer driver",
                   "%s is newer than driver %s supports (CUPTI error 15): %s", cli_base_name(agent->path),
                   c->nvml.driver, poll);
        break;
    default:
        check_warn(c, "cupti-refused", "`tidemark doctor` shows what CUPTI says of this machine",
                   "CUPTI refused with error %d: %s", agent->subscribed, poll);
    }
}

static bool has_agent(const check *c, int64_t pid) {
    for (size_t i = 0; i < c->agent_count; i++)
        if (c->agents[i].pid == pid) return true;
    return false;
}

void check_look_at_agents(check *c) {
    const cJSON *seen;
    bool is_lost = false;
    for (size_t i = 0; i < c->agent_count; i++) look_at_agent(c, &c->agents[i]);
    for (int i = 0; i < c->nvml.count && c->agent_count == 0; i++) is_lost |= check_is_used(c, &c->nvml.devices[i]);
    cJSON_ArrayForEach(seen, c->processes) is_lost |=
        cJSON_GetArraySize(cli_at(seen, "devices")) > 0 && !has_agent(c, cli_int_at(seen, "pid"));
    if (c->is_injected && is_lost)
        check_warn(c, "agent-not-loaded",
                   "let the launcher pass it on: mpirun -x CUDA_INJECTION64_PATH, docker -e, no sudo",
                   "a process used a GPU without the measuring agent (CUDA_INJECTION64_PATH was lost on "
                   "the way): "
                   "the peak is polled, a lower bound");
}
