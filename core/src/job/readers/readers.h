/* SPDX-License-Identifier: Apache-2.0 */
/* Files of other programs. Private to job/.
 *
 * A reader is a file of this folder and a row of readers.def: the first one that recognises the content of a file reads
 * it. A reader for files of a model interprets them directly (`read`). A reader for files that start training or a
 * server has a table of keys: after all files were read, their claims are turned into settings, in the order of
 * readers.def, and settled together (claims.h). */
#ifndef TIDE_JOB_READERS_READERS_H
#define TIDE_JOB_READERS_READERS_H

#include "job/arguments.h"

struct tide_claims;
struct tide_key_table;

/* LLaMA-Factory's finetuning_type=freeze (hparams/finetuning_args.py, FreezeArguments): which layers train. */
typedef struct tide_freeze_tuning {
    bool is_asked, is_llama_pro;
    int64_t layers; /* the last ones; below 0: the first ones */
    const char *place, *modules, *extra_modules;
} tide_freeze_tuning;

/* The content of the files. */
typedef struct tide_inputs {
    tide_json *config;
    const char *config_name; /* of the model */
    const char *config_file;
    tide_json *preprocessor;
    const tide_json *description;
    tide_text description_text;
    tide_text config_text, preprocessor_text; /* of files */
    const char *title, *source;
    int64_t published_parameters;
    bool assumes_config, assumes_dtype;    /* no publication confirms it */
    const char *asked_model, *asked_place; /* named by a file that starts training; NULL: none */
    const char *program;                   /* that a file belongs to, as spelled in versions.def; NULL: none of these */
    tide_file_summary *summaries, *last_summary;
    unsigned frozen_parts; /* LLaMA-Factory's freeze_vision_tower, freeze_multi_modal_projector, freeze_language_model:
                              bits */
    tide_freeze_tuning freeze_tuning;
    int64_t image_max_pixels; /* to which LLaMA-Factory resizes larger images; 0: not given */
    tide_file_key *resizes;   /* axolotl's resize_token_embeddings_to_32x; NULL: not given */
    const char *resizes_place;
    bool has_processor; /* axolotl's processor_type: samples may have images */
    tide_checkpoint checkpoint;
    tide_pin *pins;
    uint32_t pin_count, pin_capacity;
} tide_inputs;

/* A file being read. */
typedef struct tide_reading {
    tide_inputs *inputs;
    tide_job_arguments *arguments;
    struct tide_claims *claims;
    tide_arena *arena;
    tide_diagnostics *diags;
    const char *place, *name; /* "/files/0"; as shown */
    tide_text text;
    bool is_in_link; /* of a job that is a file */
} tide_reading;

/* Reads a file with the first reader that recognises it. */
void tide_file_read(tide_reading *r);

/* The program of a file that starts training. */
typedef enum tide_program {
    TIDE_PROGRAM_none,
#define TIDE_PROGRAM(name, title) TIDE_PROGRAM_##name,
#include "job/readers/programs.def"
#undef TIDE_PROGRAM
} tide_program;

typedef struct tide_reader {
    const char *title;                         /* "an axolotl configuration" */
    const char *marks;                         /* keys separated by `|`: an object with one of them is such a file */
    bool (*recognises)(const tide_json *root); /* if a key is not enough */
    void (*read)(tide_reading *r, tide_json *root); /* directly; NULL: it makes claims */
    const struct tide_key_table *keys;              /* NULL: settle() reads it */
    bool trains;                                    /* at most one file may say what to train */
    bool joins;                                     /* a command, which may contain such a file */
    bool interpolates;                              /* values may be references (interpolation.h) */
    int precedence;                                 /* of its claims: from 3, for commands, down to 0 */
    tide_program program;                           /* identifies the program */
    const char *refuses_unknown;                    /* the program that refuses unknown keys; NULL: it ignores them */
    void (*settle)(struct tide_claims *c);          /* settles facts of the files; called once for readers with the same
                                                       function. NULL: as for files that start training */
} tide_reader;

enum { TIDE_PRECEDENCE_MOST = 3 };

/* Reports "NAME message" at the file; returns false. */
bool tide_file_refuse(const tide_reading *r, tide_status status, const char *message, const char *remedy);

/* Reads the files: settings of job files into *arguments, the rest into *inputs. */
void tide_files_read(tide_inputs *inputs, tide_job_arguments *arguments, const tide_file *files, uint32_t count);

#define TIDE_GIVE_CONFIG "give the model's config.json"

/* model_files.c: the members of a catalogue entry; false after an error. */
bool tide_entry_read(tide_inputs *inputs, tide_arena *arena, const tide_json *entry, const char *place,
                     tide_diagnostics *diags);

/* quantization.c: an error that the frameworks raise for a "quantization_config", and the key to blame; NULL: none. */
const char *tide_quantization_fault(const tide_json *from, const char **key);
/* Reads a valid one as settings; false if it is of an unsupported kind. */
bool tide_quantization_read(tide_job_arguments *arguments, const tide_json *from);

/* safetensors.c: called after the last file; each name must be unique, and the names of an index must be in headers, if
 * there are any. False after an error. */
bool tide_checkpoint_settle(tide_checkpoint *checkpoint, tide_arena *arena, tide_diagnostics *diags);

#endif
