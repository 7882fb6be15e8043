"""sageattention: products in 8 bits. It is approximate, and says so. Zhang et al. 2025, SageAttention 2.

Checked against ``sageattention.sageattn`` of 2.2 (repository thu-ml/SageAttention, commit 0116592), and the
wheel 1.0.6:

- ``tensor_layout="NHD"``: q is (B, Lq, H, D), k and v are (B, Lk, Hkv, D). D is 128 at most; it is padded to
  64 or 128. The mask is causal for Lq = Lk, or none. The result is the output alone; there are no gradients.
- Products of queries and keys are in int8. Those with the values are in float16 on 8.0 and 8.6, and in
  float8 (e4m3) on 8.9, 9.0 and 12.0; there are no other kernels. The coarser of both is declared:
  ``float8_e4m3``.
- Release 1 (all that PyPI has) subtracts the mean of the keys in the caller's memory, so it is refused.

"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from attnbench.kit.scores import form_of
from attnbench.types.backend import Backend, Setup
from attnbench_cuda.around import with_maps
from attnbench_cuda.device import cannot_call, needs_gpu

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from attnbench.types.backend import Call
    from attnbench.types.case import Case
    from attnbench.types.rule import Rule

WIDEST_HEAD = 128
CAPABILITIES = ((8, 0), (8, 6), (8, 9), (9, 0), (12, 0))


def arguments(setup: Setup) -> dict[str, Any]:
    """Return the arguments of ``sageattn`` besides q, k and v."""
    dot = setup.scoring.dot
    assert dot is not None
    return {
        "tensor_layout": "NHD",
        "is_causal": setup.case.mask.causal is not None,
        "sm_scale": dot.scale,
    }


def library_function() -> Callable[..., Any]:
    """Import the library's function."""
    from sageattention import sageattn

    function: Callable[..., Any] = sageattn
    return function


def prepare(setup: Setup) -> Call:
    """Make the function of the case, for either operation."""
    sageattn, told = library_function(), arguments(setup)

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out: Tensor = sageattn(q, k, v, **told)
        return out

    return with_maps(call, setup)


def available(device: str) -> str | None:
    """Ask for a device with a kernel, and for a release that leaves the keys as they are."""
    if (reason := needs_gpu("sageattention", only=CAPABILITIES)) is not None:
        return reason
    try:
        found = version("sageattention")
    except PackageNotFoundError:
        found = ""
    if found.startswith(("0.", "1.")):
        return f"sageattention {found} writes to the keys it is given: install release 2 from its repository"
    return cannot_call(library_function, "tensor_layout", "is_causal", "sm_scale")


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
    summary="SageAttention: approximate, products in 8 bits",
    prepare=prepare,
    supports=supports,
    available=available,
    operations=("attention", "multihead"),
    needs_dot_form=True,
    dtypes=("bfloat16", "float16"),
    devices=("cuda",),
    layout="BLHD",
    requires=("sageattention",),
    computes_in="float8_e4m3",
    forkable=False,
    quadratic_copies=0,
)
