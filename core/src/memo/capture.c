/* SPDX-License-Identifier: Apache-2.0 */
/* Capturing a call: its events, and the tensors, storages, lists and nodes that it made and that live on, with every
 * reference accounted for. See Note [Layer memo] in layer_memo.c. */
#include <string.h>

#include "base/units.h"
#include "memo/memo_entry.h"

enum { THINGS_LIMIT = 1 << 18 };

/* A tensor or list of the key as it was before the call. */
typedef struct tensor_before {
    uint32_t references, storage_references, node_references;
    bool is_untracked;
    tide_tensor is;
} tensor_before;

typedef struct list_before {
    uint32_t references, pops, serial;
    bool is_read;
} list_before;

typedef struct capture {
    tide_model *model;
    tide_machine *m;
    tide_machine_state state; /* at the start of the call */
    tide_arena *arena;
    tide_call_key before, after;
    tensor_before *tensors;
    list_before *lists;
    uint32_t *counts;                                                 /* lengths of lists */
    uint32_t serial, diagnostics, setting_changes, cast_count, alive; /* at the start of the call */
    tide_checkpoint_frame *frame;
    uint32_t frame_references, first_place;
    /* made by the call: in order of discovery, and by serial number */
    uint32_t *known;
    uint32_t known_count;
    tide_storage **storages;
    tide_tensor **made;
    tide_node **nodes;
    tide_list **made_lists;
    uint32_t storage_count, storage_capacity, made_count, made_capacity, node_count, node_capacity, list_count,
        list_capacity;
    uint32_t *references; /* references found from the entry, by serial number */
    uint32_t *tensor_references, *storage_references, *node_references, *list_references,
        frames; /* to objects from before the call */
    bool is_whole;
} capture;

static void *give_up(capture *k) {
    k->is_whole = false;
    return NULL;
}

static bool is_made(capture *k, uint32_t serial) {
    return serial - k->serial - 1 < k->known_count;
}

/* The number of an object made by the call, and whether it is new; counts a reference to it. */
static uint32_t come_upon(capture *k, uint32_t serial, uint32_t next, bool *is_new) {
    uint32_t at = serial - k->serial - 1;
    k->references[at]++;
    *is_new = !k->known[at];
    if (*is_new) k->known[at] = next + 1;
    return k->known[at] - 1;
}

static tide_tensor *tensor_number(capture *k, tide_tensor *t) {
    bool is_new;
    if (!t) return NULL;
    if (is_made(k, t->serial)) {
        uint32_t at = come_upon(k, t->serial, k->made_count, &is_new);
        if (is_new) {
            TIDE_ROOM(k->arena, k->made, k->made_count, k->made_capacity);
            k->made[k->made_count++] = t;
        }
        return tide_memo_number(at, MEMO_MADE);
    }
    if (!tide_call_key_has(&k->after, t)) return give_up(k);
    k->tensor_references[t->mark]++;
    return tide_memo_number(t->mark, MEMO_FOUND);
}

static tide_storage *storage_number(capture *k, tide_storage *g) {
    bool is_new;
    if (is_made(k, g->serial)) {
        uint32_t at = come_upon(k, g->serial, k->storage_count, &is_new);
        if (is_new) {
            TIDE_ROOM(k->arena, k->storages, k->storage_count, k->storage_capacity);
            k->storages[k->storage_count++] = g;
        }
        return tide_memo_number(at, MEMO_MADE);
    }
    if (!tide_call_key_has_storage(&k->after, g)) return give_up(k);
    k->storage_references[g->mark]++;
    return tide_memo_number(g->mark, MEMO_FOUND);
}

