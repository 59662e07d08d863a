/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs built of words and files, on a small catalogue and memory that is counted: what the tests of core/src/job/
 * share. */
#ifndef TEST_JOB_BUILDER_H
#define TEST_JOB_BUILDER_H

#include <setjmp.h>

#include "../../core/src/job/job.h"
#include "harness.h"

/* The configuration of the catalogue's llama-3.1-8b. */
#define LLAMA                                                                                                          \
    "{\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], \"hidden_size\": 64, "                     \
    "\"vocab_size\": 99}"

extern size_t live_bytes;      /* that were allocated and not freed */
extern long requests, fail_at; /* of memory; fail_at 0: never */
extern tide_arena arena;
extern tide_diagnostics diags; /* of the last job */
extern jmp_buf escape;

/* A test on an arena of its own, all of which is freed at its end. */
void begin_job(const char *name);
void end_job(void);
/* Of struct tide_allocator: counts live_bytes and requests, and fails at fail_at. */
void *counting_resize(void *user, void *ptr, size_t old_size, size_t new_size);

/* Words are joined by `|`. NULL where the job is refused; why is in diags. */
uint32_t cut(tide_text *words, uint32_t limit, const char *joined);
tide_job *build(const char *joined);
tide_job *build_file(const char *joined, const char *name, const char *text);
tide_job *build_texts(const tide_text *words, uint32_t count, const tide_file *files, uint32_t file_count);

const tide_diagnostic *find(tide_severity severity, const char *place);
bool says(tide_severity severity, const char *place, const char *part);
const char *row(const tide_job *job, const char *name);
tide_origin origin(const tide_job *job, const char *name);
int64_t config_int(const tide_job *job, const char *outer, const char *key);

/* What the macros below check. */
void refuse_at(int line, const char *joined, const char *place, const char *part);
void refuse_file_at(int line, const char *text, const char *part);
void row_at(int line, const char *words, const char *name, const char *value);
void link_at(int line, const char *words, const char *link);

#define REFUSE(joined, place, part) refuse_at(__LINE__, joined, place, part)
#define REFUSE_FILE(text, part) refuse_file_at(__LINE__, text, part)
#define ROW(words, name, value) row_at(__LINE__, words, name, value)
#define LINK(words, link) link_at(__LINE__, words, link)

#endif
