/* SPDX-License-Identifier: Apache-2.0 */
/* Finding what was given and nothing reads: overrides, images, and sizes of a configuration with a stand-in. */
#include "train/run.h"

#include <string.h>

#include "base/units.h"

/* Whether a description reads a key of this object: the one being played over it, or over an object that contains it.
 */
static bool is_read(const tide_run *run, const tide_json *object, tide_text key) {
    const tide_json *below = NULL;
    for (const tide_json *node = object; node; below = node, node = node->parent)
        for (uint32_t i = 0; i < run->model.scope_count; i++) {
            const tide_scope *s = &run->model.scopes[i];
            if (s->config == node && tide_description_has_word(s->description, key) &&
                (!below || tide_description_has_word(s->description, below->key)))
                return true;
        }
    return false;
}

/* Keys that the loop itself reads. */
static bool is_of_loop(tide_text key) {
    static const char *const keys[] = {"model_type", "_class_name", "architecture", "architectures", "use_cache"};
    for (size_t i = 0; i < TIDE_COUNT_OF(keys); i++)
        if (tide_text_is(key, keys[i])) return true;
    return false;
}

static bool matches_one_of(tide_text key, const tide_json *patterns) {
    for (const tide_json *p = patterns ? patterns->first : NULL; p; p = p->next)
        if (p->kind == TIDE_JSON_STRING && tide_text_matches(key, p->text)) return true;
    return false;
}

/* Numbers of a configuration that its stand-in does not read may be sizes of parts that the stand-in lacks: then the
 * range is that of the library's "unread", except for keys in its "besides". */
static void check_stand_in(tide_run *run, const tide_job *job) {
    tide_machine *m = run->model.m;
    const tide_json *unread = NULL;
    for (const tide_description *d = run->descriptions.first; d && !unread; d = d->next)
        unread = tide_json_at(d->json, "unread");
    const tide_json *percent = unread ? tide_json_at(unread, "percent") : NULL,
                    *besides = unread ? tide_json_at(unread, "besides") : NULL;
    const char *names = NULL;
    for (const tide_json *entry = percent ? run->stand_in_of->first : NULL; entry; entry = entry->next) {
        bool is_size = entry->kind == TIDE_JSON_NUMBER && entry->is_integer && entry->integer > 1;
        if (!is_size || matches_one_of(entry->key, besides) || is_read(run, run->stand_in_of, entry->key)) continue;
        names = names ? tide_format(m->arena, "%s, %s", names, tide_shown(m->arena, entry->key))
                      : tide_shown(m->arena, entry->key);
    }
    if (!names || percent->integer <= run->stand_in_percent) return;
    int64_t otherwise = run->stand_in_percent;
    run->stand_in_percent = percent->integer;
    tide_report(m->diags, TIDE_ASSUMPTION, TIDE_OK, tide_job_config_place(m->arena, job, run->stand_in_of),
                tide_format(m->arena,
                            "what stands in for it does not read %s, which may be sizes of parts that it lacks: its "
                            "peak may differ by %lld %%, not by %lld %%",
                            names, (long long)percent->integer, (long long)otherwise),
                NULL);
}

/* Warns of an override that the model's descriptions do not read: a misspelt key, or one without effect on memory. */
static void check_override(const tide_run *run, const tide_job *job, const char *name) {
    tide_machine *m = run->model.m;
    const tide_json *above = job->config, *at = job->config;
    tide_text key = {"", 0};
    for (const char *part = name + strlen("overrides"); *part == '.';) { /* the last component that is a key */
        tide_text text = {part + 1, strcspn(part + 1, ".")};
        part += 1 + text.length;
        if (!at || at->kind != TIDE_JSON_OBJECT) break;
        above = at;
        key = (tide_text){tide_text_copy(m->arena, text), text.length};
        at = tide_json_find(at, key);
    }
    if (!key.length || is_of_loop(key)) return;
    if (is_read(run, above, tide_config_key(m->arena, above, key, m->diags))) return;
    const char **keys = TIDE_NEW(m->arena, const char *, above->count + 1);
    uint32_t count = 0;
    for (const tide_json *child = above->first; child; child = child->next)
        if (!tide_text_equal(child->key, key)) keys[count++] = child->key.at;
    const char *near = tide_nearest(key, keys, count);
    tide_report(m->diags, TIDE_WARNING, TIDE_ERR_NO_EFFECT, tide_format(m->arena, "/settings/%s", name),
                "has no effect: the model's description does not read it",
                near ? tide_format(m->arena, "did you mean %s?", near) : NULL);
}

/* Reports images for a model that takes none, or another number of them. */
static void check_images(const tide_run *run, const tide_job *job) {
    static const char *const settings[][2] = {
        {"images", "images"}, {"image_size", "image_height"}, {"video", "video_frames"}, {"audio", "audio_seconds"}};
    for (uint32_t i = 0; i < job->row_count; i++)
        for (size_t k = 0; k < TIDE_COUNT_OF(settings); k++)
            if (strcmp(job->rows[i].name, settings[k][0]) == 0 && job->rows[i].origin != TIDE_ORIGIN_DEFAULT &&
                strcmp(job->rows[i].value, "1") != 0 &&
                !tide_description_has_word(run->model.scopes[0].description, tide_text_of(settings[k][1])))
                tide_report(run->model.m->diags, TIDE_WARNING, TIDE_ERR_NO_EFFECT,
                            tide_format(run->model.m->arena, "/settings/%s", settings[k][0]),
                            "has no effect: the model's description does not read it", NULL);
}

