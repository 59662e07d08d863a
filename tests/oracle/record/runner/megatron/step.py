# SPDX-License-Identifier: Apache-2.0
"""The model of one rank with its gradient buffers and optimizer, and the training script's step."""

from __future__ import annotations

import contextlib
import functools
from typing import Any, Callable, Iterable, Iterator

import torch
from torch import nn

from ...case import Case
from ...catalogue import Config
from ...plans import Megatron
from .. import meter
from ..batches import Batch
from ..models import DTYPES
from ..parallel.steps import Step
from . import bridge, configuration, library, packing, routing

BATCH = ("tokens", "labels", "loss_mask", "attention_mask", "position_ids")


# ---- the model ----


def build(case: Case, config: Config) -> Any:
    """This rank's chunks of the model on the device, in the case's dtype; after the process group."""
    from megatron.core import parallel_state, tensor_parallel
    from megatron.core.transformer.module import Float16Module

    plan = case.parallel
    assert isinstance(plan, Megatron)
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=plan.tp,
        pipeline_model_parallel_size=plan.pp,
        virtual_pipeline_model_parallel_size=plan.virtual_stages,
        context_parallel_size=plan.cp,
        expert_model_parallel_size=plan.ep,
        expert_tensor_parallel_size=plan.etp,
        num_distributed_optimizer_instances=plan.optimizer_instances,
        create_gloo_process_groups=False,
    )
    tensor_parallel.model_parallel_cuda_manual_seed(case.seed + 1)
    settings = configuration.transformer_config(config, case)
    chunks = nn.ModuleList(
        [make_chunk(case, plan, config, settings, stage) for stage in range(plan.virtual_stages or 1)]
    )
    if case.lora:
        bridge.add_adapters(list(chunks), case.lora)
    for chunk in chunks:
        for p in chunk.parameters():
            tensor_parallel.set_defaults_if_not_set_tensor_model_parallel_attributes(p)
        chunk.cuda()
    if settings.fp16 or settings.bf16:
        chunks = nn.ModuleList([Float16Module(settings, chunk) for chunk in chunks])
    if settings.num_moe_experts:
        routing.install(settings, plan)
    if plan.packed_sequences:
        packing.tell_lengths(case, plan.packed_sequences)
    if plan.cross_entropy_fusion == "te_in_place":
        library.overwriting_loss()
    chunks.settings = settings
    return chunks


def make_chunk(case: Case, plan: Megatron, config: Config, settings: Any, stage: int) -> Any:
    from megatron.core import parallel_state
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec

    vp = stage if plan.virtual_stages else None

    def make(spec: Any) -> Any:
        return GPTModel(
            config=settings,
            transformer_layer_spec=spec,
            pre_process=parallel_state.is_pipeline_first_stage(ignore_virtual=False, vp_stage=vp),
            post_process=parallel_state.is_pipeline_last_stage(ignore_virtual=False, vp_stage=vp),
            fp16_lm_cross_entropy=False,
            parallel_output=True,
            vp_stage=vp,
            mtp_block_spec=further_tokens(settings, spec, plan, vp),
            **configuration.model_options(config, case),
        )

    if config["model_type"] in bridge.PROVIDERS:
        settings.make_model = make
        return settings.provide(vp_stage=vp)
    return make(
        get_gpt_decoder_block_spec(
            settings, use_transformer_engine=plan.impl == "te", vp_stage=vp, normalization=settings.normalization
        )
    )


def further_tokens(settings: Any, spec: Any, plan: Megatron, vp: int | None) -> Any:
    """The layers of the last stage that predict further tokens."""
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_mtp_block_spec

    if not settings.mtp_num_layers:
        return None
    return get_gpt_mtp_block_spec(settings, spec, use_transformer_engine=plan.impl == "te", vp_stage=vp)


