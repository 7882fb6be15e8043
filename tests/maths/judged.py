"""Judging a function as a run judges a backend: draws of a family pooled, beside the plain reference."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from maths_tools import RULES, setup_of, stored_bits, tensor, wide_parameters
from torch import Tensor

from attnbench.check.errors import compare, longest_sum, pool, rounding_unit, scale_of, verdict
from attnbench.check.reference import PLAIN
from attnbench.inputs.draw import widen
from attnbench.inputs.kinds import draw_family, family_draws, largest_score
from attnbench.oracle.solve import solve
from attnbench.types.backend import Setup
from attnbench.types.case import Case
from attnbench.types.record import Accuracy


class Judge:
    """A case's inputs of a family, answers and the plain reference's errors, once for any number of
    functions."""

    def __init__(self, case: Case, draws: int | None = None, family: str = "normal") -> None:
        self.case, self.setup = case, setup_of(case)
        self.unit = rounding_unit(case.dtype, longest_sum(case), largest_score(case, family))
        rule = RULES[case.rule]
        parameters, plain = wide_parameters(case), PLAIN.prepare(self.setup)
        self.inputs: list[tuple[Tensor, ...]] = []
        self.expected: list[np.ndarray] = []
        values, plain_errors = [], []
        known = family_draws(case, family)
        for index in range(draws or known):
            stored = draw_family(case, rule, family, case.seed, index)
            wide = tuple(widen(array, case.dtype) for array in stored)
            self.inputs.append(tuple(tensor(array, case.dtype) for array in stored))
            self.expected.append(solve(case, rule, parameters, (wide[0], wide[1], wide[2])))
            plain_errors.append(self.errors(plain(*self.inputs[-1]), index))
            values.append(wide[2].ravel())
        self.reference = pool(plain_errors)
        self.values = np.concatenate(values)

    def errors(self, output: Tensor, index: int):
        return compare(stored_bits(output), self.expected[index], self.case.dtype)

    def verdict(self, outputs: list[Tensor]) -> tuple[Accuracy, str]:
        return verdict(
            pool([self.errors(output, index) for index, output in enumerate(outputs)]),
            self.reference,
            output=scale_of(self.expected),
            values=scale_of([self.values]),
            dtype=self.case.dtype,
            rows=self.case.Lq,
            rows_of=self.case.Lq,
            draws=len(self.inputs),
            unit=self.unit,
        )

    def of(self, kernel: Callable[[Setup, Tensor, Tensor, Tensor], Tensor]) -> tuple[Accuracy, str]:
        return self.verdict([kernel(self.setup, *inputs) for inputs in self.inputs])
