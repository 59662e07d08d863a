/* SPDX-License-Identifier: Apache-2.0 */
/* The interpreter from inside: frames, and what its files offer to one another. lang.h is its outside.
 *
 * Note [Lifetimes]: a name lives until it is rebound or its function returns; the value of an expression until the
 * operation that takes it has returned. The arguments of a module stay alive until its call returns, because
 * Module._call_impl(*args, **kwargs) holds them; those of a plain function belong to its own names. */
#ifndef TIDE_LANG_INTERPRETER_H
#define TIDE_LANG_INTERPRETER_H

#include "lang/lang.h"

/* Depths keep the host's stack below 512 KiB, which is what the WebAssembly module has. */
enum { NESTING_LIMIT = 64, ARGUMENT_LIMIT = 64, INSTANCE_LIMIT = 1 << 20, LOOP_LIMIT = 1 << 20 };

/* Where names have their values. A frame without a function is that of a size, a check or a note: its names are keys of
 * the configuration, and other sizes. */
typedef struct tide_frame {
    tide_model *model;
    uint32_t instance, scope;
    tide_function *function;
    tide_value *locals;
    tide_text self; /* of a size: its own name, which is the configuration's there */
} tide_frame;

/* The arguments of a call as they stand in the source, evaluated; owned. */
typedef struct tide_arguments {
    tide_value positional[ARGUMENT_LIMIT], named[ARGUMENT_LIMIT];
    tide_text keywords[ARGUMENT_LIMIT];
    uint32_t count, named_count;
} tide_arguments;

static inline tide_value tide_nothing(tide_machine *m, tide_status status, const char *format, const char *what) {
    tide_fail(m, status, format, what);
    return tide_none();
}

static inline const char *tide_terminated(tide_machine *m, tide_text text) {
    return tide_text_copy(m->arena, text);
}

/* Owned by the caller. */
static inline tide_value tide_eval_setting(tide_model *model, uint32_t index) {
    model->step_reads += model->settings[index].is_of_step;
    model->settings[index].is_read = true;
    model->settings[index].is_read = true;
    return tide_value_retain(model->settings[index].value);
}

/* What a tensor answers to, see tide_bind_function. */
enum { MEMBER_NONE, MEMBER_SHAPE, MEMBER_DTYPE, MEMBER_REQUIRES_GRAD };

/* No operation of the table has more parameters. */
enum { OPERATION_ARGUMENTS = 12 };

typedef struct tide_signature {
    tide_text names[OPERATION_ARGUMENTS];
    tide_value defaults[OPERATION_ARGUMENTS];
    bool has_default[OPERATION_ARGUMENTS];
    uint32_t count;
    int32_t variadic; /* the parameter that takes all that follows, or -1 */
} tide_signature;

/* A call of an operation in the source: the signature, and for each argument its parameter. */
typedef struct tide_bound_call {
    tide_signature signature;
    uint32_t *order;
} tide_bound_call;

typedef enum tide_outcome { GOES_ON, RETURNED } tide_outcome;

/* ---- bind.c ---- */
/* `given`: arguments before those in the source. */
bool tide_bind_operation_call(tide_model *model, tide_expr *e, const tide_op *op, uint32_t given);
bool tide_bind_members(tide_model *model, tide_class *of);
bool tide_bind_function(tide_model *model, tide_function *function);
/* An expression by itself; its names are added to those of the function. */
bool tide_bind_alone(tide_model *model, tide_function *function, tide_expr *e);

/* ---- config_expressions.c ---- */
/* The value of a size, by its number among model->size_names. */
tide_value tide_scope_size(tide_model *model, uint32_t scope, uint32_t number);
/* An expression of a check, note or tie. */
tide_value tide_eval_config(tide_model *model, uint32_t scope, tide_expr *e);
/* A name that is not bound. */
tide_value tide_config_name(tide_frame *f, const tide_expr *e);
/* An entry of a part of the configuration. */
tide_value tide_config_member(tide_frame *f, const tide_expr *e, const tide_json *config);

/* ---- checks.c ---- */
/* The checks of a description and of what it extends, over one configuration; the notes of the first that has any. */
void tide_run_checks(tide_model *model, uint32_t scope);

/* ---- arithmetic.c ---- */
const char *tide_kind_name(tide_value v);
tide_value tide_literal(const tide_expr *e); /* none, a boolean, a number or text */
tide_value tide_arithmetic(tide_machine *m, char op, tide_value a, tide_value b);
bool tide_compare(tide_machine *m, char op, tide_value a, tide_value b);
bool tide_is_true(tide_machine *m, tide_value v);

/* ---- builtins.c ---- */
typedef struct tide_builtin {
    const char *name;
    uint8_t least, most; /* arguments */
    bool keeps_unread;   /* does not look into the lists that it is given, see tide_list.is_read */
    /* The arguments are borrowed. */
    tide_value (*run)(tide_frame *f, const tide_value *a, uint32_t count);
    /* In place of `run`: takes keywords, and makes a module, a parameter or a buffer. */
    tide_value (*construct)(tide_frame *f, tide_arguments *given);
} tide_builtin;

extern const tide_builtin tide_builtins[];
extern const uint32_t tide_builtin_count;
const tide_builtin *tide_builtin_find(tide_text name); /* NULL: there is none */
tide_value tide_run_builtin(tide_frame *f, const tide_builtin *builtin, tide_arguments *given);

