/* What a checkpoint holds, by the headers of its safetensors files. */
#ifndef TIDE_SAFETENSORS_H
#define TIDE_SAFETENSORS_H

#include "base/json_read.h"

enum { TIDE_STORED_DIMS = 8 };

typedef struct tide_stored {
    tide_text name, dtype; /* as in the file: "F32", "BF16" */
    int64_t shape[TIDE_STORED_DIMS];
    uint32_t dims;
    int64_t count, begin, bytes; /* elements; in the file's data */
    const char *file;
} tide_stored;

typedef struct tide_checkpoint {
    tide_stored *tensors; /* by name, once settled */
    uint32_t count, capacity, file_count;
    int64_t bytes;
    const tide_json *index; /* "weight_map": name to file; NULL: none */
    const char *index_file;
    int64_t total_size; /* of the index; 0: it does not say */
} tide_checkpoint;

/* An object whose members are {"dtype", "shape", "data_offsets"}, and one with a "weight_map". */
bool tide_is_safetensors(const tide_json *root);
bool tide_is_safetensors_index(const tide_json *root);

/* Adds what a header or an index says. The JSON is the arena's. False after an error: sizes that do not fit together,
 * overlapping offsets, dtypes that are none. */
bool tide_safetensors_read(tide_checkpoint *checkpoint, tide_arena *arena, const tide_json *root, const char *place,
                           const char *file, tide_diagnostics *diags);
bool tide_safetensors_read_index(tide_checkpoint *checkpoint, tide_arena *arena, const tide_json *root,
                                 const char *place, const char *file, tide_diagnostics *diags);

/* After the last file: each name once; an index's names are in the headers, if there are any. False after an error. */
bool tide_checkpoint_settle(tide_checkpoint *checkpoint, tide_arena *arena, tide_diagnostics *diags);

/* NULL: the checkpoint holds no tensor of that name. */
const tide_stored *tide_stored_find(const tide_checkpoint *checkpoint, tide_text name);

#endif
