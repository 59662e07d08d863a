/* SPDX-License-Identifier: Apache-2.0 */
/* Inference servers: what the engine allocates on the device, measures, and leaves for its cache.
 *
 * The engine is a program on the symbolic machine, like a training step: its runner's buffers, the model in the
 * engine's own layers (models/architectures/vllm), the profile run. The caching allocator plays its events with the
 * options that the engine sets; from the allocator's figures follow the budget, the cache groups, the blocks, and how
 * many requests fit. vLLM 0.32.0 on PyTorch 2.13: v1/worker/gpu_worker.py, v1/worker/gpu/model_runner.py,
 * v1/core/kv_cache_utils.py. */
#ifndef TIDE_SERVE_SERVE_H
#define TIDE_SERVE_SERVE_H

#include "allocator/allocator.h"
#include "job/job.h"
#include "lang/lang.h"
#include "train/train.h"

/* The GPU as the driver reports it. */
typedef struct tide_serve_device {
    const char *name;     /* "NVIDIA H100 80GB HBM3": defaults of the engine depend on it */
    uint64_t total_bytes; /* cudaMemGetInfo */
    uint64_t used_bytes;  /* context, communicators and other processes, before the engine's first snapshot */
    int capability, sms;  /* compute capability times 10; multiprocessors */
} tide_serve_device;

enum { TIDE_SERVE_AUTO = -1 }; /* max_model_len: the largest that fits */

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
    const char *tower_format; /* of a vision tower */
    int64_t bits, group_size; /* for packed formats */
    bool keeps_gates;         /* of mixtures, in the dtype of activations */
    bool has_cache_scales;    /* quantization/kv_cache.py: attention loads scales */
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

/* What one layer caches for a block of tokens: v1/kv_cache_interface.py, KVCacheSpec. */
typedef struct tide_cache_spec {
    tide_cache_kind kind;
    int64_t block_size;  /* tokens */
    int64_t page_bytes;  /* of a block, including padding */
    int64_t token_bytes; /* per token; 0: a state */
    int64_t window;      /* for SLIDING and CHUNKED: tokens */
} tide_cache_spec;

/* Layers that share a block table. */
typedef struct tide_cache_group {
    tide_cache_spec spec;
    int64_t layers;
    int64_t blocks_per_request; /* the most that a request of max_model_len tokens holds */
} tide_cache_group;

/* A buffer of an engine that allocates its buffers directly. */
typedef struct tide_serve_buffer {
    const char *name;
    bool is_on_host;
    int64_t low, high; /* bytes; exact if equal */
    const char *why;   /* what decides between the two; NULL: exact */
} tide_serve_buffer;

enum { TIDE_SERVE_BUFFERS = 16 };

/* All figures of an engine's start; in bytes unless noted. */
typedef struct tide_serve_figures {
    const char *dtype;
    int64_t max_model_len, max_num_seqs, max_num_batched_tokens, tokens_in_flight;
    uint64_t weight_bytes, buffer_bytes; /* of parameters; of buffers */
    uint64_t model_bytes;                /* "Model loading took" */
    uint64_t before_load, after_load;    /* allocated */
    uint64_t requested;                  /* total * gpu_memory_utilization, rounded up */
    uint64_t consumed, transient;        /* of the profile run: segments kept, and the peak above what is kept */
    uint64_t graph_bytes;                /* estimate of CUDA graph memory */
    uint64_t started, reserved;          /* of transformers: reserved after the start, and in the largest batch */
    uint64_t may_take;                   /* the most that unplayed parts take, besides `uncertain` */
    uint64_t uncertain;                  /* by how much unplayed parts may differ either way */
    int64_t available;                   /* "Available KV cache memory" */
    int64_t block_bytes, num_blocks;
    int64_t blocks_at_least, blocks_at_most; /* taking `uncertain` into account */
    int64_t blocks_per_request;              /* over all groups */
    int64_t one_request_bytes, longest;      /* for one request of max_model_len; tokens that would fit */
    int64_t capacity_tokens;                 /* "GPU KV cache size: ... tokens" */
    tide_cache_group groups[TIDE_CACHE_GROUP_LIMIT];
    uint32_t group_count;
    tide_serve_buffer buffers[TIDE_SERVE_BUFFERS]; /* of engines other than vLLM */
    uint32_t buffer_count;
    const char *refusal;        /* in the engine's words; NULL: it starts */
    bool may_refuse, may_start; /* with the fewest blocks of the range; with the most */
} tide_serve_figures;

