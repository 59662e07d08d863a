/* Settings of an engine: words like "tensor_parallel_size=2", and keys of a recorded case. */
#ifndef TIDE_SERVE_SETTINGS_H
#define TIDE_SERVE_SETTINGS_H

#include "base/json_write.h"
#include "serve/serve.h"

typedef struct tide_serve_words {
    tide_arena *arena;
    tide_diagnostics *diags;
    tide_serve_settings *settings; /* filled */
    int64_t input_len, output_len; /* tokens of a request; 0: not given */
    int64_t target;                /* max_concurrency: requests that are to fit at once; 0: not given */
    int64_t context_mib;           /* in use on the card before the engine starts */
} tide_serve_words;

/* *is_taken: it is a setting of the engine. False after an error. */
bool tide_serve_read_word(tide_serve_words *w, tide_text word, bool *is_taken);
/* The same for a key of a recorded case. */
bool tide_serve_read_case(tide_serve_words *w, const tide_json *key, bool *is_taken);
/* An array of names and what they mean. */
void tide_serve_describe(tide_writer *writer);

#endif
