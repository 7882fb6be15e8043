"""Attention to selected keys: each query reads the keys that its indices name, and no others.

Tokens are named one by one, as DeepSeek-V3.2's indexer does, or by blocks of neighbours, as MoBA and the
selected part of NSA do. The indices are an input, since what chooses them is discrete and has ties.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from attnbench.masks import keep_rows
from attnbench.operations.attention import draw_heads, heads_inputs, pair_flops, unread_elements
from attnbench.types.operation import Operation, Problem, TensorSpec, refuses_width
from attnbench.types.rule import Rule, of_head
from attnbench.types.size import Size

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from attnbench.types.backend import Setup
    from attnbench.types.case import Case
    from attnbench.types.rule import Array

    Stream = Callable[[str], np.random.Generator]
    Named = Mapping[str, Any]

LARGE = 30.0
"""Queries of ``large_logits`` are so many times larger: powers of their scores overflow in float32."""


def blocks_of(case: Case) -> int:
    """Return the number of blocks of keys; the last may have fewer keys than others."""
    return -(-case.Lk // case.size("block"))


def _inputs(case: Case, rule: Rule) -> tuple[TensorSpec, ...]:
    """Return q, k, v and the indices, one row for each query and key/value head."""
    indices = TensorSpec("indices", (case.B, case.Hkv, case.Lq, case.size("top")), "int32", axes="bgit")
    return (*heads_inputs(case, rule), indices)


def _outputs(case: Case) -> tuple[TensorSpec, ...]:
    return (TensorSpec("out", (case.B, case.H, case.Lq, case.Dv), axes="bhie"),)


def _draw(case: Case, rule: Rule, stream: Stream) -> Named:
    """Draw heads as attention does, and indices in random order, most of them of keys that the mask keeps.

    One row in eight uses only some of its places, or none.
    """
    import numpy as np

    rng = stream("indices")
    most = min(case.size("top"), blocks_of(case))
    used = np.full((case.B, case.Hkv, case.Lq), most)
    few = rng.random(used.shape) < 1 / 8
    used[few] = rng.integers(0, most + 1, int(few.sum()))
    return {**draw_heads(case, rule, stream), "indices": _placed(case, used, _wanted(case, rng), rng)}


def _wanted(case: Case, rng: np.random.Generator) -> Array:
    """Draw how much each query wants each block, (B, Hkv, Lq, blocks); blocks with a kept key mostly more."""
    import numpy as np

    wanted = rng.random((case.B, case.Hkv, case.Lq, blocks_of(case)), np.float32)
    keep = keep_rows(case, np.arange(case.Lq))
    if keep is not None and keep.size:
        starts = np.arange(0, case.Lk, case.size("block"))
        wanted += 0.7 * np.logical_or.reduceat(keep.any(1, keepdims=True), starts, axis=-1)
    return wanted


def _placed(
    case: Case, used: NDArray[np.int64], wanted: Array, rng: np.random.Generator
) -> NDArray[np.int32]:
    """Return indices, (B, Hkv, Lq, top): the ``used`` most wanted blocks, in any order, and -1 elsewhere.

    In half of the rows the unused places are the last, in the others they are anywhere.
    """
    import numpy as np

    top = case.size("top")
    # Of many blocks only those that are placed are sorted.
    blocks = wanted.shape[-1]
    best = np.broadcast_to(np.arange(blocks), wanted.shape)
    if top < blocks:
        best = np.argpartition(-wanted, top, axis=-1)[..., :top]
    order = np.argsort(-np.take_along_axis(wanted, best, -1), axis=-1)
    best = np.take_along_axis(best, order, -1).astype(np.int32)
    indices = np.full((*used.shape, top), -1, np.int32)
    indices[..., : best.shape[-1]] = np.where(np.arange(best.shape[-1]) < used[..., None], best, -1)
    anywhere = rng.permuted(indices, axis=-1)
    # Shuffled before they are sorted by use, so that the order of the used ones says nothing.
    last = np.take_along_axis(anywhere, np.argsort(anywhere < 0, axis=-1, kind="stable"), -1)
    return np.where(rng.random(used.shape)[..., None] < 0.5, last, anywhere)


def _stress(case: Case, rule: Rule) -> dict[str, Callable[[Case, Rule, Stream], Named]]:
    kinds = {"unused": _unused, "one_index": _one_index, "first_and_last": _first_and_last}
    made = {name: partial(_draw_changed, change=change) for name, change in kinds.items()}
    return {**made, "large_logits": _large_logits}


def _draw_changed(
    case: Case, rule: Rule, stream: Stream, change: Callable[[Case, np.random.Generator], NDArray[np.int32]]
) -> Named:
    drawn = draw_heads(case, rule, lambda word: stream(f"stress {word}"))
    return {**drawn, "indices": change(case, stream("change"))}


def _unused(case: Case, rng: np.random.Generator) -> NDArray[np.int32]:
    """Let each row use any number of its places, from none to all."""
    most = min(case.size("top"), blocks_of(case))
    used = rng.integers(0, most + 1, (case.B, case.Hkv, case.Lq))
    return _placed(case, used, _wanted(case, rng), rng)


def _one_index(case: Case, rng: np.random.Generator) -> NDArray[np.int32]:
    """Let each row name one key or block, in any place."""
    import numpy as np

    used = np.ones((case.B, case.Hkv, case.Lq), np.int64)
    return _placed(case, used, _wanted(case, rng), rng)


def _first_and_last(case: Case, rng: np.random.Generator) -> NDArray[np.int32]:
    """Let each row have the first and the last of the kept blocks, and half of its other places unused."""
    import numpy as np

    most = min(case.size("top"), blocks_of(case))
    wanted = _wanted(case, rng)
    order = np.where(wanted > 0.7, np.arange(wanted.shape[-1]), -1)
    if order.shape[-1]:
        np.put_along_axis(wanted, order.argmax(-1)[..., None], 3, -1)
        wanted[..., 0] = 2
    used = np.full((case.B, case.Hkv, case.Lq), min(most, 2 + most // 2))
    return _placed(case, used, wanted, rng)


def _large_logits(case: Case, rule: Rule, stream: Stream) -> Named:
    drawn = dict(_draw(case, rule, lambda word: stream(f"large {word}")))
    drawn["q"] = LARGE * drawn["q"]
    return drawn


def chosen_keys(case: Case, indices: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Return which keys rows of indices (R, top) name, (R, Lk)."""
    import numpy as np

    blocks = blocks_of(case)
    named = np.zeros((len(indices), blocks + 1), bool)
    np.put_along_axis(named, np.where(indices < 0, blocks, indices), True, axis=-1)
    return np.repeat(named[:, :-1], case.size("block"), axis=-1)[:, : case.Lk]


