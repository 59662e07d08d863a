/* SPDX-License-Identifier: Apache-2.0 */
/* The engine's arguments as the worker uses them. Private to serve/. */
#ifndef TIDE_SERVE_ENGINE_ARGS_H
#define TIDE_SERVE_ENGINE_ARGS_H

#include "serve/serve.h"

/* Copies the job, and parses arguments in JSON. False after an error. */
bool tide_serve_take_args(tide_serve_run *run, const tide_job *job, tide_arena *arena, tide_diagnostics *diags);
/* Sets defaults by GPU and model. */
void tide_serve_take_defaults(tide_serve_run *run);
/* Which CUDA graphs are captured: reads the job and its compilation_config, and when defaults are known determines
 * their sizes. False after an error. (graph_sizes.c) */
bool tide_serve_read_graph_sizes(tide_serve_run *run, const tide_json *config, tide_arena *arena,
                                 tide_diagnostics *diags);
bool tide_serve_find_graph_sizes(tide_serve_run *run);
/* The dtype of weights and activations. */
tide_dtype tide_serve_dtype(const tide_serve_run *run);

/* Whether keys and values are stored in 8 bits with a single scale. */
bool tide_serve_has_fp8_cache(const tide_job *job);
/* Bytes of so many values of one head and token in the cache. */
int64_t tide_serve_cached_bytes(const tide_serve_run *run, int64_t values);
/* Whether each head of a token has its own scale in the cache, which only Triton's attention supports. */
bool tide_serve_scales_heads(const tide_job *job);
/* Whether a prompt may be divided into several batches. */
bool tide_serve_chunks_prefill(const tide_serve_run *run);

/* Sets what descriptions may read. */
void tide_serve_set_settings(tide_serve_run *run);

#endif