def wrap(chunks: Any, case: Case) -> Step:
    """The chunks with their gradient buffers, and the optimizer."""
    from megatron.core import parallel_state
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads

    plan, settings = case.parallel, chunks.settings
    assert isinstance(plan, Megatron)
    options = DistributedDataParallelConfig(
        grad_reduce_in_fp32=plan.grad_reduce_in_fp32,
        overlap_grad_reduce=plan.overlap_grad_reduce,
        overlap_param_gather=plan.overlap_param_gather,
        use_distributed_optimizer=plan.distributed_optimizer,
        check_for_nan_in_grad=False,
        average_in_collective=False,
        num_distributed_optimizer_instances=plan.optimizer_instances,
        fp8_param_gather=plan.fp8_param,
    )
    replicas = parallel_state.get_data_parallel_world_size(with_context_parallel=True)
    options.bucket_size = (
        (plan.bucket_size or max(40_000_000, 1_000_000 * replicas)) if plan.overlap_grad_reduce else None
    )
    modules, wrapped = list(chunks), []
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side) if plan.wrap_on_side_stream else contextlib.nullcontext():
        for i, module in enumerate(modules):
            wrapped.append(
                DistributedDataParallel(config=settings, ddp_config=options, module=module, disable_bucketing=i > 0)
            )
    torch.cuda.current_stream().wait_stream(side)
    optimizer = make_optimizer(wrapped, case, plan, settings)
    settings.grad_scale_func = optimizer.scale_loss
    settings.finalize_model_grads_func = finalize_model_grads
    if plan.overlap_grad_reduce:
        many = len(wrapped) > 1
        settings.no_sync_func = [m.no_sync for m in wrapped] if many else wrapped[0].no_sync
        settings.grad_sync_func = [m.start_grad_sync for m in wrapped] if many and plan.align_grad_reduce else None
    return MegatronStep(wrapped, optimizer, case)


def make_optimizer(wrapped: list[Any], case: Case, plan: Megatron, settings: Any) -> Any:
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer

    options: dict[str, Any] = {}
    if plan.precision_aware:
        dtypes = {**DTYPES, "fp8": torch.uint8}
        options = {
            "use_precision_aware_optimizer": True,
            "main_grads_dtype": dtypes[plan.main_grads_dtype],
            "main_params_dtype": dtypes[plan.main_params_dtype],
            "exp_avg_dtype": dtypes[plan.exp_avg_dtype],
            "exp_avg_sq_dtype": dtypes[plan.exp_avg_sq_dtype],
        }
    if plan.offload_fraction:
        options |= {
            "optimizer_cpu_offload": True,
            "optimizer_offload_fraction": plan.offload_fraction,
            "use_torch_optimizer_for_cpu_offload": False,
        }
    return get_megatron_optimizer(
        OptimizerConfig(
            optimizer="sgd" if case.optimizer.startswith("sgd") else "adam",
            sgd_momentum=0.9 if case.optimizer == "sgd_momentum" else 0.0,
            lr=1e-4,
            min_lr=1e-5,
            decoupled_lr=plan.decoupled_lr,
            weight_decay=0.1,
            bf16=settings.bf16,
            fp16=settings.fp16,
            params_dtype=settings.params_dtype,
            clip_grad=case.clip or 0.0,
            use_distributed_optimizer=plan.distributed_optimizer,
            overlap_param_gather=plan.overlap_param_gather,
            fp8_recipe=settings.fp8_recipe,
            **options,
        ),
        wrapped,
        use_gloo_process_groups=False,
    )


# ---- a step ----


