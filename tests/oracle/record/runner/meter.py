# SPDX-License-Identifier: Apache-2.0
"""Phase by phase peaks of a run, and who owns which address at which point of the allocator's event stream."""

from __future__ import annotations

from typing import Any, Iterable

import torch

Step = dict[str, Any]


class Meter:
    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.marks: dict[int, list[tuple[str, set[int]]]] = {}
        self.forward: list[tuple[int, int]] = []  # (start, end) positions of forward passes
        self.since = 0  # position at which the phase began
        self.steps_from: int | None = None  # position at which the first step began
        self.allocated_peak = self.reserved_peak = 0

    def position(self) -> int:
        """Allocations and frees so far."""
        stats = torch.cuda.memory_stats()
        return int(stats.get("allocation.all.allocated", 0) + stats.get("allocation.all.freed", 0))

    def begin_step(self) -> None:
        self.phase(None)
        if self.steps_from is None:
            self.steps_from = self.since
        self.steps.append({"before": torch.cuda.memory_allocated()})

    def begin_forward(self) -> None:
        self.since = self.position()

    def end_forward(self) -> None:
        self.forward.append((self.since, self.position()))

    def phase(self, name: str | None, after: str | None = None) -> int:
        """Closes a phase: its peak goes to the step's peak_<name>, what is left to <after>. Returns the peak,
        bytes."""
        peak: int = torch.cuda.max_memory_allocated()
        self.allocated_peak = max(self.allocated_peak, peak)
        self.reserved_peak = max(self.reserved_peak, torch.cuda.max_memory_reserved())
        if name:
            step = self.steps[-1]
            step[f"peak_{name}"] = max(step.get(f"peak_{name}", 0), peak)
            if after:
                step[after] = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        self.since = self.position()
        return peak

    def end_step(self) -> None:
        step = self.steps[-1]
        step["after_step"] = torch.cuda.memory_allocated()
        self.note_peaks()

    def note_peaks(self) -> None:
        """Of the last step as far as it has come."""
        step = self.steps[-1]
        step["allocated_peak"] = max(v for k, v in step.items() if k.startswith("peak_") and v is not None)
        step["reserved_peak"] = self.reserved_peak
        step["reserved"] = torch.cuda.memory_reserved()

    def mark(self, category: str, tensors: Iterable[Any]) -> None:
        """The storages of these tensors belong to a category from here on."""
        local = (getattr(t, "_local_tensor", t) for t in tensors)  # this rank's part of a DTensor
        addresses = {
            t.untyped_storage().data_ptr()
            for t in local
            if isinstance(t, torch.Tensor) and t.is_cuda and not is_wrapper(t)
        }
        self.marks.setdefault(self.position(), []).append((category, addresses))

    def watch(self, leaves: Iterable[Any], of_views: str = "gradients") -> None:
        """Marks gradients as soon as they are there, for frameworks that free them in the same phase; of_views: what a
        buffer is that they lie in."""

        def mark(p: Any) -> None:
            if p.grad is None:  # of a frozen way back: the hook runs all the same
                return
            is_view = p.grad.untyped_storage().nbytes() > p.grad.nbytes
            self.mark(of_views if is_view else "gradients", [p.grad])

        for p in leaves:
            if p.requires_grad and p.is_leaf and not hasattr(p, "_is_watched"):
                p._is_watched = True
                p.register_post_accumulate_grad_hook(mark)

    def owners(self, model: Any, optimizer: Any) -> None:
        """Marks parameters, gradients, buffers and the optimizer's state."""
        parameters = list(model.parameters())
        owners = [*parameters, *parametrizations(model)]
        self.mark("parameters", [t for p in owners for t in tensors_of_parameter(p)])
        self.mark("gradients", [p.grad for p in parameters if p.grad is not None])
        self.mark("buffers", [b for name, b in model.named_buffers() if not name.endswith(".row_stats")])
        self.mark("optimizer", state_tensors(optimizer))


def is_wrapper(t: Any) -> bool:
    """A tensor subclass without storage of its own."""
    return hasattr(t, "__tensor_flatten__") and type(t) not in (torch.Tensor, torch.nn.Parameter)


def parametrizations(model: Any) -> list[Any]:
    """Modules that dequantise a parameter of another one."""
    lists = [m for m in model.modules() if isinstance(m, torch.nn.utils.parametrize.ParametrizationList)]
    return [m for of in lists for m in of]


def tensors_of_parameter(p: Any) -> list[Any]:
    """A quantised parameter owns its statistics too."""
    if hasattr(p, "__tensor_flatten__") and not hasattr(p, "quant_state") and type(p.data) is not torch.Tensor:
        return tensors_in(p.data)  # torchao's quantised weights
    found = [p.data] if hasattr(p, "data") else []
    state = getattr(p, "quant_state", None)  # bitsandbytes
    for holder in (state, getattr(state, "state2", None)):
        found += [v for v in vars(holder).values() if isinstance(v, torch.Tensor)] if holder is not None else []
    return found + [t for t in (getattr(p, n, None) for n in ("SCB", "CB", "row_stats", "ds_tensor")) if isinstance(t, torch.Tensor)]


def tensors_in(value: Any) -> list[Any]:
    """Every tensor in nested dictionaries, lists and tuples."""
    if isinstance(value, torch.Tensor) and hasattr(value, "__tensor_flatten__") and type(value) is not torch.Tensor:
        return [t for n in value.__tensor_flatten__()[0] for t in tensors_in(getattr(value, n))]
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [t for v in value for t in tensors_in(v)] if isinstance(value, (list, tuple)) else []


def state_tensors(optimizer: Any) -> list[Any]:
    """Every tensor in an optimizer's state; None has none."""
    return tensors_in([dict(state) for state in optimizer.state.values()]) if optimizer is not None else []
