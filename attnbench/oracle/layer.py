"""The layer around the heads: projections before, and the last map after."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from attnbench.types.case import Case
from attnbench.types.rule import Rule

if TYPE_CHECKING:
    from attnbench.types.rule import Array


@dataclass(frozen=True)
class Heads:
    """Queries (B, H, R, D), keys (B, Hkv, Lk or R, D) and values (B, Hkv, Lk, Dv)."""

    q: Array
    k: Array
    v: Array


def heads_of(case: Case, projections: Mapping[str, Array], sources: tuple[Array, Array, Array]) -> Heads:
    """The heads: of ``attention`` the sources themselves, of ``multihead`` their projections (B, L, E)."""
    if case.layer is None:
        return Heads(*sources)
    projected = []
    for letter, heads, source in zip("qkv", (case.H, case.Hkv, case.Hkv), sources, strict=True):
        flat = source @ projections[f"w_{letter}"].T
        if case.layer.bias:
            flat = flat + projections[f"b_{letter}"]
        projected.append(flat.reshape(*flat.shape[:2], heads, -1).swapaxes(1, 2))
    return Heads(*projected)


def finish(case: Case, rule: Rule, projections: Mapping[str, Array], q: Array, out: Array) -> Array:
    """The output from heads (B, H, R, Dv): merged and mapped in ``multihead``, else as they are.

    A rule that concatenates maps [merged projected queries ; merged heads].
    """
    if case.layer is None:
        return out
    merged = _merged(out)
    if not case.layer.out:
        return merged
    if rule.concatenates:
        merged = np.concatenate([_merged(q), merged], axis=-1)
    last: Array = merged @ projections["w_o"].T
    return last + projections["b_o"] if case.layer.bias else last


def _merged(heads: Array) -> Array:
    B, H, R, features = heads.shape
    return heads.swapaxes(1, 2).reshape(B, R, H * features)
