/* SPDX-License-Identifier: Apache-2.0 */
/* vLLM's worker: what it makes, in order, and the run that it measures. v1/worker/gpu_worker.py and
 * v1/worker/gpu/model_runner.py of 0.32.0. */
#include "base/units.h"
#include "memo/memo.h"
#include "serve/serve.h"

#include <string.h>

#include "lang/lang.h"
#include "serve/config.h"
#include "serve/drafts.h"
#include "serve/engine_args.h"

/* ---- descriptions ---- */

static tide_source find_source(void *user, tide_text name) {
    const tide_source *source = tide_architecture_source(name);
    return source ? tide_source_whole(((const tide_serve_run *)user)->machine.arena, source)
                  : (tide_source){.text = NULL};
}

/* transformers: the class that AutoModelForCausalLM makes for a model_type, from its description. */
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

/* The class, or for classes with several kinds of vision towers the one for this tower: "CLASS:model_type". */
static const tide_engine_root *root_of(const tide_serve_run *run) {
    const tide_json *tower = tide_json_at(tide_json_at(run->job.config, "vision_config"), "model_type");
    const tide_engine_root *found = NULL;
    if (tide_json_is(tower, TIDE_JSON_STRING))
        found = tide_engine_root_of(
            "vllm", tide_text_of(tide_format(run->machine.arena, "%.*s:%.*s", (int)run->architecture.length,
                                             run->architecture.at, (int)tower->text.length, tower->text.at)));
    return found ? found : tide_engine_root_of("vllm", run->architecture);
}

/* The language model of a composite: init_vllm_registered_model(hf_config=config.text_config). Descriptions name
 * classes that no architecture stands for by model_type. */
static bool find_engine_model(void *user, tide_text model_type, tide_text *description, tide_text *class_name) {
    const tide_engine_root *root = tide_engine_root_of("vllm", model_type);
    if (!root) root = tide_engine_root_of("vllm", root_of_type(user, model_type));
    if (!root) {
        tide_serve_run *run = user;
        tide_fail(&run->machine, TIDE_ERR_UNSUPPORTED, "no description of vLLM 0.32.0's '%.*s'", (int)model_type.length,
                  model_type.at);
        return false;
    }
    *description = tide_text_of(root->description);
    *class_name = tide_text_of(root->class_name);
    return true;
}

/* The place that a check of a description refers to. */
static const char *place_of_key(void *user, const tide_json *config, tide_text key, bool *is_default) {
    tide_serve_run *run = user;
    *is_default = false;
    const char *place = tide_job_config_place(run->machine.arena, &run->job, config);
    return tide_format(run->machine.arena, key.length && key.at[0] == '/' ? "%s%.*s" : "%s/%.*s", place,
                       (int)key.length, key.at);
}

/* ---- the parts of the run ---- */

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

static void count_weights(tide_serve_run *run) {
    for (uint32_t i = 0; i < run->model.parameter_count; i++) {
        const tide_tensor *t = run->model.parameters[i].tensor;
        if (!t->storage->is_untracked) run->figures.weight_bytes += (uint64_t)tide_bytes(t); /* others are discarded */
    }
    for (uint32_t i = 0; i < run->model.buffer_count; i++)
        run->figures.buffer_bytes += (uint64_t)tide_bytes(run->model.buffers[i]);
}

