/* SPDX-License-Identifier: Apache-2.0 */
/* Failures point to core/src/job/.
 *
 * Each test names the rule that it pins. The catalogue and the cards are small doubles made here.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../core/src/job/job.h"
#include "../../core/src/lang/embedded_models.h"

/* ---- doubles ---- */

#define SOURCE(name_, text_)                                                                                           \
    { .name = name_, .text = text_, .length = sizeof(text_) - 1 }

#define LLAMA                                                                                                          \
    "{\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], \"hidden_size\": 64, "                     \
    "\"vocab_size\": 99}"

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

/* ---- counting ---- */

static int passed, failed;
static bool test_ok;
static const char *test_name;

static void complain(int line, const char *format, ...) {
    va_list list;
    if (test_ok) printf("FAIL %s\n", test_name);
    test_ok = false;
    va_start(list, format);
    printf("     line %d: ", line);
    vprintf(format, list);
    printf("\n");
    va_end(list);
}

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) complain(__LINE__, "%s", #condition);                                                        \
    } while (0)

/* ---- memory that counts, and that can fail ---- */

static size_t live_bytes;
static long requests, fail_at; /* fail_at 0: never */

static void *counting_resize(void *user, void *ptr, size_t old_size, size_t new_size) {
    (void)user;
    if (new_size && ++requests == fail_at) return NULL;
    live_bytes += new_size - old_size;
    if (new_size) return realloc(ptr, new_size);
    free(ptr);
    return NULL;
}

/* ---- one job ---- */

static tide_arena arena;
static tide_diagnostics diags;
static jmp_buf escape;

static void begin(const char *name) {
    test_name = name;
    test_ok = true;
    tide_arena_init(&arena, (tide_allocator){counting_resize, NULL}, &escape);
    tide_diagnostics_init(&diags, &arena);
}

static void end(void) {
    tide_arena_free(&arena);
    if (live_bytes) complain(__LINE__, "%zu bytes left", live_bytes);
    if (test_ok)
        passed++;
    else
        failed++;
}

static tide_job *build_texts(const tide_text *words, uint32_t count, const tide_file *files, uint32_t file_count) {
    tide_diagnostics_init(&diags, &arena);
    return tide_job_build(&arena, words, count, files, file_count, &diags);
}

/* Words in one text, joined by `|`. */
static uint32_t cut(tide_text *words, uint32_t limit, const char *joined) {
    uint32_t count = 0;
    while (joined && count < limit) {
        const char *bar = strchr(joined, '|');
        words[count++] = (tide_text){joined, bar ? (size_t)(bar - joined) : strlen(joined)};
        joined = bar ? bar + 1 : NULL;
    }
    return count;
}

static tide_job *build(const char *joined) {
    tide_text words[64];
    return build_texts(words, cut(words, 64, joined), NULL, 0);
}

static tide_job *build_file(const char *joined, const char *name, const char *text) {
    tide_text words[64];
    uint32_t count = joined ? cut(words, 64, joined) : 0;
    tide_file file = {tide_text_of(name), tide_text_of(text)};
    return build_texts(words, count, &file, 1);
}

static const tide_diagnostic *find(tide_severity severity, const char *place) {
    for (uint32_t i = 0; i < diags.count; i++)
        if (diags.items[i].severity == severity && strcmp(diags.items[i].place, place) == 0) return &diags.items[i];
    return NULL;
}

static bool says(tide_severity severity, const char *place, const char *part) {
    const tide_diagnostic *d = find(severity, place);
    return d && (strstr(d->message, part) || (d->remedy && strstr(d->remedy, part)));
}

/* The words fail with an error at this place that says this. */
static void refuse_at(int line, const char *joined, const char *place, const char *part) {
    if (build(joined)) complain(line, "%s was taken", joined);
    if (says(TIDE_ERROR, place, part)) return;
    complain(line, "no error at %s says \"%s\"; there are:", place, part);
    for (uint32_t i = 0; i < diags.count; i++)
        printf("       %s: %s (%s)\n", diags.items[i].place, diags.items[i].message,
               diags.items[i].remedy ? diags.items[i].remedy : "");
}
#define REFUSE(joined, place, part) refuse_at(__LINE__, joined, place, part)

static void refuse_file_at(int line, const char *text, const char *part) {
    if (build_file(NULL, "given.json", text)) complain(line, "%.60s was taken", text);
    if (diags.error_count != 1 || strncmp(diags.items[0].place, "/files/0", 8) != 0 ||
        !strstr(diags.items[0].message, part))
        complain(line, "%.60s: %s %s, expected \"%s\"", text, diags.count ? diags.items[0].place : "",
                 diags.count ? diags.items[0].message : "nothing", part);
}
#define REFUSE_FILE(text, part) refuse_file_at(__LINE__, text, part)

static const char *row(const tide_job *job, const char *name) {
    for (uint32_t i = 0; job && i < job->row_count; i++)
        if (strcmp(job->rows[i].name, name) == 0) return job->rows[i].value;
    return "(absent)";
}

static tide_origin origin(const tide_job *job, const char *name) {
    for (uint32_t i = 0; job && i < job->row_count; i++)
        if (strcmp(job->rows[i].name, name) == 0) return job->rows[i].origin;
    return TIDE_ORIGIN_RECIPE;
}

static void row_at(int line, const char *words, const char *name, const char *value) {
    tide_job *job = build(words);
    if (!job)
        complain(line, "%s was refused: %s %s", words, diags.items[0].place, diags.items[0].message);
    else if (strcmp(row(job, name), value) != 0)
        complain(line, "%s: %s is \"%s\"", words, name, row(job, name));
}
#define ROW(words, name, value) row_at(__LINE__, words, name, value)

static void link_at(int line, const char *words, const char *link) {
    tide_job *job = build(words);
    if (!job)
        complain(line, "%s was refused: %s %s", words, diags.items[0].place, diags.items[0].message);
    else if (strcmp(job->link, link) != 0)
        complain(line, "%s: link is %s", words, job->link);
}
#define LINK(words, link) link_at(__LINE__, words, link)

static int64_t config_int(const tide_job *job, const char *outer, const char *key) {
    const tide_json *at = outer ? tide_json_at(job->config, outer) : job->config;
    const tide_json *value = tide_json_at(at, key);
    return value && value->is_integer ? value->integer : INT64_MIN;
}

/* ---- words ---- */

static void test_defaults(void) {
    begin("defaults are what people run");
    tide_job *job = build("model=gpt2");
    CHECK(job);
    if (job) {
        CHECK(job->mode == TIDE_mode_train && job->batch == 1 && job->seq == 512 && job->images == 1 &&
              job->image_size.height == 0);
        CHECK(job->dtype.dtype == TIDE_BF16 && !job->autocast.is_set && !job->scaler &&
              job->optimizer == TIDE_optimizer_adamw);
        CHECK(job->param_groups == TIDE_param_groups_one && job->freeze.count == 0 && job->train_only.count == 0);
        CHECK(job->checkpointing == TIDE_checkpointing_none && job->attention == TIDE_attention_sdpa);
        CHECK(job->sdpa_backend == TIDE_sdpa_backend_default && job->grad_accum == 1 &&
              job->zero_grad == TIDE_zero_grad_none);
        CHECK(!job->clip && job->labels && !job->padding && job->use_cache == TIDE_use_cache_default &&
              !job->hold_outputs);
        CHECK(strcmp(job->allocator, "") == 0 && job->load == TIDE_load_to && job->steps == 2);
        CHECK(!job->has_gpu && job->capability == 90 && job->gpu.sms == 132 && job->gpu.threads_per_sm == 2048);
        CHECK(job->device_bytes == 0 && job->memory_fraction_ppm == 0 &&
              job->allocator_conf.max_split_size_bytes == UINT64_MAX);
        CHECK(strcmp(job->model_title, "GPT-2 Small") == 0 && job->published_parameters == 124439808 &&
              !job->preprocessor);
        CHECK(strcmp(job->link, "model=gpt2&v=1") == 0);
    }
    end();
}

static void test_values(void) {
    begin("values become canonical text");
    ROW("gpt2", "model", "gpt2");
    ROW("gpt2|batch= 4 ", "batch", "4");
    ROW("gpt2|batch=+04", "batch", "4");
    ROW("gpt2|mbs=8", "batch", "8");
    ROW("gpt2|bs=8", "batch", "8");
    ROW("gpt2|ctx=2048", "seq", "2048");
    ROW("gpt2|ckpt=full", "checkpointing", "full");
    ROW("gpt2|gradient_checkpointing=True", "checkpointing", "full");
    ROW("gpt2|ga=4", "grad_accum", "4");
    ROW("gpt2|opt=sgd", "optimizer", "sgd");
    ROW("gpt2|opt=adamw_torch", "optimizer", "adamw");
    ROW("gpt2|attn=eager", "attention", "eager");
    ROW("gpt2|precision=BFloat16", "dtype", "bf16");
    ROW("gpt2|dtype=float32", "dtype", "fp32");
    ROW("gpt2|autocast=False", "autocast", "none");
    ROW("gpt2|padding=yes", "padding", "true");
    ROW("gpt2|labels=0", "labels", "false");
    ROW("gpt2|image_size=336X616", "image_size", "336x616");
    ROW("gpt2|image_size=336", "image_size", "336x336");
    ROW("gpt2|image_size=none", "image_size", "");
    ROW("gpt2|freeze= a , b,,a,c ", "freeze", "a,b,c");
    ROW("gpt2|clip=1.0", "clip", "1");
    ROW("gpt2|clip=1e-1", "clip", "0.1");
    ROW("gpt2|clip=2.50e0", "clip", "2.5");
    ROW("gpt2|clip=1000e-13", "clip", "0.0000000001");
    ROW("gpt2|clip=1.0000000000000000000000000", "clip", "1");
    ROW("gpt2|clip=0", "clip", "");
    ROW("gpt2|max_grad_norm=.3", "clip", "0.3");
    ROW("gpt2|dropout=0.0", "dropout", "0");
    ROW("gpt2|gpu_gib=8.70", "gpu_gib", "8.7");
    ROW("gpt2|capability=8.6", "capability", "86");
    ROW("gpt2|use_cache=0", "use_cache", "false");
    ROW("gpt2|title= a & b ", "title", "a & b");
    ROW("gpt2|gpu=H100 80gb sxm5", "gpu", "h100-80");
    ROW("gpt2|gpu=none", "gpu", "");
    ROW("gpt2||batch=2|", "batch", "2");
    end();
}

