# SPDX-License-Identifier: Apache-2.0
"""What tidemark learns from inside a Python process that uses PyTorch: memory by phase and step, what lives at the
peak, and the allocator's history.

Nothing is imported that the program does not import itself; work begins when `torch` is there.  Everything is written
to files in the run's folder, which the tidemark process reads:

    PID.json        what was seen, rewritten after every step
    PID.DEVICE      the allocator's events, one a line, in the letters of the recording format (at the end)

With TIDEMARK_CARD set the process runs on phantom GPUs (tidemark_phantom.py), else on real ones; TIDEMARK_HISTORY asks
for the allocator's history, which costs some microseconds an allocation.
"""
from __future__ import annotations

import atexit
import functools
import importlib.abc
import importlib.util
import json
import os
import sys
import time
import traceback
from typing import Any, Callable, Iterator

HISTORY_LIMIT = 4_000_000          # events; PyTorch forgets the oldest ones after that
ROWS = 40                          # groups of live memory that are written down


# ---- a look at modules as they come ----

class AfterImport(importlib.abc.MetaPathFinder):
    """Calls a function when a module has been executed; to look for the module is not yet to execute it."""

    def __init__(self, calls: dict[str, Callable[[Any], None]]) -> None:
        self.calls = calls
        self.looked_for: set[str] = set()

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name not in self.calls or name in self.looked_for:
            return None
        self.looked_for.add(name)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.looked_for.discard(name)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            execute(module)
            call = self.calls.pop(name, None)
            if call:
                call(module)

        spec.loader.exec_module = exec_module
        return spec


