"""Measure two sides against each other, in a run whose candidates are the sides of each backend."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from attnbench.cases.ids import case_id
from attnbench.cases.select import Selection
from attnbench.live.sides import TwoSides
from attnbench.live.unchanged import unchanged
from attnbench.plugins.registry import Registry
from attnbench.results.format import StoredRun
from attnbench.runner.forecast import RunPlan, with_baseline
from attnbench.runner.options import Options
from attnbench.runner.progress import Progress
from attnbench.runner.run import RunSide, start_run
from attnbench.types.case import Case
from attnbench.types.compared import HEAD, Compared
from attnbench.types.errors import BadInput
from attnbench.types.words import unknown_name


@dataclass(frozen=True)
class LiveBackends:
    """The backends of a live comparison. left_out: those whose code is the same on both sides."""

    measured: tuple[str, ...]
    left_out: tuple[str, ...] = ()


def choose_backends(
    sides: TwoSides, registry: Registry, cases: Iterable[Case], named: Collection[str], *, everything: bool
) -> LiveBackends:
    """Choose the backends that may have changed: of those that are named, or else that need no compiling.

    everything: choose also those that cannot have changed.

    Raises:
        BadInput: a name isn't known, or neither side has a backend.
    """
    there = sides.candidates()
    for name in named:
        if name not in there:
            raise BadInput(unknown_name("backend", name, there))
    # A backend that head lacks is missing there, also one that compiles.
    found = list(named) or [
        name
        for name, each in there.items()
        if not any(entry.record.compiles for entry in each.values()) or name not in sides.facts[HEAD].backends
    ]
    if not found:
        raise BadInput(
            "all backends of both sides compile, and those are left out by default: name them by --backend"
        )
    same = frozenset() if everything else unchanged(sides, registry, cases)
    return LiveBackends(
        tuple(name for name in found if name not in same), tuple(name for name in found if name in same)
    )


def nothing_measured(sides: TwoSides, choice: LiveBackends) -> Compared:
    """Return the comparison of two sides whose backends are all left out."""
    return Compared(
        base=sides.base.name,
        new=sides.head.name,
        cells=(),
        warnings=sides.notes,
        left_out=choice.left_out,
    )


def measure_live(
    sides: TwoSides,
    selection: Selection,
    choice: LiveBackends,
    named: Collection[str],
    registry: Registry,
    options: Options,
    out: Path,
    progress: Progress | None,
) -> StoredRun:
    """Measure both sides on selected cases, and return the run.

    named: backends that the user asked for by name.

    Raises:
        BadInput: nothing to measure. MeasuringFailed, Interrupted: as of any run.
    """
    there = sides.candidates()
    entries = [entry for name in choice.measured for entry in there[name].values()]
    both = replace(registry, backends={entry.name: entry for entry in entries})
    plan = RunPlan(
        cases=selection.cases,
        backends=tuple(both.backends),
        registry=both,
        options=with_baseline(options, selection.cases),
        named=tuple(both.backends) if named else (),
        compiled_on=frozenset(case_id(case) for case in selection.compiled_on or ()) if not named else None,
    )
    facts = sides.manifest()
    facts[HEAD] |= {"notes": list(sides.notes), "left_out": list(choice.left_out)}
    run_sides: dict[str, RunSide] = {
        side.label: RunSide(side.servers(), facts[side.label]) for side in (sides.base, sides.head)
    }
    return start_run(plan, out, progress, run_sides)
