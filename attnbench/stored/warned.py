"""What a reader must know of two sides besides their cells, one sentence each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from math import log1p

from attnbench.stored.drift import ENOUGH_BESIDE
from attnbench.stored.numbers import Numbers
from attnbench.stored.presence import failed_on_both
from attnbench.stored.units import has_time
from attnbench.stored.words import percent_of_log
from attnbench.types.measured import Cell, Measured

Key = tuple[str, str]

_SHOWN = 3
_TOGETHER = 0.05
"""From here on it is said that all backends of a case moved one way."""


def warnings_of(
    base: Sequence[Measured],
    new: Sequence[Measured],
    sides: Mapping[Key, tuple[list[Cell], list[Cell]]],
    numbers: Mapping[Key, Numbers],
) -> tuple[str, ...]:
    """Everything that a strict gate fails on besides verdicts."""
    return (
        *(problem for run in (*base, *new) for problem in run.problems),
        *_versions(base, new),
        *_the_same_run(base, new),
        *_one_sided(sides),
        *_now_and_then(sides),
        *_together(numbers),
    )


def _versions(base: Sequence[Measured], new: Sequence[Measured]) -> Iterator[str]:
    for origin in sorted({run.origin for run in (*base, *new)}):
        versions = sorted({run.version for run in (*base, *new) if run.origin == origin})
        if len(versions) > 1:
            yield f"files of unequal versions of the format of {origin}: {' and '.join(versions)}"


def _the_same_run(base: Sequence[Measured], new: Sequence[Measured]) -> Iterator[str]:
    for before in base:
        for after in new:
            if before.path.resolve() == after.path.resolve():
                yield f"{before.path} stands on both sides"
            elif before.started == after.started and before.cells and before.cells == after.cells:
                yield f"{before.path} and {after.path} hold the same run"


def _one_sided(sides: Mapping[Key, tuple[list[Cell], list[Cell]]]) -> Iterator[str]:
    only_base = [key for key, (base, new) in sides.items() if base and not new]
    only_new = [key for key, (base, new) in sides.items() if new and not base]
    both_failed = [key for key, cells in sides.items() if failed_on_both(*cells)]
    healed = [
        key for key, (base, new) in sides.items()
        if base and any(map(has_time, new)) and not any(map(has_time, base))
    ]  # fmt: skip
    for keys, words in (
        (only_base, "only in base"), (only_new, "only in new, with nothing to be compared with"),
        (both_failed, "without a time on both sides, though it failed"), (healed, "without a time in base"),
    ):  # fmt: skip
        if keys:
            yield f"{_count(len(keys), 'cell')} {words}: {_some(keys)}"


def _now_and_then(sides: Mapping[Key, tuple[list[Cell], list[Cell]]]) -> Iterator[str]:
    for name, place in (("base", 0), ("new", 1)):
        flaky = [
            key for key, cells in sides.items()
            if any(map(has_time, cells[place])) and not all(map(has_time, cells[place]))
        ]  # fmt: skip
        if flaky:
            yield f"{_count(len(flaky), 'cell')} with a time in some runs of {name} alone: {_some(flaky)}"


def _together(numbers: Mapping[Key, Numbers]) -> Iterator[str]:
    """Cases on which all backends moved one way: the machine, or what they have in common."""
    by_case: dict[str, list[float]] = defaultdict(list)
    for (case, _), found in numbers.items():
        by_case[case].append(found.log_ratio)
    moved = {
        case: min(logs, key=abs) for case, logs in by_case.items()
        if len(logs) > ENOUGH_BESIDE and (min(logs) > log1p(_TOGETHER) or max(logs) < -log1p(_TOGETHER))
    }  # fmt: skip
    for case, least in list(moved.items())[:_SHOWN]:
        direction = "slower" if least > 0 else "faster"
        yield (
            f"all {len(by_case[case])} backends are {direction} by {percent_of_log(least)} or more "
            f"on {case}: the machine, or something they share; only a live comparison tells which"
        )
    if len(moved) > _SHOWN:
        yield f"and so on {len(moved) - _SHOWN} more cases"


def _some(keys: Sequence[Key]) -> str:
    shown = ", ".join(f"{backend} on {case}" for case, backend in keys[:_SHOWN])
    return shown + (f" and {len(keys) - _SHOWN} more" if len(keys) > _SHOWN else "")


def _count(count: int, what: str) -> str:
    return f"{count} {what}" + ("" if count == 1 else "s")
