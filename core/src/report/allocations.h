/* SPDX-License-Identifier: Apache-2.0 */
/* Describing the allocations of a job. */
#ifndef TIDE_REPORT_ALLOCATIONS_H
#define TIDE_REPORT_ALLOCATIONS_H

#include "base/json_write.h"
#include "train/train.h"

/* The path of a module; "" for none. */
const char *tide_path_of(const tide_run *run, uint32_t module);
/* "model.layers.*.mlp" for "model.layers.3.mlp". */
const char *tide_path_pattern(tide_arena *arena, const char *path);
/* Whether two paths have one pattern. */
bool tide_same_pattern(const char *one, const char *other);
/* The path of the module that made an allocation; "" for none. */
const char *tide_module_path(const tide_run *run, const tide_allocation *allocation);
/* The index of the part of the model that a module belongs to; 0: none. */
uint32_t tide_part_of(const tide_run *run, uint32_t module);
/* The line of a description for a statement; NULL: none. */
const char *tide_statement_line(const tide_run *run, uint32_t statement);
/* The same as member "line". */
void tide_write_line(tide_writer *w, const tide_run *run, uint32_t statement);
/* Members "dtype" and "shape". */
void tide_write_shape(tide_writer *w, tide_run *run, const tide_allocation *allocation);
/* The mark at the end of the phase of an event; NULL: it is after the last one. */
const tide_mark *tide_phase_end(const tide_timeline *timeline, uint32_t event);

/* Assigns a factor to allocations that have none: those that a forward pass leaves alive are activations. */
void tide_settle_factors(tide_timeline *timeline);

#endif
