/* Failures point to core/src/allocator/caching_allocator.c and alloc_conf.c.
 *
 *     test_allocator tests/oracle
 *
 * allocator.jsonl holds vectors that PyTorch's own allocator answered, events/ the event streams of
 * whole jobs. Both must come out equal in every field. The other tests name the rule that they pin.
 */
#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "../../core/src/allocator/caching_allocator.h"

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)
#define SPAN ((uint64_t)4 << 40) /* the oracle's address space per device; its offsets are modulo this */

enum { MAX_NAMES = 64, CALLS_KEPT = 1 << 16 };

/* ---- counting ---- */

static int passed, failed;
static bool test_ok;
static const char *test_name;

static void begin(const char *name) {
    test_name = name;
    test_ok = true;
}

static void complain(const char *format, ...) {
    va_list list;
    if (test_ok) printf("FAIL %s\n", test_name);
    test_ok = false;
    va_start(list, format);
    printf("     ");
    vprintf(format, list);
    printf("\n");
    va_end(list);
}

static void end(void) {
    if (test_ok) {
        passed++;
    } else {
        failed++;
    }
}

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) complain("line %d: %s", __LINE__, #condition);                                               \
    } while (0)

static void equal_at(int line, const char *what, uint64_t have, uint64_t want) {
    if (have != want) complain("line %d: %s is %" PRIu64 ", want %" PRIu64, line, what, have, want);
}

#define EQUAL(have, want) equal_at(__LINE__, #have, (uint64_t)(have), (uint64_t)(want))

/* ---- the memory hook, which counts and can be told to fail ---- */

static uint64_t hook_bytes, hook_peak, hook_calls, hook_fail_at = UINT64_MAX;

static void *hook_resize(void *user, void *ptr, size_t old_size, size_t new_size) {
    (void)user;
    if (new_size == 0) {
        hook_bytes -= old_size;
        free(ptr);
        return NULL;
    }
    if (hook_calls++ == hook_fail_at) return NULL;
    void *moved = realloc(ptr, new_size);
    if (!moved) return NULL;
    hook_bytes += new_size - old_size;
    if (hook_bytes > hook_peak) hook_peak = hook_bytes;
    return moved;
}

static const tide_allocator hook = {hook_resize, NULL};

/* ---- a player: an allocator, its driver calls, and named blocks ---- */

typedef struct device_event {
    tide_device_call call;
    uint64_t address, bytes;
} device_event;

typedef struct player {
    tide_caching_allocator *a;
    device_event *calls;
    uint32_t call_count;
    tide_block named[MAX_NAMES];
    char names[MAX_NAMES][8];
} player;

static void player_call(void *user, tide_device_call call, uint64_t address, uint64_t bytes, uint32_t stream) {
    player *p = user;
    (void)stream;
    if (p->call_count == CALLS_KEPT) abort();
    p->calls[p->call_count++] = (device_event){call, address, bytes};
}

static tide_alloc_conf conf_of(const char *text) {
    tide_alloc_conf conf;
    tide_alloc_conf_error error;
    if (!tide_alloc_conf_parse(&conf, TIDE_ALLOC_TORCH_MAIN, text, strlen(text), &error))
        complain("'%s': %s", text, error.message);
    return conf;
}

static void player_open(player *p, const char *conf, uint64_t device_bytes) {
    memset(p, 0, sizeof *p);
    p->calls = malloc(CALLS_KEPT * sizeof *p->calls);
    tide_caching_config config = {
        .memory = hook, .conf = conf_of(conf), .device_bytes = device_bytes, .on_call = player_call, .on_call_user = p};
    if (tide_caching_create(&p->a, &config) != TIDE_CACHING_OK) abort();
}

static void player_close(player *p) {
    tide_caching_destroy(p->a);
    free(p->calls);
}

static uint64_t now(const player *p, tide_statistic s) {
    return tide_caching_stat(p->a, s, TIDE_POOL_ALL).current;
}

static uint64_t peak(const player *p, tide_statistic s) {
    return tide_caching_stat(p->a, s, TIDE_POOL_ALL).peak;
}

static tide_block take(player *p, uint64_t bytes, uint32_t stream) {
    tide_block b;
    tide_caching_status status = tide_caching_malloc(p->a, bytes, stream, &b);
    if (status != TIDE_CACHING_OK && status != TIDE_CACHING_OOM) complain("malloc: status %d", (int)status);
    return b;
}

static void give(player *p, tide_block b) {
    if (tide_caching_free(p->a, b) != TIDE_CACHING_OK) complain("free: not a live block");
}

/* ---- the invariants as anyone can see them from outside ---- */

static void check_properties(player *p) {
    const char *broken = tide_caching_check(p->a);
    if (broken) complain("%s", broken);
    tide_caching_cursor cursor = {0};
    tide_segment_info segment;
    tide_block_info block;
    uint64_t reserved = 0, allocated = 0, last_end = 0;
    while (tide_caching_next_segment(p->a, &cursor, &segment)) {
        uint64_t at = segment.address;
        bool was_free = false;
        if (at < last_end) complain("segments overlap");
        while (tide_caching_next_block(p->a, &cursor, &block)) {
            bool is_free = block.state == TIDE_BLOCK_FREE;
            if (block.address != at) complain("blocks overlap or leave a hole");
            if (is_free && was_free) complain("two adjacent free blocks");
            if (block.state == TIDE_BLOCK_LIVE) allocated += block.bytes;
            if (block.state == TIDE_BLOCK_LIVE && block.requested_bytes > block.bytes)
                complain("a block is smaller than its request");
            was_free = is_free;
            at += block.bytes;
        }
        if (at != segment.address + segment.bytes) complain("blocks do not fill their segment");
        last_end = at;
        reserved += segment.bytes;
    }
    EQUAL(reserved, now(p, TIDE_STAT_RESERVED_BYTES));
    EQUAL(allocated, now(p, TIDE_STAT_ALLOCATED_BYTES));
    CHECK(allocated <= reserved);
}

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

