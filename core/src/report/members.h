/* SPDX-License-Identifier: Apache-2.0 */
/* Members of several kinds of answers. */
#ifndef TIDE_REPORT_MEMBERS_H
#define TIDE_REPORT_MEMBERS_H

#include "allocator/allocator.h"
#include "base/diagnostics.h"
#include "base/json_write.h"

/* "diagnostics": errors first, then warnings, and with `with_assumptions` the assumptions. */
void tide_write_diagnostics(tide_writer *w, const tide_diagnostics *diags, bool with_assumptions);

/* Ends a list of the largest elements: {"rest": bytes} for the others if there are any, and the bracket. */
void tide_write_rest(tide_writer *w, uint64_t bytes);

/* "tried", "free", "allocated" and "unallocated" as in PyTorch's message. */
void tide_write_oom(tide_writer *w, const tide_caching_oom *oom);

#endif
