/* SPDX-License-Identifier: Apache-2.0 */
/* Answers that play the job with other settings, held against the plain estimate of each. */
#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tidemark/tidemark.h"

static int passed, failed;

static void check(bool holds, const char *what, const char *of) {
    if (holds)
        passed++;
    else
        printf("FAIL %s: %s\n", of, what), failed++;
}

/* The answer to {"call": call, "settings": words, "with": other words, more}; NULL if it is refused. */
static cJSON *ask(const char *call, const char *words, const char *with, const char *more) {
    char request[2000], *text = NULL;
    size_t length = 0;
    snprintf(request, sizeof request, "{\"call\":\"%s\",\"settings\":[%s],\"with\":[%s]%s}", call, words, with, more);
    int status = tide_call(request, strlen(request), NULL, &text, &length);
    cJSON *answer = text ? cJSON_ParseWithLength(text, length) : NULL;
    tide_free(NULL, text, length);
    if (!status && answer) return answer;
    printf("%s: status %d\n", request, status);
    cJSON_Delete(answer);
    return NULL;
}

static const cJSON *at(const cJSON *object, const char *key) {
    return cJSON_GetObjectItemCaseSensitive(object, key);
}

static double number(const cJSON *object, const char *key) {
    const cJSON *item = at(object, key);
    return cJSON_IsNumber(item) ? item->valuedouble : -1;
}

/* What an estimate of these words needs. */
static double need_of(const char *words) {
    cJSON *answer = ask("estimate", words, "", "");
    double need = number(at(answer, "verdict"), "device_bytes");
    cJSON_Delete(answer);
    return need;
}

static double sum_of(const cJSON *object) {
    double sum = 0;
    for (const cJSON *item = object ? object->child : NULL; item; item = item->next) sum += item->valuedouble;
    return sum;
}

/* ---- compare ---- */

static double sum_of_parts(const cJSON *parts, const char *side) {
    double sum = 0;
    for (const cJSON *part = parts ? parts->child : NULL; part; part = part->next) sum += sum_of(at(part, side));
    return sum;
}

static void check_compare(const char *one, const char *other, const char *steps) {
    cJSON *answer = ask("compare", one, other, "");
    const cJSON *settings = at(answer, "settings");
    double changes = 0;
    char played[200] = "";
    for (const cJSON *s = settings ? settings->child : NULL; s; s = s->next) {
        if (!at(s, "change")) continue;
        changes += number(s, "change");
        snprintf(played + strlen(played), sizeof played - strlen(played), "%s ", at(s, "setting")->valuestring);
    }
    check(number(at(answer, "one"), "device_bytes") == need_of(one), "the first job is not its estimate", one);
    check(number(at(answer, "other"), "device_bytes") == need_of(other), "the second job is not its estimate", other);
    check(changes == number(at(answer, "other"), "device_bytes") - number(at(answer, "one"), "device_bytes"),
          "the changes do not add up", other);
    check(strcmp(played, steps) == 0, played, steps);
    const char *const sides[] = {"one", "other"};
    for (int i = 0; i < 2; i++) {
        const cJSON *side = at(answer, sides[i]);
        check(sum_of_parts(at(answer, "parts"), sides[i]) == number(side, "allocated_peak"),
              "parts do not sum to the peak", sides[i]);
        check(sum_of(at(side, "factors")) == number(side, "allocated_peak"), "factors do not sum to the peak",
              sides[i]);
    }
    cJSON_Delete(answer);
}

/* ---- fit, advice, GPUs ---- */

static void check_fit(const char *job, const char *knob) {
    char more[100], words[600];
    snprintf(more, sizeof more, ",\"knob\":\"%s\"", knob);
    cJSON *answer = ask("fit", job, "", more);
    const cJSON *row = cJSON_GetArrayItem(at(answer, "rows"), 0);
    double largest = number(row, "largest");
    check(largest >= 1, "nothing fits", knob);
    for (int i = 0; i < 2; i++) {
        snprintf(words, sizeof words, "%s,\"%s=%.0f\"", job, knob, largest + i);
        cJSON *played = ask("estimate", words, "", "");
        check(cJSON_IsTrue(at(at(played, "verdict"), "fits")) == (i == 0),
              i ? "one more fits" : "the largest does not fit", words);
        if (i == 0)
            check(number(at(played, "verdict"), "device_bytes") == number(row, "device_bytes"), "needs something else",
                  words);
        cJSON_Delete(played);
    }
    cJSON_Delete(answer);
}

static void check_advice(const char *job) {
    cJSON *answer = ask("advice", job, "", "");
    double last = 1e18, now = number(at(answer, "now"), "device_bytes");
    int count = 0;
    check(now == need_of(job), "it is not the estimate", job);
    for (const cJSON *change = at(answer, "changes") ? at(answer, "changes")->child : NULL; change;
         change = change->next, count++) {
        char words[1000];
        snprintf(words, sizeof words, "%s", job);
        for (const cJSON *word = at(change, "settings")->child; word; word = word->next)
            snprintf(words + strlen(words), sizeof words - strlen(words), ",\"%s\"", word->valuestring);
        check(number(change, "device_bytes") == need_of(words), "the change was not played", words);
        check(number(change, "saves") == now - number(change, "device_bytes"), "saves something else", words);
        check(number(change, "saves") <= last, "is not in order", words);
        last = number(change, "saves");
    }
    check(count > 3, "has little to say", job);
    cJSON_Delete(answer);
}

