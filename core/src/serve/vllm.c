/* vLLM's worker: what it makes, in its order, and the run that it measures. v1/worker/gpu_worker.py and
 * v1/worker/gpu/model_runner.py of 0.32.0. */
#include "serve/serve.h"

#include <string.h>

#include "lang/lang.h"

enum { SETTING_LIMIT = 64 };

/* ---- descriptions ---- */

static tide_source find_source(void *user, tide_text name) {
    const tide_source *source = tide_architecture_source(name);
    return source ? tide_source_whole(((const tide_serve_run *)user)->machine.arena, source)
                  : (tide_source){.text = NULL};
}

/* transformers: the class that AutoModelForCausalLM makes of a model_type, by the description that covers it. */
static tide_text root_of_type(tide_serve_run *run, tide_text model_type) {
    const tide_model_type *known = tide_model_type_of(model_type);
    const tide_source *source = known ? tide_architecture_source(tide_text_of(known->description)) : NULL;
    if (!source) return TIDE_TEXT("");
    tide_source whole = tide_source_whole(run->machine.arena, source);
    const tide_json *json = tide_json_parse(run->machine.arena, (tide_text){whole.text, whole.length}, "/roots",
                                            run->machine.diags),
                    *roots = tide_json_at(json, "roots"), *extends = tide_json_at(json, "extends");
    const tide_json *root = roots ? roots->first : NULL, *suffix = root ? root->first : NULL;
    if (root && root->kind == TIDE_JSON_ARRAY && suffix && suffix->kind == TIDE_JSON_STRING)
        return tide_text_of(tide_format(run->machine.arena, "%.*s%.*s", (int)root->key.length, root->key.at,
                                        (int)suffix->text.length, suffix->text.at));
    if (root) return root->key;
    return extends && extends->kind == TIDE_JSON_STRING ? root_of_type(run, extends->text) : TIDE_TEXT("");
}

static tide_text architecture_of(tide_serve_run *run, const tide_json *config) {
    const tide_json *given = tide_json_at(config, "architectures"), *type = tide_json_at(config, "model_type");
    if (given && given->kind == TIDE_JSON_ARRAY && given->first && given->first->kind == TIDE_JSON_STRING)
        return given->first->text;
    return type && type->kind == TIDE_JSON_STRING ? root_of_type(run, type->text) : TIDE_TEXT("");
}

/* The language model of a composite: init_vllm_registered_model(hf_config=config.text_config). */
static bool find_model(void *user, tide_text model_type, tide_text *description, tide_text *class_name) {
    const tide_engine_root *root = tide_engine_root_of("vllm", root_of_type(user, model_type));
    if (!root) return false;
    *description = tide_text_of(root->description);
    *class_name = tide_text_of(root->class_name);
    return true;
}

/* ---- numbers of the configuration ---- */

static const tide_json *text_config(const tide_json *config) {
    static const char *const names[] = {"text_config", "llm_config", "language_config", "thinker_config"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const tide_json *found = tide_json_at(config, names[i]);
        if (found && found->kind == TIDE_JSON_OBJECT && found->first) return found;
    }
    return config;
}

/* The first of these keys, in the language model's configuration or the whole one. */
static int64_t number_of(const tide_json *config, const char *const *keys, int64_t otherwise) {
    const tide_json *places[2] = {text_config(config), config};
    for (int place = 0; place < 2; place++)
        for (const char *const *key = keys; *key; key++) {
            const tide_json *found = tide_json_at(places[place], *key);
            if (found && found->kind == TIDE_JSON_NUMBER && found->is_integer) return found->integer;
        }
    return otherwise;
}

#define NUMBER_OF(config, otherwise, ...) number_of(config, (const char *const[]){__VA_ARGS__, NULL}, otherwise)

int64_t tide_serve_vocabulary(const tide_json *config) {
    return NUMBER_OF(config, 0, "vocab_size");
}

static int64_t layer_count(const tide_json *config) {
    return NUMBER_OF(config, 0, "num_hidden_layers", "n_layer", "num_layers", "n_layers", "decoder_layers");
}

