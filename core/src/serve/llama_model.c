/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a GGUF model's header: llama_model_base::load_hparams in src/llama-model.cpp, load_arch_hparams in
 * src/models, src/llama-hparams.cpp of llama.cpp. */
#include <string.h>

#include "base/checked.h"
#include "base/units.h"
#include "serve/llama.h"

static const tide_llama_arch archs[] = {
#define LLAMA_ARCH(name, cache, every, window) {name, TIDE_LLAMA_##cache, every, window},
#include "serve/llama_arch.def"
#undef LLAMA_ARCH
};

/* Far above any model, yet so small that products of them do not overflow. */
enum {
    NUMBER_MOST = 1 << 28,
    HEADS_MOST = 1 << 12,
    LENGTH_MOST = 1 << 10,
    WIDTH_MOST = 1 << 22,
    EXPERTS_MOST = 1 << 10,
    STATE_MOST = 1 << 16
};

static const tide_json *metadata_at(const tide_llama *llama, const char *key, tide_arena *arena) {
    return tide_json_at(llama->metadata, tide_format(arena, "%.*s.%s", (int)llama->name.length, llama->name.at, key));
}

static int64_t llama_number_of(const tide_json *found, int64_t otherwise) {
    bool is_number = found && found->kind == TIDE_JSON_NUMBER && found->is_integer;
    return is_number && found->integer >= 0 && found->integer <= NUMBER_MOST ? found->integer : otherwise;
}

int64_t tide_llama_number(const tide_llama *llama, const char *key, int64_t otherwise, tide_arena *arena) {
    return llama_number_of(metadata_at(llama, key, arena), otherwise);
}

/* A key with one number for all layers, or a number for each. */
static int64_t number_of_layer(const tide_json *found, int64_t layer, int64_t otherwise) {
    if (!found || found->kind != TIDE_JSON_ARRAY) return llama_number_of(found, otherwise);
    const tide_json *entry = found->first;
    while (entry && layer-- > 0) entry = entry->next;
    return llama_number_of(entry, otherwise);
}

const tide_llama_tensor *tide_llama_find(const tide_llama *llama, const char *name) {
    for (uint32_t i = 0; i < llama->tensor_count; i++)
        if (tide_text_is(llama->tensors[i].name, name)) return &llama->tensors[i];
    return NULL;
}

/* ---- tensors ---- */

static bool refuse_gguf(tide_diagnostics *diags, const char *message) {
    return tide_error(diags, TIDE_ERR_FILE, "/config.json", message, "is the download complete? Fetch the file again");
}

static int64_t llama_layer_of(tide_text name) {
    int64_t layer = 0;
    size_t i = sizeof "blk." - 1;
    if (!tide_text_starts(name, TIDE_TEXT("blk."))) return -1;
    for (; i < name.length && name.at[i] >= '0' && name.at[i] <= '9' && layer < TIDE_LLAMA_LAYERS_MOST; i++)
        layer = layer * 10 + (name.at[i] - '0');
    return layer;
}

static bool read_llama_tensor(tide_llama_tensor *t, const tide_json *entry) {
    const tide_json *type = entry->kind == TIDE_JSON_ARRAY ? entry->first : NULL;
    *t = (tide_llama_tensor){
        .name = entry->key, .columns = 1, .rows = 1, .count = 1, .layer = llama_layer_of(entry->key)};
    if (!tide_json_is(type, TIDE_JSON_STRING) || entry->count > 1 + TIDE_GGUF_DIMS) return false;
    t->type = tide_ggml_type_named(type->text);
    for (const tide_json *size = type->next; size; size = size->next) {
        if (size->kind != TIDE_JSON_NUMBER || !size->is_integer || size->integer < 0 ||
            !tide_mul_i64(&t->count, t->count, size->integer))
            return false;
        if (size == type->next)
            t->columns = size->integer;
        else if (!tide_mul_i64(&t->rows, t->rows, size->integer))
            return false;
    }
    return t->type && tide_ggml_bytes(&t->bytes, t->type, t->columns, t->count);
}

static bool read_llama_tensors(tide_llama *llama, const tide_json *tensors, tide_arena *arena,
                               tide_diagnostics *diags) {
    int64_t sum = 0;
    if (!tide_json_is(tensors, TIDE_JSON_OBJECT)) return refuse_gguf(diags, "has no tensors");
    llama->tensors = TIDE_NEW(arena, tide_llama_tensor, tensors->count + 1);
    for (const tide_json *entry = tensors->first; entry; entry = entry->next) {
        tide_llama_tensor *t = &llama->tensors[llama->tensor_count];
        if (!read_llama_tensor(t, entry) || !tide_add_i64(&sum, sum, t->bytes) || sum > INT64_C(1) << 53)
            return refuse_gguf(diags,
                               tide_format(arena, "%s is no tensor of a GGUF file", tide_shown(arena, entry->key)));
        llama->tensor_count++;
    }
    return true;
}

