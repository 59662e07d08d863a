/* Files that start training. Each key is looked up in launch_keys.def; what it says is claimed for a setting, or kept
 * as a fact where several keys decide together. Then the facts are settled as the HF Trainer (transformers 5.23) and
 * Accelerate (1.15) do it. */
#include "job/readers/trainer_config.h"

#include "base/units.h"

#include <inttypes.h>
#include <string.h>

typedef enum row_effect { USE, NONE, MATTERS, SECTION } row_effect;

typedef struct key_row {
    const char *files, *key;
    row_effect effect;
    const char *target, *values;
} key_row;

static const key_row rows[] = {
#define TIDE_KEY(files, key, effect, target, values) {files, key, effect, target, values},
#include "job/readers/trainer_keys.def"
#undef TIDE_KEY
};

static const char *const fact_names[TIDE_FACT_COUNT] = {
    "distributed",       "processes", "machines", "mixed",        "bf16",          "fp16",         "pure",
    "checkpointing",     "reentrant", "clip",     "model",        "finetuning",    "quant_type",   "deepspeed",
    "zero_stage",        "zero_clip", "fsdp",     "fsdp_version", "fsdp_strategy", "fsdp_reshard", "fsdp_policy",
    "fsdp_checkpointing"};

/* Accelerate's section on DeepSpeed. */
#define PLUGIN ((tide_trainer_config_file)'D')

/* ---- what a file is ---- */

static const struct {
    const char *key;
    tide_trainer_config_file kind;
} marks[] = {
    /* the first that an object has */
    {"zero_optimization", TIDE_LAUNCH_DEEPSPEED},
    {"train_micro_batch_size_per_gpu", TIDE_LAUNCH_DEEPSPEED},
    {"distributed_type", TIDE_LAUNCH_ACCELERATE},
    {"compute_environment", TIDE_LAUNCH_ACCELERATE},
    {"finetuning_type", TIDE_LAUNCH_FACTORY},
    {"cutoff_len", TIDE_LAUNCH_FACTORY},
    {"micro_batch_size", TIDE_LAUNCH_AXOLOTL},
    {"sequence_len", TIDE_LAUNCH_AXOLOTL},
    {"base_model", TIDE_LAUNCH_AXOLOTL},
    {"per_device_train_batch_size", TIDE_LAUNCH_TRAINER},
    {"gradient_checkpointing", TIDE_LAUNCH_TRAINER},
    {"activation_checkpointing", TIDE_LAUNCH_TRAINER},
    {"gradient_accumulation_steps", TIDE_LAUNCH_TRAINER},
    {"max_grad_norm", TIDE_LAUNCH_TRAINER},
    {"num_train_epochs", TIDE_LAUNCH_TRAINER},
    {"fsdp_transformer_layer_cls_to_wrap", TIDE_LAUNCH_FSDP},
    {"transformer_layer_cls_to_wrap", TIDE_LAUNCH_FSDP},
    {"fsdp_version", TIDE_LAUNCH_FSDP},
    {"fsdp_sharding_strategy", TIDE_LAUNCH_FSDP},
};

tide_trainer_config_file tide_trainer_config_kind_of(const tide_json *root) {
    for (size_t i = 0; i < TIDE_COUNT_OF(marks); i++)
        if (tide_json_at(root, marks[i].key)) return marks[i].kind;
    return TIDE_LAUNCH_NONE;
}

const char *tide_trainer_config_title(tide_trainer_config_file kind) {
    switch (kind) {
    case TIDE_LAUNCH_TRAINER:
        return "training arguments of transformers";
    case TIDE_LAUNCH_FACTORY:
        return "a LLaMA-Factory configuration";
    case TIDE_LAUNCH_AXOLOTL:
        return "an axolotl configuration";
    case TIDE_LAUNCH_ACCELERATE:
        return "an Accelerate configuration";
    case TIDE_LAUNCH_FSDP:
        return "an FSDP configuration";
    case TIDE_LAUNCH_DEEPSPEED:
        return "a DeepSpeed configuration";
    case TIDE_LAUNCH_NONE:
        break;
    }
    return "";
}

static bool has_kind(const tide_trainer_config *l, tide_trainer_config_file kind) {
    for (uint32_t i = 0; i < l->count; i++)
        if (l->sources[i].kind == kind) return true;
    return false;
}

/* ---- cards and claims ---- */

static tide_file_summary *card_new(tide_trainer_config *l, tide_trainer_config_file kind, const char *name) {
    tide_file_summary *card = TIDE_NEW(l->words->arena, tide_file_summary, 1);
    *card = (tide_file_summary){.name = name, .title = tide_trainer_config_title(kind)};
    if (l->given->last_card)
        l->given->last_card->next = card;
    else
        l->given->cards = card;
    return l->given->last_card = card;
}

