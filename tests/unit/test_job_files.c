/* SPDX-License-Identifier: Apache-2.0 */
/* Files of a job, and recorded cases. Failures point to core/src/job/readers/. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "job_builder.h"

/* ---- models and files ---- */

static void test_models(void) {
    begin_job("a model that the catalogue lacks is an error that names near ones");
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
    end_job();
}

static void test_config_file(void) {
    begin_job("a file with model_type or architectures is the configuration");
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
    CHECK(job && strcmp(job->model, "llama") == 0 && says(TIDE_WARNING, "/settings/model", "gpt2 is ignored"));
    job = build_file("bert-base", "config.json", LLAMA);
    CHECK(job && strcmp(job->model, "bert-base") == 0 && diags.error_count == 0 &&
          !find(TIDE_WARNING, "/settings/model"));
    CHECK(job && config_int(job, NULL, "hidden_size") == 64);
    job = build_file("overrides.hidden_size=8", "config.json", LLAMA);
    CHECK(job && config_int(job, NULL, "hidden_size") == 8);
    job = build_file(NULL, "config.json", "{\"model_type\": \"gpt2\", \"hidden_size\": 8, \"n_embd\": 16}");
    CHECK(job && config_int(job, NULL, "n_embd") == 8); /* another name is set after the key's own */
    job = build_file("overrides.hidden_size=8", "config.json", "{\"model_type\": \"gpt2\", \"n_embd\": 16}");
    CHECK(job && config_int(job, NULL, "n_embd") == 8);
    job = build_file(NULL, "c.json",
                     "{\"name\": \"mine\", \"title\": \"Mine\", \"parameters\": 7, \"config\": " LLAMA "}");
    CHECK(job && strcmp(job->model, "mine") == 0 && strcmp(job->model_title, "Mine") == 0 &&
          job->published_parameters == 7);
    job = build_file(NULL, "config.json", "{\"model_type\": \"llama\", \"quantization_config\": {\"bits\": 4}}");
    CHECK(job && find(TIDE_WARNING, "/model/quantization_config"));
    end_job();
}

#define QUANTISED(text) "{\"model_type\": \"llama\", \"quantization_config\": {" text "}}"

static void test_quantization_config(void) {
    begin_job("quantization_config is followed where a job can have such weights");
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
    CHECK(job && job->mode == TIDE_mode_infer && job->quant == TIDE_quant_int8 &&
          find(TIDE_ASSUMPTION, "/settings/mode"));
    job = build_file("mode=train", "config.json", QUANTISED("\"load_in_8bit\": true"));
    CHECK(job && job->mode == TIDE_mode_train && job->quant == TIDE_quant_int8);
    job = build_file("adapter=lora", "config.json", QUANTISED("\"quant_method\": \"gptq\", \"bits\": 4"));
    CHECK(!job && says(TIDE_ERROR, "/settings/quant", "quantised from"));
    job = build_file("", "config.json", QUANTISED("\"quant_method\": \"fp8\""));
    CHECK(job && job->quant == TIDE_quant_none && !job->undescribed.count);
    job = build_file("mode=infer", "config.json", QUANTISED("\"quant_method\": \"hqq\""));
    CHECK(job && job->quant == TIDE_quant_none && job->undescribed.count == 1);
    job = build_file("mode=infer", "config.json", QUANTISED("\"quant_method\": \"gptq\", \"bits\": 1000"));
    CHECK(!job && find(TIDE_ERROR, "/settings/quant.bits"));
    job = build_file("mode=infer", "config.json",
                     QUANTISED("\"quant_method\": \"compressed-tensors\", \"config_groups\": [3]"));
    CHECK(job && job->quant == TIDE_quant_none && job->undescribed.count == 1 &&
          find(TIDE_WARNING, "/model/quantization_config"));
    REFUSE("gpt2|quant=awq", "/settings/quant", "mode=infer");
    REFUSE("gpt2|mode=infer|quant=gptq|quant.bits=5", "/settings/quant.bits", "2, 3, 4 or 8");
    REFUSE("gpt2|mode=infer|quant=gptq|lora.r=4", "/settings/adapter", "leave them out");
    end_job();
}

static void test_two_files(void) {
    begin_job("two configurations contradict each other; a preprocessor goes with one");
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
    end_job();
}

static void test_job_file(void) {
    begin_job("a job file gives words; the user's win over them");
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
    CHECK(says(TIDE_ERROR, "/files/0", "no readable version in"));
    CHECK(!build_file("gpt2", "job.json", "{\"tidemark\": 1, \"words\": {}}"));
    CHECK(says(TIDE_ERROR, "/files/0", "no readable \"settings\""));
    CHECK(!build_file("gpt2", "job.json", "{\"tidemark\": 1, \"settings\": [\"batch=2\", 4]}"));
    CHECK(says(TIDE_ERROR, "/settings", "contains something that is not a value"));
    CHECK(!build_file("gpt2", "j", "{\"tidemark\": 1, \"settings\": {\"overrides\": {\"a=b\": 4}}}"));
    CHECK(says(TIDE_ERROR, "/settings/overrides.a=b", "`=`"));
    end_job();
}

