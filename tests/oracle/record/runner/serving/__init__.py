# SPDX-License-Identifier: Apache-2.0
"""The memory of a serving engine: unchanged vLLM on phantom GPUs of a stated size."""
