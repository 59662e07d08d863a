# SPDX-License-Identifier: Apache-2.0
"""On phantom GPUs: one rank of a job whose other ranks are imagined, and what collectives cannot compute."""
from __future__ import annotations

import os
import sys
from typing import Any, Callable

NCCL_ID = b"\7" * 128                           # what nccl.c of the phantom gives


def stand_in(torch: Any, split_ranks: Callable[[int], Any]) -> None:
    """split_ranks: tells the phantom how many ranks the next split communicator has."""
    if not torch.distributed.is_available():
        return
    import torch.nn.parallel.distributed as ddp
    # The list form of all_gather unpacks with a kernel: shapes of other ranks cannot be compared.
    ddp._verify_param_shape_across_processes = lambda *args, **kwargs: True
    tell_split_sizes(torch, split_ranks)
    if os.environ.get("TIDEMARK_ALONE"):
        be_alone(torch)


def tell_split_sizes(torch: Any, split_ranks: Callable[[int], Any]) -> None:
    """A split communicator has as many ranks as its group: NCCL counts them, the phantom is told."""
    import torch.distributed.distributed_c10d as c10d
    meshes = sys.modules.get("torch.distributed.device_mesh")

    def told(call: Any, size: Any) -> Any:
        def inner(*args: Any, **kwargs: Any) -> Any:
            split_ranks(size(args, kwargs))
            return call(*args, **kwargs)
        return inner

    if hasattr(c10d, "split_group"):
        split = told(c10d.split_group, lambda a, k: len((k.get("split_ranks") or a[1])[0]))
        c10d.split_group = torch.distributed.split_group = split
        if meshes is not None and hasattr(meshes, "split_group"):
            meshes.split_group = split
    c10d._new_process_group_helper = told(c10d._new_process_group_helper,
                                          lambda a, k: a[0] if a else k["group_size"])


def lone_store(torch: Any) -> Any:
    """A store of a rendezvous that answers for the others: what they would have written is there, what they wait
    for has come."""
    class Store(torch.distributed.Store):
        def __init__(self) -> None:
            super().__init__()
            self.entries: dict[str, bytes] = {}

        def set(self, key: str, value: Any) -> None:
            self.entries[key] = value if isinstance(value, bytes) else str(value).encode()

        def get(self, key: str) -> bytes:
            return self.entries.get(key, NCCL_ID)                 # a NCCL id, if anything

        def add(self, key: str, amount: int) -> int:
            if "barrier" in key:
                return int(os.environ["WORLD_SIZE"])
            value = int(self.entries.get(key, b"0")) + amount
            self.entries[key] = str(value).encode()
            return value

        def compare_set(self, key: str, expected: Any, desired: Any) -> bytes:
            self.entries.setdefault(key, desired if isinstance(desired, bytes) else str(desired).encode())
            return self.entries[key]

        def check(self, keys: list[str]) -> bool:
            return all(key in self.entries for key in keys)

        def wait(self, keys: list[str], timeout: Any = None) -> None:
            return

        def multi_get(self, keys: list[str]) -> list[bytes]:
            return [self.get(key) for key in keys]

        def multi_set(self, keys: list[str], values: list[Any]) -> None:
            for key, value in zip(keys, values):
                self.set(key, value)

        def append(self, key: str, value: Any) -> None:
            self.entries[key] = self.entries.get(key, b"") + (value if isinstance(value, bytes) else value.encode())

        def delete_key(self, key: str) -> bool:
            return self.entries.pop(key, None) is not None

        def num_keys(self) -> int:
            return len(self.entries)

        def has_extended_api(self) -> bool:
            return True

        def clone(self) -> "Store":
            return self

    return Store()


def be_alone(torch: Any) -> None:
    """One rank of a world whose others are imagined: every rendezvous finds the store that answers for them."""
    import torch.distributed as dist
    import torch.distributed.distributed_c10d as c10d
    rendezvous = sys.modules["torch.distributed.rendezvous"]      # the package has a function of that name
    store = lone_store(torch)

    def meet(url: str, *args: Any, **kwargs: Any) -> Any:
        yield store, int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])

    for scheme in ("env", "tcp", "file"):
        rendezvous._rendezvous_handlers[scheme] = meet
    init = c10d.init_process_group

    def init_process_group(backend: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Without its CPU half, which would look for the other ranks' sockets."""
        return init("nccl" if backend in (None, "cpu:gloo,cuda:nccl") else backend, *args, **kwargs)

    c10d.init_process_group = dist.init_process_group = init_process_group
