/* SPDX-License-Identifier: Apache-2.0 */
/* torch/distributed/tensor/parallel/style.py, and parallelize_module() of api.py.
 *
 * Note [Plans]: "tp_plan" of a description and of the library says how the modules of a decoder are sharded: linear
 * layers in blocks by column or row, the embedding and the head by vocabulary, and modules that run on hidden states
 * sharded along the sequence by sequence. Everything else is replicated. */
#include "parallel/tensor_parallel.h"

#include <string.h>

#include "base/decimal.h"
#include "base/rounding.h"
#include "parallel/cuts.h"
#include "parallel/expert_parallel.h"
#include "parallel/torchtitan_experts.h"

typedef enum style {
    STYLE_NONE,
    STYLE_COLUMN,        /* ColwiseParallel */
    STYLE_ROW,           /* RowwiseParallel */
    STYLE_SPLIT_ROW,     /* the same, for a replicated input */
    STYLE_EMBEDDING,     /* RowwiseParallel of an embedding */
    STYLE_HEAD,          /* ColwiseParallel, with a replicated output unless there is loss parallelism */
    STYLE_SEQUENCE,      /* SequenceParallel */
    STYLE_PREPARE_INPUT, /* PrepareModuleInput: from Shard(1) to Replicate() */
    STYLE_CUT_INPUT,     /* from Replicate() to Shard(1) */
    STYLE_EXPERTS,       /* by a configuration's plan: expert_parallel.h */
    STYLE_LATENT,        /* MlaKvAProjParallel */
    STYLE_GATE,          /* of a replicated module, whose output is sharded along the sequence */
    STYLE_LOCAL_INPUT,   /* local_map() */
    STYLE_LOCAL_OUTPUT,  /* DTensor.to_local() of what is sharded along the sequence */
    STYLE_CUT,           /* over another mesh */
    STYLE_STAY,          /* torchtitan's NoParallel(use_local_output=False) */
    STYLE_STAY_PARTIAL,  /* the same, whose gradient is Partial() */
    STYLE_REPLICATE,     /* NoParallel() */
    STYLE_PARTIAL_ROW,   /* RowwiseParallel with output_layouts=Partial() */
    STYLE_PREPARE_BOTH,  /* PrepareModuleInputOutput: from Shard(1) to a plain tensor, and from Partial() to Shard(1) */
    STYLE_GROUPED        /* torchtitan's TensorParallel of GroupedExperts */
} style;

typedef struct tide_tensor_parallel {
    tide_tensor_parallel_plan plan;
    uint8_t *styles; /* by instance */
    int64_t *whole;  /* by instance: the full size, if the ranks' parts differ in size; else 0 */
    tide_experts experts;
    uint32_t untied_head; /* whose weight fully_shard() shards separately, and from_pretrained() ties again; 0: there is
                             none */
    void (*outer_before)(tide_model *model, uint32_t instance, tide_value *positional, uint32_t count,
                         tide_value *named, uint32_t named_count);
    void (*outer_after)(tide_model *model, uint32_t instance, tide_value *output);
} tide_tensor_parallel;

enum { SEQUENCE = 1, LAST = -1 };

/* ---- hooks ---- */

static void redistribute(tide_machine *m, tide_value *value, const tide_redistribute *how) {
    if (value->kind != TIDE_VALUE_TENSOR) return;
    tide_tensor *moved = tide_dtensor_redistribute(m, value->tensor, how);
    tide_release(m, value->tensor);
    value->tensor = moved;
}

/* Whether a module is one of torchtitan's MoE. */
static bool is_in_experts(const tide_model *model, uint32_t instance) {
    for (uint32_t at = instance; at; at = model->instances[at].parent)
        if (tide_text_is(model->instances[at].of->name, "TitanMoE")) return true;
    return false;
}

