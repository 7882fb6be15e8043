"""Judging a function as a run judges a backend: draws of one kind pooled, beside the plain reference."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property

import numpy as np
from maths_tools import RULES, setup_of, stored_bits, tensor, wide_parameters
from torch import Tensor

from attnbench.inputs.draw import widen
from attnbench.inputs.kinds import draw_stress_input, largest_score, stress_draws
from attnbench.kit.reference import PLAIN
from attnbench.oracle.solve import solve
from attnbench.types.backend import Setup
from attnbench.types.case import Case
from attnbench.types.record import Accuracy
from attnbench.verifier.errors import (
    Errors,
    Scatter,
    compare,
    compare_wide,
    longest_sum,
    nudged,
    pool,
    rounded,
    rounding_unit,
    scale_of,
    verdict,
)

Kernel = Callable[[Setup, Tensor, Tensor, Tensor], Tensor]


class Judge:
    """A case's inputs of one kind, answers and the plain reference's errors, once for any number of
    functions."""

    def __init__(self, case: Case, draws: int | None = None, stress: str = "normal") -> None:
        self.case, self.setup = case, setup_of(case)
        self.largest_score = largest_score(case, stress)
        rule = RULES[case.rule]
        parameters, plain = wide_parameters(case), PLAIN.prepare(self.setup)
        self.inputs: list[tuple[Tensor, ...]] = []
        self.expected: list[np.ndarray] = []
        self._rounding: dict[str, list[Errors]] = {}
        values, plain_errors = [], []
        known = stress_draws(case, stress)
        for index in range(draws or known):
            stored = draw_stress_input(case, rule, stress, case.seed, index)
            wide = tuple(widen(array, case.dtype) for array in stored)
            self.inputs.append(tuple(tensor(array, case.dtype) for array in stored))
            self.expected.append(solve(case, rule, parameters, (wide[0], wide[1], wide[2])))
            plain_errors.append(self.errors(plain(*self.inputs[-1]), index))
            values.append(wide[2].ravel())
        self.reference = pool(plain_errors)
        self.values = np.concatenate(values)

    def errors(self, output: Tensor, index: int):
        return compare(stored_bits(output), self.expected[index], self.case.dtype)

    def verdict(self, outputs: list[Tensor], arithmetic: str = "") -> tuple[Accuracy, str]:
        return verdict(
            pool([self.errors(output, index) for index, output in enumerate(outputs)]),
            pool(self.rounding(arithmetic)) if arithmetic else self.reference,
            output=scale_of(self.expected),
            values=scale_of([self.values]),
            dtype=self.case.dtype,
            rows=self.case.Lq,
            rows_of=self.case.Lq,
            draws=len(self.inputs),
            unit=rounding_unit(self.case.dtype, longest_sum(self.case), self.largest_score, arithmetic),
            arithmetic=arithmetic,
        )

    def of(self, kernel: Kernel, arithmetic: str = "") -> tuple[Accuracy, str]:
        return self.verdict([kernel(self.setup, *inputs) for inputs in self.inputs], arithmetic)

    def share(self, kernel: Kernel, arithmetic: str = "") -> float:
        """The larger of both errors over its limit; inf for what is not finite."""
        accuracy, problem = self.of(kernel, arithmetic)
        if "not finite" in problem:
            return math.inf
        limits = (accuracy.rms_error, accuracy.rms_limit), (accuracy.max_error, accuracy.max_limit)
        return max(error / limit if limit else 0.0 for error, limit in limits)

    def rounding(self, arithmetic: str) -> list[Errors]:
        """The errors of the exact answers to rounded inputs, once for each arithmetic."""
        if arithmetic not in self._rounding:
            parameters = wide_parameters(self.case)
            self._rounding[arithmetic] = []
            for inputs, exact in zip(self.inputs, self.expected, strict=True):
                a, b, c = (rounded(widen(stored_bits(x), self.case.dtype), arithmetic) for x in inputs)
                got = solve(self.case, RULES[self.case.rule], parameters, (a, b, c))
                self._rounding[arithmetic].append(compare_wide(got, exact))
        return self._rounding[arithmetic]

    @cached_property
    def nudges(self) -> list[tuple[tuple[Tensor, ...], np.ndarray]]:
        """Each draw with its numbers a little changed, and the answer to it."""
        case, parameters, rng = self.case, wide_parameters(self.case), np.random.default_rng(0)
        found = []
        for inputs in self.inputs:
            stored = [nudged(stored_bits(x), case.dtype, rng) for x in inputs]
            a, b, c = (widen(array, case.dtype) for array in stored)
            exact = solve(case, RULES[case.rule], parameters, (a, b, c))
            found.append((tuple(tensor(array, case.dtype) for array in stored), exact))
        return found

    def scatter(self, kernel: Kernel) -> Scatter:
        """Compare errors before and after a nudge, as a run does."""
        found, limit = Scatter(), self.of(kernel)[0].rms_limit
        for inputs, exact, (others, other_exact) in zip(self.inputs, self.expected, self.nudges, strict=True):
            errors = [
                widen(stored_bits(kernel(self.setup, *given)), self.case.dtype) - answer
                for given, answer in ((inputs, exact), (others, other_exact))
            ]
            found.add(errors[0], errors[1], limit)
        return found
