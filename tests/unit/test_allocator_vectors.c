/* SPDX-License-Identifier: Apache-2.0 */
/* Failures point to core/src/allocator/caching_allocator.c.
 *
 *     test_allocator_vectors tests/oracle
 *
 * allocator.jsonl holds vectors that PyTorch's own allocator answered, events/ the event streams of whole jobs. Both
 * must come out equal in every field. */
#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "allocator_player.h"
#include "recorded_streams.h"

#define SPAN ((uint64_t)4 << 40) /* the oracle's address space per device; its offsets are modulo this */

/* ---- vectors ---- */

static uint64_t number(const cJSON *object, const char *key) {
    const cJSON *item = key ? cJSON_GetObjectItemCaseSensitive(object, key) : object;
    return cJSON_IsNumber(item) ? (uint64_t)item->valuedouble : 0;
}

static const cJSON *field(const cJSON *object, const char *key) {
    return cJSON_GetObjectItemCaseSensitive(object, key);
}

static const char *word(const cJSON *object, const char *key) {
    const cJSON *item = field(object, key);
    return cJSON_IsString(item) ? item->valuestring : "";
}

/* Sizes of the vectors: sums, differences and products of numbers with K, M, G. */
static uint64_t size_of_text(const char *text) {
    uint64_t total = 0;
    for (int sign = 1; *text;) {
        uint64_t product = 1;
        for (;;) {
            char *after;
            uint64_t v = strtoull(text, &after, 10);
            text = after;
            if (*text == 'K') v <<= 10;
            if (*text == 'M') v <<= 20;
            if (*text == 'G') v <<= 30;
            if (*text == 'K' || *text == 'M' || *text == 'G') text++;
            product *= v;
            if (*text != '*') break;
            text++;
        }
        total = sign > 0 ? total + product : total - product;
        sign = *text == '-' ? -1 : 1;
        if (*text == '+' || *text == '-') text++;
        if (*text == '@') break;
    }
    return total;
}

static void compare_state(const player *p, const cJSON *want, const char *what, int at) {
    uint64_t have[6];
    state_of(p, have);
    if (cJSON_GetArraySize(want) != 6) complain("%s[%d] is not a state", what, at);
    for (int i = 0; i < 6; i++)
        if (have[i] != number(cJSON_GetArrayItem(want, i), NULL))
            complain("%s[%d][%d] is %" PRIu64 ", want %" PRIu64, what, at, i, have[i],
                     number(cJSON_GetArrayItem(want, i), NULL));
}

static int name_slot(player *p, const char *name, size_t length) {
    for (int i = 0; i < MAX_NAMES; i++) {
        if (!p->names[i][0]) memcpy(p->names[i], name, length);
        if (strlen(p->names[i]) == length && memcmp(p->names[i], name, length) == 0) return i;
    }
    abort();
}

static void play_step(player *p, const char *step) {
    const char *mark = strpbrk(step, "~=");
    if (strcmp(step, "empty") == 0) {
        CHECK(tide_caching_empty_cache(p->a) == TIDE_CACHING_OK);
    } else if (strcmp(step, "hold") == 0) {
        tide_caching_hold_events(p->a);
    } else if (strcmp(step, "resume") == 0) {
        tide_caching_resume_events(p->a);
    } else if (strncmp(step, "fraction=", 9) == 0) {
        CHECK(tide_caching_set_fraction(p->a, strtod(step + 9, NULL)) == TIDE_CACHING_OK);
    } else if (step[0] == '-') {
        int slot = name_slot(p, step + 1, strlen(step + 1));
        give(p, p->named[slot]);
        p->named[slot] = 0;
    } else if (mark && *mark == '~') {
        int slot = name_slot(p, step, (size_t)(mark - step));
        uint32_t stream = (uint32_t)strtoul(mark + 1, NULL, 10);
        CHECK(tide_caching_record_stream(p->a, p->named[slot], stream) == TIDE_CACHING_OK);
    } else if (mark) {
        const char *at = strchr(mark, '@');
        uint32_t stream = at ? (uint32_t)strtoul(at + 1, NULL, 10) : 0;
        int slot = name_slot(p, step, (size_t)(mark - step));
        p->named[slot] = take(p, size_of_text(mark + 1), stream);
    } else {
        complain("step '%s'", step);
    }
}

