/* SPDX-License-Identifier: Apache-2.0 */
/* Replaying a call from its entry: the events again, and its objects anew over this call's arguments and parameters.
 * See Note [Layer memo] in layer_memo.c. */
#include <string.h>

#include "base/units.h"
#include "memo/memo_entry.h"

typedef struct replay {
    const uint32_t *modules; /* for each module number of the entry: the module of this call */
    tide_machine *m;
    const memo_entry *of;
    const tide_call_key *key;
    tide_checkpoint_frame *frame;
    uint32_t first_place;
} replay;

static tide_tensor *tensor_at(const replay *k, const void *at) {
    if (!at) return NULL;
    return tide_memo_kind(at) == MEMO_MADE ? k->of->new_tensors[tide_memo_place(at)]
                                           : tide_retain(k->key->tensors[tide_memo_place(at)]);
}

static tide_node *node_at(const replay *k, const void *at) {
    if (!at) return NULL;
    if (tide_memo_kind(at) == MEMO_MADE) return k->of->new_nodes[tide_memo_place(at)];
    tide_tensor *t = k->key->tensors[tide_memo_place(at)];
    if (tide_memo_kind(at) == MEMO_ACCUMULATOR) return tide_accumulator_of(k->m, t);
    t->node->references++;
    return t->node;
}

static tide_storage *storage_at(const replay *k, const void *at) {
    if (tide_memo_kind(at) == MEMO_MADE) return k->of->new_storages[tide_memo_place(at)];
    tide_storage *storage = k->key->tensors[tide_memo_place(at)]->storage;
    storage->references++;
    return storage;
}

static tide_value value_at(const replay *k, tide_value v) {
    if (v.kind == TIDE_VALUE_TENSOR) {
        v.tensor = tensor_at(k, v.tensor);
    } else if (v.kind == TIDE_VALUE_LIST) {
        bool is_new = tide_memo_kind(v.list) == MEMO_MADE;
        v.list = is_new ? k->of->new_lists[tide_memo_place(v.list)] : k->key->lists[tide_memo_place(v.list)];
        if (!is_new) v.list->references++;
    } else if (v.kind == TIDE_VALUE_MODULE) {
        v.module = k->modules[v.module];
    }
    return v;
}

static void make_tensors(const replay *k, uint32_t moved) {
    const memo_entry *of = k->of;
    tide_machine *m = k->m;
    for (uint32_t i = 0; i < of->storage_count; i++) {
        tide_storage *made = of->new_storages[i] = tide_pool_alloc(m, sizeof *made);
        *made = of->storages[i];
        made->allocation += moved;
        made->serial = ++m->serial;
    }
    for (uint32_t i = 0; i < of->tensor_count; i++) {
        tide_tensor *made = of->new_tensors[i] = tide_pool_alloc(m, sizeof *made);
        *made = of->tensors[i];
        made->storage = storage_at(k, made->storage);
        made->node = node_at(k, made->node);
        made->serial = ++m->serial;
    }
}

static void make_node(const replay *k, const tide_node *from, tide_node *made) {
    memcpy(made, from, from->bytes);
    tide_node_lay_out(made);
    made->serial = ++k->m->serial;
    if (made->order != TIDE_ORDER_EARLY) made->order += k->m->node_order - k->of->first_order;
    made->module = k->modules[made->module];
    for (unsigned i = 0; i < made->edge_count; i++) made->edges[i].node = node_at(k, made->edges[i].node);
    for (unsigned i = 0; i < made->saved_count; i++) {
        tide_saved *slot = &made->saved[i];
        slot->tensor = tensor_at(k, slot->tensor);
        if (!slot->packed_by) continue;
        slot->packed_by = &k->frame->checkpoint_hook;
        slot->packed += k->first_place;
        k->frame->references++;
    }
}

