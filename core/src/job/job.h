/* SPDX-License-Identifier: Apache-2.0 */
/* job/: what is to be run.
 *
 * Arguments (key=value), links and files become a job: every setting with its value and its origin. A setting is a row
 * of settings.def, which defines its field, how it is read, its help and its description. Files of models and trainers
 * are read in readers/, one file for each program. What is missing is taken from the model, the recipe or the default,
 * and reported; contradictions are refused with a way out. A job is immutable: what plays it only reads it. */
#ifndef TIDE_JOB_JOB_H
#define TIDE_JOB_JOB_H

#include "allocator/allocator.h"
#include "base/json_read.h"
#include "base/json_write.h"
#include "job/settings_types.h"

typedef enum tide_origin { TIDE_ORIGIN_DEFAULT, TIDE_ORIGIN_RECIPE, TIDE_ORIGIN_FILE, TIDE_ORIGIN_USER } tide_origin;

/* What a key of a file that starts training was used for. */
typedef enum tide_key_effect {
    TIDE_KEY_USED,
    TIDE_KEY_IGNORED,     /* no effect on memory */
    TIDE_KEY_UNSUPPORTED, /* may matter, but is not described */
    TIDE_KEY_UNKNOWN,
    TIDE_KEY_OVERRULED, /* another file takes precedence */
    TIDE_KEY_EFFECT_COUNT
} tide_key_effect;

typedef struct tide_file_key {
    const char *key;             /* such as fsdp_config/fsdp_version */
    const char *value;           /* as given; NULL: an object or null */
    const char *setting, *taken; /* USED: the setting and its value; NULL if it affected several */
    const char *note;            /* NULL: none */
    tide_key_effect effect;
    struct tide_file_key *next;
} tide_file_key;

typedef struct tide_file_summary {
    const char *name, *title; /* "an Accelerate configuration" */
    tide_file_key *first, *last;
    struct tide_file_summary *next;
} tide_file_summary;

/* The tensors of a checkpoint, from the headers of its safetensors files. */
enum { TIDE_STORED_DIMS = 8 };

typedef struct tide_stored {
    tide_text name, dtype; /* as in the file: "F32", "BF16" */
    int64_t shape[TIDE_STORED_DIMS];
    uint32_t dims;
    int64_t count, begin, bytes; /* elements; position in the file's data */
    const char *file;
} tide_stored;

typedef struct tide_checkpoint {
    tide_stored *tensors; /* sorted by name after tide_checkpoint_settle */
    uint32_t count, capacity, file_count;
    int64_t bytes;
    const tide_json *index; /* "weight_map": name to file; NULL: none */
    const char *index_file;
    int64_t total_size; /* from the index; 0: not given */
} tide_checkpoint;

/* NULL: the checkpoint has no tensor of that name. */
const tide_stored *tide_stored_find(const tide_checkpoint *checkpoint, tide_text name);

/* The dtype of a configuration, or else of a checkpoint (NULL: none given), as in "float16"; empty: neither has one. */
tide_text tide_model_dtype(const tide_json *config, const tide_checkpoint *checkpoint);

/* A row of models/gpus.json. */
typedef struct tide_gpu {
    const char *name, *title, *source, *context_source;
    uint64_t bytes;         /* as reported by the driver */
    uint64_t context_bytes; /* CUDA context and loaded kernels */
    int capability;         /* times 10 */
    int sms, threads_per_sm;
} tide_gpu;

/* When a setting is read: when (or before) the model is loaded, when a loaded model is prepared for playing, or only by
 * the step. What is not read again may be kept from one job to the next. */
typedef enum tide_read { TIDE_READ_LOAD, TIDE_READ_PLAY, TIDE_READ_STEP } tide_read;

typedef enum tide_setting_id {
#define TIDE_SETTING(name, ...) TIDE_SET_##name,
#include "job/settings.def"
    TIDE_SET_COUNT
} tide_setting_id;