static const char *const call_names[] = {"segment_alloc", "segment_free", "segment_map", "segment_unmap", "oom"};

static void compare_calls(const player *p, const cJSON *want) {
    uint32_t i = 0;
    const cJSON *row;
    cJSON_ArrayForEach(row, want) {
        if (i == p->call_count) {
            complain("device_calls: only %u", i);
            return;
        }
        device_event e = p->calls[i];
        uint64_t offset = e.call == TIDE_DEVICE_OOM ? 0 : (e.address - TIDE_DEVICE_BASE) & (SPAN - 1);
        if (strcmp(call_names[e.call], cJSON_GetArrayItem(row, 0)->valuestring) != 0 ||
            offset != number(cJSON_GetArrayItem(row, 1), NULL) || e.bytes != number(cJSON_GetArrayItem(row, 2), NULL))
            complain("device_calls[%u] is %s %" PRIu64 " %" PRIu64 ", want %s %" PRIu64 " %" PRIu64, i,
                     call_names[e.call], offset, e.bytes, cJSON_GetArrayItem(row, 0)->valuestring,
                     number(cJSON_GetArrayItem(row, 1), NULL), number(cJSON_GetArrayItem(row, 2), NULL));
        i++;
    }
    EQUAL(p->call_count, i);
}

static void compare_layout(const player *p, const cJSON *want) {
    static const char *const states[] = {"free", "live", "pending"};
    tide_caching_cursor cursor = {0};
    tide_segment_info segment;
    tide_block_info block;
    const cJSON *row = want->child;
    for (; tide_caching_next_segment(p->a, &cursor, &segment); row = row->next) {
        if (!row) {
            complain("layout: a segment too many");
            return;
        }
        EQUAL((segment.address - TIDE_DEVICE_BASE) & (SPAN - 1), number(cJSON_GetArrayItem(row, 0), NULL));
        EQUAL(segment.bytes, number(cJSON_GetArrayItem(row, 1), NULL));
        const cJSON *b = cJSON_GetArrayItem(row, 2)->child;
        for (; tide_caching_next_block(p->a, &cursor, &block); b = b->next) {
            if (!b) {
                complain("layout: a block too many");
                return;
            }
            EQUAL(block.bytes, number(cJSON_GetArrayItem(b, 0), NULL));
            EQUAL(block.requested_bytes, number(cJSON_GetArrayItem(b, 1), NULL));
            if (strcmp(states[block.state], cJSON_GetArrayItem(b, 2)->valuestring) != 0)
                complain("layout: a block is %s", states[block.state]);
        }
        if (b) complain("layout: a block too few");
    }
    if (row) complain("layout: a segment too few");
}

/* Compares the numbers of an answer; returns how many fields of it there were. */
static int compare_summary(const player *p, const cJSON *answer) {
    tide_caching_counts c = tide_caching_counters(p->a);
    const struct {
        const char *key;
        uint64_t value;
    } rows[] = {{"allocated", now(p, TIDE_STAT_ALLOCATED_BYTES)},
                {"requested", now(p, TIDE_STAT_REQUESTED_BYTES)},
                {"active", now(p, TIDE_STAT_ACTIVE_BYTES)},
                {"reserved", now(p, TIDE_STAT_RESERVED_BYTES)},
                {"segments", now(p, TIDE_STAT_SEGMENT)},
                {"inactive_split", now(p, TIDE_STAT_INACTIVE_SPLIT)},
                {"inactive_split_bytes", now(p, TIDE_STAT_INACTIVE_SPLIT_BYTES)},
                {"peak_allocated", peak(p, TIDE_STAT_ALLOCATED_BYTES)},
                {"peak_active", peak(p, TIDE_STAT_ACTIVE_BYTES)},
                {"peak_reserved", peak(p, TIDE_STAT_RESERVED_BYTES)},
                {"device_allocs", c.device_alloc},
                {"device_frees", c.device_free},
                {"retries", c.alloc_retries},
                {"ooms", c.ooms},
                {"syncs", c.sync_all_streams},
                {"oversize_allocations", c.oversize_allocations.current},
                {"oversize_segments", c.oversize_segments.current}};
    int count = (int)(sizeof rows / sizeof *rows);
    for (int i = 0; i < count; i++) {
        if (!field(answer, rows[i].key)) complain("the answer has no %s", rows[i].key);
        if (rows[i].value != number(answer, rows[i].key))
            complain("%s is %" PRIu64 ", want %" PRIu64, rows[i].key, rows[i].value, number(answer, rows[i].key));
    }
    return count;
}

