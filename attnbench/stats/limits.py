"""What this machine could do at most while a case was measured, and times that it could not have reached.

The limit is the *best* that was seen, not the typical. The speed of a shared core changes by a factor of
two within milliseconds, and the few milliseconds of a set in which the scale is measured need not be those
in which a backend ran. A backend's time is a median: half of its samples were as fast. What made the
machine that fast half of the time is then hardly ever missing from all samples of the scale, which are
spread over the same sets; and where it was, an honest backend must still be 1.25 times faster than the best
seen to be suspected. A limit that luck has made too high only makes the check more lenient. So the fast end
of the samples is taken: of twenty the fastest, of more the one that 5 % are as fast as, so that one wrong
reading of the clock among hundreds doesn't count.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from attnbench.types.record import SetLine

SUSPECT_ABOVE = 1.25
"""Honest kernels have been seen at 1.18 times the bandwidth of a copy, and at 1.07 times the rate of a
product of matrices."""

FAST_SHARE = 0.05

_LEAST_NET = 0.125
"""Of a copy's time, at least this share is taken to be the copy's own, whatever calling it takes."""


@dataclass(frozen=True)
class Limit:
    """The machine at its best: operations and bytes a second, and the time of a call that does nothing.

    work: what did so many operations.
    """

    flops_per_s: float
    bytes_per_s: float
    empty_call_ns: float
    work: str = "product of matrices"


def limits(sets: Iterable[SetLine]) -> Limit | None:
    """The limit for one case, from all its sets; None where none of them has a scale.

    Products of several sizes are measured and the best of them counts, or convolutions where those are
    faster. Copies are of the case's own size: what fits into a cache is copied several times as fast as what
    doesn't. What calling a copy takes is left out, since kernels with a cheaper call than torch's are honest;
    of small copies it is most of the time.
    """
    scales = [line.scale for line in sets if line.scale is not None]
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


def limit_share(flops: float, bytes_moved: float, median_ms: float, limit: Limit) -> float:
    """The time the machine needs at least over the time taken: 1 is the limit, above 1 is beyond it.

    The least time is the larger of operations over peak and bytes over bandwidth, as in the roofline model
    (Williams, Waterman, Patterson, 2009). flops and bytes_moved: of one call; median_ms: what it took.
    """
    return max(flops / limit.flops_per_s, bytes_moved / limit.bytes_per_s) * 1e3 / median_ms


def limit_problem(flops: float, bytes_moved: float, median_ms: float, limit: Limit) -> str:
    """Why a time can't be believed, in words; "" where it can.

    It is more than 1.25 times as fast as the limit, or takes less than a call that does nothing (by
    the same factor, which a backend without Python in its call may save).
    """
    if median_ms * 1e6 * SUSPECT_ABOVE < limit.empty_call_ns:
        return (
            f"{_seconds(median_ms / 1e3)} a call: calling a function that does nothing takes "
            f"{_seconds(limit.empty_call_ns / 1e9)} here"
        )
    share = limit_share(flops, bytes_moved, median_ms, limit)
    if not share > SUSPECT_ABOVE:
        return ""
    if flops / limit.flops_per_s >= bytes_moved / limit.bytes_per_s:
        work = f"{_si(flops)}FLOP at {_si(limit.flops_per_s)}FLOP/s, the rate of the best {limit.work}"
    else:
        work = f"{_si(bytes_moved)}B at {_si(limit.bytes_per_s)}B/s, the rate of the best copy of so much"
    return (
        f"{_seconds(median_ms / 1e3)} a call is {share:.3g} times as fast as this machine was at its best: "
        f"{work}, take {_seconds(share * median_ms / 1e3)}"
    )


def _fast(times: Sequence[float]) -> float:
    """The time that 5 % are below or at: nearest rank."""
    return sorted(times)[max(0, math.ceil(FAST_SHARE * len(times)) - 1)]


def _seconds(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= 0.9995 * scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def _si(amount: float) -> str:
    for prefix, scale in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if amount >= 0.9995 * scale:
            return f"{amount / scale:.3g} {prefix}"
    return f"{amount:.3g} "