/* Whether a change of exactly these words, or of words that begin so where they end in `=` or `.`, is among those
 * tried. */
static bool advises(const cJSON *answer, const char *words) {
    size_t length = strlen(words);
    bool is_beginning = strchr("=.", words[length - 1]) != NULL;
    for (const cJSON *change = at(answer, "changes") ? at(answer, "changes")->child : NULL; change;
         change = change->next) {
        char text[400] = "";
        for (const cJSON *word = at(change, "settings")->child; word; word = word->next)
            sprintf(text + strlen(text), "%s%s", *text ? " " : "", word->valuestring);
        if (is_beginning ? strncmp(text, words, length) == 0 : strcmp(text, words) == 0) return true;
    }
    return false;
}

/* Changes that concern the job are played, others are not; lists are joined by `|`. */
static void check_advises(const char *job, const char *wanted, const char *unwanted) {
    cJSON *answer = ask("advice", job, "", "");
    for (int i = 0; i < 2; i++) {
        char list[600];
        snprintf(list, sizeof list, "%s", i ? unwanted : wanted);
        for (char *words = strtok(list, "|"); words; words = strtok(NULL, "|"))
            check(advises(answer, words) == (i == 0), i ? "is advised" : "is not advised", words);
    }
    cJSON_Delete(answer);
}

static void check_cards(const char *job) {
    cJSON *answer = ask("cards", job, "", "");
    int fit = 0, not_fit = 0;
    for (const cJSON *card = at(answer, "cards") ? at(answer, "cards")->child : NULL; card; card = card->next) {
        char words[600];
        snprintf(words, sizeof words, "%s,\"gpu=%s\"", job, at(card, "name")->valuestring);
        cJSON *played = ask("estimate", words, "", "");
        bool fits = cJSON_IsTrue(at(at(played, "verdict"), "fits"));
        check(fits == (number(card, "cards") == 1), "another verdict than the estimate's", words);
        check(number(card, "device_bytes") == number(at(played, "verdict"), "device_bytes"), "needs something else",
              words);
        if (fits)
            fit++;
        else
            not_fit++;
        cJSON_Delete(played);
    }
    check(fit > 0 && not_fit > 0, "all GPUs are alike", job);
    cJSON_Delete(answer);
}

/* The answer to measure, which may be that it is refused. */
static cJSON *measured(const char *words, const char *more) {
    char request[2400], *text = NULL;
    size_t length = 0;
    snprintf(request, sizeof request, "{\"call\":\"measure\",\"settings\":[%s]%s}", words, more);
    tide_call(request, strlen(request), NULL, &text, &length);
    cJSON *answer = cJSON_ParseWithLength(text, length);
    tide_free(NULL, text, length);
    return answer;
}

/* Each cell is what measure says of the job with its words, whatever stands before it: figures, or why it is refused.
 */
static void check_cells(const char *job, const char *const *cells, size_t count) {
    static const char *const figures[][2] = {{"peak", "allocated"},
                                             {"peak", "reserved"},
                                             {"peak", "rank"},
                                             {"verdict", "device_bytes"},
                                             {"verdict", "margin_bytes"}};
    char more[1600] = ",\"cells\":[", words[600];
    for (size_t i = 0; i < count; i++) sprintf(more + strlen(more), "%s[%s]", i ? "," : "", cells[i]);
    strcat(more, "]");
    cJSON *answer = measured(job, more);
    check(cJSON_GetArraySize(at(answer, "cells")) == (int)count, "has other cells", job);
    for (size_t i = 0; i < count; i++) {
        const cJSON *cell = cJSON_GetArrayItem(at(answer, "cells"), (int)i);
        snprintf(words, sizeof words, "%s,%s", job, cells[i]);
        cJSON *alone = measured(words, "");
        bool is_refused = strstr(cells[i], "none") != NULL || strstr(cells[i], "99999") != NULL;
        check(cJSON_IsTrue(at(cell, "ok")) != is_refused && cJSON_IsTrue(at(alone, "ok")) != is_refused,
              "is refused, or is not", words);
        for (size_t k = 0; k < sizeof figures / sizeof *figures; k++)
            check(number(at(cell, figures[k][0]), figures[k][1]) == number(at(alone, figures[k][0]), figures[k][1]),
                  figures[k][1], words);
        check(cJSON_IsTrue(at(at(cell, "verdict"), "fits")) == cJSON_IsTrue(at(at(alone, "verdict"), "fits")), "fits",
              words);
        check(!is_refused ||
                  (at(cell, "diagnostics") && cJSON_Compare(at(cell, "diagnostics"), at(alone, "diagnostics"), true)),
              "says something else", words);
        cJSON_Delete(alone);
    }
    cJSON_Delete(answer);
}

