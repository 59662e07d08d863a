/* SPDX-License-Identifier: Apache-2.0 */
/* Models by name: as in the catalogue, as on the Hub, and as people spell them. */
#include "job/model_names.h"

#include <string.h>

#include "base/decimal.h"
#include "base/units.h"
#include "job/job.h"

enum { NEAR_MODELS = 4 };

/* Whether what ends at `at` is a path, not a title: "CLIP ViT-B/16". */
static bool is_path(const char *text, const char *at) {
    static const char title[] = "\"title\": ";
    while (at > text && *at != '"') at--;
    return at - text < (long)sizeof title || memcmp(at - (sizeof title - 1), title, sizeof title - 1) != 0;
}

/* Whether an entry's text has this at the end of a path, ignoring case; the part is in lower case. */
static bool has_path(tide_text text, tide_text part) {
    for (const char *at = text.at; (size_t)(text.at + text.length - at) >= part.length; at++) {
        at = memchr(at, part.at[0], (size_t)(text.at + text.length - at));
        if (!at || (size_t)(text.at + text.length - at) < part.length) return false;
        if (tide_text_same((tide_text){at, part.length}, part) && is_path(text.at, at)) return true;
    }
    return false;
}

/* The entry published under a path that contains this, ignoring case: "/", a name and its quotation mark. */
static const tide_source *catalogue_with(tide_arena *arena, const char *name) {
    const tide_text part = tide_text_of(tide_format(arena, "/%s\"", name));
    for (uint32_t i = 0; i < tide_catalogue_source_count; i++) {
        const tide_source whole = tide_source_whole(arena, &tide_catalogue_sources[i]);
        if (has_path((tide_text){whole.text, whole.length}, part)) return &tide_catalogue_sources[i];
    }
    return NULL;
}

/* The entry published under a path such as llava-hf/llava-1.5-7b-hf. */
static const tide_source *catalogue_published(tide_arena *arena, const char *path) {
    return catalogue_with(arena, path);
}

static bool is_figure(char c) {
    return c >= '0' && c <= '9';
}

enum { SPELLED_ROOM = 96 };

/* "Qwen 2.5 7B" as "qwen2.5-7b": in lower case; separators are dropped, except for a dash between digits; truncated if
 * longer than any entry. */
static tide_text spelled(char *room, const char *name) {
    size_t length = 0;
    bool parts = false;
    for (const char *at = name; *at && length + 2 < SPELLED_ROOM; at++) {
        bool is_parting = strchr("-_: ", *at) != NULL;
        if (!is_parting && parts && length && is_figure(room[length - 1]) && is_figure(*at)) room[length++] = '-';
        if (!is_parting) room[length++] = *at >= 'A' && *at <= 'Z' ? (char)(*at - 'A' + 'a') : *at;
        parts = is_parting;
    }
    return (tide_text){room, length};
}

/* The entry for another spelling of its name. */
static const tide_source *catalogue_spelled(const char *name) {
    char wanted_room[SPELLED_ROOM], room[SPELLED_ROOM];
    const tide_text wanted = spelled(wanted_room, name);
    for (uint32_t i = 0; i < tide_catalogue_source_count; i++)
        if (tide_text_equal(spelled(room, tide_catalogue_sources[i].name), wanted)) return &tide_catalogue_sources[i];
    return NULL;
}

const tide_source *tide_catalogue_find(tide_arena *arena, const char *name) {
    const char *lowered = tide_lowered(arena, tide_text_of(name));
    if (strchr(name, '/')) return catalogue_published(arena, lowered);
    const tide_source *source = tide_catalogue_source(lowered);
    return source ? source : catalogue_spelled(lowered);
}

const tide_source *tide_catalogue_published(tide_arena *arena, const char *name) {
    return strchr(name, '/') ? NULL : catalogue_with(arena, tide_lowered(arena, tide_text_of(name)));
}

