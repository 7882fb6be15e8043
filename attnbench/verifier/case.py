"""One case in the verifier: its draws, their exact answers, and the verdict on answers of backends."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from attnbench.cases.ids import parse_case, rule_word
from attnbench.check.errors import (
    Errors,
    Scale,
    Scatter,
    assumed_errors,
    compare_wide,
    errors_of,
    longest_sum,
    nudged,
    pool,
    reference_off,
    rounded,
    rounding_unit,
    scale_of,
    together,
    verdict,
)
from attnbench.check.gradients import few, gradient_scale, summed
from attnbench.check.trivial import TRIVIAL_ANSWERS, trivial_answers, wrong_constants
from attnbench.check.weights import WeightErrors, weight_errors, weights_problem
from attnbench.inputs.draw import (
    Stored,
    draw_inputs,
    draw_parameters,
    draw_upstream,
    store,
    widen,
    widened,
)
from attnbench.inputs.kinds import DELIVERIES, NORMAL, draw_family, families_of, family_draws, largest_score
from attnbench.inputs.symmetries import (
    Transform,
    Triple,
    apply,
    apply_to_upstream,
    draw_transform,
    identity,
    invert,
    place_after,
    settled,
)
from attnbench.ipc import verifier_messages as rm
from attnbench.ipc.names import ERROR, HELD, OUT, PLAIN, UPSTREAM
from attnbench.oracle.solve import choose_rows, solve, solve_outputs, solve_weights
from attnbench.types.arithmetic import assumed
from attnbench.types.case import Case
from attnbench.types.operation import operation_of
from attnbench.types.record import Accuracy
from attnbench.types.rule import Rule
from attnbench.types.status import Check
from attnbench.verifier.answers import Drawn, errors_after, some_rows

if TYPE_CHECKING:
    from attnbench.types.rule import Array

    Parts = Mapping[str, Stored]


def check_draws(case: Case, rule: Rule, without: Sequence[str]) -> tuple[tuple[str, int], ...]:
    """Return families and numbers of the draws of the check, in the order in which they are computed.

    A near-duplicate follows its original, so that a cache may take it for the same.
    """
    named = [name for name in families_of(case, rule) if name not in without]
    if case.dropout:
        # Other families show mistakes by value. The second draw is there for what is kept of the first.
        return (NORMAL, 0), (NORMAL, 1)
    if case.pass_ == "backward":
        named = [NORMAL]
    draws = {family: [(family, number) for number in range(family_draws(case, family))] for family in named}
    normal, changed_ones = draws.pop(NORMAL), draws.pop("deep_change", [])
    paired = [
        draw for number, first in enumerate(normal) for draw in (first, *changed_ones[number : number + 1])
    ]
    return (*paired, *(draw for family in draws.values() for draw in family))


_CHANGES_REMEMBERED = 8

_UNDECLARED = "it is assumed in forward passes of attention without parameters alone: declare computes_in"
_NO_ROUNDING = "these errors stay as they are on nearly equal inputs, as those of wrong maths do"


class CaseVerifier:
    """A case with its parameters, and its draws, exact answers and errors so far."""

    def __init__(self, opening: rm.OpenCase, rule: Rule) -> None:
        self.case: Case = parse_case(opening.case)
        self.rule = rule
        self.entropy = opening.timed_entropy
        self.parameters = draw_parameters(self.case, rule)
        self.wide = widened(self.parameters, self.case)
        self.operation = operation_of(self.case)
        self.rows = None
        if self.operation.heads is not None:
            rng = np.random.default_rng(self.entropy)
            self.rows = choose_rows(self.case, rule, opening.oracle_flops, rng)
        self._rng = np.random.default_rng()
        self._check = check_draws(self.case, rule, opening.without)
        self._draws: dict[int, Drawn] = {}
        self._changes: dict[tuple[int, int], Transform] = {}
        self._redrawn: dict[tuple[int, int], Drawn] = {}
        self._scales: dict[tuple[int, str], Scale] = {}
        self._scores: dict[str, dict[int, dict[str, Errors]]] = {}
        self._plain_weights: dict[int, WeightErrors] = {}
        self._nudges: dict[int, Drawn] = {}
        self._before: dict[str, Array] = {}
        self._scatters: dict[str, Scatter] = {}
        self._roundings: dict[tuple[int, str], Errors] = {}

    @property
    def families(self) -> tuple[str, ...]:
        """The family of each draw of the check; draws of timed calls follow."""
        return tuple(family for family, _ in self._check)

    def draw(self, index: int) -> Drawn:
        """Return a draw, solved once. Its exact gradients come by :meth:`expect`."""
        if index not in self._draws:
            inputs = self._inputs(index)
            upstream = None
            if self.case.pass_ != "forward":
                entropy = self.case.seed if index < len(self._check) else self.entropy
                upstream = draw_upstream(self.case, entropy, index)
            self._draws[index] = Drawn(inputs, self._solved(inputs), upstream)
            if self.operation.reference is None:
                self._scores.setdefault(PLAIN, {})[index] = {
                    name: assumed_errors(exact, self.case.dtype)
                    for name, exact in self._draws[index].expected.items()
                }
        return self._draws[index]

    def _solved(self, inputs: Mapping[str, Stored]) -> dict[str, Array]:
        """Return the exact outputs for inputs, on the chosen rows, without gradients."""
        return self._solved_wide({name: self._wide(name, array) for name, array in inputs.items()})

    def _solved_wide(self, wide: Mapping[str, Array]) -> dict[str, Array]:
        if self.operation.heads is None:
            return solve_outputs(self.case, self.rule, self.wide, wide)
        if self.case.pass_ == "backward":
            return {}
        a, b, c = wide.values()
        return {OUT: solve(self.case, self.rule, self.wide, (a, b, c), self.rows)}

    def _wide(self, name: str, stored: Stored) -> Array:
        kinds = {spec.name: spec.kind for spec in self.operation.inputs(self.case, self.rule)}
        return widen(stored, self.case.dtype) if kinds[name] == "float" else stored

    def _after(self, index: int, change: int) -> Drawn:
        """Return a draw after a change. Without symmetries this is another draw, solved anew."""
        if not change or self.operation.heads is not None:
            return self.draw(index)
        if (index, change) not in self._redrawn:
            while len(self._redrawn) >= _CHANGES_REMEMBERED:
                del self._redrawn[next(iter(self._redrawn))]
            inputs = draw_inputs(self.case, self.rule, change, index)
            self._redrawn[index, change] = Drawn(inputs, self._solved(inputs))
        return self._redrawn[index, change]

    def expect(self, index: int, gradients: Mapping[str, Array]) -> None:
        """Take exact gradients, which a worker computed in float64, for those of a draw."""
        drawn = self.draw(index)
        for name, array in gradients.items():
            if not name.startswith((HELD, ERROR)):
                drawn.expected[name] = array
                drawn.held[name] = gradients[HELD + name]
                off = gradients[ERROR + name]
                drawn.plain_errors[name] = errors_of(off, np.broadcast_to(array, off.shape))

    def arrays(self, index: int, change: int, *, nudged: bool = False) -> dict[str, Stored]:
        """Return the arrays of a draw for a worker, by name; change: the seed of a transform, 0 for none."""
        drawn = self._nudged(index) if nudged else self._after(index, change)
        named, upstream = dict(drawn.inputs), drawn.upstream
        if change and self.operation.heads is not None:
            transform = self._change(index, change)
            named = dict(zip(named, apply(self.case, transform, _triple(named)), strict=True))
            upstream = None if upstream is None else apply_to_upstream(self.case, transform, upstream)
        return named if upstream is None else named | {UPSTREAM: upstream}

    def score(self, who: str, index: int, parts: Parts) -> str:
        """Compare an answer with the exact one; return the fault of values that are not finite, else ""."""
        errors = errors_after(self.case, self._change(index, 0), parts, self.draw(index).expected, self.rows)
        if who == PLAIN:
            errors |= self.draw(index).plain_errors
        self._scores.setdefault(who, {})[index] = errors
        plain = self._scores.get(PLAIN, {}).get(index, {})
        # If the plain reference is not finite either, the rule is at fault, and the verdict says so.
        wrong = [p for p, e in errors.items() if e.not_finite and not (p in plain and plain[p].not_finite)]
        return self._of_part(wrong[0]) + errors[wrong[0]].not_finite if wrong and who != PLAIN else ""

    def score_weights(self, who: str, index: int, weights: Stored) -> str:
        """Describe what is wrong with attention weights (B, H, Lq, Lk); "" for the plain reference.

        Raises:
            ValueError: they have another shape.
        """
        case = self.case
        if weights.shape != (case.B, case.H, case.Lq, case.Lk):
            raise ValueError(f"weights of shape {weights.shape}")
        rows = np.arange(case.Lq) if self.rows is None else self.rows
        a, b, c = (widen(array, case.dtype) for array in self.draw(index).inputs.values())
        exact = solve_weights(case, self.rule, self.wide, (a, b, c), self.rows)
        got = widen(weights[:, :, rows], case.dtype)
        if who == PLAIN:
            self._plain_weights[index] = weight_errors(got, exact)
            return ""
        return weights_problem(case, got, exact, self._plain_weights[index], rows)

    def _nudged(self, index: int) -> Drawn:
        """Return a draw with every number a little changed, solved once."""
        if index not in self._nudges:
            rng = np.random.default_rng((self.case.seed, index))
            stored = self.draw(index).inputs
            inputs = {name: nudged(array, self.case.dtype, rng) for name, array in stored.items()}
            self._nudges[index] = Drawn(inputs, self._solved(inputs))
        return self._nudges[index]

    def _rounding(self, index: int, arithmetic: str) -> Errors:
        """Return the errors of the exact output for inputs as an arithmetic holds them, solved once."""
        if (index, arithmetic) not in self._roundings:
            drawn = self.draw(index)
            wide = {name: rounded(self._wide(name, x), arithmetic) for name, x in drawn.inputs.items()}
            got = self._solved_wide(wide)[OUT]
            self._roundings[index, arithmetic] = compare_wide(got, drawn.expected[OUT])
        return self._roundings[index, arithmetic]

    def score_nudged(self, who: str, index: int, parts: Parts, *, nudged: bool) -> None:
        """Take the errors of an answer to a draw, then to the nudged draw, for :meth:`judge`."""
        drawn = self._nudged(index) if nudged else self.draw(index)
        output = invert(self.case, identity(self.case), parts[OUT], self.rows)
        error = output - drawn.expected[OUT]
        if not nudged:
            self._before[who] = error
            return
        limit = self._plain_verdict(index)[0].rms_limit
        self._scatters.setdefault(who, Scatter()).add(self._before.pop(who), error, limit)

    def score_timed(self, index: int, change: int, parts: Parts, arithmetic: str = "") -> str:
        """Compare the answer of a timed call; return its fault, "" for none."""
        after = self._after(index, change)
        # Another draw has no transform to undo.
        transform = self._change(index, 0 if after is not self.draw(index) else change)
        expected = after.expected
        some = some_rows(self.case, self.rows, self._rng)
        errors = errors_after(self.case, transform, parts, expected, self.rows, some)
        references = [at for at in self._scores.get(PLAIN, {}) if self._family(at) == NORMAL]
        for part, found in errors.items():
            heads = self.operation.heads is not None
            worst = place_after(self.case, transform, found.worst) if heads and part == OUT else found.worst
            placed = [replace(found, worst=worst)]
            _, problem = self._verdict(part, placed, [index], references, arithmetic, in_place=True)
            if problem:
                return self._of_part(part) + problem
        return ""

    def begin_timed(self) -> None:
        """Prepare for the outputs of timed calls of one process."""

    def end_timed(self) -> str:
        """Return the fault of these outputs together; "" for none."""
        return ""

    def judge(self, who: str, left_out: Collection[str] = (), arithmetic: str = "") -> rm.Judged:
        """Return the verdict on all answers of ``who`` for the check, family by family and part by part.

        left_out: deliveries that it did not get. arithmetic: to whose limits they are held, "" for the dtype.
        Where ordinary outputs are off by more than the dtype allows, and all outputs by no more than an
        assumed arithmetic does, the verdict names that.
        """
        judged = self._judged(who, left_out, arithmetic)
        if NORMAL not in judged.failed or judged.check != "values" or arithmetic:
            return judged
        scatter = self._scatters.pop(who, None)
        for one in assumed(self.case.dtype):
            within = self._judged(who, left_out, one, one_problem=True)
            if within.problem:
                continue
            if self._may_assume and (scatter is None or scatter.is_rounding):
                numbers = {"accuracy": within.accuracy, "parts": within.parts}
                return msgspec.structs.replace(judged, arithmetic=one, **numbers)
            why = _NO_ROUNDING if self._may_assume else _UNDECLARED
            problem = f"{judged.problem}. Rounding in {one} can be as large, but {why}"
            return msgspec.structs.replace(judged, problem=problem)
        return judged

    @property
    def _may_assume(self) -> bool:
        """Return whether a coarser arithmetic may be assumed: parameters round alike for all inputs."""
        plain = self.case.operation == "attention" and self.case.pass_ == "forward"
        return plain and not self.parameters.rule

    def _judged(
        self, who: str, left_out: Collection[str], arithmetic: str, *, one_problem: bool = False
    ) -> rm.Judged:
        """Return the verdict by the limits of an arithmetic.

        one_problem: stop at the first family that fails, since the oracle solves rounded inputs for each.
        """
        scores = self._scores.get(who, {})
        needless = set(left_out) & set(DELIVERIES)
        asked = {index for index in range(len(self._check)) if self._family(index) not in needless}
        missing = asked - set(scores)
        if missing:
            raise ValueError(f"no outputs of draws {sorted(missing)} to judge")
        by_family: dict[str, list[int]] = {}
        for index in sorted(scores):
            by_family.setdefault(self._family(index), []).append(index)
        numbers: dict[str, Accuracy] = {}
        failed: dict[str, str] = {}
        check: Check = ""
        if arithmetic == "int8":
            # The weights of unlikely keys lie below a step of 1/127.
            by_family.pop("quiet", None)
        for family, draws in by_family.items():
            if failed and one_problem:
                break
            for part in scores[draws[0]]:
                # Stress inputs show mistakes of the output; gradients are checked on ordinary inputs.
                if family != NORMAL and part != OUT:
                    continue
                errors = [scores[i][part] for i in draws]
                accuracy, problem = self._verdict(part, errors, draws, draws, arithmetic)
                if family == NORMAL:
                    numbers[part] = accuracy
                if problem:
                    check = check or self._check_of(part, errors, draws)
                if problem and family not in failed:
                    where = "" if family == NORMAL else f"on inputs of the family {family}: "
                    failed[family] = where + self._of_part(part) + problem
        worst = max(numbers, key=lambda part: (part == OUT, numbers[part].error_budget))
        return rm.Judged(
            accuracy=numbers[worst],
            parts=numbers if len(numbers) > 1 else {},
            problem=next(iter(failed.values()), ""),
            failed=tuple(failed),
            check=check,
        )

    def passes(self, index: int, output: Stored, part: str = OUT) -> bool:
        """Return whether an output of the rows compared would pass on a draw alone."""
        errors = compare_wide(widen(output, self.case.dtype), self.draw(index).expected[part])
        return not self._verdict(part, [errors], [index], [index])[1]

    def _inputs(self, index: int) -> dict[str, Stored]:
        if index >= len(self._check):
            return draw_inputs(self.case, self.rule, self.entropy, index)
        family, number = self._check[index]
        if family == NORMAL:
            return draw_inputs(self.case, self.rule, self.case.seed, number)
        names = [spec.name for spec in self.operation.inputs(self.case, self.rule)]
        return dict(
            zip(names, draw_family(self.case, self.rule, family, self.case.seed, number), strict=True)
        )

    def _of_part(self, part: str) -> str:
        if self.operation.heads is None:
            return "" if len(self.operation.outputs(self.case)) == 1 else f"the output {part!r}: "
        return "" if part == OUT else f"the gradient of {part}: "

    def _change(self, index: int, seed: int) -> Transform:
        """Return the transform of a seed, none for 0; the last few are remembered."""
        if not seed:
            return identity(self.case)
        if (index, seed) not in self._changes:
            while len(self._changes) >= _CHANGES_REMEMBERED:
                del self._changes[next(iter(self._changes))]
            drawn = draw_transform(self.case, self.rule, np.random.default_rng(seed))
            self._changes[index, seed] = settled(self.case, drawn, _triple(self.draw(index).inputs))
        return self._changes[index, seed]

    def _family(self, index: int) -> str:
        return self._check[index][0] if index < len(self._check) else NORMAL

    def _verdict(
        self,
        part: str,
        errors: Sequence[Errors],
        draws: Sequence[int],
        references: Sequence[int],
        arithmetic: str = "",
        *,
        in_place: bool = False,
    ) -> tuple[Accuracy, str]:
        """Return the numbers and the fault of errors.

        arithmetic: as in :meth:`judge`. in_place: the place of the worst element counts rows of the output,
        not the rows compared.
        """
        plain = self._scores.get(PLAIN, {})
        missing = set(references) - set(plain)
        if missing or not references:
            raise ValueError(f"no plain reference of draws {sorted(missing or draws)} to judge by")
        output, values = self._scales_of(part, draws, arithmetic)
        if arithmetic and part == OUT and self.operation.heads is not None:
            reference = [self._rounding(index, arithmetic) for index in references]
        else:
            reference = [plain[index][part] for index in references]
        sampled = self.rows is not None and part == OUT and not in_place
        mine = pool(errors)
        gradient = part != OUT and self.operation.heads is not None
        return verdict(
            mine,
            pool(reference),
            output=output,
            values=values,
            dtype=self.case.dtype,
            rows=len(self.rows) if sampled and self.rows is not None else self.case.Lq,
            rows_of=self.case.Lq,
            draws=len(draws),
            axes=next((s.axes for s in self.operation.outputs(self.case) if s.name == part), ""),
            few=few(mine.count) if gradient else 1.0,
            unit=self._unit(draws, arithmetic) if part == OUT else 1.0,
            arithmetic=arithmetic,
        )

    def _unit(self, draws: Sequence[int], arithmetic: str) -> float:
        """Return the unit of errors of outputs; the draws are of one family."""
        if self.operation.heads is None:
            return 1.0
        largest = largest_score(self.case, self._family(draws[0]))
        return rounding_unit(self.case.dtype, longest_sum(self.case), largest, arithmetic)

    def _scales_of(self, part: str, draws: Sequence[int], arithmetic: str = "") -> tuple[Scale, Scale]:
        """Return the scale of a part of the exact answers, and of the values it is made of."""
        if self.operation.heads is None:
            scale = together([self._scale(i, part) for i in draws])
            return scale, scale
        if part == OUT:
            return together([self._scale(i, OUT) for i in draws]), together(
                [self._scale(i, "") for i in draws]
            )
        drawn = [self.draw(i) for i in draws]
        exact, held = [d.expected[part] for d in drawn], [d.held[part] for d in drawn]
        factor = summed(self.case, part, arithmetic)
        scale = gradient_scale(exact, held, self.case.dtype, summed=factor)
        return scale, scale

    def _check_of(self, part: str, errors: Sequence[Errors], draws: Sequence[int]) -> Check:
        """Name the check that a part with such errors failed."""
        plain = pool([self._scores[PLAIN][index][part] for index in draws])
        if reference_off(plain, self._scales_of(part, draws)[1], self.case.dtype):
            return "rule_forms"
        if part != OUT and self.operation.heads is not None:
            return "gradients"
        return "not_finite" if pool(errors).not_finite else "values"

    def _plain_verdict(self, index: int) -> tuple[Accuracy, str]:
        """Return the verdict on the plain reference's own output, whose limits are those of all others."""
        plain = self._scores.get(PLAIN, {})
        return self._verdict(OUT, [plain[index][OUT]] if index in plain else [], [index], [index])

    def _scale(self, index: int, part: str) -> Scale:
        """Return the scale of a part of the exact answer to a draw; "" for its values (or their source)."""
        if (index, part) not in self._scales:
            drawn = self.draw(index)
            array = drawn.expected[part] if part else widen(_triple(drawn.inputs)[2], self.case.dtype)
            self._scales[index, part] = scale_of([array])
        return self._scales[index, part]


