/* SPDX-License-Identifier: Apache-2.0 */
/* The meaning of a job in words. The model is the longest run of words that the catalogue has; the others are words in
 * words.def, choices, GPUs, sizes, names of settings next to a number, or fillers (fillers.def). */
#include "job/phrase.h"

#include <string.h>

#include "base/units.h"
#include "job/foreign_keys.h"
#include "job/model_names.h"

enum { RUN_OF_NAME = 8, RUN_OF_ENTRY = 3 };

static const char fillers[] =
#define TIDE_FILLERS(words) words "|"
#include "job/fillers.def"
#undef TIDE_FILLERS
    ;

/* ---- pieces ---- */

static size_t digits_of(tide_text piece) {
    size_t count = 0;
    while (count < piece.length && piece.at[count] >= '0' && piece.at[count] <= '9') count++;
    return count;
}

static bool is_unit(tide_text piece) {
    return tide_text_is_among(piece, "g|gb|gib|gig|gigs|gigabyte|gigabytes");
}

/* Whether "8x" is a count of what follows: "h100", "24gb" and "4090", but not "7b" of a mixture's name or "336". */
static bool is_counted(tide_text rest) {
    size_t digits = digits_of(rest);
    return digits == rest.length ? digits >= 4
                                 : !digits || is_unit((tide_text){rest.at + digits, rest.length - digits});
}

/* "8xh100" is two pieces. */
static void take_apart(tide_phrase *p, tide_text text) {
    tide_text rest = tide_text_of(tide_lowered(p->arena, text)), piece;
    for (char *c = (char *)rest.at; *c; c++)
        if (strchr("\t\n\r,;?!()", *c) || (*c == ':' && (!c[1] || strchr(" \t", c[1])))) *c = ' ';
    while (p->count < TIDE_PHRASE_PIECES && tide_piece_next(&rest, ' ', &piece)) {
        size_t digits = digits_of(piece);
        bool counts = digits && digits < 4 && digits + 1 < piece.length && piece.at[digits] == 'x' &&
                      is_counted((tide_text){piece.at + digits + 1, piece.length - digits - 1});
        if (counts) p->pieces[p->count++] = (tide_text){piece.at, digits + 1};
        if (counts) piece = (tide_text){piece.at + digits + 1, piece.length - digits - 1};
        if (piece.length && p->count < TIDE_PHRASE_PIECES) p->pieces[p->count++] = piece;
    }
}

static tide_text piece_at(const tide_phrase *p, uint32_t number) {
    return number < p->count ? p->pieces[number] : TIDE_TEXT("");
}

static const char *run_text(const tide_phrase *p, uint32_t first, uint32_t length, const char *separator) {
    const char *text = "";
    for (uint32_t i = 0; i < length; i++) {
        tide_text piece = p->pieces[first + i];
        text = tide_format(p->arena, "%s%s%.*s", text, i ? separator : "", (int)piece.length, piece.at);
    }
    return text;
}

static uint32_t longest_run(const tide_phrase *p, uint32_t first, uint32_t most) {
    uint32_t left = p->count - first;
    return left < most ? left : most;
}

/* 4, 4096 or 8k; 8k is 8192. NULL: not a number. */
static const char *number_in(const tide_phrase *p, tide_text piece) {
    size_t digits = digits_of(piece);
    int64_t value;
    if (!digits || !tide_text_to_i64(&value, (tide_text){piece.at, digits})) return NULL;
    if (digits == piece.length) return tide_text_copy(p->arena, piece);
    bool is_k = digits + 1 == piece.length && piece.at[digits] == 'k' && value < 1 << 20;
    return is_k ? tide_format(p->arena, "%d", (int)value * 1024) : NULL;
}

void tide_phrase_add(tide_phrase *p, const char *settings) {
    p->settings = tide_format(p->arena, "%s%s%s", p->settings, *p->settings && *settings ? " " : "", settings);
    p->serves = p->serves || strstr(settings, "mode=serve");
}

/* ---- what begins at p->at: each returns how many pieces it is, 0 if it is none of that ---- */

/* The value of a setting with choices for a word; NULL: it is not one of its values. */
static const char *choice_in(const tide_phrase *p, tide_setting_id id, tide_text word) {
    tide_diagnostics scratch;
    tide_diagnostics_init(&scratch, p->arena);
    const char *value = tide_setting_read(p->arena, id, word, &scratch);
    return scratch.error_count ? NULL : value;
}

/* Whether it can be a suffix of a variant's name after the size, rather than a word of its own. "phi-4 dpo" is a
 * trainer with phi-4. */