/* With dashes for blanks and underscores. */
static char *dashed(tide_arena *arena, const char *name) {
    char *text = tide_text_copy(arena, tide_text_of(name));
    for (char *c = text; *c; c++)
        if (strchr("_: ", *c)) *c = '-';
    return text;
}

static const struct {
    const char *names, *what;
} undescribed[] = {
#define TIDE_UNDESCRIBED(names, what) {names, what},
#include "job/undescribed_models.def"
#undef TIDE_UNDESCRIBED
};

static tide_text last_of_path(tide_arena *arena, const char *name) {
    const char *slash = strrchr(name, '/');
    return tide_text_of(dashed(arena, tide_lowered(arena, tide_text_of(slash ? slash + 1 : name))));
}

/* By the whole name: though its words are those of an entry, it is not that. */
static bool is_left_out(tide_arena *arena, const char *name) {
    tide_text last = last_of_path(arena, name);
    for (size_t i = 0; i < TIDE_COUNT_OF(undescribed); i++)
        if (tide_text_is_among(last, undescribed[i].names)) return true;
    return false;
}

/* The one with the most specific name. */
const tide_source *tide_catalogue_hub_base(tide_arena *arena, const char *name, tide_hub_name *read) {
    const tide_source *source = NULL;
    const char *tried = "", *parted = strchr(name, ' ') ? dashed(arena, name) : name;
    *read = tide_hub_name_read(arena, parted, TIDE_HUB_WORDS_MOST);
    source = tide_catalogue_published(arena, parted);
    if (!source && is_left_out(arena, parted)) return NULL;
    for (uint32_t kept = TIDE_HUB_WORDS_MOST + 1; kept-- > 0 && !source;) {
        *read = tide_hub_name_read(arena, parted, kept);
        if (strcmp(read->base, tried) == 0) continue;
        source = tide_catalogue_source(tried = read->base);
        if (!source) source = catalogue_spelled(tried);
        if (!source) source = catalogue_with(arena, read->base);
        if (!source && strchr(tried, '_')) source = catalogue_with(arena, dashed(arena, tried));
    }
    return source;
}

static const tide_json *parsed_entry(tide_arena *arena, const tide_source *source, tide_diagnostics *diags) {
    tide_source whole = tide_source_whole(arena, source);
    const char *place = tide_format(arena, "/models/%s", source->name);
    return tide_json_parse(arena, (tide_text){whole.text, whole.length}, place, diags);
}

bool tide_catalogue_has_size(tide_arena *arena, const char *name, tide_text word) {
    tide_hub_name read;
    const tide_source *source = tide_catalogue_hub_base(arena, name, &read);
    char last = word.length > 1 ? word.at[word.length - 1] : 0;
    bool counts = (last == 'b' || last == 'm') && strspn(word.at, "0123456789.") == word.length - 1;
    int64_t pico = 0;
    if (!counts || !source || tide_decimal_read(&pico, (tide_text){word.at, word.length - 1}) != TIDE_DECIMAL_OK)
        return false;
    tide_diagnostics scratch;
    tide_diagnostics_init(&scratch, arena);
    const tide_json *has = tide_json_at(parsed_entry(arena, source, &scratch), "parameters");
    double said = (double)pico / TIDE_PICO * (last == 'b' ? 1e9 : 1e6),
           ratio = has && said > 0 ? has->number / said : 0;
    return ratio > 0.9 && ratio < 1.1;
}

/* Who publishes a variant: the owner in its path, or without a path that of the model. */
static tide_text owner_of(tide_arena *arena, const char *name, const tide_json *entry) {
    const char *slash = strrchr(name, '/');
    tide_text path = slash ? tide_text_of(name) : TIDE_TEXT(""), owner = TIDE_TEXT("");
    const tide_json *source = tide_json_at(entry, "source");
    if (!slash && tide_json_is(source, TIDE_JSON_STRING)) {
        path = source->text;
        tide_piece_next(&path, '/', &owner);
    }
    tide_piece_next(&path, '/', &owner);
    return tide_text_of(tide_lowered(arena, owner));
}