/* _prepare_input_fn; torchtitan's modules redistribute asynchronously. */
static void prepare_input(tide_model *model, const tide_tensor_parallel *p, uint32_t instance, tide_value *input) {
    style of = (style)p->styles[instance];
    tide_redistribute how = {.ranks = p->plan.ranks, .dim = SEQUENCE, .to_dtensor = true};
    bool is_dtensor = input->kind == TIDE_VALUE_TENSOR && input->tensor->is_dtensor;
    if (of == STYLE_HEAD && p->plan.sequence_parallel) {
        how.forward = TIDE_COLLECTIVE_ALL_GATHER;
        how.backward = TIDE_COLLECTIVE_REDUCE_SCATTER;
        how.is_async = true;
    } else if (of == STYLE_PREPARE_INPUT) {
        how.forward = TIDE_COLLECTIVE_ALL_GATHER;
        how.backward = TIDE_COLLECTIVE_REDUCE_SCATTER;
        how.is_async = is_in_experts(model, instance);
    } else if (of == STYLE_SPLIT_ROW) {
        how.dim = LAST;
        how.forward = TIDE_COLLECTIVE_CHUNK;
        how.backward = TIDE_COLLECTIVE_ALL_GATHER;
    } else if (of == STYLE_CUT_INPUT) {
        how.forward = TIDE_COLLECTIVE_CHUNK;
        how.backward = TIDE_COLLECTIVE_ALL_GATHER;
        how.to_dtensor = false;
    } else if (of == STYLE_PREPARE_BOTH) { /* of plain tensors gradients are whole */
        how.forward = TIDE_COLLECTIVE_ALL_GATHER;
        how.backward = TIDE_COLLECTIVE_CHUNK;
        how.to_dtensor = false;
    } else if (of == STYLE_GROUPED) {
        how.backward = TIDE_COLLECTIVE_ALL_REDUCE; /* for grad_placements=(Partial(),) */
        how.to_dtensor = false;
    } else if (is_dtensor || of == STYLE_EMBEDDING || of == STYLE_NONE ||
               (of >= STYLE_LOCAL_OUTPUT && of < STYLE_REPLICATE)) {
        return;
    } else if (of == STYLE_COLUMN || of == STYLE_HEAD) {
        how.backward = TIDE_COLLECTIVE_ALL_REDUCE; /* for from_local(Replicate()), whose gradient is Partial */
    }
    redistribute(model->m, input, &how);
}

static const char MASKED_SCALED[] = "MaskPartialScaledEmbedding";

static bool is_scaled_embedding(const tide_instance *of) {
    return tide_text_is(of->of->name, MASKED_SCALED);
}

/* ScaledWordEmbedding: partial results of a sharded vocabulary are summed where they are multiplied. */
static void scale_embedding(tide_model *model, uint32_t instance, int64_t ranks, tide_value *output) {
    const tide_instance *of = &model->instances[instance];
    uint32_t slot = tide_attribute_slot(of->of, TIDE_TEXT("embed_scale"));
    tide_function *scale = tide_function_find(model->descriptions, NULL, TIDE_TEXT("scale_embedding"));
    if (slot == UINT32_MAX || !scale || output->kind != TIDE_VALUE_TENSOR) return;
    tide_tensor *looked_up = tide_retain(output->tensor);
    redistribute(model->m, output, &(tide_redistribute){.forward = TIDE_COLLECTIVE_ALL_REDUCE, .ranks = ranks});
    tide_value scaled = tide_model_run(model, scale, (tide_value[]){*output, of->slots[slot]}, 2);
    tide_value_release(model->m, *output);
    tide_release(model->m, looked_up);
    *output = scaled;
}

/* transformers' RowwiseParallel without gradients: a Linear multiplies plain tensors, and dist.all_reduce() is in
 * place; a bias that is added then takes a tensor as well. */
static bool is_reduced_in_place(const tide_model *model, const tide_tensor_parallel *p, uint32_t instance) {
    const tide_instance *of = &model->instances[instance];
    uint32_t bias = tide_attribute_slot(of->of, TIDE_TEXT("bias"));
    bool has_bias = bias != UINT32_MAX && of->slots[bias].kind == TIDE_VALUE_TENSOR;
    return p->plan.of_configuration && !model->m->state.grad_enabled && !has_bias;
}

/* Whether hidden states around a module are sharded along the sequence: around torchtitan's experts always. */
static bool is_along(const tide_model *model, const tide_tensor_parallel_plan *plan, uint32_t instance) {
    return plan->sequence_parallel || is_in_experts(model, instance);
}