static void test_bad_values(void) {
    begin("a bad value is an error that names the choices or the range");
    REFUSE("gpt2|batch=0", "/settings/batch", "from 1 to 1000000");
    REFUSE("gpt2|batch=1000001", "/settings/batch", "from 1 to 1000000");
    REFUSE("gpt2|batch=99999999999999999999999", "/settings/batch", "from 1 to 1000000");
    REFUSE("gpt2|batch=1k", "/settings/batch", "whole number");
    REFUSE("gpt2|batch=1_000", "/settings/batch", "whole number");
    REFUSE("gpt2|batch=2.0", "/settings/batch", "whole number");
    REFUSE("gpt2|batch=", "/settings/batch", "is empty");
    REFUSE("gpt2|seq=10000001", "/settings/seq", "10000000");
    REFUSE("gpt2|images=10001", "/settings/images", "from 0 to 10000");
    REFUSE("gpt2|grad_accum=100001", "/settings/grad_accum", "100000");
    REFUSE("gpt2|steps=9", "/settings/steps", "from 1 to 8");
    REFUSE("gpt2|image_size=0x336", "/settings/image_size", "65536");
    REFUSE("gpt2|image_size=336x65537", "/settings/image_size", "65536");
    REFUSE("gpt2|image_size=3x3x3", "/settings/image_size", "height x width");
    REFUSE("gpt2|dtype=int8", "/settings/dtype", "bf16, fp16, fp32");
    REFUSE("gpt2|optimizer=adamw_fusd", "/settings/optimizer", "did you mean adamw_fused?");
    REFUSE("gpt2|optimizer=adafctr", "/settings/optimizer", "sgd_momentum");
    REFUSE("gpt2|mode=tune", "/settings/mode", "must be one of train, infer, serve");
    REFUSE("gpt2|mode=serve", "/settings/gpu", "a server runs on a card");
    REFUSE("gpt2|max_num_seqs=4", "/settings/max_num_seqs", "choose mode=serve");
    REFUSE("gpt2|mode=serve|gpu=t4|max_num_seqs=0", "/settings/max_num_seqs", "from 1");
    REFUSE("gpt2|mode=serve|gpu=t4|gpu_memory_utilization=1.5", "/settings/gpu_memory_utilization", "to 1");
    REFUSE("gpt2|mode=serve|gpu=t4|quantization=int3", "/settings/quantization", "must be one of none, fp8");
    REFUSE("gpt2|mode=infer|adapter=prefix", "/settings/adapter", "virtual tokens");
    REFUSE("gpt2|adapter.merged=true", "/settings/adapter.merged", "do not train");
    REFUSE("gpt2|padding=maybe", "/settings/padding", "true or false");
    REFUSE("gpt2|packing=true|padding=true", "/settings/packing", "have no padding");
    REFUSE("gpt2|packing=true|mode=infer", "/settings/packing", "for training");
    REFUSE("gpt2|packing=true|adapter=prefix", "/settings/packing", "with prefix_tuning");
    REFUSE("gpt2|clip=-1", "/settings/clip", "from 0");
    REFUSE("gpt2|clip=nan", "/settings/clip", "number");
    REFUSE("gpt2|clip=1e999", "/settings/clip", "number from 0");
    REFUSE("gpt2|clip=1e-13", "/settings/clip", "12 decimals");
    REFUSE("gpt2|dropout=1.01", "/settings/dropout", "from 0 to 1");
    REFUSE("gpt2|memory_fraction=0", "/settings/memory_fraction", "to 1");
    REFUSE("gpt2|memory_fraction=0.1234567", "/settings/memory_fraction", "6 decimals");
    REFUSE("gpt2|gpu_gib=0", "/settings/gpu_gib", "from 0.001");
    REFUSE("gpt2|capability=9.05", "/settings/capability", "90 or 9.0");
    REFUSE("gpt2|capability=900", "/settings/capability", "from 50 to 200");
    REFUSE("gpt2|allocator=max_split:3", "/settings/allocator", "Unrecognized key 'max_split'");
    REFUSE("gpt2|overrides=4", "/settings/overrides", "overrides.num_hidden_layers=4");
    REFUSE("gpt2|title=a\nb", "/settings/title", "control");
    end();
}

static void deepspeed_at(int line, const char *text, const char *words, const char *name, const char *value) {
    tide_job *job = build_file(words, "ds.json", text);
    if (!job || strcmp(row(job, name), value) != 0)
        complain(line, "%s: %s is \"%s\"", text, name, job ? row(job, name) : diags.items[0].message);
}
#define DEEPSPEED(text, words, name, value) deepspeed_at(__LINE__, text, words, name, value)

static void test_deepspeed(void) {
    begin("a DeepSpeed configuration is settings, with auto as the Trainer fills it in");
    static const char zero2
        [] = "{\"bf16\": {\"enabled\": \"auto\"}, \"train_micro_batch_size_per_gpu\": \"auto\", \"train_batch_size\": "
             "\"auto\", "
             "\"gradient_accumulation_steps\": \"auto\", \"zero_optimization\": {\"stage\": 2, \"overlap_comm\": true, "
             "\"contiguous_gradients\": true, \"sub_group_size\": 1e9, \"reduce_bucket_size\": \"auto\"}}",
   zero3[] =
        "{\"fp16\": {\"enabled\": true}, \"train_batch_size\": 64, \"train_micro_batch_size_per_gpu\": 4, "
        "\"gradient_accumulation_steps\": 2, "
        "\"gradient_clipping\": \"auto\", \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 1}}, "
        "\"zero_optimization\": {\"stage\": 3, "
        "\"stage3_max_live_parameters\": 1000000000, \"offload_param\": {\"device\": \"cpu\", \"pin_memory\": true}}}";
    DEEPSPEED(zero2, "gpt2|dp=4", "parallel.kind", "zero2");
    DEEPSPEED(zero2, "gpt2|dp=4", "parallel.overlap_comm", "true");
    DEEPSPEED(zero2, "gpt2|dp=4", "parallel.hf_auto", "true");
    DEEPSPEED(zero2, "gpt2|dp=4", "parallel.half", "bf16");
    DEEPSPEED(zero3, "gpt2", "parallel.kind", "zero3");
    DEEPSPEED(zero3, "gpt2", "parallel.dp", "8");
    DEEPSPEED(zero3, "gpt2|dp=2", "parallel.dp", "2");
    DEEPSPEED(zero3, "gpt2", "batch", "4");
    DEEPSPEED(zero3, "gpt2", "clip", "1");
    DEEPSPEED(zero3, "gpt2", "parallel.half", "fp16");
    DEEPSPEED(zero3, "gpt2", "optimizer", "adamw_fused");
    DEEPSPEED(zero3, "gpt2", "parallel.offload_param", "cpu");
    DEEPSPEED("{\"zero_optimization\": {\"stage\": 0, \"overlap_comm\": true}}", "gpt2", "parallel.half", "none");
    end();
}

static void test_recipe(void) {
    begin("a recipe gives what is not given otherwise, and the link holds its settings");
    ROW("recipe=tuned", "model", "gpt2");
    ROW("recipe=tuned", "parallel.dp", "8");
    ROW("batch=2|recipe=tuned", "batch", "2");
    ROW("llama-3.1-8b|recipe=tuned|dp=4", "parallel.dp", "4");
    CHECK(origin(build("recipe=tuned|batch=2"), "batch") == TIDE_ORIGIN_USER);
    CHECK(origin(build("recipe=tuned"), "parallel.kind") == TIDE_ORIGIN_RECIPE);
    LINK("recipe=tuned|checkpointing=none", "model=gpt2&batch=16&parallel.kind=zero2&parallel.dp=8&v=1");
    REFUSE("gpt2|recipe=tune", "/settings/recipe", "did you mean tuned?");
    end();
}

static void test_unknown(void) {
    begin("an unknown key is an error that names the nearest one");
    REFUSE("gpt2|bacth=4", "/settings/bacth", "did you mean batch?");
    REFUSE("gpt2|overide.x=4", "/settings/overide.x", "did you mean overrides.KEY?");
    REFUSE("gpt2|Optimizr=sgd", "/settings/Optimizr", "did you mean optimizer?");
    REFUSE("gpt2|qqqqqqqqqqqq=1", "/settings/qqqqqqqqqqqq", "lists the settings");
    REFUSE("gpt2|a/b~c=1", "/settings/a~1b~0c", "not a setting");
    REFUSE("gpt2|=4", "/settings/", "not a setting");
    REFUSE("gpt2|nodes=2", "/settings/nodes", "not expressed");
    REFUSE("gpt2|parallel.kind=zer2", "/settings/parallel.kind", "did you mean zero2?");
    REFUSE("gpt2|dp=2", "/settings/parallel.dp", "need a kind");
    REFUSE("gpt2|parallel.kind=ddp|dp=2|rank=2", "/settings/parallel.rank", "go from 0 to 1");
    REFUSE("gpt2|parallel.kind=ddp|parallel.overlap_comm=true", "/settings/parallel.overlap_comm",
           "no option of parallel.kind=ddp");
    end();
}

static void test_no_equals(void) {
    begin("a word without = is the model if it is first, else an error");
    ROW("gpt2|batch=2", "model", "gpt2");
    REFUSE("batch=2|gpt2", "/settings/gpt2", "only the first word");
    REFUSE("model=gpt2|batch", "/settings/batch", "write batch=VALUE");
    end();
}

static void test_all_problems(void) {
    begin("all problems are reported in one pass");
    CHECK(!build("model=gtp2|batch=0|bacth=1|dtype=int8|gpu=h10|overrides.layers.9=1|"
                 "allocator=x"));
    CHECK(diags.error_count == 6);
    CHECK(find(TIDE_ERROR, "/settings/model") && find(TIDE_ERROR, "/settings/batch") &&
          find(TIDE_ERROR, "/settings/bacth"));
    CHECK(find(TIDE_ERROR, "/settings/dtype") && find(TIDE_ERROR, "/settings/gpu"));
    CHECK(find(TIDE_ERROR, "/settings/allocator"));
    end();
}

