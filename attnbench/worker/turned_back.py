"""What other signs of inputs do to the answer, taken back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from attnbench.inputs.draw import Parameters
from attnbench.inputs.rounding import Stored, negated, widen
from attnbench.oracle.solve import solve
from attnbench.types.case import Case
from attnbench.types.rule import Rule
from attnbench.worker.flipped import Flipped
from attnbench.worker.names import OUT

if TYPE_CHECKING:
    from attnbench.types.rule import Array

    Parts = Mapping[str, Stored]


def turned_back(
    case: Case,
    rule: Rule,
    parameters: Parameters,
    inputs: tuple[Array, ...],
    parts: Parts,
    flipped: Flipped,
) -> dict[str, Stored]:
    """The answer to inputs, from that to those with other signs.

    The row of a query that changed gets the exact answer to the query as it was, plus what the answer to the
    changed one is off by: so it is compared as the others are.
    inputs: q, k, v in float64, before the signs changed; () where no query did. Parts are as stored, or in
    float64 and wider where a row was solved anew.
    """
    if not flipped.column:
        turned = {name for name in parts if (name == OUT) == (case.pass_ == "forward")}
        return {name: negated(part, case.dtype) if name in turned else part for name, part in parts.items()}
    b, h, d = flipped.column
    out = np.array(parts[OUT])
    heads = slice(h * case.group, (h + 1) * case.group)
    out[b, heads, :, d] = negated(out[b, heads, :, d], case.dtype)
    if flipped.query:
        b, h, i = flipped.query
        row = np.array([i])
        q, k, v = inputs
        opposite = q.copy()
        opposite[b, h, i] *= -1
        before = solve(case, rule, parameters, (q, k, v), row)[b, h, 0]
        after = solve(case, rule, parameters, (opposite, k, v), row)[b, h, 0]
        out = widen(out, case.dtype).astype(before.dtype)
        out[b, h, i] += before - after
    return {**parts, OUT: out}
