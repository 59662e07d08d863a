/* SPDX-License-Identifier: Apache-2.0 */
/* The header of a GGUF file: ggml/src/gguf.cpp of llama.cpp. Numbers are little-endian. Every count, length and size is
 * checked against the available bytes before it is used. */
#include "base/gguf.h"

#include <inttypes.h>
#include <string.h>

#include "base/checked.h"
#include "base/decimal.h"
#include "base/units.h"

static const tide_ggml_type ggml_types[] = {
#define TIDE_GGML_TYPE(number, name, elements, bytes) {number, #name, elements, bytes},
#include "base/ggml_types.def"
#undef TIDE_GGML_TYPE
};

const tide_ggml_type *tide_ggml_type_numbered(uint32_t number) {
    for (size_t i = 0; i < TIDE_COUNT_OF(ggml_types); i++)
        if (ggml_types[i].number == number) return &ggml_types[i];
    return NULL;
}

const tide_ggml_type *tide_ggml_type_named(tide_text name) {
    for (size_t i = 0; i < TIDE_COUNT_OF(ggml_types); i++)
        if (tide_text_same(name, tide_text_of(ggml_types[i].name))) return &ggml_types[i];
    return NULL;
}

bool tide_ggml_bytes(int64_t *bytes, const tide_ggml_type *type, int64_t columns, int64_t count) {
    return columns % type->block_elements == 0 &&
           tide_mul_i64(bytes, count / type->block_elements, type->block_bytes) && *bytes <= INT64_C(1) << 53;
}

enum {
    NAME_MOST = 64,    /* GGML_MAX_NAME, for tensors */
    KEY_MOST = 65535,  /* limit of the specification */
    TEXT_KEPT = 256,   /* longest text that is kept, in bytes */
    ARRAY_KEPT = 1024, /* longest array of numbers that is kept: one number for each layer */
    TENSORS_MOST = 1 << 18,
    PAIRS_MOST = 1 << 16,
    ARRAY_DEPTH_MOST = 4
};

typedef struct gguf_header {
    tide_writer *writer;
    tide_text rest;
    const char *place;
    tide_diagnostics *diags;
    tide_gguf_end end;
    int64_t alignment;
} gguf_header;

static bool gguf_cut(gguf_header *h) {
    if (h->end == TIDE_GGUF_READ) h->end = TIDE_GGUF_CUT;
    return false;
}

static bool gguf_bad(gguf_header *h, const char *message) {
    if (h->end == TIDE_GGUF_READ)
        tide_error(h->diags, TIDE_ERR_FILE, h->place, message, "is the download complete? Fetch the file again");
    h->end = TIDE_GGUF_BAD;
    return false;
}

static bool gguf_take(gguf_header *h, const char **at, uint64_t bytes) {
    if (bytes > h->rest.length) return gguf_cut(h);
    *at = h->rest.at;
    h->rest.at += bytes;
    h->rest.length -= (size_t)bytes;
    return true;
}

static bool take_number(gguf_header *h, uint64_t *value, unsigned bytes) {
    const char *at;
    if (!gguf_take(h, &at, bytes)) return false;
    *value = 0;
    for (unsigned i = bytes; i-- > 0;) *value = *value << 8 | (unsigned char)at[i];
    return true;
}

static bool take_text(gguf_header *h, tide_text *text, uint64_t most) {
    uint64_t length;
    if (!take_number(h, &length, 8)) return false;
    if (length > most) return gguf_bad(h, tide_format(h->writer->arena, "holds a text of %" PRIu64 " bytes", length));
    text->length = (size_t)length;
    return gguf_take(h, &text->at, length);
}

/* Names must be printable. */
static bool take_name(gguf_header *h, tide_text *name, uint64_t most) {
    if (!take_text(h, name, most)) return false;
    for (size_t i = 0; i < name->length; i++)
        if ((unsigned char)name->at[i] < 0x21 || (unsigned char)name->at[i] > 0x7e)
            return gguf_bad(h, "holds a name that is no printable text");
    return name->length ? true : gguf_bad(h, "holds an empty name");
}

/* ---- metadata ---- */

enum { UINT8, INT8, UINT16, INT16, UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY, UINT64, INT64, FLOAT64, VALUE_TYPES };