static bool may_be_of_name(const tide_phrase *p, uint32_t length) {
    for (uint32_t i = 1; i < length; i++) {
        tide_text piece = p->pieces[p->at + i];
        const char *meaning = tide_text_is_among(piece, "chat") ? NULL : tide_word_meaning(piece);
        if (meaning && meaning[strlen(meaning) - 1] != '=') return false;
        if (piece.length > 2 && choice_in(p, TIDE_SET_trainer, piece)) return false;
        if (piece.length > 3 && number_in(p, piece)) return false;
    }
    return true;
}

/* By its name in the catalogue or on the Hub, or by words that only one model has. */
static bool take_named(tide_phrase *p, uint32_t length) {
    const char *name = run_text(p, p->at, length, "-");
    const tide_source *source = tide_catalogue_find(p->arena, name);
    if (!source && length > 1 && tide_catalogue_published(p->arena, name)) {
        p->model = name;
        return true;
    }
    bool may_be = source || may_be_of_name(p, length);
    if (source || (may_be && tide_model_is_known(p->arena, name))) {
        p->model = source && !strchr(name, '/') ? source->name : name;
        return true;
    }
    source = may_be ? tide_catalogue_meant(p->arena, name, &p->others) : NULL;
    if (!source) return false;
    p->model = source->name;
    p->is_meant = true;
    return true;
}

/* "meta-llama/llama-3.1-8b", but not "vit-l/14". */
static bool has_organisation(tide_text piece) {
    const char *slash = memchr(piece.at, '/', piece.length);
    return slash && slash + 1 < piece.at + piece.length && !strchr("0123456789", slash[1]);
}

/* How many pieces a name can have: an organisation ("serve meta-llama/...") begins another one. */
static uint32_t longest_name(const tide_phrase *p) {
    uint32_t most = longest_run(p, p->at, RUN_OF_NAME);
    for (uint32_t i = 1; i < most; i++)
        if (has_organisation(p->pieces[p->at + i])) return i;
    return most;
}

static uint32_t take_model(tide_phrase *p) {
    for (uint32_t length = p->model ? 0 : longest_name(p); length; length--)
        if (take_named(p, length)) return length;
    return 0;
}

/* Another model that starts here: "vs llama 3.2 3b". NULL: none. */
static const char *second_model(const tide_phrase *p) {
    for (uint32_t length = longest_run(p, p->at, RUN_OF_NAME); length; length--) {
        const tide_source *source = tide_catalogue_find(p->arena, run_text(p, p->at, length, "-"));
        if (source) return source->name;
    }
    return NULL;
}

/* The entry of words.def with dashes and blanks as underscores: "fine-tune", "gradient checkpointing". */
static tide_text entry_at(const tide_phrase *p, uint32_t first, uint32_t length) {
    const char *text = run_text(p, first, length, "_");
    for (char *c = (char *)text; *c; c++)
        if (*c == '-') *c = '_';
    return tide_text_of(text);
}

/* NAME= of a setting that starts at a piece and takes a number; NULL: none. */
static const char *taker_at(const tide_phrase *p, uint32_t first, uint32_t *length) {
    for (*length = longest_run(p, first, RUN_OF_ENTRY); *length; --*length) {
        tide_text entry = entry_at(p, first, *length);
        const char *meaning = tide_word_meaning(entry);
        if (meaning && meaning[strlen(meaning) - 1] == '=') return meaning;
        tide_setting_id id = tide_setting_find(entry);
        bool is_counted_by = id != TIDE_SET_COUNT && (tide_settings[id].type == TIDE_SETTING_INT ||
                                                      tide_settings[id].type == TIDE_SETTING_NUMBER);
        bool is_name_kept = tide_setting_is_world_size(entry);
        if (is_counted_by || id == TIDE_SET_image_size)
            return tide_format(p->arena, "%s=", is_name_kept ? entry.at : tide_settings[id].name);
    }
    return NULL;
}

/* "batch size of 4", "4k context" */
static uint32_t take_sized(tide_phrase *p) {
    uint32_t length, end = p->at;
    const char *number = number_in(p, p->pieces[p->at]);
    const char *taker = taker_at(p, number ? p->at + 1 : p->at, &length);
    if (number && !taker) return 0;
    end += length + (number != NULL);
    while (!number && taker && tide_text_is_among(piece_at(p, end), "of|is|=|:|at|size")) end++;
    if (!number) number = number_in(p, piece_at(p, end++));
    if (!number || !taker) return 0;
    tide_phrase_add(p, tide_format(p->arena, "%s%s", taker, number));
    return end - p->at;
}

