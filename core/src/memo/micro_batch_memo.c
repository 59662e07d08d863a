/* SPDX-License-Identifier: Apache-2.0 */
/* Replaying micro-batches. */
#include "memo/micro_batch_memo.h"

#include <stdlib.h>
#include <string.h>

enum { HELD_LIMIT = 256 };

/* ---- the key ---- */

static uint64_t mix(uint64_t hash, uint64_t value) {
    return (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15) ^ hash >> 29;
}

static uint64_t mix_pointer(uint64_t hash, const void *pointer) {
    return mix(hash, (uint64_t)(uintptr_t)pointer);
}

static uint64_t mix_bytes(uint64_t hash, const void *from, size_t size) {
    for (size_t at = 0; at < size; at += sizeof hash) {
        uint64_t value = 0;
        memcpy(&value, (const char *)from + at, size - at < sizeof value ? size - at : sizeof value);
        hash = mix(hash, value);
    }
    return hash;
}

static uint64_t mix_tensor(uint64_t hash, const tide_tensor *t) {
    hash = mix(mix_pointer(hash, t), t->storage->is_untracked ? 0 : t->storage->allocation);
    hash = mix_bytes(hash, t, TIDE_TENSOR_IS);
    return t->grad ? mix_bytes(hash, t->grad, TIDE_TENSOR_IS) : mix(hash, 255);
}

static uint64_t mix_value(uint64_t hash, tide_value v, int depth) {
    hash = mix(hash, (uint64_t)v.kind | (uint64_t)v.symbol << 8);
    if (v.kind == TIDE_VALUE_TENSOR) return mix_tensor(hash, v.tensor);
    hash = mix(hash, tide_value_bits(v));
    if (v.kind == TIDE_VALUE_TEXT) return mix(hash, v.text.length);
    if (v.kind != TIDE_VALUE_LIST || depth > 8) return hash;
    hash = mix(hash, v.list->count);
    for (uint32_t i = 0; i < v.list->count; i++) hash = mix_value(hash, v.list->items[i], depth + 1);
    return hash;
}

uint64_t tide_micro_batch_key(const tide_micro_batch_memo *memo, const tide_model *model, const tide_value *others,
                              uint32_t other_count, const tide_tensor *loss) {
    tide_machine_state state = tide_machine_state_key(model->m);
    uint64_t hash = mix_bytes(loss ? 1 + (uint64_t)memo->with_loss : 0, &state, sizeof state);
    hash = mix_bytes(hash, &model->state, sizeof model->state);
    for (uint32_t i = 0; i < other_count; i++) hash = mix_value(hash, others[i], 0);
    for (uint32_t i = 1; i < model->instance_count; i++) {
        const tide_instance *of = &model->instances[i];
        uint32_t slots = of->of->parameter_count + of->of->member_count;
        for (uint32_t k = 0; k < slots; k++)
            if (of->slots[k].kind == TIDE_VALUE_TENSOR || of->slots[k].kind == TIDE_VALUE_LIST)
                hash = mix_value(hash, of->slots[k], 0);
    }
    return hash;
}

uint64_t tide_model_key(const tide_model *model) {
    static const tide_micro_batch_memo none;
    uint64_t hash = tide_micro_batch_key(&none, model, NULL, 0, NULL);
    for (uint32_t i = 0; i < model->setting_count; i++) hash = mix_value(hash, model->settings[i].value, 0);
    return hash;
}

/* A digest of the value of each setting. */
static uint64_t *settings_of(const tide_model *model) {
    uint64_t *digests = TIDE_NEW(model->m->arena, uint64_t, model->setting_count + 1);
    for (uint32_t i = 0; i < model->setting_count; i++) digests[i] = mix_value(0, model->settings[i].value, 0);
    return digests;
}

/* Whether the settings that functions read have the same values as for an entry. */
static bool has_same_settings(const tide_micro_batch_entry *p, const tide_model *model, const uint64_t *digests) {
    for (uint32_t i = 0; i < model->setting_count; i++)
        if (model->settings[i].is_read && digests[i] != p->settings[i]) return false;
    return true;
}

/* ---- playing ---- */

static uint32_t allocation_of(const tide_tensor *t) {
    return t && !t->storage->is_untracked ? t->storage->allocation : UINT32_MAX;
}

void tide_micro_batch_begin(tide_micro_batch_memo *memo, const tide_model *model, uint64_t key,
                            const tide_tensor *loss) {
    const tide_machine *m = model->m;
    memo->now = (tide_micro_batch_entry){.key = key,
                                         .first_event = m->timeline.event_count,
                                         .first_allocation = m->timeline.allocation_count,
                                         .old_loss = allocation_of(loss),
                                         .settings = settings_of(model),
                                         .op_count = m->op_count};
}

void tide_micro_batch_forward_ends(tide_micro_batch_memo *memo, const tide_model *model) {
    memo->now.forward_end = model->m->timeline.event_count;
}

/* A micro-batch may only free its own allocations, apart from one group in forward: the previous loss, and what died
 * with it. */
static bool frees_its_own(const tide_micro_batch_memo *memo, const tide_timeline *t, tide_micro_batch_entry *p) {
    uint32_t expected = p->old_loss == UINT32_MAX ? 0 : memo->with_loss + 1;
    p->first_other = p->forward_end;
    for (uint32_t i = p->first_event; i < p->last_event; i++) {
        uint32_t which = t->events[i] & ~TIDE_FREE_BIT;
        if (which >= p->last_allocation) return false; /* does not belong to an allocation */
        if (which >= p->first_allocation) continue;
        if (p->others == 0) p->first_other = i;
        if (i != p->first_other + p->others++ || (which == p->old_loss) != (p->others == expected)) return false;
    }
    return p->others == expected && p->first_other + p->others <= p->forward_end;
}

