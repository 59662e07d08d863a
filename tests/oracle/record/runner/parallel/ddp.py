# SPDX-License-Identifier: Apache-2.0
"""DistributedDataParallel."""

from __future__ import annotations

import contextlib
from typing import Any

from torch import nn

from ...case import Case
from ...plans import Ddp
from .. import optimizers
from .steps import Step


class DdpStep(Step):
    def sync(self, last: bool) -> Any:
        return contextlib.nullcontext() if last or self.plan.sync_each else self.model.no_sync()


def wrap(model: Any, case: Case) -> Step:
    plan = case.parallel
    assert isinstance(plan, Ddp)
    net = nn.parallel.DistributedDataParallel(
        model,
        device_ids=[0],
        bucket_cap_mb=plan.bucket_cap_mb,
        gradient_as_bucket_view=plan.gradient_as_bucket_view,
        static_graph=plan.static_graph,
        find_unused_parameters=bool(plan.find_unused_parameters),
        broadcast_buffers=plan.broadcast_buffers,
    )
    if plan.hook:
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

        net.register_comm_hook(None, getattr(default_hooks, plan.hook + "_compress_hook"))
    return DdpStep(net, optimizers.make(case, net), case)
