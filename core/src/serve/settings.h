/* An engine's settings and its card, from the job that serves. */
#ifndef TIDE_SERVE_SETTINGS_H
#define TIDE_SERVE_SETTINGS_H

#include "job/job.h"
#include "serve/serve.h"

/* False after an error: a value that is to be JSON is none. */
bool tide_serve_settings_of(tide_serve_settings *settings, const tide_job *job, tide_arena *arena,
                            tide_diagnostics *diags);

/* The card as the driver calls it: the engine's defaults look for names in it. */
tide_serve_device tide_serve_device_of(const tide_job *job, tide_arena *arena);

#endif