/* ---- calls.c ---- */
tide_value tide_run_operation(tide_machine *m, const tide_op *op, tide_value *a, uint32_t count);
tide_value tide_call_operation(tide_frame *f, tide_expr *e, const tide_op *op, const tide_value *self);
/* Arranges arguments by the parameters of the function, which it binds; takes them over. */
bool tide_arrange(const tide_call_arguments *call, tide_value *arranged);
/* By the model's hook, or else tide_call_function. */
tide_value tide_call_by_hook(const tide_call_arguments *call);
/* Calls a method of a module, or without one the module; the arguments are borrowed and so outlive the call. */
tide_value tide_call_module(tide_model *model, uint32_t instance, tide_function *method, const tide_value *positional,
                            uint32_t count, const tide_text *keywords, const tide_value *named, uint32_t named_count);

/* ---- checkpointed_calls.c ---- */
tide_value tide_call_checkpointed(tide_model *model, uint32_t instance, tide_function *method,
                                  const tide_value *positional, uint32_t count, const tide_text *keywords,
                                  const tide_value *named, uint32_t named_count);
tide_value tide_call_again(tide_machine *m, void *function, tide_value *inputs, uint32_t count);
void tide_closure_free(tide_machine *m, void *function);
tide_value tide_builtin_checkpoint(tide_frame *f, const tide_value *a, uint32_t count);
tide_value tide_builtin_checkpoint_without_output(tide_frame *f, const tide_value *a, uint32_t count);
tide_value tide_builtin_discard_output(tide_frame *f, const tide_value *a, uint32_t count);

/* ---- autograd_function.c ---- */
tide_value tide_apply(tide_frame *f, const tide_value *a, uint32_t count);

/* ---- expressions.c ---- */
tide_value tide_eval_any(tide_frame *f, tide_expr *e);
/* Most expressions are names of locals. */
static inline tide_value tide_eval(tide_frame *f, tide_expr *e) {
    return e->kind == TIDE_EXPR_NAME && e->meaning == TIDE_LOCAL ? tide_value_retain(f->locals[e->slot])
                                                                 : tide_eval_any(f, e);
}
/* The member of a module, or of what the module delegates to; owned. */
tide_value tide_member_of_module(tide_frame *f, uint32_t module, tide_text name);
/* Its slot, and *module: whose; UINT32_MAX and a failure where there is none. */
uint32_t tide_member_slot(tide_model *model, uint32_t *module, tide_text name);
void tide_release_all(tide_machine *m, const tide_value *values, uint32_t count);

/* ---- call_expressions.c ---- */
tide_value tide_eval_call(tide_frame *f, tide_expr *e);
void tide_eval_arguments(tide_frame *f, tide_expr *e, tide_arguments *given);
void tide_release_arguments(tide_machine *m, const tide_arguments *given);
/* The module that answers for a name: itself, or what it delegates to (peft: BaseTunerLayer's properties). */
uint32_t tide_delegated(const tide_model *model, uint32_t module, tide_text name);

/* ---- index.c ---- */
tide_value tide_eval_index(tide_frame *f, tide_expr *e);

/* ---- statements.c ---- */
void tide_set_local(tide_frame *f, uint32_t slot, tide_value v);
tide_outcome tide_run_block(tide_frame *f, tide_statement *s, tide_value *result);

/* ---- folded_loops.c ---- */

enum { TIDE_ITERATIONS_LOOKED_AT = 3 };

/* A loop, as it was where its second iteration began, and the third, and the fourth. */
typedef struct tide_loop_looks {
    struct tide_loop_look *at[TIDE_ITERATIONS_LOOKED_AT];
} tide_loop_looks;

/* Before iteration `done` of `count`: how many are left out, as those before do what they would; their values of the
 * loop's variable are not needed. */
uint32_t tide_fold_iterations(tide_frame *f, const tide_statement *loop, tide_loop_looks *looks, uint32_t done,
                              uint32_t count);
void tide_looks_drop(tide_frame *f, tide_loop_looks *looks);

/* ---- construct.c ---- */
uint32_t tide_scope_new(tide_model *model, tide_description *description, const tide_json *config);
uint32_t tide_instance_new(tide_model *model, tide_class *of, uint32_t scope);
/* Runs a class's members in order; arguments are taken over. 0 after an error. */
uint32_t tide_instantiate(tide_model *model, tide_class *of, uint32_t scope, const tide_arguments *given);
/* A module of this name, as its constructor is called. Takes the arguments over. */
tide_value tide_construct(tide_frame *f, tide_text class_name, tide_arguments *given);
tide_value tide_construct_parameter(tide_frame *f, tide_arguments *given);
tide_value tide_construct_buffer(tide_frame *f, tide_arguments *given);
tide_value tide_construct_auto_model(tide_frame *f, tide_arguments *given);
tide_value tide_deepcopy(tide_model *model, tide_value v, int depth);

/* ---- names.c ---- */
/* Gives a module its name and path, and all below it theirs. */
void tide_name_instance(tide_model *model, uint32_t instance, uint32_t parent, tide_text name);
/* The number of a text in a list of texts, which grows. */
uint32_t tide_intern(tide_arena *arena, const char ***list, uint32_t *count, uint32_t *capacity, tide_text text);
/* The slot that a dotted path names, below an instance; NULL if there is none. */
tide_value *tide_slot_at(tide_model *model, uint32_t instance, tide_text path);

/* A value is read by more than its identity. */
static inline void tide_value_is_read(tide_value v) {
    if (v.kind != TIDE_VALUE_LIST) return;
    v.list->is_read = true;
    for (uint32_t i = 0; i < v.list->count; i++)
        if (v.list->items[i].kind == TIDE_VALUE_LIST) v.list->items[i].list->is_read = true;
}

#endif