static void test_duplicates(void) {
    begin("of a setting given twice the last holds, with a warning");
    tide_job *job = build("gpt2|batch=2|mbs=3");
    CHECK(job && job->batch == 3 && says(TIDE_WARNING, "/settings/batch", "more than once"));
    job = build("gpt2|overrides.n_layer=2|overrides.n_layer=3");
    CHECK(job && config_int(job, NULL, "n_layer") == 3 && find(TIDE_WARNING, "/settings/overrides.n_layer"));
    job = build("gpt2|model=llama-3.1-8b");
    CHECK(job && strcmp(job->model, "llama-3.1-8b") == 0 && find(TIDE_WARNING, "/settings/model"));
    end();
}

static void test_version(void) {
    begin("v=1 is ignored, a newer one is refused");
    tide_job *job = build("gpt2|v=1");
    CHECK(job && diags.error_count == 0 && strcmp(row(job, "v"), "(absent)") == 0);
    REFUSE("gpt2|v=2", "/settings/v", "made by a newer tidemark");
    REFUSE("gpt2|v=x", "/settings/v", "v=1");
    end();
}

/* ---- overrides ---- */

static void test_overrides(void) {
    begin("overrides set configuration entries by dotted path");
    tide_job *job = build("gpt2|overrides.n_layer=4|overrides.deep.inner.x=7|overrides.layers.0=5|"
                          "overrides.layers.1.a=6|overrides.name=abc"
                          "|overrides.deep.flag=true|overrides.list=[1, 2.50, {\"a\": "
                          "null}]|overrides.quoted=\"4\"|overrides.empty=|overrides.eq=a=b");
    CHECK(job);
    if (job) {
        CHECK(config_int(job, NULL, "n_layer") == 4);
        CHECK(config_int(job, NULL, "vocab_size") == 50257);
        CHECK(tide_json_at(tide_json_at(tide_json_at(job->config, "deep"), "inner"), "x")->integer == 7);
        const tide_json *layers = tide_json_at(job->config, "layers");
        CHECK(layers->count == 2 && layers->first->integer == 5 && layers->first->parent == layers);
        CHECK(tide_json_at(layers->first->next, "a")->integer == 6);
        CHECK(tide_text_is(tide_json_at(job->config, "name")->text, "abc"));
        CHECK(tide_json_at(tide_json_at(job->config, "deep"), "flag")->is_true);
        CHECK(tide_text_is(tide_json_at(job->config, "quoted")->text, "4"));
        CHECK(tide_text_is(tide_json_at(job->config, "eq")->text, "a=b"));
        CHECK(strcmp(row(job, "overrides.list"), "[1,2.5,{\"a\":null}]") == 0);
        CHECK(strcmp(row(job, "overrides.quoted"), "\"4\"") == 0);
        CHECK(strcmp(row(job, "overrides.name"), "abc") == 0);
        CHECK(strcmp(row(job, "overrides.empty"), "") == 0);
        CHECK(origin(job, "overrides.name") == TIDE_ORIGIN_USER);
    }
    end();
}

static void test_bad_overrides(void) {
    begin("an override that fits nowhere is an error");
    REFUSE("gpt2|overrides.layers.2=1", "/settings/overrides.layers.2", "index below 2");
    REFUSE("gpt2|overrides.layers.x=1", "/settings/overrides.layers.x", "index below 2");
    REFUSE("gpt2|overrides.n_layer.x=1", "/settings/overrides.n_layer.x", "is a number");
    REFUSE("gpt2|overrides.scale.x=1", "/settings/overrides.scale.x", "is null");
    REFUSE("gpt2|overrides.=1", "/settings/overrides.", "empty");
    REFUSE("gpt2|overrides.a..b=1", "/settings/overrides.a..b", "empty");
    REFUSE("gpt2|overrides.x={\"a\": 1", "/settings/overrides.x", "not JSON");
    REFUSE("gpt2|overrides.x=[1,,2]", "/settings/overrides.x", "not JSON");
    REFUSE("gpt2|overrides.x=1e999", "/settings/overrides.x", "too large");
    CHECK(build("gpt2|overrides.a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p=1"));
    REFUSE("gpt2|overrides.a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q=1",
           "/settings/overrides.a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q", "16 parts");
    end();
}

static double config_number(const tide_job *job, const char *outer, const char *key) {
    const tide_json *value = tide_json_at(outer ? tide_json_at(job->config, outer) : job->config, key);
    return value && value->kind == TIDE_JSON_NUMBER ? value->number : -1;
}

static void test_dropout(void) {
    begin("dropout replaces every probability of dropping, flags aside");
    tide_job *job = build("gpt2|dropout=0.25|overrides.my_dropout_x=0.5|overrides.text=drop|"
                          "overrides.head_drop_rate=1|overrides.pdrop=1"
                          "|overrides.many=[{\"dropout\": 1}]");
    CHECK(job);
    if (job) {
        CHECK(config_number(job, NULL, "attn_pdrop") == 0.25 && config_number(job, NULL, "embd_pdrop") == 0.25);
        CHECK(config_number(job, "deep", "hidden_dropout_prob") == 0.25 &&
              config_number(job, "deep", "drop_path_rate") == 0.25);
        CHECK(tide_json_at(tide_json_at(job->config, "deep"), "use_dropout")->kind == TIDE_JSON_BOOL);
        CHECK(config_number(job, NULL, "my_dropout_x") == 0.25 && config_number(job, NULL, "head_drop_rate") == 0.25);
        CHECK(config_number(job, NULL, "pdrop") == 1);
        CHECK(tide_json_at(tide_json_at(job->config, "many")->first, "dropout")->number == 1);
    }
    job = build("gpt2|dropout=0");
    CHECK(job && config_int(job, NULL, "attn_pdrop") == 0);
    end();
}

/* ---- models and files ---- */

static void test_models(void) {
    begin("a model that the catalogue lacks is an error that names near ones");
    REFUSE("model=gtp2", "/settings/model", "gpt2");
    REFUSE("model=gpt", "/settings/model", "gpt2 or gpt2-large");
    REFUSE("model=llava-hf/llava-1.5-7b-hf-tuned", "/settings/model", "did you mean llava-1.5-7b?");
    REFUSE("model=Someone/Llama-3.1-8B-Instruct-v2", "/settings/model", "did you mean llama-3.1-8b?");
    REFUSE("model=nobody/knows-this", "/settings/model", "give its config.json as a file");
    REFUSE("model=zzzzzzzzzzzzzzzzz", "/settings/model", "config.json");
    REFUSE("batch=2", "/settings/model", "no model is given");
    REFUSE("model=", "/settings/model", "no model is given");
    tide_job *job = build("model=llava-hf/LLaVA-1.5-7b-hf");
    CHECK(job && strcmp(job->model, "llava-1.5-7b") == 0);
    job = build("model=GPT2");
    CHECK(job && strcmp(job->model, "gpt2") == 0);
    job = build("model=llava-1.5-7b");
    CHECK(job && job->preprocessor && job->published_parameters == INT64_C(7063427072));
    CHECK(job && strcmp(job->model_source, "huggingface.co/llava-hf/llava-1.5-7b-hf") == 0);
    end();
}

static void test_config_file(void) {
    begin("a file with model_type or architectures is the configuration");
    tide_job *job = build_file("batch=2", "config.json", LLAMA);
    CHECK(job && strcmp(job->model, "llama") == 0 && config_int(job, NULL, "hidden_size") == 64);
    CHECK(job && origin(job, "model") == TIDE_ORIGIN_FILE &&
          strncmp(job->link, "batch=2&config=%7B%22model_type%22:", 35) == 0);
    job = build_file("batch=2", "my-model.json", LLAMA);
    CHECK(job && strcmp(job->model, "my-model") == 0);
    job = build_file("batch=2", "a/long/path/my-model.json", LLAMA);
    CHECK(job && strcmp(job->model, "my-model") == 0);
    job = build_file(NULL, "config.json", "{\"architectures\": [\"X\"], \"_name_or_path\": \"org/name-7b/\"}");
    CHECK(job && strcmp(job->model, "name-7b") == 0);
    job = build_file("gpt2", "config.json", LLAMA);
    CHECK(job && strcmp(job->model, "llama") == 0 && says(TIDE_WARNING, "/settings/model", "gpt2 is not used"));
    job = build_file("bert-base", "config.json", LLAMA);
    CHECK(job && strcmp(job->model, "bert-base") == 0 && diags.error_count == 0 &&
          !find(TIDE_WARNING, "/settings/model"));
    CHECK(job && config_int(job, NULL, "hidden_size") == 64);
    job = build_file("overrides.hidden_size=8", "config.json", LLAMA);
    CHECK(job && config_int(job, NULL, "hidden_size") == 8);
    job = build_file(NULL, "c.json",
                     "{\"name\": \"mine\", \"title\": \"Mine\", \"parameters\": 7, \"config\": " LLAMA "}");
    CHECK(job && strcmp(job->model, "mine") == 0 && strcmp(job->model_title, "Mine") == 0 &&
          job->published_parameters == 7);
    job = build_file(NULL, "config.json", "{\"model_type\": \"llama\", \"quantization_config\": {\"bits\": 4}}");
    CHECK(job && find(TIDE_WARNING, "/model/quantization_config"));
    end();
}

#define QUANTISED(text) "{\"model_type\": \"llama\", \"quantization_config\": {" text "}}"

