/* SPDX-License-Identifier: Apache-2.0 */
/* The modules that accelerate makes FSDP units of: those of the classes in fsdp_config's transformer_layer_cls_to_wrap,
 * or else in transformers' _no_split_modules, by models/no_split_modules.json. accelerate/utils/dataclasses.py,
 * set_auto_wrap_policy(); a model's list has those of its parts, transformers/modeling_utils.py, post_init(). */
#include "lang/lang.h"
#include "parallel/parallel.h"

/* The rows of the model's parts, by the scopes of their modules; NULL: classes of the part are unknown. */
typedef struct no_split {
    tide_model *model;
    const tide_json **rows;
    const tide_name_list *given; /* the classes that the job names; none: those of transformers */
} no_split;

/* The first of the part's classes of a kind, "blocks" or "mixtures"; NULL: it has none. */
static const tide_json *first_class_of(const tide_json *row, const char *kind) {
    const tide_json *classes = tide_json_at(row, kind);
    return classes ? classes->first : NULL;
}

static bool has_class_of_kind(const tide_json *row, const char *kind, tide_text name) {
    const tide_json *one = first_class_of(row, kind);
    while (one && !tide_text_equal(one->text, name)) one = one->next;
    return one != NULL;
}

/* What the part's list says of a class: the names of its modules, "" for blocks, null for a class that the part has
 * not; NULL: the class is not in it. */
static const tide_json *listed_in(const tide_json *row, tide_text name) {
    return tide_json_find(tide_json_at(row, "no_split_modules"), name);
}

/* A part without a list of its own has its blocks in it. */
static bool lists(const tide_json *row, tide_text name) {
    return tide_json_at(row, "no_split_modules") ? listed_in(row, name) != NULL
                                                 : has_class_of_kind(row, "blocks", name);
}

static bool is_wrapped_class(const no_split *n, tide_text name) {
    for (uint32_t i = 0; i < n->given->count; i++)
        if (tide_text_equal(tide_text_of(n->given->names[i]), name)) return true;
    for (uint32_t i = 0; i < n->model->scope_count && !n->given->count; i++)
        if (lists(n->rows[i], name)) return true;
    return false;
}

/* Whether a part of the model has modules of a class. */
static bool has_class(const no_split *n, tide_text name) {
    for (uint32_t i = 0; i < n->model->scope_count; i++) {
        const tide_json *names = listed_in(n->rows[i], name);
        if (has_class_of_kind(n->rows[i], "blocks", name) || has_class_of_kind(n->rows[i], "mixtures", name) ||
            tide_json_is(names, TIDE_JSON_STRING))
            return true;
    }
    return false;
}

static bool refuse(const no_split *n, const char *format, tide_text name) {
    tide_fail_setting(n->model->m, TIDE_ERR_UNSUPPORTED, "parallel.transformer_cls_names_to_wrap", format,
                      (int)name.length, name.at);
    return false;
}

static bool check_given(const no_split *n) {
    bool knows_all = true;
    for (uint32_t i = 0; i < n->model->scope_count; i++) knows_all = knows_all && n->rows[i];
    for (uint32_t i = 0; i < n->given->count && knows_all; i++)
        if (!has_class(n, tide_text_of(n->given->names[i])))
            return refuse(n,
                          "units of class %.*s are not described for this model, and accelerate refuses a class that "
                          "the model has not; leave it out for transformers' own",
                          tide_text_of(n->given->names[i]));
    return true;
}

/* Whether all classes in transformers' lists are there, and their modules are described. */
static bool check_listed(const no_split *n) {
    for (uint32_t i = 0; i < n->model->scope_count; i++) {
        const tide_json *listed = tide_json_at(n->rows[i], "no_split_modules");
        for (const tide_json *row = listed ? listed->first : NULL; row; row = row->next) {
            if (!has_class(n, row->key))
                return refuse(n,
                              "accelerate refuses this model: \"Could not find the transformer layer class %.*s in the "
                              "model\"; name the classes of its blocks",
                              row->key);
            if (tide_json_is(row, TIDE_JSON_STRING) && tide_text_is(row->text, "*"))
                return refuse(n, "units of class %.*s are not described; name the classes of other modules", row->key);
        }
    }
    return true;
}