/* _prepare_output_fn */
static void prepare_output(tide_model *model, const tide_tensor_parallel *p, uint32_t instance, tide_value *output) {
    style of = (style)p->styles[instance];
    tide_redistribute how = {.ranks = p->plan.ranks, .rank = p->plan.rank, .dim = SEQUENCE, .is_async = true};
    bool is_cut = is_along(model, &p->plan, instance) && (of == STYLE_ROW || p->plan.cuts_embedding);
    bool is_scaled = of == STYLE_EMBEDDING && is_scaled_embedding(&model->instances[instance]);
    if (is_scaled) scale_embedding(model, instance, how.ranks, output);
    if (is_scaled && !is_cut) return;
    if (of == STYLE_ROW && is_reduced_in_place(model, p, instance)) return;
    if (of == STYLE_ROW || of == STYLE_SPLIT_ROW || (of == STYLE_EMBEDDING && !is_scaled)) {
        how.forward = is_cut ? TIDE_COLLECTIVE_REDUCE_SCATTER : TIDE_COLLECTIVE_ALL_REDUCE;
        how.backward = is_cut ? TIDE_COLLECTIVE_ALL_GATHER : TIDE_COLLECTIVE_NONE;
    } else if (of == STYLE_HEAD && !p->plan.loss_parallel) {
        how.dim = LAST;
        how.whole = p->whole[instance];
        how.forward = TIDE_COLLECTIVE_ALL_GATHER;
        how.backward = TIDE_COLLECTIVE_CHUNK;
    } else if (of == STYLE_GATE || is_scaled) {
        how.forward = TIDE_COLLECTIVE_CHUNK;
        how.backward = TIDE_COLLECTIVE_ALL_GATHER;
    } else if (of == STYLE_PREPARE_BOTH) {
        how.forward = TIDE_COLLECTIVE_REDUCE_SCATTER;
        how.backward = TIDE_COLLECTIVE_ALL_GATHER;
        how.is_async = false;
    } else if (of != STYLE_COLUMN && of != STYLE_LOCAL_OUTPUT && of != STYLE_REPLICATE && of != STYLE_PARTIAL_ROW) {
        return;
    }
    redistribute(model->m, output, &how);
}

static void before_forward(tide_model *model, uint32_t instance, tide_value *positional, uint32_t count,
                           tide_value *named, uint32_t named_count) {
    tide_tensor_parallel *p = model->tensor_parallel;
    if (p->outer_before) p->outer_before(model, instance, positional, count, named, named_count);
    if (p->styles[instance] == STYLE_EXPERTS)
        tide_experts_before(model, instance, &p->experts, positional, count);
    else if (p->styles[instance] == STYLE_LOCAL_INPUT)
        for (uint32_t i = 0; i < count; i++) redistribute(model->m, &positional[i], &(tide_redistribute){.ranks = 1});
    else if (count || named_count) /* hidden states come first, by position or by name */
        prepare_input(model, p, instance, count ? &positional[0] : &named[0]);
}

static void after_forward(tide_model *model, uint32_t instance, tide_value *output) {
    tide_tensor_parallel *p = model->tensor_parallel;
    style of = (style)p->styles[instance];
    /* transformers' styles are part of forward(), around which enable_input_require_grads() has its hook */
    bool is_made_leaf = p->plan.of_configuration && model->instances[instance].makes_grad &&
                        output->kind == TIDE_VALUE_TENSOR && !output->tensor->node && output->tensor->requires_grad;
    if (is_made_leaf) output->tensor->requires_grad = false;
    if (of == STYLE_EXPERTS)
        tide_experts_after(model, &p->experts, output);
    else if (of == STYLE_LATENT)
        tide_mla_after(model, p->plan.rotary, output);
    else
        prepare_output(model, p, instance, output);
    if (is_made_leaf) output->tensor->requires_grad = true;
    if (p->outer_after) p->outer_after(model, instance, output);
}

void tide_tensor_parallel_around(tide_model *model) {
    tide_tensor_parallel *p = model->tensor_parallel;
    p->outer_before = model->before_forward == before_forward ? NULL : model->before_forward;
    p->outer_after = model->after_forward == after_forward ? NULL : model->after_forward;
    model->before_forward = before_forward;
    model->after_forward = after_forward;
}

/* ---- the plan ---- */

/* "ColwiseParallel currently only support nn.Linear and nn.Embedding!" */
static bool is_linear_layer(const tide_class *of) {
    return tide_text_is(of->name, "Linear") || tide_text_is(of->base, "Linear");
}

static style style_of(const tide_model *model, const tide_json *cuts, uint32_t instance) {
    static const struct {
        const char *how;
        style of;
    } styles[] = {{"column", STYLE_COLUMN},           {"row", STYLE_ROW},
                  {"sequence", STYLE_SEQUENCE},       {"output", STYLE_GATE},
                  {"local", STYLE_LOCAL_INPUT},       {"by expert", STYLE_CUT},
                  {"around", STYLE_PREPARE_BOTH},     {"replicated local", STYLE_REPLICATE},
                  {"partial row", STYLE_PARTIAL_ROW}, {"grouped", STYLE_GROUPED},
                  {"replicated", STYLE_STAY},         {"replicated parts", STYLE_STAY_PARTIAL}};
    tide_text how = tide_cut_of(model, cuts, instance).how;
    if (tide_text_is(how, "vocabulary"))
        return is_linear_layer(model->instances[instance].of) ? STYLE_HEAD : STYLE_EMBEDDING;
    for (size_t i = 0; how.length && i < TIDE_COUNT_OF(styles); i++)
        if (tide_text_is(how, styles[i].how)) return styles[i].of;
    return STYLE_NONE;
}