/* ---- layers ---- */

static bool llama_has_window(const tide_llama *llama, const tide_json *pattern, int64_t layer) {
    int64_t every = llama_number_of(pattern, llama->arch->every);
    if (!llama->window || layer >= llama->layer_count - llama->drafting) return false;
    if (pattern && pattern->kind == TIDE_JSON_ARRAY) {
        const tide_json *entry = pattern->first;
        for (int64_t i = layer; entry && i > 0; i--) entry = entry->next;
        return entry && (entry->is_true || llama_number_of(entry, 0) != 0);
    }
    if (!every) return true;
    return llama->arch->cache == TIDE_LLAMA_WINDOW_1 ? layer % every != 0 : layer % every < every - 1;
}

static bool llama_has_state(const tide_llama *llama, const tide_llama_layer *layer, int64_t number, tide_arena *arena) {
    int64_t every = tide_llama_number(llama, "full_attention_interval", 4, arena);
    switch (llama->arch->cache) {
    case TIDE_LLAMA_STATE:
    case TIDE_LLAMA_BOTH:
        return true;
    case TIDE_LLAMA_MIXED: /* nemotron-h.cpp: a layer with neither has only a feed-forward */
        return !layer->kv_heads && !(tide_text_starts(llama->name, TIDE_TEXT("nemotron_h")) && layer->feed_forward);
    case TIDE_LLAMA_INTERVAL:
        return number < llama->layer_count - llama->drafting && every && (number + 1) % every;
    default:
        return false;
    }
}

/* Layers that share the keys and values of another: gemma3n.cpp, n_layer_kv_from_start. */
enum { SHARED_FROM = 20 };

static bool llama_has_keys(const tide_llama *llama, const tide_llama_layer *layer, int64_t number) {
    if (number >= llama->layer_count - llama->drafting || !layer->kv_heads) return false;
    if (llama->arch->cache == TIDE_LLAMA_SHARED) return number < SHARED_FROM;
    return llama->arch->cache == TIDE_LLAMA_BOTH || !layer->has_state;
}

static bool read_layers(tide_llama *llama, tide_arena *arena, tide_diagnostics *diags) {
    const tide_json *heads = metadata_at(llama, "attention.head_count", arena),
                    *kv_heads = metadata_at(llama, "attention.head_count_kv", arena),
                    *lengths = metadata_at(llama, "feed_forward_length", arena),
                    *pattern = metadata_at(llama, "attention.sliding_window_pattern", arena);
    int64_t first = number_of_layer(heads, 0, 0), length = first ? llama->embedding / first : 0;
    int64_t key = tide_llama_number(llama, "attention.key_length", length, arena),
            value = tide_llama_number(llama, "attention.value_length", length, arena);
    int64_t key_window = tide_llama_number(llama, "attention.key_length_swa", key, arena),
            value_window = tide_llama_number(llama, "attention.value_length_swa", value, arena);
    llama->layers = TIDE_NEW(arena, tide_llama_layer, llama->layer_count);
    for (int64_t i = 0; i < llama->layer_count; i++) {
        tide_llama_layer *layer = &llama->layers[i];
        layer->heads = number_of_layer(heads, i, 0);
        layer->kv_heads = kv_heads ? number_of_layer(kv_heads, i, 0) : layer->heads;
        layer->feed_forward = number_of_layer(lengths, i, 0);
        layer->has_window = llama_has_window(llama, pattern, i);
        layer->has_state = llama_has_state(llama, layer, i, arena);
        layer->has_keys = llama_has_keys(llama, layer, i);
        layer->key_length = layer->has_window ? key_window : key;
        layer->value_length = layer->has_window ? value_window : value;
        if (layer->heads > HEADS_MOST || layer->kv_heads > HEADS_MOST || layer->key_length > LENGTH_MOST ||
            layer->value_length > LENGTH_MOST || layer->feed_forward > WIDTH_MOST)
            return refuse_gguf(diags, "has layers that are larger than any model's");
    }
    return true;
}

