/* SPDX-License-Identifier: Apache-2.0 */
/* api/: the library's entry point. tide_call() (tidemark/tidemark.h) takes a request in JSON and answers in JSON, in
 * bounded memory and without leaving anything behind; tables.c lists the calls, so that the page can have modules with
 * some of them. Each call reads its request; the content of answers comes from report/. */
#ifndef TIDE_API_CALLS_H
#define TIDE_API_CALLS_H

#include "job/job.h"
#include "report/report.h"
#include "trace/trace.h"

typedef struct call {
    tide_arena arena;
    tide_description_cache cache;
    tide_diagnostics diags;
    tide_writer writer;
    const tide_json *request;
    tide_recording *recording; /* NULL: none, unless the request contains one */
    tide_link *link;           /* NULL: the request has none */
    bool has_read_words;       /* of the job */
    const char *asks;          /* the setting whose largest value is asked for; NULL: none */
    const char *read_as;       /* how words of the request were understood; NULL: each was a setting */
} call;

typedef struct call_table {
    struct {
        const char *name;
        bool (*run)(call *c); /* false after an error, which is reported */
    } calls[24];              /* the first without a name ends it */
} call_table;

/* The calls of this library; NULL ends them. Jobs and recordings are separate modules in the page. */
extern const call_table *const call_tables[];
extern const call_table job_calls, recording_calls, align_calls;

/* ---- serve.c ---- */

/* A recorded start of an engine, compared with tidemark's answer. */
bool call_verify_serving(call *c, const tide_json *of_case);

/* ---- gguf.c ---- */

bool call_answer_gguf(call *c);

/* ---- request.c ---- */

/* A text in the request; "" if it is missing. */
tide_text call_text_at(const call *c, const char *key);
/* "link": its words and files are overridden by those of the request; NULL: there is none. */
const tide_link *call_link_of(call *c);
/* An array of words: "settings" together with those of the link, or another one as it is. */
bool call_read_words(call *c, tide_text **words, uint32_t *count);
bool call_read_words_at(call *c, const char *key, tide_text **words, uint32_t *count);
/* The files of the request, and those of its link. */
bool call_read_files(call *c, tide_file **files, uint32_t *count);
/* Builds the job from words and files, and plays it; NULL and false after an error. */
tide_job *call_build_job(call *c);
tide_run *call_run_job(call *c, tide_job *job);
/* The number of an event, at most TIDE_NEVER - 1; `otherwise` if it is missing. */
uint32_t call_event_at(const call *c, const char *key, uint32_t otherwise);
/* "first", "count", "at", "filter"; and "segment" with "from". */
tide_window call_window(const call *c);
tide_state_query call_state_query(const call *c);
/* {"ok":true,"tidemark":VERSION */
void call_open_answer(call *c);
/* Jumps to the arena's escape. */
bool call_out_of_memory(call *c);

/* ---- recordings.c ---- */

/* The recording supplied by the caller or in the request; and the device given by "device", or -1. */
bool call_find_recording(call *c);
int64_t call_recorded_device(const call *c);

#endif
