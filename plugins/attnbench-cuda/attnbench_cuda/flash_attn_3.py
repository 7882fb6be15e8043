"""flash_attn_3: FlashAttention-3 of the package flash_attn_3. Shah et al. 2024, FlashAttention-3.

Checked against ``flash_attn_interface.flash_attn_func`` in the folder ``hopper`` of flash-attn 2.8.3.post2
and of the main branch (commit 01afd16), and the checks of ``hopper/flash_api.cpp`` there:

- Layout, grouped queries, windows, soft cap and rows without a key are those of
  :mod:`attnbench_cuda.flash_attn`. There is no dropout, no ALiBi and no sink.
- Heads have a multiple of 8 features, 256 at most. Values may have others on compute capability 9.x: up to
  512 for D <= 64, or 104 to 128 for D from 136 to 192. Gradients are asked for with Dv = D alone.
- Releases give the output; betas before 2.8 gave it with the log-sum-exp in a tuple.
- Kernels are built for 8.x and 9.0a: later devices have none.

Packed sequences go to ``flash_attn_varlen_func`` and pages to ``flash_attn_with_kvcache``, checked against
the main branch (commit c082294):

- q is (T, H, D) with cumulative lengths in int32; k and v (S, Hkv, D or Dv) have their own, or are (pages,
  page, Hkv, D or Dv) with ``cache_seqlens`` (N,) and ``page_table`` (N, most pages), both int32. A page has
  any number of keys.
- The log-sum-exp is natural, (H, T), and -inf where a row has no key. It is given as (T, H), which is
  timed. The release 2.8.3 gives none of packed sequences, so the function must take ``return_attn_probs``.

"""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from attnbench.kit.scores import form_of
from attnbench.types.backend import Backend, Setup
from attnbench.types.case import PASSES
from attnbench_cuda.around import with_maps
from attnbench_cuda.bands import BAND_MASKS, band_of, the_band
from attnbench_cuda.device import cannot_call, needs_gpu
from attnbench_cuda.packed import refuse_maps, tokens_first

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from attnbench.types.backend import Call
    from attnbench.types.case import Case
    from attnbench.types.rule import Rule

WIDEST_HEAD, MULTIPLE = 256, 8
ARGUMENTS = ("softmax_scale", "causal", "window_size", "softcap")
"""What ``flash_attn_func`` is given besides q, k and v."""
VARLEN = ("flash_attn_varlen_func", "flash_attn_with_kvcache")


def arguments(setup: Setup) -> dict[str, Any]:
    """Return the arguments of ``flash_attn_func`` besides q, k and v."""
    dot, band = setup.scoring.dot, the_band(setup.case)
    assert dot is not None
    return {
        "softmax_scale": dot.scale,
        "causal": band.causal,
        "window_size": band.ends(),
        "softcap": dot.cap or 0.0,
    }


def attend_by(flash_attn_func: Callable[..., Any], setup: Setup) -> Call:
    """Make the function of a case of either operation from the library's."""
    told = arguments(setup)

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out = flash_attn_func(q, k, v, **told)
        only: Tensor = out[0] if isinstance(out, tuple) else out
        return only

    return with_maps(call, setup)


def library_function() -> Callable[..., Any]:
    """Import the library's function."""
    from flash_attn_interface import flash_attn_func

    function: Callable[..., Any] = flash_attn_func
    return function


def prepare(setup: Setup) -> Call:
    """Make the function of the case, for either operation."""
    return attend_by(library_function(), setup)


