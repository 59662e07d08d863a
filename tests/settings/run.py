#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A setting that changes nothing is named: every setting over jobs of all kinds.

    tests/settings/run.py PROGRAM [JOB...]      the last line is "N passed, N failed"

Each job is answered once as it is, and once for each of some values of each setting of the table. Where no value that is
taken changes a figure (peak, factors, tensors, timeline, verdict: all but what says the settings again), a message has to
name the setting, or ALIKE has to say why the figures are the same though it is read.
"""
import json
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import calls  # noqa: E402 (beside the folder of this script)

SMALL = ["model=smollm2-135m", "overrides.num_hidden_layers=2", "gpu=a100-80", "seq=128"]
MIXTURE = ["model=olmoe-1b-7b", "overrides.num_hidden_layers=2", "gpu=h100-80", "seq=128"]
JOBS = {
    "train": SMALL + ["batch=2"],
    "lora": SMALL + ["adapter=lora", "checkpointing=full"],
    "qlora": SMALL + ["adapter=lora", "quant=nf4"],
    "ia3": SMALL + ["adapter=ia3"],
    "prefix": SMALL + ["adapter=prefix_tuning"],
    "infer": SMALL + ["mode=infer", "decode=4"],
    "no-cache": SMALL + ["mode=infer", "cache=none"],
    "serve": SMALL + ["mode=serve", "max_model_len=512"],
    "llama.cpp": SMALL + ["mode=serve", "engine=llama_cpp", "ctx_size=512"],
    "mixture": MIXTURE + ["batch=2"],
    "encoder": ["model=bert-base", "overrides.num_hidden_layers=2", "gpu=a100-80", "seq=128"],
    "encoder-decoder": ["model=t5-small", "gpu=a100-80", "seq=64"],
    "images": ["model=vit-base", "overrides.num_hidden_layers=2", "gpu=a100-80"],
    "hf": SMALL + ["trainer=hf", "batch=2"],
    "sft": SMALL + ["trainer=sft", "batch=2"],
    "dpo": SMALL + ["trainer=dpo"],
    "kto": SMALL + ["trainer=kto", "batch=2"],
    "reward": SMALL + ["trainer=reward"],
    "orpo": SMALL + ["trainer=orpo"],
    "cpo": SMALL + ["trainer=cpo"],
    "grpo": SMALL[:-1] + ["trainer=grpo", "trainer.prompt_length=32", "trainer.max_completion_length=32", "batch=8"],
    "rloo": SMALL[:-1] + ["trainer=rloo", "trainer.prompt_length=32", "trainer.max_completion_length=32", "batch=8"],
    "gkd": SMALL + ["trainer=gkd", "trainer.prompt_length=32", "trainer.max_completion_length=32", "batch=2"],
    "ddp": SMALL + ["parallel.kind=ddp", "parallel.dp=2"],
    "zero1": SMALL + ["parallel.kind=zero1", "parallel.dp=2"],
    "zero3": SMALL + ["parallel.kind=zero3", "parallel.dp=2"],
    "fsdp1": SMALL + ["parallel.kind=fsdp1", "parallel.dp=2"],
    "fsdp2": SMALL + ["parallel.kind=fsdp2", "parallel.dp=2"],
    "tp": SMALL + ["parallel.kind=tp", "parallel.tp=3"],
    "pp": SMALL[:1] + ["overrides.num_hidden_layers=3", "seq=128", "parallel.kind=pp", "parallel.pp=2", "batch=4"],
    "native": SMALL + ["parallel.kind=native", "parallel.dp=2", "overrides.tie_word_embeddings=false"],
    "megatron": SMALL + ["parallel.kind=megatron", "parallel.dp=2", "optimizer=adamw"],
    "hf-fsdp2": SMALL + ["trainer=hf", "parallel.kind=fsdp2", "parallel.dp=2"],
}

# Settings that say what is run, or where: every job has its own.
GIVEN = {"model", "recipe", "gpu", "mode", "trainer", "adapter", "quant", "parallel.kind", "overrides", "undescribed",
         "title", "engine", "gpu_gib", "capability"}

# Values of settings that are text.
VALUES = {"lengths": ["64,32*3"], "image_size": ["64x64"], "video": ["4x64x64"], "freeze": ["model.embed_tokens"],
          "train_only": ["model.layers.0"], "quant.skip": ["q_proj"], "adapter.target_modules": ["q_proj"],
          "adapter.feedforward_modules": ["down_proj"], "adapter.exclude_modules": ["q_proj"],
          "adapter.layers_to_transform": ["0"], "adapter.layers_pattern": ["layers"],
          "adapter.rank_pattern": ["down_proj=8"], "adapter.alpha_pattern": ["down_proj=8"],
          "adapter.modules_to_save": ["lm_head", "norm"], "adapter.also_train": ["model.norm"],
          "trainer.loss_type": ["dft", "ipo", "bnpo", "apo_zero_unpaired"], "allocator": ["expandable_segments:True"],
          "torch": ["2.4"], "transformers": ["4.44"], "request_lengths": ["100,200"], "draft": ["smollm2-135m"],
          "trainer.teacher": ["smollm2-360m"],
          "cudagraph_capture_sizes": ["1,2"], "parallel.stage_layers": ["1,2"], "parallel.wrap": ["root", "fine"],
          "parallel.reshard_after_forward": ["false"], "parallel.root_reshard": ["true"],
          "parallel.recompute_modules": ["mlp"]}

# Why a setting that is read may give the same figures, and in which jobs ("": all).
ALIKE = {
    "memory_fraction": ("", "the job stays below the limit"),
    "param_groups": ("fsdp1 tp hf-fsdp2", "flat parameters are of no kind; DTensors of a placement are lists of their own"),
    "autocast": ("sft dpo kto", "bf16 is what TRL's configurations take by default"),
    "trainer.assistant_only_loss": ("", "trainer.prompt_length says how many tokens are not scored"),
    "trainer.temperature": ("gkd", "its default, 0.9, divides the logits as others do"),
    "trainer.num_generations": ("grpo rloo", "rows of a generation stay as many"),
    "imatrix": ("llama.cpp", "it decides types of some formats, not of Q4_K_M in so few layers"),
    "parallel.stage3_max_reuse_distance": ("zero3", "so small a model is kept as a whole"),
    "parallel.reduce_scatter": ("zero3", "where ranks divide all parameters, the joined gradients are as large as the bucket"),
    "parallel.overlap_grad_reduce": ("megatron", "all gradients are in one bucket"),
    "parallel.decoupled_lr": ("megatron", "states of its group take what they did, in another order"),
    "parallel.bias_dropout_fusion": ("megatron", "the layers have neither biases nor dropout"),
}


def values(setting):
    default = setting.get("default", "")
    if setting["name"] in VALUES:
        return VALUES[setting["name"]]
    if "choices" in setting:
        return [word for word in setting["choices"] if word != default]
    if setting["type"] == "bool":
        return [word for word in ("true", "false") if word != default]
    if setting["type"] == "int":
        least = int(setting.get("least", 0))
        return [str(n) for n in (1, 2, 3, 4, 8, 100) if least <= n <= setting.get("most", n) and str(n) != default]
    if setting["type"] == "number":
        return [word for word in ("0.5", "2", "0", "1") if word != default]
    return []


def figures(answer):
    return {key: answer[key] for key in answer if key not in ("link", "settings", "assumptions", "diagnostics", "versions")}


def value_of(answer, name):
    return [row["value"] for row in answer["settings"] if row["name"] == name]


def is_named(answer, name):
    return any(name in said["place"] + " " + said["message"] for said in answer["diagnostics"])


def ask(program, jobs):
    return calls.ask(program, [{"call": "estimate", "settings": job} for job in jobs])


def main():
    program, only = sys.argv[1], sys.argv[2:]
    table = json.loads(subprocess.run([program, "describe", "settings", "--json"], capture_output=True, text=True,
                                      check=True).stdout)
    passed, failed, unused = 0, 0, set(ALIKE)
    for job, words in JOBS.items():
        if only and job not in only:
            continue
        plain = ask(program, [words])[0]
        assert plain["ok"], plain["diagnostics"]
        waiting = {setting["name"]: values(setting) for setting in table
                   if setting["name"] not in GIVEN and not any(w.startswith(setting["name"] + "=") for w in words)}
        silent, heard = {}, set()
        while waiting:
            asked = [(name, left.pop(0)) for name, left in waiting.items() if left]
            for (name, value), answer in zip(asked, ask(program, [words + ["=".join(pair)] for pair in asked])):
                if not answer["ok"] or value_of(answer, name) == value_of(plain, name):
                    continue
                if figures(answer) != figures(plain) or is_named(answer, name):
                    heard.add(name)
                else:
                    silent.setdefault(name, []).append(value)
            waiting = {name: left for name, left in waiting.items() if left and name not in heard}
        for name in silent:
            jobs = ALIKE.get(name, ("-",))[0]
            if name not in heard and (not jobs or job in jobs.split()):
                unused.discard(name)
            elif name not in heard:
                failed += 1
                print(f"FAIL {job}: {name}={'|'.join(silent[name])} changes nothing, and nothing says so")
        passed += len(heard)
    for name in unused if not only else ():
        failed += 1
        print(f"FAIL {name} is in ALIKE, and changes figures in all jobs")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


sys.exit(main())
