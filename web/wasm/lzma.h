/* Reads a .lzma file, as xz --format=lzma writes it: LZMA specification (I. Pavlov), LZMA_Alone. Thirteen bytes say the
 * properties, the size of the dictionary and the length of what is packed; the stream of the range coder follows. What
 * is read stays in reach, so it is its own dictionary. */
#ifndef TIDE_LZMA_H
#define TIDE_LZMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    LZMA_HEADER = 13,
    LZMA_STATES = 12, /* of what came last; below LZMA_MATCHED a literal */
    LZMA_MATCHED = 7,
    LZMA_POSITIONS = 16,   /* the lowest bits of a position, at most 4 */
    LZMA_LITERAL_BITS = 4, /* lc + lp, at most; xz writes no more */
    LZMA_SLOTS = 64,
    LZMA_EVEN = 1 << 10 /* a probability of a half */
};

/* Probabilities that a bit is 0, of 2^11. */
typedef uint16_t lzma_chance;

typedef struct lzma_length_chances {
    lzma_chance is_long, is_longer;
    lzma_chance low[LZMA_POSITIONS][8], middle[LZMA_POSITIONS][8], high[256];
} lzma_length_chances;

typedef struct lzma_chances {
    lzma_chance is_match[LZMA_STATES][LZMA_POSITIONS];
    lzma_chance is_repeated[LZMA_STATES];
    lzma_chance is_older[3][LZMA_STATES];              /* than the newest, the second, the third of the distances */
    lzma_chance is_whole[LZMA_STATES][LZMA_POSITIONS]; /* not of one byte */
    lzma_chance slot[4][LZMA_SLOTS];
    lzma_chance distance[128];
    lzma_chance align[16];
    lzma_length_chances match, repeated;
    lzma_chance literal[1 << LZMA_LITERAL_BITS][0x300];
} lzma_chances;

typedef struct lzma_reader {
    const uint8_t *next, *end;
    uint32_t range, code;
    bool is_cut;
} lzma_reader;

static uint32_t lzma_byte(lzma_reader *reader) {
    if (reader->next < reader->end) return *reader->next++;
    reader->is_cut = true;
    return 0;
}

static void lzma_refill(lzma_reader *reader) {
    if (reader->range >> 24) return;
    reader->range <<= 8;
    reader->code = reader->code << 8 | lzma_byte(reader);
}

static uint32_t lzma_bit(lzma_reader *reader, lzma_chance *chance) {
    uint32_t bound = (reader->range >> 11) * *chance;
    uint32_t bit = reader->code >= bound;
    if (bit) {
        reader->range -= bound;
        reader->code -= bound;
        *chance = (lzma_chance)(*chance - (*chance >> 5));
    } else {
        reader->range = bound;
        *chance = (lzma_chance)(*chance + ((2048 - *chance) >> 5));
    }
    lzma_refill(reader);
    return bit;
}

static uint32_t lzma_tree(lzma_reader *reader, lzma_chance *chances, unsigned bits) {
    uint32_t node = 1;
    while (node >> bits == 0) node = node << 1 | lzma_bit(reader, &chances[node]);
    return node - (1u << bits);
}

/* The lowest bit comes first. */
static uint32_t lzma_reversed_tree(lzma_reader *reader, lzma_chance *chances, unsigned bits) {
    uint32_t node = 1, value = 0;
    for (unsigned i = 0; i < bits; i++) {
        uint32_t bit = lzma_bit(reader, &chances[node]);
        node = node << 1 | bit;
        value |= bit << i;
    }
    return value;
}

static uint32_t lzma_even_bits(lzma_reader *reader, unsigned bits) {
    uint32_t value = 0;
    while (bits--) {
        reader->range >>= 1;
        uint32_t bit = reader->code >= reader->range;
        if (bit) reader->code -= reader->range;
        value = value << 1 | bit;
        lzma_refill(reader);
    }
    return value;
}

static uint32_t lzma_length(lzma_reader *reader, lzma_length_chances *chances, uint32_t position) {
    if (!lzma_bit(reader, &chances->is_long)) return 2 + lzma_tree(reader, chances->low[position], 3);
    if (!lzma_bit(reader, &chances->is_longer)) return 10 + lzma_tree(reader, chances->middle[position], 3);
    return 18 + lzma_tree(reader, chances->high, 8);
}

/* Less 1; of a match of this length. */
static uint32_t lzma_distance(lzma_reader *reader, lzma_chances *chances, uint32_t length) {
    uint32_t slot = lzma_tree(reader, chances->slot[length < 5 ? length - 2 : 3], 6);
    if (slot < 4) return slot;
    unsigned bits = (unsigned)(slot >> 1) - 1;
    uint32_t base = (2 | (slot & 1)) << bits;
    if (slot < 14) return base + lzma_reversed_tree(reader, chances->distance + base - slot, bits);
    base += lzma_even_bits(reader, bits - 4) << 4;
    return base + lzma_reversed_tree(reader, chances->align, 4);
}

