/* SPDX-License-Identifier: Apache-2.0 */
/* torch/distributed/pipelining/stage.py and _backward.py: a stage of the model, and its passes over micro-batches.
 *
 * Note [Stages]: forward_stage() of a description runs the embedding of the first stage, a range of blocks, and norm
 * and head of the last. What a stage has sent lives until its send is waited for; after that only the node is kept. */
#include "parallel/pipeline.h"

#include "base/units.h"
#include "parallel/fsdp2.h"

#include "tensor/ops/ops.h"

static tide_machine *machine_of(const tide_pipeline *p) {
    return p->w->model->m;
}

/* ---- stages ---- */

tide_pipeline_sizes tide_pipeline_sizes_of(const tide_pipeline *p, const tide_job *job) {
    return (tide_pipeline_sizes){job->parallel_schedule, p->ranks, p->chunks, p->microbatches};
}

static uint32_t layers_of(const tide_model *model, uint32_t *of_block) {
    uint32_t count = 0;
    for (uint32_t i = 1; i < model->instance_count; i++)
        if (model->instances[i].of->is_checkpointed) of_block[i] = ++count;
    return count;
}

/* Whether a stage runs a module: modules before the first block belong to the first stage, those after the last block
 * to the last. What an adapter puts around a module comes after all others; the module itself is below it. */
static bool runs(const tide_pipeline_stage *s, const uint32_t *of_block, const tide_model *model, uint32_t module,
                 uint32_t first_block) {
    uint32_t outer = module, first = 1;
    for (uint32_t at = module; at; at = model->instances[at].parent) {
        if (of_block[at]) return of_block[at] > s->first_layer && of_block[at] <= s->end_layer;
        if (!tide_is_below(model, first_block, at)) outer = at;
    }
    while (!tide_is_below(model, first, outer)) first++;
    return first < first_block ? s->is_first : s->is_last;
}

static uint32_t first_block_of(const tide_model *model, uint32_t *of_block) {
    uint32_t first = 1;
    layers_of(model, of_block);
    while (first < model->instance_count && !of_block[first]) first++;
    return first;
}

bool *tide_stage_absent(const tide_pipeline *p, uint32_t chunk) {
    const tide_model *model = p->w->model;
    uint32_t *of_block = TIDE_NEW(model->m->arena, uint32_t, model->instance_count + 1);
    uint32_t first_block = first_block_of(model, of_block);
    bool *absent = TIDE_NEW(model->m->arena, bool, model->instance_count + 1);
    for (uint32_t i = 1; i < model->instance_count; i++)
        absent[i] = !runs(&p->stages[chunk], of_block, model, i, first_block);
    return absent;
}

bool *tide_pipeline_absent(const tide_pipeline *p) {
    bool *absent = tide_stage_absent(p, 0);
    for (uint32_t chunk = 1; chunk < p->chunks; chunk++) {
        const bool *of_chunk = tide_stage_absent(p, chunk);
        for (uint32_t i = 1; i < p->w->model->instance_count; i++) absent[i] = absent[i] && of_chunk[i];
    }
    return absent;
}

/* submod.parameters() */
static void find_params_of(const tide_pipeline *p, uint32_t chunk) {
    const tide_model *model = p->w->model;
    tide_pipeline_stage *s = &p->stages[chunk];
    const bool *absent = s->absent = tide_stage_absent(p, chunk);
    s->params = TIDE_NEW(model->m->arena, tide_tensor *, model->parameter_count + 1);
    for (uint32_t i = 0; i < model->parameter_count; i++)
        if (!absent[model->parameters[i].module]) s->params[s->param_count++] = model->parameters[i].tensor;
    tide_tensor *tied = s->is_last && !s->is_first ? tide_tied_weight(model) : NULL;
    if (tied) s->params[s->param_count++] = tied;
}

/* Which of a head and an embedding with a shared weight releases it last: the one that is sharded or dropped later.
 * Module.to_empty() gives each a weight of its own. */