/* init_parallel_plans() shards embed_tokens if the model below the head has a plan. */
static bool has_plan_below_head(const tide_json *plan) {
    for (const tide_json *item = plan ? plan->first : NULL; item; item = item->next)
        if (!tide_text_is(item->key, "lm_head")) return true;
    return false;
}

/* transformers/distributed/tensor_parallel.py: ALL_PARALLEL_STYLES; and init_parallel_plans(), which shards
 * embed_tokens. */
static style style_of_configuration(const tide_model *model, const tide_tensor_parallel_plan *by, uint32_t instance) {
    int64_t ranks = by->ranks;
    static const struct {
        const char *name;
        style of;
    } styles[] = {{"colwise", STYLE_COLUMN},
                  {"rowwise", STYLE_ROW},
                  {"colwise_gather_output", STYLE_HEAD},
                  {"embedding_rowwise", STYLE_EMBEDDING},
                  {"rowwise_split_input", STYLE_SPLIT_ROW},
                  {"replicated_with_grad_allreduce", STYLE_NONE},
                  {"mla_kv_a_proj", STYLE_LATENT},
                  {"moe_tp_experts", STYLE_EXPERTS},
                  {"ep_dispatch_experts", STYLE_EXPERTS}};
    const tide_instance *of = &model->instances[instance];
    const char *path = tide_planned_path(model, instance);
    tide_text of_experts = tide_style_at(by->of_experts, model, instance, path),
              named = tide_style_at(by->of_configuration, model, instance, path);
    if (tide_is_of_adapter(model, instance)) named = tide_plan_of_adapter(model, by->of_configuration, instance);
    if (ranks == 1 || of_experts.length) named = of_experts;
    if (tide_is_adapter(model, instance)) return STYLE_NONE;
    if (ranks > 1 && tide_text_is(of->name, "embed_tokens") && has_plan_below_head(by->of_configuration[of->scope]))
        return STYLE_EMBEDDING;
    for (size_t i = 0; named.length && i < TIDE_COUNT_OF(styles); i++)
        if (tide_text_is(named, styles[i].name)) return styles[i].of;
    if (named.length)
        tide_fail_setting(model->m, TIDE_ERR_UNSUPPORTED, "parallel.tp_plan",
                          "%s is \"%.*s\" in the configuration's plan, which is not described; use none", of->path,
                          (int)named.length, named.at);
    return STYLE_NONE;
}

static bool is_here(const tide_wrapper *w, uint32_t instance) {
    return !w->is_absent || !w->is_absent[instance];
}

/* Refuses columns without the rows that sum their results, or rows without columns. */
static bool refuse_half(const tide_wrapper *w, const tide_tensor_parallel *p) {
    const tide_model *model = w->model;
    enum { HAS_COLUMN = 1, HAS_ROW = 2 };
    uint8_t *has = TIDE_NEW(model->m->arena, uint8_t, model->instance_count + 1);
    for (uint32_t i = 1; i < model->instance_count; i++)
        if (p->styles[i] == STYLE_COLUMN || p->styles[i] == STYLE_ROW || p->styles[i] == STYLE_PARTIAL_ROW)
            has[model->instances[i].parent] |= p->styles[i] == STYLE_COLUMN ? HAS_COLUMN : HAS_ROW;
    for (uint32_t i = 0; i < model->instance_count; i++) {
        if (has[i] != HAS_COLUMN && has[i] != HAS_ROW) continue;
        tide_fail_setting(model->m, TIDE_ERR_UNSUPPORTED, "parallel.kind",
                          "%s has layers that are cut along %s, and tp_plan of its description names none along %s; "
                          "near to it are parallel.tp_plan=auto, and parallel.kind=fsdp2 and zero3",
                          model->instances[i].path, has[i] == HAS_COLUMN ? "columns" : "rows",
                          has[i] == HAS_COLUMN ? "rows" : "columns");
        return true;
    }
    return false;
}

