"""What a reader must know of two sides besides their cells, one sentence each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from math import log1p

from attnbench.stored.drift import ENOUGH_BESIDE
from attnbench.stored.numbers import Numbers
from attnbench.stored.paired import Key, Pair
from attnbench.stored.presence import failed_on_both
from attnbench.stored.words import percent_of_log
from attnbench.types.measured import Measured
from attnbench.types.words import count_of

_SHOWN = 3
_TOGETHER = 0.05
"""From here on it is said that all backends of a case moved one way."""


def warnings_of(
    base: Sequence[Measured],
    new: Sequence[Measured],
    pairs: Mapping[Key, Pair],
    numbers: Mapping[Key, Numbers],
) -> tuple[str, ...]:
    """Everything that a strict gate fails on besides verdicts."""
    return (
        *(problem for run in (*base, *new) for problem in run.problems),
        *_versions(base, new),
        *_the_same_run(base, new),
        *_by_both_tools(base, new),
        *_one_sided(pairs),
        *_now_and_then(pairs),
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


def _by_both_tools(base: Sequence[Measured], new: Sequence[Measured]) -> Iterator[str]:
    keys: dict[str, set[Key]] = defaultdict(set)
    for run in (*base, *new):
        keys[run.origin] |= {cell.key for cell in run.cells} if run.cells else set()
    if len(keys) > 1 and (both := sorted(set.intersection(*keys.values()))):
        yield f"{count_of(len(both), 'cell')} measured by {' and by '.join(sorted(keys))}: {_some(both)}"


def _one_sided(pairs: Mapping[Key, Pair]) -> Iterator[str]:
    only_base = [key for key, pair in pairs.items() if not pair.new]
    only_new = [key for key, pair in pairs.items() if not pair.base]
    both_failed = [key for key, pair in pairs.items() if failed_on_both(pair)]
    healed = [key for key, pair in pairs.items() if pair.base and pair.timed_new and not pair.timed_base]
    for keys, words in (
        (only_base, "only in base"), (only_new, "only in new, with nothing to be compared with"),
        (both_failed, "without a time on both sides, because it failed"),
        (healed, "with a time in new alone"),
    ):  # fmt: skip
        if keys:
            yield f"{count_of(len(keys), 'cell')} {words}: {_some(keys)}"


def _now_and_then(pairs: Mapping[Key, Pair]) -> Iterator[str]:
    base = [key for key, pair in pairs.items() if 0 < len(pair.timed_base) < len(pair.base)]
    new = [key for key, pair in pairs.items() if 0 < len(pair.timed_new) < len(pair.new)]
    for side, flaky in (("base", base), ("new", new)):
        if flaky:
            yield f"{count_of(len(flaky), 'cell')} with a time in some runs of {side} alone: {_some(flaky)}"


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
        yield f"and so on {count_of(len(moved) - _SHOWN, 'more case')}"


def _some(keys: Sequence[Key]) -> str:
    shown = ", ".join(f"{backend} on {case}" if backend else case for case, backend in keys[:_SHOWN])
    return shown + (f" and {len(keys) - _SHOWN} more" if len(keys) > _SHOWN else "")