tide_file_key *tide_trainer_config_note(tide_trainer_config *l, const char *key, tide_key_effect effect,
                                        const char *value, const char *note) {
    tide_file_key *entry = TIDE_NEW(l->words->arena, tide_file_key, 1);
    tide_file_summary *card = l->at->card;
    *entry = (tide_file_key){.key = key, .value = value, .note = note, .effect = effect};
    if (card->last)
        card->last->next = entry;
    else
        card->first = entry;
    return card->last = entry;
}

static const char *place_of(const tide_trainer_config *l, const char *key) {
    return tide_format(l->words->arena, "%s/%s", l->at->place, key);
}

static bool refuse(tide_trainer_config *l, tide_status status, const char *key, const char *message,
                   const char *remedy) {
    return tide_error(l->words->diags, status, place_of(l, key), message, remedy);
}

/* What another file said first about the same holds. */
static void overrule(tide_trainer_config *l, tide_file_key *entry, const tide_file_key *first, const char *file) {
    tide_arena *arena = l->words->arena;
    entry->effect = TIDE_KEY_OVERRULED;
    entry->note = tide_format(arena, "%s says %s", file, first->value ? first->value : "otherwise");
    tide_report(l->words->diags, TIDE_WARNING, TIDE_ERR_CONFLICT, place_of(l, entry->key),
                tide_format(arena, "%s says %s, %s says %s=%s: the latter is used", l->at->card->name,
                            entry->value ? entry->value : "otherwise", file, first->key,
                            first->value ? first->value : "..."),
                "make the two agree, or give the setting itself");
}

void tide_trainer_config_claim(tide_trainer_config *l, const char *key, const char *given, const char *setting,
                               const char *value) {
    tide_file_key *entry = tide_trainer_config_note(l, key, TIDE_KEY_USED, given, NULL);
    tide_setting_id id = tide_setting_find(tide_text_of(setting));
    tide_diagnostics scratch;
    tide_diagnostics_init(&scratch, l->words->arena);
    const char *taken = tide_setting_read(l->words->arena, id, tide_text_of(value), &scratch);
    if (!taken) {
        refuse(l, scratch.items[0].status, key,
               tide_format(l->words->arena, "%s, %s: %s", l->at->card->name, setting, scratch.items[0].message),
               scratch.items[0].remedy);
        return;
    }
    entry->setting = tide_settings[id].name;
    entry->taken = taken;
    if (!l->settings[id]) {
        l->settings[id] = entry;
        l->setting_files[id] = l->at->card->name;
    } else if (strcmp(l->settings[id]->taken, taken) != 0) {
        overrule(l, entry, l->settings[id], l->setting_files[id]);
    }
}

void tide_trainer_config_imply(tide_trainer_config *l, const char *setting, const char *value) {
    tide_setting_id id = tide_setting_find(tide_text_of(setting));
    if (l->settings[id]) return;
    tide_file_key *entry = TIDE_NEW(l->words->arena, tide_file_key, 1);
    *entry = (tide_file_key){.setting = tide_settings[id].name, .taken = value, .effect = TIDE_KEY_USED};
    l->settings[id] = entry;
}

void tide_trainer_config_settle(tide_trainer_config *l, tide_fact fact, const char *setting, const char *value) {
    tide_trainer_config_imply(l, setting, value);
    tide_file_key *entry = l->facts[fact];
    if (!entry) return;
    entry->effect = TIDE_KEY_USED;
    entry->taken = entry->setting ? tide_format(l->words->arena, "%s %s=%s", entry->taken, setting, value) : value;
    if (!entry->setting) entry->setting = setting;
}

static void keep_fact(tide_trainer_config *l, const char *key, tide_fact fact, const char *value) {
    tide_file_key *entry = tide_trainer_config_note(l, key, TIDE_KEY_IGNORED, value, NULL);
    if (!l->facts[fact]) {
        l->facts[fact] = entry;
        l->fact_places[fact] = place_of(l, key);
        return;
    }
    if (strcmp(l->facts[fact]->value, value) != 0) overrule(l, entry, l->facts[fact], "another file");
}

const char *tide_trainer_config_fact(const tide_trainer_config *l, tide_fact fact) {
    return l->facts[fact] ? l->facts[fact]->value : NULL;
}

bool tide_trainer_config_is(const tide_trainer_config *l, tide_fact fact, const char *value) {
    const char *said = tide_trainer_config_fact(l, fact);
    return said && strcmp(tide_lowered(l->words->arena, tide_text_of(said)), value) == 0;
}

/* ---- one file ---- */

static bool among(const char *list, const char *value, tide_text *taken) {
    tide_text rest = tide_text_of(list), piece;
    while (tide_piece_next(&rest, '|', &piece)) {
        const char *equals = memchr(piece.at, '=', piece.length);
        size_t length = equals ? (size_t)(equals - piece.at) : piece.length;
        if (length != strlen(value) || strncmp(piece.at, value, length) != 0) continue;
        if (taken) *taken = equals ? (tide_text){equals + 1, piece.length - length - 1} : tide_text_of("");
        return true;
    }
    return false;
}

