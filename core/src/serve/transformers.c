/* SPDX-License-Identifier: Apache-2.0 */
/* transformers' continuous batching: the model as from_pretrained() leaves it, the paged cache, the inputs that stay on
 * the device, and the largest batch. generation/continuous_batching/ of transformers 5.23: continuous_api.py,
 * input_outputs.py, model_runner.py. */
#include <inttypes.h>
#include <string.h>

#include "allocator/allocator.h"
#include "base/decimal.h"
#include "base/units.h"
#include "lang/lang.h"
#include "serve/config.h"
#include "serve/paged.h"
#include "train/train.h"

enum {
    MAX_BATCH_TOKENS = 8192, /* cache.py, _default_max_batch_tokens */
    BLOCKS_PER_REQUEST = 32, /* initialization.py, FALLBACK_DEFAULTS */
    REQUESTS_PER_BATCH = 1024,
    PAGE_SIZE = 256,     /* generation/configuration_utils.py, ContinuousBatchingConfig */
    MEMORY_PERCENT = 90, /* initialization.py, resolve_max_memory_percent, without logits processors */
    COLUMNS = 32,        /* multiple of the bulk input */
    COMPUTE_STREAM = 1,
    LEAST_PAGE = 4, /* BOUNDS */
    LAYERS_MOST = 4096
};

/* What a set of inputs keeps on the device: ContinuousBatchingIOs. */
typedef struct paged_inputs {
    tide_tensor *bulk, *output_ids, *masks[TIDE_PAGED_KINDS], *block_table, *write_index, *read_index;
} paged_inputs;

typedef struct paged_start {
    tide_serve_run *run;
    tide_run *model; /* the run that plays everything */
    tide_paged_cache *cache;
    paged_inputs inputs; /* the first set */
    uint32_t loaded_event, started_event;
} paged_start;

/* ---- the job ---- */

/* AutoModelForCausalLM.from_pretrained(): dtype="auto". */
static tide_optional_dtype dtype_of_model(const tide_job *job) {
    tide_dtype dtype;
    bool is_said = tide_dtype_named(tide_model_dtype(job->config, job->checkpoint), &dtype);
    return (tide_optional_dtype){.is_set = true, .dtype = is_said ? dtype : TIDE_FP32};
}

static bool refuse_generation(const tide_serve_run *run, const char *place, const char *message, const char *remedy) {
    return tide_error(run->machine.diags, TIDE_ERR_UNSUPPORTED, place, message, remedy);
}

/* The generation job for which the server's model is loaded. */
static bool read_generation(tide_serve_run *run, const tide_job *job) {
    tide_job *own = &run->job;
    const tide_json *quantised = tide_json_at(job->config, "quantization_config");
    *own = *job;
    own->mode = TIDE_mode_infer;
    own->capability = run->device.capability;
    own->gpu.sms = run->device.sms;
    own->attention = TIDE_attention_sdpa;
    own->sdpa_backend = TIDE_sdpa_backend_default;
    if (!own->dtype.is_set) own->dtype = dtype_of_model(job);
    if (tide_json_at(job->config, "vision_config") || tide_json_at(job->config, "audio_config"))
        return refuse_generation(run, "/model", "media are not described for continuous batching", "engine=vllm");
    if (quantised && quantised->kind != TIDE_JSON_NULL)
        return refuse_generation(run, "/model/quantization_config",
                                 "quantised weights are not described for continuous batching",
                                 "overrides.quantization_config=null takes the weights whole");
    return true;
}

/* ---- the model ---- */