def _solve(problem: Problem, every: bool = False) -> dict[str, Array]:
    """Attend in float64, or wider; ``every``: as if all keys were chosen."""
    import numpy as np

    from attnbench.oracle.solve import scores_of, softmax

    case, rule, own = problem.case, problem.rule, problem.rule_parameters
    wide: type[np.floating[Any]] = np.longdouble if case.dtype == "float64" else np.float64
    q, k, v = (np.asarray(problem.inputs[name], wide) for name in "qkv")
    rows = problem.queries
    out = np.zeros((case.B, case.H, len(rows), case.Dv), wide)
    for b, h, at, scores in scores_of(case, rule, own, q, k, rows):
        chosen = chosen_keys(case, problem.inputs["indices"][b, h // case.group, at])
        sink = None if rule.sink is None else rule.sink(of_head(case, rule, own, h))
        weights = softmax(np.where(chosen | every, scores, -np.inf), sink)
        out[b, h, at] = weights @ v[b, h // case.group]
    return {"out": out}


def _trivial(problem: Problem) -> dict[str, dict[str, Array]]:
    """Return answers of kernels that lack one half: the choice, or the scores."""
    import numpy as np

    case = problem.case
    mean = np.zeros((case.B, case.H, len(problem.queries), case.Dv))
    for b in range(case.B):
        for h in range(case.H):
            g = h // case.group
            chosen = chosen_keys(case, problem.inputs["indices"][b, g]).astype(np.float64)
            mean[b, h] = chosen @ problem.inputs["v"][b, g] / np.maximum(1, chosen.sum(-1, keepdims=True))
    return {
        "attention to all keys that the mask keeps": _solve(problem, every=True),
        "the mean of the chosen values": {"out": mean},
    }


def _change(case: Case, rule: Rule, rng: np.random.Generator) -> tuple[Named, Named]:
    """Draw what attention allows but an order of keys, which indices name; places of a row change too."""
    from attnbench.inputs.symmetries import draw_change

    change = draw_change(case, rule, rng)
    orders = {letter: order for letter, order in change.orders.items() if letter != "j"}
    return {**orders, "t": rng.permutation(case.size("top"))}, change.factors


def _growth(case: Case, rule: Rule, inputs: Named) -> tuple[float, float]:
    """Return in how many roundings of float32 right kernels differ: an error of a score is one of its weight.

    A score is a sum of D products, and its error grows with the score: RMS with that of random directions,
    at most with |q| · |k|.
    """
    import numpy as np

    from attnbench.inputs.draw import widen

    if 0 in (case.Lq, case.Lk):
        return 0.0, 0.0
    scale = dict(case.constants).get("scale", 1.0 if case.rule == "dot" else case.D**-0.5)
    q, k = (np.linalg.norm(widen(inputs[name], case.dtype), axis=-1) for name in "qk")
    rms = scale * float(np.sqrt(np.square(q).mean() * np.square(k).mean() / case.D))
    return rms, scale * float(q.max() * k.max())


def _flops(case: Case, rule: Rule, pairs: int) -> float:
    """Count the operations of pairs that are kept and chosen, where each place of a row is used."""
    chosen = case.B * case.H * case.Lq * min(case.Lk, case.size("top") * case.size("block"))
    return pair_flops(case, rule, min(pairs, chosen))


def _unread(case: Case, rule: Rule, queries: int, keys: int) -> int:
    """Count what need not be read where all queries choose the same keys, which is the least that is read."""
    return unread_elements(case, rule, queries, min(keys, case.B * case.size("top") * case.size("block")))


def _plain(setup: Setup) -> Callable[..., Any]:
    """Prepare the plain reference. It is imported here because it needs torch."""
    from attnbench.kit.selection import prepare

    return prepare(setup)


SELECTED = Operation(
    name="selected",
    summary="attention to the keys that indices name: q, k, v and indices to (B, H, Lq, Dv)",
    inputs=_inputs,
    outputs=_outputs,
    flops=_flops,
    solve=_solve,
    draw=_draw,
    check=refuses_width,
    reference=_plain,
    unread=_unread,
    lengths=("q", "k"),
    baseline="selected_gather",
    encoded=("k", "v"),
    sizes=(
        Size("block", "keys next to each other that an index names; 1 for single keys", 1, other=16),
        Size("top", "places for indices of each query", 16, other=2),
    ),
    stress=_stress,
    trivial=_trivial,
    change=_change,
    growth=_growth,
    by_row=True,
)