static void play_written(player *p, const cJSON *vector, const cJSON *answer) {
    const cJSON *step, *after = field(answer, "after");
    int at = 0;
    cJSON_ArrayForEach(step, field(vector, "steps")) {
        play_step(p, step->valuestring);
        compare_state(p, cJSON_GetArrayItem(after, at), "after", at);
        at++;
        check_properties(p);
    }
    EQUAL(cJSON_GetArraySize(after), at);
    compare_calls(p, field(answer, "device_calls"));
    compare_layout(p, field(answer, "layout"));
    EQUAL(compare_summary(p, answer) + 3, cJSON_GetArraySize(answer));
}

/* ---- random vectors: the order of draws is the oracle's ---- */

static uint64_t draw_size(const char *mix, const uint64_t shapes[16]) {
    static const uint64_t edges[14] = {512,      1024,     524288,   1048576,  1049088,  2097152,  5242880,
                                       10485760, 20971520, 22020096, 26214400, 33554432, 67108864, 134217728};
    if (strcmp(mix, "shapes") == 0) return shapes[draw() % 16];
    if (strcmp(mix, "edges") == 0) {
        uint64_t edge = edges[draw() % 14], size = edge + draw() % 1025 - 512;
        return size ? size : 1;
    }
    if (strcmp(mix, "plain") == 0) return draw_plain();
    uint64_t k = draw() % 100;
    if (strcmp(mix, "crumbs") == 0) return 1 + draw() % (k < 70 ? 4096 : 262144);
    if (k < 30) return 1 + draw() % MIB;
    if (k < 60) return MIB + 1 + draw() % (255 * MIB);
    return 256 * MIB + draw() % (3072 * MIB);
}

static void compare_hash(const char *what, uint64_t have, const char *want) {
    char text[17];
    snprintf(text, sizeof text, "%016" PRIx64, have);
    if (strcmp(text, want) != 0) complain("%s is %s, want %s", what, text, want);
}

static void play_random(player *p, const cJSON *spec, const cJSON *answer) {
    uint64_t n = number(spec, "n"), streams = number(spec, "streams"), record = number(spec, "record");
    uint64_t hold = number(spec, "hold"), empty = number(spec, "empty"), shapes[16] = {0};
    uint64_t states = UINT64_C(0xcbf29ce484222325), places = states, state[6];
    const char *mix = word(spec, "mix");
    tide_block *live = calloc(n, sizeof *live);
    size_t count = 0;
    int checkpoint = 0;
    draw_state = number(spec, "seed");
    if (strcmp(mix, "shapes") == 0)
        for (int i = 0; i < 16; i++) shapes[i] = draw_plain();
    if (hold) tide_caching_hold_events(p->a);
    for (uint64_t i = 0; i < n; i++) {
        if (empty && i % empty == empty - 1) CHECK(tide_caching_empty_cache(p->a) == TIDE_CACHING_OK);
        if (hold && i % hold == hold - 1) tide_caching_resume_events(p->a);
        if (hold && i % hold != hold - 1) tide_caching_hold_events(p->a);
        if (count && draw() % 100 < 45) {
            size_t j = (size_t)(draw() % count);
            if (record && draw() % 100 < record)
                CHECK(tide_caching_record_stream(p->a, live[j], (uint32_t)(draw() % streams)) == TIDE_CACHING_OK);
            give(p, live[j]);
            live[j] = live[--count];
        } else {
            uint64_t want = draw_size(mix, shapes);
            tide_block b = take(p, want, streams > 1 ? (uint32_t)(draw() % streams) : 0);
            places = fnv(places, b ? tide_caching_address(p->a, b) - TIDE_DEVICE_BASE : 0);
            if (b) live[count++] = b;
        }
        state_of(p, state);
        states = fnv(fnv(states, state[0]), state[1]);
        if (i % 100 == 99) {
            compare_state(p, cJSON_GetArrayItem(field(answer, "checkpoints"), checkpoint), "checkpoints", checkpoint);
            check_properties(p);
            checkpoint++;
        }
    }
    EQUAL(checkpoint, cJSON_GetArraySize(field(answer, "checkpoints")));
    compare_hash("states_fnv1a", states, word(answer, "states_fnv1a"));
    compare_hash("places_fnv1a", places, word(answer, "places_fnv1a"));
    EQUAL(count, number(answer, "live"));
    int fields = compare_summary(p, answer);
    int kinds = 0;
    for (int call = 0; call < 5; call++) {
        uint64_t have = 0;
        for (uint32_t i = 0; i < p->call_count; i++) have += p->calls[i].call == (tide_device_call)call;
        if (have != number(field(answer, "device_call_counts"), call_names[call]))
            complain("%s: %" PRIu64 " calls", call_names[call], have);
        kinds += have > 0;
    }
    EQUAL(kinds, cJSON_GetArraySize(field(answer, "device_call_counts")));
    tide_caching_resume_events(p->a);
    for (size_t i = 0; i < count; i++) give(p, live[i]);
    free(live);
    compare_state(p, field(answer, "all_freed"), "all_freed", 0);
    CHECK(tide_caching_empty_cache(p->a) == TIDE_CACHING_OK);
    compare_state(p, field(answer, "emptied"), "emptied", 0);
    check_properties(p);
    EQUAL(fields + 7, cJSON_GetArraySize(answer));
}

