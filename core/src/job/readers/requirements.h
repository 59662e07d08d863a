/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of packages that are not JSON. Private to job/. */
#ifndef TIDE_JOB_READERS_REQUIREMENTS_H
#define TIDE_JOB_READERS_REQUIREMENTS_H

#include "job/readers/readers.h"

/* Whether the text is a list of packages with PyTorch or transformers; if so, reads it. */
bool tide_requirements_read(tide_reading *r);

/* The same for what a pyproject.toml or a Dockerfile installs. */
bool tide_pins_read(tide_reading *r);

/* Notes the version of a library of versions.def that the file pins. */
void tide_pin_add(tide_reading *r, const char *title, tide_text version);

#endif
