"""The cases on which mutants are judged: small ones in which every two conditions meet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from attnbench.cases.covering import covering_rows
from attnbench.cases.ids import build_case, case_id, parse_case
from attnbench.inputs.kinds import stress_inputs_of
from attnbench.types.case import Case
from attnbench.types.mask import parse_mask
from attnbench.types.rule import Rule
from attnbench_selftest.mutants.mutant import Mutant

VALUES: dict[str, tuple[Any, ...]] = {
    "rule": (
        "scaled_dot", "dot", "general", "additive", "additive_sum", "concat_linear", "cosine", "alibi",
        "softcap", "sinks", "t5_bias", "scaled_dot@scale=0.3", "softcap@c=5",
    ),
    "mask": (
        "none", "causal", "causal:lower_right", "window:5", "causal:lower_right+window:6", "padding",
        "causal+padding", "bool", "float",
    ),
    # One beside, at and past a block; Lq < Lk and Lq > Lk; both beyond what the shortest blocks hold.
    "lengths": ((12, 12), (9, 40), (33, 17), (1, 24), (16, 16), (40, 71)),
    "features": ((8, 8), (13, 12), (5, 5)),
    "heads": ((4, 2), (3, 3), (6, 2), (4, 1)),
    "layer": ({}, {"E": 24, "bias": True, "cross": True}, {"E": 20}, {"E": 24, "out": False, "bias": True}),
    "dtype": ("float32", "bfloat16", "float64", "float16"),
    "pass_": ("forward", "both", "backward"),
    "B": (2, 3),
}  # fmt: skip

WEIGHTS = {"dtype": (5, 3, 1, 1), "layer": (9, 1, 1, 1), "pass_": (7, 3, 1)}

MANY_KEYS = (
    "attention/scaled_dot/B1-H2-Hkv1-Lq12-Lk700-D8/none/bfloat16",
    "attention/alibi/B1-H2-Lq40-Lk560-D8/causal:lower_right/float16",
    "attention/scaled_dot/B2-H4-Hkv2-Lq9-Lk40-D8/causal:lower_right/float16",
)
"""For mistakes that a sum over many keys shows."""

BY_HEAD = (
    "attention/scaled_dot/B2-H4-Hkv2-Lq12-Lk40-D8/bool:per_head",
    "multihead/alibi/B2-H4-L33-D8-E20/causal+float:per_head/bfloat16",
    "attention/sinks/B2-H3-Lq9-Lk40-D8/float:per_head",
)
"""For the few that take masks by head."""

TIMED = (
    "attention/scaled_dot/B2-H4-Hkv2-Lq96-Lk128-D16/none",
    "attention/softcap/B2-H4-L32-D16/causal/bfloat16",
    "multihead/scaled_dot/B2-H4-L16-D8-E32-bias/padding",
    "attention/sinks/B2-H4-Hkv2-Lq9-Lk40-D8/causal:lower_right",
)
"""Cases whose calls are so short that hundreds are made in a moment.

Those of the first are long enough, a few hundred µs, for a kept answer to show in its time: a call that takes
less than ``doubts.cold_ns`` may have been cold.
"""

SAVES_TIME = ("cache_by_content",)
"""Right outputs whose time is not that of attention. They are not timed, since ``suspect`` would be right."""


def covering_cases(seed: int, device: str = "cpu") -> tuple[Case, ...]:
    """Cases in which every two values of :data:`VALUES` meet, and a few with many keys; inputs by a seed."""
    rows = covering_rows(VALUES, _possible, WEIGHTS)
    cases = [*(_case(row) for row in rows), *map(parse_case, MANY_KEYS + BY_HEAD)]
    return tuple(replace(case, seed=seed, device=device) for case in cases)


def timed_cases(seed: int, device: str = "cpu") -> tuple[Case, ...]:
    """Cases in which calls are timed."""
    return tuple(replace(parse_case(text), seed=seed, device=device) for text in TIMED)


def _possible(row: dict[str, Any]) -> bool:
    """Return whether a case can detect errors: a query that sees one key alone shows no scores."""
    return not (row.get("lengths") == (1, 24) and row.get("mask") in ("causal", "causal+padding"))


def _case(row: dict[str, Any]) -> Case:
    (Lq, Lk), (D, Dv), (H, Hkv) = row["lengths"], row["features"], row["heads"]
    return build_case(
        operation="multihead" if row["layer"] else "attention",
        rule=row["rule"], B=row["B"], H=H, Hkv=Hkv, Lq=Lq, Lk=Lk, D=D, Dv=Dv,
        mask=parse_mask(row["mask"]), dtype=row["dtype"], pass_=row["pass_"], **row["layer"],
    )  # fmt: skip


@dataclass(frozen=True)
class Round:
    """One run: cases, and the mutants of each by the case's id. timed: whether calls are timed."""

    cases: tuple[Case, ...]
    mutants: Mapping[str, tuple[str, ...]]
    timed: bool

    @property
    def pairs(self) -> int:
        """The number of verdicts it asks for."""
        return sum(map(len, self.mutants.values()))


@dataclass(frozen=True)
class Extent:
    """The extent. wrong, right: most cases of each mutant; timed: cases in which calls are timed.

    few: whether as few cases are taken as give every mutant its number, each case taking a moment of its own.
    """

    wrong: int
    right: int
    timed: int
    few: bool


FULL = Extent(wrong=3, right=8, timed=3, few=False)
BRIEF = Extent(wrong=1, right=1, timed=1, few=True)


def plan(
    mutants: Sequence[Mutant], rules: Mapping[str, Rule], seed: int, extent: Extent, device: str = "cpu"
) -> list[Round]:
    """Return the rounds of one seed: for mutants whose calls are checked, and for those that are timed."""
    checked = [mutant for mutant in mutants if mutant.trait != "timed"]
    timed = [mutant for mutant in mutants if mutant.trait == "timed"]
    rounds = []
    if checked:
        rounds.append(_checked_round(checked, rules, covering_cases(seed, device), seed, extent))
    if timed:
        cases = timed_cases(seed, device)[: extent.timed]
        right = [mutant for mutant in mutants if mutant.right and mutant.name not in SAVES_TIME]
        right = [] if extent.few else right
        # Right ones on the first alone.
        asked = {
            case_id(case): tuple(a.backend_name for a in (*timed, *more) if a.runs(case, rules[case.rule]))
            for case, more in zip(cases, [right, *[[]] * len(cases)], strict=False)
        }
        rounds.append(Round(cases, asked, timed=True))
    return rounds


def _checked_round(
    mutants: Sequence[Mutant], rules: Mapping[str, Rule], every: Sequence[Case], seed: int, extent: Extent
) -> Round:
    cases = list(every)
    Random(seed).shuffle(cases)
    # Case by case, since masks are remembered for the last few.
    able = {case: {a.backend_name for a in mutants if a.runs(case, rules[case.rule])} for case in cases}
    wanted = {mutant.backend_name: extent.right if mutant.right else extent.wrong for mutant in mutants}
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
    """For each mutant only those of its cases that most stress inputs make sense of."""
    kinds = {case: len(stress_inputs_of(case, rules[case.rule])) for case in able}
    most: dict[str, int] = {}
    for case, names in able.items():
        most |= {name: max(most.get(name, 0), kinds[case]) for name in names}
    return {case: {name for name in names if kinds[case] == most[name]} for case, names in able.items()}


def _few(able: Mapping[Case, set[str]], wanted: Mapping[str, int]) -> list[Case]:
    """As few cases as give every mutant its number, or all that it has; the most useful first."""
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