/* Adds a layer's cache spec: ['full', kv_heads, head_size, head_size_v, window]. */
static void add_spec(tide_serve_run *run, const tide_list *said) {
    static const char *const kinds[] = {"full", "sliding", "chunked", "latent", "state", "cross"};
    tide_cache_spec spec = {.block_size = run->job.block_size};
    int64_t n[5] = {0};
    for (uint32_t i = 1; i < said->count && i < 5; i++)
        if (said->items[i].kind == TIDE_VALUE_INT) n[i] = said->items[i].integer;
    for (size_t i = 0; i < TIDE_COUNT_OF(kinds); i++)
        if (tide_text_is(said->items[0].text, kinds[i])) spec.kind = (tide_cache_kind)i;
    spec.window = n[4];
    if (spec.kind == TIDE_CACHE_STATE) {
        spec.page_bytes = n[1];
        spec.window = n[2]; /* checkpoints of a prompt */
    } else {
        int64_t keys = tide_serve_cached_bytes(run, n[2]), values = tide_serve_cached_bytes(run, n[3]);
        spec.token_bytes = spec.kind == TIDE_CACHE_LATENT ? keys : n[1] * (keys + values);
        spec.page_bytes = spec.block_size * spec.token_bytes;
    }
    run->specs[run->spec_count++] = spec;
}

