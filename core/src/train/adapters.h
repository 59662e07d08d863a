/* SPDX-License-Identifier: Apache-2.0 */
/* What is done to a model before it trains: quantised layers, adapters, and what of it trains. */
#ifndef TIDE_TRAIN_ADAPTERS_H
#define TIDE_TRAIN_ADAPTERS_H

#include "job/job.h"
#include "lang/lang.h"

/* quantised_layers.c: linear layers become bitsandbytes' ones, nothing being on the device yet. False after an error.
 */
bool tide_quantise(tide_model *model, const tide_job *job);

/* Whether a weight is one of bitsandbytes' 4 bits, in whatever type it is stored. */
bool tide_is_params4bit(const tide_model *model, uint32_t parameter);

/* peft.prepare_model_for_kbit_training, which empties the allocator's cache. */
void tide_prepare_kbit(tide_model *model);

/* peft.get_peft_model: the model's parameters are frozen; layers that are aimed at get an adapter around them. False
 * after an error. */
bool tide_adapt(tide_model *model, const tide_job *job);

/* prompts.c: of a method that puts a prompt or a prefix before the model, its wrapper around the root. False after an
 * error. */
bool tide_add_prompt(tide_model *model, const tide_job *job);

/* What the "adapters" of a library put in place of a class by a method of peft or bitsandbytes; NULL: nothing. */
const tide_json *tide_adapter_class_for(const tide_model *model, const char *method, tide_text class_name);

/* What get_output_embeddings() returns; 0: nothing. */
uint32_t tide_output_head(tide_model *model);

/* Whether a parameter's name, with or without its leading "model.", starts with one of the prefixes. */
bool tide_is_named(const char *name, const char **prefixes, uint32_t count);

#endif
