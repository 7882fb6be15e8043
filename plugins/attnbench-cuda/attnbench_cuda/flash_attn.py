"""flash_attn: FlashAttention-2 of the package flash-attn.

Written against ``flash_attn_func`` of 2.8, as its docstring has it: (B, L, heads, D), fewer key/value heads
for grouped queries, masks aligned to the lower right, 0 in rows without a key, slopes of ALiBi for each
head. Dao 2023, FlashAttention-2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnbench.kit.scores import form_of
from attnbench.types.backend import Backend, Setup
from attnbench.types.case import PASSES
from attnbench_cuda.around import with_maps
from attnbench_cuda.bands import band_of
from attnbench_cuda.device import needs_gpu

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.backend import Call
    from attnbench.types.case import Case
    from attnbench.types.rule import Rule

WIDEST_HEAD = 256
ALIBI = "alibi"


def arguments(setup: Setup) -> dict[str, Any]:
    """Return the arguments of ``flash_attn_func`` besides q, k and v; -1 is a window side without end."""
    case, dot = setup.case, setup.scoring.dot
    band = band_of(case)
    assert dot is not None
    assert not isinstance(band, str)
    ends = tuple(-1 if end is None else end for end in (band.before, band.after))
    told: dict[str, Any] = {
        "dropout_p": case.dropout,
        "softmax_scale": dot.scale,
        "causal": case.mask.causal is not None,
        "window_size": (-1, -1) if case.mask.window is None else ends,
        "softcap": dot.cap or 0.0,
    }
    if case.rule == ALIBI:
        told["alibi_slopes"] = setup.rule_parameters["slope"].detach().float()
    return told


def prepare(setup: Setup) -> Call:
    """Make the function of the case, for either operation."""
    from flash_attn import flash_attn_func

    told = arguments(setup)

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out: Tensor = flash_attn_func(q, k, v, **told)
        return out

    return with_maps(call, setup)


def supports(case: Case, rule: Rule) -> str | None:
    """Bands and ALiBi, heads up to 256 features; no gradient of the slopes."""
    band, form = band_of(case), form_of(case, rule)
    if isinstance(band, str):
        return f"flash_attn_func {band}"
    if case.Dv != case.D or case.D > WIDEST_HEAD:
        return f"flash_attn_func needs Dv = D, {WIDEST_HEAD} at most; here D = {case.D} and Dv = {case.Dv}"
    if form.sink is not None:
        return "flash_attn_func has no sinks"
    if form.bias is not None and rule.name != ALIBI:
        return f"flash_attn_func takes no bias but that of {ALIBI}"
    if form.bias is not None and case.pass_ != "forward":
        return "flash_attn_func gives no gradient of the slopes"
    if form.dot is not None and form.dot.cap is not None and case.dropout:
        return "flash_attn_func has no dropout together with a soft cap"
    return None


FLASH_ATTN = Backend(
    name="flash_attn",
    summary="FlashAttention-2 of the package flash-attn",
    prepare=prepare,
    supports=supports,
    available=lambda device: needs_gpu("flash-attn"),
    operations=("attention", "multihead"),
    needs_dot_form=True,
    dtypes=("bfloat16", "float16"),
    devices=("cuda",),
    passes=PASSES,
    layout="BLHD",
    requires=("flash_attn",),
    forkable=False,
    quadratic_copies=0,
    dropout=True,
)
