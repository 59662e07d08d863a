/* SPDX-License-Identifier: Apache-2.0 */
/* Files of other programs. Private to job/.
 *
 * A reader is a file of this folder and a row of readers.def: the first row that recognises a file, by what is in it,
 * reads it. A reader of a model's own files says at once what they are (`read`). A reader of files that start something
 * has a table of keys: what they say is claimed for settings when all files are there, in the order of readers.def,
 * and settled together (claims.h). */
#ifndef TIDE_JOB_READERS_READERS_H
#define TIDE_JOB_READERS_READERS_H

#include "job/arguments.h"

struct tide_claims;
struct tide_key_table;

/* What the files are. */
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
    const char *asked_model, *asked_place; /* that a file which starts training names; NULL: none */
    const char *program;                   /* that a file is of, as versions.def spells it; NULL: none of these */
    tide_file_summary *summaries, *last_summary;
    unsigned frozen_parts; /* LLaMA-Factory's freeze_vision_tower, freeze_multi_modal_projector, freeze_language_model:
                              bits */
    tide_checkpoint checkpoint;
} tide_inputs;

/* A file that is read. */
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

/* A file, by the first reader that recognises it. */
void tide_file_read(tide_reading *r);

/* What a file that starts training is of. */
typedef enum tide_program {
    TIDE_PROGRAM_none,
#define TIDE_PROGRAM(name, title) TIDE_PROGRAM_##name,
#include "job/readers/programs.def"
#undef TIDE_PROGRAM
} tide_program;

typedef struct tide_reader {
    const char *title;                              /* "an axolotl configuration" */
    const char *marks;                              /* keys joined by `|`: an object with one of them is such a file */
    bool (*recognises)(const tide_json *root);      /* where that takes more than a key */
    void (*read)(tide_reading *r, tide_json *root); /* at once; NULL: it has claims */
    const struct tide_key_table *keys;              /* NULL: settle() reads it */
    bool trains;                                    /* of files that say what trains there is one */
    bool joins;                                     /* a command, which may hold such a file */
    bool interpolates;                              /* values may be references (interpolation.h) */
    int precedence;                                 /* of what it says: from 3, of commands, to 0 */
    tide_program program;                           /* what is particular to files of it is asked by this */
    const char *refuses_unknown;           /* the program that refuses keys which it does not know; NULL: it reads on */
    void (*settle)(struct tide_claims *c); /* what the files say together; once for all that have the same. NULL: as
                                            * those say it that start training */
} tide_reader;

enum { TIDE_PRECEDENCE_MOST = 3 };

/* Reports "NAME message" at the file; false. */
bool tide_file_refuse(const tide_reading *r, tide_status status, const char *message, const char *remedy);

/* Reads the files: settings of job files into *arguments, the rest into *inputs. */
void tide_files_read(tide_inputs *inputs, tide_job_arguments *arguments, const tide_file *files, uint32_t count);

#define TIDE_GIVE_CONFIG "give the model's config.json"

/* model_files.c: the members of a catalogue entry; false after an error. */
bool tide_entry_read(tide_inputs *inputs, tide_arena *arena, const tide_json *entry, const char *place,
                     tide_diagnostics *diags);

/* quantization.c: what the frameworks raise an error for in a "quantization_config", and the key that has it; NULL:
 * nothing. */
const char *tide_quantization_fault(const tide_json *from, const char **key);
/* One without a fault as settings; false if it is of a kind that is not expressed. */
bool tide_quantization_read(tide_job_arguments *arguments, const tide_json *from);

/* safetensors.c: after the last file, each name once; an index's names are in the headers, if there are any. False
 * after an error. */
bool tide_checkpoint_settle(tide_checkpoint *checkpoint, tide_arena *arena, tide_diagnostics *diags);

#endif
