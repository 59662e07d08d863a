/* SPDX-License-Identifier: Apache-2.0 */
/* The layers of each pipeline stage, in the notations of files. */
#include <inttypes.h>
#include <string.h>

#include "job/readers/claims.h"

enum { MOST_LAYOUT = 16384 }; /* letters, after repetition */

typedef struct letters {
    char *at;
    size_t length;
    bool is_too_long;
} letters;

static void put_letters(letters *to, const char *text, size_t length, uint64_t times) {
    for (uint64_t i = 0; length && i < times && !to->is_too_long; i++) {
        to->is_too_long = to->length + length > MOST_LAYOUT;
        if (to->is_too_long) return;
        memcpy(to->at + to->length, text, length);
        to->length += length;
    }
}

/* "*29" at a place; 0: there is none. */
static uint64_t times_at(const char *at, const char *end, const char **after) {
    uint64_t times = 0;
    const char *digit = at + 1;
    if (at >= end || *at != '*') return 0;
    while (digit < end && *digit >= '0' && *digit <= '9' && times <= MOST_LAYOUT)
        times = 10 * times + (uint64_t)(*digit++ - '0');
    *after = digit;
    return digit > at + 1 ? times : 0;
}

/* pipeline_parallel_layer_layout.py, parse_str_to_list(): commas are removed, "(tt|)*2" becomes "tt|tt|", then "t*2"
 * "tt". */
static letters unroll(tide_arena *arena, const letters *from, bool groups) {
    letters to = {TIDE_NEW(arena, char, MOST_LAYOUT + 1), 0, from->is_too_long};
    const char *end = from->at + from->length;
    for (const char *at = from->at; at < end && !to.is_too_long;) {
        const char *closed = groups && *at == '(' ? memchr(at, ')', (size_t)(end - at)) : NULL, *after = at + 1;
        uint64_t times = groups ? (closed ? times_at(closed + 1, end, &after) : 0) : times_at(at + 1, end, &after);
        const char *text = closed && times ? at + 1 : at;
        put_letters(&to, text, closed && times ? (size_t)(closed - text) : 1, times ? times : 1);
        at = times ? after : at + 1;
    }
    return to;
}

/* "2,3,3": the layers of each stage; NULL: some stages are not described. */
static const char *layers_of_letters(tide_arena *arena, const letters *all, int64_t *stages) {
    const char *made = "";
    int64_t layers = 0, count = 0;
    for (size_t i = 0; i <= all->length; i++) {
        char c = i < all->length ? all->at[i] : '|';
        bool is_first = !count, is_last = !memchr(all->at + i, '|', all->length - i);
        if (c == 't') layers++;
        if ((c == 'E' && !is_first) || (strchr("mL", c) && !is_last) || !strchr("tEmL|", c)) return NULL;
        if (c != '|') continue;
        if (!layers) return NULL;
        made = tide_format(arena, "%s%s%" PRId64, made, count ? "," : "", layers);
        layers = 0;
        count++;
    }
    *stages = count;
    return made;
}

void tide_megatron_settle_stages(tide_claims *c, int64_t ranks) {
    const char *said = tide_fact_of(c, TIDE_FACT_stage_layout);
    if (!said) return;
    letters given = {TIDE_NEW(c->arena, char, MOST_LAYOUT + 1), 0, false};
    for (const char *at = said; *at; at++) put_letters(&given, at, *at != ',' && *at != ' ', 1);
    given = unroll(c->arena, &given, true);
    given = unroll(c->arena, &given, false);
    int64_t stages = 0;
    const char *place = c->fact_places[TIDE_FACT_stage_layout],
               *layers = given.is_too_long ? NULL : layers_of_letters(c->arena, &given, &stages);
    if (!layers) {
        tide_error(c->diags, TIDE_ERR_UNSUPPORTED, place,
                   tide_format(c->arena,
                               "%s: stages without layers, or separate ones for the embedding, the loss and layers "
                               "that predict further tokens are not described",
                               said),
                   "give parallel.stage_layers instead");
        return;
    }
    if (stages % ranks) {
        tide_error(c->diags, TIDE_ERR_CONFLICT, place,
                   tide_format(c->arena,
                               "pipeline_model_parallel_layout must be divisible by pipeline_model_parallel_size "
                               "(len(layout)=%" PRId64 ", pipeline_model_parallel_size=%" PRId64 ")",
                               stages, ranks),
                   NULL);
        return;
    }
    tide_settle(c, TIDE_FACT_stage_layout, TIDE_SET_parallel_stage_layers, layers);
    if (stages > ranks)
        tide_imply(c, TIDE_SET_parallel_virtual_stages, tide_format(c->arena, "%" PRId64, stages / ranks));
}

/* ---- torchtitan/distributed/pipeline_parallel.py ---- */

/* module_fqns_per_model_part: the layers of each stage; NULL: some stages are not described. */
static const char *layers_of_names(tide_arena *arena, const tide_json *parts, int64_t *stages) {
    const char *made = "";
    int64_t next = 0;
    for (const tide_json *part = parts->first; part; part = part->next) {
        int64_t before = next;
        if (part->kind != TIDE_JSON_ARRAY) return NULL;
        for (const tide_json *name = part->first; name; name = name->next) {
            int64_t layer = -1;
            bool is_text = name->kind == TIDE_JSON_STRING,
                 is_layer = is_text && tide_text_starts(name->text, TIDE_TEXT("layers."));
            if (is_layer) tide_text_to_i64(&layer, (tide_text){name->text.at + 7, name->text.length - 7});
            bool is_first = is_text && tide_text_is(name->text, "tok_embeddings"),
                 is_last = is_text && (tide_text_is(name->text, "norm") || tide_text_is(name->text, "output"));
            if (is_layer ? layer != next : !(is_first && part == parts->first) && !(is_last && !part->next))
                return NULL;
            next += is_layer;
        }
        if (next == before) return NULL;
        made = tide_format(arena, "%s%s%" PRId64, made, *stages ? "," : "", next - before);
        ++*stages;
    }
    return made;
}

void tide_torchtitan_settle_stages(tide_claims *c, const tide_json *parts) {
    int64_t stages = 0;
    const char *layers = parts->kind == TIDE_JSON_ARRAY ? layers_of_names(c->arena, parts, &stages) : NULL;
    if (!layers)
        tide_error(c->diags, TIDE_ERR_UNSUPPORTED, tide_claims_place(c, "parallelism"),
                   "module_fqns_per_model_part: stages without layers, with layers out of order, or with the embedding "
                   "and the head on others than the first and the last are not described",
                   "give parallel.stage_layers instead");
    else
        tide_imply(c, TIDE_SET_parallel_stage_layers, layers);
    for (tide_file_key *entry = c->at->summary->first; entry; entry = entry->next)
        if (strstr(entry->key, "module_fqns_per_model_part")) entry->effect = TIDE_KEY_USED;
}

const char *tide_torchtitan_even_stages(tide_arena *arena, int64_t layers, int64_t stages, int64_t first,
                                        int64_t last) {
    const char *made = "";
    for (int64_t i = 0; i < stages; i++) {
        int64_t count = tide_torchtitan_layers_before(layers, first, last, stages, i + 1) -
                        tide_torchtitan_layers_before(layers, first, last, stages, i);
        if (count < 1) return NULL;
        made = tide_format(arena, "%s%s%" PRId64, made, i ? "," : "", count);
    }
    return made;
}
