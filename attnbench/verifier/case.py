"""One case in the verifier: its draws, their exact answers, and the verdict on answers of backends."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from attnbench.cases.ids import parse_case
from attnbench.inputs.draw import (
    Parameters,
    Stored,
    draw_inputs,
    draw_parameters,
    draw_upstreams,
    store,
    widen,
    widened,
)
from attnbench.inputs.encoded import AMPLIFIED, encoded, meant, read_back, with_amplitudes
from attnbench.inputs.kinds import (
    DELIVERIES,
    LIGHT_KEYS,
    NEAR_DUPLICATE,
    NORMAL,
    draw_stress_input,
    largest_score,
)
from attnbench.inputs.symmetries import NO_CHANGE, Change
from attnbench.ipc import verifier_messages as rm
from attnbench.ipc.names import ERROR, HELD, OUT, PLAIN
from attnbench.oracle.solve import solve_weights
from attnbench.types.arithmetic import assumed, coarser
from attnbench.types.case import Case
from attnbench.types.encoding import is_encoded
from attnbench.types.operation import finest_dtype, operation_of
from attnbench.types.problem import ProblemCase, mixed, upstreams_of
from attnbench.types.record import Accuracy
from attnbench.types.rule import Rule
from attnbench.types.status import Check
from attnbench.types.storage import of_all
from attnbench.verifier.errors import (
    Errors,
    Scatter,
    assumed_errors,
    compare_wide,
    errors_of,
    nudged,
    pool,
    reference_off,
    rounded,
    scale_of,
    verdict,
)
from attnbench.verifier.judging import AttentionJudging, Judging, Rows, in_turn
from attnbench.verifier.parts import Drawn, Part
from attnbench.verifier.weights import WeightErrors, weight_errors, weights_problem

if TYPE_CHECKING:
    from attnbench.types.rule import Array

    Answer = Mapping[str, Stored]

_CHANGES_REMEMBERED = 8

_UNDECLARED = (
    "If its products are computed in {one}, declare computes_in={one!r}: these errors could be its rounding. "
    "Else look for wrong maths"
)
_NO_ROUNDING = (
    "Wrong maths, and not rounding in {one}, which can be as large: these errors stay as they are on nearly "
    "equal inputs"
)


_INSTEAD = 100_000
"""The number of the first draw of ordinary inputs that stands for one of a kind that makes no sense."""


class CaseVerifier:
    """A case with its parameters, and its draws, exact answers and errors so far.

    problem: one problem of the case where it has several, each of which has a verifier of its own.
    """

    def __init__(self, opening: rm.OpenCase, rule: Rule, problem: Case | None = None) -> None:
        whole = parse_case(opening.case)
        self.case: Case = problem or whole
        self.rule = rule
        self.entropy = opening.timed_entropy
        self._of_cache = whole.seed, opening.timed_entropy
        # All problems of a case have the same parameters.
        self.parameters = draw_parameters(whole, rule)
        self.wide = widened(self.parameters, self.case)
        self.operation = operation_of(self.case)
        self.judging = _judging(opening, self.case, rule, self.wide)
        self.inputs = {spec.name: spec for spec in self.operation.inputs(self.case, rule)}
        self._rng = np.random.default_rng()
        self.counts = self.judging.check_draws(opening.without, opening.share)
        self._check = in_turn(self.counts)
        self._in_place_of: dict[int, str] = {}
        self._draws: dict[int, Drawn] = {}
        self._prefixes: dict[int, tuple[CaseVerifier, int]] = {}
        self._first = self
        self._changes: dict[tuple[int, int], Change] = {}
        self._redrawn: dict[tuple[int, int], Drawn] = {}
        self._scores: dict[str, dict[int, dict[str, Errors]]] = {}
        # By who answered, the draw and the part.
        self._mistakes: dict[tuple[str, int, str], str] = {}
        self._plain_weights: dict[int, WeightErrors] = {}
        self._nudges: dict[int, Drawn] = {}
        self._before: dict[str, Array] = {}
        self._scatters: dict[str, Scatter] = {}
        self._roundings: dict[tuple[int, str], dict[str, Errors]] = {}

    def take_turns(self, draws: Sequence[tuple[str, int]], unchanged: Collection[int]) -> None:
        """Let the check have these draws, by kind and number; ordinary ones where a kind makes no sense.

        unchanged: the numbers of near-duplicates that are the original itself in this problem.
        """

        def own(place: int, stress: str, number: int) -> tuple[str, int]:
            if stress not in self.counts:
                return NORMAL, _INSTEAD + place
            return (NORMAL, number) if stress == NEAR_DUPLICATE and number in unchanged else (stress, number)

        self._check = tuple(own(place, *draw) for place, draw in enumerate(draws))
        # A backend that is not given a delivery lacks these draws, whatever this problem has in their place.
        self._in_place_of = {place: stress for place, (stress, _) in enumerate(draws)}

    def share_cache(self, seed: int, entropy: int) -> None:
        """Take what is drawn for the cache of all problems from these: of the check, and of timed calls."""
        self._of_cache = seed, entropy

    def _of_draw(self, index: int) -> Case:
        """Return the case as an encoding gets it for a draw."""
        if not isinstance(self.case, ProblemCase):
            return self.case
        seed, entropy = self._of_cache
        own = seed if index < len(self._check) else entropy
        return replace(self.case, cache_seed=mixed(own, 1 + index))

    @property
    def stress_inputs(self) -> tuple[str, ...]:
        """The stress input of each draw of the check, or ``normal``; draws of timed calls follow."""
        return tuple(stress for stress, _ in self._check)

    @property
    def rows(self) -> Rows | None:
        """The query rows that are compared; None for all."""
        return self.judging.rows

    def draw(self, index: int) -> Drawn:
        """Return a draw, solved once. Its exact gradients come by :meth:`expect`."""
        if index not in self._draws:
            inputs = self.drawn_inputs(index)
            upstreams = self.drawn_upstreams(index) if self.case.pass_ != "forward" else {}
            stored = encoded(self._of_draw(index), self.rule, inputs) if is_encoded(self.case) else {}
            wide = meant(self.case, self.rule, inputs, stored)
            exact = self.judging.solve(wide)
            scales = {name: scale_of([wide[name]]) for name in self.operation.encoded} if stored else {}
            self._draws[index] = Drawn(inputs, exact, upstreams, stored=stored, scales=scales)
            if self.operation.reference is None:
                self._scores.setdefault(PLAIN, {})[index] = {
                    name: assumed_errors(exact, self._part(name).dtype)
                    for name, exact in self._draws[index].expected.items()
                }
        return self._draws[index]

    def ordinary(self, number: int) -> Drawn:
        """Return an ordinary draw of the check by its number.

        Raises:
            ValueError: the check has no such draw.
        """
        return self.draw(self._check.index((NORMAL, number)))

    def _solved(self, index: int, inputs: Mapping[str, Stored], arithmetic: str = "") -> dict[str, Array]:
        """Return the exact outputs for a draw's inputs, as they are stored or as an arithmetic holds them."""
        wide = meant(self._of_draw(index), self.rule, inputs)
        if arithmetic:
            wide = {name: rounded(array, arithmetic) for name, array in wide.items()}
        return self.judging.solve(wide)

    def _after(self, index: int, seed: int) -> tuple[Drawn, Change]:
        """Return the draw whose answer a changed call gives, and the change to undo on it.

        Without known changes it is another draw, solved anew.
        """
        if not seed:
            return self.draw(index), NO_CHANGE
        change = self._change(index, seed)
        if change is not None:
            return self.draw(index), change
        if (index, seed) not in self._redrawn:
            _make_room(self._redrawn)
            inputs = draw_inputs(self.case, self.rule, seed, index)
            self._redrawn[index, seed] = Drawn(inputs, self._solved(index, inputs))
        return self._redrawn[index, seed], NO_CHANGE

    def _change(self, index: int, seed: int) -> Change | None:
        """Return the change of a seed as a draw allows it; the last few are remembered."""
        if (index, seed) not in self._changes:
            _make_room(self._changes)
            change = self.judging.change(self._random(seed))
            if change is None:
                return None
            axes = {spec.name: spec.axes for spec in self.inputs.values()}
            self._changes[index, seed] = change.settled(self.draw(index).inputs, self.case.dtype, axes)
        return self._changes[index, seed]

    def _random(self, seed: int) -> np.random.Generator:
        # Problems of one case change each in another way, unless they have inputs in common.
        case = self._first.case
        own = (seed, case.number) if isinstance(case, ProblemCase) else seed
        return np.random.default_rng(own)

    def expect(self, index: int, gradients: Mapping[str, Array]) -> None:
        """Take exact gradients, which a worker computed in float64, for those of a draw."""
        drawn = self.draw(index)
        for name, array in gradients.items():
            if not name.startswith((HELD, ERROR)):
                drawn.expected[name] = array
                drawn.held[name] = gradients.get(HELD + name, array)
                off = gradients[ERROR + name]
                drawn.plain_errors[name] = errors_of(off, np.broadcast_to(array, off.shape))

    def arrays(
        self, index: int, change: int, *, nudged: bool = False, apart: bool = False
    ) -> dict[str, Stored]:
        """Return the arrays of a draw for a worker, by name, as the case encodes them.

        change: the seed of a change, 0 for none. apart: encoded inputs as what they mean, in the dtype of the
        case, as the plain reference gets them.

        Raises:
            ValueError: the encoding does not keep the change.
        """
        if nudged:
            inputs = self._nudged(index).inputs
            return encoded(self._of_draw(index), self.rule, inputs) if is_encoded(self.case) else dict(inputs)
        drawn, made = self._after(index, change)
        if drawn.stored and not change and not apart:
            return dict(drawn.stored)
        arrays: dict[str, Stored] = {}
        # A tensor that serves twice stays one.
        by_id: dict[int, Stored] = {}
        for name, array in drawn.inputs.items():
            if id(array) not in by_id:
                spec = self.inputs[name]
                by_id[id(array)] = made.do(name, spec.axes, array, spec.dtype(self.case))
            arrays[name] = by_id[id(array)]
        if drawn.upstreams:
            for spec in upstreams_of(self.case):
                array = drawn.upstreams[spec.name]
                arrays[spec.name] = made.do(spec.name, spec.axes, array, spec.dtype(self.case))
        if not is_encoded(self.case):
            return arrays
        expected = {
            name: made.do(name, self.inputs[name].axes, numbers, "float64")
            for name, numbers in read_back(self.case, self.rule, drawn.stored).items()
        }
        if apart:
            return arrays | {name: store(numbers, self.case.dtype) for name, numbers in expected.items()}
        stored = encoded(self._of_draw(index), self.rule, arrays)
        for name, numbers in read_back(self.case, self.rule, stored).items():
            if not np.array_equal(numbers, expected[name]):
                raise ValueError(f"the encoding {self.case.kv} does not keep a change of {name}")
        return stored

    def _errors(self, answer: Answer, drawn: Drawn, change: Change) -> dict[str, Errors]:
        """Return the errors of each part of an answer to changed inputs.

        Raises:
            ValueError: the answer has other parts.
        """
        _same_parts(answer, drawn.expected)
        return {
            name: self._compared(
                self._part(name), self._undone(self._part(name), answer[name], change), exact
            )
            for name, exact in self.judging.settled(drawn, answer).items()
        }

    def _compared(self, part: Part, got: Array, exact: Array) -> Errors:
        """Compare a part, from which a change is undone, with the exact one."""
        if self.operation.settle is not None:
            # A writer hands on NaN as it got it.
            both = np.isnan(got) & np.isnan(exact)
            got, exact = np.where(both, 0, got), np.where(both, 0, exact)
        return compare_wide(got, exact, part.axes)

    def _errors_in_place(self, answer: Answer, drawn: Drawn, change: Change) -> dict[str, Errors]:
        """Return the errors of an answer on some of the rows, each with its place in the changed answer."""
        _same_parts(answer, drawn.expected)
        expected = self.judging.settled(drawn, answer)
        rows = np.arange(self.case.Lq) if self.rows is None else self.rows
        some = self.judging.some_rows(self._rng)
        errors: dict[str, Errors] = {}
        for name, exact in expected.items():
            part = self._part(name)
            if part.sampled:
                axis = part.axes.index("i")
                own = rows[some] if self.operation.measured is None else some
                got = change.undo(name, part.axes, answer[name], self.case.dtype, rows=own)
                found = compare_wide(got, np.take(exact, some, axis), part.axes)
                if found.worst:
                    worst = list(found.worst)
                    worst[axis] = int(rows[some][worst[axis]])
                    found = replace(found, worst=tuple(worst))
            else:
                found = self._compared(part, self._undone(part, answer[name], change), exact)
            if part.axes and found.worst:
                found = replace(found, worst=change.place(part.axes, found.worst))
            errors[name] = found
        return errors

    def _measured(self, answer: Answer, drawn: Drawn, change: Change) -> tuple[Answer, Change, str]:
        """Return the numbers that an answer is judged by, the change to undo on them, and a fault in words.

        They are the answer's own but for a choice, whose change is undone first; of one they are those of the
        rows compared.
        """
        if self.operation.measured is None:
            return answer, change, ""
        _same_parts(answer, drawn.expected)
        undone: dict[str, Any] = {}
        for name, array in answer.items():
            part = self._part(name)
            rows = self.rows if part.sampled else None
            numbers = change.undo(name, part.axes, array, part.dtype, rows=rows)
            undone[name] = numbers.astype(np.int64) if array.dtype.kind == "i" else numbers
        problem = self.judging.problem(meant(self.case, self.rule, drawn.inputs))
        found, told = self.operation.measured(problem, undone)
        return {name: array.astype(np.float64) for name, array in found.items()}, NO_CHANGE, told

    def _undone(self, part: Part, stored: Stored, change: Change) -> Array:
        """Return a part as it was without a change, in float64, of the rows compared."""
        rows = self.rows if part.sampled and self.operation.measured is None else None
        return change.undo(part.name, part.axes, stored, self.case.dtype, power=part.power, rows=rows)

    def _part(self, name: str) -> Part:
        return self.judging.parts[name]

    def score(self, who: str, index: int, parts: Answer) -> str:
        """Compare an answer with the exact one; return the fault of values that are not finite, else ""."""
        drawn = self.draw(index)
        parts, _, told = self._measured(parts, drawn, NO_CHANGE)
        errors = self._errors(parts, drawn, NO_CHANGE)
        if told:
            self._mistakes |= {(who, index, name): f"; {told}" for name in parts}
        if who == PLAIN:
            errors |= drawn.plain_errors
        self._scores.setdefault(who, {})[index] = errors
        plain = self._scores.get(PLAIN, {}).get(index, {})
        # If the plain reference is not finite either, the rule is at fault, and the verdict says so.
        wrong = [p for p, e in errors.items() if e.not_finite and not (p in plain and plain[p].not_finite)]
        if who == PLAIN:
            return ""
        for name, exact in self.judging.settled(drawn, parts).items():
            part = self._part(name)
            if part.mistake is not None:
                known = part.mistake(self._undone(part, parts[name], NO_CHANGE), exact)
                self._mistakes[who, index, name] = known and f"; {known}"
        if not wrong:
            return ""
        told = self._mistakes.get((who, index, wrong[0]), "")
        return self._part(wrong[0]).words + errors[wrong[0]].not_finite + told

    def fault_before(self, who: str, index: int) -> str:
        """Return what is wrong with ordinary outputs of the draws before one; "" for nothing."""
        scores = self._scores.get(who, {})
        draws = [one for one in scores if one < index and self._stress(one) == NORMAL]
        for name in scores[draws[0]] if draws else ():
            part = self._part(name)
            _, problem = self._verdict(part, [scores[one][name] for one in draws], draws, draws)
            if problem:
                return part.words + problem
        return ""

    def score_weights(self, who: str, index: int, weights: Stored) -> str:
        """Describe what is wrong with attention weights (B, H, Lq, Lk); "" for the plain reference.

        Raises:
            ValueError: they have another shape.
        """
        case = self.case
        if weights.shape != (case.B, case.H, case.Lq, case.Lk):
            raise ValueError(f"weights of shape {weights.shape}")
        rows = np.arange(case.Lq) if self.rows is None else self.rows
        drawn = self.draw(index)
        a, b, c = meant(case, self.rule, drawn.inputs, drawn.stored).values()
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
            self._nudges[index] = Drawn(inputs, self._solved(index, inputs))
        return self._nudges[index]

    def _rounding(self, index: int, arithmetic: str) -> dict[str, Errors]:
        """Return the errors of the exact outputs for inputs as an arithmetic holds them, solved once."""
        if (index, arithmetic) not in self._roundings:
            drawn = self.draw(index)
            solved = self._solved(index, drawn.inputs, arithmetic)
            found = {name: compare_wide(got, drawn.expected[name]) for name, got in solved.items()}
            self._roundings[index, arithmetic] = found
        return self._roundings[index, arithmetic]

    def score_nudged(self, who: str, index: int, parts: Answer, *, nudged: bool) -> None:
        """Take the errors of an answer to a draw, then to the nudged draw, for :meth:`judge`."""
        drawn = self._nudged(index) if nudged else self.draw(index)
        error = self._undone(self._part(OUT), parts[OUT], NO_CHANGE) - drawn.expected[OUT]
        if not nudged:
            self._before[who] = error
            return
        limit = self._plain_verdict(index)[0].rms_limit
        self._scatters.setdefault(who, Scatter()).add(self._before.pop(who), error, limit)

    def score_timed(self, index: int, change: int, parts: Answer, arithmetic: str = "") -> str:
        """Compare the answer of a timed call; return its fault, "" for none."""
        drawn, made = self._after(index, change)
        parts, made, told = self._measured(parts, drawn, made)
        errors = self._errors_in_place(parts, drawn, made)
        references = [at for at in self._scores.get(PLAIN, {}) if self._stress(at) == NORMAL]
        for name, found in errors.items():
            part = self._part(name)
            _, problem = self._verdict(part, [found], [index], references, arithmetic, in_place=True)
            if problem:
                return part.words + problem + (f"; {told}" if told else "")
        return ""

    def begin_timed(self) -> None:
        """Prepare for the outputs of timed calls of one process."""

    def end_timed(self) -> str:
        """Return the fault of these outputs together; "" for none."""
        return ""

    def judge(self, who: str, left_out: Collection[str] = (), arithmetic: str = "") -> rm.Judged:
        """Return the verdict on all answers of ``who`` for the check, by stress input and part.

        left_out: deliveries that it did not get. arithmetic: to whose limits they are held, "" for the dtype.
        Where ordinary outputs are off by more than the dtype allows, and all outputs by no more than an
        assumed arithmetic does, the verdict names that.
        """
        judged = self._judged(who, left_out, arithmetic)
        if NORMAL not in judged.failed or judged.check != "values" or arithmetic:
            return judged
        scatter = self._scatters.pop(who, None)
        may_assume = self.judging.may_assume_arithmetic()
        dtype = self.case.dtype
        # Products in half precision, where a state is in float32.
        of_case = not may_assume and coarser(dtype, finest_dtype(self.case))
        for one in (dtype,) if of_case else assumed(dtype):
            within = self._judged(who, left_out, one, one_problem=True)
            if within.problem:
                continue
            if may_assume and (scatter is None or scatter.is_rounding):
                numbers = {"accuracy": within.accuracy, "parts": within.parts}
                return msgspec.structs.replace(judged, arithmetic=one, **numbers)
            why = (_NO_ROUNDING if may_assume else _UNDECLARED).format(one=one)
            problem = f"{judged.problem}. {why}"
            return msgspec.structs.replace(judged, problem=problem)
        return judged

    def _judged(
        self, who: str, left_out: Collection[str], arithmetic: str, *, one_problem: bool = False
    ) -> rm.Judged:
        """Return the verdict by the limits of an arithmetic.

        one_problem: stop at the first stress input that fails: the oracle solves rounded inputs for each.
        """
        scores = self._scores.get(who, {})
        needless = set(left_out) & set(DELIVERIES)
        asked = {
            index
            for index, stress in enumerate(self.stress_inputs)
            if self._in_place_of.get(index, stress) not in needless
        }
        missing = asked - set(scores)
        if missing:
            raise ValueError(f"no outputs of draws {sorted(missing)} to judge")
        by_stress: dict[str, list[int]] = {}
        for index in sorted(scores):
            by_stress.setdefault(self._stress(index), []).append(index)
        numbers: dict[str, Accuracy] = {}
        failed: dict[str, str] = {}
        check: Check = ""
        if arithmetic == "int8":
            # The weights of unlikely keys lie below a step of 1/127.
            by_stress.pop("unlikely_values", None)
        if arithmetic:
            # Those of light keys may lie below its smallest number.
            by_stress.pop(LIGHT_KEYS, None)
        for stress, draws in by_stress.items():
            if failed and one_problem:
                break
            for name in scores[draws[0]]:
                part = self._part(name)
                if stress not in (NORMAL, *DELIVERIES) and not part.stressed:
                    continue
                errors = [scores[i][name] for i in draws]
                accuracy, problem = self._verdict(part, errors, draws, draws, arithmetic)
                if stress == NORMAL:
                    numbers[name] = accuracy
                if problem:
                    check = check or self._check_of(part, errors, draws)
                if problem and stress not in failed:
                    where = "" if stress == NORMAL else f"on the stress input {stress}: "
                    known = (self._mistakes.get((who, index, name), "") for index in draws)
                    failed[stress] = where + part.words + problem + next(filter(None, known), "")
        worst = max(numbers, key=lambda name: (self._part(name).leads, numbers[name].error_budget))
        return rm.Judged(
            accuracy=numbers[worst],
            parts=numbers if len(numbers) > 1 else {},
            problem=next(iter(failed.values()), ""),
            failed=tuple(failed),
            check=check,
        )

    def passes(self, index: int, answer: Answer) -> bool:
        """Return whether the parts of an answer, of the rows compared, would pass on a draw alone."""
        expected = self.judging.settled(self.draw(index), answer)
        for name, stored in answer.items():
            errors = compare_wide(widen(stored, self.case.dtype), expected[name])
            if self._verdict(self._part(name), [errors], [index], [index])[1]:
                return False
        return True

    def share(self, index: int, first: CaseVerifier, keys: int) -> None:
        """Let a draw, before it is solved, have the first keys and values of another problem's draw."""
        self._prefixes[index] = first, keys

    def follow(self, first: CaseVerifier) -> None:
        """Take from another problem the inputs that all have in common, and the changes of timed calls."""
        self._first = first

    def drawn_inputs(self, index: int) -> dict[str, Stored]:
        """Return the inputs of a draw in the dtype of the case, with what is another problem's."""
        inputs = self._own_inputs(index)
        if self._first is not self:
            theirs = self._first.draw(index).inputs
            inputs |= {name: theirs[name] for name, spec in self.inputs.items() if of_all(spec)}
        if index in self._prefixes:
            first, keys = self._prefixes[index]
            theirs = first.draw(index).inputs
            for name, spec in self.inputs.items():
                if "j" in spec.axes:
                    places = (slice(None),) * spec.axes.index("j") + (slice(keys),)
                    inputs[name] = inputs[name].copy()
                    inputs[name][places] = theirs[name][places]
        return inputs

    def _own_inputs(self, index: int) -> dict[str, Stored]:
        if index >= len(self._check):
            stress, number, entropy = NORMAL, index, self.entropy
        else:
            (stress, number), entropy = self._check[index], self.case.seed
        inputs = self._drawn_of(stress, number, entropy)
        if is_encoded(self.case) and stress in AMPLIFIED:
            return with_amplitudes(self.case, self.rule, inputs, entropy, number)
        return inputs

    def _drawn_of(self, stress: str, number: int, entropy: int) -> dict[str, Stored]:
        if stress == NORMAL:
            return draw_inputs(self.case, self.rule, entropy, number)
        own = self.operation.stress(self.case, self.rule)
        if stress in own:
            return draw_inputs(self.case, self.rule, entropy, number, own[stress])
        drawn = draw_stress_input(self.case, self.rule, stress, entropy, number)
        return dict(zip(self.inputs, drawn, strict=True))

    def drawn_upstreams(self, index: int) -> dict[str, Stored]:
        """Return the gradients of the outputs of a draw by name, as stored."""
        entropy = self.case.seed if index < len(self._check) else self.entropy
        return draw_upstreams(self.case, entropy, index)

    def _stress(self, index: int) -> str:
        return self._check[index][0] if index < len(self._check) else NORMAL

    def _verdict(
        self,
        part: Part,
        errors: Sequence[Errors],
        draws: Sequence[int],
        references: Sequence[int],
        arithmetic: str = "",
        *,
        in_place: bool = False,
    ) -> tuple[Accuracy, str]:
        """Return the numbers and the fault of errors; the draws are of one stress input.

        arithmetic: as in :meth:`judge`; a part that is coarser is held to its dtype. in_place: the place of
        the worst element counts rows of the output, not the rows compared.
        """
        arithmetic = arithmetic if coarser(arithmetic, part.dtype) else ""
        plain = self._scores.get(PLAIN, {})
        missing = set(references) - set(plain)
        if missing or not references:
            raise ValueError(f"no plain reference of draws {sorted(missing or draws)} to judge by")
        output, values = part.limits.scales([self.draw(i) for i in draws], arithmetic)
        if arithmetic and part.rounded:
            reference = [self._rounding(index, arithmetic)[part.name] for index in references]
        else:
            reference = [plain[index][part.name] for index in references]
        sampled = self.rows is not None and part.sampled and not in_place
        mine = pool(errors)
        return verdict(
            mine,
            pool(reference),
            output=output,
            values=values,
            dtype=part.dtype,
            rows=len(self.rows) if sampled and self.rows is not None else self.case.Lq,
            rows_of=self.case.Lq,
            draws=len(draws),
            axes=part.axes,
            few=part.limits.few(mine.count),
            unit=part.limits.unit(largest_score(self.case, self._stress(draws[0])), arithmetic),
            arithmetic=arithmetic,
        )

    def _check_of(self, part: Part, errors: Sequence[Errors], draws: Sequence[int]) -> Check:
        """Name the check that a part with such errors failed."""
        plain = pool([self._scores[PLAIN][index][part.name] for index in draws])
        _, values = part.limits.scales([self.draw(i) for i in draws], "")
        if reference_off(plain, values, part.dtype):
            return "rule_forms"
        if part.check == "values" and pool(errors).not_finite:
            return "not_finite"
        return part.check

    def _plain_verdict(self, index: int) -> tuple[Accuracy, str]:
        """Return the verdict on the plain reference's own output, whose limits are those of all others."""
        plain = self._scores.get(PLAIN, {})
        errors = [plain[index][OUT]] if index in plain else []
        return self._verdict(self._part(OUT), errors, [index], [index])


