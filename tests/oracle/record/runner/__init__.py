# SPDX-License-Identifier: Apache-2.0
"""What runs a case under PyTorch.  Everything outside of this folder does without PyTorch."""
