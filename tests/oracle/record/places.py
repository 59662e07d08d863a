# SPDX-License-Identifier: Apache-2.0
"""Which code asked for memory, from the Python frames that PyTorch notes with an allocation."""

from __future__ import annotations

import re
from typing import Any, Mapping, Sequence

Frame = Mapping[str, Any]  # filename, line, name; the innermost comes first

# file:function of the libraries that communicate -> what they allocate there; the innermost frame that fits decides
PLACES = [
    (re.compile(place), category)
    for place, category in (
        (r"/torch/optim/", ""),
        (r"_fully_shard/_fsdp_param\.py:reset_sharded_param", "parameters"),
        (r"_fully_shard/_fsdp_param\.py:_get_grad_inner_tensor", "gradients"),
        (r"_fully_shard/_fsdp_param\.py:", "gathered"),
        (r"_fully_shard/_fsdp_collectives\.py:", "communication"),
        (r"fsdp/_init_utils\.py:_move_(module|states)_to_device$", "parameters"),
        (r"fsdp/_flat_param\.py:(flatten_tensors|_get_shard)$", "parameters"),
        (r"fsdp/_flat_param\.py:", "gathered"),
        (r"fsdp/_runtime_utils\.py:\w*reduce", "communication"),
        (r"nn/parallel/distributed\.py:(_ddp_init_helper|_pre_forward)$", "communication"),
        (r"torch/distributed/utils\.py:_sync_params_and_buffers$", "communication"),
        (r"ddp_comm_hooks/", "communication"),
        (r"zero/partition(_parameters|ed_param_coordinator)\.py:", "gathered"),
        (r"zero/stage\w*\.py:\w*(reduce|bucket|average|ipg|avg)", "communication"),
        (r"zero/stage3\.py:_setup_for_real_optimizer$", "communication"),
        (r"zero/stage3\.py:_prepare_fp32_grad_for_sub_group$", "gradients"),
        (r"zero/stage_1_and_2\.py:(step|get_flat_partition|flatten_dense_tensors_aligned)$", "gradients"),
        (r"deepspeed/runtime/zero/", ""),
        (r"fp16/unfused_optimizer\.py:step$", "gradients"),
        (r"deepspeed/runtime/utils\.py:all_gather", "communication"),
        (r"deepspeed/runtime/engine\.py:\w*bucket", "communication"),
        (r"pipelining/stage\.py:\w*recv", "communication"),
        (r"p2p_communication\.py:create_tensor_recv", "communication"),
        (r"megatron/core/optimizer/optimizer\.py:_copy_model_grads_to_main_grads$", "gradients"),
        (r"transformer_engine/pytorch/module/base\.py:get_dummy_wgrad$", "gradients"),
    )
]

# Parts of file names that are not where a model's own lines are.
LIBRARY = (
    "/torch/",
    "/torchinductor",
    "<string>",
    "/contextlib.py",
    "/functools.py",
    "/multiprocessing/",
    "threading.py",
    "/utils/generic.py",
    "/utils/output_capturing.py",
    "/modeling_layers.py",
)


def category_of(frames: Sequence[Frame]) -> str:
    """What the code that shards a model allocates for itself: gathered, communication, gradients, or ""."""
    for f in frames:
        at = f"{f['filename']}:{f['name']}"
        if f["name"] in ("<listcomp>", "<genexpr>"):
            continue  # of the function that has it
        for pattern, category in PLACES:
            if pattern.search(at):
                return category
    return ""


def place(frame: Frame) -> str:
    if "/torchinductor" in frame["filename"]:
        return "compiled"  # the file's name is a hash
    return f"{frame['filename'].rsplit('/', 1)[-1]}:{frame['line']} {frame['name']}"


def origin(frames: Sequence[Frame], ours: str) -> str:
    """The innermost frame outside of PyTorch and of the folder `ours`, and the innermost of all where that differs."""
    frames = [f for f in frames if f["filename"].endswith(".py")]
    if not frames:
        return "backward"  # the autograd engine's thread has no Python frames
    inner = frames[0]
    for f in frames:
        if not any(part in f["filename"] for part in LIBRARY):
            if f["filename"].startswith(ours):
                break
            return place(f) if f is inner else f"{place(f)} > {place(inner)}"
    return place(inner)
