"""Measure two sides against each other, in a run whose candidates are the sides of each backend."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from attnbench.cases.ids import case_id
from attnbench.cases.select import Selection
from attnbench.live.sides import TwoSides
from attnbench.live.unchanged import unchanged
from attnbench.plugins.registry import Registry, two_sided
from attnbench.results.format import StoredRun
from attnbench.runner.forecast import RunPlan
from attnbench.runner.options import Options
from attnbench.runner.progress import Progress
from attnbench.runner.run import RunSide, start_run
from attnbench.types.case import Case
from attnbench.types.compared import HEAD, SIDES, Compared, sided
from attnbench.types.errors import BadInput


@dataclass(frozen=True)
class Choice:
    """The backends of a live comparison. left_out: those whose code is the same on both sides."""

    measured: tuple[str, ...]
    left_out: tuple[str, ...] = ()


def choose_backends(
    sides: TwoSides, registry: Registry, cases: Iterable[Case], named: Collection[str], *, everything: bool
) -> Choice:
    """Choose the backends that are named, or else those that need no compiling and may have changed.

    everything: choose also those that cannot have changed.

    Raises:
        BadInput: a name isn't known, or neither side has a backend.
    """
    for name in named:
        registry.backend(name)
    if named:
        return Choice(tuple(named))
    there = frozenset().union(*sides.backends().values())
    found = [name for name, entry in registry.backends.items() if name in there and not entry.record.compiles]
    if not found:
        raise BadInput(
            "all backends of both sides compile, and those are left out by default: name them by --backend"
        )
    same = frozenset() if everything else unchanged(sides, registry, cases)
    return Choice(
        tuple(name for name in found if name not in same), tuple(name for name in found if name in same)
    )


def _notes(sides: TwoSides, registry: Registry) -> Iterator[str]:
    """Yield the notes on the sides, and backends of a side that this environment does not have."""
    yield from sides.notes
    for side, names in sides.backends().items():
        for name in sorted(names - registry.backends.keys()):
            yield f"backend {name!r} of the {side} side is not measured: the user's tree doesn't have it"


def nothing_measured(sides: TwoSides, registry: Registry, choice: Choice) -> Compared:
    """Return the comparison of two sides whose backends are all left out."""
    return Compared(
        base=sides.base.name,
        new=sides.head.name,
        cells=(),
        warnings=tuple(_notes(sides, registry)),
        left_out=choice.left_out,
    )


def measure_live(
    sides: TwoSides,
    selection: Selection,
    choice: Choice,
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
    there = sides.backends()
    both = two_sided(registry, {side: there[side] & set(choice.measured) for side in SIDES})
    plan = RunPlan(
        cases=selection.cases,
        backends=tuple(both.backends),
        registry=both,
        options=options,
        named=tuple(sided(name, side) for name in named for side in SIDES if name in there[side]),
        compiled_on=frozenset(case_id(case) for case in selection.compiled_on or ()) if not named else None,
    )
    facts = sides.manifest()
    facts[HEAD] |= {"notes": list(_notes(sides, registry)), "left_out": list(choice.left_out)}
    run_sides: dict[str, RunSide] = {
        side.label: RunSide(side.servers(), facts[side.label]) for side in (sides.base, sides.head)
    }
    return start_run(plan, out, progress, run_sides)
