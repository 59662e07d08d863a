/* SPDX-License-Identifier: Apache-2.0 */
/* DeepSpeed's AutoTP. Private to parallel/. */
#ifndef TIDE_PARALLEL_AUTOTP_H
#define TIDE_PARALLEL_AUTOTP_H

#include "parallel/parallel.h"

/* Cuts the layers of a model that is placed over parallel.tp ranks, next to one another. False after an error, which is
 * reported. */
bool tide_autotp(tide_wrapper *w);
/* Their collectives are of their forward(): inside of the hooks that ZeRO has set since. */
void tide_autotp_around(tide_model *model);

#endif
