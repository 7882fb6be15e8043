"""xformers_attention: memory_efficient_attention of xFormers, which chooses its kernel itself.

Checked against ``xformers.ops.memory_efficient_attention`` of 0.0.35:

- q is (B, Lq, H, D), k and v are (B, Lk, H, D or Dv); for grouped queries (B, L, Hkv, group, D), keys
  expanded, and forward only.
- Causal masks are values of its own: ``LowerTriangularMask`` (upper left),
  ``LowerTriangularFromBottomRightMask``, and ``LowerTriangularFromBottomRightLocalAttentionMask(n)``, where
  a query sees its own key and n - 1 before it. Every kernel takes them.
- Anything else that is added to the scores is a tensor (B, H, Lq, Lk), (B, Hkv, group, Lq, Lk) for grouped
  queries, in the dtype of q, whose rows begin at multiples of 8 elements. Only the CUTLASS kernel takes it,
  up to compute capability 9.0. For several groups it works on side streams, which its own stream then waits
  for.
- It doesn't say what a row without a key gives: such rows are set to 0.

Packed sequences are one batch entry (1, T, H, D), with a mask that is made of lengths before a call:

- ``BlockDiagonalMask``, or with ``make_causal_from_bottomright`` and
  ``make_local_attention_from_bottomright(n)``, of which a query sees its own key and n - 1 before it. The
  causal ones refuse more queries than keys.
- ``PagedBlockDiagonalPaddedKeysMask`` and ``PagedBlockDiagonalCausalWithOffsetPaddedKeysMask`` hold the
  table; keys are (1, pages · page, Hkv, D). There is no window. Its kernels for them are FlashAttention,
  with pages of a multiple of 256 in release 2, and a decoder with pages of a multiple of 64; so pages of
  256 are taken.
- The shape of its log-sum-exp differs by kernel, so none is asked for.

"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from attnbench.kit.attention import with_sink_column, with_zero_row
from attnbench.kit.dtypes import case_dtype
from attnbench.kit.masks import is_plain_causal, plus_bias, softmax_mask
from attnbench.kit.scores import form_of
from attnbench.types.backend import Backend, Setup
from attnbench.types.case import PASSES
from attnbench.types.mask import ANY_MASK
from attnbench.types.storage import sizes_of
from attnbench_cuda.around import with_maps
from attnbench_cuda.bands import BAND_MASKS, band_of, the_band
from attnbench_cuda.device import cannot_call, needs_gpu
from attnbench_cuda.packed import Kept, refuse_maps, refuse_pages

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

    from attnbench.types.backend import Call
    from attnbench.types.case import Case
    from attnbench.types.rule import Rule

ALIGNED = 8
"""Elements that a row of the bias must begin at a multiple of."""
PAGE, WIDEST_PAGED = 256, 256


def attn_bias(setup: Setup) -> tuple[Any, Tensor | None]:
    """Return the bias of the scores (an xFormers mask, a tensor or None) and the rows to be set to 0.

    The tensor is (B, H, Lq, Lk), for grouped queries (B, Hkv, group, Lq, Lk); the rows (B or 1, Lq, 1, 1).
    """
    case, scoring = setup.case, setup.scoring
    if (own := own_mask(setup)) is not None:
        return own, None
    dtype = case_dtype(case)
    added, empty = softmax_mask(setup, dtype)
    added = plus_bias(added, scoring, slice(0, case.Lq), slice(0, case.Lk), dtype)
    if scoring.sink is not None:
        added = with_sink_column(added, scoring.sink, case)
    rows = None if empty is None else empty.transpose(1, 2)
    if added is None:
        return None, rows
    added = aligned(added.expand(case.B, case.H, case.Lq, added.shape[-1]))
    return added if case.group == 1 else added.unflatten(1, (case.Hkv, case.group)), rows


def own_mask(setup: Setup) -> Any:
    """Return the mask as one of xFormers' own, or None: a causal one that leaves no row without a key."""
    from xformers.ops.fmha import attn_bias as masks

    case, scoring = setup.case, setup.scoring
    if is_plain_causal(case, scoring):
        return masks.LowerTriangularMask()
    band = band_of(case)
    adds = scoring.bias is not None or scoring.sink is not None
    if adds or isinstance(band, str) or band.after != 0 or band.leaves_rows_empty(case):
        return None
    if band.before is None:
        return masks.LowerTriangularFromBottomRightMask()
    return masks.LowerTriangularFromBottomRightLocalAttentionMask(band.before + 1)