static tide_node *node_number(capture *k, tide_node *node) {
    bool is_new;
    if (!node) return NULL;
    if (tide_is_accumulator(node)) {
        const tide_tensor *leaf = node->of.accumulate_grad.variable;
        return tide_call_key_has(&k->after, leaf) ? tide_memo_number(leaf->mark, MEMO_ACCUMULATOR) : give_up(k);
    }
    if (is_made(k, node->serial)) {
        uint32_t at = come_upon(k, node->serial, k->node_count, &is_new);
        if (is_new) {
            TIDE_ROOM(k->arena, k->nodes, k->node_count, k->node_capacity);
            k->nodes[k->node_count++] = node;
        }
        return tide_memo_number(at, MEMO_MADE);
    }
    for (uint32_t i = 0; i < k->after.tensor_count; i++)
        if (k->after.tensors[i]->node == node) {
            k->node_references[i]++;
            return tide_memo_number(i, MEMO_FOUND);
        }
    return give_up(k);
}

static tide_value value_number(capture *k, tide_value v) {
    bool is_new;
    if (v.kind == TIDE_VALUE_TENSOR) {
        v.tensor = tensor_number(k, v.tensor);
    } else if (v.kind == TIDE_VALUE_MODULE) {
        if (!tide_call_key_has_module(&k->after, v.module)) give_up(k);
    } else if (v.kind == TIDE_VALUE_LIST && is_made(k, v.list->serial)) {
        uint32_t at = come_upon(k, v.list->serial, k->list_count, &is_new);
        if (is_new) {
            TIDE_ROOM(k->arena, k->made_lists, k->list_count, k->list_capacity);
            k->made_lists[k->list_count++] = v.list;
        }
        v.list = tide_memo_number(at, MEMO_MADE);
    } else if (v.kind == TIDE_VALUE_LIST) {
        if (!tide_call_key_has_list(&k->after, v.list)) return give_up(k), tide_none();
        k->list_references[v.list->mark]++;
        v.list = tide_memo_number(v.list->mark, MEMO_FOUND);
    }
    return v;
}

static void keep_tensor(capture *k, tide_tensor *t, tide_tensor *kept) {
    if (t->grad || t->accumulator || t->cast) give_up(k);
    *kept = *t;
    kept->storage = storage_number(k, t->storage);
    kept->node = node_number(k, t->node);
}

/* A copy of the node without unused space for saved tensors. */
static tide_node *trimmed(capture *k, const tide_node *node) {
    uint32_t bytes = tide_node_bytes(node->edge_count, node->output_count, node->saved_count);
    tide_node *kept = tide_arena_alloc(k->arena, bytes);
    *kept = *node;
    kept->bytes = bytes;
    kept->saved_capacity = kept->saved_count;
    kept->output_capacity = kept->output_count;
    tide_node_lay_out(kept);
    memcpy(kept->edges, node->edges, node->edge_count * sizeof *node->edges);
    memcpy(kept->saved, node->saved, node->saved_count * sizeof *node->saved);
    memcpy(kept->outputs, node->outputs, node->output_count * sizeof *node->outputs);
    return kept;
}

static void keep_node(capture *k, tide_node *node, tide_node **kept_at, tide_applied *applied) {
    tide_node *kept = *kept_at = trimmed(k, node);
    if (node->state || node->tensor_hooks || tide_is_accumulator(node) ||
        !tide_call_key_has_module(&k->after, node->module))
        give_up(k);
    for (unsigned i = 0; i < node->edge_count; i++) kept->edges[i].node = node_number(k, node->edges[i].node);
    for (unsigned i = 0; i < node->saved_count; i++) {
        tide_saved *slot = &kept->saved[i];
        slot->tensor = tensor_number(k, slot->tensor);
        if (!slot->packed_by) continue;
        if (!k->frame || tide_checkpoint_of(slot) != k->frame || slot->packed < k->first_place) give_up(k);
        slot->packed -= k->first_place;
        k->frames++;
    }
    if (!node->held) return;
    tide_applied *held = tide_applied_of(node);
    if (!held || !tide_call_key_has_module(&k->after, held->instance)) {
        give_up(k);
        return;
    }
    *applied = *held;
    applied->context = value_number(k, held->context);
}

