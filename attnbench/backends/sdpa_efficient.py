"""sdpa_efficient: torch's scaled_dot_product_attention, the memory-efficient kernel."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from attnbench.backends.sdpa import prepare, refuse_cap, refuse_on_cuda
from attnbench.types.backend import Backend
from attnbench.types.case import PASSES

if TYPE_CHECKING:
    from attnbench.types.case import Case
    from attnbench.types.rule import Rule


def supports(case: Case, rule: Rule) -> str | None:
    """What torch says of the case."""
    return refuse_cap(case, rule) or refuse_on_cuda(case, rule, "efficient")


SDPA_EFFICIENT = Backend(
    name="sdpa_efficient",
    summary="torch SDPA pinned to its memory-efficient kernel",
    prepare=partial(prepare, kernel="efficient"),
    supports=supports,
    operations=("attention", "multihead"),
    passes=PASSES,
    needs_dot_form=True,
    devices=("cuda",),
    quadratic_copies=0,
    marks=("_scaled_dot_product_efficient_attention", "_efficient_attention_forward"),
    dropout=True,
)
