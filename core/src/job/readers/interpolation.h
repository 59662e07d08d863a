/* SPDX-License-Identifier: Apache-2.0 */
/* References of OmegaConf in the YAML files of Hydra, NeMo and their kin. */
#ifndef TIDE_JOB_READERS_INTERPOLATION_H
#define TIDE_JOB_READERS_INTERPOLATION_H

#include "base/json_read.h"

/* Puts in place of "${section.key}", "${.key}" in its own object, and "${oc.select:key,otherwise}", what they stand
 * for. References to sections, and what other resolvers make ("${mul:a,b}"), stay. */
void tide_interpolate(tide_arena *arena, tide_json *root);

#endif
