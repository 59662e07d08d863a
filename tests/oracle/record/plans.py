# SPDX-License-Identifier: Apache-2.0
"""The nested objects of a case: one rank of a distributed job, a trainer, torch.compile, adapters.

Names are the frameworks' own.  None stands for what the library chooses by itself, given in parentheses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Mapping

from . import schema
from .schema import CaseError, listed, mapped

Dtype = Literal["bf16", "fp16", "fp32"]


@dataclass(frozen=True)
class Lora:
    """An adapter of peft."""

    method: Literal["lora", "ia3", "oft", "prompt", "ptuning", "prefix"] = "lora"
    r: int = 16
    alpha: float = 32
    dropout: float = 0.0
    bias: Literal["none", "all", "lora_only"] = "none"
    target_modules: str | list[str] | None = "all-linear"
    exclude_modules: list[str] | None = None
    target_parameters: list[str] | None = None
    feedforward_modules: list[str] | None = None  # ia3
    oft_block_size: int = 32  # oft
    layers_to_transform: list[int] | None = None
    modules_to_save: list[str] | None = None
    rank_pattern: dict[str, int] = mapped()
    alpha_pattern: dict[str, float] = mapped()
    dora: bool = False
    rslora: bool = False
    lora_bias: bool = False
    autocast_adapter_dtype: bool = True
    num_virtual_tokens: int = 20  # prompt, ptuning, prefix
    encoder_hidden_size: int | None = None  # ptuning, prefix
    prefix_projection: bool = False  # prefix
    also_train: list[str] = listed()  # name prefixes of parameters that train besides the adapters
    kbit_layers: bool = False  # over layers quantised by hand: peft's classes for bitsandbytes


@dataclass(frozen=True)
class Plan:
    """What every kind of parallelism has."""

    kind: str
    dp: int = 1  # data parallel ranks
    tp: int = 1  # tensor parallel ranks, next to one another
    pp: int = 1  # pipeline ranks, next to one another (kind pp); farthest apart (native, megatron)
    cp: int = 1  # context parallel ranks
    rank: int = 0  # the rank that is measured, of dp * cp * tp * pp
    local_world: int | None = None  # ranks per node (all on one)

    @property
    def world(self) -> int:
        return self.dp * self.cp * self.tp * self.pp


@dataclass(frozen=True)
class Mixed(Plan):
    param_dtype: Dtype | None = None  # of gathered parameters (as the model)
    reduce_dtype: Dtype | None = None  # of reduced gradients (as param_dtype)


@dataclass(frozen=True)
class Sharded(Mixed):
    wrap: str = "layer"  # units: layer (each block) | pairs, pairs3, ... (that many blocks) | root (the
    # whole) | fine (attention, MLP, block) | titan (embedding, blocks, norm with head)
    hybrid: int | None = None  # ranks per shard group, replicated dp / hybrid times (shard over all)
    offload: bool = False  # parameters, gradients and optimizer state on the host
    sync_each: bool = False  # reduce gradients after every micro-batch, not only after the last
    transformer_cls_names_to_wrap: list[str] = listed()  # of a trainer: classes whose modules are units (transformers')


@dataclass(frozen=True)
class Ddp(Plan):
    """DistributedDataParallel."""

    bucket_cap_mb: float | None = None  # MiB (25, with a first bucket of 1)
    gradient_as_bucket_view: bool = False
    static_graph: bool = False
    find_unused_parameters: bool | None = None  # (no; of a trainer: what it chooses)
    broadcast_buffers: bool = True
    hook: Literal["bf16", "fp16"] | None = None  # compress gradients for the reduction
    sync_each: bool = False


@dataclass(frozen=True)
class Fsdp1(Sharded):
    """FullyShardedDataParallel.  wrap: layer | root; hybrid is needed by the HYBRID strategies."""

    strategy: Literal["FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "_HYBRID_SHARD_ZERO2"] = "FULL_SHARD"
    buffer_dtype: Dtype | None = None  # with param_dtype
    use_orig_params: bool = False
    limit_all_gathers: bool = True
    forward_prefetch: bool = False
    backward_prefetch: Literal["BACKWARD_PRE", "BACKWARD_POST"] | None = "BACKWARD_PRE"
    sync_module_states: bool = False


@dataclass(frozen=True)
class Fsdp2(Sharded):
    """fully_shard."""

    output_dtype: Dtype | None = None  # of the root's output
    reshard_after_forward: bool | int = True  # or ranks to reshard to
    root_reshard: bool | int | None = None  # the same for the root (no)
    prefetch: int = 0  # units gathered ahead explicitly, forward and backward
    meta_init: bool = False  # modules are made on the meta device, and their parts after they are cut
    rotate: Literal["allgather", "alltoall"] = "allgather"  # of context parallelism, which a trainer has


@dataclass(frozen=True)
class Zero(Plan):
    """DeepSpeed's ZeRO, stages 0 to 2."""

    half: Literal["bf16", "fp16"] | None = "bf16"  # the engine's mixed precision
    hf_auto: bool = False  # buckets that the HF Trainer writes for "auto": reduce hidden ** 2, prefetch
    # 0.9 * hidden ** 2, persistence threshold 10 * hidden elements
    contiguous_gradients: bool | None = None  # (True)
    overlap_comm: bool | None = None  # (True for stage 3, else False)
    reduce_scatter: bool | None = None  # (True)
    reduce_bucket_size: int | None = None  # elements (5e8)
    allgather_bucket_size: int | None = None  # elements (5e8)
    allgather_partitions: bool | None = None  # (True)
    round_robin_gradients: bool | None = None  # (False)
    use_multi_rank_bucket_allreduce: bool | None = None  # (True)
    check_grad_overflow: bool | None = None  # bf16: look for overflow
    grad_accum_dtype: Dtype | None = None  # (as the model)
    communication_data_type: Dtype | None = None  # (as the gradients)
    offload_optimizer: Literal["cpu"] | None = None  # fp32 weights, their gradients and optimizer state on the host
    sequence_parallel_size: int = 1  # ranks that share each sequence, next to one another (Ulysses)
    seq_parallel_communication_data_type: Dtype | None = None  # (fp32)

    @property
    def world(self) -> int:
        return super().world * self.sequence_parallel_size


