/* SPDX-License-Identifier: Apache-2.0 */
/* The jobs of a folder, for the tests that play all of them. */
#ifndef TIDE_GOLDEN_H
#define TIDE_GOLDEN_H

#include <dirent.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct golden_names {
    char *names[256]; /* without .job.json, sorted */
    size_t count;
} golden_names;

static inline int golden_compare(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static inline golden_names golden_list(const char *folder) {
    static const char end[] = ".job.json";
    golden_names list = {.count = 0};
    DIR *opened = opendir(folder);
    struct dirent *entry;
    while (opened && (entry = readdir(opened)) && list.count < 256) {
        size_t length = strlen(entry->d_name), end_length = sizeof end - 1;
        if (length <= end_length || strcmp(entry->d_name + length - end_length, end) != 0) continue;
        char *name = malloc(length + 1);
        if (!name) abort();
        memcpy(name, entry->d_name, length + 1);
        name[length - end_length] = 0;
        list.names[list.count++] = name;
    }
    if (opened)
        closedir(opened);
    else
        fprintf(stderr, "%s: no such folder\n", folder);
    qsort(list.names, list.count, sizeof *list.names, golden_compare);
    return list;
}

static inline void golden_names_free(golden_names *list) {
    for (size_t i = 0; i < list->count; i++) free(list->names[i]);
}

static inline FILE *golden_open(const char *folder, const char *name, const char *end, const char *mode) {
    char path[1024];
    snprintf(path, sizeof path, "%s/%s%s", folder, name, end);
    return fopen(path, mode);
}

/* Terminated; NULL if there is no such file. */
static inline char *golden_read(const char *folder, const char *name, const char *end, size_t *length) {
    FILE *file = golden_open(folder, name, end, "rb");
    char *text = NULL;
    size_t capacity = 0;
    *length = 0;
    while (file) {
        if (*length + 1 >= capacity) {
            capacity = capacity ? capacity * 2 : 65536;
            text = realloc(text, capacity);
            if (!text) abort();
        }
        size_t more = fread(text + *length, 1, capacity - *length - 1, file);
        *length += more;
        if (more) continue;
        text[*length] = 0;
        fclose(file);
        file = NULL;
    }
    return text;
}

static inline void golden_write(const char *folder, const char *name, const char *end, const char *text,
                                size_t length) {
    FILE *file = golden_open(folder, name, end, "wb");
    if (!file || fwrite(text, 1, length, file) != length) {
        perror(name);
        exit(1);
    }
    fclose(file);
}

#endif
