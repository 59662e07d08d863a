# SPDX-License-Identifier: Apache-2.0
"""The virtual environments in which cases run, outside of the repository, and which cases run in which."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Iterable

from . import serving_case
from .case import Given

HERE = Path(__file__).resolve().parent
TITAN = "torchtitan-0.2.2"  # the last that reads TOML


@dataclass(frozen=True)
class Group:
    """Packages of packages.toml."""

    environment: str
    about: str
    packages: list[str]
    needs: list[str] = field(default_factory=list)
    bare: list[str] = field(default_factory=list)
    compiled: list[str] = field(default_factory=list)
    apart: list[str] = field(default_factory=list)
    folder: str | None = None


def groups() -> dict[str, Group]:
    return {name: Group(**entry) for name, entry in tomllib.loads((HERE / "packages.toml").read_text()).items()}


def folder() -> Path:
    """Where the environments are: TIDEMARK_RECORD, or the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("TIDEMARK_RECORD") or Path(cache) / "tidemark" / "record")


def python_of(environment: str) -> Path:
    return folder() / environment / "bin" / "python"


def apart_of(environment: str) -> Path:
    """Packages that only the process of a case that needs them looks into."""
    return folder() / environment / "apart"


def trl_of(given: Given) -> Path | None:
    """The folder of the TRL that a case asks for, if it is not the environment's own."""
    version = (given.get("trainer") or {}).get("trl")
    return folder() / f"trl-{version}" if version else None


def titan_of(given: Given) -> Path | None:
    """The folder of the torchtitan whose own models a case trains."""
    is_one = (given.get("parallel") or {}).get("models") == "torchtitan"
    return folder() / TITAN if is_one else None


def environment_of(given: Given) -> str:
    """The environment that a case needs."""
    if serving_case.is_one(given) and given.get("engine") != "transformers":
        return "serving"
    return "megatron" if (given.get("parallel") or {}).get("kind") == "megatron" else "base"


def batches_of(cases: Iterable[Given]) -> list[tuple[str, list[Given]]]:
    """Cases that one process can run, with their environment.  Megatron decides some options when it is imported."""
    found: dict[tuple[str, ...], list[Given]] = {}
    for given in cases:
        plan = given.get("parallel") or {}
        name = environment_of(given)
        decided = (
            [str(plan.get(k)) for k in ("impl", "jit", "wgrad_fusion", "attention_backend")]
            if name == "megatron"
            else [f"engine {given.get('engine', 'vllm')}"]
            if serving_case.is_one(given)
            else []
        )
        others = [at.name for at in (trl_of(given), titan_of(given)) if at]
        found.setdefault((name, *decided, *others), []).append(given)
    return [(key[0], batch) for key, batch in found.items()]


def engine_of(name: str) -> str:
    """An engine with the version that is installed: vllm-0.32.0."""
    pin = next(p for group in ("serving", "base") for p in groups()[group].packages if p.startswith(f"{name}=="))
    return pin.replace("==", "-")


# ---- installing ----


def install(names: Iterable[str]) -> None:
    """Raises CalledProcessError where pip fails."""
    known, wanted = groups(), []
    for name in names:
        wanted += [n for n in (*known[name].needs, name) if n not in wanted]
    for name in wanted:
        group = known[name]
        python = python_of(group.environment)
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", str(folder() / group.environment)], check=True)
        print(f"{name}: {group.about}, into {folder() / group.environment}", flush=True)
        install_group(group, [str(python), "-m", "pip", "install", "--quiet"])


def install_group(group: Group, pip: list[str]) -> None:
    apart = folder() / group.folder if group.folder else apart_of(group.environment)
    slowly = {**os.environ, "MAX_JOBS": os.environ.get("MAX_JOBS", "1"), "NVTE_BUILD_THREADS_PER_JOB": "1"}
    for packages, options in (
        (group.packages, []),
        (group.bare, ["--no-deps"]),
        (group.compiled, ["--no-deps", "--no-build-isolation"]),
        (group.apart, ["--no-deps", "--upgrade", "--target", str(apart)]),
    ):
        if packages:
            subprocess.run([*pip, *options, *packages], check=True, env=slowly)


def missing(cases: Iterable[Given]) -> list[str]:
    """Environments that these cases need and that are not installed."""
    cases = list(cases)
    older = {at.name for of in (trl_of, titan_of) for at in map(of, cases) if at and not at.exists()}
    return sorted(older | {e for e in map(environment_of, cases) if not python_of(e).exists()})