class Varlen:
    """The prepared function of packed sequences, with keys packed too or in pages."""

    def __init__(self, setup: Setup) -> None:
        self.packed, self.paged = (_function(name)() for name in VARLEN)
        self.told, self.case, self.lse = arguments(setup), setup.case, "lse" in setup.case.returns

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, *places: Tensor) -> Any:
        """Attend, (T, H, Dv).

        places: where queries begin, and where keys do; or how many keys there are, and the table.
        """
        starts, *keys = places
        Lq, Lk = self.case.Lq, self.case.Lk
        if len(keys) == 1:
            found = self.packed(
                q, k, v, starts, *keys, Lq, Lk, return_attn_probs=self.lse, **self.told
            )  # fmt: skip
        else:
            used, table = keys
            found = self.paged(
                q, k, v, cache_seqlens=used, page_table=table, cu_seqlens_q=starts, max_seqlen_q=Lq,
                return_softmax_lse=self.lse, **self.told,
            )  # fmt: skip
        return (found[0], tokens_first(found[1])) if self.lse else found


def _function(name: str) -> Callable[[], Callable[..., Any]]:
    def load() -> Callable[..., Any]:
        function: Callable[..., Any] = getattr(import_module("flash_attn_interface"), name)
        return function

    return load


def available_varlen(device: str) -> str | None:
    """Ask besides for the functions of sequences and of pages."""
    packed, paged = (_function(name) for name in VARLEN)
    return (
        available(device)
        or cannot_call(packed, *ARGUMENTS, "return_attn_probs")
        or cannot_call(
            paged,
            *ARGUMENTS,
            "cache_seqlens",
            "page_table",
            "cu_seqlens_q",
            "max_seqlen_q",
            "return_softmax_lse",
        )
    )


def supports_varlen(case: Case, rule: Rule) -> str | None:
    """Decline besides rules that map queries and keys."""
    return supports(case, rule) or refuse_maps(case, rule, "FlashAttention-3")


def supports(case: Case, rule: Rule) -> str | None:
    """Bands, and heads of a multiple of 8 features."""
    band, form = band_of(case), form_of(case, rule)
    if isinstance(band, str):
        return f"FlashAttention-3 {band}"
    if not _takes(case.D, case.Dv):
        return (
            f"FlashAttention-3 needs D and Dv of a multiple of {MULTIPLE}, {WIDEST_HEAD} at most, and Dv = D "
            f"but for narrow or MLA heads; here D = {case.D} and Dv = {case.Dv}"
        )
    if case.Dv != case.D and case.pass_ != "forward":
        return (
            f"FlashAttention-3 is asked for gradients with Dv = D alone; here D = {case.D} and Dv = {case.Dv}"
        )
    if form.bias is not None or form.sink is not None:
        return f"FlashAttention-3 adds nothing to the scores: no {'bias' if form.sink is None else 'sink'}"
    return None


def available(device: str) -> str | None:
    """Kernels exist for Ampere, Ada and Hopper."""
    return needs_gpu("FlashAttention-3", below=(10, 0)) or cannot_call(library_function, *ARGUMENTS)


def _takes(D: int, Dv: int) -> bool:
    if D % MULTIPLE or Dv % MULTIPLE or D > WIDEST_HEAD:
        return False
    return Dv == D or (D <= 64 and Dv <= 512) or (128 < D <= 192 and 96 < Dv <= 128)


FLASH_ATTN_3 = Backend(
    name="flash_attn_3",
    summary="FlashAttention-3 of the package flash_attn_3",
    prepare=prepare,
    supports=supports,
    available=available,
    operations=("attention", "multihead"),
    needs_dot_form=True,
    dtypes=("bfloat16", "float16"),
    devices=("cuda",),
    passes=PASSES,
    layout="BLHD",
    requires=("flash_attn_interface",),
    forkable=False,
    quadratic_copies=0,
    masks=BAND_MASKS,
)

FLASH_ATTN_3_VARLEN = replace(
    FLASH_ATTN_3,
    name="flash_attn_3_varlen",
    summary="FlashAttention-3 of packed sequences, or with keys in pages",
    prepare=Varlen,
    supports=supports_varlen,
    available=available_varlen,
    operations=("attention",),
    storages=("packed", "paged"),
    returns=("lse",),
    layout="BHLD",
)
