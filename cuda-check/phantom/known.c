/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that only have to return success. */
#include "phantom.h"

#define STUB(name)                                                                                                     \
    API(int, name, void) {                                                                                             \
        return OK;                                                                                                     \
    }
#include "stubs.def"