static bool is_off(const tide_json *value) {
    if (value->kind == TIDE_JSON_STRING) return value->text.length == 0;
    if (value->kind == TIDE_JSON_BOOL) return !value->is_true;
    if (value->kind == TIDE_JSON_NUMBER) return value->number == 0;
    return value->kind == TIDE_JSON_NULL || !value->first;
}

static void read_section(tide_trainer_config *l, tide_trainer_config_file kind, const tide_json *object,
                         const char *above);

static void use(tide_trainer_config *l, const key_row *row, const char *key, const tide_json *value) {
    tide_arena *arena = l->words->arena;
    if (value->kind == TIDE_JSON_OBJECT && strcmp(row->target, "@deepspeed") == 0) { /* the configuration itself */
        l->of_deepspeed = *l->at;
        l->of_deepspeed.root = value;
        l->of_deepspeed.place = place_of(l, key);
        tide_trainer_config_note(l, key, TIDE_KEY_USED, NULL, NULL);
        return;
    }
    bool is_list = value->kind == TIDE_JSON_ARRAY && !value->first;
    const char *text = is_list ? "" : tide_argument_value(arena, value);
    if (value->kind == TIDE_JSON_NULL || (text && !text[0])) {
        tide_trainer_config_note(l, key, TIDE_KEY_IGNORED, NULL, NULL);
        return;
    }
    if (!text) {
        refuse(l, TIDE_ERR_FIELD_TYPE, key,
               tide_format(arena, "%s: is %s; must be one value", l->at->card->name, tide_json_kind_name(value)), NULL);
        return;
    }
    tide_text taken = tide_text_of(text);
    among(row->values, tide_lowered(arena, taken), &taken);
    const char *said = tide_text_copy(arena, taken);
    if (!said[0]) {
        tide_trainer_config_note(l, key, TIDE_KEY_IGNORED, text, NULL);
    } else if (row->target[0] == '@') {
        for (unsigned f = 0; f < TIDE_FACT_COUNT; f++)
            if (strcmp(fact_names[f], row->target + 1) == 0) keep_fact(l, key, (tide_fact)f, said);
    } else {
        tide_trainer_config_claim(l, key, text, row->target, said);
    }
}

static void matters(tide_trainer_config *l, const key_row *row, const char *key, const tide_json *value) {
    const char *text = tide_argument_value(l->words->arena, value);
    bool is_none =
        is_off(value) || (text && (among(row->values, tide_lowered(l->words->arena, tide_text_of(text)), NULL) ||
                                   strcmp(text, "none") == 0));
    if (is_none) {
        tide_trainer_config_note(l, key, TIDE_KEY_IGNORED, text, NULL);
        return;
    }
    tide_trainer_config_note(l, key, TIDE_KEY_UNSUPPORTED, text, row->target);
    tide_report(l->words->diags, TIDE_WARNING, TIDE_ERR_UNSUPPORTED, place_of(l, key),
                tide_format(l->words->arena, "%s: %s is not described and may matter: it %s", l->at->card->name, key,
                            row->target),
                NULL);
}

static const key_row *row_of(tide_trainer_config_file kind, tide_text key) {
    for (size_t i = 0; i < TIDE_COUNT_OF(rows); i++)
        if (strchr(rows[i].files, (int)kind) && tide_text_matches(key, tide_text_of(rows[i].key))) return &rows[i];
    return NULL;
}

static void read_entry(tide_trainer_config *l, tide_trainer_config_file kind, const tide_json *entry,
                       const char *above) {
    tide_arena *arena = l->words->arena;
    tide_text name = entry->key;
    if (kind == TIDE_LAUNCH_FSDP && tide_text_starts(name, TIDE_TEXT("fsdp_")))
        name = (tide_text){name.at + 5, name.length - 5};
    const char *key = tide_format(arena, "%s%s", above, tide_shown(arena, entry->key));
    const key_row *row = row_of(kind, name);
    if (!row) {
        tide_trainer_config_note(l, key, TIDE_KEY_UNKNOWN, tide_argument_value(arena, entry), NULL);
    } else if (row->effect == NONE) {
        tide_trainer_config_note(l, key, TIDE_KEY_IGNORED, tide_argument_value(arena, entry), NULL);
    } else if (row->effect == MATTERS) {
        matters(l, row, key, entry);
    } else if (row->effect == USE) {
        use(l, row, key, entry);
    } else if (entry->kind == TIDE_JSON_OBJECT) {
        read_section(l, (tide_trainer_config_file)row->target[0], entry, tide_format(arena, "%s/", key));
    } else if (entry->kind == TIDE_JSON_STRING && entry->text.length) { /* a path */
        if (has_kind(l, (tide_trainer_config_file)row->target[0]))
            tide_trainer_config_note(l, key, TIDE_KEY_USED, entry->text.at, NULL);
        else
            refuse(l, TIDE_ERR_FIELD_MISSING, key,
                   tide_format(arena, "%s refers to %s", l->at->card->name, tide_shown(arena, entry->text)),
                   "give that file too");
    } else {
        tide_trainer_config_note(l, key, TIDE_KEY_IGNORED, NULL, NULL);
    }
}

