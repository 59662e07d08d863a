# SPDX-License-Identifier: Apache-2.0
"""Cases of trainers: a few options of the kind, of the loop around the step, of adapters and of ranks."""

from __future__ import annotations

import random
from typing import Any

from .. import catalogue
from ..case import Given
from ..plans import DISTIL, GENERATE, ONLINE, PREFERENCES, Trainer
from .kinds import is_eager_only
from .ranks import Table, of_layers, some

SMALL = ["smollm2-135m", "llama-3.2-1b", "qwen2.5-0.5b", "tinyllama-1.1b"]
OF_KINDS: dict[str, Table] = {  # fields of a Trainer
    "hf": {},
    "sft": {
        "packing": [True],
        "padding_free": [True],
        "documents": [2, 4],
        "prompt": [128],
        "loss_type": ["nll", "dft", "chunked_nll"],
    },
    "dpo": {
        "prompt": [128, 200],
        "reference": ["precomputed"],
        "loss_type": ["sigmoid", "ipo", "hinge", "bco_pair", "nca_pair", "aot", "apo_zero", "discopop", "sigmoid,sft"],
    },
    "kto": {"prompt": [128], "reference": ["precomputed"], "loss_type": ["apo_zero_unpaired"]},
    "reward": {"prompt": [128]},
    "orpo": {"prompt": [128]},
    "cpo": {"prompt": [128], "loss_type": ["hinge", "ipo", "simpo"]},
    "grpo": {
        "beta": [0.04],
        "iterations": [2],
        "generations": [4, 8],
        "steps_per_generation": [2, 4],
        "temperature": [0.7],
        "loss_type": ["grpo", "dr_grpo", "bnpo", "cispo", "sapo"],
    },
    "gkd": {"prompt": [64, 100], "completion": [12, 30], "teacher_dtype": ["bf16"], "teacher_quant": ["nf4", "int8"]},
    "online_dpo": {"prompt": [40, 100, 250], "completion": [12, 30], "loss_type": ["ipo"]},
    "rloo": {"beta": [0.05], "generations": [4], "iterations": [2], "steps_per_generation": [2], "temperature": [1.3]},
}
OF_CONFIGURATIONS: dict[str, Table] = {  # arguments of a kind's own configuration
    "hf": {"average_tokens_across_devices": [False]},
    "dpo": {
        "f_divergence_type": ["js_divergence", "forward_kl"],
        "ld_alpha": [0.5],
        "label_smoothing": [0.1],
        "sync_ref_model": [True],
    },
    "reward": {"center_rewards_coefficient": [0.01]},
    "cpo": {"cpo_alpha": [0.0, 0.5], "alpha": [0.25]},
    "grpo": {
        "importance_sampling_level": ["sequence"],
        "delta": [4.0],
        "mask_truncated_completions": [True],
        "top_entropy_quantile": [0.2],
        "scale_rewards": ["batch", "none"],
        "entropy_coef": [0.01],
        "off_policy_mask_threshold": [0.5],
        "top_k": [20],
        "repetition_penalty": [1.1],
    },
    "gkd": {"lmbda": [0.0, 1.0], "beta": [0.0, 1.0], "seq_kd": [True], "temperature": [1.0]},
    "online_dpo": {"temperature": [1.0], "top_k": [20], "top_p": [0.9], "missing_eos_penalty": [1.0]},
    "rloo": {"mask_truncated_completions": [True], "top_p": [0.9], "min_p": [0.1]},
}
LOOP: Table = {  # arguments of transformers' loop
    "torch_empty_cache_steps": [1, 2],
    "weight_decay": [0.01],
    "save_strategy": ["steps", "epoch"],
    "eval_strategy": ["steps", "epoch"],
}
EVALUATION: Table = {
    "eval_steps": [1],
    "per_device_eval_batch_size": [2, 4],
    "eval_accumulation_steps": [1, 2],
    "prediction_loss_only": [True],
    "batch_eval_metrics": [True],
}
LIGER: Table = {name: [False] for name in ("rope", "rms_norm", "swiglu", "fused_linear_cross_entropy")}
SETTINGS: Table = {
    "checkpointing": ["full", "full_reentrant"],
    "grad_accum": [2],
    "clip": [1.0],
    "optimizer": [
        "adamw_fused",
        "adamw8bit",
        "paged_adamw8bit",
        "paged_adamw",
        "adafactor_hf",
        "sgd",
        "lion",
        "lion8bit",
        "adagrad",
        "rmsprop",
    ],
    "kernels": ["liger"],
    "padding": ["mask"],  # rows of several lengths come in random order
    "attention": ["eager", "flash_attention_2"],
    "every_n_layers": [2],
}
PRECISIONS: list[Given] = [
    {},
    {"autocast": "bf16"},
    {"autocast": "bf16", "dtype": "fp32"},
    {"autocast": "fp16", "dtype": "fp32"},
    {"autocast": "fp16", "dtype": "fp16"},
]
METHODS: dict[str, Table] = {
    "lora": {
        "r": [4, 64],
        "dropout": [0.1],
        "bias": ["all", "lora_only"],
        "target_modules": [["q_proj", "v_proj"], ["up_proj", "down_proj"]],
        "modules_to_save": [["lm_head"], ["embed_tokens", "lm_head"]],
        "layers_to_transform": [[0]],
        "rank_pattern": [{"q_proj": 4}],
        "dora": [True],
        "rslora": [True],
        "lora_bias": [True],
    },
    "ia3": {"modules_to_save": [["lm_head"]]},
    "oft": {"oft_block_size": [16, 64], "target_modules": [["q_proj", "v_proj"]]},
}
QUANTISED: Table = {
    "quant.double": [False],
    "quant.storage": ["bf16"],
    "quant.compute_dtype": ["bf16"],
    "from_pretrained": [True],
}
RANKS: dict[str, Table] = {  # what a trainer's arguments say of a strategy
    "ddp": {
        "bucket_cap_mb": [1, 50],
        "static_graph": [True],
        "find_unused_parameters": [True],
        "broadcast_buffers": [False],
    },
    "fsdp1": {
        "strategy": ["SHARD_GRAD_OP", "NO_SHARD"],
        "use_orig_params": [True],
        "offload": [True],
        "limit_all_gathers": [False],
        "forward_prefetch": [True],
        "backward_prefetch": ["BACKWARD_POST", None],
        "sync_module_states": [True],
    },
    "fsdp2": {"offload": [True], "reshard_after_forward": [False], "meta_init": [True]},
    "zero1": {"half": ["fp16"], "offload_optimizer": ["cpu"], "contiguous_gradients": [False]},
    "zero2": {
        "half": ["fp16"],
        "hf_auto": [True],
        "overlap_comm": [True],
        "offload_optimizer": ["cpu"],
        "round_robin_gradients": [True],
    },
    "zero3": {
        "half": ["fp16"],
        "hf_auto": [True],
        "overlap_comm": [False],
        "offload_optimizer": ["cpu"],
        "stage3_param_persistence_threshold": [0],
        "stage3_gather_16bit_weights_on_model_save": [True],
    },
}


