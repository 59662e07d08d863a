/* Words and files merged into a job: the model found, the card found, values checked against one
 * another, defaults reported. */
#include "job/links.h"
#include "job/settings.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/units.h"
#include "lang/embedded_models.h"

typedef struct job_builder {
    tide_arena *arena;
    tide_diagnostics *diags;
    tide_job *job;
    tide_arguments words;
    tide_inputs given;
    bool model_is_file; /* the configuration came as a file and names itself: no word for it in the
                           link */
    bool files_failed;
    const char *capability_default;
} job_builder;

static const char *value_of(const job_builder *b, tide_setting_id id) {
    return b->words.values[id];
}

static bool value_is(const job_builder *b, tide_setting_id id, const char *value) {
    return strcmp(value_of(b, id), value) == 0;
}

static int64_t int_of(const job_builder *b, tide_setting_id id) {
    int64_t value = 0;
    tide_text_to_i64(&value, tide_text_of(value_of(b, id)));
    return value;
}

static int64_t pico_of(const job_builder *b, tide_setting_id id) {
    int64_t pico = 0;
    tide_decimal_read(&pico, tide_text_of(value_of(b, id)));
    return pico;
}

static const char *place_of(const job_builder *b, tide_setting_id id) {
    return tide_format(b->arena, "/settings/%s", tide_settings[id].name);
}

/* ---- the model ---- */

/* The entry that is published under a path, as llava-hf/llava-1.5-7b-hf. */
static const tide_source *catalogue_published(tide_arena *arena, const char *path) {
    tide_text published = tide_text_of(tide_format(arena, "huggingface.co/%s\"", path));
    for (uint32_t i = 0; i < tide_catalogue_source_count; i++) {
        const tide_source whole = tide_source_whole(arena, &tide_catalogue_sources[i]);
        if (tide_text_contains(tide_text_of(tide_lowered(arena, (tide_text){whole.text, whole.length})), published))
            return &tide_catalogue_sources[i];
    }
    return NULL;
}

/* The entry of a name, or of a path. */
static const tide_source *catalogue_find(tide_arena *arena, const char *name) {
    const char *lowered = tide_lowered(arena, tide_text_of(name));
    return strchr(name, '/') ? catalogue_published(arena, lowered) : tide_catalogue_source(lowered);
}

/* The entry that the name continues: tuned models are called as their base, a dash and more. */
static const tide_source *catalogue_base(tide_arena *arena, const char *name) {
    char *base = tide_text_copy(arena, tide_text_of(name));
    for (char *dash; (dash = strrchr(base, '-'));) {
        *dash = 0;
        const tide_source *source = catalogue_find(arena, base);
        if (source) return source;
    }
    return NULL;
}

static const char *catalogue_near(tide_arena *arena, const char *name) {
    const char *slash = strrchr(name, '/'), *last = tide_lowered(arena, tide_text_of(slash ? slash + 1 : name));
    const tide_source *base = catalogue_base(arena, name);
    if (!base) base = catalogue_find(arena, last);
    if (!base) base = catalogue_base(arena, last);
    if (base) return base->name;
    const char **names = TIDE_NEW(arena, const char *, tide_catalogue_source_count + 1);
    for (uint32_t i = 0; i < tide_catalogue_source_count; i++) names[i] = tide_catalogue_sources[i].name;
    return tide_near_names(arena, tide_text_of(last), names, tide_catalogue_source_count);
}

static void model_unknown(job_builder *b, const char *name) {
    const char *near = catalogue_near(b->arena, name);
    const char *file = "give its config.json as a file";
    tide_error(b->diags, TIDE_ERR_MODEL_UNKNOWN, "/settings/model",
               tide_format(b->arena, "\"%s\" is not in the catalogue", tide_shown(b->arena, tide_text_of(name))),
               near ? tide_format(b->arena, "did you mean %s? Otherwise %s", near, file) : file);
}

static void model_of_catalogue(job_builder *b, const tide_source *source) {
    const char *place = tide_format(b->arena, "/models/%s", source->name);
    tide_source whole = tide_source_whole(b->arena, source);
    const tide_json *entry = tide_json_parse(b->arena, (tide_text){whole.text, whole.length}, place, b->diags);
    if (!entry || !tide_entry_read(&b->given, b->arena, entry, place, b->diags)) return;
    b->given.config_name = source->name;
    if (!b->given.title) b->given.title = source->name;
}

/* A description without a configuration has all its sizes in it. */
static void model_of_description(job_builder *b) {
    const tide_json *name = tide_json_at(b->given.description, "architecture");
    b->given.config = tide_json_new(b->arena, TIDE_JSON_OBJECT);
    b->given.config_name = b->given.title = tide_shown(b->arena, name->text);
    b->model_is_file = true;
}

/* A configuration that came as a file wins over the catalogue; a name that the catalogue lacks is
 * then a label. */
static void model_of_file(job_builder *b, const char *name) {
    b->model_is_file = true;
    if (!name[0]) return;
    if (catalogue_find(b->arena, name)) {
        tide_report(b->diags, TIDE_WARNING, TIDE_ERR_CONFLICT, "/settings/model",
                    tide_format(b->arena, "%s is not used: the configuration in %s is", name, b->given.config_file),
                    "give one of the two");
        return;
    }
    b->model_is_file = false;
    b->given.config_name = name;
}

/* A model that a file names by its path is taken from the catalogue where that has it. */
static void model_asked(job_builder *b) {
    const char *asked = b->given.asked_model;
    if (!asked || b->given.config || b->given.description || b->words.is_given[TIDE_SET_model]) return;
    const tide_source *source = catalogue_find(b->arena, asked);
    if (source)
        tide_setting_put(&b->words, TIDE_TEXT("model"), tide_text_of(source->name), TIDE_ORIGIN_FILE);
    else
        tide_error(b->diags, TIDE_ERR_MODEL_UNKNOWN, b->given.asked_place,
                   tide_format(b->arena, "\"%s\", which a file names, is not in the catalogue",
                               tide_shown(b->arena, tide_text_of(asked))),
                   "give its config.json too");
}