/* The same; NULL: none, or one whose configuration is unknown. */
const tide_source *tide_catalogue_variant(tide_arena *arena, const char *name, tide_hub_name *read) {
    const tide_source *source = tide_catalogue_hub_base(arena, name, read);
    if (!source || !read->format) return source;
    tide_diagnostics scratch;
    tide_diagnostics_init(&scratch, arena);
    const tide_json *entry = parsed_entry(arena, source, &scratch),
                    *type = tide_json_at(tide_json_at(entry, "config"), "model_type");
    tide_text owner = strchr(name, ' ') ? TIDE_TEXT("") : owner_of(arena, name, entry); /* words are not a path */
    read->quantization =
        tide_hub_quantization(read->format, owner, tide_json_is(type, TIDE_JSON_STRING) ? type->text : TIDE_TEXT(""));
    return read->quantization ? source : NULL;
}

/* The catalogue's entry for a name, or for the model that it is a variant of; NULL: neither. */
static const tide_json *catalogue_entry(tide_arena *arena, const char *name, tide_diagnostics *diags) {
    tide_hub_name read;
    const tide_source *source = tide_catalogue_find(arena, name);
    if (!source) source = tide_catalogue_variant(arena, name, &read);
    return source ? parsed_entry(arena, source, diags) : NULL;
}

const tide_json *tide_catalogue_config(tide_arena *arena, const char *name, tide_diagnostics *diags) {
    return tide_json_at(catalogue_entry(arena, name, diags), "config");
}

const char *tide_catalogue_hub_name(tide_arena *arena, const char *name) {
    static const char hub[] = "huggingface.co/";
    tide_diagnostics scratch;
    tide_diagnostics_init(&scratch, arena);
    if (strchr(name, '/')) return name;
    const tide_json *source = tide_json_at(catalogue_entry(arena, name, &scratch), "source");
    bool is_there = tide_json_is(source, TIDE_JSON_STRING) && strncmp(source->text.at, hub, sizeof hub - 1) == 0;
    return is_there ? source->text.at + sizeof hub - 1 : name;
}

/* The entry whose name is the longest part of this one, delimited by dashes: tuned models are named after their base,
 * with more before or after it, such as Hermes-3-Llama-3.1-8B. */
static const tide_source *catalogue_base(tide_arena *arena, const char *name) {
    enum { PARTS = 16 };
    tide_text rest = tide_text_of(dashed(arena, name)), parts[PARTS];
    uint32_t count = 0;
    while (count < PARTS && tide_piece_next(&rest, '-', &parts[count])) count++;
    for (uint32_t length = count; length; length--)
        for (uint32_t first = 0; first + length <= count; first++) {
            const tide_text *last = &parts[first + length - 1];
            tide_text run = {parts[first].at, (size_t)(last->at + last->length - parts[first].at)};
            const tide_source *source = run.length ? tide_catalogue_find(arena, tide_text_copy(arena, run)) : NULL;
            if (source) return source;
        }
    return NULL;
}

bool tide_model_is_known(tide_arena *arena, const char *name) {
    tide_hub_name read;
    return tide_catalogue_find(arena, name) || tide_catalogue_variant(arena, name, &read);
}

/* The words in an entry's name and title, each after a dash: "-sdxl-unet-stable-diffusion-xl-unet-". */
static const char *entry_words(tide_arena *arena, const tide_source *source) {
    tide_diagnostics scratch;
    tide_diagnostics_init(&scratch, arena);
    const tide_json *entry = parsed_entry(arena, source, &scratch), *title = tide_json_at(entry, "title");
    const char *lowered = title && title->kind == TIDE_JSON_STRING ? tide_lowered(arena, title->text) : "";
    return tide_format(arena, "-%s-%s-", source->name, dashed(arena, lowered));
}

