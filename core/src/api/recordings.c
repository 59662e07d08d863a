/* SPDX-License-Identifier: Apache-2.0 */
/* Calls about a recording. */
#include <string.h>

#include "api/calls.h"

static int base64_digit(char c) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *found = c ? strchr(digits, c) : NULL;
    return found ? (int)(found - digits) : -1;
}

/* False at a character that is not base64. */
static bool feed_base64(tide_recording *r, tide_text text) {
    unsigned char piece[3072];
    size_t length = 0;
    uint32_t bits = 0, count = 0;
    while (text.length && text.at[text.length - 1] == '=') text.length--;
    for (size_t i = 0; i < text.length; i++) {
        int digit = base64_digit(text.at[i]);
        if (digit < 0) return false;
        bits = bits << 6 | (uint32_t)digit;
        count += 6;
        if (count >= 8) piece[length++] = (unsigned char)(bits >> (count -= 8));
        if (length == sizeof piece || i + 1 == text.length) {
            tide_recording_feed(r, piece, length);
            length = 0;
        }
    }
    return true;
}

/* {"text": ...} or {"base64": ...} */
static tide_recording *recording_of_request(call *c) {
    const tide_json *given = tide_json_at(c->request, "recording"), *text = tide_json_at(given, "text"),
                    *base64 = tide_json_at(given, "base64"), *one = text ? text : base64;
    tide_recording *r = TIDE_NEW(&c->arena, tide_recording, 1);
    tide_recording_init(r, &c->arena);
    if (one && one->kind == TIDE_JSON_STRING) {
        if (text) tide_recording_feed(r, text->text.at, text->text.length);
        if (text || feed_base64(r, base64->text)) {
            tide_recording_end(r);
            return r;
        }
    }
    tide_error(&c->diags, TIDE_ERR_REQUEST, "/recording", "a recording is {\"text\": ...} or {\"base64\": ...}", NULL);
    return NULL;
}

/* The recording supplied by the caller or in the request. */
bool call_find_recording(call *c) {
    if (!c->recording) c->recording = recording_of_request(c);
    if (!c->recording) return false;
    const tide_json *damage = tide_json_at(c->request, "damage"); /* an error that the caller found while reading */
    if (damage && damage->kind == TIDE_JSON_STRING && (!c->recording->broken || c->recording->ends_early))
        c->recording->broken = tide_text_copy(c->recording->arena, damage->text);
    return true;
}

int64_t call_recorded_device(const call *c) {
    const tide_json *device = tide_json_at(c->request, "device");
    return device && device->is_integer ? device->integer : -1;
}

/* The device of a request about a recording; NULL after an error. */
static tide_job *job_of_request(call *c) {
    tide_text *words;
    uint32_t word_count;
    if (!call_read_words(c, &words, &word_count)) return NULL;
    tide_job *job = tide_job_device(&c->arena, words, word_count, &c->diags);
    return job && call_find_recording(c) ? job : NULL;
}

static bool answer_replay(call *c) {
    const tide_job *job = job_of_request(c);
    if (!job) return false;
    call_open_answer(c);
    return tide_write_recorded(&c->writer, c->recording, job, call_recorded_device(c), &c->diags) ||
           (c->diags.error_count == 0 && call_out_of_memory(c));
}

static bool answer_recorded_timeline(call *c) {
    const tide_job *job = job_of_request(c);
    if (!job) return false;
    call_open_answer(c);
    return tide_write_recorded_timeline(&c->writer, c->recording, job, call_recorded_device(c),
                                        call_event_at(c, "from", 0), call_event_at(c, "to", UINT32_MAX), &c->diags) ||
           (c->diags.error_count == 0 && call_out_of_memory(c));
}

static bool answer_recorded_events(call *c) {
    const tide_job *job = job_of_request(c);
    tide_window window = call_window(c);
    if (!job) return false;
    call_open_answer(c);
    return tide_write_recorded_events(&c->writer, c->recording, job, call_recorded_device(c), &window, &c->diags) ||
           (c->diags.error_count == 0 && call_out_of_memory(c));
}

static bool answer_recorded_state(call *c) {
    const tide_job *job = job_of_request(c);
    tide_state_query query = call_state_query(c);
    if (!job) return false;
    call_open_answer(c);
    return tide_write_recorded_state(&c->writer, c->recording, job, call_recorded_device(c), &query, &c->diags) ||
           (c->diags.error_count == 0 && call_out_of_memory(c));
}

static bool answer_recorded_bands(call *c) {
    const tide_job *job = job_of_request(c);
    if (!job) return false;
    call_open_answer(c);
    return tide_write_recorded_bands(&c->writer, c->recording, job, call_recorded_device(c),
                                     call_event_at(c, "from", 0), call_event_at(c, "to", UINT32_MAX),
                                     call_event_at(c, "most", TIDE_BANDS), &c->diags) ||
           (c->diags.error_count == 0 && call_out_of_memory(c));
}

static bool answer_recorded_live(call *c) {
    const tide_job *job = job_of_request(c);
    if (!job) return false;
    call_open_answer(c);
    return tide_write_recorded_live(&c->writer, c->recording, job, call_recorded_device(c),
                                    call_event_at(c, "at", TIDE_NEVER), &c->diags) ||
           (c->diags.error_count == 0 && call_out_of_memory(c));
}

static bool answer_recorded_growth(call *c) {
    const tide_job *job = job_of_request(c);
    if (!job) return false;
    call_open_answer(c);
    return tide_write_recorded_growth(&c->writer, c->recording, job, call_recorded_device(c), &c->diags) ||
           (c->diags.error_count == 0 && call_out_of_memory(c));
}

const call_table recording_calls = {{{"replay", answer_replay},
                                     {"recorded_timeline", answer_recorded_timeline},
                                     {"recorded_events", answer_recorded_events},
                                     {"recorded_state", answer_recorded_state},
                                     {"recorded_bands", answer_recorded_bands},
                                     {"recorded_live", answer_recorded_live},
                                     {"recorded_growth", answer_recorded_growth}}};
