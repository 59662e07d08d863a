/* SPDX-License-Identifier: Apache-2.0 */
/* The `tidemark` command line: reads files and words, calls the core through tide_call, prints the answer. */
#ifndef TIDE_CLI_H
#define TIDE_CLI_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Exit codes; --help lists them. */
enum cli_exit {
    CLI_OK = 0,
    CLI_NO = 1,        /* does not fit, or past the tolerance */
    CLI_BAD_INPUT = 2, /* the command line, a file or a setting */
    CLI_INTERNAL = 3,  /* no memory, or an answer that cannot be read */
    CLI_NO_FILE = 4    /* a file cannot be read or written */
};

/* ---- commands: commands.def lists them, and each is in the file that has its work ---- */

typedef struct cli_command {
    const char *name;
    int (*run)(int argc, char **argv); /* the words after the command */
    const char *usage, *summary, *help;
} cli_command;

#define COMMAND(name) extern const cli_command cli_##name##_command;
#include "commands.def"
#undef COMMAND

/* The words of several commands. */
#define CLI_JOB_WORDS                                                                                                  \
    "  MODEL             a name of the catalogue (`tidemark describe models`)\n"                                       \
    "  config.json       a model's own configuration; preprocessor_config.json may follow; \"-\" "                     \
    "is\n"                                                                                                             \
    "                    standard input, and FOLDER/ is the two files in it\n"                                         \
    "  LINK              what the page's address or `tidemark link` shows, whole or from the # "                       \
    "on\n"                                                                                                             \
    "  key=value         settings (`tidemark describe settings`), also as --key VALUE; the last one of a name holds\n"

#define CLI_EVENT_OPTIONS                                                                                              \
    "  --events          events one by one: what was taken and given back, its block and segment, and what is\n"       \
    "                    allocated and reserved after it\n"                                                            \
    "  --state           the allocator after an event: segments, free memory in them, and what is alive\n"             \
    "  --at EVENT        around it; after it (without: from the beginning; at the peak)\n"                             \
    "  --count N         of events, at most 500; 20 if not given\n"                                                    \
    "  --filter TEXT     those with TEXT in the kind, or in what asked for them\n"

/* ---- buffer.c: growing text; without memory the process ends with CLI_INTERNAL ---- */

typedef struct cli_buffer {
    char *at; /* terminated, unless NULL */
    size_t length, capacity;
} cli_buffer;

void *cli_grow(void *array, size_t count, size_t size);
void cli_append(cli_buffer *buffer, const char *text, size_t length);
void cli_append_text(cli_buffer *buffer, const char *terminated);
void cli_append_quoted(cli_buffer *buffer, const char *text, size_t length); /* as a JSON string */
void cli_format(cli_buffer *buffer, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 2, 3)))
#endif
    ;
void cli_buffer_free(cli_buffer *buffer);

/* ---- files.c ---- */

enum { CLI_FILE_LIMIT = 64 << 20, CLI_HEADER_LIMIT = 100000000 }; /* bytes; the latter is the limit of the format */

bool cli_is_file(const char *path);
bool cli_is_folder(const char *path);
bool cli_read_stream(cli_buffer *text, FILE *file, const char *name);
bool cli_read_file(
    cli_buffer *text,
    const char *path); /* "-": standard input; only the header of NAME.safetensors and NAME.gguf; reports errors */
bool cli_ends_in(const char *text, const char *end);
const char *cli_base_name(const char *path);

/* ---- source.c ---- */

/* The bytes of a file, decompressed if it is gzip. */
typedef struct cli_source {
    const char *path;
    struct gzFile_s *file;
    uint64_t total, limit;  /* bytes after decompression: a small file may expand to a huge one */
    const char *limit_text; /* the message above the limit */
    const char *damage;     /* what ended in the middle; NULL: nothing */
    int error;              /* of errno; 0: none */
} cli_source;

bool cli_source_open(cli_source *source,
                     const char *path); /* without a limit; "-": standard input; errno has the error */
size_t cli_source_read(cli_source *source, void *into, size_t size); /* 0: the end, damage or an error */
void cli_source_close(cli_source *source);                           /* may detect damage */

typedef struct cli_lines {
    cli_source source;
    cli_buffer line;
    bool is_too_long; /* the last line exceeded the limit and is skipped */
    char *piece;
    size_t at, length; /* of bytes that are not yet a line */
} cli_lines;

bool cli_lines_open(cli_lines *lines, const char *path); /* as cli_source_open */
bool cli_next_line(cli_lines *lines); /* without its line break; an incomplete last line does not count */
void cli_lines_close(cli_lines *lines);

/* ---- yaml.c ---- */

