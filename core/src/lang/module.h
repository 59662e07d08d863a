/* SPDX-License-Identifier: Apache-2.0 */
/* Modules: a description made into instances over a configuration, and its functions run by the machine. */
#ifndef TIDE_LANG_MODULE_H
#define TIDE_LANG_MODULE_H

#include "lang/description.h"
#include "tensor/ops/ops.h"
#include "tensor/tensor.h"

enum { CALL_DEPTH = 32 }; /* functions and modules that are in one another */

/* A module of the model that is played. Instance 0 is none. */
typedef struct tide_instance {
    tide_class *of;
    uint32_t parent;
    uint32_t scope;
    tide_text name;   /* inside its parent, "layers.3" in a list */
    const char *path; /* "model.layers.3.mlp" */
    uint32_t part;    /* the top-level part it belongs to, see tide_model.parts; 0: the model itself */
    uint32_t layer;   /* index into tide_model.layers */
    bool is_item;     /* of a list: "layers.3" */
    bool is_listed;   /* while modules are listed */
    uint32_t mark;    /* see memo/layer_memo.c */
    bool skips_checkpoint;
    bool makes_grad;   /* its output is made to require a gradient: enable_input_require_grads() */
    tide_value *slots; /* constructor arguments, then members */
} tide_instance;

/* In tide_class.read. */
static inline uint64_t tide_slot_bit(uint32_t slot) {
    return UINT64_C(1) << (slot < 63 ? slot : 63);
}

enum tide_size_state {
    TIDE_SIZE_UNKNOWN,
    TIDE_SIZE_COMPUTED,
    /* just now */ TIDE_SIZE_KNOWN,
    TIDE_SIZE_OF_STEP /* known, and it follows a setting of the step */
};

/* A configuration, read through the sizes of a description. */
typedef struct tide_scope {
    tide_description *description;
    const tide_json *config;
    tide_value *values; /* by number of the size's name */
    uint8_t *states;    /* of each value: tide_size_state */
    uint32_t capacity;
} tide_scope;

typedef struct tide_setting_value {
    const char *name;
    tide_value value;
    bool is_read;    /* by functions or sizes */
    bool is_of_step; /* another one may hold for the next run of a model that is loaded, see tide_model_resize */
} tide_setting_value;

/* What functions may read of the model beside its modules and settings; memos compare it as a whole. Without padding.
 */
typedef struct tide_model_state {
    tide_node *applied; /* of the autograd function whose forward runs, or NULL */
    tide_dtype dtype;   /* of parameters */
    bool is_checkpointing, is_reentrant;
    bool is_on_meta; /* and stays there for now */
} tide_model_state;

typedef struct tide_model tide_model;

/* A call of a module's function. Values are taken over by what runs it. */
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
    int64_t count;    /* of what is packed in it, once the model is loaded */
} tide_parameter_row;

struct tide_model {
    tide_machine *m;
    tide_descriptions *descriptions;

    /* By the caller, who gets `user`. The class and description that a model_type stands for; false if none does. */
    bool (*find_model)(void *user, tide_text model_type, tide_text *description, tide_text *class_name);
    /* Those that stand in for a configuration that none covers, by its keys; false if none does. */
    bool (*find_stand_in)(void *user, const tide_json *config, tide_text *description, tide_text *class_name);
    /* Where a setting, or else an entry of a configuration, was given; *is_default: nowhere. NULL: the "checks" of
     * descriptions are left out. */
    const char *(*find_place)(void *user, const tide_json *config, tide_text key, bool *is_default);
    void *user;

    tide_setting_value *settings; /* what forward() may ask for: batch, seq, training, ... */
    uint32_t setting_count;
    tide_model_state state;
    bool has_peft;        /* which asks for gradients of inputs */
    bool autocasts;       /* "with autocast:" enters torch.autocast of that dtype */
    bool makes_grad_last; /* enable_input_require_grads() was called again, behind a wrapper's hooks */
    bool leaves_autocast; /* and leaves one that is there: deepspeed/runtime/torch_autocast.py, autocast_if_enabled */
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

    /* Runs a call of a module in place of tide_call_function; NULL: nothing does. memo/layer_memo.c */
    tide_value (*call)(const tide_call_arguments *call);
    struct tide_layer_memo *layer_memo; /* its own */
    uint32_t repeated_calls;            /* that it has not played */