/* DeepSpeedPlugin._deepspeed_config_checks: beside a file of DeepSpeed's, accelerate's own keys say nothing. */
static void overrule_plugin(tide_trainer_config *l, const tide_json *object, const char *above) {
    const char *file = l->of_deepspeed.card->name, *list = "";
    tide_arena *arena = l->words->arena;
    for (const tide_json *entry = object->first; entry; entry = entry->next) {
        const key_row *row = row_of(PLUGIN, entry->key);
        const char *key = tide_format(arena, "%s%s", above, tide_shown(arena, entry->key));
        if (!row || row->effect != USE || strcmp(row->target, "@deepspeed") == 0) {
            tide_trainer_config_note(l, key, TIDE_KEY_IGNORED, tide_argument_value(arena, entry), NULL);
            continue;
        }
        tide_trainer_config_note(l, key, TIDE_KEY_OVERRULED, tide_argument_value(arena, entry),
                                 tide_format(arena, "%s is used", file));
        list = tide_format(arena, "%s%s%s", list, *list ? ", " : "", tide_shown(arena, entry->key));
    }
    if (*list)
        tide_report(l->words->diags, TIDE_WARNING, TIDE_ERR_CONFLICT, place_of(l, "deepspeed_config"),
                    tide_format(arena, "%s also configures DeepSpeed (%s): %s is used", l->at->card->name, list, file),
                    "keep these in one file");
}

static void read_section(tide_trainer_config *l, tide_trainer_config_file kind, const tide_json *object,
                         const char *above) {
    if (kind == PLUGIN && l->of_deepspeed.root) {
        overrule_plugin(l, object, above);
        return;
    }
    for (const tide_json *entry = object->first; entry; entry = entry->next) read_entry(l, kind, entry, above);
}

/* accelerate refuses what it does not know; the others read on. */
static void report_unknown(tide_trainer_config *l) {
    enum { SHOWN = 6 };
    tide_arena *arena = l->words->arena;
    const char *list = "";
    unsigned count = 0;
    for (const tide_file_key *entry = l->at->card->first; entry; entry = entry->next)
        if (entry->effect == TIDE_KEY_UNKNOWN && ++count <= SHOWN)
            list = tide_format(arena, "%s%s%s", list, count > 1 ? ", " : "", entry->key);
    if (!count) return;
    if (count > SHOWN) list = tide_format(arena, "%s and %u more", list, count - SHOWN);
    if (l->at->kind == TIDE_LAUNCH_ACCELERATE)
        tide_error(l->words->diags, TIDE_ERR_FIELD_UNKNOWN, l->at->place,
                   tide_format(arena, "accelerate refuses it: \"%s had unknown keys (%s)\"", l->at->card->name, list),
                   "remove them");
    else
        tide_report(l->words->diags, TIDE_WARNING, TIDE_ERR_FIELD_UNKNOWN, l->at->place,
                    tide_format(arena, "%s has keys that are not known here: %s", l->at->card->name, list), NULL);
}

void tide_trainer_config_add(tide_trainer_config *l, tide_trainer_config_file kind, const tide_json *root,
                             const char *name, const char *place) {
    tide_trainer_config_source source = {.kind = kind, .root = root, .place = place, .card = card_new(l, kind, name)};
    bool trains = kind == TIDE_LAUNCH_TRAINER || kind == TIDE_LAUNCH_FACTORY || kind == TIDE_LAUNCH_AXOLOTL;
    for (uint32_t i = 0; i < l->count; i++) {
        tide_trainer_config_file other = l->sources[i].kind;
        bool is_second =
            other == kind ||
            (trains && (other == TIDE_LAUNCH_TRAINER || other == TIDE_LAUNCH_FACTORY || other == TIDE_LAUNCH_AXOLOTL));
        if (!is_second) continue;
        tide_error(l->words->diags, TIDE_ERR_CONFLICT, place,
                   tide_format(l->words->arena, "%s is %s, and %s is %s", name, source.card->title,
                               l->sources[i].card->name, l->sources[i].card->title),
                   "give one of the two");
        return;
    }
    if (l->count == TIDE_LAUNCH_LIMIT) return;
    if (kind == TIDE_LAUNCH_DEEPSPEED) l->of_deepspeed = source;
    l->has_trainer = l->has_trainer || trains;
    l->sources[l->count++] = source;
}

/* ---- what facts decide ---- */

static int64_t number_of(const tide_trainer_config *l, tide_fact fact, int64_t otherwise) {
    int64_t value = otherwise;
    const char *said = tide_trainer_config_fact(l, fact);
    if (said && !tide_text_to_i64(&value, tide_text_of(said))) value = otherwise;
    return value;
}

