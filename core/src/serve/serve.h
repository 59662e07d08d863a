/* SPDX-License-Identifier: Apache-2.0 */
/* Inference servers: what the engine puts on the device, measures and leaves for its cache.
 *
 * The engine is a program on the symbolic machine, as a training step is: its runner's buffers, the model in the
 * engine's own layers (models/architectures/vllm), the profile run. The caching allocator plays its events with the
 * options that the engine sets; from the allocator's figures follow the budget, the cache groups, the blocks and how
 * many requests fit. vLLM 0.32.0 on PyTorch 2.13: v1/worker/gpu_worker.py, v1/worker/gpu/model_runner.py,
 * v1/core/kv_cache_utils.py. */
#ifndef TIDE_SERVE_SERVE_H
#define TIDE_SERVE_SERVE_H

#include "allocator/allocator.h"
#include "job/job.h"
#include "lang/lang.h"
#include "train/train.h"

/* The card as the driver tells it. */
typedef struct tide_serve_device {
    const char *name;     /* "NVIDIA H100 80GB HBM3": defaults of the engine follow from it */
    uint64_t total_bytes; /* cudaMemGetInfo */
    uint64_t used_bytes;  /* context, communicators and other processes, before the engine's first snapshot */
    int capability, sms;  /* compute capability times ten; multiprocessors */
} tide_serve_device;

enum { TIDE_SERVE_AUTO = -1 }; /* max_model_len: the longest that fits */

/* speculative_config. */
typedef struct tide_serve_drafts {
    int64_t tokens;                   /* num_speculative_tokens */
    bool are_ngrams, is_head, is_mtp; /* is_head: EAGLE of either version, or MTP, on the target's hidden states */
    bool is_eagle3;
    const tide_json *config; /* of the draft model; NULL: there is none */
} tide_serve_drafts;

/* How weights of linear layers are stored: none fp8 fp8_static fp8_dynamic fp8_channel int8_channel gptq awq wna16
 * mxfp4. */
typedef struct tide_serve_weights {
    const char *format;       /* NULL: not described */
    const char *tower_format; /* of a vision tower's */
    int64_t bits, group_size; /* of packed formats */
    bool keeps_gates;         /* of mixtures, in the type of the activations */
    bool has_cache_scales;    /* quantization/kv_cache.py: attention has scales to load */
} tide_serve_weights;

enum { TIDE_CACHE_GROUP_LIMIT = 64, TIDE_SERVE_SEGMENT = 20 << 20 }; /* the allocator's, for blocks below 10 MiB */

typedef enum tide_cache_kind {
    TIDE_CACHE_FULL,
    TIDE_CACHE_SLIDING,
    TIDE_CACHE_CHUNKED,
    TIDE_CACHE_LATENT,
    TIDE_CACHE_STATE,
    TIDE_CACHE_CROSS
} tide_cache_kind;

/* What one layer keeps for a block of tokens: v1/kv_cache_interface.py, KVCacheSpec. */
typedef struct tide_cache_spec {
    tide_cache_kind kind;
    int64_t block_size;  /* tokens */
    int64_t page_bytes;  /* of a block, padding included */
    int64_t token_bytes; /* of one token; 0: a state */
    int64_t window;      /* of SLIDING and CHUNKED: tokens */
} tide_cache_spec;

/* Layers that share a block table. */
typedef struct tide_cache_group {
    tide_cache_spec spec;
    int64_t layers;
    int64_t blocks_per_request; /* that a request of max_model_len tokens holds at most */
} tide_cache_group;

/* A piece of memory of an engine that makes its buffers itself. */
typedef struct tide_serve_buffer {
    const char *name;
    bool is_on_host;
    int64_t low, high; /* bytes; the same: exact */
    const char *why;   /* what decides where between them; NULL: exact */
} tide_serve_buffer;

enum { TIDE_SERVE_BUFFERS = 16 };

