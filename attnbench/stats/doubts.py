"""Reasons to doubt a time or to remark on it: waiting threads, hidden work, kept answers, device modes."""

from __future__ import annotations

import cmath
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from math import exp, pi
from statistics import median, median_low, quantiles

from attnbench.stats.samples import disturbed
from attnbench.types.record import Block, DeviceMode, SetLine

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


MODE_NOTES: dict[DeviceMode, str] = {
    "batch": "batch: back-to-back calls replayed from a CUDA graph, caches hot; launching is not timed",
    "launches": (
        "batch, launched: back-to-back calls that can't be captured in a CUDA graph, caches hot; where "
        "launching is slower than the device, it's launching that is timed"
    ),
    "cold": "cold: single launches, the L2 cache overwritten before each",
}


def mode_notes(sets: Sequence[SetLine], backend: str) -> list[str]:
    """What the samples of a backend are, a note for each kind; none on the CPU.

    Several where a call could be captured in one process and not in another.
    """
    modes = {block.mode for line in sets for block in line.blocks.get(backend, [])}
    return [note for mode, note in MODE_NOTES.items() if mode in modes]


MOST_SHARE, MOST_NS_A_STRETCH = 0.2, 2_000_000
"""What other threads may take: a fifth of the CPU time of the samples, and what libraries take for
themselves in a stretch."""


def hidden_work(sets: Iterable[SetLine], backend: str, threads: int) -> str:
    """What other threads did while a backend was timed on one thread, in words; "" for nothing to speak of.

    They may work for a call whose time ends before they do, or between its turns. On a device, and where a
    case has more threads, such threads are nothing special.
    """
    blocks = [block for line in sets for block in line.blocks.get(backend, []) if not block.mode]
    own = sum(sum(block.cpu_ns) for block in blocks)
    others = sum(block.others_cpu_ns for block in blocks)
    if threads != 1 or others <= MOST_SHARE * own + MOST_NS_A_STRETCH * len(blocks):
        return ""
    return (
        f"other threads of its process had {others / 1e6:.0f} ms of CPU time while its samples, "
        f"in a case of one thread, had {own / 1e6:.0f} ms"
    )


FEWEST = 8
"""Calls on inputs written anew, without which nothing is said."""
MOST_FACTOR, MOST_READS = 1.15, 2
"""What such a call of a right kernel may take: so many times what the others take, and so many times reading
what writing has driven out of caches; and ``cold_ns`` more."""

LEAST_COLD_NS, MOST_COLD_NS = 50_000, 100_000


def cold_ns(others_ns: float) -> float:
    """What code may take that has not run for a moment: as long as such a call takes, within bounds.

    Where others use the caches too, small calls of right kernels took their time once more, 41 µs of it. Who
    only gives again what it has takes little time, and is allowed the least.
    """
    return min(max(others_ns, LEAST_COLD_NS), MOST_COLD_NS)


def kept_answers(sets: Iterable[SetLine], backend: str, threads: int, read_ns: float) -> str:
    """What tells that calls on inputs that stayed do less than others, in words; "" for nothing.

    Three of four calls on inputs written anew must be slower than that. read_ns: the least time for the bytes
    of a call. Several threads have gone to sleep while inputs were written; a device is not judged.
    """
    told = [each for line in sets for each in _told(line.blocks.get(backend, []))]
    if threads != 1 or len(told) < FEWEST:
        return ""
    beyond = [
        renewed - MOST_FACTOR * others - cold_ns(others) - MOST_READS * read_ns for renewed, others in told
    ]
    if quantiles(beyond, n=4, method="inclusive")[0] <= 0:
        return ""
    least = quantiles([renewed for renewed, _ in told], n=4, method="inclusive")[0]
    typical = median(others for _, others in told)
    return (
        f"its first calls on inputs written anew take {least / 1e6:.3g} ms or more (in three of four), "
        f"and its others {typical / 1e6:.3g} ms (median), as where answers are kept"
    )


def _told(blocks: Iterable[Block]) -> Iterator[tuple[float, float]]:
    """ns of the call on inputs written anew, and of a call of the same stretch, where there are others."""
    for block in blocks:
        if block.renewed_ns > 0 and block.calls * len(block.wall_ns) > 1:
            yield block.renewed_ns, median_low([wall / block.calls for wall in block.wall_ns])