/* rope_parameters of transformers 5, or rope_scaling of those before it. */
static const tide_json *rope_parameters(const tide_json *text) {
    const tide_json *found = tide_json_at(text, "rope_parameters");
    return found && found->kind == TIDE_JSON_OBJECT ? found : tide_json_at(text, "rope_scaling");
}

static bool has_rope_type(const tide_json *text, const char *word) {
    const tide_json *type = tide_json_at(rope_parameters(text), "rope_type");
    if (!type) type = tide_json_at(rope_parameters(text), "type");
    return type && type->kind == TIDE_JSON_STRING && tide_text_is(type->text, word);
}

static bool is_gemma3(const tide_json *text) {
    const tide_json *type = tide_json_at(text, "model_type");
    return type && type->kind == TIDE_JSON_STRING && tide_text_contains(type->text, TIDE_TEXT("gemma3"));
}

/* No key says how many positions there are. */
#define TIDE_ENDLESS INT64_MAX

/* config/model.py, _get_and_verify_max_len: the keys and their scaling. */
static int64_t derived_length(const tide_json *config) {
    int64_t least = TIDE_ENDLESS;
    static const char *const keys[] = {
        "max_position_embeddings", "n_positions",         "max_seq_len",    "seq_length", "model_max_length",
        "max_target_positions",    "max_sequence_length", "max_seq_length", "seq_len"};
    const tide_json *text = text_config(config);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const tide_json *found = tide_json_at(text, keys[i]);
        if (found && found->kind == TIDE_JSON_NUMBER && found->is_integer && found->integer > 0 &&
            found->integer < least)
            least = found->integer;
    }
    if (least == TIDE_ENDLESS) return least;
    const tide_json *factor = tide_json_at(rope_parameters(text), "factor");
    static const char *const unscaled[] = {"su",   "longrope",      "llama3",
                                           "yarn", "deepseek_yarn", "deepseek_llama_scaling"};
    if (!factor || factor->kind != TIDE_JSON_NUMBER || is_gemma3(text)) return least;
    for (size_t i = 0; i < sizeof unscaled / sizeof *unscaled; i++)
        if (has_rope_type(text, unscaled[i])) return least;
    double scaled = (double)least * factor->number;
    return scaled >= 1 && scaled < (double)INT32_MAX ? (int64_t)scaled : least;
}

/* What max_model_len is where it is not given. */
static int64_t default_length(const tide_json *config) {
    const tide_json *text = text_config(config), *original = tide_json_at(text, "original_max_position_embeddings");
    if (has_rope_type(text, "longrope") && original && original->is_integer) return original->integer;
    int64_t derived = derived_length(config);
    return derived == TIDE_ENDLESS ? 2048 : derived;
}

/* ---- settings and their defaults ---- */

/* arg_utils.py, get_batch_defaults: by memory and name of the card. */
static void batch_defaults(tide_serve_run *run) {
    tide_serve_settings *s = &run->settings;
    uint64_t gib = run->device.total_bytes >> 30;
    int64_t tokens = s->is_offline ? 8192 : 2048, requests = 256;
    bool is_a100 = tide_text_contains(tide_text_of(run->device.name), TIDE_TEXT("A100"));
    if (gib >= 160) {
        tokens = 16384;
        requests = 1024;
    } else if (gib >= 70 && !is_a100) {
        tokens = s->is_offline ? 16384 : 8192;
        requests = 1024;
    }
    if (!s->max_num_seqs) s->max_num_seqs = requests;
    if (!s->max_num_batched_tokens) {
        s->max_num_batched_tokens = tokens;
        if (s->max_num_seqs < tokens / run->figures.max_model_len + 1 &&
            s->max_num_seqs * run->figures.max_model_len < tokens)
            s->max_num_batched_tokens = s->max_num_seqs * run->figures.max_model_len;
    }
    if (s->max_num_seqs > s->max_num_batched_tokens) s->max_num_seqs = s->max_num_batched_tokens;
}