def _triple(inputs: Mapping[str, Stored]) -> Triple:
    a, b, c = inputs.values()
    return a, b, c


def passing_trivial_answer(opened: CaseVerifier) -> str:
    """Return a trivial answer that passes the whole check, or that of a wrong constant; "" for none.

    Where there is one, the case can't detect errors.

    The plain reference must have been scored. Each answer is tried on one draw after the other while it
    passes, which hardly any does on the first.
    """
    if opened.operation.heads is None:
        return _zeros_that_pass(opened)
    if opened.case.pass_ == "backward" or opened.case.dropout:
        # There is no output to compare, or its values are not compared.
        return ""
    left = set(TRIVIAL_ANSWERS)
    for index in range(len(opened.families)):
        answers = trivial_answers(
            opened.case, opened.rule, opened.wide, _triple(opened.draw(index).inputs), opened.rows
        )
        left = {name for name in left if opened.passes(index, answers[name])}
        if not left:
            return _passing_constants(opened)
    return min(left, key=TRIVIAL_ANSWERS.index)


def _passing_constants(opened: CaseVerifier) -> str:
    """Return the rule with a wrong constant whose answer passes, as ``softcap@c=10000``; "" for none.

    It is tried on a draw of each family, ordinary ones and those of large scores first.
    """
    for wrong in wrong_constants(opened.case, opened.rule):
        parameters = widened(draw_parameters(wrong, opened.rule), wrong)
        for index in reversed({family: index for index, family in enumerate(opened.families)}.values()):
            a, b, c = (widen(array, wrong.dtype) for array in opened.draw(index).inputs.values())
            answer = solve(wrong, opened.rule, parameters, (a, b, c), opened.rows).astype(np.float64)
            if not opened.passes(index, store(answer, wrong.dtype)):
                break
        else:
            return rule_word(wrong.rule, dict(wrong.constants))
    return ""


def _zeros_that_pass(opened: CaseVerifier) -> str:
    """Return "zeros", the one trivial answer of every operation, if it passes, else ""."""
    for index in range(len(opened.families)):
        for part, exact in opened.draw(index).expected.items():
            if not opened.passes(index, np.zeros(exact.shape, np.float32), part):
                return ""
    return "zeros"
