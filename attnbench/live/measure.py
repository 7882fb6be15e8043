"""Measuring two sides against each other: a run whose contenders are the sides of each backend."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from attnbench.cases.ids import case_id
from attnbench.cases.select import Selection
from attnbench.live.sides import TwoSides
from attnbench.plugins.registry import Registry, two_sided
from attnbench.results.format import StoredRun
from attnbench.runner.forecast import RunPlan
from attnbench.runner.link import Interpreter
from attnbench.runner.options import Options
from attnbench.runner.progress import Progress
from attnbench.runner.run import Side, start_run
from attnbench.stats.interval import sign_test
from attnbench.stats.verdict import FALSE_DISCOVERIES, LEVEL
from attnbench.types.compared import SIDES, sided
from attnbench.types.errors import BadInput

FEWEST_SETS = 25
"""Sets are short here and many, since processes of one code differ more than a longer set tells: of 20
identical cells 14 were ``same`` in 16 sets of 0.25 s in all, 15 in 16 of 0.4 s, 17 in 25 of 0.3 s, which took
less time than those."""

_AGAINST = 1


def sets_for(cells: int) -> int:
    """How many sets are enough to tell a difference even if one of them says the opposite.

    It must be sure enough among ``cells`` comparisons, if it's the only one; ``FEWEST_SETS`` at least.
    """
    level, sets = min(LEVEL, FALSE_DISCOVERIES / max(1, cells)), FEWEST_SETS
    while sign_test([1.0] * (sets - _AGAINST) + [-1.0] * _AGAINST) > level:
        sets += 1
    return sets


def measured_backends(sides: TwoSides, registry: Registry, named: Collection[str]) -> tuple[str, ...]:
    """The backends to measure: those named, or all whose code may differ and that need no compiling.

    Raises:
        BadInput: a name isn't known, or nothing is left.
    """
    for name in named:
        registry.backend(name)
    if named:
        return tuple(named)
    alike = sides.alike()
    there = frozenset().union(*sides.backends().values())
    found = tuple(
        name
        for name, entry in registry.backends.items()
        if name in there and name not in alike and not entry.record.compiles
    )
    if not found:
        raise BadInput(
            "no backend's code can differ between the two sides: all come from the same files; "
            "name those to measure all the same by --backend"
        )
    return found


def _not_known_here(sides: TwoSides, registry: Registry) -> Iterator[str]:
    """What a side has and is not measured, since nothing here says what it is."""
    for side, names in sides.backends().items():
        for name in sorted(names - registry.backends.keys()):
            yield f"backend {name!r} of the {side} side is not measured: the user's tree doesn't have it"


def measure_live(
    sides: TwoSides,
    selection: Selection,
    named: Collection[str],
    registry: Registry,
    options: Options,
    out: Path,
    progress: Progress | None,
) -> StoredRun:
    """Measure both sides on selected cases, and return the run.

    named: backends that were asked for by name.

    Raises:
        BadInput: nothing to measure. MeasuringFailed, Interrupted: as of any run.
    """
    backends = measured_backends(sides, registry, named)
    there = sides.backends()
    both = two_sided(registry, {side: there[side] & set(backends) for side in SIDES})
    plan = RunPlan(
        cases=selection.cases,
        backends=tuple(both.backends),
        registry=both,
        options=options,
        named=tuple(sided(name, side) for name in named for side in SIDES if name in there[side]),
        compiled_on=frozenset(case_id(case) for case in selection.compiled_on or ()) if not named else None,
    )
    facts = sides.manifest()
    facts[sides.head.label]["notes"] = [*sides.notes, *_not_known_here(sides, registry)]
    return start_run(
        plan,
        out,
        progress,
        {
            side.label: Side(Interpreter(side.python, side.environment()), facts[side.label])
            for side in (sides.base, sides.head)
        },
    )
