/* SPDX-License-Identifier: Apache-2.0 */
/* The header of a safetensors file, and the index of several: names, dtypes and shapes of a checkpoint's tensors.
 * https://github.com/huggingface/safetensors#format. The data themselves are never read. */
#include "job/readers/readers.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/units.h"

/* Bits per element. */
static const struct {
    const char *name;
    int bits;
} dtypes[] = {{"BOOL", 8}, {"U8", 8},   {"I8", 8},    {"F8_E4M3", 8}, {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"I16", 16},
              {"U16", 16}, {"F16", 16}, {"BF16", 16}, {"I32", 32},    {"U32", 32},    {"F32", 32},    {"C64", 64},
              {"F64", 64}, {"I64", 64}, {"U64", 64},  {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}};

static int bits_of(tide_text name) {
    for (size_t i = 0; i < TIDE_COUNT_OF(dtypes); i++)
        if (tide_text_is(name, dtypes[i].name)) return dtypes[i].bits;
    return 0;
}

static bool is_safetensors(const tide_json *root) {
    const tide_json *first = root->first;
    while (first && tide_text_is(first->key, "__metadata__")) first = first->next;
    return first && first->kind == TIDE_JSON_OBJECT && tide_json_at(first, "data_offsets") &&
           tide_json_at(first, "shape");
}

static bool is_index(const tide_json *root) {
    const tide_json *map = tide_json_at(root, "weight_map");
    return map && map->kind == TIDE_JSON_OBJECT;
}

typedef struct reader {
    tide_checkpoint *checkpoint;
    tide_arena *arena;
    tide_diagnostics *diags;
    const char *place, *file;
} reader;

static bool refuse_tensor(const reader *r, tide_text name, const char *message) {
    return tide_error(r->diags, TIDE_ERR_FILE, r->place,
                      tide_format(r->arena, "%s: %s %s", r->file, tide_shown(r->arena, name), message),
                      "is the download complete? Fetch the file again");
}

/* A non-negative integer that a double can represent. */
static bool is_count(const tide_json *value) {
    return value && value->kind == TIDE_JSON_NUMBER && value->is_integer && value->integer >= 0;
}

static bool read_tensor(const reader *r, const tide_json *entry, tide_stored *t) {
    const tide_json *dtype = tide_json_at(entry, "dtype"), *shape = tide_json_at(entry, "shape"),
                    *offsets = tide_json_at(entry, "data_offsets");
    if (entry->kind != TIDE_JSON_OBJECT || !dtype || dtype->kind != TIDE_JSON_STRING || !shape ||
        shape->kind != TIDE_JSON_ARRAY || !offsets || offsets->kind != TIDE_JSON_ARRAY)
        return refuse_tensor(r, entry->key, "is not {\"dtype\", \"shape\", \"data_offsets\"}");
    int bits = bits_of(dtype->text);
    if (!bits)
        return refuse_tensor(r, entry->key,
                             tide_format(r->arena, "has the dtype \"%s\", which safetensors does not have",
                                         tide_shown(r->arena, dtype->text)));
    if (shape->count > TIDE_STORED_DIMS) return refuse_tensor(r, entry->key, "has more than 8 dimensions");
    *t = (tide_stored){.name = entry->key, .dtype = dtype->text, .count = 1, .file = r->file};
    for (const tide_json *size = shape->first; size; size = size->next) {
        if (!is_count(size)) return refuse_tensor(r, entry->key, "has a shape that does not consist of integers");
        if (!tide_mul_i64(&t->count, t->count, size->integer))
            return refuse_tensor(r, entry->key, "has more elements than can be counted");
        t->shape[t->dims++] = size->integer;
    }
    int64_t in_bits;
    if (offsets->count != 2 || !is_count(offsets->first) || !is_count(offsets->first->next) ||
        offsets->first->integer > offsets->first->next->integer)
        return refuse_tensor(r, entry->key, "has data_offsets that are not [begin, end]");
    t->begin = offsets->first->integer;
    t->bytes = offsets->first->next->integer - t->begin;
    if (!tide_mul_i64(&in_bits, t->count, bits) || (in_bits + 7) / 8 != t->bytes)
        return refuse_tensor(r, entry->key, "has data whose size does not match its shape and dtype");
    return true;
}

