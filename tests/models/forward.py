"""The layers that transformers computes for a config, noted in one forward pass without weights.

The model is built on the meta device. Its attention goes through a registered function that notes its
arguments; what calls torch's function itself is noted there. Layers that call no attention function are read
off their modules.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from math import isqrt
from typing import Any
from unittest.mock import patch

import torch
from readings import Layer
from torch.fx.experimental import _config as fx_config
from torch.overrides import TorchFunctionMode
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
)
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

# transformers calls fla where it is installed, whose kernels have no driver on the meta device.
sys.modules.setdefault("fla", None)  # type: ignore[arg-type]

TOKENS, TARGET = 8, 5
"""The tokens of a text, and those of a decoder behind an encoder: unlike, so that cross-attention shows."""
FAR = 2**20
"""A position beyond every window and chunk of a default config."""

UNSAID = {"ShortConv": "short convolution"}
"""Ends of the names of modules, and the layers that no rule says which they compute."""

IN_THE_CLASSES_OF = {"kimi_k2": "deepseek_v3", "nemotron_3": "nemotron_h", "RefinedWeb": "falcon"}
"""Types that transformers lacks, and the type whose class their published files name."""


class Noted(TorchFunctionMode):
    """The attention layers of one forward pass, as they reach an attention function."""

    def __init__(self) -> None:
        super().__init__()
        self.layers: Counter[Layer] = Counter()
        self._masks: dict[int, tuple[torch.Tensor, str]] = {}

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Note calls of torch's own functions, as a layer makes them that asks for no attention function."""
        given = kwargs or {}
        if func is torch.nn.functional.scaled_dot_product_attention:
            q, k, v, mask = (*args, given.get("attn_mask"))[:4]
            causal = "causal" if given.get("is_causal") else "none"
            self._note(q, k, v, given.get("scale"), causal if mask is None else self._words(mask))
            return q.new_empty(*q.shape[:-1], v.shape[-1])
        if func is torch.nn.functional.multi_head_attention_forward:
            heads = (x.transpose(0, 1).unflatten(-1, (args[4], -1)).transpose(1, 2) for x in args[:3])
            self._note(*heads, None, "none")
        # Experts that a loop looks up by number: any number does, and the last one is as any.
        if func in (torch.Tensor.item, torch.Tensor.__bool__) and args[0].is_meta:
            return 0 if func is torch.Tensor.item else False
        if func is torch.Tensor.__getitem__ and isinstance(args[1], torch.Tensor) and not args[1].ndim:
            args = args[0], 0
        return func(*args, **given)

    def mask(
        self, batch_size: int, q_length: int, kv_length: int, mask_function: Callable[..., Any], **more: Any
    ) -> torch.Tensor:
        """Return a mask without numbers, and remember what it would keep."""
        mask = torch.ones(batch_size, 1, q_length, kv_length, dtype=torch.bool, device="meta")
        self._masks[id(mask)] = mask, mask_words(mask_function, more.get("local_size"))
        return mask

    def attend(
        self,
        module: torch.nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        scaling: float | None = None,
        softcap: float | None = None,
        s_aux: torch.Tensor | None = None,
        position_bias: torch.Tensor | None = None,
        is_causal: bool | None = None,
        **_: Any,
    ) -> tuple[torch.Tensor, None]:
        """Note a call, and return an output of its shape."""
        mask = "causal" if getattr(module, "is_causal", True) and is_causal is not False else "none"
        if attention_mask is not None:
            mask = self._words(attention_mask)
        self._note(
            query, key, value, scaling, mask, softcap, sinks=s_aux is not None,
            biased=position_bias is not None,
        )  # fmt: skip
        B, H, L, _D = query.shape
        return query.new_empty(B, L, H, value.shape[-1]), None

    def _words(self, mask: torch.Tensor) -> str:
        if id(mask) in self._masks:
            return self._masks[id(mask)][1]
        return " or ".join({words for _, words in self._masks.values()})  # The layer has changed the mask.

    def _note(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        scale: float | None,
        mask: str,
        softcap: float | None = None,
        **more: bool,
    ) -> None:
        _, H, L, D = q.shape
        if k.shape[-2] != L:
            mask, more = "cross", more | {"biased": False}  # T5 adds zeros there
        sizes = {"H": H, "Hkv": k.shape[1], "D": D, "Dv": v.shape[-1]}
        words = f"{D**-0.5 if scale is None else scale:.4g}"
        tokens = 0 if L in (TOKENS, TARGET) else L
        self.layers[Layer(**sizes, scale=words, mask=mask, softcap=softcap, tokens=tokens, **more)] += 1