/* A setting with its final value, for the report, the link and the form. */
typedef struct tide_setting_row {
    tide_setting_id id; /* TIDE_SET_COUNT: an override */
    const char *name;
    const char *value; /* canonical text */
    tide_origin origin;
    const char *variable; /* its name in model descriptions; NULL: not visible there */
    bool is_default;      /* the value equals the default, whoever gave it */
} tide_setting_row;

/* What LLaMA-Factory adds to a batch without images, of a model that sees some: an image for all of its rows. */
typedef struct tide_added_image {
    bool is_added, has_size; /* the processor goes by its size, as it is of 64 x 64 pixels */
    int64_t markers;         /* tokens besides those of its features */
} tide_added_image;

typedef struct tide_job {
    const char *model; /* name in the catalogue, or of a given configuration */
    const char *model_title, *model_source;
    int64_t published_parameters;  /* 0: unknown */
    const tide_json *config;       /* after overrides and dropout */
    const tide_json *preprocessor; /* NULL: none */
    const tide_json *description;  /* given by the user; NULL: none */
    tide_text description_text;
    const tide_checkpoint *checkpoint;        /* from the headers of safetensors files; NULL: none was given */
    tide_text config_text, preprocessor_text; /* of given files; empty: none */
    tide_added_image added_image;
    bool names_itself; /* the model is a file that contains its name */
    tide_text was;     /* GiB and version when the job's link was made; empty: not recorded */

    /* The settings, each under its name, with `_` for a dot. */
#define TIDE_SETTING(name, type, ...) TIDE_FIELD_##type(name)
#include "job/settings.def"
    const char *values[TIDE_SET_COUNT]; /* the same as canonical text; "": not set */

    tide_alloc_conf allocator_conf; /* of `allocator` */
    bool has_gpu;
    tide_gpu gpu;
    uint64_t device_bytes;       /* 0: unlimited */
    int64_t memory_fraction_ppm; /* set_per_process_memory_fraction, parts per million; 0: none */

    tide_setting_row *rows;
    uint32_t row_count;
    const char *link;               /* what differs from the defaults, with "v=1" last */
    const tide_file_summary *files; /* those that start training, in order */

    int64_t versions_percent;   /* by how much the peak may be off, because of requested versions that no recorded run
                                   covers */
    const char *versions_asked; /* "transformers 4.44"; NULL: none of these */
    const char *program; /* the program that a file belongs to and that pins versions of its own, such as "axolotl";
                            NULL: none */
    const struct tide_pin *pins; /* of libraries whose versions are no settings */
    uint32_t pin_count;
} tide_job;

/* A version of a library that a file pins. */
typedef struct tide_pin {
    const char *title, *version; /* the title as in versions.def */
    const char *file, *place;    /* as shown, and "/files/0" */
} tide_pin;

/* A library involved in a job, and the version whose allocations are played; versions.def. */
typedef struct tide_library {
    const char *title, *version; /* "transformers", "5.23.0" */
    const char *asked;           /* another version that was requested; NULL: none */
    const char *pinned, *by;     /* another version that a file or the job's program pins, and which that is: "axolotl
                                    0.19.0"; NULL: none */
    const char *place;           /* of the file that pins it; NULL: none does */
} tide_library;

enum { TIDE_LIBRARIES_MOST = 16 };

/* The library of a package of PyPI, with its recorded version; a title of NULL: none that versions.def has. */
tide_library tide_library_of_package(tide_text package);

/* Returns how many there are; libraries must have room for that many. */
uint32_t tide_job_libraries(const tide_job *job, tide_library *libraries);

/* A file given with the request. */
typedef struct tide_file {
    tide_text name, text;
} tide_file;

/* Builds a job. words are "key=value"; every problem is reported, and so is every default that affects the result, as
 * an assumption. NULL after an error. */
tide_job *tide_job_build(tide_arena *arena, const tide_text *words, uint32_t word_count, const tide_file *files,
                         uint32_t file_count, tide_diagnostics *diags);

/* The words of a request, in which jobs in natural language ("mistral 7b qlora on a 4090") are replaced by a model of
 * the catalogue and settings; how they were understood is reported. `asks`: the setting whose largest value is asked
 * for, if any ("seq"); NULL: not of interest. */