def guarded(call: Callable[..., Any]) -> Callable[..., Any]:
    """A fault of the hook ends the hook, not the program."""
    @functools.wraps(call)
    def inner(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.fault:
            return None
        try:
            return call(self, *args, **kwargs)
        except Exception:
            self.fault = traceback.format_exc()[-2000:]
            return None
    return inner


# ---- peaks ----

class Peaks:
    """PyTorch's peak counters cut into phases, while the program reads the counters that it would have read."""

    def __init__(self, torch: Any) -> None:
        self.read, self.clear = torch._C._cuda_memoryStats, torch._C._cuda_resetPeakMemoryStats
        self.count = torch.cuda.device_count()
        self.seen: dict[int, dict[tuple[str, str], int]] = {}      # device -> peaks since the program's own reset
        self.phase: dict[int, list[int]] = {}                      # device -> allocated, reserved peak of the phase
        self.whole: dict[int, list[int]] = {}
        torch._C._cuda_memoryStats, torch._C._cuda_resetPeakMemoryStats = self.program_reads, self.program_resets

    def fold(self, device: int, stats: Any) -> Any:
        """Raises the peaks in `stats` to those that were cut off."""
        seen = self.seen.setdefault(device, {})
        for group, pools in stats.items():
            if isinstance(pools, dict):
                for pool, counter in pools.items():
                    if isinstance(counter, dict) and "peak" in counter:
                        peak = seen[group, pool] = max(counter["peak"], seen.get((group, pool), 0))
                        counter["peak"] = peak
        return stats

    def program_reads(self, device: int) -> Any:
        return self.fold(device, self.read(device))

    def program_resets(self, device: int) -> None:
        self.cut(device)
        self.seen.pop(device, None)

    def cut(self, device: int) -> Any:
        """Takes the peaks up to here into the phase.  Returns the counters as PyTorch has them."""
        stats = self.read(device)
        now = [stats["allocated_bytes"]["all"]["peak"], stats["reserved_bytes"]["all"]["peak"]] if stats else [0, 0]
        for into in (self.phase, self.whole):
            into[device] = [max(a, b) for a, b in zip(now, into.get(device, (0, 0)))]
        self.fold(device, stats)
        self.clear(device)
        return stats

    def take(self, device: int) -> tuple[Any, list[int]]:
        """Ends a phase: the counters, and the phase's peaks."""
        stats = self.cut(device)
        return stats, self.phase.pop(device)


def current(stats: Any, name: str) -> int:
    return stats[name]["all"]["current"] if stats else 0


def position(stats: Any) -> int:
    """Allocations and frees so far."""
    counter = stats["allocation"]["all"] if stats else {"allocated": 0, "freed": 0}
    return counter["allocated"] + counter["freed"]


# ---- the watch over one process ----

class Watch:
    """Phases and steps, by way of PyTorch's own hooks: the first module called begins a forward pass, backward() ends
    it, an optimizer's step() ends a step, and the next forward pass begins the next one."""

    def __init__(self, folder: str) -> None:
        self.folder, self.pid = folder, os.getpid()
        self.started = time.time()
        self.torch: Any = None
        self.peaks: Peaks | None = None
        self.is_phantom = "TIDEMARK_CARD" in os.environ
        self.has_history = "TIDEMARK_HISTORY" in os.environ
        self.limit = int(os.environ.get("TIDEMARK_STEPS") or 0)    # 0: all steps
        self.phase = "load"
        self.steps: list[dict[str, Any]] = []
        self.optimizers = 0                                         # step() calls in this step
        self.phases: list[list[tuple[int, int, str]]] = []          # by device: (position, step, phase) at its end
        self.owners: list[list[tuple[int, str, dict[int, str]]]] = []
        self.load: dict[str, Any] = {}
        self.ooms: list[dict[str, int]] = []
        self.ended, self.error, self.fault = "running", "", ""
        self.reads: dict[tuple[str, int], list[Any]] = {}
        self.assumed: dict[str, int] = {}
        self.names: dict[int, str] = {}                             # id of a parameter or buffer -> name
        self.waiting: Any = None                                    # the hook that sees the next forward pass
        self.in_hook = False
        self.is_done = False
        self.next_write = 0.0

    # -- torch comes --

    @guarded
    def attach(self, torch: Any) -> None:
        self.torch = torch
        from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
        register_optimizer_step_pre_hook(self.before_optimizer)
        register_optimizer_step_post_hook(self.after_optimizer)
        backward = torch.autograd.backward

        def watched_backward(*args: Any, **kwargs: Any) -> Any:
            self.backward_begins()
            result = backward(*args, **kwargs)
            self.backward_ends()
            return result

        watched_backward.__wrapped__ = backward
        torch.autograd.backward = watched_backward
        torch.cuda._lazy_call(self.device_comes)
        if self.is_phantom:
            import tidemark_phantom
            tidemark_phantom.attach(torch, self)

    @guarded
    def device_comes(self) -> None:
        """CUDA is initialized, and nothing is allocated yet."""
        torch = self.torch
        self.peaks = Peaks(torch)
        self.phases = [[] for _ in range(self.peaks.count)]
        self.owners = [[] for _ in range(self.peaks.count)]
        if self.has_history:
            torch.cuda.memory._record_memory_history(enabled="all", context="alloc", stacks="python",
                                                     max_entries=HISTORY_LIMIT)
        attach_observer = getattr(torch._C, "_cuda_attach_out_of_memory_observer", None)
        if attach_observer:
            attach_observer(self.out_of_memory)
        self.wait_for_forward()

    @guarded
    def out_of_memory(self, device: int, wanted: int, total: int, free: int) -> None:
        self.ooms.append({"device": device, "bytes": wanted, "total": total, "free": free, "step": len(self.steps),
                          "phase": self.phase})

    # -- phases --

    def wait_for_forward(self) -> None:
        if self.waiting is None:
            self.waiting = self.torch.nn.modules.module.register_module_forward_pre_hook(self.module_called)

    @guarded
    def module_called(self, module: Any, args: Any) -> None:
        if self.waiting is None or (self.phase == "load" and not self.torch.is_grad_enabled()):
            return
        self.waiting.remove()
        self.waiting = None
        if self.peaks is None or self.is_done:
            return
        if self.phase in ("load", "optimizer") and (self.phase == "load" or self.optimizers):
            self.step_begins()
        self.phase = "forward"

    def step_begins(self) -> None:
        now = self.end_phase("load" if self.phase == "load" else "optimizer")
        if self.steps:
            self.step_ends(now)
        if self.limit and len(self.steps) >= self.limit:
            self.ended = "stopped"
            raise SystemExit(0)
        self.steps.append({"before": now})
        self.optimizers = 0

    def step_ends(self, now: list[int]) -> None:
        step = self.steps[-1]
        if self.optimizers and "after_step" not in step:
            step["after_step"] = now
            self.write()

    @guarded
    def backward_begins(self) -> None:
        if self.peaks is None or self.is_done or self.torch.cuda.is_initialized() is False:
            return
        if self.phase in ("load", "optimizer") and (self.phase == "load" or self.optimizers):
            self.step_begins()              # a forward pass without a module
        self.note("forward", "after_forward")
        self.phase = "backward"

    @guarded
    def backward_ends(self) -> None:
        if self.phase != "backward":
            return
        self.note("backward", "after_backward")
        self.phase = "optimizer"
        self.own("gradients", self.gradients())
        self.wait_for_forward()

    @guarded
    def before_optimizer(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self.peaks is None or self.is_done or not self.steps:
            return
        self.phase = "optimizer"
        if self.has_history and not self.names:
            self.names = dict(names_of_parameters(self.torch))
        tensors = list(parameters_of(optimizer))
        self.own("parameters", ((p, self.names.get(id(p), "")) for p in tensors))
        self.own("gradients", self.gradients(tensors))

    @guarded
    def after_optimizer(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self.peaks is None or self.is_done or not self.steps:
            return
        self.optimizers += 1
        self.own("optimizer", states_of(optimizer, self.names))
        self.note("optimizer", None)
        self.wait_for_forward()
        if time.monotonic() >= self.next_write:
            self.write()

    def gradients(self, tensors: Any = None) -> Iterator[tuple[Any, str]]:
        """Only where addresses are of use: with the allocator's history."""
        if self.has_history:
            if tensors is None:
                self.names = self.names or dict(names_of_parameters(self.torch))
                tensors = self.parameters
            for p in tensors:
                if p.grad is not None:
                    yield p.grad, self.names.get(id(p), "")

    @property
    def parameters(self) -> list[Any]:
        return [p for p in (r() for r in _parameters) if p is not None]

    def end_phase(self, phase: str) -> list[int]:
        """Closes a phase on every device: its peaks go to the step, or to what was before the steps.
        Returns the allocated bytes by device."""
        now = []
        step = self.steps[-1] if self.steps else self.load
        for device in range(self.peaks.count):
            stats, (allocated, reserved) = self.peaks.take(device)
            now.append(current(stats, "allocated_bytes"))
            peaks = {f"peak_{phase}": allocated, "allocated_peak": allocated, "reserved_peak": reserved}
            for key, value in peaks.items():
                values = step.setdefault(key, [0] * self.peaks.count)
                values[device] = max(values[device], value)
            self.phases[device].append((position(stats), len(self.steps), phase))
        return now

    def note(self, phase: str, after: str | None) -> None:
        if not self.steps:
            return
        now = self.end_phase(phase)
        if after:
            self.steps[-1][after] = now

    def own(self, factor: str, tensors: Any) -> None:
        """Notes whose the storages of (tensor, name) are from here on."""
        if not self.has_history:
            return
        marks: dict[int, dict[int, str]] = {}
        for tensor, name in tensors:
            tensor = getattr(tensor, "_local_tensor", tensor)        # a DTensor's part of this rank
            if isinstance(tensor, self.torch.Tensor) and tensor.is_cuda:
                try:
                    address = tensor.untyped_storage().data_ptr()
                except (NotImplementedError, RuntimeError):           # a subclass without storage
                    continue
                marks.setdefault(tensor.get_device(), {})[address] = name
        for device, addresses in marks.items():
            self.owners[device].append((position(self.peaks.read(device)), factor, addresses))

    # -- the end --

    def finish(self) -> None:
        """Once, at the end of the process."""
        if self.is_done or os.getpid() != self.pid or self.torch is None:
            return
        self.close()
        self.is_done = True
        try:
            self.write(last=True)
        except Exception:
            self.fault = self.fault or traceback.format_exc()[-2000:]
            self.write()

    @guarded
    def close(self) -> None:
        if self.ended == "running":
            self.ended = "finished"
        if self.peaks is not None and self.torch.cuda.is_initialized():
            now = self.end_phase(self.phase)
            if self.steps:
                self.step_ends(now)
            self.is_done = True
            self.own("parameters", ((p, self.names.get(id(p), "")) for p in self.parameters)
                     if self.names else names_and_tensors(self.torch))

    def write(self, last: bool = False) -> None:
        self.next_write = time.monotonic() + 0.1
        seen = self.summary()
        if last and self.has_history and self.peaks is not None:
            import tidemark_history
            tidemark_history.write(self, seen)
        path = os.path.join(self.folder, f"{self.pid}.json")
        with open(path + ".new", "w") as file:
            json.dump(seen, file)
        os.replace(path + ".new", path)

    def summary(self) -> dict[str, Any]:
        torch, environ = self.torch, os.environ
        seen: dict[str, Any] = {
            "pid": self.pid, "parent": os.getppid(), "ended": self.ended, "error": self.error, "fault": self.fault,
            "command": list(getattr(sys, "orig_argv", sys.argv)), "python": sys.version.split()[0],
            "torch": str(torch.__version__), "cuda": str(torch.version.cuda),
            "allocator": environ.get("PYTORCH_ALLOC_CONF") or environ.get("PYTORCH_CUDA_ALLOC_CONF") or "",
            "rank": rank(), "world": number("WORLD_SIZE", 1),
            "seconds": round(time.time() - self.started, 3), "load": self.load, "steps": self.steps,
            "limit": self.limit, "ooms": self.ooms, "devices": [],
            "reads": [{"file": f, "line": n, "count": c[0], "bytes": c[1], "function": c[2]}
                      for (f, n), c in sorted(self.reads.items(), key=lambda r: -r[1][0])[:ROWS]],
            "assumed": [{"what": what, "count": n} for what, n in self.assumed.items()],
        }
        for device in range(self.peaks.count if self.peaks else 0):
            stats = self.peaks.cut(device)
            allocated, reserved = self.peaks.whole[device]
            if reserved:
                seen["devices"].append({
                    "index": device, "uuid": uuid_of(torch, device), "allocated_peak": allocated,
                    "reserved_peak": reserved,
                    "allocated": current(stats, "allocated_bytes"), "reserved": current(stats, "reserved_bytes"),
                    "retries": stats["num_alloc_retries"], "ooms": stats["num_ooms"],
                    "segments": stats["segment"]["all"]["current"]})
        return seen


# ---- tensors and their names ----

_parameters: list[Any] = []         # weak references to parameters and buffers


def names_and_tensors(torch: Any) -> Iterator[tuple[Any, str]]:
    """Parameters and buffers of all modules, by their names in the outermost one."""
    import gc
    modules = [m for m in gc.get_objects() if issubclass(type(m), torch.nn.Module)]
    inner = {id(c) for m in modules for c in m.children()}
    for root in (m for m in modules if id(m) not in inner):
        for name, p in root.named_parameters(remove_duplicate=True):
            yield p, name
        for name, b in root.named_buffers(remove_duplicate=True):
            yield b, name


def names_of_parameters(torch: Any) -> Iterator[tuple[int, str]]:
    import weakref
    for tensor, name in names_and_tensors(torch):
        _parameters.append(weakref.ref(tensor))
        yield id(tensor), name


def parameters_of(optimizer: Any) -> Iterator[Any]:
    for group in optimizer.param_groups:
        yield from group["params"]


def states_of(optimizer: Any, names: dict[int, str]) -> Iterator[tuple[Any, str]]:
    for p, state in optimizer.state.items():
        if isinstance(state, dict):
            for key, value in state.items():
                name = names.get(id(p), "")
                yield value, f"{name} {key}" if name else str(key)


def uuid_of(torch: Any, device: int) -> str:
    """As the driver writes it; PyTorch has it since 2.5."""
    uuid = getattr(torch.cuda.get_device_properties(device), "uuid", None)
    return f"GPU-{uuid}" if uuid else ""


def number(name: str, otherwise: int) -> int:
    try:
        return int(os.environ.get(name, ""))
    except ValueError:
        return otherwise


def rank() -> int:
    for name in ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"):
        if os.environ.get(name, "").isdigit():
            return int(os.environ[name])
    return 0


# ---- start ----

_watch: Watch | None = None


def start(folder: str) -> None:
    global _watch
    _watch = Watch(folder)
    calls: dict[str, Callable[[Any], None]] = {"torch": _watch.attach}
    if _watch.is_phantom:
        import tidemark_phantom
        tidemark_phantom.start()
        import tidemark_values
        tidemark_values.start(_watch)
        calls |= tidemark_values.STAND_INS
    sys.meta_path.insert(0, AfterImport(calls))
    atexit.register(_watch.finish)
    hook = sys.excepthook

    def excepthook(kind: Any, value: Any, trace: Any) -> None:
        if _watch is not None:
            _watch.ended, _watch.error = "exception", f"{kind.__name__}: {value}"[:2000]
        hook(kind, value, trace)

    sys.excepthook = excepthook
    os.register_at_fork(after_in_child=forked)


def forked() -> None:
    """The child of a fork has a watch of its own, if it comes to use a device."""
    if _watch is None or (_watch.peaks is not None):
        return
    _watch.pid = os.getpid()
    _watch.started = time.time()
    if "multiprocessing.util" in sys.modules:                        # such children leave by os._exit
        sys.modules["multiprocessing.util"].Finalize(None, _watch.finish, exitpriority=0)