static const unsigned value_bytes[VALUE_TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

/* Floating-point numbers are not sizes, so they are written as text. */
static void write_float(tide_writer *w, uint64_t bits, bool is_double) {
    double number;
    if (is_double) {
        memcpy(&number, &bits, sizeof number);
    } else {
        float single;
        uint32_t low = (uint32_t)bits;
        memcpy(&single, &low, sizeof single);
        number = (double)single;
    }
    if (number >= -9e15 && number <= 9e15 && number == (double)(int64_t)number)
        tide_write_int(w, (int64_t)number);
    else
        tide_write_string(w, tide_format(w->arena, "%g", number));
}

static bool write_scalar(gguf_header *h, uint64_t type) {
    uint64_t value;
    unsigned bits = value_bytes[type] * 8;
    if (!take_number(h, &value, value_bytes[type])) return false;
    if (type == FLOAT32 || type == FLOAT64)
        write_float(h->writer, value, type == FLOAT64);
    else if (type == BOOL)
        tide_write_bool(h->writer, value != 0);
    else if (type == INT8 || type == INT16 || type == INT32)
        tide_write_int(h->writer, (int64_t)(value << (64 - bits)) >> (64 - bits));
    else if (value > INT64_MAX && type == UINT64)
        tide_write_string(h->writer, tide_format(h->writer->arena, "%" PRIu64, value));
    else
        tide_write_int(h->writer, (int64_t)value);
    return true;
}

static void write_count(tide_writer *w, const char *key, uint64_t count) {
    tide_write_open(w, '{');
    tide_write_int_at(w, key, (int64_t)count);
    tide_write_close(w, '}');
}

static bool pass_array(gguf_header *h, uint64_t type, uint64_t count, int depth) {
    const char *at;
    tide_text text;
    if (type >= VALUE_TYPES || depth > ARRAY_DEPTH_MOST)
        return gguf_bad(h, "holds an array of what GGUF does not know");
    if (type != STRING && type != ARRAY)
        return count <= h->rest.length ? gguf_take(h, &at, count * value_bytes[type]) : gguf_cut(h);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t inner = 0, inner_count = 0;
        bool is_read = type == STRING ? take_text(h, &text, UINT32_MAX)
                                      : take_number(h, &inner, 4) && take_number(h, &inner_count, 8) &&
                                            pass_array(h, inner, inner_count, depth + 1);
        if (!is_read) return false;
    }
    return true;
}

static bool write_array(gguf_header *h, bool is_kept) {
    uint64_t type, count;
    if (!take_number(h, &type, 4) || !take_number(h, &count, 8)) return false;
    if (!is_kept || count > ARRAY_KEPT || type >= VALUE_TYPES || type == STRING || type == ARRAY) {
        write_count(h->writer, "count", count > INT64_MAX ? INT64_MAX : count);
        return pass_array(h, type, count, 0);
    }
    tide_write_open(h->writer, '[');
    for (uint64_t i = 0; i < count; i++)
        if (!write_scalar(h, type)) return false;
    tide_write_close(h->writer, ']');
    return true;
}

static bool write_pair(gguf_header *h, tide_names *seen) {
    tide_text key, text;
    uint64_t type;
    if (!take_name(h, &key, KEY_MOST) || !take_number(h, &type, 4)) return false;
    if (type >= VALUE_TYPES) return gguf_bad(h, "holds a value of a type that GGUF does not know");
    uint32_t before = seen->count;
    if (tide_name(seen, key) < before) return gguf_bad(h, "holds a key twice");
    tide_write_key(h->writer, tide_text_copy(h->writer->arena, key));
    bool is_alignment = tide_text_is(key, "general.alignment");
    if (is_alignment && type == UINT32 && h->rest.length >= 4) {
        gguf_header ahead = *h;
        uint64_t value = 0;
        take_number(&ahead, &value, 4);
        if (!value || value > 1 << 20 || (value & (value - 1)))
            return gguf_bad(h, "has an alignment that is no power of two");
        h->alignment = (int64_t)value;
    }
    if (type == ARRAY) return write_array(h, !tide_text_starts(key, TIDE_TEXT("tokenizer.")));
    if (type != STRING) return write_scalar(h, type);
    if (!take_text(h, &text, UINT32_MAX)) return false;
    if (text.length > TEXT_KEPT)
        write_count(h->writer, "length", text.length);
    else
        tide_write_text(h->writer, text);
    return true;
}

/* ---- tensors ---- */

typedef struct gguf_infos {
    tide_names seen;
    int64_t end; /* the end of the tensors so far, in the data section */
} gguf_infos;