/* Whether an entry has the word, possibly followed by a version: "flux" in "flux.1-dev", "qwen" in "qwen2.5-7b". */
static bool entry_has_word(tide_arena *arena, const char *words, tide_text word) {
    const char *begin = tide_format(arena, "-%.*s", (int)word.length, word.at);
    for (const char *at = words; (at = strstr(at, begin)); at++)
        if (strchr("-.", at[1 + word.length]) || (is_figure(at[1 + word.length]) && !is_figure(at[word.length])))
            return true;
    return false;
}

/* 8b, 1.5b, 135m. */
static bool names_size(tide_text word) {
    return word.length > 1 && is_figure(word.at[0]) && strchr("bm", word.at[word.length - 1]) &&
           strspn(word.at, "0123456789.") == word.length - 1;
}

/* Whether an entry has each word of a name, or with `only_sizes` each size in it: "deepseek-r1" has no 8b. Every entry
 * is asked about many names, so what it is read into is freed. */
static bool entry_has(tide_arena *arena, const tide_source *source, const char *name, bool only_sizes) {
    tide_arena scratch;
    tide_arena_init(&scratch, tide_arena_memory(arena), arena->escape);
    const char *words = entry_words(&scratch, source);
    tide_text rest = tide_text_of(dashed(&scratch, name)), word;
    bool has_all = true;
    while (has_all && tide_piece_next(&rest, '-', &word))
        if (!only_sizes || names_size(word)) has_all = entry_has_word(&scratch, words, word);
    tide_arena_free(&scratch);
    return has_all;
}

/* Whether an entry has each word of a name: "llama 8b". */
static bool entry_has_all(tide_arena *arena, const tide_source *source, const char *name) {
    return entry_has(arena, source, name, false);
}

/* The same, or the entry begins with the name: "mixtral". */
static bool entry_has_words(tide_arena *arena, const tide_source *source, const char *name) {
    char entry_room[SPELLED_ROOM], room[SPELLED_ROOM];
    tide_text whole = spelled(entry_room, source->name), begin = spelled(room, name);
    bool begins = begin.length && whole.length > begin.length && tide_text_starts(whole, begin);
    char next = begins ? whole.at[begin.length] : '.';
    return (next != '.' && !(is_figure(next) && is_figure(begin.at[begin.length - 1]))) ||
           entry_has_all(arena, source, name);
}

/* Those with the fewest other words. */
static const char *near_by_words(tide_arena *arena, const char *name) {
    const char *found[NEAR_MODELS];
    uint32_t count = 0;
    for (uint32_t i = 0; i < tide_catalogue_source_count && *name; i++) {
        const char *entry = tide_catalogue_sources[i].name;
        if (!entry_has_words(arena, &tide_catalogue_sources[i], name)) continue;
        uint32_t at = count < NEAR_MODELS ? count++ : NEAR_MODELS;
        for (; at > 0 && strlen(entry) < strlen(found[at - 1]); at--)
            if (at < NEAR_MODELS) found[at] = found[at - 1];
        if (at < NEAR_MODELS) found[at] = entry;
    }
    return tide_one_of(arena, found, count);
}

/* 8b, 135m, large: models of one family that differ only in such words need the same. */
bool tide_is_size_word(tide_text word) {
    return names_size(word) || tide_text_is_among(word, "tiny|mini|small|base|medium|large|xl|xxl|huge|giant");
}

/* 3.1, v2: replaced in newer models. */
static bool is_version(tide_text word) {
    size_t first = word.length && word.at[0] == 'v';
    if (word.length - first < 1 || word.length - first > 4) return false;
    for (size_t i = first; i < word.length; i++)
        if (!is_figure(word.at[i]) && word.at[i] != '.') return false;
    return true;
}

/* Whether a word of an entry is in a name, possibly without its version: "qwen2.5" for "qwen". */
static bool name_has_word(tide_text word, const char *name) {
    tide_text rest = tide_text_of(name), one;
    while (tide_piece_next(&rest, '-', &one)) {
        bool begins = one.length && tide_text_starts(word, one);
        tide_text more = {word.at + one.length, word.length - one.length};
        if (begins && (!more.length || (!is_figure(word.at[one.length - 1]) && is_version(more)))) return true;
    }
    return false;
}

