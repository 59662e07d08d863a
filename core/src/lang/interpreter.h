/* The interpreter from inside: frames, and what its files offer to one another. module.h is its outside.
 *
 * Note [Lifetimes]: a name lives until it is rebound or its function returns; the value of an expression until the
 * operation that takes it has returned. The arguments of a module stay alive until its call returns, because
 * Module._call_impl(*args, **kwargs) holds them; those of a plain function belong to its own names. */
#ifndef TIDE_INTERPRETER_H
#define TIDE_INTERPRETER_H

#include "lang/module.h"

/* Depths keep the host's stack below 512 KiB, which is what the WebAssembly module has. */
enum { CALL_DEPTH = 32, NESTING_LIMIT = 64, ARGUMENT_LIMIT = 64, INSTANCE_LIMIT = 1 << 20, LOOP_LIMIT = 1 << 20 };

typedef struct tide_frame {
    tide_model *model;
    uint32_t instance, scope;
    tide_function *function;
    tide_value *locals;
} tide_frame;

/* In tide_class.read. */
static inline uint64_t tide_slot_bit(uint32_t slot) {
    return UINT64_C(1) << (slot < 63 ? slot : 63);
}

/* The context of a torch.autograd.Function, see calls.c. */
typedef struct tide_applied {
    tide_held held;
    tide_function *backward;
    uint32_t instance, scope;
    tide_value context;
} tide_applied;

typedef enum tide_builtin {
    BUILTIN_RANGE,
    BUILTIN_LEN,
    BUILTIN_IS_LIST,
    BUILTIN_IS_VIEW,
    BUILTIN_MIN,
    BUILTIN_MAX,
    BUILTIN_SQRT,
    BUILTIN_ROOT,
    BUILTIN_CONTAINS,
    BUILTIN_ERROR,
    BUILTIN_DEEPCOPY,
    BUILTIN_APPLY,
    BUILTIN_CHECKPOINT,
    BUILTIN_CHECKPOINT_WITHOUT_OUTPUT,
    BUILTIN_DISCARD_OUTPUT,
    BUILTIN_SAVE_FOR_BACKWARD,
    BUILTIN_SET_SETTING,
    BUILTIN_PARAMETER,
    BUILTIN_BUFFER,
    BUILTIN_AUTO_MODEL,
    BUILTIN_COUNT
} tide_builtin;
extern const char *const tide_builtin_names[BUILTIN_COUNT];

static inline tide_value tide_nothing(tide_machine *m, tide_status status, const char *format, const char *what) {
    tide_fail(m, status, format, what);
    return tide_none();
}

static inline const char *tide_terminated(tide_machine *m, tide_text text) {
    return tide_text_copy(m->arena, text);
}

/* Owned by the caller. */
static inline tide_value tide_setting(tide_model *model, uint32_t index) {
    model->step_reads += model->settings[index].is_of_step;
    model->settings[index].is_read = true;
    return tide_value_retain(model->settings[index].value);
}

/* What a tensor answers to, see tide_bind_expr. */
enum { MEMBER_NONE, MEMBER_SHAPE, MEMBER_DTYPE, MEMBER_REQUIRES_GRAD };

typedef struct tide_signature {
    tide_text names[12];
    tide_value defaults[12];
    bool has_default[12];
    uint32_t count;
    int32_t variadic;
} tide_signature;

/* An operation's signature is read once per call in the source; `order` says where each argument goes. */
typedef struct tide_bound_call {
    tide_signature s;
} tide_bound_call;

typedef enum tide_outcome { GOES_ON, RETURNED } tide_outcome;

/* ---- bind.c ---- */
uint32_t tide_add_local(tide_model *model, tide_function *function, tide_text name);
void tide_collect_expr(tide_model *model, tide_function *function, const tide_expr *e);
uint32_t tide_attribute_slot(const tide_class *of, tide_text name);
bool tide_bind_operation_call(tide_model *model, tide_expr *e, const tide_op *op, uint32_t given);
bool tide_bind_expr(tide_model *model, tide_function *function, const tide_description *from, tide_expr *e);
bool tide_bind_members(tide_model *model, tide_class *of, const tide_description *from);
bool tide_bind_function(tide_model *model, tide_function *function, const tide_description *from);