const char *tide_trainer_config_precision(const tide_trainer_config *l) {
    if (tide_trainer_config_is(l, TIDE_FACT_bf16, "true"))
        return "bf16"; /* TrainingArguments hold over Accelerate's environment */
    if (tide_trainer_config_is(l, TIDE_FACT_fp16, "true")) return "fp16";
    if (tide_trainer_config_fact(l, TIDE_FACT_mixed)) return tide_trainer_config_fact(l, TIDE_FACT_mixed);
    return l->has_trainer || l->facts[TIDE_FACT_distributed] ? "none" : NULL;
}

tide_fact tide_trainer_config_precision_fact(const tide_trainer_config *l) {
    return tide_trainer_config_is(l, TIDE_FACT_bf16, "true")   ? TIDE_FACT_bf16
           : tide_trainer_config_is(l, TIDE_FACT_fp16, "true") ? TIDE_FACT_fp16
                                                               : TIDE_FACT_mixed;
}

static void settle_checkpointing(tide_trainer_config *l) {
    bool of_factory = has_kind(l, TIDE_LAUNCH_FACTORY),
         is_on = tide_trainer_config_is(l, TIDE_FACT_checkpointing, "true");
    const char *said = tide_trainer_config_fact(l, TIDE_FACT_checkpointing);
    if (of_factory && !said) is_on = true; /* hparams/model_args.py: disable_gradient_checkpointing */
    if (said && !is_on && !tide_trainer_config_is(l, TIDE_FACT_checkpointing, "false"))
        tide_report(
            l->words->diags, TIDE_WARNING, TIDE_ERR_UNSUPPORTED, "/settings/checkpointing",
            tide_format(l->words->arena, "gradient_checkpointing: %s is not described; it is taken as true", said),
            NULL);
    bool is_named = said && !tide_trainer_config_is(l, TIDE_FACT_checkpointing, "false");
    if (tide_trainer_config_is(l, TIDE_FACT_fsdp_checkpointing, "true")) {
        tide_trainer_config_settle(l, TIDE_FACT_fsdp_checkpointing, "checkpointing", "full");
    } else if (is_on || is_named) {
        bool is_reentrant = tide_trainer_config_is(l, TIDE_FACT_reentrant, "true") ||
                            (of_factory && !tide_trainer_config_is(l, TIDE_FACT_reentrant, "false"));
        tide_trainer_config_settle(l, TIDE_FACT_checkpointing, "checkpointing",
                                   is_reentrant ? "full_reentrant" : "full");
        if (l->facts[TIDE_FACT_reentrant])
            tide_trainer_config_settle(l, TIDE_FACT_reentrant, "checkpointing",
                                       is_reentrant ? "full_reentrant" : "full");
    } else if (said) {
        tide_trainer_config_settle(l, TIDE_FACT_checkpointing, "checkpointing", "none");
    }
}

static void settle_finetuning(tide_trainer_config *l) {
    const char *said = tide_trainer_config_fact(l, TIDE_FACT_finetuning);
    bool is_lora = tide_trainer_config_is(l, TIDE_FACT_finetuning, "lora"),
         is_qlora = tide_trainer_config_is(l, TIDE_FACT_finetuning, "qlora");
    if (said && !is_lora && !is_qlora && !tide_trainer_config_is(l, TIDE_FACT_finetuning, "full")) {
        tide_error(l->words->diags, TIDE_ERR_UNSUPPORTED, l->fact_places[TIDE_FACT_finetuning],
                   tide_format(l->words->arena, "%s=%s is not described", l->facts[TIDE_FACT_finetuning]->key, said),
                   "lora, qlora and full are");
        return;
    }
    if (is_lora || is_qlora) tide_trainer_config_settle(l, TIDE_FACT_finetuning, "adapter", "lora");
    if (is_qlora) tide_trainer_config_settle(l, TIDE_FACT_finetuning, "quant", "nf4");
    if (is_lora || is_qlora) return;
    for (unsigned id = 0; id < TIDE_SET_COUNT; id++) /* ranks of adapters that are not made */
        if (l->settings[id] && !l->settings[TIDE_SET_adapter] && strncmp(tide_settings[id].name, "adapter.", 8) == 0) {
            l->settings[id]->effect = TIDE_KEY_IGNORED;
            l->settings[id] = NULL;
        }
}

static void settle_quant_type(tide_trainer_config *l) {
    const tide_file_key *quant = l->settings[TIDE_SET_quant];
    const char *type = tide_trainer_config_fact(l, TIDE_FACT_quant_type);
    if (!type || !quant || strcmp(quant->taken, "nf4") != 0) return;
    l->settings[TIDE_SET_quant] = NULL;
    tide_trainer_config_settle(l, TIDE_FACT_quant_type, "quant", tide_lowered(l->words->arena, tide_text_of(type)));
}