/* How a forward pass runs during the capture of CUDA graphs. */
typedef enum tide_capture_kind {
    TIDE_CAPTURE_FIRST_RUN, /* before any graph: allocates what the stream keeps */
    TIDE_CAPTURE_RUN,       /* before a full graph */
    TIDE_CAPTURE_PIECEWISE, /* in the pool; attention runs outside of it */
    TIDE_CAPTURE_FULL       /* in the pool */
} tide_capture_kind;

typedef struct tide_serve_capture {
    const struct tide_serve_run *of; /* the start in which it was played, and its events */
    uint32_t from, to;
    int64_t tokens;
    tide_capture_kind kind;
} tide_serve_capture;

enum { TIDE_GRAPH_SIZES = 256 };

/* Batch sizes of CUDA graphs in tokens, ascending. (graph_sizes.c) */
typedef struct tide_graph_sizes {
    int64_t sizes[TIDE_GRAPH_SIZES];
    uint32_t count, cases; /* cases: graphs per size, without adapters and with all of them */
    bool are_given, has_pieces, has_whole;
    int64_t most; /* max_cudagraph_capture_size */
} tide_graph_sizes;

/* Descriptions read so far, for consecutive starts. `set` is empty before the first. */
typedef struct tide_serve_descriptions {
    tide_arena *arena; /* outlives the starts */
    tide_descriptions set;
    tide_names size_names;
} tide_serve_descriptions;

typedef struct tide_serve_run {
    const struct tide_engine *engine;
    tide_machine machine;
    tide_descriptions descriptions;
    tide_model model;
    tide_job job; /* with the engine's defaults for this GPU and model */
    tide_serve_drafts drafts;
    tide_serve_weights weights;
    int64_t asked_requests;  /* max_num_seqs as given; 0: not given */
    const tide_json *limits; /* limit_mm_per_prompt: {"image": 1, "video": 0}; NULL: the engine's default */
    tide_serve_device device;
    tide_text architecture; /* from config.json */
    bool is_pooling;        /* --runner pooling: an encoder, whose layers cache nothing */
    tide_cache_spec *specs; /* for the layers of this rank, in order */
    uint32_t spec_count;
    uint32_t load_event, loaded_event, profile_event; /* where loading begins and ends, and where profiling begins */
    uint32_t profiled_event;                          /* where profiling ends */
    uint32_t input_root, loaded_root, draft_root;     /* instances of the runner's, and the draft model */
    tide_value received; /* the input of a stage from the one before; none: it is the first */
    tide_description *runner;
    struct tide_serve_descriptions *kept; /* where starts leave their descriptions; may be NULL */
    const struct tide_serve_run *like;    /* a start whose graphs can be reused where sizes are the same; may be NULL */
    tide_graph_sizes graphs;
    tide_serve_capture *captures;
    uint32_t capture_count;
    uint64_t captured_bytes; /* of the graphs without their generators */
    int64_t full_graphs;     /* that the engine will capture: one for each size of a batch of single tokens */
    int64_t parameters;      /* elements of the weights, if no model is played */
    const struct tide_paged_cache *paged; /* for transformers */
    tide_serve_figures figures;
} tide_serve_run;

/* Starts an engine: plays it on the machine and fills run->figures. *run is zero-initialised except for `kept` and
 * `like`. False after an error. */
typedef bool tide_engine_start(tide_serve_run *run, const tide_job *job, const tide_serve_device *device,
                               tide_arena *arena, tide_diagnostics *diags);

/* A row of engines.c. */
typedef struct tide_engine {
    const char *title; /* with versions */
    tide_engine_start *start;
    /* The most blocks that requests of so many tokens hold. */
    int64_t (*blocks_of)(const tide_serve_run *run, int64_t requests, int64_t tokens);
    int64_t kept_blocks; /* not available to requests */
    const char *length, *requests,
        *tokens; /* the names of figures.max_model_len, max_num_seqs, max_num_batched_tokens */
} tide_engine;

