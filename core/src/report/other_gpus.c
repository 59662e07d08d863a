/* SPDX-License-Identifier: Apache-2.0 */
/* GPUs that hold a job as it is, if its own does not. */
#include "report/other_gpus.h"

#include <stdlib.h>
#include <string.h>

#include "base/units.h"
#include "lang/lang.h"

enum { AMPERE = 80, GPUS_LIMIT = 128, RANKS_TRIED = 1024, SERVING_RANKS_TRIED = 16, ALIKE_PERCENT = 10 };

typedef struct gpu_row {
    const char *name, *title;
    uint64_t bytes;
    int64_t capability;
    size_t common; /* length of the prefix that its name shares with the name of the job's GPU */
} gpu_row;

static int by_bytes(const void *a, const void *b) {
    const gpu_row *x = a, *y = b;
    return x->bytes != y->bytes ? (x->bytes > y->bytes) - (x->bytes < y->bytes) : strcmp(x->name, y->name);
}

static size_t common_length(const char *a, const char *b) {
    size_t length = 0;
    while (a[length] && a[length] == b[length]) length++;
    return length;
}

/* Rows of models/gpus.json with more memory than the job allocates, smallest first. */
static uint32_t gpus_with_room(gpu_row *rows, const tide_query *q, const tide_what_if *now) {
    tide_diagnostics scratch;
    tide_diagnostics_init(&scratch, q->arena);
    const tide_text text = {tide_gpu_source.text, tide_gpu_source.length};
    const tide_json *list = tide_json_at(tide_json_parse(q->arena, text, "/gpus", &scratch), "gpus");
    const char *own = tide_what_if_setting(now, "gpu");
    int64_t capability = 0;
    tide_text_to_i64(&capability, tide_text_of(tide_what_if_setting(now, "capability")));
    if (capability > AMPERE) capability = AMPERE; /* the first one with bf16 and all attention kernels */
    uint32_t count = 0;
    for (const tide_json *row = list ? list->first : NULL; row && count < GPUS_LIMIT; row = row->next) {
        const tide_json *name = tide_json_at(row, "name"), *title = tide_json_at(row, "title"),
                        *bytes = tide_json_at(row, "bytes"), *of = tide_json_at(row, "capability");
        if (!name || !title || !bytes || !of || of->integer < capability || strcmp(name->text.at, own) == 0) continue;
        if ((uint64_t)bytes->integer <= now->allocated || (uint64_t)bytes->integer < now->there) continue;
        rows[count++] = (gpu_row){name->text.at, title->text.at, (uint64_t)bytes->integer, of->integer,
                                  common_length(name->text.at, own)};
    }
    qsort(rows, count, sizeof *rows, by_bytes);
    return count;
}

static bool is_nearer(const gpu_row *row, const gpu_row *than) {
    return row->common != than->common ? row->common > than->common : row->capability < than->capability;
}

static tide_what_if play_on(const tide_query *q, const gpu_row *row) {
    const char *words[] = {tide_format(q->arena, "gpu=%s", row->name), "gpu_gib=none"};
    return tide_what_if_play(q, words, TIDE_COUNT_OF(words));
}

tide_other_gpus tide_smallest_gpu(const tide_query *q, const tide_what_if *now) {
    gpu_row rows[GPUS_LIMIT];
    const uint32_t count = gpus_with_room(rows, q, now);
    const gpu_row *found = NULL;
    uint64_t smallest = 0;
    tide_other_gpus other = {.effect = "another GPU, the job as it is"};
    for (uint32_t i = 0; i < count; i++) {
        if (found && (rows[i].bytes > smallest + smallest / 100 * ALIKE_PERCENT || !is_nearer(&rows[i], found)))
            continue;
        tide_what_if v = play_on(q, &rows[i]);
        if (!tide_what_if_lasts(&v)) continue;
        if (!found) smallest = rows[i].bytes;
        found = &rows[i];
        other.verdict = v;
    }
    if (!found) return other;
    other.words[other.count++] = tide_format(q->arena, "gpu=%s", found->name);
    if (*tide_what_if_setting(now, "gpu_gib")) other.words[other.count++] = "gpu_gib=none";
    other.title = tide_format(q->arena, "%s, the smallest similar GPU that holds the job", found->title);
    return other;
}

tide_other_gpus tide_fewest_gpus(const tide_query *q, const tide_what_if *now) {
    const char *kind = tide_what_if_setting(now, "parallel.kind"),
               *name = now->serves ? "tensor_parallel_size" : "parallel.dp";
    bool is_one = !now->serves && (!*kind || strcmp(kind, "none") == 0);
    int64_t ranks = 1, most = now->serves ? SERVING_RANKS_TRIED : RANKS_TRIED;
    tide_other_gpus other = {.effect = now->serves ? "more GPUs" : "more GPUs, and batch applies to each"};
    uint64_t least = now->need;
    if (is_one && tide_what_if_evaluates(now)) return other;
    if (!is_one) tide_text_to_i64(&ranks, tide_text_of(tide_what_if_setting(now, name)));
    for (ranks *= 2; ranks <= most; ranks *= 2) {
        other.count = 0;
        other.words[other.count++] = tide_format(q->arena, "%s=%lld", name, (long long)ranks);
        if (is_one) other.words[other.count++] = "parallel.kind=fsdp2";
        if (is_one) other.words[other.count++] = "parallel.meta_init=true";
        other.verdict = tide_what_if_play(q, other.words, other.count);
        if (other.verdict.status != TIDE_OK && is_one) /* adapters are not created on the meta device */
            other.verdict = tide_what_if_play(q, other.words, --other.count);
        int64_t gpus = now->serves ? ranks : other.verdict.gpus;
        other.title = tide_format(q->arena, "%lld of these GPUs%s", (long long)gpus, is_one ? ", by FSDP2" : "");
        if (tide_what_if_lasts(&other.verdict)) return other;
        if (other.verdict.status != TIDE_OK || (!now->serves && other.verdict.need >= least)) break;
        least = other.verdict.need;
    }
    other.count = 0;
    return other;
}
