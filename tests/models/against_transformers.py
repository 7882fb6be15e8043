"""Compare the attention that transformers computes with what attnbench reads from the same config.

Every type of causal language model that the installed transformers builds from its default config is built
without weights, on the meta device. One forward pass of a few tokens goes through an attention function that
notes its arguments. The config is written as ``save_pretrained`` writes it, and read as ``attnbench suite
from-config`` reads it::

    python tests/models/against_transformers.py [TYPE ...] [--differences]

prints a table of the outcomes for the docs. --differences prints both sides of each type that differs.
"""

from __future__ import annotations

import json
import logging
import sys
import warnings
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from transformers import AttentionInterface, AttentionMaskInterface, AutoConfig, AutoModelForCausalLM
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from attnbench.models.config import describe
from attnbench.models.layers import rule_of
from attnbench.types.errors import BadFile

TOKENS = 8
FAR = 2**20
"""A position beyond every window and chunk of a default config."""

SCALED_BEFORE = ("opt", "whisper")
"""Types that multiply their queries by the scale before they call attention, so that the function sees 1."""


@dataclass(frozen=True)
class Layer:
    """What a layer computes. scale: with four digits, as cases have it. mask: in words."""

    H: int
    Hkv: int
    D: int
    Dv: int
    scale: str
    mask: str
    softcap: float | None
    sinks: bool


@dataclass(frozen=True)
class Outcome:
    """A type. computed, read: how often either side has which layer. said: what attnbench says of it."""

    type: str
    computed: Counter[Layer]
    read: Counter[Layer]
    said: tuple[str, ...]

    @property
    def same(self) -> bool:
        """Whether both sides have the same layers."""
        return self.computed == self.read


class Noted:
    """The layers of one forward pass, as they reach the attention function."""

    def __init__(self) -> None:
        self.layers: Counter[Layer] = Counter()
        self._masks: dict[int, tuple[torch.Tensor, str]] = {}

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
        **_: Any,
    ) -> tuple[torch.Tensor, None]:
        """Note a call, and return an output of its shape."""
        B, H, L, D = query.shape
        Dv = value.shape[-1]
        if attention_mask is None:
            mask = "causal" if getattr(module, "is_causal", True) else "none"
        elif id(attention_mask) in self._masks:
            mask = self._masks[id(attention_mask)][1]
        else:  # The layer has changed the mask.
            mask = " or ".join({words for _, words in self._masks.values()})
        scale = f"{D**-0.5 if scaling is None else scaling:.4g}"
        self.layers[Layer(H, key.shape[1], D, Dv, scale, mask, softcap, s_aux is not None)] += 1
        return query.new_empty(B, L, H, Dv), None


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
    return f"{direction} window {FAR - first + 1}"


def computed(type_: str) -> tuple[dict[str, Any], Counter[Layer]] | None:
    """Return the default config of a type and its layers; None where it can't be built and called so."""
    noted = Noted()
    AttentionInterface.register("noted", noted.attend)
    AttentionMaskInterface.register("noted", noted.mask)
    try:
        config = AutoConfig.for_model(type_)
        fields = json.loads(config.to_json_string())
        with torch.device("meta"):
            # Experts are computed together in this dtype, whatever the router says.
            model = AutoModelForCausalLM.from_config(
                config, attn_implementation="noted", dtype=torch.bfloat16
            )
    except Exception:  # Default configs that contradict themselves.
        return None
    tokens = torch.zeros(1, TOKENS, dtype=torch.long, device="meta")
    for more in ({}, {"use_cache": False, "attention_mask": torch.ones_like(tokens)}):
        noted.layers.clear()
        try:
            with torch.no_grad():
                model.eval()(input_ids=tokens, **more)
        except Exception:  # Code that needs numbers.
            continue
        if noted.layers:
            return fields, noted.layers
    return None


def read(type_: str, fields: Mapping[str, Any]) -> tuple[Counter[Layer], tuple[str, ...]]:
    """Return the layers that attnbench reads from a config, and what it says of them."""
    layers: Counter[Layer] = Counter()
    try:
        model = describe(dict(fields))
    except BadFile as failure:
        return layers, (f"refused: {failure}",)
    said = list(model.notes)
    for kind in model.layers:
        said += [f"{kind.name}: no case yet has {words}" for words in rule_of(kind)[1]]
        if kind.update:  # test_recurrent_layers.py holds these against the modules.
            continue
        beside = kind.name in ("encoder", "cross-attention") and len(model.layers) > 1
        if "prefill" not in kind.stages or beside:  # of an encoder and its decoder, the decoder is built
            continue
        mask = "causal" if kind.causal else "none"
        if kind.window:
            mask += f" window {kind.window}"
        if kind.chunk:
            mask += f" chunk {kind.chunk}"
        scale = "1" if type_ in SCALED_BEFORE else f"{kind.scale:.4g}"
        layers[Layer(kind.H, kind.Hkv, kind.D, kind.Dv, scale, mask, kind.softcap, kind.sinks)] += kind.count
    return layers, tuple(said)


def outcomes(types: Sequence[str] = ()) -> Iterator[Outcome]:
    """Yield the outcome of each type that can be compared."""
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    for type_ in types or sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES):
        if (built := computed(type_)) is not None:
            fields, layers = built
            yield Outcome(type_, layers, *read(type_, fields))


def table(found: Sequence[Outcome]) -> str:
    """Return the outcomes as Markdown."""
    same = [one.type for one in found if one.same]
    lines = [
        f"transformers {transformers.__version__}: {len(same)} of {len(found)} types are the same.",
        "",
        "| types | attnbench says |",
        "|---|---|",
        f"| {', '.join(same)} | the same layers |",
    ]
    lines += [f"| {one.type} | {'; '.join(one.said) or 'nothing'} |" for one in found if not one.same]
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("types", nargs="*", metavar="TYPE")
    parser.add_argument("--differences", action="store_true")
    given = parser.parse_args()
    found = list(outcomes(given.types))
    print(table(found))
    for one in found:
        if given.differences and not one.same:
            print(f"\n{one.type}")
            for name, layers in (("computed", one.computed), ("read", one.read)):
                print(*(f"  {name}: {number} {layer}" for layer, number in layers.items()), sep="\n")


if __name__ == "__main__":
    sys.exit(main())
