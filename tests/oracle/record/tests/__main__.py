# SPDX-License-Identifier: Apache-2.0
"""Runs the tests, or those that are named (test_blocks, test_blocks.Rounding); the last line counts them."""

from __future__ import annotations

import sys
import unittest

loader = unittest.TestLoader()
names = [f"{__package__}.{name}" for name in sys.argv[1:]]
found = (
    loader.loadTestsFromNames(names)
    if names
    else loader.discover(f"{sys.path[0]}/record/tests", top_level_dir=sys.path[0])
)
result = unittest.TextTestRunner(stream=sys.stdout, verbosity=0).run(found)
failed = len({str(test) for test, _ in (*result.failures, *result.errors)})
print(f"{result.testsRun - failed} passed, {failed + (result.testsRun == 0)} failed")
sys.exit(not result.wasSuccessful() or result.testsRun == 0)
