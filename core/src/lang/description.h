/* SPDX-License-Identifier: Apache-2.0 */
/* Model descriptions: one JSON file per architecture, and libraries shared by all. models/README.md documents their
 * contents.
 *
 * Note [Order of resolution]: modules, functions, sizes and keys are looked up in the description being played, then in
 * those that it extends, in Python's method resolution order, and then in the libraries. A name inside of an inherited
 * function is again looked up from the front, like a method in Python: a description overrides a name for everything
 * that it inherits. So each description has its own classes and functions, which are made from JSON when they are first
 * needed. */
#ifndef TIDE_LANG_DESCRIPTION_H
#define TIDE_LANG_DESCRIPTION_H

#include "lang/syntax.h"

struct tide_class;
struct tide_description;

/* A function or a method. It is read, and its names bound, when it is first called. */
typedef struct tide_function {
    tide_text name;
    const tide_json *item; /* its JSON; NULL once it has been read */
    tide_parameter *parameters;
    uint32_t parameter_count;
    tide_statement *body;
    struct tide_class *of;                /* NULL: a free function */
    struct tide_description *description; /* that it is bound for */
    const struct tide_description *home;  /* that contains it */
    tide_text *locals;                    /* names of slots; parameters come first */
    uint32_t local_count, local_capacity;
    bool is_bound;
    struct tide_function *next;
} tide_function;

/* A member of a module: a module, parameter, buffer or plain value, in order of registration. */
typedef struct tide_member {
    tide_text name;
    tide_expr *expr;
} tide_member;

/* A module. */
typedef struct tide_class {
    tide_text name;
    tide_text base;             /* "@extends": the class that this is a special case of, or empty */
    tide_parameter *parameters; /* of the constructor */
    uint32_t parameter_count;
    tide_member *members;
    uint32_t member_count;
    tide_function *methods, *forward;
    bool is_checkpointed;    /* "@checkpoint": a GradientCheckpointingLayer */
    bool is_never_reentrant; /* "@checkpoint": "non_reentrant", whatever the job requests (timm/models/_manipulate.py:
                                checkpoint_seq) */
    bool never_generates;    /* "@generates": false: the class has no generate(), so inference is one forward pass */
    bool is_zero_leaf; /* "@zero_leaf": among those that DeepSpeed gathers as a whole (zero/leaf_module_config.py) */
    bool holds_parts;  /* "@parts": a container of model parts, not a part itself */
    bool is_without_positions; /* "@without_positions": forward() takes no position_ids, so generate() makes none */
    bool loss_is_apart; /* "@loss_apart": the loop computes the loss from the output, which does not contain it */
    tide_text input_embeddings;  /* "@input_embeddings": path of what get_input_embeddings() returns, or empty */
    tide_text output_embeddings; /* "@output_embeddings": likewise for get_output_embeddings() */
    tide_text delegate;          /* "@delegate": the member that is asked for attributes that this module lacks */
    tide_text delegate_disabled; /* "@delegate_disabled": likewise while adapters are disabled; empty: the same one */
    const tide_json *inputs;     /* "@inputs" of a root whose inputs differ from the description's, or NULL */
    tide_statement *ties;        /* "@tie": a.weight = b.weight */
    tide_expr *tie_condition;
    struct tide_description *description; /* that it is made for */
    const struct tide_description *home;  /* that contains it */
    struct tide_function *constructor;    /* binds the names of members; no body */
    uint64_t read;  /* one bit for each slot of an instance that some function reads; the last bit stands for all from
                       slot 63 on */
    bool is_broken; /* an error in it was reported */
    struct tide_class *next;
} tide_class;

/* A number or word computed from the configuration. */
typedef struct tide_size {
    tide_text name;
    tide_expr *expr; /* NULL: not read yet, or broken */
    const tide_json *item;
} tide_size;

/* A function or module in its JSON form. */
typedef struct tide_entry {
    tide_text name; /* without parameters */
    const tide_json *item;
} tide_entry;

typedef struct tide_description {
    tide_text name; /* the file name without .json */
    const tide_json *json;
    struct tide_description **order; /* itself and those that it extends, see Note [Order of resolution] */
    uint32_t order_count;
    bool is_library;
    tide_size *sizes;
    uint32_t size_count;
    tide_entry *modules, *functions;
    const tide_json *replaced; /* names of functions and of those that replace them; NULL: none */
    uint32_t module_count, function_count;
    tide_class *classes;           /* those looked up so far, inherited ones included */
    tide_function *free_functions; /* likewise */
    struct tide_description *next;
} tide_description;

/* A named text: a built-in description, or one given by a user. */
typedef struct tide_source {
    const char *name;
    const char *text;
    uint32_t length;
    bool is_given;                 /* by a user: everything is read, so that all mistakes are found */
    uint32_t pack_at, pack_length; /* where it is in the pack (embedded_models.h); 0: `text` is complete */
} tide_source;

/* Finds the text of a description by its name; NULL text if there is none. */
typedef tide_source (*tide_find_source)(void *user, tide_text name);

typedef struct tide_descriptions {
    tide_arena *arena;
    tide_diagnostics *diags;
    tide_find_source find;
    void *user;
    tide_description *first, **last;
    tide_description *libraries; /* not a description: a place to look up names in the libraries only */
    uint32_t statement_count;    /* statements of all files; number 0 means none */
    tide_statement **statements;
    uint32_t statement_capacity;
    uint32_t count;
} tide_descriptions;

void tide_descriptions_init(tide_descriptions *set, tide_arena *arena, tide_diagnostics *diags, tide_find_source find,
                            void *user);

/* Reads a description and those that it extends; NULL after an error. */
tide_description *tide_description_load(tide_descriptions *set, tide_text name);

/* Reads all functions and modules of a description at once; false after an error. */
bool tide_description_read(tide_descriptions *set, tide_description *description);
/* Must be called before a function's parameters or body are used; false after an error. */
bool tide_function_read(tide_descriptions *set, tide_function *function);

/* Looks in the order of resolution of `from` (NULL: only in the libraries); NULL if not found or broken. */
tide_class *tide_class_find(tide_descriptions *set, tide_description *from, tide_text name);
tide_function *tide_function_find(tide_descriptions *set, tide_description *from, tide_text name);
tide_function *tide_method_find(const tide_class *of, tide_text name);
/* The size with its expression; NULL if there is none, or after an error. */
const tide_size *tide_size_find(tide_descriptions *set, const tide_description *from, tide_text name);
bool tide_size_is_defined(const tide_description *from, tide_text name);
/* A key of the description or of those that it extends. */
const tide_json *tide_description_at(const tide_description *from, const char *key);
/* All rows of the objects under that key, in the description, in those that it extends and in the library; of several
 * rows with one name, the first. */
const tide_json *tide_description_rows(const tide_descriptions *set, const tide_description *from, const char *key);
/* The name of a part of the model in "titles"; NULL if it has none. */
const char *tide_description_title(const tide_description *from, tide_text part);
/* Whether a name occurs in an expression of the description or of those that it extends. */
bool tide_description_has_word(const tide_description *from, tide_text word);
/* Reports unused modules and sizes of a description with "roots"; false if there are any. */
bool tide_description_all_used(tide_descriptions *set, const tide_description *description);

#endif
