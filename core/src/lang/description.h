/* SPDX-License-Identifier: Apache-2.0 */
/* Model descriptions: one JSON file per architecture, and the libraries that all share. models/README.md says what
 * stands in them.
 *
 * Note [Order of resolution]: modules, functions, sizes and keys are looked for in the description that is played, then
 * in those that it extends, in the order in which Python resolves methods, and then in the libraries. A name inside of
 * an inherited function is looked for from the front again, as Python does with methods: what a description replaces is
 * replaced for all that it inherits. So each description has classes and functions of its own, made from the JSON when
 * they are first looked for. */
#ifndef TIDE_LANG_DESCRIPTION_H
#define TIDE_LANG_DESCRIPTION_H

#include "lang/syntax.h"

struct tide_class;
struct tide_description;

/* A function or a method. Read and bound (its names given meanings) when it is first called. */
typedef struct tide_function {
    tide_text name;
    const tide_json *item; /* what it is read from; NULL: it has been */
    tide_parameter *parameters;
    uint32_t parameter_count;
    tide_statement *body;
    struct tide_class *of;                /* NULL: a free function */
    struct tide_description *description; /* that it is played for */
    const struct tide_description *home;  /* where it is written */
    tide_text *locals;                    /* names of slots: parameters first */
    uint32_t local_count, local_capacity;
    bool is_bound;
    struct tide_function *next;
} tide_function;

/* What a module holds: modules, parameters, buffers and plain values, in the order of registration. */
typedef struct tide_member {
    tide_text name;
    tide_expr *expr;
} tide_member;

/* A module. */
typedef struct tide_class {
    tide_text name;
    tide_text base;             /* "@extends": the class that this one is a kind of, or empty */
    tide_parameter *parameters; /* of the constructor */
    uint32_t parameter_count;
    tide_member *members;
    uint32_t member_count;
    tide_function *methods, *forward;
    bool is_checkpointed;    /* "@checkpoint": a GradientCheckpointingLayer */
    bool is_never_reentrant; /* "@checkpoint": "non_reentrant", whatever is asked for (timm/models/_manipulate.py:
                                checkpoint_seq) */
    bool never_generates;    /* "@generates": false: inference is one forward pass, as the class has no generate() */
    bool is_zero_leaf;       /* "@zero_leaf": among those that DeepSpeed gathers whole (zero/leaf_module_config.py) */
    bool holds_parts;        /* "@parts": what it holds are parts of the model, it is none itself */
    bool loss_is_apart;      /* "@loss_apart": the loop computes the loss from the output, which does not hold it */
    tide_text input_embeddings;  /* "@input_embeddings": path of what get_input_embeddings() returns, or empty */
    tide_text output_embeddings; /* "@output_embeddings": likewise for get_output_embeddings() */
    tide_text delegate;          /* "@delegate": the member that answers for what this module lacks */
    const tide_json *inputs;     /* "@inputs" of a root that takes others than its description's, or NULL */
    tide_statement *ties;        /* "@tie": a.weight = b.weight */
    tide_expr *tie_condition;
    struct tide_description *description; /* that it is played for */
    const struct tide_description *home;  /* where it is written */
    struct tide_function *constructor;    /* binds the names of members; no body */
    uint64_t read;  /* a bit for each slot of an instance that some function reads; the last one for all from 63 on */
    bool is_broken; /* an error in it has been reported */
    struct tide_class *next;
} tide_class;

/* A number or word computed from the configuration. */
typedef struct tide_size {
    tide_text name;
    tide_expr *expr; /* NULL: not read yet, or broken */
    const tide_json *item;
} tide_size;

/* A function or module as it is written. */
typedef struct tide_entry {
    tide_text name; /* without parameters */
    const tide_json *item;
} tide_entry;

typedef struct tide_description {
    tide_text name; /* the file's, without .json */
    const tide_json *json;
    struct tide_description **order; /* itself and what it extends, see Note [Order of resolution] */
    uint32_t order_count;
    bool is_library;
    tide_size *sizes;
    uint32_t size_count;
    tide_entry *modules, *functions;
    const tide_json *replaced; /* functions, by name that of another which takes their place; NULL: none */
    uint32_t module_count, function_count;
    tide_class *classes;           /* that have been looked for, its own and inherited ones */
    tide_function *free_functions; /* likewise */
    struct tide_description *next;
} tide_description;

/* A text with a name: a description that is built in, or one that a user gave. */
typedef struct tide_source {
    const char *name;
    const char *text;
    uint32_t length;
    bool is_given;                 /* by a user: all of it is read, so that all mistakes are found */
    uint32_t pack_at, pack_length; /* the whole of it in the pack (embedded_models.h); 0: `text` is the whole */
} tide_source;

/* Finds the text of a description by its name; NULL text if there is none. */
typedef tide_source (*tide_find_source)(void *user, tide_text name);

typedef struct tide_descriptions {
    tide_arena *arena;
    tide_diagnostics *diags;
    tide_find_source find;
    void *user;
    tide_description *first, **last;
    tide_description *libraries; /* stands for no description: names are looked for in the libraries alone */
    uint32_t statement_count;    /* statements of all files; number 0 is none */
    tide_statement **statements;
    uint32_t statement_capacity;
    uint32_t count;
} tide_descriptions;

void tide_descriptions_init(tide_descriptions *set, tide_arena *arena, tide_diagnostics *diags, tide_find_source find,
                            void *user);

/* Reads a description and what it extends; NULL after an error. */
tide_description *tide_description_load(tide_descriptions *set, tide_text name);

/* All functions and modules that a description writes at once; false after an error. */
bool tide_description_read(tide_descriptions *set, tide_description *description);
/* Before a function's parameters or body are looked at; false after an error. */
bool tide_function_read(tide_descriptions *set, tide_function *function);

/* In the order of resolution of `from` (NULL: in the libraries); NULL if nowhere, or broken. */
tide_class *tide_class_find(tide_descriptions *set, tide_description *from, tide_text name);
tide_function *tide_function_find(tide_descriptions *set, tide_description *from, tide_text name);
tide_function *tide_method_find(const tide_class *of, tide_text name);
/* The size and its expression; NULL if there is none, or after an error. */
const tide_size *tide_size_find(tide_descriptions *set, const tide_description *from, tide_text name);
bool tide_size_is_defined(const tide_description *from, tide_text name);
/* A key of the description or of what it extends. */
const tide_json *tide_description_at(const tide_description *from, const char *key);
/* The rows of objects of that key in it, in what it extends and in the library; of one name the first. */
const tide_json *tide_description_rows(const tide_descriptions *set, const tide_description *from, const char *key);
/* What "titles" calls a part of the model; NULL if nothing. */
const char *tide_description_title(const tide_description *from, tide_text part);
/* Whether a name stands in a text of the description or of what it extends, outside of quotes. */
bool tide_description_has_word(const tide_description *from, tide_text word);
/* Reports the modules and sizes of a description with "roots" that nothing uses; false if there are any. */
bool tide_description_all_used(tide_descriptions *set, const tide_description *description);

#endif
