/* SPDX-License-Identifier: Apache-2.0 */
/* Modules: the instances of a description over a configuration, and running their functions on the machine. */
#ifndef TIDE_LANG_MODULE_H
#define TIDE_LANG_MODULE_H

#include "lang/description.h"
#include "tensor/ops/ops.h"
#include "tensor/tensor.h"

enum { CALL_DEPTH = 32 }; /* nesting depth of functions and modules */

/* A module of the model. Instance 0 means none. */
typedef struct tide_instance {
    tide_class *of;
    uint32_t parent;
    uint32_t scope;
    tide_text name;   /* inside its parent, "layers.3" in a list */
    const char *path; /* "model.layers.3.mlp" */
    uint32_t part;    /* its top-level part, see tide_model.parts; 0: the model itself */
    uint32_t layer;   /* index into tide_model.layers */
    bool is_item;     /* of a list: "layers.3" */
    bool is_listed;   /* while modules are listed */
    uint32_t mark;    /* see memo/layer_memo.c */
    bool skips_checkpoint;
    bool makes_grad;       /* its output is made to require gradients: enable_input_require_grads() */
    bool makes_input_grad; /* so is its first input, if it is checkpointed: tide_checkpoint_trainable() */
    tide_value *slots;     /* constructor arguments, then members */
} tide_instance;

/* The bit of a slot in tide_class.read. */
static inline uint64_t tide_slot_bit(uint32_t slot) {
    return UINT64_C(1) << (slot < 63 ? slot : 63);
}

enum tide_size_state {
    TIDE_SIZE_UNKNOWN,
    TIDE_SIZE_COMPUTED,
    /* computed for this run */ TIDE_SIZE_KNOWN,
    TIDE_SIZE_OF_STEP /* computed, but depends on settings of the step */
};

/* A configuration, read through the sizes of a description. */
typedef struct tide_scope {
    tide_description *description;
    const tide_json *config;
    tide_value *values; /* by the index of the size's name */
    uint8_t *states;    /* a tide_size_state for each value */
    uint32_t capacity;
} tide_scope;

typedef struct tide_setting_value {
    const char *name;
    tide_value value;
    bool is_read;    /* by functions or sizes */
    bool is_of_step; /* later runs of a loaded model may have another one, see tide_model_resize */
} tide_setting_value;

/* What functions may read of the model besides its modules and settings; memos compare it as a whole. Without padding.
 */
typedef struct tide_model_state {
    tide_node *applied; /* the autograd function whose forward is running, or NULL */
    tide_dtype dtype;   /* for new parameters */
    bool is_checkpointing, is_reentrant;
    bool is_on_meta; /* and not moved to the device for now */
} tide_model_state;

typedef struct tide_model tide_model;

/* A call of a module's function. Whatever runs it takes ownership of the values. */
typedef struct tide_call_arguments {
    tide_model *model;
    tide_function *function;
    uint32_t instance, scope;
    const tide_value *positional, *named;
    const tide_text *keywords; /* of `named` */
    uint32_t count, named_count;
} tide_call_arguments;

typedef struct tide_parameter_row {
    tide_tensor *tensor;
    uint32_t module;
    const char *name; /* "model.layers.3.mlp.up_proj.weight" */
    int64_t count;    /* what its packed data stand for, once the model is loaded */
    bool is_upcast;   /* to fp32, after it was loaded in the model's dtype */
} tide_parameter_row;

struct tide_model {
    tide_machine *m;
    tide_descriptions *descriptions;

    /* Set by the caller, who receives `user`. The class and description for a model_type; false if there is none. */
    bool (*find_model)(void *user, tide_text model_type, tide_text *description, tide_text *class_name);
    /* Those that stand in for a configuration without a description, by its keys; false if there are none. */
    bool (*find_stand_in)(void *user, const tide_json *config, tide_text *description, tide_text *class_name);
    /* Where a setting, or an entry of a configuration, was given; *is_default: nowhere. NULL: "checks" of descriptions
     * are skipped. */
    const char *(*find_place)(void *user, const tide_json *config, tide_text key, bool *is_default);
    void *user;

    tide_setting_value *settings; /* what forward() may read: batch, seq, training, ... */
    uint32_t setting_count;
    tide_model_state state;
    bool has_peft;        /* which may require gradients of inputs */
    bool autocasts;       /* "with autocast:" enters torch.autocast with that dtype */
    bool is_reference;    /* has the weights of a reference model, which is made without checkpoints and such hooks */
    bool makes_grad_last; /* enable_input_require_grads() was called again, after a wrapper's hooks */
    bool leaves_autocast; /* and disables an active one: deepspeed/runtime/torch_autocast.py, autocast_if_enabled */
    tide_dtype autocast_dtype;

