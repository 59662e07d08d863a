/* SPDX-License-Identifier: Apache-2.0 */
/* Every published configuration of the catalogue gives the number of parameters that its page gives. */
#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

#include "tidemark/tidemark.h"

/* The answer to a request; NULL if there is none. */
static cJSON *ask(const char *request) {
    char *answer = NULL;
    size_t length = 0;
    tide_call(request, strlen(request), NULL, &answer, &length);
    cJSON *parsed = answer ? cJSON_ParseWithLength(answer, length) : NULL;
    tide_free(NULL, answer, length);
    return parsed;
}

/* The count at a small batch; 0 if the job is refused, as one that does not hold the tokens of an image is. */
static double counted(const char *name, const char *settings) {
    char request[512];
    snprintf(request, sizeof request, "{\"call\": \"estimate\", \"settings\": [\"model=%s\", %s]}", name, settings);
    cJSON *answer = ask(request);
    const cJSON *total =
        cJSON_GetObjectItem(cJSON_GetObjectItem(cJSON_GetObjectItem(answer, "model"), "parameters"), "total");
    double count = cJSON_IsNumber(total) ? total->valuedouble : 0;
    cJSON_Delete(answer);
    return count;
}

int main(void) {
    static const char *const settings[] = {"\"seq=64\", \"images=0\"", "\"seq=64\"", "\"seq=4096\"", "\"batch=1\""};
    cJSON *known = ask("{\"call\": \"describe\"}");
    int passed = 0, failed = 0;
    for (const cJSON *model = cJSON_GetObjectItem(known, "models") ? cJSON_GetObjectItem(known, "models")->child : NULL;
         model; model = model->next) {
        const char *name = cJSON_GetStringValue(cJSON_GetObjectItem(model, "name"));
        const cJSON *published = cJSON_GetObjectItem(model, "parameters");
        double count = 0;
        for (size_t i = 0; name && count <= 0 && i < sizeof settings / sizeof *settings; i++)
            count = counted(name, settings[i]);
        if (count > 0 && cJSON_IsNumber(published) && count == published->valuedouble) {
            passed++;
            continue;
        }
        printf("%s: %.0f parameters, published %.0f\n", name ? name : "?", count,
               published ? published->valuedouble : 0);
        failed++;
    }
    cJSON_Delete(known);
    if (passed < 120) printf("%d models: at least 120 belong into the catalogue\n", passed), failed++;
    printf("%d passed, %d failed\n", passed, failed);
    return failed > 0;
}