static bool has_any_plan_below_head(const tide_wrapper *w, const tide_tensor_parallel *p) {
    for (uint32_t i = 0; i < w->model->scope_count; i++)
        if (has_plan_below_head(p->plan.of_configuration[i])) return true;
    return false;
}

static bool choose_styles(tide_wrapper *w, tide_tensor_parallel *p) {
    tide_model *model = w->model;
    bool is_own = p->plan.of_configuration != NULL, has_block = false, is_checked = !is_own || p->plan.is_of_kinds,
         cuts_blocks = !is_checked;
    const tide_json *cuts = is_own ? NULL : tide_cuts_of(model, 0);
    for (uint32_t i = 1; i < model->instance_count; i++) {
        const tide_instance *at = &model->instances[i];
        bool is_part = model->scopes[at->scope].config != model->scopes[0].config; /* which no such plan names */
        style of = is_own    ? style_of_configuration(model, &p->plan, i)
                   : is_part ? STYLE_NONE
                             : style_of(model, cuts, i);
        if (model->m->has_failed) return false;
        if (of == STYLE_GROUPED && tide_is_torchtitan_expert(model, i) && tide_job_expert_tensor_ranks(w->job) == 1)
            of = STYLE_CUT;
        if (!is_own && (of == STYLE_COLUMN || of == STYLE_ROW) && !is_linear_layer(at->of)) of = STYLE_NONE;
        cuts_blocks = cuts_blocks || of == STYLE_COLUMN;
        if (!is_here(w, i)) continue;
        bool along = is_along(model, &p->plan, i);
        if (of != STYLE_SEQUENCE || along) p->styles[i] = (uint8_t)of;
        bool is_of_plain = p->styles[model->instances[at->parent].parent] == STYLE_PREPARE_BOTH;
        if (of == STYLE_COLUMN && along && !is_of_plain) p->styles[at->parent] = STYLE_PREPARE_INPUT;
        if (tide_text_is(at->of->name, "TitanMoE")) p->styles[i] = STYLE_LOCAL_OUTPUT;
        if (!has_block && at->of->is_checkpointed && along && !p->plan.cuts_embedding) p->styles[i] = STYLE_CUT_INPUT;
        has_block = has_block || at->of->is_checkpointed;
    }
    if (is_own && !has_any_plan_below_head(w, p) && (tide_tied_head(model) || (p->untied_head && p->plan.ranks > 1))) {
        tide_fail_setting(model->m, TIDE_ERR_CONFLICT, "parallel.tp_plan",
                          "it cuts the head alone, which is tied to the embedding: %s; use none",
                          p->untied_head ? "FSDP finds it whole: \"start (0) + length exceeds dimension size\""
                                         : "\"aten.mm.default got mixed torch.Tensor and DTensor\"");
        return false;
    }
    if (cuts_blocks) return !is_checked || !refuse_half(w, p);
    tide_fail(model->m, TIDE_ERR_UNSUPPORTED,
              "the description of %s does not say how its parameters are cut for tensor parallelism (tp_plan); "
              "parallel.kind=fsdp2, zero3 and ddp run it as it is",
              model->instances[model->root].of->name.at);
    return false;
}

/* ---- parameters ---- */

enum { MOST_PARAMETERS = 8 }; /* of a module */

/* Parts of different sizes: transformers' linear layers know the full size, PyTorch's assume equal parts. */
static bool check_parts(const tide_wrapper *w, const tide_tensor_parallel *p, const tide_parameter_row *row, int dim,
                        int64_t ranks) {
    style of = (style)p->styles[row->module];
    int64_t size = row->tensor->shape->dim[dim].size;
    bool is_known = of != STYLE_EXPERTS && p->plan.of_configuration;
    if (size % ranks == 0 || of == STYLE_EMBEDDING || of == STYLE_HEAD || is_known) return true;
    tide_fail_setting(w->model->m, of == STYLE_EXPERTS ? TIDE_ERR_UNSUPPORTED : TIDE_ERR_CONFLICT, "parallel.tp",
                      "%s: %lld along dimension %d do not divide into %lld tensor parallel ranks%s; use ranks that "
                      "divide them",
                      row->name, (long long)size, dim, (long long)ranks,
                      of == STYLE_EXPERTS ? ", and experts of several sizes are not described"
                                          : ": \"a and b must have same reduction dim\"");
    return false;
}

