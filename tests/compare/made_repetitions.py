"""Repetitions made by hand, and strategies that make any."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from hypothesis import strategies as st

from attnbench.types.record import RepetitionLine, SegmentSamples


def block(
    wall_ns: Sequence[int], *, cpu_ns: Sequence[int] | None = None, faults: int = 0, **more: Any
) -> SegmentSamples:
    """A block whose samples had the core all the time, unless ``cpu_ns`` says otherwise."""
    n = len(wall_ns)
    said = {"segment": 0, "slots": list(range(n)), "calls": 1, "switches": [0] * n}
    cpu = list(wall_ns if cpu_ns is None else cpu_ns)
    return SegmentSamples(wall_ns=list(wall_ns), cpu_ns=cpu, faults=[faults] * n, **(said | more))


def repetition_line(index: int = 0, **blocks: Sequence[SegmentSamples]) -> RepetitionLine:
    return RepetitionLine(
        "case", index, [0], list(blocks), {}, {k: list(v) for k, v in blocks.items()}, [], {}
    )


def simple_repetitions(**times: Sequence[int]) -> list[RepetitionLine]:
    """One sample in each repetition: times by backend, a number for each repetition."""
    count = len(next(iter(times.values())))
    return [
        repetition_line(i, **{name: [block([ns[i]])] for name, ns in times.items()}) for i in range(count)
    ]


TIMES = st.integers(1_000, 10**9)


@st.composite
def blocks(draw: st.DrawFn, segment: int) -> SegmentSamples:
    """One to six samples, of which any may have lost a tenth of their time."""
    walls = draw(st.lists(TIMES, min_size=1, max_size=6))
    lost = draw(st.lists(st.booleans(), min_size=len(walls), max_size=len(walls)))
    cpu = [wall * 9 // 10 if gone else wall for wall, gone in zip(walls, lost, strict=True)]
    return block(walls, segment=segment, calls=draw(st.integers(1, 3)), cpu_ns=cpu)


def random_repetitions(seed: int, count: int) -> list[RepetitionLine]:
    """Repetitions of up to two segments of ``mine`` and ``base``, of which either may be missing anywhere.

    Counts are unequal, a tenth of the samples is preempted, and times tie now and then.
    """
    rng = Random(seed)

    def random_block(segment: int) -> SegmentSamples:
        walls = [rng.choice((1000, rng.randrange(1_000, 10**9))) for _ in range(rng.randint(1, 6))]
        cpu = [wall * 9 // 10 if rng.random() < 0.1 else wall for wall in walls]
        return block(walls, segment=segment, calls=rng.randint(1, 3), cpu_ns=cpu)

    def random_blocks() -> list[SegmentSamples]:
        return [random_block(segment) for segment in rng.choice([(0, 1), (0, 1), (0, 1), (0,), (1,), ()])]

    return [
        repetition_line(i, **{name: random_blocks() for name in ("mine", "base") if rng.random() < 0.9})
        for i in range(count)
    ]


def many_repetitions(most: int = 6) -> st.SearchStrategy[list[RepetitionLine]]:
    """None to ``most`` random repetitions."""
    return st.builds(random_repetitions, st.integers(0, 2**32), st.integers(0, most))
