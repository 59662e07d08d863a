/* SPDX-License-Identifier: Apache-2.0 */
/* See job_builder.h. The catalogue and the GPUs are small doubles made here. */
#include "job_builder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../core/src/lang/embedded_models.h"

/* ---- doubles ---- */

#define SOURCE(name_, text_)                                                                                           \
    { .name = name_, .text = text_, .length = sizeof(text_) - 1 }

const tide_source tide_catalogue_sources[] = {
    SOURCE("gpt2", "{\"name\": \"gpt2\", \"title\": \"GPT-2 Small\", \"source\": "
                   "\"huggingface.co/openai-community/gpt2\","
                   "\"parameters\": 124439808, \"config\": {\"architectures\": "
                   "[\"GPT2LMHeadModel\"], \"model_type\": \"gpt2\","
                   "\"vocab_size\": 50257, \"n_layer\": 12, \"attn_pdrop\": 0.1, \"embd_pdrop\": "
                   "0.1, \"layers\": [1, {\"a\": 2}],"
                   "\"scale\": null, \"deep\": {\"hidden_dropout_prob\": 0.1, \"use_dropout\": "
                   "true, \"drop_path_rate\": 0}}}"),
    SOURCE("gpt2-large", "{\"name\": \"gpt2-large\", \"config\": {\"model_type\": \"gpt2\"}}"),
    SOURCE("llama-3.1-8b", "{\"name\": \"llama-3.1-8b\", \"title\": \"Llama 3.1 8B\", \"config\": " LLAMA "}"),
    SOURCE("llava-1.5-7b", "{\"name\": \"llava-1.5-7b\", \"title\": \"LLaVA-1.5 7B\", \"source\": "
                           "\"huggingface.co/llava-hf/llava-1.5-7b-hf\","
                           "\"parameters\": 7063427072, \"config\": {\"architectures\": "
                           "[\"LlavaForConditionalGeneration\"], \"model_type\": \"llava\","
                           "\"torch_dtype\": \"float16\", \"image_token_index\": 32000, "
                           "\"text_config\": {\"model_type\": \"llama\", \"vocab_size\": 32064},"
                           "\"vision_config\": {\"image_size\": 336}}, \"preprocessor\": "
                           "{\"crop_size\": {\"height\": 336, \"width\": 336}}}"),
    {.name = NULL},
};
const uint32_t tide_catalogue_source_count = sizeof tide_catalogue_sources / sizeof *tide_catalogue_sources - 1;
const tide_source tide_catalogue_at_once[] = {{.name = NULL}};
const tide_source tide_architecture_sources[] = {{.name = NULL}}, tide_architecture_at_once[] = {{.name = NULL}};
const uint32_t tide_architecture_source_count = 0;
const tide_model_type tide_model_types[] = {{.model_type = NULL}}, tide_model_types_at_once[] = {{.model_type = NULL}};
const uint32_t tide_model_type_count = 0;
const uint32_t tide_pack_length = 0;
const tide_engine_root tide_engine_roots[] = {{0}};
const uint32_t tide_engine_root_count = 0;

const tide_source tide_recipe_sources[] = {
    SOURCE("tuned",
           "{\"settings\": {\"model\": \"gpt2\", \"batch\": 16, \"checkpointing\": \"full\", \"parallel\": {\"kind\": "
           "\"zero2\", \"dp\": 8}}}"),
};
const uint32_t tide_recipe_source_count = 1;

const tide_source tide_gpu_source =
    SOURCE("gpus", "{\"gpus\": [{\"name\": \"t4\", \"title\": \"T4 16GB\", \"bytes\": 15642329088, "
                   "\"capability\": 75, \"sms\": 40,"
                   "\"threads_per_sm\": 1024, \"context_bytes\": 184549376, \"context_source\": \"estimated\", "
                   "\"source\": \"deviceQuery\"},"
                   "{\"name\": \"h100-80\", \"title\": \"H100 80GB SXM5\", \"bytes\": 85017755648, "
                   "\"capability\": 90, \"sms\": 132,"
                   "\"threads_per_sm\": 2048, \"context_bytes\": 1, \"context_source\": \"\", \"source\": \"\"},"
                   "{\"name\": \"h100-pcie\", \"title\": \"H100 80GB PCIe\", \"bytes\": 84943044608, "
                   "\"capability\": 90, \"sms\": 114,"
                   "\"threads_per_sm\": 2048, \"context_bytes\": 1, \"context_source\": \"\", \"source\": "
                   "\"\"}]}");

const tide_source tide_config_defaults_source = SOURCE(
    "config_defaults", "{\"gpt2\": {\"n_layer\": 12, \"n_embd\": 768, \"@names\": {\"hidden_size\": \"n_embd\"}}}");

/* ---- memory that counts, and that can fail ---- */

