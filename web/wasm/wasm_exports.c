/* SPDX-License-Identifier: Apache-2.0 */
/* What the WebAssembly modules export: five functions around tide_call, named in exports.txt with a sixth that takes
 * models.json; for recordings two more (exports_recordings.txt), which open one and add its bytes. Calls then are about
 * it.
 *
 * The page writes a request into memory from tide_wasm_alloc, calls, and reads the answer at tide_wasm_result before
 * the next call, which releases it. */
#include <stdlib.h>
#include <tidemark/tidemark.h>

#include "lang/lang.h"

uint8_t *tide_wasm_alloc(uint32_t bytes);
void tide_wasm_free(uint8_t *at);
uint32_t tide_wasm_call(const uint8_t *request, uint32_t request_len);
const char *tide_wasm_result(void);
uint32_t tide_wasm_result_len(void);
#ifdef TIDEMARK_RECORDINGS
uint32_t tide_wasm_open(void);
uint32_t tide_wasm_add(const uint8_t *bytes, uint32_t length);
#else
uint32_t tide_wasm_models(const uint8_t *text, uint32_t length);
#endif
void setTempRet0(int value);
int getTempRet0(void);
_Noreturn void __wrap_abort(void);
void emscripten_notify_memory_growth(int index);

static const char no_memory[] =
    "{\"ok\":false,\"diagnostics\":[{\"severity\":\"error\",\"code\":\"ERR_NO_MEMORY\",\"place\":"
    "\"\","
    "\"message\":\"the job takes more memory to work out than the module may have\","
    "\"remedy\":\"ask for fewer accumulation steps or images, or ask the tidemark command\"}]}";

static const char no_models[] =
    "{\"ok\":false,\"diagnostics\":[{\"severity\":\"error\",\"code\":\"ERR_NOT_LOADED\",\"place\":"
    "\"\","
    "\"message\":\"the answer needs a description of models.json, which has not been given\","
    "\"remedy\":\"give it to tide_wasm_models and call again\"}]}";

static char *response; /* of the last call; NULL: none, or memory ran out */
static size_t response_len;

/* NULL without memory. */
uint8_t *tide_wasm_alloc(uint32_t bytes) {
    return malloc(bytes ? bytes : 1);
}

void tide_wasm_free(uint8_t *at) {
    free(at);
}

#ifdef TIDEMARK_RECORDINGS
static struct tide_recorded *recording; /* NULL: none is open */

/* Opens a recording in place of the last one; 2: no memory. */
uint32_t tide_wasm_open(void) {
    tide_recording_free(recording);
    recording = NULL;
    return (uint32_t)tide_recording_open(NULL, &recording);
}

/* The next bytes of the recording; 2: no memory. */
uint32_t tide_wasm_add(const uint8_t *bytes, uint32_t length) {
    return (uint32_t)tide_recording_add(recording, bytes, length);
}
#else
/* models.json of the same build, which stays where it is; 1: it is another one. */
uint32_t tide_wasm_models(const uint8_t *text, uint32_t length) {
    if (length != tide_pack_length) return 1;
    tide_pack = (const char *)text;
    return 0;
}
#endif

/* What tide_call returns: 0 a result, 1 an error as JSON, 2 memory ran out (as JSON as well); or 3: models.json is
 * needed (as JSON as well). */
uint32_t tide_wasm_call(const uint8_t *request, uint32_t request_len) {
    tide_free(NULL, response, response_len);
    response = NULL;
    response_len = 0;
    tide_pack_is_missed = false;
#ifdef TIDEMARK_RECORDINGS
    if (recording)
        return (uint32_t)tide_recording_call(recording, (const char *)request, request_len, &response, &response_len);
#endif
    int result = tide_call((const char *)request, request_len, NULL, &response, &response_len);
    return tide_pack_is_missed ? 3 : (uint32_t)result;
}

const char *tide_wasm_result(void) {
    return response ? response : tide_pack_is_missed ? no_models : no_memory;
}

uint32_t tide_wasm_result_len(void) {
    return response ? (uint32_t)response_len
                    : (uint32_t)(tide_pack_is_missed ? sizeof no_models : sizeof no_memory) - 1;
}

/* The second result of a call, which longjmp's code keeps; defined here so that nothing is
 * imported. */
static int second_result;
void setTempRet0(int value) {
    second_result = value;
}
int getTempRet0(void) {
    return second_result;
}

/* The loader takes fresh views after every call. */
void emscripten_notify_memory_growth(int index) {
    (void)index;
}

/* The C library's would ask the host to end the process. */
_Noreturn void __wrap_abort(void) {
    __builtin_trap();
}
