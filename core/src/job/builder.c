/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the stages of the builder. */
#include "job/builder.h"

const char *tide_builder_place(const tide_job_builder *b, tide_setting_id id) {
    return tide_format(b->arena, "/settings/%s", tide_settings[id].name);
}

void tide_builder_refuse(tide_job_builder *b, tide_status status, tide_setting_id id, const char *message,
                         const char *remedy) {
    tide_error(b->diags, status, tide_builder_place(b, id), message, remedy);
}
