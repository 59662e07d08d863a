/* SPDX-License-Identifier: Apache-2.0 */
/* {"call": "gguf", "base64": the first bytes of a GGUF file}: its header as the JSON that a job accepts instead of the
 * file, {"text": ...}, or {"is_cut": true} if more bytes are needed. */
#include "base/gguf.h"
#include "api/calls.h"

static int base64_value(char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* RFC 4648, 4; anything after the padding is ignored. */
static bool decode_base64(tide_arena *arena, tide_text text, tide_text *bytes) {
    char *out = tide_arena_alloc(arena, text.length / 4 * 3 + 3);
    uint32_t bits = 0;
    unsigned count = 0;
    *bytes = (tide_text){out, 0};
    for (size_t i = 0; i < text.length && text.at[i] != '='; i++) {
        int value = base64_value(text.at[i]);
        if (value < 0) return false;
        bits = bits << 6 | (uint32_t)value;
        if ((count += 6) < 8) continue;
        count -= 8;
        out[bytes->length++] = (char)(bits >> count & 0xff);
    }
    return true;
}

bool call_answer_gguf(call *c) {
    tide_text bytes;
    tide_writer header;
    if (!decode_base64(&c->arena, call_text_at(c, "base64"), &bytes))
        return tide_error(&c->diags, TIDE_ERR_REQUEST, "/base64", "is no base64", NULL);
    tide_writer_init(&header, &c->arena);
    tide_gguf_end end = tide_gguf_write(&header, bytes, "/base64", &c->diags);
    if (end == TIDE_GGUF_BAD) return false;
    call_open_answer(c);
    if (end == TIDE_GGUF_CUT) {
        tide_write_bool_at(&c->writer, "is_cut", true);
        return true;
    }
    tide_write_key(&c->writer, "text");
    tide_write_text(&c->writer, (tide_text){header.bytes, header.length});
    return true;
}