/* The layers of the model, found by one token through another instance of it: [kv_heads, key, value, window] each. */
static tide_list *list_layers(const tide_serve_run *run, tide_arena *arena) {
    tide_run *scratch = TIDE_NEW(arena, tide_run, 1);
    tide_diagnostics *unheard = TIDE_NEW(arena, tide_diagnostics, 1);
    tide_diagnostics_init(unheard, arena);
    scratch->plays_all = true;
    if (!tide_load(scratch, &run->job, arena, unheard)) return NULL;
    tide_model *model = &scratch->model;
    tide_list *layers = tide_list_new(&scratch->machine);
    *tide_model_setting(model, "cache") = (tide_value){.kind = TIDE_VALUE_TEXT, .text = TIDE_TEXT("paged")};
    *tide_model_setting(model, "past_key_values") =
        (tide_value){.kind = TIDE_VALUE_LIST, .list = tide_list_new(&scratch->machine)};
    *tide_model_setting(model, "paged_layers") = (tide_value){.kind = TIDE_VALUE_LIST, .list = layers};
    *tide_model_setting(model, "paged_rows") = tide_of_tensor(TIDE_EMPTY(&scratch->machine, TIDE_INT32, 1));
    *tide_model_setting(model, "paged_read") = tide_of_int(0);
    scratch->machine.state.grad_enabled = false;
    const char *names[] = {"input_ids"};
    tide_value ids = tide_of_tensor(TIDE_EMPTY(&scratch->machine, TIDE_INT64, 1, 1));
    tide_model_forward(model, names, &ids, 1);
    return scratch->machine.has_failed ? NULL : layers;
}

static int64_t kept_number(const tide_value *layer, uint32_t at) {
    const tide_list *said = layer->kind == TIDE_VALUE_LIST ? layer->list : NULL;
    return said && at < said->count && said->items[at].kind == TIDE_VALUE_INT ? said->items[at].integer : 0;
}

/* group_layers_by_attn_type, in the order of layers. False if head sizes differ from those in config.json, from which
 * transformers computes pages. */
static bool group_layers(tide_paged_cache *c, const tide_list *layers) {
    for (uint32_t i = 0; i < layers->count; i++) {
        const tide_value *layer = &layers->items[i];
        bool slides = kept_number(layer, 3) > 0;
        uint32_t at = 0;
        if (kept_number(layer, 0) != c->kv_heads || kept_number(layer, 1) != c->head_dim ||
            kept_number(layer, 2) != c->head_dim || (slides && kept_number(layer, 3) != c->window))
            return false;
        while (at < c->group_count && c->groups[at].slides != slides) at++;
        if (at == c->group_count) c->groups[c->group_count++] = (tide_paged_group){.slides = slides};
        c->groups[at].layers++;
    }
    return true;
}

static bool describe_cache(paged_start *s, tide_arena *arena) {
    static const char unknown[] = "what its attention keeps, and how it attends, is not described for continuous "
                                  "batching, which is sdpa over keys and values of heads alone";
    tide_serve_run *run = s->run;
    const tide_json *config = run->job.config;
    tide_paged_cache *c = s->cache;
    const tide_list *layers = list_layers(run, arena);
    c->hidden = TIDE_SERVE_NUMBER(config, 0, "hidden_size", "n_embd");
    c->heads = TIDE_SERVE_NUMBER(config, 1, "num_attention_heads", "n_head");
    c->kv_heads = TIDE_SERVE_NUMBER(config, c->heads, "num_key_value_heads");
    c->head_dim = TIDE_SERVE_NUMBER(config, c->hidden / (c->heads > 0 ? c->heads : 1), "head_dim");
    c->vocabulary = tide_serve_vocabulary(config);
    c->window = TIDE_SERVE_NUMBER(config, 0, "sliding_window");
    c->item = tide_dtype_bytes(run->job.dtype.dtype);
    c->slices_logits = true;
    bool is_known = layers && layers->count && layers->count <= LAYERS_MOST && c->hidden > 0 && c->vocabulary > 0 &&
                    c->kv_heads > 0 && c->head_dim > 0;
    if (is_known && group_layers(c, layers)) return true;
    refuse_generation(run, "/model", unknown, "engine=vllm, or mode=infer for generate()");
    return false;
}

/* ---- settings: initialization.py ---- */

static void resolve_settings(paged_start *s) {
    const tide_job *job = &s->run->job;
    tide_paged_cache *c = s->cache;
    bool has_window = false, is_flash = job->auto_switch_to_flash;
    for (uint32_t i = 0; i < c->group_count; i++) has_window |= c->groups[i].slides;
    c->has_masks = !is_flash;
    c->page_size = job->page_size ? job->page_size : PAGE_SIZE;
    c->max_batch_tokens = job->max_batch_tokens ? job->max_batch_tokens : MAX_BATCH_TOKENS;
    c->max_requests_per_batch = job->max_requests_per_batch ? job->max_requests_per_batch : REQUESTS_PER_BATCH;
    int64_t blocks =
        tide_job_sets(job, TIDE_SET_max_blocks_per_request) ? job->max_blocks_per_request : BLOCKS_PER_REQUEST;
    c->max_blocks_per_request = is_flash && !has_window ? blocks : 0;
    bool is_async = tide_job_sets(job, TIDE_SET_use_async_batching) ? job->use_async_batching : is_flash;
    c->inputs = is_async ? 2 : 1;
    c->output_rows = job->return_logprobs ? 2 : 1;
}

