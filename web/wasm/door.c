/* The WebAssembly door: five functions around tide_call, named in exports.txt.
 *
 * The page writes a request into memory from tide_wasm_alloc, calls, and reads the answer at
 * tide_wasm_result before the next call, which releases it. */
#include <stdlib.h>
#include <tidemark/tidemark.h>

#include "decimal.h"

uint8_t *tide_wasm_alloc(uint32_t bytes);
void tide_wasm_free(uint8_t *at);
uint32_t tide_wasm_call(const uint8_t *request, uint32_t request_len);
const char *tide_wasm_result(void);
uint32_t tide_wasm_result_len(void);
void setTempRet0(int value);
int getTempRet0(void);
_Noreturn void __wrap_abort(void);
double __wrap_strtod(const char *text, char **end);
void emscripten_notify_memory_growth(int index);

static const char no_memory[] =
    "{\"ok\":false,\"diagnostics\":[{\"severity\":\"error\",\"code\":\"ERR_NO_MEMORY\",\"place\":"
    "\"\","
    "\"message\":\"the module's memory is full\",\"remedy\":\"reload the page\"}]}";

static char *response; /* of the last call; NULL: none, or memory ran out */
static size_t response_len;

/* NULL without memory. */
uint8_t *tide_wasm_alloc(uint32_t bytes) { return malloc(bytes ? bytes : 1); }

void tide_wasm_free(uint8_t *at) { free(at); }

/* What tide_call returns: 0 a result, 1 an error as JSON, 2 memory ran out (as JSON as well). */
uint32_t tide_wasm_call(const uint8_t *request, uint32_t request_len) {
    tide_free(NULL, response, response_len);
    response = NULL;
    response_len = 0;
    return (uint32_t)tide_call((const char *)request, request_len, NULL, &response, &response_len);
}

const char *tide_wasm_result(void) { return response ? response : no_memory; }

uint32_t tide_wasm_result_len(void) {
    return response ? (uint32_t)response_len : (uint32_t)(sizeof no_memory - 1);
}

/* The second result of a call, which longjmp's code keeps; defined here so that nothing is
 * imported. */
static int second_result;
void setTempRet0(int value) { second_result = value; }
int getTempRet0(void) { return second_result; }

/* The loader takes fresh views after every call. */
void emscripten_notify_memory_growth(int index) { (void)index; }

/* The C library's would ask the host to end the process. */
_Noreturn void __wrap_abort(void) { __builtin_trap(); }

/* Smaller than the C library's, with the same results. */
double __wrap_strtod(const char *text, char **end) { return decimal_read(text, end); }