static void make_nodes(const replay *k) {
    const memo_entry *of = k->of;
    tide_machine *m = k->m;
    uint32_t module = m->module;
    for (uint32_t i = 0; i < of->gathered_count; i++) {
        m->module = k->modules[of->gathered[i].module];
        m->statement = of->gathered[i].statement;
        tide_accumulator_of(m, k->key->tensors[of->gathered[i].leaf]);
    }
    m->module = module;
    for (uint32_t i = 0; i < of->node_count; i++) make_node(k, of->nodes[i], of->new_nodes[i]);
    for (uint32_t i = 0; of->applied && i < of->node_count; i++) {
        if (!of->nodes[i]->held) continue;
        tide_applied held = of->applied[i];
        held.instance = k->modules[held.instance];
        held.context = value_at(k, held.context);
        tide_apply_again(m, of->new_nodes[i], held);
    }
    for (uint32_t i = 0; i < of->gathered_count; i++)
        tide_node_release(m, k->key->tensors[of->gathered[i].leaf]->accumulator); /* owned by nodes */
}

static void make_notes(const replay *k) {
    const memo_entry *of = k->of;
    tide_machine *m = k->m;
    for (uint32_t i = 0; i < of->cast_count; i++) {
        TIDE_ROOM(m->arena, m->casts, m->cast_count, m->cast_capacity);
        tide_cast cast = {tensor_at(k, of->casts[i].from), tensor_at(k, of->casts[i].to)};
        cast.from->cast = cast.to;
        m->casts[m->cast_count++] = cast;
    }
    for (uint32_t i = 0; i < of->appended_count; i++)
        tide_list_push(m, k->key->lists[of->appended[i].list], value_at(k, of->appended[i].value));
    for (uint32_t i = 0; i < of->place_count; i++) {
        tide_checkpoint_frame *frame = k->frame;
        if (frame == tide_checkpoint_saving(m)) {
            TIDE_ROOM(m->arena, frame->holders, frame->holder_count, frame->holder_capacity);
            frame->holders[frame->holder_count++] = (tide_holder){.is_alive = of->places[i].is_alive};
        } else {
            frame->holders[frame->recomputed_count++].tensor = tensor_at(k, of->places[i].tensor);
        }
    }
}

bool tide_has_same_places(const tide_machine *m, const memo_entry *of) {
    const tide_checkpoint_frame *frame = tide_checkpoint_recomputing(m);
    if (!frame) return true;
    uint32_t left = frame->holder_count - frame->recomputed_count;
    if (of->is_stopped ? left != of->place_count : left <= of->place_count) return false;
    for (uint32_t i = 0; i < of->place_count; i++)
        if (frame->holders[frame->recomputed_count + i].is_alive != of->places[i].is_alive) return false;
    return true;
}

tide_value tide_replay_call(const memo_entry *of, const tide_call_key *key, const tide_call_arguments *arguments,
                            uint32_t *modules) {
    tide_machine *m = arguments->model->m;
    replay k = {.modules = modules, .m = m, .of = of, .key = key, .frame = tide_memo_frame(m)};
    if (k.frame) k.first_place = tide_memo_places(m, k.frame);
    for (uint32_t i = 0; i < of->module_count; i++) modules[of->modules[i]] = key->modules[i];
    uint32_t moved = m->timeline.allocation_count - of->first_allocation;
    tide_timeline_repeat(&m->timeline, of->first_event, of->last_event, moved, modules);
    for (uint32_t i = 0; i < of->node_count; i++) of->new_nodes[i] = tide_pool_alloc(m, of->nodes[i]->bytes);
    for (uint32_t i = 0; i < of->list_count; i++) of->new_lists[i] = tide_list_new(m);
    make_tensors(&k, moved);
    make_nodes(&k);
    for (uint32_t i = 0; i < of->list_count; i++) {
        of->new_lists[i]->references = of->lists[i].references;
        of->new_lists[i]->is_output = of->lists[i].is_output;
        for (uint32_t j = 0; j < of->lists[i].count; j++)
            tide_list_push(m, of->new_lists[i], value_at(&k, of->lists[i].items[j]));
    }
    make_notes(&k);
    tide_fold_loops_again(m, of->first_fold, of->last_fold, m->node_order - of->first_order);
    tide_value result = value_at(&k, of->result);
    m->node_order += of->orders;
    m->op_count += of->op_count;
    m->op = of->op;
    m->statement = of->statement;
    m->is_stopped = of->is_stopped;
    for (uint32_t i = 0; i < arguments->count; i++) tide_value_release(m, arguments->positional[i]);
    for (uint32_t i = 0; i < arguments->named_count; i++) tide_value_release(m, arguments->named[i]);
    return result;
}
