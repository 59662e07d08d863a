/* Files to text, whole or line by line. */
#define _POSIX_C_SOURCE 200809L
#include "cli.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

bool cli_is_file(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && !S_ISDIR(info.st_mode);
}

bool cli_is_folder(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

const char *cli_base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

bool cli_read_stream(cli_buffer *text, FILE *file, const char *name) {
    char piece[16384];
    size_t length;
    cli_append(text, "", 0);
    while ((length = fread(piece, 1, sizeof piece, file)) > 0) {
        if (text->length + length > CLI_FILE_LIMIT) {
            cli_complain("give the model's config.json", "%s is larger than 64 MiB", name);
            return false;
        }
        cli_append(text, piece, length);
    }
    if (!ferror(file)) return true;
    cli_complain(NULL, "%s: %s", name, strerror(errno));
    return false;
}

bool cli_read_file(cli_buffer *text, const char *path) {
    if (strcmp(path, "-") == 0) return cli_read_stream(text, stdin, "standard input");
    FILE *file = fopen(path, "rb");
    if (!file) {
        cli_complain(NULL, "%s: %s", path, strerror(errno));
        return false;
    }
    bool is_read = cli_read_stream(text, file, path);
    fclose(file);
    return is_read;
}

bool cli_next_line(cli_lines *lines) {
    cli_buffer *line = &lines->line;
    line->length = 0;
    lines->is_too_long = false;
    char piece[16384];
    bool is_any = false;
    while (fgets(piece, sizeof piece, lines->file)) {
        size_t length = strlen(piece);
        is_any = true;
        bool is_end = length > 0 && piece[length - 1] == '\n';
        if (line->length + length > CLI_FILE_LIMIT) lines->is_too_long = true;
        if (!lines->is_too_long) cli_append(line, piece, is_end ? length - 1 : length);
        if (is_end) break;
    }
    return is_any;
}