tide_text *tide_phrases_read(tide_arena *arena, const tide_text *words, uint32_t *count, tide_diagnostics *diags,
                             const char **asks);

/* Whether a text contains a command that starts training or a server, rather than a job in words: a program followed by
 * an option or a file. */
bool tide_is_command(tide_arena *arena, tide_text text);

/* Whether the adapter consists of trained tokens before the sample: prompt tuning, prefix tuning and p-tuning. */
bool tide_job_prompts(const tide_job *job);
/* Whether weights are stored in the formats of GPTQ, AWQ, fp8 or compressed-tensors. */
bool tide_job_packs_weights(const tide_job *job);

/* Whether it trains with a stage of DeepSpeed's ZeRO. */
bool tide_job_has_deepspeed(const tide_job *job);

/* All ranks of the job. */
int64_t tide_job_world(const tide_job *job);

/* Whether the loop is that of transformers' Trainer, which TRL's inherit. */
bool tide_job_has_trainer(const tide_job *job);
/* Whether it is one of TRL's, or LLaMA-Factory's of the same name, with a loss of its own. */
bool tide_trainer_is_of_trl(const tide_job *job);
/* Whether a trainer runs each micro-batch under context_parallel(): accelerate's ParallelismConfig with cp_size. */
bool tide_trainer_cuts_sequences(const tide_job *job);

/* The ranks over which gradients are reduced: data parallel ones, and those that share a sequence. */
int64_t tide_job_reduction_ranks(const tide_job *job);

/* Whether transformers shards the model by its configuration's plan (parallel.tp_plan=auto). */
bool tide_job_has_auto_plan(const tide_job *job);

/* Whether that plan gives each rank experts of its own. */
bool tide_job_cuts_experts(const tide_job *job);

/* Whether the job trains torchtitan's own modules, by its trainer. */
bool tide_job_has_torchtitan_models(const tide_job *job);

/* Whether norms and residuals are sharded along the sequence: of torchtitan's own modules on all tensor parallel ranks.
 */
bool tide_job_shards_sequence(const tide_job *job);

/* maybe_enable_amp() of torchtitan: where nothing is sharded, parallel.param_dtype is autocast's. */
bool tide_job_autocasts_torchtitan(const tide_job *job);

/* torchtitan/distributed/pipeline_parallel.py, generate_llm_fqn_per_model_part(): the layers before a stage, if the
 * embedding and the head count as `first` and `last` more. */
int64_t tide_torchtitan_layers_before(int64_t layers, int64_t first, int64_t last, int64_t stages, int64_t stage);
/* parallel.ac: of how many blocks one is checkpointed; 0: none. */
int64_t tide_job_checkpoint_period(const tide_job *job);

/* Whether torchtitan's own experts are sharded over expert parallel ranks; ranks within an expert, 1 by default. */
bool tide_job_cuts_torchtitan_experts(const tide_job *job);
int64_t tide_job_expert_tensor_ranks(const tide_job *job);
/* Whether torchtitan's experts replace the model's, sharded over expert parallel ranks. */
bool tide_job_has_torchtitan_experts(const tide_job *job);

/* Whether modules are made on the meta device, so that only a rank's parts are allocated (parallel.meta_init). */
bool tide_job_is_sgd(const tide_job *job);     /* Megatron-Core's sgd, with or without momentum */
bool tide_job_is_adagrad(const tide_job *job); /* torch.optim.Adagrad, whose constructor makes its states */
bool tide_job_is_on_meta(const tide_job *job);

/* `vllm serve MODEL` with flags for the settings of a job with mode=serve. */
const char *tide_job_serve_command(const tide_job *job, tide_arena *arena);

/* Whether a setting without a default is set. */
bool tide_job_sets(const tide_job *job, tide_setting_id id);

/* What model descriptions see of a job, under the names in settings.def (.variable). */
typedef struct tide_variable {
    const char *name;
    enum { TIDE_VARIABLE_INT, TIDE_VARIABLE_BOOL, TIDE_VARIABLE_NUMBER, TIDE_VARIABLE_TEXT } kind;
    int64_t integer;
    bool is_true;
    double number;
    const char *text; /* the value as canonical text */
    tide_read read;
} tide_variable;

