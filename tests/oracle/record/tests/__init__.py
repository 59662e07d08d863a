# SPDX-License-Identifier: Apache-2.0
"""Tests of the recorder that need no PyTorch: python3 -m record.tests, in the folder above the package."""