    tide_instance *instances;
    uint32_t instance_count, instance_capacity;
    tide_scope *scopes;
    uint32_t scope_count, scope_capacity;
    tide_names size_names;
    const char **parts; /* names of the top-level parts; 0 is "" */
    uint32_t part_count, part_capacity;
    const char **layers; /* names of the layers inside parts; 0 is "" */
    uint32_t layer_count, layer_capacity;
    uint32_t root;

    /* Runs a call of a module instead of tide_call_function; NULL: none. memo/layer_memo.c */
    tide_value (*call)(const tide_call_arguments *call);
    struct tide_layer_memo *layer_memo; /* belongs to it */
    uint32_t repeated_calls;            /* that were replayed */

    bool checkpoints_hold_given; /* positions and labels that a trainer passes as keywords: lang/checkpointed_calls.c */
    uint32_t setting_changes;    /* changes that functions made, or may make through the value of a setting */
    uint32_t step_reads;         /* settings of the step that were read, except by checks */
    uint64_t size_op_count;      /* work for sizes, each of which is evaluated once */
    tide_list *hidden_states;    /* captured so far, or NULL: lang/hidden_states.c */
    uint32_t hidden_states_of;   /* the module whose layers they come from */
    int depth;                   /* calls of functions and constructors in progress */
    int nesting;                 /* call expressions and sizes being evaluated */

    /* Hooks of nn.Module.__call__, set by wrappers; NULL: none. Their arguments are owned and may be replaced. As
     * register_forward_pre_hook and register_forward_hook, outside of checkpoints (transformers/modeling_layers.py). */
    void (*before_forward)(tide_model *model, uint32_t instance, tide_value *positional, uint32_t count,
                           tide_value *named, uint32_t named_count);
    void (*after_forward)(tide_model *model, uint32_t instance, tide_value *output);
    bool wraps_forward; /* there is more in the root's forward(), after which call_ends() calls after_forward() */
    /* Around a call of the model that a library function makes instead of a loop; replaced: forward() is that function,
     * so the hooks of the root must be run too. Inputs and outputs are owned and may be replaced. NULL: none. */
    void (*call_begins)(tide_model *model, bool replaced, tide_value *inputs, uint32_t count);
    void (*call_ends)(tide_model *model, tide_value *outputs, bool replaced);
    void *caller;
    struct tide_tensor_parallel *tensor_parallel; /* parallel/tensor_parallel.h; NULL: none */
    tide_list *quantisation;                      /* what all quantised layers share; NULL: there are none */
    struct autotp *autotp;                        /* parallel/autotp.c; NULL: none */
    const uint32_t *children_first; /* the order of Module.to(), if parameters were sharded after it was fixed; NULL:
                                       the current order */
    /* Called when forward() of an instance (0: what replaces the root) reads a parameter of another module; if it
     * returns a tensor, which the caller owns, that is used instead. */
    tide_tensor *(*read_parameter)(tide_model *model, uint32_t instance, tide_tensor *parameter);

    /* Called for each parameter that reached the device while the model is made, after those of its module. */
    void (*parameter_made)(tide_model *model, tide_tensor *parameter);
    /* Module.to_empty() of modules on the meta device: what a parameter gets as its storage, and what follows after
     * each module. */
    void (*parameter_empty)(tide_model *model, uint32_t instance, tide_tensor *parameter);
    void (*module_empty)(tide_model *model, uint32_t instance);
    const bool *without_buffers; /* by instance: modules that belong to another rank; NULL: none */
    bool is_made_on_device; /* parameters and buffers are allocated as their modules are made: with torch.device(...) */

    tide_parameter_row *parameters; /* in the order of named_parameters(), without duplicates */
    uint32_t parameter_count, parameter_capacity;
    tide_parameter_row *extra; /* parameters that are in the checkpoint but in no module; listed last */
    uint32_t extra_count;
    tide_tensor **buffers; /* in the order of named_buffers() */
    uint32_t buffer_count, buffer_capacity;
    uint64_t buffer_bytes;
};

/* Separates a module's weight from the parameter that it is tied to: a new parameter, without memory so far, is listed
 * last. */
tide_tensor *tide_model_untie(tide_model *model, uint32_t instance, const tide_tensor *tied);

/* Whether an instance is `above` or anywhere below it. */
bool tide_is_below(const tide_model *model, uint32_t instance, uint32_t above);

void tide_model_init(tide_model *model, tide_machine *m, tide_descriptions *descriptions);

/* Reads and binds one function, or without one the members of a class, and clears the failure; false if there was one.
 */
bool tide_model_check(tide_model *model, tide_class *of, tide_function *function);
/* Whether a bound function always calls itself, directly or through others. */
bool tide_function_is_endless(const tide_function *function);

/* Makes the modules of a class over a configuration; nothing is on the device yet. */
bool tide_model_build(tide_model *model, tide_description *description, tide_text class_name, const tide_json *config);

/* For a model that was loaded without reading settings of the step (step_reads is 0), after these changed: sizes that
 * depend on them are recomputed, and checks run again. False if one fails. */
