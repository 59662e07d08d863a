# SPDX-License-Identifier: Apache-2.0
"""LLaMA-Factory 0.9's stage rm (train/rm/trainer.py), on the value head that it takes of TRL 0.24
(models/modeling_value_head.py), which later releases of TRL no longer have: the same operations."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from transformers import PreTrainedModel, Trainer


class ValueHead(torch.nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.dropout = torch.nn.Dropout(getattr(config, "summary_dropout_prob", 0.1))
        hidden_size = getattr(config, "word_embed_proj_dim", None) or config.hidden_size
        self.summary = torch.nn.Linear(hidden_size, 1)

    def forward(self, hidden_states: Any) -> Any:
        output = self.dropout(hidden_states)
        if output.dtype != self.summary.weight.dtype:
            output = output.to(self.summary.weight.dtype)
        return self.summary(output)


class AutoModelForCausalLMWithValueHead(torch.nn.Module):
    def __init__(self, pretrained_model: Any) -> None:
        super().__init__()
        self.pretrained_model = pretrained_model
        self.config = pretrained_model.config
        self.v_head = ValueHead(self.config)

    def forward(self, input_ids: Any = None, past_key_values: Any = None, attention_mask: Any = None, **kwargs: Any) -> Any:
        kwargs["output_hidden_states"] = True
        kwargs["past_key_values"] = past_key_values
        base_model_output = self.pretrained_model(input_ids=input_ids, attention_mask=attention_mask, **kwargs)
        last_hidden_state = base_model_output.hidden_states[-1]
        lm_logits = base_model_output.logits
        loss = base_model_output.loss
        value = self.v_head(last_hidden_state).squeeze(-1)
        if lm_logits.dtype != torch.float32:
            lm_logits = lm_logits.float()
        return (lm_logits, loss, value)

    def tie_weights(self) -> None:
        """These three: LLaMA-Factory's patch_valuehead_model(), for models without adapters."""
        if isinstance(self.pretrained_model, PreTrainedModel):
            self.pretrained_model.tie_weights()

    def get_input_embeddings(self) -> Any:
        return self.pretrained_model.get_input_embeddings() if isinstance(self.pretrained_model, PreTrainedModel) else None

    def get_output_embeddings(self) -> Any:
        return self.pretrained_model.get_output_embeddings() if isinstance(self.pretrained_model, PreTrainedModel) else None


def of(net: Any, on_host: bool) -> Any:
    """from_pretrained(): the head goes to the device that device_map names."""
    made = AutoModelForCausalLMWithValueHead(net)
    if not on_host:
        made.v_head.to("cuda")
    return made.train()


class RewardTrainer(Trainer):
    """PairwiseTrainer"""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.model_accepts_loss_kwargs = False
        self.can_return_loss = True

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **kwargs: Any) -> Any:
        _, _, values = model(**inputs, output_hidden_states=True, return_dict=True, use_cache=False)
        batch_size = inputs["input_ids"].size(0) // 2
        chosen_masks, rejected_masks = torch.split(inputs["attention_mask"], batch_size, dim=0)
        chosen_rewards, rejected_rewards = torch.split(values, batch_size, dim=0)
        chosen_scores = chosen_rewards.gather(dim=-1, index=(chosen_masks.sum(dim=-1, keepdim=True) - 1))
        rejected_scores = rejected_rewards.gather(dim=-1, index=(rejected_masks.sum(dim=-1, keepdim=True) - 1))
        chosen_scores, rejected_scores = chosen_scores.squeeze(), rejected_scores.squeeze()
        loss = -F.logsigmoid(chosen_scores.float() - rejected_scores.float()).mean()
        return (loss, (loss, chosen_scores, rejected_scores)) if return_outputs else loss
