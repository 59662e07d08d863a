/* SPDX-License-Identifier: Apache-2.0 */
/* tidemark: how much GPU memory a training or inference job needs, before it runs.
 *
 * The library reads no files, prints nothing, and has no global state. */
#ifndef TIDEMARK_H
#define TIDEMARK_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The only definition of the version: CMake reads it here. */
#define TIDEMARK_VERSION "0.1.0"

#if defined(__GNUC__)
#define TIDE_API __attribute__((visibility("default")))
#else
#define TIDE_API
#endif

/* The library's memory hook, for a caller that counts, limits or places its memory. Other callers pass NULL: realloc
 * and free.
 *
 *   resize   (user, NULL, 0, n) allocates n bytes, (user, p, m, n) resizes the m bytes at p to n bytes, and
 *            (user, p, m, 0) frees them and returns NULL. m is always the last requested size. The bytes are aligned as
 *            by malloc, need not be zeroed, and keep their values up to the smaller size when they move. NULL for n > 0
 *            means that there is no memory: what was at p stays, and the call ends with status 2 after freeing all that
 *            it took. resize must return: no longjmp(), no exception.
 *   user     passed through.
 *
 * A call uses its allocator in the thread that made the call, and keeps nothing when it returns except the answer (and
 * a recording its content). Calls in several threads may run at once; if they share an allocator, resize must be
 * thread-safe. cJSON, which parses the request, uses malloc() and frees its memory within the call. */
struct tide_allocator {
    void *(*resize)(void *user, void *ptr, size_t old_size, size_t new_size);
    void *user;
};

/* One request in, one answer out, both JSON; core/README.md, "Requests and answers".
 *
 *   request    UTF-8, request_len bytes, borrowed for the call.
 *              "files" is a list of {"name", "text"}: config.json and whatever else belongs to a job, recognised by
 *              content. For a safetensors file the text is only its header, the JSON of the n bytes (at most 100 MB)
 *              after the first eight, which are n, little-endian; for a checkpoint in several files every header, with
 *              or without the index, or only the index.
 *   allocator  NULL: realloc and free. Borrowed for the call.
 *   response   receives the answer, with a zero byte after its response_len bytes. It belongs to the caller, who frees
 *              it with tide_free() and the same allocator. Never NULL after a return of 0 or 1.
 *
 * Returns 0 for a result, 1 for an answer that is an error ({"ok":false, "diagnostics": [...]}), 2 when memory ran out
 * (*response is NULL then). */
TIDE_API int tide_call(const char *request, size_t request_len, const struct tide_allocator *allocator, char **response,
                       size_t *response_len);
/* Frees an answer; NULL is allowed. */
TIDE_API void tide_free(const struct tide_allocator *allocator, char *response, size_t response_len);

/* A recording of any size for {"call":"replay"}: its bytes are added in pieces, and several calls may follow.
 *
 *     tide_recording_open(NULL, &recording);
 *     while (there are bytes) tide_recording_add(recording, bytes, length);
 *     tide_recording_call(recording, "{\"call\":\"replay\",\"settings\":[\"gpu=a100-80\"]}", ...);
 *     tide_recording_free(recording);
 *
 * open and add return 0, or 2 when memory ran out (then only free() may follow). The answer reports what is wrong with
 * the bytes. call() is tide_call() with the recording; no bytes may be added after it. `allocator` is copied; its
 * `user` must stay valid as long as the recording. */
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
