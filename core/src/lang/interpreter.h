/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of the interpreter: frames, and the functions that its files share. lang.h is the outside.
 *
 * Note [Lifetimes]: the value of a name lives until the name is rebound or its function returns; the value of an
 * expression until the operation that uses it has returned. The arguments of a module live until its call returns,
 * because Module._call_impl(*args, **kwargs) refers to them; those of a plain function belong to its own names. */
#ifndef TIDE_LANG_INTERPRETER_H
#define TIDE_LANG_INTERPRETER_H

#include "lang/lang.h"

/* These limits keep the host's stack below 512 KiB, the size that the WebAssembly module has. */
enum { NESTING_LIMIT = 64, ARGUMENT_LIMIT = 64, INSTANCE_LIMIT = 1 << 20, LOOP_LIMIT = 1 << 20 };

/* The values of names. A frame without a function belongs to a size, a check or a note: its names are keys of the
 * configuration and other sizes. */
typedef struct tide_frame {
    tide_model *model;
    uint32_t instance, scope;
    tide_function *function;
    tide_value *locals;
    tide_text self; /* of a size: its own name, which refers to the configuration there */
} tide_frame;

/* The evaluated arguments of a call, as in the source; owned. */
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

/* Attributes of a tensor, see tide_bind_function. */
enum { MEMBER_NONE, MEMBER_SHAPE, MEMBER_DTYPE, MEMBER_REQUIRES_GRAD };

/* The most parameters of any operation in the table. */
enum { OPERATION_ARGUMENTS = 12 };

typedef struct tide_signature {
    tide_text names[OPERATION_ARGUMENTS];
    tide_value defaults[OPERATION_ARGUMENTS];
    bool has_default[OPERATION_ARGUMENTS];
    uint32_t count;
    int32_t variadic; /* the parameter that takes all remaining arguments, or -1 */
} tide_signature;

/* A call of an operation in the source: the signature, and the parameter of each argument. */
typedef struct tide_bound_call {
    tide_signature signature;
    uint32_t *order;
} tide_bound_call;

typedef enum tide_outcome { GOES_ON, RETURNED } tide_outcome;

/* ---- bind.c ---- */
/* `given`: number of arguments before those in the source. */
bool tide_bind_operation_call(tide_model *model, tide_expr *e, const tide_op *op, uint32_t given);
bool tide_bind_members(tide_model *model, tide_class *of);
bool tide_bind_function(tide_model *model, tide_function *function);
/* Binds a single expression; its names are added to those of the function. */
bool tide_bind_alone(tide_model *model, tide_function *function, tide_expr *e);

/* ---- config_expressions.c ---- */
/* The value of a size, by its index in model->size_names. */
tide_value tide_scope_size(tide_model *model, uint32_t scope, uint32_t number);
/* An expression of a check, note or tie. */
tide_value tide_eval_config(tide_model *model, uint32_t scope, tide_expr *e);
/* The value of an unbound name. */
tide_value tide_config_name(tide_frame *f, const tide_expr *e);
/* A member of a part of the configuration. */
tide_value tide_config_member(tide_frame *f, const tide_expr *e, const tide_json *config);

/* ---- checks.c ---- */
/* Runs the checks of a description and of those that it extends over one configuration, and the notes of the first that
 * has any. */
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
    uint8_t least, most; /* number of arguments */
    bool keeps_unread;   /* does not read the items of list arguments, see tide_list.is_read */
    /* The arguments are borrowed. */
    tide_value (*run)(tide_frame *f, const tide_value *a, uint32_t count);
    /* Instead of `run`: takes keywords, and makes a module, a parameter or a buffer. */
    tide_value (*construct)(tide_frame *f, tide_arguments *given);
} tide_builtin;

extern const tide_builtin tide_builtins[];
extern const uint32_t tide_builtin_count;
const tide_builtin *tide_builtin_find(tide_text name); /* NULL: there is none */
tide_value tide_run_builtin(tide_frame *f, const tide_builtin *builtin, tide_arguments *given);

/* ---- calls.c ---- */
tide_value tide_run_operation(tide_machine *m, const tide_op *op, tide_value *a, uint32_t count);
tide_value tide_call_operation(tide_frame *f, tide_expr *e, const tide_op *op, const tide_value *self);
/* Arranges arguments by the parameters of the function, which it binds first; takes ownership of them. */
bool tide_arrange(const tide_call_arguments *call, tide_value *arranged);
/* Calls through the model's hook, or else tide_call_function. */
tide_value tide_call_by_hook(const tide_call_arguments *call);
/* Calls a method of a module, or the module itself without one; borrows the arguments, which so outlive the call. */
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

