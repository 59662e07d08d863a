/* SPDX-License-Identifier: Apache-2.0 */
/* Which modules and parameters peft puts adapters on. Private to train/. */
#ifndef TIDE_TRAIN_ADAPTER_TARGETS_H
#define TIDE_TRAIN_ADAPTER_TARGETS_H

#include "train/adapters.h"

#define TIDE_TARGET_MODULES "/settings/adapter.target_modules"

typedef struct tide_targets {
    const tide_job *job;
    const char *modules;     /* names joined by commas, a regular expression, or all-linear */
    const char *feedforward; /* of IA3: those whose input is rescaled; none, or as above */
} tide_targets;

/* What the job gives, or peft's own choice for the model's type. False after an error. */
bool tide_choose_targets(tide_model *model, const tide_job *job, tide_targets *t);

bool tide_is_target(tide_model *model, const tide_targets *t, uint32_t instance, uint32_t head);
/* Whether a path is among the names, or matches the regular expression, that `setting` gives. */
bool tide_is_aimed_at(tide_model *model, const char *setting, const char *targets, tide_text path);
bool tide_is_pattern(const char *targets);
bool tide_is_linear_layer(const tide_class *of);

/* The adapter's class for a module of this class or of one that it extends (isinstance()); NULL: none is described. */
const tide_json *tide_adapter_class(const tide_model *model, const char *method, const tide_class *of);
/* The constructor's argument besides the module: the rank, OFT's block size, or whether IA3 rescales the input. */
tide_value tide_adapter_argument(tide_model *model, const tide_targets *t, tide_text path);
/* With rank_pattern: re.match("(.*\\.)?(PATTERN)$"). */
int64_t tide_adapter_rank(tide_model *model, const tide_targets *t, tide_text path);

/* adapter_parameters.c: takes the names of projections of fused experts from t->modules. Returns which there were, for
 * tide_adapt_parameters(); 0: none. */
uint32_t tide_take_experts(tide_model *model, tide_targets *t);
/* Wraps these and target_parameters in ParamWrapper. False after an error. */
bool tide_adapt_parameters(tide_model *model, const tide_targets *t, uint32_t taken);

/* The entry of a library's table for the job's model_type; NULL: there is none. */
const tide_json *tide_table_of_type(const tide_model *model, const tide_job *job, const char *table);
/* Reports an error at `setting`, and returns false. */
bool tide_refuse_targets(tide_model *model, const char *setting, const char *what, const char *remedy);

/* Names joined by commas; empty ones are passed over. */
bool tide_next_name(tide_text *rest, tide_text *name);
bool tide_has_name(tide_text names, tide_text name);
const char *tide_with_name(tide_model *model, const char *names, tide_text name);
/* What comes after the last dot. */
tide_text tide_last_name(tide_text path);

#endif
