# SPDX-License-Identifier: Apache-2.0
"""Typed objects from JSON: every key must be known, and every value of its field's type."""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from typing import Any, Callable, Literal, Mapping, TypeVar, Union

T = TypeVar("T")


class CaseError(ValueError):
    """A case that contradicts itself or names something unknown."""


def key(name: str, default: Any) -> Any:
    """A field whose key in JSON is no Python name."""
    return dataclasses.field(default=default, metadata={"key": name})


def listed(name: str | None = None) -> Any:
    return dataclasses.field(default_factory=list, metadata={"key": name} if name else {})


def mapped() -> Any:
    return dataclasses.field(default_factory=dict)


def key_of(field: dataclasses.Field[Any]) -> str:
    return str(field.metadata.get("key", field.name))


hints_of: Callable[..., dict[str, Any]] = functools.lru_cache(typing.get_type_hints)


def fields_of(kind: type[Any]) -> dict[str, dataclasses.Field[Any]]:
    """The fields of a dataclass by their keys in JSON."""
    return {key_of(f): f for f in dataclasses.fields(kind)}


def read(kind: type[T], given: Mapping[str, Any], where: str = "case") -> T:
    """An instance of a dataclass, its defaults filled in.  Raises CaseError for unknown keys and wrong types."""
    known, hints = fields_of(kind), hints_of(kind)
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise CaseError(f"unknown keys of {where}: {', '.join(unknown)}")
    missing = [
        k
        for k, f in known.items()
        if k not in given and f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise CaseError(f"{where} needs {', '.join(missing)}")
    return kind(**{known[k].name: convert(hints[known[k].name], v, f"{where}.{k}") for k, v in given.items()})


def convert(hint: Any, value: Any, where: str) -> Any:
    """The value as its type wants it: objects become dataclasses, the rest is checked."""
    if hint is Any:
        return value
    origin = typing.get_origin(hint)
    if origin in (Union, types.UnionType):
        return convert_one_of(typing.get_args(hint), value, where)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        if not isinstance(value, Mapping):
            raise CaseError(f"{where} is {value!r}, not an object")
        return read(hint, value, where)
    if not matches(hint, value):
        raise CaseError(f"{where} is {value!r}, not {named(hint)}")
    return value


def convert_one_of(hints: tuple[Any, ...], value: Any, where: str) -> Any:
    """Of several types the one that fits; an object's own complaint is the most telling."""
    for hint in hints:
        if dataclasses.is_dataclass(hint) and isinstance(value, Mapping):
            return convert(hint, value, where)
    if any(matches(hint, value) for hint in hints):
        return value
    raise CaseError(f"{where} is {value!r}, not {' or '.join(named(h) for h in hints)}")


def matches(hint: Any, value: Any) -> bool:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return any(value == a and type(value) is type(a) for a in arguments)
    if origin is list:
        return isinstance(value, list) and all(matches(arguments[0], v) for v in value)
    if origin is dict:
        return isinstance(value, dict) and all(
            isinstance(k, str) and matches(arguments[1], v) for k, v in value.items()
        )
    if hint is type(None):
        return value is None
    if hint is Any:
        return True
    if hint is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(hint, type) and isinstance(value, hint)


def named(hint: Any) -> str:
    """A type as a person would write it."""
    origin = typing.get_origin(hint)
    if origin is Literal:
        return " | ".join(str(a) for a in typing.get_args(hint))
    if hint is type(None):
        return "null"
    if origin in (list, dict):
        return "a list" if origin is list else "an object"
    return {bool: "true or false", int: "an integer", float: "a number", str: "a text"}.get(hint, str(hint))