static void test_quantization_config(void) {
    begin("quantization_config is followed where a job can have such weights");
    tide_job *job = build_file("mode=infer", "config.json",
                               QUANTISED("\"quant_method\": \"gptq\", \"bits\": 3, \"group_size\": -1"));
    CHECK(job && job->quant == TIDE_quant_gptq && job->quant_bits == 3 && job->quant_group_size == 0 &&
          origin(job, "quant") == TIDE_ORIGIN_FILE);
    job = build_file(
        "mode=infer", "config.json",
        QUANTISED(
            "\"quant_method\": \"awq\", \"bits\": 4, \"zero_point\": false, \"modules_to_not_convert\": [\"visual\"]"));
    CHECK(job && job->quant == TIDE_quant_awq && !job->quant_zero_point && job->quant_skip.count == 1 &&
          job->quant_group_size == 128);
    job = build_file("mode=infer", "config.json", QUANTISED("\"quant_method\": \"fp8\", \"weight_block_size\": null"));
    CHECK(job && job->quant == TIDE_quant_fp8 && job->quant_group_size == 0);
    job = build_file("mode=infer|quant=none", "config.json", QUANTISED("\"quant_method\": \"fp8\""));
    CHECK(job && job->quant == TIDE_quant_none && !find(TIDE_WARNING, "/model/quantization_config"));
    job = build_file(
        "quant.double=true|lora.r=4", "config.json",
        QUANTISED("\"load_in_4bit\": true, \"bnb_4bit_quant_type\": \"nf4\", \"bnb_4bit_compute_dtype\": \"float16\""));
    CHECK(job && job->quant == TIDE_quant_nf4 && job->quant_double && job->quant_compute_dtype.dtype == TIDE_FP16);
    job = build_file("", "config.json", QUANTISED("\"load_in_8bit\": true"));
    CHECK(job && job->quant == TIDE_quant_none && says(TIDE_WARNING, "/model/quantization_config", "adapter=lora"));
    job = build_file("mode=infer", "config.json", QUANTISED("\"quant_method\": \"gptq\", \"bits\": 1000"));
    CHECK(!job && find(TIDE_ERROR, "/settings/quant.bits"));
    job = build_file("mode=infer", "config.json",
                     QUANTISED("\"quant_method\": \"compressed-tensors\", \"config_groups\": [3]"));
    CHECK(job && job->quant == TIDE_quant_none && find(TIDE_WARNING, "/model/quantization_config"));
    REFUSE("gpt2|quant=awq", "/settings/quant", "mode=infer");
    REFUSE("gpt2|mode=infer|quant=gptq|quant.bits=5", "/settings/quant.bits", "2, 3, 4 or 8");
    REFUSE("gpt2|mode=infer|quant=gptq|lora.r=4", "/settings/adapter", "leave them out");
    end();
}

static void test_two_files(void) {
    begin("two configurations contradict each other; a preprocessor goes with one");
    tide_file files[] = {{TIDE_TEXT("a.json"), TIDE_TEXT(LLAMA)}, {TIDE_TEXT("b.json"), TIDE_TEXT(LLAMA)}};
    CHECK(!build_texts(NULL, 0, files, 2) && says(TIDE_ERROR, "/files/1", "so is a.json") &&
          diags.first_error == TIDE_ERR_CONFLICT);
    files[1] = (tide_file){TIDE_TEXT("p.json"), TIDE_TEXT("{\"image_processor_type\": \"X\", \"crop_size\": 336}")};
    tide_job *job = build_texts(NULL, 0, files, 2);
    CHECK(job && job->preprocessor && tide_json_at(job->preprocessor, "crop_size")->integer == 336);
    files[0] = (tide_file){TIDE_TEXT("q.json"), TIDE_TEXT("{\"min_pixels\": 3136, \"max_pixels\": 4000}")};
    CHECK(!build_texts(NULL, 0, files, 2) && says(TIDE_ERROR, "/files/1", "second preprocessor"));
    tide_text word = TIDE_TEXT("llava-1.5-7b");
    job = build_texts(&word, 1, files, 1);
    CHECK(job && tide_json_at(job->preprocessor, "min_pixels") && !tide_json_at(job->preprocessor, "crop_size"));
    files[0].text = TIDE_TEXT("{\"size\": {\"longest_edge\": 512}}");
    job = build_texts(&word, 1, files, 1);
    CHECK(job && tide_json_at(job->preprocessor, "size"));
    files[0].text = TIDE_TEXT("{\"processor_class\": \"LlavaProcessor\", \"image_processor\": {\"crop_size\": 224}}");
    job = build_texts(&word, 1, files, 1);
    CHECK(job && tide_json_at(job->preprocessor, "crop_size")->integer == 224);
    end();
}

static void test_job_file(void) {
    begin("a job file gives words; the user's win over them");
    tide_job *job = build_file("batch=8", "job.json",
                               "{\"tidemark\": 1, \"settings\": {\"model\": \"gpt2\", \"batch\": 2, "
                               "\"padding\": true, \"clip\": 1.0,"
                               "\"freeze\": [\"a\", \"b\"], \"image_size\": [336, 280], \"gpu_gib\": 8.7, "
                               "\"dropout\": null,"
                               "\"overrides\": {\"n_layer\": 3, \"deep.y\": \"4\"}, \"overrides.z\": [1]}}");
    CHECK(job);
    if (job) {
        CHECK(job->batch == 8 && origin(job, "batch") == TIDE_ORIGIN_USER && !find(TIDE_WARNING, "/settings/batch"));
        CHECK(job->padding && origin(job, "padding") == TIDE_ORIGIN_FILE && job->clip && job->freeze.count == 2);
        CHECK(job->image_size.height == 336 && job->image_size.width == 280 && strcmp(row(job, "gpu_gib"), "8.7") == 0);
        CHECK(config_int(job, NULL, "n_layer") == 3 && strcmp(row(job, "overrides.deep.y"), "\"4\"") == 0);
        CHECK(strcmp(row(job, "overrides.z"), "[1]") == 0 && origin(job, "overrides.z") == TIDE_ORIGIN_FILE);
        CHECK(strncmp(job->link, "model=gpt2&batch=8&", 19) == 0);
    }
    job = build_file(NULL, "job.json", "{\"tidemark\": 1, \"settings\": [\"gpt2\", \"batch=2\"]}");
    CHECK(job && job->batch == 2 && origin(job, "batch") == TIDE_ORIGIN_FILE);
    CHECK(!build_file(NULL, "job.json", "{\"tidemark\": 2, \"settings\": {}}") &&
          says(TIDE_ERROR, "/files/0", "newer"));
    CHECK(!build_file("gpt2", "job.json", "{\"tidemark\": 1, \"settings\": {\"batch\": {\"x\": 1}, \"bacth\": {}}}"));
    CHECK(says(TIDE_ERROR, "/settings/batch", "an object") &&
          says(TIDE_ERROR, "/settings/bacth", "did you mean batch?"));
    CHECK(!build_file("gpt2", "job.json", "{\"tidemark\": \"x\", \"settings\": {}}"));
    CHECK(says(TIDE_ERROR, "/files/0", "no version"));
    CHECK(!build_file("gpt2", "job.json", "{\"tidemark\": 1, \"words\": {}}"));
    CHECK(says(TIDE_ERROR, "/files/0", "no \"settings\""));
    CHECK(!build_file("gpt2", "job.json", "{\"tidemark\": 1, \"settings\": [\"batch=2\", 4]}"));
    CHECK(says(TIDE_ERROR, "/settings", "no word"));
    CHECK(!build_file("gpt2", "j", "{\"tidemark\": 1, \"settings\": {\"overrides\": {\"a=b\": 4}}}"));
    CHECK(says(TIDE_ERROR, "/settings/overrides.a=b", "`=`"));
    end();
}

static void test_description_file(void) {
    begin("a file with architecture and modules is a description");
    tide_job *job = build_file("gpt2", "mine.json", "{\"tidemark\": 1, \"architecture\": \"mine\", \"modules\": {}}");
    CHECK(job && job->description && config_int(job, NULL, "n_layer") == 12);
    job = build_file(NULL, "mine.json", "{\"tidemark\": 1, \"architecture\": \"mine\", \"modules\": {}}");
    CHECK(job && job->description && strcmp(job->model, "mine") == 0 && job->config->kind == TIDE_JSON_OBJECT);
    end();
}

static void test_adapter_file(void) {
    begin("an adapter_config.json is read as settings");
    const char *file = "{\"peft_type\": \"LORA\", \"base_model_name_or_path\": \"x/y\", \"r\": 64, \"lora_alpha\": 16, "
                       "\"lora_dropout\": 0.1, \"bias\": \"none\","
                       " \"target_modules\": [\"q_proj\", \"v_proj\"], \"rank_pattern\": {\"^model.layers.0.\": 8, "
                       "\"up\": 4}, \"modules_to_save\": null,"
                       " \"layer_replication\": null, \"alpha_pattern\": {}, \"use_rslora\": true, \"use_dora\": "
                       "false, \"init_lora_weights\": true}";
    tide_job *job = build_file("gpt2", "adapter_config.json", file);
    CHECK(job && job->adapter == TIDE_adapter_lora && job->adapter_r == 64 &&
          strcmp(job->adapter_target_modules, "q_proj,v_proj") == 0);
    CHECK(job && !job->adapter_dora && job->adapter_rank_pattern.count == 2 &&
          strcmp(job->adapter_rank_pattern.names[0], "^model.layers.0.=8") == 0);
    job = build_file("gpt2", "adapter_config.json", "{\"peft_type\": \"LORA\", \"target_modules\": \"all-linear\"}");
    CHECK(job && strcmp(job->adapter_target_modules, "all-linear") == 0);
    job = build_file(
        "gpt2", "adapter_config.json",
        "{\"peft_type\": \"IA3\", \"target_modules\": [\"c_attn\"], \"feedforward_modules\": [\"mlp.c_proj\"]}");
    tide_job *prompt =
        build_file("gpt2", "adapter_config.json", "{\"peft_type\": \"PROMPT_TUNING\", \"num_virtual_tokens\": 8}");
    CHECK(prompt && prompt->adapter == TIDE_adapter_prompt_tuning && prompt->adapter_num_virtual_tokens == 8);
    CHECK(job && job->adapter == TIDE_adapter_ia3 && strcmp(job->adapter_target_modules, "c_attn") == 0 &&
          strcmp(job->adapter_feedforward_modules, "mlp.c_proj") == 0);
    end();
}

