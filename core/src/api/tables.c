/* SPDX-License-Identifier: Apache-2.0 */
/* The calls that a library has: TIDEMARK_JOBS, TIDEMARK_RECORDINGS. */
#include "api/calls.h"

const call_table *const call_tables[] = {
#if TIDEMARK_JOBS
    &job_calls,
#endif
#if TIDEMARK_RECORDINGS
    &recording_calls,
#endif
#if TIDEMARK_JOBS && TIDEMARK_RECORDINGS
    &align_calls,
#endif
    NULL,
};
