/* SPDX-License-Identifier: Apache-2.0 */
/* What training is called if no key of TRL tells: a script, a folder or a run named after a preference or reward method
 * is not taken for supervised training. */
#include "job/readers/claims.h"

#include "base/units.h"

static bool is_of_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* The next run of letters, without suffixes of class names: DPOTrainer, run_dpo.py, zephyr-7b-dpo-full. */
static bool next_name_word(tide_text *rest, tide_text *word) {
    static const char *const endings[] = {"trainer", "config", "arguments", "args"};
    while (rest->length && !is_of_word(rest->at[0])) *rest = (tide_text){rest->at + 1, rest->length - 1};
    *word = (tide_text){rest->at, 0};
    while (word->length < rest->length && is_of_word(rest->at[word->length])) word->length++;
    *rest = (tide_text){rest->at + word->length, rest->length - word->length};
    for (size_t i = 0; i < TIDE_COUNT_OF(endings); i++) {
        tide_text ending = tide_text_of(endings[i]);
        bool is_longer = word->length > ending.length;
        tide_text last = {word->at + word->length - ending.length, ending.length};
        if (is_longer && tide_text_same(last, ending)) word->length -= ending.length;
    }
    return word->length > 0;
}

static bool is_word_of(tide_text word, const char *list) {
    tide_text rest = tide_text_of(list), piece;
    while (tide_piece_next(&rest, '|', &piece))
        if (tide_text_same(word, piece)) return true;
    return false;
}

const char *tide_preference_word(tide_arena *arena, tide_text text) {
    static const char methods[] = "dpo|ipo|kto|orpo|cpo|simpo|bco|xpo|grpo|gspo|dapo|rloo|ppo|rlhf|rlaif|rlvr|"
                                  "reinforce|nash|rm|prm|reward|rewards|preference|preferences|prefs|gkd|tpo|sdpo|"
                                  "distillation",
                      supervised[] = "sft|finetune|pretrain|pretraining|cpt";
    const char *found = NULL;
    tide_text word;
    while (next_name_word(&text, &word)) {
        if (is_word_of(word, supervised)) found = NULL;
        if (is_word_of(word, methods)) found = tide_lowered(arena, word);
    }
    return found;
}

/* A key whose value contains such a name, or that only preference trainers have. */
typedef struct named {
    const tide_claims *c;
    const char *place, *what;
} named;

static bool is_named_by(named *n, const tide_claims_file *file, const char *key, const tide_json *value) {
    const char *text = tide_argument_value(n->c->arena, value);
    if (!text || !tide_preference_word(n->c->arena, tide_text_of(text))) return false;
    n->place = tide_format(n->c->arena, "%s/%s", file->place, key);
    n->what = tide_format(n->c->arena, "%s is %s", key, tide_shown(n->c->arena, tide_text_of(text)));
    return true;
}

/* Keys of TRL's trainers in an object without a table. */
static bool holds_preferences(named *n, const tide_claims_file *file, const char *above, const tide_json *object) {
    static const tide_fact facts[] = {TIDE_FACT_beta, TIDE_FACT_loss_type, TIDE_FACT_preference, TIDE_FACT_precomputes,
                                      TIDE_FACT_trl};
    for (const tide_json *entry = object->first; entry; entry = entry->next) {
        const char *key = tide_format(n->c->arena, "%s/%s", above, tide_shown(n->c->arena, entry->key));
        const tide_key_row *row = tide_key_find(&tide_trainer_keys, entry->key);
        bool is_of_trl = false;
        for (size_t i = 0; row && i < TIDE_COUNT_OF(facts); i++) is_of_trl = is_of_trl || row->fact == facts[i];
        if (entry->kind == TIDE_JSON_NULL || (row && !is_of_trl)) continue;
        if (!row && entry->kind == TIDE_JSON_STRING && is_named_by(n, file, key, entry)) return true;
        if (!row) continue;
        n->place = tide_format(n->c->arena, "%s/%s", file->place, key);
        n->what = tide_format(n->c->arena, "%s is there", key);
        return true;
    }
    return false;
}

static bool is_named_after(named *n, const tide_claims_file *file) {
    static const char keys[] = "script|output_dir|run_name|hub_model_id|dataset|dataset_name|dataset_train_split|"
                               "dataset_splits|dataset_config|dataset_mixer|max_prompt_length";
    const char *name = file->summary->name;
    if (tide_preference_word(n->c->arena, tide_base_name(tide_text_of(name)))) {
        n->place = file->place;
        n->what = tide_format(n->c->arena, "it is called %s", name);
        return true;
    }
    for (const tide_json *entry = file->root->first; entry; entry = entry->next) {
        const char *key = tide_shown(n->c->arena, entry->key);
        const tide_key_row *row = tide_key_find(file->reader->keys, entry->key);
        if (row && !is_word_of(entry->key, keys)) continue;
        if (tide_text_is(entry->key, "max_prompt_length") && entry->kind != TIDE_JSON_NULL) {
            n->place = tide_format(n->c->arena, "%s/%s", file->place, key);
            n->what = "max_prompt_length is there";
            return true;
        }
        if (entry->kind == TIDE_JSON_OBJECT ? holds_preferences(n, file, key, entry) : is_named_by(n, file, key, entry))
            return true;
    }
    return false;
}

bool tide_refuse_named_preferences(tide_claims *c) {
    named n = {.c = c};
    if (c->arguments->asked_trainer || c->diags->error_count > 0) return false;
    for (const tide_claims_file *file = c->first; file; file = file->next) {
        bool is_of_trainer =
            file->reader->program == TIDE_PROGRAM_transformers || file->reader->program == TIDE_PROGRAM_trl;
        if (!is_of_trainer || !file->reader->keys || !is_named_after(&n, file)) continue;
        tide_error(
            c->diags, TIDE_ERR_UNSUPPORTED, n.place,
            tide_format(c->arena,
                        "%s: %s, which suggests preference or reward training, but no key says with which of TRL's "
                        "trainers",
                        file->summary->name, n.what),
            "give trainer=dpo, kto, orpo, cpo, reward, grpo, rloo, online_dpo or gkd; or trainer=hf if it is "
            "supervised");
        return true;
    }
    return false;
}