void tide_check_unread(tide_run *run, const tide_job *job) {
    for (uint32_t i = 0; i < job->row_count; i++)
        if (strncmp(job->rows[i].name, "overrides.", 10) == 0) check_override(run, job, job->rows[i].name);
    check_images(run, job);
    if (run->stand_in_of) check_stand_in(run, job);
}

static bool model_reads(const tide_run *run, const char *variable) {
    for (uint32_t i = 0; i < run->model.setting_count; i++)
        if (strcmp(run->model.settings[i].name, variable) == 0) return run->model.settings[i].is_read;
    return false;
}

/* A model of images alone has no tokens. */
static void check_lengths_read(const tide_run *run, const tide_job *job) {
    if (!tide_job_has_lengths(job)) return;
    if (!model_reads(run, "seq") && !tide_trainer_completes(job))
        tide_report(run->machine.diags, TIDE_WARNING, TIDE_ERR_NO_EFFECT, "/settings/lengths",
                    "has no effect: the model does not read seq", NULL);
}

/* Whether a description marks a setting as read, which it reads under one or two other names; all others count as read.
 */
static bool is_marked(const tide_run *run, tide_setting_id id) {
    if (id == TIDE_SET_use_cache) return model_reads(run, "use_cache") || model_reads(run, "copied_use_cache");
    return id != TIDE_SET_trainer_disable_dropout || model_reads(run, "dropout_is_disabled");
}

/* Settings of generation, for a class whose inference is a single forward pass. */
static bool is_of_generation(const tide_run *run, const tide_job *job, tide_setting_id id) {
    return job->mode == TIDE_mode_infer && !run->has_decoded && job->cache != TIDE_cache_none &&
           (id == TIDE_SET_decode || id == TIDE_SET_cache || id == TIDE_SET_logits_to_keep);
}

static bool is_warned(const tide_diagnostics *diags, const char *place) {
    for (uint32_t i = 0; i < diags->count; i++)
        if (strcmp(diags->items[i].place, place) == 0 && diags->items[i].severity == TIDE_WARNING) return true;
    return false;
}

/* Whether a default that was assumed before the model was known is one that the model does not read. */
static bool is_idle_assumption(const tide_run *run, const tide_job *job, const tide_diagnostic *d) {
    static const char settings[] = "/settings/";
    if (d->severity != TIDE_ASSUMPTION || strncmp(d->place, settings, sizeof settings - 1) != 0) return false;
    const char *name = d->place + sizeof settings - 1;
    if (strcmp(name, "seq") == 0) return !model_reads(run, "seq") && !tide_trainer_completes(job);
    for (uint32_t i = 0; i < job->row_count; i++) {
        tide_setting_id id = job->rows[i].id;
        bool is_kernel = id == TIDE_SET_attention || id == TIDE_SET_sdpa_backend;
        if (strcmp(job->rows[i].name, name) != 0) continue;
        return is_of_generation(run, job, id) || (is_kernel && !model_reads(run, "attention"));
    }
    return false;
}

static void drop_assumptions(const tide_run *run, const tide_job *job) {
    tide_diagnostics *diags = run->model.m->diags;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < diags->count; i++)
        if (!is_idle_assumption(run, job, &diags->items[i])) diags->items[kept++] = diags->items[i];
    diags->count = kept;
}

void tide_check_unused(tide_run *run, const tide_job *job) {
    static const tide_setting_id said_elsewhere[] = {
        TIDE_SET_images,  TIDE_SET_image_size, TIDE_SET_video,   TIDE_SET_audio,  TIDE_SET_loss,
        TIDE_SET_packing, TIDE_SET_capability, TIDE_SET_trainer, TIDE_SET_freeze, TIDE_SET_adapter};
    tide_machine *m = run->model.m;
    check_lengths_read(run, job);
    drop_assumptions(run, job);
    for (uint32_t i = 0; i < job->row_count; i++) {
        const tide_setting_row *row = &job->rows[i];
        bool is_plain = row->is_default && row->id != TIDE_SET_attention;
        bool is_said = !row->variable || row->origin != TIDE_ORIGIN_USER || is_plain || strchr(row->name, '.');
        is_said = is_said || (row->id == TIDE_SET_batch && tide_trainer_completes(job)); /* read by rollouts.c */
        for (size_t k = 0; k < TIDE_COUNT_OF(said_elsewhere); k++) is_said = is_said || row->id == said_elsewhere[k];
        is_said = is_said || model_reads(run, row->variable);
        const char *place = tide_format(m->arena, "/settings/%s", row->name);
        bool is_given = row->origin == TIDE_ORIGIN_USER && !row->is_default;
        bool is_idle = is_given && is_of_generation(run, job, row->id);
        if (is_idle || !is_said || (is_given && !is_marked(run, row->id) && !is_warned(m->diags, place)))
            tide_report(m->diags, TIDE_WARNING, TIDE_ERR_NO_EFFECT, place,
                        is_idle ? "has no effect: inference of this class is one forward pass"
                                : "has no effect: the model does not read it",
                        NULL);
    }
}
