/* A job asked for with other settings: each question is played whole, in memory of its own. */
#ifndef TIDE_TRIALS_H
#define TIDE_TRIALS_H

#include "report/report.h"

/* The job that all trials start from. */
typedef struct tide_query {
    tide_arena *arena; /* what outlives a trial */
    const tide_text *words;
    uint32_t word_count;
    const tide_file *files;
    uint32_t file_count;
    tide_description_cache *shelf;
} tide_query;

/* What a trial came to. Bytes. */
typedef struct tide_verdict {
    tide_status status;  /* TIDE_OK: it was played */
    const char *message; /* of the first error */
    bool fits;           /* the card, or what gpu_gib says; true without either */
    uint64_t need;       /* reserved, and what is outside of the allocator */
    uint64_t there;      /* of the card; 0: without limit */
    uint64_t allocated, reserved;
    uint64_t factors[TIDE_FACTOR_COUNT]; /* at the peak */
    tide_part_bytes *parts;              /* the same by part of the model */
    uint32_t part_count;
    tide_setting_row *rows;
    uint32_t row_count;
} tide_verdict;

/* Plays the job with more words, which hold against those of the question. Leaves by the arena when memory ran out. */
tide_verdict tide_try(const tide_query *question, const char *const *more, uint32_t count);

/* Plays the job as it is. False: it cannot be, and its error is among the diagnostics. */
bool tide_try_first(tide_verdict *verdict, const tide_query *question, tide_diagnostics *diags);

/* Members of the open object: whether it fits, and what it needs. */
void tide_write_trial(tide_writer *w, const tide_verdict *verdict);

/* The canonical text of a setting of a job that was played; "" if it is not set. */
const char *tide_setting_of(const tide_verdict *verdict, const char *name);

/* Warns where quantised weights, or adapters, need more than the job without them would, which is played for it. False:
 * out of memory. */
bool tide_warn_of_more(const tide_query *question, tide_run *run, const tide_job *job, tide_diagnostics *diags);

/* ---- answers by trials: members of the open object; false after an error, which is reported ---- */

/* The job with the words of each of an array of arrays: what tide_write_cell() has to say, or the diagnostics. */
bool tide_write_cells(tide_writer *w, const tide_query *question, const tide_json *cells, tide_diagnostics *diags);

/* The largest value of a whole-numbered setting for which the job fits its card; with `by` ("seq=1024,2048") for each
 * value of another one. */
bool tide_write_fit(tide_writer *w, const tide_query *question, tide_text knob, tide_text by, tide_diagnostics *diags);

/* Every card: whether the job fits, and with parallel.kind on how many. */
bool tide_write_cards(tide_writer *w, const tide_query *question, tide_diagnostics *diags);

/* Changes to the job, each played: what it saves or costs, the largest saving first. */
bool tide_write_advice(tide_writer *w, const tide_query *question, tide_diagnostics *diags);

/* Two jobs: figures, factors and parts of the model, and the settings that differ, each with what it changes: they are
 * played one after the other, from the first job to the second one, so that the changes add up to the whole difference.
 */
bool tide_write_comparison(tide_writer *w, const tide_query *one, const tide_query *other, tide_diagnostics *diags);

#endif
