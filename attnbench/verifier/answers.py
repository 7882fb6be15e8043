"""How far answers are from the exact ones: by draw, by part of the answer, and by weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from attnbench.check.errors import Errors, compare_wide
from attnbench.inputs.draw import Stored, widen
from attnbench.inputs.symmetries import Transform, invert, invert_gradient
from attnbench.ipc.names import OUT
from attnbench.oracle.solve import FEWEST_ROWS
from attnbench.types.case import Case, output_shape
from attnbench.types.operation import operation_of

if TYPE_CHECKING:
    from attnbench.types.rule import Array


@dataclass(frozen=True)
class Drawn:
    """One draw: the inputs by name; the exact answer by parts (on the chosen rows); the gradient of the
    output that gradients are made with, where the case has any.

    held: for each gradient what it is a difference of, and plain_errors how far the plain reference is off.
    """

    inputs: Mapping[str, Stored]
    expected: dict[str, Array]
    upstream: Stored | None = None
    held: dict[str, Array] = field(default_factory=dict)
    plain_errors: dict[str, Errors] = field(default_factory=dict)


Rows = NDArray[np.intp]

MOST_TIMED_ELEMENTS = 1 << 16
"""Of the output of a timed call, about so many are compared."""


def some_rows(case: Case, rows: Rows | None, rng: np.random.Generator) -> Rows:
    """Places among the query rows that are compared: all, or some at random where there are many elements.

    What a backend left over from another call is in every row.
    """
    count = case.Lq if rows is None else len(rows)
    by_row = prod(output_shape(case)) // case.Lq
    wanted = max(FEWEST_ROWS, MOST_TIMED_ELEMENTS // by_row)
    if count <= wanted:
        return np.arange(count)
    return np.sort(rng.choice(count, wanted, replace=False))


def errors_after(
    case: Case,
    transform: Transform,
    parts: Mapping[str, Stored],
    expected: Mapping[str, Array],
    rows: Rows | None,
    some: Rows | None = None,
) -> dict[str, Errors]:
    """Errors of each part of an answer, as stored, to inputs that a transform has changed.

    expected: the exact answer before the change; of the output the query rows ``rows`` alone, all where None.
    some: places of those rows that count; the worst element is then named by its row of the case.

    Raises:
        ValueError: the answer has other parts.
    """
    if set(parts) != set(expected):
        raise ValueError(f"an answer of {sorted(parts)} where {sorted(expected)} are asked for")
    heads = operation_of(case).heads
    if heads is None:
        return {name: compare_wide(widen(parts[name], case.dtype), exact) for name, exact in expected.items()}
    case_rows = np.arange(case.Lq) if rows is None else rows
    errors: dict[str, Errors] = {}
    for part, exact in expected.items():
        if part != OUT:
            got = invert_gradient(case, transform, part, widen(parts[part], case.dtype))
            errors[part] = compare_wide(got, exact)
        elif some is None:
            errors[part] = compare_wide(invert(case, transform, parts[part], case_rows), exact)
        else:
            axis = heads.rows
            got = invert(case, transform, parts[part], case_rows[some])
            found = compare_wide(got, np.take(exact, some, axis))
            worst = list(found.worst)
            worst[axis] = int(case_rows[some][worst[axis]])
            errors[part] = replace(found, worst=tuple(worst))
    return errors
