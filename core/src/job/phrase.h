/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TIDE_JOB_PHRASE_H
#define TIDE_JOB_PHRASE_H

#include "job/builder.h"

enum { TIDE_PHRASE_PIECES = 64 };

/* A job in words: "llama 3 8b qlora on a 4090, batch 4", and what they come to. */
typedef struct tide_phrase {
    tide_arena *arena;
    tide_diagnostics *diags;
    const tide_json *gpus;
    tide_text pieces[TIDE_PHRASE_PIECES];
    uint32_t count, at;
    const char *model;   /* NULL: none yet */
    const char *second;  /* another of the catalogue behind it; NULL: none */
    const char *remedy;  /* of the first word of words.def that is not understood; NULL: none */
    const char *unknown; /* what was not understood; "": all was */
    char *settings;      /* "quant=nf4 adapter=lora" */
    bool is_meant;       /* the model is one that has the words, and more */
    const char *others;  /* older models that the same words may mean; NULL: none */
    const char *asks;    /* the setting whose largest value is asked for: "seq"; NULL: none */
    bool counts_gpus;    /* how many GPUs is asked for */
    int64_t gpu_count;   /* 0: not said */
    bool serves;
    bool is_told;   /* a word beside the phrase says whether it trains or runs */
    bool runs;      /* "run" is among the pieces */
    bool generates; /* a trainer that generates is among the pieces: it may do so with vLLM */
    bool has_stage; /* of DeepSpeed's ZeRO */
} tide_phrase;

/* Takes the pieces of `text` for what they mean. */
void tide_phrase_read(tide_phrase *p, tide_text text);

/* Settings more: "quant=nf4 adapter=lora". */
void tide_phrase_add(tide_phrase *p, const char *settings);

/* "adapter.r=16" of "r=16", where r is a word for adapter.r and no setting; NULL: the setting is as it is. name: how
 * many letters stand before the `=`. */
const char *tide_meant_setting(tide_arena *arena, tide_text word, size_t name);

#endif
