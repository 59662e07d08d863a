/* SPDX-License-Identifier: Apache-2.0 */
/* job/: what is to be run.
 *
 * Arguments (key=value), links and files become a job: every setting with its value and where that came from. A setting
 * is a row of settings.def, from which its field, its readers, its help and its description come. Files of models and
 * of trainers are read in readers/, one each. What is missing is taken from the model, the recipe or the default and
 * named; what contradicts itself is refused with a way out. A job is finished here: who plays it only reads. */
#ifndef TIDE_JOB_JOB_H
#define TIDE_JOB_JOB_H

#include "allocator/allocator.h"
#include "base/json_read.h"
#include "base/json_write.h"
#include "job/settings_types.h"

typedef enum tide_origin { TIDE_ORIGIN_DEFAULT, TIDE_ORIGIN_RECIPE, TIDE_ORIGIN_FILE, TIDE_ORIGIN_USER } tide_origin;

/* What became of a key of a file that starts training. */
typedef enum tide_key_effect {
    TIDE_KEY_USED,
    TIDE_KEY_IGNORED,     /* no effect on memory */
    TIDE_KEY_UNSUPPORTED, /* may matter and is not described */
    TIDE_KEY_UNKNOWN,
    TIDE_KEY_OVERRULED, /* another file says otherwise */
    TIDE_KEY_EFFECT_COUNT
} tide_key_effect;

typedef struct tide_file_key {
    const char *key;             /* as fsdp_config/fsdp_version */
    const char *value;           /* as given; NULL: an object or null */
    const char *setting, *taken; /* USED: the setting and its value; NULL where it went into several */
    const char *note;            /* NULL: none */
    tide_key_effect effect;
    struct tide_file_key *next;
} tide_file_key;

typedef struct tide_file_summary {
    const char *name, *title; /* "an Accelerate configuration" */
    tide_file_key *first, *last;
    struct tide_file_summary *next;
} tide_file_summary;

/* What a checkpoint holds, by the headers of its safetensors files. */
enum { TIDE_STORED_DIMS = 8 };

typedef struct tide_stored {
    tide_text name, dtype; /* as in the file: "F32", "BF16" */
    int64_t shape[TIDE_STORED_DIMS];
    uint32_t dims;
    int64_t count, begin, bytes; /* elements; in the file's data */
    const char *file;
} tide_stored;

typedef struct tide_checkpoint {
    tide_stored *tensors; /* by name, once settled */
    uint32_t count, capacity, file_count;
    int64_t bytes;
    const tide_json *index; /* "weight_map": name to file; NULL: none */
    const char *index_file;
    int64_t total_size; /* of the index; 0: it does not say */
} tide_checkpoint;

/* NULL: the checkpoint holds no tensor of that name. */
const tide_stored *tide_stored_find(const tide_checkpoint *checkpoint, tide_text name);

/* The type that a configuration names, or else that a checkpoint (NULL: none is given) holds, as "float16"; empty:
 * neither does. */
tide_text tide_model_dtype(const tide_json *config, const tide_checkpoint *checkpoint);

/* A row of models/gpus.json. */
typedef struct tide_gpu {
    const char *name, *title, *source, *context_source;
    uint64_t bytes;         /* as the driver reports them */
    uint64_t context_bytes; /* CUDA context and loaded kernels */
    int capability;         /* times ten */
    int sms, threads_per_sm;
} tide_gpu;

/* When a setting is read: when the model is loaded (or before), when a loaded model is built into what is played, or by
 * the step alone. What is not read again may be kept from one job to the next. */
typedef enum tide_read { TIDE_READ_LOAD, TIDE_READ_PLAY, TIDE_READ_STEP } tide_read;

typedef enum tide_setting_id {
#define TIDE_SETTING(name, ...) TIDE_SET_##name,
#include "job/settings.def"
    TIDE_SET_COUNT
} tide_setting_id;

