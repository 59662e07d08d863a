/* SPDX-License-Identifier: Apache-2.0 */
/* report/: what events mean for people. Plays the events of a job's timeline (train/) or of a recording's tape (trace/)
 * through the caching allocator (allocator/), and writes what they come to as the members of JSON answers: whether a
 * job fits, where every byte is and when, the largest tensors, what other settings, GPUs and allocator options would
 * change, and where a prediction and a recording part.
 *
 *     described_events.h events of a timeline and of a tape, and what is told of them
 *     job_report.h       a job's run, played; its parts write members each: verdict, model_parts, tensors, ...
 *     what_if.h          the same job with other settings; queries.h has the answers made of these
 *     recording_report.h a tape, played */
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
