/* SPDX-License-Identifier: Apache-2.0 */
/* Reading files as text, in full or line by line. */
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

bool cli_ends_in(const char *text, const char *end) {
    size_t length = strlen(text), tail = strlen(end);
    return length > tail && strcmp(text + length - tail, end) == 0;
}

/* Reads only the header of a safetensors file of any size: eight bytes with its length, then JSON. */
static bool read_header(cli_buffer *text, FILE *file, const char *path) {
    unsigned char length[8];
    uint64_t bytes = 0;
    struct stat info;
    if (fread(length, 1, sizeof length, file) != sizeof length || fstat(fileno(file), &info) != 0) {
        cli_complain("is the download complete? Fetch the file again", "%s is too short to be a safetensors file",
                     path);
        return false;
    }
    for (int i = 7; i >= 0; i--) bytes = bytes << 8 | length[i];
    if (bytes > CLI_HEADER_LIMIT || bytes < 2) {
        cli_complain("is it a safetensors file?", "%s: its header would have %llu bytes, more than the limit of 100 MB",
                     path, (unsigned long long)bytes);
        return false;
    }
    if (S_ISREG(info.st_mode) && (uint64_t)info.st_size < bytes + sizeof length) {
        cli_complain("is the download complete? Fetch the file again", "%s ends within its header", path);
        return false;
    }
    cli_append(text, "", 0);
    char piece[16384];
    while (bytes > 0) {
        size_t part = fread(piece, 1, bytes < sizeof piece ? (size_t)bytes : sizeof piece, file);
        if (!part) {
            cli_complain("is the download complete? Fetch the file again", "%s ends within its header", path);
            return false;
        }
        cli_append(text, piece, part);
        bytes -= part;
    }
    return true;
}

static void append_base64(cli_buffer *out, const unsigned char *bytes, size_t length) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < length; i += 3) {
        uint32_t three = (uint32_t)bytes[i] << 16 | (i + 1 < length ? (uint32_t)bytes[i + 1] << 8 : 0) |
                         (i + 2 < length ? bytes[i + 2] : 0);
        char four[4] = {digits[three >> 18], digits[three >> 12 & 63], digits[three >> 6 & 63], digits[three & 63]};
        if (i + 2 >= length) four[3] = '=';
        if (i + 1 >= length) four[2] = '=';
        cli_append(out, four, sizeof four);
    }
}

/* Reads only the header of a GGUF file, as the JSON that the core makes of it, reading on until it is complete. */
static bool read_gguf(cli_buffer *text, FILE *file, const char *path) {
    cli_buffer bytes = {0};
    bool is_cut = true;
    char piece[16384];
    for (size_t goal = 4 << 20; is_cut; goal *= 2) {
        size_t length = 1;
        while (bytes.length < goal && (length = fread(piece, 1, sizeof piece, file)) > 0)
            cli_append(&bytes, piece, length);
        cli_buffer request = {0};
        cli_answer answer;
        cli_append_text(&request, "{\"call\":\"gguf\",\"base64\":\"");
        append_base64(&request, (const unsigned char *)bytes.at, bytes.length);
        cli_append_text(&request, "\"}");
        int status = cli_ask_or_explain(&answer, &request, false);
        cli_buffer_free(&request);
        if (status != CLI_OK) break;
        is_cut = cli_true_at(answer.json, "is_cut");
        if (!is_cut) cli_append_text(text, cli_text_at(answer.json, "text"));
        cli_answer_free(&answer);
        if (!is_cut || (length && goal < CLI_FILE_LIMIT)) continue;
        cli_complain("is the download complete? Fetch the file again", "%s ends within its header", path);
        break;
    }
    cli_buffer_free(&bytes);
    return !is_cut;
}

bool cli_read_file(cli_buffer *text, const char *path) {
    if (strcmp(path, "-") == 0) return cli_read_stream(text, stdin, "standard input");
    FILE *file = fopen(path, "rb");
    if (!file) {
        bool has_type = cli_ends_in(path, ".gguf"); /* in its name */
        cli_complain(has_type ? "without the file write the command: tidemark serve llama-server -m NAME" : NULL,
                     "%s: %s", path, strerror(errno));
        return false;
    }
    bool is_read = cli_ends_in(path, ".safetensors") ? read_header(text, file, path)
                   : cli_ends_in(path, ".gguf")      ? read_gguf(text, file, path)
                                                     : cli_read_stream(text, file, path);
    fclose(file);
    return is_read;
}