static void state_of(const player *p, uint64_t out[6]) {
    static const tide_statistic order[6] = {TIDE_STAT_ALLOCATED_BYTES,      TIDE_STAT_RESERVED_BYTES,
                                            TIDE_STAT_ACTIVE_BYTES,         TIDE_STAT_INACTIVE_SPLIT,
                                            TIDE_STAT_INACTIVE_SPLIT_BYTES, TIDE_STAT_SEGMENT};
    for (int i = 0; i < 6; i++) out[i] = now(p, order[i]);
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

static uint64_t draw_state;

static uint64_t draw(void) {
    draw_state = draw_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return draw_state >> 33;
}

static uint64_t draw_plain(void) {
    uint64_t k = draw() % 100;
    if (k < 40) return 1 + draw() % MIB;
    if (k < 70) return MIB + 1 + draw() % (9 * MIB - 1);
    return 10 * MIB + draw() % (64 * MIB);
}

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

static uint64_t fnv(uint64_t h, uint64_t value) {
    for (int i = 0; i < 8; i++) h = (h ^ (value >> 8 * i & 255)) * UINT64_C(0x100000001b3);
    return h;
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
    static const char *const names[] = {"collect",
                                        "convolution",
                                        "decode",
                                        "expandable",
                                        "expandable-retry",
                                        "experts",
                                        "max-split",
                                        "nf4-lora",
                                        "oom",
                                        "padding",
                                        "plain",
                                        "retry",
                                        "roundup",
                                        "roundup-list",
                                        "seq2seq",
                                        "scaler-accumulate"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[1024], name[64];
        snprintf(path, sizeof path, "%s/events/events-%s.jsonl.gz", folder, names[i]);
        snprintf(name, sizeof name, "recording %s", names[i]);
        begin(name);
        test_recording(path);
        end();
    }
}

/* ---- rules, one by one ---- */

static void test_rounding(void) {
    static const uint64_t cases[][3] = {/* divisions, request, block */
                                        {0, 1, 512},
                                        {0, 511, 512},
                                        {0, 512, 512},
                                        {0, 513, 1024},
                                        {0, 3 * GIB + 7, 3 * GIB + 512},
                                        {4, 1200, 1536},
                                        {4, 2048, 2048},
                                        {4, 2049, 2560},
                                        {4, 33 * MIB, 40 * MIB},
                                        {4, 40 * MIB + 1, 48 * MIB},
                                        {4, 63 * MIB, 64 * MIB},
                                        {4, 64 * MIB, 64 * MIB},
                                        {1, 1200, 1536},
                                        {8, 9 * MIB, 9 * MIB}};
    begin("round_size: 512 bytes, or a division of the power of two above 512 x divisions");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tide_alloc_conf conf = tide_alloc_conf_default(TIDE_ALLOC_TORCH_MAIN);
        for (int b = 0; b < TIDE_ROUNDUP_BUCKETS; b++) conf.roundup_power2_divisions[b] = cases[i][0];
        EQUAL(tide_caching_round(&conf, cases[i][1]), cases[i][2]);
    }
    end();
    begin("get_allocation_size: 2 MiB, 20 MiB below 10 MiB, then multiples of 2 MiB");
    tide_alloc_conf conf = tide_alloc_conf_default(TIDE_ALLOC_TORCH_MAIN);
    EQUAL(tide_caching_segment_bytes(&conf, MIB), 2 * MIB);
    EQUAL(tide_caching_segment_bytes(&conf, MIB + 512), 20 * MIB);
    EQUAL(tide_caching_segment_bytes(&conf, 10 * MIB - 512), 20 * MIB);
    EQUAL(tide_caching_segment_bytes(&conf, 10 * MIB), 10 * MIB);
    EQUAL(tide_caching_segment_bytes(&conf, 10 * MIB + 512), 12 * MIB);
    end();
}

static void test_requests(void) {
    player p;
    tide_block b = 7, c;
    begin("0 bytes: the null block, and nothing is counted");
    player_open(&p, "", GIB);
    EQUAL(tide_caching_malloc(p.a, 0, 0, &b), TIDE_CACHING_OK);
    EQUAL(b, 0);
    EQUAL(tide_caching_free(p.a, 0), TIDE_CACHING_OK);
    EQUAL(tide_caching_record_stream(p.a, 0, 3), TIDE_CACHING_OK);
    EQUAL(peak(&p, TIDE_STAT_ALLOCATION), 0);
    end();
    begin("2^60 bytes: refused before anything is counted");
    EQUAL(tide_caching_malloc(p.a, (uint64_t)1 << 60, 0, &b), TIDE_CACHING_OOM);
    CHECK(tide_caching_oom_info(p.a).is_over_1_eb);
    EQUAL(tide_caching_counters(p.a).ooms, 0);
    EQUAL(tide_caching_malloc(p.a, UINT64_MAX, 0, &b), TIDE_CACHING_OOM);
    EQUAL(tide_caching_malloc(p.a, ((uint64_t)1 << 60) - 1, 0, &b), TIDE_CACHING_OOM);
    EQUAL(tide_caching_counters(p.a).ooms, 1);
    end();
    begin("a block that is not live is refused");
    EQUAL(tide_caching_free(p.a, 12345), TIDE_CACHING_BAD_BLOCK);
    b = take(&p, 100, 0);
    give(&p, b);
    EQUAL(tide_caching_free(p.a, b), TIDE_CACHING_BAD_BLOCK);
    EQUAL(tide_caching_record_stream(p.a, b, 1), TIDE_CACHING_BAD_BLOCK);
    EQUAL(tide_caching_malloc(p.a, 1, TIDE_CACHING_STREAM_LIMIT, &c), TIDE_CACHING_BAD_STREAM);
    EQUAL(tide_caching_address(p.a, b), 0);
    end();
    begin("queries of a live block: a tail of 1 MiB belongs to it");
    b = take(&p, 25 * MIB, 0);
    EQUAL(tide_caching_block_bytes(p.a, b), 26 * MIB);
    EQUAL(tide_caching_requested_bytes(p.a, b), 25 * MIB);
    CHECK(tide_caching_address(p.a, b) > TIDE_DEVICE_BASE);
    player_close(&p);
    end();
    begin("a handle stays while neighbours are split and merged");
    player_open(&p, "", GIB);
    tide_block all[8];
    for (int i = 0; i < 8; i++) all[i] = take(&p, MIB / 8, 0);
    uint64_t address = tide_caching_address(p.a, all[3]);
    for (int i = 0; i < 8; i++)
        if (i != 3) give(&p, all[i]);
    for (int i = 0; i < 4; i++) all[i == 3 ? 4 : i] = take(&p, MIB / 16, 0);
    EQUAL(tide_caching_address(p.a, all[3]), address);
    check_properties(&p);
    player_close(&p);
    end();
}