/* Everything that starting the engine leaves behind; bytes unless a unit stands there. */
typedef struct tide_serve_figures {
    const char *dtype;
    int64_t max_model_len, max_num_seqs, max_num_batched_tokens, tokens_in_flight;
    uint64_t weight_bytes, buffer_bytes; /* of parameters; of buffers */
    uint64_t model_bytes;                /* "Model loading took" */
    uint64_t before_load, after_load;    /* allocated */
    uint64_t requested;                  /* total * gpu_memory_utilization, rounded up */
    uint64_t consumed, transient;        /* of the profile run: segments kept, and the peak above what is kept */
    uint64_t graph_bytes;                /* estimate of CUDA graph memory */
    uint64_t started, reserved;          /* of transformers: reserved once it has started, and in the largest batch */
    uint64_t may_take;                   /* what is not played takes at most, beside `uncertain` */
    uint64_t uncertain;                  /* what is not played may take or leave as much */
    int64_t available;                   /* "Available KV cache memory" */
    int64_t block_bytes, num_blocks;
    int64_t blocks_at_least, blocks_at_most; /* with `uncertain` */
    int64_t blocks_per_request;              /* over all groups */
    int64_t one_request_bytes, longest;      /* that one request of max_model_len needs; tokens that would fit */
    int64_t capacity_tokens;                 /* "GPU KV cache size: ... tokens" */
    tide_cache_group groups[TIDE_CACHE_GROUP_LIMIT];
    uint32_t group_count;
    tide_serve_buffer buffers[TIDE_SERVE_BUFFERS]; /* of engines other than vLLM */
    uint32_t buffer_count;
    const char *refusal;        /* the engine's own words; NULL: it starts */
    bool may_refuse, may_start; /* with the fewest blocks of the range; with the most */
} tide_serve_figures;

/* How a forward pass of the capture of CUDA graphs runs. */
typedef enum tide_capture_kind {
    TIDE_CAPTURE_FIRST_RUN, /* before any graph: what the stream keeps is made */
    TIDE_CAPTURE_RUN,       /* before a full graph */
    TIDE_CAPTURE_PIECEWISE, /* in the pool; attention runs outside of it */
    TIDE_CAPTURE_FULL       /* in the pool */
} tide_capture_kind;

typedef struct tide_serve_capture {
    const struct tide_serve_run *of; /* the start that it was played in, and its events */
    uint32_t from, to;
    int64_t tokens;
    tide_capture_kind kind;
} tide_serve_capture;

enum { TIDE_GRAPH_SIZES = 256 };

/* Batches that CUDA graphs are captured of, in tokens, from the smallest to the largest. (graph_sizes.c) */
typedef struct tide_graph_sizes {
    int64_t sizes[TIDE_GRAPH_SIZES];
    uint32_t count, cases; /* cases: graphs of each size, without adapters and with all of them */
    bool are_given, has_pieces, has_whole;
    int64_t most; /* max_cudagraph_capture_size */
} tide_graph_sizes;

/* Descriptions that have been read, for starts that follow each other. `set` is empty before the first. */
typedef struct tide_serve_descriptions {
    tide_arena *arena; /* that outlives the starts */
    tide_descriptions set;
    tide_names size_names;
} tide_serve_descriptions;

typedef struct tide_serve_run {
    const struct tide_engine *engine;
    tide_machine machine;
    tide_descriptions descriptions;
    tide_model model;
    tide_job job; /* with the engine's defaults for this card and model */
    tide_serve_drafts drafts;
    tide_serve_weights weights;
    int64_t asked_requests;  /* max_num_seqs as it is given; 0: it is not */
    const tide_json *limits; /* limit_mm_per_prompt: {"image": 1, "video": 0}; NULL: the engine's */
    tide_serve_device device;
    tide_text architecture; /* of config.json */
    bool is_pooling;        /* --runner pooling: an encoder, whose layers keep nothing */
    tide_cache_spec *specs; /* of the layers of this rank, in order */
    uint32_t spec_count;
    uint32_t load_event, loaded_event, profile_event; /* where loading begins and ends, and where profiling begins */
    uint32_t profiled_event;                          /* where profiling ends */
    uint32_t input_root, loaded_root, draft_root;     /* the runner's instances, and the draft model */
    tide_value received; /* what a stage that is not the first gets of the one before; none: it is the first */
    tide_description *runner;
    struct tide_serve_descriptions *kept; /* where other starts leave theirs, and this one; or NULL */
    const struct tide_serve_run *like; /* a start whose graphs are these, where the same sizes are captured; or NULL */
    tide_graph_sizes graphs;
    tide_serve_capture *captures;
    uint32_t capture_count;
    uint64_t captured_bytes; /* of the graphs, but for their generators */
    int64_t full_graphs;     /* that the engine will capture: one for each size of a batch of single tokens */
    int64_t parameters;      /* elements of the weights, where no model is played */
    const struct tide_paged_cache *paged; /* of transformers */
    tide_serve_figures figures;
} tide_serve_run;

/* Starts an engine: plays it on the machine and fills run->figures. *run is zero but for `kept` and `like`. False after
 * an error. */
typedef bool tide_engine_start(tide_serve_run *run, const tide_job *job, const tide_serve_device *device,
                               tide_arena *arena, tide_diagnostics *diags);

