"""Rules compared by their effect on weights, not by time: how peaked, how saturated, at which cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from attnbench.explained.attention import scores_of
from attnbench.explained.steps import Drawn, Step
from attnbench.inputs.draw import draw_parameters
from attnbench.oracle.solve import softmax
from attnbench.types.case import Case
from attnbench.types.rule import Rule, of_head

_HEADS, _DRAWS, _ROWS = 16, 128, 8
"""Draws of parameters, draws of keys, and queries of each draw of keys."""
_LEAST = 1e-300


@dataclass(frozen=True)
class Behaviour:
    """The behaviour of a rule on independent standard normal queries and keys, over 1024 rows.

    They are 8 queries of each of 128 draws of keys. 16 draws of parameters take turns, so that a lucky one
    does not decide.

    D: features. gain: the factor on queries. keys: their number. deviation: standard deviation of the scores
    of a row, mean over rows. entropy: of the weights of a row, as a share of that of equal weights, mean; 0
    means one key has all weight. largest: weight of a row, mean. gradient: the median over rows of the norm
    of d weights / d scores, w_i (1[i = j] - w_j); 0 where softmax is saturated and nothing can be learned.
    pair_flops, pair_bytes: operations for the score of each (query, key) pair, and the bytes that a plain
    form holds for it in float32. parameter_count: of one head.
    """

    rule: str
    D: int
    gain: float
    keys: int
    deviation: float
    entropy: float
    largest: float
    gradient: float
    pair_flops: int
    pair_bytes: int
    parameter_count: int


def behaviours(
    rules: Iterable[Rule], widths: Sequence[int], gains: Sequence[float] = (1.0,),
    keys: int = 32, seed: int = 0,
) -> Iterator[Behaviour]:  # fmt: skip
    """Yield the behaviour of each rule at each width and gain, without widths that a rule does not support.

    Raises:
        PluginFailed: a reference returns something other than scores.
    """
    for rule in rules:
        for D in widths:
            sizes = (1, _HEADS, _HEADS, keys, keys, D, D)
            case = Case("attention", rule.name, *sizes, dtype="float64", seed=seed)
            if rule.supports(case) is None:
                yield from (_behaviour(rule, case, gain) for gain in gains)


def _behaviour(rule: Rule, case: Case, gain: float) -> Behaviour:
    drawn = draw_parameters(case, rule).rule
    weights, all_scores = [], []
    for draw in range(_DRAWS):
        parameters = of_head(case, rule, drawn, draw % _HEADS)
        rng = np.random.default_rng([case.seed, draw, case.D, case.Lk])
        count = min(_ROWS, case.Lk)
        q = rng.standard_normal((count, case.D)) * gain
        k = rng.standard_normal((count if rule.pairs_keys else case.Lk, case.D))
        positions = np.arange(case.Lk - count, case.Lk, dtype=np.float64)
        scores = scores_of(rule, q, k, parameters, positions, case.Lk)
        weights.append(softmax(scores, None if rule.sink is None else rule.sink(parameters)))
        all_scores.append(scores)
    # -inf marks a dropped pair.
    deviations = np.ma.masked_invalid(np.concatenate(all_scores)).std(axis=1).filled(0.0)
    rows = np.concatenate(weights)
    # Entropy is of the weights of keys, without the share of a sink.
    shares = rows / np.maximum(rows.sum(axis=1, keepdims=True), _LEAST)
    entropy = -(shares * np.log(np.maximum(shares, _LEAST))).sum(axis=1)
    squares = np.square(rows)
    steep = np.sqrt((squares * (np.square(1 - rows) + squares.sum(axis=1)[:, None] - squares)).sum(axis=1))
    return Behaviour(
        rule=rule.name, D=case.D, gain=gain, keys=case.Lk,
        deviation=float(deviations.mean()), entropy=float(entropy.mean() / np.log(case.Lk)),
        largest=float(rows.max(axis=1).mean()), gradient=float(np.median(steep)),
        pair_flops=2 * case.D if rule.score_flops is None else rule.score_flops(case),
        pair_bytes=4 * rule.score_elements(case),
        parameter_count=sum(int(np.prod(one.shape)) for one in rule.parameters(case)),
    )  # fmt: skip


_QUANTITIES = {
    "deviation": "standard deviation of the scores of a row",
    "entropy": "−Σ w ln w / ln(number of keys): 1 if all are equal, 0 if all weight is on one key",
    "largest": "largest weight of a row",
    "gradient": (
        "median Frobenius norm of the derivatives of weights by scores, w_i (1[i = j] − w_j): 0 where "
        "saturated; --seed changes its last digit"
    ),
}
_COSTS = {"pair_flops": "operations", "pair_bytes": "bytes, float32", "parameter_count": "parameters"}


def behaviour_steps(by_width: Sequence[Behaviour], by_gain: Sequence[Behaviour] = ()) -> Iterator[Step]:
    """Yield each quantity against D, rules down; then against the gain at one D; then the cost of scores."""
    for name in _QUANTITIES:
        yield _against("D", "D", name, by_width)
    if not by_gain:
        return
    D = by_gain[0].D
    for name in list(_QUANTITIES)[1:]:
        yield _against(f"gain, D = {D}", "gain", name, by_gain)
    at = [row for row in by_width if row.D == D]
    costs = np.array([[float(getattr(row, name)) for name in _COSTS] for row in at])
    text = "operations and bytes of each (query, key) pair, parameters of each head"
    labels = tuple(row.rule for row in at), tuple(_COSTS.values())
    yield Step(f"cost of scores at D = {D}", text, costs, *labels)


def _against(what: str, varied: str, name: str, rows: Sequence[Behaviour]) -> Step:
    """Return a quantity: rules down, widths or gains across; NaN where a rule does not support a width."""
    found = {(row.rule, getattr(row, varied)): getattr(row, name) for row in rows}
    rules, across = (list(dict.fromkeys(keys)) for keys in zip(*found, strict=True))
    # Other seeds change the second decimal of some, and the third one of most.
    values = np.round([[found.get((rule, x), np.nan) for x in across] for rule in rules], 2)
    drawn: Drawn = "numbers" if name == "deviation" else "lines"
    labels = tuple(rules), tuple(f"{x:g}" for x in across)
    return Step(f"{name} against {what}", _QUANTITIES[name], values, *labels, drawn=drawn)