/* The class of a block in transformers: descriptions leave the family's name out (DecoderLayer), or have one class for
 * several of transformers', which then are all wrapped or none. */
static bool is_wrapped_block(const no_split *n, uint32_t instance, bool *is_unit) {
    const tide_json *row = n->rows[n->model->instances[instance].scope], *blocks = tide_json_at(row, "blocks");
    tide_text own = n->model->instances[instance].of->name, some = {NULL, 0};
    uint32_t count = 0, wrapped = 0;
    *is_unit = !row;
    for (const tide_json *block = blocks ? blocks->first : NULL; block; block = block->next) {
        bool is = is_wrapped_class(n, block->text);
        if (blocks->count > 1 && tide_text_ends(block->text, own)) {
            *is_unit = is;
            return true;
        }
        count++;
        wrapped += is;
        if (is) some = block->text;
    }
    if (row) *is_unit = count && wrapped == count;
    return !wrapped || wrapped == count ||
           refuse(n, "units of class %.*s, without the other blocks, are not described for this model", some);
}

/* Whether a module is of another class that is wrapped, such as embeddings. */
static bool is_wrapped_module(const no_split *n, uint32_t instance) {
    const tide_instance *of = &n->model->instances[instance];
    const tide_json *listed = tide_json_at(n->rows[of->scope], "no_split_modules");
    for (const tide_json *row = listed ? listed->first : NULL; row; row = row->next)
        if (tide_json_is(row, TIDE_JSON_STRING) && row->text.length && is_wrapped_class(n, row->key) &&
            tide_text_is_among(of->name, row->text.at))
            return true;
    return false;
}

/* Whether a module is the experts of a mixture whose class is wrapped, which then is a unit with its router. */
static bool is_of_wrapped_mixture(const no_split *n, uint32_t instance) {
    const tide_instance *of = &n->model->instances[instance];
    const tide_json *one = tide_text_is(of->name, "experts") ? first_class_of(n->rows[of->scope], "mixtures") : NULL;
    while (one && !is_wrapped_class(n, one->text)) one = one->next;
    return one != NULL;
}

static const tide_json *rows_of_types(tide_model *model) {
    const tide_source source = tide_source_whole(model->m->arena, &tide_no_split_modules_source);
    return tide_json_parse(model->m->arena, (tide_text){source.text, source.length}, "/no_split_modules",
                           model->m->diags);
}

static const tide_json *row_of_part(const tide_json *rows, const tide_scope *scope) {
    const tide_json *type = tide_json_at(scope->config, "model_type");
    return tide_json_is(type, TIDE_JSON_STRING) ? tide_json_find(rows, type->text) : NULL;
}

bool *tide_no_split_modules(tide_wrapper *w) {
    tide_model *model = w->model;
    tide_arena *arena = model->m->arena;
    const tide_json *all = rows_of_types(model);
    no_split n = {.model = model,
                  .rows = TIDE_NEW(arena, const tide_json *, model->scope_count + 1),
                  .given = &w->job->parallel_transformer_cls_names_to_wrap};
    for (uint32_t i = 0; i < model->scope_count; i++) n.rows[i] = row_of_part(all, &model->scopes[i]);
    bool is_listed = !tide_trainer_has_value_head(w->job); /* whose class has no _no_split_modules */
    if (!is_listed && !n.given->count) return TIDE_NEW(arena, bool, model->instance_count + 1);
    if (n.given->count ? !check_given(&n) : !check_listed(&n)) return NULL;
    bool *units = TIDE_NEW(arena, bool, model->instance_count + 1);
    for (uint32_t i = 1; i < model->instance_count; i++) {
        if (model->instances[i].of->is_checkpointed && !is_wrapped_block(&n, i, &units[i])) return NULL;
        units[i] = units[i] || is_wrapped_module(&n, i);
        if (is_of_wrapped_mixture(&n, i)) units[model->instances[i].parent] = true;
    }
    return units;
}

bool tide_ties_bias(tide_model *model) {
    return tide_json_at(row_of_part(rows_of_types(model), &model->scopes[0]), "ties_bias") != NULL;
}
