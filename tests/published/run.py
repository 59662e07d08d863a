#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What others have published, predicted: a file for each source.

    tests/published/run.py PROGRAM
"""

import sys

import activation_recomputation
import llama_runs
import peft
import simumax
import vllm

SOURCES = (vllm, simumax, activation_recomputation, llama_runs, peft)


def main(program):
    checks = [list(source.checks(program)) for source in SOURCES]
    errors = [error for check in sum(checks, []) if (error := check.error())]
    for error in errors:
        print("FAIL", error)
    print(f"{sum(map(len, checks)) - len(errors)} passed, {len(errors)} failed")
    return bool(errors) or not all(checks)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