static int by_begin(const void *a, const void *b) {
    const tide_stored *x = a, *y = b;
    return x->begin != y->begin ? (x->begin < y->begin ? -1 : 1) : (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static int compare_names(tide_text a, tide_text b) {
    int order = memcmp(a.at, b.at, a.length < b.length ? a.length : b.length);
    return order ? order : (a.length > b.length) - (a.length < b.length);
}

static int by_stored_name(const void *a, const void *b) {
    return compare_names(((const tide_stored *)a)->name, ((const tide_stored *)b)->name);
}

/* The tensors of a file: adjacent from 0 on, with unique names. */
static bool check_layout(const reader *r, tide_stored *tensors, uint32_t count) {
    int64_t end = 0;
    qsort(tensors, count, sizeof *tensors, by_begin);
    for (uint32_t i = 0; i < count; i++) {
        if (tensors[i].begin != end)
            return refuse_tensor(r, tensors[i].name,
                                 tensors[i].begin < end ? "overlaps another tensor"
                                                        : "does not start where the one before it ends");
        end += tensors[i].bytes;
    }
    return true;
}

static void read_header(tide_reading *of, tide_json *root) {
    tide_checkpoint *checkpoint = &of->inputs->checkpoint;
    reader r = {checkpoint, of->arena, of->diags, of->place, of->name};
    uint32_t first = checkpoint->count;
    for (const tide_json *entry = root->first; entry; entry = entry->next) {
        if (tide_text_is(entry->key, "__metadata__")) continue;
        TIDE_ROOM(of->arena, checkpoint->tensors, checkpoint->count, checkpoint->capacity);
        if (!read_tensor(&r, entry, &checkpoint->tensors[checkpoint->count])) return;
        checkpoint->bytes += checkpoint->tensors[checkpoint->count].bytes;
        if (checkpoint->bytes < 0 || checkpoint->bytes > INT64_C(1) << 53) {
            refuse_tensor(&r, entry->key, "ends beyond the size of any file");
            return;
        }
        checkpoint->count++;
    }
    checkpoint->file_count++;
    check_layout(&r, checkpoint->tensors + first, checkpoint->count - first);
}

const tide_reader tide_safetensors_reader = {
    .title = "the header of a safetensors file", .recognises = is_safetensors, .read = read_header};

static void read_index(tide_reading *r, tide_json *root) {
    tide_checkpoint *checkpoint = &r->inputs->checkpoint;
    const tide_json *map = tide_json_at(root, "weight_map"),
                    *total = tide_json_at(tide_json_at(root, "metadata"), "total_size");
    if (checkpoint->index) {
        tide_file_refuse(r, TIDE_ERR_CONFLICT, "is a second index of a checkpoint", "give one");
        return;
    }
    for (const tide_json *entry = map->first; entry; entry = entry->next)
        if (entry->kind != TIDE_JSON_STRING) {
            tide_error(r->diags, TIDE_ERR_FIELD_TYPE, r->place,
                       tide_format(r->arena, "%s: \"weight_map\" contains something that is not a file name", r->name),
                       NULL);
            return;
        }
    checkpoint->index = map;
    checkpoint->index_file = r->name;
    checkpoint->total_size = is_count(total) ? total->integer : 0;
}

const tide_reader tide_safetensors_index_reader = {
    .title = "the index of a checkpoint", .recognises = is_index, .read = read_index};

const tide_stored *tide_stored_find(const tide_checkpoint *checkpoint, tide_text name) {
    tide_stored key = {.name = name};
    return checkpoint->count ? bsearch(&key, checkpoint->tensors, checkpoint->count, sizeof key, by_stored_name) : NULL;
}

/* Names in the index that no file has, because a shard is missing. */
static bool check_index(tide_checkpoint *c, tide_arena *arena, tide_diagnostics *diags) {
    uint32_t missing = 0;
    const tide_json *first = NULL;
    for (const tide_json *entry = c->index->first; entry; entry = entry->next)
        if (!tide_stored_find(c, entry->key)) {
            if (!missing++) first = entry;
        }
    if (!missing) return true;
    return tide_error(diags, TIDE_ERR_FIELD_MISSING, "/files",
                      tide_format(arena, "%s lists %u tensors that are in none of the given headers, %s in %s first",
                                  c->index_file, missing, tide_shown(arena, first->key),
                                  tide_shown(arena, first->text)),
                      "give the header of each of its files, or only the index");
}

bool tide_checkpoint_settle(tide_checkpoint *c, tide_arena *arena, tide_diagnostics *diags) {
    if (c->count) qsort(c->tensors, c->count, sizeof *c->tensors, by_stored_name);
    for (uint32_t i = 1; i < c->count; i++)
        if (tide_text_equal(c->tensors[i].name, c->tensors[i - 1].name))
            return tide_error(diags, TIDE_ERR_CONFLICT, "/files",
                              tide_format(arena, "%s is twice in the checkpoint, in %s and %s",
                                          tide_shown(arena, c->tensors[i].name), c->tensors[i - 1].file,
                                          c->tensors[i].file),
                              "give each header once");
    return !c->index || !c->count || check_index(c, arena, diags);
}
