"""Rules compared by their effect on weights, not by time: how peaked, how saturated, at which cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attnbench.explain.picture import SCHEMA
from attnbench.explain.steps import scores_of
from attnbench.inputs.draw import draw_parameters
from attnbench.oracle.solve import softmax
from attnbench.reports.formats import bare_table, string_console, written
from attnbench.types.case import Case
from attnbench.types.errors import BadInput
from attnbench.types.rule import Rule

if TYPE_CHECKING:
    from attnbench.types.rule import Array

WIDTHS = (4, 16, 64, 256)
GAINS = (0.25, 1.0, 4.0, 16.0)
MOST = 1024
"""The most keys and features: enough for a picture; a reference may hold rows x keys x features."""
LARGEST_GAIN = 1e100
"""The largest gain: scores stay finite."""
_HEADS, _ROWS = 16, 8
"""Draws of parameters and of keys, and queries of each."""
_LEAST = 1e-300


@dataclass(frozen=True)
class Behaviour:
    """The behaviour of a rule on independent standard normal queries and keys, over the rows of 16 heads.

    Each head has its own queries, keys and parameters, so that a lucky draw of one does not decide.

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
    rules: Iterable[Rule],
    widths: Sequence[int] = WIDTHS,
    gains: Sequence[float] = (1.0,),
    keys: int = 32,
    seed: int = 0,
) -> Iterator[Behaviour]:
    """Yield the behaviour of each rule at each width and gain, without widths that a rule does not support.

    Raises:
        BadInput: keys, features or gain are out of range.
        PluginFailed: a reference returns something other than scores.
    """
    if not 2 <= keys <= MOST:
        raise BadInput(f"{keys} keys: give 2 to {MOST}")
    for gain in gains:
        if not 0 < gain <= LARGEST_GAIN:
            raise BadInput(f"a gain of {gain:g}: give one above 0 and up to {LARGEST_GAIN:g}")
    for rule in rules:
        for D in widths:
            if not 1 <= D <= MOST:
                raise BadInput(f"{D} features: give 1 to {MOST}")
            case = Case(
                "attention", rule.name, 1, _HEADS, _HEADS, keys, keys, D, D, dtype="float64", seed=seed
            )
            if rule.supports(case) is None:
                yield from (_behaviour(rule, case, gain) for gain in gains)


def _behaviour(rule: Rule, case: Case, gain: float) -> Behaviour:
    drawn = draw_parameters(case, rule).rule
    weights, deviations = [], []
    for head in range(_HEADS):
        parameters = {name: np.asarray(array[head], np.float64) for name, array in drawn.items()}
        rng = np.random.default_rng([case.seed, head, case.D, case.Lk])
        count = min(_ROWS, case.Lk)
        q = rng.standard_normal((count, case.D)) * gain
        k = rng.standard_normal((count if rule.pairs_keys else case.Lk, case.D))
        positions = np.arange(case.Lk - count, case.Lk, dtype=np.float64)
        scores = scores_of(rule, q, k, parameters, positions, case.Lk)
        weights.append(softmax(scores, None if rule.sink is None else rule.sink(parameters)))
        # -inf marks a dropped pair.
        kept = [row[np.isfinite(row)] for row in scores]
        deviations += [row.std() if len(row) else 0.0 for row in kept]
    rows = np.concatenate(weights)
    # Entropy is of the weights of keys, without the share of a sink.
    shares = rows / np.maximum(rows.sum(axis=1, keepdims=True), _LEAST)
    entropy = -(shares * np.log(np.maximum(shares, _LEAST))).sum(axis=1)
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
        parameter_count=sum(int(np.prod(one.shape)) for one in rule.parameters(case)),
    )


def softmax_gradient_norm(weights: Array) -> Array:
    """Return the Frobenius norm of d weights / d scores of each row: w_i (1[i = j] - w_j)."""
    squares = np.square(weights)
    beside = squares * (squares.sum(axis=-1, keepdims=True) - squares)
    return np.asarray(np.sqrt((squares * np.square(1 - weights) + beside).sum(axis=-1)))