static int dim_of_experts(const tide_model *model, const tide_tensor_parallel *p, const tide_parameter_row *row) {
    tide_text own = tide_style_at(p->plan.of_experts, model, row->module, row->name);
    return tide_plan_dim(own.length ? own : tide_style_at(p->plan.of_configuration, model, row->module, row->name),
                         row->tensor);
}

/* named_parameters() keeps a list of what it returned (torch/nn/modules/module.py: _named_members): the full parameters
 * of a module live until its last one is sharded. */
static bool distribute(tide_wrapper *w, const tide_tensor_parallel *p, uint32_t instance) {
    tide_model *model = w->model;
    if (tide_is_torchtitan_expert(model, instance)) return true;
    style of = (style)p->styles[instance];
    tide_tensor *given[MOST_PARAMETERS];
    uint32_t count = 0;
    bool is_done = true;
    for (uint32_t i = 0; i < model->parameter_count && is_done; i++) {
        tide_parameter_row *row = &model->parameters[i];
        if (row->module != instance || !is_here(w, instance)) continue;
        bool is_bias = row->tensor->shape->dims < 2;
        bool is_row = of == STYLE_ROW || of == STYLE_SPLIT_ROW || of == STYLE_PARTIAL_ROW;
        int dim = of == STYLE_EXPERTS   ? dim_of_experts(model, p, row)
                  : of == STYLE_GROUPED ? tide_cut_dim(model, row)
                  : is_row              ? 1
                                        : 0;
        if (dim < 0) continue;
        model->m->module = instance;
        row->tensor->is_dtensor = true;
        row->tensor->has_partial_grad = of == STYLE_SEQUENCE || of == STYLE_STAY_PARTIAL;
        row->tensor->is_replicated = of == STYLE_SEQUENCE || of == STYLE_GATE ||
                                     (of >= STYLE_STAY && of <= STYLE_REPLICATE) || (is_row && is_bias);
        if (row->tensor->is_replicated) continue;
        int64_t ranks = of == STYLE_EXPERTS ? p->plan.expert_ranks : p->plan.ranks;
        is_done = check_parts(w, p, row, dim, ranks);
        if (!is_done) break;
        int64_t whole = row->tensor->shape->dim[dim].size;
        p->whole[instance] = whole % ranks ? whole : 0;
        if (of == STYLE_EMBEDDING) p->whole[tide_tied_head(model)] = p->whole[instance];
        if (count < MOST_PARAMETERS) given[count++] = tide_alias(model->m, row->tensor);
        tide_dtensor_distribute(
            model->m, row->tensor,
            &(tide_distribute){.dim = dim,
                               .ranks = ranks,
                               .rank = of == STYLE_EXPERTS ? 0 : p->plan.rank,
                               .factor = p->plan.is_sharded ? TIDE_FACTOR_TEMPORARY : TIDE_FACTOR_PARAMETER,
                               .is_on_meta = model->state.is_on_meta});
    }
    for (uint32_t i = 0; i < count; i++) tide_release(model->m, given[i]);
    return is_done;
}

/* Reports once which parts of the blocks the plan does not name. */
static void say_what_is_whole(const tide_wrapper *w, const tide_tensor_parallel *p) {
    const tide_model *model = w->model;
    for (uint32_t i = 0; i < model->parameter_count && !p->plan.of_configuration; i++) {
        const tide_parameter_row *row = &model->parameters[i];
        bool is_matrix = row->tensor->shape->dims > 1 && is_here(w, row->module);
        if (!is_matrix || p->styles[row->module] != STYLE_NONE) continue;
        tide_report(model->m->diags, TIDE_ASSUMPTION, TIDE_OK, "/settings/parallel.tp",
                    tide_format(model->m->arena,
                                "%s, and what else the plan of attention and dense layers does not name, is whole on "
                                "every rank",
                                row->name),
                    "parallel.kind=tp parallel.tp_plan=auto cuts what transformers' own plan names");
        return;
    }
}

/* What the plan does not name is replicated; beside hidden states that are sharded along the sequence it would get
 * another kind of tensor, which is not described. */
static bool refuse_what_is_not_planned(const tide_wrapper *w, const tide_tensor_parallel *p) {
    const tide_model *model = w->model;
    bool is_alone = !p->plan.of_configuration && p->plan.sequence_parallel;
    for (uint32_t i = 0; i < model->parameter_count && is_alone; i++) {
        const tide_parameter_row *row = &model->parameters[i];
        uint32_t parent = model->instances[row->module].parent;
        bool is_of_block = model->instances[parent].of && model->instances[parent].of->is_checkpointed;
        bool is_wanted = row->tensor->shape->dims > 1 || (p->plan.sequence_parallel && is_of_block);
        if (p->styles[row->module] != STYLE_NONE || !is_wanted || !is_here(w, row->module)) continue;
        tide_fail(
            model->m, TIDE_ERR_UNSUPPORTED,
            "%s: the description's tp_plan does not say how it is cut; this architecture is not described with tensor "
            "parallelism",
            row->name);
        return false;
    }
    return true;
}