@dataclass(frozen=True)
class Zero3(Zero):
    zero_init: bool = False  # parameters are cut as they are made: deepspeed.zero.Init
    stage3_prefetch_bucket_size: int | None = None  # elements (5e7)
    stage3_param_persistence_threshold: int | None = None  # elements (1e5)
    stage3_max_live_parameters: int | None = None  # elements (1e9)
    stage3_max_reuse_distance: int | None = None  # elements (1e9)
    stage3_gather_16bit_weights_on_model_save: bool | None = None  # (False)
    sub_group_size: int | None = None  # elements (1e9)
    zero_hpz_partition_size: int | None = None  # ranks of a second, nearer partition (1)
    offload_param: Literal["cpu"] | None = None


@dataclass(frozen=True)
class Tp(Mixed):
    """DTensor tensor parallelism of Llama-shaped models; with dp above 1 also fully_shard over dp."""

    wrap: str = "layer"
    meta_init: bool = False  # modules are made on the meta device, and their parts after they are cut
    sequence_parallel: bool = False
    loss_parallel: bool = False  # logits stay cut; the loss is computed from them outside of the model, unshifted
    tp_plan: Literal["auto"] | None = None  # auto: transformers' own, of the configuration; from_pretrained() reads this
    # rank's parts (DistributedConfig(tp_size=tp)); of one data parallel rank
    ep: int = 1  # with tp_plan auto: ranks that experts are cut over (ep_size), the tensor parallel ones
    ep_implementation: Literal["auto", "all_to_all", "all_reduce"] = "auto"
    imbalance: float = 1.0  # tokens that come to this rank's experts, over the mean