/* ---- hidden_states.c ---- */
/* Keeps outputs of layers while capture_hidden_states() asks for them. */
void tide_capture_hidden_states(tide_model *model, uint32_t instance, const tide_value *positional, uint32_t count,
                                tide_value made);
tide_value tide_builtin_capture_hidden_states(tide_frame *f, const tide_value *a, uint32_t count);

/* ---- autograd_function.c ---- */
tide_value tide_apply(tide_frame *f, const tide_value *a, uint32_t count);

/* ---- expressions.c ---- */
tide_value tide_eval_any(tide_frame *f, tide_expr *e);
/* Most expressions are names of locals. */
static inline tide_value tide_eval(tide_frame *f, tide_expr *e) {
    return e->kind == TIDE_EXPR_NAME && e->meaning == TIDE_LOCAL ? tide_value_retain(f->locals[e->slot])
                                                                 : tide_eval_any(f, e);
}
/* The member of a module, or of the module that it delegates to; owned. */
tide_value tide_member_of_module(tide_frame *f, uint32_t module, tide_text name);
/* The slot of a member, and in *module whose it is; UINT32_MAX and a failure if there is none. */
uint32_t tide_member_slot(tide_model *model, uint32_t *module, tide_text name);
void tide_release_all(tide_machine *m, const tide_value *values, uint32_t count);

/* ---- call_expressions.c ---- */
tide_value tide_eval_call(tide_frame *f, tide_expr *e);
void tide_eval_arguments(tide_frame *f, tide_expr *e, tide_arguments *given);
void tide_release_arguments(tide_machine *m, const tide_arguments *given);

/* ---- index.c ---- */
tide_value tide_eval_index(tide_frame *f, tide_expr *e);

/* ---- statements.c ---- */
void tide_set_local(tide_frame *f, uint32_t slot, tide_value v);
tide_outcome tide_run_block(tide_frame *f, tide_statement *s, tide_value *result);

/* ---- folded_loops.c ---- */

enum { TIDE_ITERATIONS_LOOKED_AT = 3 };

/* The state of a loop at the start of its second, third and fourth iteration. */
typedef struct tide_loop_looks {
    struct tide_loop_look *at[TIDE_ITERATIONS_LOOKED_AT];
} tide_loop_looks;

/* Called before iteration `done` of `count`: returns how many iterations may be skipped because they would do the same;
 * their values of the loop variable are not needed. */
uint32_t tide_fold_iterations(tide_frame *f, const tide_statement *loop, tide_loop_looks *looks, uint32_t done,
                              uint32_t count);
void tide_looks_drop(tide_frame *f, tide_loop_looks *looks);

/* ---- construct.c ---- */
uint32_t tide_scope_new(tide_model *model, tide_description *description, const tide_json *config);
uint32_t tide_instance_new(tide_model *model, tide_class *of, uint32_t scope);
/* Makes the members of a class in order; takes ownership of the arguments. 0 after an error. */
uint32_t tide_instantiate(tide_model *model, tide_class *of, uint32_t scope, const tide_arguments *given);
/* Makes a module of this name as its constructor does. Takes ownership of the arguments. */
tide_value tide_construct(tide_frame *f, tide_text class_name, tide_arguments *given);
tide_value tide_construct_parameter(tide_frame *f, tide_arguments *given);
tide_value tide_construct_buffer(tide_frame *f, tide_arguments *given);
tide_value tide_construct_auto_model(tide_frame *f, tide_arguments *given);
tide_value tide_deepcopy(tide_model *model, tide_value v, int depth);

/* ---- names.c ---- */
/* Sets the name and path of a module, and of all below it. */
void tide_name_instance(tide_model *model, uint32_t instance, uint32_t parent, tide_text name);
/* The index of a text in a list of texts; appends it if needed. */
uint32_t tide_intern(tide_arena *arena, const char ***list, uint32_t *count, uint32_t *capacity, tide_text text);
/* The slot at a dotted path below an instance; NULL if there is none. */
tide_value *tide_slot_at(tide_model *model, uint32_t instance, tide_text path);

/* Marks a value as read by more than its identity. */
static inline void tide_value_is_read(tide_value v) {
    if (v.kind != TIDE_VALUE_LIST) return;
    v.list->is_read = true;
    for (uint32_t i = 0; i < v.list->count; i++)
        if (v.list->items[i].kind == TIDE_VALUE_LIST) v.list->items[i].list->is_read = true;
}

#endif