/* Returns how many there are; variables must have room for that many. */
/* ---- trainers.c: TRL's trainers that generate what they learn from (GRPO, RLOO) ---- */

bool tide_trainer_generates(const tide_job *job);
/* Whether rows are a prompt and what the model adds to it (GRPO, RLOO, online DPO). */
bool tide_trainer_completes(const tide_job *job);
/* Whether it learns from the logits of another model (GKD). */
bool tide_trainer_distils(const tide_job *job);
/* Whether it learns from answers that the model or its teacher generates. */
bool tide_trainer_answers_prompts(const tide_job *job);
/* Whether everything that is not quantised is cast from fp32 to bf16 after adapters are added, and the loss is computed
 * under autocast: ORPOTrainer and CPOTrainer with 4 bits. */
bool tide_trainer_casts_to_bf16(const tide_job *job);
/* Whether peft knows the task: then PeftModelForCausalLM calls its tuner, otherwise PeftModel calls the model in it. */
bool tide_adapter_has_task(const tide_job *job);
/* Whether the trainer itself calls prepare_model_for_kbit_training(): trl/experimental/orpo/orpo_trainer.py and
 * cpo/cpo_trainer.py, __init__, if there are adapters. */
bool tide_trainer_prepares_kbit(const tide_job *job);
/* Whether the model keeps its dtypes by default: trainers of TRL are given a loaded one. */
bool tide_trainer_leaves_kbit(const tide_job *job);
/* The default of a setting that the trainer has instead of the loop's; NULL: the same. */
const char *tide_trainer_default(const tide_job *job, tide_setting_id id);
/* Whether prepare_model_for_kbit_training() is called at all. */
bool tide_prepares_kbit(const tide_job *job);
/* Whether deepspeed.zero.Init() partitioned the model as it was made. */
bool tide_job_has_zero_init(const tide_job *job);
/* Whether forward() runs under autocast: DeepSpeed's engine disables it (deepspeed/runtime/torch_autocast.py), and a
 * trainer leaves dtypes to fully_shard. */
bool tide_job_autocasts(const tide_job *job);
/* Whether Trainer.place_model_on_device holds, or there is no trainer: DeepSpeed and FSDP get a model on the host. */
bool tide_trainer_places_model(const tide_job *job);
/* Ranks over which a batch is spread; one GPU: 1. */
int64_t tide_data_ranks(const tide_job *job);
/* Whether the model is from diffusers, according to its configuration. */
bool tide_job_is_of_diffusers(const tide_job *job);
bool tide_job_is_of_timm(const tide_job *job);
/* Whether transformers makes the model, and not Megatron-Core or a server. */
bool tide_job_is_of_transformers(const tide_job *job);
/* Whether checkpoints of layers are reentrant, and whether adapters are kept in fp32: as given, except that TRL's
 * trainers choose themselves under ZeRO-3. */
bool tide_job_is_reentrant(const tide_job *job);
bool tide_job_casts_adapters(const tide_job *job);
/* The number of sequences in the single row that SFTTrainer makes of a batch when it packs or is padding-free; 0: rows
 * stay rows. */
int64_t tide_sequences_of_row(const tide_job *job);
/* Tokens of a prompt: trainer.prompt_length, or what max_completion_length leaves of seq. */
int64_t tide_prompt_length(const tide_job *job);
/* Micro-batches per generation: by default, GRPOConfig uses gradient_accumulation_steps. */
int64_t tide_steps_per_generation(const tide_job *job);
/* The smallest batch for which all ranks together generate complete groups (GRPOConfig.__post_init__). */
int64_t tide_least_batch(const tide_job *job);
/* Whether the KL term has a weight: by default beta is 0 in GRPO and 0.05 in RLOO. */
bool tide_keeps_reference(const tide_job *job);
/* Whether TRL's GRPOTrainer weights what vLLM generated (vllm_importance_sampling_correction). */
bool tide_corrects_sampling(const tide_job *job);
bool tide_finds_unused_parameters(const tide_job *job); /* of DistributedDataParallel */
/* Whether vLLM generates in the trainer's process. */
bool tide_has_colocated_engine(const tide_job *job);
/* Whether log-probabilities of the policy that generated are computed separately (old_per_token_logps). */
bool tide_keeps_old_logps(const tide_job *job);

