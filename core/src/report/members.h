/* SPDX-License-Identifier: Apache-2.0 */
/* Members that answers of several kinds have. */
#ifndef TIDE_REPORT_MEMBERS_H
#define TIDE_REPORT_MEMBERS_H

#include "allocator/allocator.h"
#include "base/diagnostics.h"
#include "base/json_write.h"

/* "diagnostics": errors and warnings, and with `with_assumptions` what was assumed. */
void tide_write_diagnostics(tide_writer *w, const tide_diagnostics *diags, bool with_assumptions);

/* Ends a list whose largest elements are told: {"rest": bytes} for the others, where there are any, and the bracket. */
void tide_write_rest(tide_writer *w, uint64_t bytes);

/* "tried", "free", "allocated" and "unallocated" of PyTorch's message. */
void tide_write_oom(tide_writer *w, const tide_caching_oom *oom);

#endif