static void play_vector(const char *line) {
    cJSON *vector = cJSON_Parse(line);
    if (!vector) {
        complain("not JSON");
        return;
    }
    const cJSON *answer = field(vector, "answer"), *fraction = field(vector, "fraction");
    player p;
    player_open(&p, word(vector, "conf"), number(vector, "device_mib") * MIB);
    if (cJSON_IsNumber(fraction)) CHECK(tide_caching_set_fraction(p.a, fraction->valuedouble) == TIDE_CACHING_OK);
    if (field(vector, "steps")) {
        play_written(&p, vector, answer);
    } else {
        play_random(&p, field(vector, "random"), answer);
    }
    player_close(&p);
    cJSON_Delete(vector);
}

/* A vector's name, for the failure line. */
static const char *name_in(const char *line, char *out, size_t size) {
    const char *at = strstr(line, "\"name\":\"");
    size_t n = 0;
    snprintf(out, size, "vector ");
    n = strlen(out);
    for (at = at ? at + 8 : ""; *at && *at != '"' && n + 1 < size; at++) out[n++] = *at;
    out[n] = 0;
    return out;
}

static void test_vectors(const char *folder) {
    char path[1024], name[64];
    static char line[1 << 18];
    int count = 0;
    snprintf(path, sizeof path, "%s/allocator.jsonl", folder);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file)) {
        begin(name_in(line, name, sizeof name));
        play_vector(line);
        end();
        count++;
    }
    if (file) fclose(file);
    begin("all 195 vectors are there");
    EQUAL(count, 195);
    end();
}

/* ---- event streams of whole jobs ---- */

typedef struct recorded {
    char kind;
    uint64_t address, bytes;
    uint32_t stream;
} recorded;

typedef struct recording {
    cJSON *header;
    recorded *events;
    size_t count;
} recording;

static recording recording_read(const char *path) {
    static char line[1 << 16];
    recording r = {0};
    size_t capacity = 0;
    gzFile file = gzopen(path, "rb");
    if (!file) return r;
    if (gzgets(file, line, sizeof line)) r.header = cJSON_Parse(line);
    while (gzgets(file, line, sizeof line)) {
        recorded e = {0};
        if (sscanf(line, "[\"%c\",%" SCNu64 ",%" SCNu64 ",%" SCNu32, &e.kind, &e.address, &e.bytes, &e.stream) < 2)
            break;
        if (r.count == capacity) {
            capacity = capacity ? capacity * 2 : 1024;
            r.events = realloc(r.events, capacity * sizeof *r.events);
        }
        r.events[r.count++] = e;
    }
    gzclose(file);
    return r;
}

