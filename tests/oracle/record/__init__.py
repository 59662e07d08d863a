# SPDX-License-Identifier: Apache-2.0
"""The recorder: what unchanged PyTorch, and the frameworks around it, allocate on a phantom GPU.

README.md of the folder above says how it is used; `./record --help` lists the commands.
"""