static tide_dtype dtype_of(const tide_serve_run *run) {
    const tide_json *given = tide_json_at(run->settings.config, "dtype");
    tide_dtype dtype = TIDE_BF16;
    if (run->settings.dtype && strcmp(run->settings.dtype, "auto") != 0)
        return tide_dtype_named(tide_text_of(run->settings.dtype), &dtype) ? dtype : TIDE_BF16;
    if (!given) given = tide_json_at(run->settings.config, "torch_dtype");
    if (!given) given = tide_json_at(text_config(run->settings.config), "torch_dtype");
    if (given && given->kind == TIDE_JSON_STRING && tide_dtype_named(given->text, &dtype) && dtype != TIDE_FP32)
        return dtype;
    return TIDE_BF16; /* of float32, and of nothing: the first that the card supports */
}

static void take_defaults(tide_serve_run *run) {
    tide_serve_settings *s = &run->settings;
    if (!s->utilization_ppm) s->utilization_ppm = 920000;
    if (!s->tensor_parallel_size) s->tensor_parallel_size = 1;
    if (!s->pipeline_parallel_size) s->pipeline_parallel_size = 1;
    if (!s->data_parallel_size) s->data_parallel_size = 1;
    bool is_latent = tide_json_at(s->config, "kv_lora_rank") != NULL;
    bool is_fp8 = s->kv_cache_dtype && strncmp(s->kv_cache_dtype, "fp8", 3) == 0;
    if (!s->block_size) s->block_size = is_latent && is_fp8 && run->device.capability == 90 ? 64 : 16; /* FlashMLA */
    run->figures.max_model_len = s->max_model_len > 0 ? s->max_model_len : default_length(s->config);
    batch_defaults(run);
    run->figures.max_num_seqs = s->max_num_seqs;
    run->figures.max_num_batched_tokens = s->max_num_batched_tokens;
    run->figures.tokens_in_flight = s->max_num_batched_tokens * (s->pipeline_parallel_size + !s->no_async_scheduling);
}

static bool says(const tide_json *object, const char *key, const char *word) {
    const tide_json *found = tide_json_at(object, key);
    return found && found->kind == TIDE_JSON_STRING && tide_text_is(found->text, word);
}

/* How weights of linear layers are stored: none fp8 fp8_static gptq awq; NULL: not described. Four bits run on Machete,
 * which is for Hopper alone; eight bits on CUTLASS. */
static const char *weight_format(const tide_serve_run *run) {
    const tide_json *config = run->settings.config, *q = tide_json_at(config, "quantization_config");
    const char *asked = run->settings.quantization;
    int capability = run->device.capability;
    if (asked && strcmp(asked, "none") == 0) asked = NULL;
    if (!q && tide_json_at(text_config(config), "quantization_config")) return NULL;
    if (!q && !asked) return "none";
    const tide_engine_root *root = tide_engine_root_of("vllm", run->architecture);
    if (!root || strcmp(root->class_name, "LlamaForCausalLM") != 0) return NULL;
    if (!q) return strcmp(asked, "fp8") == 0 && (capability == 89 || capability == 90) ? "fp8" : NULL;
    if (says(q, "quant_method", "fp8"))
        return says(q, "activation_scheme", "static") && !tide_json_at(q, "weight_block_size") &&
                       !tide_json_at(q, "modules_to_not_convert") && !tide_json_at(q, "ignored_layers") &&
                       (capability == 89 || capability == 90)
                   ? "fp8_static"
                   : NULL;
    const tide_json *act_order = tide_json_at(q, "desc_act");
    if (capability != 90 || number_of(q, (const char *const[]){"bits", "w_bit", NULL}, 0) != 4 ||
        number_of(q, (const char *const[]){"group_size", "q_group_size", NULL}, 0) != 128 ||
        (act_order && act_order->is_true) || tide_json_at(q, "modules_to_not_convert") || tide_json_at(q, "dynamic"))
        return NULL;
    return says(q, "quant_method", "gptq") ? "gptq" : says(q, "quant_method", "awq") ? "awq" : NULL;
}

/* ---- what descriptions may ask for ---- */