static void settle_model(tide_trainer_config *l) {
    l->given->asked_model = tide_trainer_config_fact(l, TIDE_FACT_model);
    l->given->asked_place = l->fact_places[TIDE_FACT_model];
    if (l->facts[TIDE_FACT_model]) l->facts[TIDE_FACT_model]->effect = TIDE_KEY_USED;
}

/* TrainingArguments where no key says otherwise. */
static void settle_trainer(tide_trainer_config *l) {
    tide_trainer_config_imply(l, "batch", "8");
    tide_trainer_config_imply(l, "optimizer", "adamw_fused");
    tide_trainer_config_imply(l, "param_groups", "trainer");
    tide_trainer_config_imply(l, "use_cache", "false");
}

static void settle_clip(tide_trainer_config *l) {
    const char *clip = tide_trainer_config_fact(l, TIDE_FACT_clip);
    int64_t pico = 0;
    if (!clip && !l->has_trainer) return;
    if (!clip) clip = "1.0";
    if (tide_decimal_read(&pico, tide_text_of(clip)) != TIDE_DECIMAL_OK || pico <= 0) return;
    tide_trainer_config_settle(l, TIDE_FACT_clip, "clip", clip);
}

/* Without sharding: weights as they are loaded, products in the half type. */
static void settle_autocast(tide_trainer_config *l) {
    const char *mixed = tide_trainer_config_precision(l);
    if (!mixed || strcmp(mixed, "none") == 0 || strcmp(mixed, "no") == 0) return;
    if (tide_trainer_config_is(l, TIDE_FACT_pure, "true")) {
        tide_trainer_config_settle(l, TIDE_FACT_pure, "dtype", "bf16");
        return;
    }
    if (strcmp(mixed, "bf16") != 0 && strcmp(mixed, "fp16") != 0) {
        tide_error(l->words->diags, TIDE_ERR_UNSUPPORTED, l->fact_places[tide_trainer_config_precision_fact(l)],
                   tide_format(l->words->arena, "mixed precision in %s is not described", mixed), "bf16 and fp16 are");
        return;
    }
    tide_trainer_config_settle(l, tide_trainer_config_precision_fact(l), "autocast", mixed);
    if (has_kind(l, TIDE_LAUNCH_FACTORY))
        tide_trainer_config_imply(
            l, "dtype",
            l->settings[TIDE_SET_adapter] ? mixed : "fp32"); /* model/adapter.py: cast_trainable_params_to_fp32 */
    bool is_fp16 = strcmp(mixed, "fp16") == 0;
    if (is_fp16) tide_trainer_config_imply(l, "scaler", "true");
    if (is_fp16) tide_trainer_config_imply(l, "dtype", "fp32"); /* the only one that GradScaler takes */
}

