/* SPDX-License-Identifier: Apache-2.0 */
/* report/: answers. Plays the events of a job's timeline (train/) or of a recording's tape (trace/) through the caching
 * allocator (allocator/), and writes the results as members of JSON answers: whether a job fits, where every byte is
 * and when, the largest tensors, the effect of other settings, GPUs and allocator options, and where a prediction and a
 * recording differ.
 *
 *     described_events.h events of a timeline or a tape, and their descriptions
 *     job_report.h       a played run; each of its parts writes members: verdict, model_parts, tensors, ...
 *     what_if.h          the same job with other settings; queries.h has the answers based on it
 *     recording_report.h a played tape */
#ifndef TIDE_REPORT_REPORT_H
#define TIDE_REPORT_REPORT_H

#include "report/alignment.h"
#include "report/estimate.h"
#include "report/job_report.h"
#include "report/members.h"
#include "report/queries.h"
#include "report/ranks.h"
#include "report/recorded_stacks.h"
#include "report/recording_report.h"
#include "report/stages.h"
#include "report/tensors.h"
#include "report/timeline_columns.h"

#endif