    bool checkpoints_hold_given; /* positions and labels that a trainer passes as keywords: lang/checkpointed_calls.c */
    uint32_t setting_changes;    /* that functions have made, or may make by what a setting holds */
    uint32_t step_reads;         /* settings of the step that were read, checks left out */
    uint64_t size_op_count;      /* operations that sizes took, which are evaluated once each */
    int depth;                   /* calls of functions and constructors that have not returned */
    int nesting;                 /* call expressions and sizes that are being evaluated */

    /* Hooks of nn.Module.__call__, by wrappers; NULL: none. What they are given is owned, and they may put other values
     * there. As register_forward_pre_hook and register_forward_hook, outside of a checkpoint
     * (transformers/modeling_layers.py). */
    void (*before_forward)(tide_model *model, uint32_t instance, tide_value *positional, uint32_t count,
                           tide_value *named, uint32_t named_count);
    void (*after_forward)(tide_model *model, uint32_t instance, tide_value *output);
    /* Around a call of the model that a function of the library makes in a loop's place; replaced: forward() is that
     * function, and what hooks of the root do is to be done as well. Outputs are owned, and may be replaced. NULL:
     * nothing is there. */
    void (*call_begins)(tide_model *model, bool replaced);
    void (*call_ends)(tide_model *model, tide_value *outputs, bool replaced);
    void *caller;
    struct tide_tensor_parallel *tensor_parallel; /* parallel/tensor_parallel.h; NULL: none */
    struct autotp *autotp;                        /* parallel/autotp.c; NULL: none */
    const uint32_t *children_first; /* the order of Module.to(), where parameters were cut since; NULL: as they stand */
    /* The forward() of an instance (0: what takes the root's place) reads a parameter of another module, and gets,
     * where it is not NULL, another tensor, which it owns. */
    tide_tensor *(*read_parameter)(tide_model *model, uint32_t instance, tide_tensor *parameter);

    /* A parameter has come to the device, as the model is made. */
    void (*parameter_made)(tide_model *model, tide_tensor *parameter);
    /* Module.to_empty() of modules that were made on the meta device: what a parameter gets there in place of its
     * storage, and what follows when a module has been gone through. */
    void (*parameter_empty)(tide_model *model, uint32_t instance, tide_tensor *parameter);
    void (*module_empty)(tide_model *model, uint32_t instance);
    const bool *without_buffers; /* by instance: modules that another rank has; NULL: none */
    bool is_made_on_device;      /* a parameter or buffer is allocated as its module is made: with torch.device(...) */

    tide_parameter_row *parameters; /* in the order of named_parameters(), shared ones once */
    uint32_t parameter_count, parameter_capacity;
    tide_parameter_row *extra; /* parameters that the checkpoint has and no module; listed last */
    uint32_t extra_count;
    tide_tensor **buffers; /* in the order of named_buffers() */
    uint32_t buffer_count, buffer_capacity;
    uint64_t buffer_bytes;
};

/* Parts a module's weight from the parameter that it is tied to: one of its own, still without memory, is listed last.
 */
tide_tensor *tide_model_untie(tide_model *model, uint32_t instance, const tide_tensor *tied);

/* Whether an instance is `above`, or of its children and theirs. */
bool tide_is_below(const tide_model *model, uint32_t instance, uint32_t above);

void tide_model_init(tide_model *model, tide_machine *m, tide_descriptions *descriptions);

/* Reads and binds one function, or without one the members of a class, and forgets that it failed; false if it did. */
bool tide_model_check(tide_model *model, tide_class *of, tide_function *function);
/* Whether a bound function calls itself, or one that does, without an if or a loop on the way. */
bool tide_function_is_endless(const tide_function *function);

/* Makes the module tree of a class over a configuration; nothing is on the device yet. */
bool tide_model_build(tide_model *model, tide_description *description, tide_text class_name, const tide_json *config);

/* For a model that was loaded without a look at settings of the step (step_reads is 0), and which have changed now:
 * sizes that follow them are computed anew, and the checks are made again. False where one fails. */
bool tide_model_resize(tide_model *model);
/* Sizes that settings of the step decide are computed anew when they are next read. */
void tide_model_forget_step_sizes(tide_model *model);