static bool untie_head(tide_pipeline *p) {
    tide_wrapper *w = p->w;
    const tide_job *job = w->job;
    bool is_cut =
        job->parallel_kind == TIDE_parallel_kind_native && job->parallel_tp * job->parallel_dp * job->parallel_cp > 1;
    bool has_first = false, has_last = false;
    for (uint32_t i = 0; i < p->chunks; i++) {
        has_first = has_first || p->stages[i].is_first;
        has_last = has_last || p->stages[i].is_last;
    }
    bool is_on_meta = tide_job_is_on_meta(job);
    if (!tide_tied_head(w->model) || (!is_cut && !is_on_meta && p->ranks == 1)) return true;
    if (p->ranks == 1 && is_cut && job->parallel_tp == 1) {
        tide_fail(machine_of(p), TIDE_ERR_CONFLICT,
                  "tie_word_embeddings: \"Parameter '%s' is shared with a parameter already managed by another FSDP "
                  "group.\"; use %soverrides.tie_word_embeddings=false",
                  tide_job_has_torchtitan_models(job) ? "None" : "lm_head.weight",
                  tide_job_has_torchtitan_models(job) ? "" : "parallel.kind=fsdp2, or ");
        return false;
    }
    if (has_first && has_last && !is_cut && !is_on_meta) return true;
    tide_untie_head(w, (is_cut ? has_first : has_last) || !(has_first || has_last));
    return true;
}

/* ---- which layers a stage has ---- */

/* The number of layers in the stages before one, for a model with so many. */
static uint32_t layers_before(const tide_pipeline *p, uint32_t layers, uint32_t stage) {
    const tide_job *job = p->w->job;
    uint32_t before = 0;
    if (p->ranks > 1 && !job->parallel_stage_layers.count && tide_job_has_torchtitan_models(job))
        return (uint32_t)tide_torchtitan_layers_before(layers, 1, 1, p->stage_count, stage);
    if (p->ranks == 1 || !job->parallel_stage_layers.count)
        return (uint32_t)((uint64_t)layers * stage / p->stage_count);
    for (uint32_t i = 0; i < stage; i++) before += (uint32_t)job->parallel_stage_layers.of[i];
    return before;
}

static bool check_stage_layers(const tide_pipeline *p, uint32_t layers) {
    const tide_counts *given = &p->w->job->parallel_stage_layers;
    if (p->ranks == 1 || !given->count) return true;
    if (given->count != p->stage_count)
        tide_fail_setting(machine_of(p), TIDE_ERR_CONFLICT, "parallel.stage_layers",
                          "has %u numbers, and there are %u stages; give the layers of each stage", given->count,
                          p->stage_count);
    else if (layers_before(p, layers, p->stage_count) != layers)
        tide_fail_setting(machine_of(p), TIDE_ERR_CONFLICT, "parallel.stage_layers",
                          "the numbers add up to %u layers, and the model has %u",
                          layers_before(p, layers, p->stage_count), layers);
    return !machine_of(p)->has_failed;
}

/* Blocks are of one kind if their modules have the same classes. */
static bool are_alike(const tide_model *model, uint32_t a, uint32_t b) {
    uint32_t i = 0, count = model->instance_count;
    while (a + i < count && b + i < count && tide_is_below(model, a + i, a) && tide_is_below(model, b + i, b) &&
           model->instances[a + i].of == model->instances[b + i].of)
        i++;
    bool is_end_of_a = a + i >= count || !tide_is_below(model, a + i, a),
         is_end_of_b = b + i >= count || !tide_is_below(model, b + i, b);
    return is_end_of_a && is_end_of_b;
}

enum { KINDS_MOST = 8 };

/* The first block of each kind; further kinds count as the last of them. */
static uint32_t kind_of_block(const tide_model *model, uint32_t block, uint32_t *firsts, uint32_t *count) {
    for (uint32_t kind = 0; kind < *count; kind++)
        if (are_alike(model, firsts[kind], block)) return kind;
    if (*count < KINDS_MOST) firsts[(*count)++] = block;
    return *count - 1;
}