/* "max context length", "how big a batch": the value that is asked for. */
static uint32_t take_asked(tide_phrase *p) {
    static const char most[] = "max|maximum|largest|biggest|highest|longest|big|large|long";
    uint32_t end = p->at + 1, length;
    if (!tide_text_is_among(p->pieces[p->at], most)) return 0;
    while (tide_text_is_among(piece_at(p, end), "a|an|the|possible|number|of")) end++;
    const char *taker = end < p->count ? taker_at(p, end, &length) : NULL;
    tide_text name = {taker, taker ? strlen(taker) - 1 : 0};
    tide_setting_id id = taker ? tide_setting_find(name) : TIDE_SET_COUNT;
    if (id == TIDE_SET_COUNT || tide_settings[id].type != TIDE_SETTING_INT) return 0;
    end += length;
    while (tide_text_is_among(piece_at(p, end), "size|sizes|length|window|len")) end++;
    if (number_in(p, piece_at(p, end))) return 0;
    p->asks = tide_text_copy(p->arena, name);
    return end - p->at;
}

/* "rtx 4090", "a100 80 gb", "h100s", starting at piece `first`; not a size alone. */
static uint32_t gpu_at(const tide_phrase *p, uint32_t first, const char **name) {
    tide_text head = piece_at(p, first);
    size_t digits = digits_of(head);
    tide_text unit = {head.at + digits, head.length - digits};
    bool is_size = digits && (unit.length ? is_unit(unit) : digits < 4);
    for (uint32_t length = is_size || !head.length ? 0 : longest_run(p, first, RUN_OF_NAME); length; length--) {
        const char *text = run_text(p, first, length, "-");
        size_t end = strlen(text);
        *name = text;
        if (tide_gpu_is_named(p->arena, p->gpus, text)) return length;
        *name = tide_text_copy(p->arena, (tide_text){text, end - 1});
        if (text[end - 1] == 's' && tide_gpu_is_named(p->arena, p->gpus, *name)) return length;
    }
    return 0;
}

/* "how many h100": what is asked for; leaves the GPU itself. */
static uint32_t take_how_many(tide_phrase *p) {
    const char *name;
    bool is_asked = tide_text_is(p->pieces[p->at], "how") && tide_text_is(piece_at(p, p->at + 1), "many");
    bool is_of_gpus =
        tide_text_is_among(piece_at(p, p->at + 2), "gpu|gpus|card|cards") || (is_asked && gpu_at(p, p->at + 2, &name));
    if (!is_asked || !is_of_gpus) return 0;
    p->counts_gpus = true;
    return 2;
}

/* "cpu offload", if the framework among the words supports it. */
static uint32_t take_offload(tide_phrase *p) {
    static const struct {
        const char *kind, *settings;
    } rows[] = {{"=zero1", "parallel.offload_optimizer=cpu"},
                {"=zero2", "parallel.offload_optimizer=cpu"},
                {"=zero3", "parallel.offload_optimizer=cpu parallel.offload_param=cpu"},
                {"=fsdp", "parallel.offload=true"}};
    bool is_cpu = tide_text_is(p->pieces[p->at], "cpu");
    if (!tide_text_is_among(piece_at(p, p->at + is_cpu), "offload|offloading")) return 0;
    for (size_t i = 0; i < TIDE_COUNT_OF(rows); i++) {
        if (!strstr(p->settings, rows[i].kind)) continue;
        tide_phrase_add(p, rows[i].settings);
        return 1 + is_cpu;
    }
    return 0;
}

static uint32_t take_word(tide_phrase *p) {
    for (uint32_t length = longest_run(p, p->at, RUN_OF_ENTRY); length; length--) {
        const char *meaning = tide_word_meaning(entry_at(p, p->at, length));
        if (!meaning || meaning[strlen(meaning) - 1] == '=') continue;
        tide_phrase_add(p, meaning);
        return length;
    }
    return 0;
}