static void test_adapter_words(void) {
    begin("adapter.KEY, METHOD.KEY and peft's own names are one vocabulary");
    static const struct {
        const char *words, *method;
        int64_t r, tokens;
    } rows[] = {{"gpt2|adapter.r=4", "lora", 4, 20},
                {"gpt2|lora.r=4", "lora", 4, 20},
                {"gpt2|lora_r=4|lora.lora_dropout=0.5", "lora", 4, 20},
                {"gpt2|adapter.use_dora=true", "lora", 16, 20},
                {"gpt2|ia3.target_modules=c_attn", "ia3", 16, 20},
                {"gpt2|adapter.feedforward_modules=c_attn", "ia3", 16, 20},
                {"gpt2|prompt.num_virtual_tokens=8", "prompt_tuning", 16, 8},
                {"gpt2|prefix.num_virtual_tokens=8", "prefix_tuning", 16, 8},
                {"gpt2|p_tuning.num_virtual_tokens=8", "p_tuning", 16, 8},
                {"gpt2|adapter=ia3|lora.exclude_modules=c_proj", "ia3", 16, 20},
                {"gpt2", "none", 16, 20}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tide_job *job = build(rows[i].words);
        CHECK(job && strcmp(job->values[TIDE_SET_adapter], rows[i].method) == 0 && job->adapter_r == rows[i].r &&
              job->adapter_num_virtual_tokens == rows[i].tokens);
    }
    tide_job *job = build("gpt2|lora.kbit_layers=false|quant=nf4|adapter.r=8|quant.blocksize=128");
    CHECK(job && !job->quant_from_pretrained && diags.error_count == 0);
    CHECK(build("gpt2|adapter=ia3|adapter.r=8") && find(TIDE_WARNING, "/settings/adapter.r"));
    CHECK(build("gpt2|quant=int8|quant.blocksize=128") && find(TIDE_WARNING, "/settings/quant.blocksize"));
    REFUSE("gpt2|none.r=8", "/settings/none.r", "not a setting");
    REFUSE("gpt2|lora.nosuch=8", "/settings/lora.nosuch", "not a setting");
    end();
}

/* A header of one tensor. */
#define TENSOR(name, dtype, shape, from, to)                                                                           \
    "\"" name "\": {\"dtype\": \"" dtype "\", \"shape\": " shape ", \"data_offsets\": [" from ", " to "]}"

static void test_headers(void) {
    begin("the header of a safetensors file is read, and what does not fit together is refused");
    tide_job *job = build_file("gpt2", "model.safetensors",
                               "{\"__metadata__\": {\"format\": \"pt\"}, " TENSOR(
                                   "b", "F32", "[2, 3]", "4", "28") ", " TENSOR("a", "BF16", "[2]", "0", "4") "}");
    const tide_checkpoint *c = job ? job->checkpoint : NULL;
    CHECK(c && c->count == 2 && c->bytes == 28 && tide_text_is(c->tensors[0].name, "a") && c->tensors[1].dims == 2 &&
          c->tensors[1].count == 6);
    CHECK(c && tide_stored_find(c, TIDE_TEXT("b")) == &c->tensors[1] && !tide_stored_find(c, TIDE_TEXT("c")));
    CHECK(build_file("gpt2", "x",
                     "{" TENSOR("scalar", "F32", "[]", "0", "4") ", " TENSOR("none", "F32", "[0, 9007199254740000]",
                                                                             "4", "4") "}") != NULL);
    static const struct {
        const char *text, *says;
    } rows[] = {
        {"{" TENSOR("a", "BF16", "[2]", "0", "4") ", " TENSOR("b", "BF16", "[2]", "2", "6") "}", "overlaps"},
        {"{" TENSOR("a", "BF16", "[2]", "0", "4") ", " TENSOR("b", "BF16", "[2]", "0", "4") "}", "overlaps"},
        {"{" TENSOR("a", "BF16", "[2]", "8", "12") "}", "does not begin"},
        {"{" TENSOR("a", "BF16", "[2]", "0", "5") "}", "another size"},
        {"{" TENSOR("a", "BF16", "[2]", "4", "0") "}", "no [begin, end]"},
        {"{" TENSOR("a", "BF16", "[2]", "0", "-4") "}", "no [begin, end]"},
        {"{" TENSOR("a", "BF16", "[2]", "0", "1e30") "}", "no [begin, end]"},
        {"{" TENSOR("a", "BF16", "[-2]", "0", "4") "}", "whole numbers"},
        {"{" TENSOR("a", "BF16", "[1.5]", "0", "4") "}", "whole numbers"},
        {"{" TENSOR("a", "BF16", "[9007199254740000, 9007199254740000]", "0", "4") "}", "more elements"},
        {"{" TENSOR("a", "BF16", "[1,1,1,1,1,1,1,1,1]", "0", "2") "}", "8 dimensions"},
        {"{" TENSOR("a", "Q4", "[2]", "0", "4") "}", "does not know"},
        {"{" TENSOR("a", "BF16", "[2]", "0", "4") ", \"b\": 3}", "is no {"},
        {"{" TENSOR("a", "BF16", "[2]", "0", "4") ", " TENSOR("a", "BF16", "[2]", "4", "8") "}", "twice"},
        {"{" TENSOR("a", "F64", "[1125899906842624]", "0", "9007199254740991") "}", "another size"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) refuse_file_at(__LINE__, rows[i].text, rows[i].says);
    tide_text words[1] = {TIDE_TEXT("gpt2")};
    tide_file twice[2] = {{TIDE_TEXT("1.safetensors"), TIDE_TEXT("{" TENSOR("a", "BF16", "[2]", "0", "4") "}")},
                          {TIDE_TEXT("2.safetensors"), TIDE_TEXT("{" TENSOR("a", "BF16", "[2]", "0", "4") "}")}};
    CHECK(!build_texts(words, 1, twice, 2) && says(TIDE_ERROR, "/files", "stands twice"));
    twice[1].text = TIDE_TEXT(
        "{\"metadata\": {\"total_size\": 8}, \"weight_map\": {\"a\": \"1.safetensors\", \"b\": \"2.safetensors\"}}");
    CHECK(!build_texts(words, 1, twice, 2) && says(TIDE_ERROR, "/files", "in none of the headers"));
    job = build_texts(words, 1, twice + 1, 1);
    CHECK(job && job->checkpoint && !job->checkpoint->count && job->checkpoint->total_size == 8);
    REFUSE_FILE("{\"weight_map\": {\"a\": 3}}", "no file's name");
    end();
}

static void test_other_files(void) {
    begin("any other file is an error that names what it is");
    REFUSE_FILE("{\"tokenizer_class\": \"X\", \"model_max_length\": 4, \"model_type\": \"llama\"}",
                "tokenizer configuration");
    REFUSE_FILE("{\"added_tokens\": [], \"model\": {}}", "is a tokenizer");
    REFUSE_FILE("{\"_from_model_config\": true, \"eos_token_id\": 2}", "generation configuration");
    REFUSE_FILE("{\"name\": \"x\", \"version\": \"1\", \"config\": {\"port\": 1}, \"dependencies\": {}}",
                "package.json");
    REFUSE_FILE("{\"cells\": [], \"nbformat\": 4}", "notebook");
    REFUSE_FILE("{\"zero_optimization\": {\"stage\": 4}}", "must be 0, 1, 2 or 3");
    REFUSE_FILE("{\"zero_optimization\": {\"stage\": 2, \"reduce_bucket\": 5}}", "Extra inputs are not permitted");
    REFUSE_FILE("{\"zero_optimization\": {\"stage\": 3, \"zero_quantized_weights\": true}}", "not described");
    REFUSE_FILE("{\"train_batch_size\": 30, \"train_micro_batch_size_per_gpu\": 4, \"gradient_accumulation_steps\": 2}",
                "train_batch_size is not equal");
    REFUSE_FILE("{\"zero_optimization\": {}, \"optimizer\": {\"type\": \"Lamb\"}}", "Lamb is not described");
    REFUSE_FILE("{\"per_device_train_batch_size\": 2, \"deepspeed\": \"x/zero2.json\"}", "refers to x/zero2.json");
    REFUSE_FILE("{\"distributed_type\": \"MEGATRON_LM\"}", "MEGATRON_LM is not described");
    REFUSE_FILE("{\"distributed_type\": \"NO\", \"colour\": 1}", "had unknown keys (colour)");
    REFUSE_FILE("{\"distributed_type\": \"MULTI_GPU\", \"num_processes\": 8, \"num_machines\": 3}", "not a multiple");
    REFUSE_FILE("{\"finetuning_type\": \"freeze\"}", "freeze is not described");
    REFUSE_FILE("{\"per_device_train_batch_size\": \"many\"}", "batch");
    REFUSE_FILE("{\"per_device_train_batch_size\": {\"a\": 1}}", "must be one value");
    REFUSE_FILE("{\"base_model\": \"nobody/has-this\", \"micro_batch_size\": 1}", "is not in the catalogue");
    REFUSE_FILE("{\"zero_optimization\": {}, \"bf16\": {\"enabled\": true}, \"fp16\": {\"enabled\": true}}",
                "cannot be simultaneously enabled");
    REFUSE_FILE("{\"zero_optimization\": {\"stage\": 3}, \"gradient_allreduce_op\": \"sum\"}",
                "is not supported with ZeRO stage 3");
    REFUSE_FILE("{\"zero_optimization\": {}, \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"max_grad_norm\": 1}}}",
                "not supported as an optimizer parameter");
    REFUSE_FILE("{\"zero_optimization\": {\"stage\": 3, \"offload_param\": {\"device\": \"nvme\"}}}",
                "nvme is not described");
    REFUSE_FILE("{\"zero_optimization\": {}, \"bf16\": {\"enabled\": true, \"bf16_optimizer_states\": true}}",
                "is not described");
    REFUSE_FILE("{\"peft_type\": \"LORA\"}", "target_modules");
    REFUSE_FILE("{\"peft_type\": \"LOHA\", \"r\": 8}", "LOHA");
    REFUSE_FILE("{\"peft_type\": \"LORA\", \"target_modules\": [\"q_proj\"], \"layer_replication\": [[0, 4]]}",
                "layer_replication");
    REFUSE_FILE("{\"peft_type\": \"LORA\", \"target_modules\": [\"q_proj\"], \"rank_pattern\": {\"a\": \"b\"}}",
                "rank_pattern");
    REFUSE_FILE("{\"dim\": 4096, \"n_layers\": 32}", "params.json");
    REFUSE_FILE("{\"traceEvents\": []}", "trace");
    REFUSE_FILE("{\"hello\": 1}", "no \"model_type\"");
    REFUSE_FILE("[1, 2]", "holds an array");
    REFUSE_FILE("4", "holds a number");
    REFUSE_FILE("", "is empty");
    REFUSE_FILE("  \n", "is empty");
    REFUSE_FILE("{\"model_type\": \"llama\",}", "not JSON at line 1");
    REFUSE_FILE("<!DOCTYPE html><html>", "web page");
    REFUSE_FILE("version https://git-lfs.github.com/spec/v1", "Git LFS pointer");
    REFUSE_FILE("GGUF\003", "GGUF");
    REFUSE_FILE("PK\003\004", "zip");
    REFUSE_FILE("import torch\n", "Python");
    REFUSE_FILE("{\"model_type\": 4}", "must be a string");
    REFUSE_FILE("{\"model_type\": \"llava\", \"text_config\": [1]}", "must be an object");
    REFUSE_FILE("{\"name\": \"x\", \"config\": [1]}", "must be an object");
    tide_file file = {TIDE_TEXT("model.safetensors"), TIDE_TEXT("\x40\0\0\0\0\0\0\0{\"a\":1}")};
    CHECK(!build_texts(NULL, 0, &file, 1) && says(TIDE_ERROR, "/files/0", "safetensors") && diags.error_count == 1);
    end();
}

/* ---- the card ---- */

static void test_gpu(void) {
    begin("gpu sets capability, memory and context");
    tide_job *job = build("gpt2|gpu=t4");
    CHECK(job && job->has_gpu && job->gpu.bytes == 15642329088 && job->device_bytes == 15642329088 &&
          job->capability == 75);
    CHECK(job && job->gpu.sms == 40 && job->gpu.threads_per_sm == 1024 && job->gpu.context_bytes == 184549376);
    CHECK(job && strcmp(job->gpu.title, "T4 16GB") == 0 && !find(TIDE_ASSUMPTION, "/settings/gpu"));
    CHECK(job && strcmp(row(job, "capability"), "75") == 0 && strcmp(job->link, "model=gpt2&gpu=t4&v=1") == 0);
    job = build("gpt2|gpu=t4|capability=80");
    CHECK(job && job->capability == 80 && job->gpu.capability == 75);
    LINK("gpt2|gpu=t4|capability=75", "model=gpt2&gpu=t4&v=1");
    LINK("gpt2|gpu=t4|capability=90", "model=gpt2&gpu=t4&capability=90&v=1");
    job = build("gpt2|gpu=t4|gpu_gib=8");
    CHECK(job && job->device_bytes == (uint64_t)8 << 30 && job->gpu.bytes == 15642329088);
    REFUSE("gpt2|gpu=h100", "/settings/gpu", "h100-80 or h100-pcie");
    REFUSE("gpt2|gpu=t5", "/settings/gpu", "did you mean t4?");
    job = build("gpt2");
    CHECK(job && says(TIDE_ASSUMPTION, "/settings/gpu", "no gpu given") &&
          says(TIDE_ASSUMPTION, "/settings/gpu", "without limit"));
    end();
}

static void test_sizes(void) {
    begin("gpu_gib counts whole MiB, memory_fraction parts per million");
    tide_job *job = build("gpt2|gpu_gib=8.7");
    CHECK(job && job->device_bytes == (uint64_t)8908 << 20);
    job = build("gpt2|gpu_gib=2.8");
    CHECK(job && job->device_bytes == (uint64_t)2867 << 20);
    job = build("gpt2|gpu_gib=2000");
    CHECK(job && job->device_bytes == (uint64_t)2000 << 30);
    job = build("gpt2|gpu_gib=1000000");
    CHECK(job && job->device_bytes == (uint64_t)1000000 << 30);
    job = build("gpt2|gpu_gib=20|memory_fraction=0.55");
    CHECK(job && job->memory_fraction_ppm == 550000 && !find(TIDE_WARNING, "/settings/memory_fraction"));
    job = build("gpt2|memory_fraction=1");
    CHECK(job && job->memory_fraction_ppm == 1000000 && find(TIDE_WARNING, "/settings/memory_fraction"));
    end();
}

/* ---- contradictions, assumptions ---- */

static void test_half_types(void) {
    begin("half types and few steps");
    CHECK(build("gpt2|dtype=fp16|autocast=bf16"));
    CHECK(build("gpt2|steps=1") && find(TIDE_WARNING, "/settings/steps"));
    end();
}

static void test_assumptions(void) {
    begin("each default that moves the number is an assumption, once");
    static const char *const names[] = {
        "batch",     "seq",          "images",     "image_size", "dtype",     "autocast", "optimizer", "checkpointing",
        "attention", "sdpa_backend", "grad_accum", "zero_grad",  "use_cache", "gpu",      "allocator", "load"};
    CHECK(build("llava-1.5-7b"));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char place[64];
        uint32_t count = 0;
        snprintf(place, sizeof place, "/settings/%s", names[i]);
        for (uint32_t k = 0; k < diags.count; k++)
            count += diags.items[k].severity == TIDE_ASSUMPTION && strcmp(diags.items[k].place, place) == 0;
        if (count != 1) complain(__LINE__, "%s: %u", place, count);
    }
    CHECK(says(TIDE_ASSUMPTION, "/settings/dtype", "float16"));
    CHECK(build("llava-1.5-7b|batch=1|ckpt=full|attention=eager|gpu=t4"));
    CHECK(!find(TIDE_ASSUMPTION, "/settings/batch") && !find(TIDE_ASSUMPTION, "/settings/gpu"));
    CHECK(!find(TIDE_ASSUMPTION, "/settings/sdpa_backend") &&
          says(TIDE_ASSUMPTION, "/settings/use_cache", "checkpointing"));
    CHECK(build("gpt2") && !find(TIDE_ASSUMPTION, "/settings/images") &&
          !find(TIDE_ASSUMPTION, "/settings/image_size"));
    CHECK(!build("gpt2|batch=0") && diags.count == 1);
    end();
}