Schedule = Literal[
    "GPipe", "1F1B", "Interleaved1F1B", "LoopedBFS", "InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV"
]


@dataclass(frozen=True)
class Pp(Plan):
    """torch.distributed.pipelining of Llama-shaped models; batch is the whole batch of the step."""

    meta_init: bool = False
    schedule: Schedule = "1F1B"
    chunks: int = 1  # stages per rank
    microbatches: int | None = None  # parts of the batch (2 * pp)


@dataclass(frozen=True)
class Native(Mixed):
    """All of PyTorch's own at once, in torchtitan's order; batch is that of a micro-batch."""

    models: Literal["transformers", "torchtitan"] = "transformers"  # whose modules; torchtitan's by its own trainer
    meta_init: bool = False
    sequence_parallel: bool = False
    loss_parallel: bool = False
    schedule: Schedule = "1F1B"
    chunks: int = 1
    microbatches: int | None = None
    ac: Literal["full", "op", "every2", "every3", "every4"] | None = None  # checkpoints: each block | every other
    # matrix product is kept | one block of so many: the first, of torchtitan's models the last
    stage_layers: list[int] = listed()  # of torchtitan's models: blocks of each stage (as torchtitan splits them)
    reshard_after_forward: bool | None = None  # (as torchtitan: not with a pipeline)
    rotate: Literal["allgather", "alltoall"] = "allgather"  # of context parallelism
    sync_each: bool = True  # without a pipeline
    ep: int = 1  # expert parallel ranks, of dp * cp * tp: torchtitan's experts, with meta_init
    etp: int = 1  # tensor parallel ranks within an expert, of torchtitan's models: 1 or tp
    spmd_backend: Literal["partial_dtensor", "spmd_types"] = "partial_dtensor"  # of ep; spmd_types without tp
    imbalance: float = 1.0  # tokens that come to this rank's experts, over the mean


