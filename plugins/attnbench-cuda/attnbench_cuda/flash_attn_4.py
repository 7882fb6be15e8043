"""flash_attn_4: FlashAttention-4, ``flash_attn.cute`` of the package flash-attn-4.

Checked against ``flash_attn.cute.flash_attn_func`` of the beta 4.0.0b36:

- Layout and grouped queries are those of :mod:`attnbench_cuda.flash_attn`; the result is always the pair of
  output and log-sum-exp.
- Windows: (left, right) around a query's position, both included, None for a side without end.
- ``learnable_sink`` (H,) is one more logit in the denominator; it gets a gradient on 9.x to 11.x.
- ``softcap`` > 0 caps the scores after the scale.
- Heads have a multiple of 8 features. 9.x takes up to 256; 10.x and 11.x up to 128, or (D, Dv) = (192, 128)
  or (256, 256). Sizes that both take are taken here.
- Nothing says what a row without a key gives, so masks with such rows are refused.
- Its README names Hopper and Blackwell; backward needs 9.0 or more. It compiles at its first call.

"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from attnbench.kit.scores import form_of
from attnbench.types.backend import Backend, Setup
from attnbench.types.case import PASSES
from attnbench_cuda.around import with_maps
from attnbench_cuda.bands import band_of, the_band
from attnbench_cuda.device import cannot_call, needs_gpu

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from attnbench.types.backend import Call
    from attnbench.types.case import Case
    from attnbench.types.rule import Rule

MULTIPLE, WIDEST_HEAD = 8, 128
WIDER_HEADS = ((192, 128), (256, 256))
"""(D, Dv) beyond :data:`WIDEST_HEAD`."""


def arguments(setup: Setup) -> dict[str, Any]:
    """Return the arguments of ``flash_attn_func`` besides q, k and v."""
    case, dot = setup.case, setup.scoring.dot
    assert dot is not None
    band = the_band(case)
    return {
        "softmax_scale": dot.scale,
        "causal": case.mask.causal is not None,
        "window_size": (None, None) if case.mask.window is None else (band.before, band.after),
        "learnable_sink": setup.scoring.sink,
        "softcap": dot.cap or 0.0,
    }


def library_function() -> Callable[..., Any]:
    """Import the library's function."""
    from flash_attn.cute import flash_attn_func

    function: Callable[..., Any] = flash_attn_func
    return function


def prepare(setup: Setup) -> Call:
    """Make the function of the case, for either operation."""
    flash_attn_func, told = library_function(), arguments(setup)

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out: Tensor = flash_attn_func(q, k, v, **told)[0]
        return out

    return with_maps(call, setup)


def available(device: str) -> str | None:
    """Ask for the package: flash-attn 2.8 has a folder of the same name with an earlier state."""
    if (reason := needs_gpu("FlashAttention-4", (9, 0))) is not None:
        return reason
    try:
        version("flash-attn-4")
    except PackageNotFoundError:
        return "FlashAttention-4 needs the package flash-attn-4, which is not installed"
    return cannot_call(
        library_function, "softmax_scale", "causal", "window_size", "learnable_sink", "softcap"
    )


def supports(case: Case, rule: Rule) -> str | None:
    """Bands that leave no row without a key, sinks, and heads that Hopper and Blackwell both take."""
    band, form = band_of(case), form_of(case, rule)
    if isinstance(band, str):
        return f"FlashAttention-4 {band}"
    if band.leaves_rows_empty(case):
        return "FlashAttention-4 doesn't say what a query without a key gives"
    narrow = max(case.D, case.Dv) <= WIDEST_HEAD
    if case.D % MULTIPLE or case.Dv % MULTIPLE or not (narrow or (case.D, case.Dv) in WIDER_HEADS):
        return (
            f"FlashAttention-4 needs D and Dv of a multiple of {MULTIPLE}, {WIDEST_HEAD} at most, or (D, Dv) "
            f"= (192, 128) or (256, 256); here D = {case.D} and Dv = {case.Dv}"
        )
    if form.bias is not None:
        return "FlashAttention-4 takes a bias as a function of its own, which this backend doesn't write"
    return None


FLASH_ATTN_4 = Backend(
    name="flash_attn_4",
    summary="FlashAttention-4, flash_attn.cute of the package flash-attn-4",
    prepare=prepare,
    supports=supports,
    available=available,
    operations=("attention", "multihead"),
    needs_dot_form=True,
    dtypes=("bfloat16", "float16"),
    devices=("cuda",),
    passes=PASSES,
    layout="BLHD",
    requires=("flash_attn",),
    forkable=False,
    compiles=True,
    quadratic_copies=0,
)
