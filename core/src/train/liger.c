/* SPDX-License-Identifier: Apache-2.0 */
/* Liger Kernel, applied as by apply_liger_kernel() of transformers: "liger" in models/architectures/library/liger.json
 * lists the functions and modules of a family that are replaced, followed by the replacements. */
#include "train/liger.h"

#include "base/units.h"

/* An option of liger_kernel_config that replaces modules. */
typedef struct liger_option {
    const char *name;
    bool is_on, is_of_family, is_done;
} liger_option;

enum { OPTIONS = 3 };

typedef struct liger_patch {
    tide_run *run;
    const tide_job *job;
    liger_option options[OPTIONS];
} liger_patch;

static const tide_json *liger_table(const tide_run *run) {
    const tide_json *table = NULL;
    for (const tide_description *d = run->descriptions.first; d && !table; d = d->next)
        table = tide_json_at(d->json, "liger");
    return table;
}

/* The row of a description; NULL: Liger does not have it. */
static const tide_json *liger_row(const tide_json *table, tide_text description) {
    const tide_json *row = tide_json_find(table, description);
    return row && row->kind == TIDE_JSON_STRING ? tide_json_find(table, row->text) : row;
}

static bool liger_fails(liger_patch *p, const char *setting, const char *family) {
    tide_machine *m = &p->run->machine;
    m->has_failed = true;
    return tide_error(m->diags, TIDE_ERR_UNSUPPORTED, tide_format(m->arena, "/settings/%s", setting),
                      tide_format(m->arena, "Liger's kernels for '%s' are not described", family),
                      tide_format(m->arena, "%s=false leaves it out", setting));
}

/* The replacement class for a module of this name; NULL: none. */
static const tide_json *liger_class(const tide_json *classes, tide_text name) {
    for (const tide_json *one = classes->first; one; one = one->next) {
        const tide_json *modules = one->kind == TIDE_JSON_OBJECT ? tide_json_at(one, "modules") : one;
        tide_text rest = modules->text, piece;
        while (tide_piece_next(&rest, ',', &piece))
            if (tide_text_equal(piece, name)) return one;
    }
    return NULL;
}

/* Whether Liger itself leaves these modules as they are, by a size of the description. */
static bool is_left_alone(tide_model *model, uint32_t scope, const tide_json *class) {
    const tide_json *size = tide_json_at(class, "unless");
    return size && tide_size_in(model, scope, size->text.at).truth;
}

/* _bind_method_to_module(): the module keeps its members and gets another forward(). If its members or arguments
 * differ, it is of another kind, such as experts where others have an MLP. */
static bool is_alike(tide_descriptions *set, const tide_class *a, const tide_class *b) {
    if (a->parameter_count != b->parameter_count || a->member_count != b->member_count || !a->forward || !b->forward)
        return false;
    for (uint32_t i = 0; i < a->member_count; i++)
        if (!tide_text_equal(a->members[i].name, b->members[i].name)) return false;
    return tide_function_read(set, a->forward) && tide_function_read(set, b->forward) &&
           a->forward->parameter_count == b->forward->parameter_count;
}

static void replace_modules(liger_patch *p, liger_option *o, tide_description *description, const tide_json *classes) {
    tide_model *model = &p->run->model;
    for (uint32_t i = 1; i < model->instance_count; i++) {
        tide_instance *of = &model->instances[i];
        bool is_here = model->scopes[of->scope].description == description;
        const tide_json *class = is_here ? liger_class(classes, of->name) : NULL;
        tide_class *made = class ? tide_class_find(model->descriptions, description, class->key) : NULL;
        if (!made || !is_alike(model->descriptions, made, of->of)) continue;
        o->is_done = true;
        if (!is_left_alone(model, of->scope, class)) of->of = made;
    }
}

/* Functions under other names in the description are not replaced. */
static bool replace_functions(liger_patch *p, tide_description *description, const tide_json *functions) {
    for (const tide_json *one = functions ? functions->first : NULL; one; one = one->next)
        if (!tide_function_find(p->run->model.descriptions, description, one->key))
            return liger_fails(p, "liger.rope", description->name.at);
    description->replaced = functions;
    return true;
}

