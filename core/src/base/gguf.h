/* SPDX-License-Identifier: Apache-2.0 */
/* GGUF files: the types of their tensors, and their header as JSON. */
#ifndef TIDE_BASE_GGUF_H
#define TIDE_BASE_GGUF_H

#include "base/diagnostics.h"
#include "base/json_write.h"

/* A row of ggml_types.def. */
typedef struct tide_ggml_type {
    uint32_t number;
    const char *name;
    int64_t block_elements, block_bytes;
} tide_ggml_type;

/* By the number in a file, or by name; NULL if unknown. */
const tide_ggml_type *tide_ggml_type_numbered(uint32_t number);
const tide_ggml_type *tide_ggml_type_named(tide_text name);

/* Bytes of `count` elements in rows of `columns`: ggml.c, ggml_row_size. False: columns is not a multiple of the block
 * size, or the result exceeds 2^53. */
bool tide_ggml_bytes(int64_t *bytes, const tide_ggml_type *type, int64_t columns, int64_t count);

enum { TIDE_GGUF_DIMS = 4, TIDE_GGUF_ALIGNMENT = 32 };

typedef enum tide_gguf_end {
    TIDE_GGUF_READ,
    TIDE_GGUF_CUT, /* the header is longer than `bytes` */
    TIDE_GGUF_BAD  /* `diags` says why */
} tide_gguf_end;

/* Writes the header of a GGUF file (ggml/src/gguf.cpp, gguf_init_from_file) as a JSON object:
 *
 *     {"gguf": 3, "metadata": {"general.architecture": "llama", ...}, "data_offset": BYTES, "data_bytes": BYTES,
 *      "tensors": {"blk.0.attn_q.weight": ["Q4_K", 4096, 4096], ...}}
 *
 * The sizes of a tensor start with its columns, as in ggml. Arrays of texts, long arrays and those of the tokenizer are
 * reduced to {"count": N}, long texts to {"length": N}. `bytes` starts at the beginning of the file. */
tide_gguf_end tide_gguf_write(tide_writer *writer, tide_text bytes, const char *place, tide_diagnostics *diags);

#endif