static void test_description_file(void) {
    begin_job("a file with architecture and modules is a description");
    tide_job *job = build_file("gpt2", "mine.json", "{\"tidemark\": 1, \"architecture\": \"mine\", \"modules\": {}}");
    CHECK(job && job->description && config_int(job, NULL, "n_layer") == 12);
    job = build_file(NULL, "mine.json", "{\"tidemark\": 1, \"architecture\": \"mine\", \"modules\": {}}");
    CHECK(job && job->description && strcmp(job->model, "mine") == 0 && job->config->kind == TIDE_JSON_OBJECT);
    end_job();
}

static void test_adapter_file(void) {
    begin_job("an adapter_config.json is read as settings");
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
    end_job();
}

static void test_adapter_words(void) {
    begin_job("adapter.KEY, METHOD.KEY and peft's own names are one vocabulary");
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
    end_job();
}

/* A header of one tensor. */
#define TENSOR(name, dtype, shape, from, to)                                                                           \
    "\"" name "\": {\"dtype\": \"" dtype "\", \"shape\": " shape ", \"data_offsets\": [" from ", " to "]}"

static void test_headers(void) {
    begin_job("the header of a safetensors file is read, and what does not fit together is refused");
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
        {"{" TENSOR("a", "BF16", "[2]", "8", "12") "}", "does not start where"},
        {"{" TENSOR("a", "BF16", "[2]", "0", "5") "}", "whose size does not match"},
        {"{" TENSOR("a", "BF16", "[2]", "4", "0") "}", "not [begin, end]"},
        {"{" TENSOR("a", "BF16", "[2]", "0", "-4") "}", "not [begin, end]"},
        {"{" TENSOR("a", "BF16", "[2]", "0", "1e30") "}", "not [begin, end]"},
        {"{" TENSOR("a", "BF16", "[-2]", "0", "4") "}", "does not consist of integers"},
        {"{" TENSOR("a", "BF16", "[1.5]", "0", "4") "}", "does not consist of integers"},
        {"{" TENSOR("a", "BF16", "[9007199254740000, 9007199254740000]", "0", "4") "}", "more elements"},
        {"{" TENSOR("a", "BF16", "[1,1,1,1,1,1,1,1,1]", "0", "2") "}", "8 dimensions"},
        {"{" TENSOR("a", "Q4", "[2]", "0", "4") "}", "which safetensors does not have"},
        {"{" TENSOR("a", "BF16", "[2]", "0", "4") ", \"b\": 3}", "is not {"},
        {"{" TENSOR("a", "BF16", "[2]", "0", "4") ", " TENSOR("a", "BF16", "[2]", "4", "8") "}", "twice"},
        {"{" TENSOR("a", "F64", "[1125899906842624]", "0", "9007199254740991") "}", "whose size does not match"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) refuse_file_at(__LINE__, rows[i].text, rows[i].says);
    tide_text words[1] = {TIDE_TEXT("gpt2")};
    tide_file twice[2] = {{TIDE_TEXT("1.safetensors"), TIDE_TEXT("{" TENSOR("a", "BF16", "[2]", "0", "4") "}")},
                          {TIDE_TEXT("2.safetensors"), TIDE_TEXT("{" TENSOR("a", "BF16", "[2]", "0", "4") "}")}};
    CHECK(!build_texts(words, 1, twice, 2) && says(TIDE_ERROR, "/files", "is twice in the checkpoint"));
    twice[1].text = TIDE_TEXT(
        "{\"metadata\": {\"total_size\": 8}, \"weight_map\": {\"a\": \"1.safetensors\", \"b\": \"2.safetensors\"}}");
    CHECK(!build_texts(words, 1, twice, 2) && says(TIDE_ERROR, "/files", "in none of the given headers"));
    job = build_texts(words, 1, twice + 1, 1);
    CHECK(job && job->checkpoint && !job->checkpoint->count && job->checkpoint->total_size == 8);
    REFUSE_FILE("{\"weight_map\": {\"a\": 3}}", "not a file name");
    end_job();
}

static void test_other_files(void) {
    begin_job("any other file is an error that names what it is");
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
    REFUSE_FILE("{\"finetuning_type\": \"badam\"}", "badam is not described");
    REFUSE_FILE("{\"per_device_train_batch_size\": \"many\"}", "batch");
    REFUSE_FILE("{\"per_device_train_batch_size\": {\"a\": 1}}", "must be a single value");
    REFUSE_FILE("{\"base_model\": \"nobody/has-this\", \"micro_batch_size\": 1, \"adapter\": \"lora\"}",
                "is not in the catalogue");
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
    REFUSE_FILE("[1, 2]", "contains an array");
    REFUSE_FILE("4", "contains a number");
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
    end_job();
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
    begin_job("a case of the oracle becomes words, with its own defaults");
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
    end_job();
}