static void test_oom(void) {
    player p;
    begin("the numbers of the OOM message; the segment is what was tried");
    player_open(&p, "", 100 * MIB);
    tide_caching_set_outside(p.a, 10 * MIB);
    tide_block a = take(&p, 40 * MIB, 0), b;
    EQUAL(tide_caching_malloc(p.a, 60 * MIB + 1, 2, &b), TIDE_CACHING_OOM);
    tide_caching_oom o = tide_caching_oom_info(p.a);
    EQUAL(b, 0);
    EQUAL(o.requested_bytes, 60 * MIB + 1);
    EQUAL(o.rounded_bytes, 60 * MIB + 512);
    EQUAL(o.tried_bytes, 62 * MIB);
    EQUAL(o.total_bytes, 100 * MIB);
    EQUAL(o.free_bytes, 50 * MIB);
    EQUAL(o.limit_bytes, UINT64_MAX);
    EQUAL(o.allocated_bytes, 40 * MIB);
    EQUAL(o.unallocated_bytes, 0);
    EQUAL(o.stream, 2);
    end();
    begin("memory outside of the allocator takes from the device");
    give(&p, a);
    CHECK(take(&p, 90 * MIB, 0) != 0);
    player_close(&p);
    player_open(&p, "expandable_segments:True", 100 * MIB);
    tide_caching_set_outside(p.a, 61 * MIB);
    CHECK(take(&p, 20 * MIB, 0) == 0 || tide_caching_counters(p.a).ooms == 0);
    CHECK(take(&p, 20 * MIB, 0) == 0);
    EQUAL(now(&p, TIDE_STAT_RESERVED_BYTES), 20 * MIB);
    player_close(&p);
    end();
    begin("a request larger than a whole expandable range is OOM");
    player_open(&p, "expandable_segments:True", 100 * MIB);
    CHECK(take(&p, 10 * GIB, 0) == 0);
    check_properties(&p);
    player_close(&p);
    end();
}

static void test_streams(void) {
    player p;
    begin("an event held back completes when its stream is synchronized");
    player_open(&p, "", GIB);
    tide_caching_hold_events(p.a);
    tide_block a = take(&p, 12 * MIB, 0), b = take(&p, 12 * MIB, 0);
    CHECK(tide_caching_record_stream(p.a, a, 1) == TIDE_CACHING_OK);
    CHECK(tide_caching_record_stream(p.a, a, 1) == TIDE_CACHING_OK);
    CHECK(tide_caching_record_stream(p.a, b, 2) == TIDE_CACHING_OK);
    give(&p, a);
    give(&p, b);
    EQUAL(now(&p, TIDE_STAT_ALLOCATED_BYTES), 0);
    EQUAL(now(&p, TIDE_STAT_ACTIVE_BYTES), 24 * MIB);
    tide_caching_synchronize(p.a, 2);
    EQUAL(now(&p, TIDE_STAT_ACTIVE_BYTES), 24 * MIB);
    take(&p, 1, 0);
    EQUAL(now(&p, TIDE_STAT_ACTIVE_BYTES), 12 * MIB + 512);
    check_properties(&p);
    CHECK(tide_caching_empty_cache(p.a) == TIDE_CACHING_OK);
    EQUAL(now(&p, TIDE_STAT_ACTIVE_BYTES), 512);
    EQUAL(now(&p, TIDE_STAT_RESERVED_BYTES), 2 * MIB);
    player_close(&p);
    end();
}

static void test_ties(void) {
    begin("equal sizes: the oldest segment in 2.15, the lowest address in 2.4");
    for (int profile = 0; profile < 2; profile++) {
        tide_caching_config config = {.memory = hook, .device_bytes = GIB};
        tide_caching_allocator *a;
        tide_block x, y, z;
        config.conf = tide_alloc_conf_default(profile ? TIDE_ALLOC_TORCH_2_4 : TIDE_ALLOC_TORCH_MAIN);
        CHECK(tide_caching_create(&a, &config) == TIDE_CACHING_OK);
        CHECK(tide_caching_malloc(a, 30 * MIB, 0, &x) == TIDE_CACHING_OK);
        CHECK(tide_caching_malloc(a, 12 * MIB, 0, &y) == TIDE_CACHING_OK);
        CHECK(tide_caching_free(a, x) == TIDE_CACHING_OK);
        CHECK(tide_caching_empty_cache(a) == TIDE_CACHING_OK);
        CHECK(tide_caching_malloc(a, 12 * MIB, 0, &z) == TIDE_CACHING_OK); /* younger, and below y */
        uint64_t old = tide_caching_address(a, y), young = tide_caching_address(a, z);
        CHECK(young < old);
        CHECK(tide_caching_free(a, y) == TIDE_CACHING_OK && tide_caching_free(a, z) == TIDE_CACHING_OK);
        CHECK(tide_caching_malloc(a, 12 * MIB, 0, &x) == TIDE_CACHING_OK);
        EQUAL(tide_caching_address(a, x), profile ? young : old);
        tide_caching_destroy(a);
    }
    end();
}

