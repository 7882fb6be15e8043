"""flashinfer_prefill: FlashInfer's kernel for the prefill of one request. Ye et al. 2025, FlashInfer.

Checked against ``flashinfer.single_prefill_with_kv_cache`` of 0.7.2.post1:

- q is (Lq, H, D), k and v are (Lk, Hkv, D) in the layout NHD. Its Hopper kernels have D = 64, 128 or 256.
- ``causal`` is aligned to the lower right. ``window_left`` keys before a query's own are seen, -1 for all;
  there is no window to the right.
- A mask of one's own (Lq, Lk), True = keep, replaces ``causal``. It is packed to bits in every call unless
  the bits are given: least significant bit first, rows one after the other.
- ``logits_soft_cap`` None or 0 is no cap. The result is the output alone unless ``return_lse`` is asked for.
- Its page names no gradients, and doesn't say what a row without a key gives: such rows are set to 0.

"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnbench.kit.masks import empty_rows, keep_mask
from attnbench.kit.scores import form_of
from attnbench.types.backend import Backend, Setup
from attnbench_cuda.around import with_maps
from attnbench_cuda.bands import band_of
from attnbench_cuda.device import cannot_call, needs_gpu

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from attnbench.types.backend import Call
    from attnbench.types.case import Case
    from attnbench.types.rule import Rule

HEADS = (64, 128, 256)


def arguments(setup: Setup) -> dict[str, Any]:
    """Return the arguments of the kernel besides q, k and v."""
    case, dot = setup.case, setup.scoring.dot
    assert dot is not None
    told: dict[str, Any] = {"kv_layout": "NHD", "sm_scale": dot.scale, "logits_soft_cap": dot.cap}
    band = band_of(case)
    if isinstance(band, str) or (band.before is not None and band.after != 0):
        keep = keep_mask(case, case.device)
        return told if keep is None else told | {"packed_custom_mask": _packed(keep[0, 0])}
    window = {} if band.before is None else {"window_left": band.before}
    return told | {"causal": band.after == 0} | window


def library_functions() -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Import the library's kernel, and the function that packs its masks."""
    from flashinfer import packbits, single_prefill_with_kv_cache

    return single_prefill_with_kv_cache, packbits


def _packed(keep: Tensor) -> Tensor:
    _, packbits = library_functions()
    bits: Tensor = packbits(keep.contiguous().view(-1), bitorder="little")
    return bits


def prepare(setup: Setup) -> Call:
    """Make the function of the case, for either operation."""
    single_prefill_with_kv_cache, _ = library_functions()
    told, empty = arguments(setup), empty_rows(setup.case, setup.case.device)
    # (1, 1, Lq, 1) to (Lq, 1, 1)
    rows = None if empty is None else empty[0, 0, :, :, None]

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out: Tensor = single_prefill_with_kv_cache(q[0], k[0], v[0], **told)
        return (out if rows is None else out.masked_fill(rows, 0)).unsqueeze(0)

    return with_maps(call, setup)


def available(device: str) -> str | None:
    """Ask for a device, and for the arguments of both functions."""
    named = ("kv_layout", "sm_scale", "logits_soft_cap", "packed_custom_mask", "causal", "window_left")
    return (
        needs_gpu("flashinfer")
        or cannot_call(lambda: library_functions()[0], *named)
        or cannot_call(lambda: library_functions()[1], "bitorder")
    )


def supports(case: Case, rule: Rule) -> str | None:
    """Refuse all but one sequence, heads of 64, 128 or 256 features, and masks that add nothing."""
    form = form_of(case, rule)
    if case.B != 1:
        return f"FlashInfer's kernel for one request takes one sequence; here B = {case.B}"
    if case.D not in HEADS or case.Dv != case.D:
        return f"FlashInfer has kernels for D = Dv = 64, 128 or 256; here D = {case.D} and Dv = {case.Dv}"
    if case.mask.explicit == "float":
        return "FlashInfer's kernel for one request adds no numbers to the scores"
    if form.bias is not None or form.sink is not None:
        what = "bias" if form.sink is None else "sink"
        return f"FlashInfer's kernel for one request takes no {what} of a rule's own"
    return None


FLASHINFER_PREFILL = Backend(
    name="flashinfer_prefill",
    summary="FlashInfer's prefill of one request",
    prepare=prepare,
    supports=supports,
    available=available,
    operations=("attention", "multihead"),
    needs_dot_form=True,
    dtypes=("bfloat16", "float16"),
    devices=("cuda",),
    layout="BLHD",
    masks=("any",),
    requires=("flashinfer",),
    forkable=False,
    # Its kernels are compiled for a case's dtype and head when they are first called.
    compiles=True,
    quadratic_copies=0,
)
