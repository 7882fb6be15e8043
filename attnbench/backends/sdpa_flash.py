"""sdpa_flash: torch's scaled_dot_product_attention, the tiled kernel of FlashAttention."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from attnbench.backends.sdpa import prepare, refuse_cap, refuse_mask_gradient, refuse_on_cuda
from attnbench.types.backend import Backend
from attnbench.types.case import PASSES

if TYPE_CHECKING:
    from attnbench.types.case import Case
    from attnbench.types.rule import Rule


def supports(case: Case, rule: Rule) -> str | None:
    """On a CPU any mask and dtype, but values as wide as queries."""
    cap = refuse_cap(case, rule)
    if cap is not None or case.device == "cuda":
        return cap or refuse_on_cuda(case, rule, "flash")
    if case.Dv != case.D:
        return f"torch's flash kernel for the CPU needs Dv = D; here D = {case.D} and Dv = {case.Dv}"
    if case.dropout:
        return "torch's flash kernel for the CPU drops no weights"
    return refuse_mask_gradient(case, rule)


SDPA_FLASH = Backend(
    name="sdpa_flash",
    summary="torch SDPA pinned to its flash kernel",
    prepare=partial(prepare, kernel="flash"),
    supports=supports,
    operations=("attention", "multihead"),
    passes=PASSES,
    needs_dot_form=True,
    quadratic_copies=0,
    marks=(
        "_scaled_dot_product_flash_attention_for_cpu",
        "_scaled_dot_product_flash_attention",
        "_flash_attention_forward",
    ),
    dropout=True,
)
