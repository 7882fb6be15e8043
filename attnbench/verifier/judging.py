"""The steps of the verifier that differ between operations; the rest of a check is one for all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnbench.cases.ids import rule_word
from attnbench.inputs.draw import Parameters, Stored, store, widen
from attnbench.inputs.encoded import meant
from attnbench.inputs.kinds import NEAR_DUPLICATE, NORMAL, stress_draws, stress_inputs_of
from attnbench.inputs.symmetries import Change, draw_change
from attnbench.ipc.names import OUT
from attnbench.oracle.solve import FEWEST_ROWS, choose_rows, log_sums, problem_of, solve, solve_outputs
from attnbench.types.case import Case, output_shape
from attnbench.types.encoding import is_encoded
from attnbench.types.operation import Problem, operation_of
from attnbench.types.problem import ProblemCase, is_empty
from attnbench.types.rule import Rule
from attnbench.verifier.parts import (
    LogSum,
    Part,
    WeightedMean,
    gradient_parts,
    of_problem,
    output_parts,
)
from attnbench.verifier.recognise import log_sum_mistake
from attnbench.verifier.trivial import trivial_answers, wrong_constants

if TYPE_CHECKING:
    from attnbench.types.rule import Array
    from attnbench.verifier.parts import Drawn

Rows = NDArray[np.intp]

MOST_TIMED_ELEMENTS = 1 << 16
"""About so many elements of the output of a timed call are compared."""


def in_turn(counts: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """Return kinds and numbers of the draws of a check, in the order in which they are computed.

    A near-duplicate follows its original, so that a cache may take it for the same.
    """
    draws = {stress: [(stress, number) for number in range(count)] for stress, count in counts.items()}
    normal, changed = draws.pop(NORMAL, []), draws.pop(NEAR_DUPLICATE, [])
    paired = [draw for number, first in enumerate(normal) for draw in (first, *changed[number : number + 1])]
    return (*paired, *(draw for stress in draws.values() for draw in stress))


def _counted(case: Case, named: Sequence[str], share: int) -> dict[str, int]:
    return {stress: stress_draws(case, stress, share if stress == NORMAL else 1) for stress in named}


class Judging:
    """The judging of an operation that solves its problem by itself, and of which no more is known."""

    def __init__(
        self, case: Case, rule: Rule, parameters: Parameters, flops: float, rng: np.random.Generator
    ) -> None:
        self.case, self.rule, self.parameters = case, rule, parameters
        self.rows: Rows | None = None
        """The places of the axis ``i`` that are compared; None for all."""
        if operation_of(case).by_row or operation_of(case).heads is not None:
            self.rows = choose_rows(case, rule, flops, rng)
        self.parts = {part.name: of_problem(part, case) for part in self.list_parts()}

    def list_parts(self) -> Sequence[Part]:
        """Return the parts of an answer, the most telling first; outputs before gradients."""
        case, operation = self.case, operation_of(self.case)
        parts = output_parts(case, self.rule, operation) if case.pass_ != "backward" else ()
        return parts if case.pass_ == "forward" else (*parts, *gradient_parts(case, self.rule, operation))

    def check_draws(self, without: Sequence[str], share: int) -> dict[str, int]:
        """Return how many draws of each kind the check has; :func:`in_turn` puts them in order.

        without: kinds that it leaves out. share: so many cases share the ordinary draws. A problem without
        queries or keys has none of its own, and takes part in those of the others.
        """
        if is_empty(self.case):
            return {}
        named = [name for name in stress_inputs_of(self.case, self.rule) if name not in without]
        if self.case.pass_ == "backward":
            named = [NORMAL]
        return _counted(self.case, named, share)

    def solve(self, wide: Mapping[str, Any]) -> dict[str, Array]:
        """Return the exact outputs for inputs in float64, of compared rows; a worker has the gradients."""
        if self.case.pass_ == "backward":
            return {}
        return solve_outputs(self.case, self.rule, self.parameters, wide, self.rows)

    def problem(self, wide: Mapping[str, Any]) -> Problem:
        """Return the problem of inputs in float64, with the rows that are compared."""
        return problem_of(self.case, self.rule, self.parameters, wide, self.rows)

    def settled(self, drawn: Drawn, answer: Mapping[str, Stored]) -> Mapping[str, Array]:
        """Return the exact answer to a draw; of several the one that is nearest to a given answer."""
        settle = operation_of(self.case).settle
        if settle is None:
            return drawn.expected
        problem = self.problem(meant(self.case, self.rule, drawn.inputs, drawn.stored))
        kinds = {spec.name: spec.kind for spec in operation_of(self.case).outputs(self.case)}
        read = {
            name: widen(array, self.case.dtype) if kinds[name] == "float" else array
            for name, array in answer.items()
        }
        return settle(problem, read)

    def change(self, rng: np.random.Generator) -> Change | None:
        """Draw a change whose effect on answers is known; None where none is."""
        draw = operation_of(self.case).change
        if draw is None:
            return None
        return Change(*draw(self.case, self.rule, rng), together=is_encoded(self.case))

    def may_assume_arithmetic(self) -> bool:
        """Return whether errors like those of a coarser arithmetic may be taken for it."""
        return False

    def trivial_answers(self, drawn: Drawn) -> dict[str, dict[str, Stored]]:
        """Return parts of answers that need no computation, by name; those of wrong constants come apart."""
        problem = self.problem(meant(self.case, self.rule, drawn.inputs, drawn.stored))
        answers: dict[str, Mapping[str, Array]] = {
            "zeros": {name: np.zeros_like(exact) for name, exact in drawn.expected.items()}
        }
        if self.case.pass_ != "backward":
            answers.update(operation_of(self.case).trivial(problem))
        outputs = operation_of(self.case).outputs(self.case)
        integers = {spec.name: spec.kind for spec in outputs if not spec.is_floating}
        return {
            words: {
                name: array.astype(integers[name])
                if name in integers
                else store(array.astype(np.float64), self.parts[name].dtype)
                for name, array in answer.items()
            }
            for words, answer in answers.items()
        }

    def wrong_constants(self) -> Iterator[WrongConstant]:
        """Yield what a case is that has another constant than it says."""
        return iter(())

    def some_rows(self, rng: np.random.Generator) -> Rows:
        """Return places among the rows that are compared: all, or random ones of a large output.

        An output that is left over from another call is wrong in every row.
        """
        count = self.case.Lq if self.rows is None else len(self.rows)
        by_row = max(1, prod(output_shape(self.case)) // max(1, self.case.Lq))
        wanted = max(FEWEST_ROWS, MOST_TIMED_ELEMENTS // by_row)
        if count <= wanted:
            return np.arange(count)
        return np.sort(rng.choice(count, wanted, replace=False))


class WrongConstant:
    """A case with a constant at another value, and the answers of a kernel that takes it for right."""

    def __init__(self, case: Case, rule: Rule, parameters: Parameters, rows: Rows | None) -> None:
        self.case, self.rule, self.rows = case, rule, rows
        own = dict(parameters.rule)
        for name, value in case.constants:
            if name in own:
                # A constant replaces the parameter of its name in all heads.
                own[name] = widen(store(np.full_like(own[name], value), case.dtype), case.dtype)
        self.parameters = replace(parameters, rule=own)

    def answer(self, drawn: Drawn) -> dict[str, Stored]:
        """Return its parts for a draw."""
        a, b, c = meant(self.case, self.rule, drawn.inputs, drawn.stored).values()
        exact = solve(self.case, self.rule, self.parameters, (a, b, c), self.rows)
        return {OUT: store(exact.astype(np.float64), self.case.dtype)}

    def __str__(self) -> str:
        return rule_word(self.case.rule, dict(self.case.constants))


class AttentionJudging(Judging):
    """The judging of attention between two maps: of operations with ``heads``.

    Its output ``out`` is a weighted mean of the values, or of what the layer makes of them.
    """

    def list_parts(self) -> Sequence[Part]:
        """Return the output, unless only gradients are asked for, and the gradients if they are."""
        case, operation = self.case, operation_of(self.case)
        spec, *further = operation.outputs(case)
        values = operation.inputs(case, self.rule)[2].name
        limits = WeightedMean(spec.name, values, case)
        out = Part(spec.name, spec.axes, "", limits, case.dtype, sampled=True, rounded=True, leads=True)
        outputs = [out]
        for spec in further:
            dtype = spec.dtype(case)
            words, sums = f"the output {spec.name!r}: ", LogSum(spec.name, dtype, case)
            mistake = log_sum_mistake if spec.name == "lse" else None
            outputs.append(Part(spec.name, spec.axes, words, sums, dtype, sampled=True, mistake=mistake))
        match case.pass_:
            case "forward":
                return outputs
            case "both":
                return (*outputs, *gradient_parts(case, self.rule, operation))
            case _:
                return gradient_parts(case, self.rule, operation)

    def check_draws(self, without: Sequence[str], share: int) -> dict[str, int]:
        """Return how many draws of each kind the check has; none of a problem without queries or keys."""
        case = self.case
        if is_empty(case):
            return {}
        if case.dropout:
            # Other kinds show mistakes by value. The second draw is there for what is kept of the first.
            return {NORMAL: 2}
        named = [name for name in stress_inputs_of(case, self.rule) if name not in without]
        if case.pass_ == "backward":
            named = [NORMAL]
        return _counted(case, named, share)

    def solve(self, wide: Mapping[str, Any]) -> dict[str, Array]:
        """Return the exact output, without gradients, which a worker computes in float64."""
        if self.case.pass_ == "backward":
            return {}
        a, b, c = wide.values()
        exact = {OUT: solve(self.case, self.rule, self.parameters, (a, b, c), self.rows)}
        if "lse" in self.case.returns:
            exact["lse"] = log_sums(self.case, self.rule, self.parameters, (a, b, c), self.rows)
        return exact

    def change(self, rng: np.random.Generator) -> Change | None:
        """Draw a composition of all symmetries."""
        return draw_change(self.case, self.rule, rng)

    def may_assume_arithmetic(self) -> bool:
        """Return True without parameters, which round alike for all inputs, in a forward pass to ``out``."""
        parameters = self.parameters.rule or self.parameters.projections
        alone = len(self.parts) == 1 and not isinstance(self.case, ProblemCase) and not is_encoded(self.case)
        return self.case.pass_ == "forward" and alone and not parameters

    def trivial_answers(self, drawn: Drawn) -> dict[str, dict[str, Stored]]:
        """Return the answers that need no attention; none where no output is compared by value."""
        if not self._compares_values:
            return {}
        a, b, c = meant(self.case, self.rule, drawn.inputs, drawn.stored).values()
        answers = trivial_answers(self.case, self.rule, self.parameters, (a, b, c), self.rows)
        return {name: {OUT: answer} for name, answer in answers.items()}

    def wrong_constants(self) -> Iterator[WrongConstant]:
        """Yield the case with one of its constants at its default, or at an end of its range."""
        if self._compares_values:
            for wrong in wrong_constants(self.case, self.rule):
                yield WrongConstant(wrong, self.rule, self.parameters, self.rows)

    @property
    def _compares_values(self) -> bool:
        return self.case.pass_ != "backward" and not self.case.dropout
