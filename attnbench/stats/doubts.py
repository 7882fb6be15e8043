"""Reasons to doubt a time, and remarks on it: machine limits, hidden work, kept answers, clocks, busy cores.

A sentence is returned for each; "" stands for nothing to say.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median, median_low, quantiles

from attnbench.stats.pairs import LEAST_CLOCK, disturbed
from attnbench.types.record import DeviceMode, RepetitionLine, SegmentSamples

SUSPECT_ABOVE = 1.25
"""Honest kernels have been seen at 1.18 times the bandwidth of a copy, and at 1.07 times the rate of a
product of matrices."""

FAST_SHARE = 0.05

_LEAST_NET = 0.125
"""At least this share of a copy's time is the copy's own, whatever calling it takes."""


@dataclass(frozen=True)
class Limit:
    """The machine at its best: operations and bytes a second, and the time of a call that does nothing.

    work: the reference call that reached flops_per_s.
    """

    flops_per_s: float
    bytes_per_s: float
    empty_call_ns: float
    work: str = "product of matrices"


def limits(repetitions: Iterable[RepetitionLine]) -> Limit | None:
    """Return the limit of one case from the reference calls of all its repetitions; None where no repetition
    has any.

    The fastest reference calls count, not the typical ones. The speed of a shared core changes by a factor of
    two within milliseconds, and reference calls need not meet the milliseconds in which a backend ran. A
    limit that is too high by luck only makes the check more lenient.

    Products of several sizes are measured, and the best of them counts, or convolutions where those are
    faster. Copies have the case's own size, because a cache makes small copies several times as fast. The
    overhead of calling a copy is subtracted, since kernels with a cheaper call than torch's are honest.
    """
    scales = [line.scale for line in repetitions if line.scale is not None]
    products: dict[int, list[float]] = {}
    for scale in scales:
        for side, times in scale.gemm_ns.items():
            products.setdefault(side, []).extend(times)
    rates = [2 * side**3 / max(_fast(times), 1) for side, times in products.items() if times]
    convolutions = [ns / scale.convolution_flops for scale in scales for ns in scale.convolution_ns]
    copies = [ns / scale.copy_bytes for scale in scales if scale.copy_bytes > 0 for ns in scale.copy_ns]
    calls = [ns for scale in scales for ns in scale.empty_ns]
    if not rates or not copies or not calls:
        return None
    copy_bytes = max(scale.copy_bytes for scale in scales)
    copy_calls = [ns for scale in scales for ns in scale.copy_call_ns]
    ns_per_byte = _fast(copies)
    if copy_calls:
        ns_per_byte = max(ns_per_byte - _fast(copy_calls) / copy_bytes, _LEAST_NET * ns_per_byte)
    limit = Limit(1e9 * max(rates), 1e9 / max(ns_per_byte, 1e-9), _fast(calls))
    if convolutions and 1 / _fast(convolutions) > max(rates):
        return replace(limit, flops_per_s=1e9 / _fast(convolutions), work="convolution")
    return limit


def _fast(times: Sequence[float]) -> float:
    """Return the time that 5 % reach, by nearest rank; one wrong reading among hundreds has no weight."""
    return sorted(times)[max(0, math.ceil(FAST_SHARE * len(times)) - 1)]


def limit_share(flops: float, bytes_moved: float, median_ms: float, limit: Limit) -> float:
    """Return the least time that the machine needs over the time taken: 1 is the limit, above 1 is beyond it.

    The least time is the larger of operations over peak and bytes over bandwidth, as in the roofline model
    (Williams, Waterman, Patterson, 2009). flops, bytes_moved, median_ms: of one call.
    """
    return max(flops / limit.flops_per_s, bytes_moved / limit.bytes_per_s) * 1e3 / median_ms


def limit_problem(flops: float, bytes_moved: float, median_ms: float, limit: Limit) -> str:
    """Say why a time is too short: beyond ``SUSPECT_ABOVE`` times the limit, or shorter than an empty call.

    The same factor applies to the empty call, because a backend may save the Python in its call.
    """
    takes = f"{_si(median_ms / 1e3, 's')} a call"
    if median_ms * 1e6 * SUSPECT_ABOVE < limit.empty_call_ns:
        least = _si(limit.empty_call_ns / 1e9, "s")
        return f"{takes}: calling a function that does nothing takes {least} here"
    share = limit_share(flops, bytes_moved, median_ms, limit)
    if not share > SUSPECT_ABOVE:
        return ""
    if flops / limit.flops_per_s >= bytes_moved / limit.bytes_per_s:
        rate = f"{_si(limit.flops_per_s, 'FLOP/s')}, the rate of the best {limit.work}"
        work = f"{_si(flops, 'FLOP')} at {rate}"
    else:
        rate = f"{_si(limit.bytes_per_s, 'B/s')}, the rate of the best copy of so much"
        work = f"{_si(bytes_moved, 'B')} at {rate}"
    return (
        f"{takes} is {share:.3g} times as fast as this machine's best: "
        f"{work}, take {_si(share * median_ms / 1e3, 's')}"
    )


_PREFIXES = {"T": 1e12, "G": 1e9, "M": 1e6, "k": 1e3, "": 1.0, "m": 1e-3, "µ": 1e-6, "n": 1e-9}


def _si(amount: float, unit: str) -> str:
    prefix = next((prefix for prefix, scale in _PREFIXES.items() if amount >= 0.9995 * scale), "n")
    return f"{amount / _PREFIXES[prefix]:.3g} {prefix}{unit}"


PREEMPTED_SHARE = 1 / 3


def preempted_share(repetitions: Iterable[RepetitionLine], backend: str) -> float:
    """Return the share of a backend's samples that were disturbed and in which a thread was preempted.

    Both are needed, because the calling thread also loses time while it sleeps and the others work.
    """
    both = [
        lost and put_off > 0
        for taken in _samples(repetitions, backend)
        for lost, put_off in zip(disturbed(taken), taken.switches, strict=False)
    ]
    return sum(both) / len(both) if both else 0.0


def waiting_note(repetitions: Sequence[RepetitionLine], backend: str, threads: int) -> str:
    """Say that the threads of a backend waited for busy cores."""
    share = preempted_share(repetitions, backend)
    if threads < 2 or share < PREEMPTED_SHARE:
        return ""
    return (
        f"its {threads} threads waited for busy cores: other programs disturbed {share:.0%} of its samples; "
        "stop other work or use fewer threads, and measure again"
    )


LEAST_SPLIT_NS = 1_000_000
"""Shorter calls may be too small to be divided among threads."""
LEAST_OF_OTHERS = 0.01
"""Threads that only start, and then sleep, use less of the CPU time."""


def one_thread_note(repetitions: Sequence[RepetitionLine], backend: str, threads: int) -> str:
    """Say that no second thread worked in calls that are long enough for several; "" otherwise."""
    samples = [taken for taken in _samples(repetitions, backend) if not taken.mode]
    if threads < 2 or not samples:
        return ""
    own, others = sum(sum(taken.cpu_ns) for taken in samples), sum(taken.others_cpu_ns for taken in samples)
    calls = sum(taken.calls * len(taken.wall_ns) for taken in samples)
    if (
        sum(sum(taken.wall_ns) for taken in samples) < LEAST_SPLIT_NS * calls
        or others > LEAST_OF_OTHERS * own
    ):
        return ""
    return (
        f"of {threads} threads only one worked: the kernel is serial, or a setting such as OMP_THREAD_LIMIT "
        "or OMP_DYNAMIC forbids the others"
    )


MODE_NOTES: dict[DeviceMode, str] = {
    "batch": "batch: back-to-back calls replayed from a CUDA graph, caches hot; launching is not timed",
    "launches": (
        "batch, launched: back-to-back calls without a CUDA graph, since they are long or can't be captured, "
        "caches hot; where launching is slower than the device, the time is that of launching"
    ),
    "cold": "cold: single launches, the L2 cache overwritten before each",
}


def mode_notes(repetitions: Sequence[RepetitionLine], backend: str) -> list[str]:
    """Say how the samples of a backend were taken on a device: one note for each mode, none on the CPU.

    There are several where a call could be captured in one process and not in another.
    """
    modes = {taken.mode for taken in _samples(repetitions, backend)}
    return [note for mode, note in MODE_NOTES.items() if mode in modes]


def slow_clock_note(repetitions: Sequence[RepetitionLine], backend: str) -> str:
    """Say that a device ran below :data:`LEAST_CLOCK` of its default clock in most samples; "" otherwise."""
    clocks = [
        (mhz, b.default_clock_mhz) for b in _samples(repetitions, backend) for mhz in b.clock_mhz if mhz
    ]
    slow = [mhz for mhz, default in clocks if mhz < LEAST_CLOCK * default]
    if 2 * len(slow) <= len(clocks):
        return ""
    default = max(default for _, default in clocks)
    return (
        f"slow clock: the device ran at {median(slow):.0f} MHz of its {default} MHz in {len(slow)} of "
        f"{len(clocks)} samples, so all were kept; cool it, or raise its power limit"
    )


def _samples(repetitions: Iterable[RepetitionLine], backend: str) -> list[SegmentSamples]:
    return [taken for line in repetitions for taken in line.samples.get(backend, [])]


MOST_SHARE, MOST_NS_A_SEGMENT = 0.2, 2_000_000
"""CPU time that other threads may take: a fifth of that of the samples, and 2 ms a segment for libraries."""


def hidden_work(repetitions: Iterable[RepetitionLine], backend: str, threads: int) -> str:
    """Say that other threads worked while a backend was timed on one thread.

    They may work for a call that returns before they end, or between its slots. On a device, and where a case
    has more threads, other threads are expected.
    """
    samples = [taken for taken in _samples(repetitions, backend) if not taken.mode]
    own = sum(sum(taken.cpu_ns) for taken in samples)
    others = sum(taken.others_cpu_ns for taken in samples)
    if threads != 1 or others <= MOST_SHARE * own + MOST_NS_A_SEGMENT * len(samples):
        return ""
    return (
        f"other threads of its process had {others / 1e6:.0f} ms of CPU time while its samples, "
        f"in a case of one thread, had {own / 1e6:.0f} ms"
    )


FEWEST = 8
"""Fewer calls on refreshed inputs say nothing."""
MOST_FACTOR, MOST_READS = 1.15, 2
"""A right kernel's call on refreshed inputs takes at most this many times the other calls, plus this many
times the reading of what the refresh drove out of caches, plus :func:`cold_ns`."""

BUSY_SHARE = 0.1
"""From so many disturbed samples in a case on, other work may be what delayed some calls."""
MOST_BUSY_FACTOR = 2.5
"""On a busy machine fresh calls of eager took 2.4 times its others of 57 µs. What only returns a kept answer
has calls that are shorter than that by far."""

LEAST_COLD_NS, MOST_COLD_NS = 50_000, 100_000


def cold_ns(others_ns: float) -> float:
    """Return the extra time allowed to code that has not run for a moment: that of a call, within bounds.

    Where other processes use the caches, small calls of right kernels took twice their time, 41 µs more. A
    call that only returns a kept answer takes little time, so the least is allowed to it.
    """
    return min(max(others_ns, LEAST_COLD_NS), MOST_COLD_NS)


def most_refreshed_ns(others_ns: float, read_ns: float, *, busy: bool) -> float:
    """Return the longest time of a right kernel's call on refreshed inputs.

    busy: where other processes use the caches, code that has not run for a moment may take twice as long
    again, within :data:`MOST_BUSY_FACTOR` of the other calls.
    """
    most = MOST_FACTOR * others_ns + cold_ns(others_ns)
    if busy:
        most = max(most, min(most + cold_ns(others_ns), MOST_BUSY_FACTOR * others_ns))
    return most + MOST_READS * read_ns


def busy(repetitions: Sequence[RepetitionLine], backend: str) -> bool:
    """Return whether the machine was busy while the backends of a case were timed.

    Many samples of any backend were disturbed, or fresh calls of most others than this one were slow too:
    busy caches preempt nobody.
    """
    names = {name for line in repetitions for name in line.samples}
    lost = [one for name in names for taken in _samples(repetitions, name) for one in disturbed(taken)]
    if sum(lost) > BUSY_SHARE * len(lost):
        return True
    slow = []
    for name in names - {backend}:
        pairs = list(_refreshed_and_others(_samples(repetitions, name)))
        if len(pairs) >= FEWEST:
            slow.append(median(fresh - MOST_FACTOR * others for fresh, others in pairs) > LEAST_COLD_NS / 2)
    return 2 * sum(slow) > len(slow)


def kept_answers(repetitions: Sequence[RepetitionLine], backend: str, threads: int, read_ns: float) -> str:
    """Say that calls on unchanged inputs do less work than calls on refreshed inputs.

    Three of four calls on refreshed inputs must be slower than a right kernel's. read_ns: the least time to
    read the bytes of a call. Several threads go to sleep during the refresh, so they are not judged; nor is
    a device.
    """
    pairs = list(_refreshed_and_others(_samples(repetitions, backend)))
    if threads != 1 or len(pairs) < FEWEST:
        return ""
    if not _beyond(pairs, read_ns, busy=False):
        return ""
    was_busy = busy(repetitions, backend)
    if was_busy and not _beyond(pairs, read_ns, busy=True):
        return ""
    least = quantiles([refreshed for refreshed, _ in pairs], n=4, method="inclusive")[0]
    typical = median(others for _, others in pairs)
    return (
        f"its first calls on new inputs take {least / 1e6:.3g} ms or more (three of four), its other calls "
        f"{typical / 1e6:.3g} ms (median), as if it kept answers"
        # The verdict stays: what keeps answers on a busy machine looks the same.
        + (f", or the machine was busy: {_again(repetitions[0].case, backend)}" if was_busy else "")
    )


def _beyond(pairs: Iterable[tuple[float, float]], read_ns: float, *, busy: bool) -> bool:
    """Return whether three of four calls on refreshed inputs are slower than a right kernel's."""
    beyond = [fresh - most_refreshed_ns(others, read_ns, busy=busy) for fresh, others in pairs]
    return quantiles(beyond, n=4, method="inclusive")[0] > 0


