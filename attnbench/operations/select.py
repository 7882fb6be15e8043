"""The choice of keys by an indexer: for each query the places of those that score highest.

The score of a key is the sum over the query heads that share it, Σ w·max(s, 0), where s is the rule's score
and w a weight of each query and head: the lightning indexer of DeepSeek-AI 2025, DeepSeek-V3.2-Exp, eq. 1.
Right indexers may differ where scores are equal or nearly so, so a choice is judged by what it scores.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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


@dataclass(frozen=True)
class KeySelection:
    """A way to choose keys or blocks of them, of which :meth:`operation` makes an operation."""

    name: str
    """Of the operation."""
    summary: str
    """What scores, in words, and from which inputs."""
    scores: Callable[[Problem], Array]
    """Returns the scores of all keys or blocks in float64 or wider, (B, heads, R, places); -inf for those
    that can't be chosen."""
    inputs: Callable[[Case, Rule], tuple[TensorSpec, ...]]
    draw: Callable[[Case, Rule, Stream], dict[str, Any]]
    """Draws the inputs, among them ``k`` with keys along the axis 2."""
    flops: Callable[[Case, Rule, int], float]
    unread: Callable[[Case, Rule, int, int], int]
    sizes: tuple[Size, ...]
    """``top`` is among them."""
    by_query_head: bool = False
    """Whether each query head chooses for itself; else those that share keys choose together."""
    one: str = "block"
    """What an index names."""
    check: Callable[[Case], str | None] = lambda case: None
    lengths: tuple[str, ...] = ("q", "k")

    def operation(self) -> Operation:
        """Return the operation."""
        return Operation(
            name=self.name,
            summary=f"{self.summary} to indices ({'B, H' if self.by_query_head else 'B, Hkv'}, Lq, top)",
            inputs=self.inputs,
            outputs=self._outputs,
            flops=self.flops,
            solve=self._solve,
            draw=self.draw,
            check=self._check,
            reference=_plain,
            unread=self.unread,
            lengths=self.lengths,
            baseline="select_topk",
            sizes=self.sizes,
            stress=lambda case, rule: {"ties": self._draw_ties},
            trivial=self._trivial,
            change=_change,
            growth=_growth,
            measured=self._measured,
            by_row=True,
        )

    def _outputs(self, case: Case) -> tuple[TensorSpec, ...]:
        heads, letter = (case.H, "h") if self.by_query_head else (case.Hkv, "g")
        shape = (case.B, heads, case.Lq, case.size("top"))
        return (TensorSpec("indices", shape, "int32", axes=f"b{letter}it"),)

    def _check(self, case: Case) -> str | None:
        if refused := refuses_width(case) or self.check(case):
            return refused
        return None if case.Dv == case.D else f"{self.name} has no values: leave out Dv"

    def _draw_ties(self, case: Case, rule: Rule, stream: Stream) -> Named:
        """Let each key stand several times, so that scores are equal."""
        drawn = self.draw(case, rule, lambda word: stream(f"stress {word}"))
        count = drawn["k"].shape[2]
        return {**drawn, "k": drawn["k"][:, :, stream("change").integers(0, 1 + count // 3, count)]}

    def _solve(self, problem: Problem) -> dict[str, Array]:
        """Return the largest scores of each row, descending; 0 in places for which no key is left."""
        import numpy as np

        best = _sorted(problem.case, self.scores(problem))
        return {"indices": np.where(np.isneginf(best), 0, best)}

    def _measured(self, problem: Problem, answer: Named) -> tuple[dict[str, Array], str]:
        """Return what the chosen keys score, descending, and what is wrong with the choice in words.

        A place that names no key, one that is dropped or one that another place names, and a place that
        should name a key and doesn't, score far less than all keys.
        """
        import numpy as np

        case, scores, indices = problem.case, self.scores(problem), answer["indices"].astype(np.int64)
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
        again = inside & _repeated(indices)
        found = np.where(outside | dropped | again, worthless, found)
        best = _sorted(case, found)
        wanted = np.isfinite(_sorted(case, scores))
        lost = wanted & np.isneginf(best)
        best = np.where(lost, worthless, np.where(np.isneginf(best), 0, best))
        words = (
            (outside, f"{{index}} at {{place}} names no {self.one}: there are {count}"),
            (dropped, f"{{index}} at {{place}} is a {self.one} that the mask drops"),
            (again, "{index} at {place} is named a second time"),
            (lost, f"the row of {{place}} leaves places unused, and there are {self.one}s for them"),
        )
        for wrong, text in words:
            if wrong.any():
                at = tuple(int(place) for place in np.argwhere(wrong)[0])
                head = "h" if self.by_query_head else "g"
                place = f"(b={at[0]}, {head}={at[1]}, i={problem.queries[at[2]]})"
                return {"indices": best}, text.format(index=int(indices[at]), place=place)
        return {"indices": best}, ""

    def _trivial(self, problem: Problem) -> dict[str, dict[str, Array]]:
        """Return what the first and the last of the kept keys or blocks score."""
        import numpy as np

        case, scores = problem.case, self.scores(problem)
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


def _plain(setup: Setup) -> Callable[..., Any]:
    """Prepare the plain reference. It is imported here because it needs torch."""
    from attnbench.kit.choice import prepare_choice

    return prepare_choice(setup)


def _sorted(case: Case, scores: Array) -> Array:
    """Return the largest scores of each row, descending, in as many places as a row of indices has."""
    import numpy as np

    best = -np.sort(-scores, axis=-1)[..., : case.size("top")]
    missing = case.size("top") - best.shape[-1]
    return np.pad(best, [(0, 0)] * 3 + [(0, missing)], constant_values=-np.inf)


def _repeated(indices: Any) -> Any:
    """Return which places of each row name what an earlier place names."""
    import numpy as np

    order = np.argsort(indices, axis=-1, kind="stable")
    in_order = np.take_along_axis(indices, order, -1)
    repeated = np.zeros(indices.shape, bool)
    repeated[..., 1:] = in_order[..., 1:] == in_order[..., :-1]
    again = np.zeros(indices.shape, bool)
    np.put_along_axis(again, order, repeated, axis=-1)
    return again


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


def wide_of(case: Case) -> type[np.floating[Any]]:
    """Return the type in which scores are computed."""
    import numpy as np

    return np.longdouble if case.dtype == "float64" else np.float64


def score_flops(case: Case, rule: Rule) -> float:
    """Count the operations of one score of the rule."""
    return 2 * case.D if rule.score_flops is None else rule.score_flops(case)


def _inputs(case: Case, rule: Rule) -> tuple[TensorSpec, ...]:
    q, k, _ = heads_inputs(case, rule)
    return (q, k, TensorSpec("weights", (case.B, case.H, case.Lq), axes="bhi"))


def _draw(case: Case, rule: Rule, stream: Stream) -> dict[str, Any]:
    """Draw queries, keys and weights; weights of either sign, as a projection gives them."""
    drawn = draw_heads(case, rule, stream)
    weights = stream("weights").standard_normal((case.B, case.H, case.Lq))
    return {"q": drawn["q"], "k": drawn["k"], "weights": weights + 0.5}


def _scores(problem: Problem) -> Array:
    import numpy as np

    from attnbench.oracle.solve import scores_of

    case, wide = problem.case, wide_of(problem.case)
    q, k, weights = (np.asarray(problem.inputs[name], wide) for name in ("q", "k", "weights"))
    total = np.zeros((case.B, case.Hkv, len(problem.queries), case.Lk), wide)
    for b, h, at, scores in scores_of(case, problem.rule, problem.rule_parameters, q, k, problem.queries):
        own = weights[b, h, at, None] * np.maximum(scores, 0)
        total[b, h // case.group, at] += np.where(np.isneginf(scores), -np.inf, own)
    return total


def _flops(case: Case, rule: Rule, pairs: int) -> float:
    """Count the operations of the scores and of their weighted sum; choosing isn't counted."""
    return float(pairs * (score_flops(case, rule) + 2))


def _unread(case: Case, rule: Rule, queries: int, keys: int) -> int:
    rows = case.B * case.Lq - queries
    return rows * case.H * (case.D + 1) + (case.B * case.Lk - keys) * case.Hkv * case.D


SELECT = KeySelection(
    name="select",
    summary="the choice of keys by an indexer: q, k and weights",
    scores=_scores,
    inputs=_inputs,
    draw=_draw,
    flops=_flops,
    unread=_unread,
    sizes=(Size("top", "keys that each query chooses", 16, other=3),),
    one="key",
).operation()
