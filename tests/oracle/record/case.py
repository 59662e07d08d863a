# SPDX-License-Identifier: Apache-2.0
"""The case: one run of one model, described by one flat JSON object.

Only what differs from the defaults needs to be stated; results carry the case as it was given.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterable, Literal, Mapping

from . import schema
from .plans import GENERATE, INTERLEAVED, READ_BY, SEE_IMAGES, Compile, Dtype, Fsdp1, Lora, Mixed, Plan, Trainer, read_plan
from .schema import CaseError, key, listed, mapped

Given = dict[str, Any]  # a case as it was written


@dataclass(frozen=True)
class Case:
    model: str  # of models/catalogue, or a folder with its config.json (--configs)
    id: str = ""
    note: str = ""  # not read
    config: dict[str, Any] | None = None  # config.json itself, in place of the model's
    preprocessor: dict[str, Any] | None = None  # and preprocessor_config.json
    overrides: dict[str, Any] = mapped()  # entries of config.json: {"text_config.num_hidden_layers": 4}
    mode: Literal["train", "infer"] = "train"

    # -- the batch --
    batch: int = 1  # samples per micro-batch
    seq: int = 512  # tokens per sample that the decoder (or encoder) sees, image tokens included
    lengths: list[int] = listed()  # tokens of each sample (of a pair: chosen, rejected; of grpo and rloo: prompts), in
    # the order in which batches take them, and again from the first; a batch is as long as its longest sample (all have
    # seq)
    pad_to_multiple_of: int | None = None  # with lengths: and then up to a multiple
    target_seq: int | None = None  # decoder tokens of an encoder-decoder model (as seq)
    images: int = 1  # images per sample of a multimodal model; tiles where it cuts images into tiles
    image_size: list[int] | None = None  # height, width in pixels (what the preprocessor makes)
    video: str | None = None  # FRAMESxHEIGHTxWIDTH of one video per sample
    audio: int | None = None  # seconds of one sound per sample
    labels: bool = True  # compute the loss inside the model; false: the mean of the output
    padding: bool | Literal["mask"] = False  # an attention mask with padded positions | mask (trainers): the mask
    # has to be kept, as if one position were padded, and every label counts
    packing: bool = False  # rows of several texts: position_ids begin anew, no attention mask

    # -- precision --
    dtype: Dtype = "bf16"  # of the weights
    autocast: Literal["bf16", "fp16"] | None = None
    scaler: bool = False  # torch.amp.GradScaler
    quant: Literal["nf4", "fp4", "int8", "int8wo", "int4wo", "float8wo"] | None = None  # linear layers but the head:
    # by bitsandbytes; ...wo by torchao, weights only
    quant_double: bool = key("quant.double", True)  # 4 bits: scales are quantised too
    quant_blocksize: int = key("quant.blocksize", 64)  # 4 bits: weights that share a scale
    quant_storage: Dtype | None = key("quant.storage", None)  # 4 bits: bnb_4bit_quant_storage (bytes)
    quant_compute_dtype: Dtype | None = key("quant.compute_dtype", None)  # 4 bits (as the weights)
    quant_experts: bool = key("quant.experts", False)  # experts that are one parameter too, as axolotl loads them
    quant_skip: list[str] = listed("quant.skip")  # modules that are not quantised: ends of their names
    from_pretrained: bool = False  # quantised and loaded by transformers' from_pretrained(), not by hand
    kbit_prepare: bool = True  # peft.prepare_model_for_kbit_training after quant
    float8: Literal["tensorwise", "rowwise", "rowwise_with_gw_hp"] | None = None  # torchao: linear layers but the head

    # -- training --
    optimizer: str = "adamw"  # runner/optimizers.py
    param_groups: Literal["one", "trainer"] = "one"  # trainer: norms and biases apart, as the HF Trainer has it
    freeze: list[str] = listed()  # name prefixes of parameters that do not train
    train_only: list[str] = listed()  # name prefixes of the only parameters that train
    lora: Lora | None = None
    adapter_merged: bool = key("adapter.merged", False)  # infer: merge_and_unload()
    grad_accum: int = 1  # micro-batches per optimizer step
    zero_grad: Literal["none", "zero"] = "none"  # set_to_none or not
    zero_grad_at: Literal["after_step", "before_forward", "before_backward"] = "after_step"
    clip: float | None = None  # norm for clip_grad_norm_
    main_grads: Literal["fp32"] | None = None  # gradients summed in fp32, and fp32 copies of the weights updated
    ema: Literal["swa_utils", "diffusers", "diffusers_foreach"] | None = None  # a moving average of the weights
    loss: Literal["default", "shifted", "no_upcast", "liger"] = "default"  # shifted: with a copy of the fp32 logits |
    # no_upcast: logits as they are | liger: the fused linear cross entropy
    dropout: float | None = None  # replaces every dropout probability of the configuration
    hold_outputs: bool = False  # keep the model's output object until the next step has one
    checkpointing: Literal["none", "full", "full_reentrant", "selective", "selective_matmuls"] = "none"  # selective:
    # attention's output kept; and every second matrix product
    every_n_layers: int = 1  # that are checkpointed, of transformers
    offload_activations: bool | Literal["layers"] = False  # saved tensors on the host (save_on_cpu, pinned), or a
    # trainer's own offloading | layers: only layers' inputs (Unsloth)
    steps: int = 2  # optimizer steps, or repetitions of an inference

    # -- inference --
    use_cache: bool | None = None  # (the model's: DynamicCache even when training)
    decode: int = 8  # tokens generated after the prompt
    cache: Literal["dynamic", "static", "none"] = "dynamic"
    logits_to_keep: int = 1  # 0 computes the logits of every prompt token

    # -- how it runs --
    attention: Literal["sdpa", "eager", "flex_attention", "flash_attention_2"] = "sdpa"
    sdpa_backend: Literal["flash", "efficient", "math", "cudnn", "default"] = "flash"  # flash: efficient, math where
    # flash cannot | default: as the device chooses
    kernels: Literal["liger", "liger_layers", "cce"] | None = None  # liger_layers: without the fused loss | cce: cut
    # cross-entropy in place of head and loss
    load: Literal["to", "warmup"] = "to"  # parameter by parameter | from_pretrained's one block first
    allocator: str = ""  # PYTORCH_CUDA_ALLOC_CONF
    gpu_gib: float = 2000  # memory of the device, GiB
    memory_fraction: float | None = None  # set_per_process_memory_fraction
    capability: int = 90  # compute capability of the device times ten
    seed: int = 0

    trainer: Trainer | None = None  # a library's trainer in place of the plain loop
    compile: Compile | None = None
    parallel: Plan | None = None  # one rank of a distributed job


def read(given: Mapping[str, Any]) -> Case:
    """The case with every default filled in.  Raises CaseError."""
    plain = {k: v for k, v in given.items() if k != "parallel"}
    plan = read_plan(given["parallel"]) if given.get("parallel") else None
    case = dataclasses.replace(schema.read(Case, {"id": identity(given), **plain}), parallel=plan)
    if plan:
        refuse_contradictions(case, plan)
    if case.trainer:
        refuse_unread(case, case.trainer)
    return case


def refuse_contradictions(case: Case, plan: Plan) -> None:
    if not 0 <= plan.rank < plan.world:
        raise CaseError(f"rank {plan.rank} of {plan.world}")
    also = {"tp": ("zero0", "zero1", "zero2", "zero3"), "cp": ("fsdp2",) if case.trainer else ()}
    for name, size in (("tp", plan.tp), ("pp", plan.pp), ("cp", plan.cp)):
        if size > 1 and plan.kind not in (name, "native", "megatron", *also.get(name, ())):
            raise CaseError(f"{name} is not for kind {plan.kind}")
    if case.mode != "train":
        raise CaseError("parallel cases train")
    if case.scaler and (plan.kind not in ("ddp", "fsdp2") or case.trainer):
        raise CaseError("a GradScaler is for kinds ddp and fsdp2")
    if case.lengths and case.grad_accum > 1 and not (case.trainer and case.trainer.kind in GENERATE):
        raise CaseError("lengths of a rank are of one micro-batch a step")
    if plan.kind in INTERLEAVED and case.grad_accum > 1:
        raise CaseError("a pipeline's micro-batches are its microbatches")
    if getattr(plan, "transformer_cls_names_to_wrap", None) and not case.trainer:
        raise CaseError("classes to wrap are named to a trainer")
    if isinstance(plan, Fsdp1) and plan.strategy.lstrip("_").startswith("HYBRID") != bool(plan.hybrid):
        raise CaseError("hybrid belongs to the HYBRID strategies")


NOT_OF_TRAINERS = (  # fields that a trainer's loop does not read
    "mode",
    "labels",
    "packing",
    "scaler",
    "float8",
    "param_groups",
    "adapter_merged",
    "zero_grad",
    "zero_grad_at",
    "main_grads",
    "ema",
    "loss",
    "hold_outputs",
    "use_cache",
    "decode",
    "cache",
    "logits_to_keep",
)


def refuse_unread(case: Case, plan: Trainer) -> None:
    """No recording of a trainer claims what the trainer did not run."""
    fields = {f.name: f for f in dataclasses.fields(Case)}
    unread = [schema.key_of(fields[name]) for name in NOT_OF_TRAINERS if getattr(case, name) != fields[name].default]
    if unread:
        raise CaseError(f"a trainer does not read {', '.join(unread)}")
    has_images = case.images not in (0, Case.images) or case.image_size
    has_media = (has_images and plan.kind not in (*SEE_IMAGES, *GENERATE)) or case.video or case.target_seq
    if has_media and plan.kind != "hf":
        raise CaseError(f"samples of {plan.kind} have no images, and no targets of another length")
    if case.kernels == "liger_layers" or (case.kernels == "cce" and plan.kind != "hf"):
        raise CaseError(f"{plan.kind} has no kernels of {case.kernels}")
    if case.checkpointing == "selective_matmuls" or case.offload_activations == "layers":
        raise CaseError("a trainer has neither selective_matmuls nor offloaded layers")
    if plan.kind == "hf" and (case.checkpointing == "selective" or case.offload_activations):
        raise CaseError("transformers' Trainer has neither selective checkpointing nor offloaded activations")
    if plan.kind != "hf" and case.lora and (case.lora.also_train or not case.lora.autocast_adapter_dtype):
        raise CaseError("TRL makes the adapter: neither also_train nor autocast_adapter_dtype is read")
    if case.compile and case.compile != Compile(mode=case.compile.mode):
        raise CaseError("of compile a trainer reads mode")
    if isinstance(case.parallel, Mixed) and plan.kind != "llama_factory_v1":
        if {case.parallel.param_dtype, case.parallel.reduce_dtype} - {None, case.autocast}:
            raise CaseError("accelerate takes FSDP's dtypes from autocast: neither param_dtype nor reduce_dtype is read")
    if plan.documents > 1 and not plan.packing:
        raise CaseError("documents are of packed rows; without packing seq is the length of one")
    for name, kinds in READ_BY.items():
        if plan.kind not in kinds and getattr(plan, name) != getattr(Trainer, name):
            raise CaseError(f"{plan.kind} does not read {name}")


def identity(given: Mapping[str, Any]) -> str:
    """A name that stays the same as long as the case does."""
    body = {k: v for k, v in given.items() if k not in ("id", "note")}
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:8]
    return f"{given.get('model')}-{digest}"


def read_files(paths: Iterable[Path]) -> list[Given]:
    """Cases of JSON files (one object or a list) and JSONL files (one object a line); results count as their cases."""
    cases: list[Given] = []
    for path in paths:
        text = path.read_text()
        if path.suffix == ".jsonl":
            found = [json.loads(line) for line in text.splitlines() if line.strip()]
        else:
            value = json.loads(text)
            found = value if isinstance(value, list) else [value]
        cases += [c["case"] if isinstance(c.get("case"), dict) else c for c in found]
    return [{"id": identity(c), **c} for c in cases]