def _again(case: str, backend: str) -> str:
    """Say how to measure a backend again."""
    return f"measure again: attnbench run {case} --backend {backend}"


def _refreshed_and_others(samples: Iterable[SegmentSamples]) -> Iterator[tuple[float, float]]:
    """Yield the times (ns) of a call on refreshed inputs, and of another call of the same segment."""
    for taken in samples:
        if taken.refreshed_ns > 0 and taken.calls * len(taken.wall_ns) > 1:
            yield taken.refreshed_ns, median_low([wall / taken.calls for wall in taken.wall_ns])


_CLOCK_FACTOR, _READING_NS = 2, 20_000
"""A sample's CPU time is doubted beyond this many times its wall time, plus what reading clocks may take."""


def clock_problem(repetitions: Iterable[RepetitionLine], backend: str) -> str:
    """Say that a thread worked for longer than its samples lasted by the worker's own clock.

    The system counts the CPU time of the calling thread. It cannot exceed the time that has passed, however
    long the thread waited for its core, so no load makes an honest clock suspect. More than half of the
    samples must be beyond it, since fewer do not move a median. A device times its samples itself.
    """
    samples = [taken for taken in _samples(repetitions, backend) if not taken.mode]
    wall_ns = [wall for taken in samples for wall in taken.wall_ns]
    cpu_ns = [cpu for taken in samples for cpu in taken.cpu_ns]
    beyond = sum(cpu > _CLOCK_FACTOR * wall + _READING_NS for wall, cpu in zip(wall_ns, cpu_ns, strict=True))
    if 2 * beyond <= len(wall_ns):
        return ""
    return (
        f"its samples take {median(wall_ns) / 1e6:.3g} ms by its own clock (median), but their calls had "
        f"{median(cpu_ns) / 1e6:.3g} ms of CPU time by the system's"
    )
