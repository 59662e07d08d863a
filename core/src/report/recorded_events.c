/* The events of a recording one by one, and the allocator at one of them. */
#include <string.h>

#include "report/play.h"
#include "report/recorded.h"
#include "report/segments.h"

enum { FRAMES = 40 };
#define NO_SITE UINT32_MAX

static const char *const kind_names[] = {"alloc", "free", "wait", "back", "oom", "empty_cache"};

/* ---- the tape, read ---- */

/* What stands behind an event. */
typedef struct walker {
    const tide_recording *r;
    const tide_tape *tape;
    tide_tape_slots slots;
    uint32_t *sites, *born;     /* by slot */
    uint32_t *waiting, *waited; /* by number of wait: its site, the event of its free */
    uint32_t wait, event;
    uint32_t slot;        /* of the event: what it took or freed; NO_SITE: none */
    uint32_t site, other; /* of the event */
    bool *stack_passes;   /* by stack; NULL: all pass */
    tide_text filter;
} walker;

/* A stack passes where one of its frames does. */
static void filter_stacks(walker *k, tide_arena *arena) {
    if (!k->filter.length) return;
    k->stack_passes = TIDE_NEW(arena, bool, k->r->stack_count + 1);
    for (uint32_t i = 1; i < k->r->stack_count; i++)
        k->stack_passes[i] = k->stack_passes[k->r->stacks[i].parent] ||
                             tide_text_contains(k->r->names.names[k->r->stacks[i].frame], k->filter);
}

static void walker_init(walker *k, tide_arena *arena, const tide_recording *r, const tide_tape *t, tide_text filter) {
    *k = (walker){.r = r, .tape = t, .filter = filter};
    k->sites = TIDE_NEW(arena, uint32_t, t->slot_count + 1);
    k->born = TIDE_NEW(arena, uint32_t, t->slot_count + 1);
    k->waiting = TIDE_NEW(arena, uint32_t, t->pending_count + 1);
    k->waited = TIDE_NEW(arena, uint32_t, t->pending_count + 1);
    tide_tape_slots_init(&k->slots, t, TIDE_NEW(arena, uint32_t, t->slot_count + 1));
    for (uint32_t i = 0; i < t->older_block_count; i++)
        k->sites[t->older_blocks[i].slot] = t->older_blocks[i].site, k->born[t->older_blocks[i].slot] = TIDE_NEVER;
    filter_stacks(k, arena);
}

/* The next event: what it is of. */
static void walk(walker *k) {
    uint32_t event = k->tape->events[k->event], index = event & TIDE_TAPE_MASK;
    k->slot = k->site = NO_SITE;
    k->other = TIDE_NEVER;
    switch ((tide_event_kind)(event >> TIDE_TAPE_SHIFT)) {
    case TIDE_EVENT_ALLOC:
        k->slot = tide_tape_next_slot(&k->slots);
        k->site = k->sites[k->slot] = index;
        k->born[k->slot] = k->event;
        break;
    case TIDE_EVENT_FREE_PENDING:
    case TIDE_EVENT_FREE:
        if (event >> TIDE_TAPE_SHIFT == TIDE_EVENT_FREE_PENDING) {
            uint32_t number = k->tape->pending[k->wait++].number;
            k->waiting[number] = k->sites[index];
            k->waited[number] = k->event;
        }
        k->slot = index;
        k->site = k->sites[index];
        k->other = k->born[index];
        tide_tape_give_slot(&k->slots, index);
        break;
    case TIDE_EVENT_FREE_COMPLETED:
        k->site = k->waiting[index];
        k->other = k->waited[index];
        break;
    case TIDE_EVENT_OOM:
        k->site = index;
        break;
    case TIDE_EVENT_RELEASE:
        break;
    }
    k->event++;
}

static bool passes(const walker *k, const char *kind) {
    if (!k->stack_passes || (k->site != NO_SITE && k->stack_passes[k->tape->sites[k->site].stack])) return true;
    return tide_text_contains(tide_text_of(kind), k->filter);
}

static const char *kind_of(const tide_tape *t, uint32_t event) {
    return kind_names[t->events[event] >> TIDE_TAPE_SHIFT];
}

/* ---- a window of events ---- */

typedef struct found_row {
    tide_event_row row;
    uint32_t stack;
} found_row;

/* How many events pass, and how many of them before `at`. */
static uint32_t count_passing(walker *k, uint32_t at, uint32_t *before) {
    uint32_t count = 0;
    *before = 0;
    if (!k->filter.length) {
        *before = at;
        return k->tape->event_count;
    }
    while (k->event < k->tape->event_count) {
        uint32_t event = k->event;
        walk(k);
        if (!passes(k, kind_of(k->tape, event))) continue;
        count++;
        if (event < at) ++*before;
    }
    return count;
}