/* Live blocks by recorded address: open addressing, the table is never full. */
enum { LIVE_SLOTS = 1 << 15 };
typedef struct live_table {
    uint64_t address[LIVE_SLOTS]; /* plus one; 0: empty */
    tide_block block[LIVE_SLOTS];
} live_table;

static size_t live_slot(const live_table *t, uint64_t address) {
    size_t i = (size_t)(address * UINT64_C(0x9e3779b97f4a7c15) >> 49);
    while (t->address[i] && t->address[i] != address + 1) i = (i + 1) % LIVE_SLOTS;
    return i;
}

static void live_remove(live_table *t, size_t i) {
    t->address[i] = 0;
    for (i = (i + 1) % LIVE_SLOTS; t->address[i]; i = (i + 1) % LIVE_SLOTS) {
        uint64_t address = t->address[i];
        t->address[i] = 0;
        size_t to = live_slot(t, address - 1);
        t->address[to] = address;
        t->block[to] = t->block[i];
    }
}

/* The recording does not say when empty_cache() was called: segments that go where no request of
 * this job can have sent them away (no retry, no collection) went that way. */
static bool is_empty_cache(const recording *r) {
    const char *conf = word(field(r->header, "case"), "allocator");
    return number(r->header, "retries") == 0 && !strstr(conf, "garbage_collection");
}

/* Our address of a recorded segment, and the recorded one. */
typedef struct segment_pair {
    uint64_t ours, recorded;
} segment_pair;

/* Segments lie where the recorded ones lie, but for those that libraries' own cudaMallocs
 * displaced: a paged optimizer's states take addresses and are in no event. Returns the recorded
 * address. */
static uint64_t recorded_address(const segment_pair *pairs, size_t count, uint64_t ours) {
    size_t best = 0;
    uint64_t distance = UINT64_MAX;
    for (size_t i = 0; i < count; i++)
        if (ours >= pairs[i].ours && ours - pairs[i].ours < distance) {
            distance = ours - pairs[i].ours;
            best = i;
        }
    return distance == UINT64_MAX ? UINT64_MAX : pairs[best].recorded + distance;
}