/* ---- what stays on the device ---- */

static paged_inputs make_inputs(paged_start *s) {
    const tide_paged_cache *c = s->cache;
    tide_machine *m = &s->model->machine;
    int64_t tokens = c->max_batch_tokens, requests = c->max_requests_per_batch, groups = c->group_count;
    tide_dtype dtype = s->run->job.dtype.dtype;
    paged_inputs made = {0};
    m->op = "ContinuousBatchingIOs";
    m->state.factor = TIDE_FACTOR_BUFFER;
    made.bulk = TIDE_EMPTY(m, TIDE_INT32, 7, TIDE_ROUND_UP(tokens + 1, COLUMNS));
    made.output_ids = TIDE_EMPTY(m, TIDE_INT32, c->output_rows, tokens + 1);
    for (uint32_t i = 0; c->has_masks && i < c->group_count; i++)
        made.masks[i] = TIDE_EMPTY(m, dtype, 1, 1, tokens, c->readable + tokens);
    made.block_table =
        TIDE_EMPTY(m, TIDE_INT32, c->max_blocks_per_request ? groups : 0, requests, c->max_blocks_per_request);
    made.write_index = TIDE_EMPTY(m, TIDE_INT64, groups, tokens);
    made.read_index = TIDE_EMPTY(m, TIDE_INT64, groups, c->readable + tokens);
    m->state.factor = TIDE_FACTOR_TEMPORARY;
    return made;
}

/* _create_batch_processor */
static void make_processor(paged_start *s) {
    tide_paged_cache *c = s->cache;
    tide_machine *m = &s->model->machine;
    m->op = "PagedAttentionCache";
    m->state.factor = TIDE_FACTOR_KV_CACHE;
    TIDE_EMPTY(m, TIDE_UINT8, (c->sectors + 2) * c->sector_bytes);
    m->state.factor = TIDE_FACTOR_TEMPORARY;
    m->op = "set_tp_seed";
    tide_alloc_and_free(m, sizeof(int64_t));
    c->max_requests_per_batch = s->run->figures.max_num_seqs; /* update_cb_config_after_cache_creation */
    for (int64_t i = 0; i < c->inputs; i++) {
        paged_inputs made = make_inputs(s);
        if (!i) s->inputs = made;
    }
    tide_timeline_mark(&m->timeline, 1, TIDE_PHASE_LOAD);
}

/* ---- the largest batch: run_one_warmup of max_batch_tokens beside all that the cache holds then ---- */

static tide_tensor *view_into(tide_machine *m, const tide_tensor *of, int dims, const int64_t *sizes,
                              const int64_t *strides) {
    tide_shape shape = {.dims = (uint8_t)dims};
    for (int i = 0; i < dims; i++) shape.dim[i] = (tide_dim){sizes[i], 0};
    return tide_view_as(m, of, tide_layout_of(m, &shape, strides));
}

/* prepare_batch_tensors: each list is converted to a temporary tensor and copied to the permanent one. */
static void prepare_batch(paged_start *s, int64_t tokens, int64_t past) {
    const tide_paged_cache *c = s->cache;
    tide_machine *m = &s->model->machine;
    int64_t item = c->item, sequences = c->max_requests_per_batch < tokens ? c->max_requests_per_batch : tokens;
    m->op = "prepare_batch_tensors";
    for (uint32_t i = 0; c->has_masks && i < c->group_count; i++) {
        if (!c->groups[i].slides || c->window <= 1) continue;
        int64_t keys = tokens + (past < c->window - 1 ? past : c->window - 1);
        tide_tensor *full = tide_scratch(m, tokens * keys * item);
        tide_alloc_and_free(m, tokens * keys * item); /* torch.tril */
        tide_release(m, full);
    }
    tide_alloc_and_free(m, 4 * tokens); /* input_ids */
    tide_alloc_and_free(m, 4 * tokens); /* position_ids */
    tide_alloc_and_free(m, 4 * (sequences + 1));
    tide_alloc_and_free(m, 4); /* logits_indices */
    for (uint32_t i = 0; i < c->group_count; i++) tide_alloc_and_free(m, 4 * (sequences + 1));
    for (uint32_t i = 0; i < c->group_count; i++) {
        bool slides = c->groups[i].slides;
        int64_t read = slides && past > c->window - 1 ? c->window - 1 : past;
        tide_alloc_and_free(m, 8 * tokens);
        if (past) tide_alloc_and_free(m, 8 * (read + tokens));
    }
}