def mask_words(keeps: Callable[..., Any], local: int | None) -> str:
    """Return what a mask function keeps, by the pairs that it keeps far from the first token."""

    def kept(q: Any, k: Any) -> torch.Tensor:
        zero = torch.tensor(0, device="cpu")
        q, k = torch.as_tensor(q, device="cpu"), torch.as_tensor(k, device="cpu")
        return torch.as_tensor(keeps(zero, zero, q, k)).expand(torch.broadcast_shapes(q.shape, k.shape))

    try:
        keys = kept(FAR, torch.arange(2 * FAR, device="cpu")).nonzero()
    except RuntimeError:  # A chunk's padding is a tensor of the meta device.
        return f"causal chunk {local}"
    first, last = int(keys[0]), int(keys[-1])
    direction = "causal" if last == FAR else "none"
    if first == 0:
        return direction
    earlier, later = FAR - first + 1, last - FAR + 1
    uneven = direction == "none" and earlier != later
    return f"{direction} window {earlier}" + (f", {later} later" if uneven else "")


def recurrent_layers(model: torch.nn.Module) -> Counter[Layer]:
    """Return the layers of a model that its modules tell: recurrences, indexers, and LongT5's encoder."""
    found: Counter[Layer] = Counter()
    for module in model.modules():
        layer: Any = module
        name = type(layer).__name__
        if hasattr(layer, "head_k_dim"):
            sizes = layer.num_v_heads, layer.num_k_heads, layer.head_k_dim, layer.head_v_dim
            found[Layer(*sizes, rule="gated_delta")] += 1
        elif hasattr(layer, "ssm_state_size") and hasattr(layer, "n_groups"):
            sizes = layer.num_heads, layer.n_groups, layer.ssm_state_size, layer.head_dim
            found[Layer(*sizes, rule="gated")] += 1
        elif name.endswith("MambaMixer"):
            heads = getattr(layer, "n_mamba_heads", 1)
            sizes = heads, heads, layer.ssm_state_size, layer.intermediate_size // heads
            found[Layer(*sizes, rule="selective")] += 1
        elif name.endswith("Rglru"):
            found[Layer(1, 1, 1, layer.recurrent_param.numel(), rule="selective")] += 1
        elif hasattr(layer, "slope_rate"):
            found[Layer(*[layer.num_attention_heads] * 2, *[layer.head_dim] * 2, rule="lightning")] += 1
        elif name.endswith("Indexer") and hasattr(layer, "n_heads"):  # not DeepSeek-V4's, of compressed keys
            found[Layer(layer.n_heads, 1, layer.head_dim, layer.head_dim, rule="select")] += 1
        elif hasattr(layer, "local_radius") and hasattr(
            layer, "n_heads"
        ):  # LongT5: its encoder calls no attention function
            mask = f"none window {layer.block_len}"
            if hasattr(layer, "global_block_size"):
                mask += f" summaries {layer.global_block_size}"
            sizes = layer.n_heads, layer.n_heads, layer.key_value_proj_dim, layer.key_value_proj_dim
            found[Layer(*sizes, scale="1", mask=mask, biased=True)] += 1
        elif name.endswith("DeltaAttention"):
            sizes = layer.num_heads, layer.num_heads, layer.head_dim, layer.head_dim
            found[Layer(*sizes, rule="gated_delta_channels")] += 1
        else:
            for end, rule in UNSAID.items():
                if name.endswith(end):
                    found[Layer(rule=rule)] += 1
    return found


@dataclass(frozen=True)
class Built:
    """A model. fields: its config as save_pretrained writes it. layers: what one forward pass computes."""

    fields: dict[str, Any]
    layers: Counter[Layer]


