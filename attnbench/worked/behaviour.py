"""Rules compared by what they do to weights, not by time: how sharp, how steep, at which cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from attnbench.inputs.draw import draw_parameters
from attnbench.oracle.weights import softmax
from attnbench.types.case import Case
from attnbench.types.errors import BadInput
from attnbench.types.rule import Rule
from attnbench.worked.steps import scores_of

if TYPE_CHECKING:
    from attnbench.types.rule import Array

WIDTHS = (4, 16, 64, 256)
GAINS = (0.25, 1.0, 4.0, 16.0)
MOST = 1024
"""Of keys, of features: this is for a picture, and a rule's reference may hold rows x keys x features."""
LARGEST_GAIN = 1e100
"""Scores stay finite."""
_HEADS, _ROWS = 16, 8
"""Draws of parameters and of keys, and queries of each."""
_LEAST = 1e-300


@dataclass(frozen=True)
class Behaviour:
    """A rule on queries and keys with independent standard normal features, over the rows of 16 heads.

    Each head has its own queries, keys and parameters, so that no lucky draw of one looks like the rule.

    D: features. gain: what queries are multiplied by. keys: how many. deviation: of a row's scores, mean.
    entropy: of a row's weights, as a share of that of equal ones, mean; 0 is all on one key. largest: weight
    of a row, mean. gradient: the median over rows of the norm of d weights / d scores, w_i (1[i = j] - w_j):
    0 where softmax is saturated and nothing can be learnt through it. pair_flops, pair_bytes: operations that
    the scores take for each (query, key), and what a form in plain steps holds for it in float32.
    parameter_count: of one head.
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
    rules: Iterable[Rule],
    widths: Sequence[int] = WIDTHS,
    gains: Sequence[float] = (1.0,),
    keys: int = 32,
    seed: int = 0,
) -> Iterator[Behaviour]:
    """How each rule behaves at each width and gain; widths that a rule can't have are left out.

    Raises:
        BadInput: too many keys or features, fewer than two keys, or a gain that scores can't hold.
        PluginFailed: a rule's reference gives scores that are none.
    """
    if not 2 <= keys <= MOST:
        raise BadInput(f"{keys} keys: 2 to {MOST} are needed")
    for gain in gains:
        if not 0 < gain <= LARGEST_GAIN:
            raise BadInput(f"a gain of {gain:g}: one above 0 and up to {LARGEST_GAIN:g} is needed")
    for rule in rules:
        for D in widths:
            if not 1 <= D <= MOST:
                raise BadInput(f"{D} features: 1 to {MOST} are needed")
            case = Case(
                "attention", rule.name, 1, _HEADS, _HEADS, keys, keys, D, D, dtype="float64", seed=seed
            )
            if rule.supports(case) is None:
                yield from (_behaviour(rule, case, gain) for gain in gains)


def _behaviour(rule: Rule, case: Case, gain: float) -> Behaviour:
    drawn = draw_parameters(case, rule).rule
    heads = [
        {name: np.asarray(array[head], np.float64) for name, array in drawn.items()} for head in range(_HEADS)
    ]
    weights, deviations = zip(
        *(_drawn(rule, case, gain, head, parameters) for head, parameters in enumerate(heads)), strict=True
    )
    rows = np.concatenate(weights)
    # A sink's share isn't among the keys; entropy is that of what is.
    shares = rows / np.maximum(rows.sum(axis=1, keepdims=True), _LEAST)
    entropy = -(shares * np.log(np.maximum(shares, _LEAST))).sum(axis=1)
    parameters = rule.parameters(case)
    return Behaviour(
        rule=rule.name,
        D=case.D,
        gain=gain,
        keys=case.Lk,
        deviation=float(np.mean(deviations)),
        entropy=float(entropy.mean() / np.log(case.Lk)),
        largest=float(rows.max(axis=1).mean()),
        gradient=float(np.median(softmax_gradient_norm(rows))),
        pair_flops=2 * case.D if rule.score_flops is None else rule.score_flops(case),
        pair_bytes=4 * rule.score_elements(case),
        parameter_count=sum(int(np.prod(parameter.shape)) for parameter in parameters),
    )


def softmax_gradient_norm(weights: Array) -> Array:
    """The Frobenius norm of d weights / d scores of a row: w_i (1 - w_i) on the diagonal, -w_i w_j beside."""
    squares = np.square(weights)
    beside = squares * (squares.sum(axis=-1, keepdims=True) - squares)
    return np.asarray(np.sqrt((squares * np.square(1 - weights) + beside).sum(axis=-1)))


def _drawn(
    rule: Rule, case: Case, gain: float, head: int, parameters: Mapping[str, Array]
) -> tuple[Array, float]:
    """Weights of the last queries of one head, and the deviation of their scores."""
    rng = np.random.default_rng([case.seed, head, case.D, case.Lk])
    rows = min(_ROWS, case.Lk)
    q = rng.standard_normal((rows, case.D)) * gain
    k = rng.standard_normal((rows if rule.pairs_keys else case.Lk, case.D))
    scores = scores_of(rule, q, k, parameters, np.arange(case.Lk - rows, case.Lk, dtype=np.float64), case.Lk)
    sink = None if rule.sink is None else rule.sink(parameters)
    # -inf is no score.
    kept = [row[np.isfinite(row)] for row in scores]
    return softmax(scores, sink), float(np.mean([row.std() if len(row) else 0.0 for row in kept]))
