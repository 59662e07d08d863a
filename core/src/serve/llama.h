/* SPDX-License-Identifier: Apache-2.0 */
/* llama.cpp: a GGUF model as its loader sees it, and what it allocates. Sources are those in llama-cpp-python 0.3.36.
 * Private to serve/. */
#ifndef TIDE_SERVE_LLAMA_H
#define TIDE_SERVE_LLAMA_H

#include "base/gguf.h"
#include "serve/serve.h"

enum { TIDE_LLAMA_LAYERS_MOST = 512 /* LLAMA_MAX_LAYERS */ };

typedef enum tide_llama_cache {
    TIDE_LLAMA_PLAIN,
    TIDE_LLAMA_WINDOW,
    TIDE_LLAMA_WINDOW_1,
    TIDE_LLAMA_CHUNK,
    TIDE_LLAMA_SHARED,
    TIDE_LLAMA_LATENT,
    TIDE_LLAMA_STATE,
    TIDE_LLAMA_MIXED,
    TIDE_LLAMA_BOTH,
    TIDE_LLAMA_INTERVAL
} tide_llama_cache;

/* A row of llama_arch.def. */
typedef struct tide_llama_arch {
    const char *name;
    tide_llama_cache cache;
    int64_t every, window;
} tide_llama_arch;

typedef struct tide_llama_tensor {
    tide_text name;
    const tide_ggml_type *type;
    int64_t columns, rows, count, bytes; /* rows: over all dimensions but the first */
    int64_t layer;                       /* N of "blk.N."; -1: none */
} tide_llama_tensor;

/* llama_hparams of one layer: */
typedef struct tide_llama_layer {
    int64_t heads, kv_heads, feed_forward;
    int64_t key_length, value_length; /* per head */
    bool has_window, has_state, has_keys;
} tide_llama_layer;

typedef struct tide_llama {
    const tide_json *metadata;
    tide_text name; /* general.architecture */
    const tide_llama_arch *arch;
    int64_t layer_count, drafting; /* block_count, and how many of these are only for drafting (nextn_predict_layers) */
    int64_t embedding, vocabulary, context, window, experts, experts_used, expert_length;
    bool is_latent;
    int64_t conv_state, state; /* elements per sequence and layer: n_embd_r, n_embd_s */
    tide_llama_layer *layers;
    tide_llama_tensor *tensors;
    uint32_t tensor_count;
    int64_t header_bytes, data_bytes; /* of the file */
} tide_llama;

/* Reads the header of a GGUF file in the form of base/gguf.h. False after an error. */
bool tide_llama_read(tide_llama *llama, const tide_json *header, tide_arena *arena, tide_diagnostics *diags);

/* llama_convert.c: the header that a model with a config.json would have at job->ftype. NULL after an error. */
const tide_json *tide_llama_convert(const tide_job *job, tide_arena *arena, tide_diagnostics *diags);

/* A number of the model's own metadata: "KEY" in "ARCHITECTURE.KEY". */
int64_t tide_llama_number(const tide_llama *llama, const char *key, int64_t otherwise, tide_arena *arena);

/* NULL: there is no such tensor. */
const tide_llama_tensor *tide_llama_find(const tide_llama *llama, const char *name);

#endif