/* By extension, or by a first line of the form `key:`. */
bool cli_is_yaml(const char *name, const char *text, size_t length);
/* Appends a YAML text as JSON; on failure returns false, and what is wrong and where. */
bool cli_yaml_to_json(cli_buffer *out, const char *text, size_t length, char *message, size_t message_size);

/* ---- arguments.c ---- */

/* The words after the command. */
typedef struct cli_arguments {
    char **words; /* key=value, or the model's name first */
    size_t word_count;
    size_t name_at; /* among the words: the model as words, with has_name */
    bool has_name;
    cli_buffer link; /* the content of a link, or empty; words override it */
    char **paths;    /* files, in order */
    size_t path_count;
    cli_buffer command; /* of a server or a training, treated as a file; empty: none */
    bool is_json, shows_bytes, shows_help;
    const char *of;                  /* explain */
    const char *stage;               /* explain */
    const char *base;                /* link, open, badge */
    bool notes_was;                  /* link, open */
    const char *page;                /* page, report, open: tidemark.html */
    const char *most, *out;          /* badge */
    bool prints;                     /* open */
    bool are_lines;                  /* call */
    const char *configs;             /* verify */
    const char *csv;                 /* verify, sweep */
    const char *tolerance;           /* verify */
    const char *device;              /* replay */
    bool shows_events, shows_state;  /* explain, replay */
    const char *at, *count, *filter; /* of --events and --state */
    const char *recording;           /* compare */
    const char *knob, *by;           /* fit */
    char **with;                     /* compare */
    size_t with_count;
    char **where; /* verify */
    size_t where_count;
} cli_arguments;

enum {
    CLI_TAKES_OF = 1,
    CLI_TAKES_BASE = 2,
    CLI_TAKES_VERIFY = 4,
    CLI_TAKES_BYTES = 8,
    CLI_TAKES_SETTINGS = 16,
    CLI_TAKES_JSON = 32,
    CLI_ARE_PATHS = 64,   /* every word is a file */
    CLI_ARE_TOPICS = 128, /* words are not interpreted */
    CLI_TAKES_DEVICE = 256,
    CLI_TAKES_CSV = 1024,
    CLI_TAKES_KNOB = 2048,
    CLI_TAKES_WITH = 4096,
    CLI_TAKES_PAGE = 8192,
    CLI_TAKES_HTML = 16384,
    CLI_TAKES_PRINT = 32768,
    CLI_TAKES_BADGE = 65536,
    CLI_TAKES_EVENTS = 131072,
    CLI_TAKES_LINES = 262144,
    CLI_NAMES_ARE_PATHS = 512 /* a word that is not a setting is a file, whether or not it exists */
};

int cli_arguments_read(cli_arguments *arguments, int argc, char **argv, unsigned takes);
void cli_arguments_add(cli_arguments *arguments, const char *word); /* unless it is there */
void cli_arguments_free(cli_arguments *arguments);

/* ---- pasted.c ---- */

/* Whether a text is a command that starts an inference server or a training. */
bool cli_is_command(const char *text);
/* If words are such a command, appends it, and moves words that belong to this program to the front of argv. Returns
 * how many words are left: argc if they are not a command. */
int cli_command_read(cli_buffer *command, int argc, char **argv);

/* ---- links.c ---- */

/* The part of a link that contains the job; NULL: the word is not a link. */
const char *cli_link_fragment(const char *word);
/* The readable text of a fragment; false after an error message. */
bool cli_link_read(cli_buffer *text, const char *fragment);
/* The link in the form in which it is shared, compressed if long; false if it exceeds the length that is read. */
bool cli_link_pack(cli_buffer *out, const char *link);
/* BASE#LINK (link.c); empty after an error message. base: NULL means "". */
void cli_address(cli_buffer *out, const char *base, const char *link);

/* ---- named_files.c ---- */

enum { CLI_NAMED_MOST = 8 };

typedef struct cli_named {
    cli_buffer paths[CLI_NAMED_MOST]; /* of existing files */
    size_t count;
} cli_named;

/* Adds the files that a file refers to by path: given its text, with YAML as JSON, and its location. */
void cli_named_find(cli_named *named, const char *text, size_t length, const char *path);
void cli_named_free(cli_named *named);

/* ---- request.c ---- */

/* {"call":CALL,"settings":[...],"files":[...]MORE}; MORE consists of members with their comma, or is "". */
int cli_request(cli_buffer *request, const char *call, const cli_arguments *arguments, const char *more);

typedef struct cli_answer {
    char *text; /* owned by the core */
    size_t length;
    cJSON *json;
    bool is_ok; /* "ok" is true */
} cli_answer;

int cli_ask(cli_answer *answer, const cli_buffer *request);
struct tide_recorded;
void cli_answer_free(cli_answer *answer);

