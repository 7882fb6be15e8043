"""Attention weights held against the oracle's."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from attnbench.check.weights import WeightErrors, weight_errors, weights_problem
from attnbench.inputs.draw import Parameters
from attnbench.inputs.laws import Triple
from attnbench.inputs.rounding import Stored, widen
from attnbench.oracle.solve import solve_weights
from attnbench.types.case import Case
from attnbench.types.rule import Rule

if TYPE_CHECKING:
    from attnbench.types.rule import Array


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
    inputs: Triple
    rows: NDArray[np.intp] | None

    def errors(self, weights: Stored) -> WeightErrors:
        """How far weights are off."""
        return weight_errors(self._of_rows(weights), self._exact)

    def problem(self, weights: Stored, plain: WeightErrors) -> str:
        """What is wrong with weights; "" for nothing. plain: the errors of the plain reference's."""
        return weights_problem(self.case, self._of_rows(weights), self._exact, plain, self._case_rows)

    @cached_property
    def _exact(self) -> Array:
        a, b, c = (widen(array, self.case.dtype) for array in self.inputs)
        return solve_weights(self.case, self.rule, self.parameters, (a, b, c), self.rows)

    @property
    def _case_rows(self) -> NDArray[np.intp]:
        return np.arange(self.case.Lq) if self.rows is None else self.rows

    def _of_rows(self, weights: Stored) -> Array:
        case = self.case
        if weights.shape != (case.B, case.H, case.Lq, case.Lk):
            raise ValueError(f"weights of shape {weights.shape}")
        return widen(weights[:, :, self._case_rows], case.dtype)