/* "adafactor", "zero3", "dpo", "inference": values that only one setting can have. */
static uint32_t take_choice(tide_phrase *p) {
    static const tide_setting_id ids[] = {TIDE_SET_mode,          TIDE_SET_trainer,   TIDE_SET_optimizer,
                                          TIDE_SET_parallel_kind, TIDE_SET_attention, TIDE_SET_engine,
                                          TIDE_SET_quantization,  TIDE_SET_ftype};
    tide_text entry = entry_at(p, p->at, 1);
    if (p->generates && tide_text_is_among(entry, "vllm")) {
        tide_phrase_add(p, "trainer.use_vllm=true");
        return 1;
    }
    if (entry.at[0] < 'a' || tide_text_is_among(entry, "none|auto|default|native|transformers")) return 0;
    for (size_t i = 0; i < TIDE_COUNT_OF(ids); i++) {
        if (ids[i] == TIDE_SET_quantization && !p->serves) continue;
        const char *value = choice_in(p, ids[i], entry);
        if (!value) continue;
        if (ids[i] == TIDE_SET_engine && p->generates) return 0;
        const char *before = ids[i] == TIDE_SET_engine  ? "mode=serve "
                             : ids[i] == TIDE_SET_ftype ? "mode=serve engine=llama_cpp "
                                                        : "";
        tide_phrase_add(p, tide_format(p->arena, "%s%s=%s", before, tide_settings[ids[i]].name, value));
        return 1;
    }
    return 0;
}

/* 8, 8x, x8 or eight; 0: not a count. */
static int64_t count_of(tide_text piece) {
    static const char *const numbers[] = {"a", "two", "three", "four", "five", "six", "seven", "eight"};
    size_t digits = digits_of(piece);
    int64_t count = 0;
    if (digits && (digits == piece.length || tide_text_is((tide_text){piece.at + digits, piece.length - digits}, "x")))
        tide_text_to_i64(&count, (tide_text){piece.at, digits});
    bool is_behind = piece.length > 1 && piece.length < 5 && piece.at[0] == 'x';
    tide_text behind = {piece.at + 1, piece.length - 1};
    if (is_behind && digits_of(behind) == behind.length) tide_text_to_i64(&count, behind);
    for (int64_t i = 1; i < (int64_t)TIDE_COUNT_OF(numbers); i++)
        if (tide_text_is(piece, numbers[i])) count = i + 1;
    return count;
}

/* "24gb", "24 GB": the number of pieces, and the number before the unit. */
static uint32_t gib_at(const tide_phrase *p, uint32_t first, tide_text *number) {
    tide_text head = piece_at(p, first);
    size_t digits = digits_of(head);
    bool is_apart = digits && digits == head.length;
    tide_text unit = is_apart ? piece_at(p, first + 1) : (tide_text){head.at + digits, head.length - digits};
    *number = (tide_text){head.at, digits};
    return !digits || !is_unit(unit) ? 0 : is_apart ? 2 : 1;
}

/* "8x h100", "two 4090s", "4 gpus", "an l40s", "2x 24gb" */
static uint32_t take_gpus(tide_phrase *p) {
    const char *name = NULL;
    tide_text gib = TIDE_TEXT("");
    uint32_t length = gpu_at(p, p->at, &name), counted = 0;
    int64_t count = length ? 0 : count_of(p->pieces[p->at]);
    if (count) {
        counted = tide_text_is_among(piece_at(p, p->at + 1), "x|of") ? 2 : 1;
        length = gpu_at(p, p->at + counted, &name);
        if (!length) name = NULL;
        if (!length) length = gib_at(p, p->at + counted, &gib);
        if (!length) gib = TIDE_TEXT("");
        if (!length && tide_text_is_among(piece_at(p, p->at + counted), "gpu|gpus|card|cards")) length = 1;
    }
    bool is_behind = name && !counted && piece_at(p, p->at + length).length && piece_at(p, p->at + length).at[0] == 'x';
    if (is_behind) count = count_of(piece_at(p, p->at + length)); /* "t4 x2" */
    if (is_behind && count) length++;
    if (!length) return 0;
    p->gpu_count = count;
    if (name) tide_phrase_add(p, tide_format(p->arena, "gpu=%s", name));
    if (gib.length) tide_phrase_add(p, tide_format(p->arena, "gpu_gib=%.*s", (int)gib.length, gib.at));
    if (count > 1) tide_phrase_add(p, tide_format(p->arena, "gpus=%d", (int)count));
    return counted + length;
}

/* "512x512" */
static bool is_image_size(tide_text piece) {
    size_t high = digits_of(piece);
    if (!high || high + 1 >= piece.length || piece.at[high] != 'x') return false;
    size_t wide = digits_of((tide_text){piece.at + high + 1, piece.length - high - 1});
    return high > 1 && wide > 1 && high + 1 + wide == piece.length;
}

