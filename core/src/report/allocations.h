/* SPDX-License-Identifier: Apache-2.0 */
/* What is told of a job's allocations. */
#ifndef TIDE_REPORT_ALLOCATIONS_H
#define TIDE_REPORT_ALLOCATIONS_H

#include "base/json_write.h"
#include "train/train.h"

/* The path of a module; "": none. */
const char *tide_path_of(const tide_run *run, uint32_t module);
/* "model.layers.*.mlp" of "model.layers.3.mlp". */
const char *tide_path_pattern(tide_arena *arena, const char *path);
/* Whether two paths have one pattern. */
bool tide_same_pattern(const char *one, const char *other);
/* The path of the module that made an allocation; "": none. */
const char *tide_module_path(const tide_run *run, const tide_allocation *allocation);
/* The part of the model that a module is of, by number; 0: of none. */
uint32_t tide_part_of(const tide_run *run, uint32_t module);
/* The line of a description that a statement is; NULL: of none. */
const char *tide_statement_line(const tide_run *run, uint32_t statement);
/* The same as "line". */
void tide_write_line(tide_writer *w, const tide_run *run, uint32_t statement);
/* Members "dtype" and "shape". */
void tide_write_shape(tide_writer *w, tide_run *run, const tide_allocation *allocation);
/* The mark that ends the phase of an event; NULL: it is behind the last. */
const tide_mark *tide_phase_end(const tide_timeline *timeline, uint32_t event);

/* What nobody claimed gets its factor: what a forward pass made and left alive is an activation. */
void tide_settle_factors(tide_timeline *timeline);

#endif
