"""flash_attn: FlashAttention-2 of the package flash-attn. Dao 2023, FlashAttention-2.

Checked against ``flash_attn_func`` and ``csrc/flash_attn/flash_api.cpp`` of the release 2.8.3.post2:

- q is (B, Lq, H, D), k and v are (B, Lk, Hkv, D); query head h uses key head h // (H / Hkv). D is 256 at
  most; the function pads it to a multiple of 8. Values have the features of keys.
- Masks are aligned to the lower right. A query at p sees keys p - left to p + right, both included; -1 is a
  side without end. A row without a key gives 0.
- ``softcap`` > 0 caps the scores after the scale; with it there is no dropout.
- ``alibi_slopes`` (H,), float32: -slope · |p - j| is added. They get no gradient.
- The result is the output alone, unless ``return_attn_probs`` is asked for.

"""

from __future__ import annotations

from importlib.util import find_spec
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

WIDEST_HEAD = 256
ALIBI = "alibi"


def arguments(setup: Setup) -> dict[str, Any]:
    """Return the arguments of ``flash_attn_func`` besides q, k and v."""
    case, dot = setup.case, setup.scoring.dot
    assert dot is not None
    told: dict[str, Any] = {
        "dropout_p": case.dropout,
        "softmax_scale": dot.scale,
        "causal": case.mask.causal is not None,
        "window_size": (-1, -1) if case.mask.window is None else the_band(case).ends(),
        "softcap": dot.cap or 0.0,
    }
    if case.rule == ALIBI:
        told["alibi_slopes"] = setup.rule_parameters["slope"].detach().float()
    return told


def library_function() -> Callable[..., Any]:
    """Import the library's function."""
    from flash_attn import flash_attn_func

    function: Callable[..., Any] = flash_attn_func
    return function


def prepare(setup: Setup) -> Call:
    """Make the function of the case, for either operation."""
    flash_attn_func, told = library_function(), arguments(setup)

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out: Tensor = flash_attn_func(q, k, v, **told)
        return out

    return with_maps(call, setup)


def available(device: str) -> str | None:
    """Tell flash-attn 2 from the package flash-attn-4, which shares the folder and lacks its function."""
    if (reason := needs_gpu("flash-attn")) is not None:
        return reason
    spec = find_spec("flash_attn")
    if spec is None or spec.origin is None:
        return "flash_attn is here without flash-attn 2: only flash-attn-4 is installed"
    return cannot_call(
        library_function, "dropout_p", "softmax_scale", "causal", "window_size", "softcap", "alibi_slopes"
    )


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
    available=available,
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
