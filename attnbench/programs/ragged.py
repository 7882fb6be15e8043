"""Reading calls on sequences of unlike lengths: torch's and flash-attn's packed functions, jagged tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import isclose
from typing import TYPE_CHECKING, Any

from attnbench.kit.problems import table_too_small
from attnbench.programs.classify import ClassifiedMask, check_readable, mask_words
from attnbench.programs.facts import call_of, torch_here
from attnbench.programs.tally import Kind, Unclassified
from attnbench.types.batch import batch_text

if TYPE_CHECKING:
    from torch import Tensor

    Given = Mapping[str, Any]

OTHERS = ("seqused_q", "qv", "q_descale", "k_descale", "v_descale", "alibi_slopes", "attention_chunk")
"""Arguments of versions of flash-attn with which a call is another computation."""


def lengths_of(cumulative: Tensor) -> list[int]:
    """Return the lengths of sequences from cumulative ones, (N + 1,)."""
    return [int(length) for length in cumulative.diff().tolist()]


def read_varlen(name: str, given: Given) -> Kind | None:
    """Read a call of ``varlen_attn``: q (T, H, D), k and v packed too, or pages with a table."""
    return _packed(
        name, given["query"], given["key"], given["value"], given["cu_seq_q"], given["cu_seq_k"],
        used=given.get("seqused_k"), table=given.get("block_table"), scale=given.get("scale"),
        window=given.get("window_size", (-1, -1)),
    )  # fmt: skip


def read_flash_varlen(name: str, given: Given) -> Kind | None:
    """Read a call of flash-attn's packed function, of version 2 or later."""
    for odd in OTHERS:
        value = given.get(odd)
        # 0 is the default of some.
        if value is not None and not (isinstance(value, int) and value == 0):
            return Unclassified(name, f"it is given {odd}")
    left, right = given.get("window_size", (-1, -1))
    window = (left, 0) if given.get("causal") else (left, right)
    return _packed(
        name, given["q"], given["k"], given["v"], given["cu_seqlens_q"], given.get("cu_seqlens_k"),
        used=given.get("seqused_k"), table=given.get("block_table"), scale=given.get("softmax_scale"),
        window=window, softcap=given.get("softcap", 0.0), dropout=given.get("dropout_p", 0.0),
    )  # fmt: skip


def _packed(
    name: str, q: Tensor, k: Tensor, v: Tensor, ends: Tensor, key_ends: Tensor | None, *,
    used: Tensor | None, table: Tensor | None, scale: float | None, window: tuple[int, int],
    softcap: float = 0.0, dropout: float = 0.0,
) -> Kind | None:  # fmt: skip
    check_readable(q)
    queries = lengths_of(ends)
    if used is not None:
        keys = [int(length) for length in used.tolist()]
    elif key_ends is not None:
        keys = lengths_of(key_ends)
    else:
        return Unclassified(name, "it does not say how many keys a sequence has")
    if softcap and scale is not None and not isclose(scale, q.shape[-1] ** -0.5, rel_tol=1e-6):
        return Unclassified(name, "a softcap and a scale at once")
    if table is not None and (missing := table_too_small(table.shape[1], keys, k.shape[1])):
        return Unclassified(name, missing)
    more = {"rule": f"softcap@c={softcap:.7g}"} if softcap else {}
    mask = ClassifiedMask(window_words(*window) if max(queries, default=0) > 1 or window[0] >= 0 else "none")
    storage = "packed" if table is None else f"paged:{k.shape[1]}"
    return of_sequences(
        name, q, list(zip(queries, keys, strict=True)), q.shape[-2], k.shape[-2], v.shape[-1],
        mask=mask, scale=scale, dropout=dropout, storage=storage, **more,
    )  # fmt: skip


def window_words(left: int, right: int) -> str:
    """Return the mask of a window at the lower right, in words; a negative side has no limit."""
    if left < 0:
        return {-1: "none", 0: "causal:lower_right"}.get(right, f"reach:*,{right}")
    return f"reach:{left},{'*' if right < 0 else right}"


