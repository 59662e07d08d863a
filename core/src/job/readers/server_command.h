/* SPDX-License-Identifier: Apache-2.0 */
/* Commands that start inference servers. Private to job/readers. */
#ifndef TIDE_JOB_READERS_SERVER_COMMAND_H
#define TIDE_JOB_READERS_SERVER_COMMAND_H

#include "job/readers/claims.h"
#include "job/readers/shell.h"

/* An engine's command. */
typedef struct tide_server {
    const tide_reader *reader;     /* of its options */
    const char *marks;             /* joined by `|`: a script with the command has one of them */
    const char *model;             /* the key of a word without an option */
    const char *image;             /* of containers whose entry point is the server; `*` is any run of characters */
    const char *switches;          /* options without a value, joined by `|`, beside those that are settings */
    const char *lists;             /* options of several words, joined by `|`; NULL: none */
    const char *const (*names)[2]; /* short names, and the keys that they stand for; ends with a row of NULL */
    uint32_t (*find)(const tide_command_line *line); /* the first word of its options; the count: it is not there */
    /* What the command itself says, besides its options; NULL: nothing. */
    void (*begin)(tide_arena *arena, tide_json *options, const tide_command_line *line, uint32_t from);
    void (*put)(tide_arena *arena, tide_json *options, tide_text key, const char *text);
} tide_server;

extern const tide_server tide_vllm_server, tide_llama_server, tide_sglang_server;

/* Options from a word of a command on. */
tide_json *tide_server_options(const tide_server *server, const tide_command_line *line, uint32_t from);

/* The first container that starts a server, wherever it stands, or a refusal. */
void tide_server_read_containers(tide_reading *r, tide_json *root);

/* A text with the command in it, as a script has it. False: it has none. */
bool tide_server_read_script(tide_reading *r);

#endif
