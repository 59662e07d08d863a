/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that do the same are played once.
 *
 * Note [Layer memo]: the layers of a model do the same, one after the other, on other parameters. What a call does
 * follows from what it finds: the form of its arguments, of its module and of everything below it, and the state of the
 * machine: its call key (call_key.c). Once a layer has run, all that it left behind is captured in a memo entry: the
 * stretch of events, and the tensors, storages, lists and nodes that it made and that live on. A call with the same key
 * is replayed from the entry: the events again, and the things made anew over its own arguments and parameters.
 *
 * That nothing is missing from the entry is checked, not assumed: each reference to each thing that was made, and each
 * that was gained by a thing that was there before, must come from the entry; each allocation that lives must be a
 * storage of it; and nothing that was there may have changed, but for what was appended to lists, noted in the autocast
 * cache or in the frame of a checkpoint. A call for which that does not hold is played, each time. */
#include "memo/layer_memo.h"

#include "memo/memo_entry.h"

enum { ENTRY_LIMIT = 256, TRIES = 4 };

typedef struct tried {
    const tide_function *function;
    uint32_t in_vain;
} tried;

struct tide_layer_memo {
    memo_entry entries[ENTRY_LIMIT]; /* the newest in place of the oldest */
    uint32_t entry_count;            /* ever made */
    tried tried[ENTRY_LIMIT];
    uint32_t tried_count;
    uint32_t *modules; /* for tide_replay_call */
    uint32_t module_capacity;
    tide_call_key key; /* of the call that is looked at */
};

/* How often a function has been kept without a use for it, or could not be kept. */
static uint32_t *tries(struct tide_layer_memo *a, const tide_function *function) {
    for (uint32_t i = 0; i < a->tried_count; i++)
        if (a->tried[i].function == function) return &a->tried[i].in_vain;
    if (a->tried_count == ENTRY_LIMIT) return NULL;
    a->tried[a->tried_count].function = function;
    return &a->tried[a->tried_count++].in_vain;
}

/* The entry of a call with the same key. */
static const memo_entry *find_memo_entry(struct tide_layer_memo *a, const tide_call_arguments *arguments,
                                         uint64_t digest) {
    const tide_machine *m = arguments->model->m;
    uint32_t oldest = a->entry_count > ENTRY_LIMIT ? a->entry_count - ENTRY_LIMIT : 0;
    for (uint32_t i = a->entry_count; i-- > oldest;) {
        const memo_entry *of = &a->entries[i % ENTRY_LIMIT];
        if (of->digest != digest || of->words[0] != (uint64_t)(uintptr_t)arguments->function ||
            arguments->model->depth > of->depth || m->op_count + of->op_count > m->op_limit)
            continue;
        a->key.mode = TIDE_CALL_KEY_COMPARES;
        a->key.words = of->words;
        a->key.word_count = of->word_count;
        if (tide_call_key_walk(&a->key, arguments) && tide_has_same_places(m, of)) return of;
    }
    return NULL;
}

/* Room for the number of every instance. */
static uint32_t *modules_of(struct tide_layer_memo *a, const tide_model *model) {
    if (a->module_capacity < model->instance_count) {
        a->modules = TIDE_NEW(model->m->arena, uint32_t, model->instance_count);
        a->module_capacity = model->instance_count;
    }
    return a->modules;
}

/* One of a list of modules: others like it may follow. Hooks see each call of each module. */
static bool may_repeat(const tide_model *model, uint32_t instance) {
    const tide_instance *of = &model->instances[instance];
    const tide_machine *m = model->m;
    return of->is_item && !model->before_forward && !model->after_forward && !model->read_parameter && !m->linear &&
           !tide_is_aborting(m);
}

tide_value tide_call_memoized(const tide_call_arguments *arguments) {
    tide_model *model = arguments->model;
    if (!may_repeat(model, arguments->instance)) return tide_call_function(arguments);
    if (!model->layer_memo) {
        model->layer_memo = TIDE_NEW(model->m->arena, struct tide_layer_memo, 1);
        model->layer_memo->key.arena = model->m->arena;
    }
    struct tide_layer_memo *a = model->layer_memo;
    uint64_t digest = tide_call_digest(arguments);
    const memo_entry *of = find_memo_entry(a, arguments, digest);
    uint32_t *in_vain = tries(a, arguments->function);
    if (of && in_vain) *in_vain = 0;
    if (of) model->repeated_calls++;
    if (of) return tide_replay_call(of, &a->key, arguments, modules_of(a, model));
    if (!in_vain || *in_vain >= TRIES) return tide_call_function(arguments);
    memo_entry kept;
    bool is_kept;
    tide_value result = tide_capture_call(arguments, &is_kept, &kept);
    ++*in_vain;
    kept.digest = digest;
    if (is_kept) a->entries[a->entry_count++ % ENTRY_LIMIT] = kept;
    return result;
}

void tide_layer_memo_forget(tide_model *model, uint32_t first_event) {
    static uint64_t none; /* of no function */
    struct tide_layer_memo *a = model->layer_memo;
    for (uint32_t i = 0; a && i < a->entry_count && i < ENTRY_LIMIT; i++)
        if (a->entries[i].last_event > first_event) a->entries[i].words = &none;
}