/* For one family: the model's own, or that of a part. */
static bool replace_in(liger_patch *p, tide_description *description, const tide_json *row) {
    if (row->kind != TIDE_JSON_OBJECT) return liger_fails(p, "use_liger_kernel", description->name.at);
    for (size_t i = 0; i < OPTIONS; i++) {
        liger_option *o = &p->options[i];
        const tide_json *classes = o->is_on ? tide_json_at(row, o->name) : NULL;
        if (!classes) continue;
        o->is_of_family = true;
        if (classes->kind != TIDE_JSON_OBJECT)
            return liger_fails(p, tide_format(p->run->machine.arena, "liger.%s", o->name), description->name.at);
        replace_modules(p, o, description, classes);
    }
    description->replaced = NULL; /* from another run with the same settings */
    return replace_functions(p, description, p->job->liger_rope ? tide_json_at(row, "rope") : NULL);
}

static bool fuses_loss(const liger_patch *p, const tide_json *row) {
    return p->job->liger_fused_linear_cross_entropy && !tide_trl_fuses_head(p->job) &&
           tide_json_at(row, "fused_linear_cross_entropy");
}

/* The loss is that of the root: chunked together with its head, or on its logits, which are then overwritten by their
 * gradient. */
static void replace_loss(liger_patch *p, const tide_json *row) {
    const tide_json *own = tide_json_at(row, "cross_entropy");
    bool is_of_logits = p->job->liger_cross_entropy == TIDE_liger_cross_entropy_default
                            ? own != NULL
                            : p->job->liger_cross_entropy == TIDE_liger_cross_entropy_true_;
    bool is_fused = fuses_loss(p, row);
    if (is_fused || is_of_logits)
        *tide_model_setting(&p->run->model, "loss_function") =
            (tide_value){.kind = TIDE_VALUE_TEXT, .text = is_fused ? TIDE_TEXT("liger") : TIDE_TEXT("liger_of_logits")};
}

static bool replace_all(liger_patch *p, const tide_json *table, const tide_json *root) {
    tide_model *model = &p->run->model;
    const tide_json *inside = tide_json_at(root, "inside");
    for (uint32_t i = 0; i < model->scope_count; i++) {
        tide_description *description = model->scopes[i].description;
        uint32_t first = 0;
        while (model->scopes[first].description != description) first++;
        const tide_json *row = inside ? liger_row(inside, description->name) : NULL;
        if (!row) row = liger_row(table, description->name);
        if (row && first == i && !replace_in(p, description, row)) return false;
    }
    for (size_t i = 0; i < OPTIONS; i++)
        if (p->options[i].is_of_family && !p->options[i].is_done)
            return liger_fails(p, tide_format(p->run->machine.arena, "liger.%s", p->options[i].name),
                               model->scopes[0].description->name.at);
    replace_loss(p, root);
    return true;
}

/* What the installed Liger says with the installed transformers; NULL: nothing. Its forward with the fused loss is that
 * of a causal model, whatever the class. */
static const char *words_of_failure(liger_patch *p, const tide_json *root, bool is_fused, const char **setting) {
    const tide_json *always = tide_json_at(root, "fails"), *fused = tide_json_at(root, "fused_fails");
    *setting = always ? "use_liger_kernel" : "liger.fused_linear_cross_entropy";
    if (always) return always->text.at;
    if (is_fused && fused) return fused->text.at;
    bool has_head = tide_model_find(&p->run->model, TIDE_TEXT("lm_head"));
    return is_fused && !has_head ? "object has no attribute 'lm_head'" : NULL;
}

static bool fails_itself(liger_patch *p, const tide_json *root) {
    tide_machine *m = &p->run->machine;
    const char *setting, *words = words_of_failure(p, root, fuses_loss(p, root), &setting);
    if (!words) return false;
    m->has_failed = true;
    tide_error(m->diags, TIDE_ERR_UNSUPPORTED, tide_format(m->arena, "/settings/%s", setting),
               tide_format(m->arena, "liger-kernel 0.8.5 fails with this model of transformers 5.23: \"%s\"", words),
               tide_format(m->arena, "%s=false leaves it out", setting));
    return true;
}

bool tide_apply_liger(tide_run *run, const tide_job *job) {
    const char *family = run->model.scopes[0].description->name.at;
    liger_patch p = {run,
                     job,
                     {{.name = "rms_norm", .is_on = job->liger_rms_norm},
                      {.name = "layer_norm", .is_on = job->liger_layer_norm},
                      {.name = "swiglu", .is_on = job->liger_swiglu}}};
    const tide_json *table = liger_table(run), *root = liger_row(table, tide_text_of(family));
    if (root && fails_itself(&p, root)) return false;
    if (root) return replace_all(&p, table, root);
    tide_report(run->machine.diags, TIDE_WARNING, TIDE_ERR_NO_EFFECT, "/settings/use_liger_kernel",
                tide_format(run->machine.arena, "has no effect: Liger has no kernels for '%s'", family), NULL);
    return true;
}