/* What the call recorded elsewhere: in the autocast cache, in lists, in the frame of the checkpoint. */
static void keep_notes(capture *k, memo_entry *kept) {
    tide_machine *m = k->m;
    kept->cast_count = m->cast_count - k->cast_count;
    kept->casts = TIDE_NEW(k->arena, tide_cast, kept->cast_count + 1);
    for (uint32_t i = 0; i < kept->cast_count; i++) {
        const tide_cast *cast = &m->casts[k->cast_count + i];
        kept->casts[i] = (tide_cast){tensor_number(k, cast->from), tensor_number(k, cast->to)};
        if (tide_memo_kind(kept->casts[i].from) != MEMO_FOUND || tide_memo_kind(kept->casts[i].to) != MEMO_MADE)
            give_up(k);
    }
    uint32_t more = 0;
    for (uint32_t i = 0; i < k->before.list_count; i++)
        if (k->before.lists[i]->count > k->counts[i]) more += k->before.lists[i]->count - k->counts[i];
    kept->appended = TIDE_NEW(k->arena, appended, more + 1);
    for (uint32_t i = 0; i < k->before.list_count; i++) {
        tide_list *list = k->before.lists[i];
        if (list->count > k->counts[i] && !tide_call_key_has_list(&k->after, list)) give_up(k);
        for (uint32_t at = k->counts[i]; at < list->count; at++)
            kept->appended[kept->appended_count++] = (appended){list->mark, value_number(k, list->items[at])};
    }
    kept->gathered = TIDE_NEW(k->arena, gathered, k->before.tensor_count + 1);
    for (uint32_t i = 0; i < k->before.tensor_count; i++) {
        const tide_tensor *t = k->before.tensors[i];
        if (!t->accumulator) continue;
        if (!tide_call_key_has(&k->after, t) || !tide_call_key_has_module(&k->after, t->accumulator->module)) {
            if (!k->tensors[i].is.accumulator) give_up(k);
            continue; /* of an earlier graph, made by another call */
        }
        kept->gathered[kept->gathered_count++] = (gathered){t->mark, t->accumulator->module, t->accumulator->statement};
    }
    if (!k->frame) return;
    kept->place_count = tide_memo_places(m, k->frame) - k->first_place;
    kept->places = TIDE_NEW(k->arena, place, kept->place_count + 1);
    for (uint32_t i = 0; i < kept->place_count; i++) {
        const tide_holder *holder = &k->frame->holders[k->first_place + i];
        kept->places[i] = (place){holder->is_alive, tensor_number(k, holder->tensor)};
    }
}

/* Captures everything reachable from the result and from those records. */
static void keep_things(capture *k, memo_entry *kept) {
    uint32_t storages = 0, tensors = 0, nodes = 0, lists = 0, limit = k->known_count;
    tide_arena *arena = k->arena;
    tide_tensor *entries = tide_arena_grow(arena, NULL, 0, (limit + 1) * sizeof *entries);
    tide_node **of_nodes = tide_arena_grow(arena, NULL, 0, (limit + 1) * sizeof *of_nodes);
    tide_applied *applied = tide_arena_grow(arena, NULL, 0, (limit + 1) * sizeof *applied);
    tide_list *of_lists = tide_arena_grow(arena, NULL, 0, (limit + 1) * sizeof *of_lists);
    bool has_applied = false;
    while (k->is_whole && (tensors < k->made_count || nodes < k->node_count || lists < k->list_count)) {
        if (tensors < k->made_count) {
            keep_tensor(k, k->made[tensors], &entries[tensors]);
            tensors++;
        } else if (nodes < k->node_count) {
            keep_node(k, k->nodes[nodes], &of_nodes[nodes], &applied[nodes]);
            has_applied = has_applied || of_nodes[nodes]->held;
            nodes++;
        } else {
            tide_list *list = &of_lists[lists];
            *list = *k->made_lists[lists++];
            tide_value *items = TIDE_NEW(arena, tide_value, list->capacity + 1);
            for (uint32_t i = 0; i < list->count; i++) items[i] = value_number(k, list->items[i]);
            list->items = items;
        }
    }
    kept->storages = TIDE_NEW(arena, tide_storage, k->storage_count + 1);
    for (; storages < k->storage_count; storages++) {
        kept->storages[storages] = *k->storages[storages];
        if (k->storages[storages]->is_untracked) continue;
        if (k->storages[storages]->allocation < kept->first_allocation) give_up(k);
        k->alive--;
    }
    kept->tensors = TIDE_NEW(arena, tide_tensor, tensors + 1);
    memcpy(kept->tensors, entries, tensors * sizeof *entries);
    kept->nodes = TIDE_NEW(arena, tide_node *, nodes + 1);
    memcpy(kept->nodes, of_nodes, nodes * sizeof *of_nodes);
    kept->lists = TIDE_NEW(arena, tide_list, lists + 1);
    memcpy(kept->lists, of_lists, lists * sizeof *of_lists);
    if (has_applied) {
        kept->applied = TIDE_NEW(arena, tide_applied, nodes);
        memcpy(kept->applied, applied, nodes * sizeof *applied);
    }
    kept->storage_count = storages, kept->tensor_count = tensors, kept->node_count = nodes, kept->list_count = lists;
    tide_arena_drop(arena, entries);
    tide_arena_drop(arena, of_nodes);
    tide_arena_drop(arena, applied);
    tide_arena_drop(arena, of_lists);
}