static void set_batch(paged_start *s, int64_t tokens, int64_t read) {
    const tide_paged_cache *c = s->cache;
    tide_machine *m = &s->model->machine;
    tide_model *model = &s->model->model;
    int64_t row = c->readable + c->max_batch_tokens;
    int64_t rows = c->max_requests_per_batch < tokens ? c->max_requests_per_batch : tokens;
    *tide_model_setting(model, "cache") = (tide_value){.kind = TIDE_VALUE_TEXT, .text = TIDE_TEXT("paged")};
    *tide_model_setting(model, "past_key_values") = (tide_value){.kind = TIDE_VALUE_LIST, .list = tide_list_new(m)};
    *tide_model_setting(model, "paged_read") = tide_of_int(read);
    *tide_model_setting(model, "paged_rows") = tide_of_tensor(view_into(m, s->inputs.bulk, 1, &rows, NULL));
    *tide_model_setting(model, "given_positions") =
        tide_of_tensor(view_into(m, s->inputs.bulk, 2, (int64_t[]){1, tokens}, NULL));
    for (uint32_t i = 0; i < c->group_count; i++) {
        const int64_t sizes[] = {1, 1, tokens, read + tokens},
                      strides[] = {c->max_batch_tokens * row, c->max_batch_tokens * row, row, 1};
        *tide_model_setting(model, c->groups[i].slides ? "paged_sliding_mask" : "paged_full_mask") =
            tide_of_tensor(view_into(m, s->inputs.masks[i], 4, sizes, strides));
    }
}

/* _forward_process_and_sample, greedy. */
static void run_largest_batch(paged_start *s) {
    const tide_paged_cache *c = s->cache;
    tide_machine *m = &s->model->machine;
    tide_model *model = &s->model->model;
    int64_t longest = tide_paged_longest(c), tokens = c->max_batch_tokens < longest ? c->max_batch_tokens : longest;
    int64_t read = longest - tokens, past = read < c->page_size ? read : c->page_size;
    prepare_batch(s, tokens, past);
    set_batch(s, tokens, read);
    m->state.stream = COMPUTE_STREAM;
    m->state.grad_enabled = false;
    const char *names[] = {"input_ids"};
    tide_value ids = tide_of_tensor(view_into(m, s->inputs.bulk, 2, (int64_t[]){1, tokens}, NULL));
    tide_value output = tide_model_forward(model, names, &ids, 1);
    m->module = m->statement = 0;
    const tide_value *first = output.kind == TIDE_VALUE_LIST && output.list->count ? output.list->items : &output;
    for (uint32_t i = 0; output.kind == TIDE_VALUE_LIST && i < output.list->count; i++)
        if (first->kind != TIDE_VALUE_TENSOR) first = &output.list->items[i];
    if (!m->has_failed && first->kind == TIDE_VALUE_TENSOR) {
        m->op = "logits.float";
        tide_tensor *logits = tide_to(m, first->tensor, TIDE_FP32);
        tide_value_release(m, output);
        output = tide_of_tensor(logits);
        m->op = "argmax";
        tide_value arguments[3] = {tide_of_tensor(logits), tide_of_int(-1), tide_of_bool(true)};
        tide_value_release(m, tide_op_find(TIDE_TEXT("argmax"))->run(m, arguments));
    }
    tide_value_release(m, output);
    tide_value_release(m, ids);
    m->state.stream = 0;
    tide_timeline_mark(&m->timeline, 1, TIDE_PHASE_PREFILL);
}

/* ---- the card ---- */

static const char *oom_refusal(tide_arena *arena, const tide_caching_oom *oom) {
    return tide_format(arena, "OutOfMemoryError: %s", tide_serve_oom_text(arena, oom));
}