static bool write_tensor(gguf_header *h, gguf_infos *of) {
    tide_text name;
    uint64_t dims, type, offset, sizes[TIDE_GGUF_DIMS] = {1, 1, 1, 1};
    int64_t count = 1, bytes;
    if (!take_name(h, &name, NAME_MOST - 1) || !take_number(h, &dims, 4)) return false;
    if (dims > TIDE_GGUF_DIMS) return gguf_bad(h, "holds a tensor of more than 4 dimensions");
    for (uint64_t i = 0; i < dims; i++) {
        if (!take_number(h, &sizes[i], 8)) return false;
        if (sizes[i] > INT64_C(1) << 53 || !tide_mul_i64(&count, count, (int64_t)sizes[i]))
            return gguf_bad(h, "holds a tensor of more elements than can be counted");
    }
    if (!take_number(h, &type, 4) || !take_number(h, &offset, 8)) return false;
    const tide_ggml_type *known = type <= UINT32_MAX ? tide_ggml_type_numbered((uint32_t)type) : NULL;
    const char *shown = tide_shown(h->writer->arena, name);
    uint32_t before = of->seen.count;
    if (!known)
        return gguf_bad(
            h, tide_format(h->writer->arena, "%s has type %" PRIu64 ", which ggml does not know", shown, type));
    if (!tide_ggml_bytes(&bytes, known, (int64_t)sizes[0], count))
        return gguf_bad(
            h, tide_format(h->writer->arena, "%s has rows that are no whole blocks of %s", shown, known->name));
    if (tide_name(&of->seen, name) < before)
        return gguf_bad(h, tide_format(h->writer->arena, "%s stands twice", shown));
    if (offset > INT64_MAX || (int64_t)offset != of->end)
        return gguf_bad(h, tide_format(h->writer->arena, "%s does not begin where the one before it ends", shown));
    of->end = TIDE_ROUND_UP(of->end + bytes, h->alignment);
    if (of->end > INT64_C(1) << 53) return gguf_bad(h, "ends beyond the size of any file");
    tide_write_key(h->writer, tide_text_copy(h->writer->arena, name));
    tide_write_open(h->writer, '[');
    tide_write_string(h->writer, known->name);
    for (uint64_t i = 0; i < dims; i++) tide_write_int(h->writer, (int64_t)sizes[i]);
    tide_write_close(h->writer, ']');
    return true;
}

static bool write_pairs(gguf_header *h, uint64_t count) {
    tide_names seen;
    tide_names_init(&seen, h->writer->arena);
    tide_write_open_at(h->writer, "metadata", '{');
    for (uint64_t i = 0; i < count; i++)
        if (!write_pair(h, &seen)) return false;
    tide_write_close(h->writer, '}');
    return true;
}

static bool write_tensors(gguf_header *h, uint64_t count, int64_t *end) {
    gguf_infos of = {.end = 0};
    tide_names_init(&of.seen, h->writer->arena);
    tide_write_open_at(h->writer, "tensors", '{');
    for (uint64_t i = 0; i < count; i++)
        if (!write_tensor(h, &of)) return false;
    tide_write_close(h->writer, '}');
    *end = of.end;
    return true;
}

tide_gguf_end tide_gguf_write(tide_writer *writer, tide_text bytes, const char *place, tide_diagnostics *diags) {
    gguf_header h = {writer, bytes, place, diags, TIDE_GGUF_READ, TIDE_GGUF_ALIGNMENT};
    const char *magic;
    uint64_t version, tensors, pairs;
    int64_t end = 0;
    if (!gguf_take(&h, &magic, 4) || !take_number(&h, &version, 4) || !take_number(&h, &tensors, 8) ||
        !take_number(&h, &pairs, 8))
        return h.end;
    if (memcmp(magic, "GGUF", 4) != 0) gguf_bad(&h, "is no GGUF file");
    if (version < 2 || version > 3)
        gguf_bad(&h, tide_format(writer->arena, "is of version %" PRIu64 " of GGUF; 2 and 3 are read", version));
    if (tensors > TENSORS_MOST || pairs > PAIRS_MOST) gguf_bad(&h, "has more tensors or keys than any model");
    if (h.end != TIDE_GGUF_READ) return h.end;
    tide_write_open(writer, '{');
    tide_write_int_at(writer, "gguf", (int64_t)version);
    if (!write_pairs(&h, pairs) || !write_tensors(&h, tensors, &end)) return h.end;
    tide_write_int_at(writer, "data_offset", TIDE_ROUND_UP((int64_t)(h.rest.at - bytes.at), h.alignment));
    tide_write_int_at(writer, "data_bytes", end);
    tide_write_close(writer, '}');
    return h.end;
}
