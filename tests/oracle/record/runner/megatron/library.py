# SPDX-License-Identifier: Apache-2.0
"""Megatron-Core as it is imported: which of its optional parts there are, and what stands in for them.

Without Transformer Engine only "impl": "local" runs, as in the library: no context parallelism, no grouped experts, and
sequence parallelism only with Apex norms.
"""

from __future__ import annotations

import contextlib
import os
import sys
import types
from typing import Any, Iterator
from unittest import mock

import torch

from ...plans import Megatron

DECIDED = ("impl", "jit", "wgrad_fusion", "attention_backend", "query_key_layer_scaling")


def decided_at_import(plan: Megatron) -> tuple[Any, ...]:
    return tuple(getattr(plan, name) for name in DECIDED)


def prepare(plan: Megatron) -> None:
    """Before the first import of megatron."""
    os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"
    os.environ["NVTE_TORCH_COMPILE"] = str(int(plan.jit))
    os.environ["NVTE_APPLY_QK_LAYER_SCALING"] = str(int(plan.query_key_layer_scaling))
    if plan.impl == "local":
        sys.modules["transformer_engine"] = None  # type: ignore[assignment]  # as if it were not installed
    if plan.wgrad_fusion:
        accumulating_wgrad()
    if plan.impl == "te" and plan.attention_backend == "flash":
        from . import flash_attention

        flash_attention.install()
    import torch._dynamo.device_interface  # keeps the functions that it finds

    with untouched_device(), contextlib.nullcontext() if plan.jit else mock.patch.object(torch, "compile", as_it_is):
        import megatron.core.models.gpt.gpt_model  # noqa: F401
        import megatron.core.optimizer  # noqa: F401
        import megatron.core.pipeline_parallel  # noqa: F401
    if plan.impl == "te":
        from transformer_engine.pytorch import utils

        utils._get_device_compute_capability.cache_clear()
    first_configuration()


def as_it_is(function: Any = None, **options: Any) -> Any:
    """torch.compile that leaves a function alone."""
    return function if function is not None else lambda f: f


def first_configuration() -> None:
    """Kernels of one function cannot be timed against one another here: the first is taken, without the buffers that
    timing would need."""
    from torch._inductor.runtime import hints, triton_heuristics

    hints.DeviceProperties.create.cache_clear()
    torch._dynamo.device_interface.caching_worker_device_properties.clear()

    def choose(self: Any, *args: Any, **kwargs: Any) -> None:
        self.launchers = self.launchers[:1]

    triton_heuristics.CachingAutotuner.autotune_to_one_config = choose
    from triton.runtime.autotuner import Autotuner

    Autotuner._bench = lambda self, *args, **kwargs: [1.0, 1.0, 1.0]


@contextlib.contextmanager
def untouched_device() -> Iterator[None]:
    """Libraries that ask about the device as they are imported get an answer without a context on it."""
    device = types.SimpleNamespace(major=9, minor=0, multi_processor_count=132, total_memory=80 << 30, name="phantom")
    with (
        mock.patch.object(torch.cuda, "current_device", lambda: 0),
        mock.patch.object(torch.cuda, "get_device_properties", lambda index=None: device),
        mock.patch.object(torch.cuda, "get_device_capability", lambda index=None: (9, 0)),
    ):
        yield


def accumulating_wgrad() -> None:
    """Apex's kernel that adds a weight gradient to main_grad: cuBLAS into memory that is there already."""

    def accumulate(x: Any, dy: Any, main_grad: Any) -> None:
        return None

    module: Any = types.ModuleType("fused_weight_gradient_mlp_cuda")
    module.wgrad_gemm_accum_fp32 = module.wgrad_gemm_accum_fp16 = accumulate
    sys.modules.setdefault("fused_weight_gradient_mlp_cuda", module)


def overwriting_loss() -> None:
    """Transformer Engine's fused loss as its releases before the copy: the gradient takes the place of the logits."""
    from megatron.core.models.common.language_module import language_module
    from transformer_engine.pytorch.cross_entropy import parallel_cross_entropy

    def fused(logits: Any, labels: Any, group: Any, *ignored: Any) -> Any:
        return parallel_cross_entropy(logits, labels, 0.0, False, group, overwrite_input=True)

    language_module.te_parallel_cross_entropy = fused
