"""Whether the threads of a backend waited for cores that other work had.

One thread that waits holds up all the others, so that a call of microseconds takes as long as the scheduler
lets other work go on: with two threads and one busy core, times of 0.3 ms became 8, 20, 60 and 200 ms. Ratios
are then the scheduler's.
"""

from __future__ import annotations

import cmath
from collections import Counter
from collections.abc import Iterable, Sequence
from math import exp, pi

from attnbench.compare.samples import disturbed
from attnbench.types.record import SetLine

TICKS_MS = (10.0, 4.0, 10 / 3, 3.0)
"""How often kernels decide who runs: 100, 250 or 300 times a second, by their usual settings, or every third
of 1000 times."""

LATE_SHARE = 0.05
PREEMPTED_SHARE = 1 / 3

_FEWEST_LATE = 10
_CHANCE = 1e-9
_MOST_AT_ONE = 0.6
_FEWEST_MULTIPLES = 3


def slice_ms(wall_ns: Sequence[int]) -> float | None:
    """The tick, ms, that the longer of some wall times are whole multiples of; None where there is none.

    Those longer than three quarters of a tick, at least one in twenty and ten, must agree on their place
    within the tick more than chance would have it, and lie at several multiples, most of them not at one:
    times that are all alike are as long as their calls. Rayleigh's test of a common direction; its p-value is
    exp(-n R²) for n directions whose mean has the length R (Mardia & Jupp, Directional statistics, 2000,
    section 6.3.1). Of several ticks the one on whose place they agree most.
    """
    found: dict[float, float] = {}
    for tick_ms in TICKS_MS:
        late = [ns / 1e6 / tick_ms for ns in wall_ns if ns / 1e6 > 0.75 * tick_ms]
        if len(late) < max(_FEWEST_LATE, LATE_SHARE * len(wall_ns)):
            continue
        mean = sum(cmath.exp(2j * pi * ticks) for ticks in late) / len(late)
        if exp(-len(late) * abs(mean) ** 2) > _CHANCE:
            continue
        # What a call itself takes comes on top of what it waits.
        own = cmath.phase(mean) / (2 * pi)
        waits = [ticks - own for ticks in late]
        multiples = Counter(round(wait) for wait in waits if abs(wait - round(wait)) < 1 / 8)
        several = sum(count >= 2 for count in multiples.values()) >= _FEWEST_MULTIPLES
        if several and max(multiples.values()) <= _MOST_AT_ONE * multiples.total():
            found[tick_ms] = abs(mean)
    return max(found, key=found.__getitem__, default=None)


def preempted_share(sets: Iterable[SetLine], backend: str) -> float:
    """The share of a backend's samples that lost time to preemption and in which a thread was put off.

    Both, because the calling thread also loses time where it sleeps while the others work.
    """
    samples = preempted = 0
    for line in sets:
        for block in line.blocks.get(backend, []):
            both = [lost and put_off for lost, put_off in zip(disturbed(block), block.switches, strict=False)]
            samples += len(both)
            preempted += sum(1 for each in both if each)
    return preempted / samples if samples else 0.0


def waiting_note(sets: Sequence[SetLine], backend: str, threads: int) -> str:
    """What a reader should know of the cores of a backend with several threads; "" for nothing."""
    if threads < 2:
        return ""
    share = preempted_share(sets, backend)
    blocks = [block for line in sets for block in line.blocks.get(backend, [])]
    tick_ms = slice_ms([ns for block in blocks for ns in block.wall_ns])
    if tick_ms is None and share < PREEMPTED_SHARE:
        return ""
    seen = []
    if tick_ms is not None:
        seen.append(f"times are multiples of {tick_ms:.3g} ms, the scheduler's tick")
    if share >= PREEMPTED_SHARE:
        seen.append(f"{share:.0%} of its samples were preempted")
    return (
        f"its {threads} threads waited for busy cores: {' and '.join(seen)}; "
        "stop other work or use fewer threads, and measure again"
    )