static bool open_card(const paged_start *s, tide_player *p, tide_event_source *source,
                      const tide_replay_config *config) {
    *source = tide_timeline_events(&s->model->machine.timeline);
    return tide_player_open(p, source, config, s->run->machine.arena);
}

/* get_device_and_memory_breakdown, times max_memory_percent. */
static bool measure_available(paged_start *s, const tide_replay_config *config) {
    tide_serve_run *run = s->run;
    tide_event_source source;
    tide_player p;
    tide_timeline_empty_cache(&s->model->machine.timeline);
    s->loaded_event = s->model->machine.timeline.event_count;
    if (!open_card(s, &p, &source, config) || !tide_player_run(&p, s->loaded_event)) return false;
    run->figures.model_bytes = p.figures.allocated;
    run->figures.consumed = tide_caching_reserved(p.allocator);
    if (p.figures.is_oom) run->figures.refusal = oom_refusal(run->machine.arena, &p.figures.oom);
    tide_player_close(&p);
    uint64_t used = run->device.used_bytes + run->figures.consumed, total = run->device.total_bytes;
    int64_t percent = run->job.max_memory_percent ? run->job.max_memory_percent : TIDE_PICO / 100 * MEMORY_PERCENT;
    run->figures.available =
        used < total ? (int64_t)((double)(total - used) * ((double)percent / (double)TIDE_PICO)) : 0;
    return true;
}

static void add_part(paged_start *s, const char *name, uint64_t low, uint64_t high, const char *why) {
    tide_serve_add_buffer(s->run, &(tide_serve_buffer){name, false, (int64_t)low, (int64_t)high, why});
}

/* What the GPU holds after the manager has started, and in the largest batch. */
static bool measure_card(paged_start *s, const tide_replay_config *config) {
    tide_serve_figures *f = &s->run->figures;
    tide_event_source source;
    tide_player p;
    if (!open_card(s, &p, &source, config) || !tide_player_run(&p, s->started_event)) return false;
    uint64_t started = tide_caching_reserved(p.allocator), allocated = p.figures.allocated;
    if (p.figures.is_oom) f->refusal = oom_refusal(s->run->machine.arena, &p.figures.oom);
    tide_caching_reset_peaks(p.allocator);
    if (!f->refusal && !tide_player_run(&p, s->model->machine.timeline.event_count)) return false;
    uint64_t peak = tide_caching_stat(p.allocator, TIDE_STAT_RESERVED_BYTES, TIDE_POOL_ALL).peak;
    f->transient = tide_caching_stat(p.allocator, TIDE_STAT_ALLOCATED_BYTES, TIDE_POOL_ALL).peak - allocated;
    if (!f->refusal && p.figures.is_oom) peak += p.figures.oom.tried_bytes;
    f->started = started;
    f->reserved = peak;
    uint64_t cache = (uint64_t)((s->cache->sectors + 2) * s->cache->sector_bytes);
    bool is_flash = s->run->job.auto_switch_to_flash;
    add_part(s, "paged cache", cache, cache, NULL);
    add_part(s, "inputs", started - f->consumed - cache, started - f->consumed - cache, NULL);
    if (is_flash) peak = s->run->device.total_bytes - s->run->device.used_bytes;
    add_part(s, "forward pass", 0, peak - started,
             is_flash ? "CUDA graphs keep what their passes take, which is not played: at most all that is free"
                      : "follows the batch: the most is max_batch_tokens beside all that the cache holds");
    tide_player_close(&p);
    return true;
}

/* ---- the answer ---- */

static void describe_settings(paged_start *s) {
    tide_serve_figures *f = &s->run->figures;
    const tide_paged_cache *c = s->cache;
    f->dtype = tide_dtype_names[s->run->job.dtype.dtype];
    int64_t positions = tide_serve_derived_length(s->run->job.config, NULL);
    f->max_model_len = positions == TIDE_ENDLESS ? 0 : positions;
    f->max_num_batched_tokens = c->max_batch_tokens;
    f->max_num_seqs = c->max_requests_per_batch < c->max_batch_tokens ? c->max_requests_per_batch : c->max_batch_tokens;
}