/* One setting as it stands: for the report, the link and the form. */
typedef struct tide_setting_row {
    tide_setting_id id; /* TIDE_SET_COUNT: of an override */
    const char *name;
    const char *value; /* canonical text */
    tide_origin origin;
    const char *variable; /* under what name descriptions of models see it; NULL: not at all */
    bool is_default;      /* the value is the default's, whoever said it */
} tide_setting_row;

typedef struct tide_job {
    const char *model; /* name in the catalogue, or of the given configuration */
    const char *model_title, *model_source;
    int64_t published_parameters;  /* 0: unknown */
    const tide_json *config;       /* with overrides and dropout applied */
    const tide_json *preprocessor; /* NULL: none */
    const tide_json *description;  /* a description that the user gave; NULL: none */
    tide_text description_text;
    const tide_checkpoint *checkpoint;        /* what the headers of safetensors files say; NULL: none was given */
    tide_text config_text, preprocessor_text; /* of files that were given; empty: none was */
    bool names_itself;                        /* the model came as a file, with its name in it */
    tide_text was; /* GiB and version, when the job's link was made; empty: it does not say */

    /* The settings, each under its name; a dot is `_`. */
#define TIDE_SETTING(name, type, ...) TIDE_FIELD_##type(name)
#include "job/settings.def"
    const char *values[TIDE_SET_COUNT]; /* the same as canonical text; "": not set */

    tide_alloc_conf allocator_conf; /* of `allocator` */
    bool has_gpu;
    tide_gpu gpu;
    uint64_t device_bytes;       /* 0: without limit */
    int64_t memory_fraction_ppm; /* set_per_process_memory_fraction, parts per million; 0: none */

    tide_setting_row *rows;
    uint32_t row_count;
    const char *link;               /* what differs from the defaults, "v=1" last */
    const tide_file_summary *files; /* those that start training, in order */

    int64_t versions_percent;   /* how far the peak may be off, as versions are asked for that no run is recorded of */
    const char *versions_asked; /* "transformers 4.44"; NULL: none of these */
    const char *program;        /* that a file is of and that brings versions of its own, as "axolotl"; NULL: none */
} tide_job;

/* A library that takes part in a job, and its version whose allocations are played; versions.def. */
typedef struct tide_library {
    const char *title, *version; /* "transformers", "5.23.0" */
    const char *asked;           /* another version that is asked for; NULL: none */
    const char *pinned, *by; /* the versions that the job's program brings, and which: "axolotl 0.19.0"; NULL: none */
} tide_library;

enum { TIDE_LIBRARIES_MOST = 16 };

/* Returns how many there are; libraries has room for so many. */
uint32_t tide_job_libraries(const tide_job *job, tide_library *libraries);

/* A file that came with the request. */
typedef struct tide_file {
    tide_text name, text;
} tide_file;

/* Builds a job. words are "key=value"; every problem is reported, and every default that moves the number is reported
 * as an assumption. NULL after an error. */
tide_job *tide_job_build(tide_arena *arena, const tide_text *words, uint32_t word_count, const tide_file *files,
                         uint32_t file_count, tide_diagnostics *diags);

/* The words of a request where those that are a job in words ("mistral 7b qlora on a 4090") are read as a model of the
 * catalogue and settings, and what they were read as is said. `asks`: the setting whose largest value is asked for,
 * where one is ("seq"); NULL: of no concern. */
tide_text *tide_phrases_read(tide_arena *arena, const tide_text *words, uint32_t *count, tide_diagnostics *diags,
                             const char **asks);

/* Whether a text has a command in it that starts training or a server, and is no job in words: a program with an option
 * or a file behind it. */
bool tide_is_command(tide_arena *arena, tide_text text);

/* Whether the adapter is trained tokens before the sample: prompt, prefix and p tuning. */
bool tide_job_prompts(const tide_job *job);
/* Whether weights are kept as GPTQ, AWQ, fp8 or compressed-tensors pack them. */
bool tide_job_packs_weights(const tide_job *job);

