/* SPDX-License-Identifier: Apache-2.0 */
/* OmegaConf's references in YAML files of Hydra, NeMo and others. */
#ifndef TIDE_JOB_READERS_INTERPOLATION_H
#define TIDE_JOB_READERS_INTERPOLATION_H

#include "base/json_read.h"

/* Replaces "${section.key}", "${.key}" within its own object, and "${oc.select:key,otherwise}" by their values.
 * References to sections, and other resolvers ("${mul:a,b}"), are kept. */
void tide_interpolate(tide_arena *arena, tide_json *root);

#endif