extern const tide_engine tide_vllm_engine, tide_llama_cpp_engine, tide_transformers_engine, tide_sglang_engine;

/* The engine of the job. */
const tide_engine *tide_engine_of(const tide_job *job);
tide_engine_start tide_serve_start;

/* The most blocks that so many requests of `length` tokens hold, over all groups. */
int64_t tide_serve_blocks_of(const tide_serve_run *run, int64_t requests, int64_t length);
/* The same if each request has blocks of its own; at most 2^56, so that sums do not overflow. */
static inline int64_t tide_serve_each(int64_t requests, int64_t blocks) {
    int64_t most = INT64_C(1) << 56;
    return requests > 0 && blocks > most / requests ? most : requests * blocks;
}
/* The engine's own buffers on the GPU, lower and upper bound. */
int64_t tide_serve_buffers_low(const tide_serve_run *run);
int64_t tide_serve_buffers_high(const tide_serve_run *run);
void tide_serve_add_buffer(tide_serve_run *run, const tide_serve_buffer *buffer);
/* Adds the buffers on the GPU as events, each at its upper bound, so that every view of a job shows them. */
void tide_serve_play_buffers(tide_serve_run *run);

/* The GPU with the driver's name: the engine's defaults depend on it. */
tide_serve_device tide_serve_device_of(const tide_job *job, tide_arena *arena);

/* The device of a recorded start; the first of the recordings if its case names none (recorded.c). False: unknown. */
bool tide_serve_device_of_case(const tide_json *of_case, tide_serve_device *device);

int64_t tide_serve_utilization_ppm(const tide_serve_run *run);

/* The longest max_model_len that the model allows, or else the engine's limit. */
int64_t tide_serve_positions(const tide_serve_run *run);

/* Size of the vocabulary in config.json; 0: not given. */
int64_t tide_serve_vocabulary(const tide_json *config);

/* ---- colocated.c ---- */

/* The engine that TRL starts inside of the trainer's process. */
tide_colocated_start tide_start_colocated;

/* ---- vllm_checks.c ---- */

/* False: vLLM refuses the job; the diagnostics have its words. */
bool tide_serve_check(const tide_serve_run *run);

/* ---- kv_cache.c ---- */

/* Computes groups, block bytes and blocks per request from the specs of a model's layers. */
bool tide_cache_groups(tide_serve_run *run);
/* The most blocks of vLLM's cache that requests of `length` tokens hold, over all groups. */
int64_t tide_cache_blocks_of(const tide_serve_run *run, int64_t requests, int64_t length);
/* Computes the number of blocks, and refusals, from run->figures.available. */
void tide_cache_blocks(tide_serve_run *run);

/* ---- quantization.c ---- */

/* The storage that quantization and quantization_config ask for, on this GPU. */
tide_serve_weights tide_serve_weights_of(const tide_serve_run *run);

/* ---- offload.c ---- */

/* Moves parameters of the model that has just been made to the host, according to cpu_offload_gb. */
void tide_serve_offload(tide_serve_run *run);

/* ---- cuda_graphs.c ---- */

/* A forward pass of so many tokens; is_first: the capture's stream allocates what it keeps. */
typedef void tide_serve_forward(tide_serve_run *run, int64_t tokens, bool is_first);

/* Plays the capture of CUDA graphs on the machine, as far as the engine does it for its measurement. */
void tide_serve_capture_graphs(tide_serve_run *run, tide_serve_forward *forward);
/* Computes figures.graph_bytes from the events of the capture. False: out of memory. */
bool tide_serve_graphs(tide_serve_run *run);

/* ---- budget.c ---- */

/* Plays the timeline through the allocator: weights, consumed, transient and available. False: out of memory, and
 * figures.refusal says so. */
bool tide_serve_budget(tide_serve_run *run);

/* The same start with another gpu_memory_utilization, on which only the budget depends. False: it must be played. */
bool tide_serve_with_utilization(tide_serve_run *run, const tide_serve_run *like, int64_t utilization);

/* The message of torch.OutOfMemoryError. */
const char *tide_serve_oom_text(tide_arena *arena, const tide_caching_oom *oom);

#endif
