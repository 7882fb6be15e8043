"""Choices of blocks: for each query the blocks of neighbouring keys that score highest.

- ``select_mean``: a block scores as the mean of its keys, and the query's own block, which is the last that
  the mask keeps, is always chosen: Lu et al. 2025, MoBA: Mixture of Block Attention, section 2.2.
- ``select_largest``: a block scores as the best of its kept keys, and the query's own is always chosen: the
  index branch of Lai et al. 2026, MiniMax Sparse Attention (arXiv 2606.13392).
- ``select_compressed``: a block scores as the weights of the compressed keys that lie in it: Yuan et al.
  2025, Native Sparse Attention (arXiv 2502.11089), eq. 8 to 10. The first block and the last two that the
  mask keeps are always chosen (section 4.1 there).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from attnbench.masks import keep_rows
from attnbench.operations.attention import draw_heads, heads_inputs
from attnbench.operations.select import KeySelection, score_flops, wide_of
from attnbench.operations.selected import blocks_of
from attnbench.types.operation import Problem, TensorSpec
from attnbench.types.rule import Rule, of_head
from attnbench.types.size import Size

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from attnbench.types.case import Case
    from attnbench.types.rule import Array

    Stream = Callable[[str], np.random.Generator]

_BLOCK = Size("block", "keys next to each other that are chosen together", 64, other=8)
_TOP = Size("top", "blocks that each query chooses", 16, other=3)


def _inputs(case: Case, rule: Rule) -> tuple[TensorSpec, ...]:
    return heads_inputs(case, rule)[:2]


def _draw(case: Case, rule: Rule, stream: Stream) -> dict[str, Any]:
    drawn = draw_heads(case, rule, stream)
    return {"q": drawn["q"], "k": drawn["k"]}


def _unread(case: Case, rule: Rule, queries: int, keys: int) -> int:
    rows = case.B * case.Lq - queries
    return rows * case.H * case.D + (case.B * case.Lk - keys) * case.Hkv * case.D


def _kept(problem: Problem) -> NDArray[np.bool_]:
    """Return which pairs the mask keeps, (B, H, R, Lk)."""
    import numpy as np

    case = problem.case
    keep = keep_rows(case, problem.queries)
    return np.broadcast_to(True if keep is None else keep, (case.B, case.H, len(problem.queries), case.Lk))


def _starts(case: Case) -> NDArray[np.int64]:
    """Return the place of the first key of each block."""
    import numpy as np

    return np.arange(0, case.Lk, case.size("block"))


def _kept_blocks(problem: Problem) -> NDArray[np.bool_]:
    """Return which blocks have a key that the mask keeps, (B, H, R, blocks)."""
    import numpy as np

    kept: NDArray[np.bool_] = np.logical_or.reduceat(_kept(problem), _starts(problem.case), axis=-1)
    return kept


def _chosen_first(scores: Array, kept: NDArray[np.bool_], first: int, last: int) -> Array:
    """Return the scores of kept blocks, with those of the first and the last so many above all others."""
    import numpy as np

    ends = kept & ((kept.cumsum(-1) <= first) | (kept[..., ::-1].cumsum(-1)[..., ::-1] <= last))
    largest = np.abs(scores[kept]).max(initial=0)
    return np.where(ends, 1 + largest, np.where(kept, scores, -np.inf))


def _scores_of(problem: Problem, keys: Array) -> Array:
    """Return the rule's scores of queries and such keys, (B, Hkv, n, D), without a mask: (B, H, R, n)."""
    import numpy as np

    case, rule, rows = problem.case, problem.rule, problem.queries
    q = np.asarray(problem.inputs["q"], wide_of(case))
    positions = (rows + case.query_offset).astype(q.dtype)
    found = np.zeros((case.B, case.H, len(rows), keys.shape[2]), q.dtype)
    for b, h in np.ndindex(case.B, case.H):
        own = of_head(case, rule, problem.rule_parameters, h)
        found[b, h] = rule.reference(q[b, h], keys[b, h // case.group], own, positions)
    return found


def _refuses(case: Case) -> str | None:
    if case.rule not in ("dot", "scaled_dot"):
        return f"blocks are chosen by dot products: give dot or scaled_dot, not {case.rule}"
    if case.mask.adds:
        return "blocks are chosen by dot products alone: give a mask that adds no numbers"
    return None


def _scores_of_means(problem: Problem) -> Array:
    """Return the scores of the mean of all keys of a block, kept or not."""
    import numpy as np

    case = problem.case
    k = np.asarray(problem.inputs["k"], wide_of(case))
    starts = _starts(case)
    means = np.add.reduceat(k, starts, axis=2) / np.diff(starts, append=case.Lk)[:, None]
    return _chosen_first(_scores_of(problem, means), _kept_blocks(problem), 0, 1)


SELECT_MEAN = KeySelection(
    name="select_mean",
    summary="the choice of blocks by their mean key: q and k",
    scores=_scores_of_means,
    inputs=_inputs,
    draw=_draw,
    flops=lambda case, rule, pairs: pairs * score_flops(case, rule) / case.size("block"),
    unread=_unread,
    sizes=(_BLOCK, _TOP),
    by_query_head=True,
    check=_refuses,
).operation()


def _largest_scores(problem: Problem) -> Array:
    import numpy as np

    from attnbench.oracle.solve import scores_of

    case, wide = problem.case, wide_of(problem.case)
    q, k = (np.asarray(problem.inputs[name], wide) for name in "qk")
    found = np.zeros((case.B, case.H, len(problem.queries), blocks_of(case)), wide)
    for b, h, at, scores in scores_of(case, problem.rule, problem.rule_parameters, q, k, problem.queries):
        found[b, h, at] = np.maximum.reduceat(scores, _starts(case), axis=-1)
    return _chosen_first(found, np.isfinite(found), 0, 1)


SELECT_LARGEST = KeySelection(
    name="select_largest",
    summary="the choice of blocks by their best key: q and k",
    scores=_largest_scores,
    inputs=_inputs,
    draw=_draw,
    flops=lambda case, rule, pairs: pairs * score_flops(case, rule),
    unread=_unread,
    sizes=(_BLOCK, _TOP),
    by_query_head=True,
).operation()


def _compressed(case: Case) -> int:
    """Return the number of compressed keys, each of ``length`` keys; one begins at each ``stride``."""
    return (case.Lk - case.size("length")) // case.size("stride") + 1


def _inputs_compressed(case: Case, rule: Rule) -> tuple[TensorSpec, ...]:
    """Return q, and compressed keys: a letter of their own tells them from keys."""
    return (
        heads_inputs(case, rule)[0],
        TensorSpec("k", (case.B, case.Hkv, _compressed(case), case.D), axes="bgcd"),
    )


def _draw_compressed(case: Case, rule: Rule, stream: Stream) -> dict[str, Any]:
    k = stream("compressed").standard_normal((case.B, case.Hkv, _compressed(case), case.D))
    return {"q": draw_heads(case, rule, stream)["q"], "k": k}


def _shares(case: Case) -> Array:
    """Return how many strides of each compressed key lie in each block, (compressed keys, blocks)."""
    import numpy as np

    begin = case.size("stride") * np.arange(_compressed(case))[:, None]
    first = case.size("block") * np.arange(blocks_of(case))
    end = np.minimum(begin + case.size("length"), first + case.size("block"))
    return np.asarray(np.maximum(0, end - np.maximum(begin, first)) / case.size("stride"))


def _scores_of_compressed(problem: Problem) -> Array:
    """Return the weights of compressed keys, summed over heads; those whose keys are all kept have any."""
    import numpy as np

    from attnbench.oracle.solve import softmax

    case = problem.case
    windows = np.lib.stride_tricks.sliding_window_view(_kept(problem), case.size("length"), axis=-1)
    seen = windows[..., :: case.size("stride"), :].all(-1)
    scores = _scores_of(problem, np.asarray(problem.inputs["k"], wide_of(case)))
    weights = softmax(np.where(seen, scores, -np.inf)) @ _shares(case)
    by_group = case.B, case.Hkv, case.group, len(problem.queries), blocks_of(case)
    kept: NDArray[np.bool_] = np.asarray(_kept_blocks(problem).reshape(by_group).all(2))
    return _chosen_first(weights.reshape(by_group).sum(2), kept, 1, 2)


def _unread_compressed(case: Case, rule: Rule, queries: int, keys: int) -> int:
    """Count what no kept pair reads: a compressed key is read if all of its keys are kept."""
    rows = case.B * case.Lq - queries
    seen = min(case.B * _compressed(case), keys // case.size("stride"))
    return rows * case.H * case.D + (case.B * _compressed(case) - seen) * case.Hkv * case.D


def _refuses_compressed(case: Case) -> str | None:
    stride, length, block = (case.size(name) for name in ("stride", "length", "block"))
    if length % stride or block % stride:
        return f"length{length} and block{block} must be multiples of stride{stride}"
    if length > min(block, case.Lk):
        return f"length{length} must be at most block{block} and the {case.Lk} keys"
    return _refuses(case)


SELECT_COMPRESSED = KeySelection(
    name="select_compressed",
    summary="the choice of blocks by the weights of compressed keys: q and those keys",
    scores=_scores_of_compressed,
    inputs=_inputs_compressed,
    draw=_draw_compressed,
    flops=lambda case, rule, pairs: pairs * score_flops(case, rule) / case.size("stride"),
    unread=_unread_compressed,
    sizes=(
        _BLOCK,
        Size("length", "keys that a compressed key stands for", 32, other=8),
        Size("stride", "keys between the first keys of two compressed ones", 16, other=4),
        Size("top", "blocks that each query chooses", 16, other=4),
    ),
    check=_refuses_compressed,
    # How many compressed keys a sequence has follows from its keys, and no storage knows that.
    lengths=(),
).operation()