size_t live_bytes;
long requests, fail_at; /* fail_at 0: never */

void *counting_resize(void *user, void *ptr, size_t old_size, size_t new_size) {
    (void)user;
    if (new_size && ++requests == fail_at) return NULL;
    live_bytes += new_size - old_size;
    if (new_size) return realloc(ptr, new_size);
    free(ptr);
    return NULL;
}

/* ---- one job ---- */

tide_arena arena;
tide_diagnostics diags;
jmp_buf escape;

void begin_job(const char *name) {
    begin(name);
    tide_arena_init(&arena, (tide_allocator){counting_resize, NULL}, &escape);
    tide_diagnostics_init(&diags, &arena);
}

void end_job(void) {
    tide_arena_free(&arena);
    if (live_bytes) complain(__LINE__, "%zu bytes left", live_bytes);
    end();
}

tide_job *build_texts(const tide_text *words, uint32_t count, const tide_file *files, uint32_t file_count) {
    tide_diagnostics_init(&diags, &arena);
    return tide_job_build(&arena, words, count, files, file_count, &diags);
}

/* Words in one text, joined by `|`. */
uint32_t cut(tide_text *words, uint32_t limit, const char *joined) {
    uint32_t count = 0;
    while (joined && count < limit) {
        const char *bar = strchr(joined, '|');
        words[count++] = (tide_text){joined, bar ? (size_t)(bar - joined) : strlen(joined)};
        joined = bar ? bar + 1 : NULL;
    }
    return count;
}

tide_job *build(const char *joined) {
    tide_text words[64];
    return build_texts(words, cut(words, 64, joined), NULL, 0);
}

tide_job *build_file(const char *joined, const char *name, const char *text) {
    tide_text words[64];
    uint32_t count = joined ? cut(words, 64, joined) : 0;
    tide_file file = {tide_text_of(name), tide_text_of(text)};
    return build_texts(words, count, &file, 1);
}

const tide_diagnostic *find(tide_severity severity, const char *place) {
    for (uint32_t i = 0; i < diags.count; i++)
        if (diags.items[i].severity == severity && strcmp(diags.items[i].place, place) == 0) return &diags.items[i];
    return NULL;
}

bool says(tide_severity severity, const char *place, const char *part) {
    const tide_diagnostic *d = find(severity, place);
    return d && (strstr(d->message, part) || (d->remedy && strstr(d->remedy, part)));
}

/* The words fail with an error at this place that says this. */
void refuse_at(int line, const char *joined, const char *place, const char *part) {
    if (build(joined)) complain(line, "%s was taken", joined);
    if (says(TIDE_ERROR, place, part)) return;
    complain(line, "no error at %s says \"%s\"; there are:", place, part);
    for (uint32_t i = 0; i < diags.count; i++)
        printf("       %s: %s (%s)\n", diags.items[i].place, diags.items[i].message,
               diags.items[i].remedy ? diags.items[i].remedy : "");
}

void refuse_file_at(int line, const char *text, const char *part) {
    if (build_file(NULL, "given.json", text)) complain(line, "%.60s was taken", text);
    if (diags.error_count != 1 || strncmp(diags.items[0].place, "/files/0", 8) != 0 ||
        !strstr(diags.items[0].message, part))
        complain(line, "%.60s: %s %s, expected \"%s\"", text, diags.count ? diags.items[0].place : "",
                 diags.count ? diags.items[0].message : "nothing", part);
}

const char *row(const tide_job *job, const char *name) {
    for (uint32_t i = 0; job && i < job->row_count; i++)
        if (strcmp(job->rows[i].name, name) == 0) return job->rows[i].value;
    return "(absent)";
}

tide_origin origin(const tide_job *job, const char *name) {
    for (uint32_t i = 0; job && i < job->row_count; i++)
        if (strcmp(job->rows[i].name, name) == 0) return job->rows[i].origin;
    return TIDE_ORIGIN_RECIPE;
}

void row_at(int line, const char *words, const char *name, const char *value) {
    tide_job *job = build(words);
    if (!job)
        complain(line, "%s was refused: %s %s", words, diags.items[0].place, diags.items[0].message);
    else if (strcmp(row(job, name), value) != 0)
        complain(line, "%s: %s is \"%s\"", words, name, row(job, name));
}

void link_at(int line, const char *words, const char *link) {
    tide_job *job = build(words);
    if (!job)
        complain(line, "%s was refused: %s %s", words, diags.items[0].place, diags.items[0].message);
    else if (strcmp(job->link, link) != 0)
        complain(line, "%s: link is %s", words, job->link);
}

int64_t config_int(const tide_job *job, const char *outer, const char *key) {
    const tide_json *at = outer ? tide_json_at(job->config, outer) : job->config;
    const tide_json *value = tide_json_at(at, key);
    return value && value->is_integer ? value->integer : INT64_MIN;
}
