"""The search of one backend: ask, and where it is wrong, make the case small and say what it needs."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from time import monotonic

from attnbench.cases.ids import case_id
from attnbench.cases.select import Overrides
from attnbench.plugins.registry import Registry
from attnbench.search.covering import Covering, DrawnRow
from attnbench.search.process import Judgement, JudgingProcess, JudgingQuestion, first_ready, judges
from attnbench.search.space import space_of
from attnbench.testing.cases import NO_OPTIONS, rules_of
from attnbench.testing.diagnosis_process import Asked, Diagnosed, Look, look, too_large
from attnbench.testing.judge import rules_in
from attnbench.testing.problems import may_be_known
from attnbench.trial.judge import ALL_DRAWS, MOST_DRAWS, TrialOutcome
from attnbench.trial.point import PLAINLY, Point
from attnbench.trial.shrink import Shrunk, needed, shrink, thresholds
from attnbench.types.case import Case
from attnbench.types.errors import BadCase
from attnbench.types.operation import operation_of
from attnbench.types.words import count_of

LIMIT_S, COMPILED_LIMIT_S = 60.0, 600.0
"""The longest wait for the outcome of one point. What is later is told, and not held against a backend: one
that interprets may be slow, and right."""
MOST_FAILURES = 12
"""Points on which a backend is wrong, after which the search ends: more are mostly the same fault."""
MOST_SHRUNK = 3
"""Failures that are made small; the others are told as of the same kind, or counted."""
MANY_KEYS = 2048
"""So many large values overflow float16 in every row."""
MOST_JUDGED = 400
"""Points that a process judges before a new one follows: memory that a backend loses goes with it."""


@dataclass(frozen=True)
class Fault:
    """A point on which a backend is wrong, made small, with what it takes to be wrong.

    found: the point as the search found it. alone: whether it is wrong in a process of its own; if not, the
    backend keeps something of earlier calls, and nothing is made small. known: the known mistake that gives
    the same answer, if there is one.
    """

    found: Point
    outcome: TrialOutcome
    alone: bool
    shrunk: Shrunk
    since: str = ""
    known: Diagnosed | None = None

    @property
    def point(self) -> Point:
        """The smallest point."""
        return self.shrunk.point


@dataclass(frozen=True)
class Searched:
    """The result of a search.

    asked, declined: points that were judged, and further ones that the backend declined when it was called.
    late, unjudged: those of them without an answer in time, and those that the judge failed on. met,
    possible: pairs of classes. triples: their share. failures: those made small. more: further points that
    are wrong.
    """

    backend: str
    seed: int
    seconds: float
    asked: int
    declined: int
    late: tuple[str, ...]
    unjudged: int
    met: int
    possible: int
    triples: float
    failures: tuple[Fault, ...]
    more: int = 0

    def __str__(self) -> str:
        if not self.possible:
            return f"{self.backend}: NOT searched: supports() takes no case that a search draws"
        pairs = f"all {self.met:,}" if self.met == self.possible else f"{self.met:,} of {self.possible:,}"
        wrong = len(self.failures) + self.more
        failed = f", {wrong} of them not right" if wrong else ""
        words = [
            f"{self.backend}: searched {count_of(self.asked, 'further case')} of what it declares in "
            f"{self.seconds:.0f} s{failed}: {pairs} pairs of properties, {self.triples:.0%} of triples "
            f"(seed {self.seed})"
        ]
        if self.met < self.possible and not wrong:
            words.append("a longer --search meets more pairs")
        if self.late:
            words.append(f"no answer in time in {count_of(len(self.late), 'case')}, first {self.late[0]}")
        if self.unjudged:
            words.append(f"{count_of(self.unjudged, 'case')} could not be judged, which says nothing of it")
        return "; ".join(words)


def search(
    backend: str,
    registry: Registry,
    seconds: float,
    seed: int,
    options: Overrides = NO_OPTIONS,
) -> Searched:
    """Search for cases on which a backend is wrong; the same seed asks the same cases, as time allows.

    options: of a command; they narrow the cases.
    """
    entry = registry.backends[backend]
    rules = {rule.name: rule for rule in rules_of(entry.record, rules_in(registry), options)}
    space = space_of(entry.record, rules, options)
    asked = _question(backend, registry)
    covering = Covering(space, Random(seed))
    found: list[tuple[Point, TrialOutcome]] = []
    counts = Counter[str]()
    late: list[str] = []
    limit_s = COMPILED_LIMIT_S if entry.record.compiles else LIMIT_S
    with judges(asked, max(1, min(4, os.cpu_count() or 1)), limit_s) as free:
        took = _explore(covering, free, seconds, found, late, counts)
    surely = _question(backend, registry, ALL_DRAWS)
    with judges(asked, 1, limit_s) as (judge,), judges(surely, 1, limit_s) as (sure,):
        failures, more = _shrunk(found, judge, sure)
    failures = _diagnosed(failures, backend, registry)
    return Searched(
        backend, seed, took, counts["asked"], counts["declined"], tuple(late), counts["unjudged"],
        len(covering.met), covering.possible, covering.share_of_triples, failures, more,
    )  # fmt: skip


def _explore(
    covering: Covering,
    judges: list[JudgingProcess],
    seconds: float,
    found: list[tuple[Point, TrialOutcome]],
    late: list[str],
    counts: Counter[str],
) -> float:
    """Ask points of all processes until the time is over, or enough are wrong; return the seconds it took.

    They count from the first answer, before which processes import torch and the plugin.
    """
    asking: dict[int, tuple[JudgingProcess, DrawnRow]] = {}
    again: set[int] = set()
    begun: float | None = None
    over = False
    while True:
        over = over or len(found) >= MOST_FAILURES or (begun is not None and monotonic() >= begun + seconds)
        for judge in judges:
            if over or id(judge) in asking:
                continue
            drawn = covering.draw()
            if drawn is None:
                over = True
                break
            if judge.judged >= MOST_JUDGED:
                judge.end()
            judge.ask(str(drawn.point))
            asking[id(judge)] = judge, drawn
        if not asking:
            return 0.0 if begun is None else monotonic() - begun
        judge = first_ready([judge for judge, _ in asking.values()])
        _, drawn = asking[id(judge)]
        answer = judge.answer()
        begun = monotonic() if begun is None else begun
        if answer.outcome.status == "unjudged" and id(judge) not in again:
            again.add(id(judge))
            judge.end()
            judge.ask(str(drawn.point))
            continue
        again.discard(id(judge))
        del asking[id(judge)]
        _count(answer, drawn, covering, counts)
        if answer.outcome.status in ("wrong", "error"):
            found.append((drawn.point, answer.outcome))
        if answer.outcome.status == "late":
            late.append(str(drawn.point))


def _count(answer: Judgement, drawn: DrawnRow, covering: Covering, counts: Counter[str]) -> None:
    status = answer.outcome.status
    counts["asked"] += status != "declined"
    counts["declined"] += status == "declined"
    counts["unjudged"] += status == "unjudged"
    if answer.telling and status not in ("declined", "late", "unjudged"):
        covering.count(drawn.row)


def _shrunk(
    found: list[tuple[Point, TrialOutcome]], judge: JudgingProcess, sure: JudgingProcess
) -> tuple[tuple[Fault, ...], int]:
    """Make failures small, each in a new process; return them, and how many further ones there are.

    sure: a process that judges by as many draws as a run. Few draws of few rows can exceed limits by chance.
    """
    failures: list[Fault] = []
    more = 0
    for point, outcome in found:
        if any(_has_all_of(point, failure) for failure in failures) or len(failures) >= MOST_SHRUNK:
            more += 1
            continue
        judge.end()
        again = _outcome(judge, point)
        if again.status not in ("wrong", "error"):
            failures.append(Fault(point, outcome, False, Shrunk(point, (), done=False)))
            continue
        if again.check == "values" and _outcome(sure, point).status == "right":
            continue
        small = shrink(point, lambda one: _outcome(judge, one).status in ("wrong", "error"))
        if any(_same_fault(small, failure) for failure in failures):
            more += 1
            continue
        judge.end()
        last = _outcome(judge, small.point)
        since = thresholds(small.point, lambda one: _outcome(judge, one).status in ("wrong", "error"))
        failures.append(Fault(point, last if last.problem else again, True, small, since))
    return tuple(failures), more


def _outcome(judge: JudgingProcess, point: Point) -> TrialOutcome:
    """Return the outcome of a point; where the judge fails, that of a new process."""
    for _ in range(2):
        judge.ask(str(point))
        first_ready([judge])
        found = judge.answer().outcome
        if found.status != "unjudged":
            break
        judge.end()
    return found


def _has_all_of(point: Point, failure: Fault) -> bool:
    """Return whether a point has all that a failure needs, and is as large: it is of the same kind then."""
    if not failure.alone:
        return False
    small = failure.point
    pairs = [(point.case.Lq, small.case.Lq), (point.case.Lk, small.case.Lk), (point.case.D, small.case.D)]
    # "a window of 5" and "a window of 9" are the same property.
    words = {word.split(" of ")[0] for word in failure.shrunk.needed}
    own = {word.split(" of ")[0] for word in needed(point)}
    return words <= own and all(mine >= its for mine, its in pairs)


def _same_fault(small: Shrunk, failure: Fault) -> bool:
    """Return whether a point is that of an earlier failure but for its seed, or needs the same properties.

    Sizes differ then, as rows of other numbers overflow. A plain case needs nothing: there sizes are all that
    tells faults apart.
    """
    one, other = (replace(each, case=replace(each.case, seed=0)) for each in (small.point, failure.point))
    alike = small.needed and small.done and failure.alone and small.needed == failure.shrunk.needed
    return one == other or bool(alike)


def _diagnosed(failures: Sequence[Fault], backend: str, registry: Registry) -> tuple[Fault, ...]:
    """Return failures with the known mistakes that give the same answers, as the kit's report names them."""
    asked = [
        (at, Look(case_id(case), registry.rules[case.rule].source, (one.point.values,)))
        for at, one in enumerate(failures)
        if _can_be_known(one)
        for case in dict.fromkeys((one.point.case, _longer(one.point.case)))
    ]
    looks = tuple(look for _, look in asked)
    operations = tuple(dict.fromkeys(found.source for found in registry.operations.values()))
    source = registry.backends[backend].source
    replies = look(Asked(backend, source, looks, (), operations, shrinking=False))
    found = list(failures)
    for (at, _), reply in zip(asked, replies, strict=False):
        if isinstance(reply, Diagnosed) and reply.mistake and found[at].known is None:
            found[at] = replace(found[at], known=reply)
    return tuple(found)


