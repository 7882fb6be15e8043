"""Findings of the kit on backends, and the report of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from attnbench.types.exit_status import worst
from attnbench.types.words import count_of

About = Literal["declarations", "answers", "steadiness"]
"""The subject of a finding: declarations and ``supports``; answers; answers that change."""

SHOWN = 3
"""Cases of a finding that are named; the others are counted."""


@dataclass(frozen=True)
class Finding:
    """One problem of a backend.

    backend: its name. problem: one sentence. do: what to do about it, "" if that is not known. cases: ids of
    the cases that show it. about: the part of the kit that found it. check: the check that failed
    (:mod:`attnbench.types.status`), ``repeatability`` if answers changed, "" if a call failed otherwise.
    mistake: the known mistake that gives the same answers, "" for none. exit_code: 3 where no check failed,
    but a case could not be run. again: how to ask its case again, where the report's command can't.
    smallest: the command that asks the smallest case that shows it, where one was sought. variants: the cases
    that show it on a variant only, each with words for that variant.
    """

    backend: str
    problem: str
    do: str = ""
    cases: tuple[str, ...] = ()
    about: About = "answers"
    check: str = ""
    mistake: str = ""
    exit_code: int = 1
    again: tuple[str, ...] = ()
    smallest: str = ""
    variants: tuple[tuple[str, str], ...] = ()

    @property
    def advice(self) -> str:
        """What to do, and how to ask the smallest case, without the problem; "" where nothing is known."""
        lines = [f"advice for {self.backend}: {self.do}"] if self.do else []
        if self.smallest:
            lines.append(f"the smallest case on which {self.backend} fails: {self.smallest}")
        return "\n".join(lines)

    def __str__(self) -> str:
        lines = [f"problem: {self.problem}"]
        if self.do:
            lines.append(f"  {self.do}")
        variants = dict(self.variants)
        lines += [
            f"  {case} (wrong {variants[case]})" if case in variants else f"  {case}"
            for case in self.cases[:SHOWN]
        ]
        if len(self.cases) > SHOWN:
            lines.append(f"  and {count_of(len(self.cases) - SHOWN, 'more case')}")
        if self.smallest:
            lines.append(f"  the smallest case that fails: {self.smallest}")
        lines += [f"  {line}" for line in self.again]
        return "\n".join(lines)


@dataclass(frozen=True)
class Counts:
    """The numbers of one backend.

    right: cases with right answers, of ``judged``. declined: combinations of what it declares that its
    ``supports`` refused, of ``asked``. The judged cases are some of the others, and cases of larger shapes.
    unavailable: why no case of it could be checked, "" where one could. command: how to judge it on one CASE
    again, "" where no command line can name it. searched: the words of a search.
    """

    backend: str
    right: int
    judged: int
    declined: int
    asked: int
    unavailable: str = ""
    command: str = ""
    searched: str = ""

    def __str__(self) -> str:
        if self.unavailable:
            return f"{self.backend}: nothing was checked: {self.unavailable}"
        wrong = self.judged - self.right
        found = f"{self.right} right, {wrong} not" if wrong else "all right"
        if not self.judged:
            found = "so nothing is known of it"
        checked = f"{self.backend}: {count_of(self.judged, 'case')} checked, {found}"
        if not self.declined:
            return checked
        taken = self.asked - self.declined
        return f"{checked}, chosen after supports() took {taken} of {count_of(self.asked, 'combination')}"


@dataclass(frozen=True)
class Report:
    """All findings on some backends. ``print`` it."""

    counts: tuple[Counts, ...]
    findings: tuple[Finding, ...]

    @property
    def unavailable(self) -> tuple[Counts, ...]:
        """The backends of which no case could be checked, so that nothing is known of them."""
        return tuple(counts for counts in self.counts if counts.unavailable)

    @property
    def ok(self) -> bool:
        """True if cases of every backend were checked and nothing is wrong."""
        return not self.findings and not self.unavailable

    @property
    def exit_code(self) -> int:
        """The exit status of ``attnbench check``."""
        return worst([*(one.exit_code for one in self.findings), *(3 for _ in self.unavailable)])

    def __str__(self) -> str:
        parts: list[str] = []
        for counts in self.counts:
            parts += filter(None, [str(counts), counts.searched])
            for finding in self.findings:
                if finding.backend == counts.backend:
                    parts += [f"  {line}" for line in str(finding).splitlines()]
                    if counts.command and finding.cases and not finding.again:
                        again = counts.command.replace("CASE", finding.cases[0])
                        parts.append(f"    the first of these cases again: {again}")
        return "\n".join(parts)


class NotConforming(AssertionError):  # noqa: N818
    """A backend is wrong, or could not be checked. report: all findings."""

    def __init__(self, report: Report) -> None:
        super().__init__(str(report))
        self.report = report


def merged(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Join findings that differ in their cases only."""
    together: dict[Finding, list[Finding]] = {}
    for finding in findings:
        together.setdefault(replace(finding, cases=(), variants=()), []).append(finding)
    return tuple(
        replace(
            one,
            cases=tuple(dict.fromkeys(case for each in group for case in each.cases)),
            variants=tuple(dict.fromkeys(variant for each in group for variant in each.variants)),
        )
        for one, group in together.items()
    )
