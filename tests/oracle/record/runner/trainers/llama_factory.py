# SPDX-License-Identifier: Apache-2.0
"""LLaMA-Factory 0.9: how it loads a model (model/loader.py, model/adapter.py, model/model_utils/checkpointing.py), and its
trainers for preferences (train/dpo/trainer.py, train/kto/trainer.py, train/trainer_utils.py), which inherit from TRL's before
1.0 what is written here as well: the same operations on transformers' Trainer. Rewards: value_head.py.

Adapters are there before the trainer; without them the reference would be another model."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint
from transformers import Trainer

from ... import phantom
from ...case import Case
from ...catalogue import Config, Model
from ...plans import Zero3
from .. import adapters, models
from . import data, value_head
from .value_head import RewardTrainer as RewardTrainer

IGNORED = -100
TEXTS = ("input_ids", "attention_mask", "token_type_ids")
SEEN = ("pixel_values", "image_sizes", "image_grid_thw")  # what kto passes on of images
BETA = 0.1
AVERAGED = ("ipo", "orpo", "simpo")  # losses of log-probabilities per token
WITHOUT_REFERENCE = ("orpo", "simpo")


def load(case: Case, config: Config, partition: Any = None, on_host: bool = False) -> Any:
    """load_model: checkpoints around what trains, then adapters, then what trains in fp32."""
    assert case.trainer
    bare = dataclasses.replace(case, lora=None, checkpointing="none", kbit_prepare=False)
    net = models.build(bare, config, partition, on_host)
    if case.quant:  # what peft asks, before it makes embeddings require gradients
        net.is_loaded_in_4bit, net.is_loaded_in_8bit = case.quant == "nf4", case.quant == "int8"
    if case.checkpointing != "none":
        of_layers = of_trainable_layers(partial(checkpoint, use_reentrant=case.checkpointing == "full_reentrant"))
        net._set_gradient_checkpointing(enable=True, gradient_checkpointing_func=of_layers)
        net.config.use_cache = False
    if case.lora:
        net = adapters.add(net, case)
    keeps = case.trainer.pure_bf16 or (isinstance(case.parallel, Zero3) and not case.quant)
    for p in net.parameters():
        if p.requires_grad and not keeps:
            p.data = p.data.to(torch.float32)
    return value_head.of(net, on_host) if case.trainer.kind == "reward" else net


def reference(case: Case, config: Config, partition: Any = None, on_host: bool = False) -> Any:
    """create_ref_model(): as load_model() leaves what does not train; none beside adapters."""
    bare = dataclasses.replace(case, lora=None, checkpointing="none", kbit_prepare=False, freeze=[], train_only=[])
    has_none = case.lora or (case.trainer and case.trainer.loss_type in WITHOUT_REFERENCE)
    return None if has_none else models.build(bare, config, partition, on_host).requires_grad_(False).eval()


def of_trainable_layers(checkpointed: Any) -> Any:
    """get_custom_gradient_checkpointing_func"""

    def call(func: Any, *args: Any, **kwargs: Any) -> Any:
        bound = func.func if isinstance(func, partial) else func
        module = func.args[0] if isinstance(func, partial) and func.args else bound.__self__  # transformers 5.23 binds forward() itself
        if not any(p.requires_grad for p in module.parameters()):
            return func(*args, **kwargs)
        for arg in args:
            if torch.is_tensor(arg) and torch.is_floating_point(arg):
                arg.requires_grad_(True)
                break
        return checkpointed(func, *args, **kwargs)

    return call


def media_batch(case: Case, model: Model, batch: dict[str, Any]) -> dict[str, Any]:
    """data/collator.py: positions of models with get_rope_index(), whose values are of no matter here, and for supervised
    training floats in the dtype of computation."""
    assert case.trainer
    if model.type.startswith(("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_5", "glm4v", "glm46v")):
        batch.pop("mm_token_type_ids", None)
        batch["position_ids"] = torch.zeros(4, *batch["input_ids"].shape, dtype=torch.int64)
        batch["rope_deltas"] = torch.zeros(len(batch["input_ids"]), 1, dtype=torch.int64)
    if case.trainer.kind in data.PAIRED:
        batch["labels"][:, : case.trainer.prompt] = IGNORED
        return batch
    if case.trainer.kind == "kto":
        batch["labels"][:, : case.trainer.prompt] = IGNORED
        texts = [k for k in ("input_ids", "attention_mask", "labels", "token_type_ids") if k in batch]
        tags = torch.tensor([i % 2 == 0 for i in range(len(batch["labels"]))])
        return batch | {f"kl_{k}": batch[k].clone() for k in texts} | {"kto_tags": tags}
    computed = models.DTYPES[case.autocast or case.dtype]
    return {k: v.to(computed) if torch.is_floating_point(v) else v for k, v in batch.items()}


def collator(case: Case) -> Any:
    """PairwiseDataCollatorWithPadding and KTODataCollatorWithPadding: rows of one length, chosen before rejected."""
    assert case.trainer

    def collate(features: list[dict[str, Any]]) -> dict[str, Any]:
        rows = 2 * len(features) if case.trainer.kind in data.PAIRED else len(features)
        ids = torch.tensor([features[i % len(features)]["input_ids"] for i in range(rows)])
        labels = ids.clone()
        labels[:, : case.trainer.prompt] = IGNORED
        batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}
        if case.trainer.kind == "kto":
            batch |= {f"kl_{key}": value.clone() for key, value in batch.items()}
            batch["kto_tags"] = torch.tensor([i % 2 == 0 for i in range(rows)])
        return batch

    return collate


class Factory(Trainer):
    """What both have: reference, log-probabilities, metrics."""

    def __init__(self, *args: Any, ref_model: Any = None, loss_type: Any = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.loss_type = loss_type or "sigmoid"
        self.model_accepts_loss_kwargs = False
        self.ref_model = ref_model
        if ref_model is not None:
            if self.is_deepspeed_enabled:
                from trl.models.utils import prepare_deepspeed

                self.ref_model = prepare_deepspeed(ref_model, self.accelerator)
            else:
                self.ref_model = self.accelerator.prepare_model(ref_model, evaluation_mode=True)
                self.ref_model.eval()
        for module in self.model.modules():  # disable_dropout_in_model
            if isinstance(module, torch.nn.Dropout):
                module.p = 0

    def log_probabilities(self, logits: Any, labels: Any) -> tuple[Any, Any]:
        labels = labels[:, 1:].clone()
        logits = logits[:, :-1, :]
        is_scored = labels != IGNORED
        labels[labels == IGNORED] = 0
        per_token = torch.gather(logits.log_softmax(-1), dim=2, index=labels.unsqueeze(2)).squeeze(2)
        lengths = is_scored.sum(-1)
        return (per_token * is_scored).sum(-1), lengths

    def prediction_step(self, model: Any, inputs: Any, prediction_loss_only: bool, ignore_keys: Any = None) -> Any:
        with torch.no_grad():
            loss, _ = self.loss_and_metrics(model, inputs)
        return loss.detach(), None, None

    def call_reference(self, model: Any, batch: Any) -> Any:
        if self.ref_model is not None:
            with torch.no_grad():
                return self.call_policy(self.ref_model, batch)
        with torch.no_grad(), self.accelerator.unwrap_model(model).disable_adapter():
            return self.call_policy(model, batch)


class DPOTrainer(Factory):
    """With TRL 0.24, whose dpo_loss() is not told of hinge and ipo: "ipo" averages, and the loss is the sigmoid."""

    beta, simpo_gamma = BETA, 0.5

    def __init__(self, *args: Any, pref_ftx: float = 0.0, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.ftx_gamma = pref_ftx

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **kwargs: Any) -> Any:
        return self.loss_and_metrics(model, inputs)[0]

    def call_policy(self, model: Any, batch: Any) -> dict[str, Any]:
        if self.loss_type not in WITHOUT_REFERENCE:
            batch = {key: value.detach().clone() for key, value in batch.items()}
        labels = batch.pop("labels")
        logits = model(**batch, return_dict=True, use_cache=False).logits.to(torch.float32)
        logps, lengths = self.log_probabilities(logits, labels)
        if self.loss_type in AVERAGED:
            logps = logps / lengths
        pairs = batch["input_ids"].size(0) // 2
        chosen, rejected = logps.split(pairs, dim=0)
        chosen_logits, rejected_logits = logits.split(pairs, dim=0)
        return {
            "chosen": chosen,
            "rejected": rejected,
            "chosen_logits": chosen_logits,
            "rejected_logits": rejected_logits,
            "average": chosen if self.loss_type in AVERAGED else chosen / lengths.split(pairs, dim=0)[0],
        }

    def reference(self, model: Any, batch: Any) -> tuple[Any, Any]:
        if self.loss_type in WITHOUT_REFERENCE:
            return None, None
        found = self.call_reference(model, batch)
        return found["chosen"], found["rejected"]

    def loss_and_metrics(self, model: Any, batch: Any) -> tuple[Any, dict[str, float]]:
        found = self.call_policy(model, batch)
        reference = self.reference(model, batch)
        losses, chosen_rewards, rejected_rewards = self.pair_loss(found, *reference)
        sft_loss = -found["average"]
        if self.ftx_gamma > 1e-6:
            losses += self.ftx_gamma * sft_loss
        metrics = [
            chosen_rewards.mean().item(),
            rejected_rewards.mean().item(),
            (chosen_rewards > rejected_rewards).float().mean().item(),
            (chosen_rewards - rejected_rewards).mean().item(),
            found["chosen"].mean().item(),
            found["rejected"].mean().item(),
            found["chosen_logits"].mean().item(),
            found["rejected_logits"].mean().item(),
        ]
        if self.loss_type == "orpo":
            metrics += [sft_loss.mean().item(), ((losses - sft_loss) / self.beta).mean().item()]
        return losses.mean(), dict.fromkeys(map(str, metrics), 0.0)

    def odds_ratio_loss(self, chosen: Any, rejected: Any) -> Any:
        log_odds = (chosen - rejected) - (torch.log1p(-torch.exp(chosen)) - torch.log1p(-torch.exp(rejected)))
        sft_loss = -chosen
        odds_ratio_loss = -F.logsigmoid(log_odds)
        return sft_loss + self.beta * odds_ratio_loss

    def simpo_loss(self, chosen: Any, rejected: Any) -> Any:
        pi_logratios = chosen - rejected
        logits = pi_logratios - self.simpo_gamma / self.beta
        return -F.logsigmoid(self.beta * logits)

    def pair_loss(self, found: Any, ref_chosen: Any, ref_rejected: Any) -> tuple[Any, Any, Any]:
        if self.loss_type in WITHOUT_REFERENCE:
            loss = self.odds_ratio_loss if self.loss_type == "orpo" else self.simpo_loss
            losses = loss(found["chosen"], found["rejected"])
            return losses, self.beta * found["chosen"].detach(), self.beta * found["rejected"].detach()
        chosen_logratios = found["chosen"] - True * ref_chosen
        rejected_logratios = found["rejected"] - True * ref_rejected
        logratios = found["chosen"] - found["rejected"]
        ref_logratios = ref_chosen - ref_rejected
        logits = logratios - ref_logratios
        losses = -F.logsigmoid(BETA * logits) * (1 - 0.0) - F.logsigmoid(-BETA * logits) * 0.0
        chosen_rewards = BETA * (found["chosen"] - ref_chosen).detach()
        rejected_rewards = BETA * (found["rejected"] - ref_rejected).detach()
        return losses, chosen_rewards, rejected_rewards


class KTOTrainer(Factory):
    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **kwargs: Any) -> Any:
        return self.loss_and_metrics(model, inputs)[0]

    def rows(self, model: Any, batch: Any, prefix: str = "") -> tuple[Any, Any, Any]:
        batch = {key: value.detach().clone() for key, value in batch.items()}
        inputs = {key: batch[f"{prefix}{key}"] for key in TEXTS if f"{prefix}{key}" in batch} | {k: batch[k] for k in SEEN if k in batch}
        logits = model(**inputs, return_dict=True, use_cache=False).logits.to(torch.float32)
        logps, lengths = self.log_probabilities(logits, batch[f"{prefix}labels"])
        return logits, logps, logps / lengths

    def call_policy(self, model: Any, batch: Any) -> tuple[Any, ...]:
        logits, logps, averages = self.rows(model, batch)
        with torch.no_grad():
            _, kl_logps, _ = self.rows(model, batch, prefix="kl_")
        wanted = (batch["kto_tags"].numel() + 1) // 2
        unwanted = batch["kto_tags"].numel() - wanted
        chosen_logits = chosen(logits, batch["kto_tags"], wanted)
        chosen_logps = chosen(logps, batch["kto_tags"], wanted)
        rejected_logits = chosen(logits, ~batch["kto_tags"], unwanted)
        rejected_logps = chosen(logps, ~batch["kto_tags"], unwanted)
        average = chosen(averages, batch["kto_tags"], wanted)
        return chosen_logps, rejected_logps, chosen_logits, rejected_logits, kl_logps, average

    def reference(self, model: Any, batch: Any) -> tuple[Any, Any, Any]:
        ref_chosen, ref_rejected, _, _, ref_kl, _ = self.call_reference(model, batch)
        return ref_chosen, ref_rejected, ref_kl

    def loss_and_metrics(self, model: Any, batch: Any) -> tuple[Any, dict[str, float]]:
        found = self.call_policy(model, batch)
        reference = self.reference(model, batch)
        losses, chosen_rewards, rejected_rewards, kl = self.kto_loss(found, *reference)
        losses = losses.nanmean()
        for one in (chosen_rewards, found[0], found[2]) if len(chosen_rewards) else ():
            one.nansum().item()
        for one in (rejected_rewards, found[1], found[3]) if len(rejected_rewards) else ():
            one.nansum().item()
        return losses, {"kl": kl.item()}

    def kto_loss(self, found: Any, ref_chosen: Any, ref_rejected: Any, ref_kl: Any) -> tuple[Any, ...]:
        kl = (found[4] - ref_kl).mean().detach()
        kl = self.accelerator.gather_for_metrics(kl).mean().clamp(min=0)
        rejected_losses = rejected_rewards = torch.Tensor([]).to(self.accelerator.device)
        chosen_logratios = found[0] - ref_chosen
        chosen_losses = 1 - F.sigmoid(BETA * (chosen_logratios - kl))
        chosen_rewards = BETA * chosen_logratios.detach()
        if found[1].shape[0]:
            rejected_logratios = found[1] - ref_rejected
            rejected_losses = 1 - F.sigmoid(BETA * (kl - rejected_logratios))
            rejected_rewards = BETA * rejected_logratios.detach()
        return torch.cat((1.0 * chosen_losses, 1.0 * rejected_losses), 0), chosen_rewards, rejected_rewards, kl


def chosen(values: Any, tags: Any, count: int) -> Any:
    """values[tags], of which so many are true."""
    with phantom.counts(count):
        out = torch.ops.aten.index(values, [tags])
    if out.grad_fn is not None:
        phantom.counts_in_backward(out, count)
    return out


def rows_of(case: Case, count: int) -> Any:
    from datasets import Dataset

    ids = [[data.FIRST_WORD + (i + k) % data.WORDS for k in range(case.seq)] for i in range(count)]
    return Dataset.from_dict({"input_ids": ids})