static void set_int(tide_serve_run *run, const char *name, int64_t value) {
    tide_model *model = &run->model;
    model->settings[model->setting_count++] = (tide_setting_value){
        .name = name,
        .value = {
            .kind = TIDE_VALUE_INT, .symbol = tide_symbol_name(&run->machine, tide_text_of(name)), .integer = value}};
}

static void set_truth(tide_serve_run *run, const char *name, bool value) {
    run->model.settings[run->model.setting_count++] = (tide_setting_value){.name = name, .value = tide_of_bool(value)};
}

static void set_value(tide_serve_run *run, const char *name, tide_value value) {
    run->model.settings[run->model.setting_count++] = (tide_setting_value){.name = name, .value = value};
}

/* distributed/utils.py, get_pp_indices. */
static void layers_of_stage(int64_t layers, int64_t stage, int64_t stages, int64_t *start, int64_t *end) {
    *start = 0;
    for (int64_t i = 0; i <= stage; i++) {
        int64_t from_last = stages - i;
        int64_t here = layers / stages + (from_last >= 2 && from_last < layers % stages + 2);
        *end = *start + here;
        if (i < stage) *start = *end;
    }
}

enum { DEFAULT_ITEM_LIMIT = 999 }; /* config/multimodal.py */

/* limit_mm_per_prompt, of images: a number, or an object with a count. */
static int64_t image_limit(const tide_serve_settings *s) {
    const tide_json *given = tide_json_at(s->limit_mm_per_prompt, "image"), *count = tide_json_at(given, "count");
    if (count) given = count;
    return given && given->kind == TIDE_JSON_NUMBER && given->is_integer && given->integer >= 0 ? given->integer
                                                                                                : DEFAULT_ITEM_LIMIT;
}

static bool supports_images(const tide_serve_settings *s) {
    return tide_json_at(s->config, "vision_config") && image_limit(s) > 0;
}

static void set_settings(tide_serve_run *run) {
    const tide_serve_settings *s = &run->settings;
    tide_machine *m = &run->machine;
    int64_t stage = s->rank / s->tensor_parallel_size, start = 0, end = 0;
    layers_of_stage(layer_count(s->config), stage, s->pipeline_parallel_size, &start, &end);
    run->model.settings = TIDE_NEW(m->arena, tide_setting_value, SETTING_LIMIT);
    set_int(run, "tp_size", s->tensor_parallel_size);
    set_int(run, "tp_rank", s->rank % s->tensor_parallel_size);
    set_int(run, "dp_size", s->data_parallel_size);
    set_int(run, "start_layer", start);
    set_int(run, "end_layer", end);
    set_truth(run, "is_first_rank", stage == 0);
    set_truth(run, "is_last_rank", stage == s->pipeline_parallel_size - 1);
    set_int(run, "max_num_seqs", s->max_num_seqs);
    set_int(run, "max_num_batched_tokens", s->max_num_batched_tokens);
    set_int(run, "max_model_len", run->figures.max_model_len);
    set_int(run, "num_speculative_tokens", s->num_speculative_tokens);
    set_int(run, "max_loras", s->max_loras);
    set_int(run, "max_lora_rank", s->max_lora_rank);
    set_int(run, "capability", run->device.capability);
    set_int(run, "cache_block_size", s->block_size);
    set_truth(run, "has_attention", false); /* once the model is there */
    const char *format = weight_format(run);
    set_value(run, "weight_format",
              (tide_value){.kind = TIDE_VALUE_TEXT, .text = tide_text_of(format ? format : "none")});
    set_int(run, "group_size", 128);
    set_truth(run, "is_compiled", !s->enforce_eager);
    set_truth(run, "attention_runs", false); /* in the profile run it does not: there is no cache */
    set_int(run, "image_limit", image_limit(s));
    set_truth(run, "supports_mm_inputs", supports_images(s));
    set_truth(run, "speculates_ngrams", s->speculates_ngrams);
    set_truth(run, "enable_expert_parallel", s->enable_expert_parallel);
    set_value(run, "model_dtype", (tide_value){.kind = TIDE_VALUE_DTYPE, .dtype = run->model.state.dtype});
    set_int(run, "pp_size", s->pipeline_parallel_size);
    set_value(run, "workspace", tide_none()); /* v1/worker/workspace.py */
    set_int(run, "workspace_bytes", 0);
    set_value(run, "capture_workspace", tide_none());
    set_value(run, "capture_output", tide_none());
    set_value(run, "rope_keys", (tide_value){.kind = TIDE_VALUE_LIST, .list = tide_list_new(m)});
}