@dataclass(frozen=True)
class Megatron(Plan):
    """Megatron-Core's GPTModel; batch is that of a micro-batch, seq before it is cut for cp."""

    impl: Literal["te", "local"] = "te"  # Transformer Engine's layers | the library's own
    jit: bool = False  # small functions fused by torch.compile; false: --disable-jit-fuser
    attention_backend: Literal["flash", "unfused"] = "flash"  # of te
    fp8: Literal["delayed", "tensorwise", "blockwise"] | None = None  # of te: the recipe, in the hybrid format
    ep: int = 1  # expert parallel ranks, of dp * cp * tp
    etp: int | None = None  # tensor parallel ranks within an expert (as tp)
    sequence_parallel: bool = False
    virtual_stages: int | None = None  # model chunks per pipeline rank: the interleaved schedule
    microbatches: int | None = None  # (2 * pp)
    overlap_p2p: bool = True  # of the interleaved schedule
    first_stage_layers: int | None = None  # uneven pipeline
    last_stage_layers: int | None = None
    account_embedding: bool = False  # these count as a layer
    account_loss: bool = False
    recompute: Literal["selective", "full"] | None = None
    recompute_method: Literal["uniform", "block"] | None = None  # of full
    recompute_layers: int | None = None  # of full: layers per unit, or layers of each stage
    recompute_modules: list[str] | None = (
        None  # of selective: core_attn, moe_act, layernorm, mla_up_proj, mlp, moe, ...
    )
    distribute_saved_activations: bool = False
    distributed_optimizer: bool = True
    grad_reduce_in_fp32: bool = True
    overlap_grad_reduce: bool = False
    overlap_param_gather: bool = False
    align_grad_reduce: bool = True
    bucket_size: int | None = None  # elements, with overlap_grad_reduce (max of 40e6, 1e6 per replica)
    wrap_on_side_stream: bool = True  # as newer training scripts do
    precision_aware: bool = False  # optimizer states in the following data types
    main_grads_dtype: str = "fp32"
    main_params_dtype: str = "fp32"
    exp_avg_dtype: str = "fp32"
    exp_avg_sq_dtype: str = "fp32"
    offload_fraction: float = 0.0  # of the optimizer, to the host
    wgrad_fusion: bool = True  # weight gradients are added to the main gradients by the product itself
    fusions: bool = True  # bias with activation, bias with dropout, masked softmax
    bias_activation_fusion: bool | None = None  # (as fusions)
    bias_dropout_fusion: bool | None = None  # (as fusions)
    rope_fusion: bool = True  # rotary embedding in one kernel (te; not for MLA)
    softmax_fp32: bool = True
    query_key_layer_scaling: bool = False  # of te: with NVTE_APPLY_QK_LAYER_SCALING
    cross_entropy_fusion: Literal["native", "te", "te_in_place"] | None = None  # te_in_place: as releases that
    # overwrote the logits
    make_vocab_size_divisible_by: int = 128  # for each tensor parallel rank
    extra_tokens: int = 0  # added by the tokenizer to the vocabulary before it is padded
    attention_mask: bool = False  # the loader makes an attention mask
    cp_comm_type: Literal["p2p", "all_gather", "a2a"] = "p2p"
    grouped_gemm: bool = True  # experts as one grouped product (te); false: one after another
    dispatcher: Literal["alltoall", "allgather"] = "alltoall"
    capacity_factor: float | None = None
    pad_to_capacity: bool = False
    permute_fusion: bool = False
    load_balancing: Literal["aux_loss", "seq_aux_loss", "global_aux_loss", "sinkhorn", "none"] = "aux_loss"
    aux_loss_coeff: float | None = None  # (0.01 where a loss balances)
    router_dtype: Literal["fp32", "fp64"] | None = None
    router_groups: int | None = None  # experts are chosen within that many groups
    router_group_topk: int | None = None
    imbalance: float = 1.0  # tokens that come to this rank's experts, over the mean
    shared_expert_overlap: bool = False  # shared experts run on a stream of their own
    input_jitter_eps: float | None = None  # noise on what the router sees
    force_load_balancing: bool = False  # random logits in place of the router's
    optimizer_instances: int = 1  # replicas of the distributed optimizer's shards
    deallocate_pipeline_outputs: bool = True  # a stage keeps only the graph of what it has sent
    microbatch_group: int | None = None  # micro-batches that a chunk runs in a row (pp)
    per_token_loss: bool = False  # gradients are divided by tokens after backward
    decoupled_lr: float | None = None  # of the embedding and the head
    fp8_param: bool = False  # parameters are kept in FP8
    empty_unused_memory_level: Literal[0, 1, 2] = 0  # empty the cache after backward (1) and after the step (2)
    packed_sequences: int = 0  # of equal length, in a row of seq tokens, as Megatron-Bridge packs them; 0: not packed


KINDS: dict[str, type[Plan]] = {
    "ddp": Ddp,
    "fsdp1": Fsdp1,
    "fsdp2": Fsdp2,
    "zero0": Zero,
    "zero1": Zero,
    "zero2": Zero,
    "zero3": Zero3,
    "tp": Tp,
    "pp": Pp,
    "native": Native,
    "megatron": Megatron,
}
INTERLEAVED = ("pp", "native", "megatron")  # forward and backward passes of micro-batches interleave


def read_plan(given: Mapping[str, Any]) -> Plan:
    """The object "parallel" of a case."""
    kind = KINDS.get(given.get("kind", ""))
    if kind is None:
        raise CaseError(f"parallel needs a kind: {', '.join(KINDS)}")
    return schema.read(kind, given, "parallel")