static void find_pipeline_stages(tide_pipeline *p, uint32_t layers) {
    const tide_model *model = p->w->model;
    tide_arena *arena = machine_of(p)->arena;
    tide_pipeline_sizes sizes = tide_pipeline_sizes_of(p, p->w->job);
    uint32_t firsts[KINDS_MOST], kinds = 0, stage = 0, layer = 0;
    tide_stages s = {.ranks = p->ranks, .chunks = p->chunks, .kinds = KINDS_MOST, .apart = p->apart};
    s.of_rank = TIDE_NEW(arena, uint32_t, p->stage_count);
    s.layers = TIDE_NEW(arena, uint32_t, p->stage_count * KINDS_MOST);
    for (uint32_t i = 0; i < p->stage_count; i++)
        s.of_rank[i] = tide_pipeline_stage_of(&sizes, i / p->chunks, i % p->chunks);
    for (uint32_t i = 1; i < model->instance_count; i++) {
        if (!model->instances[i].of->is_checkpointed) continue;
        while (stage + 1 < p->stage_count && layer >= layers_before(p, layers, stage + 1)) stage++;
        s.layers[stage * KINDS_MOST + kind_of_block(model, i, firsts, &kinds)]++;
        layer++;
    }
    p->w->stages = s;
}

/* Refuses a model that stages cannot run, and says what can. */
static void refuse_model(tide_wrapper *w, const char *why) {
    tide_fail_setting(w->model->m, TIDE_ERR_UNSUPPORTED, "parallel.kind",
                      "%s is not described for this model: %s; use parallel.kind=fsdp2, zero3 or ddp, which run the "
                      "model as it is",
                      w->job->values[TIDE_SET_parallel_kind], why);
}

bool tide_pipeline_init(tide_pipeline *p, tide_wrapper *w) {
    tide_machine *m = w->model->m;
    const tide_class *root = w->model->instances[w->model->root].of;
    p->w = w;
    p->stage_count = p->ranks * p->chunks;
    uint32_t layers = layers_of(w->model, TIDE_NEW(m->arena, uint32_t, w->model->instance_count + 1));
    if (!tide_method_find(root, TIDE_TEXT("forward_stage"))) {
        refuse_model(
            w, tide_format(m->arena, "the description of %s does not say how a stage runs", tide_root_name(w->model)));
        return false;
    }
    if (layers < p->stage_count) {
        tide_fail_setting(m, TIDE_ERR_CONFLICT, "parallel.pp",
                          "%u layers are fewer than the %u stages of the pipeline; give at most one stage per layer",
                          layers, p->stage_count);
        return false;
    }
    if (!check_stage_layers(p, layers)) return false;
    tide_pipeline_sizes sizes = tide_pipeline_sizes_of(p, w->job);
    p->stages = TIDE_NEW(m->arena, tide_pipeline_stage, p->chunks);
    p->losses = TIDE_NEW(m->arena, tide_tensor *, p->microbatches);
    for (uint32_t i = 0; i < p->chunks; i++) {
        tide_pipeline_stage *s = &p->stages[i];
        uint32_t index = p->ranks > 1 ? tide_pipeline_stage_of(&sizes, p->rank, i) : i;
        *s = (tide_pipeline_stage){.of = p,
                                   .index = index,
                                   .first_layer = layers_before(p, layers, index),
                                   .end_layer = layers_before(p, layers, index + 1),
                                   .is_first = index == 0,
                                   .is_last = index + 1 == p->stage_count};
        tide_tensor ***arrays[] = {&s->recv_forward, &s->recv_backward, &s->inputs,       &s->outputs,
                                   &s->bwd_cache,    &s->sent_forward,  &s->sent_backward};
        for (unsigned k = 0; k < TIDE_COUNT_OF(arrays); k++)
            *arrays[k] = TIDE_NEW(m->arena, tide_tensor *, p->microbatches);
        s->backward_state = TIDE_NEW(m->arena, tide_backward_state, p->microbatches);
    }
    if (p->ranks > 1) find_pipeline_stages(p, layers);
    if (!untie_head(p)) return false;
    for (uint32_t i = 0; i < p->chunks; i++) find_params_of(p, i);
    return true;
}