static void test_statistics(void) {
    player p;
    uint64_t v;
    begin("statistics have torch.cuda.memory_stats' names, by pool, with peak, allocated and freed");
    player_open(&p, "max_split_size_mb:32", GIB);
    tide_block a = take(&p, 100, 0), b = take(&p, 50 * MIB, 0);
    give(&p, b);
    take(&p, 3 * MIB, 0);
    const struct {
        const char *key;
        uint64_t value;
    } rows[] = {{"allocated_bytes.all.current", 3 * MIB + 512},
                {"allocated_bytes.all.peak", 50 * MIB + 512},
                {"allocated_bytes.all.allocated", 53 * MIB + 512},
                {"allocated_bytes.all.freed", 50 * MIB},
                {"allocated_bytes.small_pool.peak", 512},
                {"allocated_bytes.large_pool.freed", 50 * MIB},
                {"requested_bytes.all.current", 3 * MIB + 100},
                {"allocation.large_pool.allocated", 2},
                {"segment.small_pool.current", 1},
                {"segment.large_pool.peak", 2},
                {"reserved_bytes.all.current", 72 * MIB},
                {"inactive_split.all.current", 2},
                {"inactive_split_bytes.large_pool.current", 17 * MIB},
                {"active.all.peak", 2},
                {"active_bytes.all.freed", 50 * MIB},
                {"num_device_alloc", 3},
                {"num_device_free", 0},
                {"num_alloc_retries", 0},
                {"num_ooms", 0},
                {"num_sync_all_streams", 0},
                {"max_split_size", 32 * MIB},
                {"oversize_allocations.current", 0},
                {"oversize_allocations.freed", 1},
                {"oversize_segments.current", 1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!tide_caching_stat_named(p.a, rows[i].key, &v)) complain("no %s", rows[i].key);
        if (v != rows[i].value) complain("%s is %" PRIu64 ", want %" PRIu64, rows[i].key, v, rows[i].value);
    }
    CHECK(!tide_caching_stat_named(p.a, "allocated_bytes.all.mean", &v));
    CHECK(!tide_caching_stat_named(p.a, "allocated", &v));
    CHECK(strcmp(tide_statistic_name(TIDE_STAT_REQUESTED_BYTES), "requested_bytes") == 0);
    end();
    begin("reset_peak_memory_stats and reset_accumulated_memory_stats");
    tide_caching_reset_peaks(p.a);
    EQUAL(peak(&p, TIDE_STAT_ALLOCATED_BYTES), 3 * MIB + 512);
    tide_caching_reset_accumulated(p.a);
    give(&p, a);
    tide_stat s = tide_caching_stat(p.a, TIDE_STAT_ALLOCATED_BYTES, TIDE_POOL_ALL);
    EQUAL(s.allocated, 0);
    EQUAL(s.freed, 512);
    EQUAL(s.current, 3 * MIB);
    EQUAL(tide_caching_counters(p.a).device_alloc, 0);
    player_close(&p);
    end();
}

static void test_limits(void) {
    player p;
    begin("a fraction of 1 is no limit since 2.10, and was one in 2.4");
    player_open(&p, "", 100 * MIB);
    CHECK(tide_caching_set_fraction(p.a, 1) == TIDE_CACHING_OK);
    CHECK(take(&p, 200 * MIB, 0) == 0);
    EQUAL(tide_caching_oom_info(p.a).limit_bytes, UINT64_MAX);
    CHECK(tide_caching_set_fraction(p.a, 0.5) == TIDE_CACHING_OK);
    CHECK(take(&p, 52 * MIB, 0) == 0);
    EQUAL(tide_caching_oom_info(p.a).limit_bytes, 50 * MIB);
    CHECK(take(&p, 50 * MIB, 0) != 0);
    CHECK(tide_caching_set_fraction(p.a, 1.5) == TIDE_CACHING_BAD_CONFIG);
    CHECK(tide_caching_set_fraction(p.a, -0.1) == TIDE_CACHING_BAD_CONFIG);
    player_close(&p);
    tide_caching_config config = {.memory = hook, .device_bytes = 100 * MIB};
    tide_caching_allocator *a;
    tide_block b;
    config.conf = tide_alloc_conf_default(TIDE_ALLOC_TORCH_2_4);
    CHECK(tide_caching_create(&a, &config) == TIDE_CACHING_OK);
    CHECK(tide_caching_set_fraction(a, 1) == TIDE_CACHING_OK);
    CHECK(tide_caching_malloc(a, 200 * MIB, 0, &b) == TIDE_CACHING_OOM);
    EQUAL(tide_caching_oom_info(a).limit_bytes, 100 * MIB);
    tide_caching_destroy(a);
    end();
    begin("a device of 2^59 bytes is refused");
    config.device_bytes = (uint64_t)1 << 59;
    CHECK(tide_caching_create(&a, &config) == TIDE_CACHING_BAD_CONFIG && !a);
    end();
}