_QUANTITIES = {
    "deviation": "standard deviation of the scores of a row",
    "entropy": "entropy of weights (1: all equal, 0: all on one key)",
    "largest": "largest weight of a row",
    "gradient": "norm of the gradient of softmax (0: saturated)",
}
_COSTS = {
    "pair_flops": "operations per pair",
    "pair_bytes": "bytes per pair, float32",
    "parameter_count": "parameters per head",
}


def behaviour_text(
    by_width: Sequence[Behaviour], by_gain: Sequence[Behaviour], *, width: int = 120, colour: bool = False
) -> str:
    """Write tables against D, then against the range of the logits at one D, then the cost of scores."""
    parts = []
    for name, text in _QUANTITIES.items():
        cells = [(row.rule, f"D={row.D}", f"{getattr(row, name):.3f}") for row in by_width]
        parts.append(f"{text}, against D\n" + _table(cells, width, colour))
    for name, text in _QUANTITIES.items():
        cells = [(row.rule, f"×{row.gain:g}", f"{getattr(row, name):.3f}") for row in by_gain]
        if by_gain and name != "deviation":
            parts.append(f"{text}, against the gain, D={by_gain[0].D}\n" + _table(cells, width, colour))
    at = shown_width(row.D for row in by_width)
    costs = [
        (row.rule, head, str(getattr(row, name)))
        for row in by_width
        if at == row.D
        for name, head in _COSTS.items()
    ]
    parts.append(f"cost of scores at D={at}\n" + _table(costs, width, colour))
    return "\n".join(parts)


def _table(cells: Iterable[tuple[str, str, str]], width: int, colour: bool) -> str:
    """Write a table of cells, each with the names of its row and of its column."""
    cells = list(cells)
    heads = list(dict.fromkeys(head for _, head, _ in cells))
    by_rule: dict[str, dict[str, str]] = {}
    for rule, head, text in cells:
        by_rule.setdefault(rule, {})[head] = text
    table = bare_table()
    table.add_column("rule", no_wrap=True)
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    for rule, row in by_rule.items():
        table.add_row(rule, *(row.get(head, "") for head in heads))
    console = string_console(width, colour=colour)
    console.print(table)
    return written(console)


def shown_width(widths: Iterable[int]) -> int:
    """Return the width that stands for all: 64, or else the largest."""
    widths = set(widths)
    return 64 if 64 in widths else max(widths)


def behaviour_rows(rows: Sequence[Behaviour]) -> list[dict[str, Any]]:
    """Return behaviours as plain rows, each once."""
    return [asdict(row) for row in dict.fromkeys(rows)]


def behaviour_spec(by_width: Sequence[Behaviour], by_gain: Sequence[Behaviour]) -> dict[str, Any]:
    """Specify line charts of every quantity against D, and below them against the gain, for Vega-Lite."""
    rows = [_lines("D", [(float(row.D), row) for row in by_width])]
    if by_gain:
        rows.append(_lines(f"queries times a gain, D={by_gain[0].D}", [(row.gain, row) for row in by_gain]))
    return {"$schema": SCHEMA, "background": "white", "vconcat": rows}


def _lines(across: str, points: Sequence[tuple[float, Behaviour]]) -> dict[str, Any]:
    """Specify a row of charts, one for each quantity, with ticks at the points."""
    # The text before the parenthesis is the title.
    titles = {name: text.partition(" (")[0] for name, text in _QUANTITIES.items() if name != "deviation"}
    values = [
        {"rule": row.rule, "x": x, "quantity": title, "value": getattr(row, name)}
        for x, row in points
        for name, title in titles.items()
    ]
    rule = {"field": "rule", "type": "nominal", "sort": None, "title": "rule"}
    x_axis = {
        "field": "x", "type": "quantitative", "scale": {"type": "log", "nice": False}, "title": across,
        "axis": {"values": sorted({x for x, _ in points}), "format": "~g"},
    }  # fmt: skip
    y_axis = {"field": "value", "type": "quantitative", "scale": {"domain": [0, 1]}, "title": None}
    line = {
        "mark": {"type": "line", "point": True},
        "encoding": {"x": x_axis, "y": y_axis, "color": rule, "strokeDash": rule},
        "width": 220,
        "height": 160,
    }
    column = {"field": "quantity", "type": "nominal", "title": None, "sort": list(titles.values())}
    return {"data": {"values": values}, "facet": {"column": column}, "spec": line}