@dataclass(frozen=True)
class Trainer:
    """A library's trainer around the step."""

    kind: Literal["hf", "sft", "dpo", "kto", "reward", "orpo", "cpo", "grpo", "rloo", "online_dpo", "gkd", "llama_factory_v1"]
    prompt: int = 0  # tokens of a prompt, out of seq, without loss; of those that generate: besides completion
    turns: int = 1  # sft with assistant_only_loss: exchanges of a conversation, whose questions have prompt in all
    documents: int = 1  # sft with packing: pieces that seq is made of, all alike
    packing: bool = False  # sft: put the pieces together again
    padding_free: bool = False  # sft: one row for the whole batch
    reference: Literal["precomputed"] | None = None  # dpo, kto (what the trainer does by itself)
    loss_type: str | list[str] | None = None  # (the trainer's)
    generations: int = 4  # grpo, rloo: completions per prompt
    completion: int = 64  # grpo, rloo, online_dpo: tokens generated; seq is not read | gkd: max_new_tokens
    teacher: str | None = None  # gkd: a model of the catalogue (the case's own)
    teacher_dtype: Dtype | None = None  # (the case's)
    teacher_quant: Literal["nf4", "int8"] | None = None
    beta: float = 0.0  # grpo, rloo: weight of the KL term; above 0 there is a reference
    iterations: int = 1  # grpo, rloo: optimizer steps over one generation
    steps_per_generation: int | None = None  # grpo, rloo: micro-batches made by one generation (grad_accum)
    temperature: float = 1.0
    trl: str | None = None  # dpo, kto: the version (the installed one)
    program: Literal["trl", "llama_factory"] = "trl"  # hf, reward, dpo and kto of adapters: whose trainers; it loads the model too
    pure_bf16: bool = False  # llama_factory: what trains keeps its dtype
    pref_ftx: float = 0.0  # llama_factory, dpo: weight of the chosen rows' likelihood
    logging_steps: int = 500
    eval_samples: int = 0  # of the data that is evaluated where args say so: eval_strategy, eval_steps, ...
    compute_metrics: bool = False  # hf: such a function is given, so that predictions are kept
    resume: bool = False  # from a checkpoint that was saved after a step
    preprocess: Literal["argmax"] | None = None  # hf: of the logits, before they are kept for it
    args: dict[str, Any] = mapped()  # more arguments of the trainer's configuration, as they are called there


PREFERENCES = ("dpo", "kto", "reward", "orpo", "cpo")
GENERATE = ("grpo", "rloo")
DISTIL = ("gkd",)
ONLINE = ("online_dpo",)  # pairs of completions, generated in the training step
SEE_IMAGES = ("sft", "dpo", "kto")  # of TRL's trainers, those whose collators make rows with images here
READ_BY: dict[str, tuple[str, ...]] = {  # fields of a Trainer that not every kind reads
    "prompt": ("sft", *PREFERENCES, *GENERATE, *ONLINE, *DISTIL),
    "turns": ("sft",),
    "documents": ("sft",),
    "packing": ("sft",),
    "padding_free": ("sft",),
    "reference": ("dpo", "kto"),
    "loss_type": ("sft", "dpo", "kto", "cpo", "grpo", *ONLINE),
    **dict.fromkeys(("generations", "beta", "iterations", "steps_per_generation", "temperature"), GENERATE),
    "completion": (*GENERATE, *ONLINE, *DISTIL),
    **dict.fromkeys(("teacher", "teacher_dtype", "teacher_quant"), DISTIL),
    "trl": ("dpo", "kto"),
    "pref_ftx": ("dpo",),
    **dict.fromkeys(("program", "pure_bf16"), ("hf", "dpo", "kto", "reward")),
    "preprocess": ("hf",),
    "resume": ("hf", "sft", *PREFERENCES),
}


@dataclass(frozen=True)
class Compile:
    """torch.compile."""

    what: Literal["model", "layers", "none"] = "model"  # layers: each block alone | none: eager, to compare with
    mode: Literal["reduce-overhead", "max-autotune-no-cudagraphs", "max-autotune"] | None = None
    dynamic: bool = False
    fullgraph: bool = False
    optimizer: bool = False  # the optimizer's step too
    options: dict[str, Any] = mapped()  # Inductor's options by name
    budget: float | None = None  # activation_memory_budget of functorch, 0 to 1
