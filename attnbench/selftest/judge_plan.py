"""Who of the zoo is asked for which cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from attnbench.cases.identity import case_id
from attnbench.inputs.families import families_of
from attnbench.selftest.judge_cases import covering_cases, timed_cases
from attnbench.selftest.zoo.animal import Animal, runs
from attnbench.types.case import Case
from attnbench.types.rule import Rule


@dataclass(frozen=True)
class Round:
    """One run: cases, and the animals of each by the case's id. timed: whether calls are timed."""

    cases: tuple[Case, ...]
    animals: Mapping[str, tuple[str, ...]]
    timed: bool

    @property
    def pairs(self) -> int:
        """How many verdicts it asks for."""
        return sum(map(len, self.animals.values()))


@dataclass(frozen=True)
class Extent:
    """How much is judged. wrong, right: most cases of each animal; timed: cases in which calls are timed.

    few: whether as few cases are taken as give every animal its number, each case taking a moment of its own.
    """

    wrong: int
    right: int
    timed: int
    few: bool


FULL = Extent(wrong=3, right=8, timed=3, few=False)
BRIEF = Extent(wrong=1, right=1, timed=1, few=True)


def plan(animals: Sequence[Animal], rules: Mapping[str, Rule], seed: int, extent: Extent) -> list[Round]:
    """What one seed judges: the animals whose calls are checked, and those whose calls are timed."""
    checked = [animal for animal in animals if animal.trait != "timed"]
    timed = [animal for animal in animals if animal.trait == "timed"]
    rounds = []
    if checked:
        rounds.append(_checked_round(checked, rules, seed, extent))
    if timed:
        cases = timed_cases(seed)[: extent.timed]
        right = [] if extent.few else [animal for animal in animals if animal.right]
        # Right ones on the first alone.
        asked = {
            case_id(case): tuple(a.called for a in (*timed, *who) if runs(a, case, rules[case.rule]))
            for case, who in zip(cases, [right, *[[]] * len(cases)], strict=False)
        }
        rounds.append(Round(cases, asked, timed=True))
    return rounds


def _checked_round(animals: Sequence[Animal], rules: Mapping[str, Rule], seed: int, extent: Extent) -> Round:
    rng = Random(seed)
    cases = list(covering_cases(seed))
    rng.shuffle(cases)
    # Case by case, since masks are remembered for the last few.
    able = {case: {a.called for a in animals if runs(a, case, rules[case.rule])} for case in cases}
    wanted = {animal.called: extent.right if animal.right else extent.wrong for animal in animals}
    if extent.few:
        able = _telling(able, rules)
        cases = _few(able, wanted)
    can = {name: [case for case in cases if name in able[case]] for name in wanted}
    asked: dict[str, list[str]] = {case_id(case): [] for case in cases}
    for name, its in can.items():
        for case in _unlike(its, wanted[name]):
            asked[case_id(case)].append(name)
    used = tuple(case for case in cases if asked[case_id(case)])
    return Round(used, {case_id(case): tuple(asked[case_id(case)]) for case in used}, timed=False)


def _telling(able: Mapping[Case, set[str]], rules: Mapping[str, Rule]) -> dict[Case, set[str]]:
    """For each animal only those of its cases that most families of inputs make sense of."""
    families = {case: len(families_of(case, rules[case.rule])) for case in able}
    most: dict[str, int] = {}
    for case, names in able.items():
        most |= {name: max(most.get(name, 0), families[case]) for name in names}
    return {case: {name for name in names if families[case] == most[name]} for case, names in able.items()}


def _few(able: Mapping[Case, set[str]], wanted: Mapping[str, int]) -> list[Case]:
    """As few cases as give every animal its number, or all that it has; the most useful first."""
    left = {name: min(count, sum(name in who for who in able.values())) for name, count in wanted.items()}
    chosen: list[Case] = []
    while any(left.values()):
        who = {
            position: [name for name in names if left[name]]
            for position, (case, names) in enumerate(able.items())
            if case not in chosen
        }
        best = max(who, key=lambda position: len(who[position]))
        chosen.append(list(able)[best])
        for name in who[best]:
            left[name] -= 1
    return chosen


def _unlike(cases: Sequence[Case], count: int) -> list[Case]:
    """So many of the cases, each with as much as possible that those before it did not have."""
    left, chosen = list(cases), list[Case]()
    seen: set[tuple[str, Any]] = set()
    while left and len(chosen) < count:
        best = max(left, key=lambda case: len(_conditions(case) - seen))
        left.remove(best)
        chosen.append(best)
        seen |= _conditions(best)
    return chosen


def _conditions(case: Case) -> set[tuple[str, Any]]:
    return {
        ("rule", case.rule), ("mask", case.mask), ("dtype", case.dtype), ("pass", case.pass_),
        ("lengths", (case.Lq, case.Lk)), ("heads", (case.H, case.Hkv)), ("layer", case.layer is not None),
    }  # fmt: skip