/* The rows `first` to first + count of those that pass. */
static uint32_t find_rows(walker *k, found_row *rows, uint32_t first, uint32_t count, tide_arena *arena) {
    uint32_t passed = 0, found = 0,
             *row_of = TIDE_NEW(arena, uint32_t, k->tape->slot_count + 1); /* by slot: row that took it, plus one */
    while (k->event < k->tape->event_count) {
        uint32_t event = k->event;
        const char *kind = kind_of(k->tape, event);
        walk(k);
        bool takes = k->slot != NO_SITE && k->other == TIDE_NEVER &&
                     k->tape->events[event] >> TIDE_TAPE_SHIFT == TIDE_EVENT_ALLOC;
        if (k->slot != NO_SITE && !takes && row_of[k->slot]) rows[row_of[k->slot] - 1].row.other = event;
        if (k->slot != NO_SITE) row_of[k->slot] = 0;
        if (found == count || !passes(k, kind) || passed++ < first) continue;
        found_row *f = &rows[found++];
        f->row = (tide_event_row){.event = event, .other = k->other, .kind = kind, .has_request = k->site != NO_SITE};
        if (f->row.has_request) {
            const tide_call_site *site = &k->tape->sites[k->site];
            f->row.requested = site->bytes;
            f->row.stream = site->stream;
            f->stack = site->stack;
        }
        if (takes) row_of[k->slot] = found;
    }
    return found;
}

/* The microseconds since the first time that was recorded, at or before an event. */
static void write_time(tide_writer *w, const tide_tape *t, uint32_t event) {
    uint32_t low = 0, high = t->time_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (t->times[middle].event <= event)
            low = middle + 1;
        else
            high = middle;
    }
    if (low) tide_write_bytes_at(w, "us", t->times[low - 1].microseconds - t->times[0].microseconds);
}

static void write_frames(tide_writer *w, const tide_recording *r, uint32_t stack) {
    tide_write_open(w, '[');
    for (int i = 0; stack && i < FRAMES; i++, stack = r->stacks[stack].parent)
        tide_write_text(w, r->names.names[r->stacks[stack].frame]);
    tide_write_close(w, ']');
}

static void write_frame(tide_writer *w, const tide_recording *r, uint32_t stack) {
    uint32_t frame = tide_recorded_frame(r, stack);
    tide_write_key(w, "frame");
    tide_write_text(w, frame ? r->names.names[frame] : TIDE_TEXT(""));
}

/* Rows of one stack share it. */
static void write_rows(tide_writer *w, const walker *k, const found_row *rows, uint32_t count) {
    uint32_t *stacks = TIDE_NEW(w->arena, uint32_t, count + 1), stack_count = 0;
    tide_write_key(w, "rows");
    tide_write_open(w, '[');
    for (uint32_t i = 0; i < count; i++) {
        uint32_t stack = rows[i].stack, at = 0;
        tide_open_event(w, &rows[i].row);
        write_time(w, k->tape, rows[i].row.event);
        if (stack) {
            while (at < stack_count && stacks[at] != stack) at++;
            if (at == stack_count) stacks[stack_count++] = stack;
            write_frame(w, k->r, stack);
            tide_write_int_at(w, "stack", at);
        }
        tide_write_close(w, '}');
    }
    tide_write_close(w, ']');
    tide_write_key(w, "stacks");
    tide_write_open(w, '[');
    for (uint32_t i = 0; i < stack_count; i++) write_frames(w, k->r, stacks[i]);
    tide_write_close(w, ']');
}

/* What the player says of the rows. */
static bool play_rows(tide_play *play, const tide_tape *t, const tide_replay_config *config, found_row *rows,
                      uint32_t count, tide_arena *arena) {
    tide_play_row *played = TIDE_NEW(arena, tide_play_row, count + 1);
    for (uint32_t i = 0; i < count; i++) played[i].event = rows[i].row.event;
    uint32_t stop = count ? rows[count - 1].row.event + 1 : 0;
    if (!tide_play_tape(play, t, config, &(tide_play_wants){.stop = stop, .rows = played, .row_count = count}))
        return false;
    for (uint32_t i = 0; i < count; i++) {
        tide_event_row *row = &rows[i].row;
        row->is_played = played[i].is_played;
        row->has_block = played[i].has_block;
        row->address = played[i].address;
        row->bytes = played[i].bytes;
        row->segment = played[i].segment;
        row->allocated = played[i].allocated;
        row->reserved = played[i].reserved;
    }
    return true;
}

