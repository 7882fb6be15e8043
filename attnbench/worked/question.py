"""What is worked: tokens or q, k and v, with names, and what a rule does with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from attnbench.types.mask import EVERYTHING, Mask

if TYPE_CHECKING:
    from attnbench.types.rule import Array


@dataclass(frozen=True)
class Question:
    """Small inputs of attention, all in float64.

    q (H, Lq, D), k (H, Lk, D), v (H, Lk, Dv): what the rule is given; for a rule that pairs keys k is
    (H, Lq, D). queries, keys: a label for each, as printed. tokens: (L, E), where q, k and v are made of
    tokens. matrices: the textbook's W_q, W_k and W_v, (E, D), by which tokens are multiplied; empty where
    tokens are q, k and v themselves, or their parts where there are several heads. parameters: those of the
    rule by name, each (H, ...); None to draw them as it does. combine: (D + Dv, any), that [query ; output]
    is multiplied by at the end; None where the output is the end. seed: of what is drawn.
    what: where it comes from, in words.
    """

    q: Array
    k: Array
    v: Array
    queries: tuple[str, ...]
    keys: tuple[str, ...]
    mask: Mask = EVERYTHING
    tokens: Array | None = None
    matrices: Mapping[str, Array] = field(default_factory=dict)
    parameters: Mapping[str, Array] | None = None
    combine: Array | None = None
    seed: int = 0
    what: str = ""
