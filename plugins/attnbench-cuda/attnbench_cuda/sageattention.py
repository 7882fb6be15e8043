"""sageattention: products of queries and keys in 8-bit integers. It is approximate, and says so.

Written against ``sageattention.sageattn`` of 2.2, as its docstring has it: float16 or bfloat16, heads of 128
features at most, a causal mask for Lq = Lk, no other. Zhang et al. 2025, SageAttention. Rounding queries
and keys to 8 bits is more than the dtype allows, so it declares its arithmetic and is ``inaccurate``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnbench.kit.scores import form_of
from attnbench.types.backend import Backend, Setup
from attnbench_cuda.around import with_maps
from attnbench_cuda.device import needs_gpu

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.backend import Call
    from attnbench.types.case import Case
    from attnbench.types.rule import Rule

WIDEST_HEAD = 128


def arguments(setup: Setup) -> dict[str, Any]:
    """Return the arguments of ``sageattn`` besides q, k and v."""
    dot = setup.scoring.dot
    assert dot is not None
    return {
        "tensor_layout": "NHD",
        "is_causal": setup.case.mask.causal is not None,
        "sm_scale": dot.scale,
    }


def prepare(setup: Setup) -> Call:
    """Make the function of the case, for either operation."""
    from sageattention import sageattn

    told = arguments(setup)

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out: Tensor = sageattn(q, k, v, **told)
        return out

    return with_maps(call, setup)


def supports(case: Case, rule: Rule) -> str | None:
    """No mask or a square causal one, a plain product."""
    form, mask = form_of(case, rule), case.mask
    if case.Dv != case.D or case.D > WIDEST_HEAD:
        return f"sageattn needs Dv = D, {WIDEST_HEAD} at most; here D = {case.D} and Dv = {case.Dv}"
    if not mask.is_none and not (mask.is_only_causal and case.Lq == case.Lk):
        return "sageattn takes no mask but a causal one with Lq = Lk"
    if form.dot is not None and form.dot.cap is not None:
        return "sageattn has no soft cap"
    if form.bias is not None or form.sink is not None:
        return f"sageattn adds nothing to the scores: no {'bias' if form.sink is None else 'sink'}"
    return None


SAGEATTENTION = Backend(
    name="sageattention",
    summary="SageAttention: approximate, products of queries and keys in 8 bits",
    prepare=prepare,
    supports=supports,
    available=lambda device: needs_gpu("sageattention"),
    operations=("attention", "multihead"),
    needs_dot_form=True,
    dtypes=("bfloat16", "float16"),
    devices=("cuda",),
    layout="BLHD",
    requires=("sageattention",),
    computes_in="int8",
    forkable=False,
    quadratic_copies=0,
)
