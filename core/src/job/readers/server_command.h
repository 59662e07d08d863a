/* SPDX-License-Identifier: Apache-2.0 */
/* Commands that start inference servers. Private to job/readers. */
#ifndef TIDE_JOB_READERS_SERVER_COMMAND_H
#define TIDE_JOB_READERS_SERVER_COMMAND_H

#include "job/readers/claims.h"
#include "job/readers/shell.h"

/* The command of an engine. */
typedef struct tide_server {
    const tide_reader *reader;     /* for its options */
    const char *library;           /* as in versions.def */
    const char *images;            /* its official images, whose tags are versions: a part of their names */
    const char *marks;             /* separated by `|`: a script with the command contains one of them */
    const char *model;             /* the key for a word without an option */
    const char *image;             /* of containers whose entry point is the server; `*` matches any characters */
    const char *switches;          /* options without a value, separated by `|`, besides those that are settings */
    const char *lists;             /* options with several words, separated by `|`; NULL: none */
    const char *const (*names)[2]; /* short names with the keys that they stand for; a row of NULL ends the table */
    uint32_t (*find)(const tide_command_line *line); /* the index of the first option; the number of words: not found */
    /* What the command itself implies besides its options; NULL: nothing. */
    void (*begin)(tide_arena *arena, tide_json *options, const tide_command_line *line, uint32_t from);
    void (*put)(tide_arena *arena, tide_json *options, tide_text key, const char *text);
} tide_server;

extern const tide_server tide_vllm_server, tide_llama_server, tide_sglang_server;

/* The options of a command from a word on. */
tide_json *tide_server_options(const tide_server *server, const tide_command_line *line, uint32_t from);

/* Reads the first container that starts a server, at any depth, or refuses it. */
void tide_server_read_containers(tide_reading *r, tide_json *root);

/* Reads a text that contains the command, such as a script. False: it does not. */
bool tide_server_read_script(tide_reading *r);

#endif
