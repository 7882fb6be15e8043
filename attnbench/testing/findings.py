"""What the kit has found of a backend, and how it is said."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from attnbench.types.words import count_of

About = Literal["declarations", "answers", "steadiness"]
"""What a finding is about: what a backend declares and ``supports`` says; answers; whether they stay."""

SHOWN = 3
"""Cases of a finding that are named; of the others it is said how many there are."""


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong with a backend, or worth knowing.

    backend: its name. problem: what was seen, one sentence. do: what to do about it; "" where nobody knows.
    cases: ids of the cases that show it. is_note: whether it is no mistake. about: which part
    of the kit it is of.
    """

    backend: str
    problem: str
    do: str = ""
    cases: tuple[str, ...] = ()
    is_note: bool = False
    about: About = "answers"

    def __str__(self) -> str:
        lines = [f"{'note' if self.is_note else 'problem'}: {self.problem}"]
        if self.do:
            lines.append(f"  {self.do}")
        lines += [f"  {case}" for case in self.cases[:SHOWN]]
        if len(self.cases) > SHOWN:
            lines.append(f"  and {count_of(len(self.cases) - SHOWN, 'more case')}")
        return "\n".join(lines)


@dataclass(frozen=True)
class Counts:
    """Of one backend. right: cases with right answers, of those ``judged``. declined: combinations of
    features that its ``supports`` refused, of those ``asked`` about. unavailable: why it can't run here, ""
    where it can. command: what judges it on one case again, "" where no command line has it."""

    backend: str
    right: int
    judged: int
    declined: int
    asked: int
    unavailable: str = ""
    command: str = ""

    def __str__(self) -> str:
        if self.unavailable:
            return f"{self.backend}: nothing was checked, since it can't run here: {self.unavailable}"
        return (
            f"{self.backend}: {self.right} of {self.judged} cases right; supports() declined "
            f"{self.declined} of {self.asked} combinations of what it declares"
        )


@dataclass(frozen=True)
class Report:
    """All that the kit says of some backends. ``print`` it."""

    counts: tuple[Counts, ...]
    findings: tuple[Finding, ...]

    @property
    def problems(self) -> tuple[Finding, ...]:
        """The findings that are mistakes."""
        return tuple(finding for finding in self.findings if not finding.is_note)

    @property
    def unavailable(self) -> tuple[Counts, ...]:
        """Of backends that can't run here, so that nothing is known of them."""
        return tuple(counts for counts in self.counts if counts.unavailable)

    @property
    def ok(self) -> bool:
        """Whether something was checked of each backend, and nothing is wrong."""
        return not self.problems and not self.unavailable

    def __str__(self) -> str:
        parts: list[str] = []
        for counts in self.counts:
            parts.append(str(counts))
            own = [finding for finding in self.findings if finding.backend == counts.backend]
            parts += [_indented(str(finding)) for finding in own]
            if counts.command and any(finding.cases for finding in own):
                parts.append(f"  one of these cases again: {counts.command}")
        return "\n".join(parts)


class NotConforming(AssertionError):  # noqa: N818
    """A backend is wrong, or could not be checked. report: all that was found."""

    def __init__(self, report: Report) -> None:
        super().__init__(str(report))
        self.report = report


def merged(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The same with those of equal words in one, which has all their cases; problems first."""
    together: dict[Finding, list[str]] = {}
    for finding in findings:
        together.setdefault(replace(finding, cases=()), []).extend(finding.cases)
    made = [replace(f, cases=tuple(dict.fromkeys(cases))) for f, cases in together.items()]
    return tuple(sorted(made, key=lambda finding: finding.is_note))


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())