enum { TIDE_VARIABLES_MOST = 128 };
uint32_t tide_job_variables(tide_arena *arena, const tide_job *job, tide_variable *variables);

/* The settings OBJECT.KEY as a configuration: {"tp": 2, ...}; null for what is not set or none. */
const tide_json *tide_job_object(tide_arena *arena, const tide_job *job, const char *object);

/* ---- lengths.c: samples of different lengths, and the batches that they come to ---- */

/* 0: no lengths are set. */
int64_t tide_lengths_longest(const tide_lengths *lengths);
int64_t tide_lengths_shortest(const tide_lengths *lengths);

/* Whether batches consist of samples of different lengths; never in inference. */
bool tide_job_has_lengths(const tide_job *job);

/* Rows of a micro-batch: a pair counts as two. */
int64_t tide_job_rows(const tide_job *job);

/* A micro-batch of samples of different lengths, padded as by a collator. */
typedef struct tide_micro_batch {
    int64_t seq;                       /* tokens per row */
    int64_t longest, shortest, tokens; /* of its samples, and in total */
    int64_t chosen, rejected;          /* the longest ones of pairs */
    int64_t scored;                    /* positions after prompts, or after the first token */
    bool is_padded;                    /* some row is not full, so the mask is kept */
} tide_micro_batch;

/* Micro-batch number `index` of the run, for a job with lengths. */
tide_micro_batch tide_job_micro_batch(const tide_job *job, uint64_t index);
uint64_t tide_job_first_sample(const tide_job *job, uint64_t index);
/* The one that starts with a given sample, from 0. */
tide_micro_batch tide_job_samples(const tide_job *job, uint64_t first);
/* Batch `index` of a rank's evaluation of so many samples. Batches are dealt to the ranks in turn, and those of the
 * last round are filled with samples of the first (accelerate/data_loader.py, BatchSamplerShard with even_batches). */
tide_micro_batch tide_job_evaluated(const tide_job *job, int64_t samples, int64_t index, int64_t rank);

/* When a setting is read; TIDE_READ_LOAD for TIDE_SET_COUNT, which overrides have. */
tide_read tide_setting_read_at(tide_setting_id id);

/* The name of the setting that has this alias, or that a key of another program sets; the word itself if none has. */
const char *tide_setting_named(tide_arena *arena, tide_text word);

/* Only the device and the allocator, for a recording: words may only give gpu, gpu_gib, memory_fraction and allocator.
 * There are no rows for what is not given. NULL after an error. */
tide_job *tide_job_device(tide_arena *arena, const tide_text *words, uint32_t word_count, tide_diagnostics *diags);

/* Checks types and ranges of the configuration's entries that are read as sizes, probabilities or switches. */
bool tide_job_check_config(tide_arena *arena, const tide_job *job, tide_diagnostics *diags);
/* Whether transformers makes a model of the configuration. */
bool tide_job_check_library(tide_arena *arena, const tide_job *job, tide_diagnostics *diags);

/* What identifies the kind of a configuration: model_type, or _class_name for diffusers, or architecture for timm;
 * NULL: none. */
const tide_json *tide_config_type(const tide_json *config);

/* The key that a name sets: PreTrainedConfig's attribute_map has other names for some. */
tide_text tide_config_key(tide_arena *arena, const tide_json *config, tide_text name, tide_diagnostics *diags);
/* Where an entry of the configuration was given: "/settings/overrides.n_head" or "/config.json/n_head". */
const char *tide_job_config_place(tide_arena *arena, const tide_job *job, const tide_json *entry);