bool tide_model_resize(tide_model *model);
/* Sizes that depend on settings of the step are recomputed when they are next read. */
void tide_model_forget_step_sizes(tide_model *model);

/* Wraps a module in a new instance of a library class, whose constructor takes it as the first argument. The wrapper
 * takes over its place in the parent and its path. 0 after an error. */
uint32_t tide_model_wrap(tide_model *model, uint32_t instance, tide_text class_name, const tide_value *more,
                         uint32_t more_count);

/* The reverse: the module that the wrapper delegates to ("@delegate") takes its place, and the rest is freed. */
void tide_model_unwrap(tide_model *model, uint32_t instance);

/* Runs a method of a module without gradients, if its class has one of that name. What the module's lists refer to
 * afterwards belongs to that factor. */
void tide_model_call(tide_model *model, uint32_t instance, tide_text method, tide_factor factor);

/* The modules below an instance in the order of named_modules(), itself first; the array belongs to the arena. */
uint32_t *tide_model_modules(tide_model *model, uint32_t *count);

/* Lists the parameters again after modules changed. */
void tide_model_list_parameters(tide_model *model);

/* The number of elements of a parameter; packed data count as what they stand for, which the method numel() of their
 * module returns. */
int64_t tide_model_count(tide_model *model, const tide_parameter_row *parameter);

/* The slot of a member, or else of a constructor argument; UINT32_MAX: there is neither. */
uint32_t tide_attribute_slot(const tide_class *of, tide_text name);

/* Indices of the parameters in the order in which Module.to() moved them to the device: children first. */
const uint32_t *tide_children_first(const tide_model *model);
/* The module at a dotted path below the root; 0 if there is none. */
uint32_t tide_model_find(tide_model *model, tide_text path);
/* The module at a path below an instance; 0 if there is none. */
uint32_t tide_model_below(tide_model *model, uint32_t instance, tide_text path);

/* The name of the root's class in the framework. */
const char *tide_root_name(const tide_model *model);

/* transformers: PreTrainedModel.enable_input_require_grads(), called when checkpointing is enabled; for models of
 * pixels only by peft, which matters if their embeddings return more than one tensor. */
void tide_model_require_input_grads(tide_model *model, bool by_peft);

/* Allocates parameters and buffers in the order of Module.to(): children first, then parameters, then buffers. Does
 * nothing if state.is_on_meta. */
void tide_model_to_device(tide_model *model);
/* The same for one tensor, and for a module's own buffers. */
void tide_model_place(tide_model *model, uint32_t instance, tide_tensor *t, tide_factor factor);
void tide_model_place_buffers(tide_model *model, uint32_t instance);

/* Calls root.forward with the values that its parameters name; borrows them, and the caller owns the result. */
tide_value tide_model_forward(tide_model *model, const char *const *names, const tide_value *values, uint32_t count);

/* The same for another method of the root; none if it has no such method. */
tide_value tide_model_method(tide_model *model, tide_text method, const char *const *names, const tide_value *values,
                             uint32_t count);

/* What forward() reads under a setting's name; NULL if there is none. */
tide_value *tide_model_setting(const tide_model *model, const char *name);

/* The module that has a name: itself, or the one that it delegates to (peft: BaseTunerLayer's properties); 0: none was
 * given. */
uint32_t tide_delegated(const tide_model *model, uint32_t module, tide_text name);

/* A size of the root's description; owned by the caller. */
tide_value tide_model_size(tide_model *model, const char *name);
/* The same for one of its parts, by a scope of the model. */
tide_value tide_size_in(tide_model *model, uint32_t scope, const char *name);

/* Evaluates an expression in the root's scope; owned by the caller. */
tide_value tide_model_evaluate(tide_model *model, tide_text expression, const char *place);

/* Runs a free function of the library `turns` times as the body of one Python loop, whose names live on between
 * iterations; `next` supplies the arguments of an iteration, one for each parameter, and gives up ownership of them. */
void tide_model_loop(tide_model *model, tide_function *function, uint32_t turns,
                     void (*next)(void *user, uint32_t turn, tide_value *arguments), void *user);

/* Runs a free function of the library or of the root's description on values, which are borrowed; for tests of
 * operations. */
tide_value tide_model_run(tide_model *model, tide_function *function, const tide_value *arguments, uint32_t count);

/* ---- for model->call ---- */

/* Runs a function; takes ownership of the values. */
tide_value tide_call_function(const tide_call_arguments *call);

/* The context (ctx) of a torch.autograd.Function, see autograd_function.c. */
typedef struct tide_applied {
    tide_held held;
    tide_function *backward;
    uint32_t instance, scope;
    tide_value context;
} tide_applied;

/* The context of a node made by apply(), NULL for other nodes; and the same for another node. */
tide_applied *tide_applied_of(const tide_node *node);
void tide_apply_again(tide_machine *m, tide_node *node, tide_applied held);

#endif