/* In the order of the plan: embedding and head, then columns, rows and norms, block by block. */
static bool distribute_all(tide_wrapper *w, const tide_tensor_parallel *p) {
    const tide_model *model = w->model;
    uint32_t count = model->instance_count;
    for (uint32_t i = 1; i < count; i++)
        if ((p->styles[i] == STYLE_EMBEDDING || p->styles[i] == STYLE_HEAD) && !distribute(w, p, i)) return false;
    for (uint32_t block = 1; block < count; block++) {
        if (!model->instances[block].of->is_checkpointed) continue;
        for (style of = STYLE_COLUMN; of <= STYLE_SPLIT_ROW; of++)
            for (uint32_t i = block; i < count; i++)
                if (p->styles[i] == of && tide_is_below(model, i, block) && !distribute(w, p, i)) return false;
    }
    for (uint32_t i = 1; i < count; i++)
        if ((p->styles[i] == STYLE_SEQUENCE || p->styles[i] == STYLE_EXPERTS || p->styles[i] == STYLE_GATE ||
             p->styles[i] >= STYLE_STAY) &&
            !distribute(w, p, i))
            return false;
    return true;
}

/* A sharded vocabulary looks up only its own rows: forward() of a class with the same slots. */
static bool mask_embeddings(tide_wrapper *w, const tide_tensor_parallel *p) {
    static const char *const of_whole[] = {"Embedding", "ScaledWordEmbedding"}, *const of_part[] = {
                                                                                    "MaskPartialEmbedding",
                                                                                    MASKED_SCALED};
    tide_model *model = w->model;
    model->m->module = 0;
    for (uint32_t i = 1; i < model->instance_count; i++) {
        tide_instance *of = &model->instances[i];
        tide_class *masked = NULL;
        bool is_done = false; /* from an earlier stage */
        if (p->styles[i] != STYLE_EMBEDDING) continue;
        for (size_t k = 0; k < TIDE_COUNT_OF(of_whole); k++) {
            is_done = is_done || tide_text_is(of->of->name, of_part[k]);
            if (tide_text_is(of->of->name, of_whole[k]))
                masked = tide_class_find(model->descriptions, NULL, tide_text_of(of_part[k]));
        }
        if (is_done) continue;
        if (!masked) {
            tide_fail(model->m, TIDE_ERR_UNSUPPORTED, "%s: a %.*s that is cut along the vocabulary is not described",
                      of->path, (int)of->of->name.length, of->of->name.at);
            return false;
        }
        if (!tide_model_check(model, masked, NULL)) return false;
        of->of = masked;
    }
    return true;
}

/* The first trained parameter that the plan names, or does not name; NULL: there is none. */
static const char *first_trained(const tide_wrapper *w, const tide_tensor_parallel *p, bool is_named) {
    const tide_model *model = w->model;
    for (uint32_t i = 0; i < model->parameter_count; i++) {
        const tide_parameter_row *row = &model->parameters[i];
        bool is_planned = p->styles[row->module] != STYLE_NONE || tide_is_torchtitan_expert(model, row->module);
        if (row->tensor->requires_grad && is_here(w, row->module) && is_planned == is_named) return row->name;
    }
    return NULL;
}

/* Parameters that are not DTensors of the same mesh cannot be combined by clip_grad_norm_(): without sequence
 * parallelism norms. torchtitan's own models shard the norms of heads as well. */
static bool refuse_to_clip(const tide_wrapper *w, const tide_tensor_parallel *p) {
    const tide_tensor_parallel_plan *plan = &p->plan;
    bool is_of_torchtitan = w->job->program && strcmp(w->job->program, "torchtitan") == 0;
    const char *other = plan->sequence_parallel && !is_of_torchtitan ? first_trained(w, p, false) : NULL;
    bool are_plain = !plan->is_sharded && !first_trained(w, p, true); /* such as adapters of layers that are whole */
    if (w->job->clip <= 0 || are_plain || (plan->sequence_parallel && !other)) return false;
    tide_fail_setting(w->model->m, TIDE_ERR_CONFLICT, "clip", "%s%s\"%s\"; use %sno clipping", other ? other : "",
                      other ? " is whole on every tensor parallel rank: " : "",
                      plan->is_sharded
                          ? "All operands in aten.stack.default must have the same mesh"
                          : "aten._foreach_norm.Scalar got mixed torch.Tensor and DTensor, need to convert all "
                            "torch.Tensor to DTensor before calling distributed operators!",
                      other ? "parallel.kind=fsdp2, or " : "parallel.sequence_parallel=true, or ");
    return true;
}