/* Whether an entry's name only adds versions to the words of another, or sizes as well. */
static bool differs_by_version(const char *entry, const char *name, bool may_have_size) {
    tide_text rest = tide_text_of(entry), word;
    while (tide_piece_next(&rest, '-', &word)) {
        bool is_part = may_have_size && (tide_is_size_word(word) || tide_text_is_among(word, "unet|text"));
        if (!is_version(word) && !is_part && !name_has_word(word, name)) return false;
    }
    return true;
}

/* Whether the first version in one name is greater. */
static bool is_newer(const char *entry, const char *other) {
    double versions[2] = {0, 0};
    const char *const names[] = {entry, other};
    for (int i = 0; i < 2; i++) {
        const char *at = names[i] + strcspn(names[i], "0123456789");
        for (double unit = 1; *at && strchr("0123456789.", *at); at++) {
            if (*at == '.')
                unit = 0.1;
            else if (unit < 1)
                versions[i] += unit * (*at - '0'), unit /= 10;
            else
                versions[i] = 10 * versions[i] + (*at - '0');
        }
    }
    return versions[0] > versions[1];
}

static bool has_word_of_size(const char *name) {
    tide_text rest = tide_text_of(name), word;
    while (tide_piece_next(&rest, '-', &word))
        if (tide_is_size_word(word)) return true;
    return false;
}

/* Whether each of them has this name as a prefix. */
static bool begins_all(const tide_source *one, const tide_source *const *all, uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        if (strncmp(all[i]->name, one->name, strlen(one->name)) != 0) return false;
    return true;
}

/* Of several entries keeps only those whose name begins with the words, if there are any; returns how many. */
static uint32_t those_that_begin(const tide_source **all, uint32_t count, const char *words) {
    char room[SPELLED_ROOM], name_room[SPELLED_ROOM];
    const tide_text begin = spelled(room, words);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++)
        if (tide_text_starts(spelled(name_room, all[i]->name), begin)) all[kept++] = all[i];
    return kept ? kept : count;
}

const tide_source *tide_catalogue_meant(tide_arena *arena, const char *name, const char **others) {
    const tide_source **all = TIDE_NEW(arena, const tide_source *, tide_catalogue_source_count + 1), *one = NULL;
    char *words = dashed(arena, tide_lowered(arena, tide_text_of(name)));
    for (char *c = words; *c; c++)
        if (*c == '/') *c = '-'; /* "vit-l/14" */
    uint32_t count = 0, versions = 0;
    bool has_name = strspn(words, "0123456789.-bm") < strlen(words), is_sized = has_word_of_size(words);
    *others = NULL;
    if (strchr(name, '/') && catalogue_spelled(words)) return catalogue_spelled(words);
    for (uint32_t i = 0; i < tide_catalogue_source_count && has_name; i++)
        if (entry_has_all(arena, &tide_catalogue_sources[i], words)) all[count++] = &tide_catalogue_sources[i];
    for (uint32_t i = 0; i < count; i++) {
        if (!differs_by_version(all[i]->name, words, false)) continue;
        if (!one || is_newer(all[i]->name, one->name)) one = all[i];
        versions++;
    }
    if (versions == 1 || (versions && is_sized)) {
        for (uint32_t i = 0; i < count; i++)
            if (all[i] != one && differs_by_version(all[i]->name, words, false))
                *others = tide_format(arena, "%s%s%s", *others ? *others : "", *others ? ", " : "", all[i]->name);
        return one;
    }
    count = those_that_begin(all, count, words);
    for (uint32_t i = 0; i < count; i++)
        if (begins_all(all[i], all, count) && (strchr(words, '-') || differs_by_version(all[i]->name, words, true)))
            return all[i];
    return NULL;
}