static bool made_are_whole(const capture *k) {
    for (uint32_t i = 0; i < k->made_count; i++)
        if (k->references[k->made[i]->serial - k->serial - 1] != k->made[i]->references) return false;
    for (uint32_t i = 0; i < k->storage_count; i++)
        if (k->references[k->storages[i]->serial - k->serial - 1] != k->storages[i]->references) return false;
    for (uint32_t i = 0; i < k->node_count; i++)
        if (k->references[k->nodes[i]->serial - k->serial - 1] != k->nodes[i]->references) return false;
    for (uint32_t i = 0; i < k->list_count; i++)
        if (k->references[k->made_lists[i]->serial - k->serial - 1] != k->made_lists[i]->references) return false;
    return true;
}

/* how many references the entry has to the storage of an older tensor, and to its node. */
static uint32_t storage_gains(const capture *k, const tide_tensor *t) {
    return tide_call_key_has_storage(&k->after, t->storage) ? k->storage_references[t->storage->mark] : 0;
}

static uint32_t node_gains(const capture *k, const tide_tensor *t) {
    for (uint32_t i = 0; i < k->after.tensor_count; i++)
        if (k->after.tensors[i]->node == t->node) return k->node_references[i];
    return 0;
}

/* The references of a tensor are compared one by one: a new reference must be added below and in keep_tensor. */
enum { TENSOR_REFERS = offsetof(tide_tensor, storage) + 7 * sizeof(void *), TENSOR_ALIGN = _Alignof(tide_tensor) };
_Static_assert(sizeof(tide_tensor) == (TENSOR_REFERS + TENSOR_ALIGN - 1) / TENSOR_ALIGN * TENSOR_ALIGN,
               "a tensor refers to a storage, a node, an accumulator, a gradient, a cast, and twice to its layout");

static bool found_are_whole(const capture *k) {
    for (uint32_t i = 0; i < k->before.tensor_count; i++) {
        const tide_tensor *t = k->before.tensors[i];
        const tensor_before *was = &k->tensors[i];
        uint32_t gained = tide_call_key_has(&k->after, t) ? k->tensor_references[t->mark] : 0;
        gained += (uint32_t)(t->accumulator != NULL) - (uint32_t)(was->is.accumulator != NULL);
        bool is_cast = t->cast != was->is.cast;
        for (uint32_t c = k->cast_count; c < k->m->cast_count && is_cast; c++)
            is_cast = k->m->casts[c].from != t || k->m->casts[c].to != t->cast;
        if (is_cast || t->references != was->references + gained ||
            t->storage->references != was->storage_references + storage_gains(k, t))
            return false;
        if (t->node && t->node->references != was->node_references + node_gains(k, t)) return false;
        if (memcmp(t, &was->is, TIDE_TENSOR_IS) != 0 || t->storage != was->is.storage || t->node != was->is.node ||
            t->grad != was->is.grad || t->storage->is_untracked != was->is_untracked)
            return false;
    }
    for (uint32_t i = 0; i < k->before.list_count; i++) {
        const tide_list *list = k->before.lists[i];
        uint32_t gained = tide_call_key_has_list(&k->after, list) ? k->list_references[list->mark] : 0;
        if (list->references != k->lists[i].references + gained || list->pops != k->lists[i].pops) return false;
    }
    return !k->frame || k->frame->references == k->frame_references + k->frames;
}