static void leave(tide_micro_batch_entry *p, tide_tensor *leaf, const tide_tensor *t) {
    uint32_t allocation = allocation_of(t);
    if (allocation == UINT32_MAX || allocation < p->first_allocation) return;
    p->left[p->left_count++] = (tide_left){leaf, t->layout, t->dtype, allocation};
}

void tide_micro_batch_end(tide_micro_batch_memo *memo, const tide_model *model, const tide_tensor *loss) {
    tide_machine *m = model->m;
    const tide_timeline *t = &m->timeline;
    tide_micro_batch_entry *p = &memo->now;
    p->last_event = t->event_count;
    p->last_allocation = t->allocation_count;
    p->op_count = m->op_count - p->op_count;
    if (m->has_failed || allocation_of(loss) == UINT32_MAX || allocation_of(loss) < p->first_allocation) return;
    bool is_kept = memo->count < TIDE_MICRO_BATCH_LIMIT && frees_its_own(memo, t, p);
    uint32_t alive = 0;
    for (uint32_t i = p->first_allocation; i < p->last_allocation; i++)
        alive += *tide_timeline_died(t, i) == TIDE_NEVER;
    p->left = TIDE_NEW(m->arena, tide_left, (size_t)alive + model->parameter_count + 1);
    leave(p, NULL, loss);
    for (uint32_t i = 0; i < model->parameter_count; i++)
        leave(p, model->parameters[i].tensor, model->parameters[i].tensor->grad);
    if (p->left_count > alive) return; /* gradients that share a storage */
    uint8_t *is_known = TIDE_NEW(m->arena, uint8_t, (size_t)(p->last_allocation - p->first_allocation) + 1);
    for (uint32_t i = 0; i < p->left_count; i++) is_known[p->left[i].allocation - p->first_allocation] = 1;
    p->with_loss = memo->with_loss = alive - p->left_count;
    for (uint32_t i = p->first_allocation; i < p->last_allocation; i++)
        if (*tide_timeline_died(t, i) == TIDE_NEVER && !is_known[i - p->first_allocation])
            p->left[p->left_count++] = (tide_left){.allocation = i};
    if (is_kept && p->left_count == alive && p->with_loss <= HELD_LIMIT) memo->played[memo->count++] = *p;
}

typedef struct death {
    uint32_t event, allocation;
} death;

static int by_death_event(const void *a, const void *b) {
    uint32_t x = ((const death *)a)->event, y = ((const death *)b)->event;
    return x < y ? -1 : x > y;
}

/* Sorts what died with the loss by its frees. False if something was not freed right before the loss. */
static bool order_deaths(const tide_timeline *t, tide_micro_batch_entry *p) {
    death deaths[HELD_LIMIT];
    tide_left *held = p->left + p->left_count - p->with_loss;
    uint32_t died = *tide_timeline_died(t, p->left[0].allocation);
    for (uint32_t i = 0; i < p->with_loss; i++)
        deaths[i] = (death){*tide_timeline_died(t, held[i].allocation), held[i].allocation};
    qsort(deaths, p->with_loss, sizeof *deaths, by_death_event);
    for (uint32_t i = 0; i < p->with_loss; i++) {
        if (deaths[i].event != died - p->with_loss + i) return false;
        held[i].allocation = deaths[i].allocation;
    }
    return true;
}

/* Makes the tensors that a micro-batch leaves behind. */
static tide_tensor *leave_again(tide_machine *m, const tide_micro_batch_entry *p, uint32_t moved) {
    tide_tensor *held[HELD_LIMIT], *loss = NULL;
    uint32_t own = p->left_count - p->with_loss;
    for (uint32_t i = 0; i < own; i++) {
        const tide_left *left = &p->left[i];
        tide_tensor *made = tide_tensor_of(m, left->allocation + moved, left->layout, (tide_dtype)left->dtype);
        if (left->leaf)
            left->leaf->grad = made;
        else
            loss = made;
    }
    for (uint32_t i = 0; loss && i < p->with_loss; i++) /* those of a node are released in reverse order */
        held[p->with_loss - 1 - i] =
            tide_tensor_of(m, p->left[own + i].allocation + moved, loss->layout, (tide_dtype)loss->dtype);
    tide_hold(m, loss, held, p->with_loss);
    return loss;
}

bool tide_micro_batch_replay(tide_micro_batch_memo *memo, tide_model *model, uint64_t key, unsigned step,
                             tide_tensor **loss) {
    tide_machine *m = model->m;
    tide_timeline *t = &m->timeline;
    tide_micro_batch_entry *p = memo->played, *end = p + memo->count;
    const uint64_t *settings = settings_of(model);
    while (p < end && (p->key != key || !has_same_settings(p, model, settings))) p++;
    if (p == end || !order_deaths(t, p)) return false;
    m->op_count += p->op_count;
    uint32_t moved = t->allocation_count - p->first_allocation;
    tide_timeline_repeat(t, p->first_event, p->first_other, moved, NULL);
    if (p->others) tide_del(m, "del loss", *loss); /* what it refers to dies with it */
    tide_timeline_repeat(t, p->first_other + p->others, p->forward_end, moved, NULL);
    tide_timeline_mark(t, step, TIDE_PHASE_FORWARD);
    tide_timeline_repeat(t, p->forward_end, p->last_event, moved, NULL);
    *loss = leave_again(m, p, moved);
    memo->with_loss = p->with_loss;
    tide_timeline_mark(t, step, TIDE_PHASE_BACKWARD);
    return true;
}