static void find_model(job_builder *b) {
    model_asked(b);
    const char *name = value_of(b, TIDE_SET_model);
    const tide_source *source = b->given.config ? NULL : catalogue_find(b->arena, name);
    if (b->given.config) {
        model_of_file(b, name);
    } else if (source) {
        model_of_catalogue(b, source);
    } else if (name[0]) {
        model_unknown(b, name);
    } else if (b->given.description) {
        model_of_description(b);
    } else if (!b->files_failed && !b->given.asked_model) {
        tide_error(b->diags, TIDE_ERR_FIELD_MISSING, "/settings/model", "no model is given",
                   "write model=NAME of the catalogue, or give a config.json");
    }
    tide_job *job = b->job;
    job->model = b->given.config_name ? b->given.config_name : "";
    job->model_title = b->given.title ? b->given.title : job->model;
    job->model_source = b->given.source ? b->given.source : "";
    job->published_parameters = b->given.published_parameters;
    job->preprocessor = b->given.preprocessor;
    job->description = b->given.description;
    job->description_text = b->given.description_text;
    if (b->given.checkpoint.count || b->given.checkpoint.index) {
        tide_checkpoint *checkpoint = TIDE_NEW(b->arena, tide_checkpoint, 1);
        *checkpoint = b->given.checkpoint;
        job->checkpoint = checkpoint;
    }
    if (b->given.config_file) job->config_text = b->given.config_text;
    job->preprocessor_text = b->given.preprocessor_text;
}

/* Weights that a checkpoint keeps quantised: followed where the job can have them so. Adapters train over bitsandbytes'
 * alone. */
static void read_quantization(job_builder *b) {
    const tide_json *from = tide_json_at(b->given.config, "quantization_config");
    bool is_training = value_is(b, TIDE_SET_mode, "train"),
         adapts = b->words.is_given[TIDE_SET_adapter] || b->words.method;
    if (!from || from->kind == TIDE_JSON_NULL || b->words.is_given[TIDE_SET_quant]) return;
    tide_arguments words = b->words;
    bool is_known = tide_quantization_read(&words, from);
    bool is_of_bitsandbytes =
        is_known && tide_setting_is_of(&tide_settings[TIDE_SET_quant_double], words.values[TIDE_SET_quant]);
    is_of_bitsandbytes = is_of_bitsandbytes || (is_known && strcmp(words.values[TIDE_SET_quant], "int8") == 0);
    if (is_known && (!is_training || (adapts && is_of_bitsandbytes))) {
        b->words = words;
        return;
    }
    tide_report(b->diags, TIDE_WARNING, TIDE_ERR_UNSUPPORTED, "/model/quantization_config",
                "is not followed: the weights are taken whole, in dtype",
                !is_known            ? NULL
                : is_of_bitsandbytes ? "add adapter=lora to train over the quantised weights"
                                     : "it is followed with mode=infer");
}

static void change_config(job_builder *b) {
    tide_json *config = b->given.config;
    if (!config) return;
    for (uint32_t i = 0; i < b->words.override_count; i++)
        tide_config_override(b->arena, config, &b->words.overrides[i], b->diags);
    if (value_of(b, TIDE_SET_dropout)[0]) tide_config_dropout(config, pico_of(b, TIDE_SET_dropout));
    read_quantization(b);
    b->job->config = config;
}

/* ---- the recipe ---- */

static void read_recipe(job_builder *b) {
    const char *name = value_of(b, TIDE_SET_recipe);
    for (uint32_t i = 0; i < tide_recipe_source_count; i++) {
        const tide_source *source = &tide_recipe_sources[i];
        if (strcmp(source->name, name) != 0) continue;
        const char *place = tide_format(b->arena, "/recipes/%s", name);
        tide_source whole = tide_source_whole(b->arena, source);
        const tide_json *recipe = tide_json_parse(b->arena, (tide_text){whole.text, whole.length}, place, b->diags);
        const tide_json *settings = tide_json_at(recipe, "settings");
        if (settings) tide_arguments_of_json(&b->words, settings, TIDE_ORIGIN_RECIPE);
    }
}

/* ---- versions ---- */

/* "2.4", "2.4.1" or "2.4.0+cu121" as 2004; 0: none of these. */
static int version_number(const char *text) {
    char *rest;
    long major = strtol(text, &rest, 10);
    if (rest == text || *rest != '.' || major < 0 || major > 99) return 0;
    const char *from = rest + 1;
    long minor = strtol(from, &rest, 10);
    if (rest == from || (*rest && *rest != '.' && *rest != '+' && *rest != 'a' && *rest != 'b' && *rest != 'r') ||
        minor < 0 || minor > 999)
        return 0;
    return (int)(1000 * major + minor);
}

