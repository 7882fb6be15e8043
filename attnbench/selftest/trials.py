"""From the stored sets of a run to trials: groups of sets that each stand for a run of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import ceil

import msgspec

from attnbench.types.record import Block, SetLine
from attnbench.types.verdict import SampleSets


@dataclass(frozen=True)
class Trial:
    """The sets of one measurement of some contenders. cluster: the case it was measured on.

    Trials of one case share its templates; those of different cases share nothing.
    """

    cluster: str
    sets: tuple[SetLine, ...]


def trials_of(sets: Iterable[SetLine], size: int) -> list[Trial]:
    """Groups of ``size`` consecutive sets of a case; what is left over at the end of a case is left out."""
    found: list[Trial] = []
    for case, lines in groupby(sets, key=lambda line: line.case):
        of_case = tuple(lines)
        found += [
            Trial(case, of_case[start : start + size]) for start in range(0, len(of_case) - size + 1, size)
        ]
    return found


def shortened(sets: Sequence[SetLine], part: float) -> tuple[SetLine, ...]:
    """The same sets as if they had been measured for ``part`` of the time: the first samples of each block.

    At least one sample of each is kept. All contenders lose the same part of their turns, so what is left was
    measured side by side.
    """
    if not 0 < part <= 1:
        raise ValueError(f"a part of {part}: above 0 and 1 at most")
    return tuple(
        msgspec.structs.replace(
            line,
            blocks={name: [_first(block, part) for block in blocks] for name, blocks in line.blocks.items()},
        )
        for line in sets
    )


def kept_share(trials: Sequence[Trial], part: float) -> float:
    """What share of the measured time :func:`shortened` really keeps: more than ``part`` of few samples."""
    whole = sum(sum(measured_s(trial.sets).values()) for trial in trials)
    kept = sum(sum(measured_s(shortened(trial.sets, part)).values()) for trial in trials)
    return kept / whole if whole else part


def _first(block: Block, part: float) -> Block:
    count = ceil(len(block.wall_ns) * part)
    return msgspec.structs.replace(
        block,
        turns=block.turns[:count],
        wall_ns=block.wall_ns[:count],
        cpu_ns=block.cpu_ns[:count],
        switches=block.switches[:count],
        faults=block.faults[:count],
        asked_ns=block.asked_ns[:count],
        host_ns=block.host_ns[:count],
        clock_mhz=block.clock_mhz[:count],
    )


def samples(sets: Iterable[SetLine], backend: str) -> SampleSets:
    """A backend's times per call in ns, by set, for rules that take nothing else."""
    return [
        [wall / block.calls for block in line.blocks[backend] for wall in block.wall_ns]
        for line in sets
        if line.blocks.get(backend)
    ]


def measured_s(sets: Iterable[SetLine]) -> dict[str, float]:
    """Seconds inside timed samples, by backend."""
    spent: dict[str, float] = {}
    for line in sets:
        for backend, blocks in line.blocks.items():
            spent[backend] = spent.get(backend, 0.0) + sum(sum(block.wall_ns) for block in blocks) / 1e9
    return spent


def dropped(sets: Iterable[SetLine]) -> Mapping[str, str]:
    """Contenders that failed while they were measured, with the reason in words."""
    return {name: f"{one.status}: {one.reason}" for line in sets for name, one in line.failed.items()}
