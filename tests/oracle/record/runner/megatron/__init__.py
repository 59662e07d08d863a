# SPDX-License-Identifier: Apache-2.0
"""One rank of a Megatron-Core job, played alone: tensor, sequence, pipeline, context, expert and data parallelism.

The model, its gradient buffers, the optimizer and the pipeline schedule are Megatron-Core's own; what its training
script adds around them (batches, loss, order of the calls of a step) is done here in the same order.
"""