static void test_allocator(void) {
    begin("the allocator's text is PyTorch's");
    tide_job *job = build("gpt2|allocator=expandable_segments:True,garbage_collection_threshold:0.6");
    CHECK(job && job->allocator_conf.expandable_segments && job->allocator_conf.garbage_collection_threshold > 0.59);
    CHECK(job &&
          strcmp(job->link, "model=gpt2&allocator=expandable_segments:True,garbage_collection_threshold:0.6&v=1") == 0);
    job = build("gpt2|allocator=max_split_size_mb:128MB");
    CHECK(job && says(TIDE_WARNING, "/settings/allocator", "drops what follows"));
    job = build("gpt2|allocator=backend:cudaMallocAsync");
    CHECK(job && find(TIDE_WARNING, "/settings/allocator"));
    end();
}

/* ---- rows and link ---- */

static void test_link(void) {
    begin("the link holds what differs from the defaults, encoded as little as can be");
    LINK("batch=1|seq=512|model=gpt2|dtype=bf16", "model=gpt2&v=1");
    LINK("dtype=fp32|batch=4|model=gpt2|gpu=t4", "model=gpt2&gpu=t4&batch=4&dtype=fp32&v=1");
    LINK("gpt2|title=50% a+b & #1 \xc3\xa9", "model=gpt2&title=50%25%20a%2Bb%20%26%20%231%20%C3%A9&v=1");
    LINK("gpt2|overrides.x={\"a\":[1,\"b\"]}|batch=2",
         "model=gpt2&batch=2&overrides.x=%7B%22a%22:%5B1,%22b%22%5D%7D&v=1");
    LINK("gpt2|overrides.n_layer=12", "model=gpt2&overrides.n_layer=12&v=1");
    tide_job *job = build("gpt2|batch=1");
    CHECK(job && origin(job, "batch") == TIDE_ORIGIN_USER && origin(job, "seq") == TIDE_ORIGIN_DEFAULT);
    CHECK(job && strcmp(job->rows[0].name, "model") == 0 && strcmp(job->rows[1].name, "recipe") == 0);
    end();
}

static uint64_t seed = 1;

static uint32_t dice(uint32_t sides) {
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(seed >> 33) % sides;
}

static const char *pick(const char *const *list) {
    uint32_t count = 0;
    while (list[count]) count++;
    return list[dice(count)];
}

/* Printable text with what links and JSON care about. */
static const char *noise(char *into, uint32_t most) {
    static const char *const pieces[] = {
        "a", "B", "7", " ", "%", "&", "#",   "+", "=", "\xc3\xa9",         "\"",   "\\",
        "{", "]", ",", ":", "~", "/", "%41", "|", "'", "\xf0\x9f\x8c\x8a", "\xff", NULL};
    into[0] = 0;
    for (uint32_t i = dice(most); i > 0; i--) strcat(into, pick(pieces));
    return into;
}

