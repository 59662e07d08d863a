/* SPDX-License-Identifier: Apache-2.0 */
/* Recorded starts of an inference server. */
#include "api/calls.h"
#include "report/serving.h"

static bool device_of_case(call *c, const tide_json *of_case, tide_serve_device *device) {
    const tide_json *total = tide_json_at(tide_json_at(c->request, "device"), "total");
    if (!tide_serve_device_of_case(of_case, device))
        return tide_error(&c->diags, TIDE_ERR_UNSUPPORTED, "/case/gpu", "no such card", NULL);
    if (total && total->is_integer) device->total_bytes = (uint64_t)total->integer;
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
