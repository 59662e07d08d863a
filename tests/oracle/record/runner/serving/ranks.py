# SPDX-License-Identifier: Apache-2.0
"""One process stands for one rank of a world whose other members are imagined."""

from __future__ import annotations

import os
from typing import Any

import torch

from ... import phantom


def be_one_of_many(rank: int) -> None:
    import torch.distributed as dist
    import torch.testing._internal.distributed.fake_pg  # noqa: F401  registers the backend "fake"

    os.environ.update(
        VLLM_ALLREDUCE_USE_FLASHINFER="0",
        VLLM_ALLREDUCE_USE_SYMM_MEM="0",
        VLLM_NCCL_SO_PATH=os.environ.get("LD_PRELOAD", "").split(":")[0],
    )  # the phantom answers for NCCL too
    from vllm.distributed import parallel_state
    from vllm.distributed.device_communicators import custom_all_reduce, shm_broadcast
    from vllm.v1.executor.uniproc_executor import UniProcExecutor

    phantom.hook()
    import tidemark_ranks

    begin, make = dist.init_process_group, dist.new_group

    def init(backend: Any = None, init_method: Any = None, world_size: int = -1, rank: int = -1, **rest: Any) -> None:
        os.environ["WORLD_SIZE"] = str(world_size)  # what the store's barrier counts to
        begin("cpu:fake,cuda:nccl", store=tidemark_ranks.lone_store(torch), world_size=world_size, rank=rank)

    def group(ranks: Any = None, backend: Any = None, **rest: Any) -> Any:
        rest.pop("timeout", None)
        return make(ranks, backend="fake" if backend in ("gloo", "nccl") else backend, **rest)

    def all_here(pg: Any, source_rank: int = 0) -> list[bool]:
        return [True] * dist.get_world_size(pg)

    dist.init_process_group, dist.new_group = init, group
    shm_broadcast.MessageQueue.create_from_process_group = staticmethod(lambda *a, **k: None)
    shm_broadcast.MessageQueue.create_from_process_group_single_reader = staticmethod(lambda *a, **k: (None, []))
    parallel_state.in_the_same_node_as = custom_all_reduce.in_the_same_node_as = all_here
    custom_all_reduce.gpu_p2p_access_check = lambda *a: True
    UniProcExecutor._distributed_args = lambda self: ("env://", rank, 0)
