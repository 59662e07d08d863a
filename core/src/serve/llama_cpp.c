/* SPDX-License-Identifier: Apache-2.0 */
/* llama-server of llama.cpp on one CUDA GPU: the placement of tensors, its caches and its buffers. src/llama-model.cpp
 * (load_tensors, create_memory), src/llama-context.cpp, src/llama-kv-cache.cpp, src/llama-kv-cache-iswa.cpp,
 * src/llama-memory-recurrent.cpp, ggml/src/ggml-cuda/ggml-cuda.cu. */
#include <inttypes.h>
#include <string.h>

#include "base/regex.h"
#include "base/units.h"
#include "serve/llama.h"

enum {
    CUDA_ALIGNMENT = 128, /* ggml_backend_cuda_buffer_type_get_alignment */
    ROW_PADDING = 512,    /* MATRIX_ROW_PADDING, ggml-cuda/common.cuh */
    CONTEXT_ALIGN = 256,  /* of n_ctx and windows: llama-context.cpp, llama-kv-cache-iswa.cpp */
    FLASH_COLUMNS = 64,   /* of a block of attention: ggml-cuda/fattn-mma-f16.cuh */
    AUTO_PARALLEL = 4     /* tools/server/server.cpp, without -np */
};

/* llama_cparams, as derived from the arguments. */
typedef struct llama_context {
    tide_serve_run *run;
    tide_llama llama;
    int64_t n_ctx, n_ctx_seq, n_seq_max, n_batch, n_ubatch;
    bool is_unified;
    int64_t first_on_gpu; /* layers from here on are; block_count: only the output */
    bool output_on_gpu;
    const tide_ggml_type *type_k, *type_v;
} llama_context;

