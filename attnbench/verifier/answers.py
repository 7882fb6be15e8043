"""The errors of answers, by draw and by part of the answer."""

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
    """One draw: inputs by name, the exact answer by parts on the chosen rows, and the gradient of the output.

    upstream: None in a forward pass. held: for each gradient its terms before they are subtracted.
    plain_errors: for each gradient the errors of the plain reference.
    """

    inputs: Mapping[str, Stored]
    expected: dict[str, Array]
    upstream: Stored | None = None
    held: dict[str, Array] = field(default_factory=dict)
    plain_errors: dict[str, Errors] = field(default_factory=dict)


Rows = NDArray[np.intp]

MOST_TIMED_ELEMENTS = 1 << 16
"""About so many elements of the output of a timed call are compared."""


def some_rows(case: Case, rows: Rows | None, rng: np.random.Generator) -> Rows:
    """Return places among the query rows that are compared: all, or random ones of a large output.

    An output that is left over from another call is wrong in every row.
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
    """Return the errors of each part of an answer to inputs after a transform.

    expected: the exact answer before it; the output has the query rows ``rows`` alone, all if None. some: the
    places of the rows to compare; the worst element then has its row of the case.

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