/* ---- preferences and rewards ---- */

/* The job is refused, or a trainer of preferences or rewards is played: never a plain fine-tune. */
static void never_supervised(const char *words, const char *file) {
    tide_job *job = build_file(words, "training.json", file);
    bool is_kept = !job || diags.error_count || job->trainer > TIDE_trainer_sft;
    CHECK(is_kept);
    if (!is_kept) printf("  %s with %s is played by trainer=%s\n", file, words, job->values[TIDE_SET_trainer]);
}

/* What names them: a pattern, and words that take the place of its %s. */
static void test_preferences(void) {
    static const struct {
        const char *pattern, *words;
    } files[] = {
        {"{\"base_model\": \"gpt2\", \"micro_batch_size\": 1, \"datasets\": [], \"rl\": \"%s\"}",
         "dpo|ipo|kto|orpo|simpo|grpo|gdpo|ebft|kto_pair|dpop|ppo|bco|nash"},
        {"{\"base_model\": \"gpt2\", \"micro_batch_size\": 1, \"datasets\": [], \"%s\": true}",
         "reward_model|process_reward_model"},
        {"{\"model_name_or_path\": \"gpt2\", \"template\": \"qwen\", \"finetuning_type\": \"lora\", \"stage\": "
         "\"%s\"}",
         "dpo|kto|rm|ppo"},
        {"{\"model\": \"gpt2\", \"train_type\": \"lora\", \"rlhf_type\": \"%s\"}",
         "dpo|kto|orpo|cpo|simpo|rm|ppo|grpo|gkd"},
        {"{\"per_device_train_batch_size\": 1, \"loss_type\": \"%s\"}",
         "sigmoid|hinge|ipo|exo_pair|nca_pair|robust|bco_pair|sppo_hard|aot|apo_zero|discopop|kto|apo_zero_unpaired|"
         "simpo|alphapo|grpo|dapo|dr_grpo|bnpo|cispo"},
        {"{\"per_device_train_batch_size\": 1, \"%s\": 1}",
         "beta|desirable_weight|undesirable_weight|scale_rewards|normalize_advantages|max_completion_length|"
         "num_generations|ld_alpha|discopop_tau|judge|mixture_coef|missing_eos_penalty|lmbda|vf_coef|rpo_alpha|"
         "reference_free|truncation_mode|precompute_ref_batch_size|reward_clip_range"},
        {"{\"per_device_train_batch_size\": 1, \"%s\": true}",
         "precompute_ref_log_probs|sync_ref_model|reference_free|generate_during_eval"},
        {"{\"per_device_train_batch_size\": 1, \"trl\": \"%s\"}", "dpo|kto|orpo|cpo|reward|grpo|rloo"}};
    static const char *const strategies[] = {"model=gpt2",
                                             "model=gpt2|parallel.kind=ddp|parallel.dp=2",
                                             "model=gpt2|parallel.kind=zero2|parallel.dp=2",
                                             "model=gpt2|parallel.kind=zero3|parallel.dp=2|adapter=lora",
                                             "model=gpt2|parallel.kind=fsdp1|parallel.dp=2",
                                             "model=gpt2|parallel.kind=fsdp2|parallel.dp=2"};
    begin_job("files of preferences and rewards are never answered with a plain fine-tune");
    for (size_t k = 0; k < sizeof strategies / sizeof *strategies; k++) { /* which others are */
        tide_job *job = build_file(strategies[k], "training.json", "{\"per_device_train_batch_size\": 1}");
        CHECK(job && !diags.error_count && job->trainer <= TIDE_trainer_sft);
        job = build_file(strategies[k], "training.json",
                         "{\"base_model\": \"gpt2\", \"micro_batch_size\": 1, \"datasets\": []}");
        CHECK(job && !diags.error_count && job->trainer <= TIDE_trainer_sft);
    }
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        for (const char *at = files[i].words; at; at = strchr(at, '|') ? strchr(at, '|') + 1 : NULL) {
            const char *hole = strstr(files[i].pattern, "%s");
            char text[512];
            snprintf(text, sizeof text, "%.*s%.*s%s", (int)(hole - files[i].pattern), files[i].pattern,
                     (int)strcspn(at, "|"), at, hole + 2);
            for (size_t k = 0; k < sizeof strategies / sizeof *strategies; k++) never_supervised(strategies[k], text);
        }
    end_job();
}

int main(void) {
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
    test_cases();
    test_preferences();
    return report_tests();
}
