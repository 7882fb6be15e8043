"""sdpa_math: torch's scaled_dot_product_attention, the unfused fallback."""

from __future__ import annotations

from functools import partial

from attnbench.backends.sdpa import prepare, refuse_cap
from attnbench.types.backend import Backend
from attnbench.types.case import PASSES

SDPA_MATH = Backend(
    name="sdpa_math",
    summary="torch SDPA pinned to its unfused math",
    prepare=partial(prepare, kernel="math"),
    supports=refuse_cap,
    operations=("attention", "multihead"),
    passes=PASSES,
    needs_dot_form=True,
    quadratic_copies=2,
    marks=("_scaled_dot_product_attention_math",),
    dropout=True,
)
