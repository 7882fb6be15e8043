"""Attention by loops over single numbers, straight from the formulas: what the oracle is judged by.

Nothing here is shared with the package but the values: no NumPy arithmetic, no rule's own reference.
"""

from __future__ import annotations

from collections.abc import Callable
from math import exp, fsum, inf, log, sqrt, tanh

import numpy as np

from attnbench.inputs.draw import Parameters
from attnbench.masks import added_rows, keep_rows
from attnbench.types.case import Case

Vector = list[float]
Matrix = list[Vector]


def dot(x: Vector, y: Vector) -> float:
    return fsum(a * b for a, b in zip(x, y, strict=True))


def times(matrix: Matrix, x: Vector) -> Vector:
    return [dot(row, x) for row in matrix]


def length(x: Vector) -> float:
    return sqrt(dot(x, x))


def hidden(q: Vector, k: Vector, p: dict) -> Vector:
    pairs = zip(times(p["w_query"], q), times(p["w_key"], k), p["bias"], strict=True)
    return [tanh(a + b + c) for a, b, c in pairs]


def scaled(q: Vector, k: Vector, p: dict) -> float:
    return p["scale"] * dot(q, k) if "scale" in p else dot(q, k) / sqrt(len(q))


def bucket(p: dict, i: int, j: int) -> int:
    """T5's bucket of key j for a query at i, with logarithms as in its published code."""
    of_side = int(p["buckets"] // p["sides"])
    half = of_side // 2
    n = abs(i - j) if p["sides"] == 2 else max(i - j, 0)
    if n >= half:
        n = min(half + int(log(n / half) / log(p["distance"] / half) * (of_side - half)), of_side - 1)
    return n + of_side * (p["sides"] == 2 and j > i)


# The score of one query and one key: q, k, the head's parameters, position of the query, of the key.
SCORES: dict[str, Callable[[Vector, Vector, dict, int, int], float]] = {
    "dot": lambda q, k, p, i, j: dot(q, k),
    "scaled_dot": lambda q, k, p, i, j: scaled(q, k, p),
    "general": lambda q, k, p, i, j: dot(q, times(p["w"], k)),
    "additive": lambda q, k, p, i, j: dot(p["v"], hidden(q, k, p)),
    "additive_sum": lambda q, k, p, i, j: fsum(hidden(q, k, p)),
    "concat_linear": lambda q, k, p, i, j: dot(p["w"][j], q + k) + p["bias"][j],
    "cosine": lambda q, k, p, i, j: p["beta"] * dot(q, k) / (length(q) * length(k)),
    "alibi": lambda q, k, p, i, j: scaled(q, k, p) - p["slope"] * abs(i - j),
    "t5_bias": lambda q, k, p, i, j: dot(q, k) + p["bias"][bucket(p, i, j)],
    "softcap": lambda q, k, p, i, j: p.get("c", 2) * tanh(scaled(q, k, p) / p.get("c", 2)),
    "sinks": lambda q, k, p, i, j: scaled(q, k, p),
}


def solve_by_loops(
    case: Case, parameters: Parameters, activations: tuple[np.ndarray, np.ndarray, np.ndarray]
) -> np.ndarray:
    """The output of a case, one number at a time."""
    sources = [source.tolist() for source in activations]
    projections = {name: array.tolist() for name, array in parameters.projections.items()}
    output = []
    for b in range(case.B):
        q, k, v = (heads(case, projections, letter, sources[n][b]) for n, letter in enumerate("qkv"))
        of_group = [(k[h // case.group], v[h // case.group]) for h in range(case.H)]
        attended = [
            [row(case, parameters, b, h, i, q[h][i], *of_group[h]) for i in range(case.Lq)]
            for h in range(case.H)
        ]
        output.append(attended if case.layer is None else finished(case, projections, q, attended))
    return np.array(output)


def row(
    case: Case, parameters: Parameters, b: int, h: int, i: int, q: Vector, keys: Matrix, values: Matrix
) -> Vector:
    """One query's output: softmax over its kept keys, and over the sink where there is one."""
    sides = 1 if case.mask.causal else 2
    of_t5 = {"buckets": 32, "distance": 128, "sides": sides} if case.rule == "t5_bias" else {}
    own = of_t5 | dict(case.constants) | {name: array[h].tolist() for name, array in parameters.rule.items()}
    added, keep = added_rows(case, np.array([i])), keep_rows(case, np.array([i]))
    scores = {}
    for j in range(case.Lk):
        if keep is None or np.broadcast_to(keep, (case.B, case.H, 1, case.Lk))[b, h, 0, j]:
            key = keys[i] if case.rule == "concat_linear" else keys[j]
            scores[j] = SCORES[case.rule](q, key, own, i + case.query_offset, j)
            scores[j] += 0 if added is None else float(added[b, min(h, added.shape[1] - 1), 0, j])
    sink = own["sink"] if case.rule == "sinks" else -inf
    largest = max([*scores.values(), sink])
    total = fsum(exp(score - largest) for score in [*scores.values(), sink]) if largest > -inf else 1
    weights = {j: exp(score - largest) / total for j, score in scores.items()}
    return [fsum(w * values[j][d] for j, w in weights.items()) for d in range(case.Dv)]


def heads(case: Case, projections: dict, letter: str, source: list) -> list[Matrix]:
    """By head, the rows of q, k or v of one batch element."""
    if case.layer is None:
        return source
    count, width = {"q": (case.H, case.D), "k": (case.Hkv, case.D), "v": (case.Hkv, case.Dv)}[letter]
    flat = [times(projections[f"w_{letter}"], x) for x in source]
    if case.layer.bias:
        bias = projections[f"b_{letter}"]
        flat = [[a + b for a, b in zip(each, bias, strict=True)] for each in flat]
    return [[each[h * width : (h + 1) * width] for each in flat] for h in range(count)]


def finished(case: Case, projections: dict, q: list[Matrix], attended: list[Matrix]) -> Matrix:
    """The rows of a layer's output of one batch element."""
    rows = []
    for i in range(case.Lq):
        merged = [number for h in range(case.H) for number in attended[h][i]]
        if "w_o" in projections:
            if case.rule == "concat_linear":
                merged = [number for h in range(case.H) for number in q[h][i]] + merged
            merged = times(projections["w_o"], merged)
            if "b_o" in projections:
                merged = [a + b for a, b in zip(merged, projections["b_o"], strict=True)]
        rows.append(merged)
    return rows
