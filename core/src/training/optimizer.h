/* Optimizers: their states, and what a step makes and frees. */
#ifndef TIDE_OPTIMIZER_H
#define TIDE_OPTIMIZER_H

#include "../machine/module.h"

extern const char *const tide_optimizer_names[];
extern const char *const tide_optimizer_titles[];
extern const uint32_t tide_optimizer_name_count;

typedef struct tide_optimizer tide_optimizer;

/* Over the parameters that train. groups: "one", or "trainer" for norms and biases in a group of their own. */
tide_optimizer *tide_optimizer_new(tide_model *model, const char *name, const char *groups);

/* torch.nn.utils.clip_grad_norm_ over all parameters that train. */
void tide_clip_grad_norm(tide_model *model);

/* optimizer.step() over the parameters that have a gradient. */
void tide_optimizer_step(tide_optimizer *optimizer);

/* optimizer.zero_grad(set_to_none). */
void tide_zero_grad(tide_optimizer *optimizer, bool set_to_none);

/* torch.amp.GradScaler */
typedef struct tide_scaler {
    tide_tensor *scale, *growth; /* made at the first loss */
    tide_tensor *found_inf;
    bool is_unscaled;
} tide_scaler;

/* scaler.scale(loss): the scaled loss, owned by the caller. */
tide_tensor *tide_scaler_scale(tide_model *model, tide_scaler *scaler, tide_tensor *loss);
void tide_scaler_unscale(tide_model *model, tide_scaler *scaler);
void tide_scaler_step(tide_model *model, tide_scaler *scaler, tide_optimizer *optimizer);
void tide_scaler_update(tide_model *model, tide_scaler *scaler);

#endif
