/* Calls about an inference server. */
#include <string.h>

#include "api/calls.h"
#include "serve/answer.h"

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
    while (gpu && gpu->kind == TIDE_JSON_STRING && at < sizeof cards / sizeof *cards &&
           !tide_text_is(gpu->text, cards[at].key))
        at++;
    if (at == sizeof cards / sizeof *cards)
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

/* The configuration of a case: model and overrides alone, as a job. */
static tide_job *job_of_case(call *c, const tide_json *of_case) {
    static const char *const keys[] = {"model", "overrides"};
    tide_json *part = tide_json_new(&c->arena, TIDE_JSON_OBJECT), *mode = tide_json_new(&c->arena, TIDE_JSON_STRING);
    mode->text = TIDE_TEXT("infer");
    tide_json_put(&c->arena, part, TIDE_TEXT("mode"), mode);
    for (size_t i = 0; i < 2; i++) {
        const tide_json *found = tide_json_at(of_case, keys[i]);
        if (found) tide_json_put(&c->arena, part, tide_text_of(keys[i]), tide_json_clone(&c->arena, found));
    }
    tide_text *words;
    tide_file *files;
    uint32_t word_count, file_count;
    const char *reason = NULL;
    if (!tide_job_arguments_of_case(&c->arena, part, &words, &word_count, &reason)) {
        tide_error(&c->diags, TIDE_ERR_UNSUPPORTED, "/case", reason ? reason : "a key of the case", NULL);
        return NULL;
    }
    if (!call_read_files(c, &files, &file_count)) return NULL;
    tide_job_add_files_of_case(&c->arena, of_case, &files, &file_count);
    return tide_job_build(&c->arena, words, word_count, files, file_count, &c->diags);
}

static bool read_case(call *c, const tide_json *of_case, tide_serve_words *words) {
    static const char *const known[] = {"id",        "model",      "overrides", "gpu",         "gpu_gib",
                                        "gpu_bytes", "capability", "sms",       "context_mib", "top",
                                        "env",       "config",     "warm_up",   "preprocessor"};
    for (const tide_json *key = of_case->first; key; key = key->next) {
        bool is_taken = false;
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            is_taken = is_taken || tide_text_is(key->key, known[i]);
        if (!is_taken && !tide_serve_read_case(words, key, &is_taken)) return false;
        if (!is_taken)
            return tide_error(&c->diags, TIDE_ERR_UNSUPPORTED, "/case",
                              tide_format(&c->arena, "the engine's setting %s is not described", key->key.at), NULL);
    }
    return true;
}

static void not_expressed(call *c) {
    const char *message = "no reason given";
    for (uint32_t i = c->diags.count; i-- > 0;)
        if (c->diags.items[i].severity == TIDE_ERROR) message = c->diags.items[i].message;
    call_open_answer(c);
    tide_write_bool_at(&c->writer, "expressed", false);
    tide_write_string_at(&c->writer, "reason", message);
}

bool call_verify_serving(call *c, const tide_json *of_case) {
    tide_serve_settings settings = {0};
    tide_serve_words words = {&c->arena, &c->diags, &settings, 0, 0, 0, 0};
    tide_serve_device device;
    tide_serve_run *run = TIDE_NEW(&c->arena, tide_serve_run, 1);
    tide_job *job = job_of_case(c, of_case);
    bool ok = job && read_case(c, of_case, &words) && device_of_case(c, of_case, &device);
    if (ok) settings.config = job->config;
    ok = ok && tide_serve_start(run, &settings, &device, &c->arena, &c->diags);
    if (!ok) {
        not_expressed(c);
        return true;
    }
    call_open_answer(c);
    tide_write_bool_at(&c->writer, "expressed", true);
    tide_write_serving_figures(&c->writer, run);
    return true;
}

/* As the driver calls the card: the engine's defaults look for names in it. */
static const char *driver_name(call *c, const tide_gpu *gpu) {
    return tide_format(&c->arena, "NVIDIA %s", gpu->title);
}

static bool answer_serve(call *c) {
    tide_text *given, *rest;
    tide_file *files;
    uint32_t given_count, file_count, count = 0;
    tide_serve_settings settings = {0};
    tide_serve_words words = {&c->arena, &c->diags, &settings, 0, 0, 0, 0};
    if (!call_read_words(c, &given, &given_count) || !call_read_files(c, &files, &file_count)) return false;
    rest = TIDE_NEW(&c->arena, tide_text, given_count + 1);
    rest[count++] = TIDE_TEXT("mode=infer");
    for (uint32_t i = 0; i < given_count; i++) {
        bool is_taken = false;
        if (!tide_serve_read_word(&words, given[i], &is_taken)) return false;
        if (!is_taken && !tide_text_is(given[i], "mode=serve")) rest[count++] = given[i];
    }
    tide_diagnostics scratch; /* what the job of one pass assumes is not the engine's */
    tide_diagnostics_init(&scratch, &c->arena);
    tide_job *job = tide_job_build(&c->arena, rest, count, files, file_count, &scratch);
    for (uint32_t i = 0; i < scratch.count; i++)
        if (scratch.items[i].severity == TIDE_ERROR)
            tide_error(&c->diags, scratch.items[i].status, scratch.items[i].place, scratch.items[i].message,
                       scratch.items[i].remedy);
    if (!job) return false;
    if (!job->device_bytes)
        return tide_error(&c->diags, TIDE_ERR_FIELD_MISSING, "/settings/gpu", "a server runs on a card",
                          "give gpu=NAME, as gpu=l40s, or gpu_gib=SIZE");
    settings.config = job->config;
    uint64_t used = words.context_mib ? (uint64_t)words.context_mib << 20 : job->gpu.context_bytes;
    tide_serve_device device = {driver_name(c, &job->gpu), job->device_bytes, used, (int)job->capability, job->gpu.sms};
    call_open_answer(c);
    return tide_write_serving(&c->writer, &words, &device, job, &c->arena, &c->diags);
}

const call_table serve_calls = {{{"serve", answer_serve}}};