/* "24gb", "24 GB" for a GPU; "8k" for tokens; "512x512" for an image. */
static uint32_t take_size(tide_phrase *p) {
    tide_text head = p->pieces[p->at], gib;
    if (is_image_size(head)) {
        tide_phrase_add(p, tide_format(p->arena, "image_size=%s", tide_text_copy(p->arena, head)));
        return 1;
    }
    const char *number = number_in(p, head);
    uint32_t length = gib_at(p, p->at, &gib);
    if (length) {
        tide_phrase_add(p, tide_format(p->arena, "gpu_gib=%.*s", (int)gib.length, gib.at));
        return length;
    }
    if (!number || digits_of(head) == head.length) return 0;
    tide_phrase_add(p, tide_format(p->arena, "seq=%s", number));
    return 1;
}

const char *tide_meant_setting(tide_arena *arena, tide_text word, size_t name) {
    const char *meaning = tide_word_meaning((tide_text){word.at, name});
    bool is_one = meaning && meaning[strlen(meaning) - 1] == '=' && !strchr(meaning, ' ');
    if (!is_one || tide_setting_find((tide_text){word.at, name}) != TIDE_SET_COUNT) return NULL;
    return tide_format(arena, "%s%.*s", meaning, (int)(word.length - name - 1), word.at + name + 1);
}

/* A setting itself, "batch=4", and fillers. */
static uint32_t take_others(tide_phrase *p) {
    tide_text piece = p->pieces[p->at];
    const char *equals = memchr(piece.at, '=', piece.length);
    if (equals && equals > piece.at && equals + 1 < piece.at + piece.length) {
        tide_text name = {piece.at, (size_t)(equals - piece.at)};
        const char *meant = tide_meant_setting(p->arena, piece, name.length);
        tide_setting_id id = tide_setting_find_own(name, p->serves);
        if (id < TIDE_SET_COUNT && !tide_setting_is_world_size(name))
            meant = tide_format(p->arena, "%s%.*s", tide_settings[id].name, (int)(piece.length - name.length), equals);
        tide_phrase_add(p, meant ? meant : tide_text_copy(p->arena, piece));
        return 1;
    }
    if (p->model && tide_catalogue_has_size(p->arena, p->model, piece)) return 1;
    return tide_text_is_among(piece, fillers) || (p->has_stage && tide_text_is_among(piece, "deepspeed")) ? 1 : 0;
}

/* ---- all of them ---- */

/* Keeps a word that was not understood, with the word to use instead if words.def has one. */
static uint32_t leave_unknown(tide_phrase *p) {
    const char *remedy = NULL;
    uint32_t length = longest_run(p, p->at, RUN_OF_ENTRY);
    while (length > 1 && !(remedy = tide_word_remedy(entry_at(p, p->at, length)))) length--;
    if (!remedy) remedy = tide_word_remedy(entry_at(p, p->at, length));
    const tide_foreign_key *foreign = remedy ? NULL : tide_foreign_find(entry_at(p, p->at, length));
    if (foreign && foreign->is_neutral) remedy = "leave it out: it has no effect on memory";
    if (!p->remedy) p->remedy = remedy;
    const char *left = run_text(p, p->at, length, " ");
    p->unknown = tide_format(p->arena, "%s%s%s", p->unknown, *p->unknown ? " " : "", left);
    return length;
}

static void read_pieces(tide_phrase *p) {
    uint32_t (*const takers[])(tide_phrase *) = {take_model,   take_gpus, take_sized,  take_asked, take_how_many,
                                                 take_offload, take_word, take_choice, take_size,  take_others};
    /* wherever they are, they affect the meaning of others: "fp8", "8k", "vllm" */
    for (uint32_t i = 0; i < p->count; i++) {
        p->generates = p->generates || tide_text_is_among(p->pieces[i], "grpo|rloo|gspo|dapo");
        p->runs = p->runs || tide_text_is_among(p->pieces[i], "run|runs|running|load");
        p->has_stage = p->has_stage || tide_text_starts(p->pieces[i], TIDE_TEXT("zero"));
    }
    for (uint32_t i = 0; i < p->count && !p->generates; i++)
        p->serves = p->serves || tide_text_is_among(p->pieces[i], "serving|vllm|sglang");
    while (p->at < p->count) {
        uint32_t taken = 0;
        for (size_t i = 0; i < TIDE_COUNT_OF(takers) && !taken; i++) taken = takers[i](p);
        if (!taken) {
            if (p->model && !p->second) p->second = second_model(p);
            taken = leave_unknown(p);
        }
        p->at += taken;
    }
}

void tide_phrase_read(tide_phrase *p, tide_text text) {
    take_apart(p, text);
    read_pieces(p);
}
