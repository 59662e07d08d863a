/* SPDX-License-Identifier: Apache-2.0 */
/* Which parameters train, and their number. */
#include "train/run.h"

#include <string.h>

#include "base/regex.h"
#include "train/adapters.h"

/* Whether a pattern matches some parameter's name; if none, that is only reported. false: it cannot be matched. */
static bool check_pattern(const tide_run *run, const char *setting, const char *pattern, bool *is_found) {
    tide_machine *m = run->model.m;
    const char *place = tide_format(m->arena, "/settings/%s", setting);
    bool is_one = false;
    for (uint32_t k = 0; k < run->model.parameter_count; k++) {
        tide_match match = tide_regex_begins(tide_text_of(pattern), tide_text_of(run->model.parameters[k].name));
        if (match == TIDE_MATCH_WRONG)
            return tide_error(
                m->diags, TIDE_ERR_FIELD_TYPE, place,
                tide_format(m->arena, "\"%.60s\" is not a supported regular expression, or takes too long", pattern),
                "give prefixes of the names");
        is_one = is_one || match == TIDE_MATCH_YES;
    }
    if (!is_one)
        tide_report(m->diags, TIDE_WARNING, TIDE_ERR_FIELD_RANGE, place,
                    tide_format(m->arena, "\"%.60s\" matches no parameter's name, so it has no effect", pattern),
                    run->model.parameter_count
                        ? tide_format(m->arena, "names are such as %.80s", run->model.parameters[0].name)
                        : NULL);
    *is_found = *is_found || is_one;
    return true;
}

/* Whether each prefix matches the name of some parameter, and patterns at least one. */
static bool check_prefixes(const tide_run *run, const char *setting, const char **prefixes, uint32_t count) {
    tide_machine *m = run->model.m;
    bool has_pattern = false, matches = false;
    for (uint32_t i = 0; i < count; i++) {
        if (prefixes[i][0] == '^') {
            has_pattern = true;
            if (!check_pattern(run, setting, prefixes[i], &matches)) return false;
            continue;
        }
        bool is_found = false;
        for (uint32_t k = 0; k < run->model.parameter_count && !is_found; k++)
            is_found = tide_is_named(run->model.parameters[k].name, &prefixes[i], 1);
        for (uint32_t k = 1; k < run->model.instance_count && !is_found;
             k++) /* a tied parameter may have the other name */
            is_found = tide_is_named(run->model.instances[k].path, &prefixes[i], 1);
        matches = matches || is_found;
        if (is_found) continue;
        const char **parts = TIDE_NEW(m->arena, const char *, run->model.part_count);
        for (uint32_t k = 0; k < run->model.part_count; k++) parts[k] = run->model.parts[k];
        const char *near = tide_nearest(tide_text_of(prefixes[i]), parts, run->model.part_count);
        tide_text first = tide_text_of(run->model.parameter_count ? run->model.parameters[0].name : "");
        return tide_error(m->diags, TIDE_ERR_FIELD_RANGE, tide_format(m->arena, "/settings/%s", setting),
                          tide_format(m->arena, "no parameter's name begins with \"%.*s\"",
                                      (int)(strlen(prefixes[i]) < 60 ? strlen(prefixes[i]) : 60), prefixes[i]),
                          near && *near ? tide_format(m->arena, "did you mean %s?", near)
                                        : tide_format(m->arena, "names are such as %.*s",
                                                      (int)(first.length < 80 ? first.length : 80), first.at));
    }
    return !has_pattern || matches ||
           tide_error(m->diags, TIDE_ERR_FIELD_RANGE, tide_format(m->arena, "/settings/%s", setting),
                      "matches no parameter's name", NULL);
}

bool tide_check_prefixes(const tide_run *run, const tide_job *job) {
    return check_prefixes(run, "freeze", job->freeze.names, job->freeze.count) &&
           check_prefixes(run, "train_only", job->train_only.names, job->train_only.count);
}

void tide_choose_trainable(tide_run *run, const tide_job *job) {
    for (uint32_t i = 0; i < run->model.parameter_count; i++) {
        tide_parameter_row *p = &run->model.parameters[i];
        if (tide_is_named(p->name, job->freeze.names, job->freeze.count) ||
            (job->train_only.count && !tide_is_named(p->name, job->train_only.names, job->train_only.count)))
            p->tensor->requires_grad = false;
    }
}

void tide_count_parameters(tide_run *run) {
    for (uint32_t i = 0; i < run->model.parameter_count; i++) {
        tide_parameter_row *p = &run->model.parameters[i];
        p->count = tide_model_count(&run->model, p);
        run->parameters += p->count;
        if (p->tensor->requires_grad) run->trainable += p->count;
    }
}

void tide_checkpoint_trainable(tide_model *model) {
    bool *trains = TIDE_NEW(model->m->arena, bool, model->instance_count);
    for (uint32_t i = 0; i < model->parameter_count; i++) {
        const tide_parameter_row *row = &model->parameters[i];
        for (uint32_t at = row->module; at && row->tensor->requires_grad && !trains[at];
             at = model->instances[at].parent)
            trains[at] = true;
    }
    for (uint32_t i = 1; i < model->instance_count; i++) {
        tide_instance *of = &model->instances[i];
        of->skips_checkpoint = of->skips_checkpoint || !trains[i];
        of->makes_input_grad = trains[i];
    }
}

/* _set_gradient_checkpointing: layers are counted in the order of modules(). */
void tide_skip_layers(tide_model *model, int64_t every) {
    int64_t layers = 0;
    for (uint32_t i = 1; i < model->instance_count; i++)
        if (model->instances[i].of->is_checkpointed) model->instances[i].skips_checkpoint = layers++ % every != 0;
}
