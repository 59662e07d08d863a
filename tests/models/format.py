#!/usr/bin/env python3
"""Formats descriptions: one statement a line, and whatever else fits in 120 columns on one line.

    tests/models/format.py           says which of models/architectures are not formatted; exit code 1 if any
    tests/models/format.py --write   formats them
    tests/models/format.py [--write] FILE...
"""
import json
import pathlib
import sys

COLUMNS = 120
FOLDER = pathlib.Path(__file__).resolve().parents[2] / "models" / "architectures"


def inline(value):
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{text(key)}: {inline(item)}" for key, item in value.items()) + " }" if value else "{}"
    if isinstance(value, list):
        return "[" + ", ".join(inline(item) for item in value) + "]"
    return text(value)


def text(value):
    return json.dumps(value, ensure_ascii=False)


def is_one_statement(block):
    """A statement alone, or with a block of which the same holds."""
    rest = block[1:]
    return isinstance(block[0], str) and (not rest or (len(rest) == 1 and isinstance(rest[0], list) and is_one_statement(rest[0])))


def block_lines(block, indent):
    """The lines of an array of statements, without those of its brackets."""
    lines = []
    at = 0
    while at < len(block):
        line = indent + text(block[at])
        at += 1
        if at < len(block) and isinstance(block[at], list):
            body = block[at]
            at += 1
            comma = "," if at < len(block) else ""
            whole = f"{line}, {inline(body)}{comma}"
            if body and is_one_statement(body) and len(whole) <= COLUMNS:
                lines.append(whole)
                continue
            lines.append(line + ", [")
            lines += block_lines(body, indent + "  ")
            lines.append(f"{indent}]{comma}")
            continue
        lines.append(line + ("," if at < len(block) else ""))
    return lines


def lines_of(key, value, indent, comma, depth, is_code):
    """The lines of "key": value. Code are the arrays of modules and functions."""
    opening = indent + (text(key) + ": " if key is not None else "")
    is_block = is_code and isinstance(value, list)
    whole = opening + inline(value) + comma
    is_open = depth == 0 or (depth == 1 and key in ("modules", "functions"))
    if not isinstance(value, (dict, list)) or not value:
        return [whole]
    if len(whole) <= COLUMNS and not is_open and (not is_block or is_one_statement(value)):
        return [whole]
    inner = indent + "  "
    if is_block:
        body = block_lines(value, inner)
    elif isinstance(value, list):
        body = [line for at, item in enumerate(value) for line in
                lines_of(None, item, inner, "," if at + 1 < len(value) else "", depth + 1, False)]
    else:
        last = list(value)[-1]
        body = [line for name, item in value.items() for line in
                lines_of(name, item, inner, "" if name == last else ",", depth + 1,
                         not name.startswith("@") and (is_code or (depth == 0 and name in ("modules", "functions"))))]
    brackets = "[]" if isinstance(value, list) else "{}"
    return [opening + brackets[0], *body, indent + brackets[1] + comma]


def formatted(source):
    return "\n".join(lines_of(None, json.loads(source), "", "", 0, False)) + "\n"


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
