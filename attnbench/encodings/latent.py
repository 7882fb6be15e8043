"""latent: one tensor stands for keys and values, as in multi-head latent attention (MLA) after absorption.

DeepSeek-V2, 2024, section 2.1: decode has one key/value head of D features, a compressed part of Dv and the
rotated part behind it, 512 + 64; the values are the compressed part of the keys. Such a kernel gets q and kv,
(B, 1, L, D), in the dtype of the case. The scale belongs to the heads before absorption (192^-½ in DeepSeek),
so a case must give it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from attnbench.types.encoding import Encoding

if TYPE_CHECKING:
    from attnbench.types.case import Case
    from attnbench.types.operation import TensorSpec

    Specs = tuple[TensorSpec, ...]


def tensors(case: Case, specs: Specs) -> Specs:
    """Return the one tensor, in the shape of the keys."""
    return (replace(specs[0], name="kv"),)


def encode(case: Case, specs: Specs, numbers: Sequence[Any]) -> Sequence[Any]:
    """Return the keys; what was drawn as values has no place."""
    return (numbers[0],)


def decode(case: Case, specs: Specs, stored: Sequence[Any]) -> Sequence[Any]:
    """Return the keys, and their first features as values."""
    return stored[0], stored[0][..., : case.Dv]


def refuses(case: Case) -> str | None:
    """Return why a case can't have a latent head, or None."""
    if case.Hkv != 1:
        return f"there is one latent head: give Hkv1, not Hkv{case.Hkv}"
    if case.Dv > case.D:
        return f"the values are the first Dv = {case.Dv} features of the keys, which have D = {case.D}"
    if case.rule == "scaled_dot" and "scale" not in dict(case.constants):
        return "the scale is that of the heads before absorption: give it, as scaled_dot@scale=0.0722"
    return None


LATENT = Encoding(
    name="latent",
    summary="one tensor for keys and values: v is the first features of k",
    tensors=tensors,
    encode=encode,
    decode=decode,
    shared=True,
    keeps=("one_hot", "large_logits"),
    refuses=refuses,
    # torch repeats the one head for each query head where it has no kernel for D and Dv.
    baseline="dequantise_blocks",
)
