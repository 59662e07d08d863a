/* SPDX-License-Identifier: Apache-2.0 */
/* Recordings from bytes: every reader, and the play. A failure points to core/src/trace/ and core/src/report/player.c.
 *
 * The first byte says how large the pieces are that the rest comes in. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char request[] = "{\"call\":\"replay\",\"settings\":[\"gpu_gib=1\"]}";
    struct tide_recorded *recording;
    char *response = NULL;
    size_t length = 0, piece = size ? (size_t)data[0] * 16 + 1 : 1;
    if (tide_recording_open(NULL, &recording) != 0) abort();
    for (size_t at = 1; at < size; at += piece)
        if (tide_recording_add(recording, data + at, size - at < piece ? size - at : piece) != 0) abort();
    int status = tide_recording_call(recording, request, sizeof request - 1, &response, &length);
    if (status < 0 || status > 1 || !response) abort();
    if (strncmp(response, status ? "{\"ok\":false" : "{\"ok\":true", 10) != 0) abort();
    tide_free(NULL, response, length);
    tide_recording_free(recording);
    return 0;
}
