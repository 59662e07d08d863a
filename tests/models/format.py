#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Formats descriptions: a line of 120 columns holds what fits; modules, functions and blocks have their own.

    tests/models/format.py           says which of models/architectures are not formatted; exit code 1 if any
    tests/models/format.py --write   formats them
    tests/models/format.py [--write] FILE...
"""
import json
import pathlib
import sys

COLUMNS = 120
FOLDER = pathlib.Path(__file__).resolve().parents[2] / "models" / "architectures"


def text(value):
    return json.dumps(value, ensure_ascii=False)


def inline(value):
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{text(key)}: {inline(item)}" for key, item in value.items()) + " }" if value else "{}"
    if isinstance(value, list):
        return "[" + ", ".join(inline(item) for item in value) + "]"
    return text(value)


def is_one_text(value):
    """What no line break can shorten: a text, or what holds only one."""
    if isinstance(value, dict):
        return len(value) == 1 and is_one_text(next(iter(value.values())))
    if isinstance(value, list):
        return len(value) == 1 and is_one_text(value[0])
    return True


def filled(units, indent):
    """The lines of units, each a list of lines without its comma; those of one line that `flow` share lines."""
    lines, current = [], ""
    for at, (unit, flows) in enumerate(units):
        comma = "," if at + 1 < len(units) else ""
        if flows and len(unit) == 1 and current and len(current) + 1 + len(unit[0] + comma) <= COLUMNS:
            current += " " + unit[0] + comma
            continue
        lines += [current] if current else []
        current = indent + unit[0] + comma if flows and len(unit) == 1 else ""
        if not current:
            lines += [indent + unit[0], *unit[1:]]
            lines[-1] += comma
    return lines + ([current] if current else [])


def fits(whole, indent, value):
    return len(indent) + len(whole) + 1 <= COLUMNS or is_one_text(value)


def block_lines(opening, block, indent):
    """An array of statements; a statement with a block has a line of its own."""
    if fits(opening + inline(block), indent, block):
        return [opening + inline(block)]
    inner = indent + "  "
    units, at = [], 0
    while at < len(block):
        head = text(block[at])
        has_block = at + 1 < len(block) and isinstance(block[at + 1], list)
        units.append((block_lines(head + ", ", block[at + 1], inner) if has_block else [head], not has_block))
        at += 2 if has_block else 1
    return [opening + "[", *filled(units, inner), indent + "]"]


def data_lines(opening, value, indent):
    """Names and texts, between the lines of their brackets."""
    lines = filled([([f"{text(name)}: {text(item)}"], True) for name, item in value.items()], indent + "  ")
    first = indent + opening + "{ " + lines[0].lstrip()
    lines = [first, *lines[1:]] if len(first) <= COLUMNS else [indent + opening + "{", *lines]
    lines[0] = lines[0][len(indent):]
    lines[-1] += " }"
    return lines


def entry_lines(key, value, indent, depth, is_code):
    """The lines of "key": value. Code is what modules and functions hold."""
    opening = text(key) + ": " if key is not None else ""
    is_open = depth == 0 or (depth == 1 and key in ("modules", "functions"))
    whole = opening + inline(value)
    if not isinstance(value, (dict, list)) or not value or (not is_open and fits(whole, indent, value)):
        return [whole]
    if is_code and isinstance(value, list):
        return block_lines(opening, value, indent)
    inner = indent + "  "
    if isinstance(value, list):
        units = [(entry_lines(None, item, inner, depth + 1, False), True) for item in value]
        return [opening + "[", *filled(units, inner), indent + "]"]
    if depth == 1 and not is_open and key != "checks" and all(isinstance(item, str) for item in value.values()):
        return data_lines(opening, value, indent)
    units = []
    for name, item in value.items():
        is_inner_code = not name.startswith("@") and (is_code or (depth == 0 and name in ("modules", "functions")))
        flows = not (is_inner_code and isinstance(item, (dict, list))) and key != "checks"
        units.append((entry_lines(name, item, inner, depth + 1, is_inner_code), flows))
    return [opening + "{", *filled(units, inner), indent + "}"]


def formatted(source):
    return "\n".join(entry_lines(None, json.loads(source), "", 0, False)) + "\n"


def main():
    words = sys.argv[1:]
    writes = "--write" in words
    paths = [pathlib.Path(word) for word in words if not word.startswith("-")] or sorted(FOLDER.rglob("*.json"))
    failed = 0
    for path in paths:
        source = path.read_text(encoding="utf-8")
        wanted = formatted(source)
        if source == wanted:
            continue
        failed += 1
        if writes:
            path.write_text(wanted, encoding="utf-8")
        else:
            print(f"{path}: not formatted; tests/models/format.py --write does it")
    return 1 if failed and not writes else 0


if __name__ == "__main__":
    sys.exit(main())
