# SPDX-License-Identifier: Apache-2.0
"""The phantom GPU of this process: cuda-check/phantom of the product, preloaded, with its functions for tests.

Without it the process is on a real GPU: nothing is answered, and nothing is resized.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from pathlib import Path
from typing import Any, Iterator, Mapping

GIB = 1 << 30
MULTIPROCESSORS, THREADS = 132, 2048  # of an H100 SXM5
_answer = -1
_has_truth = False
_keep: list[Any] = []  # callbacks that the phantom calls


def environment(tools: Path, devices: int = 1) -> dict[str, str]:
    """What a process needs to run on the phantom of `tools` (the folder cuda-check beside the program)."""
    return {
        "TORCH_DISABLE_NATIVE_JIT": "1",  # torch/_native: kernels of Triton where its driver starts, which is not described
        "LD_PRELOAD": str(tools / "libcuda.so.1"),
        "LD_LIBRARY_PATH": joined(str(tools), os.environ.get("LD_LIBRARY_PATH")),
        "TRITON_LIBCUDA_PATH": str(tools),
        "TIDEMARK_PHANTOM_HOOK": str(tools / "hook"),
        "TIDEMARK_CARD": card(2000 * GIB, 90),
        "TIDEMARK_GPUS": str(devices),
        "TORCH_NCCL_ENABLE_MONITORING": "0",
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "0",
        "TORCH_NCCL_CUDA_EVENT_CACHE": "0",
    }


def joined(first: str, rest: str | None) -> str:
    return f"{first}:{rest}" if rest else first


def card(size: int, capability: int, context: int = 0, multiprocessors: int | None = None) -> str:
    """TIDEMARK_CARD: bytes, bytes of a context, capability times ten, multiprocessors, threads of each. A capability
    alone has an H100's multiprocessors and threads, as `capability=` of tidemark has."""
    threads = THREADS if multiprocessors is None or capability not in (86, 89, 120) else 1536
    return f"{size} {context} {capability} {multiprocessors or MULTIPROCESSORS} {threads}"


def is_here() -> bool:
    return hasattr(ctypes.CDLL(None), "phantom_be")


def start() -> None:
    """Before the first import of a CUDA library: from here on they get the functions that they lack."""
    if is_here():
        hook()
        import tidemark_phantom

        tidemark_phantom.start()


def hook() -> None:
    """Makes the modules of cuda-check/hook importable."""
    folder = os.environ["TIDEMARK_PHANTOM_HOOK"]
    if folder not in sys.path:
        sys.path.append(folder)


def become(
    size: int,
    capability: int,
    devices: int = 1,
    context: int = 0,
    multiprocessors: int | None = None,
    name: str | None = None,
) -> None:
    """Another card, in a process that has not used the first; sizes in bytes."""
    if is_here():
        be = ctypes.CDLL(None).phantom_be
        be.argtypes = [ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p]
        if be(card(size, capability, context, multiprocessors).encode(), devices, name.encode() if name else None):
            raise RuntimeError("the phantom refused its card")


@contextlib.contextmanager
def counts(count: int, has_truth: bool = False) -> Iterator[None]:
    """Inside, small reads from the device (the count behind nonzero) find `count`; has_truth: single bools as well."""
    global _answer, _has_truth
    before, _answer, _has_truth = (_answer, _has_truth), count, has_truth
    if is_here() and not _keep:
        listen()
    try:
        yield
    finally:
        _answer, _has_truth = before


def counts_in_backward(out: Any, count: int) -> None:
    """While the node that made the tensor `out` runs backward, small reads from the device find `count`."""
    answer = contextlib.ExitStack()

    def begin(grads: Any) -> None:
        answer.enter_context(counts(count))

    def end(inputs: Any, grads: Any) -> None:
        answer.close()

    out.grad_fn.register_prehook(begin)
    out.grad_fn.register_hook(end)


def listen() -> None:
    def read(size: int) -> int:
        return _answer if size in (4, 8) or (size == 1 and _has_truth) else -1

    reader = ctypes.CFUNCTYPE(ctypes.c_longlong, ctypes.c_size_t)(read)
    _keep.append(reader)
    ctypes.CDLL(None).phantom_on_read(reader)


def hold_events(held: bool) -> None:
    """Until they are let go, no CUDA event is complete: what other streams use is not free."""
    ctypes.CDLL(None).phantom_hold_events(int(held))


def says(variables: Mapping[str, str]) -> dict[str, str]:
    """The environment of a child on the phantom."""
    return {**os.environ, **variables}