static void replay(player *p, const recording *r, live_table *live, bool may_shift) {
    segment_pair pairs[512];
    size_t pair_count = 0;
    uint64_t reserved = 0;
    uint32_t seen = 0; /* driver calls compared so far */
    bool empties = is_empty_cache(r);
    uint64_t requests = 0;
    for (size_t i = 0; i < r->count && test_ok; i++) {
        recorded e = r->events[i];
        size_t first = i; /* driver calls stand before the request that caused them */
        if (strchr("SsMU", e.kind)) {
            bool is_release = e.kind == 's' || e.kind == 'U';
            if (empties && is_release) {
                CHECK(tide_caching_empty_cache(p->a) == TIDE_CACHING_OK);
                while (i < r->count && strchr("sU", r->events[i].kind)) i++;
            } else {
                while (i < r->count && strchr("SsMU", r->events[i].kind)) i++;
            }
            if (empties && is_release) {
                e.kind = 'e';
                i--;
            } else {
                e = r->events[i];
                if (e.kind != 'a' && e.kind != 'o') complain("event %zu: driver calls without a request", i);
            }
        }
        if (e.kind == 'a' || e.kind == 'o') {
            tide_block b = take(p, e.bytes, e.stream);
            requests++;
            if ((b == 0) != (e.kind == 'o')) {
                complain("event %zu: %s", i, b ? "no OOM" : "OOM");
                break;
            }
            if (e.kind == 'a') {
                size_t slot = live_slot(live, e.address);
                live->address[slot] = e.address + 1;
                live->block[slot] = b;
            }
        } else if (e.kind == 'f') {
            size_t slot = live_slot(live, e.address);
            give(p, live->address[slot] ? live->block[slot] : UINT32_MAX);
            live_remove(live, slot);
        } else if (e.kind != 'e') {
            complain("event %zu: kind %c", i, e.kind);
        }
        for (size_t j = first; j <= i; j++) {
            static const char letters[] = "SsMUo";
            recorded want = r->events[j];
            if (!strchr(letters, want.kind)) continue;
            if (seen == p->call_count) {
                complain("event %zu: no such driver call", j);
                break;
            }
            device_event have = p->calls[seen++];
            uint64_t at = (have.address - TIDE_DEVICE_BASE) & (SPAN - 1);
            bool is_gone = want.kind == 's';
            if (want.kind == 'S' || want.kind == 'M') {
                if (pair_count == sizeof pairs / sizeof *pairs) abort();
                pairs[pair_count++] = (segment_pair){at, want.address};
                if (!may_shift && at - want.address != pairs[0].ours - pairs[0].recorded)
                    complain("event %zu: a segment at %" PRIu64, j, at);
            }
            uint64_t address = want.kind == 'o' ? have.address : recorded_address(pairs, pair_count, at);
            if (letters[have.call] != want.kind || address != want.address || have.bytes != want.bytes)
                complain("event %zu: %c %" PRIu64 " %" PRIu64 ", want %c %" PRIu64 " %" PRIu64, j, letters[have.call],
                         address, have.bytes, want.kind, want.address, want.bytes);
            for (size_t k = 0; is_gone && k < pair_count; k++)
                if (pairs[k].ours == at) pairs[k--] = pairs[--pair_count];
            if (want.kind == 'S' || want.kind == 'M') reserved += want.bytes;
            if (want.kind == 's' || want.kind == 'U') reserved -= want.bytes;
        }
        if (seen != p->call_count) complain("event %zu: a driver call too many", i);
        if (e.kind == 'a') {
            uint64_t at = tide_caching_address(p->a, live->block[live_slot(live, e.address)]);
            at = recorded_address(pairs, pair_count, (at - TIDE_DEVICE_BASE) & (SPAN - 1));
            if (at != e.address) complain("event %zu: a block at %" PRIu64 ", want %" PRIu64, i, at, e.address);
        }
        if (reserved != now(p, TIDE_STAT_RESERVED_BYTES)) complain("event %zu: reserved differs", i);
        if (i % 64 == 0) check_properties(p);
    }
    CHECK(requests > 0);
}

static void test_recording(const char *path) {
    recording r = recording_read(path);
    if (!r.header) {
        complain("%s cannot be read", path);
        return;
    }
    const cJSON *job = field(r.header, "case"), *fraction = field(job, "memory_fraction");
    live_table *live = calloc(1, sizeof *live);
    player p;
    player_open(&p, word(job, "allocator"), number(r.header, "device_bytes"));
    if (cJSON_IsNumber(fraction)) CHECK(tide_caching_set_fraction(p.a, fraction->valuedouble) == TIDE_CACHING_OK);
    replay(&p, &r, live, strstr(word(job, "optimizer"), "paged") != NULL);
    tide_caching_counts c = tide_caching_counters(p.a);
    EQUAL(now(&p, TIDE_STAT_ALLOCATED_BYTES), number(r.header, "allocated"));
    EQUAL(now(&p, TIDE_STAT_RESERVED_BYTES), number(r.header, "reserved"));
    EQUAL(peak(&p, TIDE_STAT_ALLOCATED_BYTES), number(r.header, "allocated_peak"));
    EQUAL(peak(&p, TIDE_STAT_RESERVED_BYTES), number(r.header, "reserved_peak"));
    EQUAL(c.alloc_retries, number(r.header, "retries"));
    EQUAL(c.ooms, number(r.header, "ooms"));
    player_close(&p);
    free(live);
    free(r.events);
    cJSON_Delete(r.header);
}

static void test_recordings(const char *folder) {
    static const char *const names[] = {RECORDED_STREAMS};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[1024], name[64];
        snprintf(path, sizeof path, "%s/events/events-%s.jsonl.gz", folder, names[i]);
        snprintf(name, sizeof name, "recording %s", names[i]);
        begin(name);
        test_recording(path);
        end();
    }
}

int main(int argc, char **argv) {
    const char *folder = argc > 1 ? argv[1] : "tests/oracle";
    test_vectors(folder);
    test_recordings(folder);
    begin("every byte of host memory is returned");
    EQUAL(hook_bytes, 0);
    end();
    printf("%d passed, %d failed\n", passed, failed);
    return failed ? 1 : 0;
}
