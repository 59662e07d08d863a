/* SPDX-License-Identifier: Apache-2.0 */
/* Plays saved inputs through a fuzz target, with any compiler.
 *
 *     TARGET FOLDER
 *
 * Each input must return: a crash ends the program, and the line with the count is missing. */
#define _POSIX_C_SOURCE 200809L
#include <dirent.h>

#include "fuzz.h"

static int play_file(const char *path) {
    FILE *file = fopen(path, "rb");
    fuzz_request input = {0};
    char piece[4096];
    size_t length;
    if (!file) {
        printf("FAIL %s: cannot be read\n", path);
        return 1;
    }
    while ((length = fread(piece, 1, sizeof piece, file)) > 0) fuzz_append(&input, piece, length);
    fclose(file);
    LLVMFuzzerTestOneInput((const uint8_t *)input.at, input.length);
    free(input.at);
    return 0;
}

int main(int argc, char **argv) {
    int passed = 0, failed = 0;
    DIR *folder = argc > 1 ? opendir(argv[1]) : NULL;
    struct dirent *entry;
    while (folder && (entry = readdir(folder))) {
        char path[1024];
        if (entry->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", argv[1], entry->d_name);
        if (play_file(path))
            failed++;
        else
            passed++;
    }
    if (folder) closedir(folder);
    printf("%d passed, %d failed\n", passed, failed);
    return failed || passed == 0 ? 1 : 0;
}
