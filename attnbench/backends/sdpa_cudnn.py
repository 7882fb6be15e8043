"""sdpa_cudnn: torch's scaled_dot_product_attention, cuDNN's kernel."""

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
    return refuse_cap(case, rule) or refuse_on_cuda(case, rule, "cudnn")


SDPA_CUDNN = Backend(
    name="sdpa_cudnn",
    summary="torch SDPA pinned to cuDNN's kernel",
    prepare=partial(prepare, kernel="cudnn"),
    supports=supports,
    operations=("attention", "multihead"),
    passes=PASSES,
    needs_dot_form=True,
    devices=("cuda",),
    quadratic_copies=0,
    marks=("_scaled_dot_product_cudnn_attention", "_cudnn_attention_forward"),
    dropout=True,
)
