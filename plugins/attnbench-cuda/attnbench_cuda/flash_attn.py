"""flash_attn: FlashAttention-2 of the package flash-attn. Dao 2023, FlashAttention-2.

Checked against ``flash_attn_func`` and ``csrc/flash_attn/flash_api.cpp`` of the release 2.8.3.post2:

- q is (B, Lq, H, D), k and v are (B, Lk, Hkv, D); query head h uses key head h // (H / Hkv). D is 256 at
  most; the function pads it to a multiple of 8. Values have the features of keys.
- Masks are aligned to the lower right. A query at p sees keys p - left to p + right, both included; -1 is a
  side without end. A row without a key gives 0.
- ``softcap`` > 0 caps the scores after the scale; with it there is no dropout.
- ``alibi_slopes`` (H,), float32: -slope · |p - j| is added. They get no gradient.
- The result is the output alone, unless ``return_attn_probs`` is asked for.

Packed sequences go to ``flash_attn_varlen_func``, pages there or to ``flash_attn_with_kvcache``, by the
same files:

- q is (T, H, D), k and v are (S, Hkv, D), with cumulative lengths in int32. With ``block_table`` (N, most
  pages), int32, k and v are (pages, page, Hkv, D), a page a multiple of 256 keys. The cumulative lengths of
  keys then say how many each sequence has. They are written before a call.
- ``flash_attn_with_kvcache`` takes q as (N, Lq, H, D), so as many queries of each sequence, and
  ``cache_seqlens`` (N,), int32. It has no gradients, and no new keys are given.
- The log-sum-exp is natural, (H, T) or (N, H, Lq), and +inf where a row has no key. It is given as (T, H)
  and -inf, which is timed.
- Where no sequence has more than one query, grouped queries without a window are seen as (N, Hkv, H / Hkv,
  D), so each sequence must have one.

"""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from attnbench.kit.scores import form_of
from attnbench.types.backend import Backend, Setup
from attnbench.types.case import PASSES
from attnbench_cuda.around import with_maps
from attnbench_cuda.bands import BAND_MASKS, band_of, lengths_of, the_band
from attnbench_cuda.device import cannot_call, needs_gpu
from attnbench_cuda.packed import Kept, refuse_maps, refuse_pages, starts_of, tokens_first

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

    from attnbench.types.backend import Call
    from attnbench.types.case import Case
    from attnbench.types.rule import Rule

WIDEST_HEAD, PAGE = 256, 256
NAMED = ("softmax_scale", "causal", "window_size", "softcap", "alibi_slopes")
"""Arguments that each of the library's functions is given."""
ALIBI = "alibi"


def arguments(setup: Setup) -> dict[str, Any]:
    """Return the arguments of ``flash_attn_func`` besides q, k and v."""
    case, dot = setup.case, setup.scoring.dot
    assert dot is not None
    band = the_band(case)
    told: dict[str, Any] = {
        "dropout_p": case.dropout,
        "softmax_scale": dot.scale,
        "causal": band.causal,
        "window_size": band.ends(),
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


class Varlen:
    """The prepared function of packed sequences, with keys packed too or in pages."""

    def __init__(self, setup: Setup) -> None:
        from flash_attn import flash_attn_varlen_func

        self.function, self.told, self.case = flash_attn_varlen_func, arguments(setup), setup.case
        self.lse, self.flipped = "lse" in self.case.returns, the_band(self.case).leaves_rows_empty(self.case)
        self.starts = Kept()

    def renew(self, ahead: Mapping[str, Tensor]) -> None:
        """Write where the keys of each sequence would begin, if they were packed."""
        if "seqused_k" in ahead:
            self.starts.write(starts_of(ahead["seqused_k"]))

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, *places: Tensor) -> Any:
        """Attend, (T, H, D).

        places: where queries begin, and where keys do; or how many keys there are, and the table.
        """
        starts, *keys = places
        paged = len(keys) > 1
        table = {"block_table": keys[1]} if paged else {}
        begins = self.starts.tensor if paged else keys[0]
        found = self.function(
            q, k, v, starts, begins, self.case.Lq, self.case.Lk, return_attn_probs=self.lse, **table,
            **self.told,
        )  # fmt: skip
        return (found[0], tokens_first(found[1], flipped=self.flipped)) if self.lse else found


