"""The choice of keys, or of blocks of them: for each query the places of those that score highest.

The score of a key is the sum over the query heads that share it, Σ w·max(s, 0), where s is the rule's score
and w a weight of each query and head: the lightning indexer of DeepSeek-AI 2025, DeepSeek-V3.2-Exp, eq. 1.
The score of a block is that of the mean of its keys, Σ q · mean, and the last block that the mask keeps, the
query's own, is always chosen: the gate of Lu et al. 2025, MoBA: Mixture of Block Attention.
Right indexers may differ where scores are equal or nearly so, so a choice is judged by what it scores.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from attnbench.masks import keep_rows
from attnbench.operations.attention import draw_heads, heads_inputs
from attnbench.types.operation import Operation, Problem, TensorSpec, refuses_width
from attnbench.types.rule import Rule
from attnbench.types.size import Size

if TYPE_CHECKING:
    import numpy as np

    from attnbench.types.backend import Setup
    from attnbench.types.case import Case
    from attnbench.types.rule import Array

    Stream = Callable[[str], np.random.Generator]
    Named = Mapping[str, Any]


def _inputs(case: Case, rule: Rule) -> tuple[TensorSpec, ...]:
    q, k, _ = heads_inputs(case, rule)
    if case.size("block") > 1:
        return q, k
    return (q, k, TensorSpec("weights", (case.B, case.H, case.Lq), axes="bhi"))


def _outputs(case: Case) -> tuple[TensorSpec, ...]:
    return (TensorSpec("indices", (case.B, case.Hkv, case.Lq, case.size("top")), "int32", axes="bgit"),)


def _draw(case: Case, rule: Rule, stream: Stream) -> dict[str, Any]:
    """Draw queries, keys and weights; weights of either sign, as a projection gives them."""
    drawn = draw_heads(case, rule, stream)
    if case.size("block") > 1:
        return {"q": drawn["q"], "k": drawn["k"]}
    weights = stream("weights").standard_normal((case.B, case.H, case.Lq))
    return {"q": drawn["q"], "k": drawn["k"], "weights": weights + 0.5}


def _stress(case: Case, rule: Rule) -> dict[str, Callable[[Case, Rule, Stream], Named]]:
    return {"ties": _draw_ties}


def _draw_ties(case: Case, rule: Rule, stream: Stream) -> Named:
    """Let each key stand several times, so that scores are equal."""
    drawn = _draw(case, rule, lambda word: stream(f"stress {word}"))
    count = drawn["k"].shape[2]
    return {**drawn, "k": drawn["k"][:, :, stream("change").integers(0, 1 + count // 3, count)]}


def choice_scores(problem: Problem) -> Array:
    """Return the scores of all keys, (B, Hkv, R, Lk), or of all blocks; -inf for those dropped.

    They are in float64 or wider.
    """
    import numpy as np

    from attnbench.oracle.solve import scores_of

    case = problem.case
    if case.size("block") > 1:
        return _block_scores(problem)
    wide = _wide(case)
    q, k, weights = (np.asarray(problem.inputs[name], wide) for name in ("q", "k", "weights"))
    total = np.zeros((case.B, case.Hkv, len(problem.queries), case.Lk), wide)
    for b, h, at, scores in scores_of(case, problem.rule, problem.rule_parameters, q, k, problem.queries):
        own = weights[b, h, at, None] * np.maximum(scores, 0)
        total[b, h // case.group, at] += np.where(np.isneginf(scores), -np.inf, own)
    return total


def _wide(case: Case) -> type[np.floating[Any]]:
    import numpy as np

    return np.longdouble if case.dtype == "float64" else np.float64


def _block_scores(problem: Problem) -> Array:
    """Return the scores of all blocks, (B, Hkv, R, blocks); the query's own scores more than all others."""
    import numpy as np

    case, rows = problem.case, problem.queries
    q, k = (np.asarray(problem.inputs[name], _wide(case)) for name in "qk")
    starts = np.arange(0, case.Lk, case.size("block"))
    means = np.add.reduceat(k, starts, axis=2) / np.diff(starts, append=case.Lk)[:, None]
    shape = case.B, case.Hkv, case.group, len(rows)
    total = np.einsum("bgrid,bgjd->bgij", q.reshape(*shape, case.D), means)
    by_head = np.ones((case.B, case.H, len(rows), len(starts)), bool)
    if (keep := keep_rows(case, rows)) is not None:
        by_head &= np.logical_or.reduceat(keep, starts, axis=-1)
    kept = np.asarray(by_head.reshape(*shape, len(starts)).all(axis=2))
    own = kept & (kept[..., ::-1].cumsum(axis=-1)[..., ::-1] == 1)
    return np.where(own, 1 + np.abs(total).max(initial=0), np.where(kept, total, -np.inf))


def _sorted(case: Case, scores: Array) -> Array:
    """Return the largest scores of each row, descending, in as many places as a row of indices has."""
    import numpy as np

    best = -np.sort(-scores, axis=-1)[..., : case.size("top")]
    missing = case.size("top") - best.shape[-1]
    return np.pad(best, [(0, 0)] * 3 + [(0, missing)], constant_values=-np.inf)


def _solve(problem: Problem) -> dict[str, Array]:
    """Return what a right choice scores, descending; 0 in places that nothing is left for."""
    import numpy as np

    best = _sorted(problem.case, choice_scores(problem))
    return {"indices": np.where(np.isneginf(best), 0, best)}


