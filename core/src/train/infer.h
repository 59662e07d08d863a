/* Inference: the prompt, then token by token. */
#ifndef TIDE_INFER_H
#define TIDE_INFER_H

#include "train/step.h"

/* Plays job->steps runs of a greedy loop over the batch: the prompt (phase prefill), and job->decode tokens (phase
 * decode). A model that keeps no keys and values only runs forward. False after an error. */
bool tide_infer(tide_run *run, const tide_job *job, const tide_batch *batch);

#endif
