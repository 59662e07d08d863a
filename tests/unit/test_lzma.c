/* Failures point to web/wasm/lzma.h: it must read what xz wrote, and whatever else comes must not lead it outside.
 *
 *     test_lzma FOLDER      with tests/lzma: content() as xz packs it with other properties each
 *     test_lzma --content   what was packed
 *
 *     test_lzma --content | xz --format=lzma --lzma1=preset=9e,lc=3,lp=0,pb=0 >lc3-lp0-pb0.lzma
 * Where the name ends in "-known" the length was written over the eight bytes of ones in the header. */
#include "../../web/wasm/lzma.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONTENT = 24000, FILE_LIMIT = 1 << 16 };

static int passed, failed;

static void check(bool is_right, const char *name, const char *what) {
    if (is_right)
        passed++;
    else
        failed++, printf("FAIL %s: %s\n", name, what);
}

/* xorshift64 */
static uint64_t state;
static uint32_t below(uint32_t limit) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state % limit);
}

/* Bytes of their own, what stood before at all distances and lengths, and the same but for one byte. */
static void content(uint8_t *out) {
    state = 88172645463325252u;
    for (uint32_t at = 0; at < CONTENT;) {
        uint32_t kind = below(4), run = kind ? 1 + below(kind == 3 ? 400 : 12) : 1 + below(60);
        uint32_t distance = at ? 1 + below(below(3) ? (at < 200 ? at : 200) : at) : 0;
        for (uint32_t i = 0; i < run && at < CONTENT; i++, at++) {
            out[at] = kind == 0 || !distance ? (uint8_t)below(1u << (1 + below(8))) : out[at - distance];
            if (kind == 2 && i % 5 == 4) out[at] ^= 1;
        }
    }
}

/* A copy of its own size, so that a read behind it shows. */
static bool unpack(const uint8_t *file, size_t size, uint8_t *out, uint32_t *length) {
    static lzma_chances chances;
    uint8_t *copy = malloc(size ? size : 1);
    if (!copy) abort();
    if (size) memcpy(copy, file, size);
    *length = lzma_unpacked_length(copy, size);
    bool is_right = *length <= CONTENT && lzma_unpack(copy, size, out, &chances);
    free(copy);
    return is_right;
}

static size_t read_file(const char *folder, const char *name, uint8_t *bytes) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s.lzma", folder, name);
    FILE *file = fopen(path, "rb");
    if (!file) printf("FAIL %s cannot be read\n", path), exit(1);
    size_t size = fread(bytes, 1, FILE_LIMIT, file);
    fclose(file);
    return size;
}

int main(int count, char **words) {
    static uint8_t expected[CONTENT], file[FILE_LIMIT];
    if (count != 2) return 2;
    content(expected);
    if (strcmp(words[1], "--content") == 0) return fwrite(expected, 1, CONTENT, stdout) != CONTENT;
    uint8_t *out = malloc(CONTENT);
    if (!out) return 2;

    static const char *const names[] = {"lc3-lp0-pb0-known", "lc0-lp4-pb4-known", "lc4-lp0-pb2-known",
                                        "lc1-lp2-pb1-known"};
    uint32_t length;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t size = read_file(words[1], names[i], file);
        memset(out, 0, CONTENT);
        check(unpack(file, size, out, &length) && length == CONTENT && memcmp(out, expected, CONTENT) == 0, names[i],
              "is read");

        bool is_refused = true;
        for (size_t cut = 0; cut < size - 16; cut += 1 + cut / 40) is_refused &= !unpack(file, cut, out, &length);
        check(is_refused, names[i], "a cut file is refused");

        /* Damage need not show, but nothing is read or written outside (sanitizers), and it ends. */
        state = 1;
        bool is_same = false;
        for (int round = 0; round < 200; round++) {
            uint32_t at = LZMA_HEADER + below((uint32_t)size - LZMA_HEADER - 16);
            uint8_t was = file[at];
            file[at] ^= (uint8_t)(1 + below(255));
            is_same |= unpack(file, size, out, &length) && memcmp(out, expected, CONTENT) == 0;
            file[at] = was;
        }
        check(!is_same, names[i], "damage is not read as what was packed");

        file[0] = 225;
        check(lzma_unpacked_length(file, size) == UINT32_MAX, names[i], "properties that do not exist are refused");
        file[0] = 8;
        check(lzma_unpacked_length(file, size) == UINT32_MAX, names[i],
              "more context than there is room for is refused");
    }
    check(lzma_unpacked_length(file, read_file(words[1], "lc3-lp0-pb0", file)) == UINT32_MAX, "lc3-lp0-pb0",
          "a length that is not said is refused");

    /* Streams of nothing but chance. */
    for (int round = 0; round < 500; round++) {
        static const uint8_t properties[] = {3, 93, 0, 36, 224};
        size_t size = LZMA_HEADER + 5 + below(300);
        for (size_t i = 0; i < size; i++) file[i] = (uint8_t)below(256);
        file[0] = properties[below(sizeof properties)];
        memcpy(file + 5, "\xc0\x5d\0\0\0\0\0\0", 8);
        file[LZMA_HEADER] = 0;
        unpack(file, size, out, &length);
    }
    check(length == CONTENT, "chance", "is read to an end");
    free(out);
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
