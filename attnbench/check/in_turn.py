"""The plain reference once more, with the features of q and k added one after another.

Where one product of features outweighs all others, a score is off by what its sum is rounded by after that
product came: nearly nothing where it comes last, several units of it where it comes first. In a case of a few
rows the matmul of the plain reference may be lucky in the one row that counts, and kernels that add in
another order would be refused though they are right. First to last and last to first are the two ends of what
orders make of it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from attnbench.check.plain import dot_scores
from attnbench.types.case import Case

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.backend import Setup

ONE_PRODUCT_LEADS = ("deep_change",)
"""Families of inputs in which an element of k is raised far above the others."""

MOST_PRODUCTS = 1 << 22
"""Of features, in scores that are computed in turn; where there are more, many rows count."""


def counts_in_turn(case: Case, family: str) -> bool:
    """Whether a draw of a family is also measured by sums in turn."""
    products = case.B * case.H * case.Lq * case.Lk * case.D
    return (
        family in ONE_PRODUCT_LEADS
        and case.layer is None
        and case.pass_ == "forward"
        and products <= MOST_PRODUCTS
    )


def in_turn(setup: Setup, *, backwards: bool) -> Setup:
    """The same with scores whose features are added from the first to the last, or ``backwards``.

    A rule without a dot-product form stays as it is. Sums of half precision are float32, as a matmul's are.
    """
    dot = setup.scoring.dot
    if dot is None:
        return setup

    def product(q: Tensor, k: Tensor) -> Tensor:
        import torch

        wide = torch.promote_types(q.dtype, torch.float32)
        features = zip(q.to(wide).unbind(-1), k.to(wide).unbind(-1), strict=True)
        total = q.new_zeros((*q.shape[:-1], k.shape[-2]), dtype=wide)
        for of_q, of_k in reversed(list(features)) if backwards else features:
            total = total + of_q[..., :, None] * of_k[..., None, :]
        return total.to(q.dtype)

    def scores(q: Tensor, k: Tensor, keys: slice) -> Tensor:
        """(B, H, R, D) and (B, H, S, D) to (B, H, R, S), in their dtype."""
        return dot_scores(dot, q, k, product)

    return replace(setup, scoring=replace(setup.scoring, dot=None, scores=scores))
