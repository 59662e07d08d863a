/* SPDX-License-Identifier: Apache-2.0 */
/* Preparing a model for training: quantised layers, adapters, and what trains. */
#ifndef TIDE_TRAIN_ADAPTERS_H
#define TIDE_TRAIN_ADAPTERS_H

#include "job/job.h"
#include "lang/lang.h"

/* quantised_layers.c: replaces linear layers by bitsandbytes' before anything is on the device. False after an error.
 */
bool tide_quantise(tide_model *model, const tide_job *job);

/* Whether a weight is in bitsandbytes' 4 bits, whatever dtype stores it. */
bool tide_is_params4bit(const tide_model *model, uint32_t parameter);

/* Whether a parameter in 4 bits has a QuantState: such a weight, or experts that are one parameter. */
bool tide_has_quant_state(const tide_model *model, uint32_t parameter);

/* peft.prepare_model_for_kbit_training, and emptying the allocator's cache. */
void tide_prepare_kbit(tide_model *model);

/* peft.get_peft_model: freezes the model's parameters and wraps the targeted layers in adapters. False after an error.
 */
bool tide_adapt(tide_model *model, const tide_job *job);

/* merged_adapters.c: PeftModel.merge_and_unload(). */
void tide_merge_adapters(tide_model *model);

/* prompts.c: wraps the root for a method that prepends a prompt or prefix. False after an error. */
bool tide_add_prompt(tide_model *model, const tide_job *job);

/* The same file: the class that replaces another one for a method of peft or bitsandbytes, from "adapters" of a
 * library; NULL: none. */
const tide_json *tide_adapter_class_for(const tide_model *model, const char *method, tide_text class_name);

/* adapter_targets.c: what get_output_embeddings() returns; 0: None. */
uint32_t tide_output_head(tide_model *model);

/* Whether a parameter's name, with or without the leading "model.", starts with one of the prefixes; those that begin
 * with ^ are regular expressions, as for re.match(), for the name itself. */
bool tide_is_named(const char *name, const char **prefixes, uint32_t count);

#endif
