/* SPDX-License-Identifier: Apache-2.0 */
/* The stages of tide_job_build, in the order in which it calls them. Private to job/. */
#ifndef TIDE_JOB_BUILDER_H
#define TIDE_JOB_BUILDER_H

#include "job/readers/readers.h"

typedef struct tide_job_builder {
    tide_arena *arena;
    tide_diagnostics *diags;
    tide_job *job;
    tide_job_arguments arguments;
    tide_inputs inputs;
    bool model_is_file;   /* the configuration is a file that names itself: a link needs no setting for it */
    bool is_of_catalogue; /* the configuration is from the catalogue, whose entries are complete */
    bool files_failed;
    const char *capability_default;
} tide_job_builder;

/* "/settings/NAME". */
const char *tide_builder_place(const tide_job_builder *b, tide_setting_id id);
/* An error there. */
void tide_builder_refuse(tide_job_builder *b, tide_status status, tide_setting_id id, const char *message,
                         const char *remedy);

/* read_versions.c */
void tide_read_recipe(tide_job_builder *b);
void tide_read_versions(tide_job_builder *b);

/* versions.c */
/* By how much a peak may be off, in percent, with this version of a library; 0 for the recorded one. */
int64_t tide_unrecorded_percent(tide_setting_id library, int number);
/* Warns of versions that files pin and no run is recorded of; for a complete job. */
void tide_warn_of_pins(tide_job_builder *b);

/* model.c */
void tide_find_model(tide_job_builder *b);
void tide_change_config(tide_job_builder *b);
/* What no rule describes (a key of the job's files or of its configuration) leaves the job without a verdict. */
void tide_leave_undescribed(tide_job_builder *b, const char *key);
/* Whether a key of that name is left so, by the job's files or by tide_leave_undescribed(). */
bool tide_is_undescribed(const tide_job_builder *b, const char *key);

/* loading.c */
void tide_load_as_program(tide_job_builder *b);

/* config_defaults.c */
void tide_fill_config(tide_job_builder *b);
/* What models/config_defaults.json has of a model type; NULL: nothing. */
const tide_json *tide_config_defaults_of(tide_arena *arena, tide_text model_type, tide_diagnostics *diags);

/* composites.c */
void tide_load_as_factory(tide_job_builder *b);

/* gpus.c */
void tide_find_gpu(tide_job_builder *b);
void tide_size_device(tide_job_builder *b);
/* All rows of models/gpus.json, and whether words may refer to one of them: "rtx 4090", or the ambiguous "a100". */
const tide_json *tide_gpu_list(tide_arena *arena, tide_diagnostics *diags);
bool tide_gpu_is_named(tide_arena *arena, const tide_json *gpus, const char *words);
void tide_warn_of_fraction(tide_job_builder *b);

/* fields.c */
void tide_fill_fields(tide_job_builder *b);
/* The setting whose value makes another one unread, directly or through what that needs (.when); TIDE_SET_COUNT: none.
 */
tide_setting_id tide_job_unread_by(const tide_job *job, tide_setting_id id);
void tide_read_allocator(tide_job_builder *b);

/* conflicts.c */
void tide_check_conflicts(tide_job_builder *b);

/* rank_conflicts.c: sets of kinds of parallelism, for tables. */
enum {
    ZERO = 1 << TIDE_parallel_kind_zero0 | 1 << TIDE_parallel_kind_zero1 | 1 << TIDE_parallel_kind_zero2 |
           1 << TIDE_parallel_kind_zero3,
    ZERO3 = 1 << TIDE_parallel_kind_zero3,
    FSDP1 = 1 << TIDE_parallel_kind_fsdp1,
    FSDP2 = 1 << TIDE_parallel_kind_fsdp2,
    TP = 1 << TIDE_parallel_kind_tp,
    PP = 1 << TIDE_parallel_kind_pp,
    NATIVE = 1 << TIDE_parallel_kind_native,
    MEGATRON = 1 << TIDE_parallel_kind_megatron,
    ALL_KINDS = ~0
};
bool tide_is_of_kinds(const tide_job *job, int kinds);
void tide_check_rank_conflicts(tide_job_builder *b);

/* trainer_conflicts.c */
void tide_check_trainer_conflicts(tide_job_builder *b);
/* trl_conflicts.c; kind: "trainer=sft" */
void tide_check_trl_conflicts(tide_job_builder *b, const char *kind);
/* Whether it is given with a value other than the default. */
bool tide_builder_changes(const tide_job_builder *b, tide_setting_id id);
/* Whether the job's parallel.kind only supports the default. */
bool tide_kind_refuses(const tide_job *job, tide_setting_id id);

/* read_where.c: warns of settings that nothing reads in this job. */
void tide_check_read_where(tide_job_builder *b);
/* Whether a value other than the default has an effect in this job. */
bool tide_setting_is_read(const tide_job *job, tide_setting_id id);

/* assumptions.c */
void tide_report_assumptions(tide_job_builder *b);

#endif
