/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TIDE_JOB_PHRASE_H
#define TIDE_JOB_PHRASE_H

#include "job/builder.h"

enum { TIDE_PHRASE_PIECES = 64 };

/* A job in words, "llama 3 8b qlora on a 4090, batch 4", and its meaning. */
typedef struct tide_phrase {
    tide_arena *arena;
    tide_diagnostics *diags;
    const tide_json *gpus;
    tide_text pieces[TIDE_PHRASE_PIECES];
    uint32_t count, at;
    const char *model;   /* NULL: none yet */
    const char *second;  /* another model of the catalogue after it; NULL: none */
    const char *remedy;  /* for the first word of words.def that is not supported; NULL: none */
    const char *unknown; /* words that were not understood; "": none */
    char *settings;      /* "quant=nf4 adapter=lora" */
    bool is_meant;       /* several models have these words; this is the one that is probably meant */
    const char *others;  /* older models with the same words; NULL: none */
    const char *asks;    /* the setting whose largest value is asked for: "seq"; NULL: none */
    bool counts_gpus;    /* the number of GPUs is asked for */
    int64_t gpu_count;   /* 0: not given */
    bool serves;
    bool is_told;   /* a word next to the phrase says whether it trains or generates */
    bool runs;      /* "run" is among the pieces */
    bool generates; /* a trainer that generates is among the pieces: vLLM may generate for it */
    bool has_stage; /* of DeepSpeed's ZeRO */
} tide_phrase;

/* Interprets the pieces of `text`. */
void tide_phrase_read(tide_phrase *p, tide_text text);

/* Adds settings: "quant=nf4 adapter=lora". */
void tide_phrase_add(tide_phrase *p, const char *settings);

/* "adapter.r=16" for "r=16", if r is a word for adapter.r and not a setting; NULL: the setting is fine as it is. name:
 * the number of letters before the `=`. */
const char *tide_meant_setting(tide_arena *arena, tide_text word, size_t name);

#endif