def _judging(opening: rm.OpenCase, case: Case, rule: Rule, wide: Parameters) -> Judging:
    rng = np.random.default_rng(opening.timed_entropy)
    kind = Judging if operation_of(case).heads is None else AttentionJudging
    return kind(case, rule, wide, opening.oracle_flops, rng)


def _make_room(remembered: dict[tuple[int, int], Any]) -> None:
    while len(remembered) >= _CHANGES_REMEMBERED:
        del remembered[next(iter(remembered))]


def _same_parts(answer: Answer, expected: Mapping[str, Array]) -> None:
    if set(answer) != set(expected):
        raise ValueError(f"an answer of {sorted(answer)} where {sorted(expected)} are asked for")


def passing_trivial_answer(*opened: CaseVerifier) -> str:
    """Return a trivial answer that passes the whole check, or that of a wrong constant; "" for none.

    Where there is one, the case can't detect errors. opened: the verifiers of all problems of a case that
    have queries and keys; an answer must pass each of them.

    The plain reference must have been scored. Each answer is tried on one draw after the other while it
    passes, which hardly any does on the first.
    """
    left: Collection[str] | None = None
    for index in range(len(opened[0].stress_inputs)):
        for one in opened:
            answers = one.judging.trivial_answers(one.draw(index))
            left = [name for name in answers if left is None or name in left]
            left = [name for name in left if one.passes(index, answers[name])]
            if not left:
                return _passing_constants(opened)
    return next(iter(left or ()), "")


def _passing_constants(opened: Sequence[CaseVerifier]) -> str:
    """Return the rule with a wrong constant whose answer passes, as ``softcap@c=10000``; "" for none.

    It is tried on a draw of each stress input, ordinary ones and those of large scores first.
    """
    last = {stress: index for one in opened for index, stress in enumerate(one.stress_inputs)}
    for wrongs in zip(*(one.judging.wrong_constants() for one in opened), strict=True):
        pairs = list(zip(opened, wrongs, strict=True))
        tried = ((one, wrong, at) for at in reversed(last.values()) for one, wrong in pairs)
        if all(one.passes(at, wrong.answer(one.draw(at))) for one, wrong, at in tried):
            return str(wrongs[0])
    return ""