class Cache:
    """The prepared function of as many queries of each sequence, with keys in pages."""

    def __init__(self, setup: Setup) -> None:
        from flash_attn import flash_attn_with_kvcache

        told, case = arguments(setup), setup.case
        del told["dropout_p"]
        self.function, self.told, self.sequences = flash_attn_with_kvcache, told, case.B
        self.lse, self.flipped = "lse" in case.returns, the_band(case).leaves_rows_empty(case)

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, *places: Tensor) -> Any:
        """Attend, (T, H, D)."""
        _, used, table = places
        found = self.function(
            q.unflatten(0, (self.sequences, -1)), k, v, cache_seqlens=used, block_table=table,
            return_softmax_lse=self.lse, **self.told,
        )  # fmt: skip
        if not self.lse:
            return found.flatten(0, 1)
        out, lse = found
        return out.flatten(0, 1), tokens_first(lse.transpose(0, 1).flatten(1), flipped=self.flipped)


def available(device: str) -> str | None:
    """Tell flash-attn 2 from the package flash-attn-4, which shares the folder and lacks its function."""
    if (reason := needs_gpu("flash-attn")) is not None:
        return reason
    spec = find_spec("flash_attn")
    if spec is None or spec.origin is None:
        return "flash_attn is here without flash-attn 2: only flash-attn-4 is installed"
    return cannot_call(library_function, *NAMED, "dropout_p")


def _available(name: str, *arguments: str) -> Callable[[str], str | None]:
    """Ask besides for another function of the library, with these arguments."""

    def load() -> Callable[..., Any]:
        function: Callable[..., Any] = getattr(import_module("flash_attn"), name)
        return function

    return lambda device: available(device) or cannot_call(load, *NAMED, *arguments)


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


def supports_varlen(case: Case, rule: Rule) -> str | None:
    """Decline besides other pages, and a missing query where one of each sequence is taken."""
    refused = supports(case, rule) or refuse_maps(case, rule, "flash_attn_varlen_func")
    if refused is not None or (refused := refuse_pages(case, "flash_attn_varlen_func", PAGE)) is not None:
        return refused
    swapped = case.Lq == 1 and case.group > 1 and the_band(case).ends() == (-1, -1) and rule.name != ALIBI
    if swapped and any(queries == 0 for queries, _ in lengths_of(case)):
        return (
            "flash_attn_varlen_func takes one grouped query of each sequence if none has more; one has none"
        )
    return None


def supports_cache(case: Case, rule: Rule) -> str | None:
    """Decline besides other pages, and unlike numbers of queries."""
    refused = supports(case, rule) or refuse_maps(case, rule, "flash_attn_with_kvcache")
    if refused is None and len({queries for queries, _ in lengths_of(case)}) > 1:
        return "flash_attn_with_kvcache takes as many queries of each sequence"
    return refused or refuse_pages(case, "flash_attn_with_kvcache", PAGE)


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
    masks=BAND_MASKS,
    dropout=True,
)

FLASH_ATTN_VARLEN = replace(
    FLASH_ATTN,
    name="flash_attn_varlen",
    summary="FlashAttention-2 of packed sequences, or with keys in pages",
    prepare=Varlen,
    supports=supports_varlen,
    available=_available("flash_attn_varlen_func", "dropout_p", "block_table", "return_attn_probs"),
    operations=("attention",),
    storages=("packed", "paged"),
    returns=("lse",),
    layout="BHLD",
    dropout=False,
)

FLASH_ATTN_KVCACHE = replace(
    FLASH_ATTN_VARLEN,
    name="flash_attn_kvcache",
    summary="FlashAttention-2 of as many queries of each sequence, with keys in pages",
    prepare=Cache,
    supports=supports_cache,
    available=_available("flash_attn_with_kvcache", "cache_seqlens", "block_table", "return_softmax_lse"),
    passes=("forward",),
    storages=("paged",),
)