/* ---- the parts of the run ---- */

static tide_function *function_of(tide_serve_run *run, tide_description *from, const char *name) {
    tide_function *found = tide_function_find(&run->descriptions, from, tide_text_of(name));
    if (!found) tide_fail(&run->machine, TIDE_ERR_DESCRIPTION, "the runner has no '%s'", name);
    return found;
}

/* Results are owned by the caller; arguments are borrowed. */
static tide_value call(tide_serve_run *run, tide_description *runner, const char *name, const tide_value *arguments,
                       uint32_t count) {
    if (run->machine.has_failed) return tide_none();
    tide_function *function = function_of(run, runner, name);
    return function ? tide_model_run(&run->model, function, arguments, count) : tide_none();
}

static uint32_t build(tide_serve_run *run, tide_description *description, const char *class_name,
                      const tide_json *config) {
    tide_machine *m = &run->machine;
    m->state.factor = TIDE_FACTOR_BUFFER;
    m->op = "torch.empty";
    bool ok = tide_model_build(&run->model, description, tide_text_of(class_name), config);
    m->state.factor = TIDE_FACTOR_TEMPORARY;
    m->module = m->statement = 0;
    return ok ? run->model.root : 0;
}

static void count_weights(tide_serve_run *run, uint32_t first_buffer) {
    for (uint32_t i = 0; i < run->model.parameter_count; i++)
        run->figures.weight_bytes += (uint64_t)tide_bytes(run->model.parameters[i].tensor);
    for (uint32_t i = first_buffer; i < run->model.buffer_count; i++)
        run->figures.buffer_bytes += (uint64_t)tide_bytes(run->model.buffers[i]);
}

/* Bytes of a value in the cache. */
static int64_t cache_value_bytes(const tide_serve_run *run) {
    const char *dtype = run->settings.kv_cache_dtype;
    if (dtype && strncmp(dtype, "fp8", 3) == 0) return 1;
    return tide_dtype_bytes(run->model.state.dtype);
}

/* What a layer says of its cache: ['full', kv_heads, head_size, head_size_v, window]. */
static void add_spec(tide_serve_run *run, const tide_list *said) {
    static const char *const kinds[] = {"full", "sliding", "chunked", "latent", "state", "cross"};
    tide_cache_spec spec = {.block_size = run->settings.block_size};
    int64_t n[5] = {0};
    for (uint32_t i = 1; i < said->count && i < 5; i++)
        if (said->items[i].kind == TIDE_VALUE_INT) n[i] = said->items[i].integer;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (tide_text_is(said->items[0].text, kinds[i])) spec.kind = (tide_cache_kind)i;
    spec.window = n[4];
    if (spec.kind == TIDE_CACHE_STATE) {
        spec.page_bytes = n[1];
        spec.window = n[2]; /* checkpoints of a prompt */
    } else {
        spec.token_bytes = spec.kind == TIDE_CACHE_LATENT ? n[2] * cache_value_bytes(run)
                                                          : n[1] * (n[2] + n[3]) * cache_value_bytes(run);
        spec.page_bytes = spec.block_size * spec.token_bytes;
    }
    run->specs[run->spec_count++] = spec;
}

static void collect_specs(tide_serve_run *run) {
    uint32_t count, *modules = tide_model_modules(&run->model, &count);
    run->specs = TIDE_NEW(run->machine.arena, tide_cache_spec, count + 1);
    for (uint32_t i = 0; i < count; i++) {
        const tide_instance *of = &run->model.instances[modules[i]];
        for (uint32_t k = 0; k < of->of->member_count; k++) {
            tide_value said = of->slots[of->of->parameter_count + k];
            if (tide_text_is(of->of->members[k].name, "kv_cache_spec") && said.kind == TIDE_VALUE_LIST &&
                said.list->count > 1 && said.list->items[0].kind == TIDE_VALUE_TEXT)
                add_spec(run, said.list);
        }
    }
}

