/* SPDX-License-Identifier: Apache-2.0 */
/* Moving a layer to another stage, each move played. */
#include "report/moves.h"

#include <inttypes.h>
#include <string.h>

#include "base/units.h"
#include "report/ranks.h"

static uint32_t stage_layers_of(const tide_stages *s, uint32_t stage) {
    uint32_t layers = 0;
    for (uint32_t kind = 0; kind < s->kinds; kind++) layers += s->layers[stage * s->kinds + kind];
    return layers;
}

/* Other settings that determine the distribution of layers, if they are given. */
static const char *const splits[][2] = {{"parallel.first_stage_layers", "parallel.first_stage_layers=none"},
                                        {"parallel.last_stage_layers", "parallel.last_stage_layers=none"},
                                        {"parallel.account_embedding", "parallel.account_embedding=false"},
                                        {"parallel.account_loss", "parallel.account_loss=false"}};

static uint32_t unset_split(const tide_what_if *now, const char **words) {
    uint32_t count = 0;
    for (size_t i = 0; i < TIDE_COUNT_OF(splits); i++) {
        const char *value = tide_what_if_setting(now, splits[i][0]);
        if (value[0] && strcmp(value, "false") != 0) words[count++] = splits[i][1];
    }
    return count;
}

static tide_move move_of(const tide_what_if *now, tide_arena *arena, uint32_t from, uint32_t to) {
    const tide_stages *s = &now->stages;
    const char *layers = "", **words = TIDE_NEW(arena, const char *, TIDE_COUNT_OF(splits) + 1);
    for (uint32_t i = 0; i < s->ranks * s->chunks; i++)
        layers = tide_format(arena, "%s%s%u", layers, i ? "," : "", stage_layers_of(s, i) - (i == from) + (i == to));
    words[0] = tide_format(arena, "parallel.stage_layers=%s", layers);
    return (tide_move){from, to, words, 1 + unset_split(now, &words[1])};
}

uint32_t tide_moves_of(const tide_what_if *now, tide_arena *arena, tide_move moves[TIDE_MOVES_MOST]) {
    const tide_stages *s = &now->stages;
    uint32_t count = 0;
    for (uint32_t chunk = 0; chunk < s->chunks; chunk++) {
        const uint32_t *own = &s->of_rank[now->stages_rank * s->chunks];
        uint32_t from = own[chunk], beside[] = {from - 1, from + 1};
        for (unsigned i = 0; i < TIDE_COUNT_OF(beside) && count < TIDE_MOVES_MOST; i++) {
            bool is_there = beside[i] < s->ranks * s->chunks && stage_layers_of(s, from) > 1;
            for (uint32_t k = 0; k < s->chunks; k++) is_there = is_there && own[k] != beside[i];
            if (is_there) moves[count++] = move_of(now, arena, from, beside[i]);
        }
    }
    return count;
}

static void write_move(tide_writer *w, const tide_move *move, const tide_what_if *after, uint64_t need) {
    tide_write_open(w, '{');
    tide_write_int_at(w, "from", move->from);
    tide_write_int_at(w, "to", move->to);
    tide_write_changed(w, move->words, move->count, need, after);
    tide_write_close(w, '}');
}

static uint32_t rank_with_stage(const tide_stages *s, uint32_t stage) {
    uint32_t at = 0;
    while (s->of_rank[at] != stage) at++;
    return at / s->chunks;
}

static tide_what_if play_rank(const tide_query *q, const tide_move *move, int64_t rank) {
    const char **words = TIDE_NEW(q->arena, const char *, move->count + 1);
    memcpy(words, move->words, move->count * sizeof *words);
    words[move->count] = tide_format(q->arena, "parallel.rank=%" PRId64, rank);
    return tide_what_if_play(q, words, move->count + 1);
}

enum { NOT_OF_A_ROW = -1 };

static tide_rank_need need_after(const tide_what_if *played) {
    return (tide_rank_need){.rank = NOT_OF_A_ROW, .allocated = played->allocated, .reserved = played->reserved};
}

/* For the rank that then needs the most. A move changes two ranks; the others need what they did. */
static tide_what_if play_move(const tide_query *q, const tide_run *run, const tide_move *move) {
    const tide_stages *s = &run->stages;
    if (run->rank_need_count != s->ranks) return tide_what_if_play(q, move->words, move->count);
    int64_t changed[] = {rank_with_stage(s, move->from) * s->apart, rank_with_stage(s, move->to) * s->apart};
    tide_what_if most = play_rank(q, move, changed[0]), beside = play_rank(q, move, changed[1]);
    if (most.status != TIDE_OK || beside.status != TIDE_OK) return most.status != TIDE_OK ? most : beside;
    if (tide_rank_needs_more(need_after(&beside), need_after(&most))) most = beside;
    tide_rank_need greatest = need_after(&most);
    for (uint32_t i = 0; i < s->ranks; i++) {
        tide_rank_need other = run->rank_needs[i];
        bool is_changed = other.rank == changed[0] || other.rank == changed[1];
        if (!is_changed && tide_rank_needs_more(other, greatest)) greatest = other;
    }
    return greatest.rank == NOT_OF_A_ROW ? most : play_rank(q, move, greatest.rank);
}

void tide_write_moves(tide_writer *w, const tide_query *q, const tide_run *run, const tide_job *job, uint64_t need) {
    if (!tide_moves_layers(run)) return;
    tide_what_if now = {.stages = run->stages,
                        .stages_rank = (uint32_t)(job->parallel_rank / run->stages.apart % run->stages.ranks),
                        .rows = job->rows,
                        .row_count = job->row_count};
    tide_move moves[TIDE_MOVES_MOST];
    uint32_t count = tide_moves_of(&now, q->arena, moves);
    tide_write_open_at(w, "moves", '[');
    for (uint32_t i = 0; i < count; i++) {
        tide_what_if after = play_move(q, run, &moves[i]);
        if (after.status == TIDE_OK) write_move(w, &moves[i], &after, need);
    }
    tide_write_close(w, ']');
}
