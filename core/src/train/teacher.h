/* SPDX-License-Identifier: Apache-2.0 */
/* The model that another one learns from: trl/experimental/gkd/gkd_trainer.py. */
#ifndef TIDE_TRAIN_TEACHER_H
#define TIDE_TRAIN_TEACHER_H

#include "train/reference.h"
#include "train/run.h"

/* What forward() reads of a model that is not trained. */
#define TIDE_TEACHER_SETTINGS "model_dtype", "quant_dtype", "quant_compute_dtype", "quant_as", "training", "use_cache"
enum { TIDE_TEACHER_SETTING_COUNT = 6 };

/* Modules of its own within the model of the run, which no adapter or checkpoint reaches. Its keys and values
 * live as long as its logits. */
typedef struct tide_teacher {
    uint32_t root;
    tide_value settings[TIDE_TEACHER_SETTING_COUNT]; /* these and its hooks while it is not running, else the model's */
    tide_hooks hooks;
    tide_wrapper wrapper;
    tide_function *logits; /* of library/trainers.json: gets the teacher and a batch */
} tide_teacher;

/* Loads trainer.teacher, or the job's own model once more, on the host and moves it to the device. False after an
 * error. */
bool tide_teacher_load(tide_teacher *teacher, tide_run *run, const tide_job *job);

/* Its outputs for a batch, the logits first; owned by the caller. */
tide_value tide_teacher_call(tide_teacher *teacher, tide_run *run, tide_value batch);

/* Exchanges its settings with those of the model that trains: before and after it runs. */
void tide_teacher_exchange(tide_teacher *teacher, tide_model *model);

#endif
