"""A case with a batch in the verifier: one verifier for each problem, and tensors that hold all of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from attnbench.cases.ids import parse_case
from attnbench.inputs.draw import Stored
from attnbench.inputs.kinds import DROPPED, NEAR_DUPLICATE, NORMAL, SLICED, TRANSPOSED
from attnbench.inputs.places import placed_case
from attnbench.ipc import verifier_messages as rm
from attnbench.ipc.names import ERROR, HELD, PLAIN
from attnbench.types.case import Case
from attnbench.types.encoding import unencoded
from attnbench.types.problem import (
    Held,
    chosen,
    held_inputs,
    held_outputs,
    held_upstreams,
    is_empty,
    mixed,
    problems_of,
)
from attnbench.types.rule import Rule
from attnbench.types.storage import APART, Storage, of_all, storage_of
from attnbench.verifier.case import CaseVerifier, passing_trivial_answer
from attnbench.verifier.judging import in_turn

if TYPE_CHECKING:
    Answer = Mapping[str, Stored]


class BatchVerifier:
    """The verifiers of all problems of a case, whose numbers lie as a storage has them.

    It has the methods of :class:`CaseVerifier`, for inputs and answers of the whole case.

    make: makes the verifier of a problem.
    """

    def __init__(
        self,
        opening: rm.OpenCase,
        rule: Rule,
        make: Callable[[rm.OpenCase, Rule, Case], CaseVerifier] = CaseVerifier,
    ) -> None:
        self.case: Case = parse_case(opening.case)
        self.rule, self.entropy = rule, opening.timed_entropy
        self.storage = storage_of(self.case)
        problems = problems_of(self.case)
        self.problems = tuple(
            make(
                msgspec.structs.replace(
                    opening,
                    timed_entropy=mixed(opening.timed_entropy, number),
                    oracle_flops=opening.oracle_flops / len(problems),
                    # Where numbers lie, and what lies in unread places, is a matter of the storage.
                    without=(*opening.without, DROPPED, SLICED, TRANSPOSED),
                ),
                rule,
                problem,
            )
            for number, problem in enumerate(problems)
        )
        counts: dict[str, int] = {}
        for one in self.problems:
            one.share_cache(self.case.seed, opening.timed_entropy)
            for stress, count in one.counts.items():
                counts[stress] = max(count, counts.get(stress, 0))
        draws = in_turn(counts)
        self.stress_inputs = tuple(stress for stress, _ in draws)
        several = sum(NEAR_DUPLICATE in one.counts for one in self.problems) > 1
        for place, one in enumerate(self.problems):
            # Half of the sequences stay as they are while the others change, then the other half: what a
            # backend concludes from one sequence for another is then wrong.
            stay = (number for number in range(counts.get(NEAR_DUPLICATE, 0)) if (number + place) % 2)
            one.take_turns(draws, frozenset(stay) if several else frozenset())
        if any(map(of_all, self.problems[0].inputs.values())):
            # One without steps lacks most kinds of inputs.
            longest = max(self.problems, key=lambda one: one.case.Lq)
            for one in self.problems:
                one.follow(longest)
        self.parameters = self.problems[0].parameters
        # By who answered and the draw, what an answer changed that calls must leave.
        self._faults: dict[str, dict[int, str]] = {}
        for index, stress in enumerate(self.stress_inputs):
            for shared in self.storage.shares(self.stored_case(index, 0)) if stress == NORMAL else ():
                self.problems[shared.number].share(index, self.problems[shared.first], shared.keys)

    def stored_case(self, index: int, change: int) -> Case:
        """Return the case as the storage gets it for a draw."""
        return placed_case(self.case, self.entropy, self.stress_inputs, index, change)

    def arrays(self, index: int, change: int, *, apart: bool = False) -> dict[str, Stored]:
        """Return the stored arrays of a draw by name, then those that say where numbers lie.

        apart: an array for each problem, none encoded, as the plain reference gets them.

        Raises:
            ValueError: what the storage takes back is not what it was given.
        """
        by_problem = [one.arrays(index, change, apart=apart) for one in self.problems]
        storage, case = APART if apart else self.storage, self.stored_case(index, change)
        stored: dict[str, Stored] = {}
        for held in held_inputs(unencoded(self.case) if apart else self.case, self.rule, storage):
            stored |= _put(case, storage, held, by_problem)
        stored |= dict(storage.plan(case))
        if self.case.pass_ != "forward":
            for held in held_upstreams(self.case, storage):
                stored |= _put(case, storage, held, by_problem)
        return stored

    def arrays_of(self, index: int, numbers: Sequence[int]) -> dict[str, Stored]:
        """Return the stored arrays of a draw for some sequences, in that order, in a forward pass.

        Others may have their pages in common there, so here none have.
        """
        by_problem = [self.problems[number].arrays(index, 0) for number in numbers]
        own = chosen(self.case, numbers)
        case = placed_case(own, self.entropy, (), index)
        stored: dict[str, Stored] = {}
        for held in held_inputs(own, self.rule, self.storage):
            stored |= _put(case, self.storage, held, by_problem)
        return stored | dict(self.storage.plan(case))

    def taken(self, who: str, index: int, change: int, answer: Answer) -> list[dict[str, Stored]]:
        """Return the parts of an answer to a draw by problem.

        Raises:
            ValueError: the answer has other parts.
        """
        storage = APART if who == PLAIN else self.storage
        held = held_outputs(self.case, storage) if self.case.pass_ != "backward" else ()
        if self.case.pass_ != "forward":
            inputs = held_inputs(self.case, self.rule, storage)
            held += tuple(each for each in inputs if each[0][0].is_floating)
        by_name = {specs[0].name: (specs, stored) for specs, stored in held}
        wanted = {spec.name for _, stored in held for spec in stored}
        if set(answer) != wanted:
            raise ValueError(f"an answer of {sorted(answer)} where {sorted(wanted)} are asked for")
        case = self.stored_case(index, change)
        parts: list[dict[str, Stored]] = [{} for _ in self.problems]
        for name, (specs, tensors) in by_name.items():
            taken = storage.take(case, specs, [answer[spec.name] for spec in tensors])
            for own, array in zip(parts, taken, strict=True):
                own[name] = array
        return parts

    def _changed(self, index: int, change: int, answer: Answer) -> str:
        """Return what an answer to a draw changed in places of the storage that are no sequence's."""
        case = self.stored_case(index, change)
        for specs, tensors in held_outputs(self.case, self.storage) if self.case.pass_ != "backward" else ():
            found = self.storage.changed(case, specs, [answer[spec.name] for spec in tensors])
            if found:
                return f"the output {specs[0].name!r}: {found}"
        return ""

    def expect(self, index: int, gradients: Answer) -> None:
        """Take exact gradients, which a worker computed in float64 apart, for those of a draw."""
        by_problem: list[dict[str, Stored]] = [{} for _ in self.problems]
        for name, array in gradients.items():
            kind = next((prefix for prefix in (HELD, ERROR) if name.startswith(prefix)), "")
            number, _, own = name.removeprefix(kind).partition(".")
            by_problem[int(number)][kind + own] = array
        for one, parts in zip(self.problems, by_problem, strict=True):
            one.expect(index, parts)

    def score(self, who: str, index: int, parts: Answer) -> str:
        """Compare an answer with the exact ones; return the fault of values that are not finite, else "".

        What was wrong before comes first: a kernel that reads the wrong pages finds NaN in the hardest draws.
        """
        taken = self.taken(who, index, 0, parts)
        if who != PLAIN:
            self._faults.setdefault(who, {})[index] = self._changed(index, 0, parts)
        problems = [one.score(who, index, own) for one, own in zip(self.problems, taken, strict=True)]
        fault = next(filter(None, problems), "")
        before = [one.fault_before(who, index) for one in self.problems] if fault else []
        return "; and on a later draw ".join([*list(filter(None, before))[:1], fault])

    def begin_timed(self) -> None:
        """Prepare for the outputs of timed calls of one process."""

    def end_timed(self) -> str:
        """Return the fault of these outputs together; "" for none."""
        return ""

    def score_timed(self, index: int, change: int, parts: Answer, arithmetic: str = "") -> str:
        """Compare the answer of a timed call; return its fault, "" for none."""
        for one, own in zip(self.problems, self.taken("a backend", index, change, parts), strict=True):
            problem = one.score_timed(index, change, own, arithmetic)
            if problem:
                return problem
        return self._changed(index, change, parts)

    def judge(self, who: str, left_out: Collection[str] = (), arithmetic: str = "") -> rm.Judged:
        """Return the verdict on all answers of ``who``; each problem has its own limits.

        Its numbers are those of the worst problem, of each part by itself. The first fault counts.
        """
        judged = [one.judge(who, left_out, arithmetic) for one in self.problems]
        faulty = next((one for one in judged if one.problem), judged[0])
        failed = [stress for one in judged for stress in one.failed]
        faults = [(index, problem) for index, problem in self._faults.get(who, {}).items() if problem]
        if faults and not faulty.problem:
            index, problem = faults[0]
            faulty = msgspec.structs.replace(faulty, problem=problem, check="values")
            failed.append(self.stress_inputs[index])
        parts: dict[str, Any] = {}
        for verifier, one in zip(self.problems, judged, strict=True):
            own: dict[str, Any] = dict(one.parts) or {next(iter(verifier.judging.parts)): one.accuracy}
            for name, accuracy in own.items():
                if name not in parts or accuracy.error_budget > parts[name].error_budget:
                    parts[name] = accuracy
        leads = {name: part.leads for name, part in self.problems[0].judging.parts.items()}
        worst = max(parts, key=lambda name: (leads[name], parts[name].error_budget))
        return rm.Judged(
            accuracy=parts[worst],
            parts=parts if len(parts) > 1 else {},
            problem=faulty.problem,
            failed=tuple(dict.fromkeys(failed)),
            check=faulty.check,
        )

    def passing_trivial_answer(self) -> str:
        """Return a trivial answer that passes every problem with queries and keys; "" for none."""
        return passing_trivial_answer(*(one for one in self.problems if not is_empty(one.case)))


def _put(
    case: Case, storage: Storage, held: Held, by_problem: Sequence[Mapping[str, Stored]]
) -> dict[str, Stored]:
    """Return the stored arrays by name, after a look whether the storage gives back what it was given."""
    specs, tensors = held
    arrays = [own[specs[0].name] for own in by_problem]
    stored = storage.put(case, specs, arrays)
    for given, back in zip(arrays, storage.take(case, specs, stored), strict=True):
        if given.shape != back.shape or given.tobytes() != back.tobytes():
            raise ValueError(f"the storage {storage.name} changes what it holds of {specs[0].name}")
    shapes = {spec.name: spec.shape for spec in tensors}
    made = dict(zip(shapes, (np.ascontiguousarray(array) for array in stored), strict=True))
    if {name: array.shape for name, array in made.items()} != shapes:
        raise ValueError(f"the storage {storage.name} makes other shapes of {specs[0].name} than it says")
    return made