/* ---- config_expressions.c ---- */
tide_value tide_scope_size(tide_model *model, uint32_t scope, uint32_t number);
tide_value tide_eval_size(tide_model *model, uint32_t scope, tide_expr *e, tide_text self, bool may_miss, int depth);
void tide_run_checks(tide_model *model, uint32_t scope);

/* ---- arithmetic.c ---- */
const char *tide_kind_name(tide_value v);
tide_value tide_literal(const tide_expr *e); /* none, a boolean, a number or text */
tide_value tide_arithmetic(tide_machine *m, char op, tide_value a, tide_value b);
int tide_compare(tide_machine *m, char op, tide_value a, tide_value b);
bool tide_is_true(tide_machine *m, tide_value v);
tide_value tide_call_builtin(tide_machine *m, uint32_t which, tide_value *a, uint32_t count);

/* ---- calls.c ---- */
tide_value tide_run_operation(tide_machine *m, const tide_op *op, tide_value *a, uint32_t count);
tide_value tide_call_operation(tide_frame *f, tide_expr *e, const tide_op *op, const tide_value *self);
tide_value tide_operate(tide_frame *f, const char *name, tide_value a, tide_value b);
bool tide_arrange(tide_model *model, tide_function *function, uint32_t instance, uint32_t scope,
                  const tide_value *positional, uint32_t count, const tide_text *keywords, const tide_value *named,
                  uint32_t named_count, tide_value *arranged);
tide_value tide_call_function(tide_model *model, tide_function *function, uint32_t instance, uint32_t scope,
                              const tide_value *positional, uint32_t count, const tide_text *keywords,
                              const tide_value *named, uint32_t named_count);
/* The same; of calls with equal keys the first is played and the others are replayed, see memo/layer_memo.c. */
tide_value tide_call_memoized(tide_model *model, tide_function *function, uint32_t instance, uint32_t scope,
                              const tide_value *positional, uint32_t count, const tide_text *keywords,
                              const tide_value *named, uint32_t named_count);
/* What a node of apply() holds, NULL if it is of another kind; and the same for another node. */
tide_applied *tide_applied_of(const tide_node *node);
void tide_apply_again(tide_machine *m, tide_node *node, tide_applied held);
/* Functions of the language that call others: apply() and those of checkpoints. False: it is none of them. */
bool tide_calls_others(uint32_t builtin);
tide_value tide_call_others(tide_frame *f, uint32_t builtin, const tide_value *a, uint32_t count);
tide_value tide_call_again(tide_machine *m, void *function, tide_value *inputs, uint32_t count);
void tide_closure_free(tide_machine *m, void *function);
tide_value tide_call_module(tide_model *model, uint32_t instance, tide_function *method, const tide_value *positional,
                            uint32_t count, const tide_text *keywords, const tide_value *named, uint32_t named_count);

/* ---- expressions.c ---- */
tide_value tide_eval_any(tide_frame *f, tide_expr *e);
/* Most expressions are names of locals. */
static inline tide_value tide_eval(tide_frame *f, tide_expr *e) {
    return e->kind == TIDE_EXPR_NAME && e->meaning == TIDE_LOCAL ? tide_value_retain(f->locals[e->slot])
                                                                 : tide_eval_any(f, e);
}
/* Positional arguments first, then those with keywords. */
uint32_t tide_eval_arguments(tide_frame *f, tide_expr *e, tide_value *positional, tide_text *keywords,
                             tide_value *named, uint32_t *named_count);
void tide_release_all(tide_machine *m, const tide_value *values, uint32_t count);
void tide_set_local(tide_frame *f, uint32_t slot, tide_value v);
tide_outcome tide_run_block(tide_frame *f, tide_statement *s, tide_value *result);

/* ---- module.c ---- */
tide_value tide_construct(tide_frame *f, tide_expr *e);
tide_value tide_deepcopy(tide_model *model, tide_value v, int depth);

#endif