def _measured(problem: Problem, answer: Named) -> tuple[dict[str, Array], str]:
    """Return what the chosen keys score, descending, and what is wrong with the choice in words.

    A place that names no key, one that is dropped or one that another place names, and a place that should
    name a key and doesn't, score far less than all keys.
    """
    import numpy as np

    case, scores, indices = problem.case, choice_scores(problem), answer["indices"].astype(np.int64)
    count = scores.shape[-1]
    finite = scores[np.isfinite(scores)]
    worthless = -10 * (1 + np.abs(finite).max(initial=0))
    named = indices != -1
    outside = named & ((indices < 0) | (indices >= count))
    inside = named & ~outside
    found = np.full(indices.shape, -np.inf, scores.dtype)
    if count:
        at = np.clip(indices, 0, count - 1)
        found = np.where(inside, np.take_along_axis(scores, at, axis=-1), -np.inf)
    dropped = inside & np.isneginf(found)
    order = np.argsort(indices, axis=-1, kind="stable")
    sorted_indices = np.take_along_axis(indices, order, -1)
    again = np.zeros(indices.shape, bool)
    repeated = np.zeros(indices.shape, bool)
    repeated[..., 1:] = sorted_indices[..., 1:] == sorted_indices[..., :-1]
    np.put_along_axis(again, order, repeated, axis=-1)
    again &= inside
    found = np.where(outside | dropped | again, worthless, found)
    best = _sorted(case, found)
    wanted = np.isfinite(_sorted(case, scores))
    lost = wanted & np.isneginf(best)
    best = np.where(lost, worthless, np.where(np.isneginf(best), 0, best))
    one = "key" if case.size("block") == 1 else "block"
    words = (
        (outside, f"{{index}} at {{place}} names no {one}: there are {count}"),
        (dropped, f"{{index}} at {{place}} is a {one} that the mask drops"),
        (again, "{index} at {place} is named a second time"),
        (lost, f"the row of {{place}} leaves places unused, and there are {one}s for them"),
    )
    for wrong, text in words:
        if wrong.any():
            at = tuple(int(place) for place in np.argwhere(wrong)[0])
            place = f"(b={at[0]}, g={at[1]}, i={problem.queries[at[2]]})"
            return {"indices": best}, text.format(index=int(indices[at]), place=place)
    return {"indices": best}, ""


def _trivial(problem: Problem) -> dict[str, dict[str, Array]]:
    """Return what the first and the last of the kept keys or blocks score."""
    import numpy as np

    case, scores = problem.case, choice_scores(problem)
    kept = np.isfinite(scores)
    before = np.cumsum(kept, axis=-1)
    after = before[..., -1:] - before
    top = case.size("top")
    chosen = {
        "the first that are kept": kept & (before <= top),
        "the last that are kept": kept & (after < top),
    }
    answers = {words: _sorted(case, np.where(one, scores, -np.inf)) for words, one in chosen.items()}
    return {words: {"indices": np.where(np.isneginf(best), 0, best)} for words, best in answers.items()}


def _change(case: Case, rule: Rule, rng: np.random.Generator) -> tuple[Named, Named]:
    """Draw what attention allows but an order of keys, which indices name."""
    from attnbench.inputs.symmetries import draw_change

    change = draw_change(case, rule, rng)
    return {letter: order for letter, order in change.orders.items() if letter != "j"}, change.factors


def _growth(case: Case, rule: Rule, inputs: Named) -> tuple[float, float]:
    """Return in how many roundings of float32 right choices differ: a score is a sum over heads and features.

    Few places are near a tie, so the RMS has none.
    """
    return 0.0, float((case.D * case.group) ** 0.5)


def _flops(case: Case, rule: Rule, pairs: int) -> float:
    """Count the operations of the scores and of their weighted sum; choosing isn't counted."""
    scores = 2 * case.D if rule.score_flops is None else rule.score_flops(case)
    return float(pairs * (scores + 2) / case.size("block"))


def _unread(case: Case, rule: Rule, queries: int, keys: int) -> int:
    rows = case.B * case.Lq - queries
    weights = int(case.size("block") == 1)
    return rows * case.H * (case.D + weights) + (case.B * case.Lk - keys) * case.Hkv * case.D


def _check(case: Case) -> str | None:
    if width := refuses_width(case):
        return width
    if case.size("block") > 1 and case.rule not in ("dot", "scaled_dot"):
        return f"blocks are chosen by dot products: give dot or scaled_dot, not {case.rule}"
    if case.size("block") > 1 and case.mask.adds:
        return "blocks are chosen by dot products alone: give a mask that adds no numbers"
    return None if case.Dv == case.D else "select has no values: leave out Dv"


def _plain(setup: Setup) -> Callable[..., Any]:
    """Prepare the plain reference. It is imported here because it needs torch."""
    from attnbench.kit.selection import prepare_choice

    return prepare_choice(setup)


SELECT = Operation(
    name="select",
    summary="the choice of keys by an indexer, or of blocks: q, k and weights to indices (B, Hkv, Lq, top)",
    inputs=_inputs,
    outputs=_outputs,
    flops=_flops,
    solve=_solve,
    draw=_draw,
    check=_check,
    reference=_plain,
    unread=_unread,
    lengths=("q", "k"),
    baseline="select_topk",
    sizes=(
        Size("block", "keys next to each other that are chosen together; 1 for single keys", 1, other=16),
        Size("top", "keys or blocks that each query chooses", 16, other=3),
    ),
    stress=_stress,
    trivial=_trivial,
    change=_change,
    growth=_growth,
    measured=_measured,
    by_row=True,
)