/* Whether it trains with one of DeepSpeed's stages. */
bool tide_job_has_deepspeed(const tide_job *job);

/* All ranks of the job. */
int64_t tide_job_world(const tide_job *job);

/* Whether a trainer runs each micro-batch under context_parallel(): accelerate's ParallelismConfig with cp_size. */
bool tide_trainer_cuts_sequences(const tide_job *job);

/* Ranks that gradients are reduced over: data parallel ones, and those that share a sequence. */
int64_t tide_job_reduction_ranks(const tide_job *job);

/* Whether transformers cuts the model by the plan of its configuration (parallel.tp_plan=auto). */
bool tide_job_has_auto_plan(const tide_job *job);

/* Whether that plan gives each rank experts of its own. */
bool tide_job_cuts_experts(const tide_job *job);

/* Whether torchtitan's experts take the place of the model's, over ranks of expert parallelism. */
bool tide_job_has_torchtitan_experts(const tide_job *job);

/* Whether modules are made on the meta device, and a rank's parts alone reach its own (parallel.meta_init). */
bool tide_job_is_on_meta(const tide_job *job);

/* `vllm serve MODEL` with the flags of what is set, of a job with mode=serve. */
const char *tide_job_serve_command(const tide_job *job, tide_arena *arena);

/* Whether a setting without a default is set. */
bool tide_job_sets(const tide_job *job, tide_setting_id id);

/* What descriptions of models see of a job under the names that settings.def gives (.variable). */
typedef struct tide_variable {
    const char *name;
    enum { TIDE_VARIABLE_INT, TIDE_VARIABLE_BOOL, TIDE_VARIABLE_NUMBER, TIDE_VARIABLE_TEXT } kind;
    int64_t integer;
    bool is_true;
    double number;
    const char *text; /* the value as canonical text */
    tide_read read;
} tide_variable;

/* Returns how many there are; variables has room for so many. */
/* ---- trainers.c: TRL's trainers that generate what they learn from (GRPO, RLOO) ---- */

bool tide_trainer_generates(const tide_job *job);
/* Whether what is not quantised goes from fp32 to bf16 once adapters are there, and the loss is computed under
 * autocast: ORPOTrainer and CPOTrainer over 4 bits. */
bool tide_trainer_casts_to_bf16(const tide_job *job);
/* Whether peft knows the task: PeftModelForCausalLM calls its tuner, PeftModel the model in it. */
bool tide_adapter_has_task(const tide_job *job);
/* Whether the trainer calls prepare_model_for_kbit_training() by itself: trl/experimental/orpo/orpo_trainer.py and
 * cpo/cpo_trainer.py, __init__, where adapters come. */
bool tide_trainer_prepares_kbit(const tide_job *job);
/* Whether a trainer of TRL's is given the model, which then keeps its types where nothing is said. */
bool tide_trainer_leaves_kbit(const tide_job *job);
/* Whether something prepares it. */
bool tide_prepares_kbit(const tide_job *job);
/* Whether deepspeed.zero.Init() has cut the model as it was made. */
bool tide_job_has_zero_init(const tide_job *job);
/* Whether forward() is under autocast: not where a trainer leaves types to DeepSpeed or fully_shard. */
bool tide_job_autocasts(const tide_job *job);
/* Trainer.place_model_on_device, and that there is no trainer: DeepSpeed and FSDP are given a model on the host. */
bool tide_trainer_places_model(const tide_job *job);
/* Ranks that a batch is spread over; one GPU: 1. */
int64_t tide_data_ranks(const tide_job *job);
/* Whose model it is, by its configuration. */
bool tide_job_is_of_diffusers(const tide_job *job);
bool tide_job_is_of_timm(const tide_job *job);
/* Whether the checkpoints of layers are reentrant, and adapters kept in fp32: as given, but TRL's trainers choose for
 * themselves under ZeRO-3. */