def of_sequences(
    name: str, q: Tensor, lengths: Sequence[tuple[int, int]], H: int, Hkv: int, Dv: int, *,
    mask: ClassifiedMask, scale: float | None, dropout: float, **more: str,
) -> Kind | None:  # fmt: skip
    """Return what a call on sequences is, by their numbers of queries and keys."""
    sizes = {
        "B": len(lengths), "H": H, "Hkv": Hkv, "Lq": max(queries for queries, _ in lengths),
        "Lk": max(keys for _, keys in lengths), "D": q.shape[-1], "Dv": Dv,
    }  # fmt: skip
    return call_of(name, q, sizes, "own", mask, scale, dropout, batch=batch_text(tuple(lengths)), **more)


def read_jagged(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout: float, causal: bool, scale: float | None
) -> Kind | None:
    """Read a call of torch's function on jagged tensors (N, H, L of each, D)."""
    torch, name = torch_here(), "scaled_dot_product_attention"
    jagged = all(x.layout == torch.jagged and x.dim() == 4 for x in (q, k, v))
    if not jagged or mask is not None or any(x._ragged_idx != 2 for x in (q, k, v)):  # type: ignore[attr-defined]
        return Unclassified(name, "nested tensors")
    queries, keys = (_jagged_lengths(x) for x in (q, k))
    return of_sequences(
        name, q, list(zip(queries, keys, strict=True)), q.shape[1], k.shape[1], v.shape[-1],
        mask=ClassifiedMask("causal" if causal else "none"), scale=scale, dropout=dropout, storage="packed",
    )  # fmt: skip


def _jagged_lengths(x: Any) -> list[int]:
    lengths = x.lengths()
    return lengths_of(x.offsets()) if lengths is None else [int(length) for length in lengths.tolist()]


def read_batched(name: str, given: Given) -> Kind | None:
    """Read a call of transformers' continuous batching: q (1, H, T, D), k and v gathered from their pages.

    Its mask is one of all pairs; the words are those of its part for a sequence with most queries.
    """
    q, k, v, more = given["query"], given["key"], given["value"], given["kwargs"]
    check_readable(q)
    ends = more["cu_seq_lens_k"]
    # Models with several kinds of layers have one for each kind.
    every = list(ends.values()) if isinstance(ends, dict) else [ends]
    own = next((one for one in every if int(one[-1]) == k.shape[2]), None)
    queries = lengths_of(more["cu_seq_lens_q"])
    if own is None or sum(queries) != q.shape[2]:
        return Unclassified(name, "its lengths are not those of its tensors")
    lengths = list(zip(queries, lengths_of(own), strict=True))
    rule = {"rule": "sinks"} if hasattr(given["module"], "sinks") else {}
    return of_sequences(
        name, q, lengths, q.shape[1], k.shape[1], v.shape[-1], mask=_of_the_longest(given, lengths),
        scale=given.get("scaling"), dropout=given.get("dropout", more.get("dropout", 0.0)), storage="packed",
        **rule,
    )  # fmt: skip


def _of_the_longest(given: Given, lengths: Sequence[tuple[int, int]]) -> ClassifiedMask:
    """Return the words of the mask of the sequence with most queries, and of these with most keys."""
    mask = given.get("attention_mask")
    if mask is None:
        return ClassifiedMask("none")
    number = max(range(len(lengths)), key=lambda one: lengths[one])
    Lq, Lk = lengths[number]
    i, j = (sum(pair[axis] for pair in lengths[:number]) for axis in (0, 1))
    found = mask_words(mask[..., i : i + Lq, j : j + Lk], 1, given["query"].shape[1], Lq, Lk)
    # With as many queries as keys both are the same, but not for the other sequences.
    causal = [f"{word}:lower_right" if word == "causal" else word for word in found.mask.split("+")]
    return ClassifiedMask("+".join(causal), found.kept)


READ_RAGGED: dict[str, Callable[[str, Given], Kind | None]] = {
    "varlen_attn": read_varlen,
    "flash_attn_varlen_func": read_flash_varlen,
    "eager_paged_attention_forward": read_batched,
    "sdpa_attention_forward": read_batched,
}
"""By the name of a function, what reads its calls from the arguments by their names."""
