"""The judge of ``attnbench check`` on the kit's cases, and what is made of its records."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from attnbench.plugins.importing import CHANGED
from attnbench.plugins.sources import installed
from attnbench.testing.absent import absent
from attnbench.testing.apart import Asked, Diagnosed, Raised, Unsteady, look
from attnbench.testing.choosing import Choice, choose
from attnbench.testing.findings import Counts, Finding, Report, merged
from attnbench.testing.locating import STAND_IN_FOR
from attnbench.testing.telling import findings_of, looks
from attnbench.types.record import Record
from attnbench.types.rule import Rule
from attnbench.types.source import Source

if TYPE_CHECKING:
    from attnbench.plugins.registry import Registry
    from attnbench.runner.moment import Progress
    from attnbench.runner.options import Options

BY_ANY = "eager"
"""Computes any rule in the plainest way."""
COMPUTED_AGAIN = 4
"""Small cases with right answers that are computed again and again in one process."""


@dataclass(frozen=True)
class Plan:
    """What to ask of each backend, by name. unavailable: by name, why one can't run here."""

    choices: Mapping[str, Choice]
    unavailable: Mapping[str, str]

    def cases(self, large: bool) -> dict[str, tuple[str, ...]]:
        """By the id of a case the backends that are asked for it."""
        asked: dict[str, tuple[str, ...]] = {}
        for name, choice in self.choices.items():
            for one in choice.cases:
                if large or not one.large:
                    asked[one.id] = (*asked.get(one.id, ()), name)
        return asked


def plan(registry: Registry, backends: Sequence[str], brought: Sequence[str] = ()) -> Plan:
    """Choose the cases of each backend; nothing is computed.

    brought: rules that a plugin brings, which are judged on a backend that computes any: whether their torch
        and NumPy forms agree.
    """
    rules = rules_in(registry)
    unavailable = {name: absent(registry.backend(name)) for name in backends}
    unavailable = {name: reason for name, reason in unavailable.items() if reason}
    choices = {name: choose(registry.backend(name), rules) for name in backends if name not in unavailable}
    if brought and BY_ANY not in choices:
        entry = registry.backend(BY_ANY)
        choices[BY_ANY] = choose(replace(entry, rules=tuple(brought), dtypes=("float32", "float64")), rules)
    return Plan(choices, unavailable)


def rules_in(registry: Registry) -> dict[str, Rule]:
    """The rules of a registry by name."""
    return {name: entry.record for name, entry in registry.rules.items()}


def judged(
    asked: Mapping[str, tuple[str, ...]],
    registry: Registry,
    options: Options,
    out: Path,
    progress: Progress | None = None,
) -> Path:
    """Make a run that only checks; gives its file.

    out: a folder, or the file itself where it ends in .jsonl.

    asked: by the id of a case the backends that are asked for it.

    Raises:
        MeasuringFailed, Interrupted: as any run.
    """
    from attnbench.cases.identity import parse_case
    from attnbench.runner.order import Order, command_line
    from attnbench.runner.run import start_run

    names = tuple(dict.fromkeys(name for names in asked.values() for name in names))
    order = Order(
        cases=tuple(parse_case(case) for case in asked),
        backends=names,
        named=names,
        command=command_line(),
        asked=asked,
    )
    return start_run(order, registry, options, out, progress)


def records_of(
    asked: Mapping[str, tuple[str, ...]], registry: Registry, options: Options
) -> tuple[Record, ...]:
    """The records of such a run, of which nothing is kept."""
    from attnbench.api import load

    if not asked:
        return ()
    with TemporaryDirectory(prefix="attnbench-") as folder:
        return load(judged(asked, registry, options, Path(folder) / "check.jsonl")).records


def reported(planned: Plan, records: Sequence[Record], registry: Registry) -> Report:
    """All that is known of the backends of a plan after these records; wrong ones are looked at closely."""
    counts: list[Counts] = []
    findings: list[Finding] = []
    for name, choice in planned.choices.items():
        own = [record for record in records if record.backend == name]
        right = [record for record in own if record.status == "ok"]
        absent_here = next((record.reason for record in own if record.status == "unavailable"), "")
        counted = [record for record in own if record.status not in ("unsupported", "unavailable")]
        numbers = (len(right), len(counted), choice.declined, choice.asked)
        rules = {registry.rules[record.rule].source for record in own if record.status != "ok"}
        command = _command(name, registry.backends[name].source, rules)
        counts.append(Counts(name, *numbers, absent_here, command))
        findings += choice.findings
        findings += _closely(name, own, right, registry)
    for name, reason in planned.unavailable.items():
        counts.append(Counts(name, 0, 0, 0, 0, reason))
    return Report(tuple(counts), merged(findings))


def _command(name: str, source: Source, rules: Collection[Source]) -> str:
    if source.distribution.startswith(STAND_IN_FOR):
        return ""
    there = {*installed()}
    named = dict.fromkeys(_word(one) for one in (source, *rules) if one not in there)
    return " ".join([f"attnbench check CASE --backend {name}", *(f"--plugin {word}" for word in named)])


def _word(source: Source) -> str:
    """What names a plugin on a command line that is given here."""
    if not source.path:
        return source.module
    path = Path(source.path)
    return shlex.quote(str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path))


def _closely(name: str, own: list[Record], right: list[Record], registry: Registry) -> list[Finding]:
    entry = registry.backends[name]
    sources = {rule: found.source for rule, found in registry.rules.items()}
    wrong = looks(own, sources)
    again = [] if entry.record.compiles else [(r.case, sources[r.rule]) for r in _steady_cases(right)]
    replies = look(Asked(name, entry.source, tuple(wrong.values()), tuple(again)))
    by_shown = {reply.case: reply.do for reply in replies if isinstance(reply, Diagnosed)}
    diagnoses = {case: by_shown.get(one.case, "") for case, one in wrong.items()}
    findings = findings_of(own, diagnoses, entry.record, rules_in(registry))
    for reply in replies:
        if isinstance(reply, Unsteady):
            findings.append(_of_change(name, reply))
        elif isinstance(reply, Raised):
            problem = f"computing several cases in one process, in turns, it raised {reply.words}"
            do = "What prepare() makes must belong to its own call: keep nothing for all cases in a global."
            if CHANGED in reply.words:
                do = "Leave the file as it is until the check has ended, and check again."
            findings.append(Finding(name, problem, do, about="steadiness"))
    return findings


def _steady_cases(right: Sequence[Record]) -> list[Record]:
    """A few of different shapes and passes, none of them large or with dropout."""
    from attnbench.cases.identity import parse_case

    found: dict[tuple[int, int, int, str], Record] = {}
    for record in right:
        case = parse_case(record.case)
        if not case.dropout and case.Lk <= 128:
            found.setdefault((case.Lq, case.Lk, case.D, case.pass_), record)
    return list(found.values())[:COMPUTED_AGAIN]


def _of_change(name: str, change: Unsteady) -> Finding:
    if change.explained:
        return Finding(name, f"{change.what}, within rounding", "", (change.case,), True, "steadiness")
    return Finding(
        name,
        f"{change.what}: they differ by more than rounding explains",
        "Keep nothing from one call to the next, by shape or by address; what prepare() makes belongs "
        "to its case.",
        (change.case,),
        about="steadiness",
    )
