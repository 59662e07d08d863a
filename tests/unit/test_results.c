/* Recorded training runs, predicted.
 *
 *     test_results ORACLE [STRIDE]     every STRIDE-th run of each file of ORACLE/results
 *
 * A run passes where the peaks of allocated and reserved memory, every figure of every step and the numbers of
 * parameters are equal to the byte, and where each category at the peak is within 0.5 % of it. */
#define _POSIX_C_SOURCE 200809L
#include <cjson/cJSON.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tidemark/tidemark.h"

static int passed, failed;

static double number_at(const cJSON *object, const char *key) {
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsNumber(value) ? value->valuedouble : -1;
}

static int differs(const char *id, const char *where, const cJSON *predicted, const cJSON *measured) {
    int count = 0;
    for (const cJSON *m = measured ? measured->child : NULL; m; m = m->next) {
        if (!cJSON_IsNumber(m)) continue;
        double got = number_at(predicted, m->string);
        if (got == m->valuedouble) continue;
        printf("%s: %s.%s is %.0f, recorded %.0f\n", id, where, m->string, got, m->valuedouble);
        count++;
    }
    return count;
}

static int categories_differ(const char *id, const cJSON *predicted, const cJSON *measured, double peak) {
    int count = 0;
    const cJSON *known = cJSON_GetObjectItem(predicted, "at_peak");
    for (const cJSON *m = cJSON_GetObjectItem(measured, "at_peak")->child; m; m = m->next) {
        double got = number_at(known, m->string), distance = got < 0 ? m->valuedouble : got - m->valuedouble;
        if (distance < 0) distance = -distance;
        if (distance <= peak * 0.005) continue;
        printf("%s: %s at the peak is %.0f, recorded %.0f\n", id, m->string, got, m->valuedouble);
        count++;
    }
    return count;
}

/* The answer to {"call": "verify", "case": ...}; NULL if there is none. */
static cJSON *predict(const cJSON *measured) {
    cJSON *request = cJSON_CreateObject();
    cJSON_AddStringToObject(request, "call", "verify");
    cJSON_AddItemReferenceToObject(request, "case", cJSON_GetObjectItem(measured, "case"));
    char *text = cJSON_PrintUnformatted(request), *answer = NULL;
    size_t length = 0;
    if (text) tide_call(text, strlen(text), NULL, &answer, &length);
    cJSON *predicted = answer ? cJSON_ParseWithLength(answer, length) : NULL;
    tide_free(NULL, answer, length);
    cJSON_free(text);
    cJSON_Delete(request);
    return predicted;
}

static void check(const cJSON *measured) {
    const char *id = cJSON_GetStringValue(cJSON_GetObjectItem(cJSON_GetObjectItem(measured, "case"), "id"));
    cJSON *predicted = predict(measured);
    const cJSON *peaks[2] = {cJSON_GetObjectItem(measured, "allocated_peak"),
                             cJSON_GetObjectItem(measured, "reserved_peak")};
    int wrong = 0;
    if (!cJSON_IsTrue(cJSON_GetObjectItem(predicted, "expressed"))) {
        char *text = cJSON_PrintUnformatted(predicted);
        printf("%s: not expressed: %s\n", id, text ? text : "");
        cJSON_free(text);
        wrong++;
    } else {
        for (int i = 0; i < 2; i++)
            if (number_at(predicted, peaks[i]->string) != peaks[i]->valuedouble) {
                printf("%s: %s is %.0f, recorded %.0f\n", id, peaks[i]->string, number_at(predicted, peaks[i]->string),
                       peaks[i]->valuedouble);
                wrong++;
            }
        wrong += differs(id, "parameters", cJSON_GetObjectItem(predicted, "parameters"),
                         cJSON_GetObjectItem(measured, "parameters"));
        const cJSON *steps = cJSON_GetObjectItem(measured, "steps");
        for (int i = 0; i < cJSON_GetArraySize(steps); i++)
            wrong += differs(id, "steps", cJSON_GetArrayItem(cJSON_GetObjectItem(predicted, "steps"), i),
                             cJSON_GetArrayItem(steps, i));
        if (cJSON_GetObjectItem(measured, "at_peak"))
            wrong += categories_differ(id, predicted, measured, peaks[0]->valuedouble);
    }
    if (wrong)
        failed++;
    else
        passed++;
    cJSON_Delete(predicted);
}

static int check_file(const char *folder, const char *name, int stride) {
    char path[4096];
    static char line[1 << 20];
    snprintf(path, sizeof path, "%s/results/%s", folder, name);
    FILE *file = fopen(path, "rb");
    if (!file) {
        printf("%s cannot be read\n", path);
        return 0;
    }
    for (int i = 0; fgets(line, sizeof line, file); i++) {
        if (i % stride) continue;
        cJSON *measured = cJSON_Parse(line);
        if (cJSON_IsObject(measured)) {
            check(measured);
        } else {
            printf("%s: line %d is no JSON\n", path, i + 1);
            failed++;
        }
        cJSON_Delete(measured);
    }
    fclose(file);
    return 1;
}

static int is_results(const struct dirent *entry) {
    size_t length = strlen(entry->d_name);
    return length > 6 && strcmp(entry->d_name + length - 6, ".jsonl") == 0;
}

int main(int argc, char **argv) {
    char path[4096];
    struct dirent **names = NULL;
    if (argc < 2) return 2;
    int stride = argc > 2 ? atoi(argv[2]) : 1;
    if (stride < 1) stride = 1;
    snprintf(path, sizeof path, "%s/results", argv[1]);
    int count = scandir(path, &names, is_results, alphasort);
    if (count <= 0) failed++;
    for (int i = 0; i < count; i++) {
        if (!check_file(argv[1], names[i]->d_name, stride)) failed++;
        free(names[i]);
    }
    free(names);
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