def aligned(added: Tensor) -> Tensor:
    """Return the same numbers in rows that begin at multiples of ALIGNED elements."""
    width = added.shape[-1]
    room = -(-width // ALIGNED) * ALIGNED
    return added.new_zeros((*added.shape[:-1], room))[..., :width].copy_(added)


def library_function() -> Callable[..., Any]:
    """Import the library's function."""
    from xformers.ops import memory_efficient_attention

    function: Callable[..., Any] = memory_efficient_attention
    return function


def available(device: str) -> str | None:
    """Ask for a device, and for the arguments."""
    return needs_gpu("xformers", (6, 0)) or cannot_call(library_function, "attn_bias", "p", "scale")


def prepare(setup: Setup) -> Call:
    """Make the function of the case, for either operation."""
    memory_efficient_attention = library_function()
    case, dot, sink = setup.case, setup.scoring.dot, setup.scoring.sink
    assert dot is not None
    added, rows = attn_bias(setup)
    scale, group, p = dot.scale, case.group, case.dropout

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if sink is not None:
            k, v = (with_zero_row(x.transpose(1, 2)).transpose(1, 2) for x in (k, v))
        if group > 1:
            q = q.unflatten(2, (-1, group))
            k, v = (x[:, :, :, None].expand(-1, -1, -1, group, -1) for x in (k, v))
        out: Tensor = memory_efficient_attention(q, k, v, attn_bias=added, p=p, scale=scale)
        out = out.flatten(2, 3) if group > 1 else out
        return out if rows is None else out.masked_fill(rows, 0)

    return with_maps(call, setup)


def supports(case: Case, rule: Rule) -> str | None:
    """Any mask; gradients of q, k and v alone, and only where each query head has a key head of its own."""
    form = form_of(case, rule)
    if form.dot is not None and form.dot.cap is not None:
        return "memory_efficient_attention has no soft cap: nothing can come between product and softmax"
    if case.pass_ == "forward":
        return None
    if case.group > 1:
        return f"memory_efficient_attention gives no gradients of grouped queries; here Hkv = {case.Hkv}"
    if form.bias is not None or form.sink is not None:
        what = "bias" if form.sink is None else "sink"
        return f"the gradient of its bias is not asked for, which {case.rule} has its {what} in"
    return None


class BlockDiagonal:
    """The prepared function of packed sequences, with keys packed too or in pages."""

    def __init__(self, setup: Setup) -> None:
        dot = setup.scoring.dot
        assert dot is not None
        self.function, self.case, self.scale = library_function(), setup.case, dot.scale
        self.table, self.mask = Kept(), None

    def renew(self, ahead: Mapping[str, Tensor]) -> None:
        """Make the mask, which holds lengths and the table. Another draw has another table alone."""
        table = self.table.write(ahead["block_table"]) if "block_table" in ahead else None
        if self.mask is None:
            queries = ahead["cu_seqlens_q"].diff().tolist()
            used = ahead["cu_seqlens_k"].diff() if table is None else ahead["seqused_k"]
            self.mask = sequence_mask(self.case, queries, used.tolist(), table)

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, *places: Tensor) -> Tensor:
        """Attend, (T, H, Dv)."""
        if len(places) > 2:
            k, v = k.flatten(0, 1), v.flatten(0, 1)
        group = self.case.group
        if group > 1:
            q = q.unflatten(1, (-1, group))
            k, v = (x[:, :, None].expand(-1, -1, group, -1) for x in (k, v))
        out: Tensor = self.function(q[None], k[None], v[None], attn_bias=self.mask, scale=self.scale)[0]
        return out.flatten(1, 2) if group > 1 else out