/* Accelerator.prepare_model and fsdp2_prepare_model: what trains is kept in fp32 where mixed precision is on. */
static void settle_fsdp(tide_trainer_config *l) {
    tide_arena *arena = l->words->arena;
    bool of_trainer = l->facts[TIDE_FACT_fsdp] != NULL;
    int64_t version = number_of(l, TIDE_FACT_fsdp_version, of_trainer ? 2 : 1);
    const char *mixed = tide_trainer_config_precision(l), *policy = tide_trainer_config_fact(l, TIDE_FACT_fsdp_policy),
               *legacy = tide_trainer_config_fact(l, TIDE_FACT_fsdp);
    bool is_half = mixed && (strcmp(mixed, "bf16") == 0 || strcmp(mixed, "fp16") == 0), is_two = version == 2;
    const char *strategy = tide_trainer_config_fact(l, TIDE_FACT_fsdp_strategy),
               *reshard = tide_trainer_config_fact(l, TIDE_FACT_fsdp_reshard);
    static const char *const numbered[] = {"FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD",
                                           "_HYBRID_SHARD_ZERO2"};
    tide_text rest = tide_text_of(legacy && strcmp(legacy, "true") != 0 ? legacy : ""), piece;
    char separator = memchr(rest.at, ',', rest.length) ? ',' : ' ';
    while (tide_piece_next(&rest, separator, &piece)) {
        const char *word = tide_lowered(arena, tide_trimmed(piece));
        if (!word[0] || strcmp(word, "auto_wrap") == 0) continue;
        if (strcmp(word, "offload") == 0)
            tide_trainer_config_imply(l, "parallel.offload", "true");
        else
            strategy = tide_text_copy(arena, tide_trimmed(piece));
    }
    tide_trainer_config_settle(l, of_trainer ? TIDE_FACT_fsdp : TIDE_FACT_distributed, "parallel.kind",
                               is_two ? "fsdp2" : "fsdp1");
    if (l->facts[TIDE_FACT_fsdp_version])
        tide_trainer_config_settle(l, TIDE_FACT_fsdp_version, "parallel.kind", is_two ? "fsdp2" : "fsdp1");
    if (is_two) {
        bool keeps = strategy && strcmp(tide_lowered(arena, tide_text_of(strategy)), "shard_grad_op") == 0;
        tide_trainer_config_settle(l, TIDE_FACT_fsdp_reshard, "parallel.reshard_after_forward",
                                   tide_trainer_config_is(l, TIDE_FACT_fsdp_reshard, "false") || keeps ? "false"
                                                                                                       : "true");
    } else {
        tide_fact said = strategy ? TIDE_FACT_fsdp_strategy : TIDE_FACT_fsdp_reshard;
        if (!strategy) strategy = reshard;
        if (strategy) {
            char *upper = tide_lowered(arena, tide_text_of(strategy));
            for (char *c = upper; *c; c++)
                if (*c >= 'a' && *c <= 'z') *c = (char)(*c - 'a' + 'A');
            int64_t number = 0;
            if (tide_text_to_i64(&number, tide_text_of(upper)) && number >= 1 && number <= 5)
                strategy = numbered[number - 1];
            else
                strategy = strcmp(upper, "HYBRID_SHARD_ZERO2") == 0 ? numbered[4] : upper;
            tide_trainer_config_settle(l, said, "parallel.sharding_strategy", strategy);
        }
        tide_trainer_config_imply(l, "parallel.use_orig_params", of_trainer ? "true" : "false");
        tide_trainer_config_imply(l, "parallel.backward_prefetch", "none");
        bool is_hybrid = strategy && strstr(strategy, "HYBRID");
        int64_t processes = number_of(l, TIDE_FACT_processes, 0), machines = number_of(l, TIDE_FACT_machines, 1);
        if (is_hybrid && machines > 0 && processes > 0 && processes % machines == 0) /* shards within a node */
            tide_trainer_config_settle(l, TIDE_FACT_machines, "parallel.hybrid",
                                       tide_format(arena, "%" PRId64, processes / machines));
    }
    if (policy && strcmp(tide_lowered(arena, tide_text_of(policy)), "size_based_wrap") == 0)
        tide_report(l->words->diags, TIDE_WARNING, TIDE_ERR_UNSUPPORTED, "/settings/parallel.wrap",
                    "units by size are not described: each block is taken as one", NULL);
    bool wraps = policy ? strcmp(tide_lowered(arena, tide_text_of(policy)), "no_wrap") != 0 : of_trainer;
    tide_trainer_config_settle(l, TIDE_FACT_fsdp_policy, "parallel.wrap", wraps ? "layer" : "root");
    if (!is_half) return;
    tide_trainer_config_settle(l, tide_trainer_config_precision_fact(l), "parallel.param_dtype", mixed);
    tide_trainer_config_imply(l, "parallel.reduce_dtype", mixed);
    tide_trainer_config_imply(l, is_two ? "parallel.output_dtype" : "parallel.buffer_dtype", mixed);
    tide_trainer_config_imply(l, "autocast", mixed);
    tide_trainer_config_imply(l, "dtype", "fp32");
}

static void settle_processes(tide_trainer_config *l) {
    int64_t processes = number_of(l, TIDE_FACT_processes, 0);
    if (processes < 1) return;
    tide_trainer_config_settle(l, TIDE_FACT_processes, "parallel.dp",
                               tide_format(l->words->arena, "%" PRId64, processes));
    int64_t machines = number_of(l, TIDE_FACT_machines, 1);
    if (machines > 1 && processes % machines)
        tide_error(l->words->diags, TIDE_ERR_CONFLICT, l->fact_places[TIDE_FACT_machines],
                   tide_format(l->words->arena, "num_processes=%" PRId64 " is not a multiple of num_machines=%" PRId64,
                               processes, machines),
                   NULL);
    else if (machines > 1)
        tide_trainer_config_settle(l, TIDE_FACT_machines, "parallel.local_world",
                                   tide_format(l->words->arena, "%" PRId64, processes / machines));
}

/* DeepSpeedPlugin without a file of DeepSpeed's: the sizes are DeepSpeed's own. */
static void settle_deepspeed_plugin(tide_trainer_config *l) {
    int64_t stage = number_of(l, TIDE_FACT_zero_stage, 2);
    const char *mixed = tide_trainer_config_precision(l), *clip = tide_trainer_config_fact(l, TIDE_FACT_zero_clip);
    tide_trainer_config_settle(l, l->facts[TIDE_FACT_zero_stage] ? TIDE_FACT_zero_stage : TIDE_FACT_distributed,
                               "parallel.kind", tide_format(l->words->arena, "zero%" PRId64, stage));
    if (mixed)
        tide_trainer_config_settle(l, tide_trainer_config_precision_fact(l), "parallel.half",
                                   strcmp(mixed, "no") == 0 ? "none" : mixed);
    if (clip && strcmp(clip, "none") != 0 && strcmp(clip, "auto") != 0)
        tide_trainer_config_settle(l, TIDE_FACT_zero_clip, "clip", clip);
    else if (!clip || strcmp(clip, "auto") == 0)
        tide_trainer_config_settle(l, TIDE_FACT_clip, "clip",
                                   l->has_trainer && tide_trainer_config_fact(l, TIDE_FACT_clip)
                                       ? tide_trainer_config_fact(l, TIDE_FACT_clip)
                                       : "1.0");
    if (stage == 3) tide_trainer_config_imply(l, "parallel.zero_init", "true");
}

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* A path that stands for a file which is not here. */
static bool lacks_deepspeed(tide_trainer_config *l) {
    const char *path = tide_trainer_config_fact(l, TIDE_FACT_deepspeed);
    if (!path || l->of_deepspeed.root) return false;
    const char *name = base_name(path);
    return !tide_error(l->words->diags, TIDE_ERR_FIELD_MISSING, l->fact_places[TIDE_FACT_deepspeed],
                       tide_format(l->words->arena, "%s refers to %s", l->facts[TIDE_FACT_deepspeed]->key,
                                   tide_shown(l->words->arena, tide_text_of(path))),
                       tide_format(l->words->arena, "give %s too", tide_shown(l->words->arena, tide_text_of(name))));
}

