# SPDX-License-Identifier: Apache-2.0
"""What cases import, before any of them runs: a process that is forked afterwards starts at once.

Nothing here may touch the device.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import logging
import os
import sys
import warnings
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Iterable, Sequence

from .. import catalogue, phantom
from ..case import Case
from ..environments import TITAN
from ..plans import Megatron, Native
from ..schema import CaseError
from .quantize import TORCHAO as TORCHAO_WEIGHTS


def import_for(cases: Sequence[Case], folders: list[Path]) -> None:
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # is_available() must not touch the device either
    import torch

    apart = os.environ.get("PYTHONPATH")
    if apart:  # of torch's imports alone: torchao, which lies there too, starts the device
        import torch.distributed.fsdp

        import_titan(cases)
        sys.path.remove(apart)
    torch.set_num_threads(1)
    tell_versions()
    capability = torch.cuda.get_device_capability
    torch.cuda.get_device_capability = lambda device=None: (9, 0)  # bitsandbytes asks the device when imported
    import_megatron(cases)  # first: decides whether Transformer Engine is there
    if not all(is_megatron(c) for c in cases):
        for optional in ("bitsandbytes", "peft"):  # a node with a GPU may lack them: their cases fail alone
            with contextlib.suppress(ImportError):
                importlib.import_module(optional)
    torch.cuda.get_device_capability = capability
    import transformers
    import transformers.masking_utils
    from . import run  # noqa: F401

    if any(c.parallel for c in cases):
        from .parallel import rank  # noqa: F401
    if any(needs_deepspeed(c) for c in cases):
        import deepspeed  # noqa: F401
    if any(c.compile for c in cases):
        from . import compiled

        compiled.import_libraries()
    if any(c.trainer for c in cases):
        from . import trainers

        trainers.import_libraries([c.trainer.kind for c in cases if c.trainer])
    transformers.logging.set_verbosity_error()
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore")
    import_model_code(cases, folders)
    gc.collect()
    gc.freeze()  # children leave the libraries' objects, and their pages, alone
    assert not torch.cuda.is_initialized()


def tell_versions() -> None:
    """The phantom answers with the version of cuDNN that PyTorch was built with: it refuses another one."""
    import torch

    if phantom.is_here():
        import ctypes

        major, minor, patch = torch._C._cudnn.getCompileVersion()
        ctypes.CDLL(None).phantom_cudnn(major * 10000 + minor * 100 + patch)


def is_megatron(case: Case) -> bool:
    return isinstance(case.parallel, Megatron)


def import_megatron(cases: Iterable[Case]) -> None:
    """Only where all cases agree on the options that are decided when Megatron-Core is imported."""
    plans = [c.parallel for c in cases if isinstance(c.parallel, Megatron)]
    if plans:
        from .megatron import library

        if len({library.decided_at_import(p) for p in plans}) > 1:
            raise SystemExit(f"Megatron cases that differ in {', '.join(library.DECIDED)} need runs of their own")
        library.prepare(plans[0])


def is_titan(case: Case) -> bool:
    """Does it train torchtitan's own models?"""
    return isinstance(case.parallel, Native) and case.parallel.models == "torchtitan"


def import_titan(cases: Iterable[Case]) -> None:
    if any(is_titan(c) for c in cases):
        from .torchtitan import trainer

        trainer.import_libraries()


def import_model_code(cases: Iterable[Case], folders: list[Path]) -> None:
    """The modules of the cases' models, so that no child spends a second on them."""
    from . import models

    for case in {c.model if c.config is None else c.id: c for c in cases}.values():
        try:
            config = catalogue.of_case(case, folders).config
        except CaseError:
            continue  # reported when its case runs
        if "_class_name" in config:
            import diffusers

            getattr(diffusers, config["_class_name"])
        elif "architecture" in config:
            import timm  # noqa: F401
        else:
            with contextlib.suppress(AttributeError):
                models.model_class(config)


def needs_deepspeed(case: Case) -> bool:
    return case.parallel is not None and case.parallel.kind.startswith("zero")


def use_apart() -> None:
    """Packages that only the process of a case that needs them looks into: the folder APART_PATH."""
    at = os.environ.get("APART_PATH")
    if at and at not in sys.path:
        sys.path.append(at)


def versions(case: Case) -> dict[str, str]:
    """Of the packages that a case uses."""
    names = ["torch", "transformers", "peft", "bitsandbytes", "timm", "diffusers"]
    names += ["deepspeed"] * needs_deepspeed(case) + ["megatron-core", "transformer-engine"] * is_megatron(case)
    names += ["trl", "accelerate"] * bool(case.trainer) + ["triton"] * bool(case.compile)
    uses_torchao = bool(case.float8) or case.quant in TORCHAO_WEIGHTS or case.optimizer.endswith("_ao")
    names += ["torchao"] * uses_torchao + ["cut-cross-entropy"] * (case.kernels == "cce")
    names += ["liger-kernel"] * ((case.kernels or "").startswith("liger") or case.loss == "liger")
    names += ["schedulefree"] * ("schedulefree" in case.optimizer)
    has_experts = isinstance(case.parallel, Native) and case.parallel.ep > 1 and not is_titan(case)
    if is_titan(case):  # its folder is no longer on the path
        names = ["torch"]
    names += ["torchtitan"] * has_experts
    if uses_torchao or has_experts:
        use_apart()
    found = {}
    for name in names:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found | {"torchtitan": TITAN.partition("-")[2]} if is_titan(case) else found
