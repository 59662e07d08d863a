/* What is said of an engine that has been started. */
#ifndef TIDE_SERVE_ANSWER_H
#define TIDE_SERVE_ANSWER_H

#include "job/job.h"
#include "serve/settings.h"

/* Plays every stage of the pipeline and writes the members of an answer. False after an error, which is reported. */
bool tide_write_serving(tide_writer *writer, const tide_serve_words *words, const tide_serve_device *device,
                        const tide_job *job, tide_arena *arena, tide_diagnostics *diags);

/* The figures alone, as the recorded runs have them. */
void tide_write_serving_figures(tide_writer *writer, const tide_serve_run *run);

#endif