/* Sorts members by stage, within each of the optimizer's groups. */
static uint32_t sort_by_stage(const tide_pipeline *p, const tide_optimized *members, uint32_t count,
                              tide_optimized *kept) {
    const tide_model *model = p->w->model;
    uint32_t *of_block = TIDE_NEW(model->m->arena, uint32_t, model->instance_count + 1), n = 0;
    uint32_t first_block = first_block_of(model, of_block);
    for (uint32_t group = 0; group < 2; group++)
        for (uint32_t chunk = 0; chunk < p->chunks; chunk++)
            for (uint32_t i = 0; i < count; i++)
                if (members[i].group == group &&
                    runs(&p->stages[chunk], of_block, model, members[i].module, first_block)) {
                    kept[n] = members[i];
                    kept[n++].kind = p->has_optimizers ? 2 * chunk : 0;
                }
    return n;
}

/* Modules that belong to one stage. One without parameters and outside of blocks, such as a rotary embedding, belongs
 * to every stage. */
static bool *owned_by_stages(const tide_model *model) {
    bool *is_owned = TIDE_NEW(model->m->arena, bool, model->instance_count + 1);
    for (uint32_t i = 0; i < model->parameter_count; i++) is_owned[model->parameters[i].module] = true;
    for (uint32_t i = 1; i < model->instance_count; i++)
        is_owned[i] = is_owned[i] || model->instances[i].of->is_checkpointed ||
                      (model->instances[i].parent < i && is_owned[model->instances[i].parent]);
    return is_owned;
}

/* Modules whose buffers this rank does not have. */
static const bool *without_buffers(const tide_pipeline *p) {
    const tide_model *model = p->w->model;
    const bool *absent = tide_pipeline_absent(p);
    bool *is_owned = owned_by_stages(model);
    for (uint32_t i = 0; i < model->instance_count; i++) is_owned[i] = is_owned[i] && absent[i];
    return is_owned;
}

void tide_pipeline_drop_buffers(const tide_pipeline *p) {
    const tide_model *model = p->w->model;
    tide_machine *m = model->m;
    const bool *without = without_buffers(p);
    for (uint32_t i = 0; i < model->buffer_count; i++) {
        const tide_storage *storage = model->buffers[i]->storage;
        if (storage->is_untracked) continue;
        if (without[tide_timeline_at(&m->timeline, storage->allocation)->module])
            tide_drop_storage(m, model->buffers[i]);
    }
}

void tide_pipeline_drop_others(tide_pipeline *p) {
    tide_model *model = p->w->model;
    tide_machine *m = model->m;
    const bool *absent = tide_pipeline_absent(p);
    uint32_t count = tide_optimizer_members(p->w->optimizer, NULL);
    tide_optimized *members = TIDE_NEW(m->arena, tide_optimized, 2 * count + 2), *kept = members + count;
    tide_optimizer_members(p->w->optimizer, members);
    uint32_t n = sort_by_stage(p, members, count, kept);
    m->op = "drop_others";
    for (uint32_t i = 0; i < model->parameter_count; i++)
        if (absent[model->parameters[i].module]) tide_drop_storage(m, model->parameters[i].tensor);
    tide_optimizer_replace(p->w->optimizer, kept, n);
}

/* The stage of this rank that an instance belongs to; NULL: it is on another rank. */
static tide_pipeline_stage *stage_with(const tide_pipeline *p, uint32_t instance) {
    for (uint32_t i = 0; i < p->chunks; i++)
        if (!p->stages[i].absent[instance] && (!p->emptied || p->emptied == &p->stages[i])) return &p->stages[i];
    return NULL;
}

static void empty_param_of_stage(tide_model *model, uint32_t instance, tide_tensor *leaf) {
    tide_pipeline *p = model->m->wrapper;
    tide_pipeline_stage *s = stage_with(p, instance);
    if (s && !s->fsdp) tide_empty_param(model, instance, leaf);
    if (!s || !s->fsdp) return;
    model->m->wrapper = s->fsdp;
    tide_fsdp2_empty_sharded_param(model, instance, leaf);
    model->m->wrapper = p;
}

static void reset_params_of_stage(tide_model *model, uint32_t instance) {
    tide_pipeline *p = model->m->wrapper;
    tide_pipeline_stage *s = stage_with(p, instance);
    if (!s || !s->fsdp) return;
    model->m->wrapper = s->fsdp;
    tide_fsdp2_reset_sharded_params(model, instance);
    model->m->wrapper = p;
}