/* The beginning of a name: its first word, "qwen3.5", or only its letters, "qwen". */
static tide_text beginning(const char *name, bool is_letters) {
    size_t length = strcspn(name, is_letters ? "0123456789.-_ " : "-_ ");
    return (tide_text){name, length};
}

/* Whether an entry with a similar spelling may be meant: not if its family begins differently. */
static bool begins_like(const char *entry, const char *name, int how) {
    if (how < 2) return tide_text_equal(beginning(entry, how), beginning(name, how));
    char family[SPELLED_ROOM] = "";
    tide_text begin = beginning(entry, true);
    if (begin.length < sizeof family) memcpy(family, begin.at, begin.length);
    const char *const families[] = {family};
    return begin.length > 1 && tide_nearest(beginning(name, true), families, 1);
}

/* Entries with a similar spelling: with the same first word, of the same family, or of a family with a similar
 * spelling. */
static const char *near_by_letters(tide_arena *arena, const char *name) {
    const char **names = TIDE_NEW(arena, const char *, tide_catalogue_source_count + 1), *list = NULL;
    for (int how = 0; how < 3 && !list; how++) {
        uint32_t count = 0;
        for (uint32_t i = 0; i < tide_catalogue_source_count; i++)
            if (begins_like(tide_catalogue_sources[i].name, name, how)) names[count++] = tide_catalogue_sources[i].name;
        list = count ? tide_near_names(arena, tide_text_of(name), names, count) : NULL;
    }
    return list;
}

/* Entries that share the longest run of words: "bert classification". */
static const char *near_by_run(tide_arena *arena, const char *name) {
    enum { PARTS = 16 };
    tide_text rest = tide_text_of(dashed(arena, name)), parts[PARTS];
    uint32_t count = 0;
    const char *list = NULL;
    while (count < PARTS && tide_piece_next(&rest, '-', &parts[count])) count++;
    for (uint32_t length = count; length-- > 1 && !list;)
        for (uint32_t first = 0; first + length <= count && !list; first++) {
            const tide_text *last = &parts[first + length - 1];
            tide_text run = {parts[first].at, (size_t)(last->at + last->length - parts[first].at)};
            if (run.length > 2 && !tide_is_size_word(run)) list = near_by_words(arena, tide_text_copy(arena, run));
        }
    return list;
}

/* "internvl3_5-8b" as "internvl3.5-8b". */
static const char *dotted(tide_arena *arena, const char *name) {
    char *text = tide_text_copy(arena, tide_text_of(name));
    for (char *c = strchr(text, '_'); c; c = strchr(c + 1, '_'))
        if (c > text && is_figure(c[-1]) && is_figure(c[1])) *c = '.';
    return text;
}

const char *tide_catalogue_near(tide_arena *arena, const char *name) {
    const char *slash = strrchr(name, '/'), *last = tide_lowered(arena, tide_text_of(slash ? slash + 1 : name));
    tide_hub_name read;
    const tide_source *base = tide_catalogue_hub_base(arena, name, &read);
    if (!base) base = catalogue_base(arena, name);
    if (!base) base = tide_catalogue_find(arena, last);
    if (!base) base = catalogue_base(arena, last);
    const char *sized = base && !entry_has(arena, base, last, true) ? near_by_words(arena, last) : NULL;
    if (base) return sized ? sized : base->name;
    const char *list = near_by_words(arena, last);
    if (!list) list = near_by_letters(arena, dotted(arena, read.base));
    return list || !strchr(name, ' ') ? list : near_by_run(arena, last);
}

const char *tide_model_undescribed(tide_arena *arena, const char *name) {
    bool is_words = strchr(name, ' ') != NULL; /* which may have other meanings */
    if (is_words && near_by_words(arena, tide_lowered(arena, tide_text_of(name)))) return NULL;
    tide_text last = last_of_path(arena, name);
    for (size_t i = 0; i < TIDE_COUNT_OF(undescribed); i++)
        if (tide_text_matches_one(last, undescribed[i].names)) return undescribed[i].what;
    return NULL;
}