/* Cells of all kinds, and such as differ in the step alone, for which the model is not loaded again. */
static void check_all_cells(void) {
    static const char *const of_all_kinds[] = {"\"batch=2\"",
                                               "\"batch=64\",\"seq=1024\"",
                                               "\"checkpointing=full\"",
                                               "\"batch=none\"",
                                               "\"batch=3\"",
                                               "\"model=qwen2-0.5b\"",
                                               "\"parallel.kind=zero2\",\"parallel.dp=4\"",
                                               "\"adapter=lora\"",
                                               "\"seq=77\",\"parallel.kind=fsdp2\",\"parallel.dp=3\"",
                                               "\"overrides.n_layer=2\"",
                                               "\"mode=generate\",\"decode=3\"",
                                               "\"batch=2\""};
    static const char *const of_steps[] = {"\"batch=1\",\"seq=640\"",
                                           "\"batch=3\",\"seq=640\"",
                                           "\"batch=1\",\"seq=99999999\"",
                                           "\"batch=1\",\"seq=650\"",
                                           "\"batch=2\",\"seq=640\"",
                                           "\"batch=2\"",
                                           "\"batch=2\",\"steps=1\"",
                                           "\"batch=2\",\"grad_accum=3\"",
                                           "\"batch=2\",\"allocator=expandable_segments:True\"",
                                           "\"batch=2\",\"memory_fraction=0.4\"",
                                           "\"batch=1\",\"seq=640\""};
    static const char *const jobs[] = {
        "\"model=llava-1.5-7b\",\"gpu=h100-80\",\"freeze=vision_tower\",\"checkpointing=full\"",
        "\"model=gpt2\",\"gpu=t4\",\"dtype=fp32\",\"autocast=fp16\"",
        "\"model=llama-2-7b\",\"gpu=a100-40\",\"quant=nf4\",\"adapter=lora\"",
        "\"model=gpt2\",\"mode=generate\",\"decode=2\""};
    check_cells("\"model=gpt2\",\"gpu=t4\"", of_all_kinds, sizeof of_all_kinds / sizeof *of_all_kinds);
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++)
        check_cells(jobs[i], of_steps, sizeof of_steps / sizeof *of_steps);
}

int main(void) {
    check_all_cells();
    const char *small = "\"model=gpt2\",\"overrides.n_layer=3\",\"batch=4\",\"seq=256\"";
    check_compare(small,
                  "\"model=gpt2\",\"overrides.n_layer=3\",\"batch=8\",\"seq=256\",\"optimizer=sgd\",\"parallel.kind="
                  "zero2\",\"parallel.dp=2\"",
                  "batch optimizer parallel.dp ");
    check_compare("\"model=gpt2\"", "\"model=qwen2-0.5b\",\"checkpointing=full\"", "model checkpointing ");
    check_compare(small, small, "");
    check_compare("\"recipe=llava-finetune\",\"seq=640\"", "\"recipe=llava-pretrain\",\"seq=640\"", "recipe ");
    check_fit("\"model=gpt2\",\"gpu=t4\",\"seq=512\"", "batch");
    check_fit("\"model=gpt2\",\"gpu=t4\",\"batch=24\"", "seq");
    check_advice("\"model=gpt2\",\"gpu=t4\",\"batch=8\",\"seq=512\"");
    check_advice("\"model=qwen2-0.5b\",\"batch=3\",\"parallel.kind=zero3\",\"parallel.dp=16\"");
    check_advises("\"model=gpt2\",\"batch=8\"",
                  "batch=4 grad_accum=2|checkpointing=full|loss=no_upcast|parallel.kind=zero2 "
                  "parallel.offload_optimizer=cpu|parallel.kind=zero3 parallel.dp=8 parallel.zero_init=true",
                  "loss=liger|quant=nf4|parallel.dp=2");
    check_advises("\"model=llama-3.2-1b\"", "loss=liger", "batch=");
    check_advises("\"model=llama-3.1-70b\",\"parallel.kind=zero3\",\"parallel.dp=16\"",
                  "parallel.dp=32|parallel.zero_init=true|parallel.offload_optimizer=cpu parallel.offload_param=cpu",
                  "parallel.dp=8|parallel.kind=");
    check_advises("\"model=qwen2-0.5b\",\"parallel.kind=ddp\",\"parallel.dp=4\"",
                  "parallel.kind=zero2|parallel.kind=fsdp2 parallel.meta_init=true",
                  "parallel.kind=zero2 parallel.dp=8|parallel.offload");
    check_advises("\"model=llama-3.1-70b\",\"parallel.kind=fsdp2\",\"parallel.dp=16\"",
                  "parallel.meta_init=true|parallel.offload=true", "parallel.zero_init=");
    check_advises("\"model=qwen2-0.5b\",\"mode=infer\"", "quant=nf4|quant=int8",
                  "quant=nf4 adapter=lora|checkpointing=full|optimizer=|parallel.");
    check_cards("\"model=gpt2\",\"batch=16\",\"seq=512\"");
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
