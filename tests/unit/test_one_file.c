/* SPDX-License-Identifier: Apache-2.0 */
/* The core as one file: its names do not meet, it answers as the library does, and each of its invariants is found
 * broken. */
#if !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L /* fork: what is broken ends its process */
#endif
#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wshadow" /* a local of one file may be named as a function of another */
#endif
#include "core.c"

#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static unsigned tests_passed, tests_failed;

static void expect(bool holds, const char *what) {
    tests_passed += holds;
    tests_failed += !holds;
    if (!holds) printf("FAIL %s\n", what);
}

static void answers(const char *request, const char *beginning) {
    char *answer = NULL;
    size_t length = 0;
    int status = tide_call(request, strlen(request), NULL, &answer, &length);
    expect(status == 0 && strncmp(answer, beginning, strlen(beginning)) == 0, request);
    tide_free(NULL, answer, length);
}

/* ---- invariants ---- */

/* A product of two leaves, played from; and its events. */
typedef struct played {
    tide_arena arena;
    tide_diagnostics diags;
    tide_machine m;
    tide_tensor *leaf, *product;
    tide_event_source source;
    tide_player player;
} played;

static tide_tensor *new_leaf(tide_machine *m) {
    tide_shape shape = tide_shape1((tide_dim){4096, 0});
    tide_tensor *t = tide_empty(m, &shape, TIDE_FP32);
    t->requires_grad = t->is_leaf = true;
    return t;
}

static void open_played(played *p) {
    tide_replay_config config = {.keeps_statistics = true};
    tide_machine *m = &p->m;
    tide_alloc_conf_parse(&config.conf, TIDE_ALLOC_TORCH_MAIN, "", 0, NULL);
    tide_arena_init(&p->arena, tide_default_allocator(), NULL);
    tide_diagnostics_init(&p->diags, &p->arena);
    tide_machine_init(m, &p->arena, &p->diags);
    m->state.grad_enabled = true;
    p->leaf = new_leaf(m);
    p->product = tide_mul(m, p->leaf, p->leaf);
    p->source = tide_timeline_events(&m->timeline);
    bool is_played = tide_player_open(&p->player, &p->source, &config, &p->arena) &&
                     tide_player_run(&p->player, p->source.event_count);
    if (!is_played || !p->player.blocks[0]) _exit(2);
}

static void nothing(played *p) {
    tide_player_close(&p->player);
    tide_release(&p->m, p->product);
    tide_release(&p->m, p->leaf);
}
static void tensor_released_twice(played *p) {
    p->leaf->references = 0;
    tide_release(&p->m, p->leaf);
}
static void storage_released_twice(played *p) {
    p->leaf->storage->references = 0;
    storage_release(&p->m, p->leaf->storage);
}
static void node_released_twice(played *p) {
    p->product->node->references = 0;
    tide_node_release(&p->m, p->product->node);
}
static void list_released_twice(played *p) {
    tide_list *list = tide_list_new(&p->m);
    list->references = 0;
    tide_list_release(&p->m, list);
}
static void node_dies_in_a_pass(played *p) {
    task_state state = {.task = 1};
    p->product->node->state = &state;
    tide_node_release(&p->m, p->product->node);
}
static void gradient_nobody_waits_for(played *p) {
    engine e = {.m = &p->m, .task = 1};
    tide_node *node = p->product->node;
    task_state *state = state_of(&e, node);
    state_of(&e, node->edges[0].node)->is_needed = true; /* without dependencies */
    state->grads[0] = new_leaf(&p->m);
    run_node(&e, node);
}

