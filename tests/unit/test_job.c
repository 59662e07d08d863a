/* SPDX-License-Identifier: Apache-2.0 */
/* Failures point to core/src/job/. Each test names the rule that it pins. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "job_builder.h"

/* ---- words ---- */

static void test_defaults(void) {
    begin_job("defaults are what people run");
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
    end_job();
}

static void test_values(void) {
    begin_job("values become canonical text");
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
    end_job();
}

static void test_bad_values(void) {
    begin_job("a bad value is an error that names the choices or the range");
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
    REFUSE("gpt2|steps=1001", "/settings/steps", "from 1 to 1000");
    REFUSE("gpt2|image_size=0x336", "/settings/image_size", "65536");
    REFUSE("gpt2|image_size=336x65537", "/settings/image_size", "65536");
    REFUSE("gpt2|image_size=3x3x3", "/settings/image_size", "height x width");
    REFUSE("gpt2|dtype=int8", "/settings/dtype", "bf16, fp16, fp32");
    REFUSE("gpt2|optimizer=adamw_fusd", "/settings/optimizer", "did you mean adamw_fused?");
    REFUSE("gpt2|optimizer=adafctr", "/settings/optimizer", "sgd_momentum");
    REFUSE("gpt2|mode=tune", "/settings/mode", "must be one of train, infer, serve");
    REFUSE("gpt2|mode=serve", "/settings/gpu", "a server runs on a GPU");
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
    end_job();
}

static void deepspeed_at(int line, const char *text, const char *words, const char *name, const char *value) {
    tide_job *job = build_file(words, "ds.json", text);
    if (!job || strcmp(row(job, name), value) != 0)
        complain(line, "%s: %s is \"%s\"", text, name, job ? row(job, name) : diags.items[0].message);
}
#define DEEPSPEED(text, words, name, value) deepspeed_at(__LINE__, text, words, name, value)

static void test_deepspeed(void) {
    begin_job("a DeepSpeed configuration is settings, with auto as the Trainer fills it in");
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
    end_job();
}

static void test_recipe(void) {
    begin_job("a recipe gives what is not given otherwise, and the link holds its settings");
    ROW("recipe=tuned", "model", "gpt2");
    ROW("recipe=tuned", "parallel.dp", "8");
    ROW("batch=2|recipe=tuned", "batch", "2");
    ROW("llama-3.1-8b|recipe=tuned|dp=4", "parallel.dp", "4");
    CHECK(origin(build("recipe=tuned|batch=2"), "batch") == TIDE_ORIGIN_USER);
    CHECK(origin(build("recipe=tuned"), "parallel.kind") == TIDE_ORIGIN_RECIPE);
    LINK("recipe=tuned|checkpointing=none", "model=gpt2&batch=16&parallel.kind=zero2&parallel.dp=8&v=1");
    REFUSE("gpt2|recipe=tune", "/settings/recipe", "did you mean tuned?");
    end_job();
}

static void test_unknown(void) {
    begin_job("an unknown key is an error that names the nearest one");
    REFUSE("gpt2|bacth=4", "/settings/bacth", "did you mean batch?");
    REFUSE("gpt2|overide.x=4", "/settings/overide.x", "did you mean overrides.KEY?");
    REFUSE("gpt2|Optimizr=sgd", "/settings/Optimizr", "did you mean optimizer?");
    REFUSE("gpt2|qqqqqqqqqqqq=1", "/settings/qqqqqqqqqqqq", "lists the settings");
    REFUSE("gpt2|a/b~c=1", "/settings/a~1b~0c", "not a setting");
    REFUSE("gpt2|=4", "/settings/", "not a setting");
    REFUSE("gpt2|nodes=2", "/settings/nodes", "write gpus=16");
    REFUSE("gpt2|parallel.kind=zer2", "/settings/parallel.kind", "did you mean zero2?");
    REFUSE("gpt2|dp=2", "/settings/parallel.dp", "need a kind");
    REFUSE("gpt2|parallel.kind=ddp|dp=2|rank=2", "/settings/parallel.rank", "are 0 to 1");
    REFUSE("gpt2|parallel.kind=ddp|parallel.overlap_comm=true", "/settings/parallel.overlap_comm",
           "not an option of parallel.kind=ddp");
    end_job();
}

static void test_no_equals(void) {
    begin_job("a word without = is the model if it is first, else an error");
    ROW("gpt2|batch=2", "model", "gpt2");
    REFUSE("batch=2|gpt2", "/settings/gpt2", "only the first word");
    REFUSE("model=gpt2|batch", "/settings/batch", "write batch=VALUE");
    end_job();
}