/* A row of engines.c. */
typedef struct tide_engine {
    const char *title; /* with the versions */
    tide_engine_start *start;
    /* That requests of so many tokens hold at most. */
    int64_t (*blocks_of)(const tide_serve_run *run, int64_t requests, int64_t tokens);
    int64_t kept_blocks;                    /* that no request gets */
    const char *length, *requests, *tokens; /* names of figures.max_model_len, max_num_seqs, max_num_batched_tokens */
} tide_engine;

extern const tide_engine tide_vllm_engine, tide_llama_cpp_engine, tide_transformers_engine, tide_sglang_engine;

/* That of the job. */
const tide_engine *tide_engine_of(const tide_job *job);
tide_engine_start tide_serve_start;

/* Blocks that so many requests of `length` tokens hold at most, over all groups. */
int64_t tide_serve_blocks_of(const tide_serve_run *run, int64_t requests, int64_t length);
/* The same where each request has blocks of its own; no more than 2^56, so that they can be summed. */
static inline int64_t tide_serve_each(int64_t requests, int64_t blocks) {
    int64_t most = INT64_C(1) << 56;
    return requests > 0 && blocks > most / requests ? most : requests * blocks;
}
/* What the card holds of the engine's own buffers, in the one case and in the other. */
int64_t tide_serve_buffers_low(const tide_serve_run *run);
int64_t tide_serve_buffers_high(const tide_serve_run *run);
void tide_serve_add_buffer(tide_serve_run *run, const tide_serve_buffer *buffer);
/* The buffers on the card as events, each as large as it may be, so that every view of a job has them. */
void tide_serve_play_buffers(tide_serve_run *run);

/* The card as the driver calls it: the engine's defaults look for names in it. */
tide_serve_device tide_serve_device_of(const tide_job *job, tide_arena *arena);

/* The device of a recorded start, the oracle's first where its case names none (recorded.c). False: it is not known. */
bool tide_serve_device_of_case(const tide_json *of_case, tide_serve_device *device);

int64_t tide_serve_utilization_ppm(const tide_serve_run *run);

/* The longest max_model_len that the model takes, or, where it does not say it, that the engine has. */
int64_t tide_serve_positions(const tide_serve_run *run);

/* Entries of the vocabulary, as config.json has them; 0: it does not say. */
int64_t tide_serve_vocabulary(const tide_json *config);

/* ---- colocated.c ---- */

/* The engine that TRL starts in the trainer's process. */
tide_colocated_start tide_start_colocated;

/* ---- vllm_checks.c ---- */

/* False: vLLM refuses the job, and the diagnostics have its words. */
bool tide_serve_check(const tide_serve_run *run);

/* ---- kv_cache.c ---- */

/* Groups, block bytes and blocks per request from the specs of a model's layers. */
bool tide_cache_groups(tide_serve_run *run);
/* Blocks of vLLM's cache that requests of `length` tokens hold at most, over all groups. */
int64_t tide_cache_blocks_of(const tide_serve_run *run, int64_t requests, int64_t length);
/* The number of blocks, and refusals, from run->figures.available. */
void tide_cache_blocks(tide_serve_run *run);

/* ---- quantization.c ---- */

/* What quantization and quantization_config ask for, on this card. */
tide_serve_weights tide_serve_weights_of(const tide_serve_run *run);

/* ---- offload.c ---- */

/* Moves parameters of the model that has just been made to the host, as cpu_offload_gb says. */
void tide_serve_offload(tide_serve_run *run);

/* ---- cuda_graphs.c ---- */

/* A forward pass of so many tokens; is_first: the capture's stream gets what it keeps. */
typedef void tide_serve_forward(tide_serve_run *run, int64_t tokens, bool is_first);

/* Plays the capture of CUDA graphs on the machine, as far as the engine does it to measure. */
void tide_serve_capture_graphs(tide_serve_run *run, tide_serve_forward *forward);
/* figures.graph_bytes, from the events of the capture. False: out of memory. */
bool tide_serve_graphs(tide_serve_run *run);

/* ---- budget.c ---- */

/* Plays the timeline through the allocator; weights, consumed, transient and available. False: out of memory, and
 * figures.refusal says so. */
bool tide_serve_budget(tide_serve_run *run);

/* The same start with another gpu_memory_utilization, which the budget alone depends on. False: it must be played. */
bool tide_serve_with_utilization(tide_serve_run *run, const tide_serve_run *like, int64_t utilization);

/* The message of torch.OutOfMemoryError. */
const char *tide_serve_oom_text(tide_arena *arena, const tide_caching_oom *oom);

#endif