def _longer(case: Case) -> Case:
    """Return a case with many keys, or the same where its mask lists single ones or its batch all lengths.

    A recurrence has no keys to count.

    In the smallest case that overflows, rounding decides which numbers do. With many keys all do.
    """
    if case.batch or operation_of(case).heads is None:
        return case
    try:
        return replace(case, Lk=max(case.Lk, MANY_KEYS))
    except BadCase:
        return case


def _can_be_known(failure: Fault) -> bool:
    plain = failure.alone and failure.outcome.status == "wrong" and failure.point.way == PLAINLY
    case = _longer(failure.point.case)
    return plain and may_be_known(case) and not too_large(case)


def replayed(point: Point, backend: str, registry: Registry) -> TrialOutcome:
    """Judge one point in a process of its own."""
    with judges(_question(backend, registry), 1, LIMIT_S) as (judge,):
        return _outcome(judge, point)


def _question(backend: str, registry: Registry, draws: int = MOST_DRAWS) -> JudgingQuestion:
    """Return what a process needs to judge points of a backend. draws: the most of each kind of inputs."""
    others = dict.fromkeys(
        [
            *(found.source for found in registry.operations.values()),
            *(found.source for found in registry.storages.values()),
            *(found.source for found in registry.encodings.values()),
        ]
    )
    rules = {name: found.source for name, found in registry.rules.items()}
    return JudgingQuestion(backend, registry.backends[backend].source, rules, tuple(others), draws)
