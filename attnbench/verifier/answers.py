"""How far answers are from the exact ones: by draw, by part of the answer, and by weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from attnbench.check.errors import Errors, compare_wide
from attnbench.check.weights import WeightErrors, weight_errors, weights_problem
from attnbench.inputs.draw import Parameters, Stored, widen
from attnbench.inputs.symmetries import Change, undone, undone_gradient
from attnbench.ipc.names import OUT
from attnbench.oracle.solve import FEWEST_ROWS, solve_weights
from attnbench.types.case import Case, output_shape
from attnbench.types.checks import Check
from attnbench.types.operation import operation_of
from attnbench.types.record import Accuracy, DropoutNumbers
from attnbench.types.rule import Rule

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


@dataclass(frozen=True)
class Judgement:
    """The verdict on all that somebody has computed for the check.

    accuracy: in numbers, of ordinary inputs; parts: of each part of the answer, where there are several.
    problem: what is wrong in words, "" for nothing; check: the check that failed. failed: the families in
    which anything is. dropout: what takes the place of both numbers in a case with dropout.
    """

    accuracy: Accuracy | None
    parts: dict[str, Accuracy]
    problem: str
    failed: tuple[str, ...]
    dropout: DropoutNumbers | None = None
    check: Check = ""


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
    law: Change,
    parts: Mapping[str, Stored],
    expected: Mapping[str, Array],
    rows: Rows | None,
    some: Rows | None = None,
) -> dict[str, Errors]:
    """Errors of each part of an answer, as stored, to inputs that a law has changed.

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
            got = undone_gradient(case, law, part, widen(parts[part], case.dtype))
            errors[part] = compare_wide(got, exact)
        elif some is None:
            errors[part] = compare_wide(undone(case, law, parts[part], case_rows), exact)
        else:
            axis = heads.rows
            got = undone(case, law, parts[part], case_rows[some])
            found = compare_wide(got, np.take(exact, some, axis))
            worst = list(found.worst)
            worst[axis] = int(case_rows[some][worst[axis]])
            errors[part] = replace(found, worst=tuple(worst))
    return errors


@dataclass(frozen=True)
class Weighed:
    """A draw whose weights are asked for: of the query rows ``rows``, all where None.

    Weights are (B, H, Lq, Lk), as stored.

    Raises:
        ValueError: they have another shape.
    """

    case: Case
    rule: Rule
    parameters: Parameters
    inputs: Mapping[str, Stored]
    rows: NDArray[np.intp] | None

    def errors(self, weights: Stored) -> WeightErrors:
        """How far weights are off."""
        return weight_errors(self._of_rows(weights), self._exact)

    def problem(self, weights: Stored, plain: WeightErrors) -> str:
        """What is wrong with weights; "" for nothing. plain: the errors of the plain reference's."""
        return weights_problem(self.case, self._of_rows(weights), self._exact, plain, self._case_rows)

    @cached_property
    def _exact(self) -> Array:
        a, b, c = (widen(array, self.case.dtype) for array in self.inputs.values())
        return solve_weights(self.case, self.rule, self.parameters, (a, b, c), self.rows)

    @property
    def _case_rows(self) -> NDArray[np.intp]:
        return np.arange(self.case.Lq) if self.rows is None else self.rows

    def _of_rows(self, weights: Stored) -> Array:
        case = self.case
        if weights.shape != (case.B, case.H, case.Lq, case.Lk):
            raise ValueError(f"weights of shape {weights.shape}")
        return widen(weights[:, :, self._case_rows], case.dtype)