/* llama_hparams::n_embd_r, n_embd_s. */
static bool read_state(tide_llama *llama, tide_arena *arena) {
    int64_t kernel = tide_llama_number(llama, "ssm.conv_kernel", 0, arena),
            inner = tide_llama_number(llama, "ssm.inner_size", 0, arena),
            state = tide_llama_number(llama, "ssm.state_size", 0, arena),
            groups = tide_llama_number(llama, "ssm.group_count", 0, arena),
            short_conv = tide_llama_number(llama, "shortconv.l_cache", 0, arena);
    llama->conv_state =
        short_conv ? llama->embedding * (short_conv - 1) : (kernel > 0 ? kernel - 1 : 0) * (inner + 2 * groups * state);
    llama->state = short_conv ? 0 : state * inner;
    return kernel <= STATE_MOST && inner <= WIDTH_MOST && state <= STATE_MOST && groups <= EXPERTS_MOST &&
           short_conv <= STATE_MOST;
}

static int64_t window_of(const tide_llama *llama, tide_arena *arena) {
    switch (llama->arch->cache) {
    case TIDE_LLAMA_WINDOW:
    case TIDE_LLAMA_WINDOW_1:
    case TIDE_LLAMA_SHARED:
        return tide_llama_number(llama, "attention.sliding_window", llama->arch->window, arena);
    case TIDE_LLAMA_MIXED: /* lfm2.cpp: some have one in all layers */
        return tide_text_starts(llama->name, TIDE_TEXT("lfm2"))
                   ? tide_llama_number(llama, "attention.sliding_window", 0, arena)
                   : 0;
    case TIDE_LLAMA_CHUNK: /* llama4.cpp: whatever the key says, unless it is 0 */
        return tide_llama_number(llama, "attention.sliding_window", 1, arena) ? llama->arch->window : 0;
    default:
        return 0;
    }
}

static bool find_arch(tide_llama *llama, tide_arena *arena, tide_diagnostics *diags) {
    const tide_json *name = tide_json_at(llama->metadata, "general.architecture");
    if (!tide_json_is(name, TIDE_JSON_STRING)) return refuse_gguf(diags, "does not say general.architecture");
    llama->name = name->text;
    for (size_t i = 0; i < TIDE_COUNT_OF(archs) && !llama->arch; i++)
        if (tide_text_is(name->text, archs[i].name)) llama->arch = &archs[i];
    return llama->arch || tide_error(diags, TIDE_ERR_UNSUPPORTED, "/config.json/general.architecture",
                                     tide_format(arena, "what llama.cpp keeps for \"%s\" is not described",
                                                 tide_shown(arena, name->text)),
                                     "near to it is the GGUF file of a model of llama, qwen3 or gemma3 of that size");
}

bool tide_llama_read(tide_llama *llama, const tide_json *header, tide_arena *arena, tide_diagnostics *diags) {
    *llama = (tide_llama){.metadata = tide_json_at(header, "metadata")};
    if (!find_arch(llama, arena, diags) || !read_llama_tensors(llama, tide_json_at(header, "tensors"), arena, diags))
        return false;
    const tide_llama_tensor *embedding = tide_llama_find(llama, "token_embd.weight");
    llama->layer_count = tide_llama_number(llama, "block_count", 0, arena);
    llama->drafting = tide_llama_number(llama, "nextn_predict_layers", 0, arena);
    llama->embedding = tide_llama_number(llama, "embedding_length", 0, arena);
    llama->context = tide_llama_number(llama, "context_length", 0, arena);
    llama->experts = tide_llama_number(llama, "expert_count", 0, arena);
    llama->experts_used = number_of_layer(metadata_at(llama, "expert_used_count", arena), 0, 0);
    llama->expert_length = number_of_layer(metadata_at(llama, "expert_feed_forward_length", arena), 0, 0);
    llama->vocabulary = embedding ? embedding->rows : 0;
    llama->window = window_of(llama, arena);
    llama->is_latent = llama->arch->cache == TIDE_LLAMA_LATENT && metadata_at(llama, "attention.key_length_mla", arena);
    llama->header_bytes = llama_number_of(tide_json_at(header, "data_offset"), 0);
    const tide_json *data = tide_json_at(header, "data_bytes");
    llama->data_bytes = data && data->is_integer ? data->integer : 0;
    if (llama->layer_count < 1 || llama->layer_count > TIDE_LLAMA_LAYERS_MOST ||
        llama->drafting >= llama->layer_count || llama->embedding < 1 || !llama->vocabulary)
        return refuse_gguf(diags, "does not say block_count, embedding_length or token_embd.weight");
    if (llama->embedding > WIDTH_MOST || llama->experts > EXPERTS_MOST || llama->experts_used > llama->experts ||
        llama->expert_length > WIDTH_MOST || llama->vocabulary > NUMBER_MOST || !read_state(llama, arena))
        return refuse_gguf(diags, "has sizes that are larger than any model's");
    return read_layers(llama, arena, diags);
}
