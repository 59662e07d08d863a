/* SPDX-License-Identifier: Apache-2.0 */
/* Saved tensors on the host. */
#ifndef TIDE_TENSOR_OFFLOAD_H
#define TIDE_TENSOR_OFFLOAD_H

#include "tensor/tensor.h"

typedef struct tide_offload tide_offload;

/* torch.autograd.graph.save_on_cpu(pin_memory=True), or TRL's OffloadActivations (trl/models/activation_offloading.py),
 * which keeps parameters and small tensors on the device and copies on a stream of its own. */
tide_offload *tide_offload_new(tide_machine *m, bool is_of_trl);
/* `with offload:`, inside of which saved tensors go to the host. Returns the previous hooks for tide_offload_exit(). */
tide_saved_tensors_hooks *tide_offload_enter(tide_machine *m, tide_offload *o);
/* TRL: wait_and_del_remaining_references(), a callback of the engine. */
void tide_offload_end_backward(tide_machine *m, tide_offload *o);
void tide_offload_exit(tide_machine *m, tide_offload *o, tide_saved_tensors_hooks *before);

#endif