static bool events_are_own(const tide_timeline *t, const memo_entry *kept) {
    for (uint32_t i = kept->first_event; i < kept->last_event; i++) {
        uint32_t which = t->events[i] & ~TIDE_FREE_BIT;
        if (which < kept->first_allocation || which >= t->allocation_count) return false;
    }
    return true;
}

/* Arguments belong to the caller; those that the call owned are given back. */
static void give_argument(capture *k, tide_value v) {
    if (v.kind == TIDE_VALUE_TENSOR) k->tensors[v.tensor->mark].references--;
    if (v.kind == TIDE_VALUE_LIST) k->lists[v.list->mark].references--;
}

static void note_before(capture *k, const tide_call_arguments *arguments) {
    tide_machine *m = k->m;
    uint32_t tensors = k->before.tensor_count, lists = k->before.list_count;
    k->tensors = tide_arena_grow(k->arena, NULL, 0, (tensors + 1) * sizeof *k->tensors);
    k->lists = tide_arena_grow(k->arena, NULL, 0, (lists + 1) * sizeof *k->lists);
    k->counts = tide_arena_grow(k->arena, NULL, 0, (lists + 1) * sizeof *k->counts);
    for (uint32_t i = 0; i < tensors; i++) {
        const tide_tensor *t = k->before.tensors[i];
        k->tensors[i] = (tensor_before){t->references, t->storage->references, t->node ? t->node->references : 0,
                                        t->storage->is_untracked, *t};
    }
    for (uint32_t i = 0; i < lists; i++) {
        tide_list *list = k->before.lists[i];
        k->lists[i] = (list_before){list->references, list->pops, list->serial, list->is_read};
        k->counts[i] = list->count;
        list->is_read = false;
    }
    for (uint32_t i = 0; i < arguments->count; i++) give_argument(k, arguments->positional[i]);
    for (uint32_t i = 0; i < arguments->named_count; i++) give_argument(k, arguments->named[i]);
    k->state = m->state;
    k->serial = m->serial;
    k->diagnostics = m->diags->count;
    k->setting_changes = k->model->setting_changes;
    k->cast_count = m->cast_count;
    k->frame = tide_memo_frame(m);
    if (k->frame) k->frame_references = k->frame->references, k->first_place = tide_memo_places(m, k->frame);
}

static uint32_t *zeroed(tide_arena *arena, uint32_t count) {
    return tide_arena_grow(arena, NULL, 0, ((size_t)count + 1) * sizeof(uint32_t));
}

static bool capture_entry(capture *k, const tide_call_arguments *arguments, tide_value result, memo_entry *kept) {
    tide_machine *m = k->m;
    const tide_timeline *t = &m->timeline;
    if (memcmp(&m->state, &k->state, sizeof k->state) != 0 || m->serial - k->serial > THINGS_LIMIT ||
        m->diags->count != k->diagnostics || k->model->setting_changes != k->setting_changes ||
        m->cast_count < k->cast_count || !events_are_own(t, kept))
        return false;
    k->after = (tide_call_key){.arena = k->arena,
                               .mode = TIDE_CALL_KEY_WRITES,
                               .before = &k->before,
                               .counts = k->counts,
                               .cast_count = k->cast_count};
    if (!tide_call_key_walk(&k->after, arguments)) return false;
    for (uint32_t i = kept->first_allocation; i < t->allocation_count; i++) {
        k->alive += *tide_timeline_died(t, i) == TIDE_NEVER;
        if (!tide_call_key_has_module(&k->after, tide_timeline_at(t, i)->module) ||
            (tide_timeline_at(t, i)->freed_by &&
             !tide_call_key_has_module(&k->after, tide_timeline_at(t, i)->freed_module)))
            return false;
    }
    for (uint32_t i = t->repetition_count; i-- && t->repetitions[i].first_event >= kept->first_event;)
        k->alive -= t->repetitions[i].times * t->repetitions[i].saved_count; /* owned by nodes of folded iterations */
    uint32_t tensors = k->after.tensor_count;
    k->known_count = m->serial - k->serial;
    k->known = zeroed(k->arena, k->known_count);
    k->references = zeroed(k->arena, k->known_count);
    k->tensor_references = zeroed(k->arena, tensors);
    k->storage_references = zeroed(k->arena, tensors);
    k->node_references = zeroed(k->arena, tensors);
    k->list_references = zeroed(k->arena, k->after.list_count);
    k->is_whole = true;
    kept->result = value_number(k, result);
    keep_notes(k, kept);
    keep_things(k, kept);
    return k->is_whole && k->alive == 0 && made_are_whole(k) && found_are_whole(k);
}