static void to_empty(tide_pipeline *p, const bool *without) {
    tide_machine *m = machine_of(p);
    void *wrapper = m->wrapper;
    m->wrapper = p;
    p->w->model->without_buffers = without;
    tide_to_empty(p->w->model, empty_param_of_stage, reset_params_of_stage);
    p->w->model->without_buffers = NULL;
    m->wrapper = wrapper;
}

void tide_pipeline_to_empty(tide_pipeline *p) {
    to_empty(p, p->ranks > 1 ? without_buffers(p) : NULL);
}

void tide_pipeline_part_to_empty(tide_pipeline *p, uint32_t chunk) {
    tide_pipeline_stage *s = &p->stages[chunk];
    bool *without = owned_by_stages(p->w->model);
    for (uint32_t i = 0; i < p->w->model->instance_count; i++) without[i] = without[i] ? s->absent[i] : chunk > 0;
    p->emptied = s;
    to_empty(p, without);
    p->emptied = NULL;
}

void tide_pipeline_connect(tide_pipeline *p) {
    tide_machine *m = machine_of(p);
    if (p->is_connected || p->ranks == 1) return;
    p->is_connected = true;
    m->op = "_initialize_pipeline_distributed_state";
    tide_tensor *vote = tide_scalar(m, TIDE_INT32), *sent = tide_scalar(m, TIDE_INT32), /* _preconnect_shared_p2p_edges
                                                                                         */
                                                        *received = tide_scalar(m, TIDE_INT32);
    tide_release(m, sent);
    tide_release(m, received);
    tide_release(m, vote);
}

/* Hooks of modules use the fully_shard() state of their stage. */
static void enter_stage(const tide_pipeline_stage *s) {
    if (s->fsdp) machine_of(s->of)->wrapper = s->fsdp;
}

uint32_t tide_pipeline_most_in_flight(const tide_pipeline *p) {
    if (p->ranks == 1) return 1;
    tide_pipeline_sizes sizes = tide_pipeline_sizes_of(p, p->w->job);
    tide_actions passes = tide_pipeline_order(&sizes, p->rank, machine_of(p)->arena);
    return tide_actions_in_flight(&passes);
}

/* ---- what comes from other ranks ---- */

tide_tensor *tide_stage_hidden(const tide_pipeline *p, const char *op) {
    tide_value hidden = tide_model_size(p->w->model, "hidden");
    tide_shape shape = {.dims = 3, .dim = {{p->batch, 0}, {p->rows, 0}, {hidden.integer, 0}}};
    machine_of(p)->op = op;
    return tide_empty(machine_of(p), &shape, p->dtype);
}

static tide_tensor *receive_buffer(const tide_pipeline *p) {
    tide_machine *m = machine_of(p);
    m->state.factor = TIDE_FACTOR_COMMUNICATION;
    tide_tensor *t = tide_stage_hidden(p, "recv");
    m->state.factor = TIDE_FACTOR_TEMPORARY;
    return t;
}

tide_tensor *tide_stage_recv_forward(tide_pipeline_stage *s, uint32_t mb) {
    if (!s->is_first && !s->recv_forward[mb]) s->recv_forward[mb] = receive_buffer(s->of);
    return s->recv_forward[mb];
}

tide_tensor *tide_stage_recv_backward(tide_pipeline_stage *s, uint32_t mb) {
    if (!s->is_last && !s->recv_backward[mb]) s->recv_backward[mb] = receive_buffer(s->of);
    return s->recv_backward[mb];
}

/* ---- forward ---- */

/* A chunk made by _split_inputs(): a view. */
static tide_tensor *micro_batch_of(tide_pipeline *p, tide_tensor *whole) {
    tide_shape shape = *whole->shape;
    shape.dim[0] = (tide_dim){p->batch, 0};
    return tide_view_as(machine_of(p), whole, tide_layout_of(machine_of(p), &shape, NULL));
}

/* forward_stage() calls blocks as most decoders do: a block with another signature has failed. */
static void explain_failure(tide_wrapper *w) {
    tide_diagnostic failed;
    if (!tide_take_back_error(w->model->m->diags, TIDE_ERR_DESCRIPTION, &failed) &&
        !tide_take_back_error(w->model->m->diags, TIDE_ERR_SHAPE, &failed))
        return;
    w->model->m->has_failed = false; /* for another reason */
    refuse_model(w, "its stages are runs of blocks between `model.embed_tokens` and `model.norm`, each called with "
                    "hidden states and `model.rotary_emb`'s embeddings alone, which this model's are not");
}

