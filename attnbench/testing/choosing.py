"""From all that a backend declares to the cases that it is judged on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import combinations

from attnbench.cases.identity import case_id
from attnbench.testing.asking import Answer, ask
from attnbench.testing.findings import Finding
from attnbench.testing.large import large_cases
from attnbench.testing.space import SAMPLED_MORE, Candidate, candidates, rules_of
from attnbench.types.backend import Backend
from attnbench.types.case import Case
from attnbench.types.rule import Rule

MOST, MOST_COMPILED = 30, 5
"""Small cases of a backend, and of one that compiles for seconds a case."""
DROPOUT = 0.2
FEW = 40
"""Of cases taken, below which more are asked about: what a backend takes may be rare."""

Features = frozenset[tuple[str, str]]


@dataclass(frozen=True)
class ConformanceCase:
    """A case of the kit. large: one of the few that take longer."""

    case: Case
    large: bool = False

    @property
    def id(self) -> str:
        """The id of the case."""
        return case_id(self.case)


@dataclass(frozen=True)
class Choice:
    """The cases of a backend, and what asking ``supports`` has shown: declined of ``asked``; findings."""

    cases: tuple[ConformanceCase, ...]
    declined: int
    asked: int
    findings: tuple[Finding, ...]


def choose(backend: Backend, rules: Mapping[str, Rule]) -> Choice:
    """The cases to judge a backend on: of those that it takes, in which every two features meet.

    What its ``supports`` declines is not asked for; nothing is computed here.
    """
    asked = [(one, ask(backend, one.case, rules[one.case.rule])) for one in candidates(backend, rules)]
    if sum(answer.reason is None for _, answer in asked) < FEW:
        more = candidates(backend, rules, SAMPLED_MORE)[len(asked) :]
        asked += [(one, ask(backend, one.case, rules[one.case.rule])) for one in more]
    taken = [one for one, answer in asked if answer.reason is None]
    most = MOST_COMPILED if backend.compiles else MOST
    cases = [ConformanceCase(one.case) for one in _covering(taken, most)]
    cases += [ConformanceCase(case) for case in _with_dropout(backend, taken, rules)]
    if taken:
        large = large_cases(backend, rules_of(backend, rules))
        cases += [ConformanceCase(case, large=True) for case in large]
    findings = [*_faults(backend, asked), *_never_taken(backend, rules, asked)]
    return Choice(tuple(cases), len(asked) - len(taken), len(asked), tuple(findings))


def _covering(taken: list[Candidate], most: int) -> list[Candidate]:
    """Few of them in which every two features meet that meet in any; the most telling first."""
    left = {one.case: _pairs(one) for one in taken}
    missing = frozenset().union(*left.values()) if left else frozenset()
    chosen: list[Candidate] = []
    while missing and len(chosen) < most:
        # Of equals the first: those that were made to cover come before the random ones.
        best = max(taken, key=lambda one: len(left[one.case] & missing))
        missing -= left[best.case]
        chosen.append(best)
    return chosen


def _pairs(one: Candidate) -> frozenset[Features]:
    # Of rules each shall be there; that each meets all else would take three times the cases.
    features = [(name, str(value)) for name, value in one.features.items() if name != "rule"]
    alone = frozenset([("rule", one.case.rule)])
    return frozenset([alone, *(frozenset(pair) for pair in combinations(features, 2))])


def _with_dropout(backend: Backend, taken: list[Candidate], rules: Mapping[str, Rule]) -> list[Case]:
    for one in taken if backend.dropout else ():
        if one.case.pass_ == "forward" and one.case.Lq > 1 and one.case.dtype in ("float32", "bfloat16"):
            case = replace(one.case, dropout=DROPOUT)
            if ask(backend, case, rules[case.rule]).reason is None:
                return [case]
    return []


def _faults(backend: Backend, asked: list[tuple[Candidate, Answer]]) -> list[Finding]:
    """What is wrong with the answers of ``supports``, one finding for each kind."""
    return [
        Finding(backend.name, answer.fault, answer.do, (case_id(one.case),), about="declarations")
        for one, answer in asked
        if answer.fault
    ]


def _never_taken(
    backend: Backend, rules: Mapping[str, Rule], asked: list[tuple[Candidate, Answer]]
) -> list[Finding]:
    """What is declared, and refused by ``supports`` wherever it occurs."""
    unknown = [name for name in backend.rules or () if name not in rules]
    found = [
        Finding(
            backend.name,
            f"it declares the rule {name!r}, which no plugin that is loaded brings",
            "Bring the rule too (attnbench_rules), load the plugin that does, or take it out of rules.",
            about="declarations",
        )
        for name in unknown
    ]
    reasons = Counter(answer.reason for _, answer in asked if answer.reason)
    usual = f" (most often: {reasons.most_common(1)[0][0]})" if reasons else ""
    if found and not asked:
        # Nobody was asked, for want of a rule: supports() has no part in it.
        return found
    if all(answer.reason is not None for _, answer in asked):
        return [
            *found,
            Finding(
                backend.name,
                f"supports() declined all {len(asked)} combinations of what it declares{usual}, so nothing "
                "could be checked",
                "Give None for the cases that it can run; small ones of 1 to 70 queries and keys are "
                "asked for.",
                about="declarations",
            ),
        ]
    for field, feature, wanted in (
        ("operations", "operation", backend.operations),
        ("rules", "rule", backend.rules or ()),
        ("dtypes", "dtype", backend.dtypes),
        ("passes", "pass", backend.passes),
    ):
        for value in wanted:
            answers = [answer for one, answer in asked if one.features[feature] == value]
            if answers and all(answer.reason is not None for answer in answers):
                reason = answers[0].reason
                found.append(
                    Finding(
                        backend.name,
                        f"it declares {value!r} among its {field}, and supports() declines every case of it: "
                        f"{reason}",
                        f"Take {value!r} out of {field}, which says so without starting it, or give None"
                        " for it.",
                        about="declarations",
                    )
                )
    return found