static tide_text random_word(const char *name) {
    static const char *const optimizers[] = {"adamw",        "adamw_fused", "adam", "sgd",
                                             "sgd_momentum", "rmsprop",     "none", NULL};
    static const char *const dtypes[] = {"bf16", "fp16", "fp32", NULL}, *const casts[] = {"none", "bf16", "fp16", NULL},
                             *const bools[] = {"true", "false", "1", "no", NULL},
                             *const kernels[] = {"flash", "efficient", "math", "cudnn", "default", NULL},
                             *const checks[] = {"none", "full", "full_reentrant", NULL},
                             *const cards[] = {"t4", "h100-80", "", "H100 80GB PCIe", NULL},
                             *const numbers[] = {"0.5", "1", "0.000123", "1e-2", "", ".25", "0.10", NULL},
                             *const confs[] = {"", "expandable_segments:True", "max_split_size_mb:128",
                                               "roundup_power2_divisions:[1:8,16:4,>:1]", NULL},
                             *const values[] = {"4",
                                                "0.1",
                                                "true",
                                                "null",
                                                "[1, 2, {\"a\": \"b c\"}]",
                                                "\"4\"",
                                                "1e-5",
                                                "1e300",
                                                "0.30000000000000004",
                                                "-7",
                                                "plain",
                                                "1.2.3",
                                                " 5 ",
                                                "\"\\u00e9\\n\"",
                                                "123456789012345678901",
                                                "-0.0",
                                                NULL};
    char text[256], other[256];
    if (strcmp(name, "dtype") == 0) return tide_text_of(tide_format(&arena, "dtype=%s", pick(dtypes)));
    if (strcmp(name, "autocast") == 0) return tide_text_of(tide_format(&arena, "autocast=%s", pick(casts)));
    if (strcmp(name, "sdpa_backend") == 0) return tide_text_of(tide_format(&arena, "sdpa_backend=%s", pick(kernels)));
    if (strcmp(name, "checkpointing") == 0) return tide_text_of(tide_format(&arena, "checkpointing=%s", pick(checks)));
    if (strcmp(name, "optimizer") == 0) return tide_text_of(tide_format(&arena, "optimizer=%s", pick(optimizers)));
    if (strcmp(name, "gpu") == 0) return tide_text_of(tide_format(&arena, "gpu=%s", pick(cards)));
    if (strcmp(name, "allocator") == 0) return tide_text_of(tide_format(&arena, "allocator=%s", pick(confs)));
    if (strcmp(name, "title") == 0 || strcmp(name, "freeze") == 0 || strcmp(name, "train_only") == 0)
        return tide_text_of(tide_format(&arena, "%s=%s", name, noise(text, 12)));
    if (strcmp(name, "batch") == 0 || strcmp(name, "seq") == 0 || strcmp(name, "grad_accum") == 0)
        return tide_text_of(tide_format(&arena, "%s=%u", name, 1 + dice(5000)));
    if (strcmp(name, "images") == 0) return tide_text_of(tide_format(&arena, "images=%u", dice(9)));
    if (strcmp(name, "image_size") == 0)
        return tide_text_of(tide_format(&arena, "image_size=%ux%u", 1 + dice(999), 1 + dice(999)));
    if (strcmp(name, "steps") == 0) return tide_text_of(tide_format(&arena, "steps=%u", 1 + dice(8)));
    if (strcmp(name, "capability") == 0) return tide_text_of(tide_format(&arena, "capability=%u", 75 + 5 * dice(4)));
    if (strcmp(name, "clip") == 0 || strcmp(name, "dropout") == 0 || strcmp(name, "gpu_gib") == 0 ||
        strcmp(name, "memory_fraction") == 0) {
        const char *number = pick(numbers);
        bool is_small = strcmp(name, "gpu_gib") == 0 && strcmp(number, "0.000123") == 0;
        return tide_text_of(tide_format(&arena, "%s=%s", name, is_small ? "8.7" : number));
    }
    if (strcmp(name, "overrides") == 0) {
        const char *value = pick(values);
        for (char *c = strcpy(other, noise(text, 6)); *c; c++)
            if (*c == '=' || *c == '.') *c = '_';
        if (dice(3) == 0) {
            noise(text, 8);
            if (text[0] != '{' && text[0] != '[' && text[0] != '"' && text[0] != ' ') value = text;
        }
        return tide_text_of(
            tide_format(&arena, "overrides.k%u%s%s=%s", dice(1u << 30), other, dice(2) ? ".sub" : "", value));
    }
    return tide_text_of(tide_format(&arena, "%s=%s", name, pick(bools)));
}

static uint32_t words_of_link(tide_text *words, uint32_t limit, const char *link) {
    uint32_t count = 0;
    while (*link && count < limit) {
        size_t length = strcspn(link, "&"), at = 0;
        char *word = tide_arena_alloc(&arena, length + 1);
        for (size_t i = 0; i < length; i++) {
            unsigned byte;
            if (link[i] == '%' && sscanf(link + i + 1, "%2x", &byte) == 1)
                i += 2;
            else
                byte = (unsigned char)link[i];
            word[at++] = (char)byte;
        }
        words[count++] = (tide_text){word, at};
        link += length + (link[length] == '&');
    }
    return count;
}

static void test_round_trip(void) {
    static const char *const names[] = {
        "gpu",        "batch",        "seq",          "images",    "image_size", "labels",          "padding",
        "dtype",      "autocast",     "scaler",       "optimizer", "freeze",     "train_only",      "checkpointing",
        "grad_accum", "clip",         "sdpa_backend", "use_cache", "gpu_gib",    "memory_fraction", "allocator",
        "capability", "hold_outputs", "dropout",      "steps",     "overrides",  "overrides",       "title"};
    enum { ROUNDS = 2000, NAMES = sizeof names / sizeof *names };
    int built = 0;
    begin("the words of a job's own link give the same rows (2000 random jobs)");
    for (int round = 0; round < ROUNDS; round++) {
        tide_text words[NAMES + 1], again[64];
        uint32_t count = 1;
        words[0] = TIDE_TEXT("model=gpt2");
        for (uint32_t i = 0; i < NAMES; i++)
            if (dice(2)) words[count++] = random_word(names[i]);
        tide_job *job = build_texts(words, count, NULL, 0);
        if (!job) {
            for (uint32_t i = 0; i < diags.count; i++)
                if (diags.items[i].severity == TIDE_ERROR)
                    complain(__LINE__, "%s: %s", diags.items[i].place, diags.items[i].message);
        } else {
            built++;
            tide_job *same = build_texts(again, words_of_link(again, 64, job->link), NULL, 0);
            CHECK(same && same->row_count == job->row_count && strcmp(same->link, job->link) == 0);
            for (uint32_t i = 0; same && i < job->row_count && i < same->row_count; i++)
                if (strcmp(job->rows[i].name, same->rows[i].name) != 0 ||
                    strcmp(job->rows[i].value, same->rows[i].value) != 0)
                    complain(__LINE__, "%s=%s became %s=%s", job->rows[i].name, job->rows[i].value, same->rows[i].name,
                             same->rows[i].value);
            if (same)
                CHECK(same->device_bytes == job->device_bytes && same->capability == job->capability &&
                      same->freeze.count == job->freeze.count);
            if (!same && diags.count)
                complain(__LINE__, "%s: %s %s", job->link, diags.items[0].place, diags.items[0].message);
        }
        tide_arena_free(&arena);
    }
    CHECK(built > ROUNDS / 2);
    end();
}

/* ---- cases of the oracle ---- */

static bool words_of(const char *text, tide_text **words, uint32_t *count, const char **reason) {
    tide_diagnostics_init(&diags, &arena);
    tide_json *value = tide_json_parse(&arena, tide_text_of(text), "", &diags);
    return tide_job_arguments_of_case(&arena, value, words, count, reason);
}

static void reason_at(int line, const char *text, const char *expected) {
    tide_text *words;
    uint32_t count;
    const char *reason;
    if (words_of(text, &words, &count, &reason))
        complain(line, "%s was taken", text);
    else if (strcmp(reason, expected) != 0)
        complain(line, "%s: %s", text, reason);
}

static void test_cases(void) {
    begin("a case of the oracle becomes words, with its own defaults");
    tide_text *words;
    uint32_t count;
    const char *reason;
    CHECK(words_of("{\"id\": \"x\", \"model\": \"gpt2\", \"batch\": 3, \"clip\": 0.3, "
                   "\"use_cache\": false, \"freeze\": [\"a\", \"b\"],"
                   "\"image_size\": [336, 616], \"overrides\": {\"deep.n\": 4, \"s\": \"7\"}, "
                   "\"lora\": null, \"autocast\": null, \"dropout\": 0.0}",
                   &words, &count, &reason));
    tide_job *job = build_texts(words, count, NULL, 0);
    CHECK(job);
    if (job) {
        CHECK(job->batch == 3 && job->clip && job->use_cache == TIDE_use_cache_false_ && job->freeze.count == 2 &&
              job->image_size.width == 616);
        CHECK(job->sdpa_backend == TIDE_sdpa_backend_flash && job->device_bytes == (uint64_t)2000 << 30 &&
              job->capability == 90);
        CHECK(config_int(job, "deep", "n") == 4 && tide_text_is(tide_json_at(job->config, "s")->text, "7"));
        CHECK(config_int(job, NULL, "attn_pdrop") == 0);
    }
    CHECK(words_of("{\"model\": \"gpt2\", \"gpu_gib\": 8.7, \"capability\": 80, \"sdpa_backend\": \"math\"}", &words,
                   &count, &reason));
    job = build_texts(words, count, NULL, 0);
    CHECK(job && job->device_bytes == (uint64_t)8908 << 20 && job->capability == 80 &&
          job->sdpa_backend == TIDE_sdpa_backend_math);
    reason_at(__LINE__, "{\"model\": \"gpt2\", \"lora\": {\"rank\": 16}}", "adapter.rank");
    reason_at(__LINE__, "{\"model\": \"gpt2\", \"optimizer\": \"adafactory\"}", "optimizer adafactory");
    reason_at(__LINE__, "{\"model\": \"gpt2\", \"parallel\": {\"kind\": \"sp\"}}", "parallel.kind sp");
    reason_at(__LINE__, "{\"model\": \"gpt2\", \"parallel\": {\"kind\": \"ddp\", \"axes\": 2}}", "parallel.axes");
    reason_at(__LINE__, "{\"model\": \"gpt2\", \"colour\": 4}", "key colour");
    reason_at(__LINE__, "[]", "not a case: no model");
    end();
}

/* ---- describe ---- */