/* What an older version has as a default where nothing is given; the rows of versions.def. */
static void read_versions(job_builder *b) {
    static const struct {
        tide_setting_id library, setting;
        int since;
        const char *before, *what, *source;
    } rows[] = {
#define TIDE_VERSION(library, major, minor, setting, before, what, source)                                             \
    {TIDE_SET_##library, TIDE_SET_##setting, 1000 * (major) + (minor), before, what, source},
#include "job/versions.def"
#undef TIDE_VERSION
    };
    static const tide_setting_id libraries[] = {TIDE_SET_torch, TIDE_SET_transformers};
    for (size_t i = 0; i < TIDE_COUNT_OF(libraries); i++)
        if (!version_number(value_of(b, libraries[i])))
            tide_error(b->diags, TIDE_ERR_FIELD_TYPE, place_of(b, libraries[i]),
                       tide_format(b->arena, "\"%s\" is no version",
                                   tide_shown(b->arena, tide_text_of(value_of(b, libraries[i])))),
                       tide_format(b->arena, "write as %s", tide_settings[libraries[i]].default_value));
    for (size_t i = 0; i < TIDE_COUNT_OF(rows); i++) {
        int number = version_number(value_of(b, rows[i].library));
        if (!number || number >= rows[i].since || b->words.is_given[rows[i].setting]) continue;
        tide_setting_put(&b->words, tide_text_of(tide_settings[rows[i].setting].name), tide_text_of(rows[i].before),
                         TIDE_ORIGIN_RECIPE);
        tide_report(b->diags, TIDE_ASSUMPTION, TIDE_OK, place_of(b, rows[i].setting),
                    tide_format(b->arena, "%s=%s: %s (%s)", tide_settings[rows[i].library].name,
                                value_of(b, rows[i].library), rows[i].what, rows[i].source),
                    NULL);
    }
}

/* ---- the card ---- */

/* Kernels depend on these where no card is given: an H100. */
enum { DEFAULT_CAPABILITY = 90, DEFAULT_SMS = 132, DEFAULT_THREADS_PER_SM = 2048 };

static const char *card_string(const tide_json *object, const char *key) {
    const tide_json *value = tide_json_at(object, key);
    return value && value->kind == TIDE_JSON_STRING ? value->text.at : "";
}

static int64_t card_integer(const tide_json *object, const char *key) {
    const tide_json *value = tide_json_at(object, key);
    return value && value->kind == TIDE_JSON_NUMBER && value->is_integer && value->integer > 0 ? value->integer : 0;
}

/* By name, or by title, in any case. */
static const tide_json *card_find(tide_arena *arena, const tide_json *list, const char *name) {
    const char *wanted = tide_lowered(arena, tide_text_of(name));
    for (const tide_json *card = list ? list->first : NULL; card; card = card->next)
        if (strcmp(card_string(card, "name"), wanted) == 0 ||
            strcmp(tide_lowered(arena, tide_text_of(card_string(card, "title"))), wanted) == 0)
            return card;
    return NULL;
}

/* The object of a card by its name, without reading all of them; empty where that is not simple. The objects are flat.
 */
static tide_text card_text(tide_arena *arena, tide_text all, const char *name) {
    const char *quoted = tide_format(arena, "\"%s\"", name);
    size_t length = strlen(quoted);
    for (const char *at = all.at; (at = strstr(at, quoted)); at += length) {
        const char *start = at, *end = at;
        while (start > all.at && *start != '{' && *start != '}') start--;
        while (*end && *end != '{' && *end != '}') end++;
        if (*start == '{' && *end == '}') return (tide_text){start, (size_t)(end - start) + 1};
    }
    return TIDE_TEXT("");
}

static const tide_json *card_alone(job_builder *b, const char *name) {
    tide_text text = card_text(b->arena, (tide_text){tide_gpu_source.text, tide_gpu_source.length}, name);
    const tide_json *card = text.length ? tide_json_parse(b->arena, text, "/gpus", b->diags) : NULL;
    return card && strcmp(card_string(card, "name"), name) == 0 ? card : NULL;
}

static void card_unknown(job_builder *b, const tide_json *list, const char *name) {
    uint32_t count = 0;
    const char **names = TIDE_NEW(b->arena, const char *, (list ? list->count : 0) + 1);
    for (const tide_json *card = list ? list->first : NULL; card; card = card->next)
        names[count++] = card_string(card, "name");
    const char *near = tide_near_names(b->arena, tide_text_of(name), names, count);
    const char *size = "give its memory as gpu_gib=SIZE";
    tide_error(b->diags, TIDE_ERR_FIELD_RANGE, "/settings/gpu",
               tide_format(b->arena, "\"%s\" is not a card that is known", tide_shown(b->arena, tide_text_of(name))),
               near ? tide_format(b->arena, "did you mean %s? Otherwise %s", near, size) : size);
}

static void find_card(job_builder *b) {
    const char *name = value_of(b, TIDE_SET_gpu);
    tide_gpu *gpu = &b->job->gpu;
    *gpu = (tide_gpu){.name = "",
                      .title = "",
                      .source = "",
                      .context_source = "",
                      .capability = DEFAULT_CAPABILITY,
                      .sms = DEFAULT_SMS,
                      .threads_per_sm = DEFAULT_THREADS_PER_SM};
    if (!name[0]) return;
    const tide_json *card = card_alone(b, name);
    if (!card) {
        const tide_json *root =
            tide_json_parse(b->arena, (tide_text){tide_gpu_source.text, tide_gpu_source.length}, "/gpus", b->diags);
        const tide_json *list = tide_json_at(root, "gpus");
        if (!(card = card_find(b->arena, list, name))) {
            card_unknown(b, list, name);
            return;
        }
    }
    b->job->has_gpu = true;
    *gpu = (tide_gpu){.name = card_string(card, "name"),
                      .title = card_string(card, "title"),
                      .source = card_string(card, "source"),
                      .context_source = card_string(card, "context_source"),
                      .bytes = (uint64_t)card_integer(card, "bytes"),
                      .context_bytes = (uint64_t)card_integer(card, "context_bytes"),
                      .capability = (int)card_integer(card, "capability"),
                      .sms = (int)card_integer(card, "sms"),
                      .threads_per_sm = (int)card_integer(card, "threads_per_sm")};
    b->words.values[TIDE_SET_gpu] = gpu->name;
}

/* Whole MiB, as the oracle's device counts them. */
static uint64_t bytes_of_gib(int64_t pico) {
    uint64_t mib = (uint64_t)(pico / TIDE_PICO) * 1024 + (uint64_t)(pico % TIDE_PICO) * 1024 / (uint64_t)TIDE_PICO;
    return mib << 20;
}

static void size_device(job_builder *b) {
    tide_job *job = b->job;
    bool has_size = value_of(b, TIDE_SET_gpu_gib)[0] != 0, has_fraction = value_of(b, TIDE_SET_memory_fraction)[0] != 0;
    b->capability_default = tide_format(b->arena, "%d", job->gpu.capability);
    if (!value_of(b, TIDE_SET_capability)[0]) b->words.values[TIDE_SET_capability] = b->capability_default;
    job->capability = (int)int_of(b, TIDE_SET_capability);
    job->device_bytes = has_size ? bytes_of_gib(pico_of(b, TIDE_SET_gpu_gib)) : job->gpu.bytes;
    job->memory_fraction_ppm = has_fraction ? pico_of(b, TIDE_SET_memory_fraction) / (TIDE_PICO / 1000000) : 0;
}

static void warn_of_fraction(job_builder *b) {
    if (b->job->memory_fraction_ppm && !b->job->device_bytes)
        tide_report(b->diags, TIDE_WARNING, TIDE_ERR_CONFLICT, "/settings/memory_fraction",
                    "has no effect: a device without limit has no part", "give gpu=NAME or gpu_gib=SIZE");
}

/* ---- the other values ---- */

static void read_allocator(job_builder *b) {
    tide_job *job = b->job;
    tide_alloc_conf_error error;
    job->allocator = value_of(b, TIDE_SET_allocator);
    if (!tide_alloc_conf_parse(&job->allocator_conf, TIDE_ALLOC_TORCH_MAIN, job->allocator, strlen(job->allocator),
                               &error)) {
        tide_error(b->diags, TIDE_ERR_FIELD_RANGE, "/settings/allocator",
                   tide_format(b->arena, "PyTorch refuses it at character %u: %s", (unsigned)error.offset + 1,
                               tide_text_copy(b->arena, tide_text_of(error.message))),
                   "write key:value pairs, as expandable_segments:True,max_split_size_mb:128");
        return;
    }
    static const struct {
        unsigned bit;
        const char *message;
    } warnings[] = {
        {TIDE_ALLOC_CONF_ASYNC_IGNORES, "cudaMallocAsync ignores the native allocator's options"},
        {TIDE_ALLOC_CONF_NOT_MODELLED, "holds an option that has no effect on the answer"},
        {TIDE_ALLOC_CONF_TRAILING_TEXT, "PyTorch reads the digits of a number and drops what follows them"},
    };
    for (size_t i = 0; i < TIDE_COUNT_OF(warnings); i++)
        if (job->allocator_conf.warnings & warnings[i].bit)
            tide_report(b->diags, TIDE_WARNING, TIDE_ERR_FIELD_RANGE, "/settings/allocator", warnings[i].message, NULL);
    if (job->allocator_conf.is_approximate)
        tide_report(b->diags, TIDE_WARNING, TIDE_ERR_UNSUPPORTED, "/settings/allocator",
                    "cudaMallocAsync grows by the driver's own rules: reserved memory is an estimate", NULL);
}

static tide_name_list list_of(const job_builder *b, tide_setting_id id) {
    return tide_names_of(b->arena, value_of(b, id));
}

/* dtype=auto: what the configuration says, or else fp32; modeling_utils.py. */
static void choose_dtype(job_builder *b) {
    const tide_json *stated = tide_json_at(b->given.config, "dtype");
    if (!value_is(b, TIDE_SET_dtype, "auto")) return;
    if (!stated || stated->kind != TIDE_JSON_STRING) stated = tide_json_at(b->given.config, "torch_dtype");
    bool is_text = stated && stated->kind == TIDE_JSON_STRING;
    b->words.values[TIDE_SET_dtype] = is_text && tide_text_is(stated->text, "bfloat16")  ? "bf16"
                                      : is_text && tide_text_is(stated->text, "float16") ? "fp16"
                                                                                         : "fp32";
    tide_report(b->diags, TIDE_ASSUMPTION, TIDE_OK, place_of(b, TIDE_SET_dtype),
                tide_format(b->arena, "%s weights, as the configuration says", value_of(b, TIDE_SET_dtype)), NULL);
}

/* "336x448" as numbers; a setting that was read before. */
static void read_sides(const char *text, int64_t *const *sides, int count) {
    tide_text rest = tide_text_of(text), part;
    for (int i = 0; i < count && tide_piece_next(&rest, 'x', &part); i++) tide_text_to_i64(sides[i], part);
}

static void fill_values(job_builder *b) {
    tide_job *job = b->job;
    choose_dtype(b);
    job->mode = value_of(b, TIDE_SET_mode);
    job->decode = int_of(b, TIDE_SET_decode);
    job->logits_to_keep = int_of(b, TIDE_SET_logits_to_keep);
    job->cache = value_of(b, TIDE_SET_cache);
    job->batch = int_of(b, TIDE_SET_batch);
    job->seq = int_of(b, TIDE_SET_seq);
    job->target_seq = int_of(b, TIDE_SET_target_seq);
    job->images = int_of(b, TIDE_SET_images);
    int64_t *const image[] = {&job->image_height, &job->image_width};
    int64_t *const video[] = {&job->video_frames, &job->video_height, &job->video_width};
    job->audio_seconds = int_of(b, TIDE_SET_audio);
    read_sides(value_of(b, TIDE_SET_image_size), image, 2);
    read_sides(value_of(b, TIDE_SET_video), video, 3);
    job->dtype = value_of(b, TIDE_SET_dtype);
    job->autocast = value_is(b, TIDE_SET_autocast, "none") ? NULL : value_of(b, TIDE_SET_autocast);
    job->scaler = value_is(b, TIDE_SET_scaler, "true");
    job->optimizer = value_of(b, TIDE_SET_optimizer);
    job->param_groups = value_of(b, TIDE_SET_param_groups);
    job->freeze = list_of(b, TIDE_SET_freeze);
    job->train_only = list_of(b, TIDE_SET_train_only);
    job->quant = value_of(b, TIDE_SET_quant);
    job->quant_bits = int_of(b, TIDE_SET_quant_bits);
    job->quant_group_size = int_of(b, TIDE_SET_quant_group_size);
    job->quant_zero_point = value_is(b, TIDE_SET_quant_zero_point, "true");
    job->quant_is_float = value_is(b, TIDE_SET_quant_type, "float");
    job->quant_double = value_is(b, TIDE_SET_quant_double, "true");
    job->quant_compute_dtype =
        value_is(b, TIDE_SET_quant_compute_dtype, "default") ? job->dtype : value_of(b, TIDE_SET_quant_compute_dtype);
    job->quant_blocksize = int_of(b, TIDE_SET_quant_blocksize);
    job->quant_skip = list_of(b, TIDE_SET_quant_skip);
    job->quant_loaded = value_is(b, TIDE_SET_quant_from_pretrained, "true");
    job->kbit_prepare = value_is(b, TIDE_SET_kbit_prepare, "true");
    tide_adapter_fill(&b->words, &job->adapter);
    job->checkpointing = value_of(b, TIDE_SET_checkpointing);
    job->attention = value_of(b, TIDE_SET_attention);
    job->sdpa_backend = value_of(b, TIDE_SET_sdpa_backend);
    job->grad_accum = int_of(b, TIDE_SET_grad_accum);
    job->zero_grad = value_of(b, TIDE_SET_zero_grad);
    job->zero_grad_at = value_of(b, TIDE_SET_zero_grad_at);
    job->has_main_grads = value_is(b, TIDE_SET_main_grads, "fp32");
    job->ema = value_of(b, TIDE_SET_ema);
    job->clips = value_of(b, TIDE_SET_clip)[0] != 0;
    job->labels = value_is(b, TIDE_SET_labels, "true");
    job->loss = value_of(b, TIDE_SET_loss);
    job->padding = value_is(b, TIDE_SET_padding, "true");
    job->packing = value_is(b, TIDE_SET_packing, "true");
    job->use_cache = value_is(b, TIDE_SET_use_cache, "default") ? -1 : value_is(b, TIDE_SET_use_cache, "true");
    job->hold_outputs = value_is(b, TIDE_SET_hold_outputs, "true");
    job->load = value_of(b, TIDE_SET_load);
    job->keeps_workspaces = value_is(b, TIDE_SET_gemm_workspace, "kept");
    job->steps = int_of(b, TIDE_SET_steps);
}

static void fill_options(job_builder *b) {
    for (unsigned i = 0; i < TIDE_OPTION_COUNT; i++)
        b->job->options[i] = value_of(b, (tide_setting_id)(TIDE_SET_parallel_kind + i));
}

int64_t tide_option_int(const tide_job *job, tide_option option, int64_t otherwise) {
    int64_t value = otherwise;
    if (job->options[option][0]) tide_text_to_i64(&value, tide_text_of(job->options[option]));
    return value;
}

bool tide_option_is(const tide_job *job, tide_option option, const char *value) {
    return strcmp(job->options[option], value) == 0;
}

bool tide_option_true(const tide_job *job, tide_option option, bool otherwise) {
    return job->options[option][0] ? tide_option_is(job, option, "true") : otherwise;
}

/* A file's option of a kind in whose place the user chose another. */
static bool was_replaced(const job_builder *b, tide_setting_id id) {
    return b->words.origins[id] != TIDE_ORIGIN_USER && b->words.is_given[TIDE_SET_parallel_kind] &&
           b->words.origins[TIDE_SET_parallel_kind] == TIDE_ORIGIN_USER;
}

static void check_options(job_builder *b) {
    const tide_job *job = b->job;
    const char *kind = job->options[TIDE_OPTION_kind];
    int64_t dp = tide_option_int(job, TIDE_OPTION_dp, 1), rank = tide_option_int(job, TIDE_OPTION_rank, 0);
    bool is_alone = strcmp(kind, "none") == 0;
    for (unsigned id = TIDE_SET_parallel_kind; id < TIDE_SET_COUNT; id++)
        if (b->words.is_given[id] && !tide_setting_is_of(&tide_settings[id], kind) &&
            !was_replaced(b, (tide_setting_id)id))
            tide_error(
                b->diags, TIDE_ERR_CONFLICT, place_of(b, (tide_setting_id)id),
                tide_format(b->arena, "is no option of parallel.kind=%s", kind),
                tide_format(b->arena, "leave it out, or choose a kind that has it (%s)", tide_settings[id].kinds));
    if (rank >= dp)
        tide_error(b->diags, TIDE_ERR_FIELD_RANGE, "/settings/parallel.rank",
                   tide_format(b->arena, "is %lld; ranks of parallel.dp=%lld go from 0 to %lld", (long long)rank,
                               (long long)dp, (long long)(dp - 1)),
                   NULL);
    if (is_alone && dp > 1)
        tide_error(b->diags, TIDE_ERR_CONFLICT, "/settings/parallel.dp", "several GPUs need a kind of parallelism",
                   "add parallel.kind=ddp, zero2, ...");
    if (!is_alone && (strcmp(job->optimizer, "muon") == 0 ||
                      tide_text_matches(tide_text_of(job->optimizer), TIDE_TEXT("*schedulefree*"))))
        tide_error(b->diags, TIDE_ERR_UNSUPPORTED, "/settings/optimizer",
                   tide_format(b->arena, "%s is not described with parallel.kind", job->optimizer),
                   "use another optimizer, or one GPU");
    if (!is_alone && job->scaler)
        tide_error(b->diags, TIDE_ERR_UNSUPPORTED, "/settings/scaler",
                   "a GradScaler is not described with parallel.kind", "use bf16");
}

/* What is described for one GPU alone, or for weights that are not quantised. */
static void check_copies(job_builder *b) {
    const tide_job *job = b->job;
    bool is_alone = value_is(b, TIDE_SET_parallel_kind, "none"), is_quantised = strcmp(job->quant, "none") != 0,
         averages = strcmp(job->ema, "none") != 0;
    if (!is_alone && averages)
        tide_error(b->diags, TIDE_ERR_UNSUPPORTED, "/settings/ema", "is not described with parallel.kind",
                   "use one GPU");
    if (!is_alone && job->has_main_grads)
        tide_error(b->diags, TIDE_ERR_UNSUPPORTED, "/settings/main_grads", "is not described with parallel.kind",
                   "use parallel.kind=zero1 with parallel.grad_accum_dtype=fp32, or one GPU");
    if (!is_alone && strcmp(job->zero_grad_at, "after_step") != 0)
        tide_error(b->diags, TIDE_ERR_UNSUPPORTED, "/settings/zero_grad_at",
                   tide_format(b->arena, "%s is not described with parallel.kind", job->zero_grad_at), "leave it out");
    if (is_quantised && averages)
        tide_error(b->diags, TIDE_ERR_UNSUPPORTED, "/settings/ema", "of quantised weights is not described",
                   "use quant=none");
    if (job->scaler && job->has_main_grads)
        tide_error(b->diags, TIDE_ERR_UNSUPPORTED, "/settings/main_grads",
                   "with a torch.amp.GradScaler is not described", "use bf16");
    if (job->has_main_grads && strcmp(job->optimizer, "none") == 0)
        tide_error(b->diags, TIDE_ERR_CONFLICT, "/settings/main_grads", "needs an optimizer, which has the fp32 copies",
                   "name one");
}

/* Settings OBJECT.KEY, from first to last, that are given and that the choice of OBJECT does not read. */
static void check_unread(job_builder *b, tide_setting_id object, tide_setting_id first, tide_setting_id last) {
    for (unsigned id = first; id <= last; id++)
        if (b->words.is_given[id] && strcmp(value_of(b, id), tide_settings[id].default_value) != 0 &&
            (value_is(b, object, "none") || !tide_setting_is_of(&tide_settings[id], value_of(b, object))))
            tide_report(
                b->diags, TIDE_WARNING, TIDE_ERR_CONFLICT, place_of(b, id),
                tide_format(b->arena, "changes nothing with %s=%s", tide_settings[object].name, value_of(b, object)),
                NULL);
}

static void check_together(job_builder *b) {
    check_options(b);
    check_copies(b);
    bool is_training = strcmp(b->job->mode, "train") == 0;
    if (!is_training && tide_setting_is_of(&tide_settings[TIDE_SET_adapter_num_virtual_tokens], b->job->adapter.method))
        tide_error(b->diags, TIDE_ERR_UNSUPPORTED, "/settings/adapter",
                   tide_format(b->arena, "inference with %s is not expressed", b->job->adapter.method),
                   "use mode=train, or leave it out and add its virtual tokens to seq");
    if (b->job->packing && b->job->padding)
        tide_error(b->diags, TIDE_ERR_CONFLICT, "/settings/packing", "packed rows have no padding",
                   "leave one of packing and padding out");
    if (b->job->packing && !is_training)
        tide_error(b->diags, TIDE_ERR_CONFLICT, "/settings/packing", "rows are packed for training",
                   "use mode=train, or leave it out");
    if (b->job->packing &&
        tide_setting_is_of(&tide_settings[TIDE_SET_adapter_num_virtual_tokens], b->job->adapter.method))
        tide_error(b->diags, TIDE_ERR_UNSUPPORTED, "/settings/packing",
                   tide_format(b->arena, "with %s is not expressed", b->job->adapter.method), "leave one out");
    bool is_packed = tide_setting_is_of(&tide_settings[TIDE_SET_quant_group_size], b->job->quant);
    if (is_packed && is_training)
        tide_error(b->diags, TIDE_ERR_UNSUPPORTED, "/settings/quant",
                   tide_format(b->arena, "training over %s is not expressed", b->job->quant),
                   "use mode=infer, or nf4, fp4 or int8");
    if (is_packed && strcmp(b->job->adapter.method, "none") != 0 && !b->job->adapter.merged)
        tide_error(b->diags, TIDE_ERR_UNSUPPORTED, "/settings/adapter",
                   tide_format(b->arena, "adapters over %s are not expressed", b->job->quant), "leave them out");
    if (is_packed && strcmp(b->job->quant, "fp8") != 0 && b->job->quant_bits != 2 && b->job->quant_bits != 3 &&
        b->job->quant_bits != 4 && b->job->quant_bits != 8)
        tide_error(b->diags, TIDE_ERR_FIELD_RANGE, "/settings/quant.bits", "must be 2, 3, 4 or 8", NULL);
    if (is_training && b->job->adapter.merged)
        tide_error(b->diags, TIDE_ERR_CONFLICT, "/settings/adapter.merged", "merged adapters do not train",
                   "use mode=infer, or adapter.merged=false");
    check_unread(b, TIDE_SET_quant, TIDE_SET_quant_bits, TIDE_SET_quant_from_pretrained);
    check_unread(b, TIDE_SET_adapter, TIDE_SET_adapter_r, TIDE_SET_adapter_merged);
    if (!is_training && !value_is(b, TIDE_SET_parallel_kind, "none"))
        tide_error(b->diags, TIDE_ERR_CONFLICT, "/settings/parallel.kind", "inference on several GPUs is not expressed",
                   "use mode=train, or one GPU");
    if (b->job->steps == 1 && is_training)
        tide_report(b->diags, TIDE_WARNING, TIDE_ERR_FIELD_RANGE, "/settings/steps",
                    "is 1: optimizer state is made at its end, so later steps may need more", "use steps=2");
}

/* ---- assumptions ---- */

static void job_assume(job_builder *b, tide_setting_id id, const char *text) {
    if (!b->words.is_given[id]) tide_report(b->diags, TIDE_ASSUMPTION, TIDE_OK, place_of(b, id), text, NULL);
}

/* What the configuration tells of the model, for assumptions only: which of them concern it. */
static bool config_has(const job_builder *b, const char *key) {
    return tide_json_at(b->job->config, key) || tide_json_at(tide_json_at(b->job->config, "text_config"), key);
}

static bool config_generates(const job_builder *b) {
    static const char *const heads[] = {"*CausalLM*", "*LMHead*", "*ConditionalGeneration*"};
    const tide_json *names = tide_json_at(b->job->config, "architectures");
    if (!names || names->kind != TIDE_JSON_ARRAY || !names->first) return config_has(b, "vocab_size");
    for (size_t i = 0; i < TIDE_COUNT_OF(heads); i++)
        if (names->first->kind == TIDE_JSON_STRING && tide_text_matches(names->first->text, tide_text_of(heads[i])))
            return true;
    return false;
}

static void assume_data(job_builder *b) {
    const tide_json *config = b->job->config;
    bool sees_images = tide_json_at(config, "vision_config") || tide_json_at(config, "image_size");
    job_assume(b, TIDE_SET_batch, "1 sample per micro-batch");
    if (config_has(b, "vocab_size")) {
        job_assume(b, TIDE_SET_seq, "512 tokens of text per sample");
        job_assume(b, TIDE_SET_padding, "no mask of padded positions: every sample fills seq");
    }
    if (tide_json_at(config, "image_token_index") || tide_json_at(config, "image_token_id"))
        job_assume(b, TIDE_SET_images, "1 image per sample");
    if (sees_images) job_assume(b, TIDE_SET_image_size, "the size that the model's preprocessor makes");
}

static void assume_precision(job_builder *b) {
    const tide_json *stated = tide_json_at(b->job->config, "torch_dtype");
    if (!stated) stated = tide_json_at(b->job->config, "dtype");
    bool differs = stated && stated->kind == TIDE_JSON_STRING && !tide_text_is(stated->text, "bfloat16");
    job_assume(b, TIDE_SET_dtype,
               differs ? tide_format(b->arena, "bf16 weights and gradients (the configuration says %s)",
                                     tide_shown(b->arena, stated->text))
                       : "bf16 weights and gradients");
    job_assume(b, TIDE_SET_autocast, "no autocast: operations run in the type of the weights");
}

static void assume_adapter(job_builder *b) {
    const char *method = b->job->adapter.method;
    if (strcmp(b->job->quant, "none") != 0)
        job_assume(b, TIDE_SET_quant_skip, "every linear layer but the output head is quantised");
    if (tide_setting_is_of(&tide_settings[TIDE_SET_quant_group_size], b->job->quant))
        tide_report(b->diags, TIDE_ASSUMPTION, TIDE_OK, place_of(b, TIDE_SET_quant),
                    tide_format(b->arena,
                                "%s weights of %lld bits by their packing rules; the kernel of a product takes nothing "
                                "besides its output",
                                b->job->quant, strcmp(b->job->quant, "fp8") == 0 ? 8LL : (long long)b->job->quant_bits),
                    NULL);
    if (strcmp(b->job->quant, "int8") == 0)
        tide_report(b->diags, TIDE_ASSUMPTION, TIDE_OK, place_of(b, TIDE_SET_quant),
                    "int8: no activation is beyond the threshold of 6; columns that are (outliers) are copied", NULL);
    if (strcmp(method, "none") == 0) return;
    if (tide_setting_is_of(&tide_settings[TIDE_SET_adapter_num_virtual_tokens], method))
        job_assume(b, TIDE_SET_adapter_num_virtual_tokens, "20 trained tokens go before each sample");
    if (strcmp(method, "ia3") == 0)
        job_assume(b, TIDE_SET_adapter_target_modules,
                   "what peft takes by the model_type is rescaled, and the last layer of the MLP by its input");
    if (strcmp(method, "lora") == 0) {
        job_assume(b, TIDE_SET_adapter_target_modules, "adapters on every linear layer but the output head");
        job_assume(b, TIDE_SET_adapter_r, "adapters of rank 16");
        job_assume(b, TIDE_SET_adapter_dropout, "no dropout before adapters");
    }
    job_assume(b, TIDE_SET_adapter_autocast_adapter_dtype,
               "adapters in fp32, as peft makes them for a model in half precision");
}

static void assume_training(job_builder *b) {
    bool has_steps = strcmp(b->job->optimizer, "none") != 0;
    job_assume(b, TIDE_SET_optimizer,
               "torch.optim.AdamW as PyTorch makes it: foreach, two states per parameter in its type");
    bool has_adapter = strcmp(b->job->adapter.method, "none") != 0;
    if (strcmp(b->job->quant, "none") != 0)
        job_assume(b, TIDE_SET_kbit_prepare,
                   "peft.prepare_model_for_kbit_training: what is not quantised is kept in fp32 and frozen");
    if (b->job->train_only.count == 0 && !has_adapter)
        job_assume(b, TIDE_SET_freeze, "nothing is frozen: every parameter trains");
    job_assume(b, TIDE_SET_grad_accum, "1: an optimizer step after every micro-batch");
    if (has_steps) job_assume(b, TIDE_SET_zero_grad, "gradients are freed after every step (set_to_none)");
    if (has_steps) job_assume(b, TIDE_SET_clip, "gradients are not clipped");
    job_assume(b, TIDE_SET_hold_outputs, "the model's output is dropped before backward");
    job_assume(b, TIDE_SET_checkpointing, "no checkpointing: what backward needs of every layer is kept");
}

static void assume_versions(job_builder *b) {
    job_assume(b, TIDE_SET_torch, "allocations and defaults of PyTorch 2.15; of an older one where it is given");
    job_assume(b, TIDE_SET_transformers, "modules and defaults of transformers 5.23");
}

static void assume_inference(job_builder *b) {
    job_assume(b, TIDE_SET_cache, "a DynamicCache, as generate() makes it");
    job_assume(b, TIDE_SET_decode, "8 tokens after the prompt; the cache grows with each");
    job_assume(b, TIDE_SET_logits_to_keep, "logits of the prompt's last token alone, as generate() asks for them");
}

static void assume_kernels(job_builder *b) {
    const tide_job *job = b->job;
    job_assume(b, TIDE_SET_attention, "sdpa, as transformers chooses");
    if (strcmp(job->attention, "sdpa") == 0)
        job_assume(b, TIDE_SET_sdpa_backend,
                   tide_format(b->arena, "the kernel that PyTorch picks at capability %d", job->capability));
    if (config_generates(b))
        job_assume(b, TIDE_SET_use_cache,
                   strcmp(job->checkpointing, "none") == 0
                       ? "the model's default: transformers fills a DynamicCache even when training"
                       : "the model's default, which checkpointing turns off");
}

static void assume_device(job_builder *b) {
    const tide_job *job = b->job;
    if (!job->has_gpu)
        job_assume(b, TIDE_SET_gpu,
                   tide_format(b->arena, "no gpu given: kernels as on an H100 of capability %d, %s, no context counted",
                               job->capability, job->device_bytes ? "memory as gpu_gib says" : "memory without limit"));
    job_assume(b, TIDE_SET_allocator, "PyTorch's own defaults: PYTORCH_CUDA_ALLOC_CONF is not set");
    job_assume(b, TIDE_SET_load, "weights reach the device one by one, as .to(\"cuda\") moves them");
    if (strcmp(value_of(b, TIDE_SET_parallel_kind), "zero3") == 0)
        job_assume(b, TIDE_SET_parallel_zero_init,
                   "the whole model reaches the device before it is cut; true: as it is made, as from_pretrained() "
                   "does under a file of stage 3");
    if (strcmp(value_of(b, TIDE_SET_parallel_kind), "fsdp2") == 0)
        job_assume(
            b, TIDE_SET_parallel_meta_init,
            "the whole model reaches the device before it is cut; true: made on the meta device, parts alone reach it");
}

/* ---- rows ---- */

static void row_add(job_builder *b, const char *name, const char *value, tide_origin origin) {
    b->job->rows[b->job->row_count++] = (tide_setting_row){name, value, origin};
}

/* Options of a kind that is not played would only be noise. */
static bool is_option_read(const job_builder *b, tide_setting_id id) {
    const char *kind = value_of(b, TIDE_SET_parallel_kind);
    return id <= TIDE_SET_parallel_kind || (strcmp(kind, "none") != 0 && tide_setting_is_of(&tide_settings[id], kind));
}

static void write_rows(job_builder *b) {
    b->job->rows = TIDE_NEW(b->arena, tide_setting_row, TIDE_SET_COUNT + b->words.override_count);
    for (unsigned i = 0; i < TIDE_SET_COUNT; i++) {
        tide_setting_id id = (tide_setting_id)i;
        if (id == TIDE_SET_model) {
            row_add(b, "model", b->job->model, b->model_is_file ? TIDE_ORIGIN_FILE : b->words.origins[id]);
        } else if (id == TIDE_SET_overrides) {
            for (uint32_t k = 0; k < b->words.override_count; k++)
                row_add(b, tide_format(b->arena, "overrides.%s", b->words.overrides[k].path),
                        b->words.overrides[k].text, b->words.overrides[k].origin);
        } else if (is_option_read(b, id)) {
            row_add(b, tide_settings[id].name, value_of(b, id),
                    b->words.is_given[id] ? b->words.origins[id] : TIDE_ORIGIN_DEFAULT);
        }
    }
}

/* ---- the whole ---- */

enum { WORD_LIMIT = 4096 };

tide_job *tide_job_build(tide_arena *arena, const tide_text *words, uint32_t word_count, const tide_file *files,
                         uint32_t file_count, tide_diagnostics *diags) {
    job_builder b = {.arena = arena, .diags = diags, .job = TIDE_NEW(arena, tide_job, 1)};
    uint32_t errors = diags->error_count;
    tide_arguments_init(&b.words, arena, diags);
    tide_files_read(&b.given, &b.words, files, file_count);
    b.files_failed = diags->error_count != errors;
    if (word_count > WORD_LIMIT) {
        tide_error(diags, TIDE_ERR_LIMIT, "/settings", "more than 4096 words", "a job has a few dozen settings");
        word_count = WORD_LIMIT;
    }
    for (uint32_t i = 0; i < word_count; i++) tide_argument_read(&b.words, words[i], TIDE_ORIGIN_USER, i == 0);
    read_recipe(&b);
    read_versions(&b);
    find_model(&b);
    change_config(&b);
    find_card(&b);
    size_device(&b);
    warn_of_fraction(&b);
    fill_values(&b);
    fill_options(&b);
    read_allocator(&b);
    check_together(&b);
    if (diags->error_count != errors) return NULL;
    assume_data(&b);
    assume_precision(&b);
    assume_adapter(&b);
    if (value_is(&b, TIDE_SET_mode, "train"))
        assume_training(&b);
    else
        assume_inference(&b);
    assume_kernels(&b);
    assume_device(&b);
    assume_versions(&b);
    write_rows(&b);
    b.job->names_itself = b.model_is_file;
    b.job->link = tide_link_write(arena, b.job);
    b.job->files = b.given.cards;
    return b.job;
}

static bool is_of_device(unsigned id) {
    return id == TIDE_SET_gpu || id == TIDE_SET_gpu_gib || id == TIDE_SET_memory_fraction || id == TIDE_SET_allocator;
}

tide_job *tide_job_device(tide_arena *arena, const tide_text *words, uint32_t word_count, tide_diagnostics *diags) {
    job_builder b = {.arena = arena, .diags = diags, .job = TIDE_NEW(arena, tide_job, 1)};
    uint32_t errors = diags->error_count;
    tide_arguments_init(&b.words, arena, diags);
    for (uint32_t i = 0; i < word_count; i++) tide_argument_read(&b.words, words[i], TIDE_ORIGIN_USER, false);
    b.job->rows = TIDE_NEW(arena, tide_setting_row, TIDE_SET_COUNT);
    for (unsigned i = 0; i < TIDE_SET_COUNT; i++) {
        tide_setting_id id = (tide_setting_id)i;
        if (!b.words.is_given[id]) continue;
        row_add(&b, tide_settings[id].name, value_of(&b, id), TIDE_ORIGIN_USER);
        if (!is_of_device(i))
            tide_error(diags, TIDE_ERR_CONFLICT, tide_format(arena, "/settings/%s", tide_settings[id].name),
                       "a recording has its job in it: this cannot be changed afterwards",
                       "gpu, gpu_gib, memory_fraction and allocator can");
    }
    find_card(&b);
    size_device(&b);
    read_allocator(&b);
    return diags->error_count == errors ? b.job : NULL;
}