static void finish_entry(capture *k, memo_entry *kept) {
    tide_arena *arena = k->arena;
    kept->word_count = k->after.word_count;
    kept->words = TIDE_NEW(arena, uint64_t, kept->word_count + 1);
    memcpy(kept->words, k->after.words, kept->word_count * sizeof *kept->words);
    kept->module_count = k->after.module_count;
    kept->modules = TIDE_NEW(arena, uint32_t, kept->module_count + 1);
    memcpy(kept->modules, k->after.modules, kept->module_count * sizeof *kept->modules);
    kept->new_storages = TIDE_NEW(arena, tide_storage *, kept->storage_count + 1);
    kept->new_tensors = TIDE_NEW(arena, tide_tensor *, kept->tensor_count + 1);
    kept->new_nodes = TIDE_NEW(arena, tide_node *, kept->node_count + 1);
    kept->new_lists = TIDE_NEW(arena, tide_list *, kept->list_count + 1);
}

static void drop_capture(capture *k) {
    void *arrays[] = {k->tensors,
                      k->lists,
                      k->counts,
                      k->known,
                      k->references,
                      k->tensor_references,
                      k->storage_references,
                      k->node_references,
                      k->list_references,
                      k->made,
                      k->storages,
                      k->nodes,
                      k->made_lists,
                      k->after.words};
    for (size_t i = 0; i < TIDE_COUNT_OF(arrays); i++)
        if (arrays[i]) tide_arena_drop(k->arena, arrays[i]);
    tide_call_key_drop(&k->before);
    tide_call_key_drop(&k->after);
}

tide_value tide_capture_call(const tide_call_arguments *arguments, bool *is_kept, memo_entry *kept) {
    tide_model *model = arguments->model;
    tide_machine *m = model->m;
    capture k = {.model = model, .m = m, .arena = m->arena, .before = {.arena = m->arena, .mode = TIDE_CALL_KEY_LISTS}};
    bool can_keep = tide_call_key_walk(&k.before, arguments);
    if (can_keep) note_before(&k, arguments);
    uint64_t op_count = m->op_count;
    *kept = (memo_entry){.first_event = m->timeline.event_count,
                         .first_allocation = m->timeline.allocation_count,
                         .first_order = m->node_order,
                         .first_fold = m->folding.count,
                         .depth = model->depth};
    tide_value made = tide_call_function(arguments);
    kept->last_event = m->timeline.event_count;
    kept->orders = m->node_order - kept->first_order;
    kept->last_fold = m->folding.count;
    kept->op_count = m->op_count - op_count;
    kept->op = m->op;
    kept->statement = m->statement;
    kept->is_stopped = m->is_stopped;
    *is_kept = can_keep && !m->has_failed && capture_entry(&k, arguments, made, kept);
    if (*is_kept) finish_entry(&k, kept);
    for (uint32_t i = 0; can_keep && i < k.before.list_count; i++) {
        tide_list *list = k.before.lists[i]; /* or another one in its place, if the call released it */
        if (list->serial == k.lists[i].serial) list->is_read = list->is_read || k.lists[i].is_read;
    }
    drop_capture(&k);
    return made;
}
