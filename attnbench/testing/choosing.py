"""Choosing the cases that judge a backend: asking its ``supports``, and covering what it takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import combinations

from attnbench.cases.ids import case_id
from attnbench.testing.cases import SAMPLED_MORE, Candidate, candidates, device_of, large_cases, rules_of
from attnbench.testing.findings import Finding
from attnbench.types.backend import Backend
from attnbench.types.case import Case
from attnbench.types.rule import Rule
from attnbench.types.words import clean, one_line
from attnbench.worker.failures import no_answer

MOST, MOST_COMPILED = 30, 5
"""Small cases of a backend, and of one that compiles for seconds a case."""
DROPOUT = 0.2
FEW = 40
"""With fewer cases taken than this, more are asked about: the cases that a backend takes may be rare."""

RAISES_NOTHING = (
    "supports() is called with any case: return None, or the reason as a string, and raise nothing."
)

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


@dataclass(frozen=True)
class Answer:
    """What ``supports`` says of a case. reason: why it declines, None where it takes the case.

    fault: what is wrong with the answer itself, "" for nothing. do: what to do about that.
    """

    reason: str | None
    fault: str = ""
    do: str = ""


def choose(backend: Backend, rules: Mapping[str, Rule]) -> Choice:
    """Choose cases that a backend takes, in which every two features meet. Computes nothing."""
    found = candidates(backend, rules)
    asked = [(one, ask(backend, one.case, rules[one.case.rule])) for one in found]
    if sum(answer.reason is None for _, answer in asked) < FEW:
        more = candidates(backend, rules, SAMPLED_MORE)[len(found) :]
        asked += [(one, ask(backend, one.case, rules[one.case.rule])) for one in more]
    taken = [one for one, answer in asked if answer.reason is None]
    cases = [ConformanceCase(one.case) for one in _covering(taken, backend)]
    cases += [ConformanceCase(case) for case in _with_dropout(backend, taken, rules)]
    for alternatives in large_cases(backend, rules_of(backend, rules)) if taken else ():
        answers = ((case, ask(backend, case, rules[case.rule])) for case in alternatives)
        first = next((case for case, answer in answers if answer == Answer(None)), None)
        cases += [] if first is None else [ConformanceCase(first, large=True)]
    faults = [
        _of_declarations(backend, answer.fault, answer.do, case_id(one.case))
        for one, answer in asked
        if answer.fault
    ]
    findings = (*faults, *_never_taken(backend, rules, asked))
    return Choice(tuple(cases), len(asked) - len(taken), len(asked), findings)


def ask(backend: Backend, case: Case, rule: Rule) -> Answer:
    """Return what ``supports`` says of a case, asked twice.

    Where it raises the case counts as taken, and the run then fails. An answer that is neither None nor a
    reason in words declines the case here; a run refuses it with the same words.
    """
    first, again = _ask(backend, case, rule), _ask(backend, case, rule)
    if not first.fault and not again.fault and (first.reason is None) != (again.reason is None):
        return Answer(
            first.reason,
            "supports() takes a case at the first call and declines it at the second, or the reverse",
            "Let its answer depend on the case and the rule alone: several processes call it.",
        )
    return first


def _ask(backend: Backend, case: Case, rule: Rule) -> Answer:
    try:
        reason: object = backend.supports(case, rule)
    except KeyboardInterrupt:
        raise
    except BaseException as failure:
        return Answer(None, f"supports() raised {one_line(failure)}", RAISES_NOTHING)
    if reason is None:
        return Answer(None)
    if fault := no_answer(reason):
        return Answer(clean(reason), f"supports() {fault}", RAISES_NOTHING)
    return Answer(clean(reason))


def absent(backend: Backend) -> str:
    """Return why a backend can't run on this machine at all; "" where it can."""
    missing = [name for name in backend.requires if not _importable(name)]
    if missing:
        return f"needs {', '.join(missing)}, which is not installed"
    device = device_of(backend)
    if device == "cuda":
        import torch

        if not torch.cuda.is_available():
            return "this machine has no CUDA device"
    try:
        reason = backend.available(device)
    except KeyboardInterrupt:
        raise
    except BaseException as failure:
        return f"available() raised {one_line(failure)}"
    return "" if reason is None else clean(reason)


def _importable(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ImportError:
        return False


def _covering(taken: list[Candidate], backend: Backend) -> list[Candidate]:
    """Return few cases in which every two features meet that meet in any, the most telling first."""
    left = {one.case: _pairs(one) for one in taken}
    missing = frozenset().union(*left.values()) if left else frozenset()
    chosen: list[Candidate] = []
    while missing and len(chosen) < (MOST_COMPILED if backend.compiles else MOST):
        # Of equals the first: those that were made to cover come before the random ones.
        best = max(taken, key=lambda one: len(left[one.case] & missing))
        missing -= left[best.case]
        chosen.append(best)
    return chosen


def _pairs(one: Candidate) -> frozenset[Features]:
    # Each rule must occur; pairs of a rule with every other feature would take three times the cases.
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


def _never_taken(
    backend: Backend, rules: Mapping[str, Rule], asked: list[tuple[Candidate, Answer]]
) -> list[Finding]:
    """Return findings on what is declared, and declined by ``supports`` wherever it occurs."""
    found = [
        _of_declarations(
            backend,
            f"it declares the rule {name!r}, but no loaded plugin brings this rule",
            "Bring the rule too (attnbench_rules), load the plugin that brings it, or remove it from rules.",
        )
        for name in backend.rules or ()
        if name not in rules
    ]
    if found and not asked:
        # Without a rule there was no case to ask about: supports() is not at fault.
        return found
    reasons = Counter(answer.reason for _, answer in asked if answer.reason)
    if all(answer.reason is not None for _, answer in asked):
        usual = f" (most often: {reasons.most_common(1)[0][0]})" if reasons else ""
        problem = f"supports() declined all {len(asked)} combinations of its declarations{usual}"
        do = "Return None for the cases that it can run; the kit's small cases have 1 to 70 queries and keys."
        return [*found, _of_declarations(backend, f"{problem}, so nothing could be checked", do)]
    for field, feature, wanted in (
        ("operations", "operation", backend.operations),
        ("rules", "rule", backend.rules or ()),
        ("dtypes", "dtype", backend.dtypes),
        ("passes", "pass", backend.passes),
    ):
        for value in wanted:
            answers = [answer.reason for one, answer in asked if one.features[feature] == value]
            if answers and None not in answers:
                problem = f"it declares {value!r} among its {field}, but supports() declines every such case"
                do = f"Remove {value!r} from {field}, or return None for such cases."
                found.append(_of_declarations(backend, f"{problem}: {answers[0]}", do))
    return found


def _of_declarations(backend: Backend, problem: str, do: str, *cases: str) -> Finding:
    return Finding(backend.name, problem, do, cases, about="declarations", check="supports")