bool tide_job_is_reentrant(const tide_job *job);
bool tide_job_casts_adapters(const tide_job *job);
/* Sequences of the one row that SFTTrainer makes of a batch when it packs or is padding-free; 0: rows stay rows. */
int64_t tide_sequences_of_row(const tide_job *job);
/* Tokens of a prompt: trainer.prompt_length, or what max_completion_length leaves of seq. */
int64_t tide_prompt_length(const tide_job *job);
/* Micro-batches of one generation: GRPOConfig's default is gradient_accumulation_steps. */
int64_t tide_steps_per_generation(const tide_job *job);
/* The smallest batch with which what all ranks generate at once is whole groups (GRPOConfig.__post_init__). */
int64_t tide_least_batch(const tide_job *job);
/* Whether the KL term has a weight: beta is 0 by default in GRPO and 0.05 in RLOO. */
bool tide_keeps_reference(const tide_job *job);
/* Whether TRL's GRPOTrainer weighs what vLLM generated (vllm_importance_sampling_correction). */
bool tide_corrects_sampling(const tide_job *job);
/* Whether vLLM generates in the trainer's process. */
bool tide_has_colocated_engine(const tide_job *job);
/* Whether log-probabilities of the policy that generated are computed apart (old_per_token_logps). */
bool tide_keeps_old_logps(const tide_job *job);

enum { TIDE_VARIABLES_MOST = 128 };
uint32_t tide_job_variables(tide_arena *arena, const tide_job *job, tide_variable *variables);

/* The settings OBJECT.KEY as a configuration: {"tp": 2, ...}; what is not set, or none, is null. */
const tide_json *tide_job_object(tide_arena *arena, const tide_job *job, const char *object);

/* ---- lengths.c: samples of different lengths, and the batches that they come to ---- */

/* 0: none are set. */
int64_t tide_lengths_longest(const tide_lengths *lengths);
int64_t tide_lengths_shortest(const tide_lengths *lengths);

/* Whether batches are made of samples of different lengths: no inference is. */
bool tide_job_has_lengths(const tide_job *job);

/* Rows of a micro-batch: a pair is two. */
int64_t tide_job_rows(const tide_job *job);

/* A micro-batch of samples of different lengths, as a collator pads them. */
typedef struct tide_micro_batch {
    int64_t seq;                       /* tokens of a row */
    int64_t longest, shortest, tokens; /* of its samples, and of all of them together */
    int64_t chosen, rejected;          /* the longest of pairs */
    int64_t scored;                    /* positions behind prompts, or behind the first token */
    bool is_padded;                    /* some row is not full: the mask has to be kept */
} tide_micro_batch;

/* Number `index` of the run, of a job whose lengths are set. */
tide_micro_batch tide_job_micro_batch(const tide_job *job, uint64_t index);
uint64_t tide_job_first_sample(const tide_job *job, uint64_t index);
/* The one that begins with that sample, from 0. */
tide_micro_batch tide_job_samples(const tide_job *job, uint64_t first);
/* Batch `index` of a rank's evaluation of so many samples. Batches go round the ranks, and those of the last round are
 * filled with the samples of the first (accelerate/data_loader.py, BatchSamplerShard with even_batches). */
tide_micro_batch tide_job_evaluated(const tide_job *job, int64_t samples, int64_t index, int64_t rank);

/* When a setting is read; of TIDE_SET_COUNT, which overrides have, TIDE_READ_LOAD. */
tide_read tide_setting_read_at(tide_setting_id id);

/* The device and the allocator alone, for a recording: of the words only gpu, gpu_gib, memory_fraction and allocator
 * may be given. What is not given is in no row. NULL after an error. */
tide_job *tide_job_device(tide_arena *arena, const tide_text *words, uint32_t word_count, tide_diagnostics *diags);

/* Types and ranges of the configuration's entries that are read as sizes, probabilities or switches. */
bool tide_job_check_config(tide_arena *arena, const tide_job *job, tide_diagnostics *diags);