/* model_runner.py, load_model: the model, then what needs it. */
static bool load_model(tide_serve_run *run, tide_description *runner, uint32_t *model_root) {
    tide_machine *m = &run->machine;
    const tide_json *config = run->settings.config;
    tide_text architecture = run->architecture;
    const tide_engine_root *root = tide_engine_root_of("vllm", architecture);
    if (!root)
        return tide_error(
            m->diags, TIDE_ERR_UNSUPPORTED, "/config.json/architectures/0",
            tide_format(m->arena, "no description of vLLM 0.32.0's '%.*s'", (int)architecture.length, architecture.at),
            "start the engine by `tidemark dry-run -- vllm serve ...`, which needs no description");
    tide_description *description = tide_description_load(&run->descriptions, tide_text_of(root->description));
    uint32_t first_buffer = run->model.buffer_count; /* after those of the runner */
    run->load_event = m->timeline.event_count;
    tide_timeline_empty_cache(&m->timeline);
    if (!description || !(*model_root = build(run, description, root->class_name, config))) return false;
    count_weights(run, first_buffer);
    collect_specs(run);
    for (uint32_t i = 0; i < run->spec_count; i++)
        if (run->specs[i].kind != TIDE_CACHE_STATE) tide_model_setting(&run->model, "has_attention")->truth = true;
    if (!build(run, runner, "ImportedModules", text_config(config))) return false;
    tide_timeline_empty_cache(&m->timeline);
    run->loaded_event = m->timeline.event_count;
    *tide_model_setting(&run->model, "rope_keys") = (tide_value){.kind = TIDE_VALUE_LIST, .list = tide_list_new(m)};
    return build(run, runner, "LoadedState", text_config(config)) != 0;
}

static tide_value item(tide_value list, uint32_t at) {
    return list.kind == TIDE_VALUE_LIST && at < list.list->count ? list.list->items[at] : tide_none();
}

/* model_runner.py, profile_run: a forward pass of as many tokens as fit in a batch, then the sampler. */
static void profile_run(tide_serve_run *run, tide_description *runner, uint32_t input_root, uint32_t loaded_root,
                        uint32_t model_root) {
    tide_machine *m = &run->machine;
    tide_model *model = &run->model;
    const tide_serve_settings *s = &run->settings;
    int64_t requests = s->max_num_seqs < s->max_num_batched_tokens ? s->max_num_seqs : s->max_num_batched_tokens;
    const tide_instance *input = &model->instances[input_root], *loaded = &model->instances[loaded_root];
    bool is_last = tide_model_setting(model, "is_last_rank")->truth;
    model->root = model_root;
    tide_value encoder_outputs = tide_none();
    if (tide_model_setting(model, "supports_mm_inputs")->truth)
        encoder_outputs = tide_model_method(model, TIDE_TEXT("embed_multimodal"), NULL, NULL, 0);
    tide_value count = tide_of_int(requests);
    tide_value batch = call(run, runner, "make_dummy", &count, 1);
    const char *names[4] = {"input_ids", "positions", "intermediate_tensors", "inputs_embeds"};
    tide_value values[4] = {input->slots[tide_attribute_slot(input->of, TIDE_TEXT("input_ids"))],
                            input->slots[tide_attribute_slot(input->of, TIDE_TEXT("positions"))],
                            loaded->slots[tide_attribute_slot(loaded->of, TIDE_TEXT("intermediate_tensors"))],
                            loaded->slots[tide_attribute_slot(loaded->of, TIDE_TEXT("inputs_embeds"))]};
    if (s->first_start && !s->enforce_eager)
        tide_value_release(m, call(run, runner, "generate_and_run_autotune_block", NULL, 0));
    tide_value hidden = tide_model_forward(model, names, values, 4), taken = tide_none();
    m->module = m->statement = 0;
    if (is_last) {
        tide_value arguments[2] = {hidden, item(batch, 2)};
        taken = call(run, runner, "take_rows", arguments, 2);
    }
    tide_value_release(m, batch);
    if (is_last && !m->has_failed) {
        const char *name = "hidden_states";
        tide_value logits = tide_model_method(model, TIDE_TEXT("compute_logits"), &name, &taken, 1);
        tide_value arguments[2] = {logits, count};
        tide_value_release(m, call(run, runner, "dummy_sampler_run", arguments, 2));
        tide_value_release(m, logits);
    }
    tide_value_release(m, hidden);
    tide_value_release(m, taken);
    tide_value_release(m, encoder_outputs);
}

