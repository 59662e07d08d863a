/* tidemark: how much GPU memory a training or inference job needs, before it runs.
 *
 * The library reads no file, prints nothing, and has no state outside of its calls. */
#ifndef TIDEMARK_H
#define TIDEMARK_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TIDEMARK_VERSION "0.1.0"

#if defined(__GNUC__)
#define TIDE_API __attribute__((visibility("default")))
#else
#define TIDE_API
#endif

/* Memory hook. resize(user, NULL, 0, n) allocates, (user, p, old, n) resizes, (user, p, old, 0) frees.
 * Returns NULL only when it cannot provide n bytes. */
struct tide_allocator;

/* One request in, one response out, both JSON; see the README, "The one door".
 *
 *   request    UTF-8, request_len bytes, borrowed for the call.
 *              "files" is a list of {"name", "text"}: config.json and what else belongs to a job, told by their
 * content. Of a safetensors file the text is its header alone, the JSON of the n bytes (100 MB at the most) after the
 * first eight, which are n, little-endian; of one in several files every header, with or without its index, or the
 * index alone. allocator  NULL: realloc and free. response   receives the answer, owned by the caller and released with
 * tide_free(). Never NULL after a return of 0.
 *
 * Returns 0 for a result, 1 for an answer that is an error ({"ok":false, "diagnostics": [...]}), 2 when memory ran out
 * (*response is NULL then). */
TIDE_API int tide_call(const char *request, size_t request_len, const struct tide_allocator *allocator, char **response,
                       size_t *response_len);
TIDE_API void tide_free(const struct tide_allocator *allocator, char *response, size_t response_len);

/* A recording of any size for {"call":"replay"}: its bytes come in pieces, and calls may follow each other.
 *
 *     tide_recording_open(NULL, &recording);
 *     while (there are bytes) tide_recording_add(recording, bytes, length);
 *     tide_recording_call(recording, "{\"call\":\"replay\",\"settings\":[\"gpu=a100-80\"]}", ...);
 *     tide_recording_free(recording);
 *
 * open and add return 0, or 2 when memory ran out (the recording then takes no more, and only free() makes sense). What
 * is wrong with the bytes is said by the answer. call() is tide_call() with the recording at hand; no bytes may follow
 * it. `allocator` must live as long as the recording. */
struct tide_recorded;
TIDE_API int tide_recording_open(const struct tide_allocator *allocator, struct tide_recorded **recording);
TIDE_API int tide_recording_add(struct tide_recorded *recording, const void *bytes, size_t length);
TIDE_API int tide_recording_call(struct tide_recorded *recording, const char *request, size_t request_len,
                                 char **response, size_t *response_len);
TIDE_API void tide_recording_free(struct tide_recorded *recording);

#ifdef __cplusplus
}
#endif

#endif
