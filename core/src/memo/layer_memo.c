/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that do the same are played once.
 *
 * Note [Layer memo]: the layers of a model do the same, one after the other, with other parameters. What a call does
 * follows from what it can read: the form of its arguments, of its module and everything below it, and the state of the
 * machine. This is its call key (call_key.c). Once a layer has run, everything that it left behind is captured in a
 * memo entry: its events, and the tensors, storages, lists and nodes that it made and that live on. A call with the
 * same key is replayed from the entry: the events are repeated, and the objects made anew over the call's own arguments
 * and parameters.
 *
 * That an entry is complete is checked, not assumed: all references to the objects made, and all new references to
 * older objects, must come from the entry; every live allocation must be the storage of one of them; and nothing older
 * may have changed, except for items appended to lists and records in the autocast cache or in the frame of a
 * checkpoint. A call for which this does not hold is played every time. */
#include "memo/layer_memo.h"

#include <string.h>

#include "memo/memo_entry.h"

enum { ENTRY_LIMIT = 256, TRIES = 4, KINDS = TIDE_VALUE_CONFIG + 2 };

typedef struct tried {
    const tide_function *function;
    uint64_t kinds;
    uint32_t in_vain;
} tried;

struct tide_layer_memo {
    memo_entry entries[ENTRY_LIMIT]; /* the newest replaces the oldest */
    uint32_t entry_count;            /* made so far */
    tried tried[ENTRY_LIMIT];
    uint32_t tried_count;
    uint32_t *modules; /* for tide_replay_call */
    uint32_t module_capacity;
    tide_call_key key;            /* of the current call */
    tide_setting_value *settings; /* the settings at the last call, */
    uint32_t setting_count;
    uint32_t settings_known; /* and the number that identifies these values */
};

/* Gives the settings a new number if they changed since the last call. */
static void look_at_settings(struct tide_layer_memo *a, const tide_model *model) {
    size_t size = model->setting_count * sizeof *model->settings;
    bool are_as_many = a->settings && a->setting_count == model->setting_count;
    if (are_as_many && memcmp(a->settings, model->settings, size) == 0) return;
    if (!are_as_many) a->settings = TIDE_NEW(model->m->arena, tide_setting_value, model->setting_count);
    memcpy(a->settings, model->settings, size);
    a->setting_count = model->setting_count;
    a->settings_known++;
}

/* How often an entry for this function and these kinds of arguments was made without being used, or could not be made:
 * the first layer may get arguments that later ones do not. */
static uint32_t *tries(struct tide_layer_memo *a, const tide_call_arguments *arguments) {
    uint64_t kinds = 0;
    for (uint32_t i = 0; i < arguments->count; i++) kinds = kinds * KINDS + (uint64_t)arguments->positional[i].kind + 1;
    for (uint32_t i = 0; i < a->tried_count; i++)
        if (a->tried[i].function == arguments->function && a->tried[i].kinds == kinds) return &a->tried[i].in_vain;
    if (a->tried_count == ENTRY_LIMIT) return NULL;
    a->tried[a->tried_count] = (tried){arguments->function, kinds, 0};
    return &a->tried[a->tried_count++].in_vain;
}

/* The entry with the same key as a call. */
static const memo_entry *find_memo_entry(struct tide_layer_memo *a, const tide_call_arguments *arguments,
                                         uint64_t digest) {
    const tide_machine *m = arguments->model->m;
    uint32_t oldest = a->entry_count > ENTRY_LIMIT ? a->entry_count - ENTRY_LIMIT : 0;
    for (uint32_t i = a->entry_count; i-- > oldest;) {
        memo_entry *of = &a->entries[i % ENTRY_LIMIT];
        if (of->digest != digest || of->words[0] != (uint64_t)(uintptr_t)arguments->function ||
            arguments->model->depth > of->depth || m->op_count + of->op_count > m->op_limit)
            continue;
        a->key.words = of->words;
        a->key.word_count = of->word_count;
        bool is_same = tide_call_key_equals(&a->key, arguments, of->settings == a->settings_known);
        if (is_same) of->settings = a->settings_known;
        if (is_same && tide_has_same_places(m, of)) return of;
    }
    return NULL;
}

/* An array with a number for every instance. */
static uint32_t *modules_of(struct tide_layer_memo *a, const tide_model *model) {
    if (a->module_capacity < model->instance_count) {
        a->modules = TIDE_NEW(model->m->arena, uint32_t, model->instance_count);
        a->module_capacity = model->instance_count;
    }
    return a->modules;
}

/* An item of a list of modules, which others like it may follow. Hooks need every call of every module. */
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
    look_at_settings(a, model);
    uint64_t digest = tide_call_digest(arguments);
    const memo_entry *of = find_memo_entry(a, arguments, digest);
    uint32_t *in_vain = tries(a, arguments);
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
    static uint64_t none; /* without a function */
    struct tide_layer_memo *a = model->layer_memo;
    for (uint32_t i = 0; a && i < a->entry_count && i < ENTRY_LIMIT; i++)
        if (a->entries[i].last_event > first_event) a->entries[i].words = &none;
}