/* cudagraph_utils.py, capture: a forward pass on a stream of its own. */
static void capture_forward(tide_serve_run *run, int64_t tokens, bool is_first) {
    tide_machine *m = &run->machine;
    const tide_instance *input = &run->model.instances[run->input_root],
                        *loaded = &run->model.instances[run->loaded_root];
    tide_description *runner = run->runner;
    tide_value made[4] = {input->slots[tide_attribute_slot(input->of, TIDE_TEXT("input_ids"))],
                          input->slots[tide_attribute_slot(input->of, TIDE_TEXT("positions"))],
                          loaded->slots[tide_attribute_slot(loaded->of, TIDE_TEXT("intermediate_tensors"))],
                          tide_of_int(tokens)};
    if (is_first) call(run, runner, "begin_capture", NULL, 0);
    tide_value inputs = call(run, runner, "capture_inputs", made, 4);
    const char *names[3] = {"input_ids", "positions", "intermediate_tensors"};
    tide_value values[3] = {item(inputs, 0), item(inputs, 1), item(inputs, 2)};
    if (m->has_failed) return;
    tide_value hidden = tide_model_forward(&run->model, names, values, 3);
    m->module = m->statement = 0;
    if (is_first) call(run, runner, "store_capture_output", &hidden, 1);
    tide_value_release(m, hidden);
    tide_value_release(m, inputs);
}

enum { MAX_SPLITS = 128, SPLIT_TOKENS = 128, FULL_GRAPH_TOKENS = 512 };

/* FlashAttention 2 splits the keys of full graphs as occupancy asks for, num_splits_heuristic in csrc/flash_attn:
 * partial outputs in fp32 of at most one split for a block of keys, in the two graphs that are captured. */
static uint64_t split_bytes(tide_serve_run *run) {
    const tide_serve_settings *s = &run->settings;
    if (run->device.capability == 90 || !tide_model_setting(&run->model, "has_attention")->truth) return 0;
    int64_t hidden = NUMBER_OF(s->config, 0, "hidden_size", "n_embd");
    int64_t heads = NUMBER_OF(s->config, 1, "num_attention_heads", "n_head");
    int64_t width = heads / s->tensor_parallel_size * NUMBER_OF(s->config, heads > 0 ? hidden / heads : 0, "head_dim");
    int64_t splits = (run->figures.max_model_len + SPLIT_TOKENS - 1) / SPLIT_TOKENS;
    int64_t tokens = s->max_num_seqs < FULL_GRAPH_TOKENS ? s->max_num_seqs : FULL_GRAPH_TOKENS;
    return (uint64_t)((splits < MAX_SPLITS ? splits : MAX_SPLITS) * 2 * tokens * width * (int64_t)sizeof(float));
}

/* What the engine can do and this description of it cannot: refused, never guessed. */
static bool is_described(tide_serve_run *run) {
    const tide_serve_settings *s = &run->settings;
    tide_machine *m = &run->machine;
    const char *what = NULL;
    if (!weight_format(run)) what = s->quantization ? "/settings/quantization" : "/config.json/quantization_config";
    if (s->enable_lora) what = "/settings/enable_lora";
    if (s->cpu_offload_gib) what = "/settings/cpu_offload_gb";
    if (s->num_speculative_tokens && !s->speculates_ngrams) what = "/settings/speculative_config";
    if (!what) {
        if (strcmp(weight_format(run), "gptq") == 0 || strcmp(weight_format(run), "awq") == 0) {
            run->figures.uncertain += UINT64_C(4) * TIDE_SERVE_SEGMENT;
            tide_report(
                m->diags, TIDE_ASSUMPTION, TIDE_OK, "/config.json/quantization_config",
                "what repacking weights for Machete leaves in the allocator's segments is not played: the number "
                "of blocks is within a range",
                NULL);
        }
        return true;
    }
    return tide_error(m->diags, TIDE_ERR_UNSUPPORTED, what, "vLLM 0.32.0 with this is not described",
                      "start the engine by `tidemark dry-run -- vllm serve ...`, which needs no description");
}