/* 600, 700, 200, 300 MiB on a device of 1 GiB, the first one freed: what PyTorch 2.15.0 answered. */
static void test_rejections(void) {
    static const struct {
        const char *conf;
        double fraction;
        uint64_t rejections, retries, ooms, reserved_mib;
    } rows[] = {{"throw_on_cudamalloc_oom:True", 1, 1, 0, 0, 600},
                {"throw_on_cudamalloc_oom:True,expandable_segments:True", 1, 1, 0, 0, 600},
                {"throw_on_cudamalloc_oom:True,max_split_size_mb:100", 1, 2, 0, 0, 800},
                {"throw_on_cudamalloc_oom:True,garbage_collection_threshold:0.5", 1, 1, 0, 0, 600},
                {"throw_on_cudamalloc_oom:True", 0.95, 0, 2, 1, 900},
                {"throw_on_cudamalloc_oom:True,per_process_memory_fraction:0.95", 1, 0, 2, 1, 900}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        begin("throw_on_cudamalloc_oom rejects what the device cannot hold, unless the process has a limit");
        player p;
        player_open(&p, rows[i].conf, UINT64_C(1) << 30);
        if (rows[i].fraction < 1) CHECK(tide_caching_set_fraction(p.a, rows[i].fraction) == TIDE_CACHING_OK);
        give(&p, take(&p, UINT64_C(600) << 20, 0));
        for (uint64_t mib = 700; mib; mib = mib == 700 ? 200 : mib == 200 ? 300 : 0) take(&p, mib << 20, 0);
        tide_caching_counts c = tide_caching_counters(p.a);
        EQUAL(c.oom_rejections, rows[i].rejections);
        EQUAL(c.alloc_retries, rows[i].retries);
        EQUAL(c.ooms, rows[i].ooms);
        EQUAL(now(&p, TIDE_STAT_RESERVED_BYTES), rows[i].reserved_mib << 20);
        player_close(&p);
        end();
    }
}

static void test_endless(void) {
    begin("a device without limit has room for expandable segments of many streams");
    player p;
    player_open(&p, "expandable_segments:True", UINT64_C(1) << 52);
    for (uint32_t stream = 0; stream < 24; stream++) {
        CHECK(take(&p, 1 << 10, stream) != 0);
        CHECK(take(&p, UINT64_C(30) << 20, stream) != 0);
    }
    CHECK(take(&p, UINT64_C(1) << 40, 0) != 0);
    EQUAL(now(&p, TIDE_STAT_RESERVED_BYTES),
          24 * (UINT64_C(42) << 20) + ((UINT64_C(1) << 40) + (UINT64_C(10) << 20)) / (20 << 20) * (20 << 20));
    player_close(&p);
    end();
}

/* Of two allocators one is asked for a block that it gets back at once, the other told so: what follows is the same. */
static void test_touches(void) {
    static const char *const confs[] = {"", "expandable_segments:True", "max_split_size_mb:64",
                                        "garbage_collection_threshold:0.5", "backend:cudaMallocAsync"};
    begin("touches");
    for (size_t c = 0; c < sizeof confs / sizeof *confs; c++) {
        tide_caching_config config = {
            .memory = hook, .conf = conf_of(confs[c]), .device_bytes = (uint64_t)3 << 30, .is_lean = true};
        tide_caching_allocator *a = NULL, *b = NULL;
        tide_block of_a[64] = {0}, of_b[64] = {0};
        uint64_t least = 1, block_bytes = 0;
        if (tide_caching_create(&a, &config) != TIDE_CACHING_OK || tide_caching_create(&b, &config) != TIDE_CACHING_OK)
            complain("no allocator");
        draw_state = 7 + c;
        for (int i = 0; a && b && i < 4000; i++) {
            uint64_t bytes = least + draw_plain() % ((uint64_t)1 << (9 + draw_plain() % 19)), at = draw_plain() % 64;
            if (draw_plain() % 2) {
                tide_block touched;
                tide_caching_status one = tide_caching_malloc(a, bytes, 0, &touched),
                                    other = tide_caching_touch(b, bytes, 0, &block_bytes);
                equal_at(i, "status", one, other);
                if (one == TIDE_CACHING_OK) equal_at(i, "block", tide_caching_block_bytes(a, touched), block_bytes);
                tide_caching_free(a, touched);
            } else if (of_a[at]) {
                tide_caching_free(a, of_a[at]);
                tide_caching_free(b, of_b[at]);
                of_a[at] = of_b[at] = 0;
            } else {
                equal_at(i, "status", tide_caching_malloc(a, bytes, 0, &of_a[at]),
                         tide_caching_malloc(b, bytes, 0, &of_b[at]));
                if (of_a[at] && of_b[at])
                    equal_at(i, "address", tide_caching_address(a, of_a[at]), tide_caching_address(b, of_b[at]));
            }
            equal_at(i, "reserved", tide_caching_stat(a, TIDE_STAT_RESERVED_BYTES, TIDE_POOL_ALL).current,
                     tide_caching_stat(b, TIDE_STAT_RESERVED_BYTES, TIDE_POOL_ALL).current);
        }
        tide_caching_destroy(a);
        tide_caching_destroy(b);
    }
    end();
}

static void test_async(void) {
    player p;
    begin("cudaMallocAsync says that it is approximate, and keeps reserved in 32 MiB steps");
    CHECK(conf_of("backend:cudaMallocAsync").is_approximate);
    CHECK(!conf_of("backend:native").is_approximate);
    player_open(&p, "backend:cudaMallocAsync", 100 * MIB);
    tide_block a = take(&p, 33 * MIB, 0), b = take(&p, 1, 1);
    EQUAL(now(&p, TIDE_STAT_ALLOCATED_BYTES), 33 * MIB + 512);
    EQUAL(now(&p, TIDE_STAT_RESERVED_BYTES), 64 * MIB);
    EQUAL(now(&p, TIDE_STAT_ALLOCATION), 0);
    CHECK(take(&p, 70 * MIB, 0) == 0);
    give(&p, a);
    EQUAL(now(&p, TIDE_STAT_RESERVED_BYTES), 64 * MIB);
    CHECK(tide_caching_empty_cache(p.a) == TIDE_CACHING_OK);
    EQUAL(now(&p, TIDE_STAT_RESERVED_BYTES), 32 * MIB);
    give(&p, b);
    CHECK(tide_caching_set_fraction(p.a, 0.25) == TIDE_CACHING_OK);
    CHECK(take(&p, 26 * MIB, 0) == 0);
    CHECK(take(&p, 25 * MIB, 0) != 0);
    player_close(&p);
    end();
}

