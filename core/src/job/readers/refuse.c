/* SPDX-License-Identifier: Apache-2.0 */
/* Error messages about a file. */
#include "job/readers/readers.h"

bool tide_file_refuse(const tide_reading *r, tide_status status, const char *message, const char *remedy) {
    return tide_error(r->diags, status, r->place, tide_format(r->arena, "%s %s", r->name, message), remedy);
}
