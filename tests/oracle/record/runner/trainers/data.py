# SPDX-License-Identifier: Apache-2.0
"""What a trainer is given: a tokenizer of one token per word, and rows of which every one fills the case's lengths."""

from __future__ import annotations

import dataclasses
from typing import Any, Callable

from ...case import Case
from ...catalogue import Model
from ...plans import GENERATE, ONLINE, SEE_IMAGES

WORDS = 2000  # size of the made-up vocabulary
SPECIAL = ("<unk>", "<s>", "</s>", "<pad>")
FIRST_WORD = len(SPECIAL)
PAIRED = ("dpo", "reward")  # of trainers that see images: rows of the chosen and of the rejected
CHAT = (  # words of the assistant between the marks that assistant_only_loss wants
    "{% for m in messages %}{% if m['role'] == 'assistant' %}{% generation %}{{ m['content'] }}{% endgeneration %}"
    "{% else %}{{ m['content'] }}{% endif %}{{ ' ' }}{% endfor %}"
)


def tokenizer() -> Any:
    """One token per word: w0, w1, ..."""
    from tokenizers import Tokenizer, models as kinds, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: i for i, word in enumerate((*SPECIAL, *(f"w{i}" for i in range(WORDS))))}
    made = Tokenizer(kinds.WordLevel(vocabulary, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=made, unk_token="<unk>", bos_token="<s>", eos_token="</s>", pad_token="<pad>"
    )
    fast.chat_template = CHAT
    return fast


def lengths(case: Case, count: int, length: int, less: int = 0) -> list[int]:
    """Tokens of each sample, `less` of what its row has: as the case has them; else all alike, or with padding every
    second one a quarter shorter."""
    if case.lengths:
        return [case.lengths[i % len(case.lengths)] - less for i in range(count)]
    return [length - (length // 4 if case.padding is True and i % 2 else 0) for i in range(count)]


def text(count: int, start: int) -> str:
    return " ".join(f"w{(start + i) % WORDS}" for i in range(count))


def shares_sequences(case: Case) -> bool:
    """By DeepSpeed's Ulysses, whose loader wants position_ids."""
    return getattr(case.parallel, "sequence_parallel_size", 1) > 1


def is_of_media(case: Case, model: Model) -> bool:
    """Whether samples are more than a row of tokens each: images, and for transformers' Trainer sounds, or a text to write
    that has a length of its own."""
    from .. import batches, multimodal
    from . import added_image

    assert case.trainer
    if model.type in multimodal.MAKERS:
        if added_image.is_added(case, model):
            return True
        return bool(case.images or case.video) and case.trainer.kind in ("hf", *SEE_IMAGES, *GENERATE)
    if case.trainer.kind != "hf":
        return False
    maker = batches.maker_of(model)
    return maker is not batches.text_batch and (maker is not batches.seq2seq_batch or bool(case.target_seq))


def has_processor(case: Case, model: Model) -> bool:
    """Whether AutoProcessor has one for the model, which the trainer then takes."""
    assert case.trainer
    return "vision_config" in model.config and case.trainer.kind in (*SEE_IMAGES, *GENERATE)


def processor(case: Case, model: Model) -> Any:
    """Trainers of rows want no more of it than the tokenizer: what it would make is made by the collator. Those that
    generate have it make prompts."""
    from transformers import BatchFeature, ProcessorMixin

    class Processor(ProcessorMixin):
        def __init__(self, tokenizer: Any) -> None:
            self.tokenizer, self.chat_template = tokenizer, tokenizer.chat_template
            self.image_processor = Parts(parts_of_image(case, model))

        def apply_chat_template(self, conversation: Any, tokenize: bool = False, **kwargs: Any) -> Any:
            if not tokenize:
                return "" if isinstance(conversation[0], dict) else [""] * len(conversation)
            made = prompts_of_media(case, model, len(conversation))
            return {k: v.tolist() if k in ("input_ids", "attention_mask") else v for k, v in made.items()}

        def __call__(self, images: Any = None, text: Any = None, **kwargs: Any) -> Any:
            return BatchFeature(prompts_of_media(case, model, len(text))) if images else self.tokenizer(text)

    return Processor(tokenizer())


@dataclasses.dataclass(frozen=True)
class Parts:
    """An image processor that is asked into how many parts it cuts images."""

    count: int
    use_thumbnail = False  # a part among the others

    def __call__(self, images: Any, **kwargs: Any) -> dict[str, Any]:
        import torch

        number = sum(len(row) for row in images)
        parts = torch.tensor([self.count] * number)
        return {"num_patches": parts, "image_rows": parts, "image_cols": torch.ones_like(parts)}


COUNTED_BY_PARTS = ("idefics3", "smolvlm", "internvl", "aya_vision", "cohere2_vision")  # `images` of a case


def images_of_prompt(case: Case, model: Model) -> int:
    return 1 if model.type in COUNTED_BY_PARTS else case.images


def parts_of_image(case: Case, model: Model) -> int:
    from .. import multimodal

    if model.type == "lfm2_vl":
        return len(multimodal.lfm2_vl_shapes(case, model.preprocessor or model.config))
    return case.images // max(images_of_prompt(case, model), 1)


def prompts_of_media(case: Case, model: Model, rows: int) -> dict[str, Any]:
    """As the processor makes them for generation and for the forward passes after it."""
    import torch

    from .. import batches

    assert case.trainer
    of = dataclasses.replace(case, batch=rows, seq=case.trainer.prompt, padding=False)
    made = batches.maker_of(model)(batches.Maker(of, model, device="cpu", is_raw=True))
    made.pop("labels")
    made.setdefault("attention_mask", torch.ones_like(made["input_ids"]))
    return made


def media_collator(case: Case, model: Model) -> Callable[[list[Any]], dict[str, Any]]:
    import torch

    from .. import batches
    from . import added_image, llama_factory

    assert case.trainer
    kind, prompt = case.trainer.kind, case.trainer.prompt

    def collate(samples: list[Any]) -> dict[str, Any]:
        of = dataclasses.replace(case, batch=len(samples) * (2 if kind in PAIRED else 1))
        if kind != "hf":
            of = dataclasses.replace(of, padding=False)  # rows are alike: it says that their mask is kept
        if added_image.is_added(case, model):
            return llama_factory.media_batch(case, model, added_image.batch(case, model, of.batch))
        made = batches.maker_of(model)(batches.Maker(of, model, device="cpu", is_raw=True))
        if "input_ids" in made and not model.type.startswith("siglip"):  # whose tokenizer gives none
            made.setdefault("attention_mask", torch.ones_like(made["input_ids"]))
        if case.trainer.program == "llama_factory":
            return llama_factory.media_batch(case, model, made)
        if kind == "hf":
            return made
        labels, ids, mask = made.pop("labels"), made["input_ids"], made["attention_mask"]
        if kind == "dpo":  # DataCollatorForVisionPreference
            completion = mask.clone()
            completion[:, :prompt] = 0
            return made | {"completion_mask": completion}
        if kind == "kto":  # DataCollatorForVisionUnpairedPreference
            completion = mask.clone()
            completion[:, :prompt] = 0
            made["completion_mask"] = completion
            if case.trainer.loss_type != "apo_zero_unpaired":
                made |= {"KL_input_ids": ids.clone(), "KL_attention_mask": mask.clone(), "KL_completion_mask": completion.clone()}
                made |= {f"KL_{name}": made[name].clone() for name in ("token_type_ids", "mm_token_type_ids") if name in made}
            return made | {"label": torch.tensor([i % 2 == 0 for i in range(len(samples))])}
        labels = ids.clone()  # DataCollatorForVisionLanguageModeling
        labels[mask == 0] = -100
        labels[:, :prompt] = -100
        return made | {"labels": labels}

    return collate


def training_rows(case: Case) -> int:
    ranks = case.parallel.dp * (case.parallel.sequence_parallel_size if shares_sequences(case) else 1) if case.parallel else 1
    return case.batch * case.grad_accum * (case.steps + 1) * ranks


def evaluated_columns(case: Case, batch: int, index: int) -> int:
    """The most columns that a rank has in its batch of this index: batches go round the ranks, and the last of them are
    filled with the first samples."""
    assert case.trainer and case.parallel
    samples, ranks, multiple = case.trainer.eval_samples, case.parallel.dp, case.pad_to_multiple_of or 1
    first = index * ranks * batch
    again = min(samples, ranks * batch)
    rows = [i if i < samples else (i - samples) % again for i in range(first, first + ranks * batch)]
    longest = max(case.lengths[i % len(case.lengths)] for i in rows)
    return -(-longest // multiple) * multiple


def labels_of_part(case: Case) -> int:
    """How many labels of a row count, of the two slices that a context parallel rank has of it."""
    assert case.trainer and case.parallel
    ranks, first = case.parallel.cp, max(case.trainer.prompt, 1) - 1
    length, rank = case.seq // (2 * ranks), case.parallel.rank % ranks
    slices = (range(i * length, (i + 1) * length) for i in (rank, 2 * ranks - 1 - rank))
    return sum(first <= at < case.seq - 1 for slice in slices for at in slice)


def dataset(case: Case, model: Model, count: int) -> Any:
    """Of so many rows. The end token that a trainer adds counts."""
    from datasets import Dataset

    plan = case.trainer
    assert plan
    if is_of_media(case, model) and plan.kind in GENERATE:
        asked = [[{"role": "user", "content": "w1"}] for i in range(4 * count)]
        return Dataset.from_dict({"prompt": asked, "images": [list(range(images_of_prompt(case, model)))] * len(asked)})
    if is_of_media(case, model):
        return Dataset.from_dict({"images": [i for i in range(count)]})  # of which the collator makes what a processor would
    if plan.kind in (*GENERATE, *ONLINE):
        return Dataset.from_dict({"prompt": [text(n, i) for i, n in enumerate(lengths(case, 4 * count, plan.prompt))]})
    if plan.program == "llama_factory" and plan.kind != "hf":
        from . import llama_factory

        return llama_factory.rows_of(case, count)
    if plan.args.get("assistant_only_loss"):
        return Dataset.from_dict({"messages": conversations(case, count)})
    if plan.kind == "gkd":
        return Dataset.from_dict({"messages": questions(case, count)})
    if plan.kind in ("sft", "hf"):
        return Dataset.from_dict(token_rows(case, count))
    rows: dict[str, Any] = {"prompt": [text(plan.prompt, i) for i in range(count)]}
    paired = case.lengths and plan.kind != "kto"
    sizes = lengths(case, 2 * count if paired else count, case.seq - plan.prompt, plan.prompt)
    chosen, rejected = (sizes[::2], sizes[1::2]) if paired else (sizes, sizes)
    answers = [" " + text(n - 1, 3 * i) for i, n in enumerate(chosen)]
    if plan.kind == "kto":
        return Dataset.from_dict(rows | {"completion": answers, "label": [i % 2 == 0 for i in range(count)]})
    return Dataset.from_dict(
        rows | {"chosen": answers, "rejected": [" " + text(n - 1, 7 * i) for i, n in enumerate(rejected)]}
    )


def parts(total: int, count: int) -> list[int]:
    """As even as it goes."""
    return [total // count + (i < total % count) for i in range(count)]


def conversations(case: Case, count: int) -> list[list[dict[str, str]]]:
    plan = case.trainer
    assert plan
    sizes = lengths(case, count * plan.documents, case.seq // plan.documents)
    made = []
    for i, n in enumerate(sizes):
        turns = zip(parts(plan.prompt, plan.turns), parts(n - plan.prompt, plan.turns))
        said = [(role, words) for asked, told in turns for role, words in (("user", asked), ("assistant", told))]
        made.append([{"role": role, "content": text(words, i + k)} for k, (role, words) in enumerate(said)])
    return made


def questions(case: Case, count: int) -> list[list[dict[str, str]]]:
    """Each with its answer."""
    plan = case.trainer
    assert plan
    sizes = lengths(case, count, case.seq)
    said = [(text(plan.prompt, i), text(n - plan.prompt, i)) for i, n in enumerate(sizes)]
    return [[{"role": "user", "content": ask}, {"role": "assistant", "content": tell}] for ask, tell in said]


def token_rows(case: Case, count: int) -> dict[str, Any]:
    plan = case.trainer
    assert plan
    sizes = lengths(case, count * plan.documents, case.seq // plan.documents)
    ids = [[FIRST_WORD + (i + k) % WORDS for k in range(n)] for i, n in enumerate(sizes)]
    if plan.kind == "hf":
        places = {"position_ids": [list(range(n)) for n in sizes]} if shares_sequences(case) else {}
        return {"input_ids": ids, "labels": ids, **places}
    rows: dict[str, Any] = {"input_ids": ids}
    if plan.prompt:
        rows["completion_mask"] = [[0] * plan.prompt + [1] * (n - plan.prompt) for n in sizes]
    return rows