/* ---- the option text ---- */

static void test_conf_values(void) {
    begin("options are read as PyTorch reads them");
    tide_alloc_conf c =
        conf_of("max_split_size_mb:128, max_non_split_rounding_mb : 40,garbage_collection_threshold:0.85,"
                "expandable_segments:True,large_segment_size_mb:64,per_process_memory_fraction:0.5,");
    EQUAL(c.max_split_size_bytes, 128 * MIB);
    EQUAL(c.max_non_split_rounding_bytes, 40 * MIB);
    EQUAL(c.large_segment_size_bytes, 64 * MIB);
    CHECK(c.expandable_segments && c.garbage_collection_threshold == 0.85 && c.per_process_memory_fraction == 0.5);
    EQUAL(c.warnings, 0);
    c = conf_of("");
    EQUAL(c.max_split_size_bytes, UINT64_MAX);
    EQUAL(c.max_non_split_rounding_bytes, 20 * MIB);
    CHECK(conf_of("garbage_collection_threshold:1e-1").garbage_collection_threshold == 0.1);
    CHECK(conf_of("throw_on_cudamalloc_oom:True").throw_on_cudamalloc_oom);
    EQUAL(conf_of("throw_on_cudamalloc_oom:True").warnings, 0);
    EQUAL(conf_of("throw_on_cudamalloc_oom:False,expandable_segments_reserve:40G").warnings,
          TIDE_ALLOC_CONF_NOT_MODELLED);
    CHECK(conf_of("garbage_collection_threshold:0.50000000000000000000").garbage_collection_threshold == 0.5);
    CHECK(conf_of("garbage_collection_threshold:5000000000000000000000e-22").garbage_collection_threshold == 0.5);
    CHECK(conf_of("garbage_collection_threshold:.3").garbage_collection_threshold == 0.3);
    CHECK(conf_of("garbage_collection_threshold:0.123456789012").garbage_collection_threshold == 0.123456789012);
    c = conf_of("max_split_size_mb:512MB");
    EQUAL(c.max_split_size_bytes, 512 * MIB);
    EQUAL(c.warnings, TIDE_ALLOC_CONF_TRAILING_TEXT);
    EQUAL(conf_of("backend:cudaMallocAsync,max_split_size_mb:64").warnings, TIDE_ALLOC_CONF_ASYNC_IGNORES);
    EQUAL(conf_of("expandable_segments_reserve_by_class:[a:1,b:2],expandable_segments:False").warnings,
          TIDE_ALLOC_CONF_NOT_MODELLED);
    EQUAL(conf_of("pinned_num_register_threads:8,pinned_use_background_threads:True,backend:native,"
                  "release_lock_on_cudamalloc:False,pinned_use_cuda_host_register:True")
              .warnings,
          0);
    end();
}

static void test_conf_roundup(void) {
    begin("roundup_power2_divisions: the first key fills below, > from the next bucket (2.4: from "
          "the last)");
    tide_alloc_conf c = conf_of("roundup_power2_divisions:[256:1,512:2,1024:4,>:8]");
    static const uint64_t main_list[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 4, 8, 8, 8, 8, 8};
    for (int i = 0; i < 16; i++) EQUAL(c.roundup_power2_divisions[i], main_list[i]);
    const char *text = "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]";
    CHECK(tide_alloc_conf_parse(&c, TIDE_ALLOC_TORCH_2_4, text, strlen(text), NULL));
    EQUAL(c.roundup_power2_divisions[9], 2);
    EQUAL(c.roundup_power2_divisions[10], 8);
    c = conf_of("roundup_power2_divisions:[64:4,256:8]");
    EQUAL(c.roundup_power2_divisions[6], 4);
    EQUAL(c.roundup_power2_divisions[7], 0);
    EQUAL(c.roundup_power2_divisions[8], 8);
    EQUAL(c.roundup_power2_divisions[9], 0);
    c = conf_of("roundup_power2_divisions:[1048576:2]");
    EQUAL(c.roundup_power2_divisions[15], 2);
    c = conf_of("roundup_power2_divisions:16");
    for (int i = 0; i < 16; i++) EQUAL(c.roundup_power2_divisions[i], 16);
    end();
}