/* A new instance of a class of the library around a module: its constructor's first argument. It takes the module's
 * place in its parent and its path. 0 after an error. */
uint32_t tide_model_wrap(tide_model *model, uint32_t instance, tide_text class_name, const tide_value *more,
                         uint32_t more_count);

/* The other way: the module that answers for what the wrapper lacks ("@delegate") takes its place; the rest of it is
 * freed. */
void tide_model_unwrap(tide_model *model, uint32_t instance);

/* Runs a method of a module without gradients, if its class has one of that name. What the module's lists hold
 * afterwards is of that factor. */
void tide_model_call(tide_model *model, uint32_t instance, tide_text method, tide_factor factor);

/* Modules below an instance as named_modules() has them, itself first; the array is the arena's. */
uint32_t *tide_model_modules(tide_model *model, uint32_t *count);

/* Lists the parameters anew, after modules have changed. */
void tide_model_list_parameters(tide_model *model);

/* Numbers in a parameter; packed ones count as what they stand for, which a method numel() of their module says. */
int64_t tide_model_count(tide_model *model, const tide_parameter_row *parameter);

/* The slot of a member, or else of a constructor argument; UINT32_MAX: neither. */
uint32_t tide_attribute_slot(const tide_class *of, tide_text name);

/* The module at a dotted path below the root; 0 if there is none. */
uint32_t tide_model_find(tide_model *model, tide_text path);
/* The module at a path below an instance; 0: there is none. */
uint32_t tide_model_below(tide_model *model, uint32_t instance, tide_text path);

/* The root as the framework calls its class. */
const char *tide_root_name(const tide_model *model);

/* transformers: PreTrainedModel.enable_input_require_grads(), called when checkpointing is switched on; of models of
 * pixels by peft alone, which shows where their embeddings return more than one tensor. */
void tide_model_require_input_grads(tide_model *model, bool by_peft);

/* Allocates parameters and buffers in the order of Module.to(): children first, then parameters, then buffers. Not if
 * state.is_on_meta. */
void tide_model_to_device(tide_model *model);
/* The same of one tensor, and of a module's own buffers. */
void tide_model_place(tide_model *model, uint32_t instance, tide_tensor *t);
void tide_model_place_buffers(tide_model *model, uint32_t instance);

/* Calls root.forward with the values whose names it takes; borrowed. Owned by the caller. */
tide_value tide_model_forward(tide_model *model, const char *const *names, const tide_value *values, uint32_t count);

/* The same for another method of the root; none if it has no such method. */
tide_value tide_model_method(tide_model *model, tide_text method, const char *const *names, const tide_value *values,
                             uint32_t count);

/* What forward() finds under a setting's name; NULL if there is none. */
tide_value *tide_model_setting(tide_model *model, const char *name);

/* A size of the root's description; owned by the caller. */
tide_value tide_model_size(tide_model *model, const char *name);
/* The same in one of its parts, by a scope of the model. */
tide_value tide_size_in(tide_model *model, uint32_t scope, const char *name);

/* Evaluates an expression in the root's scope; owned by the caller. */
tide_value tide_model_evaluate(tide_model *model, tide_text expression, const char *place);

/* Runs a free function of the library `turns` times as the body of one Python loop, whose names live on from turn to
 * turn; `next` fills in the arguments of a turn, one for each parameter, to be taken over. */
void tide_model_loop(tide_model *model, tide_function *function, uint32_t turns,
                     void (*next)(void *user, uint32_t turn, tide_value *arguments), void *user);

/* Runs a free function of the library or the root's description on values (borrowed); for tests of operations. */
tide_value tide_model_run(tide_model *model, tide_function *function, const tide_value *arguments, uint32_t count);

/* ---- for model->call ---- */

/* Runs a function; takes the values over. */
tide_value tide_call_function(const tide_call_arguments *call);

/* The context of a torch.autograd.Function, see autograd_function.c. */
typedef struct tide_applied {
    tide_held held;
    tide_function *backward;
    uint32_t instance, scope;
    tide_value context;
} tide_applied;

/* What a node of apply() holds, NULL if it is of another kind; and the same for another node. */
tide_applied *tide_applied_of(const tide_node *node);
void tide_apply_again(tide_machine *m, tide_node *node, tide_applied held);

#endif