/* The tape on what the job says. */
static const tide_tape *tape_of(tide_replay_config *config, tide_recording *r, const tide_job *job, int64_t device,
                                tide_diagnostics *diags) {
    uint32_t number;
    const tide_tape *t = tide_recorded_tape(config, r, job, device, &number, diags);
    if (t) *config = tide_recorded_config(t, r, job, &config->conf);
    return t;
}

bool tide_write_recorded_events(tide_writer *w, tide_recording *r, const tide_job *job, int64_t device,
                                const tide_window *window, tide_diagnostics *diags) {
    tide_replay_config config;
    tide_play play;
    walker k;
    uint32_t before;
    const tide_tape *t = tape_of(&config, r, job, device, diags);
    if (!t) return false;
    walker_init(&k, w->arena, r, t, window->filter);
    uint32_t passing = count_passing(&k, window->at < t->event_count ? window->at : t->event_count, &before);
    uint32_t first = tide_window_first(window, passing, before);
    walker_init(&k, w->arena, r, t, window->filter);
    found_row *rows = TIDE_NEW(w->arena, found_row, window->count + 1);
    uint32_t count = find_rows(&k, rows, first, window->count, w->arena);
    if (!play_rows(&play, t, &config, rows, count, w->arena)) return false;
    tide_write_int_at(w, "events", t->event_count);
    tide_write_int_at(w, "passing", passing);
    tide_write_int_at(w, "first", first);
    write_rows(w, &k, rows, count);
    return true;
}

/* ---- the allocator at an event ---- */

typedef struct stopped {
    tide_writer *w;
    const tide_state_wants *wants;
    walker k; /* at the stop */
} stopped;

static uint64_t requested_of(const void *of, uint32_t slot) {
    const walker *k = of;
    return k->tape->sites[k->sites[slot]].bytes;
}

static uint32_t born_of(const void *of, uint32_t slot) {
    return ((const walker *)of)->born[slot];
}

static uint64_t kind_of_holder(const void *of, uint32_t slot) {
    return ((const walker *)of)->sites[slot];
}

static bool holder_passes(const void *of, uint32_t slot) {
    const walker *k = of;
    return !k->stack_passes || k->stack_passes[k->tape->sites[k->sites[slot]].stack];
}

static void write_brief(tide_writer *w, const void *of, uint32_t slot) {
    const walker *k = of;
    if (k->tape->sites[k->sites[slot]].stack) write_frame(w, k->r, k->tape->sites[k->sites[slot]].stack);
}

static void write_all(tide_writer *w, const void *of, uint32_t slot) {
    const walker *k = of;
    write_brief(w, of, slot);
    tide_write_key(w, "frames");
    write_frames(w, k->r, k->tape->sites[k->sites[slot]].stack);
}

static void write_stopped(void *user, const tide_caching_allocator *allocator, const tide_block *blocks) {
    stopped *s = user;
    uint32_t highest = 0, slots = s->k.tape->slot_count;
    for (uint32_t i = 0; i < slots; i++) highest = blocks[i] > highest ? blocks[i] : highest;
    uint32_t *by_block = TIDE_NEW(s->w->arena, uint32_t, highest + 1u);
    for (uint32_t i = 0; i < slots; i++)
        if (blocks[i]) by_block[blocks[i]] = i + 1;
    tide_holders holders = {&s->k,          by_block,      highest + 1u, requested_of, born_of,
                            kind_of_holder, holder_passes, write_brief,  write_all};
    tide_write_state(s->w, allocator, &holders, s->wants);
}

bool tide_write_recorded_state(tide_writer *w, tide_recording *r, const tide_job *job, int64_t device, uint32_t at,
                               const tide_state_wants *wants, tide_text filter, tide_diagnostics *diags) {
    tide_replay_config config;
    tide_play play;
    stopped s = {.w = w, .wants = wants};
    const tide_tape *t = tape_of(&config, r, job, device, diags);
    if (!t) return false;
    if (at == TIDE_NEVER) {
        if (!tide_play_tape(&play, t, &config, NULL)) return false;
        at = play.peak_event;
    }
    if (at >= t->event_count) at = t->event_count ? t->event_count - 1 : 0;
    walker_init(&s.k, w->arena, r, t, filter);
    while (s.k.event <= at && s.k.event < t->event_count) walk(&s.k);
    tide_write_int_at(w, "events", t->event_count);
    tide_write_int_at(w, "event", at);
    if (!tide_play_tape(&play, t, &config,
                        &(tide_play_wants){.stop = at + 1, .arena = w->arena, .on_stop = write_stopped, .user = &s}))
        return false;
    if (play.is_oom) tide_write_int_at(w, "failed_at", play.events); /* the state is that before it */
    return true;
}
