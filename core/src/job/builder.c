/* SPDX-License-Identifier: Apache-2.0 */
/* What every stage of the builder uses. */
#include "job/builder.h"

const char *tide_builder_place(const tide_job_builder *b, tide_setting_id id) {
    return tide_format(b->arena, "/settings/%s", tide_settings[id].name);
}