static void settle_strategy(tide_trainer_config *l) {
    tide_arguments *words = l->words;
    bool with_fsdp = tide_trainer_config_fact(l, TIDE_FACT_fsdp) && !tide_trainer_config_is(l, TIDE_FACT_fsdp, "false");
    const char *type = tide_trainer_config_fact(l, TIDE_FACT_distributed);
    if (lacks_deepspeed(l)) return;
    if (l->facts[TIDE_FACT_deepspeed]) l->facts[TIDE_FACT_deepspeed]->effect = TIDE_KEY_USED;
    settle_processes(l);
    if (l->of_deepspeed.root) {
        tide_deepspeed_read(l);
    } else if (with_fsdp || tide_trainer_config_is(l, TIDE_FACT_distributed, "fsdp")) {
        settle_fsdp(l);
        settle_clip(l);
    } else if (tide_trainer_config_is(l, TIDE_FACT_distributed, "deepspeed")) {
        settle_deepspeed_plugin(l);
    } else if (type && !tide_trainer_config_is(l, TIDE_FACT_distributed, "no") &&
               !tide_trainer_config_is(l, TIDE_FACT_distributed, "multi_gpu")) {
        tide_error(words->diags, TIDE_ERR_UNSUPPORTED, l->fact_places[TIDE_FACT_distributed],
                   tide_format(words->arena, "distributed_type: %s is not described",
                               tide_shown(words->arena, tide_text_of(type))),
                   "NO, MULTI_GPU, DEEPSPEED and FSDP are");
    } else {
        if (tide_trainer_config_is(l, TIDE_FACT_distributed, "multi_gpu")) {
            tide_trainer_config_settle(l, TIDE_FACT_distributed, "parallel.kind", "ddp");
            bool recomputes =
                l->settings[TIDE_SET_checkpointing] && strcmp(l->settings[TIDE_SET_checkpointing]->taken, "none") != 0;
            if (l->has_trainer)
                tide_trainer_config_imply(l, "parallel.find_unused_parameters",
                                          recomputes ? "false" : "true"); /* Trainer._build_accelerator_args */
        }
        settle_autocast(l);
        settle_clip(l);
    }
}

/* Options of another kind than the one that trains say nothing. */
static void put_settings(tide_trainer_config *l) {
    const tide_file_key *kind = l->settings[TIDE_SET_parallel_kind];
    for (unsigned id = 0; id < TIDE_SET_COUNT; id++) {
        tide_file_key *entry = l->settings[id];
        if (!entry) continue;
        if (id > TIDE_SET_parallel_kind && !tide_setting_is_of(&tide_settings[id], kind ? kind->taken : "none"))
            entry->effect = TIDE_KEY_IGNORED;
        else
            tide_setting_put(l->words, tide_text_of(tide_settings[id].name), tide_text_of(entry->taken),
                             TIDE_ORIGIN_FILE);
    }
}

void tide_trainer_config_resolve(tide_trainer_config *l) {
    static const tide_trainer_config_file order[] = {TIDE_LAUNCH_TRAINER, TIDE_LAUNCH_FACTORY, TIDE_LAUNCH_AXOLOTL,
                                                     TIDE_LAUNCH_FSDP, TIDE_LAUNCH_ACCELERATE};
    if (!l->count) return;
    for (size_t k = 0; k < TIDE_COUNT_OF(order); k++)
        for (uint32_t i = 0; i < l->count; i++) {
            if (l->sources[i].kind != order[k]) continue;
            l->at = &l->sources[i];
            read_section(l, order[k], l->at->root, "");
            report_unknown(l);
        }
    l->at = &l->sources[0];
    settle_model(l);
    settle_finetuning(l);
    settle_quant_type(l);
    settle_checkpointing(l);
    if (l->has_trainer) settle_trainer(l);
    settle_strategy(l);
    put_settings(l);
}