/* What names the kind of a configuration: model_type, or _class_name of diffusers, or architecture of timm; NULL:
 * nothing. */
const tide_json *tide_config_type(const tide_json *config);

/* Where an entry of the configuration was given: "/settings/overrides.n_head" or "/config.json/n_head". */
const char *tide_job_config_place(tide_arena *arena, const tide_job *job, const tide_json *entry);

/* A case of the oracle (a flat JSON object) as words; false and a reason if a key has no word. */
bool tide_job_arguments_of_case(tide_arena *arena, const tide_json *of_case, tide_text **words, uint32_t *count,
                                const char **reason);

/* A recorded start of an engine as words of mode=serve, but for its GPU. */
void tide_job_arguments_of_start(tide_arena *arena, const tide_json *of_case, tide_text **words, uint32_t *count);

/* The configurations that a case brings ("config", "preprocessor": objects), as files after those that there are. */
void tide_job_add_files_of_case(tide_arena *arena, const tide_json *of_case, tide_file **files, uint32_t *count);

/* config.json of a model of the catalogue, by its name or its path on the Hub; NULL: it is not there. */
const tide_json *tide_catalogue_config(tide_arena *arena, const char *name, tide_diagnostics *diags);
/* As the Hub calls a model of the catalogue, or the name itself. */
const char *tide_catalogue_hub_name(tide_arena *arena, const char *name);

/* The settings with types, defaults, choices, units and help, the catalogue (which may be in the pack) and the GPUs,
 * as members of an open object. is_form: without what a form can do without at first, help and catalogue. */
void tide_job_describe(tide_arena *arena, tide_writer *writer, bool is_form);

/* ---- links: a job as `key=value&...&v=1`, the part of an address after its # ---- */

enum {
    TIDE_LINK_VERSION = 1,           /* of the grammar and of the table of defaults */
    TIDE_LINK_READ_LIMIT = 256 << 10 /* bytes; an inflated link is no longer */
};

/* What a page that opens a link shows; "" each: it says nothing of that. It has no effect on the answer. */
typedef struct tide_link_view {
    tide_text view;  /* the panel that is open */
    tide_text sel;   /* what is chosen in it */
    tide_text sweep; /* the axes of a heat map */
} tide_link_view;

/* What stands in a link. */
typedef struct tide_link {
    tide_text *words; /* "name=value", canonical names, values that can be read */
    uint32_t word_count;
    tide_text *baseline;     /* b.KEY: the whole job of the baseline, as words */
    uint32_t baseline_count; /* 0: none */
    tide_file files[3];      /* config=, preprocessor=, description=: the content of files */
    uint32_t file_count;
    tide_text was; /* "61.8_0.1.0": GiB and version when it was made; "" */
    tide_link_view view;
} tide_link;

/* Forgiving: an unknown key, a value that cannot be read, a link that was cut or is newer are warnings at /link, and
 * what is left is read. `text` may be a whole address; one level of percent-encoding too many is taken off. */
void tide_link_read(tide_arena *arena, tide_text text, tide_link *link, tide_diagnostics *diags);

/* Words, as those of a link, and what holds over them: of a setting that both name the latter alone stays. */
uint32_t tide_words_join(tide_arena *arena, const tide_text *under, uint32_t under_count, const tide_text *words,
                         uint32_t count, tide_text **joined);

/* The job's link: what differs from the defaults, and the content of the files it came from; "v=1" last. */
const char *tide_link_write(tide_arena *arena, const tide_job *job);

/* The same with "b.KEY=VALUE" for what `baseline` has in another way (NULL: none), with view=, sel= and sweep= (NULL:
 * none of them), and with was= ("": without). */
const char *tide_link_write_more(tide_arena *arena, const tide_job *job, const tide_job *baseline,
                                 const tide_link_view *view, tide_text was);

/* "2.4", "2.4.1" or "2.4.0+cu121" as 2004; 0: none of these. */
int tide_version_number(const char *text);

#endif
