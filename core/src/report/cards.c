/* Every card, and on how many of it the job fits. */
#include <string.h>

#include "lang/lang.h"
#include "report/queries.h"

enum { MOST_CARDS = 1024 };

static void write_card(tide_writer *w, const tide_query *q, const tide_json *card, bool is_parallel) {
    const tide_json *name = tide_json_at(card, "name"), *title = tide_json_at(card, "title");
    if (!name || !title || name->kind != TIDE_JSON_STRING || title->kind != TIDE_JSON_STRING) return;
    const char *more[2] = {tide_format(q->arena, "gpu=%s", name->text.at), NULL};
    int64_t cards = is_parallel ? 2 : 1;
    tide_what_if v;
    for (;; cards *= 2) {
        if (is_parallel) more[1] = tide_format(q->arena, "parallel.dp=%lld", (long long)cards);
        v = tide_what_if_play(q, more, is_parallel ? 2 : 1);
        if (!is_parallel || v.status != TIDE_OK || v.fits || cards >= MOST_CARDS) break;
    }
    tide_write_open(w, '{');
    tide_write_string_at(w, "name", name->text.at);
    tide_write_string_at(w, "title", title->text.at);
    if (v.status != TIDE_OK)
        tide_write_string_at(w, "error", v.message);
    else
        tide_write_what_if(w, &v);
    tide_write_int_at(w, "cards", v.status == TIDE_OK && v.fits ? cards : 0);
    tide_write_close(w, '}');
}

bool tide_write_cards(tide_writer *w, const tide_query *q, tide_diagnostics *diags) {
    tide_what_if now;
    if (!tide_what_if_now(&now, q, diags)) return false;
    const char *kind = tide_what_if_setting(&now, "parallel.kind");
    bool is_parallel = *kind && strcmp(kind, "none") != 0;
    const tide_json *table =
        tide_json_parse(q->arena, (tide_text){tide_gpu_source.text, tide_gpu_source.length}, "/gpus", diags);
    const tide_json *cards = tide_json_at(table, "gpus");
    tide_write_open_at(w, "cards", '[');
    for (const tide_json *card = cards ? cards->first : NULL; card; card = card->next)
        write_card(w, q, card, is_parallel);
    tide_write_close(w, ']');
    return true;
}