static void collect_specs(tide_serve_run *run) {
    uint32_t count, *modules = tide_model_modules(&run->model, &count);
    tide_cache_spec *before = run->specs;
    run->specs = TIDE_NEW(run->machine.arena, tide_cache_spec, run->spec_count + count + 1);
    if (before) memcpy(run->specs, before, run->spec_count * sizeof *before);
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

/* lora/model_manager.py, _create_lora_modules: slots for each layer that says how adapters see it. */
static void create_lora_modules(tide_serve_run *run, tide_description *runner) {
    uint32_t count, *modules = tide_model_modules(&run->model, &count);
    for (uint32_t i = 0; i < count && !run->machine.has_failed; i++) {
        const tide_instance *of = &run->model.instances[modules[i]];
        uint32_t slot = tide_attribute_slot(of->of, TIDE_TEXT("lora"));
        if (slot < of->of->parameter_count + of->of->member_count && of->slots[slot].kind == TIDE_VALUE_LIST)
            tide_serve_call_runner(run, runner, "create_lora_weights", &of->slots[slot], 1);
    }
}

static void call_each(tide_serve_run *run, const uint32_t *modules, uint32_t count, tide_text method) {
    for (uint32_t i = 0; i < count && !run->machine.has_failed; i++) {
        run->model.root = modules[i];
        tide_value_release(&run->machine, tide_model_method(&run->model, method, NULL, NULL, 0));
    }
}

/* model_loader/base_loader.py, load_model: layers that are quantised while loading, then those that are repacked, and
 * finally attention. */
static void process_weights(tide_serve_run *run, uint32_t model_root) {
    uint32_t count, *modules = tide_model_modules(&run->model, &count);
    call_each(run, modules, count, TIDE_TEXT("load_weights"));
    tide_timeline_empty_cache(&run->machine.timeline);
    call_each(run, modules, count, TIDE_TEXT("process_weights_after_loading"));
    call_each(run, modules, count, TIDE_TEXT("process_attention_after_loading"));
    run->model.root = model_root;
}

/* rotary_embedding/__init__.py, get_rope: equal tables are created once per process. Scaled ones are taken to differ.
 */
static bool shares_rope(const tide_json *a, const tide_json *b) {
    const tide_json *one = tide_serve_text_config(a), *other = tide_serve_text_config(b);
    static const char *const keys[] = {"rope_theta", "max_position_embeddings", "head_dim"};
    for (size_t i = 0; i < TIDE_COUNT_OF(keys); i++) {
        const tide_json *left = tide_json_at(one, keys[i]), *right = tide_json_at(other, keys[i]);
        if (!tide_json_is(left, TIDE_JSON_NUMBER) || !tide_json_is(right, TIDE_JSON_NUMBER) ||
            left->number < right->number || left->number > right->number)
            return false;
    }
    static const char *const scalings[] = {"rope_scaling", "rope_parameters"};
    for (size_t i = 0; i < TIDE_COUNT_OF(scalings); i++)
        if (tide_json_is(tide_json_at(one, scalings[i]), TIDE_JSON_OBJECT) ||
            tide_json_is(tide_json_at(other, scalings[i]), TIDE_JSON_OBJECT))
            return false;
    return true;
}

/* spec_decode/standalone_ar/speculator.py, load_draft_model: on the target's ranks. */
static bool load_draft(tide_serve_run *run) {
    tide_machine *m = &run->machine;
    tide_text architecture = architecture_of(run, run->drafts.config);
    const tide_engine_root *root = tide_engine_root_of("vllm", architecture);
    if (!root)
        return tide_error(m->diags, TIDE_ERR_UNSUPPORTED, "/settings/draft",
                          "no description of vLLM 0.32.0's class of the draft model", NULL);
    tide_description *description = tide_description_load(&run->descriptions, tide_text_of(root->description));
    tide_model_setting(&run->model, "end_layer")->integer = tide_serve_layers(run->drafts.config);
    if (!run->drafts.is_head && !shares_rope(run->job.config, run->drafts.config))
        *tide_model_setting(&run->model, "rope_keys") = (tide_value){.kind = TIDE_VALUE_LIST, .list = tide_list_new(m)};
    run->draft_root = description ? build(run, description, root->class_name, run->drafts.config) : 0;
    if (!run->draft_root) return false;
    process_weights(run, run->draft_root);
    uint32_t count, *modules = tide_model_modules(&run->model, &count);
    call_each(run, modules, count, TIDE_TEXT("share_with_target"));
    run->model.root = run->draft_root;
    collect_specs(run);
    return !m->has_failed;
}

/* Whether a stage passes its residual to the next one besides its hidden states: from the class, or the usual case. */
static tide_value keeps_residual(const tide_serve_run *run, uint32_t model_root) {
    const tide_instance *root = &run->model.instances[model_root];
    uint32_t slot = tide_attribute_slot(root->of, TIDE_TEXT("keeps_residual"));
    return slot < root->of->parameter_count + root->of->member_count ? root->slots[slot] : tide_of_bool(true);
}

/* model_runner.py, load_model: the model, then what depends on it. */
static bool load_model(tide_serve_run *run, tide_description *runner, uint32_t *model_root) {
    tide_machine *m = &run->machine;
    const tide_json *config = run->job.config;
    tide_text architecture = run->architecture;
    const tide_engine_root *root = root_of(run);
    if (!root)
        return tide_error(
            m->diags, TIDE_ERR_UNSUPPORTED, "/config.json/architectures/0",
            tide_format(m->arena, "no description of vLLM 0.32.0's '%.*s'", (int)architecture.length, architecture.at),
            "start the engine by `tidemark dry-run -- vllm serve ...`, which needs no description");
    tide_description *description = tide_description_load(&run->descriptions, tide_text_of(root->description));
    run->load_event = m->timeline.event_count;
    tide_timeline_empty_cache(&m->timeline);
    if (!description || !(*model_root = build(run, description, root->class_name, config))) return false;
    tide_value_release(m, tide_serve_call_runner(run, runner, "import_online_quantization", NULL, 0));
    process_weights(run, *model_root);
    count_weights(run);
    if (run->job.cpu_offload_gb) tide_serve_offload(run);
    collect_specs(run);
    if (run->drafts.config && !load_draft(run)) return false;
    run->model.root = *model_root;
    if (run->job.enable_lora) {
        uint32_t model_modules = run->model.root;
        if (!build(run, runner, "PunicaWrapper", tide_serve_text_config(config))) return false;
        run->model.root = model_modules;
        create_lora_modules(run, runner);
    }
    tide_timeline_empty_cache(&m->timeline);
    run->loaded_event = m->timeline.event_count;
    *tide_model_setting(&run->model, "rope_keys") = (tide_value){.kind = TIDE_VALUE_LIST, .list = tide_list_new(m)};
    const char *state = run->is_pooling ? "EncoderOnlyModelState" : "LoadedState";
    if (!build(run, runner, state, tide_serve_text_config(config))) return false;
    tide_value keeps = keeps_residual(run, *model_root);
    run->received = tide_serve_call_runner(run, runner, "make_empty_intermediate_tensors", &keeps, 1);
    return !m->has_failed;
}

enum { LOGITS_INDICES = 1 }; /* index into the result of make_dummy */

/* model_runner.py, profile_run: a forward pass with as many tokens as fit into a batch, then the sampler. */
static void profile_run(tide_serve_run *run, tide_description *runner, uint32_t input_root, uint32_t loaded_root,
                        uint32_t model_root) {
    tide_machine *m = &run->machine;
    tide_model *model = &run->model;
    const tide_job *job = &run->job;
    int64_t requests =
        job->max_num_seqs < job->max_num_batched_tokens ? job->max_num_seqs : job->max_num_batched_tokens;
    const tide_instance *input = &model->instances[input_root], *loaded = &model->instances[loaded_root];
    bool is_last = tide_model_setting(model, "is_last_rank")->truth;
    model->root = model_root;
    tide_value encoder_outputs = tide_none();
    bool takes_media =
        tide_model_setting(model, "supports_mm_inputs")->truth && tide_model_setting(model, "is_first_rank")->truth;
    if (takes_media && !job->skip_mm_profiling)
        encoder_outputs = tide_model_method(model, TIDE_TEXT("embed_multimodal"), NULL, NULL, 0);
    tide_value count = tide_of_int(requests);
    tide_value batch = tide_serve_call_runner(run, runner, "make_dummy", &count, 1);
    const char *names[4] = {"input_ids", "positions", "intermediate_tensors", "inputs_embeds"};
    tide_value values[4] = {input->slots[tide_attribute_slot(input->of, TIDE_TEXT("input_ids"))],
                            input->slots[tide_attribute_slot(input->of, TIDE_TEXT("positions"))], run->received,
                            loaded->slots[tide_attribute_slot(loaded->of, TIDE_TEXT("inputs_embeds"))]};
    if (job->first_start && !job->enforce_eager)
        tide_value_release(m, tide_serve_call_runner(run, runner, "generate_and_run_autotune_block", NULL, 0));
    tide_value sliced = tide_none();
    if (run->draft_root && !run->drafts.is_head) { /* one slot of each request is for correcting the draft */
        tide_value all[4] = {values[0], values[1], tide_none(), tide_of_int(job->max_num_batched_tokens - requests)};
        sliced = tide_serve_call_runner(run, runner, "capture_inputs", all, 4);
        values[0] = tide_serve_item(sliced, 0);
        values[1] = tide_serve_item(sliced, 1);
    }
    tide_value hidden = tide_model_forward(model, names, values, 4), taken = tide_none();
    m->module = m->statement = 0;
    if (run->draft_root && !m->has_failed) tide_serve_propose(run, runner, values, hidden, requests);
    tide_value_release(m, sliced);
    if (is_last) {
        tide_value arguments[2] = {hidden, tide_serve_item(batch, LOGITS_INDICES)};
        taken = tide_serve_call_runner(run, runner, "take_rows", arguments, 2);
    }
    if (is_last) tide_value_release(m, batch); /* otherwise kept by execute_model_state */
    if (is_last && !m->has_failed) {
        const char *name = "hidden_states";
        tide_value logits = tide_model_method(model, TIDE_TEXT("compute_logits"), &name, &taken, 1);
        tide_value arguments[2] = {logits, tide_serve_call_runner(run, runner, "make_dummy", &count, 1)};
        tide_value_release(m, tide_serve_call_runner(run, runner, "sampler", arguments, 2));
        tide_value_release(m, logits);
        tide_value_release(m, arguments[1]);
    }
    tide_value_release(m, hidden);
    tide_value_release(m, taken);
    tide_value_release(m, encoder_outputs);
}

/* cudagraph_utils.py, capture: a forward pass on a stream of its own. */
static void capture_forward(tide_serve_run *run, int64_t tokens, bool is_first) {
    tide_machine *m = &run->machine;
    const tide_instance *input = &run->model.instances[run->input_root];
    tide_description *runner = run->runner;
    tide_value made[4] = {input->slots[tide_attribute_slot(input->of, TIDE_TEXT("input_ids"))],
                          input->slots[tide_attribute_slot(input->of, TIDE_TEXT("positions"))], run->received,
                          tide_of_int(tokens)};
    if (is_first) tide_serve_call_runner(run, runner, "begin_capture", NULL, 0);
    tide_value inputs = tide_serve_call_runner(run, runner, "capture_inputs", made, 4);
    const char *names[3] = {"input_ids", "positions", "intermediate_tensors"};
    tide_value values[3] = {tide_serve_item(inputs, 0), tide_serve_item(inputs, 1), tide_serve_item(inputs, 2)};
    if (m->has_failed) return;
    tide_value hidden = tide_model_forward(&run->model, names, values, 3);
    m->module = m->statement = 0;
    if (is_first) tide_serve_call_runner(run, runner, "store_capture_output", &hidden, 1);
    tide_value_release(m, hidden);
    tide_value_release(m, inputs);
}

enum {
    MAX_SPLITS = 128,
    SPLIT_TOKENS = 128,
    FULL_GRAPH_TOKENS = 512,
    HOPPER_SPLITS = 32 /* flash_attn_max_num_splits_for_cuda_graph */
};

static bool has_attention(const tide_serve_run *run) {
    for (uint32_t i = 0; i < run->spec_count; i++)
        if (run->specs[i].kind != TIDE_CACHE_STATE) return true;
    return false;
}

/* FlashAttention 2 splits the keys of full graphs by occupancy, num_splits_heuristic in csrc/flash_attn: fp32 partial
 * outputs of at most one split per block of keys, in the two graphs that are captured. */
static uint64_t split_bytes(tide_serve_run *run) {
    const tide_job *job = &run->job;
    if (run->device.capability == 90 || !has_attention(run)) return 0;
    int64_t hidden = TIDE_SERVE_NUMBER(job->config, 0, "hidden_size", "n_embd");
    int64_t heads = TIDE_SERVE_NUMBER(job->config, 1, "num_attention_heads", "n_head");
    int64_t width =
        heads / job->tensor_parallel_size * TIDE_SERVE_NUMBER(job->config, heads > 0 ? hidden / heads : 0, "head_dim");
    int64_t splits = TIDE_CEIL_DIV(run->figures.max_model_len, SPLIT_TOKENS);
    int64_t tokens = job->max_num_seqs < FULL_GRAPH_TOKENS ? job->max_num_seqs : FULL_GRAPH_TOKENS;
    return (uint64_t)((splits < MAX_SPLITS ? splits : MAX_SPLITS) * 2 * tokens * width * (int64_t)sizeof(float));
}

/* Partial outputs of latent attention on Hopper: whether a layer's can reuse the block of the layer before depends on
 * Inductor's buffers. */
static uint64_t latent_bytes(const tide_serve_run *run) {
    const tide_json *config = run->job.config;
    if (run->device.capability != 90 || !run->spec_count || run->specs[0].kind != TIDE_CACHE_LATENT) return 0;
    int64_t heads = TIDE_SERVE_NUMBER(config, 0, "num_attention_heads") / run->job.tensor_parallel_size;
    int64_t rows = HOPPER_SPLITS * heads * run->graphs.most;
    return (uint64_t)(rows * TIDE_SERVE_NUMBER(config, 0, "kv_lora_rank") * (int64_t)sizeof(float));
}

/* Code compiled for embeddings instead of tokens copies them, and its pieces between two attention layers keep more of
 * their outputs in the largest graph: at most all, which are hidden states, residual, queries, keys and values. */
static uint64_t embedding_bytes(tide_serve_run *run) {
    const tide_json *config = run->job.config;
    if (!tide_model_setting(&run->model, "supports_mm_inputs")->truth) return 0;
    int64_t hidden = TIDE_SERVE_NUMBER(config, 0, "hidden_size", "n_embd"), ranks = run->job.tensor_parallel_size;
    int64_t heads = TIDE_SERVE_NUMBER(config, 1, "num_attention_heads", "n_head");
    int64_t kept = TIDE_SERVE_NUMBER(config, heads, "num_key_value_heads");
    int64_t wide = (heads + 2 * kept) * TIDE_SERVE_NUMBER(config, heads > 0 ? hidden / heads : 0, "head_dim");
    int64_t rows = tide_serve_layers(config) * run->graphs.most;
    int64_t values = run->job.max_num_batched_tokens * hidden + rows * (2 * hidden + TIDE_CEIL_DIV(wide, ranks));
    return (uint64_t)(values * tide_dtype_bytes(run->model.state.dtype));
}

enum { STREAM_K_TILE = 256 * 128 * 4 }; /* partial sums of the largest tile, in fp32 */

/* CUTLASS 2's 8-bit products (scaled_mm_c2x.cuh): if tiles do not fill the last wave of multiprocessors, stream-K keeps
 * partial sums, at most a tile for each. */
static uint64_t stream_k_bytes(tide_serve_run *run) {
    static const char *const formats[] = {"fp8", "fp8_static", "fp8_dynamic", "fp8_channel"};
    int capability = run->device.capability;
    bool is_there = capability < 90 && strcmp(run->weights.format, "int8_channel") == 0;
    for (size_t i = 0; capability == 89 && i < TIDE_COUNT_OF(formats); i++)
        is_there = is_there || strcmp(run->weights.format, formats[i]) == 0;
    if (!is_there) return 0;
    tide_report(run->machine.diags, TIDE_ASSUMPTION, TIDE_OK, "/settings/quantization",
                "products of 8 bits may keep partial sums, a tile of 128 KiB for each multiprocessor: the number of "
                "blocks is within a range",
                NULL);
    return (uint64_t)run->device.sms * STREAM_K_TILE;
}

/* Slots for experts, towers and quantised layers are not described. */
static bool takes_adapters(tide_serve_run *run) {
    const tide_json *config = run->job.config;
    const tide_engine_root *root = tide_engine_root_of("vllm", run->architecture);
    bool has_slots = !tide_text_contains(run->architecture, TIDE_TEXT("StableL")) &&
                     !tide_text_contains(run->architecture, TIDE_TEXT("GPTJ")); /* no SupportsLoRA */
    return has_slots && root && strcmp(root->class_name, "LlamaForCausalLM") == 0 &&
           strcmp(run->weights.format, "none") == 0 &&
           !TIDE_SERVE_NUMBER(config, 0, "num_experts", "num_local_experts", "n_routed_experts", "kv_lora_rank");
}

/* Experts that are not quantised, or quantised to fp8 while loading where that is native, or in fp8 blocks; and those
 * of GPT-OSS. */
static bool describes_experts(const tide_serve_run *run) {
    static const char *const formats[] = {"none", "fp8_block", "mxfp4"};
    const char *format = run->weights.format;
    if (!TIDE_SERVE_NUMBER(run->job.config, 0, "num_experts", "num_local_experts", "n_routed_experts")) return true;
    if (strcmp(format, "fp8") == 0) return run->device.capability >= 89;
    if (strcmp(format, "gptq") == 0 || strcmp(format, "awq") == 0) return run->device.capability != 90; /* Humming's */
    for (size_t i = 0; i < TIDE_COUNT_OF(formats); i++)
        if (strcmp(format, formats[i]) == 0) return true;
    return false;
}

/* What the engine supports and this description does not: refused rather than guessed. */
static bool is_described(tide_serve_run *run) {
    const tide_job *job = &run->job;
    tide_machine *m = &run->machine;
    const char *what = NULL;
    if (!run->weights.format)
        what =
            job->quantization != TIDE_quantization_none ? "/settings/quantization" : "/config.json/quantization_config";
    if (job->enable_lora && !takes_adapters(run)) what = "/settings/enable_lora";
    bool is_stored = run->weights.format && (strcmp(run->weights.format, "none") == 0 ||
                                             (run->drafts.is_mtp && strcmp(run->weights.format, "fp8_block") == 0));
    bool is_draft_played = run->drafts.config && job->pipeline_parallel_size == 1 && is_stored &&
                           job->max_num_seqs < job->max_num_batched_tokens && !job->enable_lora && !job->cpu_offload_gb;
    if (run->drafts.tokens && !run->drafts.are_ngrams && !is_draft_played) what = "/settings/speculative_config";
    if (tide_json_at(run->job.config, "num_mel_bins") && !job->enforce_eager) what = "/settings/enforce_eager";
    if (!what && strcmp(run->weights.format, "mxfp4") == 0) {
        run->figures.uncertain += (uint64_t)tide_serve_layers(job->config) * TIDE_SERVE_SEGMENT;
        tide_report(m->diags, TIDE_ASSUMPTION, TIDE_OK, "/config.json/quantization_config",
                    "what swizzling of experts leaves in the allocator is not played: the number of blocks is within a "
                    "range, a segment for each layer",
                    NULL);
    }
    if (!what && strcmp(run->weights.format, "awq") == 0 && tide_json_at(run->job.config, "vision_config")) {
        run->figures.uncertain += TIDE_SERVE_SEGMENT;
        tide_report(m->diags, TIDE_ASSUMPTION, TIDE_OK, "/config.json/quantization_config",
                    "where the tower's tensors lie among what repacking leaves in the allocator is not certain: the "
                    "number of blocks is within a range, a segment",
                    NULL);
    }
    if (!what && strcmp(run->weights.format, "fp8_block") == 0 && run->device.capability == 90)
        tide_report(m->diags, TIDE_ASSUMPTION, TIDE_OK, "/config.json/quantization_config",
                    "products of blocks are CUTLASS's, and Triton's of experts, as with VLLM_USE_DEEP_GEMM=0: what "
                    "DeepGEMM takes beside its results is not played",
                    NULL);
    bool has_experts = !what && !describes_experts(run);
    if (has_experts)
        what =
            job->quantization != TIDE_quantization_none ? "/settings/quantization" : "/config.json/quantization_config";
    if (!what) return true;
    return tide_error(m->diags, TIDE_ERR_UNSUPPORTED, what,
                      has_experts ? "of vLLM 0.32.0's experts those in 16 bits, in fp8 on compute capability 8.9 and "
                                    "above, and in GPTQ and AWQ but on 9.0 are described"
                                  : "vLLM 0.32.0 with this is not described",
                      "start the engine by `tidemark dry-run -- vllm serve ...`, which needs no description");
}

static void prepare_server(tide_serve_run *run, const tide_serve_device *device, tide_arena *arena,
                           tide_diagnostics *diags) {
    tide_machine *m = &run->machine;
    run->device = *device;
    tide_machine_init(m, arena, diags);
    m->device = (tide_device){device->capability, device->sms, TIDE_DEVICE_DEFAULT.threads_per_sm};
    m->state.keeps_workspaces = m->unifies_workspaces = true; /* PyTorch 2.13 */
    m->state.grad_enabled = false;
    if (run->kept && run->kept->set.arena) {
        run->descriptions = run->kept->set;
        run->descriptions.diags = diags;
        run->descriptions.user = run;
    } else {
        tide_descriptions_init(&run->descriptions, run->kept ? run->kept->arena : arena, diags, find_source, run);
    }
    tide_model_init(&run->model, m, &run->descriptions);
    if (run->kept && run->kept->set.arena) run->model.size_names = run->kept->size_names;
    run->model.find_model = find_engine_model;
    run->model.find_place = place_of_key;
    run->model.call = tide_call_memoized;
    run->model.user = run;
    run->model.is_made_on_device = true;
    run->architecture = architecture_of(run, run->job.config);
    run->is_pooling = !tide_serve_generates(run->architecture);
    run->model.state.dtype = tide_serve_dtype(run);
    run->figures.dtype = tide_dtype_names[run->model.state.dtype];
    tide_serve_take_defaults(run);
    tide_serve_set_settings(run);
}

static bool play_start(tide_serve_run *run, const tide_job *job, const tide_serve_device *device, tide_arena *arena,
                       tide_diagnostics *diags) {
    if (!tide_serve_take_args(run, job, arena, diags)) return false;
    prepare_server(run, device, arena, diags);
    tide_machine *m = &run->machine;
    if (!tide_serve_check(run) || !is_described(run) || !tide_serve_find_graph_sizes(run)) return false;
    if (!job->enforce_eager && !run->is_pooling)
        tide_report(diags, TIDE_ASSUMPTION, TIDE_OK, "/settings/enforce_eager",
                    "buffers of compiled code are Inductor's choice: the number of blocks is within a range",
                    "enforce_eager=true is played to the byte");
    tide_description *runner = tide_description_load(&run->descriptions, TIDE_TEXT("vllm/runner"));
    uint32_t input_root = runner ? build(run, runner, "InputState", tide_serve_text_config(run->job.config)) : 0,
             model_root = 0;
    if (!input_root) return false;
    const char *state = run->drafts.is_head ? "EagleState" : "DraftState";
    if (run->drafts.config && !build(run, runner, state, run->drafts.config)) return false;
    if (!load_model(run, runner, &model_root)) return false;
    run->runner = runner;
    run->input_root = input_root;
    run->loaded_root = run->model.root;
    run->profile_event = m->timeline.event_count;
    tide_timeline_empty_cache(&m->timeline);
    if (run->is_pooling)
        tide_report(diags, TIDE_ASSUMPTION, TIDE_OK, "/model",
                    "a model without a cache is not profiled by the engine: activations of a batch come on top of what "
                    "is here",
                    NULL);
    else
        profile_run(run, runner, input_root, run->loaded_root, model_root);
    run->profiled_event = m->timeline.event_count;
    tide_model_setting(&run->model, "takes_lora_pointers")->truth = false;
    if (m->has_failed) return false;
    if (!tide_cache_groups(run)) return false;
    if (!run->is_pooling) run->figures.may_take = stream_k_bytes(run) + tide_serve_draft_steps(run, job->max_num_seqs);
    if (!job->enforce_eager && !run->is_pooling) {
        run->figures.may_take += split_bytes(run) + embedding_bytes(run) + tide_serve_head_graphs(run);
        run->figures.uncertain += latent_bytes(run);
        tide_serve_capture_graphs(run, capture_forward);
    }
    if (m->has_failed || !tide_serve_graphs(run)) return false;
    if (tide_serve_budget(run)) tide_cache_blocks(run);
    return !m->has_failed;
}

static bool start_vllm(tide_serve_run *run, const tide_job *job, const tide_serve_device *device, tide_arena *arena,
                       tide_diagnostics *diags) {
    bool ok = play_start(run, job, device, arena, diags);
    if (run->kept && run->descriptions.arena) {
        run->kept->set = run->descriptions;
        run->kept->size_names = run->model.size_names;
    }
    return ok;
}

const tide_engine tide_vllm_engine = {.title = "vLLM 0.32.0 on PyTorch 2.13",
                                      .start = start_vllm,
                                      .blocks_of = tide_cache_blocks_of,
                                      .kept_blocks = 1,
                                      .length = "max_model_len",
                                      .requests = "max_num_seqs",
                                      .tokens = "max_num_batched_tokens"};
