/* SPDX-License-Identifier: Apache-2.0 */
/* Links on the command line: finding the fragment of a word, and the compressed form z=1.TEXT: base64url of a zlib
 * stream. The core reads the content. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum {
    READ_LIMIT = 64 << 10,      /* characters of a link */
    INFLATED_LIMIT = 256 << 10, /* bytes, as in the core */
    READABLE_LIMIT = 1800,      /* characters: longer links are compressed, and so are those with a configuration */
    WRITE_LIMIT = 8000,
    LONG_LIMIT = 2000 /* mail and chat programs truncate longer ones */
};

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

const char *cli_link_fragment(const char *word) {
    const char *hash = strchr(word, '#');
    if (hash && (hash == word || strstr(word, "://") || strchr(hash, '=') || strstr(hash, "%3D")))
        if (!memchr(word, '=', (size_t)(hash - word))) return hash + 1;
    const char *equals = strchr(word, '='), *and = strchr(word, '&');
    if (equals && and&&equals < and&&strchr(and, '=')) return word;
    return strncmp(word, "z=1.", 4) == 0 ? word : NULL;
}

/* False at an invalid character. */
static bool base64_read(cli_buffer *out, const char *text) {
    unsigned bits = 0, count = 0;
    for (; *text && *text != '='; text++) {
        const char *digit = strchr(digits, *text);
        if (!digit) return false;
        bits = (bits << 6 | (unsigned)(digit - digits)) & 0xffffff;
        count += 6;
        if (count >= 8) {
            char byte = (char)(bits >> (count -= 8));
            cli_append(out, &byte, 1);
        }
    }
    return true;
}

static void base64_write(cli_buffer *out, const unsigned char *bytes, size_t length) {
    for (size_t i = 0; i < length; i += 3) {
        size_t count = length - i < 3 ? length - i : 3;
        unsigned bits =
            (unsigned)bytes[i] << 16 | (count > 1 ? (unsigned)bytes[i + 1] << 8 : 0) | (count > 2 ? bytes[i + 2] : 0);
        for (size_t k = 0; k <= count; k++) cli_append(out, &digits[bits >> (18 - 6 * k) & 63], 1);
    }
}

/* The content of a compressed link; false with an error message if it is damaged. */
static bool inflate_link(cli_buffer *out, const char *text) {
    cli_buffer packed = {0};
    cli_append(&packed, "", 0);
    bool is_read = base64_read(&packed, text);
    uLongf length = INFLATED_LIMIT;
    unsigned char *bytes = cli_grow(NULL, INFLATED_LIMIT, 1);
    int state = is_read ? uncompress(bytes, &length, (const unsigned char *)packed.at, packed.length) : Z_DATA_ERROR;
    if (state == Z_OK)
        cli_append(out, (const char *)bytes, length);
    else if (state == Z_BUF_ERROR && length == INFLATED_LIMIT)
        cli_complain(NULL, "the link holds more than 256 KiB");
    else
        cli_complain("copy it again from where it came from", "the link is damaged or truncated");
    free(bytes);
    cli_buffer_free(&packed);
    return state == Z_OK;
}

bool cli_link_read(cli_buffer *text, const char *fragment) {
    if (strlen(fragment) > READ_LIMIT) {
        cli_complain(NULL, "the link is longer than 64 KiB");
        return false;
    }
    if (strncmp(fragment, "z=", 2) != 0) {
        cli_append_text(text, fragment);
        return true;
    }
    if (strncmp(fragment, "z=1.", 4) != 0) {
        cli_complain("update tidemark", "the link is compressed in a way that this version does not know");
        return false;
    }
    return inflate_link(text, fragment + 4);
}

bool cli_link_pack(cli_buffer *out, const char *link) {
    size_t length = strlen(link);
    if (length <= READABLE_LIMIT && !strstr(link, "%7B")) {
        cli_append_text(out, link);
        return true;
    }
    uLongf packed_length = compressBound((uLong)length);
    unsigned char *packed = cli_grow(NULL, packed_length, 1);
    compress2(packed, &packed_length, (const unsigned char *)link, (uLong)length, 9);
    cli_append_text(out, "z=1.");
    base64_write(out, packed, packed_length);
    free(packed);
    if (length > INFLATED_LIMIT || out->length > WRITE_LIMIT) return false;
    if (out->length > LONG_LIMIT)
        cli_complain(NULL, "the link has %zu characters: some mail and chat programs truncate it", out->length);
    return true;
}
