# SPDX-License-Identifier: Apache-2.0
"""What replaces a model's own layers or saved tensors: Liger's kernels, cut cross-entropy, offloaded activations,
selective checkpointing.  The libraries are the published ones and run as they are."""

from __future__ import annotations

import contextlib
import functools
from typing import Any, Callable, Iterator

import torch

from .. import phantom
from ..case import Case
from ..schema import CaseError
from . import compiled, quantize
from .batches import Batch


def apply(case: Case, model: Any) -> None:
    """Once the model is on the device, before anything wraps it."""
    if case.kernels in ("liger", "liger_layers"):
        from transformers.integrations.liger import apply_liger_kernel

        apply_liger_kernel(
            model,
            {"fused_linear_cross_entropy": False, "cross_entropy": False} if case.kernels == "liger_layers" else {},
        )
    if case.float8:
        quantize.convert_to_float8(model, case.float8)


def liger_loss(model: Any) -> None:
    """Liger's fused linear cross entropy alone: the other kernels of the model's patch are left out."""
    import inspect
    from liger_kernel.transformers.monkey_patch import MODEL_TYPE_TO_APPLY_LIGER_FN
    from .losses import inner

    base = inner(model)
    patch = MODEL_TYPE_TO_APPLY_LIGER_FN[base.config.model_type]
    options = {
        name: name == "fused_linear_cross_entropy" for name in inspect.signature(patch).parameters if name != "model"
    }
    patch(model=base, **options)


# ---- the loss ----


def cut_cross_entropy(model: Any, batch: Batch) -> tuple[Any, Any]:
    """The model without its head, and the library's own loss of hidden states and head weights."""
    from cut_cross_entropy import linear_cross_entropy

    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    head = base.get_output_embeddings().weight
    out = base.model(**{k: v for k, v in batch.items() if k != "labels"})
    labels = batch["labels"]
    with valid_labels(labels[:, 1:].numel()):
        loss = linear_cross_entropy(out.last_hidden_state, head, labels, shift=True)
    return out, loss


def patch_cut_cross_entropy(model: Any, valid: Callable[[Any], int]) -> None:
    """The forward method that cce_patch() gives a model: hidden states and head weights to the library's own loss, a sum
    over the labels that the trainer has counted. (cut_cross_entropy/transformers/llama.py and utils.py, apply_lce(), of
    axolotl's fork; the package of 25.1.1 lacks them.) valid: how many labels of this shape count."""
    from cut_cross_entropy import linear_cross_entropy
    from transformers.modeling_outputs import CausalLMOutputWithPast
    from .losses import inner

    base = inner(model)
    plain = base.forward

    @functools.wraps(plain)
    def forward(*args: Any, labels: Any = None, num_items_in_batch: Any = None, **kwargs: Any) -> Any:
        if labels is None:
            return plain(*args, **kwargs)
        out = base.model(*args, **kwargs)
        count = {} if num_items_in_batch is None else {"reduction": "sum"}
        hidden, head = out[0], base.get_output_embeddings().weight
        if head.dtype == torch.bfloat16 and hidden.dtype == torch.float32:
            hidden = hidden.to(head.dtype)
        with valid_labels(valid(labels[:, 1:].shape)):
            loss = linear_cross_entropy(hidden, head, labels.to(hidden.device), shift=True, **count)
        if num_items_in_batch is not None:
            loss = loss / num_items_in_batch
        return CausalLMOutputWithPast(
            loss=loss, past_key_values=out.past_key_values, hidden_states=out.hidden_states, attentions=out.attentions
        )

    base.forward = forward


@contextlib.contextmanager
def valid_labels(count: int) -> Iterator[None]:
    """nonzero() finds as many."""
    find = torch.Tensor.nonzero

    def found(values: Any) -> Any:
        with phantom.counts(count):
            return find(values)

    torch.Tensor.nonzero = found
    try:
        yield
    finally:
        torch.Tensor.nonzero = find


# ---- saved tensors ----


def forward_context(case: Case) -> Any:
    if case.offload_activations is True:
        return torch.autograd.graph.save_on_cpu(pin_memory=True)
    return contextlib.nullcontext()


class OffloadedInput(torch.autograd.Function):
    """A block whose input waits on the host: the pattern of Unsloth's checkpointing.  Forward without a graph; backward
    brings the input back, runs the block again and differentiates it."""

    @staticmethod
    def forward(ctx: Any, run: Callable[..., Any], hidden: Any, *rest: Any) -> Any:
        away = hidden.to("cpu", non_blocking=True)
        with torch.no_grad():
            out = run(hidden, *rest)
        ctx.save_for_backward(away)
        ctx.run, ctx.rest = run, rest
        return out

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        (away,) = ctx.saved_tensors
        hidden = away.to("cuda", non_blocking=True).detach()
        hidden.requires_grad_(True)
        with torch.enable_grad():
            out = ctx.run(hidden, *ctx.rest)
        torch.autograd.backward(out if isinstance(out, torch.Tensor) else out[0], grad)
        return (None, hidden.grad) + (None,) * len(ctx.rest)


def offload_layers(model: Any) -> None:
    for block in compiled.blocks(model):
        plain = block.forward

        def forward(hidden: Any, *args: Any, plain: Any = plain, **kwargs: Any) -> Any:
            if not (torch.is_grad_enabled() and hidden.requires_grad):
                return plain(hidden, *args, **kwargs)
            return OffloadedInput.apply(functools.partial(with_keywords, plain, kwargs), hidden, *args)

        block.forward = forward


def with_keywords(run: Callable[..., Any], keywords: dict[str, Any], *args: Any) -> Any:
    return run(*args, **keywords)


def selective_contexts(kind: str) -> Callable[[], Any]:
    """attention: what TRL's selective checkpointing keeps; matmuls: every second matrix product as well."""
    from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

    aten = torch.ops.aten
    attention = {
        aten._scaled_dot_product_flash_attention.default,
        aten._scaled_dot_product_efficient_attention.default,
        aten._scaled_dot_product_cudnn_attention.default,
    }
    products = {aten.mm.default, aten.addmm.default, aten.bmm.default}

    def contexts() -> Any:
        seen = {"forward": 0, "again": 0}

        def policy(ctx: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
            if op in attention:
                return CheckpointPolicy.MUST_SAVE
            if kind == "matmuls" and op in products:
                at = "again" if ctx.is_recompute else "forward"
                seen[at] += 1
                if seen[at] % 2:
                    return CheckpointPolicy.MUST_SAVE
            return CheckpointPolicy.PREFER_RECOMPUTE

        return create_selective_checkpoint_contexts(policy)

    if kind not in ("attention", "matmuls"):
        raise CaseError(f"no selective checkpointing of {kind}")
    return contexts