static void test_conf_errors(void) {
    static const struct {
        const char *text, *message;
        size_t offset;
    } rows[] = {
        {"max_split_size:20", "Unrecognized key 'max_split_size' in CUDA allocator config.", 0},
        {"expandable_segments:True,,", "Unrecognized key ',' in CUDA allocator config.", 25},
        {"max_split_size_mb:19", "CachingAllocator option max_split_size_mb too small, must be >= 20", 18},
        {"large_segment_size_mb:40,max_split_size_mb:39",
         "CachingAllocator option max_split_size_mb too small, must be >= 40", 43},
        {"large_segment_size_mb:10", "CachingAllocator option large_segment_size_mb must be > 10 MB", 22},
        {"max_split_size_mb", "Error parsing CachingAllocator settings, expected :", 17},
        {"max_split_size_mb=64", "Unrecognized key 'max_split_size_mb=64' in CUDA allocator config.", 0},
        {"max_split_size_mb:", "Error, expecting max_split_size_mb value", 18},
        {"max_split_size_mb:,", "Error, expecting max_split_size_mb value", 18},
        {"max_split_size_mb:x", "max_split_size_mb is not a number: 'x'", 18},
        {"max_split_size_mb:99999999999999999999", "max_split_size_mb is out of range: '99999999999999999999'", 18},
        {"max_split_size_mb:64]", "Error parsing CachingAllocator settings, expected ,", 20},
        {"expandable_segments:true", "Expected 'True' or 'False' at index 2 in ConfigTokenizer but got 'true'", 20},
        {"garbage_collection_threshold:1", "garbage_collect_threshold is invalid, set it in (0.0, 1.0)", 29},
        {"garbage_collection_threshold:0", "garbage_collect_threshold is invalid, set it in (0.0, 1.0)", 29},
        {"garbage_collection_threshold:nan", "garbage_collection_threshold is not a number: 'nan'", 29},
        {"per_process_memory_fraction:1.1", "per_process_memory_fraction is invalid, set it in [0.0, 1.0]", 28},
        {"roundup_power2_divisions:3", "For roundups, the divisions has to be power of 2", 25},
        {"roundup_power2_divisions:[3:2]", "For roundups, the intervals have to be power of 2", 26},
        {"roundup_power2_divisions:[4:3]", "For roundups, the divisions has to be power of 2 or 0 to disable roundup",
         28},
        {"roundup_power2_divisions:[4:x]", "roundup_power2_divisions is not a number: 'x'", 28},
        {"roundup_power2_divisions:[4:2:", "Error parsing CachingAllocator settings, expected ,", 29},
        {"roundup_power2_divisions:[4", "Error parsing CachingAllocator settings, expected :", 27},
        {"expandable_segments_reserve_by_class:[a:1", "Expected closing bracket ']'", 41},
        {"throw_on_cudamalloc_oom:1", "Expected 'True' or 'False' at index 2 in ConfigTokenizer but got '1'", 24},
        {"roundup_power2_divisions:[4:2", "Expected closing bracket ']'", 29},
        {"backend:cuda", "Unknown allocator backend, options are native and cudaMallocAsync", 8},
        {"pinned_num_register_threads:3", "Number of register threads has to be power of 2, got 3", 28},
        {"pinned_num_register_threads:256", "Number of register threads should be less than or equal to 128, got 256",
         28},
        {"pinned_reserve_segment_size_mb:0", "Pinned reserve segment size has to be greater than 0", 31}};
    begin("errors of the option text: PyTorch's words and the place");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tide_alloc_conf conf;
        tide_alloc_conf_error error;
        if (tide_alloc_conf_parse(&conf, TIDE_ALLOC_TORCH_MAIN, rows[i].text, strlen(rows[i].text), &error))
            complain("'%s' is accepted", rows[i].text);
        if (strcmp(error.message, rows[i].message) != 0 || error.offset != rows[i].offset)
            complain("'%s': '%s' at %zu, want '%s' at %zu", rows[i].text, error.message, error.offset, rows[i].message,
                     rows[i].offset);
    }
    tide_alloc_conf conf;
    CHECK(!tide_alloc_conf_parse(&conf, TIDE_ALLOC_TORCH_2_4, "large_segment_size_mb:40", 24, NULL));
    end();
}

/* ---- properties ---- */

typedef struct mix {
    const char *conf;
    uint64_t device_bytes;
    double fraction;
    uint32_t streams;
} mix;

static const mix mixes[] = {
    {"", 2 * GIB, 1, 1},
    {"", 1 * GIB, 0.7, 3},
    {"expandable_segments:True", 1 * GIB, 1, 2},
    {"expandable_segments:True,roundup_power2_divisions:4", 700 * MIB, 0.8, 3},
    {"expandable_segments:True,max_split_size_mb:64,garbage_collection_threshold:0.5", 1 * GIB, 0.9, 2},
    {"max_split_size_mb:32,garbage_collection_threshold:0.6", 1 * GIB, 0.8, 2},
    {"max_split_size_mb:21,large_segment_size_mb:80", 1 * GIB, 1, 2},
    {"max_split_size_mb:-1", 512 * MIB, 1, 1},
    {"large_segment_size_mb:37,expandable_segments:True", 900 * MIB, 1, 2}};

enum { LIVE_LIMIT = 400 };

/* Plays `n` random operations; returns a hash over every answer. A call that found no host memory
 * is repeated, with the hook failing once more at a later call when `fail_every` is given. */
static uint64_t play_mix(const mix *m, uint64_t seed, int n, uint64_t fail_every, int check_every) {
    player p;
    tide_block live[LIVE_LIMIT];
    size_t count = 0;
    uint64_t h = 0;
    player_open(&p, m->conf, m->device_bytes);
    if (m->fraction != 1) CHECK(tide_caching_set_fraction(p.a, m->fraction) == TIDE_CACHING_OK);
    draw_state = seed;
    for (int i = 0; i < n; i++) {
        uint64_t k = draw() % 1000;
        tide_caching_status status;
        if (fail_every) hook_fail_at = hook_calls + (uint64_t)i % fail_every;
        if (k < 4) {
            while ((status = tide_caching_empty_cache(p.a)) == TIDE_CACHING_NO_MEMORY) hook_fail_at = UINT64_MAX;
            CHECK(status == TIDE_CACHING_OK);
        } else if (k < 8) {
            tide_caching_hold_events(p.a);
        } else if (k < 20) {
            tide_caching_resume_events(p.a);
        } else if (k < 24) {
            tide_caching_synchronize(p.a, (uint32_t)(draw() % m->streams));
        } else if (count && (k < 450 || count == LIVE_LIMIT)) {
            size_t j = (size_t)(draw() % count);
            if (draw() % 4 == 0) {
                uint32_t stream = (uint32_t)(draw() % (m->streams + 1));
                while ((status = tide_caching_record_stream(p.a, live[j], stream)) == TIDE_CACHING_NO_MEMORY)
                    hook_fail_at = UINT64_MAX;
                CHECK(status == TIDE_CACHING_OK);
            }
            give(&p, live[j]);
            live[j] = live[--count];
        } else {
            uint64_t bytes = draw_plain() >> draw() % 4;
            uint32_t stream = (uint32_t)(draw() % m->streams);
            tide_block b;
            while ((status = tide_caching_malloc(p.a, bytes, stream, &b)) == TIDE_CACHING_NO_MEMORY)
                hook_fail_at = UINT64_MAX;
            CHECK(status == TIDE_CACHING_OK || status == TIDE_CACHING_OOM);
            if (b) live[count++] = b;
            h = fnv(h, tide_caching_address(p.a, b));
        }
        hook_fail_at = UINT64_MAX;
        uint64_t state[6];
        state_of(&p, state);
        for (int s = 0; s < 6; s++) h = fnv(h, state[s]);
        if (check_every && i % check_every == 0) check_properties(&p);
    }
    h = fnv(h, tide_caching_counters(p.a).ooms);
    tide_caching_resume_events(p.a);
    while (count) give(&p, live[--count]);
    CHECK(tide_caching_empty_cache(p.a) == TIDE_CACHING_OK);
    EQUAL(now(&p, TIDE_STAT_RESERVED_BYTES), 0);
    EQUAL(now(&p, TIDE_STAT_ACTIVE), 0);
    EQUAL(now(&p, TIDE_STAT_SEGMENT), 0);
    check_properties(&p);
    player_close(&p);
    return h;
}