tide_tensor *tide_stage_forward(tide_pipeline_stage *s, uint32_t mb) {
    static const char *const names[] = {"x", "first_layer", "end_layer", "is_first", "is_last", "length", "positions"};
    tide_pipeline *p = s->of;
    tide_machine *m = machine_of(p);
    uint32_t from = m->timeline.allocation_count;
    tide_tensor *x = s->is_first ? micro_batch_of(p, p->ids) : s->recv_forward[mb];
    s->recv_forward[mb] = NULL;
    if (!s->is_first) x->requires_grad = x->is_leaf = true;
    s->inputs[mb] = x;
    tide_value values[] = {tide_of_tensor(tide_retain(x)),
                           tide_of_int(s->first_layer),
                           tide_of_int(s->end_layer),
                           tide_of_bool(s->is_first),
                           tide_of_bool(s->is_last),
                           tide_of_int(p->length),
                           p->positions ? tide_of_tensor(micro_batch_of(p, p->positions)) : tide_none()};
    tide_model *model = p->w->model;
    enter_stage(s);
    if (model->before_forward) model->before_forward(model, model->root, &values[0], 1, NULL, 0);
    tide_value made = tide_model_method(model, TIDE_TEXT("forward_stage"), names, values, p->positions ? 7 : 6);
    if (m->has_failed) explain_failure(p->w);
    if (model->after_forward && !tide_is_aborting(m)) model->after_forward(model, model->root, &made);
    tide_value_release(m, values[0]);
    tide_value_release(m, values[6]);
    m->module = m->statement = 0;
    if (made.kind != TIDE_VALUE_TENSOR) {
        if (!tide_is_aborting(m)) tide_fail(m, TIDE_ERR_DESCRIPTION, "forward_stage() returns a tensor");
        tide_value_release(m, made);
        return NULL;
    }
    s->outputs[mb] = tide_retain(made.tensor);
    if (p->ranks > 1) tide_timeline_end_forward(&m->timeline, from);
    return made.tensor;
}

void tide_stage_compute_loss(tide_pipeline_stage *s, uint32_t mb, tide_tensor *output) {
    tide_pipeline *p = s->of;
    if (!s->is_last || !output) return;
    tide_function *loss_fn = tide_function_find(p->w->model->descriptions, NULL, tide_text_of(p->loss_function));
    tide_tensor *target = micro_batch_of(p, p->labels);
    tide_value loss =
        tide_model_run(p->w->model, loss_fn, (tide_value[]){tide_of_tensor(output), tide_of_tensor(target)}, 2);
    tide_release(machine_of(p), target);
    p->losses[mb] = loss.kind == TIDE_VALUE_TENSOR ? loss.tensor : NULL;
}

void tide_pipeline_fold_losses(tide_pipeline *p, const tide_steady_state *rounds, uint32_t mb, tide_tensor *const *held,
                               uint32_t losses, uint32_t held_count) {
    tide_machine *m = p->w->model->m;
    p->folded_count = rounds->times * losses;
    p->folded_losses = TIDE_NEW(m->arena, tide_tensor *, p->folded_count);
    p->folded_at = mb;
    for (uint32_t i = 0; i < p->folded_count; i++) {
        uint32_t which = 2 * (i % losses);
        tide_tensor *input = tide_round_held(rounds, i / losses, held[which + 1], which + 1, held_count);
        p->folded_losses[i] = tide_round_held(rounds, i / losses, held[which], which, held_count);
        tide_hold(m, p->folded_losses[i], &input, 1);
    }
}

/* Keeps only the node: get_gradient_edge(). */
void tide_stage_release_sent(tide_pipeline_stage *s, uint32_t mb) {
    tide_machine *m = machine_of(s->of);
    tide_tensor *out = s->outputs[mb];
    if (!out || s->is_last || !out->node) return;
    m->op = "release_fwd_send_outputs";
    tide_tensor *edge = tide_empty_host(m, out->shape, (tide_dtype)out->dtype);
    edge->node = out->node;
    edge->node->references++;
    edge->output = out->output;
    edge->requires_grad = true;
    edge->is_leaf = false;
    s->outputs[mb] = edge;
    tide_release(m, out);
}