/* A slot with a place in a frame. */
static tide_checkpoint_frame *pack_one(played *p, tide_saved *slot) {
    tide_checkpoint_frame *frame = frame_new(&p->m, NULL, NULL, 0, false);
    checkpoint_pack(&p->m, &frame->checkpoint_hook, slot, p->leaf);
    return frame;
}
static void place_dropped_twice(played *p) {
    tide_saved slot = {NULL, NULL, 0, false}, other = {NULL, NULL, 0, false};
    tide_checkpoint_frame *frame = pack_one(p, &slot);
    other = slot;
    frame->references++;
    tide_slot_clear(&p->m, &slot);
    tide_slot_clear(&p->m, &other);
}
static void place_that_is_none(played *p) {
    tide_saved slot = {NULL, NULL, 0, false};
    pack_one(p, &slot);
    slot.packed = 1;
    tide_slot_unpack(&p->m, &slot);
}
static void frame_released_twice(played *p) {
    tide_checkpoint_frame *frame = frame_new(&p->m, NULL, NULL, 0, false);
    frame->references = 0;
    frame_release(&p->m, frame);
}

static void slot_taken_twice(played *p) {
    tide_player_take(&p->player, 0, 0, 512);
}
static void slot_that_is_none(played *p) {
    tide_player_take(&p->player, p->source.slot_count, 0, 512);
}
static void more_freed_than_taken(played *p) {
    p->player.figures.allocated = 0;
    give(&p->player, 0);
}
static void free_that_is_none(played *p) {
    free_completed(&p->player, 0);
}
static void blocks_that_do_not_touch(played *p) {
    caching_block *block = &p->player.allocator->blocks[p->player.blocks[0]];
    block->size += 512;
    tide_player_finish(&p->player);
}

enum { WENT_ON = 0, NAMED_WHAT_BROKE = 1, OTHERWISE = 2 };

/* How a process of its own ends. */
static int ends(void (*breaks)(played *p)) {
    int status = 0, message[2];
    char text[256] = "";
    fflush(stdout);
    if (pipe(message)) return OTHERWISE;
    pid_t child = fork();
    if (child == 0) {
        played p;
        if (dup2(message[1], STDERR_FILENO) < 0) _exit(2);
        open_played(&p);
        breaks(&p);
        _exit(0);
    }
    close(message[1]);
    ssize_t length = read(message[0], text, sizeof text - 1);
    close(message[0]);
    if (child < 0 || length < 0 || waitpid(child, &status, 0) != child) return OTHERWISE;
    if (WIFEXITED(status)) return WEXITSTATUS(status) == 0 ? WENT_ON : OTHERWISE;
    return WTERMSIG(status) == SIGABRT && strstr(text, ": broken: ") ? NAMED_WHAT_BROKE : OTHERWISE;
}

static const struct {
    const char *what;
    void (*breaks)(played *p);
} broken[] = {
    {"a tensor is released twice", tensor_released_twice},
    {"a storage is released twice", storage_released_twice},
    {"a node is released twice", node_released_twice},
    {"a list is released twice", list_released_twice},
    {"a node dies in a pass", node_dies_in_a_pass},
    {"a gradient that nobody waits for", gradient_nobody_waits_for},
    {"a place of a checkpoint is dropped twice", place_dropped_twice},
    {"a place that a checkpoint does not have", place_that_is_none},
    {"a frame is released twice", frame_released_twice},
    {"a slot is taken twice", slot_taken_twice},
    {"a slot that is none", slot_that_is_none},
    {"more is freed than was taken", more_freed_than_taken},
    {"a pending free that is none", free_that_is_none},
    {"blocks that do not touch", blocks_that_do_not_touch},
};

int main(void) {
    answers("{\"call\":\"measure\",\"settings\":[\"model=gpt2\",\"batch=4\",\"checkpointing=full\"]}",
            "{\"ok\":true,\"tidemark\":\"" TIDEMARK_VERSION "\",\"peak\":{\"allocated\":");
    answers("{\"call\":\"describe\"}", "{\"ok\":true,");
    expect(ends(nothing) == WENT_ON, "what is not broken goes on");
    for (size_t i = 0; i < TIDE_COUNT_OF(broken); i++)
        expect(ends(broken[i].breaks) == NAMED_WHAT_BROKE, broken[i].what);
    printf("%u passed, %u failed\n", tests_passed, tests_failed);
    return tests_failed > 0;
}