static int64_t lesser(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int64_t greater(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* ---- settings ---- */

/* llama_context::llama_context. */
static void size_context(llama_context *c) {
    const tide_job *job = &c->run->job;
    bool is_auto = !job->n_parallel;
    c->n_seq_max = is_auto ? AUTO_PARALLEL : job->n_parallel;
    c->is_unified = tide_job_sets(job, TIDE_SET_kv_unified) ? job->kv_unified : is_auto;
    c->n_ctx = job->ctx_size ? job->ctx_size : c->llama.context;
    c->n_batch = lesser(c->n_ctx, job->n_batch);
    c->n_ubatch = lesser(c->n_batch, job->n_ubatch);
    c->n_ctx = TIDE_ROUND_UP(c->n_ctx, CONTEXT_ALIGN);
    c->n_ctx_seq = c->n_ctx;
    if (c->is_unified) return;
    c->n_ctx_seq = TIDE_ROUND_UP(c->n_ctx / c->n_seq_max, CONTEXT_ALIGN);
    c->n_ctx = c->n_ctx_seq * c->n_seq_max;
}

/* llama_model::load_tensors, i_gpu_start. */
static void place_layers(llama_context *c) {
    const tide_job *job = &c->run->job;
    int64_t layers = c->llama.layer_count;
    int64_t on_gpu = tide_job_sets(job, TIDE_SET_n_gpu_layers) ? job->n_gpu_layers : layers + 1;
    c->first_on_gpu = greater(layers + 1 - on_gpu, 0);
    c->output_on_gpu = on_gpu > 0;
}

static bool refuse_setting(const llama_context *c, const char *name, const char *message, const char *remedy) {
    return tide_error(c->run->machine.diags, TIDE_ERR_CONFLICT,
                      tide_format(c->run->machine.arena, "/settings/%s", name), message, remedy);
}

/* llama_init_from_model: a head must consist of whole blocks. */
static bool divides(const llama_context *c, const tide_ggml_type *type, bool is_key) {
    for (int64_t i = 0; i < c->llama.layer_count; i++) {
        const tide_llama_layer *layer = &c->llama.layers[i];
        int64_t length = is_key ? layer->key_length : layer->value_length;
        if (!layer->has_keys || length % type->block_elements == 0) continue;
        return refuse_setting(
            c, is_key ? "cache_type_k" : "cache_type_v",
            tide_format(c->run->machine.arena,
                        "%s cache type %s with block size %" PRId64 " does not divide n_embd_head_%s=%" PRId64,
                        is_key ? "K" : "V", type->name, type->block_elements, is_key ? "k" : "v", length),
            "take f16");
    }
    return true;
}

static bool read_types(llama_context *c) {
    const tide_job *job = &c->run->job;
    c->type_k = tide_ggml_type_named(tide_text_of(job->values[TIDE_SET_cache_type_k]));
    c->type_v = tide_ggml_type_named(tide_text_of(job->values[TIDE_SET_cache_type_v]));
    if (!c->type_k || !c->type_v) return refuse_setting(c, "cache_type_k", "is no type of ggml", NULL);
    if (job->flash_attn == TIDE_flash_attn_off && c->type_v->block_elements > 1)
        return refuse_setting(c, "cache_type_v", "quantized V cache was requested, but this requires Flash Attention",
                              "take flash_attn=on");
    return divides(c, c->type_k, true) && divides(c, c->type_v, false);
}

/* ---- weights ---- */

enum { BUFFERS_MOST = 8, ON_GPU = 1, ON_HOST = 0, BAD_PLACE = -1 };

/* --n-cpu-moe N: the experts of the first N layers (common/arg.cpp, LLM_FFN_EXPS_REGEX). */
static bool is_expert(const tide_llama_tensor *t) {
    static const char *const names[] = {".ffn_up_exps",   ".ffn_down_exps",   ".ffn_gate_exps",  ".ffn_gate_up_exps",
                                        ".ffn_up_chexps", ".ffn_down_chexps", ".ffn_gate_chexps"};
    for (size_t i = 0; i < TIDE_COUNT_OF(names); i++)
        if (tide_text_contains(t->name, tide_text_of(names[i]))) return true;
    return false;
}

/* -ot PATTERN=BUFFER,...: std::regex_search in the name; the first match wins. BAD_PLACE after an error. */
static int overridden(const llama_context *c, const tide_llama_tensor *t, int otherwise) {
    tide_text rest = tide_text_of(c->run->job.override_tensor), piece;
    tide_arena *arena = c->run->machine.arena;
    while (rest.length && tide_piece_next(&rest, ',', &piece)) {
        tide_text place = piece, pattern = piece;
        while (place.length && memchr(place.at, '=', place.length)) place.at++, place.length--;
        if (place.length == piece.length) {
            refuse_setting(c, "override_tensor", "is no PATTERN=BUFFER", "as exps=CPU");
            return BAD_PLACE;
        }
        pattern.length -= place.length + 1;
        bool is_gpu = tide_text_is(place, "CUDA0"), is_host = tide_text_is(place, "CPU");
        const char *search = tide_format(arena, ".*(?:%.*s).*", (int)pattern.length, pattern.at);
        tide_match match = tide_regex_covers(tide_text_of(search), t->name);
        if (match == TIDE_MATCH_WRONG || (!is_gpu && !is_host)) {
            refuse_setting(c, "override_tensor",
                           match == TIDE_MATCH_WRONG ? "holds a pattern that is not understood"
                                                     : "names another buffer than CPU and CUDA0",
                           "as exps=CPU");
            return BAD_PLACE;
        }
        if (match == TIDE_MATCH_YES) return is_gpu ? ON_GPU : ON_HOST;
    }
    return otherwise;
}

/* llm_tensor_info_for: tensors outside of layers belong to the input or to the output. */
static bool is_of_input(const tide_llama_tensor *t) {
    static const char *const names[] = {"token_embd.weight", "position_embd.weight", "token_types.weight",
                                        "per_layer_token_embd.weight"};
    for (size_t i = 0; i < TIDE_COUNT_OF(names); i++)
        if (tide_text_is(t->name, names[i])) return true;
    return false;
}

static int place_of(const llama_context *c, const tide_llama_tensor *t) {
    bool is_first = t->layer == 0 || tide_text_starts(t->name, TIDE_TEXT("rope_")) ||
                    tide_text_starts(t->name, TIDE_TEXT("token_embd_norm")); /* on devices that have layers */
    int place = t->layer > 0     ? t->layer >= c->first_on_gpu
                : is_of_input(t) ? ON_HOST
                : is_first       ? c->first_on_gpu == 0
                                 : c->output_on_gpu;
    if (t->layer >= 0 && t->layer < c->run->job.n_cpu_moe && is_expert(t)) place = ON_HOST;
    return overridden(c, t, place);
}

/* ggml_backend_cuda_buffer_type_get_alloc_size, ggml_tallocr_alloc. */
static int64_t bytes_on_gpu(const tide_llama_tensor *t) {
    int64_t bytes = t->bytes, part = t->columns % ROW_PADDING;
    if (t->type->block_elements > 1 && part)
        bytes += TIDE_CEIL_DIV(ROW_PADDING - part, t->type->block_elements) * t->type->block_bytes;
    return TIDE_ROUND_UP(bytes, CUDA_ALIGNMENT);
}

typedef struct llama_placed {
    int64_t on_gpu, on_host, drafting; /* drafting: in layers that are only loaded for drafting */
    const tide_llama_tensor *largest;  /* on the GPU */
    int64_t layers_on_host;            /* the largest tensor of a layer on the host; 0: none */
} llama_placed;

static bool place_tensors(const llama_context *c, llama_placed *p) {
    const tide_llama *llama = &c->llama;
    bool is_tied = !tide_llama_find(llama, "output.weight");
    for (uint32_t i = 0; i < llama->tensor_count; i++) {
        const tide_llama_tensor *t = &llama->tensors[i];
        int place = place_of(c, t);
        if (place == BAD_PLACE) return false;
        bool is_drafting = t->layer >= llama->layer_count - llama->drafting;
        bool is_output_too = is_tied && tide_text_is(t->name, "token_embd.weight") && c->output_on_gpu;
        if (t->layer >= llama->layer_count)
            return tide_error(c->run->machine.diags, TIDE_ERR_FILE, "/config.json", "has a tensor of no layer", NULL);
        if (is_drafting)
            p->drafting += place == ON_GPU ? bytes_on_gpu(t) : 0;
        else if (place == ON_GPU)
            p->on_gpu += bytes_on_gpu(t);
        else
            p->on_host += t->bytes;
        if (is_output_too && place == ON_HOST) p->on_gpu += bytes_on_gpu(t); /* TENSOR_DUPLICATED */
        /* rope factors: a copy on each device that has layers */
        if (place == ON_HOST && t->layer < 0 && tide_text_starts(t->name, TIDE_TEXT("rope_")) &&
            c->first_on_gpu < llama->layer_count)
            p->on_gpu += bytes_on_gpu(t);
        c->run->parameters += t->count;
        c->run->figures.weight_bytes += (uint64_t)t->bytes;
        if (place == ON_HOST && t->layer >= 0) p->layers_on_host = greater(p->layers_on_host, t->bytes);
        if ((place == ON_GPU || is_output_too) && (!p->largest || t->rows > p->largest->rows)) p->largest = t;
    }
    return true;
}

/* ---- llama_caches ---- */

static int64_t row_bytes(const tide_ggml_type *type, int64_t columns) {
    return columns / type->block_elements * type->block_bytes;
}

typedef struct llama_caches {
    int64_t on_gpu, on_host, states_on_gpu, states_on_host;
    int64_t full_layers, window_layers, state_layers, window_cells, cell_bytes, window_cell_bytes;
} llama_caches;

/* -fa auto: used if the GPU has a kernel for every layer, else in none. */
static bool has_flash_attention(const llama_context *c) {
    static const int64_t lengths[] = {40, 64, 72, 80, 96, 112, 128, 256, 512, 576}; /* ggml-cuda/fattn.cu */
    if (c->run->job.flash_attn != TIDE_flash_attn_auto) return c->run->job.flash_attn == TIDE_flash_attn_on;
    for (int64_t i = c->first_on_gpu; i < c->llama.layer_count; i++) {
        bool has_kernel = !c->llama.layers[i].has_keys;
        for (size_t k = 0; k < TIDE_COUNT_OF(lengths); k++)
            has_kernel = has_kernel || c->llama.layers[i].key_length == lengths[k];
        if (!has_kernel) return false;
    }
    return c->run->device.capability >= 70;
}

/* Without flash attention, V of every layer is as wide as the widest: [TAG_V_CACHE_VARIABLE]. */
static int64_t widest_value(const llama_context *c) {
    int64_t widest = 0;
    for (int64_t i = 0; i < c->llama.layer_count; i++)
        widest = greater(widest, c->llama.layers[i].value_length * c->llama.layers[i].kv_heads);
    return widest;
}

/* K and V of one cell in a layer. */
static int64_t cell_bytes(const llama_context *c, const tide_llama_layer *layer) {
    bool is_off = !has_flash_attention(c);
    int64_t value = is_off ? widest_value(c) : layer->value_length * layer->kv_heads;
    return row_bytes(c->type_k, layer->key_length * layer->kv_heads) +
           (c->llama.is_latent ? 0 : row_bytes(c->type_v, value));
}

static llama_caches size_caches(const llama_context *c) {
    const tide_llama *llama = &c->llama;
    const tide_job *job = &c->run->job;
    int64_t streams = c->is_unified ? 1 : c->n_seq_max;
    int64_t window = llama->window * (c->is_unified ? c->n_seq_max : 1) + c->n_ubatch;
    llama_caches k = {.window_cells =
                          job->swa_full ? c->n_ctx_seq : TIDE_ROUND_UP(lesser(c->n_ctx_seq, window), CONTEXT_ALIGN)};
    for (int64_t i = 0; i < llama->layer_count; i++) {
        const tide_llama_layer *layer = &llama->layers[i];
        bool is_on_gpu = i >= c->first_on_gpu && !job->no_kv_offload;
        if (layer->has_keys) {
            int64_t cell = cell_bytes(c, layer), cells = layer->has_window ? k.window_cells : c->n_ctx_seq;
            *(is_on_gpu ? &k.on_gpu : &k.on_host) += cell * cells * streams;
            *(layer->has_window ? &k.window_layers : &k.full_layers) += 1;
            *(layer->has_window ? &k.window_cell_bytes : &k.cell_bytes) = cell;
        }
        if (layer->has_state) { /* in F32 */
            int64_t bytes = TIDE_ROUND_UP(4 * llama->conv_state * c->n_seq_max, CUDA_ALIGNMENT) +
                            TIDE_ROUND_UP(4 * llama->state * c->n_seq_max, CUDA_ALIGNMENT);
            *(is_on_gpu ? &k.states_on_gpu : &k.states_on_host) += bytes;
            k.state_layers++;
        }
    }
    return k;
}

static void add_group(llama_context *c, tide_cache_kind kind, int64_t layers, int64_t cells, int64_t bytes) {
    tide_serve_figures *f = &c->run->figures;
    if (!layers) return;
    f->groups[f->group_count++] = (tide_cache_group){
        .spec = {.kind = kind, .block_size = 1, .page_bytes = bytes, .token_bytes = bytes, .window = cells},
        .layers = layers,
        .blocks_per_request = cells};
}

static void describe_caches(llama_context *c, const llama_caches *k) {
    const tide_llama *llama = &c->llama;
    tide_serve_figures *f = &c->run->figures;
    add_group(c, llama->is_latent ? TIDE_CACHE_LATENT : TIDE_CACHE_FULL, k->full_layers, c->n_ctx_seq, k->cell_bytes);
    add_group(c, llama->arch->cache == TIDE_LLAMA_CHUNK ? TIDE_CACHE_CHUNKED : TIDE_CACHE_SLIDING, k->window_layers,
              k->window_cells, k->window_cell_bytes);
    add_group(c, TIDE_CACHE_STATE, k->state_layers, 1, 4 * (llama->conv_state + llama->state));
    f->max_model_len = c->n_ctx_seq;
    f->max_num_seqs = c->n_seq_max;
    f->max_num_batched_tokens = c->n_ubatch;
    f->num_blocks = c->is_unified ? c->n_ctx : c->n_seq_max;
    f->blocks_at_least = f->blocks_at_most = f->num_blocks;
    f->blocks_per_request = c->is_unified ? c->n_ctx_seq : 1;
    f->block_bytes = (k->on_gpu + k->on_host) / greater(f->num_blocks, 1);
    f->capacity_tokens = c->n_ctx;
    f->available = k->on_gpu + k->states_on_gpu;
}

/* Cells that a request holds in the cache of all slots, or its slot. */
static int64_t llama_blocks_of(const tide_serve_run *run, int64_t requests, int64_t tokens) {
    bool is_unified = run->figures.num_blocks != run->figures.max_num_seqs || run->figures.blocks_per_request > 1;
    return tide_serve_each(requests, is_unified ? tokens : 1);
}

/* ---- the compute buffer ---- */

typedef struct llama_widths {
    int64_t attention, keys, feed_forward, experts, state,
        heads;     /* largest values of any layer, in elements per token */
    int64_t cells; /* of the largest cache */
} llama_widths;

static llama_widths widest(const llama_context *c) {
    const tide_llama *llama = &c->llama;
    llama_widths w = {.cells = c->n_ctx_seq * (c->is_unified ? 1 : c->n_seq_max)};
    for (int64_t i = 0; i < llama->layer_count; i++) {
        const tide_llama_layer *layer = &llama->layers[i];
        if (layer->has_keys) {
            w.attention = greater(w.attention, layer->heads * greater(layer->key_length, layer->value_length));
            w.keys = greater(w.keys, layer->kv_heads * (layer->key_length + layer->value_length));
            w.heads = greater(w.heads, layer->heads);
        }
        w.feed_forward = greater(w.feed_forward, layer->feed_forward);
        if (layer->has_state) w.state = llama->state + llama->conv_state;
    }
    w.experts = llama->experts_used * (llama->expert_length ? llama->expert_length : w.feed_forward);
    if (!llama->experts) w.experts = 0;
    return w;
}

/* At least what is alive at once: the residual stream with both halves of a gated feed-forward in F32, or the logits.
 * The allocator (ggml/src/ggml-alloc.c) places tensors by lifetime, so it cannot take less. At most all tensors of a
 * layer side by side, the masks, attention's keys and values in F16, and the head. */
static tide_serve_buffer compute_buffer(const llama_context *c, const llama_placed *p) {
    const tide_llama *llama = &c->llama;
    llama_widths w = widest(c);
    int64_t tokens = TIDE_ROUND_UP(c->n_ubatch, c->n_seq_max), outputs = lesser(c->n_ubatch, c->n_seq_max);
    int64_t hidden = llama->embedding, wide = greater(w.feed_forward * !w.experts, w.experts);
    int64_t seen = w.cells / (c->is_unified ? 1 : c->n_seq_max), head = 4 * outputs * llama->vocabulary;
    int64_t low = p->layers_on_host ? 0 : 4 * tokens * (hidden + wide);
    int64_t layer = 4 * tokens *
                    (10 * hidden + 5 * w.attention + 4 * w.keys + 4 * greater(w.feed_forward, 1) + 4 * w.experts +
                     2 * llama->experts_used * hidden + 8 * llama->experts);
    int64_t masks = 6 * tokens * seen * (llama->window ? 2 : 1);
    int64_t attention = has_flash_attention(c) ? 0 : 12 * w.heads * tokens * seen;
    bool is_f16 = tide_text_is(tide_text_of(c->type_k->name), "F16") && c->type_v == c->type_k;
    int64_t halves = is_f16 ? 0 : 2 * w.cells * w.keys;
    int64_t states = w.state ? 4 * (12 * tokens * 4 * hidden + 6 * c->n_seq_max * w.state) : 0;
    return (tide_serve_buffer){.name = "compute buffer",
                               .low = greater(low, c->output_on_gpu ? head : 0),
                               .high = 2 * p->layers_on_host + layer + masks + attention + halves + states + head +
                                       8 * outputs * hidden + (INT64_C(8) << 20),
                               .why =
                                   "ggml places what a layer makes by lifetime, with the GPU's kernels for attention"};
}

static int64_t widest_value_length(const llama_context *c) {
    int64_t widest = 0;
    for (int64_t i = 0; i < c->llama.layer_count; i++) widest = greater(widest, c->llama.layers[i].value_length);
    return widest;
}

/* ggml_cuda_pool: temporary memory of kernels. mmq.cu quantises activations, cuBLAS takes them in F16; without integer
 * tensor cores (capability below 7.5) weights too. */
static tide_serve_buffer kernel_pool(const llama_context *c, const llama_placed *p) {
    const tide_llama_tensor *t = p->largest;
    if (!t) return (tide_serve_buffer){.name = "pool of kernels"};
    int64_t tokens = c->n_ubatch * greater(c->llama.experts_used, 1);
    bool is_dequantised = c->run->device.capability < 75 && t->type->block_elements > 1;
    int64_t high = 4 * tokens * (t->columns + c->llama.embedding) + (is_dequantised ? 2 * t->columns * t->rows : 0);
    high += 8 * FLASH_COLUMNS * (int64_t)c->run->device.sms *
            (widest_value_length(c) + 4); /* partial results of attention */
    if (!tide_text_contains(t->name, TIDE_TEXT("_exps"))) high += 2 * lesser(c->n_seq_max, tokens) * t->rows;
    return (tide_serve_buffer){.name = "pool of kernels",
                               .high = high + (INT64_C(40) << 20), /* including cuBLAS's workspace */
                               .why = "grows with the largest product that a kernel quantises or converts for"};
}

/* ---- the start_llama_cpp ---- */

static void add_exact(llama_context *c, const char *name, bool is_on_host, int64_t bytes) {
    tide_serve_add_buffer(c->run, &(tide_serve_buffer){name, is_on_host, bytes, bytes, NULL});
}

static void add_buffers(llama_context *c, const llama_placed *p, const llama_caches *k) {
    tide_serve_figures *f = &c->run->figures;
    tide_serve_buffer compute = compute_buffer(c, p), pool = kernel_pool(c, p);
    tide_serve_add_buffer(c->run, &(tide_serve_buffer){"CUDA0 model buffer", false, p->on_gpu, p->on_gpu + p->drafting,
                                                       p->drafting ? "layers that draft may be loaded" : NULL});
    add_exact(c, "CUDA0 KV buffer", false, k->on_gpu);
    add_exact(c, "CUDA0 RS buffer", false, k->states_on_gpu);
    tide_serve_add_buffer(c->run, &compute);
    tide_serve_add_buffer(c->run, &pool);
    add_exact(c, "CPU_Mapped model buffer", true, p->on_host);
    add_exact(c, "CPU KV buffer", true, k->on_host);
    add_exact(c, "CPU RS buffer", true, k->states_on_host);
    add_exact(c, "output buffer", true, 4 * c->n_seq_max * c->llama.vocabulary);
    f->model_bytes = (uint64_t)p->on_gpu;
    f->consumed = (uint64_t)p->on_gpu;
    f->transient = (uint64_t)(compute.high + pool.high);
}

static void refuse_card(llama_context *c) {
    tide_serve_run *run = c->run;
    uint64_t low = (uint64_t)tide_serve_buffers_low(run) + run->device.used_bytes;
    if (low <= run->device.total_bytes) return;
    run->figures.refusal =
        tide_format(run->machine.arena, "cudaMalloc failed: out of memory. At least %s are allocated, %s are there.",
                    tide_gib(run->machine.arena, low), tide_gib(run->machine.arena, run->device.total_bytes));
}

static bool start_llama_cpp(tide_serve_run *run, const tide_job *job, const tide_serve_device *device,
                            tide_arena *arena, tide_diagnostics *diags) {
    llama_context c = {.run = run};
    llama_placed p = {0};
    run->job = *job;
    run->device = *device;
    tide_machine_init(&run->machine, arena, diags);
    tide_descriptions_init(&run->descriptions, arena, diags, NULL, run);
    tide_model_init(&run->model, &run->machine, &run->descriptions);
    bool is_file = tide_json_at(job->config, "gguf") != NULL;
    const tide_json *header = is_file ? job->config : tide_llama_convert(job, arena, diags);
    if (!header || !tide_llama_read(&c.llama, header, arena, diags)) return false;
    run->architecture = c.llama.name;
    if (!job->ctx_size && !c.llama.context)
        return tide_error(diags, TIDE_ERR_FIELD_MISSING, "/settings/ctx_size",
                          "the model does not say its llama_context", "give ctx_size");
    size_context(&c);
    place_layers(&c);
    if (!read_types(&c) || !place_tensors(&c, &p)) return false;
    llama_caches k = size_caches(&c);
    run->figures.dtype = !is_file ? job->values[TIDE_SET_ftype] : p.largest ? p.largest->type->name : "F16";
    describe_caches(&c, &k);
    add_buffers(&c, &p, &k);
    tide_serve_play_buffers(run);
    refuse_card(&c);
    return true;
}

const tide_engine tide_llama_cpp_engine = {.title = "llama-server of llama.cpp b11549",
                                           .start = start_llama_cpp,
                                           .blocks_of = llama_blocks_of,
                                           .length = "n_ctx_seq",
                                           .requests = "n_parallel",
                                           .tokens = "n_ubatch"};