class MegatronStep(Step):
    """Clear gradient buffers, run the schedule, update."""

    def __init__(self, chunks: list[Any], optimizer: Any, case: Case) -> None:
        from megatron.core.pipeline_parallel import get_forward_backward_func

        super().__init__(nn.ModuleList(chunks), optimizer, case)
        self.chunks, self.schedule = chunks, get_forward_backward_func()
        self.optimizers = getattr(optimizer, "chained_optimizers", [optimizer])
        for each in self.optimizers:
            if not hasattr(each, "_copy_model_grads_to_main_grads"):
                continue  # FP32Optimizer has no others
            # main gradients live during the optimizer's step alone, where gradients are reduced in another dtype
            copy = each._copy_model_grads_to_main_grads
            each._copy_model_grads_to_main_grads = self.marking(copy, None, "main gradients")

    def batches(self) -> Iterator[dict[str, Any]]:
        """What the loader hands to this rank, one dictionary per micro-batch, on the host."""
        b, s = self.case.batch, self.case.seq
        while True:
            host = {
                "tokens": torch.zeros(b, s, dtype=torch.long),
                "labels": torch.zeros(b, s, dtype=torch.long),
                "loss_mask": torch.ones(b, s),
            }
            if self.plan.attention_mask:
                host["attention_mask"] = torch.zeros(b, 1, s, s, dtype=torch.bool)
            host["position_ids"] = torch.arange(s).repeat(b, 1)
            yield host

    def get_batch(self, batches: Iterator[dict[str, Any]], stage: int | None) -> list[Any]:
        """The first rank of a tensor parallel group copies all to the device; the others receive what their stage
        needs. Then each context parallel rank keeps its two slices."""
        from megatron.core import parallel_state as ps

        first = ps.is_pipeline_first_stage(ignore_virtual=stage is None, vp_stage=stage)
        last = ps.is_pipeline_last_stage(ignore_virtual=stage is None, vp_stage=stage)
        if not (first or last):
            return [None] * len(BATCH)
        host = next(batches)
        predicts = ps.is_pipeline_last_stage() and self.chunks[-1].config.mtp_num_layers
        wanted = (
            set(BATCH)
            if self.plan.pp == 1 or predicts
            else {
                "attention_mask",
                *(("tokens", "position_ids") if ps.is_pipeline_first_stage() else ()),
                *(("labels", "loss_mask") if ps.is_pipeline_last_stage() else ()),
            }
        )
        if ps.get_tensor_model_parallel_rank() == 0:
            batch = {n: host[n].cuda(non_blocking=True) for n in BATCH if n in host}
        else:
            batch = {n: torch.empty_like(host[n], device="cuda") for n in BATCH if n in host and n in wanted}
        if self.plan.cp > 1:
            from megatron.core.utils import get_batch_on_this_cp_rank

            batch = get_batch_on_this_cp_rank(batch)
        return [batch.get(n) for n in BATCH]

    def forward_step(self, batches: Iterator[dict[str, Any]], model: Any) -> tuple[Any, Callable[..., Any]]:
        from megatron.core.utils import get_attr_wrapped_model

        self.mark("chunk")
        stage = get_attr_wrapped_model(model, "vp_stage")
        tokens, labels, loss_mask, attention_mask, positions = self.get_batch(batches, stage)
        further = {"loss_mask": loss_mask} if self.chunks[-1].config.mtp_num_layers else {}
        further |= packing.params(self.case, tokens if tokens is not None else labels)
        out = model(tokens, positions, attention_mask, labels=labels, **further)
        self.mark("chunk forward")
        return out, functools.partial(loss_of, loss_mask)

    def __call__(self, batch: Batch) -> None:
        for chunk in self.chunks:
            chunk.zero_grad_buffer()
        self.optimizer.zero_grad()
        iterators = [self.batches() for _ in self.chunks]
        many = bool(self.plan.virtual_stages)
        self.schedule(
            forward_step_func=self.forward_step,
            data_iterator=iterators if many else iterators[0],
            model=self.chunks if many else self.chunks[0],
            num_microbatches=self.plan.microbatches or 2 * self.plan.pp,
            seq_length=self.case.seq,
            micro_batch_size=self.case.batch,
            decoder_seq_length=self.case.seq,
            forward_only=False,
        )
        if self.plan.empty_unused_memory_level:
            torch.cuda.empty_cache()
        self.mark("backward")
        self.optimizer.step()
        if self.plan.empty_unused_memory_level > 1:
            torch.cuda.empty_cache()
        self.mark("step")

    # -- who owns what --

    def leaves(self) -> list[Any]:
        return list(self.model.parameters())

    def owners(self) -> Iterator[tuple[str, Iterable[Any]]]:
        buffers = [b for chunk in self.chunks for b in chunk.buffers + chunk.expert_parallel_buffers]
        yield "parameters", [b.param_data for b in buffers if b.param_data is not None]
        yield "gradients", [b.grad_data for b in buffers]
        yield "gradients", [p.grad for p in self.model.parameters() if p.grad is not None]
        for each in self.optimizers:
            names = ("shard_fp32_from_float16_groups", "fp32_from_float16_groups")
            masters = [t for n in names for t in meter.tensors_in(getattr(each, n, None))]
            inner = getattr(each, "optimizer", None)
            masters += [t for t in getattr(inner, "param_to_fp32_param", {}).values() if t.is_cuda]
            yield "master", masters
            yield "gradients", [t.grad for t in masters if t.grad is not None]
            yield "optimizer", meter.state_tensors(inner) if inner is not None and hasattr(inner, "state") else []
        from megatron.core.parallel_state import get_global_memory_buffer

        yield "communication", list(get_global_memory_buffer().buffer.values())


def loss_of(loss_mask: Any, out: Any) -> tuple[Any, Any, dict[str, Any]]:
    losses = out.view(-1).float()
    mask = loss_mask.view(-1).float()
    loss = torch.sum(losses * mask)
    tokens = mask.sum().clone().detach().to(torch.int)
    return loss, tokens, {"lm loss": torch.cat([loss.clone().detach().view(1), tokens.view(1)])}