/* Calls the core and, unless the answer is ok, prints the error: as JSON if requested, else on standard error. */
int cli_ask_or_explain(cli_answer *answer, const cli_buffer *request, bool is_json);
/* The same for a recording that was read. */
int cli_ask_recording(cli_answer *answer, struct tide_recorded *recording, const cli_buffer *request, bool is_json);

/* Reading an answer; missing members are NULL, "" or 0. */
const cJSON *cli_at(const cJSON *object, const char *key);
const char *cli_text_at(const cJSON *object, const char *key);
int64_t cli_int_at(const cJSON *object, const char *key);
int64_t cli_int(const cJSON *number);
bool cli_true_at(const cJSON *object, const char *key);

/* "fits", "barely fits" (it needs more than there is, and runs because the allocator releases cached memory), "does not
 * fit", or "" without a GPU. */
const char *cli_verdict(const cJSON *verdict);
/* False: it does not fit the given GPU, or that cannot be told. */
bool cli_may_fit(const cJSON *answer);

/* ---- terminal.c ---- */

enum cli_style { CLI_PLAIN, CLI_BOLD, CLI_DIM, CLI_GREEN, CLI_RED, CLI_YELLOW };

enum { CLI_WIDTH = 100 }; /* columns */

/* Determines whether to use colour (a terminal, no NO_COLOR) and UTF-8 (the locale). */
void cli_screen_init(void);
bool cli_is_utf8(void);
void cli_screen_plain(void);                  /* disables colour, and enables the characters of UTF-8 */
const char *cli_styled(enum cli_style style); /* the escape sequence that starts it, or "" */
const char *cli_styled_end(void);
void cli_heading(const char *text);
size_t cli_width(const char *text);                           /* columns */
void cli_pad(const char *text, size_t width, bool right);     /* truncates */
void cli_wrapped(const char *text, size_t indent, size_t at); /* the cursor is at column `at` */
void cli_progress(const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 1, 2)))
#endif
    ;
void cli_progress_end(void);

typedef char cli_number[40];

const char *cli_gib(cli_number out, int64_t bytes);                 /* "12.58": GiB with two decimals */
const char *cli_mib(cli_number out, int64_t bytes);                 /* "344.0": MiB with one decimal */
const char *cli_size(cli_number out, int64_t bytes);                /* "12.6 GiB", "344.0 MiB", "512 B" */
const char *cli_count(cli_number out, int64_t value);               /* "7,063,427,072" */
const char *cli_share(cli_number out, int64_t part, int64_t whole); /* "37 %" */

/* A table: columns are as wide as their widest cell. */
typedef struct cli_table {
    char **cells;          /* rows x columns */
    bool *rules;           /* a line above the row */
    size_t columns, count; /* count: of cells */
    bool has_rule_next;
    bool is_left[16];  /* columns of text */
    size_t limit[16];  /* maximum width of a column; 0: as needed */
    bool shrinks_last; /* the last column gets the rest of the screen, and its text is truncated at the start */
} cli_table;

enum { CLI_TABLE_COLUMNS = 16 };

void cli_table_init(cli_table *table, size_t columns);
void cli_table_rule(cli_table *table); /* above the next row */
void cli_table_cell(cli_table *table, const char *text);
void cli_table_print(cli_table *table);         /* prints and frees it; the first row is the heading */
void cli_table_free(cli_table *table);          /* for a table that is not printed */
void cli_csv_text(FILE *csv, const char *text); /* quoted if RFC 4180 requires it */

/* ---- diagnostics.c ---- */

void cli_diagnostics_show(FILE *out, const cJSON *diagnostics);
/* Text from a file may contain escape sequences: replaces control characters except line breaks and tabs by dots. */
void cli_clean(char *text);
void cli_complain(const char *remedy, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 2, 3)))
#endif
    ;

/* ---- commands ---- */

/* Opens a recording and reads the whole file; *damage says what ended in the middle, or is NULL. */
int cli_recording_read(struct tide_recorded **recording, const char *path, const char **damage);
int cli_align(const cli_arguments *arguments);
int cli_replay_ask(cli_answer *answer, const cli_arguments *arguments); /* replay.c; of paths[0] */
void cli_options_show(const cJSON *answer, bool is_exact);              /* the effect of other allocator settings */
/* events.c: the members of a request for --events or --state (false after an error message), and the answer as text. */
bool cli_events_members(cli_buffer *members, const cli_arguments *arguments);
void cli_events_show(const cJSON *answer, const cli_arguments *arguments);
int cli_on_gpu(int argc, char **argv);         /* replay --on-gpu */
void cli_help(FILE *out, const char *command); /* NULL: for all */

#endif
