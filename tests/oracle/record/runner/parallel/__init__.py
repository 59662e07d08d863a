# SPDX-License-Identifier: Apache-2.0
"""One rank of a distributed training job, played alone.

On the phantom collectives return at once, so a single process can be any rank of a world of any size: process groups,
communication streams and every wrapper are the real, unchanged ones.
"""