static void test_describe(void) {
    begin("describe lists settings, models and cards");
    tide_writer writer;
    tide_writer_init(&writer, &arena);
    tide_write_open(&writer, '{');
    tide_job_describe(&arena, &writer, false);
    tide_write_close(&writer, '}');
    tide_json *said = tide_json_parse(&arena, (tide_text){writer.bytes, writer.length}, "", &diags);
    CHECK(said);
    const tide_json *settings = tide_json_at(said, "settings"), *models = tide_json_at(said, "models"),
                    *gpus = tide_json_at(said, "gpus");
    CHECK(settings && settings->count > 30 && models && models->count == 4 && gpus && gpus->count == 3);
    for (const tide_json *s = settings ? settings->first : NULL; s; s = s->next) {
        CHECK(tide_json_at(s, "name") && tide_json_at(s, "type") && tide_json_at(s, "default") &&
              tide_json_at(s, "help") && tide_json_at(s, "aliases"));
        static const char *const groups[] = {"model",  "batch",    "precision", "training", "attention", "inference",
                                             "memory", "advanced", "parallel",  "adapter",  "serving"};
        CHECK(tide_json_at(s, "title") && tide_json_at(s, "read"));
        bool is_group = false;
        for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
            is_group |= tide_text_is(tide_json_at(s, "group")->text, groups[i]);
        CHECK(is_group);
        if (tide_text_is(tide_json_at(s, "name")->text, "optimizer"))
            CHECK(tide_json_at(s, "choices")->count == TIDE_optimizer_COUNT);
        if (tide_text_is(tide_json_at(s, "name")->text, "quant.double"))
            CHECK(tide_json_at(tide_json_at(s, "when"), "choices")->count == 2);
        if (tide_text_is(tide_json_at(s, "name")->text, "use_cache"))
            CHECK(tide_json_is_text(tide_json_at(s, "choices")->first->next, "true"));
        if (tide_text_is(tide_json_at(s, "name")->text, "dtype")) CHECK(tide_json_at(s, "choices")->count == 4);
    }
    CHECK(models && tide_text_is(tide_json_at(models->first, "model_type")->text, "gpt2"));
    CHECK(gpus && tide_json_at(gpus->first, "bytes")->integer == 15642329088);
    end();
}

static void test_server(void) {
    begin("mode=serve has the engine's settings, and the short names that it shares");
    tide_job *job = build("gpt2|tp=2|gpus=4|mode=serve|gpu=t4|max-model-len=auto|rank=1|batch=4");
    CHECK(job && job->tensor_parallel_size == 4 && job->parallel_tp == 1 && job->parallel_dp == 1 &&
          job->max_model_len == -1 && job->worker_rank == 1 && !job->dtype.is_set);
    CHECK(job && strcmp(row(job, "dtype"), "auto") == 0 && find(TIDE_WARNING, "/settings/batch"));
    CHECK(job && strcmp(job->link, "model=gpt2&gpu=t4&mode=serve&max_model_len=-1&tensor_parallel_size=4&worker_rank=1"
                                   "&v=1") == 0);
    job = build("gpt2|parallel.kind=ddp|gpus=4");
    CHECK(job && job->parallel_dp == 4 && job->tensor_parallel_size == 1);
    end();
}

static void test_server_command(void) {
    begin("`vllm serve` in a script, whatever the shell is written like");
    tide_job *job = build_file("gpu=t4", "a.sh", "FOO=1 vllm serve --enforce-eager gpt2 -tp 2 2>&1 | tee log\n");
    CHECK(job && job->mode == TIDE_mode_serve && job->enforce_eager && job->tensor_parallel_size == 2 &&
          strcmp(job->model, "gpt2") == 0);
    job = build_file("gpu=t4|max_num_seqs=8", "a.sh",
                     "# vllm serve llama\npython -m vllm.entrypoints.openai.api_server \\\n --model 'gpt2' "
                     "--max-num-seqs=64 --max-model-len 0.5k");
    CHECK(job && job->max_num_seqs == 8 && job->max_model_len == 500);
    CHECK(!build_file("gpu=t4", "a.sh", "echo vllm serve") && diags.error_count);
    CHECK(!build_file("gpu=t4", "a.sh", "vllm serve \"gpt2 --x 'y\\") && find(TIDE_ERROR, "/files/0/model"));
    CHECK(!build_file("gpu=t4", "a.sh", "vllm serve gpt2 --max-model-len 99999999999999999999k") &&
          find(TIDE_ERROR, "/files/0/max_model_len"));
    CHECK(build_file("gpu=t4", "a.sh", "vllm serve gpt2 -- --=3 - --tp=") && find(TIDE_WARNING, "/files/0"));
    enum { MANY = 1 << 19 };
    static char script[MANY];
    memcpy(script, "vllm serve gpt2 ", 16);
    for (int i = 16; i < MANY - 1; i++) script[i] = i % 2 ? ' ' : 'x';
    CHECK(build_file("gpu=t4", "a.sh", script));
    job = build_file("gpu=t4", "c.json",
                     "{\"services\": {\"a\": {\"image\": \"vllm/vllm-openai\", \"command\": [\"--model\", \"gpt2\", "
                     "\"--enable-lora\", \"--lora-modules\", null, {}]}}}");
    CHECK(job && job->enable_lora);
    CHECK(!build_file("gpu=t4", "c.json", "{\"apiVersion\": 1, \"kind\": [{\"command\": [\"vllm\", \"serve\"]}]}"));
    end();
}

/* ---- hostile ---- */

static void test_hostile(void) {
    begin("hostile words are refused in one line");
    enum { MANY = 1 << 20 };
    static char big[MANY];
    static const char *const keys[] = {
        "",      "model=",     "batch=",      "title=", "freeze=", "allocator=",    "overrides.x=",   "gpu=",
        "clip=", "overrides.", "image_size=", "dtype=", "v=",      "overrides.x=[", "overrides.x=\"", NULL};
    static const char fills[] = {'a', '9', '=', ',', '[', '.', ' ', '%', 0, '\n', '\xff', '-'};
    for (size_t k = 0; keys[k]; k++)
        for (size_t f = 0; f < sizeof fills; f++) {
            size_t length = strlen(keys[k]);
            memset(big, fills[f], sizeof big);
            memcpy(big, keys[k], length);
            tide_text words[] = {TIDE_TEXT("model=gpt2"), {big, sizeof big}};
            build_texts(words, 2, NULL, 0);
            for (uint32_t i = 0; i < diags.count; i++)
                CHECK(strlen(diags.items[i].message) < 600 && strlen(diags.items[i].place) < 300);
            tide_arena_free(&arena);
        }
    tide_text zero[] = {TIDE_TEXT("model=gpt2"), TIDE_TEXT("title=a\0b")};
    CHECK(!build_texts(zero, 2, NULL, 0) && says(TIDE_ERROR, "/settings", "zero byte"));
    CHECK(!build_texts(NULL, 0, NULL, 0) && diags.error_count == 1);
    tide_text *many = TIDE_NEW(&arena, tide_text, 10000);
    for (int i = 0; i < 10000; i++) many[i] = TIDE_TEXT("overrides.a=1");
    CHECK(!build_texts(many, 10000, NULL, 0) && says(TIDE_ERROR, "/settings", "4096 words"));
    for (int i = 0; i < 300; i++) many[i] = tide_text_of(tide_format(&arena, "overrides.a%d=1", i));
    CHECK(!build_texts(many, 300, NULL, 0) && diags.first_error == TIDE_ERR_LIMIT);
    tide_file *files = TIDE_NEW(&arena, tide_file, 600);
    CHECK(!build_texts(many, 1, files, 600) && says(TIDE_ERROR, "/files", "512 files"));
    end();
}

static void test_random_bytes(void) {
    static const char *const heads[] = {"",      "model=",      "batch=",  "overrides.a=", "overrides.layers.",
                                        "clip=", "image_size=", "freeze=", "allocator=",   "gpu=",
                                        "=",     NULL};
    static const char bytes[] = "0123456789.eE+-x,:[]{}\"'=ab \t%&#~/\\\x80\xff";
    begin("random words and files end in an answer or an error");
    for (int round = 0; round < 20000; round++) {
        char text[3][80];
        tide_text words[3];
        for (int k = 0; k < 3; k++) {
            strcpy(text[k], pick(heads));
            size_t length = strlen(text[k]);
            for (uint32_t i = dice(30); i > 0; i--) text[k][length++] = bytes[dice(sizeof bytes)];
            words[k] = (tide_text){text[k], length};
        }
        tide_file file = {words[1], words[2]};
        bool has_file = dice(4) == 0;
        tide_job *job = build_texts(words, 1 + dice(3), has_file ? &file : NULL, has_file);
        CHECK(job ? diags.error_count == 0 : diags.error_count > 0);
        tide_arena_free(&arena);
    }
    end();
}

static void test_memory(void) {
    begin("memory may run out at any request, and nothing is left behind");
    static const char *const jobs[] = {
        ("model=gpt2|batch=4|gpu=t4|overrides.deep.x=[1,2,\"three\"]|overrides.y=\"4\"|freeze=a,b,c|"
         "dropout=0.1|allocator=expandable_segments:True"),
        "model=gtp2|bacth=4|gpu=t5|overrides.x=[1|optimizer=adm", "llava-1.5-7b|title=x"};
    static char wide[100000]; /* more than one block of the arena */
    volatile long failures = 0;
    memset(wide, 'a', sizeof wide);
    memcpy(wide, "overrides.wide=", 15);
    for (volatile size_t k = 0; k < 3; k++)
        for (volatile long at = 1; at < 2000; at++) {
            volatile bool is_done = false;
            tide_arena_init(&arena, (tide_allocator){counting_resize, NULL}, &escape);
            requests = 0;
            fail_at = at;
            if (setjmp(escape) == 0) {
                tide_text words[64];
                uint32_t count = cut(words, 63, jobs[k]);
                words[count++] = (tide_text){wide, sizeof wide};
                tide_file file = {TIDE_TEXT("p.json"), TIDE_TEXT("{\"crop_size\": 3}")};
                build_texts(words, count, &file, 1);
                is_done = true;
            } else {
                failures++;
            }
            fail_at = 0;
            tide_arena_free(&arena);
            if (live_bytes) complain(__LINE__, "%zu bytes left after request %ld", live_bytes, (long)at);
            if (is_done) break;
        }
    CHECK(failures > 20);
    end();
}

int main(void) {
    test_defaults();
    test_values();
    test_bad_values();
    test_recipe();
    test_deepspeed();
    test_unknown();
    test_no_equals();
    test_all_problems();
    test_duplicates();
    test_version();
    test_overrides();
    test_bad_overrides();
    test_dropout();
    test_models();
    test_config_file();
    test_quantization_config();
    test_two_files();
    test_job_file();
    test_description_file();
    test_adapter_file();
    test_adapter_words();
    test_headers();
    test_other_files();
    test_gpu();
    test_sizes();
    test_half_types();
    test_assumptions();
    test_allocator();
    test_link();
    test_round_trip();
    test_cases();
    test_describe();
    test_server();
    test_server_command();
    test_hostile();
    test_random_bytes();
    test_memory();
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
