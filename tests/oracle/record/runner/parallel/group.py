# SPDX-License-Identifier: Apache-2.0
"""The process group of a world of which this process is one rank."""

from __future__ import annotations

import ctypes
import os
from typing import Any

import torch
import torch.distributed as dist

from ... import phantom
from ...plans import Plan


def setup(plan: Plan) -> None:
    os.environ.update(
        RANK=str(plan.rank),
        WORLD_SIZE=str(plan.world),
        LOCAL_RANK="0",
        MASTER_ADDR="localhost",
        MASTER_PORT="29500",
        LOCAL_WORLD_SIZE=str(plan.local_world or plan.world),
    )
    phantom.hook()
    import tidemark_ranks

    torch.cuda.set_device(0)
    dist.init_process_group("nccl", store=tidemark_ranks.lone_store(torch), rank=plan.rank, world_size=plan.world)
    tidemark_ranks.stand_in(torch, ctypes.CDLL(None).phantom_split_ranks)
    dist.all_gather_object = all_agree


def all_agree(objects: list[Any], mine: Any, group: Any = None) -> None:
    """All ranks have the same to say (pickled lengths cannot be read back from the device)."""
    objects[:] = [mine] * len(objects)


def mesh_of(names: tuple[str, ...], sizes: tuple[int, ...]) -> Any:
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh("cuda", sizes, mesh_dim_names=names)