static void test_properties(void) {
    begin("no overlap, no two adjacent free blocks, allocated <= reserved = segments, after every "
          "operation");
    for (size_t i = 0; i < sizeof mixes / sizeof *mixes; i++)
        for (uint64_t seed = 1; seed <= 4; seed++) play_mix(&mixes[i], seed, 2000, 0, 1);
    end();
    begin("the same requests give the same answers");
    for (size_t i = 0; i < sizeof mixes / sizeof *mixes; i++)
        EQUAL(play_mix(&mixes[i], 9, 1000, 0, 0), play_mix(&mixes[i], 9, 1000, 0, 0));
    end();
    begin("a hook that fails changes no answer: the call is repeated and goes on");
    for (size_t i = 0; i < sizeof mixes / sizeof *mixes; i++)
        for (uint64_t every = 1; every < 4; every++)
            EQUAL(play_mix(&mixes[i], 11, 1500, every, 7), play_mix(&mixes[i], 11, 1500, 0, 0));
    end();
}

static void test_host_memory(void) {
    begin("create without host memory is a status, at every allocation of it");
    for (uint64_t k = 0;; k++) {
        tide_caching_config config = {
            .memory = hook, .conf = tide_alloc_conf_default(TIDE_ALLOC_TORCH_MAIN), .device_bytes = GIB};
        tide_caching_allocator *a;
        hook_fail_at = hook_calls + k;
        tide_caching_status status = tide_caching_create(&a, &config);
        hook_fail_at = UINT64_MAX;
        tide_caching_destroy(a);
        if (status == TIDE_CACHING_OK) {
            CHECK(k >= 3);
            break;
        }
        EQUAL(status, TIDE_CACHING_NO_MEMORY);
        EQUAL(hook_bytes, 0);
    }
    end();
    begin("host memory follows live blocks, not the number of requests");
    player p;
    tide_block live[100];
    player_open(&p, "", 64 * GIB);
    hook_peak = 0;
    draw_state = 5;
    for (int i = 0; i < 200000; i++) {
        if (i >= 100) give(&p, live[i % 100]);
        live[i % 100] = take(&p, 1 + draw() % (4 * MIB), 0);
    }
    CHECK(hook_peak < 200 << 10);
    player_close(&p);
    end();
    begin("emptying an expandable cache again and again does not run out of addresses");
    player_open(&p, "expandable_segments:True", 80 * GIB);
    for (int i = 0; i < 2000; i++) {
        tide_block b = take(&p, 30 * MIB, 0), c = take(&p, 1, 0);
        CHECK(b && c);
        give(&p, b);
        give(&p, c);
        CHECK(tide_caching_empty_cache(p.a) == TIDE_CACHING_OK);
        p.call_count = 0;
    }
    EQUAL(now(&p, TIDE_STAT_RESERVED_BYTES), 0);
    player_close(&p);
    end();
}

static void test_conf_noise(void) {
    static const char *const pieces[] = {"max_split_size_mb",
                                         "roundup_power2_divisions",
                                         "backend",
                                         "native",
                                         "64",
                                         ":",
                                         ":",
                                         ",",
                                         "[",
                                         "]",
                                         ">",
                                         " ",
                                         "-",
                                         "0.5",
                                         "True",
                                         "1e999",
                                         "expandable_segments",
                                         "garbage_collection_threshold",
                                         "e",
                                         "18446744073709551616"};
    begin("no text breaks the option parser");
    draw_state = 3;
    for (int i = 0; i < 20000; i++) {
        char text[600] = "";
        tide_alloc_conf conf;
        tide_alloc_conf_error error;
        for (uint64_t n = draw() % 20; n > 0; n--) strcat(text, pieces[draw() % (sizeof pieces / sizeof *pieces)]);
        bool ok = tide_alloc_conf_parse(&conf, TIDE_ALLOC_TORCH_MAIN, text, strlen(text), &error);
        if (ok != (error.message[0] == 0)) complain("'%s': '%s'", text, error.message);
        CHECK(error.offset <= strlen(text));
        CHECK(conf.max_split_size_bytes >= 20 * MIB && conf.garbage_collection_threshold < 1);
    }
    end();
}

static void test_rules(void) {
    test_conf_noise();
    test_rounding();
    test_requests();
    test_oom();
    test_streams();
    test_ties();
    test_statistics();
    test_limits();
    test_rejections();
    test_endless();
    test_async();
    test_touches();
    test_conf_values();
    test_conf_roundup();
    test_conf_errors();
    test_properties();
    test_host_memory();
}

int main(int argc, char **argv) {
    const char *folder = argc > 1 ? argv[1] : "tests/oracle";
    test_vectors(folder);
    test_recordings(folder);
    test_rules();
    begin("every byte of host memory is returned");
    EQUAL(hook_bytes, 0);
    end();
    printf("%d passed, %d failed\n", passed, failed);
    return failed ? 1 : 0;
}
