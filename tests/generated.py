# SPDX-License-Identifier: Apache-2.0
"""Parts of documents that a script writes, between two comments that name it."""
import sys


def replaced(document, source, name, script, text):
    """`source` with `text` between its comments of `name`; ends the program where they are missing."""
    begin, end = f"<!-- {name}: {script} --write -->\n", f"<!-- end of {name} -->\n"
    before, _, rest = source.partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        sys.exit(f"{document}: has no place for {name}: {begin.strip()} and {end.strip()}")
    return before + begin + text + end + after


def settled(document, wanted, script):
    """The exit code of a script: 0 if `document` is as wanted, or is made so with --write."""
    if wanted == document.read_text(encoding="utf-8"):
        return 0
    if "--write" not in sys.argv[1:]:
        print(f"{document}: is not up to date; {script} --write brings it up to date")
        return 1
    document.write_text(wanted, encoding="utf-8")
    return 0
