"""Repetitions with known answers: every number in them is chosen."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from attnbench_selftest.measure import Trial
from attnbench_selftest.plan import Part

from attnbench.types.record import RepetitionLine, SegmentSamples

CALLS = 10
FactorOf = Callable[[str, int], float]
"""``factor(candidate, repetition)``: its time over 40 µs."""


def block(wall_ns: Sequence[int], *, segment: int = 0, calls: int = CALLS) -> SegmentSamples:
    """Undisturbed samples."""
    zeros = [0] * len(wall_ns)
    return SegmentSamples(
        segment, list(range(len(wall_ns))), calls, list(wall_ns), list(wall_ns), zeros, zeros
    )


def repetition_line(
    index: int, factor: FactorOf, candidates: Sequence[str], case: str = "case", samples: int = 4
) -> RepetitionLine:
    """One repetition; in each of two segments every candidate has the same number of equal samples."""
    blocks = {}
    for name in candidates:
        wall_ns = [round(CALLS * 40_000 * factor(name, index))] * samples
        blocks[name] = [block(wall_ns, segment=segment) for segment in (0, 1)]
    return RepetitionLine(case, index, [0, 1], list(candidates), {}, blocks, list(candidates), {})


def trial(part: Part, factor: FactorOf, case: str = "case", samples: int = 4) -> Trial:
    """A trial of a part."""
    return Trial(
        case,
        tuple(repetition_line(i, factor, part.candidates, case, samples) for i in range(part.repetitions)),
    )


def trials(part: Part, factor: FactorOf, samples: int = 4) -> list[Trial]:
    """All trials of a part, each on a case of its own."""
    return [trial(part, factor, f"case{i}", samples) for i in range(part.trials)]


def alike(spread: float = 0.001, seed: int = 1) -> FactorOf:
    """Identical candidates: normal noise of ``spread`` from repetition to repetition."""
    rng = np.random.default_rng(seed)
    return lambda name, index: float(np.exp(rng.normal(0.0, spread)))


def slower_by(part: float, spread: float = 0.001, seed: int = 1) -> FactorOf:
    """All but the baseline (whose name ends in 0 and begins with copy) take ``part`` more."""
    noise = alike(spread, seed)
    return lambda name, index: noise(name, index) * (1.0 if name == "copy_0" else 1 + part)