static void test_all_problems(void) {
    begin_job("all problems are reported in one pass");
    CHECK(!build("model=gtp2|batch=0|bacth=1|dtype=int8|gpu=h10|overrides.layers.9=1|"
                 "allocator=x"));
    CHECK(diags.error_count == 6);
    CHECK(find(TIDE_ERROR, "/settings/model") && find(TIDE_ERROR, "/settings/batch") &&
          find(TIDE_ERROR, "/settings/bacth"));
    CHECK(find(TIDE_ERROR, "/settings/dtype") && find(TIDE_ERROR, "/settings/gpu"));
    CHECK(find(TIDE_ERROR, "/settings/allocator"));
    end_job();
}

static void test_duplicates(void) {
    begin_job("of a setting given twice the last holds, with a warning");
    tide_job *job = build("gpt2|batch=2|mbs=3");
    CHECK(job && job->batch == 3 && says(TIDE_WARNING, "/settings/batch", "more than once"));
    job = build("gpt2|overrides.n_layer=2|overrides.n_layer=3");
    CHECK(job && config_int(job, NULL, "n_layer") == 3 && find(TIDE_WARNING, "/settings/overrides.n_layer"));
    job = build("gpt2|model=llama-3.1-8b");
    CHECK(job && strcmp(job->model, "llama-3.1-8b") == 0 && find(TIDE_WARNING, "/settings/model"));
    end_job();
}

static void test_version(void) {
    begin_job("v=1 is ignored, a newer one is refused");
    tide_job *job = build("gpt2|v=1");
    CHECK(job && diags.error_count == 0 && strcmp(row(job, "v"), "(absent)") == 0);
    REFUSE("gpt2|v=2", "/settings/v", "made by a newer tidemark");
    REFUSE("gpt2|v=x", "/settings/v", "v=1");
    end_job();
}

/* ---- overrides ---- */

static void test_overrides(void) {
    begin_job("overrides set configuration entries by dotted path");
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
    end_job();
}

static void test_bad_overrides(void) {
    begin_job("an override that fits nowhere is an error");
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
    end_job();
}

static double config_number(const tide_job *job, const char *outer, const char *key) {
    const tide_json *value = tide_json_at(outer ? tide_json_at(job->config, outer) : job->config, key);
    return value && value->kind == TIDE_JSON_NUMBER ? value->number : -1;
}

static void test_dropout(void) {
    begin_job("dropout replaces every probability of dropping, flags aside");
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
    end_job();
}

/* ---- the GPU ---- */

static void test_gpu(void) {
    begin_job("gpu sets capability, memory and context");
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
    end_job();
}

static void test_sizes(void) {
    begin_job("gpu_gib counts whole MiB, memory_fraction parts per million");
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
    end_job();
}

/* ---- contradictions, assumptions ---- */

static void test_half_types(void) {
    begin_job("half types and few steps");
    CHECK(build("gpt2|dtype=fp16|autocast=bf16"));
    CHECK(build("gpt2|steps=1") && find(TIDE_WARNING, "/settings/steps"));
    end_job();
}

static void test_assumptions(void) {
    begin_job("each default that moves the number is an assumption, once");
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
    CHECK(!find(TIDE_ASSUMPTION, "/settings/sdpa_backend") && !find(TIDE_ASSUMPTION, "/settings/use_cache"));
    CHECK(build("gpt2") && !find(TIDE_ASSUMPTION, "/settings/images") &&
          !find(TIDE_ASSUMPTION, "/settings/image_size"));
    CHECK(!build("gpt2|batch=0") && diags.count == 1);
    end_job();
}

static void test_allocator(void) {
    begin_job("the allocator's text is PyTorch's");
    tide_job *job = build("gpt2|allocator=expandable_segments:True,garbage_collection_threshold:0.6");
    CHECK(job && job->allocator_conf.expandable_segments && job->allocator_conf.garbage_collection_threshold > 0.59);
    CHECK(job &&
          strcmp(job->link, "model=gpt2&allocator=expandable_segments:True,garbage_collection_threshold:0.6&v=1") == 0);
    job = build("gpt2|allocator=max_split_size_mb:128MB");
    CHECK(job && says(TIDE_WARNING, "/settings/allocator", "ignores what follows"));
    job = build("gpt2|allocator=backend:cudaMallocAsync");
    CHECK(job && find(TIDE_WARNING, "/settings/allocator"));
    end_job();
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
    test_gpu();
    test_sizes();
    test_half_types();
    test_assumptions();
    test_allocator();
    return report_tests();
}
