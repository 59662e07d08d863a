# SPDX-License-Identifier: Apache-2.0
"""torch.compile as a case asks for it, and what the compiled graphs keep for their backward passes.

Compilation is real: Dynamo, AOTAutograd's partitioner, Inductor and Triton run as on a GPU; only the finished kernels
compute nothing.  Kernels that are chosen by timing (reductions with several configurations, max-autotune) are chosen
blindly here: all take no time.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

import torch
from torch import nn

from ..case import Case

RECOMPILATIONS = 64


def import_libraries() -> None:
    """Before the fork.  Compile workers would each import everything again: none are used."""
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    import torch._dynamo
    import torch._functorch.aot_autograd
    import torch._inductor.compile_fx

    torch._inductor.config.compile_threads = 1


def blocks(model: Any) -> list[Any]:
    """The repeated blocks: what the model's class calls not to be split, or else the members of its longest list."""
    names = {n for m in model.modules() for n in (getattr(m, "_no_split_modules", None) or ())}
    found = [m for m in model.modules() if type(m).__name__ in names and "Embedding" not in type(m).__name__]
    if found:
        return found
    lists = [list(m) for m in model.modules() if isinstance(m, nn.ModuleList)]
    return max(lists, key=len) if lists else [model]


def apply(case: Case, model: Any) -> None:
    plan = case.compile
    if plan is None or plan.what == "none":
        return
    torch._dynamo.config.cache_size_limit = RECOMPILATIONS
    torch._inductor.config.compile_threads = 1
    if plan.budget is not None:
        torch._functorch.config.activation_memory_budget = plan.budget
    how: dict[str, Any] = {"dynamic": plan.dynamic, "fullgraph": plan.fullgraph}
    how |= {"mode": plan.mode} if plan.mode else {}
    how |= {"options": plan.options} if plan.options else {}
    for part in blocks(model) if plan.what == "layers" else [model]:
        part.compile(**how)


def apply_to_optimizer(case: Case, optimizer: Any) -> None:
    if case.compile and case.compile.optimizer and optimizer is not None:
        optimizer.step = torch.compile(optimizer.step, fullgraph=False)


def kept(loss: Any, model: Any) -> list[dict[str, Any]]:
    """What the compiled graphs below `loss` saved, without parameters and buffers: [dtype, shape, how many] by kind of
    graph, in graph order; graphs that keep the same are one entry, with their number."""
    owned = {p.untyped_storage().data_ptr() for p in model.parameters()}
    owned |= {b.untyped_storage().data_ptr() for b in model.buffers()}
    graphs: Counter[tuple[Any, ...]] = Counter()
    todo, seen = [loss.grad_fn], set()
    while todo:
        node = todo.pop()
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        todo += [n for n, _ in node.next_functions]
        if "CompiledFunction" not in type(node).__name__:
            continue
        found: Counter[tuple[str, tuple[int, ...]]] = Counter()
        for t in node.saved_tensors:
            if t is not None and t.is_cuda and t.untyped_storage().data_ptr() not in owned:
                found[str(t.dtype).removeprefix("torch."), tuple(t.shape)] += 1
        graphs[tuple(sorted(found.items()))] += 1
    return [
        {"graphs": n, "kept": [[dtype, list(shape), count] for (dtype, shape), count in found]}
        for found, n in graphs.items()
    ]
