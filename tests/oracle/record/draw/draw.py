# SPDX-License-Identifier: Apache-2.0
"""Draws cases of a kind; the same seed gives the same cases."""

from __future__ import annotations

import random
from typing import Callable, Iterator, Sequence

from .. import case as cases_of
from .. import catalogue, serving_case
from ..case import Given
from ..schema import CaseError
from . import more, ranks, single, titan, trainers

MORE: dict[str, Callable[[random.Random, list[str]], Given]] = {
    "torchtitan": titan.draw,
    "trainer": trainers.draw,
    "compile": more.compiled,
    "kernels": more.kernel,
    "serving": more.serving,
}
KINDS = ["single", *ranks.OPTIONS, *MORE]
A_FEW = ("bert-base", "gpt2", "llama-3.2-1b", "qwen2.5-0.5b", "t5-base", "vit-base")
TRIES = 1000  # draws of one case that may contradict themselves


def draw(kind: str, models: Sequence[str], count: int, seed: str, varies: bool = False) -> Iterator[Given]:
    """Cases without contradictions and without repetition.  count: of each model on one device, else in all."""
    if kind == "single":
        for name in models or A_FEW:
            yield from of_model(name, count, seed, varies)
        return
    rng, seen = random.Random(f"{seed} {kind}"), set()
    for _ in range(count * TRIES):
        made = ranks.draw(kind, rng, list(models)) if kind in ranks.OPTIONS else MORE[kind](rng, list(models))
        identity = cases_of.identity(made)
        if is_valid(made) and identity not in seen:
            seen.add(identity)
            yield made
        if len(seen) == count:
            return


def of_model(name: str, count: int, seed: str, varies: bool) -> Iterator[Given]:
    config, rng = catalogue.find(name, []).config, random.Random(f"{seed} {name}")
    base = single.base_case(name, config)
    if varies:
        all_of_them = single.variations(config, base)
        yield from all_of_them[:1] + rng.sample(all_of_them[1:], min(count, len(all_of_them)) - 1)
        return
    for _ in range(count):
        yield single.mixture(rng, config, base)


def is_valid(given: Given) -> bool:
    try:
        serving_case.read(given) if serving_case.is_one(given) else cases_of.read(given)
    except CaseError:
        return False
    return True