/* ---- backward ---- */

/* The engine callbacks that hooks of fully_shard() queue, after a pass. */
static void after_stage_backward(const tide_pipeline_stage *s) {
    if (s->fsdp && !machine_of(s->of)->has_failed) tide_fsdp2_root_post_backward_final_callback(s->fsdp);
}

/* stage_backward(); output_grad: NULL for a loss. */
static void backward_in_full(tide_pipeline_stage *s, tide_tensor *root, tide_tensor *output_grad) {
    tide_machine *m = machine_of(s->of);
    m->op = "ones_like";
    tide_tensor *grad = output_grad ? output_grad : tide_empty_like(m, root, (tide_dtype)root->dtype);
    enter_stage(s);
    tide_run_backward_from(m, &root, &grad, 1);
    after_stage_backward(s);
    if (!output_grad) tide_release(m, grad);
}

void tide_stage_backward(tide_pipeline_stage *s, uint32_t mb) {
    tide_pipeline *p = s->of;
    tide_machine *m = machine_of(p);
    tide_tensor *root = s->is_last ? p->losses[mb] : s->outputs[mb];
    if (!root || tide_is_aborting(m)) return;
    tide_tensor *grad = s->is_last ? NULL : s->recv_backward[mb];
    s->recv_backward[mb] = NULL;
    backward_in_full(s, root, grad);
    s->bwd_cache[mb] = s->is_first ? NULL : s->inputs[mb]->grad;
    s->inputs[mb]->grad = NULL;
    tide_release_at(m, &s->outputs[mb]);
    tide_release_at(m, &s->inputs[mb]);
    tide_release(m, grad);
}

/* submod.parameters(): what fully_shard() has sharded again is another parameter, to which no graph leads. */
static uint32_t graph_params(const tide_pipeline_stage *s, tide_tensor **params) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < s->param_count; i++)
        if (!s->fsdp || !s->params[i]->storage->is_untracked) params[count++] = s->params[i];
    return count;
}

void tide_stage_backward_first(tide_pipeline_stage *s, uint32_t mb) {
    tide_pipeline *p = s->of;
    tide_machine *m = machine_of(p);
    tide_tensor *logits = s->is_last ? s->outputs[mb] : NULL;
    tide_backward_state *state = &s->backward_state[mb];
    if (!s->outputs[mb] || tide_is_aborting(m)) return;
    *state = (tide_backward_state){.input = s->inputs[mb],
                                   .stage_output = s->is_last ? tide_retain(p->losses[mb]) : s->outputs[mb],
                                   .output_grad = s->is_last ? NULL : s->recv_backward[mb]};
    s->inputs[mb] = s->outputs[mb] = s->recv_backward[mb] = NULL;
    if (!s->is_first) {
        tide_tensor **params = TIDE_NEW(m->arena, tide_tensor *, s->param_count + 1);
        enter_stage(s);
        tide_stage_backward_input(m, state, params, graph_params(s, params));
        after_stage_backward(s);
        s->bwd_cache[mb] = tide_retain(state->input->grad);
    }
    tide_release(m, logits);
}

void tide_stage_backward_second(tide_pipeline_stage *s, uint32_t mb) {
    tide_machine *m = machine_of(s->of);
    tide_backward_state *state = &s->backward_state[mb];
    if (!state->stage_output || tide_is_aborting(m)) return;
    if (s->is_first)
        backward_in_full(s, state->stage_output, state->output_grad);
    else
        tide_stage_backward_weight(m, state);
    tide_release_at(m, &state->input);
    tide_release_at(m, &state->output_grad);
    tide_release_at(m, &state->stage_output);
}

void tide_stage_reduce_grad(tide_pipeline_stage *s) {
    if (s->fsdp && !tide_is_aborting(machine_of(s->of))) tide_fsdp2_finalize_backward(s->fsdp);
}

tide_tensor *tide_stage_send_backward(tide_pipeline_stage *s, uint32_t mb) {
    tide_tensor *sent = s->bwd_cache[mb];
    s->bwd_cache[mb] = NULL;
    return sent;
}