BESIDE_A_TEACHER = ("ddp", "zero1", "zero2")


def draw(rng: random.Random, models: list[str]) -> Given:
    """One case, which may contradict itself."""
    kind = rng.choice(sorted(OF_KINDS))
    plan: dict[str, Any] = {"kind": kind, **some(rng, OF_KINDS[kind], 2)}
    args = {**some(rng, OF_CONFIGURATIONS.get(kind, {}), 2), **some(rng, LOOP, 2)}
    model = rng.choice(models or SMALL)
    config = catalogue.find(model, []).config
    case: Given = {
        "model": model,
        "batch": rng.choice([1, 2, 4]),
        "seq": rng.choice([256, 320, 512, 1000]),
        "overrides": of_layers(config, rng.choice([2, 3])),
        **some(rng, SETTINGS, 3),
        **rng.choice(PRECISIONS),
    }
    if is_eager_only(config):
        case["attention"] = "eager"
    around(rng, kind, plan, args)
    if rng.random() < 0.45:
        case["lora"] = adapter(rng)
        if rng.random() < 0.35:
            case |= {"quant": rng.choice(["nf4", "int8"]), **some(rng, QUANTISED, 2)}
    if rng.random() < 0.6:
        case["parallel"] = ranks(rng)
        if case["parallel"]["kind"].startswith("zero"):
            case.pop("autocast", None)
    if case.get("kernels") and rng.random() < 0.4 and kind in ("hf", "sft", "reward"):
        args["liger_kernel_config"] = some(rng, LIGER, 2)
    if "checkpointing" not in case:
        case.pop("every_n_layers", None)
    if "documents" in plan:
        plan["packing"] = True
    if kind == "kto":  # the KL term pairs each prompt with another's completion
        case["batch"] = max(case["batch"], 2)
    if kind in DISTIL:
        plan.setdefault("prompt", 32)
        case["steps"] = 3  # of both kinds
        if case.get("parallel", {}).get("kind", "ddp") not in BESIDE_A_TEACHER:
            del case["parallel"]
    if kind in ONLINE:
        plan.setdefault("prompt", 64)
        plan.setdefault("completion", 20)
        case["batch"] = min(case["batch"], 4)
        del case["seq"]
    if kind in GENERATE:
        plan |= {"prompt": 64, "completion": 12}
        case["batch"] = plan.get("generations", Trainer.generations)
        del case["seq"]
    return {**case, "trainer": {**plan, "args": args} if args else plan}


def around(rng: random.Random, kind: str, plan: dict[str, Any], args: dict[str, Any]) -> None:
    """The phases between steps."""
    if args.get("save_strategy") == "steps":
        args["save_steps"] = 1
    if kind in (*GENERATE, *ONLINE):
        args.pop("eval_strategy", None)
    if "eval_strategy" not in args:
        return
    args |= some(rng, EVALUATION, 3) | {"per_device_eval_batch_size": rng.choice(EVALUATION["per_device_eval_batch_size"])}
    plan["eval_samples"] = rng.choice([8, 10])
    if args["eval_strategy"] == "epoch":
        args.pop("eval_steps", None)
    if kind in ("sft", *PREFERENCES):
        args.pop("batch_eval_metrics", None)
    elif rng.random() < 0.7 or args.get("batch_eval_metrics"):
        plan["compute_metrics"] = True
        if rng.random() < 0.3:
            plan["preprocess"] = "argmax"


def adapter(rng: random.Random) -> Given:
    method = rng.choice(["lora", "lora", "lora", "ia3", "oft"])
    made = some(rng, METHODS[method], 3)
    if method == "ia3" and rng.random() < 0.8:
        made |= {"target_modules": ["k_proj", "v_proj", "down_proj"], "feedforward_modules": ["down_proj"]}
    return made if method == "lora" else {"method": method, **made}


def ranks(rng: random.Random) -> Given:
    kind = rng.choice(sorted(RANKS))
    plan = {"kind": kind, "dp": rng.choice([2, 4, 8]), **some(rng, RANKS[kind], 2)}
    if kind == "zero3":  # transformers makes the model so
        plan["zero_init"] = True
    if rng.random() < 0.3:
        plan["rank"] = plan["dp"] - 1
    return plan
