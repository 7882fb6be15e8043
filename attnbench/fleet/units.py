"""Units: the cases that one task measures; the words of its command, and what of its file is complete."""

from __future__ import annotations

import datetime
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

from attnbench.results.format import RunWriter, StoredRun
from attnbench.runner.forecast import CaseForecast
from attnbench.types.errors import BadInput
from attnbench.types.fleet import Task
from attnbench.types.record import CaseLine, EndLine, Record, RepetitionLine

LEAST_S, MOST_S = 30.0, 120.0
"""The forecast time of a unit: shorter ones mostly start processes, and of longer ones much may be lost."""

FILE = "unit.jsonl"


@dataclass(frozen=True)
class Unit:
    """Cases, by their ids, which one place measures one after the other.

    again: a sentence for their records if they were lost before, else "".
    """

    cases: tuple[str, ...]
    again: str = ""


def divided(cases: Sequence[CaseForecast], places: int) -> list[Unit]:
    """Divide cases into units of neighbours, so that each of several places gets two or more if it can."""
    target_s = min(MOST_S, max(LEAST_S, sum(case.total_s for case in cases) / (2 * places)))
    units: list[list[str]] = []
    taken_s = target_s
    for case in cases:
        if taken_s + case.total_s > target_s:
            units.append([])
            taken_s = 0.0
        units[-1].append(case.case)
        taken_s += case.total_s
    return [Unit(tuple(unit)) for unit in units]


@dataclass(frozen=True)
class CommandWords:
    """The command of a unit without its cases: words and options of the user, and the files that they name.

    plugins: words of --plugin, also among the words.
    """

    words: tuple[str, ...]
    files: dict[str, bytes] = field(default_factory=dict)
    plugins: tuple[str, ...] = ()

    def task(self, unit: Unit) -> Task:
        """Return the task that measures a unit."""
        cases = [word for case in unit.cases for word in ("--case", case)]
        noted = ("--note", unit.again) if unit.again else ()
        words = (
            "attnbench",
            "--quiet",
            "run",
            *self.words,
            *cases,
            *noted,
            "--out",
            FILE,
            "--format",
            "json",
        )
        return Task(words, self.files, FILE, _variables())

    def facts(self) -> Task:
        """Return the task that reads the facts of a machine."""
        return Task(("attnbench.fleet.facts", *self.plugins), self.files, "", _variables())


def packed(arguments: Sequence[str], options: Sequence[str], plugins: Sequence[str]) -> CommandWords:
    """Return the words of a command, with the content of suites and plugins that are files.

    arguments: ids, suites and files of suites. options: all but --plugin.

    Raises:
        BadInput: a file can't be read.
    """
    files: dict[str, bytes] = {}

    def carried(word: str, ending: str) -> str:
        if not (word.endswith(ending) or (ending == ".py" and os.sep in word)):
            return word
        try:
            content = Path(word).read_bytes()
        except OSError as failure:
            raise BadInput(f"can't read {word!r}: {failure.strerror}") from failure
        # Two files of one name need folders of their own, and a plugin's name is that of its file.
        name = f"{len(files)}/{Path(word).name}"
        files[name] = content
        return name

    cases = [carried(word, ".toml") for word in arguments]
    carried_plugins = tuple(carried(word, ".py") for word in plugins)
    loading = [word for plugin in carried_plugins for word in ("--plugin", plugin)]
    return CommandWords((*cases, *options, *loading), files, carried_plugins)


def _variables() -> dict[str, str]:
    """The variables that attnbench itself reads."""
    return {name: value for name, value in os.environ.items() if name.startswith("ATTNBENCH_")}


def complete_cases(run: StoredRun) -> list[str]:
    """Return the cases of which all records are there."""
    backends = set(run.manifest.backends)
    return [case for case, recorded in run.recorded.items() if recorded == backends]


def keep_complete(run: StoredRun, path: Path) -> None:
    """Write the complete cases of a run that was cut off to a new file, as a run of these alone."""
    cases = set(complete_cases(run))
    here = [case for case in run.manifest.cases if case in cases]
    counts = {case: count for case, count in run.manifest.counts.items() if case in cases}
    lines: list[CaseLine | RepetitionLine | Record] = [*run.cases, *run.repetitions, *run.records]
    with RunWriter.create(path, replace(run.manifest, cases=here, counts=counts)) as writer:
        for line in lines:
            if line.case in cases:
                writer.append(line)
        last = datetime.datetime.fromtimestamp(run.path.stat().st_mtime, datetime.UTC)
        wall_s = (last - datetime.datetime.fromisoformat(run.manifest.started)).total_seconds()
        writer.append(EndLine(last.isoformat(timespec="seconds"), wall_s, {}))