/* A recorded case (a flat JSON object) as words; false with a reason if a key has no equivalent. */
bool tide_job_arguments_of_case(tide_arena *arena, const tide_json *of_case, tide_text **words, uint32_t *count,
                                const char **reason);

/* A recorded start of an engine as words of mode=serve, without its GPU. */
void tide_job_arguments_of_start(tide_arena *arena, const tide_json *of_case, tide_text **words, uint32_t *count);

/* Appends the configurations in a case ("config", "preprocessor": objects) as files. */
void tide_job_add_files_of_case(tide_arena *arena, const tide_json *of_case, tide_file **files, uint32_t *count);

/* The config.json of a model in the catalogue, by its name or its path on the Hub; NULL: not there. */
const tide_json *tide_catalogue_config(tide_arena *arena, const char *name, tide_diagnostics *diags);
/* The name of a catalogue model on the Hub, or the given name. */
const char *tide_catalogue_hub_name(tide_arena *arena, const char *name);

/* Writes the settings with types, defaults, choices, units and help, the catalogue (which may be in the pack) and the
 * GPUs, as members of an open object. is_form: leaves out what a form does not need at first, help and catalogue. */
void tide_job_describe(tide_arena *arena, tide_writer *writer, bool is_form);

/* ---- links: a job as `key=value&...&v=1`, the part of an address after its # ---- */

enum {
    TIDE_LINK_VERSION = 1,           /* of the grammar and of the defaults */
    TIDE_LINK_READ_LIMIT = 256 << 10 /* bytes; also after decompression */
};

/* What a page shows when it opens a link; "" if not given. Without effect on the answer. */
typedef struct tide_link_view {
    tide_text view;  /* the open panel */
    tide_text sel;   /* the selection in it */
    tide_text sweep; /* the axes of a heat map */
} tide_link_view;

/* The content of a link. */
typedef struct tide_link {
    tide_text *words; /* "name=value" with canonical names and valid values */
    uint32_t word_count;
    tide_text *baseline;     /* b.KEY: the complete job of the baseline, as words */
    uint32_t baseline_count; /* 0: none */
    tide_file files[3];      /* config=, preprocessor=, description=: the content of files */
    uint32_t file_count;
    tide_text was; /* "61.8_0.1.0": GiB and version when it was made; "" */
    tide_link_view view;
} tide_link;

/* Tolerant: unknown keys, invalid values, and links that are truncated or newer give warnings at /link, and the rest is
 * read. `text` may be a full address; one extra level of percent-encoding is removed. */
void tide_link_read(tide_arena *arena, tide_text text, tide_link *link, tide_diagnostics *diags);

/* Joins the words of a link with those that override them: of a setting in both, only the latter stays. */
uint32_t tide_words_join(tide_arena *arena, const tide_text *under, uint32_t under_count, const tide_text *words,
                         uint32_t count, tide_text **joined);

/* The job's link: what differs from the defaults, and the content of the files it came from; "v=1" last. */
const char *tide_link_write(tide_arena *arena, const tide_job *job);

/* The same with "b.KEY=VALUE" for differences of `baseline` (NULL: none), with view=, sel= and sweep= (NULL: none), and
 * with was= ("": without). */
const char *tide_link_write_more(tide_arena *arena, const tide_job *job, const tide_job *baseline,
                                 const tide_link_view *view, tide_text was);

/* Whether the trainer builds the logits of every position: DPO and KTO of TRL before 1.14, and of LLaMA-Factory. */
bool tide_trl_builds_logits(const tide_job *job);
/* TRL's trainers that call backbone and head themselves: they set fused_linear_cross_entropy in liger_kernel_config to
 * false (sft_trainer.py and others, __init__). */
bool tide_trl_fuses_head(const tide_job *job);
/* LLaMA-Factory's trainers, which are given a model with its adapter. */
bool tide_trainer_is_of_factory(const tide_job *job);
/* LLaMA-Factory's rewards, of a decoder that keeps its head beside a value head. */
bool tide_trainer_has_value_head(const tide_job *job);
/* Its preferences without a reference model: orpo and simpo. */
bool tide_trainer_has_odds(const tide_job *job);

#endif