static void describe_figures(paged_start *s) {
    tide_serve_figures *f = &s->run->figures;
    const tide_paged_cache *c = s->cache;
    int64_t longest = tide_paged_longest(c);
    if (!f->max_model_len || longest < f->max_model_len) f->max_model_len = longest;
    f->block_bytes = c->sector_bytes;
    f->num_blocks = f->blocks_at_least = f->blocks_at_most = c->sectors;
    f->blocks_per_request = tide_paged_sectors_of(c, 1, f->max_model_len);
    int64_t page_of_all = 0;
    for (uint32_t i = 0; i < c->group_count; i++) page_of_all += c->groups[i].layers * c->page_bytes;
    f->capacity_tokens = page_of_all > 0 ? c->sectors * c->sector_bytes / page_of_all * c->page_size : 0;
    for (uint32_t i = 0; i < c->group_count; i++) {
        const tide_paged_group *g = &c->groups[i];
        int64_t kept = g->slides && f->max_model_len > c->window ? c->window : f->max_model_len;
        f->groups[f->group_count++] =
            (tide_cache_group){.spec = {.kind = g->slides ? TIDE_CACHE_SLIDING : TIDE_CACHE_FULL,
                                        .block_size = c->page_size,
                                        .page_bytes = c->page_bytes,
                                        .token_bytes = c->page_bytes / c->page_size,
                                        .window = g->slides ? c->window : 0},
                               .layers = g->layers,
                               .blocks_per_request = TIDE_CEIL_DIV(kept, c->page_size)};
    }
}

static bool start_paged(paged_start *s, tide_arena *arena, tide_diagnostics *diags) {
    tide_serve_run *run = s->run;
    const tide_replay_config config = {.conf = tide_alloc_conf_default(TIDE_ALLOC_TORCH_MAIN),
                                       .device_bytes = run->device.total_bytes,
                                       .outside_bytes = run->device.used_bytes,
                                       .keeps_statistics = true};
    if (!describe_cache(s, arena) || !tide_load(s->model, &run->job, arena, diags)) return false;
    resolve_settings(s);
    for (uint32_t i = 0; i < s->model->model.parameter_count; i++)
        run->figures.weight_bytes += (uint64_t)tide_bytes(s->model->model.parameters[i].tensor);
    describe_settings(s);
    if (s->cache->page_size < LEAST_PAGE)
        return tide_error(diags, TIDE_ERR_FIELD_RANGE, "/settings/page_size",
                          tide_format(arena, "page_size must be at least %d but got cb_config.page_size = %" PRId64,
                                      LEAST_PAGE, s->cache->page_size),
                          NULL);
    if (!measure_available(s, &config)) return false;
    add_part(s, "weights", run->figures.consumed, run->figures.consumed, NULL);
    if (run->figures.refusal) return true;
    run->figures.refusal = tide_paged_size(s->cache, run->figures.available, run->job.num_blocks, arena);
    if (run->figures.refusal) return true;
    describe_figures(s);
    make_processor(s);
    s->started_event = s->model->machine.timeline.event_count;
    if (s->cache->has_masks) run_largest_batch(s);
    return !s->model->machine.has_failed && measure_card(s, &config);
}

static bool start_transformers(tide_serve_run *run, const tide_job *job, const tide_serve_device *device,
                               tide_arena *arena, tide_diagnostics *diags) {
    paged_start s = {.run = run, .model = TIDE_NEW(arena, tide_run, 1), .cache = TIDE_NEW(arena, tide_paged_cache, 1)};
    run->device = *device;
    run->paged = s.cache;
    tide_machine_init(&run->machine, arena, diags);
    if (!read_generation(run, job) || !start_paged(&s, arena, diags)) return false;
    run->machine = s.model->machine;
    run->model = s.model->model;
    run->descriptions = s.model->descriptions;
    run->parameters = s.model->parameters;
    return true;
}

static int64_t transformers_blocks_of(const tide_serve_run *run, int64_t requests, int64_t tokens) {
    return tide_paged_sectors_of(run->paged, requests, tokens);
}

const tide_engine tide_transformers_engine = {.title = "transformers 5.23.0 on PyTorch 2.15, continuous batching",
                                              .start = start_transformers,
                                              .blocks_of = transformers_blocks_of,
                                              .length = "max_position_embeddings",
                                              .requests = "max_requests_per_batch",
                                              .tokens = "max_batch_tokens"};
