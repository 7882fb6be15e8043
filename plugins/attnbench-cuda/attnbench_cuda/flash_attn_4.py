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

Packed sequences and pages go to ``flash_attn_varlen_func`` of the same release:

- q is (T, H, D) with cumulative lengths in int32; k and v (S, Hkv, D or Dv) have their own, or are (pages,
  page, Hkv, D or Dv) with ``seqused_k`` (N,) and ``page_table`` (N, most pages), both int32. A page has any
  number of keys.
- Slots behind the last key, in its page, must be finite. So a cache of pages gets 0 in the place of NaN
  before a call.
- The log-sum-exp is natural, (H, T), and has the sink in it. It is given as (T, H), which is timed, and not
  with sinks.

"""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from attnbench.kit.scores import form_of
from attnbench.types.backend import Backend, Setup
from attnbench.types.case import PASSES
from attnbench_cuda.around import with_maps
from attnbench_cuda.bands import BAND_MASKS, band_of, the_band
from attnbench_cuda.device import cannot_call, needs_gpu
from attnbench_cuda.packed import refuse_maps, tokens_first

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

    from attnbench.types.backend import Call
    from attnbench.types.case import Case
    from attnbench.types.rule import Rule

NAMED = ("softmax_scale", "causal", "window_size", "learnable_sink", "softcap")
"""Arguments that each of the library's functions is given."""
MULTIPLE, WIDEST_HEAD = 8, 128
WIDER_HEADS = ((192, 128), (256, 256))
"""(D, Dv) beyond :data:`WIDEST_HEAD`."""


def arguments(setup: Setup) -> dict[str, Any]:
    """Return the arguments of ``flash_attn_func`` besides q, k and v."""
    dot, band = setup.scoring.dot, the_band(setup.case)
    assert dot is not None
    return {
        "softmax_scale": dot.scale,
        "causal": band.causal,
        "window_size": band.window(),
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


def varlen_function() -> Callable[..., Any]:
    """Import the library's function of packed sequences and pages."""
    from flash_attn.cute import flash_attn_varlen_func

    function: Callable[..., Any] = flash_attn_varlen_func
    return function


class Varlen:
    """The prepared function of packed sequences, with keys packed too or in pages."""

    def __init__(self, setup: Setup) -> None:
        self.function, self.told = varlen_function(), arguments(setup)
        self.case, self.lse = setup.case, "lse" in setup.case.returns

    def convert(self, cache: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the cache with 0 in the place of NaN."""
        import torch

        return {name: x.nan_to_num(0.0, torch.inf, -torch.inf) for name, x in cache.items()}

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, *places: Tensor) -> Any:
        """Attend, (T, H, Dv).

        places: where queries begin, and where keys do; or how many keys there are, and the table.
        """
        starts, *keys = places
        names = ("cu_seqlens_k",) if len(keys) == 1 else ("seqused_k", "page_table")
        out, lse = self.function(
            q, k, v, cu_seqlens_q=starts, max_seqlen_q=self.case.Lq, max_seqlen_k=self.case.Lk,
            return_lse=self.lse, **dict(zip(names, keys, strict=True)), **self.told,
        )  # fmt: skip
        return (out, tokens_first(lse)) if self.lse else out


def available(device: str) -> str | None:
    """Ask for the package: flash-attn 2.8 has a folder of the same name with an earlier state."""
    if (reason := needs_gpu("FlashAttention-4", (9, 0))) is not None:
        return reason
    try:
        version("flash-attn-4")
    except PackageNotFoundError:
        return "FlashAttention-4 needs the package flash-attn-4, which is not installed"
    return cannot_call(library_function, *NAMED)


def available_varlen(device: str) -> str | None:
    """Ask besides for the function of sequences and pages."""
    return available(device) or cannot_call(varlen_function, *NAMED, "seqused_k", "page_table", "return_lse")


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


def supports_varlen(case: Case, rule: Rule) -> str | None:
    """Decline besides rules that map queries and keys, and the log-sum-exp beside sinks."""
    if case.returns and form_of(case, rule).sink is not None:
        return "FlashAttention-4 counts the sink in the log-sum-exp, and attnbench leaves it out"
    return supports(case, rule) or refuse_maps(case, rule, "FlashAttention-4")


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
    masks=BAND_MASKS,
)

FLASH_ATTN_4_VARLEN = replace(
    FLASH_ATTN_4,
    name="flash_attn_4_varlen",
    summary="FlashAttention-4 of packed sequences",
    prepare=Varlen,
    supports=supports_varlen,
    available=available_varlen,
    operations=("attention",),
    storages=("packed",),
    returns=("lse",),
    layout="BHLD",
)

FLASH_ATTN_4_PAGED = replace(
    FLASH_ATTN_4_VARLEN,
    name="flash_attn_4_paged",
    summary="FlashAttention-4 of packed queries with keys in pages",
    passes=("forward",),
    storages=("paged",),
    converts=("k", "v"),
)