/* config/model.py: _get_and_verify_max_len. */
static bool is_length_taken(const tide_serve_run *run) {
    const tide_machine *m = &run->machine;
    int64_t derived = derived_length(run->settings.config), asked = run->settings.max_model_len;
    const tide_json *own = tide_json_at(run->settings.config, "model_max_length");
    if (asked <= derived || (own && own->is_integer && asked <= own->integer)) return true;
    return tide_error(m->diags, TIDE_ERR_FIELD_RANGE, "/settings/max_model_len",
                      tide_format(m->arena, "%lld is greater than the %lld positions of the model: vLLM refuses it",
                                  (long long)asked, (long long)derived),
                      "give fewer, or a config.json whose rope_parameters make them");
}

static void prepare(tide_serve_run *run, const tide_serve_settings *settings, const tide_serve_device *device,
                    tide_arena *arena, tide_diagnostics *diags) {
    tide_machine *m = &run->machine;
    run->settings = *settings;
    run->device = *device;
    tide_machine_init(m, arena, diags);
    m->device = (tide_device){device->capability, device->sms, TIDE_DEVICE_DEFAULT.threads_per_sm};
    m->state.keeps_workspaces = m->unifies_workspaces = true; /* PyTorch 2.13 */
    m->state.grad_enabled = false;
    tide_descriptions_init(&run->descriptions, arena, diags, find_source, run);
    tide_model_init(&run->model, m, &run->descriptions);
    run->model.find_model = find_model;
    run->model.user = run;
    run->model.is_made_on_device = true;
    run->model.state.dtype = dtype_of(run);
    run->figures.dtype = tide_dtype_names[run->model.state.dtype];
    run->architecture = architecture_of(run, run->settings.config);
    take_defaults(run);
    set_settings(run);
}

bool tide_serve_start(tide_serve_run *run, const tide_serve_settings *settings, const tide_serve_device *device,
                      tide_arena *arena, tide_diagnostics *diags) {
    prepare(run, settings, device, arena, diags);
    tide_machine *m = &run->machine;
    if (!is_described(run) || !is_length_taken(run)) return false;
    if (!settings->enforce_eager)
        tide_report(diags, TIDE_ASSUMPTION, TIDE_OK, "/settings/enforce_eager",
                    "buffers of compiled code are Inductor's choice: the number of blocks is within a range",
                    "enforce_eager=true is played to the byte");
    tide_description *runner = tide_description_load(&run->descriptions, TIDE_TEXT("vllm/runner"));
    uint32_t input_root = runner ? build(run, runner, "InputState", text_config(run->settings.config)) : 0,
             model_root = 0;
    if (!input_root || !load_model(run, runner, &model_root)) return false;
    run->runner = runner;
    run->input_root = input_root;
    run->loaded_root = run->model.root;
    run->profile_event = m->timeline.event_count;
    tide_timeline_empty_cache(&m->timeline);
    profile_run(run, runner, input_root, run->loaded_root, model_root);
    run->profiled_event = m->timeline.event_count;
    if (m->has_failed) return false;
    if (!tide_cache_groups(run)) return false;
    if (!settings->enforce_eager) {
        run->figures.may_take = split_bytes(run);
        tide_serve_capture_graphs(run, capture_forward);
    }
    if (m->has_failed || !tide_serve_graphs(run)) return false;
    if (tide_serve_budget(run)) tide_cache_blocks(run);
    return !m->has_failed;
}
