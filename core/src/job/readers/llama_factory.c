/* SPDX-License-Identifier: Apache-2.0 */
/* LLaMA-Factory's arguments: hparams/model_args.py, finetuning_args.py, data_args.py, over TrainingArguments. */
#include "job/readers/claims.h"

#include "base/units.h"

static const tide_key_row llama_factory_rows[] = {
#include "job/readers/keys/llama_factory.def"
};

static const tide_key_table llama_factory_keys = {
    .rows = llama_factory_rows, .count = TIDE_COUNT_OF(llama_factory_rows), .more = &tide_trainer_keys};

/* A file that trains and has the defaults for both. */
static bool is_of_factory(const tide_json *root) {
    bool trains = !tide_json_at(root, "export_dir") && !tide_json_at(root, "infer_backend");
    return trains && tide_json_at(root, "model_name_or_path") &&
           (tide_json_at(root, "stage") || tide_json_at(root, "template"));
}

/* train/tuner.py: what happens if do_train is not set. */
static void read_llama_factory(tide_reading *r, tide_json *root) {
    bool trains = !tide_json_at(root, "do_train") || tide_json_is_true(tide_json_at(root, "do_train"));
    bool predicts = tide_json_is_true(tide_json_at(root, "do_predict")) && !tide_json_at(root, "do_train");
    if (predicts || !trains)
        tide_file_refuse(r, TIDE_ERR_MODEL_UNKNOWN, "evaluates or predicts, and trains nothing",
                         "give mode=infer with model=NAME, or do_train: true");
    else
        tide_claims_add(r->claims, &tide_llama_factory_reader, root, r->name, r->place);
}

const tide_reader tide_llama_factory_reader = {.title = "a LLaMA-Factory configuration",
                                               .marks = "finetuning_type|cutoff_len",
                                               .recognises = is_of_factory,
                                               .read = read_llama_factory,
                                               .keys = &llama_factory_keys,
                                               .trains = true,
                                               .precedence = 2,
                                               .program = TIDE_PROGRAM_llama_factory};