/* before: the byte in front. match: at the last distance, where a match came last; its bits predict those of the
 * literal until one differs. */
static uint32_t lzma_literal(lzma_reader *reader, lzma_chance *chances, bool is_behind_match, uint32_t match) {
    uint32_t node = 1;
    if (is_behind_match) {
        for (bool is_alike = true; is_alike && node < 0x100;) {
            uint32_t wanted = (match >> 7) & 1;
            match <<= 1;
            uint32_t bit = lzma_bit(reader, &chances[0x100 + (wanted << 8) + node]);
            node = node << 1 | bit;
            is_alike = bit == wanted;
        }
    }
    while (node < 0x100) node = node << 1 | lzma_bit(reader, &chances[node]);
    return node & 0xff;
}

/* Length of what a file holds as its header says, in bytes; UINT32_MAX where it is no .lzma file, or one that does not
 * say it. */
static uint32_t lzma_unpacked_length(const uint8_t *packed, size_t size) {
    if (size < LZMA_HEADER + 5 || packed[0] >= 9 * 5 * 5 || packed[0] % 9 + packed[0] / 9 % 5 > LZMA_LITERAL_BITS)
        return UINT32_MAX;
    uint32_t length = 0, above = 0;
    for (unsigned i = 0; i < 4; i++) {
        length |= (uint32_t)packed[5 + i] << (8 * i);
        above |= packed[9 + i];
    }
    return above ? UINT32_MAX : length;
}

/* Writes what a file holds: lzma_unpacked_length() bytes, which must be known. False: cut short, or damaged so that it
 * shows; a stream has no checksum. chances: room to work in. */
static bool lzma_unpack(const uint8_t *packed, size_t size, uint8_t *out, lzma_chances *chances) {
    uint32_t length = lzma_unpacked_length(packed, size);
    unsigned literal_bits = packed[0] % 9;
    uint32_t literal_mask = (1u << (packed[0] / 9 % 5)) - 1;
    uint32_t position_mask = (1u << (packed[0] / 45)) - 1;
    lzma_chance *all = (lzma_chance *)chances;
    for (size_t i = 0; i < sizeof *chances / sizeof *all; i++) all[i] = LZMA_EVEN;
    lzma_reader reader = {packed + LZMA_HEADER, packed + size, UINT32_MAX, 0, false};
    if (lzma_byte(&reader)) return false;
    for (unsigned i = 0; i < 4; i++) reader.code = reader.code << 8 | lzma_byte(&reader);

    uint32_t distances[4] = {0}; /* the last ones, less 1 */
    unsigned state = 0;
    for (uint32_t at = 0; at < length;) {
        uint32_t position = at & position_mask;
        if (reader.is_cut) return false;
        if (!lzma_bit(&reader, &chances->is_match[state][position])) {
            uint32_t before = at ? out[at - 1] : 0;
            bool is_behind_match = state >= LZMA_MATCHED;
            lzma_chance *literal = chances->literal[(at & literal_mask) << literal_bits | before >> (8 - literal_bits)];
            out[at] = (uint8_t)lzma_literal(&reader, literal, is_behind_match,
                                            is_behind_match ? out[at - distances[0] - 1] : 0);
            at++;
            state = state < 4 ? 0 : state < 10 ? state - 3 : state - 6;
            continue;
        }
        uint32_t run;
        if (!lzma_bit(&reader, &chances->is_repeated[state])) {
            run = lzma_length(&reader, &chances->match, position);
            for (unsigned i = 3; i; i--) distances[i] = distances[i - 1];
            distances[0] = lzma_distance(&reader, chances, run);
            state = state < LZMA_MATCHED ? 7 : 10;
        } else {
            unsigned which = 0;
            while (which < 3 && lzma_bit(&reader, &chances->is_older[which][state])) which++;
            bool is_whole = which || lzma_bit(&reader, &chances->is_whole[state][position]);
            uint32_t distance = distances[which];
            for (unsigned i = which; i; i--) distances[i] = distances[i - 1];
            distances[0] = distance;
            run = is_whole ? lzma_length(&reader, &chances->repeated, position) : 1;
            state = state >= LZMA_MATCHED ? 11 : is_whole ? 8 : 9;
        }
        if (distances[0] >= at || run > length - at) return false;
        for (; run; run--, at++) out[at] = out[at - distances[0] - 1];
    }
    return !reader.is_cut;
}

#endif