def built(type_: str, fields: Mapping[str, Any], *, causal: bool = False) -> Built | None:
    """Return the layers of a model of this type and config; None where it can't be built and called so.

    causal: of the model with a head for the next token, as of a decoder that also has an encoder.
    """
    if (config := _config(type_, fields)) is None:
        return None
    for make in (AutoModelForCausalLM.from_config,) if causal else _makers(config):
        for implementation in ("noted", "sdpa"):
            layers = _forward(make, config, implementation)
            if layers:
                return Built(json.loads(config.to_json_string()), layers)
    return None


def written(fields: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a config with every field of its class, as save_pretrained writes it; None without a class."""
    own = dict(fields)
    config = _config(own.pop("model_type"), own)
    return None if config is None else json.loads(config.to_json_string())


def _config(type_: str, fields: Mapping[str, Any]) -> Any:
    try:
        return AutoConfig.for_model(IN_THE_CLASSES_OF.get(type_, type_), **fields)
    except Exception:  # Default configs that contradict themselves, and types that are not there.
        return None


def _makers(config: Any) -> Iterator[Callable[..., Any]]:
    """Yield what may make a model of a config; the encoder of a larger model is in no list."""
    yield AutoModel.from_config
    yield AutoModelForCausalLM.from_config
    module = import_module(type(config).__module__.replace("configuration_", "modeling_"))
    for name, made in vars(module).items():
        if name.endswith("Model") and getattr(made, "config_class", None) is type(config):
            yield made._from_config


def _forward(make: Callable[..., Any], config: Any, implementation: str) -> Counter[Layer]:
    noted = Noted()
    AttentionInterface.register("noted", noted.attend)
    AttentionMaskInterface.register("noted", noted.mask)
    ALL_MASK_ATTENTION_FUNCTIONS["sdpa"] = noted.mask  # here alone, for types that know no other function
    try:
        return _one_pass(noted, make, config, implementation)
    finally:
        del ALL_MASK_ATTENTION_FUNCTIONS["sdpa"]


def _one_pass(noted: Noted, make: Callable[..., Any], config: Any, implementation: str) -> Counter[Layer]:
    try:
        with torch.device("meta"):
            # Experts are computed together in this dtype, whatever the router says.
            model = make(config, attn_implementation=implementation, dtype=torch.bfloat16)
    except Exception:  # The type is in no list of this class, or has no such attention function.
        return Counter()
    for inputs in _inputs(model.eval(), config):
        noted.layers.clear()
        try:
            # Experts that are looked up by who chose them: all are taken to be chosen.
            with torch.no_grad(), noted, patch.object(fx_config, "meta_nonzero_assume_all_nonzero", True):
                model(**inputs)
        except Exception:  # Code that needs numbers.
            continue
        if own := recurrent_layers(model):
            return noted.layers + own
        if noted.layers:
            return noted.layers
    return Counter()


def _inputs(model: Any, config: Any) -> Iterator[dict[str, Any]]:
    """Yield inputs to try, on the meta device."""
    meta = {"device": "meta"}
    if (size := getattr(config, "image_size", None)) and not hasattr(config, "vocab_size"):
        sides = (size, size) if isinstance(size, int) else tuple(size)
        yield {"pixel_values": torch.zeros(1, config.num_channels, *sides, dtype=torch.bfloat16, **meta)}
        return
    if patches := getattr(config, "num_patches", None):  # SigLIP 2, which takes an image as its patches
        side = isqrt(patches)
        features = config.num_channels * config.patch_size**2
        yield {
            "pixel_values": torch.zeros(1, patches, features, dtype=torch.bfloat16, **meta),
            "pixel_attention_mask": torch.ones(1, patches, dtype=torch.long, **meta),
            "spatial_shapes": torch.tensor([[side, patches // side]]),
        }
        return
    tokens = {"input_ids": torch.zeros(1, TOKENS, dtype=torch.long, **meta)}
    if model.main_input_name == "input_features":
        frames = 2 * config.max_source_positions
        tokens = {"input_features": torch.zeros(1, config.num_mel_bins, frames, dtype=torch.bfloat16, **meta)}
    if config.is_encoder_decoder and hasattr(model, "encoder"):
        tokens["decoder_input_ids"] = torch.zeros(1, TARGET, dtype=torch.long, **meta)
    yield tokens
    ones = {name: torch.ones_like(one) for name, one in tokens.items() if name == "input_ids"}
    yield {**tokens, "use_cache": False, **({"attention_mask": ones["input_ids"]} if ones else {})}
