/* SPDX-License-Identifier: Apache-2.0 */
/* For every GPU, on how many of them the job fits. */
#include <string.h>

#include "lang/lang.h"
#include "report/queries.h"

enum { MOST_CARDS = 1024, MOST_TENSOR_PARALLEL = 16 };

/* `ranks`: the setting that cuts the job over more GPUs, from `first` to `most`; NULL: none does. */
typedef struct card_ranks {
    const char *name;
    int64_t first, most;
} card_ranks;

static tide_what_if play_card(const tide_query *q, const char *gpu, const card_ranks *ranks, int64_t count) {
    const char *more[] = {tide_format(q->arena, "gpu=%s", gpu), NULL};
    if (ranks->name) more[1] = tide_format(q->arena, "%s=%lld", ranks->name, (long long)count);
    return tide_what_if_play(q, more, ranks->name ? 2 : 1);
}

/* The job on the fewest ranks of first, 2 first, 4 first, ... that hold it, or else on the most that can run it. What
 * fits on some fits on more. */
static tide_what_if play_on_fewest(const tide_query *q, const char *gpu, const card_ranks *ranks, int64_t *count) {
    int64_t too_few = ranks->first, enough = ranks->most;
    tide_what_if few = play_card(q, gpu, ranks, *count = too_few);
    if (!ranks->name || few.status != TIDE_OK || few.fits) return few;
    tide_what_if most = few;
    for (; enough > too_few; enough /= 2) {
        most = play_card(q, gpu, ranks, enough);
        if (most.status == TIDE_OK) break; /* more may not divide heads or batches */
    }
    if (enough <= too_few) return few;
    while (most.fits && enough > 2 * too_few) {
        int64_t middle = too_few * 2;
        for (int64_t top = enough / 4; middle < top; middle *= 2) top /= 2;
        tide_what_if tried = play_card(q, gpu, ranks, middle);
        if (tried.status == TIDE_OK && tried.fits)
            most = tried, enough = middle;
        else
            too_few = middle;
    }
    *count = enough;
    return most;
}

static void write_card(tide_writer *w, const tide_query *q, const tide_json *card, const card_ranks *ranks) {
    const tide_json *name = tide_json_at(card, "name"), *title = tide_json_at(card, "title");
    if (!name || !title || name->kind != TIDE_JSON_STRING || title->kind != TIDE_JSON_STRING) return;
    int64_t of_setting;
    tide_what_if v = play_on_fewest(q, name->text.at, ranks, &of_setting);
    bool fits = v.status == TIDE_OK && v.fits;
    tide_write_open(w, '{');
    tide_write_string_at(w, "name", name->text.at);
    tide_write_string_at(w, "title", title->text.at);
    if (v.status != TIDE_OK)
        tide_write_string_at(w, "error", strcmp(v.place, "/settings/gpu") == 0 ? v.what : v.message);
    else
        tide_write_what_if(w, &v);
    tide_write_int_at(w, "cards", !fits ? 0 : v.serves ? of_setting : v.gpus);
    if (fits && ranks->name && !v.serves) tide_write_int_at(w, "dp", of_setting);
    tide_write_close(w, '}');
}

/* The job as it is; a server without a GPU, on the first one that can run it. */
static bool play_as_asked(tide_what_if *now, const tide_query *q, const tide_json *cards, tide_diagnostics *diags) {
    *now = tide_what_if_play(q, NULL, 0);
    bool lacks_gpu = now->status == TIDE_ERR_FIELD_MISSING && strcmp(now->place, "/settings/gpu") == 0;
    for (const tide_json *card = lacks_gpu && cards ? cards->first : NULL; card; card = card->next) {
        const tide_json *name = tide_json_at(card, "name");
        const char *more = tide_json_is(name, TIDE_JSON_STRING) ? tide_format(q->arena, "gpu=%s", name->text.at) : "";
        *now = tide_what_if_play(q, &more, 1);
        if (now->status == TIDE_OK) return true;
    }
    return now->status == TIDE_OK || tide_error(diags, now->status, now->place, now->what, now->remedy);
}

bool tide_write_cards(tide_writer *w, const tide_query *q, tide_diagnostics *diags) {
    tide_what_if now;
    const tide_json *table =
        tide_json_parse(q->arena, (tide_text){tide_gpu_source.text, tide_gpu_source.length}, "/gpus", diags);
    const tide_json *cards = tide_json_at(table, "gpus");
    if (!play_as_asked(&now, q, cards, diags)) return false;
    const char *kind = tide_what_if_setting(&now, "parallel.kind");
    bool is_cut = strcmp(tide_what_if_setting(&now, "engine"), "vllm") == 0; /* over several GPUs */
    bool has_data_ranks = *kind && !tide_text_is_among(tide_text_of(kind), "none|tp|pp"),
         has_others = now.gpus > now.data_ranks; /* tensor, pipeline and context parallel ones, which stay as many */
    const card_ranks ranks = {.name = now.serves       ? (is_cut ? "tensor_parallel_size" : NULL)
                                      : has_data_ranks ? "parallel.dp"
                                                       : NULL,
                              .first = has_data_ranks && !has_others ? 2 : 1,
                              .most = now.serves ? MOST_TENSOR_PARALLEL : MOST_CARDS};
    tide_write_open_at(w, "cards", '[');
    for (const tide_json *card = cards ? cards->first : NULL; card; card = card->next) write_card(w, q, card, &ranks);
    tide_write_close(w, ']');
    return true;
}
