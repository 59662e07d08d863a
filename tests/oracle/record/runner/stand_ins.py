# SPDX-License-Identifier: Apache-2.0
"""Answers that the phantom cannot compute, so that data-dependent code takes the path that real data would take.

Every stand-in changes a value that was read back from the device, never what is allocated.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import itertools
import os
import sys
from typing import Any, Callable
from unittest import mock

import torch

from .. import phantom
from ..case import Case
from ..catalogue import Model
from . import speech, vision_grids

FINITE_IN_FP16 = ("bart", "florence2", "plbart", "marian", "mbart", "pegasus", "m2m_100", "blenderbot")


def install(case: Case, model: Model) -> None:
    """In the process of a case, before its model is made."""
    os.environ["TRANSFORMERS_DISABLE_TORCH_CHECK"] = "1"  # counts of image tokens are compared on the device
    sequences_are_packed(case.packing or sequences_of_row(case) > 1)
    empty_static_caches()
    batch_is_padded(bool(case.padding))
    masks_are_as_made()
    every_step_is_taken()
    masked_scatter_counts()
    tokens_come_to_all_experts()
    if (
        case.compile
        or case.kernels
        or case.float8
        or case.trainer
        or case.loss == "liger"
        or case.optimizer.endswith("_ao")
    ):
        no_machine_code()
    if (case.kernels or "").startswith("liger"):
        experts_are_chosen_evenly()
    if case.attention == "flash_attention_2":
        from . import flash_attention

        flash_attention.install(bool(case.padding))
    if model.type in ("idefics3", "smolvlm"):
        all_images_are_real()
    if model.type == "voxtral":
        sounds_have_places()
    if model.type in ("gemma4", "gemma4_unified"):
        images_have_patches(case, model)
    if model.type in ("llava", "mistral3"):
        sizes_of_images_are_known(case, model)
    if model.type == "lfm2_vl":
        parts_of_images_are_known(case, model)
    if model.type in vision_grids.MODELS:
        vision_grids.install(case, model)
    if model.type in speech.MODELS:
        speech.install(case)
    if model.type == "deberta-v2":
        labels_are_valid()
    if model.type in FINITE_IN_FP16:
        activations_are_finite()
    if case.quant == "int8":
        no_outliers()


def no_machine_code() -> None:
    """Triton kernels that never run need no assembler."""
    if phantom.is_here():
        from triton.backends.nvidia.compiler import CUDABackend

        CUDABackend.make_cubin = lambda self, source, metadata, options, capability: b"phantom"


def experts_are_chosen_evenly() -> None:
    """The tiles of tokens that Liger's experts count on the device; kernels are not tried out against one another."""
    os.environ["LIGER_FUSED_MOE_AUTOTUNE"] = "0"
    from liger_kernel.ops import fused_moe

    plain = fused_moe.compute_routing_metadata

    def routed(topk_indices: Any, experts: int, rows: int = fused_moe.BLOCK_M_TOKEN) -> Any:
        with phantom.counts(experts * -(-(topk_indices.numel() // experts) // rows)):
            return plain(topk_indices, experts, rows)

    fused_moe.compute_routing_metadata = routed


# ---- masks and caches of transformers ----


def sequences_of_row(case: Case) -> int:
    """Of a batch that TRL's SFTTrainer makes one row of."""
    plan = case.trainer
    if plan is None or not (plan.packing or plan.padding_free):
        return 1
    return case.batch * (plan.documents if plan.packing else 1)


def sequences_are_packed(are_packed: bool) -> None:
    """Position ids 0, 1, 2, ... hold one sequence per sample: no packed mask. Others begin anew."""
    from transformers import masking_utils

    find = masking_utils.find_packed_sequence_indices

    @functools.wraps(find)
    def found(position_ids: Any) -> Any:
        with mock.patch.object(torch.Tensor, "__bool__", lambda is_one_sequence: not are_packed):
            return find(position_ids)

    masking_utils.find_packed_sequence_indices = found


def empty_static_caches() -> None:
    """A static cache holds its length on the device: nothing yet when a prompt comes, something when one token does."""
    from transformers import masking_utils

    ignore = masking_utils._ignore_causal_mask_sdpa

    @functools.wraps(ignore)
    def ignored(padding_mask: Any, q_length: int, kv_length: int, q_offset: Any, *args: Any, **kwargs: Any) -> bool:
        if isinstance(q_offset, torch.Tensor):
            q_offset = 0 if q_length > 1 else 1
        return bool(ignore(padding_mask, q_length, kv_length, q_offset, *args, **kwargs))

    masking_utils._ignore_causal_mask_sdpa = ignored


_padded = [False]


def batch_is_padded(is_padded: bool) -> None:
    """Of the batch that comes next."""
    _padded[0] = is_padded


def is_padded() -> bool:
    return _padded[0]


def masks_are_as_made() -> None:
    """Whether a mask masks nothing is read from the device: with padding the batch's masks something; what a model fills
    with ones itself never does."""
    from transformers import masking_utils

    ones_of_models_are_known()
    every, ignore = masking_utils.fast_all, masking_utils._ignore_bidirectional_mask_sdpa

    @functools.wraps(every)
    def fast_all(mask: Any) -> bool:
        every(mask)
        return not is_padded() or is_ones(mask)

    @functools.wraps(ignore)
    def ignored(mask: Any, kv_length: int, local_attention_size: int | None = None) -> bool:
        ignore(mask, kv_length, local_attention_size)
        masks_nothing = mask is None or not is_padded() or is_ones(mask)
        return masks_nothing and (local_attention_size is None or kv_length < local_attention_size)

    masking_utils.fast_all, masking_utils._ignore_bidirectional_mask_sdpa = fast_all, ignored
    recurrent_masks_are_as_made()


def recurrent_masks_are_as_made() -> None:
    """The same for scans and convolutions, which are handed no mask where it masks nothing."""
    from transformers import masking_utils

    make = masking_utils.create_recurrent_attention_mask

    @functools.wraps(make)
    def made(config: Any, inputs_embeds: Any, attention_mask: Any, *args: Any, **kwargs: Any) -> Any:
        mask = make(config, inputs_embeds, attention_mask, *args, **kwargs)
        if not is_padded() or attention_mask is None or inputs_embeds.shape[1] == 1:
            return None
        return attention_mask.contiguous() if mask is None else mask

    for module in list(sys.modules.values()):  # those that have imported it
        if module and vars(module).get("create_recurrent_attention_mask") is make:
            module.create_recurrent_attention_mask = made
    of_layers = masking_utils.LAYER_PATTERN_TO_MASK_FUNCTION_MAPPING
    for kinds in (of_layers, *(of for of in of_layers.values() if isinstance(of, dict))):
        kinds.update({name: made for name, of in kinds.items() if of is make})


def is_ones(mask: Any) -> bool:
    return any(getattr(t, "is_ones_of_model", False) for t in (mask, mask._base))


def ones_of_models_are_known() -> None:
    """torch.ones and ones_like in a model's code mark what they make; a copy in another type keeps the mark."""

    def marking(make: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(make)
        def made(*args: Any, **kwargs: Any) -> Any:
            out = make(*args, **kwargs)
            if sys._getframe(1).f_globals.get("__name__", "").startswith("transformers.models."):
                out.is_ones_of_model = True
            return out

        return made

    copy = torch.Tensor.to

    @functools.wraps(copy)
    def to(self: Any, *args: Any, **kwargs: Any) -> Any:
        out = copy(self, *args, **kwargs)
        if is_ones(self):
            out.is_ones_of_model = True
        return out

    torch.utils._device._device_constructors()  # which torch.device() as a context looks for: of the functions as they are
    torch.ones, torch.ones_like, torch.Tensor.to = marking(torch.ones), marking(torch.ones_like), to


# ---- values ----


def every_step_is_taken() -> None:
    """Gradients are finite, whatever their memory held before: GradScaler steps."""

    def step(self: Any, optimizer: Any, state: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        for found in state["found_inf_per_device"].values():
            found.item()
        return optimizer.step(*args, **kwargs)

    torch.amp.GradScaler._maybe_opt_step = step


def masked_scatter_counts() -> None:
    """masked_scatter's backward selects by the mask: as many elements as were scattered."""
    scatter = torch.Tensor.masked_scatter

    @functools.wraps(scatter)
    def masked_scatter(self: Any, mask: Any, source: Any) -> Any:
        out = scatter(self, mask, source)
        if out.grad_fn is not None and source.requires_grad:
            phantom.counts_in_backward(out, source.numel())
        return out

    torch.Tensor.masked_scatter = masked_scatter


def tokens_come_to_all_experts() -> None:
    """A grouped product without a kernel of its own (GroupedMMUtils.h, _grouped_mm_fallback) reads on the host where
    groups end, and multiplies those that have rows: all have, and as many."""
    if not phantom.is_here():
        return
    for module, name in ((torch.nn.functional, "grouped_mm"), (torch, "_grouped_mm")):
        if hasattr(module, name):
            setattr(module, name, with_even_groups(getattr(module, name)))


def with_even_groups(product: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(product)
    def grouped(rows: Any, weight: Any, offs: Any = None, **options: Any) -> Any:
        if type(offs) is torch.Tensor and offs.is_cuda and not torch.compiler.is_compiling():
            groups = offs.numel()
            ends = [rows.shape[0] * (group + 1) // groups for group in range(groups)]
            ctypes.memmove(offs.data_ptr(), (ctypes.c_int32 * groups)(*ends), 4 * groups)
        return product(rows, weight, offs=offs, **options)

    return grouped


def labels_are_valid() -> None:
    """DeBERTa's classifier looks for labels >= 0: all of them are."""
    nonzero = torch.Tensor.nonzero

    @functools.wraps(nonzero)
    def all_of(self: Any, *args: Any, **kwargs: Any) -> Any:
        with phantom.counts(self.numel()):
            return nonzero(self, *args, **kwargs)

    torch.Tensor.nonzero = all_of


def activations_are_finite() -> None:
    """BART in fp16 clamps its activations where one of them is not finite."""
    every = torch.Tensor.all

    @functools.wraps(every)
    def all_(self: Any, *args: Any, **kwargs: Any) -> Any:
        found = every(self, *args, **kwargs)
        return torch.tensor(True) if self.dim() == 3 and not args and not kwargs else found

    torch.Tensor.all = all_


def no_outliers() -> None:
    """bitsandbytes looks for activations of 6 and more: there are none."""
    some = torch.Tensor.any

    @functools.wraps(some)
    def any_(self: Any, *args: Any, **kwargs: Any) -> Any:
        found = some(self, *args, **kwargs)
        is_question = not args and sys._getframe(1).f_globals.get("__name__") == "bitsandbytes.backends.cuda.ops"
        return False if is_question else found

    torch.Tensor.any = any_


# ---- images ----


def all_images_are_real() -> None:
    """Idefics3 drops images whose pixels are all zero, which they are on a device that computes nothing, and skips the
    mask of tiles that are full, which they are."""
    from transformers.models.idefics3.modeling_idefics3 import Idefics3Model
    from transformers.models.smolvlm.modeling_smolvlm import SmolVLMModel

    for cls in (Idefics3Model, SmolVLMModel):
        cls.get_image_features = with_real_images(cls.get_image_features)


def with_real_images(get: Callable[..., Any]) -> Callable[..., Any]:
    from transformers import masking_utils

    @functools.wraps(get)
    def get_image_features(self: Any, pixel_values: Any, *args: Any, **kwargs: Any) -> Any:
        samples, images = pixel_values.shape[:2]
        tolist, ignore = torch.Tensor.tolist, masking_utils._ignore_bidirectional_mask_sdpa
        torch.Tensor.tolist = lambda t: [images] * samples if t.is_cuda and t.shape == (samples,) else tolist(t)
        masking_utils._ignore_bidirectional_mask_sdpa = lambda *a, **k: ignore(*a, **k) or True
        try:
            with phantom.counts(samples * images):
                return get(self, pixel_values, *args, **kwargs)
        finally:
            torch.Tensor.tolist, masking_utils._ignore_bidirectional_mask_sdpa = tolist, ignore

    return get_image_features


def sounds_have_places() -> None:
    """Voxtral selects by the mask of its tokens, to hold their number against that of its features."""
    from transformers.models.voxtral.modeling_voxtral import VoxtralModel

    get, select = VoxtralModel.get_placeholder_mask, torch.Tensor.__getitem__

    @functools.wraps(get)
    def get_placeholder_mask(self: Any, input_ids: Any, inputs_embeds: Any, audio_features: Any) -> Any:
        def selected(of: Any, index: Any) -> Any:
            with phantom.counts(audio_features.numel()):
                return select(of, index)

        with mock.patch.object(torch.Tensor, "__getitem__", selected):
            return get(self, input_ids, inputs_embeds, audio_features)

    VoxtralModel.get_placeholder_mask = get_placeholder_mask


def images_have_patches(case: Case, model: Model) -> None:
    """Gemma 4 reads from the device which patches of an image are none, and selects by it."""
    from transformers import masking_utils
    from transformers.models.gemma4.modeling_gemma4 import Gemma4Model, Gemma4VisionModel
    from transformers.models.gemma4_unified.modeling_gemma4_unified import Gemma4UnifiedModel

    from .multimodal import gemma4_pools

    most, (rows, columns) = gemma4_pools(case, model.config, model.preprocessor)
    found = rows * columns
    select, tolist = torch.Tensor.__getitem__, torch.Tensor.tolist
    see = Gemma4VisionModel.forward

    def selecting(images: int) -> Callable[..., Any]:
        def selected(self: Any, index: Any) -> Any:
            if not isinstance(index, torch.Tensor) or index.dtype != torch.bool or not index.is_cuda:
                return select(self, index)
            count = images * found * (self.shape[-1] if index.dim() == self.dim() else 1)
            with phantom.counts(count):
                out = select(self, index)
            if out.grad_fn is not None:
                phantom.counts_in_backward(out, count)
            return out

        return selected

    def counted(run: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(run)
        def forward(self: Any, *args: Any, pixel_values: Any = None, **kwargs: Any) -> Any:
            encoded = (kwargs.get("mm_encoder_outputs") or {}).get("image")  # by generate(), ahead of this
            images = 0 if pixel_values is None else pixel_values.shape[0]
            images = images if encoded is None else len(encoded.pooler_output)
            if not images:
                return run(self, *args, **kwargs)
            counts = lambda t: [found] * images if t.is_cuda and t.shape == (images,) else tolist(t)  # noqa: E731
            with mock.patch.multiple(torch.Tensor, tolist=counts, __getitem__=selecting(images)):
                return run(self, *args, pixel_values=pixel_values, **kwargs)

        return forward

    @functools.wraps(see)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        ignore = masking_utils._ignore_bidirectional_mask_sdpa
        ignored = lambda *a, **k: bool(ignore(*a, **k)) and False or found == most  # noqa: E731
        with mock.patch.object(masking_utils, "_ignore_bidirectional_mask_sdpa", ignored):
            return see(self, *args, **kwargs)

    Gemma4VisionModel.forward = forward
    for model_class in (Gemma4Model, Gemma4UnifiedModel):
        model_class.forward = counted(model_class.forward)
        model_class.get_image_features = counted(model_class.get_image_features)


def sizes_of_images_are_known(case: Case, model: Model) -> None:
    """Of models with Pixtral's tower."""
    from transformers.models.llava.modeling_llava import LlavaModel
    from transformers.models.mistral3.modeling_mistral3 import Mistral3Model

    from .multimodal import pixtral_size

    if model.config["vision_config"].get("model_type") != "pixtral":
        return
    height, width, side = pixtral_size(case, model.config, model.preprocessor)
    found, tolist = (height // side) * (width // side), torch.Tensor.tolist

    def counted(features: Callable[..., Any]) -> Callable[..., Any]:
        """How many tokens each image has is read from the device."""

        @functools.wraps(features)
        def get_image_features(self: Any, pixel_values: Any, *args: Any, **kwargs: Any) -> Any:
            images = pixel_values.shape[0]
            counts = lambda t: [found] * images if t.is_cuda and t.shape == (images,) else tolist(t)  # noqa: E731
            with mock.patch.object(torch.Tensor, "tolist", counts):
                return features(self, pixel_values, *args, **kwargs)

        return get_image_features

    for model_class in (LlavaModel, Mistral3Model):
        model_class.get_image_features = vision_grids.with_grids_of_the_host(counted(model_class.get_image_features))
        model_class.forward = vision_grids.with_grids_of_the_host(model_class.forward)


def parts_of_images_are_known(case: Case, model: Model) -> None:
    """LFM2-VL reads from the device how many patches each part of an image has, and whether any is padded."""
    from transformers import masking_utils
    from transformers.models.lfm2_vl.modeling_lfm2_vl import Lfm2VlModel

    from .multimodal import LFM2_PATCHES, lfm2_vl_shapes

    shapes = lfm2_vl_shapes(case, model.preprocessor or model.config) * (case.batch * case.images)
    patches = [rows * columns for rows, columns in shapes]
    features, as_index = Lfm2VlModel.get_image_features, torch.Tensor.__index__

    @functools.wraps(features)
    def get_image_features(self: Any, *args: Any, **kwargs: Any) -> Any:
        ignore, counts = masking_utils._ignore_bidirectional_mask_sdpa, itertools.cycle(patches)
        ignored = lambda *a, **k: bool(ignore(*a, **k)) and False or min(patches) == LFM2_PATCHES  # noqa: E731
        index = lambda t: next(counts) if t.is_cuda else as_index(t)  # noqa: E731
        with mock.patch.object(masking_utils, "_ignore_bidirectional_mask_sdpa", ignored):
            with mock.patch.object(torch.Tensor, "__index__", index):
                return features(self, *args, **kwargs)

    Lfm2VlModel.get_image_features = vision_grids.with_grids_of_the_host(get_image_features)
    Lfm2VlModel.forward = vision_grids.with_grids_of_the_host(Lfm2VlModel.forward)


# ---- ranks ----


def deepspeed_finds_no_overflow() -> None:
    from deepspeed.runtime.zero import stage3, stage_1_and_2

    for cls in (stage_1_and_2.DeepSpeedZeroOptimizer, stage3.DeepSpeedZeroOptimizer_Stage3):
        find = cls.has_overflow
        cls.has_overflow = functools.wraps(find)(lambda self, *a, find=find, **k: bool(find(self, *a, **k)) and False)
    for module in (stage_1_and_2, stage3):
        judge = module.is_invalid_grad_norm
        module.is_invalid_grad_norm = functools.wraps(judge)(lambda norm, judge=judge: bool(judge(norm)) and False)