static bool check_heads(const tide_wrapper *w, const tide_tensor_parallel *p) {
    uint32_t count = w->model->instance_count;
    bool *is_column = TIDE_NEW(w->model->m->arena, bool, count + 1);
    for (uint32_t i = 1; i < count; i++) is_column[i] = p->styles[i] == STYLE_COLUMN;
    return tide_check_heads(w, p->plan.ranks, is_column);
}

bool tide_parallelize_module(tide_wrapper *w, const tide_tensor_parallel_plan *plan) {
    tide_machine *m = w->model->m;
    tide_tensor_parallel *p = w->model->tensor_parallel;
    if (!p) {
        p = TIDE_NEW(m->arena, tide_tensor_parallel, 1);
        *p = (tide_tensor_parallel){.plan = *plan,
                                    .styles = TIDE_NEW(m->arena, uint8_t, w->model->instance_count + 1),
                                    .whole = TIDE_NEW(m->arena, int64_t, w->model->instance_count + 1),
                                    .experts = {.style = plan->experts_style,
                                                .ranks = plan->expert_ranks,
                                                .tp_ranks = plan->ranks,
                                                .imbalance = (double)w->job->parallel_imbalance / (double)TIDE_PICO}};
        w->model->children_first = tide_children_first(w->model);
        /* a module's parameter is sharded in place */
        uint32_t head = plan->of_configuration && !plan->is_sharded ? 0 : tide_untie_head(w, true);
        if (plan->of_configuration) p->untied_head = head;
    }
    bool is_first = !w->model->tensor_parallel;
    bool is_refused = !tide_check_adapters(w, plan) || !choose_styles(w, p) || refuse_to_clip(w, p) ||
                      !refuse_what_is_not_planned(w, p) || !check_heads(w, p);
    if (is_refused || !distribute_all(w, p) || !mask_embeddings(w, p)) return false;
    if (is_first) say_what_is_whole(w, p);
    w->model->tensor_parallel = p;
    m->has_dtensors = true;
    m->module = 0;
    tide_tensor_parallel_around(w->model);
    return true;
}

uint32_t tide_head_tied_again(const tide_model *model) {
    return model->tensor_parallel ? model->tensor_parallel->untied_head : 0;
}

bool tide_has_dispatched_experts(const tide_model *model, uint32_t instance) {
    const tide_tensor_parallel *p = model->tensor_parallel;
    return p && p->plan.of_experts && p->styles[instance] == STYLE_EXPERTS;
}

void tide_separate_kinds(tide_wrapper *w) {
    const tide_tensor_parallel *p = w->model->tensor_parallel;
    uint32_t count = tide_optimizer_members(w->optimizer, NULL), n = 0;
    tide_optimized *members = TIDE_NEW(w->model->m->arena, tide_optimized, 2 * count + 2), *sorted = members + count;
    tide_optimizer_members(w->optimizer, members);
    for (unsigned part = 0; part < 4; part++) /* in each group DTensors first, then plain tensors */
        for (uint32_t i = 0; i < count; i++)
            if (members[i].group == part / 2 && members[i].tensor->is_dtensor == !(part % 2)) sorted[n++] = members[i];
    for (uint32_t i = 0; i < count; i++) {
        style of = (style)p->styles[sorted[i].module];
        sorted[i].kind += sorted[i].tensor->is_dtensor ? 0 : 1;
        if (!sorted[i].mesh_dims && sorted[i].tensor->is_dtensor) {
            sorted[i].mesh_dims = 1;
            sorted[i].is_replicated = sorted[i].tensor->is_replicated;
        }
        /* the gradient of the head has its own placement */
        bool is_tied = of == STYLE_EMBEDDING && tide_tied_head(w->model);
        sorted[i].is_redistributed =
            !p->plan.is_sharded && !is_tied && (of == STYLE_EMBEDDING || sorted[i].tensor->has_partial_grad);
    }
    tide_optimizer_replace(w->optimizer, sorted, count);
}
