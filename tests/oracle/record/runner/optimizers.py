# SPDX-License-Identifier: Apache-2.0
"""The optimizers that a case can name."""

from __future__ import annotations

from typing import Any, Callable

import torch

from ..case import Case
from ..schema import CaseError

Groups = list[dict[str, Any]]
LR = 1e-4
O = torch.optim

TORCH: dict[str, Callable[[Any], Any]] = {
    "adamw": lambda p: O.AdamW(p, lr=LR),  # foreach on a CUDA device
    "adamw_fused": lambda p: O.AdamW(p, lr=LR, fused=True),
    "adamw_single": lambda p: O.AdamW(p, lr=LR, foreach=False),
    "adamw_amsgrad": lambda p: O.AdamW(p, lr=LR, amsgrad=True),
    "adamw_amsgrad_fused": lambda p: O.AdamW(p, lr=LR, amsgrad=True, fused=True),
    "adamw_amsgrad_single": lambda p: O.AdamW(p, lr=LR, amsgrad=True, foreach=False),
    "adam": lambda p: O.Adam(p, lr=LR, weight_decay=0.01),
    "adam_fused": lambda p: O.Adam(p, lr=LR, weight_decay=0.01, fused=True),
    "adam_single": lambda p: O.Adam(p, lr=LR, weight_decay=0.01, foreach=False),
    "nadam": lambda p: O.NAdam(p, lr=LR),
    "nadam_single": lambda p: O.NAdam(p, lr=LR, foreach=False),
    "radam": lambda p: O.RAdam(p, lr=LR),
    "radam_single": lambda p: O.RAdam(p, lr=LR, foreach=False),
    "adamax": lambda p: O.Adamax(p, lr=LR),
    "adamax_single": lambda p: O.Adamax(p, lr=LR, foreach=False),
    "sgd": lambda p: O.SGD(p, lr=LR),
    "sgd_fused": lambda p: O.SGD(p, lr=LR, momentum=0.9, fused=True),
    "sgd_momentum": lambda p: O.SGD(p, lr=LR, momentum=0.9, weight_decay=1e-4),
    "sgd_nesterov": lambda p: O.SGD(p, lr=LR, momentum=0.9, nesterov=True),
    "sgd_single": lambda p: O.SGD(p, lr=LR, momentum=0.9, foreach=False),
    "rmsprop": lambda p: O.RMSprop(p, lr=LR),
    "rmsprop_single": lambda p: O.RMSprop(p, lr=LR, foreach=False),
    "rmsprop_momentum": lambda p: O.RMSprop(p, lr=LR, momentum=0.9),
    "rmsprop_centered": lambda p: O.RMSprop(p, lr=LR, momentum=0.9, centered=True),
    "adagrad": lambda p: O.Adagrad(p, lr=LR),
    "adagrad_fused": lambda p: O.Adagrad(p, lr=LR, fused=True),
    "adagrad_single": lambda p: O.Adagrad(p, lr=LR, foreach=False),
    "adadelta": lambda p: O.Adadelta(p, lr=LR),
    "adadelta_single": lambda p: O.Adadelta(p, lr=LR, foreach=False),
    "adafactor": lambda p: O.Adafactor(p, lr=LR),
}
BITSANDBYTES = {
    "adamw8bit": "AdamW8bit",
    "adamw32bit": "AdamW32bit",
    "paged_adamw8bit": "PagedAdamW8bit",
    "paged_adamw": "PagedAdamW32bit",
    "lion8bit": "Lion8bit",
    "lion": "Lion32bit",
    "paged_lion": "PagedLion32bit",
    "paged_lion8bit": "PagedLion8bit",
    "sgd8bit": "SGD8bit",
    "rmsprop8bit": "RMSprop8bit",
    "rmsprop32bit": "RMSprop32bit",
    "adagrad8bit": "Adagrad8bit",
    "ademamix": "AdEMAMix32bit",
    "ademamix8bit": "AdEMAMix8bit",
    "paged_ademamix": "PagedAdEMAMix32bit",
    "paged_ademamix8bit": "PagedAdEMAMix8bit",
}
TORCHAO = {"adamw8bit_ao": "AdamW8bit", "adamw4bit_ao": "AdamW4bit", "adamwfp8_ao": "AdamWFp8"}
# Of the package schedulefree, whose optimizers have a training and an evaluation mode.
SCHEDULE_FREE = {
    "adamw_schedulefree": ("AdamWScheduleFree", True),
    "adamw_schedulefree_single": ("AdamWScheduleFree", False),
    "sgd_schedulefree": ("SGDScheduleFree", True),
}


def make(case: Case, model: Any) -> Any | None:
    """The case's optimizer over the parameters that train; None for "none"."""
    name, named = case.optimizer, [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    if name == "none" or not named:
        return None
    if name == "muon":
        return Muon([p for _, p in named])
    trained = trainer_groups(named) if case.param_groups == "trainer" else [p for _, p in named]
    if name in TORCH:
        return TORCH[name](trained)
    if name == "adafactor_hf":
        from transformers.optimization import Adafactor

        return Adafactor(trained, scale_parameter=True, relative_step=True, warmup_init=True, lr=None)
    if name in TORCHAO:
        from .quantize import use_torchao

        use_torchao()
        import torchao.optim

        return getattr(torchao.optim, TORCHAO[name])(trained, lr=LR)
    if name in BITSANDBYTES:
        import bitsandbytes as bnb

        return getattr(bnb.optim, BITSANDBYTES[name])(
            trained, lr=LR, **({"momentum": 0.9} if name.startswith("sgd") else {})
        )
    if name in SCHEDULE_FREE:
        return schedule_free(*SCHEDULE_FREE[name], trained)
    raise CaseError(f"no optimizer {name}")


def trainer_groups(named: list[tuple[str, Any]]) -> Groups:
    """Two groups: what weight decay applies to, and norms and biases."""
    plain = {n for n, _ in named if n.endswith("bias") or "norm" in n}
    groups = [
        {"params": [p for n, p in named if n not in plain], "weight_decay": 0.01},
        {"params": [p for n, p in named if n in plain], "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def schedule_free(name: str, foreach: bool, trained: Any) -> Any:
    import schedulefree

    made = getattr(schedulefree, name)(trained, lr=LR, foreach=foreach)
    made.train()
    return made


class Muon:
    """Muon for matrices, AdamW for the rest, as one optimizer."""

    def __init__(self, parameters: list[Any]) -> None:
        matrices = [p for p in parameters if p.dim() == 2]
        rest = [p for p in parameters if p.dim() != 2]
        self.parts = [O.Muon(matrices, lr=LR)] if matrices else []
        self.parts += [O.AdamW(rest, lr=LR)] if rest else []

    @property
    def state(self) -> dict[Any, Any]:
        return {p: s for part in self.parts for p, s in part.state.items()}

    @property
    def param_groups(self) -> Groups:
        return [group for part in self.parts for group in part.param_groups]

    def step(self) -> None:
        for part in self.parts:
            part.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        for part in self.parts:
            part.zero_grad(set_to_none=set_to_none)