def sequence_mask(case: Case, queries: list[int], keys: list[int], table: Tensor | None) -> Any:
    """Return the mask of sequences with so many queries and keys, packed or found by a table."""
    from xformers.ops.fmha import attn_bias as masks

    band = the_band(case)
    if table is not None:
        kind = (
            masks.PagedBlockDiagonalCausalWithOffsetPaddedKeysMask
            if band.causal
            else masks.PagedBlockDiagonalPaddedKeysMask
        )
        return kind.from_seqlens(queries, keys, table, sizes_of(case)["page"], device=table.device)
    whole = masks.BlockDiagonalMask.from_seqlens(queries, keys, device=case.device)
    if not band.causal:
        return whole
    if band.before is None:
        return whole.make_causal_from_bottomright()
    return whole.make_local_attention_from_bottomright(band.before + 1)


def supports_sequences(case: Case, rule: Rule) -> str | None:
    """Decline besides all masks but causal ones and windows to the left, biases, and rows without keys."""
    form, band = form_of(case, rule), band_of(case)
    if isinstance(band, str):
        return f"xFormers' mask of sequences {band}"
    if (band.before is not None and not band.causal) or band.after:
        return "xFormers' mask of sequences has no window without a causal mask"
    if band.leaves_rows_empty(case):
        return "xFormers doesn't say what a query without a key gives"
    if form.bias is not None or form.sink is not None:
        return f"xFormers' mask of sequences leaves no room for a {'bias' if form.sink is None else 'sink'}"
    return supports(case, rule) or refuse_maps(case, rule, "memory_efficient_attention")


def supports_pages(case: Case, rule: Rule) -> str | None:
    """Decline besides windows, other pages, and heads that FlashAttention doesn't take."""
    if (refused := supports_sequences(case, rule)) is not None:
        return refused
    if the_band(case).before is not None:
        return "xFormers' masks of pages have no window"
    if case.Dv != case.D or case.D > WIDEST_PAGED or case.D % ALIGNED:
        return (
            f"xFormers' kernels with pages need Dv = D, a multiple of {ALIGNED} and {WIDEST_PAGED} at most; "
            f"here D = {case.D} and Dv = {case.Dv}"
        )
    return refuse_pages(case, "xFormers", PAGE)


XFORMERS_ATTENTION = Backend(
    name="xformers_attention",
    summary="xFormers' memory_efficient_attention, by the kernel that it chooses",
    prepare=prepare,
    supports=supports,
    available=available,
    operations=("attention", "multihead"),
    needs_dot_form=True,
    dtypes=("float32", "bfloat16", "float16"),
    devices=("cuda",),
    passes=PASSES,
    layout="BLHD",
    requires=("xformers",),
    forkable=False,
    quadratic_copies=0,
    masks=(ANY_MASK,),
    dropout=True,
)

XFORMERS_VARLEN = replace(
    XFORMERS_ATTENTION,
    name="xformers_varlen",
    summary="xFormers' memory_efficient_attention of packed sequences",
    prepare=BlockDiagonal,
    supports=supports_sequences,
    operations=("attention",),
    storages=("packed",),
    layout="BHLD",
    masks=BAND_MASKS,
    dropout=False,
)

XFORMERS_PAGED = replace(
    XFORMERS_VARLEN,
    name="xformers_paged",
    summary="xFormers' memory_efficient_attention of packed queries with keys in pages",
    supports=supports_pages,
    dtypes=("bfloat16", "float16"),
    passes=("forward",),
    storages=("paged",),
)
